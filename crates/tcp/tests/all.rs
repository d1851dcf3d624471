//! All tests of the crate from outside it, as one program: a program for each file would link
//! the same code again and again.

mod accecn;
mod bursts;
mod cache;
mod harness;
mod lifecycle;
mod properties;
mod receiver;
mod reduction;
mod sender;
mod small_queues;
mod spurious;
mod transfer;
