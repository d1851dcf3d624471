//! The lab's switch port: marks, drops and measures at an interface's transmit queue.
//!
//! [`SwitchPorts`] loads `bpf/ecn_switch.bpf.c` once and attaches it to the ports of one network
//! namespace; the tail drops of a port are its qdisc's business, not counted here.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::{MapCore, MapFlags, Object};
use sluicegate_agent::{
    include_object, object,
    tcx::{Direction, TcxLink},
};
use sluicegate_core::aqm::{Aqm, AqmParams};

/// Ports that one load can serve (`SG_PORTS_MAX`).
pub const PORTS_MAX: u32 = 512;

/// `SG_BACKLOG_SUB_BITS`: bins per power of two, as a power of two.
const BACKLOG_SUB_BITS: u32 = 5;
/// `SG_BACKLOG_BINS`.
const BACKLOG_BINS: usize = ((32 - BACKLOG_SUB_BITS + 1) << BACKLOG_SUB_BITS) as usize;
/// Counters before the histogram in `struct sg_port_stats`.
const COUNTERS: usize = 6;
/// Size of `struct sg_port_stats`.
const STATS_BYTES: usize = 8 * (COUNTERS + BACKLOG_BINS);
/// Size of `struct sg_port`.
const PORT_BYTES: usize = 64;
/// Offsets in `struct sg_port`.
const PORT_BLEACH: usize = 44;
const PORT_BACKLOG: usize = 48;
const PORT_SEEN: usize = 56;

/// Everything a port needs to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortConfig {
    /// Marking and early dropping.
    pub aqm: Aqm,
    /// Rate at which the queue drains, bit/s: ages RED's average while the queue is idle.
    pub rate_bps: u64,
    /// Size of a full frame in bytes, for the same purpose; what is larger is a super-packet.
    pub frame_bytes: u32,
}

impl PortConfig {
    /// `struct sg_port` with nothing seen yet.
    fn encode(&self) -> Result<[u8; PORT_BYTES]> {
        let params = AqmParams::new(self.aqm, self.rate_bps, self.frame_bytes);
        let words = params.map_err(anyhow::Error::msg)?.words();
        let mut bytes = [0; PORT_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }
}

/// A port of a [`SwitchPorts`]: its row in the maps `ports` and `stats`, of which each load has its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u32);

/// The programs of one switch namespace. Dropping it detaches them all.
pub struct SwitchPorts {
    object: Object,
    links: Vec<TcxLink>,
    configs: Vec<PortConfig>,
}

impl fmt::Debug for SwitchPorts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SwitchPorts")
            .field("configs", &self.configs)
            .finish_non_exhaustive()
    }
}

impl SwitchPorts {
    /// Loads the program and its maps; attaches nothing yet.
    ///
    /// # Errors
    /// The kernel refuses the program (Linux ≥ 6.12, CAP_BPF and CAP_NET_ADMIN needed).
    pub fn load() -> Result<Self> {
        let opened = object::open("ecn_switch", include_object!("ecn_switch"))?;
        let mut object = object::load(opened, "ecn_switch")?;
        object::check_layout(&object::map(&mut object, "ports")?, 4, PORT_BYTES)?;
        object::check_layout(&object::map(&mut object, "stats")?, 4, STATS_BYTES)?;
        Ok(Self {
            object,
            links: Vec::new(),
            configs: Vec::new(),
        })
    }

    /// Attaches to the transmit side of an interface of the calling thread's network namespace.
    /// All interfaces of one `SwitchPorts` must be in the same namespace.
    ///
    /// # Errors
    /// A configuration out of range, no such interface, too many ports.
    pub fn attach(&mut self, ifindex: u32, config: &PortConfig) -> Result<Slot> {
        let slot = self.configs.len() as u32;
        ensure!(
            slot < PORTS_MAX,
            "one load serves at most {PORTS_MAX} switch ports"
        );
        self.write("ports", slot, &config.encode()?)?;
        self.write("slots", ifindex, &slot.to_ne_bytes())?;
        let program = object::program(&self.object, "ecn_switch")?;
        let link = TcxLink::attach(&program, ifindex, Direction::Egress)?;
        self.links.push(link);
        self.configs.push(*config);
        Ok(Slot(slot))
    }

