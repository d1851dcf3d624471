//! What operators are told without asking: a receiver that has taken nothing for long while others
//! wait for it, and ports that wait for each other in a circle. Each is told once, and once more
//! when it is over.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    Engine,
    waits::{Waiting, circles, merge},
};

/// What has no room for so long is told of, ns. A circle in which frames still move comes and goes
/// by itself.
pub const LONG_NS: u64 = 1_000_000_000;

/// What all threads see of receivers without room. The first of them looks at it.
#[derive(Debug, Default)]
pub struct Board(Mutex<BTreeMap<usize, Vec<Waiting>>>);

impl Board {
    /// A thread has seen this; what all have seen last, for the first thread.
    fn post(&self, thread: usize, waits: Vec<Waiting>) -> Option<Vec<Waiting>> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(thread, waits);
        (thread == 0).then(|| merge(seen.values().flatten().cloned()))
    }
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// A receiver that has taken nothing for long, and the ports that wait for it.
    Stalled(u16, Vec<u16>),
    /// The receiver takes frames again, or no port waits for it.
    Moves(u16),
    /// These ports wait for each other.
    Circle(Vec<u16>),
    /// They do so no more.
    Open(Vec<u16>),
}

/// What was told and is not over.
#[derive(Debug, Default)]
pub struct Alarm {
    board: Arc<Board>,
    /// Receivers that have taken nothing for long.
    pub stalled: Vec<u16>,
    /// Circles of such receivers.
    pub circles: Vec<Vec<u16>>,
}

impl Alarm {
    fn look(&mut self, waits: Vec<Waiting>, now_ns: u64) -> Vec<Told> {
        let is_long = |it: &Waiting| now_ns.saturating_sub(it.since_ns) >= LONG_NS;
        let long: Vec<Waiting> = waits
            .into_iter()
            .filter(|it| is_long(it) && (it.is_stalled || !it.from.is_empty()))
            .collect();
        let mut told = Vec::new();
        let is_new = |it: &&Waiting| !self.stalled.contains(&it.to);
        for waiting in long.iter().filter(is_new) {
            let from = waiting.from.iter().map(|&(port, _)| port);
            told.push(Told::Stalled(waiting.to, from.collect()));
        }
        let stalled: Vec<u16> = long.iter().map(|it| it.to).collect();
        let over = self.stalled.iter().filter(|port| !stalled.contains(port));
        told.extend(over.map(|&port| Told::Moves(port)));
        let found = circles(&long);
        let fresh = found.iter().filter(|it| !self.circles.contains(it));
        told.extend(fresh.cloned().map(Told::Circle));
        // One that has grown or shrunk is told as another one.
        let is_in = |port: &u16| found.iter().any(|circle| circle.contains(port));
        let over = self.circles.iter().filter(|it| !it.iter().any(is_in));
        told.extend(over.cloned().map(Told::Open));
        (self.stalled, self.circles) = (stalled, found);
        told
    }
}

impl Engine {
    /// All threads of a switch share a board.
    pub fn share(&mut self, board: Arc<Board>) {
        self.alarm.board = board;
    }

