use proptest::prelude::*;
use sluicegate_core::aqm::{Aqm, AqmParams};
use sluicegate_fabric::{
    Fabric, Graph,
    cee::{Buffer, PfcConfig, QcnConfig, QcnParams},
};

use super::*;

const MBPS: u64 = 1_000_000;
pub(super) const RATE_BPS: u64 = 100 * MBPS;
pub(super) const LONGEST: u32 = 1514;
pub(super) const PS_PER_MS: u64 = 1_000_000_000;

pub(super) const FIRST: HostId = HostId(0);
pub(super) const SECOND: HostId = HostId(1);
pub(super) const LAST: HostId = HostId(3);

pub(super) fn mac(host: HostId) -> Mac {
    [2, 0, 0, 0, 0, host.0 as u8]
}

/// A frame of IPv4 with ECT(0), and a number in its payload.
pub(super) fn frame(from: HostId, to: HostId, number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[..6].copy_from_slice(&mac(to));
    bytes[6..12].copy_from_slice(&mac(from));
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 2]);
    bytes[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
    bytes[34..38].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[34], frame[35], frame[36], frame[37]])
}

/// Four hosts at a switch.
pub(super) fn plan() -> Plan {
    let mut graph = Graph::new(4, 1);
    let switch = Node::Switch(SwitchId(0));
    let mut ports = Vec::new();
    let aqm = AqmParams::new(
        Aqm::Threshold {
            k_bytes: 20_000,
            drop_not_ect: false,
        },
        RATE_BPS,
        LONGEST,
    )
    .expect("a threshold");
    for host in HostId::first(4) {
        graph.join(host, SwitchId(0));
        for (near, far) in [(Node::Host(host), switch), (switch, Node::Host(host))] {
            ports.push(PortSpec {
                near,
                far,
                rate_bps: RATE_BPS,
                propagation_ps: 1_000_000,
                processing_ps: 0,
                aqm: match near {
                    Node::Host(_) => AqmParams::default(),
                    Node::Switch(_) => aqm,
                },
                frame_bytes: LONGEST,
            });
        }
    }
    Plan {
        ports,
        hosts: 4,
        switches: 1,
        routes: Arc::new(Routes::new(&graph)),
        priority: 0,
        addresses: HostId::first(4).map(|host| (mac(host), host)).collect(),
        seed: 1,
    }
}

fn network(config: CeeConfig) -> Network<Converged<Descriptor>> {
    Network::converged(plan(), config).expect("a network")
}

fn lossless() -> CeeConfig {
    CeeConfig {
        pfc: Some(PfcConfig::default()),
        ..CeeConfig::default()
    }
}

/// Takes what is ready for a host.
pub(super) fn take(network: &mut Network<impl Emulated>, host: HostId) -> Vec<Vec<u8>> {
    let next = || {
        let frame = network.ready(host)?.to_vec();
        network.given(host);
        Some(frame)
    };
    std::iter::from_fn(next).collect()
}

/// Three hosts send as much as they can to the last one for so many ms. What arrived.
pub(super) fn incast(network: &mut Network<impl Emulated>, ms: u64) -> Vec<Vec<u8>> {
    let mut next = [0; 3];
    let mut arrived = Vec::new();
    for step in 0..ms * 20 {
        network.advance(step * PS_PER_MS / 20);
        for host in HostId::first(3) {
            let number = &mut next[host.index()];
            while network.offer(host, &frame(host, LAST, *number, 1514)) == Offer::Taken {
                *number += 1;
            }
        }
        arrived.extend(take(network, LAST));
        assert_eq!(network.audit(), Ok(()));
    }
    arrived
}

/// Frames of each source come in order. How many are missing.
pub(super) fn missing(arrived: &[Vec<u8>]) -> u32 {
    let mut expected = [0; 3];
    let mut missing = 0;
    for frame in arrived {
        let next = &mut expected[usize::from(frame[11])];
        assert!(number(frame) >= *next, "out of order");
        missing += number(frame) - *next;
        *next = number(frame) + 1;
    }
    missing
}

pub(super) fn all_drops(counts: &Counts) -> u64 {
    let ports = counts.ports.iter().flat_map(|port| port.stats.drops);
    let hosts = counts.hosts.iter().flat_map(|host| host.drops);
    ports.chain(hosts).sum()
}

#[test]
fn a_frame_arrives_unchanged_when_its_last_bit_has_passed_two_links() {
    let mut network = network(CeeConfig {
        cut_through: false,
        ..CeeConfig::default()
    });
    network.advance(PS_PER_MS);
    let sent = frame(FIRST, SECOND, 7, 1000);
    assert_eq!(network.offer(FIRST, &sent), Offer::Taken);
    // 80 us for each link and 1 us for its length.
    network.advance(PS_PER_MS + 161_999_999);
    assert_eq!(network.ready(SECOND), None);
    network.advance(PS_PER_MS + 162_000_000);
    assert_eq!(take(&mut network, SECOND), [sent]);
    assert_eq!(network.next_ps(), None);
    assert_eq!(network.audit(), Ok(()));
}

#[test]
fn with_flow_control_nothing_is_lost_and_senders_wait() {
    let mut network = network(lossless());
    let arrived = incast(&mut network, 200);
    assert_eq!(missing(&arrived), 0);
    let counts = network.counts();
    assert_eq!(all_drops(&counts), 0);
    let pauses: u64 = counts
        .ports
        .iter()
        .filter_map(|port| port.control)
        .map(|it| it.pauses)
        .sum();
    assert!(pauses > 10, "{pauses}");
    // The link of the last host is full: 8.26 frames of 1514 bytes each ms.
    assert!((1620..=1652).contains(&arrived.len()), "{}", arrived.len());
}

