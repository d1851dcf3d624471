//! What the kernel's programs keep, which the native step does not: the table of flows, half-open
//! connections, quotas, what is remembered of flows.

use super::*;

/// A SYN of the tenant, and its SYN/ACK.
pub fn opening(isn: u32) -> (net::Packet, net::Packet) {
    let syn = net::Packet {
        seq: isn,
        flags: tcp::SYN,
        window: 1000,
        options: opt::all(&[&opt::mss(1460)]),
        ..net::Packet::default()
    };
    let answer = net::Packet {
        seq: 7,
        ack: isn + 1,
        flags: tcp::SYN | tcp::ACK,
        window: 65_000,
        ..syn.clone()
    };
    (syn, answer)
}

/// The handshake of connection `port` from `isn` on; whether the programs edited the SYN/ACK.
fn handshake(kernel: &Kernel, port: u16, isn: u32) -> bool {
    let route = Route::new(&format!("10.1.0.1:{port}"), "10.2.0.1:5001");
    let (syn, answer) = opening(isn);
    kernel.frame(&route.build(&syn), Direction::FromTenant, 1);
    let frame = route.reversed().build(&answer);
    let made = kernel.frame(&frame, Direction::ToTenant, 1);
    assert!(made.passes);
    made.frame != frame
}

#[test]
fn a_policy_that_comes_between_syn_and_answer_decides() {
    let route = Route::new("10.1.0.1:40000", "10.2.0.1:5001");
    let (syn, answer) = opening(99);
    // The same rule in another slot, one that only observes, none.
    let mut moved = policy();
    moved.order[0] = 5;
    moved.anywhere.word[0] = 1 << 5;
    moved.slots[5] = moved.slots[0];
    let observing = policy_of(Params {
        mode: RULE_OBSERVE,
        ..params()
    });
    let mut none = policy();
    none.rules_count = 0;
    let kernel = kernel();
    for (between, rule) in [(moved, Some(5)), (observing, Some(0)), (none, None)] {
        kernel.reset(&policy());
        let mut shadowed = Shadowed::new(&policy(), &kernel);
        shadowed.frame(&mut route.build(&syn), Direction::FromTenant, 1);
        kernel.set_policy(&between);
        shadowed.host.set_policy(&between);
        let mut frame = route.reversed().build(&answer);
        let outcome = shadowed.frame(&mut frame, Direction::ToTenant, 2);
        assert_eq!(shadowed.host.flow().map(|flow| flow.rule), rule);
        let edited = between.slots[usize::from(rule.unwrap_or(0))].params.mode != RULE_OBSERVE;
        assert_eq!(outcome.edits != 0, edited && rule.is_some());
    }
}

/// The flow that [`handshake`] makes of connection `port`.
fn key_of(port: u16) -> FlowKey {
    FlowKey {
        local: "10.1.0.1".parse::<std::net::IpAddr>().unwrap().into(),
        remote: "10.2.0.1".parse::<std::net::IpAddr>().unwrap().into(),
        local_port: port.to_be(),
        remote_port: 5001_u16.to_be(),
        ifindex: IFINDEX,
        ..FlowKey::default()
    }
}

/// Whether connection `port` has a flow after its handshake.
fn begins(kernel: &Kernel, port: u16) -> bool {
    let edited = handshake(kernel, port, 99);
    let begun = kernel.flow(&key_of(port)).is_some();
    assert_eq!(edited, begun, "without a flow nothing is edited");
    begun
}

/// Its entry stays in the kernel's map, and is as if it were not there.
#[test]
fn a_half_open_connection_is_spent_when_its_flow_is_forgotten() {
    let kernel = kernel();
    let route = Route::new("10.1.0.1:1", "10.2.0.1:5001");
    let (syn, answer) = opening(99);
    let (syn, answer) = (route.build(&syn), route.reversed().build(&answer));
    let is_answered = || {
        let made = kernel.frame(&answer, Direction::ToTenant, 1);
        assert!(made.passes);
        made.frame != answer
    };
    kernel.frame(&syn, Direction::FromTenant, 1);
    assert!(is_answered() && is_answered(), "repeated like the first");
    kernel.forget_flows();
    let half = FlowKey {
        opener: Opener::Tenant as u16,
        ..key_of(1)
    };
    assert!(kernel.half_open(&half).is_some());
    assert!(!is_answered());
    assert_eq!(kernel.flow(&key_of(1)), None);
    // The same SYN again begins another flow.
    kernel.frame(&syn, Direction::FromTenant, 1);
    assert!(is_answered());
    assert!(kernel.flow(&key_of(1)).is_some());
}

