//! `repr(C)` mirrors of core's C structs. `c/native.c` asserts the same sizes and offsets.

use std::mem::{offset_of, size_of};

use crate::number::narrow;

/// Most rules in one compiled policy.
pub const RULES_MAX: usize = 64;
/// Places for rules: two policies that have nothing in common find room.
pub const SLOTS_MAX: usize = 128;
/// [`Rule::vlan`]: any, or none.
pub const VLAN_ANY: u16 = 0xffff;
/// Most trusted prefixes in one compiled policy.
pub const TRUSTED_MAX: usize = 32;
/// Largest enforced window in bytes: a 24-bit byte counter cannot wrap within one.
pub const WINDOW_MAX: u32 = 8 << 20;
/// 1.0 in fractions of 2^20.
pub const ONE_Q20: u32 = 1 << 20;
/// 1.0 in fractions of 1024.
pub const ONE_Q10: u32 = 1024;

/// [`Params::mode`]: not tracked.
pub const RULE_OFF: u8 = 0;
/// [`Params::mode`]: everything computed, nothing edited.
pub const RULE_OBSERVE: u8 = 1;
/// [`Params::mode`]: enforced.
pub const RULE_ENFORCE: u8 = 2;

/// [`Params::flags`]: drop data beyond the enforced edge.
pub const RULE_POLICE: u8 = 1;
/// [`Params::flags`]: hide MPTCP from the peer instead of passing the flow by.
pub const RULE_STRIP_MPTCP: u8 = 2;
/// `dctcp`: beta scales the cut, as published, and not the growth.
pub const RULE_CUT_ONLY: u8 = 4;

/// `struct sg_params`: the constants that govern one flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Algorithm when both ends enforce (`enum sg_algorithm`).
    pub algorithm: u8,
    /// Algorithm when the peer does not enforce.
    pub one_sided: u8,
    /// [`RULE_OFF`], [`RULE_OBSERVE`] or [`RULE_ENFORCE`].
    pub mode: u8,
    /// [`RULE_POLICE`] | [`RULE_STRIP_MPTCP`] | [`RULE_CUT_ONLY`].
    pub flags: u8,
    /// Smallest window, 1 or 2, in segments of the MSS that the tenant reads.
    pub floor_mss: u8,
    /// Initial window in segments, 1..=64.
    pub init_segments: u8,
    /// Gain of alpha: g = 2^-g_shift, 1..=10.
    pub g_shift: u8,
    /// Algorithm when both ends enforce and the path drops without ever marking.
    pub fallback: u8,
    /// DCTCP priority, 0..=1024.
    pub beta_q10: u32,
    /// Largest window in bytes, at most [`WINDOW_MAX`].
    pub window_cap: u32,
    /// `fixed`: the window in bytes.
    pub fixed_bytes: u32,
    /// `dcvegas`: threshold of the flow's own backlog in bytes; 0 = from `k_segments`.
    pub k_bytes: u32,
    /// `dcvegas`: threshold of the queueing delay in ns, where the two others are 0.
    pub k_delay_ns: u32,
    /// `vegas`: lower backlog in segments.
    pub vegas_alpha: u8,
    /// `vegas`: upper backlog in segments.
    pub vegas_beta: u8,
    /// `dcvegas`: threshold of the backlog in segments of the flow; 0 = from `k_delay_ns`.
    pub k_segments: u8,
    /// Zero.
    pub pad1: u8,
    /// Silence with data outstanding that counts as a timeout, at least, in µs.
    pub rto_min_us: u32,
    /// Position of the rule in the policy file, for reports.
    pub rule_id: u16,
    /// Largest MSS option that the tenant reads; 0 = any.
    pub mss: u16,
    /// Rate of one flow in bytes per second, held by its window; 0 = no cap.
    pub rate_cap: u64,
    /// `swift`: target of the RTT for the largest windows, in ns.
    pub swift_target_ns: u32,
    /// `swift`: what the smallest windows have in addition, in ns.
    pub swift_range_ns: u32,
    /// `swift`: segments per window to add, in 1/1024.
    pub swift_ai_q10: u16,
    /// `swift`: part of the relative excess to give up, 0..=1024.
    pub swift_beta_q10: u16,
    /// `swift`: largest part of the window to give up at once, 0..=1024.
    pub swift_mdf_q10: u16,
    /// `cubic`: beta_cubic, what a cut keeps, in 1/1024, below 1024; 0 = 717 (RFC 9438's 0.7).
    pub cubic_keep_q10: u16,
}

