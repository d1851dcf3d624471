//! The traffic of applications, and its measurements.

use sluicegate_scenario::{
    figures::Quantity,
    results::{Datagrams, Protocol, VariantResult},
};
use sluicegate_sim::Threads;
use support::{run, run_on};

use crate::support;

/// A pair over one link of 100 Mbit/s with constant delays, for a second.
const PAIR: &str = "warmup = '0s'\nduration = '1s'\n[network]\ntopology = 'dumbbell'\npairs = 1\n\
    rate = '100Mbit'\n[sim]\njitter = '0us'\n";

#[test]
fn what_phases_offer_beyond_the_link_is_sent_later() {
    let results = run(&format!(
        "{PAIR}[traffic.b]\nkind = 'bulk'\nclass = 'whole'\nstop = '400ms'\n\
        phases = [{{ until = '100ms', rate = '50Mbit' }}, {{ until = '200ms', rate = '400Mbit' }}, {{ rate = '50Mbit' }}]\n\
        [interval.calm]\nstart = '20ms'\nstop = '100ms'\n[interval.burst]\nstart = '120ms'\nstop = '400ms'\n"
    ));
    let bits = 50e6 * 0.1 + 400e6 * 0.1 + 50e6 * 0.2;
    let result = &results[0];
    assert_eq!(result.flows[0].goodput_bps, bits, "nothing is forgotten");
    let within = |value: f64, low: f64, high: f64| assert!((low..high).contains(&value), "{value}");
    within(result.intervals["calm"].sum, 48e6, 52e6);
    within(result.intervals["burst"].sum, 93e6, 96e6);
    // A payload of 1448 bytes takes 1514 bytes of the link.
    let drained_s = 0.1 + (bits - 5e6) / (100e6 * 1448.0 / 1514.0);
    let whole = &result.fct_us["whole"];
    assert_eq!(whole.count, 1);
    within(whole.p50.unwrap() / 1e6, drained_s, drained_s + 0.005);
}

/// A copy arrives at once and its original after the run's end: neither is under way.
#[test]
fn what_has_arrived_is_not_under_way_as_well() {
    let results = run(&format!(
        "{PAIR}[network.link.right-r1]\nduplicate_rate = 1.0\nreorder_rate = 1.0\nreorder_delay = '900ms'\n\
        [traffic.u]\nkind = 'datagrams'\nrate = '10Mbit'\n"
    ));
    let counts = results[0].flows[0].datagrams.as_ref().unwrap();
    let underway = counts.underway.unwrap();
    assert_eq!(
        counts.received + counts.lost + underway,
        counts.sent,
        "{counts:?}"
    );
    assert!(underway * 2 < counts.sent, "{counts:?}");
}

/// Every frame arrives twice, and the link before has room for half of them.
#[test]
fn copies_stand_for_no_datagram_that_was_lost() {
    let results = run(&format!(
        "{PAIR}[network.link.right-r1]\nduplicate_rate = 1.0\n[traffic.u]\nkind = 'datagrams'\n\
        rate = '200Mbit'\n[network.link.left-right]\nqueue = '30KB'\n[network.link.left-s1]\nrate = '1Gbit'\n"
    ));
    let counts = results[0].flows[0].datagrams.as_ref().unwrap();
    let lost = counts.lost as f64 / counts.sent as f64;
    assert!((0.45..0.56).contains(&lost), "{counts:?}");
    assert!(results[0].flows[0].goodput_bps < 100e6);
}

#[test]
fn a_flow_that_nothing_more_arrives_of_is_stalled_until_its_end() {
    let stalled_ms = |keys: &str| {
        let results = run(&format!(
            "{PAIR}[traffic.b]\nkind = 'bulk'\n{keys}[[event]]\nat = '300ms'\nfor = '700ms'\n\
            link_down = ['left-right']\n"
        ));
        results[0].flows[0].stalled_us.unwrap() / 1e3
    };
    // In steps of 10 ms.
    assert!((680.0..=700.0).contains(&stalled_ms("")));
    assert!((180.0..=200.0).contains(&stalled_ms("stop = '500ms'\n")));
    assert!(stalled_ms("stop = '200ms'\n") <= 10.0);
    let phases =
        "phases = [{ until = '200ms', rate = '20Mbit' }, { until = '900ms', rate = '0Mbit' }]\n";
    assert!(stalled_ms(phases) <= 10.0);
}

