//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

mod switch;
mod vnic;