/// `struct sg_addr`: 128 bits in network order; IPv4 as `::ffff:a.b.c.d`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addr {
    /// Four words, each in network byte order in memory.
    pub word: [u32; 4],
}

impl From<std::net::IpAddr> for Addr {
    fn from(address: std::net::IpAddr) -> Self {
        let octets = match address {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        Self::from_octets(octets)
    }
}

impl Addr {
    /// From sixteen octets in network order.
    pub fn from_octets(octets: [u8; 16]) -> Self {
        let mut word = [0; 4];
        for (word, bytes) in word.iter_mut().zip(octets.chunks_exact(4)) {
            *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Self { word }
    }

    /// Sixteen octets in network order.
    pub fn octets(&self) -> [u8; 16] {
        let mut octets = [0; 16];
        for (word, bytes) in self.word.iter().zip(octets.chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        octets
    }

    /// The address as people write it; mapped IPv4 becomes IPv4 again.
    pub fn to_ip(&self) -> std::net::IpAddr {
        let v6 = std::net::Ipv6Addr::from(self.octets());
        match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => v6.into(),
        }
    }
}

/// `struct sg_rule`: conditions that must all hold, and what then governs the flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Prefix of the data sender (this host's tenant).
    pub source: Addr,
    /// Ones over the prefix.
    pub source_mask: Addr,
    /// Prefix of the data receiver.
    pub destination: Addr,
    /// Ones over the prefix.
    pub destination_mask: Addr,
    /// Inclusive, host order.
    pub source_port_low: u16,
    /// Inclusive, host order.
    pub source_port_high: u16,
    /// Inclusive, host order.
    pub destination_port_low: u16,
    /// Inclusive, host order.
    pub destination_port_high: u16,
    /// [`VLAN_ANY`], or the VLAN id; 0 = untagged.
    pub vlan: u16,
    /// Zero.
    pub pad: u16,
    /// Of the conditions on interface and tenant, which are in the scope of each interface; 0 =
    /// none.
    pub scope_id: u32,
    /// The constants that govern the flow.
    pub params: Params,
}

impl Default for Rule {
    /// Matches nothing but port 0 of the unspecified addresses' networks of length 0.
    fn default() -> Self {
        Self {
            source: Addr::default(),
            source_mask: Addr::default(),
            destination: Addr::default(),
            destination_mask: Addr::default(),
            source_port_low: 0,
            source_port_high: 0,
            destination_port_low: 0,
            destination_port_high: 0,
            vlan: VLAN_ANY,
            pad: 0,
            scope_id: 0,
            params: Params::default(),
        }
    }
}

/// `struct sg_scope`: the rules whose conditions on interface and tenant hold at one interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// A bit for each slot.
    pub word: [u64; SLOTS_MAX / 64],
}

impl Scope {
    /// Every slot.
    pub const ALL: Self = Self {
        word: [u64::MAX; SLOTS_MAX / 64],
    };

    /// Adds a slot below [`SLOTS_MAX`].
    pub fn insert(&mut self, slot: usize) {
        self.word[slot / 64] |= 1 << (slot % 64);
    }

