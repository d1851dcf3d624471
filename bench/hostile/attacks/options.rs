//! Options of TCP that hosts cannot read, read too willingly, or do not find.

use anyhow::Result;

use super::{Hostile, honest};
use crate::{
    frame::{self, Tcp},
    mangle::{self, Change},
    net::{Net, Side},
};

/// Room for windows of 16 MB and more, at both ends of the first pair.
fn large_windows(net: &Net) -> Result<()> {
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