#[test]
fn a_request_without_an_answer_keeps_its_time() {
    let results = run(&format!(
        "{PAIR}[traffic.p]\nkind = 'ping-pong'\n[[event]]\nat = '300ms'\nfor = '700ms'\n\
        link_down = ['left-right']\n"
    ));
    let samples = &results[0].samples;
    assert_eq!(samples.rtt_outstanding_us.len(), 1);
    assert!((699e3..701e3).contains(&samples.rtt_outstanding_us[0]));
    assert!(samples.rtt_us.iter().all(|us| *us < 100e3));
}

#[test]
fn a_late_process_reads_all_that_has_come_and_answers_late() {
    let with = |wake: &str| {
        run(&format!(
            "{PAIR}wake = {wake}\n[traffic.b]\nkind = 'bulk'\n[traffic.p]\nkind = 'ping-pong'\n"
        ))
    };
    let idle = |wake: &str| {
        let results = run(&format!(
            "{PAIR}wake = {wake}\n[traffic.p]\nkind = 'ping-pong'\n"
        ));
        results[0].rtt_us.clone()
    };
    let (at_once, late) = (idle("[]"), idle("['300us', '300us']"));
    // Once at the server and once at the client.
    assert!(
        (late.p50.unwrap() - at_once.p50.unwrap() - 600.0).abs() < 0.01,
        "{at_once:?} {late:?}"
    );
    assert!(late.p99.unwrap() - late.p50.unwrap() < 10.0, "{late:?}");
    let acks = |results: &[VariantResult]| {
        let sent = |id: &str| {
            results[0]
                .links
                .iter()
                .find(|link| link.id == id)
                .unwrap()
                .sent
        };
        sent("left>right") as f64 / sent("right>left") as f64
    };
    let (at_once, late) = (with("[]"), with("['300us', '300us']"));
    assert!(
        (1.9..2.1).contains(&acks(&at_once)),
        "an ACK for two segments"
    );
    // 121 us for each segment: three come until the process runs.
    assert!(acks(&late) > 2.2, "{}", acks(&late));
    assert!(late[0].goodput_bps.sum > 0.98 * at_once[0].goodput_bps.sum);
}

#[test]
fn late_processes_depend_on_nothing_but_the_seed() {
    let text = "warmup = '0s'\nduration = '50ms'\n[network]\ntopology = 'star'\nhosts = 8\nrate = '100Mbit'\n\
        [sim]\nwake = ['10us', '40us', '500us']\n[traffic.b]\nkind = 'bulk'\nto = 'h1'\n";
    let on = |threads| {
        let results = run_on(threads, text);
        results[0]
            .flows
            .iter()
            .map(|flow| flow.goodput_bps)
            .collect::<Vec<_>>()
    };
    assert_eq!(on(Threads::UpTo(1)), on(Threads::UpTo(2)));
}

/// Three senders and a receiver at links of 100 Mbit/s, for a second.
const STAR: &str = "warmup = '100ms'\nduration = '1s'\n[network]\ntopology = 'star'\nhosts = 4\nrate = '100Mbit'\n";

fn datagrams(result: &VariantResult, flow: usize) -> Datagrams {
    let flow = &result.flows[flow];
    assert_eq!(flow.protocol, Protocol::Udp);
    flow.datagrams.unwrap()
}

#[test]
fn datagrams_at_a_rate_all_arrive_where_there_is_room() {
    let results = run(&format!(
        "{STAR}[traffic.u]\nkind = 'datagrams'\nrate = '30Mbit'\nfrom = ['h2', 'h3', 'h4']\nto = 'h1'\nbytes = '1000B'\n"
    ));
    assert_eq!(results[0].flows.len(), 3);
    for flow in 0..3 {
        let counted = datagrams(&results[0], flow);
        assert_eq!((counted.sent, counted.sent_bytes), (3_750, 3_750_000));
        assert!(
            counted.received >= 3_749,
            "one may be on its way: {counted:?}"
        );
        assert_eq!((counted.lost, counted.socket_drops), (0, 0));
        let goodput_bps = results[0].flows[flow].goodput_bps;
        assert!((goodput_bps / 30e6 - 1.0).abs() < 1e-3, "{goodput_bps}");
    }
    assert_eq!(results[0].goodput_bps.sum, 0.0, "that is of bulk flows");
}

