//! Accurate ECN (RFC 9768) between two endpoints.

use harness::{Net, Path, SECOND};
use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{
    Config, Endpoint,
    config::{Ecn, OptionUse},
    endpoint::{AccurateInfo, failure},
    segment::{ecn, flags, option},
};

use crate::harness;

fn accurate(option: OptionUse) -> Config {
    let mut config = Config::linux(1460);
    config.ecn = Ecn::OfferAccurate;
    config.accurate.option = option;
    config
}

/// A path that marks what waits behind `mark_bytes`.
fn marking(mark_bytes: u64) -> Path {
    Path {
        queue_bytes: 2_000_000,
        mark_bytes,
        ..Path::default()
    }
}

/// Until all data have arrived and are acknowledged; neither end closes.
fn transfer(net: &mut Net, bytes: u64) {
    net.server_closes = false;
    net.client().closes = false;
    net.client().to_write = bytes;
    let done = |net: &mut Net| {
        let [client, server] = &net.end[..] else {
            return false;
        };
        server.received == bytes && client.to_write == 0 && client.tcp.unacknowledged() == 0
    };
    assert!(net.run(20 * SECOND, done));
}

fn info(endpoint: &Endpoint) -> AccurateInfo {
    endpoint.info().accurate.expect("AccECN is agreed on")
}

#[test]
fn the_least_of_what_both_speak_is_agreed_on() {
    use Ecn::{Accept, AcceptAccurate, AcceptAccurateOfferClassic, Off, Offer, OfferAccurate};
    for (client, server, is_accurate, is_classic) in [
        (OfferAccurate, OfferAccurate, true, false),
        (OfferAccurate, AcceptAccurate, true, false),
        (OfferAccurate, AcceptAccurateOfferClassic, true, false),
        (OfferAccurate, Offer, false, true),
        (OfferAccurate, Accept, false, true),
        (OfferAccurate, Off, false, false),
        (AcceptAccurateOfferClassic, OfferAccurate, false, true),
        (Offer, OfferAccurate, false, true),
        (AcceptAccurate, OfferAccurate, false, false),
    ] {
        let [mut mine, mut theirs] = [Config::linux(1460); 2];
        (mine.ecn, theirs.ecn) = (client, server);
        let mut net = Net::new(mine, theirs, [3, 4], Path::default(), 1);
        net.keep_trace = true;
        net.client().to_write = 5000;
        assert!(net.run(SECOND, Net::finished));
        for end in &net.end {
            let info = end.tcp.info();
            assert_eq!(
                info.accurate.is_some(),
                is_accurate,
                "{client:?} {server:?}"
            );
            assert_eq!(info.ecn, is_accurate || is_classic, "{client:?} {server:?}");
        }
        let data = net.trace.iter().find(|t| t.segment.payload > 0).unwrap();
        let capable = data.segment.ecn == ecn::ECT0;
        assert_eq!(capable, is_accurate || is_classic, "{client:?} {server:?}");
    }
}

#[test]
fn every_mark_is_told_of_once() {
    for algorithm in [Algorithm::Cubic, Algorithm::Dctcp] {
        for option in [OptionUse::Never, OptionUse::Sparing, OptionUse::Always] {
            let mut config = accurate(option).with(algorithm);
            config.ecn = Ecn::OfferAccurate;
            let mut net = Net::new(config, config, [3, u32::MAX], marking(30_000), 1);
            transfer(&mut net, 5_000_000);
            let (sender, receiver) = (info(&net.end[0].tcp), info(&net.end[1].tcp));
            assert!(receiver.received_ce > 20, "{receiver:?}");
            assert_eq!(sender.delivered_ce, receiver.received_ce, "{option:?}");
            assert_eq!((sender.failures, receiver.failures), (0, 0));
            if option == OptionUse::Always {
                assert_eq!(sender.delivered_bytes, receiver.received_bytes);
                assert_eq!(receiver.received_bytes.iter().sum::<u32>(), 5_000_000);
            }
            let stats = net.end[0].tcp.stats();
            assert_eq!(stats.retransmits, 0, "marks have been answered in time");
            assert!(stats.ece_received > 0);
        }
    }
}

#[test]
fn the_option_counts_bytes_exactly_though_acks_are_lost() {
    let config = accurate(OptionUse::Always);
    let mut net = Net::new(config, config, [3, 4], marking(30_000), 7);
    net.path[1].loss = 300;
    transfer(&mut net, 3_000_000);
    let (sender, receiver) = (info(&net.end[0].tcp), info(&net.end[1].tcp));
    assert!(receiver.received_ce > 20);
    assert_eq!(sender.delivered_bytes, receiver.received_bytes);
    // ACE alone is ambiguous where many ACKs in a row are lost; it counts each mark it knows of.
    let (told, met) = (sender.delivered_ce, receiver.received_ce);
    assert_eq!(told % 8, met % 8, "{told} {met}");
}

#[test]
fn segments_with_the_option_are_as_long_as_others() {
    for (option, mss) in [(OptionUse::Never, 1448), (OptionUse::Always, 1436)] {
        let config = accurate(option);
        let mut net = Net::new(config, config, [3, 4], Path::default(), 1);
        net.keep_trace = true;
        net.client().to_write = 100_000;
        assert!(net.run(SECOND, Net::finished));
        let longest = net
            .trace
            .iter()
            .map(|traced| u32::from(traced.segment.payload) + traced.segment.header_len());
        assert_eq!(longest.max(), Some(1480));
        assert_eq!(net.end[0].tcp.mss(), mss);
    }
}

#[test]
fn a_path_that_clears_ace_in_the_handshake_ends_the_use_of_ect() {
    let config = accurate(OptionUse::Always);
    let mut net = Net::new(config, config, [3, 4], marking(30_000), 1);
    net.keep_trace = true;
    let mut acks = 0;
    net.tamper = Some(Box::new(move |_, from, segment| {
        if from == 0 && !segment.has(flags::SYN) {
            acks += 1;
            if acks == 1 {
                segment.set_ace(0);
            }
        }
        true
    }));
    net.server_writes = 500_000;
    assert!(net.run(SECOND, Net::finished));
    assert_eq!(info(&net.end[1].tcp).failures, failure::ACE_RECEIVED);
    let mut from_server = net.trace.iter().filter(|traced| traced.from == 1);
    assert!(from_server.all(|traced| traced.segment.ecn == ecn::NOT_ECT));
    let mut from_client = net.trace.iter().filter(|traced| traced.from == 0);
    assert!(from_client.any(|traced| traced.segment.ecn == ecn::ECT0));
}

#[test]
fn an_offer_without_an_answer_is_given_up_at_the_second_repetition() {
    let config = accurate(OptionUse::Always);
    let mut net = Net::new(config, config, [3, 4], Path::default(), 1);
    net.keep_trace = true;
    net.tamper = Some(Box::new(|_, _, segment| {
        !(segment.has(flags::SYN) && segment.ace() != 0)
    }));
    net.client().to_write = 5000;
    assert!(net.run(10 * SECOND, Net::finished));
    let offers: Vec<_> = net.trace.iter().take(3).map(|t| t.segment.ace()).collect();
    assert_eq!(offers, [7, 7, 0]);
    assert!(net.end[0].tcp.info().accurate.is_none());
    let ae = |t: &harness::Traced| t.segment.options & option::AE != 0;
    assert!(!net.trace.iter().skip(2).any(ae));
}
