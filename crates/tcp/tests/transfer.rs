//! Streams over good and bad networks.

use harness::{MS, Net, Path, SECOND, US};
use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{Config, Events, config::Recovery};

use crate::harness;

fn run(mut net: Net, up: u64, down: u64) -> Net {
    net.client().to_write = up;
    net.server_writes = down;
    let ok = net.run(4000 * SECOND, Net::finished);
    assert!(
        ok,
        "not finished at {} ns: {:?}",
        net.now_ns,
        net.end.iter().map(|e| &e.tcp).collect::<Vec<_>>()
    );
    assert_eq!(net.end[1].received, up);
    assert_eq!(net.end[0].received, down);
    for end in &net.end {
        assert!(
            end.seen
                .contains(Events::CONNECTED | Events::READABLE | Events::CLOSED)
        );
        assert!(end.tcp.at_end());
        assert_eq!(end.tcp.error(), None);
    }
    net
}

#[test]
fn a_clean_network_needs_no_retransmission() {
    for recovery in [Recovery::NewReno, Recovery::Sack, Recovery::Rack] {
        for (sack, isn) in [(true, 7), (false, u32::MAX - 5000)] {
            let mut config = Config::linux(1460);
            config.recovery = recovery;
            config.sack = sack;
            let net = Net::new(config, config, [isn, isn], Path::default(), 1);
            let net = run(net, 5_000_000, 300_000);
            for end in &net.end {
                assert_eq!(end.tcp.stats().retransmits, 0, "{recovery:?} {sack}");
                assert_eq!(end.tcp.stats().timeouts, 0);
            }
            assert!(net.worst_excess <= 1460, "{}", net.worst_excess);
            // 5 MB at 8 Gbit/s plus slow start and FIN.
            let took = net.end[1].at_end_ns.unwrap();
            assert!(took < 10 * MS, "{took} {:?}", net.end[0].tcp.stats());
        }
    }
}

#[test]
fn losses_are_repaired() {
    for recovery in [Recovery::NewReno, Recovery::Sack, Recovery::Rack] {
        for (sack, isn) in [(true, 7), (false, u32::MAX - 5000)] {
            for seed in 0..20 {
                let mut config = Config::linux(1460);
                config.recovery = recovery;
                config.sack = sack;
                config.prr = seed % 2 == 0;
                let path = Path {
                    loss: 10,
                    duplication: 5,
                    reordering: 10,
                    late_ns: 300 * US,
                    ..Path::default()
                };
                let net = Net::new(config, config, [isn, isn], path, seed);
                run(net, 1_000_000, 300_000);
            }
        }
    }
}

/// Each of the given data segments (counted from the first) is lost once.
fn lose(net: &mut Net, lost: &'static [usize]) {
    let (mut count, mut highest) = (0, None::<u32>);
    net.tamper = Some(Box::new(move |_, from, segment| {
        let new = highest.is_none_or(|highest| segment.seq.wrapping_sub(highest) as i32 >= 0);
        if from != 0 || segment.payload == 0 || !new {
            return true;
        }
        highest = Some(segment.end());
        count += 1;
        !lost.contains(&(count - 1))
    }));
}

#[test]
fn exactly_what_is_lost_is_sent_again() {
    let cases: [&[usize]; 4] = [
        &[50],
        &[50, 51, 52],
        &[40, 50, 60],
        &[30, 33, 34, 45, 46, 47],
    ];
    for recovery in [Recovery::NewReno, Recovery::Sack, Recovery::Rack] {
        for lost in cases {
            for (prr, isn) in [(true, 3), (false, u32::MAX - 60_000)] {
                let mut config = Config::linux(1460);
                config.recovery = recovery;
                config.prr = prr;
                // While a hole is open new data goes on, or RFC 6675 would guess.
                config.send_buffer.initial_bytes = config.send_buffer.max_bytes;
                config.receive_buffer.initial_bytes = config.receive_buffer.max_bytes;
                let mut net = Net::new(config, config, [isn, isn], Path::default(), 1);
                lose(&mut net, lost);
                let net = run(net, 1_000_000, 0);
                let stats = net.end[0].tcp.stats();
                let case = format!("{recovery:?} {lost:?} prr {prr}: {stats:?}");
                assert_eq!(stats.retransmits, lost.len() as u64, "{case}");
                assert_eq!(stats.timeouts, 0, "{case}");
                assert_eq!(stats.fast_recoveries, 1, "{case}");
                assert_eq!(net.end[0].tcp.stats().dsack_received, 0, "{case}");
            }
        }
    }
}

#[test]
fn a_lost_tail_is_probed_for_by_rack_and_waited_for_by_the_others() {
    for recovery in [Recovery::NewReno, Recovery::Sack, Recovery::Rack] {
        let mut config = Config::linux(1460);
        config.recovery = recovery;
        let mut net = Net::new(config, config, [3, 4], Path::default(), 1);
        // The last three segments, once.
        let mut sent = 990_000;
        net.tamper = Some(Box::new(move |_, from, segment| {
            let position = segment.seq.wrapping_sub(4);
            let tail = from == 0 && segment.payload > 0 && position >= 996_000;
            let first = position >= sent;
            if tail && first {
                sent = position + 1;
            }
            !(tail && first)
        }));
        let net = run(net, 1_000_000, 0);
        let stats = net.end[0].tcp.stats();
        let took_ns = net.end[1].at_end_ns.unwrap();
        if recovery == Recovery::Rack {
            assert_eq!(
                (stats.timeouts, stats.tail_loss_probes),
                (0, 1),
                "{stats:?}"
            );
            assert!(took_ns < 20 * MS, "{took_ns}");
        } else {
            assert_eq!(
                (stats.timeouts, stats.tail_loss_probes),
                (1, 0),
                "{stats:?}"
            );
            assert!(took_ns > 200 * MS, "{took_ns}");
        }
    }
}

#[test]
fn dctcp_keeps_the_queue_short_without_losses() {
    let config = Config::linux(1460).with(Algorithm::Dctcp);
    let path = Path {
        queue_bytes: 300_000,
        mark_bytes: 30_000,
        ..Path::default()
    };
    let mut net = Net::new(config, config, [3, u32::MAX], path, 1);
    net.client().to_write = 20_000_000;
    assert!(net.run(SECOND, Net::finished));
    let client = &net.end[0].tcp;
    assert_eq!(client.stats().retransmits, 0);
    assert!(client.stats().ece_received > 100);
    assert!(net.end[1].tcp.stats().ce_received > 100);
    assert!(client.alpha() < 0.5, "{}", client.alpha());
    // 20 MB at 8 Gbit/s with headers: the link stays busy.
    let took_ns = net.end[1].at_end_ns.unwrap();
    assert!(took_ns < 24 * MS, "{took_ns}");
}
