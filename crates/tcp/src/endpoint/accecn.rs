//! Accurate ECN (RFC 9768): each end counts the marks that it meets and tells the other of them, in
//! a counter of segments modulo 8 (ACE) in every header, and where it fits in counters of bytes
//! (the AccECN option). Where the RFC leaves a choice, this is Linux's.

mod feedback;
mod telling;

use sluicegate_core::{cc::SSTHRESH_UNKNOWN, number::narrow};

use super::{Endpoint, acknowledge::News};
use crate::{
    Segment,
    config::{AccurateEcn, OptionUse},
    segment::{ByteCounters, Field, ecn, flags, option},
};
use feedback::Feedback;
use telling::Counts;

/// Bytes that the option takes up at most in every header.
const OPTION_LEN: u32 = 12;
/// The feedback of codepoint n of a SYN or SYN-ACK, as ACE (RFC 9768 table 2 and 3).
const REFLECTED: [u8; 4] = [0b010, 0b011, 0b100, 0b110];

/// Which part of AccECN does not work, one bit each (Linux's `tcpi_accecn_fail_mode`).
pub mod failure {
    /// A SYN-ACK of ours left without ACE: nothing that is sent may be ECN-capable.
    pub const ACE_SENT: u8 = 1 << 0;
    /// The peer's handshake says that ACE or the codepoint is changed on the way: the same.
    pub const ACE_RECEIVED: u8 = 1 << 1;
    /// Segments with the option do not arrive: it is left out.
    pub const OPTION_SENT: u8 = 1 << 2;
    /// The option is changed on the way, or came too late: it is not read.
    pub const OPTION_RECEIVED: u8 = 1 << 3;
}

/// Whether the peer's AccECN option has come (Linux's `tcpi_accecn_opt_seen`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionSeen {
    /// Never.
    #[default]
    No,
    /// Without a counter.
    Empty,
    /// With counters.
    Counters,
    /// With counters that cannot be right.
    Wrong,
}

impl OptionSeen {
    /// Its fields begin at 1 except CE's: a path that clears them shows (RFC 9768 3.2.3.2.4).
    fn judge(counters: &ByteCounters) -> Self {
        let mut fields = counters.iter().peekable();
        if fields.peek().is_none() {
            return Self::Empty;
        }
        match fields.any(|(field, value)| field != Field::Ce && value == 0) {
            true => Self::Wrong,
            false => Self::Counters,
        }
    }
}

/// The state of a connection that has agreed on AccECN. Boxed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accurate {
    /// The codepoint with which the last SYN or SYN-ACK came.
    syn_codepoint: u8,
    /// SYN-ACKs that have left.
    answers: u8,
    /// The next segment feeds `syn_codepoint` back if it has no data.
    reflects: bool,
    /// The segment that is at work completes the handshake.
    opens: bool,
    /// The segment that is at work has a later timestamp than those before it.
    advances: bool,
    /// Segments are shorter by [`OPTION_LEN`].
    reserved: bool,
    /// [`failure`].
    failures: u8,
    seen: OptionSeen,
    counts: Counts,
    feedback: Feedback,
}

impl Accurate {
    fn fail(&mut self, failures: u8) {
        self.failures |= failures;
    }

    fn has_failed(&self, failures: u8) -> bool {
        self.failures & failures != 0
    }

    /// The first option with counters decides.
    fn see(&mut self, segment: &Segment) {
        let Some(counters) = segment.counters() else {
            return;
        };
        if self.seen < OptionSeen::Counters {
            self.seen = OptionSeen::judge(&counters);
            if self.seen == OptionSeen::Wrong {
                self.fail(failure::OPTION_RECEIVED);
            }
        }
    }

    /// The codepoint with which our SYN or SYN-ACK arrived, by the peer's feedback: none of ours is
    /// ECN-capable (RFC 9768 3.2.2.3). False if it was changed.
    fn is_plausible(&mut self, ace: u8, checks: bool) -> bool {
        let plausible = ace == REFLECTED[usize::from(ecn::NOT_ECT)] || !checks;
        if !plausible {
            self.fail(failure::ACE_RECEIVED);
        }
        plausible
    }

