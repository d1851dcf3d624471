use super::*;
use crate::{
    cee::{Pause, PfcConfig},
    graph::HostId,
};
use sluicegate_core::aqm::AqmParams;

const BYTES: u32 = 1_000;

/// The ports that lead from the hosts to the switch.
const FIRST: PortId = PortId::of_link(0, true);
const SECOND: PortId = PortId::of_link(1, true);

const SWITCH: SwitchId = SwitchId(0);

/// Two hosts at one switch.
fn specs() -> Vec<PortSpec> {
    let spec = |near, far| PortSpec {
        near,
        far,
        rate_bps: 10_000_000_000,
        propagation_ps: 0,
        processing_ps: 0,
        aqm: AqmParams::default(),
        frame_bytes: 1_500,
    };
    let hosts = [0, 1].map(|host| Node::Host(HostId(host)));
    let links = hosts.map(|host| {
        let switch = Node::Switch(SWITCH);
        [spec(host, switch), spec(switch, host)]
    });
    links.as_flattened().to_vec()
}

fn buffers(buffer: Buffer, pfc: Option<PfcConfig>) -> InputBuffers {
    let config = CeeConfig {
        buffer,
        pfc,
        ..CeeConfig::default()
    };
    let specs = specs();
    let out = OutputPorts::new(&config, &specs, 1, 1);
    InputBuffers::new(&config, &specs, &out, 1)
}

fn lossless(xoff_bytes: u64, headroom_bytes: Option<u64>) -> Option<PfcConfig> {
    Some(PfcConfig {
        priorities: 1 << 3,
        xoff_bytes,
        xon_bytes: xoff_bytes / 2,
        pause: Pause::Wire {
            response_ps: 0,
            headroom_bytes,
        },
    })
}

fn share(ingress: PortId, priority: usize) -> Share {
    Share {
        ingress,
        priority,
        bytes: BYTES,
    }
}

#[test]
fn an_input_of_its_own_is_paused_above_xoff_and_full_above_headroom() {
    let mut buffers = buffers(Buffer::Input { bytes: 2_000 }, lossless(3_000, Some(1_000)));
    for held in 1..=4 {
        assert_eq!(buffers.has_no_room(share(FIRST, 3), || 0), None, "{held}");
        assert!(buffers.take(share(FIRST, 3)), "more than ever");
        buffers.keep_most(FIRST, 3);
        assert_eq!(buffers.is_too_full(FIRST, 3), held > 3);
    }
    assert_eq!(
        buffers.has_no_room(share(FIRST, 3), || 0),
        Some(Drop::Headroom)
    );
    assert_eq!(buffers.most_bytes(FIRST), 4_000);
    // Another priority may lose, and another input knows nothing of it.
    for _ in 0..2 {
        assert_eq!(buffers.has_no_room(share(FIRST, 0), || 0), None);
        assert!(!buffers.take(share(FIRST, 0)), "priority 3 has held more");
    }
    assert_eq!(
        buffers.has_no_room(share(FIRST, 0), || 0),
        Some(Drop::Buffer)
    );
    assert_eq!(buffers.has_no_room(share(SECOND, 3), || 0), None);
    for _ in 0..3 {
        assert!(!buffers.is_empty_enough(FIRST, 3));
        assert!(
            !buffers.give_back(share(FIRST, 3)),
            "no sender has been asked to pause"
        );
    }
    assert!(buffers.is_empty_enough(FIRST, 3));
}

