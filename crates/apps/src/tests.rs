//! Each role against its peer, in a world in memory.

use sluicegate_program::goal;
use sluicegate_scenario::workload::plan::{
    Bursts, CompletionReport, Connections, NEVER_US, Partner, Phase, Query, QuerySizes, RankReport,
    Report, Role, Schedule, Transfer,
};

use crate::fake::{DELAY_NS, Run, SECOND_NS, SPAN, at};

const PORT: u16 = 5000;
const ROUND_TRIP_US: f64 = 2.0 * DELAY_NS as f64 / 1e3;

fn source(rate_bps: Option<u64>) -> Role {
    Role::Source {
        flow: 3,
        peer: at(1, PORT),
        rate_bps,
        span: SPAN,
    }
}

fn sink() -> Role {
    Role::Sink {
        flow: 3,
        port: PORT,
    }
}

fn completions<'r>(report: &'r Report, class: &str) -> Vec<&'r CompletionReport> {
    let of_class = |completions: &&CompletionReport| completions.class == class;
    report.completions.iter().filter(of_class).collect()
}

fn samples(report: &Report, class: &str) -> Vec<f64> {
    let completions = completions(report, class).into_iter();
    completions
        .flat_map(|part| part.samples_us.clone())
        .collect()
}

fn open(report: &Report, class: &str) -> Vec<f64> {
    let completions = completions(report, class).into_iter();
    completions.flat_map(|part| part.open_us.clone()).collect()
}

#[test]
fn bulk_keeps_its_connection_full_until_its_span_ends() {
    let mut run = Run::new(&[source(None), sink()]);
    run.until(2 * SECOND_NS);
    let report = run.finish();
    let (sent, received) = (&report.senders[0], &report.receivers[0]);
    // A buffer every round trip of 2 ms.
    assert!(
        (4_900_000..5_000_000).contains(&received.total_bytes),
        "{received:?}"
    );
    assert!(
        (3_900_000..4_100_000).contains(&received.measured_bytes),
        "{received:?}"
    );
    assert_eq!((sent.flow, received.flow), (3, 3));
    // It watches from its connection on, and counts from the begin of measured time.
    assert_eq!((sent.cwnd.len() as u64, sent.timeouts), (200, Some(1_900)));
    assert_eq!(sent.cwnd.iter().filter(|(at_s, _)| *at_s == 0.1).count(), 1);
    assert!(run.world.notes.is_empty(), "{:?}", run.world.notes);
}

#[test]
fn bulk_with_a_rate_writes_what_is_due() {
    let mut run = Run::new(&[source(Some(8_000_000)), sink()]);
    run.until(2 * SECOND_NS);
    let total_bytes = run.finish().receivers[0].total_bytes;
    assert!((995_000..1_000_000).contains(&total_bytes), "{total_bytes}");
}

#[test]
fn a_peer_that_closes_what_should_last_is_noted_once() {
    let ping = Role::PingClient {
        flow: 3,
        peer: at(1, PORT),
        bytes: 64,
        interval_ns: 0,
        span: SPAN,
    };
    let messages = message_source(SPEAKS_EVERY_10_MS, Connections::One);
    for (role, peer) in [(source(None), sink()), (ping, echo()), (messages, echo())] {
        let mut run = Run::new(&[role, peer]);
        run.until(SECOND_NS / 2);
        run.hang_up(0);
        run.until(SECOND_NS / 2 + 1);
        let expected = ["flow 3: the peer closed the connection"];
        assert_eq!(run.world.notes, expected);
    }
}