    /// RFC 9768 3.2.2.1: the ACK that completes the handshake of a passive open.
    fn third_ack(&mut self, segment: &Segment, checks: bool) {
        let ace = segment.ace();
        match ace {
            0 => self.fail(failure::ACE_RECEIVED),
            0b001 | 0b101 | 0b111 => (), // unused; the first counter if the ACK itself was lost
            _ => {
                let plain = segment.length() == 0 && segment.sack().is_empty();
                let met = ace == REFLECTED[usize::from(ecn::CE)];
                if plain && self.is_plausible(ace, checks) && met {
                    self.feedback.delivered_ce = 1;
                }
            }
        }
    }
}

/// See [`super::Info::accurate`]. Counters since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccurateInfo {
    /// Segments that the peer has met CE on.
    pub delivered_ce: u32,
    /// Bytes that reached the peer, by [`Field`]: ECT(1), CE, ECT(0).
    pub delivered_bytes: [u32; 3],
    /// Segments that have come with CE.
    pub received_ce: u32,
    /// Bytes that have come, by [`Field`].
    pub received_bytes: [u32; 3],
    /// [`failure`].
    pub failures: u8,
    /// The peer's option.
    pub option: OptionSeen,
}

impl Endpoint {
    /// The flags of a SYN that offers what the configuration says. One that had no answer twice may
    /// have been dropped for them (RFC 9768 3.1.4.1).
    pub(super) fn offer_ecn(&self, syn: &mut Segment) {
        let offered = self.config.ecn;
        if offered.offers_accurate() {
            if self.retries <= 1 || !self.config.accurate.fallback {
                syn.set_ace(0b111);
            }
        } else if offered.offers_classic() {
            syn.flags |= flags::ECE | flags::CWR;
        }
    }

    /// What the peer's SYN or SYN-ACK makes of ECN. Table 2 of RFC 9768: ACE of an answer is the
    /// feedback of our SYN's codepoint, or ECE alone for classic ECN.
    pub(super) fn agree_on_ecn(&mut self, syn: &Segment) {
        let (config, ace) = (self.config.ecn, syn.ace());
        let classic = syn.flags & (flags::ECE | flags::CWR);
        let accurate = if !syn.has(flags::ACK) {
            config.accepts_accurate() && !matches!(ace, 0 | 0b011)
        } else {
            config.offers_accurate() && !matches!(ace, 0 | 0b001 | 0b111)
        };
        self.options.accurate = accurate;
        self.options.ecn = !accurate
            && match syn.has(flags::ACK) {
                true => {
                    let offered = config.offers_classic() || config.offers_accurate();
                    offered && classic == flags::ECE
                }
                false => config.accepts_classic() && classic == flags::ECE | flags::CWR,
            };
        if accurate {
            self.begin_accurate(syn, ace);
        }
    }

    fn begin_accurate(&mut self, syn: &Segment, ace: u8) {
        let mut accurate = Box::<Accurate>::default();
        let settings = &self.config.accurate;
        accurate.syn_codepoint = syn.ecn;
        accurate.counts.codepoint = syn.ecn;
        accurate.see(syn);
        if syn.has(flags::ACK) {
            // The reserved answer says nothing of the SYN's codepoint.
            let plausible = ace == 0b101 || accurate.is_plausible(ace, settings.fallback);
            if plausible && syn.ecn == ecn::CE {
                accurate.counts.meet_ce(1);
            }
            accurate.counts.demand(2);
        }
        // A SYN never has the option; an end that speaks AccECN will send it.
        let may_come = !syn.has(flags::ACK) || accurate.seen != OptionSeen::No;
        accurate.reserved = settings.option != OptionUse::Never && may_come;
        self.rare.accurate = Some(accurate);
        self.flags.unusual = true;
    }

    /// Bytes of every header that the option needs.
    pub(super) fn reserved_for_option(&self) -> u32 {
        let accurate = self.rare.accurate.as_ref();
        accurate.map_or(0, |accurate| if accurate.reserved { OPTION_LEN } else { 0 })
    }

    /// Other rules of accurate ECN hold from now on, those of the handshake excepted.
    pub fn set_accurate_ecn(&mut self, settings: AccurateEcn) {
        if self.config.accurate != settings {
            self.config_mut().accurate = settings;
            self.reserve_for_option();
        }
    }

