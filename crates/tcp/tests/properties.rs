//! Whatever the network does, the streams arrive, both ends close, and nothing hangs.

use harness::{MS, Net, Path, SECOND};
use proptest::prelude::*;
use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{
    Config, Events,
    config::{Buffer, DelayedAck, Ecn, OptionUse, Recovery},
    segment::flags,
};

use crate::harness;

#[derive(Clone, Debug)]
struct Case {
    configs: [Config; 2],
    isn: [u32; 2],
    path: Path,
    bytes: [u64; 2],
    seed: u64,
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(
        Algorithm::ALL
            .into_iter()
            .filter(|algorithm| *algorithm != Algorithm::Fixed)
            .collect::<Vec<_>>(),
    )
}

fn config() -> impl Strategy<Value = Config> {
    let recovery = prop::sample::select(vec![Recovery::NewReno, Recovery::Sack, Recovery::Rack]);
    let switches = prop::collection::vec(any::<bool>(), 12);
    let buffer = prop::sample::select(vec![3_000, 8_192, 65_535, 262_144]);
    let delayed = (1..4_u8, prop::sample::select(vec![0_u8, 16]));
    let mss = prop::sample::select(vec![536_u16, 1460, 8960]);
    (
        recovery,
        switches,
        buffer,
        delayed,
        mss,
        algorithm(),
        1..12_u8,
    )
        .prop_map(
            |(recovery, on, buffer, (segments, quick), mss, algorithm, burst)| {
                let mut config = if on[0] {
                    Config::linux(mss)
                } else {
                    Config::freebsd9(mss)
                };
                config = config.with(algorithm);
                config.freebsd = !on[0] && on[11];
                config.recovery = recovery;
                config.sack = on[1];
                config.timestamps = on[2];
                config.window_scaling = on[3];
                config.prr = on[4];
                config.limited_transmit = on[5];
                config.nagle = on[6];
                config.minshall = on[7];
                config.pacing = on[8];
                if on[9] {
                    config.ecn = match on[6] {
                        true => Ecn::OfferAccurate,
                        false => Ecn::Offer,
                    };
                    config.accurate.option = match on[5] {
                        true => OptionUse::Always,
                        false => OptionUse::Sparing,
                    };
                }
                config.burst_segments = if on[10] { burst } else { 1 };
                config.delayed_ack = DelayedAck {
                    segments,
                    any_size: on[2],
                    quick,
                    // Below the shortest RTO, which a lone segment would meet otherwise.
                    timeout_ns: 5 * MS,
                    fin: on[7],
                    until_read: on[9],
                };
                config.receive_buffer = Buffer {
                    initial_bytes: buffer,
                    max_bytes: if on[4] { 4 * buffer } else { buffer },
                };
                config
            },
        )
}

fn isn() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        (0..200_000_u32).prop_map(|below| u32::MAX - below)
    ]
}

fn path(bad: bool) -> impl Strategy<Value = Path> {
    let bound = if bad { 80_u64 } else { 1 };
    // A queue that builds up on a slow link outruns the shortest RTO.
    let slowest = if bad { 4_u64 } else { 3 };
    (0..bound, 0..bound, 0..bound, 0..slowest, 0..3_u64).prop_map(
        move |(loss, duplication, reordering, slow, queue)| Path {
            loss,
            duplication,
            reordering,
            ns_per_byte: [0, 1, 8, 80][slow as usize],
            mark_bytes: if slow == 2 { 30_000 } else { u64::MAX },
            queue_bytes: if bad && queue == 1 { 60_000 } else { u64::MAX },
            ..Path::default()
        },
    )
}

fn case(bad: bool) -> impl Strategy<Value = Case> {
    let bytes = 0..400_000_u64;
    (
        [config(), config()],
        [isn(), isn()],
        path(bad),
        [bytes.clone(), bytes],
        any::<u64>(),
    )
        .prop_map(|(configs, isn, path, bytes, seed)| Case {
            configs,
            isn,
            path,
            bytes,
            seed,
        })
}

fn transfer(case: &Case) -> Net {
    let mut net = build(case);
    finish(case, &mut net);
    net
}

fn build(case: &Case) -> Net {
    let [client, server] = case.configs;
    let mut net = Net::new(client, server, case.isn, case.path.clone(), case.seed);
    net.client().to_write = case.bytes[0];
    net.server_writes = case.bytes[1];
    net
}