    /// Whether it has a slot.
    pub fn has(&self, slot: usize) -> bool {
        self.word
            .get(slot / 64)
            .is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}

/// `struct sg_prefix`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Address with all bits beyond the mask zero.
    pub address: Addr,
    /// Ones over the prefix.
    pub mask: Addr,
}

/// `struct sg_policy`: the whole of a policy as the data plane reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyTable {
    /// Entries of `order` in use.
    pub rules_count: u32,
    /// Trusted prefixes in use.
    pub trusted_count: u32,
    /// Slots of rules without conditions on interface or tenant.
    pub anywhere: Scope,
    /// Slots in the order in which their rules are tried.
    pub order: [u8; RULES_MAX],
    /// Prefixes whose hosts also enforce.
    pub trusted: [Prefix; TRUSTED_MAX],
    /// Rules; a flow refers to the slot of the one that decided it.
    pub slots: [Rule; SLOTS_MAX],
}

impl Default for PolicyTable {
    fn default() -> Self {
        Self {
            rules_count: 0,
            trusted_count: 0,
            anywhere: Scope::default(),
            order: [0; RULES_MAX],
            trusted: [Prefix::default(); TRUSTED_MAX],
            slots: [Rule::default(); SLOTS_MAX],
        }
    }
}

impl PolicyTable {
    /// Slots in the order in which their rules are tried.
    pub fn order(&self) -> impl Iterator<Item = usize> + '_ {
        let count = (self.rules_count as usize).min(RULES_MAX);
        let order = self.order[..count].iter();
        order.map(|slot| usize::from(*slot) % SLOTS_MAX)
    }

    /// Rules in the order in which they are tried.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> + '_ {
        self.order().map(|slot| &self.slots[slot])
    }

    /// Adds a rule after the others, in a slot below [`SLOTS_MAX`] that no other one has. Without
    /// room it is left out.
    pub fn add(&mut self, slot: usize, rule: Rule) {
        let Some(entry) = self.order.get_mut(self.rules_count as usize) else {
            return;
        };
        *entry = narrow::<u8>(slot);
        self.rules_count += 1;
        self.slots[slot] = rule;
        if rule.scope_id == 0 {
            self.anywhere.insert(slot);
        }
    }
}

/// `struct sg_flow_key`: a connection seen from the tenant's interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The tenant.
    pub local: Addr,
    /// The other end.
    pub remote: Addr,
    /// Network order.
    pub local_port: u16,
    /// Network order.
    pub remote_port: u16,
    /// The tenant's interface on this host.
    pub ifindex: u32,
    /// VLAN id, 0 = untagged.
    pub vlan: u16,
    /// `enum sg_opener` in the table of half-open connections, 0 in that of flows.
    pub opener: u16,
}

/// `struct sg_sent`: an entry of the RTT ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// End of the segment in sequence space.
    pub end_seq: u32,
    /// Low 32 bits of the time in ns.
    pub time: u32,
}

/// `struct sg_hole`: sequence numbers that policing dropped, from `start` to before `end`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hole {
    /// The first of them.
    pub start: u32,
    /// Behind the last; equal to `start` if there is none.
    pub end: u32,
}

