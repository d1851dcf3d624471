//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

mod cc_curves;
mod cc_path;
mod cc_properties;
mod cc_rules;
mod common;
mod enforcement;
mod lifecycle;
mod net;
