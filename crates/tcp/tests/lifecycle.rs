//! Opening and closing, with and without losses.

use std::sync::Arc;

use harness::{
    MS, Net, Path, SECOND, US,
    peer::{ISN, Peer},
};
use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{
    Config, Endpoint, Error, Events, Segment, State,
    config::Ecn,
    segment::{ecn, flags, option},
};

use crate::harness;

const ISNS: [[u32; 2]; 2] = [[1, 2], [u32::MAX, u32::MAX - 1]];

fn net(isn: [u32; 2]) -> Net {
    let config = Config::linux(1460);
    let mut net = Net::new(config, config, isn, Path::default(), 1);
    net.keep_trace = true;
    net
}

/// Drops the `nth` segment (from 0) for which `matches` holds.
fn drop_nth(net: &mut Net, nth: usize, matches: fn(usize, &Segment) -> bool) {
    let mut seen = 0;
    net.tamper = Some(Box::new(move |_, from, segment| {
        if matches(from, segment) {
            seen += 1;
            return seen != nth + 1;
        }
        true
    }));
}

#[test]
fn options_are_what_both_want() {
    for (mine, theirs) in [(true, true), (true, false), (false, true)] {
        let mut client = Config::linux(1460);
        let mut server = Config::linux(8960);
        for (config, on) in [(&mut client, mine), (&mut server, theirs)] {
            config.timestamps = on;
            config.sack = on;
            config.window_scaling = on;
            config.ecn = if on { Ecn::Offer } else { Ecn::Off };
        }
        let both = mine && theirs;
        let mut net = Net::new(client, server, [3, 4], Path::default(), 1);
        net.keep_trace = true;
        net.client().to_write = 5000;
        assert!(net.run(SECOND, Net::finished));
        let answer = net.trace.iter().find(|traced| traced.from == 1).unwrap();
        assert_eq!(answer.segment.options & option::TIMESTAMPS != 0, both);
        assert_eq!(answer.segment.options & option::SACK_PERMITTED != 0, both);
        assert_eq!(answer.segment.wscale().is_some(), both);
        assert_eq!(answer.segment.has(flags::ECE), both);
        assert!(!answer.segment.has(flags::CWR));
        assert_eq!(answer.segment.mss(), Some(8960));
        for end in &net.end {
            assert_eq!(end.tcp.mss(), if both { 1448 } else { 1460 });
        }
        let first = net.trace.iter().find(|t| t.segment.payload > 0).unwrap();
        assert_eq!(
            first.segment.ecn,
            if both { ecn::ECT0 } else { ecn::NOT_ECT }
        );
    }
}

#[test]
fn linux_accepts_ecn_and_does_not_offer_it() {
    let accepts = Config::linux(1460);
    let offers = accepts.with(Algorithm::Dctcp);
    for (client, server, ecn_on) in [
        (offers, accepts, true),
        (accepts, offers, false),
        (accepts, accepts, false),
    ] {
        let mut net = Net::new(client, server, [3, 4], Path::default(), 1);
        net.keep_trace = true;
        net.client().to_write = 1000;
        assert!(net.run(SECOND, Net::finished));
        let data = net.trace.iter().find(|t| t.segment.payload > 0).unwrap();
        assert_eq!(data.segment.ecn == ecn::ECT0, ecn_on);
    }
}

#[test]
fn a_lost_syn_is_sent_again_with_backoff() {
    for isn in ISNS {
        let mut net = net(isn);
        net.tamper = Some(Box::new(|now_ns, _, segment| {
            now_ns > 4 * SECOND || !segment.has(flags::SYN)
        }));
        net.client().to_write = 1000;
        assert!(net.run(20 * SECOND, Net::finished));
        let syns: Vec<_> = net
            .trace
            .iter()
            .filter(|traced| traced.from == 0 && traced.segment.has(flags::SYN))
            .map(|traced| traced.at_ns)
            .collect();
        assert_eq!(syns, [0, SECOND, 3 * SECOND, 7 * SECOND]);
        // Karn: a SYN that was repeated gives no RTT sample.
        let srtt_ns = net.end[0].tcp.srtt_ns();
        assert!((100 * US..MS).contains(&srtt_ns), "{srtt_ns}");
        assert_eq!(net.end[1].received, 1000);
    }
}