fn finish(case: &Case, net: &mut Net) {
    let finished = net.run(3600 * SECOND, Net::finished);
    for end in &net.end {
        assert_eq!(end.tcp.error(), None, "at {} ns", net.now_ns);
    }
    assert!(
        finished,
        "not finished at {} ns: {:#?}",
        net.now_ns,
        net.end.iter().map(|end| &end.tcp).collect::<Vec<_>>()
    );
    for (from, to) in [(0, 1), (1, 0)] {
        let end = &net.end[to];
        assert_eq!(end.received, case.bytes[from]);
        assert!(end.tcp.at_end());
        assert!(
            end.seen
                .contains(Events::CONNECTED | Events::READABLE | Events::CLOSED)
        );
        assert_eq!(end.tcp.stats().received_bytes, case.bytes[from]);
        assert_eq!(net.end[from].tcp.stats().acked_bytes, case.bytes[from]);
        assert_eq!(net.end[from].tcp.unacknowledged(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_bad_network_delays_and_nothing_else(case in case(true)) {
        transfer(&case);
    }

    #[test]
    fn a_good_network_needs_no_retransmission(case in case(false)) {
        let net = transfer(&case);
        for end in &net.end {
            let stats = end.tcp.stats();
            let probes = stats.tail_loss_probes;
            prop_assert!(stats.retransmits <= probes, "{:?}", stats);
        }
        let mss = case.configs.iter().map(|config| u64::from(config.mss)).max().unwrap();
        prop_assert!(net.worst_excess <= mss, "{} beyond the window", net.worst_excess);
        // Nothing waits for a timer longer than a delayed ACK.
        prop_assert!(net.now_ns < 10 * SECOND, "{} ns", net.now_ns);
    }

    /// A host in the path lowers the window at will, down to one segment and 64 bytes.
    #[test]
    fn a_window_that_a_host_rewrites_stops_nothing(
        case in case(true),
        windows in prop::collection::vec(0..20_000_u64, 1..50),
    ) {
        let mut net = build(&case);
        let mut scale = [0_u8; 2];
        let mut last = [None; 2];
        let mut turn = 0;
        let configs = case.configs;
        net.tamper = Some(Box::new(move |_, from, segment| {
            if segment.has(flags::SYN) {
                scale[from] = segment.wscale().unwrap_or(0);
                return true;
            }
            // Raised and lowered only where ACKs advance, as the enforcement step does.
            let shown = match last[from] {
                Some((ack, shown)) if ack == segment.ack => shown,
                _ => {
                    turn += 1;
                    let least = u64::from(configs[1 - from].mss) + 64;
                    least + windows[turn % windows.len()]
                }
            };
            last[from] = Some((segment.ack, shown));
            let scaled = configs.iter().all(|config| config.window_scaling);
            let shift = if scaled { scale[from] } else { 0 };
            let field = shown.div_ceil(1 << shift).min(0xffff) as u16;
            segment.window = segment.window.min(field);
            true
        }));
        finish(&case, &mut net);
    }

    /// Applications that read now and then, from small buffers.
    #[test]
    fn slow_readers_lose_nothing(case in case(true), pause_ms in 1..1000_u64, sips in 1..100_u64) {
        let mut net = build(&case);
        net.client().reads = false;
        net.server_reads = false;
        let mut received = [0; 2];
        let all = [case.bytes[1], case.bytes[0]];
        while net.now_ns < 3600 * SECOND {
            net.run_until(net.now_ns + pause_ms * MS);
            for (who, received) in received.iter_mut().enumerate() {
                if let Some(end) = net.end.get_mut(who) {
                    *received += end.tcp.read(1 + 400_000 / sips);
                }
            }
            // A FIN whose last ACK was lost may be sent again to a peer whose TIME-WAIT is over.
            let mut ends = net.end.iter();
            prop_assert!(received == all || ends.all(|end| end.tcp.error().is_none()));
            if received == all && net.finished() {
                break;
            }
        }
        prop_assert_eq!(received, all);
        prop_assert!(net.finished());
    }
}

/// ACKs alone are lost: every one says all.
#[test]
fn lost_acks_cost_no_data() {
    for recovery in [Recovery::NewReno, Recovery::Sack, Recovery::Rack] {
        let mut config = Config::linux(1460);
        config.recovery = recovery;
        let mut net = Net::new(config, config, [1, u32::MAX], Path::default(), 5);
        net.path[1].loss = 300;
        net.client().to_write = 3_000_000;
        assert!(net.run(100 * SECOND, Net::finished));
        assert_eq!(net.end[1].received, 3_000_000);
        assert!(net.end[0].tcp.stats().retransmits < 30);
    }
}

#[test]
fn a_long_fat_network_is_filled() {
    let config = Config::linux(8960);
    let path = Path {
        delay_ns: 10 * MS,
        ns_per_byte: 1,
        ..Path::default()
    };
    let mut net = Net::new(config, config, [1, 2], path, 5);
    net.client().to_write = 200_000_000;
    assert!(net.run(100 * SECOND, Net::finished));
    let took_ns = net.end[1].at_end_ns.unwrap();
    // The send buffer ends at 4 MB, which 20 ms pass on 50 times.
    assert!(took_ns > 1000 * MS, "{took_ns}");
    assert!(
        took_ns < 1300 * MS,
        "{took_ns} {:?}",
        net.end[0].tcp.stats()
    );
}
