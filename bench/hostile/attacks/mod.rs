//! The attacks, by name.

mod options;

use std::{
    any::Any,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::AtomicU64},
};

use anyhow::Result;

use crate::{
    mangle::{self, Change},
    net::{Net, Side},
    traffic::{Bulk, PORT},
};

/// One way around enforcement, or an honest oddity.
pub struct Attack {
    pub name: &'static str,
    /// Sets the first pair going.
    pub start: fn(&Net) -> Result<Hostile>,
}

/// The first pair under way, until dropped.
#[derive(Default)]
pub struct Hostile {
    /// Bytes that its receiver has, in order.
    pub useful: Arc<AtomicU64>,
    /// Done once, before anything is measured.
    pub prelude: Option<Box<dyn FnOnce() -> Result<()>>>,
    /// Ended in this order.
    parts: Vec<Box<dyn Any>>,
}

impl Hostile {
    /// A bulk connection of two honest kernels whose frames are changed on the way.
    fn mangled(net: &Net, sender: [Change; 2], receiver: [Change; 2]) -> Result<Self> {
        let address = Ipv4Addr::from(Side::Receiver.address(1));
        Self::mangled_to(net, SocketAddr::new(address.into(), PORT), sender, receiver)
    }

    /// The same to this address of the receiver. Of each end, what leaves it and what comes to it.
    fn mangled_to(
        net: &Net,
        address: SocketAddr,
        sender: [Change; 2],
        receiver: [Change; 2],
    ) -> Result<Self> {
        let [out, back] = sender;
        let near = mangle::carry(&net.sender, out, back)?;
        let [out, back] = receiver;
        let far = mangle::carry(&net.receiver, out, back)?;
        let bulk = Bulk::to(net, 1, address)?;
        Ok(Self {
            useful: Arc::clone(&bulk.received),
            prelude: None,
            parts: vec![Box::new(bulk), Box::new(near), Box::new(far)],
        })
    }
}

fn honest() -> [Change; 2] {
    [mangle::nothing(), mangle::nothing()]
}

/// What all others are compared with.
pub const HONEST: Attack = Attack {
    name: "honest",
    start: |net| Hostile::mangled(net, honest(), honest()),
};

pub const ALL: &[Attack] = &[Attack {
    name: "malformed-ack",
    start: options::malformed_ack,
}];
