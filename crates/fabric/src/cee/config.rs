//! The configuration of a converged Ethernet. Defaults are those of the thesis (Table 2.1).
//!
//! In a scenario: `[network.cee]` with `switch`, `port_buffer`, `memory`, `alpha`, `forwarding`,
//! `switch_delay`, `adapter_delay`, `adapter_buffer`, `resequence_buffer`; `[network.cee.pfc]` with
//! `priorities`, `xoff`, `xon`, `pause`, `response`, `headroom`; `[network.cee.qcn]` with
//! `priorities`, `preset`, `rate_limiters`, `set_point`, `weight`, `interval`, `gain`, `min_rate`,
//! `min_decrease`, `active_increase`, `hyper_increase`, `byte_limit`, `timer`, `fast_recovery`,
//! `extra_fast_recovery`;
//! `[network.cee.ets]` with `classes`.

/// A network of lossless Ethernet.
#[derive(Clone, Debug, PartialEq)]
pub struct CeeConfig {
    /// Where a switch keeps frames.
    pub buffer: Buffer,
    /// A frame is sent on as soon as its header is there, where the link that it came by is no
    /// slower than any of the switch.
    pub cut_through: bool,
    /// From a frame's arrival at a switch to its place in an output queue.
    pub switch_delay_ps: u64,
    /// The delay of an adapter, in each direction.
    pub adapter_delay_ps: u64,
    /// Bytes of each priority that an adapter keeps, all destinations together; sockets wait for
    /// room.
    /// [`CeeConfig::UNLIMITED`]: no bound, and no socket waits.
    pub adapter_bytes: u64,
    /// Bytes that a receiving adapter keeps of frames that have overtaken others.
    pub resequence_bytes: u64,
    /// Priority flow control.
    pub pfc: Option<PfcConfig>,
    /// Congestion notification.
    pub qcn: Option<QcnConfig>,
    /// Transmission selection.
    pub ets: EtsConfig,
}

/// Where a switch keeps frames until they have left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buffer {
    /// So many bytes for each port and priority that frames come in by; output queues are as long
    /// as all inputs together (the thesis, section 2.5.2).
    Input {
        /// Bytes.
        bytes: u64,
    },
    /// One memory for all ports, with thresholds of α times what is free (Choudhury and Hahne
    /// 1998): of output queues for priorities that may be dropped, of inputs for those that are
    /// paused.
    Shared {
        /// Bytes, what is set aside as headroom included.
        bytes: u64,
        /// α, > 0.
        alpha: f64,
    },
}

/// Priority flow control (802.1Qbb, now 802.1Q clause 36).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PfcConfig {
    /// Lossless priorities, bit p for priority p.
    pub priorities: u8,
    /// An input that holds more is paused.
    pub xoff_bytes: u64,
    /// One that holds less goes on; < `xoff_bytes`.
    pub xon_bytes: u64,
    /// How the neighbour learns of it.
    pub pause: Pause,
}

/// How a pause takes effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pause {
    /// Before the neighbour's next frame, without a frame of its own: what Table 2.1 needs in order
    /// to be lossless.
    Ideal,
    /// With a MAC control frame, behind the one that is being sent.
    Wire {
        /// From the frame's last bit to the neighbour's obedience.
        response_ps: u64,
        /// Room above `xoff_bytes` of each input; `None` = as much as is needed.
        headroom_bytes: Option<u64>,
    },
}

/// Quantized congestion notification (802.1Qau, now 802.1Q clauses 30 to 33).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QcnConfig {
    /// Priorities with congestion points and rate limiters, bit p for priority p.
    pub priorities: u8,
    /// The priority of notifications, 0 to 7.
    pub notification_priority: u8,
    /// Sources have rate limiters. Without them notifications serve routing alone.
    pub rate_limiters: bool,
    /// Constants.
    pub params: QcnParams,
}

/// How a congestion point samples more often the greater |Fb| is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Samples per byte grow linearly with |Fb|, up to ten times as many (the thesis, Fig. 2.3).
    Linear,
    /// The interval is divided by 1 to 8, by the three highest of the six bits of |Fb| (802.1Q
    /// clause 32, and QCN's pseudo-code).
    Steps,
}