#[test]
fn a_lost_syn_ack_or_third_segment_delays_only() {
    let kinds: [fn(usize, &Segment) -> bool; 2] = [
        |from, segment| from == 1 && segment.has(flags::SYN),
        |from, segment| from == 0 && !segment.has(flags::SYN),
    ];
    for isn in ISNS {
        for kind in kinds {
            let mut net = net(isn);
            drop_nth(&mut net, 0, kind);
            net.client().to_write = 1000;
            net.server_writes = 1000;
            assert!(net.run(20 * SECOND, Net::finished));
            assert_eq!((net.end[0].received, net.end[1].received), (1000, 1000));
        }
    }
}

/// The times in ms at which the first `count` unanswered segments leave; all have these flags.
fn opening_ms(tcp: &mut Endpoint, flags: u8, count: usize) -> Vec<u64> {
    let mut now_ns = 0;
    let mut next = || {
        let sent_ns = now_ns;
        tcp.timeout(sent_ns);
        assert!(tcp.transmit(sent_ns).unwrap().has(flags));
        now_ns = tcp.deadline_ns();
        sent_ns / MS
    };
    (0..count).map(|_| next()).collect()
}

/// `tcp_syn_backoff` of FreeBSD 9: 1, 1, 1, 1, 1, 2, 4 times the base; all but the first have slop.
#[test]
fn freebsd_9_repeats_syns_four_times_before_it_backs_off() {
    let mut tcp = Endpoint::connect(Arc::new(Config::freebsd9(1460)), 7);
    let sent_ms = opening_ms(&mut tcp, flags::SYN, 8);
    assert_eq!(sent_ms, [0, 10, 40, 70, 100, 130, 170, 230]);
}

/// The fourth SYN and those after it have only an MSS, and what is offered then is not understood.
#[test]
fn freebsd_9_gives_options_up_after_three_syns() {
    let mut config = Config::freebsd9(1460);
    config.sack = true;
    let mut tcp = Endpoint::connect(Arc::new(config), 7);
    let mut offers = Vec::new();
    let mut now_ns = 0;
    for _ in 0..5 {
        tcp.timeout(now_ns);
        let syn = tcp.transmit(now_ns).unwrap();
        assert_eq!(syn.mss(), Some(1460));
        offers.push((
            syn.options & option::TIMESTAMPS != 0,
            syn.wscale().is_some(),
        ));
        now_ns = tcp.deadline_ns();
    }
    let (with, without) = ((true, true), (false, false));
    assert_eq!(offers, [with, with, with, without, without]);
    let mut answer = Segment::new(99, 8, flags::SYN | flags::ACK);
    answer.set_mss(1460);
    answer.set_wscale(7);
    answer.options |= option::TIMESTAMPS | option::SACK_PERMITTED;
    tcp.segment(now_ns, &answer);
    assert_eq!(tcp.state(), State::Established);
    let info = tcp.info();
    assert!(!info.timestamps && !info.wscale && !info.sack);
}

/// Its syncache adds no slop.
#[test]
fn freebsd_9_repeats_syn_acks_without_slop() {
    let config = Arc::new(Config::freebsd9(1460));
    let syn = Endpoint::connect(config.clone(), 7).transmit(0).unwrap();
    let mut tcp = Endpoint::accept(config, 8, &syn, 0);
    let sent_ms = opening_ms(&mut tcp, flags::SYN | flags::ACK, 7);
    assert_eq!(sent_ms, [0, 10, 20, 30, 40, 50, 70]);
}

