//! Plans that must come out of small variants.

use std::time::Duration;

use crate::{
    cdf::Cdf,
    experiment::{Host, HostId, LabOptions, Load, SimOptions, TcpOptions, TenantKind},
    workload::plan::Arrival,
};

use super::*;

fn variant(tenants: usize, kind: TrafficKind, pairs: &[(usize, usize)]) -> Variant {
    let tenant = |number: usize| Tenant {
        name: format!("t{number}"),
        host: HostId(0),
        address: std::net::Ipv4Addr::new(10, 0, 0, number as u8 + 1).into(),
        congestion_control: "cubic".into(),
        ecn: match number {
            1 => EcnOffer::Classic,
            3 => EcnOffer::Accurate,
            _ => EcnOffer::None,
        },
        kind: TenantKind::Namespace,
        receive_buffer_bytes: (number == 2).then_some(65_536),
        tcp: TcpOptions::default(),
        read_rate_bps: None,
        ignore_window: false,
    };
    let traffic = Traffic {
        name: "test".into(),
        kind,
        pairs: pairs.to_vec(),
        start: Duration::from_millis(100),
        stop: None,
        port: 5000,
        shares_ports: false,
        deadline: None,
        priority: 0,
        routing: None,
        hotspot: None,
    };
    Variant {
        name: "test".into(),
        title: "test".into(),
        warmup: Duration::from_secs(1),
        duration: Duration::from_secs(9),
        ip_version: 4,
        mtu_bytes: 1500,
        hosts: vec![Host { name: "h".into() }],
        tenants: (0..tenants).map(tenant).collect(),
        switches: Vec::new(),
        is_crossbar: false,
        links: Vec::new(),
        routing: sluicegate_fabric::Routing::default(),
        routings: Vec::new(),
        reroute_delay: None,
        shared_memory: None,
        cee: None,
        vnic_queue_bytes: None,
        host_switch: None,
        traffic: vec![traffic],
        enforcement: None,
        events: Vec::new(),
        intervals: Vec::new(),
        lab: LabOptions::default(),
        sim: SimOptions::default(),
        places: crate::places::Places::default(),
    }
}

fn trace(load_bps: u64) -> TrafficKind {
    let sizes = Cdf::parse("test", "bytes,cdf\n1000,0\n19000,1\n").unwrap();
    TrafficKind::Trace {
        sizes,
        load: Load::Offered(load_bps),
        classes: vec![(10_000, "small".into()), (u64::MAX, "large".into())],
        intra_rack: None,
    }
}

fn arrivals(plan: &Plan) -> &[Arrival] {
    match &plan.roles[0] {
        Role::MessageSource {
            schedule: Schedule::Open { arrivals },
            ..
        } => arrivals,
        other => panic!("{other:?}"),
    }
}

#[test]
fn same_seed_same_plans_other_seed_others() {
    let variant = variant(3, trace(50_000_000), &[(0, 1), (0, 2)]);
    assert_eq!(plans(&variant, 1).unwrap(), plans(&variant, 1).unwrap());
    assert_ne!(plans(&variant, 1).unwrap(), plans(&variant, 2).unwrap());
}

#[test]
fn trace_has_its_load_its_classes_and_its_peers() {
    let plans = plans(&variant(3, trace(50_000_000), &[(0, 1), (0, 2)]), 1).unwrap();
    let arrivals = arrivals(&plans[0]);
    let offered_bps = arrivals.iter().map(|arrival| arrival.bytes).sum::<u64>() as f64 * 8.0 / 9.9;
    assert!((offered_bps / 50e6 - 1.0).abs() < 0.1, "{offered_bps}");
    assert!(
        arrivals
            .windows(2)
            .all(|pair| pair[0].at_ns <= pair[1].at_ns)
    );
    assert!(
        arrivals
            .iter()
            .all(|arrival| (arrival.bytes < 10_000) == (arrival.class == 0))
    );
    assert!(
        arrivals.iter().any(|arrival| arrival.peer == 0)
            && arrivals.iter().any(|arrival| arrival.peer == 1)
    );
    assert!(
        arrivals
            .iter()
            .all(|arrival| (100_000_000..10_000_000_000).contains(&arrival.at_ns))
    );
}

#[test]
fn trace_without_bound_is_refused() {
    let error = plans(&variant(2, trace(u64::MAX), &[(0, 1)]), 1).unwrap_err();
    assert!(format!("{error:#}").contains("traffic.test"), "{error:#}");
}

#[test]
fn ports_run_out_with_a_message() {
    let mut variant = variant(2, TrafficKind::Bulk { rate_bps: None }, &[(0, 1), (0, 1)]);
    variant.traffic[0].port = 65_535;
    assert!(
        plans(&variant, 1)
            .unwrap_err()
            .to_string()
            .contains("65535")
    );
}

#[test]
fn pairs_that_share_ports_differ_by_receiver_or_port() {
    let kind = TrafficKind::Bulk { rate_bps: None };
    let mut variant = variant(3, kind, &[(0, 2), (0, 1), (1, 2), (2, 1), (2, 0), (0, 2)]);
    variant.traffic[0].shares_ports = true;
    let flows = flows(&variant);
    let ports: Vec<(usize, u16)> = flows.iter().map(|flow| (flow.to, flow.port)).collect();
    let expected = [
        (2, 5000),
        (1, 5000),
        (2, 5001),
        (1, 5001),
        (0, 5000),
        (2, 5002),
    ];
    assert_eq!(ports, expected);
    assert_eq!(variant.traffic[0].port_range(), 5000..5003);
}

