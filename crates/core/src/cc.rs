//! Congestion control: the safe face of `c/sluice/cc.h`.
//!
//! A [`Cc`] is one flow's state. It is made by [`Cc::new`], fed with every acknowledgement that
//! advances `snd_una`, every inferred loss and timeout, and read through its fields: [`Cc::cwnd`]
//! is the result. Nothing here reads a clock; time is [`Ack::now_ns`].

use std::{fmt, mem::offset_of, str::FromStr};

use crate::{abi::Params, number::low_half};

/// The help that an algorithm needs of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Feedback on marks: of its host, or, as a tenant's own stack, of a peer with the same stack.
    Peer,
    /// None: it works from one side.
    Nothing,
}

/// The provider of an algorithm as a tenant's own stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Every Linux.
    Linux,
    /// A module of Linux; for kernels without it there is ours (struct_ops).
    Module,
    /// Only Sluicegate (struct_ops).
    Ours,
    /// None: there is no such stack.
    NoStack,
}

/// From lines `Variant "name" state Needs Stack ["key", …] "title"` of the table of algorithms.
macro_rules! algorithms {
    ($($variant:ident $name:literal $state:literal $needs:ident $stack:ident
        [$($key:literal),*] $title:literal)*) => {
        /// A congestion control (`enum sg_algorithm`): `c/sluice/cc_table.h` has the list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Algorithm {
            $(#[doc = $title] $variant,)*
        }

        impl Algorithm {
            /// Every algorithm, in the order of their numbers.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Every algorithm with its name.
            pub const NAMES: [(&'static str, Self); Self::ALL.len()] =
                [$(($name, Self::$variant)),*];

            /// The name in policies, scenarios and results.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The help that it needs of the peer.
            pub const fn needs(self) -> Needs {
                match self {
                    $(Self::$variant => Needs::$needs,)*
                }
            }

            /// The provider of it as a tenant's own stack.
            pub const fn stack(self) -> Stack {
                match self {
                    $(Self::$variant => Stack::$stack,)*
                }
            }

            /// The keys of its constants in a rule of a policy.
            pub const fn keys(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$($key),*],)*
                }
            }

            /// The kind of its part of `struct sg_cc`.
            const fn state(self) -> &'static str {
                match self {
                    $(Self::$variant => $state,)*
                }
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/algorithms.rs"));

impl Algorithm {
    /// From the number in [`Params::algorithm`]; `None` if no algorithm has it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number in [`Params::algorithm`].
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its state begins with DCTCP's α, which has the gain g.
    pub fn has_alpha(self) -> bool {
        self.state() == "dctcp"
    }

    /// Those that some tenant's own stack is.
    pub fn stacks(of: &[Stack]) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(move |algorithm| of.contains(&algorithm.stack()))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no algorithm has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm(pub String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Algorithm::ALL.iter().map(|known| known.name()).collect();
        write!(
            f,
            "no congestion control is called \"{}\"; there are {}",
            self.0,
            known.join(", ")
        )
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}

/// The constants of tenants' own stacks of Linux (`c/sluice/stack.h`), with an initial window of 10
/// segments and no cap.
#[allow(unsafe_code)]
pub fn stack_params() -> Params {
    let mut params = Params::default();
    // SAFETY: an exclusive reference to the mirror of the C structure, for this call.
    unsafe { native::sluice_stack_params(&mut params) };
    params
}

/// [`Cc::ssthresh`] before the first cut.
pub const SSTHRESH_UNKNOWN: u32 = u32::MAX;

/// [`Cc::flags`]: the last window was cut and is not yet acknowledged.
pub const CC_CUT: u16 = 1 << 1;

/// [`Cc::flags`] that end a cut: see `enum sg_cc_flags`.
const CC_REDUCED: u16 = CC_CUT | 1 << 2 | 1 << 3;

/// `struct sg_cc`: one flow's congestion control.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cc {
    /// The window in bytes.
    pub cwnd: u32,
    /// Slow start threshold in bytes; [`SSTHRESH_UNKNOWN`] before the first cut.
    pub ssthresh: u32,
    /// Payload bytes of the largest segment.
    pub mss: u32,
    /// `snd_nxt` when this window's round began.
    pub round_end: u32,
    /// No second cut by marks before `snd_una` passes this, nor by losses before it is here.
    pub cut_end: u32,
    /// Bytes acknowledged towards the next increase.
    pub credit: u32,
    /// The window before the last cut, in bytes.
    pub prior: u32,
    /// `enum sg_cc_flags`.
    pub flags: u16,
    /// The owner of this state: an [`Algorithm`].
    pub algorithm: u8,
    /// Zero.
    pub pad: u8,
    /// The algorithm's own.
    pub word: [u64; 4],
}

/// `struct sg_cc_ack`: one acknowledgement that advanced `snd_una`; for a loss or a timeout the
/// state of the connection then.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Now.
    pub now_ns: u64,
    /// Bytes newly acknowledged, > 0.
    pub acked: u32,
    /// Of the bytes delivered, those that met CE, `0..=acked`.
    pub marked: u32,
    /// RTT sample; 0 = none with this ACK.
    pub rtt_ns: u32,
    /// Smallest RTT of the flow; 0 = none yet.
    pub min_rtt_ns: u32,
    /// After this ACK.
    pub snd_una: u32,
    /// Highest sequence number sent, plus one.
    pub snd_nxt: u32,
    /// Bytes outstanding before this ACK.
    pub flight: u32,
    /// 1: the flow filled its window, growth is earned (RFC 7661).
    pub window_used: u8,
    /// 1: fast recovery is not over.
    pub in_recovery: u8,
    /// 1: the sums of its path are known.
    pub on_path: u8,
    /// Zero.
    pub pad: u8,
    /// Bytes acknowledged of all flows of the host to this peer, wrapping, with this ACK
    /// ([`crate::path`]).
    pub path_acked: u32,
    /// Of these, bytes that met CE.
    pub path_marked: u32,
}

const _: () = {
    assert!(size_of::<Cc>() == 64);
    assert!(offset_of!(Cc, mss) == 8);
    assert!(offset_of!(Cc, credit) == 20);
    assert!(offset_of!(Cc, flags) == 28);
    assert!(offset_of!(Cc, word) == 32);
    assert!(size_of::<Ack>() == 48);
    assert!(offset_of!(Ack, acked) == 8);
    assert!(offset_of!(Ack, snd_una) == 24);
    assert!(offset_of!(Ack, flight) == 32);
    assert!(offset_of!(Ack, in_recovery) == 37);
    assert!(offset_of!(Ack, path_acked) == 40);
};

/// `c/native.c`.
#[allow(unsafe_code)]
mod native {
    use super::{Ack, Cc, Params};

    unsafe extern "C" {
        pub fn sluice_cc_init(cc: &mut Cc, params: &Params, algorithm: u32, mss: u32);
        pub fn sluice_cc_on_ack(cc: &mut Cc, params: &Params, algorithm: u32, ack: &Ack);
        pub fn sluice_cc_on_loss(cc: &mut Cc, params: &Params, algorithm: u32, ack: &Ack);
        pub fn sluice_cc_on_timeout(cc: &mut Cc, params: &Params, algorithm: u32, ack: &Ack);
        pub fn sluice_cc_on_idle(cc: &mut Cc, params: &Params);
        pub fn sluice_stack_params(params: &mut Params);
    }
}

// The C functions take pointers that are valid for the call, keep none, and are total: any bytes
// in the structures give a defined result.
#[allow(unsafe_code)]
impl Cc {
    /// A flow whose peer takes segments of `mss` payload bytes (taken into 1..=65535).
    pub fn new(params: &Params, algorithm: Algorithm, mss: u32) -> Self {
        let mut cc = Self::default();
        // SAFETY: exclusive and shared references to mirrors of the C structures, for this call.
        unsafe { native::sluice_cc_init(&mut cc, params, algorithm.into(), mss) };
        cc
    }

    /// An acknowledgement that advanced `snd_una`.
    #[inline]
    pub fn on_ack(&mut self, params: &Params, algorithm: Algorithm, ack: &Ack) {
        // SAFETY: as in `new`.
        unsafe { native::sluice_cc_on_ack(self, params, algorithm.into(), ack) };
    }

    /// The third duplicate ACK. Reads `now_ns`, `snd_una`, `snd_nxt` and `flight` of `state`.
    pub fn on_loss(&mut self, params: &Params, algorithm: Algorithm, state: &Ack) {
        // SAFETY: as in `new`.
        unsafe { native::sluice_cc_on_loss(self, params, algorithm.into(), state) };
    }

    /// A retransmission timeout. Reads the same fields as [`Cc::on_loss`].
    pub fn on_timeout(&mut self, params: &Params, algorithm: Algorithm, state: &Ack) {
        // SAFETY: as in `new`.
        unsafe { native::sluice_cc_on_timeout(self, params, algorithm.into(), state) };
    }

    /// Before the first data after an RTO without any (RFC 5681 4.1).
    pub fn on_idle(&mut self, params: &Params) {
        // SAFETY: as in `new`.
        unsafe { native::sluice_cc_on_idle(self, params) };
    }

    /// A cut was needless: window and threshold as before it unless they are larger by now, and
    /// growth goes on. What an algorithm learnt since stays (as in Linux).
    pub fn restore(&mut self, cwnd: u32, ssthresh: u32) {
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.flags &= !CC_REDUCED;
    }

    /// DCTCP's α, 0..=1, where [`Algorithm::has_alpha`]; else meaningless.
    pub fn alpha(&self) -> f64 {
        let alpha_q20 = low_half(self.word[0]);
        f64::from(alpha_q20) / f64::from(crate::abi::ONE_Q20)
    }
}

impl From<Algorithm> for u32 {
    fn from(algorithm: Algorithm) -> Self {
        algorithm.number().into()
    }
}
