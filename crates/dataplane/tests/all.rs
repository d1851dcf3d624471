//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

mod cable;
mod cable_hostile;
mod capture;
mod common;
mod govern;
mod head_of_line;
mod hostile;
mod kernels;
mod lossless;
mod migrate;
#[path = "../../core/tests/net/mod.rs"]
mod net;
mod notify;
mod pairs;
mod pfc;
mod priorities;
mod qemu;
#[path = "../../agent/tests/vectors/random.rs"]
mod random;
mod rules;
mod sockets;
mod survive;
mod taps;
mod testpmd;
mod threads;
mod vnic;
mod xdp;