#[test]
fn without_it_frames_are_dropped_and_counted() {
    let mut network = network(CeeConfig::default());
    let arrived = incast(&mut network, 200);
    let missing = u64::from(missing(&arrived));
    let dropped = all_drops(&network.counts());
    assert!(missing > 1000 && dropped >= missing, "{missing} {dropped}");
}

#[test]
fn what_a_switch_has_marked_arrives_with_ce_in_its_header() {
    let mut network = network(lossless());
    let arrived = incast(&mut network, 50);
    let marked = arrived.iter().filter(|frame| frame[15] & 3 == 3).count() as u64;
    let counts = network.counts();
    assert_eq!(counts.hosts[LAST.index()].marked, marked);
    assert!(marked > 100 && marked < arrived.len() as u64, "{marked}");
}

#[test]
fn congestion_notifications_slow_senders_down() {
    let qcn = QcnConfig {
        priorities: 0xff,
        notification_priority: 7,
        rate_limiters: true,
        params: QcnParams::thesis(20_000),
    };
    let mut network = network(CeeConfig {
        qcn: Some(qcn),
        buffer: Buffer::Input { bytes: 400_000 },
        ..lossless()
    });
    let arrived = incast(&mut network, 300);
    assert_eq!(missing(&arrived), 0);
    let counts = network.counts();
    let made: u64 = counts
        .ports
        .iter()
        .filter_map(|port| port.control)
        .map(|it| it.notifications)
        .sum();
    assert!(made > 5, "{made}");
}

#[test]
fn a_host_that_takes_nothing_pauses_its_link() {
    let mut network = network(lossless());
    for count in 0..1000 {
        network.advance(u64::from(count) * PS_PER_MS);
        network.offer(FIRST, &frame(FIRST, LAST, count, 1514));
    }
    assert_eq!(all_drops(&network.counts()), 0);
    let waiting = network.hosts[LAST.index()].ready_bytes;
    assert!(waiting < RECEIVE_BYTES, "{waiting}");
    let before = network.counts().hosts[FIRST.index()].taken;
    let mut arrived = take(&mut network, LAST);
    network.advance(2000 * PS_PER_MS);
    arrived.extend(take(&mut network, LAST));
    network.advance(4000 * PS_PER_MS);
    arrived.extend(take(&mut network, LAST));
    assert!(arrived.len() as u64 > 100 && arrived.len() as u64 <= before);
    assert_eq!(missing(&arrived), 0);
}

#[test]
fn without_flow_control_a_host_that_takes_nothing_loses_frames() {
    let mut network = network(CeeConfig::default());
    for count in 0..300 {
        network.advance(u64::from(count) * PS_PER_MS);
        network.offer(FIRST, &frame(FIRST, LAST, count, 1514));
    }
    let drops = network.counts().hosts[LAST.index()].drops[Drop::Host as usize];
    assert!(drops > 100, "{drops}");
    assert_eq!(network.audit(), Ok(()));
}

#[test]
fn a_frame_for_a_group_or_to_an_unknown_address_reaches_all_others_once() {
    for to in [[0xff; 6], [2, 9, 9, 9, 9, 9]] {
        let mut network = network(CeeConfig::default());
        let mut sent = frame(FIRST, SECOND, 1, 60);
        sent[..6].copy_from_slice(&to);
        assert_eq!(network.offer(FIRST, &sent), Offer::Taken);
        network.advance(PS_PER_MS);
        let came = HostId::first(4).map(|host| take(&mut network, host).len());
        assert_eq!(came.collect::<Vec<_>>(), [0, 1, 1, 1]);
        assert_eq!(network.counts().hosts[0].flooded, 1);
        assert_eq!(network.audit(), Ok(()));
    }
}

#[test]
fn frames_that_are_none_are_counted() {
    let mut network = network(CeeConfig::default());
    let mut own = frame(FIRST, FIRST, 1, 60);
    for (sent, reason) in [
        (&own[..13], Drop::Malformed),
        (&frame(FIRST, SECOND, 1, 1515)[..], Drop::TooLong),
        (&own[..], Drop::Back),
    ] {
        assert_eq!(network.offer(FIRST, sent), Offer::Dropped(reason));
    }
    // A tag is no part of the length.
    own = frame(FIRST, SECOND, 1, 1514);
    own.splice(12..12, [0x81, 0, 0, 1]);
    assert_eq!(network.offer(FIRST, &own), Offer::Taken);
    assert_eq!(network.counts().hosts[0].drops, [1, 1, 1, 0, 0]);
}

#[test]
fn how_late_events_are_is_told() {
    let mut network = network(CeeConfig::default());
    network.offer(FIRST, &frame(FIRST, SECOND, 1, 60));
    network.advance(10 * PS_PER_MS);
    let lag = network.counts().lag;
    assert!(lag.events() > 0 && lag.late() == lag.events() && lag.is_behind());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_frames_are_accounted_for(
        sent in prop::collection::vec(
            (0u32..4, prop::collection::vec(any::<u8>(), 0..1600), any::<bool>(), 0u64..2_000_000_000), 1..60)
    ) {
        let mut network = network(lossless());
        let mut now_ps = 0;
        for (host, mut bytes, is_addressed, step_ps) in sent {
            now_ps += step_ps;
            network.advance(now_ps);
            if is_addressed && bytes.len() >= 6 {
                bytes[..6].copy_from_slice(&mac(HostId(host ^ 1)));
            }
            network.offer(HostId(host), &bytes);
            take(&mut network, HostId(host ^ 1));
            prop_assert_eq!(network.audit(), Ok(()));
        }
        let pool = network.fabric.ports().pool.len();
        prop_assert!(pool < 200);
    }
}