    /// From here on the port clears the ECN field of everything that leaves, or no longer.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn set_bleach(&mut self, port: Slot, bleach: bool) -> Result<()> {
        let mut bytes = self.read("ports", port)?;
        bytes[PORT_BLEACH..PORT_BLEACH + 4].copy_from_slice(&u32::from(bleach).to_ne_bytes());
        self.write("ports", port.0, &bytes)
    }

    /// Counters of the port since it was attached, over all CPUs.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn stats(&self, port: Slot) -> Result<PortStats> {
        let map = self.map("stats")?;
        let rows = map
            .lookup_percpu(&port.0.to_ne_bytes(), MapFlags::ANY)
            .context("reading the counters of a switch port")?
            .unwrap_or_default();
        let mut sum = vec![0u64; COUNTERS + BACKLOG_BINS];
        for row in rows {
            for (total, bytes) in sum.iter_mut().zip(row.chunks_exact(8)) {
                *total += u64::from_ne_bytes(bytes.try_into()?);
            }
        }
        let backlog = BacklogHistogram(sum.split_off(COUNTERS));
        let [packets, bytes, marks, drops_not_ect, drops_red, bleached] = sum[..] else {
            bail!("the counters of a switch port have another layout");
        };
        Ok(PortStats {
            packets,
            bytes,
            marks,
            drops_not_ect,
            drops_red,
            bleached,
            backlog,
        })
    }

    /// Bytes in the queue now: what was there after the last arrival, less what the link's rate
    /// has drained since. An upper bound when that arrival was dropped at the tail.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn backlog_bytes(&self, port: Slot) -> Result<u64> {
        let bytes = self.read("ports", port)?;
        let seen = u64::from_ne_bytes(bytes[PORT_SEEN..PORT_SEEN + 8].try_into()?);
        let left = u32::from_ne_bytes(bytes[PORT_BACKLOG..PORT_BACKLOG + 4].try_into()?);
        let elapsed_ns = monotonic_ns()?.saturating_sub(seen);
        let rate_bps = self.configs[port.0 as usize].rate_bps;
        let drained = u128::from(elapsed_ns) * u128::from(rate_bps) / 8_000_000_000;
        Ok(u64::from(left).saturating_sub(drained.min(u128::from(u64::MAX)) as u64))
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .with_context(|| format!("object ecn_switch has no map {name}"))
    }

    fn read(&self, name: &str, port: Slot) -> Result<Vec<u8>> {
        self.map(name)?
            .lookup(&port.0.to_ne_bytes(), MapFlags::ANY)
            .with_context(|| format!("reading map {name} of the switch ports"))?
            .with_context(|| format!("map {name} of the switch ports has no row {}", port.0))
    }

    fn write(&self, name: &str, key: u32, value: &[u8]) -> Result<()> {
        self.map(name)?
            .update(&key.to_ne_bytes(), value, MapFlags::ANY)
            .with_context(|| format!("writing map {name} of the switch ports"))
    }
}

fn monotonic_ns() -> Result<u64> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the answer.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } != 0 {
        return Err(std::io::Error::last_os_error()).context("reading CLOCK_MONOTONIC");
    }
    Ok(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Counters of a switch port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets that arrived at the queue, whatever became of them.
    pub packets: u64,
    /// Their bytes, Ethernet headers included.
    pub bytes: u64,
    /// Packets that got CE here.
    pub marks: u64,
    /// Packets dropped above the threshold because they were not ECN-capable.
    pub drops_not_ect: u64,
    /// Packets dropped by RED.
    pub drops_red: u64,
    /// Packets whose ECN field was cleared.
    pub bleached: u64,
    /// Backlog that arriving packets met.
    pub backlog: BacklogHistogram,
}

