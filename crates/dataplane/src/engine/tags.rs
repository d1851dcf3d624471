//! Tags of VLANs in frames.

use sluicegate_pfc::frame::{DESTINATION, MAC_CONTROL};
use sluicegate_vswitch::learning::{Mac, Membership, Tagging};

use crate::frame::{Frame, START};

/// Of the start of a frame: destination, source, tag, and where its type is.
#[inline(always)]
pub(super) fn addresses(start: &[u8]) -> (Mac, Mac, Option<u16>, usize) {
    let mac = |at: usize| {
        let mut mac = [0; 6];
        mac.copy_from_slice(&start[at..at + 6]);
        mac
    };
    let tag = has_tag(start).then(|| u16::from_be_bytes([start[14], start[15]]));
    (mac(0), mac(6), tag, if tag.is_some() { 16 } else { 12 })
}

/// Whether the start of a frame is one of MAC control, behind its tag as well: without its tag it
/// would be one to the next port. Or it goes where pauses go.
#[inline]
pub(super) fn is_control(start: &[u8], kind_at: usize) -> bool {
    start.get(kind_at..kind_at + 2) == Some(&MAC_CONTROL) || start[..6] == DESTINATION
}

/// Whether the start of a frame has a tag of a VLAN (IEEE 802.1Q, 9.6).
#[inline]
fn has_tag(start: &[u8]) -> bool {
    start.len() >= 18 && start[12..14] == [0x81, 0]
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
#[inline]
pub(super) fn retag<'a>(
    frame: &'a Frame,
    tagging: Tagging,
    edited: &'a mut [u8; START + 4],
) -> (&'a [u8], i16) {
    let start = frame.start();
    let is_tagged = has_tag(start);
    match (is_tagged, tagging) {
        (false, Tagging::None) => (start, 0),
        (true, Tagging::None) => {
            edited[..12].copy_from_slice(&start[..12]);
            let kept = start.len() - 16;
            edited[12..12 + kept].copy_from_slice(&start[16..]);
            (&edited[..12 + kept], -4)
        }
        (_, Tagging::Tag) => {
            let priority = frame.lane.bits(if is_tagged { start[14] } else { 0 });
            let behind = if is_tagged { 16 } else { 12 };
            edited[..12].copy_from_slice(&start[..12]);
            let [high, low] = frame.vlan.to_be_bytes();
            edited[12..16].copy_from_slice(&[0x81, 0, priority | high, low]);
            let kept = start.len() - behind;
            edited[16..16 + kept].copy_from_slice(&start[behind..]);
            (&edited[..16 + kept], if is_tagged { 0 } else { 4 })
        }
    }
}