/// `struct sg_flow`: what is known of one connection at one end. Fields as in `flow.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "each field is described in c/sluice/flow.h")]
pub struct Flow {
    pub seen_ns: u64,
    pub bytes_received: u64,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub edge: u32,
    pub rtt_next: u32,
    pub rcv_e0b: u32,
    pub rcv_ceb: u32,
    pub rcv_nxt: u32,
    pub rcv_high: u32,
    pub unreported: u16,
    pub marks: u16,
    pub peer_window: u16,
    pub wire_window: u16,
    pub rcv_window: u16,
    pub wscale: u8,
    pub rcv_wscale: u8,
    pub mode: u8,
    pub rule: u8,
    pub flags: u8,
    pub not_ect_run: u8,
    pub cc: crate::cc::Cc,
    pub bytes_acked: u64,
    pub recover: u32,
    pub karn_end: u32,
    pub uncounted: i32,
    pub counted_bytes: u32,
    pub judge_start: u32,
    pub taken_e0b: u32,
    pub taken_ceb: u32,
    pub marked_pending: u32,
    pub fack_round: u32,
    pub srtt_ns: u32,
    pub rttvar_ns: u32,
    pub min_rtt_ns: u32,
    pub rtt_first: u32,
    pub dupacks: u16,
    pub mss: u16,
    pub progress_ns: u64,
    pub bytes_marked: u64,
    pub ring: [Sent; 4],
    pub losses: u16,
    pub timeouts: u16,
    pub repeated: u32,
    pub repeat_time: u32,
    pub top_window_or_holes: u16,
    pub repeat_flight: u16,
    pub held: u32,
    pub ahead_time: u32,
    pub sack_left: u32,
    pub sack_right: u32,
    pub policed: u16,
    pub reason: u8,
    pub largest: u8,
    pub hole: [Hole; 4],
    /// The tenant's first number and the peer's, by the SYN/ACK that the flow began with; 0 = not
    /// known.
    pub first_own: u32,
    pub first_remote: u32,
    pub let_go: u32,
}

impl Flow {
    /// Window that enforcement wants, in bytes.
    pub fn enforced_window(&self) -> u32 {
        self.cc.cwnd
    }

    /// Bytes of the tenant's sequence up to `snd_nxt` that policing dropped and that were not sent
    /// since.
    pub fn hole_bytes(&self) -> u32 {
        if self.marks & FLOW_SCALE_BOUND == 0 {
            u32::from(self.top_window_or_holes) * 16
        } else {
            0
        }
    }

    /// Window that the peer last advertised, in bytes.
    pub fn peer_window_bytes(&self) -> u64 {
        u64::from(self.peer_window) << (self.wscale & 15)
    }

    /// Window that the tenant was last shown, in bytes.
    pub fn shown_window_bytes(&self) -> u64 {
        u64::from(self.wire_window) << (self.wscale & 15)
    }
}

/// Value of the kernel's `flows` map (`struct sg_slot`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slot {
    /// Odd while a program changes the slot; another after each change.
    pub version: u32,
    /// The hash of the key with [`SLOT_LIVE`], if it holds a flow.
    pub tag: u32,
    /// Bit i: the slot i further on holds a flow whose home this slot is.
    pub homed: u32,
    /// When the clock was last read.
    pub tick: u32,
    /// The connection of the flow.
    pub key: FlowKey,
    /// Packets of the flow have passed unseen.
    pub missed: u32,
    /// The flow.
    pub flow: Flow,
}

/// [`Slot::tag`]: it holds a flow.
pub const SLOT_LIVE: u32 = 1;
/// Slots from its home on in which a flow may be.
pub const SLOT_REACH: u32 = 32;
/// Slots whose bits an entry of the `occupied` map has.
pub const OCCUPIED_SLOTS: u32 = 4096;

/// `struct sg_hash_key`: random numbers that tenants must not know.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashKey {
    /// Odd.
    pub spread: u64,
    /// Any.
    pub word: [u32; 12],
}

/// Value of the kernel's `sweeper` map (`struct sg_sweeper_image`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweeper {
    /// The kernel's own, reads as zero.
    pub timer: [u64; 2],
    /// Slot that the timer looks at next.
    pub next: u32,
    /// Zero.
    pub pad: u32,
    /// The hash key of the table.
    pub hash_key: HashKey,
}

/// `struct sg_table_shape`: what the programs are loaded with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableShape {
    /// Slots less one; slots are a power of two.
    pub mask: u32,
    /// 32 less the binary logarithm of the slots.
    pub shift: u32,
    /// The hash key of the table.
    pub hash_key: HashKey,
}

