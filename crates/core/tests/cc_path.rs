//! DCTCP by the marks of all flows of a host to one peer (`c/sluice/path.h`).

use common::{Flow, MSS, params};
use sluicegate_core::{
    abi::{Addr, FlowKey, HashKey},
    cc::{Ack, Algorithm},
    path::{Path, Paths},
};

use crate::common;

const RTT_NS: u32 = 800_000;

/// A flow whose segments are marked whenever the sum of windows is above a limit, and besides for
/// `phase` of every thousand segments.
struct Sender {
    flow: Flow,
    phase: u32,
    segments: u32,
}

impl Sender {
    fn new(phase: u32, segments: u32) -> Self {
        let flow = Flow::steady(Algorithm::Dctcp, params(), segments);
        Self {
            flow,
            phase,
            segments: 0,
        }
    }

    /// The next segment is acknowledged; `path` as in a host's table, if it has one.
    fn acked(&mut self, marked: bool, path: Option<&mut Path>) {
        let mut ack = self.flow.ack(RTT_NS);
        ack.marked = u32::from(marked) * ack.acked;
        if let Some(path) = path {
            join(&mut ack, path);
        }
        let (params, algorithm) = (self.flow.params, self.flow.algorithm);
        self.flow.cc.on_ack(&params, algorithm, &ack);
    }

    /// Whether its phase has the next segment marked: in clumps, as a queue marks.
    fn phase_marks(&mut self) -> bool {
        self.segments += 1;
        self.segments * 7 % 1000 < self.phase
    }
}

/// As `sg_path_acked()`.
fn join(ack: &mut Ack, path: &mut Path) {
    path.acked = path.acked.wrapping_add(ack.acked);
    path.marked = path.marked.wrapping_add(ack.marked);
    (ack.on_path, ack.path_acked, ack.path_marked) = (1, path.acked, path.marked);
}

/// Mean windows in segments of two flows that share a limit of 40 segments, the second of which
/// meets the longer queue: it is marked for a part of what the first one passes.
fn mean_windows(shared: bool, phases: [u32; 2]) -> [f64; 2] {
    let mut senders = phases.map(|phase| Sender::new(phase, 10));
    let (mut path, mut sums, mut rounds) = (Path::default(), [0.0; 2], 0.0);
    for round in 0..3000 {
        let above = senders.iter().map(|it| it.flow.segments()).sum::<f64>() > 40.0;
        let windows = senders.each_ref().map(|it| it.flow.segments() as u32);
        for place in 0..windows[0].max(windows[1]) {
            for (sender, window) in senders.iter_mut().zip(windows) {
                if place < window {
                    let marked = sender.phase_marks() || (above && place == 0);
                    sender.acked(marked, shared.then_some(&mut path));
                }
            }
        }
        if round >= 1000 {
            rounds += 1.0;
            for (sum, sender) in sums.iter_mut().zip(&senders) {
                *sum += sender.flow.segments();
            }
        }
    }
    sums.map(|sum| sum / rounds)
}

#[test]
fn flows_to_one_peer_have_equal_windows_whatever_phase_of_the_queue_each_meets() {
    for phases in [[120, 250], [200, 350], [300, 420]] {
        let [high, low] = mean_windows(false, phases);
        assert!(high > 1.3 * low, "alone: {high:.1}, {low:.1} segments");
        let [high, low] = mean_windows(true, phases);
        assert!(
            (high / low - 1.0).abs() < 0.1,
            "{phases:?}: {high:.1}, {low:.1} segments"
        );
    }
}

#[test]
fn alone_on_its_path_a_flow_is_dctcp() {
    let mut senders = [(), ()].map(|()| Sender::new(150, 10));
    let mut path = Path {
        acked: u32::MAX - 100_000,
        marked: u32::MAX - 10_000,
    };
    for segment in 0..20_000 {
        let marked = senders[0].phase_marks();
        senders[0].acked(marked, None);
        senders[1].acked(marked, Some(&mut path));
        let [alone, on_path] = senders.each_ref().map(|it| it.flow.cc.cwnd);
        assert_eq!(alone, on_path, "segment {segment}");
    }
}

/// Another flow to the peer is marked for every byte, by whatever means.
#[test]
fn a_flow_that_meets_no_marks_loses_nothing_to_its_path() {
    let mut senders = [(), ()].map(|()| Sender::new(0, 10));
    let mut path = Path::default();
    // Until alpha, which begins at 1, has forgotten that.
    for _ in 0..20_000 {
        senders.iter_mut().for_each(|it| it.acked(false, None));
    }
    for segment in 0..20_000 {
        path.acked = path.acked.wrapping_add(10 * MSS);
        path.marked = path.marked.wrapping_add(10 * MSS);
        senders[0].acked(false, None);
        senders[1].acked(false, Some(&mut path));
        let [alone, on_path] = senders.each_ref().map(|it| it.flow.cc.cwnd);
        assert_eq!(alone, on_path, "segment {segment}");
    }
}

/// Its neighbours' path is another one, or it sends more than its queue carries.
#[test]
fn a_flow_that_is_marked_far_more_than_its_path_finds_no_excuse_there() {
    let mut sender = Sender::new(0, 100);
    let mut path = Path::default();
    for _ in 0..20_000 {
        path.acked = path.acked.wrapping_add(100 * MSS);
        sender.acked(true, Some(&mut path));
    }
    assert_eq!(sender.flow.cc.cwnd, 2 * MSS, "the floor");
}

/// The table is gone and begins anew, under a flow that goes on.
#[test]
fn sums_of_another_table_cost_no_cut() {
    let mut sender = Sender::new(0, 10);
    let mut path = Path {
        acked: 400_000_000,
        marked: 90_000_000,
    };
    for _ in 0..20_000 {
        sender.acked(false, Some(&mut path));
    }
    let before = sender.flow.cc.cwnd;
    path = Path::default();
    sender.acked(false, Some(&mut path));
    assert!(sender.flow.cc.cwnd >= before);
}

fn flow_to(host: u32) -> FlowKey {
    FlowKey {
        remote: Addr {
            word: [0, 0, 0xffff_0000, host.to_be()],
        },
        ..FlowKey::default()
    }
}

#[test]
fn a_path_is_that_of_the_peers_address_whoever_sends() {
    let paths = Paths::new(HashKey::FIXED);
    let flow = flow_to(0x0a00_0001);
    let others = FlowKey {
        local: flow_to(0x0a00_0007).remote,
        local_port: 7,
        remote_port: 8,
        ifindex: 9,
        ..flow
    };
    assert_eq!(paths.place(&flow), paths.place(&others));
    let tagged = FlowKey {
        vlan: 0x1007,
        ..flow
    };
    assert_ne!(paths.place(&flow), paths.place(&tagged));
    let places: std::collections::BTreeSet<u16> = (0..64)
        .map(|host| paths.place(&flow_to(0x0a00_0000 + host)))
        .collect();
    assert!(places.len() >= 62, "{} places", places.len());
}
