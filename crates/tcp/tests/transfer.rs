//! Streams over good and bad networks.

mod harness;

use harness::{MS, Net, Path, SECOND, US};
use sluicegate_tcp::{Config, Events, config::Recovery};

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
