//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

mod bounds;
mod cee;
mod documents;
mod fabric;
mod host_switch;
mod hotspot;
mod language;
mod programs;
mod shipped;
mod traffic;