    /// Segments become as long as the option leaves room for.
    fn reserve_for_option(&mut self) {
        let may = self.config.accurate.option != OptionUse::Never;
        let Some(accurate) = &mut self.rare.accurate else {
            return;
        };
        let wanted = may && accurate.seen != OptionSeen::No;
        if wanted == accurate.reserved {
            return;
        }
        accurate.reserved = wanted;
        let before = self.mss;
        self.mss = match wanted {
            true => before.saturating_sub(OPTION_LEN).max(1),
            false => before + OPTION_LEN,
        };
        self.burst = super::handshake::burst(self.mss, self.config.burst_segments);
        // Windows are a number of segments, as in Linux.
        let scaled = |bytes: u32| u64::from(bytes) * u64::from(self.mss) / u64::from(before);
        self.cc.cwnd = super::acknowledge::saturated(scaled(self.cc.cwnd));
        if self.cc.ssthresh != SSTHRESH_UNKNOWN {
            self.cc.ssthresh = super::acknowledge::saturated(scaled(self.cc.ssthresh));
        }
        self.cc.mss = self.mss;
    }

    /// ACE and the option of a SYN-ACK. The second one has no option, later ones have no ACE
    /// either: they may be what the path drops (RFC 9768 3.1.4.2).
    pub(super) fn answer_accurately(&mut self, segment: &mut Segment) {
        let option = self.config.accurate.option != OptionUse::Never;
        let Some(accurate) = &mut self.rare.accurate else {
            return;
        };
        if self.retries <= 1 {
            segment.set_ace(REFLECTED[usize::from(accurate.syn_codepoint)]);
        } else {
            accurate.fail(failure::ACE_SENT);
        }
        if accurate.answers == 0 && option {
            segment.set_counters(&accurate.counts.option(3));
        }
        accurate.answers = accurate.answers.saturating_add(1);
    }

    /// The peer's SYN comes again before the handshake's end: the last one counts (RFC 9768 3.1.5).
    pub(super) fn syn_comes_again(&mut self, syn: &Segment) {
        if let Some(accurate) = &mut self.rare.accurate {
            accurate.syn_codepoint = syn.ecn;
            if syn.ace() == 0 {
                accurate.fail(failure::ACE_RECEIVED);
            }
        }
    }

    /// `segment` ends the handshake.
    pub(super) fn accurate_opens(&mut self, segment: &Segment) {
        let checks = self.config.accurate.fallback;
        let Some(accurate) = &mut self.rare.accurate else {
            return;
        };
        if segment.has(flags::SYN) {
            accurate.reflects = true;
        } else {
            accurate.see(segment);
            accurate.third_ack(segment, checks);
            accurate.counts.demand(1);
            accurate.opens = true;
        }
        self.reserve_for_option();
    }

    /// A SYN or SYN-ACK of a connection that is open is answered, not too often; the answer feeds
    /// its codepoint back as that of the handshake does.
    pub(super) fn challenge_syn(&mut self, now_ns: u64, syn: &Segment) {
        self.challenge(now_ns);
        if let (true, Some(accurate)) = (self.receiver.ack_first, &mut self.rare.accurate) {
            accurate.syn_codepoint = syn.ecn;
            accurate.reflects = true;
            accurate.see(syn);
        }
    }

    /// An acceptable segment has come: its codepoint and its option.
    pub(super) fn meet(&mut self, segment: &Segment, seq: u64) {
        let later = self.options.timestamps
            && segment.options & option::TIMESTAMPS != 0
            && seq <= self.receiver.acked
            && segment.ts_val.wrapping_sub(self.receiver.ts_recent) as i32 > 0;
        let packets = u32::from(segment.payload).div_ceil(self.config.mss.into());
        let Some(accurate) = &mut self.rare.accurate else {
            return;
        };
        accurate.advances = later;
        let tells = accurate.counts.meet(segment, packets.max(1));
        // What is delayed, or is about to be; a segment without data is not answered.
        let owes = segment.length() > 0 || self.receiver.delayed_ns != super::NEVER;
        self.receiver.ack_now |= tells && owes;
    }