#[test]
fn what_is_under_way_at_the_end_is_not_lost() {
    let loss = |more: &str, threads| {
        let text = format!(
            "warmup = '0s'\nduration = '1ms'\n[network]\ntopology = 'star'\nhosts = 2\nrate = '10Gbit'\n\
            [traffic.d]\nkind = 'datagrams'\nfrom = 'h1'\nto = 'h2'\nrate = '1Gbit'\n{more}"
        );
        let result = &run_on(Threads::Exactly(threads), &text)[0];
        let figure = Quantity::parse("flows.all.loss").unwrap();
        (datagrams(result, 0), figure.value(result))
    };
    let down = "start = '900us'\n[[event]]\nat = '0s'\nlink_down = ['switch-h2']\n";
    for threads in [1, 2] {
        // The first is sent so late that it does not arrive.
        let (counted, of_last) = loss("start = '990us'\n", threads);
        assert_eq!((counted.sent, counted.received, counted.lost), (1, 0, 0));
        assert_eq!((counted.underway, of_last), (Some(1), Some(0.0)));
        let (counted, of_down) = loss(down, threads);
        let underway = counted.underway.unwrap();
        assert!(counted.sent > 5 && underway < 3, "{counted:?}");
        assert_eq!(counted.lost, counted.sent - underway);
        assert_eq!(of_down, Some(1.0));
        // What a link loses behind the last that arrived is lost, too.
        let later = down.replace("at = '0s'", "at = '950us'");
        let (counted, _) = loss(&later, threads);
        let left = counted.sent - counted.received - counted.underway.unwrap();
        assert!(counted.received > 2 && left > 2, "{counted:?}");
        assert_eq!(counted.lost, left);
    }
}

#[test]
fn what_a_switch_cannot_pass_on_is_lost() {
    let results = run(&format!(
        "{STAR}queue = '50KB'\n[traffic.u]\nkind = 'datagrams'\nrate = '60Mbit'\nfrom = ['h2', 'h3', 'h4']\nto = 'h1'\nbytes = '1000B'\n"
    ));
    let result = &results[0];
    let sum = |of: fn(&Datagrams) -> u64| (0..3).map(|at| of(&datagrams(result, at))).sum::<u64>();
    let dropped: u64 = result
        .links
        .iter()
        .flat_map(|link| link.drops.values())
        .sum();
    assert_eq!(sum(|d| d.sent), 22_500);
    // 42 bytes of headers.
    let carried = 100e6 / 8.0 / 1042.0;
    let received = sum(|d| d.received) as f64;
    assert!(
        (received / carried - 1.0).abs() < 5e-3,
        "{received} of {carried}"
    );
    let lost = sum(|d| d.lost) as f64;
    assert!(
        (lost / dropped as f64 - 1.0).abs() < 5e-3,
        "{lost} of {dropped}"
    );
    assert_eq!(sum(|d| d.lost_bytes), 1_000 * sum(|d| d.lost));
    assert_eq!(sum(|d| d.socket_drops), 0);
}

#[test]
fn hotspots_are_as_severe_as_they_say() {
    let results = run(&format!(
        "{STAR}queue = '10KB'\n[traffic.hot]\nkind = 'hotspot'\nto = 'h1'\nfrom = 'h*'\nbytes = '500B'\n\
        [variant.input]\ntraffic.hot = {{ type = 'input', severity = 1.8 }}\n\
        [variant.output]\ntraffic.hot = {{ type = 'output', rate = '20Mbit', severity = 4 }}\n\
        [variant.later]\ntraffic.hot = {{ type = 'output', rate = '20Mbit', severity = 4, start = '300ms', stop = '600ms' }}\n"
    ));
    let sum = |result: usize, of: fn(&Datagrams) -> u64| {
        let flows = (0..3).map(|at| of(&datagrams(&results[result], at)));
        flows.sum::<u64>() as f64
    };
    let close = |ours: f64, expected: f64| {
        assert!((ours / expected - 1.0).abs() < 0.01, "{ours}, {expected}");
    };
    close(sum(0, |d| d.sent), 1.8 * 100e6 / 8.0 / 542.0);
    close(sum(0, |d| d.sent) / sum(0, |d| d.received), 1.8);
    close(sum(1, |d| d.sent), 3.0 * 20e6 / 8.0 / 500.0);
    close(sum(1, |d| d.sent) / sum(1, |d| d.received), 4.0);
    // Three quarters are lost in 0.3 s of a second.
    close(sum(2, |d| d.received) / sum(2, |d| d.sent), 0.7 + 0.3 / 4.0);
}