#[test]
fn phases_are_offered_whatever_the_network_takes_and_then_it_closes() {
    let phases = vec![
        Phase {
            until_ns: SECOND_NS / 10,
            rate_bps: 800_000,
        },
        // More than the connection carries.
        Phase {
            until_ns: SECOND_NS / 5,
            rate_bps: 80_000_000,
        },
    ];
    let role = |class: Option<&str>, begin_ns| Role::PhasedSource {
        flow: 3,
        peer: at(1, PORT),
        phases: phases.clone(),
        class: class.map(str::to_owned),
        span: sluicegate_scenario::workload::plan::Span { begin_ns, ..SPAN },
    };
    let mut run = Run::new(&[role(None, 0), sink()]);
    run.until(SECOND_NS);
    let report = run.finish();
    assert_eq!(report.receivers[0].total_bytes, 10_000 + 1_000_000);
    let first = report.receivers[0].series[0].1;
    assert!(
        (8_000..=10_000).contains(&first),
        "{first} in the first phase"
    );
    assert!(report.completions.is_empty());

    let begin_ns = SECOND_NS / 10;
    let mut run = Run::new(&[role(Some("all"), begin_ns), message_sink(&["all"])]);
    run.until(SECOND_NS);
    let all = samples(&run.finish(), "all");
    assert_eq!(all.len(), 1);
    // 5 MB/s: a buffer a round trip.
    assert!((190_000.0..230_000.0).contains(&all[0]), "{all:?}");

    let mut run = Run::new(&[role(Some("all"), begin_ns), message_sink(&["all"])]);
    run.until(SECOND_NS / 4);
    run.break_all(0);
    assert_eq!(open(&run.finish(), "all"), [NEVER_US]);
}

fn datagrams(bursts: Bursts, socket_buffer_bytes: u64) -> Report {
    let source = Role::DatagramSource {
        flow: 3,
        peer: at(1, PORT),
        bytes: 1_000,
        bursts,
        socket_buffer_bytes,
        span: SPAN,
    };
    let sink = Role::DatagramSink {
        flow: 3,
        port: PORT,
    };
    let mut run = Run::new(&[source, sink]);
    run.until(2 * SECOND_NS);
    run.finish()
}

#[test]
fn datagrams_are_counted_by_when_they_are_sent() {
    let bursts = Bursts::Rate {
        rate_bps: 8_000_000,
        phase_ns: 0,
    };
    let report = datagrams(bursts, 1_000);
    let (sent, received) = (&report.datagrams_sent[0], &report.datagrams_received[0]);
    // One a millisecond: 100 before measured time.
    assert_eq!(sent.before, (100, 100_000));
    assert_eq!(sent.sent, (900, 900_000));
    assert_eq!(sent.socket_drops, (0, 0));
    assert_eq!(received.received, (800, 800_000), "sent in measured time");
    assert_eq!(received.latest, Some((900, 900_000)));
    assert_eq!(report.receivers[0].total_bytes, 1_000_000);
}

#[test]
fn bursts_that_do_not_fit_into_a_socket_are_its_drops() {
    let bursts = Bursts::Listed {
        bursts: vec![(0, 9_999), (SECOND_NS / 2, 2_500), (SECOND_NS / 2, 4_500)],
    };
    let report = datagrams(bursts, 3_000);
    assert_eq!(report.datagrams_sent[0].before, (3, 3_000));
    assert_eq!(report.datagrams_sent[0].sent, (6, 5_500));
    assert_eq!(report.datagrams_sent[0].socket_drops, (2, 1_500));
    assert_eq!(report.datagrams_received[0].received, (6, 5_500));
}

fn echo() -> Role {
    Role::Echo {
        flow: 3,
        port: PORT,
        bytes: 64,
    }
}

#[test]
fn a_ping_takes_a_round_trip() {
    let client = |bytes, interval_ns| Role::PingClient {
        flow: 3,
        peer: at(1, PORT),
        bytes,
        interval_ns,
        span: SPAN,
    };
    let mut run = Run::new(&[client(64, 3_000_000), echo()]);
    run.until(SECOND_NS);
    let rtt = run.finish().rtts.remove(0);
    assert_eq!(rtt.samples_us.len(), 160, "an exchange every 5 ms");
    assert!(rtt.samples_us.iter().all(|us| *us == ROUND_TRIP_US));
    assert_eq!(rtt.outstanding_us, None);

    // Larger than what a connection holds: it takes several, in both directions.
    let large = Role::Echo {
        flow: 3,
        port: PORT,
        bytes: 25_000,
    };
    let mut run = Run::new(&[client(25_000, 0), large]);
    run.until(SECOND_NS / 2);
    let rtt = run.finish().rtts.remove(0);
    let longest_us = rtt.samples_us.iter().copied().fold(0.0, f64::max);
    assert!(longest_us > 3.0 * ROUND_TRIP_US, "{rtt:?}");
    assert!(rtt.outstanding_us.is_some());
}

