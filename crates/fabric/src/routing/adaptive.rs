//! Switch adaptive routing: switches snoop congestion notifications on their way, and avoid the
//! ports behind which there is congestion (Minkenberg et al., HOTI 2009; Crisan's thesis, section
//! 2.3.5).

use rustc_hash::FxHashMap;

use crate::graph::{HostId, PortId};

/// How a switch divides the packets to a host among its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// All go to the port with the least congestion.
    Binary,
    /// A notification moves a part of a port's share to the port with the least congestion.
    Fractional,
}

/// What the sources leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveRules {
    /// How packets are divided.
    pub split: Split,
    /// A level counts for so long after the last notification, ps.
    pub timeout_ps: u64,
}

impl AdaptiveRules {
    /// Binary, as published. The timeout was computed from figure 2.21c of the thesis.
    pub const DEFAULT: Self = Self {
        split: Split::Binary,
        timeout_ps: 300_000_000,
    };
}

/// A notification that passes a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snooped {
    /// The host to which the congested path leads.
    pub host: HostId,
    /// The port of the switch that leads to the congestion.
    pub port: PortId,
    /// The priority of the congested queue.
    pub priority: u8,
    /// |Fb|, 1..=63.
    pub fb: u8,
}

/// The greatest |Fb|.
const MOST: u32 = 63;

/// The part of a port's share that the greatest |Fb| moves to another port (fractional splits).
const MOST_MOVED: f32 = 0.5;

/// The congestion behind the ports of a set, by destination. It has entries only for hosts of which
/// a notification has told within the timeout.
#[derive(Clone, Debug, Default)]
pub struct Congestion {
    /// When the last entry ends.
    until_ps: u64,
    hosts: FxHashMap<u32, Entry>,
}

/// By index of a port in its set.
#[derive(Clone, Debug)]
struct Entry {
    until_ps: u64,
    ports: Box<[Level]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    until_ps: u64,
    /// |Fb| of the last notification.
    fb: u8,
    /// Its part of the packets; all ports together have 1.
    share: f32,
    /// Packets that it should have had and has not.
    credit: f32,
}

impl Congestion {
    /// A notification tells of congestion behind the port with this index, of `count`. `default` is
    /// the index of the port that packets take without congestion.
    pub fn note(
        &mut self,
        rules: AdaptiveRules,
        (index, count, default): (usize, usize, usize),
        snooped: Snooped,
        now_ps: u64,
    ) {
        self.forget(now_ps);
        let until_ps = now_ps.saturating_add(rules.timeout_ps);
        self.until_ps = until_ps;
        let entry = self.hosts.entry(snooped.host.0).or_insert_with(|| {
            let mut ports: Box<[Level]> = vec![Level::default(); count].into();
            ports[default].share = 1.0;
            Entry { until_ps, ports }
        });
        entry.until_ps = until_ps;
        let level = &mut entry.ports[index];
        (level.until_ps, level.fb) = (until_ps, snooped.fb);
        if rules.split == Split::Fractional {
            entry.move_share(index, default, now_ps);
        }
    }

    /// The index of the port for a packet to a host; `None` if no congestion is known, and it takes
    /// the default port.
    #[inline]
    pub fn choose(
        &mut self,
        split: Split,
        host: HostId,
        default: usize,
        now_ps: u64,
    ) -> Option<usize> {
        if now_ps >= self.until_ps {
            return None;
        }
        self.choose_around(split, host, default, now_ps)
    }

    #[inline(never)]
    fn choose_around(
        &mut self,
        split: Split,
        host: HostId,
        default: usize,
        now_ps: u64,
    ) -> Option<usize> {
        let entry = self.hosts.get_mut(&host.0)?;
        if now_ps >= entry.until_ps {
            return None;
        }
        Some(match split {
            Split::Binary => entry.least(default, now_ps),
            Split::Fractional => entry.next(),
        })
    }

    /// Removes the entries that have ended.
    fn forget(&mut self, now_ps: u64) {
        self.hosts.retain(|_, entry| entry.until_ps > now_ps);
    }