#[test]
fn bursts_beyond_the_socket_are_dropped_there_and_not_lost() {
    let burst = |socket: &str| {
        run(&format!(
            "{STAR}[traffic.u]\nkind = 'datagrams'\nburst = '300KB'\ninterval = '100ms'\narrivals = 'fixed'\nfrom = 'h2'\nto = 'h1'\n{socket}"
        ))
    };
    let small = datagrams(&burst("socket_buffer = '100KB'\n")[0], 0);
    // Of each burst, 67 datagrams of 1472 bytes fit, and the rest of 1184 bytes at its end.
    assert_eq!((small.sent, small.lost), (10 * 68, 0));
    assert_eq!(small.sent_bytes + small.socket_dropped_bytes, 3_000_000);
    let large = datagrams(&burst("socket_buffer = '300KB'\n")[0], 0);
    assert_eq!((large.sent_bytes, large.socket_drops), (3_000_000, 0));
    assert_eq!((large.received_bytes, large.lost), (3_000_000, 0));
}

#[test]
fn datagrams_wait_their_turn_beside_connections() {
    let results = run(&format!(
        "{STAR}[tenant.default]\nprofile = 'freebsd9'\n[sim]\njitter = '0us'\n\
        [traffic.t]\nkind = 'bulk'\nfrom = 'h2'\nto = 'h3'\n\
        [traffic.u]\nkind = 'datagrams'\nrate = '80Mbit'\nfrom = 'h2'\nto = 'h1'\nbytes = '1448B'\nsocket_buffer = '64KB'\n"
    ));
    let [tcp, udp] = &results[0].flows[..] else {
        panic!("{:?}", results[0].flows)
    };
    // They share the adapter frame by frame.
    assert!(
        (tcp.goodput_bps / udp.goodput_bps - 1.0).abs() < 0.1,
        "{tcp:?} {udp:?}"
    );
    let counted = datagrams(&results[0], 1);
    assert!(
        counted.socket_drops > 1_000 && counted.lost == 0,
        "{counted:?}"
    );
}

#[test]
fn bursts_from_a_distribution_repeat_on_any_number_of_threads() {
    let text = "warmup = '0s'\nduration = '40ms'\n[network]\ntopology = 'fat-tree'\nchildren = [4, 4]\nparents = [1, 2]\n\
        [traffic.u]\nkind = 'datagrams'\nbursts = 'background-medium'\nload = '600Mbit'\npairs = 'stride:5'\nsocket_buffer = '1GB'\n\
        [traffic.t]\nkind = 'bulk'\npairs = 'stride:4'\n\
        [enforcement]\nhosts = 'all'\n";
    let results = |threads| {
        let results = run_on(Threads::Exactly(threads), text);
        (serde_json::to_string(&results[0]).unwrap(), results)
    };
    let (one, found) = results(1);
    assert_eq!(one, results(2).0);
    let flows = found[0].flows.iter().filter_map(|flow| flow.datagrams);
    let sent: u64 = flows.clone().map(|counted| counted.sent_bytes).sum();
    assert!(
        (sent as f64 * 8.0 / 0.04 / 16.0 / 600e6 - 1.0).abs() < 0.4,
        "{sent}"
    );
    assert!(flows.map(|counted| counted.received).sum::<u64>() > 500);
    assert!(
        found[0].enforcement["not_tcp"] > 1_000,
        "{:?}",
        found[0].enforcement
    );
}

/// Two racks of four hosts; h1 asks the seven others.
const RACKS: &str = "warmup = '0s'\nduration = '1s'\n[network]\ntopology = 'fat-tree'\nchildren = [4, 2]\nparents = [1, 2]\n\
    [traffic.q]\nkind = 'queries'\nfrom = 'h1'\nbytes = '20KB'\n";

