//! Neighbour discovery of IPv6 in source filters (RFC 4861).

use std::net::Ipv6Addr;

use super::{Filter, Forged, array};
use crate::learning::Mac;

/// Bytes of a header of IPv6.
const HEADER: usize = 40;
/// Receivers take neighbour discovery with this hop limit only (RFC 4861, 6.1, 7.1 and 8.1).
const HOP_LIMIT: u8 = 255;

/// Numbers of headers.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const ICMPV6: u8 = 58;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;

/// Types of messages.
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Options: link-layer address of the source, and of the target.
const SOURCE: u8 = 1;
const TARGET: u8 = 2;

/// The message of ICMPv6 in a packet.
struct Message<'a> {
    /// What was copied of it.
    bytes: &'a [u8],
    /// Bytes of it are missing here.
    is_cut: bool,
    is_fragment: bool,
}

/// Finds the message behind the extension headers; `None`: the packet has another one, or is no
/// first fragment.
fn message(packet: &[u8]) -> Result<Option<Message<'_>>, Forged> {
    let payload = array(packet, 4).map_or(0, u16::from_be_bytes);
    let end = HEADER + usize::from(payload);
    let seen = &packet[..end.min(packet.len())];
    let mut next = packet.get(6).copied().ok_or(Forged::Hidden)?;
    let (mut at, mut is_fragment) = (HEADER, false);
    loop {
        let header = match next {
            ICMPV6 => break,
            HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY => {
                array::<4>(seen, at).ok_or(Forged::Hidden)?
            }
            _ => return Ok(None),
        };
        let units = usize::from(header[1]);
        at += match next {
            FRAGMENT => {
                is_fragment = true;
                if u16::from_be_bytes([header[2], header[3]]) & !7 != 0 {
                    return Ok(None);
                }
                8
            }
            AUTHENTICATION => 4 * (units + 2),
            _ => 8 * (units + 1),
        };
        next = header[0];
    }
    let bytes = seen.get(at..).ok_or(Forged::Hidden)?;
    Ok(Some(Message {
        bytes,
        is_cut: end > packet.len(),
        is_fragment,
    }))
}

impl Filter {
    /// Checks a packet that may have a message of neighbour discovery. `mac` is the frame's
    /// Ethernet source. A packet whose headers do not tell whether it has one is refused (RFC 7112
    /// and 7113), as is one in fragments (RFC 6980).
    pub(super) fn neighbour(
        &self,
        packet: &[u8],
        source: Ipv6Addr,
        mac: Mac,
    ) -> Result<(), Forged> {
        if packet.get(7) != Some(&HOP_LIMIT) {
            return Ok(());
        }
        let Some(message) = message(packet)? else {
            return Ok(());
        };
        let kind = *message.bytes.first().ok_or(Forged::Hidden)?;
        if !(ROUTER_SOLICITATION..=REDIRECT).contains(&kind) {
            return Ok(());
        }
        if message.is_fragment {
            return Err(Forged::Hidden);
        }
        let options = match kind {
            // Of a router all is believed but who it is: its options name other hosts, and are
            // longer than what is copied.
            ROUTER_ADVERTISEMENT | REDIRECT if self.is_host => return Err(Forged::Router),
            ROUTER_ADVERTISEMENT | REDIRECT => return self.router(kind, message.bytes),
            ROUTER_SOLICITATION => 8,
            _ => 24,
        };
        if message.is_cut {
            return Err(Forged::Hidden);
        }
        // Duplicate address detection asks for what will be its own (RFC 4862, 5.4.2).
        if kind == ADVERTISEMENT || kind == SOLICITATION && source.is_unspecified() {
            let target = array::<16>(message.bytes, 8).ok_or(Forged::Claim)?;
            if !self.owns_v6(target.into(), mac) {
                return Err(Forged::Claim);
            }
        }
        self.options(message.bytes.get(options..).ok_or(Forged::Claim)?)
    }

    /// Checks the link-layer address of a router among the options that were copied. Other routers
    /// are named by a redirect only.
    fn router(&self, kind: u8, message: &[u8]) -> Result<(), Forged> {
        let options = message.get(16..).filter(|_| kind == ROUTER_ADVERTISEMENT);
        let mut options = options.unwrap_or_default();
        while let [kind, units, ..] = *options {
            if kind == SOURCE {
                self.mac(array(options, 2).ok_or(Forged::Claim)?)?;
            }
            let bytes = 8 * usize::from(units.max(1));
            options = options.get(bytes..).unwrap_or_default();
        }
        Ok(())
    }

    /// Checks the link-layer addresses among options (RFC 4861, 4.6). Lengths are in units of 8
    /// bytes, and none is 0.
    fn options(&self, mut options: &[u8]) -> Result<(), Forged> {
        while let [kind, units, ..] = *options {
            let (option, rest) = options
                .split_at_checked(8 * usize::from(units))
                .filter(|_| units > 0)
                .ok_or(Forged::Claim)?;
            if kind == SOURCE || kind == TARGET {
                self.mac(array(option, 2).ok_or(Forged::Claim)?)?;
            }
            options = rest;
        }
        options.is_empty().then_some(()).ok_or(Forged::Claim)
    }
}
