//! A segment that left beside the one that a script expects.

use std::{collections::VecDeque, fmt::Write as _};

use sluicegate_tcp::segment::{ecn, flags};

use crate::{
    host::Sent,
    model::{EcnWanted, Expected},
    packet::Packet,
};

/// Segments that left together may be written as one: `sent` takes along what follows it in `queue`
/// as long as that fits.
pub fn gather(sent: &mut Sent, queue: &mut VecDeque<Sent>, expected: &Expected, together_ns: u64) {
    let fits = |len: u16| len <= expected.packet.len;
    while sent.packet.len < expected.packet.len && take_next(sent, queue, together_ns, fits) {}
}

/// The same of packets before segmentation offload, whose ends may be others than those of the
/// script's lines; what lies beyond stays in `queue`.
#[cfg(target_os = "linux")]
pub fn gather_offloaded(
    sent: &mut Sent,
    queue: &mut VecDeque<Sent>,
    expected: &Expected,
    together_ns: u64,
) {
    while sent.packet.len < expected.packet.len && take_next(sent, queue, together_ns, |_| true) {}
    if let Some(rest) = sent.split(expected.packet.len) {
        queue.push_front(rest);
    }
}

/// Whether `sent` could take along what follows it.
fn take_next(
    sent: &mut Sent,
    queue: &mut VecDeque<Sent>,
    together_ns: u64,
    fits: impl Fn(u16) -> bool,
) -> bool {
    let Some(next) = queue.front() else {
        return false;
    };
    let together = next.at_ns.saturating_sub(sent.at_ns) <= together_ns;
    let len = sent.packet.len.saturating_add(next.packet.len);
    if !together || !fits(len) || !sent.packet.merge(&next.packet) {
        return false;
    }
    queue.pop_front();
    true
}

impl Sent {
    /// What lies behind the first `len` bytes, as if it had left by itself: a packet before
    /// segmentation offload may be several lines of a script.
    #[cfg(target_os = "linux")]
    fn split(&mut self, len: u16) -> Option<Self> {
        if len == 0 || self.packet.len <= len {
            return None;
        }
        let mut rest = self.clone();
        rest.packet.len -= len;
        rest.packet.seq = rest.packet.seq.wrapping_add(len.into());
        self.packet.len = len;
        self.packet.flags &= !(flags::PSH | flags::FIN);
        rest.packet.flags &= !flags::CWR; // on the first alone (RFC 3168 6.1.2)
        Some(rest)
    }
}

impl Expected {
    /// The parts of a segment that are not as expected.
    pub fn differences(&self, sent: &Sent, compare_psh: bool) -> Vec<&'static str> {
        let (wanted, got) = (&self.packet, &sent.packet);
        let ignored = if compare_psh { 0 } else { flags::PSH };
        let options = {
            // TSval has a clock of its own.
            let mut same = wanted.options.clone();
            if let (Some((_, ecr)), Some(live)) = (same.timestamps, got.options.timestamps) {
                same.timestamps = Some(if self.any_clock { live } else { (live.0, ecr) });
            }
            same == got.options
        };
        let ecn_fits = match self.ecn {
            EcnWanted::Any => true,
            EcnWanted::Capable => matches!(got.ecn, ecn::ECT0 | ecn::ECT1),
            EcnWanted::Exactly(codepoint) => got.ecn == codepoint,
        };
        let checks = [
            (
                "flags",
                (wanted.flags ^ got.flags) & !ignored == 0 && wanted.ae == got.ae,
            ),
            ("seq", self.any_seq || wanted.seq == got.seq),
            ("length", wanted.len == got.len),
            ("urg", wanted.urgent == got.urgent),
            ("ack", !wanted.has(flags::ACK) || wanted.ack == got.ack),
            ("win", self.window.is_none_or(|window| window == got.window)),
            ("options", self.any_options || options),
            ("udp", wanted.udp == got.udp),
            ("ECN", ecn_fits),
            ("TTL", self.ttl.is_none_or(|ttl| ttl == sent.ttl)),
            ("DSCP", self.dscp.is_none_or(|dscp| dscp == sent.tos >> 2)),
        ];
        let wrong = checks.into_iter().filter(|(_, fits)| !fits);
        wrong.map(|(name, _)| name).collect()
    }

    /// The parts in which two segments differ, as far as the script cares for them.
    pub fn unlike(&self, left: &Sent, right: &Sent) -> Vec<&'static str> {
        let (one, other) = (&left.packet, &right.packet);
        let options = |packet: &Packet| {
            // TSval has a clock of its own.
            let mut options = packet.options.clone();
            if let Some((val, ecr)) = &mut options.timestamps {
                *val = 0;
                *ecr = if self.any_clock { 0 } else { *ecr };
            }
            options
        };
        let cares = |wanted: bool, differs: bool| wanted && differs;
        let checks = [
            (
                "flags",
                (one.flags ^ other.flags) & !flags::PSH != 0 || one.ae != other.ae,
            ),
            ("seq", cares(!self.any_seq, one.seq != other.seq)),
            ("length", one.len != other.len),
            ("urg", one.urgent != other.urgent),
            ("ack", one.has(flags::ACK) && one.ack != other.ack),
            (
                "win",
                cares(self.window.is_some(), one.window != other.window),
            ),
            (
                "options",
                cares(!self.any_options, options(one) != options(other)),
            ),
            (
                "ECN",
                cares(self.ecn != EcnWanted::Any, one.ecn != other.ecn),
            ),
            ("TTL", cares(self.ttl.is_some(), left.ttl != right.ttl)),
            (
                "DSCP",
                cares(self.dscp.is_some(), left.tos >> 2 != right.tos >> 2),
            ),
        ];
        let differ = checks.into_iter().filter(|(_, differs)| *differs);
        differ.map(|(name, _)| name).collect()
    }

    pub fn describe(&self) -> String {
        let mut text = String::new();
        match self.ecn {
            EcnWanted::Exactly(ecn::NOT_ECT) => text.push_str("[noecn] "),
            EcnWanted::Capable => text.push_str("[ect01] "),
            _ => (),
        }
        let mut packet = self.packet.clone();
        if let EcnWanted::Exactly(codepoint) = self.ecn {
            packet.ecn = codepoint;
        }
        let _ = write!(text, "{}", packet.shown(self.window.is_some()));
        if self.any_options {
            text.push_str(" <...>");
        }
        text
    }
}
