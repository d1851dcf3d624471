//! The enforcement step by its behaviours: two tenants, two hosts, a network that misbehaves.

#[path = "../net/mod.rs"]
mod net;

mod handshake;
mod window;
