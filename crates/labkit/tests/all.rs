//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

#[path = "../../agent/tests/common/mod.rs"]
mod common;
mod ignore_window;
#[path = "../../agent/tests/live/mod.rs"]
mod live;
#[path = "../../core/tests/net/mod.rs"]
mod net;
mod pool;
mod switch_port;
mod tenant_cc;
