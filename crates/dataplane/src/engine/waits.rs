//! Which ports wait for which others, and whether they do so in a circle.

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
}

impl Waiting {
    /// Adds what waits for the same port in another thread.
    pub fn add(&mut self, other: &Self) {
        self.since_ns = self.since_ns.min(other.since_ns);
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

/// Ports that wait for each other in a circle: each has no room for a frame of the one before, and
/// its own frames wait for the next. Of all threads together.
pub fn circles(waits: &[Waiting]) -> Vec<u16> {
    let edges = waits.iter().flat_map(|waiting| {
        let senders = waiting.from.iter();
        senders.map(|&(from, _)| (from, waiting.to))
    });
    let edges: Vec<(u16, u16)> = edges.filter(|(from, to)| from != to).collect();
    let next = |from: u16| {
        edges
            .iter()
            .filter(move |edge| edge.0 == from)
            .map(|edge| edge.1)
    };
    let returns = |&start: &u16| {
        let mut seen = vec![start];
        let mut open: Vec<u16> = next(start).collect();
        while let Some(port) = open.pop() {
            if port == start {
                return true;
            }
            if !seen.contains(&port) {
                seen.push(port);
                open.extend(next(port));
            }
        }
        false
    };
    let ports = waits.iter().map(|waiting| waiting.to);
    ports.filter(|port| returns(port)).collect()
}

impl Engine {
    /// Of each port without room, who waits for it in this thread.
    pub fn waits(&self) -> Vec<Waiting> {
        let each = self.bays().filter_map(|(to, _)| {
            let (from, since_ns) = self.waiting(to);
            let since_ns = since_ns?;
            Some(Waiting { to, since_ns, from })
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