fn incast() -> Run {
    let requester = Role::IncastRequester {
        responders: vec![(3, PORT), (4, PORT + 1)],
        bytes: 25_000,
        interval_ns: 0,
        span: SPAN,
    };
    let responder = |flow, port| Role::IncastResponder {
        flow,
        peer: at(0, port),
        bytes: 25_000,
        span: SPAN,
    };
    Run::new(&[requester, responder(3, PORT), responder(4, PORT + 1)])
}

#[test]
fn an_incast_asks_again_when_all_have_answered() {
    let mut run = incast();
    run.until(SECOND_NS);
    let report = run.finish();
    let (rounds, answers) = (samples(&report, "round"), samples(&report, "answer"));
    // Three buffers, one a round trip.
    assert!(
        rounds.iter().all(|us| *us == 3.0 * ROUND_TRIP_US),
        "{rounds:?}"
    );
    assert!((132..=134).contains(&rounds.len()), "{}", rounds.len());
    assert_eq!(answers.len(), 2 * rounds.len());
    assert_eq!(report.senders.len(), 2);
    let received: Vec<u32> = report.receivers.iter().map(|flow| flow.flow).collect();
    assert_eq!(received, [3, 4]);
    assert!(run.world.notes.is_empty(), "{:?}", run.world.notes);
}

#[test]
fn what_an_incast_waits_for_at_its_end_is_open() {
    let mut run = incast();
    run.until(SECOND_NS / 2);
    run.break_all(0);
    run.until(SECOND_NS);
    let report = run.finish();
    assert_eq!(open(&report, "round"), [NEVER_US]);
    assert_eq!(open(&report, "answer"), [NEVER_US; 2]);

    let alone = Role::IncastRequester {
        responders: vec![(3, PORT)],
        bytes: 1,
        interval_ns: 0,
        span: SPAN,
    };
    let mut run = Run::new(&[alone]);
    run.until(SECOND_NS);
    run.finish();
    assert_eq!(run.world.notes.len(), 1, "{:?}", run.world.notes);
}

const SPEAKS_EVERY_10_MS: Schedule = Schedule::Periodic {
    bytes: 1_000,
    interval_ns: 10_000_000,
    phase_ns: 5_000_000,
};

fn message_source(schedule: Schedule, connections: Connections) -> Role {
    Role::MessageSource {
        peers: vec![(3, at(1, PORT))],
        schedule,
        connections,
        classes: vec!["mice".to_owned()],
        span: SPAN,
    }
}

fn message_sink(classes: &[&str]) -> Role {
    Role::MessageSink {
        flow: 3,
        port: PORT,
        classes: classes.iter().map(|class| (*class).to_owned()).collect(),
    }
}

#[test]
fn messages_on_one_connection_take_its_delay() {
    let source = message_source(SPEAKS_EVERY_10_MS, Connections::One);
    let mut run = Run::new(&[source, message_sink(&["mice"])]);
    run.until(SECOND_NS);
    let mice = samples(&run.finish(), "mice");
    assert_eq!(
        mice,
        vec![DELAY_NS as f64 / 1e3; 80],
        "80 are due in measured time"
    );
}

#[test]
fn a_message_of_its_own_connection_waits_for_the_handshake() {
    let schedule = Schedule::Closed {
        transfers: vec![Transfer {
            peer: 0,
            bytes: 10,
            class: 0,
        }],
        parallel: 1,
    };
    let source = message_source(schedule, Connections::PerMessage);
    let mut run = Run::new(&[source, message_sink(&["mice"])]);
    run.until(SECOND_NS);
    let report = run.finish();
    let mice = samples(&report, "mice");
    assert!(
        mice.iter().all(|us| *us == 3.0 * DELAY_NS as f64 / 1e3),
        "{mice:?}"
    );
    assert_eq!(
        mice.len(),
        200,
        "the next begins when one is acknowledged, 4 ms later"
    );
    assert_eq!(
        report.receivers[0].total_bytes,
        250 * 32,
        "the shortest has 32 bytes"
    );
    assert!(run.world.notes.is_empty(), "{:?}", run.world.notes);
}