#[test]
fn a_query_asks_one_of_each_rack_which_asks_its_others() {
    for connections in ["one", "pool", "per-message"] {
        let results = run(&format!(
            "{RACKS}connections = '{connections}'\nrequest = '1KB'\nqueries = 100\narrivals = {{ kind = 'fixed', interval = '8ms' }}\n"
        ));
        let result = &results[0];
        let (query, answer) = (&result.fct_us["query"], &result.fct_us["answer"]);
        // Of h2, h3 and h4 one asks two, of h5 to h8 one asks three.
        assert_eq!((query.count, answer.count), (100, 500), "{connections}");
        // Three answers reach one server over its link, then two the aggregator.
        let bits = 5.0 * 20_000.0 * 8.0;
        let (of_query, of_answer) = (query.p50.unwrap(), answer.p50.unwrap());
        assert!(of_query > bits / 1e3, "{connections}: {query:?}");
        assert!(of_query < bits / 1e3 + 1_000.0, "{connections}: {query:?}");
        assert!(of_answer < of_query);
        assert_eq!((query.unfinished, answer.unfinished), (0, 0));
    }
}

#[test]
fn queries_are_the_same_on_any_number_of_threads() {
    let text = format!(
        "{}queries = 60\narrivals = {{ kind = 'lognormal', median = '300us', sigma = 1.0 }}\n\
        [traffic.t]\nkind = 'bulk'\nfrom = 'h2'\nto = 'h7'\n",
        RACKS.replace("'1s'", "'60ms'")
    );
    let results = |threads| {
        let results = run_on(Threads::Exactly(threads), &text);
        assert_eq!(results[0].fct_us["query"].count, 60);
        serde_json::to_string(&results[0]).unwrap()
    };
    assert_eq!(results(1), results(2));
}

#[test]
fn external_aggregators_ask_a_tree_over_its_topmost_switches() {
    let results = run(
        "warmup = '0s'\nduration = '100ms'\n[network]\ntopology = 'fat-tree'\nchildren = [4, 2]\nparents = [1, 2]\nexternal = 3\n\
        [traffic.q]\nkind = 'queries'\nfrom = 'x*'\nbytes = '20KB'\narrivals = { kind = 'fixed', interval = '10ms' }\n\
        [traffic.p]\nkind = 'ping-pong'\nfrom = 'x1'\nto = 'x2'\ninterval = '1ms'\n",
    );
    let fct = &results[0].fct_us;
    assert!(
        (28..=30).contains(&fct["query"].count),
        "{:?}",
        fct["query"]
    );
    assert!(results[0].rtt_us.count > 90);
    // Answers come up on one link and leave by another.
    let link = |id: &str| results[0].links.iter().find(|link| link.id == id).unwrap();
    assert!(link("a1>x1").sent_bytes > 10 * 2 * 20_000);
    assert!(link("a2>x2").sent_bytes > 10 * 2 * 20_000 - 80_000);
}

#[test]
fn a_slow_link_is_slow_for_its_time() {
    let results = run(&format!(
        "{}[traffic.u]\nkind = 'datagrams'\nrate = '80Mbit'\n\
        [[event]]\nat = '200ms'\nfor = '300ms'\nslow_link = {{ links = ['left-right'], rate = '20Mbit' }}\n",
        PAIR.replace("pairs = 1", "pairs = 1\nqueue = '20KB'")
    ));
    let series = &results[0].samples.series;
    let goodput = series.iter().find(|one| one.name == "0 s1>r1").unwrap();
    let mean_bps = |from_s: f64, to_s: f64| {
        let points = goodput
            .points
            .iter()
            .filter(|point| (from_s..to_s).contains(&point.0));
        let values: Vec<f64> = points.map(|point| point.1).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    let within =
        |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.03, "{value}");
    within(mean_bps(0.05, 0.2), 80e6);
    within(mean_bps(0.25, 0.5), 20e6 * 1472.0 / 1514.0);
    // Datagrams that waited leave at the rate at which they came.
    within(mean_bps(0.55, 1.0), 80e6);
}