/// `struct sg_half_open`: what a SYN is remembered by.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is described in c/sluice/flow.h")]
pub struct HalfOpen {
    pub time_ns: u64,
    pub isn: u32,
    pub mss: u16,
    pub options: u16,
    pub wscale: u8,
    pub rule: u8,
    pub peer: u8,
    pub offers: u8,
    /// Bytes that came with the SYN; of a SYN/ACK alone, the other end's number.
    pub data: u32,
}

/// `struct sg_blackhole_key`: a place for a peer, of those that an interface has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlackholeKey {
    /// The tenant's interface.
    pub ifindex: u32,
    /// Below `SG_BLACKHOLE_SLOTS`.
    pub slot: u32,
}

/// `struct sg_blackhole`: a peer that is not reached by what hosts add to handshakes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each field is described in c/sluice/blackhole.h"
)]
pub struct Blackhole {
    pub remote: Addr,
    pub until_ns: u64,
    pub suspected_ns: u64,
    pub vlan: u16,
    pub times: u8,
    pub pad: [u8; 5],
}

/// Value of the kernel's `interfaces` map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Live flows.
    pub flows: u32,
    /// Most flows it may have; 0 = no limit.
    pub quota: u32,
    /// Tenant id for reports.
    pub tenant: u32,
    /// When the last of its SYNs that nothing answered will have faded, in 2^20 ns; 0 to begin
    /// with.
    pub unanswered: u32,
}

/// Value of the kernel's `places` map: what the policy makes of an interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Rules whose conditions on interface and tenant hold here.
    pub scope: Scope,
    /// Bucket of each class of packets without a flow (`enum sg_class`); [`BUCKET_NONE`].
    pub bucket: [u8; CLASS_NAMES.len()],
    /// Id of the network namespace of its other end, as seen from here; below 0 = none known.
    pub netns: i32,
    /// Zero.
    pub pad: u32,
}

/// [`Place::bucket`]: the class has none.
pub const BUCKET_NONE: u8 = 0xff;
/// Most buckets of one policy.
pub const BUCKETS_MAX: usize = 16;
/// Names of `enum sg_class`.
pub const CLASS_NAMES: [&str; 8] = [
    "udp",
    "icmp",
    "neighbour",
    "fragment",
    "opaque",
    "watched-tcp",
    "other",
    "bare-tcp",
];

/// `struct sg_bucket_key`: the bucket numbered `bucket` of one interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BucketKey {
    /// The tenant's interface.
    pub ifindex: u32,
    /// Position in the policy.
    pub bucket: u32,
}

/// `struct sg_bucket`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// When it is full again, in ns.
    pub full_ns: u64,
    /// Above 0.
    pub ps_per_byte: u64,
    /// The time that a full bucket takes to fill, in ns.
    pub burst_ns: u64,
    /// Bytes that conformed.
    pub passed_bytes: u64,
    /// Bytes beyond the rate.
    pub exceeded_bytes: u64,
    /// Packets beyond the rate.
    pub exceeded_packets: u64,
    /// [`BUCKET_OBSERVE`] or [`BUCKET_ENFORCE`].
    pub mode: u32,
    /// Zero.
    pub pad: u32,
}

/// [`Bucket::mode`]: what is beyond the rate is only counted.
pub const BUCKET_OBSERVE: u32 = 1;
/// [`Bucket::mode`]: what is beyond the rate is dropped.
pub const BUCKET_ENFORCE: u32 = 2;

/// `struct sg_remembered`: what is kept of a flow that was silent for very long.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Largest segment that the peer takes, in bytes of payload.
    pub mss: u16,
    /// Shift of the windows that the peer advertises.
    pub wscale: u8,
    /// 1 = `wscale` is known, 0 = not.
    pub scale: u8,
    /// Only the SYN of its handshake was seen.
    pub one_way: u8,
    /// Both ends have told the numbers that the connection begins with.
    pub confirmed: u8,
    /// The same: shift of the tenant's windows, as far as it is known.
    pub rcv_wscale: u8,
    /// Zero.
    pub pad: u8,
}

