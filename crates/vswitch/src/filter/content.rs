//! What a frame carries, as far as a receiver may find it: its type is behind its tags, in an
//! Ethernet header or in LLC and SNAP (IEEE 802, RFC 1042 and IEEE 802.1H).

use super::{ARP, Forged, IPV4, array, is_tag};

/// The least type; below it is the length of a frame of IEEE 802.3.
pub const TYPE_MIN: u16 = 0x0600;
/// The longest payload of a frame of IEEE 802.3.
const LENGTH_MAX: usize = 1500;
/// The shortest payload on a wire: shorter ones are padded.
const PADDED: usize = 46;
/// A frame of LLC without its length.
pub const JUMBO_LLC: u16 = 0x8870;

/// Service access points of LLC, without the bit that is none of the address.
const SAP_SNAP: u8 = 0xaa;
const SAP_IPV4: u8 = 0x06;
const SAP_ARP: u8 = 0x98;
/// Unnumbered information: the only kind of LLC that carries a packet.
const UNNUMBERED: u8 = 3;

/// Organisations behind whose number the type of an Ethernet frame follows.
const ETHERNET: [[u8; 3]; 2] = [[0, 0, 0], [0, 0, 0xf8]];
/// The organisation behind whose number a whole frame follows (IEEE 802.1).
const BRIDGED: [u8; 3] = [0, 0x80, 0xc2];

/// The type of what a frame carries, and its packet; no type: it has LLC of another kind. `at` is
/// the offset of its type, and `bytes` its length, of which `frame` may be the beginning only.
///
/// # Errors
/// It has a tag that was not looked behind, or says of itself what is not so: a receiver could
/// find in it what was not checked here.
pub(super) fn of(frame: &[u8], at: usize, bytes: usize) -> Result<(Option<u16>, &[u8]), Forged> {
    let kind = array(frame, at).map(u16::from_be_bytes);
    let kind = kind.ok_or(Forged::Unreadable)?;
    let packet = &frame[at + 2..];
    if is_tag(kind) {
        return Err(Forged::Tag);
    }
    if kind == JUMBO_LLC {
        return llc(packet);
    }
    if kind >= TYPE_MIN {
        return Ok((Some(kind), packet));
    }
    let (said, there) = (usize::from(kind), bytes.saturating_sub(at + 2));
    let is_padded = said < there && there <= PADDED;
    if said > LENGTH_MAX || said != there && !is_padded {
        return Err(Forged::Unreadable);
    }
    llc(&packet[..said.min(packet.len())])
}

fn llc(packet: &[u8]) -> Result<(Option<u16>, &[u8]), Forged> {
    let [to, from, control] = array(packet, 0).ok_or(Forged::Unreadable)?;
    let rest = &packet[3..];
    let is_either = |point: u8| to & 0xfe == point || from & 0xfe == point;
    let is_both = |point: u8| [to, from, control] == [point, point, UNNUMBERED];
    for (point, kind) in [(SAP_IPV4, IPV4), (SAP_ARP, ARP)] {
        if is_both(point) {
            return Ok((Some(kind), rest));
        }
    }
    if is_both(SAP_SNAP) {
        return snap(rest);
    }
    // Receivers differ in which of the addresses they look at, and in how.
    match [SAP_IPV4, SAP_ARP, SAP_SNAP].into_iter().any(is_either) {
        true => Err(Forged::Unreadable),
        false => Ok((None, rest)),
    }
}

fn snap(packet: &[u8]) -> Result<(Option<u16>, &[u8]), Forged> {
    let organisation: [u8; 3] = array(packet, 0).ok_or(Forged::Unreadable)?;
    let kind = array(packet, 3).map(u16::from_be_bytes);
    let kind = kind.ok_or(Forged::Unreadable)?;
    let rest = &packet[5..];
    if organisation == BRIDGED {
        return Err(Forged::Unreadable);
    }
    if !ETHERNET.contains(&organisation) {
        return Ok((None, rest));
    }
    match kind {
        _ if is_tag(kind) => Err(Forged::Tag),
        JUMBO_LLC | ..TYPE_MIN => Err(Forged::Unreadable),
        _ => Ok((Some(kind), rest)),
    }
}
