//! Which ports wait for which others, and whether they do so in a circle.

use std::collections::BTreeMap;

use sluicegate_vswitch::Side;

use super::Engine;

/// Who waits for a port that has no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The port.
    pub to: u16,
    /// Since when it has no room, ns.
    pub since_ns: u64,
    /// Ports with frames for it, and how many.
    pub from: Vec<(u16, usize)>,
    /// It has taken nothing for `stall_limit`: nothing waits for it any more, all is dropped.
    pub is_stalled: bool,
}

impl Waiting {
    /// Adds what waits for the same port in another thread.
    pub fn add(&mut self, other: &Self) {
        self.since_ns = self.since_ns.min(other.since_ns);
        self.is_stalled |= other.is_stalled;
        for &(port, frames) in &other.from {
            add(&mut self.from, port, frames);
        }
    }
}

fn add(waiting: &mut Vec<(u16, usize)>, port: u16, frames: usize) {
    match waiting.iter_mut().find(|(known, _)| *known == port) {
        Some((_, sum)) => *sum += frames,
        None => waiting.push((port, frames)),
    }
}

/// What waits for the same port in several threads, as one; by port.
pub fn merge(waits: impl Iterator<Item = Waiting>) -> Vec<Waiting> {
    let mut all: BTreeMap<u16, Waiting> = BTreeMap::new();
    for one in waits {
        match all.get_mut(&one.to) {
            Some(known) => known.add(&one),
            None => drop(all.insert(one.to, one)),
        }
    }
    all.into_values().collect()
}

/// Circles of ports: each port has no room for a frame of another one of its circle, and its own
/// frames wait for a third, or for the same. `waits` are those of all threads, by port.
///
/// It is Warshall's transitive closure, a bit for each pair of ports.
pub fn circles(waits: &[Waiting]) -> Vec<Vec<u16>> {
    let place = |port: u16| waits.binary_search_by_key(&port, |it| it.to).ok();
    let count = waits.len();
    let has = |row: &[u64], at: usize| row[at / 64] >> (at % 64) & 1 != 0;
    let mut reaches = vec![vec![0_u64; count.div_ceil(64)]; count];
    for (to, waiting) in waits.iter().enumerate() {
        let senders = waiting.from.iter().filter_map(|&(port, _)| place(port));
        for from in senders.filter(|&from| from != to) {
            reaches[from][to / 64] |= 1 << (to % 64);
        }
    }
    for middle in 0..count {
        let beyond = reaches[middle].clone();
        for row in reaches.iter_mut().filter(|row| has(row, middle)) {
            row.iter_mut()
                .zip(&beyond)
                .for_each(|(to, more)| *to |= more);
        }
    }
    let mut circles: Vec<Vec<u16>> = Vec::new();
    for (at, row) in reaches.iter().enumerate() {
        let returns = |&other: &usize| has(row, other) && has(&reaches[other], at);
        let circle: Vec<u16> = (0..count).filter(returns).map(|it| waits[it].to).collect();
        // It is found from each of its ports, the first of them first.
        if circle.first() == Some(&waits[at].to) {
            circles.push(circle);
        }
    }
    circles
}

impl Engine {
    /// Of each port without room, who waits for it in this thread.
    pub fn waits(&self) -> Vec<Waiting> {
        let each = self.bays().filter_map(|(to, bay)| {
            let (from, since_ns) = self.waiting(to);
            Some(Waiting {
                to,
                since_ns: since_ns?,
                from,
                is_stalled: bay.is_stalled,
            })
        });
        each.collect()
    }

    /// Of the frames that wait for a port, how many each other port has, and since when the port
    /// has no room, ns.
    pub fn waiting(&self, number: u16) -> (Vec<(u16, usize)>, Option<u64>) {
        let lanes = self.choice.lanes;
        let mut waiting: Vec<(u16, usize)> = Vec::new();
        let mut queue = 0;
        for priority in lanes.highest_first() {
            let side = lanes.side(number, priority);
            for (entrance, load) in self.switch.waiting(side) {
                let vnic = Side::vnic_of(entrance).unwrap_or_default();
                add(&mut waiting, lanes.port(vnic), load.packets);
            }
            queue += self.switch.exit_load(side).packets;
        }
        if queue > 0 {
            waiting.push((number, queue));
        }
        let bay = self.bays[usize::from(number)].as_ref();
        let blocked_ns = bay.and_then(|bay| bay.blocked_ns);
        (
            waiting,
            blocked_ns.or_else(|| self.stopped_since_ns(number)),
        )
    }

    /// Frames that wait or are held here, those of other threads' ports not counted twice.
    pub fn held_here(&self) -> usize {
        let mesh = self.mesh.as_ref();
        let away = mesh.map_or(0, |mesh| mesh.away.iter().sum::<u32>());
        self.frames.used().saturating_sub(away as usize)
    }
}
