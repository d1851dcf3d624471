//! Honest TCP in unusual wrapping: tags and extension headers.

use std::net::SocketAddr;

use anyhow::Result;

use super::{Hostile, honest};
use crate::{
    frame,
    mangle::Change,
    net::{Net, Side},
    traffic::PORT,
};

/// Frames that leave an end are tagged; frames that come lose their tags.
fn tagged(tags: &'static [(u16, u16)]) -> [Change; 2] {
    let out: Change = Box::new(move |frame| {
        for (ethertype, id) in tags {
            frame::tag(frame, *ethertype, *id);
        }
        true
    });
    let back: Change = Box::new(move |frame| {
        for _ in tags {
            frame::untag(frame);
        }
        true
    });
    [out, back]
}

/// Room for what is put into frames.
fn smaller_frames(net: &Net) -> Result<()> {
    for side in [Side::Sender, Side::Receiver] {
        net.ip(&side.tenant(1), "link set eth0 mtu 1480")?;
    }
    Ok(())
}

/// Both ends in a VLAN.
pub fn vlan(net: &Net) -> Result<Hostile> {
    smaller_frames(net)?;
    let tags = &[(0x8100, 7)];
    Hostile::mangled(net, tagged(tags), tagged(tags))
}

/// Both ends in a VLAN within a VLAN.
pub fn double_tag(net: &Net) -> Result<Hostile> {
    smaller_frames(net)?;
    let tags = &[(0x8100, 7), (0x88a8, 8)];
    Hostile::mangled(net, tagged(tags), tagged(tags))
}

/// Over IPv6, each packet with an extension header of this kind.
fn extended(net: &Net, kind: u8) -> Result<Hostile> {
    smaller_frames(net)?;
    let end = || -> [Change; 2] {
        let [_, back] = honest();
        let out: Change = Box::new(move |frame| {
            frame::insert_extension(frame, kind);
            true
        });
        [out, back]
    };
    Hostile::mangled_to(net, address6()?, end(), end())
}

fn address6() -> Result<SocketAddr> {
    Ok(SocketAddr::new(Side::Receiver.address6(1).parse()?, PORT))
}

/// Options for the destination.
pub fn destination_options(net: &Net) -> Result<Hostile> {
    extended(net, 60)
}

/// Honest IPv6.
pub fn ipv6(net: &Net) -> Result<Hostile> {
    Hostile::mangled_to(net, address6()?, honest(), honest())
}