/// Timestamps tell which SYN is answered: the timeout of data is not backed off.
#[test]
fn a_repeated_syn_is_measured_by_timestamps() {
    for (timestamps, rto_ms) in [(true, 200), (false, 2_000)] {
        let mut config = Config::linux(1460);
        config.timestamps = timestamps;
        let config = Arc::new(config);
        let mut tcp = Endpoint::connect(config.clone(), 7);
        tcp.transmit(0).unwrap();
        tcp.timeout(SECOND);
        let syn = tcp.transmit(SECOND).unwrap();
        let answer = Endpoint::accept(config, 8, &syn, SECOND)
            .transmit(SECOND)
            .unwrap();
        tcp.segment(SECOND + MS, &answer);
        let rto_ns = tcp.rto_ns();
        assert!(
            rto_ns / MS >= rto_ms && rto_ns / MS < rto_ms + 10,
            "{rto_ns}"
        );
    }
}

#[test]
fn a_handshake_that_nobody_answers_times_out() {
    let mut config = Config::linux(1460);
    config.syn_retries = 2;
    let mut tcp = Endpoint::connect(Arc::new(config), 7);
    let mut now_ns = 0;
    for _ in 0..3 {
        assert!(tcp.transmit(now_ns).unwrap().has(flags::SYN));
        assert_eq!(tcp.transmit(now_ns), None);
        now_ns = tcp.deadline_ns();
        if now_ns < 7 * SECOND {
            assert!(tcp.timeout(now_ns).is_empty());
        }
    }
    assert_eq!(tcp.timeout(now_ns), Events::FAILED);
    assert_eq!(tcp.error(), Some(Error::TimedOut));
    assert_eq!((tcp.state(), now_ns), (State::Closed, 7 * SECOND));
}

/// Linux's `tcp_write_timeout` for a SYN: repetitions after timeouts of the same length do not
/// count, but the time is bounded.
#[test]
fn a_handshake_ends_by_count_or_by_time() {
    // Timeouts that are linear, repetitions, and the end.
    for (linear, count, timed, sent, end_s) in [
        (4, 1, true, 3, 3),
        (4, 2, true, 6, 7),
        (4, 6, true, 11, 131),
        (0, 6, true, 7, 127),
        (4, 1, false, 6, 7),
    ] {
        let mut config = Config::linux(1460);
        config.rto.linear_syns = linear;
        (config.syn_retries, config.timed_retries) = (count, timed);
        let mut tcp = Endpoint::connect(Arc::new(config), 7);
        let (mut now_ns, mut syns) = (0, 0);
        while tcp.error().is_none() {
            syns += u32::from(tcp.transmit(now_ns).expect("a SYN").has(flags::SYN));
            now_ns = tcp.deadline_ns();
            tcp.timeout(now_ns);
        }
        assert_eq!((syns, now_ns), (sent, end_s * SECOND), "{linear} {count}");
        assert_eq!(tcp.error(), Some(Error::TimedOut));
    }
}

#[test]
fn an_answer_that_nobody_answers_is_given_up() {
    let config = Arc::new(Config::linux(1460));
    let syn = Endpoint::connect(config.clone(), ISN).transmit(0);
    let mut tcp = Endpoint::accept(config, 7, &syn.expect("a SYN"), 0);
    let (mut now_ns, mut answers) = (0, 0);
    while tcp.error().is_none() {
        tcp.transmit(now_ns).expect("a SYN-ACK");
        answers += 1;
        now_ns = tcp.deadline_ns();
        tcp.timeout(now_ns);
    }
    assert_eq!((answers, now_ns), (6, 63 * SECOND));
}

#[test]
fn an_rst_refuses() {
    let mut tcp = Endpoint::connect(Arc::new(Config::linux(1460)), ISN);
    tcp.transmit(0).unwrap();
    let wrong = Segment::new(0, ISN, flags::RST | flags::ACK);
    assert!(tcp.segment(1, &wrong).is_empty());
    let right = Segment::new(0, ISN.wrapping_add(1), flags::RST | flags::ACK);
    assert_eq!(tcp.segment(1, &right), Events::FAILED);
    assert_eq!(tcp.error(), Some(Error::Refused));
}

