//! The attacks, by name.

mod options;
mod raw;
mod wrapped;

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

/// The kind of the first pair of a run, which decides what must not come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It tries to have more than its share.
    Hostile,
    /// It is an honest tenant whose packets look odd: it must have its share, too.
    Honest,
    /// It is an honest tenant; a stranger attacks the connection of this pair.
    Against(usize),
    /// It sends as fast as it can, which takes CPU time from all that share this machine.
    TakesCpu,
}

/// One way around enforcement, or an honest oddity.
pub struct Attack {
    pub name: &'static str,
    pub kind: Kind,
    /// Sets the first pair going, beside these.
    pub start: fn(&Net, &[Bulk]) -> Result<Hostile>,
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
        Ok(Self::of(bulk, vec![Box::new(near), Box::new(far)]))
    }

    /// A connection, and what carries it.
    fn of(bulk: Bulk, mut carriers: Vec<Box<dyn Any>>) -> Self {
        let useful = Arc::clone(&bulk.received);
        carriers.insert(0, Box::new(bulk));
        Self {
            useful,
            prelude: None,
            parts: carriers,
        }
    }

    /// Honest kernels, and a SYN with data.
    fn fast_open(net: &Net) -> Result<Self> {
        let mut carriers: Vec<Box<dyn Any>> = Vec::new();
        for wires in [&net.sender, &net.receiver] {
            let [out, back] = honest();
            carriers.push(Box::new(mangle::carry(wires, out, back)?));
        }
        Ok(Self::of(Bulk::fast(net, 1)?, carriers))
    }
}

fn honest() -> [Change; 2] {
    [mangle::nothing(), mangle::nothing()]
}

/// The run with which all others are compared.
pub const HONEST: Attack = Attack {
    name: "honest",
    kind: Kind::Honest,
    start: |net, _| Hostile::mangled(net, honest(), honest()),
};

type Start = fn(&Net, &[Bulk]) -> Result<Hostile>;

const fn attack(name: &'static str, start: Start) -> Attack {
    Attack {
        name,
        kind: Kind::Hostile,
        start,
    }
}

const fn honest_oddity(name: &'static str, start: Start) -> Attack {
    Attack {
        name,
        kind: Kind::Honest,
        start,
    }
}

const fn cpu_hog(name: &'static str, start: Start) -> Attack {
    Attack {
        name,
        kind: Kind::TakesCpu,
        start,
    }
}

const fn against_a_victim(name: &'static str, start: Start) -> Attack {
    Attack {
        name,
        kind: Kind::Against(raw::VICTIM),
        start,
    }
}

pub const ALL: &[Attack] = &[
    attack("malformed-ack", |net, _| options::malformed_ack(net)),
    attack("md5-ack", |net, _| options::md5_ack(net)),
    attack("ao-ack", |net, _| options::ao_ack(net)),
    against_a_victim("spoofed-marks", raw::spoofed_marks),
    against_a_victim("spoofed-wrong-sums", raw::spoofed_wrong_sums),
    attack("forged-behind-packet", |net, _| {
        options::forged_behind_packet(net)
    }),
    attack("syn-ip-option", |net, _| raw::syn_with_ip_option(net)),
    attack("syn-trailer", |net, _| raw::syn_with_trailer(net)),
    honest_oddity("eol-syn", |net, _| options::eol_syn(net)),
    honest_oddity("eol-syn-ack", |net, _| options::eol_syn_ack(net)),
    honest_oddity("eol-all", |net, _| options::eol_all(net)),
    attack("optimistic-receiver", |net, _| {
        raw::optimistic_receiver(net)
    }),
    attack("optimistic-pair", |net, _| raw::optimistic_pair(net)),
    attack("ignored-window", |net, _| options::ignored_window(net)),
    attack("large-mss-receiver", |net, _| {
        options::large_mss_receiver(net)
    }),
    attack("large-mss-pair", |net, _| options::large_mss_pair(net)),
    attack("blast", |net, _| raw::blast(net)),
    honest_oddity("vlan", |net, _| wrapped::vlan(net)),
    attack("double-tag", |net, _| wrapped::double_tag(net)),
    honest_oddity("ipv6", |net, _| wrapped::ipv6(net)),
    attack("ipv6-destination-options", |net, _| {
        wrapped::destination_options(net)
    }),
    honest_oddity("fast-open", |net, _| Hostile::fast_open(net)),
    attack("ack-flood", |net, _| raw::ack_flood(net, raw::Flood::Paced)),
    attack("ack-flood-back", |net, _| {
        raw::ack_flood_back(net, raw::Flood::Paced)
    }),
    cpu_hog("ack-storm", |net, _| {
        raw::ack_flood(net, raw::Flood::Unpaced)
    }),
    cpu_hog("ack-storm-back", |net, _| {
        raw::ack_flood_back(net, raw::Flood::Unpaced)
    }),
    against_a_victim("icmp-errors", raw::icmp_errors),
];
