//! Tags of VLANs in frames.

use sluicegate_pfc::frame::{DESTINATION, MAC_CONTROL};
use sluicegate_vswitch::{
    filter::is_tag,
    learning::{Mac, Membership, Tagging},
};

use crate::frame::{Frame, START};

/// Of the start of a frame: destination, source, tag, and where its type is.
#[inline(always)]
pub(super) fn addresses(start: &[u8]) -> (Mac, Mac, Option<u16>, usize) {
    let mac = |at: usize| {
        let mut mac = [0; 6];
        mac.copy_from_slice(&start[at..at + 6]);
        mac
    };
    let (tag, kind_at) = tag_of(start);
    (mac(0), mac(6), tag, kind_at)
}

/// Where the type of a frame without a tag is, and of one with a tag.
const UNTAGGED: usize = 12;
pub(super) const ONE_TAG: usize = 16;

/// The tag by which a frame belongs to a VLAN (IEEE 802.1Q, 9.6), and where the type behind it is.
/// A tag of VLAN 0 says a priority alone: of a frame with another tag behind it, receivers that
/// take the first off see the second, so that is what counts, and the first goes.
#[inline(always)]
fn tag_of(start: &[u8]) -> (Option<u16>, usize) {
    let (mut tag, mut at) = (None, UNTAGGED);
    while start.len() >= at + 6 && start[at..at + 2] == [0x81, 0] {
        if tag.is_some_and(|tag| tag & 0xfff != 0) {
            break;
        }
        tag = Some(u16::from_be_bytes([start[at + 2], start[at + 3]]));
        at += 4;
    }
    (tag, at)
}

/// Whether a tag of any kind is at the type of a frame.
#[inline]
pub(super) fn is_tagged(start: &[u8], kind_at: usize) -> bool {
    let kind = start.get(kind_at..kind_at + 2);
    kind.is_some_and(|kind| is_tag(u16::from_be_bytes([kind[0], kind[1]])))
}

/// Whether the start of a frame is one of MAC control, behind its tag as well: without its tag it
/// would be one to the next port. Or it goes where pauses go.
#[inline]
pub(super) fn is_control(start: &[u8], kind_at: usize) -> bool {
    start.get(kind_at..kind_at + 2) == Some(&MAC_CONTROL) || start[..6] == DESTINATION
}

/// The VLAN by which a port's guest knows its frames, 0 = without a tag; both directions of a flow
/// have the same.
#[inline]
pub(super) fn seen_vlan(member: Option<&Membership>, vlan: u16) -> u16 {
    match member.and_then(|member| member.egress(vlan)) {
        Some(Tagging::Tag) => vlan,
        _ => 0,
    }
}

/// The start of a frame with or without a tag, as it leaves, and by how many bytes it has grown.
/// None: behind the tag that it would lose there is another one, which would choose its VLAN at the
/// next switch.
#[inline]
pub(super) fn retag<'a>(
    frame: &'a Frame,
    tagging: Tagging,
    edited: &'a mut [u8; START + 4],
) -> Option<(&'a [u8], i16)> {
    let start = frame.start();
    let (tag, behind) = tag_of(start);
    let ahead = match tagging {
        Tagging::None if is_tagged(start, behind) => return None,
        Tagging::None if tag.is_none() => return Some((start, 0)),
        Tagging::None => UNTAGGED,
        Tagging::Tag => {
            let before = tag.map_or(0, |tag| (tag >> 8) as u8);
            let [high, low] = frame.vlan.to_be_bytes();
            let tag = [0x81, 0, frame.lane.bits(before) | high, low];
            edited[UNTAGGED..ONE_TAG].copy_from_slice(&tag);
            ONE_TAG
        }
    };
    edited[..UNTAGGED].copy_from_slice(&start[..UNTAGGED]);
    let kept = start.len() - behind;
    edited[ahead..ahead + kept].copy_from_slice(&start[behind..]);
    Some((&edited[..ahead + kept], ahead as i16 - behind as i16))
}