#[test]
fn an_interface_has_a_quota_of_flows() {
    let kernel = kernel();
    kernel.set_interface(&Interface {
        quota: 3,
        ..Interface::default()
    });
    let begun: Vec<bool> = (1..=5).map(|port| begins(&kernel, port)).collect();
    assert_eq!(begun, [true, true, true, false, false]);
    assert_eq!(kernel.interface().unwrap().flows, 3);
    let quota = COUNTER_NAMES
        .iter()
        .position(|name| *name == "quota")
        .unwrap();
    assert_eq!(kernel.counters()[quota], 2);
    // The port of a flow that there is costs nothing new.
    assert!(begins(&kernel, 2));
    assert_eq!(kernel.interface().unwrap().flows, 3);
}

/// A tenant's peer may be governed by a host that believes hosts' options.
#[test]
fn what_a_tenant_forges_is_removed_though_its_interface_may_have_no_more_flows() {
    let kernel = kernel();
    kernel.set_interface(&Interface {
        flows: 3,
        quota: 3,
        ..Interface::default()
    });
    let route = Route::new("10.1.0.1:1", "10.2.0.1:5001");
    let leaves = |packet: &net::Packet| {
        let made = kernel.frame(&route.build(packet), Direction::FromTenant, 2);
        assert!(made.passes);
        net::wire::read(&made.frame).1.options
    };
    let (mut syn, mut answer) = opening(99);
    (syn.seq, syn.ack, syn.flags) = (7, 0, tcp::SYN);
    kernel.frame(&route.reversed().build(&syn), Direction::ToTenant, 1);
    answer.ack = 8;
    answer.options = opt::peer(0).to_vec();
    assert_eq!(opt::peer_of(&leaves(&answer)), None);
    assert_eq!(count(&kernel, "quota"), 1);
    let ack = net::Packet {
        seq: answer.seq.wrapping_add(1),
        ack: 8,
        flags: tcp::ACK,
        options: opt::feedback(100, 0).to_vec(),
        ..net::Packet::default()
    };
    assert_eq!(opt::feedback_of(&leaves(&ack)), None);
    assert_eq!(kernel.flow(&key_of(1)), None);
}

/// The count of a kernel's counter.
pub fn count(kernel: &Kernel, name: &str) -> u64 {
    let index = COUNTER_NAMES.iter().position(|known| *known == name);
    kernel.counters()[index.expect("a counter's name")]
}

/// Whether data of connection `port` is edited: its flow is found again.
fn goes_on(kernel: &Kernel, port: u16) -> bool {
    let route = Route::new(&format!("10.1.0.1:{port}"), "10.2.0.1:5001");
    let data = net::Packet {
        seq: 100,
        ack: 8,
        flags: tcp::ACK,
        window: 1000,
        payload: vec![0; 100],
        ..net::Packet::default()
    };
    let before = count(kernel, "flow_midstream");
    kernel.frame(&route.build(&data), Direction::FromTenant, 2);
    count(kernel, "flow_midstream") == before
}

