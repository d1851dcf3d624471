//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

mod agent;
mod both;
mod claims;
mod command;
#[path = "../../dataplane/tests/common/mod.rs"]
mod common;
mod compare;
mod contract;
mod lives;
mod reload;
mod site;
mod sweep;
mod switch;
mod trace;
mod unreported;
mod untold;
mod upgrade;