    /// What was told and is not over, in the first thread.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    pub(super) fn warn_of_waits(&mut self) {
        let thread = self.mesh().map_or(0, |mesh| mesh.me);
        let Some(all) = self.alarm.board.post(thread, self.waits()) else {
            return;
        };
        for told in self.alarm.look(all, self.now_ns) {
            self.tell(told);
        }
    }

    fn tell(&self, told: Told) {
        let name = |port: &u16| {
            let bay = self.bays.get(usize::from(*port)).and_then(Option::as_ref);
            bay.map_or_else(|| format!("#{port}"), |bay| bay.name.clone())
        };
        let names = |ports: &[u16]| ports.iter().map(name).collect::<Vec<_>>().join(", ");
        match told {
            Told::Stalled(port, senders) => tracing::warn!(
                port = name(&port),
                senders = names(&senders),
                "a port has taken nothing for a second, and others wait for it"
            ),
            Told::Moves(port) => tracing::info!(
                port = name(&port),
                "it takes frames again, or none wait for it"
            ),
            Told::Circle(ports) => tracing::warn!(
                ports = names(&ports),
                "ports wait for each other in a circle, and have taken nothing for a second: \
                 restart one of their guests, or set `stall_limit`"
            ),
            Told::Open(ports) => tracing::info!(ports = names(&ports), "a circle of ports is open"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(to: u16, since_ns: u64, from: &[u16]) -> Waiting {
        let from = from.iter().map(|&port| (port, 1)).collect();
        Waiting {
            to,
            since_ns,
            from,
            is_stalled: false,
        }
    }

    #[test]
    fn a_circle_is_told_once_and_again_when_it_is_open() {
        let mut alarm = Alarm::default();
        let circle = || vec![wait(1, 10, &[2, 4]), wait(2, 20, &[1]), wait(3, 30, &[4])];
        assert_eq!(alarm.look(circle(), LONG_NS), []);
        let told = alarm.look(circle(), LONG_NS + 20);
        let expected = [
            Told::Stalled(1, vec![2, 4]),
            Told::Stalled(2, vec![1]),
            Told::Circle(vec![1, 2]),
        ];
        assert_eq!(told, expected);
        assert_eq!(alarm.look(circle(), LONG_NS + 20), []);
        let told = alarm.look(circle(), LONG_NS + 30);
        assert_eq!(told, [Told::Stalled(3, vec![4])]);
        // Frames of port 4 still wait for the first.
        let left = vec![wait(1, 10, &[4]), wait(3, 30, &[4])];
        let told = alarm.look(left, LONG_NS + 40);
        assert_eq!(told, [Told::Moves(2), Told::Open(vec![1, 2])]);
        let told = alarm.look(Vec::new(), LONG_NS + 50);
        assert_eq!(told, [Told::Moves(1), Told::Moves(3)]);
        assert!(alarm.stalled.is_empty() && alarm.circles.is_empty());
    }

    #[test]
    fn a_receiver_whose_frames_are_dropped_is_told_of_until_it_takes_some() {
        let mut alarm = Alarm::default();
        let told = alarm.look(vec![wait(1, 0, &[2])], LONG_NS);
        assert_eq!(told, [Told::Stalled(1, vec![2])]);
        let dropped = Waiting {
            is_stalled: true,
            ..wait(1, 0, &[])
        };
        assert_eq!(alarm.look(vec![dropped], 6 * LONG_NS), []);
        assert_eq!(alarm.stalled, [1]);
        assert_eq!(alarm.look(Vec::new(), 7 * LONG_NS), [Told::Moves(1)]);
    }

    #[test]
    fn circles_apart_are_two_and_one_that_grows_is_another() {
        let mut alarm = Alarm::default();
        let mut waits = vec![
            wait(1, 0, &[2]),
            wait(2, 0, &[1]),
            wait(3, 0, &[5]),
            wait(4, 0, &[3, 1]),
            wait(5, 0, &[4]),
        ];
        let circles = |told: Vec<Told>| {
            let circle = |it: &Told| matches!(it, Told::Circle(_) | Told::Open(_));
            told.into_iter().filter(circle).collect::<Vec<_>>()
        };
        let told = circles(alarm.look(waits.clone(), LONG_NS));
        let expected = [Told::Circle(vec![1, 2]), Told::Circle(vec![3, 4, 5])];
        assert_eq!(told, expected);
        waits[0].from.push((3, 1));
        let told = circles(alarm.look(waits, LONG_NS));
        assert_eq!(told, [Told::Circle(vec![1, 2, 3, 4, 5])]);
    }

    #[test]
    fn the_first_thread_sees_what_all_have_seen() {
        let board = Board::default();
        assert_eq!(board.post(1, vec![wait(1, 5, &[2])]), None);
        let all = board.post(0, vec![wait(1, 3, &[4]), wait(2, 9, &[1])]);
        let expected = vec![
            Waiting {
                to: 1,
                since_ns: 3,
                from: vec![(4, 1), (2, 1)],
                is_stalled: false,
            },
            wait(2, 9, &[1]),
        ];
        assert_eq!(all, Some(expected));
    }
}