/// Value of the kernel's `config` map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// An open flow without packets is forgotten after this many ns.
    pub idle_ns: u64,
    /// One that FINs both ways closed after this many ns; one that an RST closed, which need not
    /// have been believed, only while room is short.
    pub closed_ns: u64,
    /// Which entry of the `policy` map is in force: 0 or 1.
    pub active: u32,
    /// 1 = a bucket of the policy is for TCP without data.
    pub bare: u32,
}

impl Default for Config {
    /// Idle: a little more than the two hours of TCP keepalive (RFC 9293 3.8.4), so that a pooled
    /// connection keeps its entry. Closed: longer than a stray retransmission takes.
    fn default() -> Self {
        Self {
            idle_ns: 7_500_000_000_000,
            closed_ns: 10_000_000_000,
            active: 0,
            bare: 0,
        }
    }
}

/// Version of the layout of everything pinned, part of the pin path (`SG_ABI_VERSION`).
pub const ABI_VERSION: u32 = 8;

/// Slot of a flow that no rule governs.
pub const RULE_NONE: u8 = 0xff;

/// [`Flow::mode`]: counted, never edited.
pub const MODE_WATCH: u8 = 0;
/// [`Flow::mode`]: the window only.
pub const MODE_ONE_SIDED: u8 = 1;
/// [`Flow::mode`]: both ends enforce.
pub const MODE_TWO_SIDED: u8 = 2;

/// [`Flow::mode`]: observing tenants that use ECN, whose ECE is the feedback.
pub const MODE_TENANT_ECN: u8 = 3;

/// Names of [`Flow::mode`].
pub const MODE_NAMES: [&str; 4] = ["watch", "one-sided", "two-sided", "tenant-ecn"];

/// Names of [`Flow::reason`]: why a flow is in its mode, or why nothing more is done.
pub const REASON_NAMES: [&str; 14] = [
    "",
    "midstream",
    "mptcp",
    "signed",
    "peer-silent",
    "peer-untrusted",
    "feedback-stopped",
    "feedback-mismatch",
    "malformed-option",
    "syn-with-data",
    "no-room",
    "one-direction",
    "option-dropped",
    "ect-dropped",
];

/// [`Flow::marks`]: a packet of the tenant has been seen.
pub const FLOW_SENT: u16 = 1 << 1;
/// [`Flow::marks`]: a packet for the tenant has been seen.
pub const FLOW_HEARD: u16 = 1 << 2;
/// [`Flow::marks`]: the window scale is a lower bound.
pub const FLOW_SCALE_BOUND: u16 = 1 << 3;
/// [`Flow::marks`]: the path has dropped and never marked.
pub const FLOW_UNMARKED: u16 = 1 << 4;
/// [`Flow::marks`]: met without its handshake, enforced all the same.
pub const FLOW_ADOPTED: u16 = 1 << 5;
/// [`Flow::marks`]: its tenant may have seen windows that no rule governed; data in them are
/// charged.
pub const FLOW_LENIENT: u16 = 1 << 7;
/// [`Flow::marks`]: its tenant signs its segments, as no handshake told: no header is edited.
pub const FLOW_SIGNS: u16 = 1 << 8;
/// [`Flow::marks`]: ACKs came or left with malformed options, or with signatures.
pub const FLOW_ODD_OPTIONS: u16 = 1 << 11;
/// [`Flow::marks`]: its tenant has acknowledged data that had not come for it.
pub const FLOW_ACKED_AHEAD: u16 = 1 << 12;
/// [`Flow::marks`]: data came that are not of this flow, or damaged.
pub const FLOW_STRANGERS: u16 = 1 << 13;

