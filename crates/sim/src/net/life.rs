//! The ends of connections, and the release of their memory.
//!
//! A stack in CLOSED answers nothing, so it is freed at once. A stack in TIME_WAIT answers
//! retransmissions of its peer. When the peer has ended, too, and none of its packets can be under
//! way, the stack is freed, long before its minute in TIME_WAIT ends. A tombstone of the end
//! remains, so that no packet reaches another connection with the same number.

use sluicegate_tcp::{Endpoint, endpoint::State};

use super::{ConnectionEnd, EndId, Net, OVER, PacketFabric, source};
use crate::packet::{Addressing, NO_END};

/// A bound on the time that a packet is under way, pauses included.
const PACKET_LIFE_PS: u64 = 200_000_000_000;

/// The stage of an end in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// An application uses it, or will use it.
    Used,
    /// Its application has released it; its stack closes the connection.
    Released,
    /// Its stack has been freed.
    Over,
}

impl ConnectionEnd {
    /// Whether a SYN may make a stack for an end without one.
    pub(super) fn may_listen(&self) -> bool {
        self.life != Life::Over
    }
}

impl<F: PacketFabric> Net<F> {
    /// An application closes a connection and will not use it again.
    pub fn release(&mut self, end: EndId) {
        if !self.sockets.keeps_all {
            self.sockets.ends[end as usize].life = Life::Released;
        }
        self.close(end);
    }

    /// Frees the stack of a released end if it is in CLOSED for good, and informs the part of its
    /// peer.
    #[cold]
    pub(super) fn end_if_finished(&mut self, end: EndId) {
        let state = &mut self.sockets.ends[end as usize];
        if !state.tcp.as_ref().is_some_and(|tcp| tcp.is_finished()) {
            return;
        }
        state.tcp = None;
        state.life = Life::Over;
        let Addressing {
            peer, peer_host, ..
        } = state.addressing;
        self.clock
            .wheel
            .push(self.clock.now_ps + PACKET_LIFE_PS, source(OVER, end));
        if peer == NO_END {
            return;
        }
        let there = self.layout.part_of_host(peer_host);
        let now_ps = self.clock.now_ps;
        match self.post.exports_to(there) {
            None => self.peer_is_over(peer, now_ps),
            Some(exports) => exports.over.push((peer, now_ps)),
        }
    }

    /// The peer of an end has sent nothing since `since_ps`.
    pub(super) fn peer_is_over(&mut self, end: EndId, since_ps: u64) {
        if self.sockets.ends[end as usize].life != Life::Over {
            let at_ps = since_ps + PACKET_LIFE_PS;
            self.clock.wheel.push(at_ps, source(OVER, end));
        }
    }

    /// Frees the state of an end. No packet can be under way to it: the end or its peer ended
    /// [`PACKET_LIFE_PS`] ago.
    pub(super) fn forget(&mut self, end: EndId) {
        let state = &mut self.sockets.ends[end as usize];
        let in_time_wait = |tcp: &Endpoint| tcp.state() == State::TimeWait;
        if state.life == Life::Released && state.tcp.as_deref().is_some_and(in_time_wait) {
            state.tcp = None;
            state.life = Life::Over;
        }
        if state.life != Life::Over {
            return;
        }
        if let Some(vnics) = &mut self.hosts[state.host.index()].switch.vnics {
            vnics.forget(end);
        }
        let addressing = &state.addressing;
        let ends = (
            addressing.tenant,
            addressing.port,
            addressing.peer_tenant,
            addressing.peer_port,
        );
        // A later connection may have the same ports.
        if self.sockets.accepted.get(&ends) == Some(&end) {
            self.sockets.accepted.remove(&ends);
        }
        self.sockets.message_headers.forget(end);
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Instant};

    use sluicegate_scenario::file::{self, Options};

    use crate::{build, net::Plain};

    /// A query each millisecond, on connections of its own, between and within the racks of a tree.
    const TREE: &str = "warmup = '0s'\nduration = '1s'\n[network]\ntopology = 'fat-tree'\n\
        children = [2, 2]\nparents = [1, 1]\nexternal = 1\nrate = '1Gbit'\n[sim]\nlink_delay = '2us'\n\
        [traffic.q]\nkind = 'queries'\nfrom = ['x1']\nrequest = '1KB'\nbytes = '1KB'\n\
        queries = 1000\narrivals = { kind = 'fixed', interval = '1ms' }\nconnections = 'per-message'\n";