#[test]
fn where_nothing_is_lost_datagrams_wait_for_a_slow_link_in_their_socket() {
    let results = run(&format!(
        "{}[network.cee]\nforwarding = 'store-and-forward'\nport_buffer = '101KB'\n[network.cee.pfc]\npriorities = [3]\n\
        [traffic.u]\nkind = 'datagrams'\nrate = '80Mbit'\npriority = 3\nsocket_buffer = '50KB'\n\
        [[event]]\nat = '200ms'\nfor = '300ms'\nslow_link = {{ links = ['right-r1'], rate = '20Mbit' }}\n",
        PAIR.replace("[sim]\njitter = '0us'\n", "")
    ));
    let counted = datagrams(&results[0], 0);
    assert_eq!(counted.lost, 0, "{counted:?}");
    // The bytes that 300 ms offer beyond those that the slow link carries, less those that wait on
    // the way.
    let excess_bytes = 0.3 * (80e6 - 20e6 * 1472.0 / 1514.0) / 8.0;
    let waits = excess_bytes - counted.socket_dropped_bytes as f64;
    assert!((50e3..700e3).contains(&waits), "{waits} {counted:?}");
    let drops: u64 = results[0]
        .links
        .iter()
        .flat_map(|link| link.drops.values())
        .sum();
    assert_eq!(drops, 0);
}

#[test]
fn a_run_ends_when_its_queries_are_complete() {
    let of = |queries: &str| {
        run(&format!(
            "{RACKS}{queries}arrivals = {{ kind = 'fixed', interval = '4ms' }}\n\
            [traffic.u]\nkind = 'datagrams'\nfrom = 'h2'\nto = 'h7'\nrate = '100Mbit'\n"
        ))
    };
    let (short, whole) = (&of("queries = 50\n")[0], &of("")[0]);
    assert_eq!(short.fct_us["query"].count, 50);
    assert!(whole.fct_us["query"].count > 240);
    // Rates are those of the time that was measured, in which fewer bytes came.
    for result in [short, whole] {
        let goodput_bps = result.flows[0].goodput_bps;
        assert!((goodput_bps / 100e6 - 1.0).abs() < 0.01, "{goodput_bps}");
    }
    let received = |result: &VariantResult| datagrams(result, 0).received;
    assert!(received(short) < received(whole) / 4);
}

/// Each pair would need a port of its own beyond 178 hosts.
#[test]
fn all_to_all_runs_on_more_hosts_than_pairs_have_ports() {
    let results = run(
        "warmup = '0s'\nduration = '20ms'\n[network]\ntopology = 'star'\nhosts = 179\n\
         [traffic.w]\nkind = 'trace'\nload = '20Mbit'\nsizes = 'websearch'\nmax_bytes = '1KB'\n\
         stop = '1ms'\n",
    );
    let fct = &results[0].fct_us["small"];
    assert!(fct.count >= 100, "{}", fct.count);
}

/// A frame takes the time of its bytes: 5 ps each at 1.6 Tb/s, 0.8 ps at 10 Tb/s.
#[test]
fn links_of_terabits_keep_their_rate() {
    for (rate, bits_per_s) in [("1600Gbit", 1.6e12), ("10Tbit", 10e12)] {
        let results = run(&format!(
            "warmup = '20us'\nduration = '50us'\n[network]\ntopology = 'dumbbell'\npairs = 2\nrate = '{rate}'\n\
             queue = '100KB'\nmarking = {{ kind = 'red' }}\n[sim]\njitter = '0us'\nlink_delay = '1us'\n\
             [traffic.d]\nkind = 'datagrams'\nrate = '{rate}'\n"
        ));
        let sum: f64 = results[0].flows.iter().map(|flow| flow.goodput_bps).sum();
        let share = sum / (bits_per_s * 1472.0 / 1514.0);
        assert!((0.99..1.001).contains(&share), "{rate}: {share}");
    }
}

/// Of a frame of 14 + mtu bytes a segment with timestamps leaves 52 and Ethernet's 14.
#[test]
fn segments_fill_small_mtus() {
    for mtu in [88, 576, 1048] {
        let results = run(&format!(
            "warmup = '200ms'\nduration = '300ms'\n[network]\ntopology = 'dumbbell'\npairs = 1\nmtu = {mtu}\n\
             rate = '20Mbit'\n[traffic.b]\nkind = 'bulk'\n"
        ));
        let payload = f64::from(mtu - 52) / f64::from(mtu + 14);
        let share = results[0].flows[0].goodput_bps / (20e6 * payload);
        assert!((0.97..1.01).contains(&share), "{mtu}: {share}");
    }
}
