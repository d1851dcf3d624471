//! Which ports wait for which others, and whether they do so in a circle.

use sluicegate_vswitch::Side;

use super::Engine;

impl Engine {
    /// Ports that wait for each other in a circle: each has no room for a frame of the one before,
    /// and its own frames wait for the next.
    pub fn circles(&self) -> Vec<u16> {
        let ports: Vec<u16> = self.bays().map(|(number, _)| number).collect();
        let edges = ports.iter().flat_map(|&to| {
            let (waiting, since_ns) = self.waiting(to);
            let senders = waiting.into_iter().filter(move |_| since_ns.is_some());
            senders.map(move |(from, _)| (from, to))
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
        ports.iter().copied().filter(returns).collect()
    }

    /// Of the frames that wait for a port, how many each other port has, and since when the port
    /// has no room, ns.
    pub fn waiting(&self, number: u16) -> (Vec<(u16, usize)>, Option<u64>) {
        let lanes = self.choice.lanes;
        let mut waiting: Vec<(u16, usize)> = Vec::new();
        let mut add = |port, frames| match waiting.iter_mut().find(|(known, _)| *known == port) {
            Some((_, sum)) => *sum += frames,
            None => waiting.push((port, frames)),
        };
        let mut queue = 0;
        for priority in lanes.highest_first() {
            let side = lanes.side(number, priority);
            for (entrance, load) in self.switch.waiting(side) {
                let vnic = Side::vnic_of(entrance).unwrap_or_default();
                add(lanes.port(vnic), load.packets);
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
}