    /// (ends made, ends with a stack, accepted connections that are remembered) after a second with
    /// this number of threads.
    fn after_a_second(threads: usize, keeps_all: bool) -> [usize; 3] {
        let experiment = file::parse(Path::new("t.toml"), TREE, &Options::default());
        let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
        let mut engine = build::engine::<Plain>(&experiment.variants[0], 1, threads).unwrap();
        engine
            .nets()
            .for_each(|net| net.sockets.keeps_all = keeps_all);
        engine.begin();
        engine
            .run_until(1_000_000_000_000, &mut |_, _| Ok(()))
            .unwrap();
        engine.account().unwrap();
        let mut sums = [0; 3];
        for net in engine.nets() {
            let with_stack = net
                .sockets
                .ends
                .iter()
                .filter(|end| end.tcp.is_some())
                .count();
            for (sum, count) in sums.iter_mut().zip([
                net.sockets.ends.len(),
                with_stack,
                net.sockets.accepted.len(),
            ]) {
                *sum += count;
            }
        }
        sums
    }

    #[test]
    fn finished_connections_are_freed_alike_in_one_part_and_in_two() {
        let [made, with_stack, accepted] = after_a_second(1, false);
        assert!(made >= 2 * 4 * 990, "{made} ends");
        // One end of each connection of the last 200 ms is in TIME_WAIT, and a few are in use.
        assert!((700..900).contains(&with_stack), "{with_stack} stacks");
        assert!((700..900).contains(&accepted), "{accepted} accepted");
        assert_eq!(after_a_second(2, false), [made, with_stack, accepted]);
        let [kept, all, _] = after_a_second(1, true);
        assert_eq!([kept, all], [made; 2], "somebody looks at them");
    }

    /// The entries and the allocated bytes of the vNIC stages of both hosts, and the packets that
    /// passed them, after `count` connections, one each millisecond.
    fn enforced_connections(count: u32) -> ([usize; 3], usize, u64) {
        let text = format!(
            "warmup = '0s'\nduration = '{count}ms'\n\
             [network]\ntopology = 'dumbbell'\npairs = 1\nrate = '10Gbit'\n[sim]\nlink_delay = '2us'\n\
             [traffic.q]\nkind = 'queries'\nfrom = ['s1']\nto = ['r1']\nrequest = '1KB'\nbytes = '1KB'\n\
             queries = {count}\narrivals = {{ kind = 'fixed', interval = '1ms' }}\n\
             connections = 'per-message'\n[variant.enforced]\nenforcement = {{ hosts = 'all', \
             policy = {{ rule = [{{ algorithm = 'dctcp', mode = 'enforce' }}] }} }}\n"
        );
        let experiment = file::parse(Path::new("t.toml"), &text, &Options::default());
        let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
        let mut engine = build::engine::<Plain>(&experiment.variants[0], 1, 1).unwrap();
        engine.nets().for_each(|net| net.sockets.keeps_all = false);
        engine.begin();
        let until_ps = u64::from(count) * 1_000_000_000;
        engine.run_until(until_ps, &mut |_, _| Ok(())).unwrap();
        engine.account().unwrap();
        let (mut entries, mut bytes, mut packets) = ([0; 3], 0, 0);
        for net in engine.nets() {
            assert!(
                net.sockets.ends.len() as u32 > 2 * count - 10,
                "{}",
                net.sockets.ends.len()
            );
            for vnics in net
                .hosts
                .iter()
                .filter_map(|host| host.switch.vnics.as_ref())
            {
                let here = entries.iter_mut().zip(vnics.entries());
                here.for_each(|(sum, count)| *sum += count);
                bytes += vnics.bytes();
                packets += vnics.counters().0[1];
            }
        }
        (entries, bytes, packets)
    }

    #[test]
    fn a_million_enforced_connections_need_no_more_than_a_thousand() {
        let timed = |count| {
            let begin = Instant::now();
            let (entries, bytes, packets) = enforced_connections(count);
            let packet_ns = begin.elapsed().as_nanos() as f64 / packets as f64;
            println!("{count}: {entries:?} entries, {bytes} bytes, {packet_ns:.0} ns a packet");
            (entries, bytes)
        };
        let (few, small) = timed(1_000);
        let (many, large) = timed(1_000_000);
        // The connections that ended in the last 200 ms, at both hosts.
        assert!((300..900).contains(&few[0]), "{few:?}");
        assert!(
            many[0] <= few[0] + 10 && many[1] <= few[1] + 10,
            "{few:?}, {many:?}"
        );
        assert_eq!((many[2], large), (0, small));
    }
}