#[test]
fn both_may_open_at_once() {
    for isn in ISNS {
        let config = Arc::new(Config::linux(1460));
        let mut ends = isn.map(|isn| Endpoint::connect(config.clone(), isn));
        let syns = [ends[0].transmit(0).unwrap(), ends[1].transmit(0).unwrap()];
        let now = 50 * US;
        assert!(ends[0].segment(now, &syns[1]).is_empty());
        assert!(ends[1].segment(now, &syns[0]).is_empty());
        assert_eq!(ends[0].state(), State::SynReceived);
        let answers = [
            ends[0].transmit(now).unwrap(),
            ends[1].transmit(now).unwrap(),
        ];
        assert!(answers[0].has(flags::SYN | flags::ACK));
        assert_eq!(answers[0].seq, isn[0]);
        let now = 2 * now;
        for who in 0..2 {
            let events = ends[who].segment(now, &answers[1 - who]);
            assert!(events.contains(Events::CONNECTED));
            assert_eq!(ends[who].state(), State::Established);
        }
        // And data flows.
        ends[0].write(3000);
        let mut now = now;
        for _ in 0..10 {
            for who in 0..2 {
                while let Some(segment) = ends[who].transmit(now) {
                    ends[1 - who].segment(now + 1, &segment);
                }
            }
            now += MS;
        }
        assert_eq!(ends[1].readable(), 3000);
        assert_eq!(ends[0].unacknowledged(), 0);
    }
}

/// An established pair without applications of their own.
fn pair(isn: [u32; 2]) -> Net {
    let mut net = net(isn);
    net.client().closes = false;
    net.server_closes = false;
    net.run_until(10 * MS);
    assert!(
        net.end
            .iter()
            .all(|end| end.tcp.state() == State::Established)
    );
    net
}

fn states(net: &Net) -> (State, State) {
    (net.end[0].tcp.state(), net.end[1].tcp.state())
}

#[test]
fn one_after_the_other_closes() {
    for isn in ISNS {
        let mut net = pair(isn);
        net.client().tcp.close();
        net.run_until(60 * MS);
        assert_eq!(states(&net), (State::FinWait2, State::CloseWait));
        assert!(net.end[1].tcp.at_end());
        assert!(!net.end[1].seen.contains(Events::CLOSED));
        // The other direction is still open.
        net.server().to_write = 10_000;
        net.run_until(120 * MS);
        assert_eq!(net.end[0].received, 10_000);
        net.server().tcp.close();
        net.run_until(180 * MS);
        assert_eq!(states(&net), (State::TimeWait, State::Closed));
        for end in &net.end {
            assert!(end.seen.contains(Events::CLOSED));
        }
        net.run_until(70 * SECOND);
        assert_eq!(states(&net), (State::Closed, State::Closed));
    }
}

#[test]
fn both_close_at_once() {
    for isn in ISNS {
        let mut net = pair(isn);
        net.client().tcp.close();
        net.server().tcp.close();
        net.run_until(10 * MS + 60 * US);
        assert_eq!(states(&net), (State::Closing, State::Closing));
        net.run_until(20 * MS);
        assert_eq!(states(&net), (State::TimeWait, State::TimeWait));
    }
}

#[test]
fn a_lost_fin_or_its_ack_is_repaired() {
    let kinds: [fn(usize, &Segment) -> bool; 3] = [
        |from, segment| from == 0 && segment.has(flags::FIN),
        |from, segment| from == 1 && segment.has(flags::FIN),
        // The ACK of the last FIN: TIME_WAIT answers again.
        |from, segment| from == 0 && segment.flags == flags::ACK && segment.payload == 0,
    ];
    for isn in ISNS {
        for (index, kind) in kinds.into_iter().enumerate() {
            let mut net = pair(isn);
            drop_nth(&mut net, 0, kind);
            net.client().tcp.close();
            net.run_until(SECOND);
            net.server().tcp.close();
            net.run_until(10 * SECOND);
            assert_eq!(states(&net), (State::TimeWait, State::Closed), "{index}");
            assert!(net.end.iter().all(|end| end.tcp.error().is_none()));
        }
    }
}