#[test]
fn a_full_table_keeps_every_flow_that_it_took() {
    let kernel = kernel();
    kernel.set_interface(&Interface::default());
    let tried = 4 * kernel::SLOTS as u16;
    let taken: Vec<u16> = (1..=tried).filter(|&port| begins(&kernel, port)).collect();
    // Hundreds of flows met in few slots: most slots hold one, displaced from its home.
    assert!(taken.len() as u32 <= kernel::SLOTS);
    assert!(taken.len() as u32 >= kernel::SLOTS * 9 / 10, "{taken:?}");
    assert_eq!(kernel.interface().unwrap().flows, taken.len() as u32);
    let refused = u64::from(tried) - taken.len() as u64;
    assert_eq!(count(&kernel, "table_full"), refused);
    let slots = kernel.slots();
    let homed: u32 = slots.iter().map(|slot| slot.homed.count_ones()).sum();
    assert_eq!(homed, taken.len() as u32);
    assert_eq!(kernel.occupied(), taken.len() as u32);
    assert!(taken.iter().all(|&port| goes_on(&kernel, port)));

    kernel.forget_flows();
    assert_eq!(kernel.interface().unwrap().flows, 0);
    assert_eq!(kernel.occupied(), 0);
    for slot in kernel.slots() {
        assert_eq!((slot.tag, slot.homed), (0, 0), "{slot:?}");
    }
    // There is room again, for those that found none as well.
    assert!((1..=tried).rev().take(40).all(|port| begins(&kernel, port)));
}

#[test]
fn what_is_remembered_of_a_flow_is_kept_until_there_is_room_for_it() {
    let kernel = kernel();
    let in_use = |flows| {
        kernel.set_interface(&Interface {
            flows,
            quota: 3,
            ..Interface::default()
        });
    };
    let known = Remembered {
        mss: 1000,
        wscale: 7,
        scale: 1,
        ..Remembered::default()
    };
    kernel.write("remembered", &key_of(1), &known);
    in_use(3);
    for tries in 1..=3 {
        goes_on(&kernel, 1);
        assert_eq!(count(&kernel, "quota"), tries);
        assert_eq!(kernel.flow(&key_of(1)), None);
        assert_eq!(kernel.read("remembered", &key_of(1)), Some(known));
    }
    in_use(0);
    goes_on(&kernel, 1);
    let flow = kernel.flow(&key_of(1)).unwrap();
    assert_eq!((flow.wscale, flow.mss), (7, 1000));
    assert_eq!(flow.marks & FLOW_SCALE_BOUND, 0, "it is exact");
    assert_eq!(kernel.read::<_, Remembered>("remembered", &key_of(1)), None);
}

#[test]
fn a_flow_that_is_never_let_go_passes_untouched_and_is_not_policed() {
    let kernel = kernel();
    assert!(begins(&kernel, 1));
    let route = Route::new("10.1.0.1:1", "10.2.0.1:5001");
    let data = |seq: u32| {
        route.build(&net::Packet {
            seq,
            ack: 8,
            flags: tcp::ACK,
            window: 1000,
            payload: vec![0; 1000],
            ..net::Packet::default()
        })
    };
    let passes = |seq| {
        kernel
            .frame(&data(seq), Direction::FromTenant, 2)
            .passes
            .then(|| kernel.flow(&key_of(1)).unwrap().snd_nxt)
    };
    assert_eq!(passes(100), Some(1100));
    let before = kernel.flow(&key_of(1)).unwrap();

    // Another CPU has the flow and does not let go of it.
    kernel.hold(&key_of(1), true);
    assert!(kernel.frame(&data(1100), Direction::FromTenant, 2).passes);
    kernel.hold(&key_of(1), false);
    assert_eq!(count(&kernel, "contended"), 1);
    assert_eq!(kernel.flow(&key_of(1)).unwrap(), before);

    // Much may have passed meanwhile, and the tenant may have been shown another 64 KB.
    assert_eq!(passes(700_100), Some(701_100));
    assert_eq!(passes(760_000), Some(761_000));
    assert_eq!(count(&kernel, "policed"), 0);
    assert_eq!(passes(780_000), None, "beyond any window it is policed");
    assert_eq!(count(&kernel, "policed"), 1);

    // A port that is used again while its slot is held: nothing is known of the new connection.
    kernel.hold(&key_of(1), true);
    assert!(!handshake(&kernel, 1, 1 << 30));
    kernel.hold(&key_of(1), false);
    assert!(passes((1 << 30) + 1).is_some());
    let flow = kernel.flow(&key_of(1)).unwrap();
    assert_eq!((flow.mode, flow.reason), (MODE_WATCH, 1));
    assert!(kernel.slots().iter().all(|slot| slot.missed == 0));
}