#[test]
fn messages_that_are_not_acknowledged_are_open() {
    let source = message_source(SPEAKS_EVERY_10_MS, Connections::Pool);
    let mut run = Run::new(&[source, message_sink(&["mice"])]);
    run.until(SECOND_NS / 2);
    run.break_all(0);
    run.until(SECOND_NS / 2 + 10_000_000);
    // An idle connection took it, and that is broken.
    assert_eq!(open(&run.finish(), "mice"), [NEVER_US]);
}

fn queries(connections: Connections) -> Run {
    let sizes = QuerySizes {
        request_bytes: 100,
        answer_bytes: 12_000,
    };
    let query = |at_ns| Query {
        at_ns,
        servers: vec![0],
    };
    let aggregator = Role::Aggregator {
        flow: 3,
        servers: vec![at(1, PORT), at(2, PORT), at(3, PORT)],
        queries: (20..25)
            .map(|number| query(number * SECOND_NS / 50))
            .collect(),
        sizes,
        connections,
    };
    let server = |own: u8| Role::QueryServer {
        flow: 3 + u32::from(own),
        port: PORT,
        others: (1..4)
            .filter(|other| *other != own)
            .map(|other| at(other, PORT))
            .collect(),
        sizes,
        connections,
    };
    Run::new(&[aggregator, server(1), server(2), server(3)])
}

#[test]
fn a_query_waits_for_those_that_its_server_asks() {
    for connections in [Connections::PerMessage, Connections::Pool, Connections::One] {
        let mut run = queries(connections);
        run.until(SECOND_NS / 10 * 4 + 1);
        assert!(!run.is_complete());
        run.until(SECOND_NS);
        assert!(run.is_complete(), "{connections:?}");
        let report = run.finish();
        let (queries, answers) = (samples(&report, "query"), samples(&report, "answer"));
        assert_eq!((queries.len(), answers.len()), (5, 2 * 5));
        // A request, and an answer of two buffers, at each of two levels; and at first two
        // handshakes.
        let [first, last] = [queries[0], queries[4]].map(|us| us * 1e3 / DELAY_NS as f64);
        let handshakes = if connections == Connections::PerMessage {
            4.0
        } else {
            0.0
        };
        assert_eq!((first, last), (12.0, 8.0 + handshakes), "{connections:?}");
        assert!(run.world.notes.is_empty(), "{:?}", run.world.notes);
    }
}

#[test]
fn queries_on_broken_connections_never_end() {
    let mut run = queries(Connections::One);
    run.until(SECOND_NS / 10 * 4 + 9 * DELAY_NS);
    run.break_all(0);
    run.until(SECOND_NS);
    let report = run.finish();
    assert_eq!(open(&report, "query"), [NEVER_US; 5]);
    assert!(!run.is_complete());
}

#[test]
fn a_blast_goes_round_its_span_from_the_oldest_that_is_not_acknowledged() {
    let blaster = Role::Blaster {
        flow: 3,
        peer: at(1, PORT),
        // Two segments of 100 bytes a tick.
        rate_bps: 1_600_000,
        span_bytes: 300,
        span: SPAN,
    };
    let mut run = Run::new(&[blaster, sink()]);
    // Connected after two delays.
    run.until(2 * DELAY_NS + 2_000_001);
    assert_eq!(run.world.forged, [1_000, 1_100, 1_200, 1_000]);
    run.world.acks = [900, 1_200].into();
    run.until(2 * DELAY_NS + 3_000_001);
    assert_eq!(run.world.forged[4..], [1_200, 1_300]);
    // Bytes that there is no room for are not made up for.
    run.world.room_for_forged = 7;
    run.until(2 * DELAY_NS + 4_000_001);
    run.world.room_for_forged = 100;
    run.until(2 * DELAY_NS + 5_000_001);
    assert_eq!(run.world.forged.len(), 7 + 2);
    let report = run.finish();
    assert_eq!(
        (report.senders[0].flow, report.senders[0].local_port),
        (3, 7)
    );
}