#[test]
fn a_repeated_fin_restarts_time_wait() {
    let mut net = pair(ISNS[1]);
    net.client().tcp.close();
    net.run_until(20 * MS);
    net.server().tcp.close();
    net.run_until(30 * MS);
    assert_eq!(net.end[0].tcp.state(), State::TimeWait);
    let fin = net
        .trace
        .iter()
        .rfind(|traced| traced.from == 1 && traced.segment.has(flags::FIN))
        .unwrap()
        .segment;
    let tcp = &mut net.end[0].tcp;
    assert!(
        tcp.segment(30 * SECOND, &fin).is_empty(),
        "CLOSED comes once"
    );
    assert!(tcp.transmit(30 * SECOND).unwrap().has(flags::ACK));
    assert_eq!(tcp.deadline_ns(), 90 * SECOND);
    tcp.timeout(90 * SECOND);
    assert_eq!(tcp.state(), State::Closed);
}

#[test]
fn close_during_the_handshake_waits_for_its_end() {
    let mut net = net([1, 2]);
    let tcp = &mut net.end[0].tcp;
    assert_eq!(tcp.write(500), 500);
    tcp.close();
    assert_eq!(tcp.write(500), 0);
    assert!(net.run(SECOND, Net::finished));
    assert_eq!(net.end[1].received, 500);
}

#[test]
fn abort_tells_the_peer() {
    let mut net = pair(ISNS[1]);
    net.client().tcp.abort();
    net.run_until(20 * MS);
    assert_eq!(states(&net), (State::Closed, State::Closed));
    assert_eq!(net.end[1].tcp.error(), Some(Error::Reset));
    assert!(net.end[1].seen.contains(Events::FAILED));
    assert_eq!(net.end[0].tcp.error(), None);
}

#[test]
fn an_rst_has_timestamps_and_ends_all() {
    let mut peer = Peer::new(Config::linux(1000), 100 * US);
    peer.tcp.write(988);
    peer.out();
    assert!(!peer.tcp.is_finished());
    peer.pass(5 * MS);
    peer.tcp.abort();
    assert!(!peer.tcp.is_finished(), "the RST has to leave");
    let before = peer.ts_ecr;
    let rst = peer.one();
    assert!(rst.has(flags::RST) && rst.options & option::TIMESTAMPS != 0);
    assert_eq!(rst.ts_val, before.wrapping_add(5));
    assert_eq!(rst.ts_ecr, peer.ts_val);
    assert!(peer.tcp.is_finished());
}

#[test]
fn time_wait_is_not_the_end() {
    let mut net = pair(ISNS[0]);
    net.client().tcp.close();
    net.run_until(60 * MS);
    net.server().tcp.close();
    net.run_until(120 * MS);
    assert_eq!(states(&net), (State::TimeWait, State::Closed));
    assert!(!net.end[0].tcp.is_finished() && net.end[1].tcp.is_finished());
    net.run_until(100 * SECOND);
    assert!(net.end[0].tcp.is_finished());
}

#[test]
fn fin_before_the_last_data_waits_for_it() {
    let mut config = Config::linux(1000);
    config.timestamps = false;
    let mut peer = Peer::new(config, 100 * US);
    let mut last = peer.data(1000, 1000, 0);
    last.flags |= flags::FIN;
    assert!(peer.give(&last).is_empty());
    peer.out();
    assert_eq!(peer.tcp.state(), State::Established);
    assert!(peer.give(&peer.data(0, 1000, 0)).contains(Events::READABLE));
    assert_eq!(peer.tcp.state(), State::CloseWait);
    assert_eq!(peer.tcp.readable(), 2000);
    assert!(!peer.tcp.at_end());
    assert_eq!(peer.tcp.read(5000), 2000);
    assert!(peer.tcp.at_end());
    let ack = peer.one();
    assert_eq!(harness::peer::received(ack.ack), 2001);
}