/// Constants of QCN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QcnParams {
    /// Qeq in bytes.
    pub set_point_bytes: u64,
    /// w, the weight of a queue's growth.
    pub weight: f64,
    /// Bytes from one sample to the next where there is no congestion.
    pub interval_bytes: u64,
    /// How much fewer there are with congestion.
    pub sampling: Sampling,
    /// Gd per quantised step: a rate falls to 1 − gain · |Fb|.
    pub gain: f64,
    /// The least factor of one decrease.
    pub min_decrease: f64,
    /// Least rate in bits per second.
    pub min_rate_bps: u64,
    /// R_AI in bits per second.
    pub active_increase_bps: u64,
    /// R_HAI in bits per second.
    pub hyper_increase_bps: u64,
    /// Bytes of a cycle of fast recovery.
    pub byte_limit: u64,
    /// Time of a cycle.
    pub timer_ps: u64,
    /// Cycles of fast recovery.
    pub fast_recovery: u32,
    /// Notifications while a rate is in its first cycle leave the target as it is.
    pub extra_fast_recovery: bool,
}

/// Enhanced transmission selection (802.1Qaz, now 802.1Q clause 37).
#[derive(Clone, Debug, PartialEq)]
pub struct EtsConfig {
    /// By traffic class.
    pub classes: Vec<EtsClass>,
}

/// A traffic class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EtsClass {
    /// Its priorities, bit p for priority p; they take turns. No priority is in two classes.
    pub priorities: u8,
    /// Percent of what strict classes leave; `None` = strict: before all with a share and before
    /// strict ones that come earlier.
    pub share: Option<u32>,
}

impl CeeConfig {
    /// See `adapter_bytes`.
    pub const UNLIMITED: u64 = u64::MAX;

    /// Ports may decide late what they send, since no other input shares the buffer in which a
    /// frame leaves room. See [`super::Cee::catch_up`].
    pub(super) fn may_be_late(&self) -> bool {
        matches!(self.buffer, Buffer::Input { .. })
    }
}

impl Default for CeeConfig {
    fn default() -> Self {
        Self {
            buffer: Buffer::Input { bytes: 100_000 },
            cut_through: true,
            switch_delay_ps: 100_000,
            adapter_delay_ps: 500_000,
            adapter_bytes: 512_000,
            resequence_bytes: 4_000_000,
            pfc: None,
            qcn: None,
            ets: EtsConfig::default(),
        }
    }
}

impl Default for PfcConfig {
    fn default() -> Self {
        Self {
            priorities: 0xff,
            xoff_bytes: 97_000,
            xon_bytes: 80_000,
            pause: Pause::Ideal,
        }
    }
}

impl QcnParams {
    /// The thesis, Table 2.1, with one of its set points: 20 or 66 KB.
    pub fn thesis(set_point_bytes: u64) -> Self {
        Self {
            set_point_bytes,
            weight: 2.0,
            interval_bytes: 150_000,
            sampling: Sampling::Linear,
            gain: 1.0 / 128.0,
            min_decrease: 0.5,
            min_rate_bps: 100_000,
            active_increase_bps: 5_000_000,
            hyper_increase_bps: 50_000_000,
            byte_limit: 150_000,
            timer_ps: 15_000_000_000,
            fast_recovery: 5,
            extra_fast_recovery: true,
        }
    }

    /// The defaults of IEEE8021-CN-MIB (802.1Q clause 17): the thesis' but for the set point, the
    /// least rate and the steps of sampling.
    pub fn standard() -> Self {
        Self {
            min_rate_bps: 5_000_000,
            sampling: Sampling::Steps,
            ..Self::thesis(26_000)
        }
    }
}

impl Default for EtsConfig {
    /// All priorities in one class.
    fn default() -> Self {
        Self {
            classes: vec![EtsClass {
                priorities: 0xff,
                share: Some(100),
            }],
        }
    }
}