#[test]
fn what_no_longer_fits_a_shared_memory_takes_headroom_and_leaves_it_first() {
    let shape = Buffer::Shared {
        bytes: 10_000,
        alpha: 1.0,
    };
    let mut buffers = buffers(shape, lossless(2_500, Some(2_000)));
    assert_eq!(
        buffers.shared_bytes(SWITCH),
        6_000,
        "two inputs reserve headroom"
    );
    for _ in 0..4 {
        assert_eq!(buffers.has_no_room(share(FIRST, 3), || 0), None);
        buffers.take(share(FIRST, 3));
    }
    assert_eq!(buffers.headroom_used[0][3], 2_000);
    assert_eq!(buffers.memories[0].used_bytes, 2_000);
    assert_eq!(
        buffers.has_no_room(share(FIRST, 3), || 0),
        Some(Drop::Headroom)
    );
    assert_eq!(buffers.audit(&found(4_000)), Ok(()));
    buffers.give_back(share(FIRST, 3));
    assert_eq!(buffers.headroom_used[0][3], 1_000);
    // Others have left the memory: what lies in headroom moves there.
    buffers.leave_headroom(FIRST, 3);
    assert_eq!(buffers.headroom_used[0][3], 0);
    assert_eq!(buffers.memories[0].used_bytes, 3_000);
    assert_eq!(buffers.audit(&found(3_000)), Ok(()));
    assert!(buffers.audit(&found(2_000)).is_err());
    buffers.memories[0].used_bytes -= 1;
    assert!(buffers.audit(&found(3_000)).is_err());
}

/// By port and priority, if only the first input holds something.
fn found(bytes: u64) -> Vec<[u64; PRIORITIES]> {
    let mut found = vec![[0; PRIORITIES]; 4];
    found[0][3] = bytes;
    found
}

#[test]
fn a_switch_knows_which_priorities_it_has_paused_anywhere() {
    let mut buffers = buffers(Buffer::Input { bytes: 2_000 }, lossless(1_000, None));
    assert_eq!(buffers.set_sent(FIRST, 0b1000), Some((SWITCH, 0b1000)));
    assert_eq!(buffers.set_sent(SECOND, 0b1001), Some((SWITCH, 0b1001)));
    assert!(buffers.has_paused(SECOND, 3) && !buffers.has_paused(FIRST, 0));
    assert_eq!(buffers.set_sent(FIRST, 0), Some((SWITCH, 0b1001)));
    assert_eq!(buffers.audit(&found(0)), Ok(()));
    assert_eq!(buffers.set_sent(SECOND, 0), Some((SWITCH, 0)));
    assert_eq!(buffers.set_sent(FIRST.opposite(), 0b1000), None, "a host's");
    buffers.pausing[0][3] = 1;
    assert!(buffers.audit(&found(0)).is_err());
}

#[test]
fn an_input_is_quiet_up_to_what_it_has_held_before_and_never_above_xoff() {
    let mut buffers = buffers(Buffer::Input { bytes: 9_000 }, lossless(3_000, Some(4_000)));
    assert!(!buffers.input_mut(FIRST).stays_quiet(3, BYTES), "new to it");
    for _ in 0..4 {
        buffers.take(share(FIRST, 3));
        buffers.keep_most(FIRST, 3);
    }
    buffers.give_back(share(FIRST, 3));
    assert!(
        !buffers.input_mut(FIRST).stays_quiet(3, BYTES),
        "above XOFF"
    );
    buffers.give_back(share(FIRST, 3));
    assert!(buffers.input_mut(FIRST).stays_quiet(3, BYTES));
    buffers.input_mut(FIRST).take_quietly(3, BYTES);
    assert_eq!(buffers.held_bytes(FIRST, 3), 3_000);
    assert!(!buffers.input_mut(SECOND).stays_quiet(3, BYTES));
}

/// As a link of 10 Tb/s between two hosts, without a switch whose buffer a scenario would bound.
#[test]
fn a_headroom_of_more_than_4_gb_is_all_that_can_be_counted() {
    let config = CeeConfig {
        pfc: lossless(3_000, None),
        ..CeeConfig::default()
    };
    let mut specs = specs();
    specs.truncate(2);
    for (spec, far) in specs.iter_mut().zip([1, 0]) {
        spec.far = Node::Host(HostId(far));
        (spec.rate_bps, spec.propagation_ps) = (10_000_000_000_000, 5_000_000_000);
    }
    specs[1].near = Node::Host(HostId(1));
    let out = OutputPorts::new(&config, &specs, 0, 1);
    let buffers = InputBuffers::new(&config, &specs, &out, 0);
    assert_eq!(buffers.headroom_bytes(FIRST), u32::MAX.into());
    assert_eq!(buffers.has_no_room(share(FIRST, 3), || 0), None);
}