    /// The number of destinations with entries.
    #[cfg(test)]
    pub fn entries(&self) -> usize {
        self.hosts.len()
    }
}

impl Entry {
    /// The port with the least level; of equal ones the default, or the first after it.
    fn least(&self, default: usize, now_ps: u64) -> usize {
        let count = self.ports.len();
        let level = |index: usize| match self.ports[index] {
            port if port.until_ps > now_ps => port.fb,
            _ => 0,
        };
        let after = (default..count).chain(0..default);
        after.min_by_key(|&index| level(index)).unwrap_or(default)
    }

    /// A part of a port's share moves to the one with the least level.
    fn move_share(&mut self, index: usize, default: usize, now_ps: u64) {
        let to = self.least(default, now_ps);
        if to == index {
            return;
        }
        let from = &mut self.ports[index];
        let moved = from.share * MOST_MOVED * f32::from(from.fb) / MOST as f32;
        from.share -= moved;
        self.ports[to].share += moved;
    }

    /// The port whose share is furthest behind.
    fn next(&mut self) -> usize {
        for port in &mut self.ports {
            port.credit += port.share;
        }
        let mut most = 0;
        for (index, port) in self.ports.iter().enumerate() {
            if port.credit > self.ports[most].credit {
                most = index;
            }
        }
        self.ports[most].credit -= 1.0;
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: AdaptiveRules = AdaptiveRules::DEFAULT;
    const HOST: HostId = HostId(7);

    fn snooped(fb: u8) -> Snooped {
        Snooped {
            host: HOST,
            port: PortId(0),
            priority: 0,
            fb,
        }
    }

    #[test]
    fn packets_avoid_a_congested_port_until_its_level_ends() {
        let mut congestion = Congestion::default();
        assert_eq!(congestion.choose(Split::Binary, HOST, 1, 0), None);
        congestion.note(RULES, (1, 3, 1), snooped(20), 100);
        assert_eq!(congestion.choose(Split::Binary, HOST, 1, 101), Some(2));
        congestion.note(RULES, (2, 3, 1), snooped(40), 200);
        assert_eq!(congestion.choose(Split::Binary, HOST, 1, 201), Some(0));
        congestion.note(RULES, (0, 3, 1), snooped(30), 300);
        let all = congestion.choose(Split::Binary, HOST, 1, 301);
        assert_eq!(all, Some(1), "20 is the least of 30, 20 and 40");
        assert_eq!(congestion.choose(Split::Binary, HostId(8), 1, 301), None);
        let after_ps = 300 + RULES.timeout_ps;
        assert_eq!(congestion.choose(Split::Binary, HOST, 1, after_ps), None);
    }

    #[test]
    fn entries_are_kept_only_while_they_are_used() {
        let mut congestion = Congestion::default();
        for host in 0..100 {
            let snooped = Snooped {
                host: HostId(host),
                ..snooped(9)
            };
            congestion.note(RULES, (0, 2, 0), snooped, u64::from(host));
        }
        assert_eq!(congestion.entries(), 100);
        congestion.note(RULES, (0, 2, 0), snooped(9), 200 + RULES.timeout_ps);
        assert_eq!(congestion.entries(), 1);
    }

    #[test]
    fn a_fraction_moves_with_each_notification() {
        let rules = AdaptiveRules {
            split: Split::Fractional,
            ..RULES
        };
        let mut congestion = Congestion::default();
        let count = |congestion: &mut Congestion| {
            let mut packets = [0; 4];
            for _ in 0..1_000 {
                let port = congestion.choose(Split::Fractional, HOST, 0, 50).unwrap();
                packets[port] += 1;
            }
            packets
        };
        congestion.note(rules, (0, 4, 0), snooped(63), 1);
        let [first, second, ..] = count(&mut congestion);
        assert!((499..=501).contains(&first), "{first}");
        assert_eq!(first + second, 1_000);
        congestion.note(rules, (1, 4, 0), snooped(31), 2);
        let [first, second, third, _] = count(&mut congestion);
        assert!((498..=502).contains(&first), "{first}");
        assert!((370..=382).contains(&second), "{second}");
        assert!((118..=130).contains(&third), "{third}");
    }
}
