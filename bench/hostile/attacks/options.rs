//! Options of TCP that hosts cannot read, read too willingly, or do not find.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use anyhow::Result;

use super::{Hostile, honest};
use crate::{
    frame::{self, EOL, NOP, Tcp},
    mangle::{self, Change},
    net::{Net, Side},
};

/// Room for windows of 16 MB and more, at both ends of the first pair.
pub fn large_windows(net: &Net) -> Result<()> {
    for side in [Side::Sender, Side::Receiver] {
        for name in ["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"] {
            net.sysctl(&side.tenant(1), name, "4096 131072 33554432")?;
        }
    }
    Ok(())
}

/// Pure ACKs of a receiver end in these options and offer the largest window.
fn acks_with(extra: &'static [u8]) -> Change {
    Box::new(move |frame| {
        let Some(at) = Tcp::find(frame).filter(|at| at.is_pure_ack(frame)) else {
            return true;
        };
        at.set_window(frame, u16::MAX);
        let mut options = at.options(frame).to_vec();
        options.truncate((40 - extra.len()).min(options.len()));
        options.extend(extra);
        at.set_options(frame, &options);
        true
    })
}

/// A receiver alone: its pure ACKs have an option that is longer than the header.
pub fn malformed_ack(net: &Net) -> Result<Hostile> {
    large_windows(net)?;
    let receiver = [acks_with(&[8, 40, 0, 0]), mangle::nothing()];
    Hostile::mangled(net, honest(), receiver)
}

/// Its pure ACKs have a signature (RFC 2385), which the sender's stack does not look at.
pub fn md5_ack(net: &Net) -> Result<Hostile> {
    signed(net, acks_with(&MD5))
}

/// The same with RFC 5925's.
pub fn ao_ack(net: &Net) -> Result<Hostile> {
    signed(net, acks_with(&AO))
}

fn signed(net: &Net, acks: Change) -> Result<Hostile> {
    large_windows(net)?;
    let sender = [mangle::nothing(), without_signatures()];
    Hostile::mangled(net, sender, [acks, mangle::nothing()])
}

const MD5: [u8; 20] = signature(19, 18);
const AO: [u8; 20] = signature(29, 18);

const fn signature(kind: u8, length: u8) -> [u8; 20] {
    let mut bytes = [0xab; 20];
    bytes[0] = NOP;
    bytes[1] = NOP;
    bytes[2] = kind;
    bytes[3] = length;
    bytes
}

fn without_signatures() -> Change {
    Box::new(|frame| {
        let Some(at) = Tcp::find(frame) else {
            return true;
        };
        let before = frame::split(at.options(frame));
        let mut kept: Vec<u8> = before
            .iter()
            .filter(|option| ![19, 29].contains(&option[0]))
            .flat_map(|option| option.iter().copied())
            .collect();
        if kept.len() < before.iter().map(|option| option.len()).sum() {
            kept.resize(kept.len().next_multiple_of(4), NOP);
            at.set_options(frame, &kept);
        }
        true
    })
}

/// Options without NOPs, ended by EOL and zeroes, as smoltcp and macOS write them.
fn ended_by_eol(which: fn(&Tcp, &[u8]) -> bool) -> Change {
    Box::new(move |frame| {
        let Some(at) = Tcp::find(frame).filter(|at| which(at, frame)) else {
            return true;
        };
        let mut options = frame::split(at.options(frame)).concat();
        options.resize((options.len() + 1).next_multiple_of(4), EOL);
        if options.len() <= 40 {
            at.set_options(frame, &options);
        }
        true
    })
}

fn opens(at: &Tcp, frame: &[u8]) -> bool {
    at.is_syn(frame)
}

fn opens_or_acknowledges(at: &Tcp, frame: &[u8]) -> bool {
    at.is_syn(frame) || at.is_pure_ack(frame)
}

/// An honest sender whose SYN ends in EOL.
pub fn eol_syn(net: &Net) -> Result<Hostile> {
    let sender = [ended_by_eol(opens), mangle::nothing()];
    Hostile::mangled(net, sender, honest())
}

/// An honest receiver whose SYN/ACK does.
pub fn eol_syn_ack(net: &Net) -> Result<Hostile> {
    let receiver = [ended_by_eol(opens), mangle::nothing()];
    Hostile::mangled(net, honest(), receiver)
}

/// Honest ends, all of whose options do.
pub fn eol_all(net: &Net) -> Result<Hostile> {
    let end = || [ended_by_eol(opens_or_acknowledges), mangle::nothing()];
    Hostile::mangled(net, end(), end())
}

/// SYNs and SYN/ACKs announce the largest MSS, which no path here carries.
fn announces_largest_mss() -> Change {
    Box::new(|frame| {
        let Some(at) = Tcp::find(frame).filter(|at| at.is_syn(frame)) else {
            return true;
        };
        let mut options = at.options(frame).to_vec();
        if let [2, 4, high, low, ..] = &mut options[..] {
            (*high, *low) = (0xff, 0xd7);
        }
        at.set_options(frame, &options);
        true
    })
}

/// A receiver alone.
pub fn large_mss_receiver(net: &Net) -> Result<Hostile> {
    let receiver = [announces_largest_mss(), mangle::nothing()];
    Hostile::mangled(net, honest(), receiver)
}

/// Both ends.
pub fn large_mss_pair(net: &Net) -> Result<Hostile> {
    let end = || [announces_largest_mss(), mangle::nothing()];
    Hostile::mangled(net, end(), end())
}

/// A receiver alone writes what hosts say to each other, before 20 bytes that no IP packet covers.
pub fn forged_behind_packet(net: &Net) -> Result<Hostile> {
    large_windows(net)?;
    let arrived = Arc::new(AtomicU32::new(1));
    let counted = Arc::clone(&arrived);
    let forge = move |frame: &mut Vec<u8>| {
        let Some(at) = Tcp::find(frame) else {
            return true;
        };
        let mut options = at.options(frame).to_vec();
        if at.is_syn(frame) {
            options.extend([253, 8, 0x53, 0x47, 1, 0, 0, 0]);
        } else if at.is_pure_ack(frame) {
            options.truncate(32);
            options.extend([172, 8]);
            options.extend(&counted.load(Ordering::Relaxed).to_be_bytes()[1..]);
            options.extend([0; 3]);
        }
        at.set_options(frame, &options);
        frame.extend([0; 20]);
        true
    };
    let count = move |frame: &mut Vec<u8>| {
        if let Some(at) = Tcp::find(frame) {
            arrived.fetch_add(at.bytes() as u32, Ordering::Relaxed);
        }
        true
    };
    Hostile::mangled(net, honest(), [Box::new(forge), Box::new(count)])
}

/// A sender whose stack takes every window for the largest.
pub fn ignored_window(net: &Net) -> Result<Hostile> {
    large_windows(net)?;
    let widen: Change = Box::new(|frame| {
        if let Some(at) = Tcp::find(frame) {
            at.set_window(frame, u16::MAX);
            frame::finish(frame);
        }
        true
    });
    Hostile::mangled(net, [mangle::nothing(), widen], honest())
}