/// [`Flow::flags`]: an ACK to the tenant has been seen.
pub const FLOW_EDGE_KNOWN: u8 = 1 << 0;
/// [`Flow::flags`]: loss recovery is not over.
pub const FLOW_RECOVERY: u8 = 1 << 1;
/// [`Flow::flags`]: RST, or FIN both ways.
pub const FLOW_CLOSED: u8 = 1 << 2;

/// Counters in the order of `enum sg_counter`; the first does not count.
pub const COUNTER_NAMES: [&str; 63] = [
    "none",
    "packets",
    "ect_set",
    "ecn_hidden",
    "window_lowered",
    "feedback_sent",
    "feedback_taken",
    "ce_bytes",
    "not_tcp",
    "fragment",
    "ip_options",
    "malformed",
    "malformed_option",
    "no_rule",
    "syn",
    "syn_with_data",
    "peer_offered",
    "peer_accepted",
    "peer_untrusted",
    "flow_two_sided",
    "flow_one_sided",
    "flow_midstream",
    "flow_mptcp",
    "flow_signed",
    "table_full",
    "quota",
    "feedback_stale",
    "fack_sent",
    "fack_taken",
    "no_room",
    "feedback_stopped",
    "feedback_mismatch",
    "ack_beyond",
    "loss",
    "timeout",
    "policed",
    "edit_failed",
    "flow_expired",
    "contended",
    "window_would_lower",
    "would_police",
    "repeated",
    "flow_adopted",
    "flow_one_direction",
    "flow_unmarked",
    "rule_changed",
    "double_tag",
    "bucket_dropped",
    "bucket_exceeded",
    "forged",
    "rst_outlived",
    "odd_options",
    "stranger",
    "ack_ahead",
    "data_unseen",
    "trimmed",
    "beyond_held",
    "odd_ack",
    "seq_restored",
    "mss_clamped",
    "syn_fallback",
    "option_dropped",
    "ect_dropped",
];

const _: () = {
    assert!(size_of::<FlowKey>() == 44);
    assert!(size_of::<Flow>() == 320);
    assert!(offset_of!(Flow, wscale) == 58);
    assert!(offset_of!(Flow, cc) == 64);
    assert!(offset_of!(Flow, bytes_acked) == 128);
    assert!(offset_of!(Flow, progress_ns) == 192);
    assert!(offset_of!(Flow, held) == 256);
    assert!(size_of::<Slot>() == 384);
    assert!(offset_of!(Slot, flow) == 64);
    assert!(size_of::<HashKey>() == 56);
    assert!(size_of::<Sweeper>() == 80);
    assert!(size_of::<TableShape>() == 64);
    assert!(size_of::<HalfOpen>() == 24);
    assert!(size_of::<BlackholeKey>() == 8);
    assert!(size_of::<Blackhole>() == 40);
    assert!(size_of::<Interface>() == 16);
    assert!(size_of::<Place>() == 32);
    assert!(size_of::<Config>() == 24);
    assert!(size_of::<BucketKey>() == 8);
    assert!(size_of::<Bucket>() == 56);
    assert!(size_of::<Remembered>() == 8);
};

const _: () = {
    assert!(size_of::<Params>() == 64);
    assert!(offset_of!(Params, beta_q10) == 8);
    assert!(offset_of!(Params, vegas_alpha) == 28);
    assert!(offset_of!(Params, rto_min_us) == 32);
    assert!(offset_of!(Params, rule_id) == 36);
    assert!(offset_of!(Params, mss) == 38);
    assert!(offset_of!(Params, rate_cap) == 40);
    assert!(offset_of!(Params, swift_target_ns) == 48);
    assert!(offset_of!(Params, swift_mdf_q10) == 60);
    assert!(size_of::<Rule>() == 144);
    assert!(offset_of!(Rule, params) == 80);
    assert!(size_of::<Prefix>() == 32);
    assert!(size_of::<Scope>() == 16);
    assert!(size_of::<PolicyTable>() == 24 + RULES_MAX + 32 * TRUSTED_MAX + 144 * SLOTS_MAX);
};