#[test]
fn each_pair_has_its_port_and_each_end_its_role() {
    let variant = variant(3, TrafficKind::Bulk { rate_bps: None }, &[(0, 2), (1, 2)]);
    let plans = plans(&variant, 1).unwrap();
    let ports: Vec<u16> = flows(&variant).iter().map(|flow| flow.port).collect();
    assert_eq!(ports, [5000, 5001]);
    assert_eq!(
        plans[2].roles,
        [
            Role::Sink {
                flow: 0,
                port: 5000
            },
            Role::Sink {
                flow: 1,
                port: 5001
            }
        ]
    );
    let Role::Source {
        flow, peer, span, ..
    } = &plans[1].roles[0]
    else {
        panic!()
    };
    assert_eq!((*flow, peer.to_string()), (1, "10.0.0.3:5001".into()));
    assert_eq!(
        *span,
        Span {
            begin_ns: 100_000_000,
            end_ns: 10_000_000_000
        }
    );
}

#[test]
fn incast_answers_flow_from_the_many_to_the_one() {
    let kind = TrafficKind::Incast {
        bytes: 1000,
        interval: Duration::ZERO,
    };
    let plans = plans(&variant(3, kind, &[(0, 2), (1, 2)]), 1).unwrap();
    assert!(
        matches!(&plans[2].roles[..], [Role::IncastRequester { responders, .. }] if responders.len() == 2)
    );
    assert!(matches!(
        &plans[0].roles[..],
        [Role::IncastResponder { flow: 0, .. }]
    ));
}

#[test]
fn shuffle_visits_every_peer_once_per_turn() {
    let kind = TrafficKind::Shuffle {
        bytes: 1000,
        parallel: 2,
        class: "shuffle".into(),
    };
    let plans = plans(&variant(4, kind, &[(0, 1), (0, 2), (0, 3)]), 1).unwrap();
    let Role::MessageSource {
        schedule: Schedule::Closed { transfers, .. },
        ..
    } = &plans[0].roles[0]
    else {
        panic!()
    };
    let mut sorted: Vec<u32> = transfers.iter().map(|transfer| transfer.peer).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2]);
}

#[test]
fn a_closed_trace_draws_sizes_classes_and_peers() {
    let mut kind = trace(1);
    if let TrafficKind::Trace { load, .. } = &mut kind {
        *load = Load::Concurrent(5);
    }
    let plans = plans(&variant(3, kind, &[(0, 1), (0, 2)]), 1).unwrap();
    let Role::MessageSource {
        schedule: schedule @ Schedule::Closed { transfers, .. },
        span,
        connections: Connections::Pool,
        ..
    } = &plans[0].roles[0]
    else {
        panic!("{:?}", plans[0].roles[0])
    };
    let mean = transfers.iter().map(|t| t.bytes).sum::<u64>() as f64 / transfers.len() as f64;
    assert!((mean / 10_000.0 - 1.0).abs() < 0.05, "{mean}");
    assert!(
        transfers
            .iter()
            .all(|t| (t.bytes < 10_000) == (t.class == 0))
    );
    let to_first = transfers.iter().filter(|t| t.peer == 0).count();
    assert!((4_700..5_300).contains(&to_first), "{to_first}");
    let again = schedule.transfer(transfers.len() as u64 + 3, *span, 200_000_000);
    let again = again.expect("the order repeats");
    assert_eq!(
        (again.bytes, again.at_ns),
        (transfers[3].bytes, 200_000_000)
    );
    assert_eq!(schedule.transfer(0, *span, span.end_ns), None);
}

#[test]
fn a_short_run_is_sampled_as_often_as_a_long_one() {
    let kind = TrafficKind::Bulk { rate_bps: None };
    let mut variant = variant(2, kind, &[(0, 1)]);
    let long = &plans(&variant, 1).unwrap()[0];
    assert_eq!(
        (long.series_interval_ns, long.cwnd_interval_ns),
        (50_000_000, 16_000_000)
    );
    (variant.warmup, variant.duration) = (Duration::ZERO, Duration::from_millis(100));
    let short = &plans(&variant, 1).unwrap()[0];
    assert_eq!(
        (short.series_interval_ns, short.cwnd_interval_ns),
        (1_000_000, 250_000)
    );
}

#[test]
fn ecn_and_buffers_become_kernel_parameters() {
    let plans = plans(
        &variant(4, TrafficKind::Bulk { rate_bps: None }, &[(0, 1)]),
        1,
    )
    .unwrap();
    let has = |tenant: usize, name: &str, value: &str| {
        plans[tenant]
            .sysctls
            .contains(&(name.to_owned(), value.to_owned()))
    };
    assert!(has(0, "net.ipv4.tcp_ecn", "2") && has(1, "net.ipv4.tcp_ecn", "1"));
    assert!(has(3, "net.ipv4.tcp_ecn", "3"));
    assert!(has(2, "net.ipv4.tcp_rmem", "4096 65536 65536"));
}

#[test]
fn messages_without_a_pause_are_refused() {
    let kind = TrafficKind::Messages {
        bytes: 1000,
        interval: Duration::ZERO,
        class: "mice".into(),
    };
    assert!(plans(&variant(2, kind, &[(0, 1)]), 1).is_err());
}