/// The ranks of a program, each of which knows all others, and what they have seen by `until_ns`.
fn ranks(text: &str, eager_bytes: u64, until_ns: u64) -> (Vec<RankReport>, Run) {
    let program = goal::read(text.as_bytes()).unwrap();
    let count = program.ranks.len() as u32;
    let role = |rank: u32| Role::Rank {
        traffic: 0,
        rank,
        port: PORT,
        partners: (0..count)
            .filter(|other| *other != rank)
            .map(|other| Partner {
                rank: other,
                flow: other,
                address: at(other as u8, PORT),
            })
            .collect(),
        datagram_bytes: None,
        eager_bytes,
        operations: program.ranks[rank as usize].clone(),
        checks_sizes: program.has_wildcards(),
        span: SPAN,
        begins_together: false,
    };
    let roles: Vec<Role> = (0..count).map(role).collect();
    let mut run = Run::new(&roles);
    run.until(until_ns);
    (run.finish().ranks, run)
}

const DELAY_US: u64 = DELAY_NS / 1_000;

/// (begin, end) of an operation in us after the begin of its rank.
fn span_us(reports: &[RankReport], rank: usize, operation: usize) -> (u64, u64) {
    let report = &reports[rank];
    let begin_ns = report.begin_ns.unwrap();
    let times = report.times[operation];
    let us = |ns: u64| ns.saturating_sub(begin_ns) / 1_000;
    (us(times.begin_ns), us(times.end_ns))
}

#[test]
fn a_rank_keeps_to_its_dependencies() {
    let text = "num_ranks 2\n\
        rank 0 {\na: calc 5000\nb: calc 7000\nc: calc 2000 cpu 1\nd: send 8b to 1\nd requires a\ne: calc 1000 cpu 2\ne irequires b\n}\n\
        rank 1 {\na: recv 8b from 0\nb: calc 3000\nb requires a\n}\n";
    let (reports, run) = ranks(text, 1_000, SECOND_NS / 2);
    assert!(run.is_complete());
    // One after the other on a CPU, beside each other on two.
    assert_eq!(span_us(&reports, 0, 0), (0, 5));
    assert_eq!(span_us(&reports, 0, 1), (5, 12));
    assert_eq!(span_us(&reports, 0, 2), (0, 2));
    assert_eq!(span_us(&reports, 0, 3), (5, 5));
    assert_eq!(span_us(&reports, 0, 4), (5, 6));
    let (_, received) = span_us(&reports, 1, 0);
    assert_eq!(span_us(&reports, 1, 1), (received, received + 3));
    assert_eq!(reports[1].times[0].partner, Some((0, 3)));
}

#[test]
fn a_long_message_waits_for_its_receive() {
    let text = |receive: &str| {
        format!(
            "num_ranks 2\nrank 0 {{\na: send 5000b to 1\n}}\nrank 1 {{\nw: calc 20000000\n{receive}\n}}\n"
        )
    };
    let late = text("a: recv 5000b from 0\na requires w");
    // Eager: the socket takes it at once; the receive finds it there.
    let (reports, run) = ranks(&late, 5_000, SECOND_NS / 2);
    assert!(run.is_complete());
    assert_eq!(span_us(&reports, 0, 0), (0, 0));
    assert_eq!(span_us(&reports, 1, 1), (20_000, 20_000));
    assert_eq!(reports[0].times[0].partner, None);
    // Rendezvous: granted when the receive is posted, and there a round trip later.
    let (reports, run) = ranks(&late, 4_999, SECOND_NS / 2);
    assert!(run.is_complete());
    assert_eq!(span_us(&reports, 1, 1), (20_000, 20_000 + 2 * DELAY_US));
    let (begin, end) = span_us(&reports, 0, 0);
    assert!(begin == 0 && end > 20_000, "{end}");
    let partners =
        |reports: &[RankReport]| (reports[0].times[0].partner, reports[1].times[1].partner);
    assert_eq!(
        partners(&reports),
        (Some((1, 1)), None),
        "the send has waited"
    );
    // A receive that is there before the announcement waits itself.
    let early = text("a: recv 5000b from 0");
    let (reports, _) = ranks(&early, 4_999, SECOND_NS / 2);
    assert_eq!(partners(&reports), (None, Some((0, 0))));
}

