//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

mod cc_vectors;
mod charge;
mod common;
mod compliant;
mod faults;
mod instance;
mod kernel;
mod live;
mod live_adopt;
mod live_edit;
mod live_hostile;
#[path = "../../core/tests/net/mod.rs"]
mod net;
mod reload;
mod strangers;
mod vectors;