    /// `segment` acknowledges what `news` says: what it tells of marks. The ACK of our FIN tells
    /// nothing that matters, and may come from a peer in TIME_WAIT, whose ACE means nothing.
    pub(super) fn hear(&mut self, segment: &Segment, news: &News) {
        if self.snd_una > self.snd_end {
            return;
        }
        let sent = self.counts.acked_bytes + self.outstanding();
        let (mss, sack) = (self.mss, self.options.sack);
        let calm = sack || self.phase == super::Phase::Open;
        let Some(accurate) = &mut self.rare.accurate else {
            return;
        };
        let opens = std::mem::take(&mut accurate.opens);
        let progress = news.acked > 0 || news.sacked;
        if opens || !(progress || accurate.advances) {
            return;
        }
        let counters = accurate.readable_counters(segment, sent);
        let delivered = feedback::Delivered {
            bytes: super::acknowledge::saturated(news.delivered),
            packets: news
                .records
                .max(narrow::<u32>(news.delivered.div_ceil(mss.into()))),
            mss,
            calm,
        };
        let seen =
            accurate.seen != OptionSeen::No && !accurate.has_failed(failure::OPTION_RECEIVED);
        let marked = accurate
            .feedback
            .hear(segment.ace(), counters, seen, &delivered);
        if marked > 0 && !accurate.has_failed(failure::ACE_RECEIVED) {
            self.note_marked(marked.into());
            self.counts.ece_received += u64::from(news.acked > 0);
        }
        self.reserve_for_option();
    }

    /// A segment that has come before comes again. If the last option left beside the report that
    /// it did, such segments seem to be dropped on the way (RFC 9768 3.2.3.2.2).
    pub(super) fn judge_duplicate(&mut self, start: u64, end: u64) {
        if let Some(accurate) = &mut self.rare.accurate {
            let block = (super::sequence::wire(start), super::sequence::wire(end));
            if accurate.counts.told_beside == Some(block) {
                accurate.fail(failure::OPTION_SENT);
            }
        }
    }

    /// Codepoint, ACE and option of a segment that leaves. As in Linux all of them are ECN-capable,
    /// and the answers of TIME_WAIT have neither ACE nor option.
    pub(super) fn tell(&mut self, now_ns: u64, segment: &mut Segment) {
        let srtt_ns = self.rtt.srtt();
        let settings = self.config.accurate;
        let Some(accurate) = &mut self.rare.accurate else {
            return;
        };
        if !accurate.has_failed(failure::ACE_SENT | failure::ACE_RECEIVED) {
            segment.ecn = ecn::ECT0;
        }
        if self.state == super::State::TimeWait {
            return;
        }
        let reflects = std::mem::take(&mut accurate.reflects);
        if reflects && segment.payload == 0 {
            segment.set_ace(REFLECTED[usize::from(accurate.syn_codepoint)]);
        } else {
            segment.set_ace(accurate.counts.ace());
        }
        let allowed = match settings.option {
            OptionUse::Never => false,
            OptionUse::Persistent => true,
            _ => !accurate.has_failed(failure::OPTION_SENT),
        };
        let due = settings.option >= OptionUse::Always
            || accurate.counts.is_due(now_ns, srtt_ns, settings.beacon);
        if allowed && due && accurate.seen != OptionSeen::No {
            accurate.counts.add_option(now_ns, segment);
        }
    }

    /// See [`super::Info::accurate`].
    pub(super) fn accurate_info(&self) -> Option<AccurateInfo> {
        let accurate = self.rare.accurate.as_ref()?;
        Some(AccurateInfo {
            delivered_ce: accurate.feedback.delivered_ce,
            delivered_bytes: accurate.feedback.delivered_bytes,
            received_ce: accurate.counts.received_ce,
            received_bytes: accurate.counts.bytes,
            failures: accurate.failures,
            option: accurate.seen,
        })
    }
}

impl Accurate {
    /// The segment's counters, if they are to be read. Until they have come first, bytes that are
    /// not counted may be so many that the counters have wrapped: then it is too late.
    fn readable_counters(&mut self, segment: &Segment, sent: u64) -> Option<ByteCounters> {
        const TOO_LATE: u64 = (1 << 23) - 1;
        if self.has_failed(failure::OPTION_RECEIVED) {
            return None;
        }
        let counters = segment.counters();
        if counters.is_none() && self.seen == OptionSeen::No && sent >= TOO_LATE {
            self.seen = OptionSeen::Wrong;
            self.fail(failure::OPTION_RECEIVED);
        }
        self.see(segment);
        counters.filter(|_| !self.has_failed(failure::OPTION_RECEIVED))
    }
}

/// The place of a field in arrays.
fn index(field: Field) -> usize {
    match field {
        Field::Ect1 => 0,
        Field::Ce => 1,
        Field::Ect0 => 2,
    }
}

/// The value with which a field begins on the wire, so that zeroing shows (RFC 9768 3.2.1).
fn initial(field: Field) -> u32 {
    match field {
        Field::Ce => 0,
        Field::Ect0 | Field::Ect1 => 1,
    }
}
