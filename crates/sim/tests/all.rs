//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

mod adaptive;
mod bounds;
mod calibration;
mod capture;
mod cee;
mod failures;
mod far_paths;
mod film;
mod host_switch;
mod hosts;
#[allow(dead_code, reason = "shared with core; this uses a part of it")]
#[path = "../../core/tests/net/opt.rs"]
mod opt;
mod programs;
mod routing;
mod stacks;
mod support;
mod theory;
mod threads;
mod trace;
mod traffic;
#[allow(dead_code, reason = "shared with core; this uses a part of it")]
#[path = "../../core/tests/net/wire.rs"]
mod wire;
mod world;
