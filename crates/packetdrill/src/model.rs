//! The parts of a script.

use crate::packet::Packet;

/// A script as read.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// `--name=value` with the line.
    pub options: Vec<(usize, String, Option<String>)>,
    /// Shell commands before the first event.
    pub setup: Vec<(usize, String)>,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub line: usize,
    pub when: When,
    pub action: Action,
}

/// When an event happens, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// `*`
    Any,
    /// Since the beginning.
    At(u64),
    /// `+`: since the last event.
    After(u64),
    /// `a~b` since the beginning.
    Between(u64, u64),
    /// `+a~+b` since the last event.
    AfterBetween(u64, u64),
}

impl When {
    /// First and last time at which the event may happen when the last one was at `last_ns`; `*`
    /// waits for so long.
    pub fn bounds(self, last_ns: u64, patience_ns: u64) -> (u64, u64) {
        let after = |ns: u64| last_ns.saturating_add(ns);
        match self {
            Self::Any => (last_ns, after(patience_ns)),
            Self::At(at) => (at, at),
            Self::After(ns) => (after(ns), after(ns)),
            Self::Between(from, to) => (from, to),
            Self::AfterBetween(from, to) => (after(from), after(to)),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Action {
    /// `<`
    Arrives(Packet),
    /// `>`
    Leaves(Expected),
    /// `< icmp …`
    Icmp(Icmp),
    Call(Call),
    Shell(String),
    Code(String),
    /// A packet or a construct that is understood well enough to be skipped, and why.
    Unsupported(String),
}

/// A segment that has to leave.
#[derive(Clone, Debug)]
pub struct Expected {
    pub packet: Packet,
    /// `None`: any.
    pub window: Option<u16>,
    /// `<...>`: any options.
    pub any_options: bool,
    /// Timestamps are not compared.
    pub any_clock: bool,
    /// `...(0)`: any sequence number.
    pub any_seq: bool,
    pub ecn: EcnWanted,
    /// Time to live, or hop limit; `None`: any.
    pub ttl: Option<u8>,
    /// The six bits above ECN; `None`: any.
    pub dscp: Option<u8>,
}

/// An ICMP message that answers a segment of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    pub meaning: IcmpMeaning,
    /// Type and code on the wire, of ICMP and of ICMPv6.
    pub numbers: [Option<(u8, u8)>; 2],
    /// The sequence number that it quotes, relative; `None`: the oldest one that is out.
    pub seq: Option<u32>,
    /// The UDP ports that it quotes, source first.
    pub udp: Option<(u16, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpMeaning {
    /// The packet was larger than this many bytes.
    TooBig(u16),
    /// It did not arrive. The error that a socket sees whose connection is opening, by Linux's
    /// rule and by FreeBSD's, which ignores some.
    Lost {
        linux: &'static str,
        freebsd: Option<&'static str>,
    },
    /// Nothing that TCP hears of.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnWanted {
    Any,
    /// ECT(0) or ECT(1).
    Capable,
    Exactly(u8),
}

/// A system call.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub arguments: Vec<Expr>,
    pub result: Expr,
    /// With a result of -1.
    pub errno: Option<String>,
    /// When a call that blocks returns: by the same clock as its beginning.
    pub returns_ns: Option<u64>,
}

/// An argument, or a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// `...`
    Ellipsis,
    Integer(i64),
    Word(String),
    Text(String),
    /// `a|b`
    Or(Vec<Expr>),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `{name=value, name(n)=value, value}`; without a name it is empty.
    Struct(Vec<(String, Expr)>),
    /// `name(...)`
    Function(String),
}
