//! The enforcement step by its behaviours: two tenants, two hosts, a network that misbehaves.

mod adoption;
mod blackhole;
mod change;
mod feedback;
mod forgery;
mod frames;
mod handshake;
mod hostile;
mod layouts;
mod lives;
mod loss;
mod mss;
mod policing;
mod properties;
mod restraint;
mod window;