impl PortStats {
    /// The growth after `earlier`, an older reading of the same port.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            packets: self.packets.wrapping_sub(earlier.packets),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            marks: self.marks.wrapping_sub(earlier.marks),
            drops_not_ect: self.drops_not_ect.wrapping_sub(earlier.drops_not_ect),
            drops_red: self.drops_red.wrapping_sub(earlier.drops_red),
            bleached: self.bleached.wrapping_sub(earlier.bleached),
            backlog: self.backlog.since(&earlier.backlog),
        }
    }
}

/// How often arriving packets met how much backlog, in log-linear bins at most 1/32 of their
/// value wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacklogHistogram(Vec<u64>);

impl Default for BacklogHistogram {
    fn default() -> Self {
        Self(vec![0; BACKLOG_BINS])
    }
}

impl BacklogHistogram {
    /// The bins counted after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.0.iter().zip(&earlier.0);
        Self(counts.map(|(now, then)| now.wrapping_sub(*then)).collect())
    }

    /// Backlog in bytes that a fraction `q` (0..=1) of the packets did not exceed, at the middle of
    /// its bin; `None` without packets. `q` = 1 is the largest.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let total: u64 = self.0.iter().sum();
        let rank = ((q * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        for (bin, count) in self.0.iter().enumerate() {
            below += count;
            if below >= rank {
                return Some(bin_middle(bin as u64));
            }
        }
        None
    }
}

/// Inverse of `sg_backlog_bin()`.
fn bin_middle(bin: u64) -> f64 {
    let shift = (bin >> BACKLOG_SUB_BITS).saturating_sub(1);
    let low = (bin - (shift << BACKLOG_SUB_BITS)) << shift;
    low as f64 + ((1u64 << shift) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(bins: &[(usize, u64)]) -> BacklogHistogram {
        let mut histogram = BacklogHistogram::default();
        for &(bin, count) in bins {
            histogram.0[bin] = count;
        }
        histogram
    }

    #[test]
    fn bins_cover_their_values() {
        assert_eq!(bin_middle(0), 0.0);
        assert_eq!(bin_middle(63), 63.0);
        // 64 and 65 share the first bin that is two wide.
        assert_eq!(bin_middle(64), 64.5);
        assert_eq!(bin_middle(95), 126.5);
        // The last bin ends at 2^32 - 1.
        let half_width = ((1u64 << 26) - 1) as f64 / 2.0;
        assert_eq!(
            bin_middle(BACKLOG_BINS as u64 - 1) + half_width,
            f64::from(u32::MAX)
        );
    }

    #[test]
    fn quantiles_count_packets() {
        let histogram = histogram(&[(0, 90), (10, 9), (40, 1)]);
        assert_eq!(histogram.quantile(0.5), Some(0.0));
        assert_eq!(histogram.quantile(0.95), Some(10.0));
        assert_eq!(histogram.quantile(1.0), Some(40.0));
        assert_eq!(BacklogHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn differences_survive_wrapping() {
        let earlier = histogram(&[(3, u64::MAX)]);
        let later = histogram(&[(3, 4)]);
        assert_eq!(later.since(&earlier).0[3], 5);
    }

    #[test]
    fn red_out_of_range_is_refused() {
        let config = |aqm| PortConfig {
            aqm,
            rate_bps: 1_000_000_000,
            frame_bytes: 1514,
        };
        let red = |min_bytes, max_bytes, p_max, weight| Aqm::Red {
            drop_above: false,
            pass_not_ect: false,
            min_bytes,
            max_bytes,
            p_max,
            weight,
        };
        assert!(config(red(10, 20, 0.1, 0.002)).encode().is_ok());
        for bad in [
            red(20, 20, 0.1, 0.002),
            red(10, 20, 1.1, 0.002),
            red(10, 20, 0.1, 0.0),
            red(10, 20, f64::NAN, 0.002),
        ] {
            assert!(config(bad).encode().is_err(), "{bad:?}");
        }
    }
}