/// Before and after its receive, long and short, of a rank that has other partners and of one
/// alone.
#[test]
fn a_message_to_itself_takes_no_time_and_matches_by_tag_and_order() {
    let text = "num_ranks 2\n\
        rank 0 {\na: send 90b to 0 tag 1\nb: calc 5000000\nc: recv 90b from 0 tag 1\nc requires b\n\
        d: recv 70b from -1 tag -1\nd requires c\ne: send 70b to 0 tag 2\ne requires d2\n\
        d2: calc 1000000\nd2 requires c\nf: send 8b to 1\nf requires d\n}\n\
        rank 1 {\nrecv 8b from 0\n}\n";
    for (eager_bytes, sent_us, partner) in [(100, 0, None), (10, 5_000, Some((0, 2)))] {
        let (reports, run) = ranks(text, eager_bytes, SECOND_NS / 2);
        assert!(run.is_complete(), "{reports:?}");
        assert_eq!(span_us(&reports, 0, 0), (0, sent_us));
        assert_eq!(reports[0].times[0].partner, partner);
        assert_eq!(span_us(&reports, 0, 2), (5_000, 5_000));
        assert_eq!(span_us(&reports, 0, 3), (5_000, 6_000));
        assert_eq!(reports[0].times[3].partner, Some((0, 4)));
        assert_eq!(span_us(&reports, 0, 4), (6_000, 6_000));
        assert_eq!(span_us(&reports, 0, 6).0, 6_000);
        assert_eq!(reports[0].unreceived, 0);
    }
    let left = "num_ranks 1\nrank 0 {\nsend 8b to 0 tag 1\nrecv 8b from 0 tag 2\n}\n";
    let (reports, run) = ranks(left, 100, SECOND_NS / 2);
    assert!(!run.is_complete());
    assert_eq!(
        (reports[0].unreceived, &reports[0].untaken[..]),
        (1, &[(0, 0)][..])
    );
}

#[test]
fn long_messages_in_both_directions_cross() {
    let text = "num_ranks 2\n\
        rank 0 {\nsend 90000b to 1 tag 1\nrecv 90000b from 1 tag 2\nsend 70000b to 1 tag 1\n}\n\
        rank 1 {\nsend 90000b to 0 tag 2\nrecv 90000b from 0 tag 1\nrecv 70000b from -1 tag -1\n}\n";
    for eager_bytes in [0, 80_000, 100_000] {
        let (reports, run) = ranks(text, eager_bytes, SECOND_NS / 2);
        assert!(run.is_complete(), "{eager_bytes}: {reports:?}");
        assert!(run.world.notes.is_empty(), "{:?}", run.world.notes);
    }
}

/// Whether the receive or the message is there first, eager or announced.
#[test]
fn a_receive_that_is_too_small_for_its_message_does_not_end() {
    for (eager_bytes, late) in [(0, 0), (0, 1), (1_000, 0), (1_000, 1)] {
        let wait = |rank| match rank == late {
            true => "b requires a\n",
            false => "",
        };
        let text = format!(
            "num_ranks 2\nrank 0 {{\na: calc 20000000\nb: send 100b to 1\n{}}}\n\
             rank 1 {{\na: calc 20000000\nb: recv 99b from -1\nc: calc 5\nc requires b\n{}}}\n",
            wait(0),
            wait(1)
        );
        let (reports, run) = ranks(&text, eager_bytes, SECOND_NS / 2);
        assert!(!run.is_complete());
        assert_eq!(reports[1].times[1].end_ns, u64::MAX);
        let place = if late == 0 { 9 } else { 8 };
        let line = format!(
            "rank 1: receive of 99 B from any rank, tag 0 at line {place} is smaller than its \
             message of 100 B from rank 0, so that it does not end"
        );
        assert_eq!(run.world.notes, [line]);
        let (reports, run) = ranks(&text.replace("99b", "100b"), eager_bytes, SECOND_NS / 2);
        assert!(run.is_complete(), "{reports:?}");
    }
}

#[test]
fn a_rank_without_its_partner_waits_and_says_so() {
    let text =
        "num_ranks 2\nrank 0 {\na: recv 8b from 1\nb: calc 5\nb requires a\n}\nrank 1 {\n}\n";
    let (reports, run) = ranks(text, 1_000, SECOND_NS);
    assert!(!run.is_complete());
    let times = &reports[0].times;
    assert_eq!(
        (times[0].begin_ns == u64::MAX, times[0].end_ns),
        (false, u64::MAX)
    );
    assert_eq!(times[1].begin_ns, u64::MAX);
}
