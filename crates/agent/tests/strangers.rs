//! Connections whose handshake the programs did not see: what makes a flow of them, and for how
//! long.
//!
//! Needs root.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use kernel::{Kernel, key_between};
use net::{Packet, Route, opt, policy};
use sluicegate_core::{
    abi::{Config, FLOW_SCALE_BOUND, FlowKey, Interface, MODE_ONE_SIDED},
    host::{Direction, tcp},
};

use crate::{kernel, net};

const NOW_NS: u64 = 1_000_000_000;
/// Longer than a timer of 50 ms takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const OUT: Direction = Direction::FromTenant;
const IN: Direction = Direction::ToTenant;

/// One connection of the tenant.
#[derive(Clone, Copy)]
struct Talk<'a> {
    kernel: &'a Kernel,
    route: Route,
}

impl<'a> Talk<'a> {
    fn on(kernel: &'a Kernel, port: u16) -> Self {
        let route = Route::new(&format!("10.1.0.1:{port}"), "10.2.0.1:5001");
        Self { kernel, route }
    }

    fn key(&self) -> FlowKey {
        key_between(self.route.from, self.route.to)
    }

    fn is_known(&self) -> bool {
        self.kernel.flow(&self.key()).is_some()
    }

    fn pass(&self, packet: &Packet, direction: Direction) {
        let route = match direction {
            OUT => self.route,
            IN => self.route.reversed(),
        };
        let frame = route.build(packet);
        assert!(self.kernel.frame(&frame, direction, NOW_NS).passes);
    }

    /// The tenant's bytes from 100 on.
    fn segment(&self) -> Packet {
        Packet {
            seq: 100,
            ack: 8,
            flags: tcp::ACK,
            window: 500,
            payload: vec![0; 100],
            ..Packet::default()
        }
    }

    fn data(&self) {
        self.data_at(100);
    }

    fn data_at(&self, seq: u32) {
        let segment = Packet {
            seq,
            ..self.segment()
        };
        self.pass(&segment, OUT);
    }

    /// The peer acknowledges what [`Talk::data`] sends.
    fn ack(&self) {
        let packet = Packet {
            seq: 8,
            ack: 200,
            flags: tcp::ACK,
            window: 500,
            ..Packet::default()
        };
        self.pass(&packet, IN);
    }

    fn connect(&self) {
        self.pass(&self.syn(), OUT);
        self.pass(&self.answer(), IN);
    }

    fn syn(&self) -> Packet {
        Packet {
            seq: 99,
            flags: tcp::SYN,
            window: 1000,
            options: opt::all(&[&opt::mss(1460), &opt::wscale(7)]),
            ..Packet::default()
        }
    }

    fn answer(&self) -> Packet {
        Packet {
            seq: 7,
            ack: 100,
            flags: tcp::SYN | tcp::ACK,
            ..self.syn()
        }
    }
}

fn kernel() -> Kernel {
    let kernel = Kernel::load(&policy());
    // Open flows stay, others go when the timer next comes by.
    let config = Config {
        idle_ns: u64::MAX,
        closed_ns: 1,
        ..Config::default()
    };
    kernel.write("config", &0_u32, &config);
    kernel
}

/// Until a flow that has no claim to its slot, made now, has been collected.
fn wait_for_a_sweep(kernel: &Kernel, port: u16) {
    let stranger = Talk::on(kernel, port);
    stranger.data();
    let begun = Instant::now();
    while stranger.is_known() {
        assert!(begun.elapsed() < PATIENCE, "one packet holds its slot");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_comes_to_a_tenant_makes_no_flow() {
    let kernel = kernel();
    for port in 1..=100 {
        let data = Packet {
            seq: 8,
            ack: 100,
            flags: tcp::ACK,
            window: 500,
            payload: vec![0; 100],
            ..Packet::default()
        };
        Talk::on(&kernel, port).pass(&data, IN);
    }
    assert!(kernel.slots().iter().all(|slot| slot.tag == 0));
}

#[test]
fn one_packet_does_not_hold_a_slot_and_a_connection_does() {
    let kernel = kernel();
    let met = Talk::on(&kernel, 1);
    for _ in 0..2 {
        met.data();
        met.ack();
    }
    // Idle since its handshake, as in a pool.
    let idle = Talk::on(&kernel, 2);
    idle.connect();
    kernel.begin_sweeping().unwrap();
    // The second has its slot beside flows that a sweep has passed.
    for port in [3, 4] {
        wait_for_a_sweep(&kernel, port);
        assert!(met.is_known() && idle.is_known());
    }
}

/// A SYN/ACK for the tenant, whose SYN was not read.
fn answer_alone(talk: &Talk<'_>, options: &[u8]) {
    let answer = Packet {
        seq: 7,
        ack: 100,
        flags: tcp::SYN | tcp::ACK,
        window: 500,
        options: options.to_vec(),
        ..Packet::default()
    };
    talk.pass(&answer, IN);
}

#[test]
fn a_syn_ack_alone_tells_the_scale_of_its_connection() {
    let kernel = kernel();
    let scaled = opt::all(&[&opt::mss(1000), &opt::wscale(9)]);
    for (port, options, wscale) in [(1, scaled.clone(), 9), (2, opt::all(&[&opt::mss(1000)]), 0)] {
        let talk = Talk::on(&kernel, port);
        answer_alone(&talk, &options);
        assert!(
            !talk.is_known(),
            "a SYN/ACK that answers nothing makes no flow"
        );
        talk.data();
        let flow = kernel.flow(&talk.key()).unwrap();
        assert_eq!((flow.wscale, flow.mss), (wscale, 1000));
        assert_eq!(flow.marks & FLOW_SCALE_BOUND, 0, "it is exact");
    }
    // One that does not know where the tenant begins is a forgery, or of another connection.
    let forged = Talk::on(&kernel, 3);
    answer_alone(&forged, &scaled);
    forged.data_at(101);
    let flow = kernel.flow(&forged.key()).unwrap();
    assert_ne!(flow.marks & FLOW_SCALE_BOUND, 0);
    // Nor does one touch a flow that there is.
    let before = kernel.flow(&Talk::on(&kernel, 1).key());
    answer_alone(&Talk::on(&kernel, 1), &opt::all(&[&opt::mss(90)]));
    assert_eq!(kernel.flow(&Talk::on(&kernel, 1).key()), before);
}

#[test]
fn a_flight_beyond_its_windows_is_policed_though_the_syn_had_an_ip_option() {
    let kernel = kernel();
    let talk = Talk::on(&kernel, 1);
    answer_alone(&talk, &opt::all(&[&opt::mss(1460), &opt::wscale(2)]));
    // The first packet only shows that there is a flow.
    talk.data();
    talk.data();
    talk.ack();
    assert_eq!(kernel.flow(&talk.key()).unwrap().mode, MODE_ONE_SIDED);
    talk.data_at(200);
    let beyond = Packet {
        seq: 10_000_000,
        ..talk.segment()
    };
    assert!(!kernel.frame(&talk.route.build(&beyond), OUT, NOW_NS).passes);
}

#[test]
fn a_new_life_whose_syn_was_not_read_is_not_policed_by_the_windows_of_the_old_one() {
    let kernel = kernel();
    for opened_by_tenant in [true, false] {
        for begin in [10_000_000, 3_000_000_000] {
            kernel.forget_flows();
            let talk = Talk::on(&kernel, 1);
            talk.connect();
            talk.data();
            talk.ack();
            let (own, theirs) = (begin - 1, 70);
            let (seq, ack, way) = match opened_by_tenant {
                true => (theirs, begin, IN),
                false => (own, theirs, OUT),
            };
            let answer = Packet {
                seq,
                ack,
                flags: tcp::SYN | tcp::ACK,
                ..Packet::default()
            };
            talk.pass(&answer, way);
            // The old life's packets, of either end, do not make it forgotten.
            talk.ack();
            // Its peer confirms what the tenant says.
            if !opened_by_tenant {
                let ack = Packet {
                    seq: theirs,
                    ack: begin,
                    ..talk.segment()
                };
                talk.pass(&ack, IN);
            }
            for i in 0..1000 {
                talk.data_at(begin + 100 * i);
            }
            assert!(kernel.slots().iter().all(|slot| slot.missed == 0));
        }
    }
}

#[test]
fn a_forged_answer_takes_nothing_from_a_live_flow() {
    let kernel = kernel();
    let talk = Talk::on(&kernel, 1);
    talk.connect();
    talk.data();
    let before = kernel.flow(&talk.key());
    answer_alone(&talk, &opt::all(&[&opt::mss(90), &opt::wscale(14)]));
    assert_eq!(kernel.flow(&talk.key()), before);
    talk.data_at(200);
    let after = kernel.flow(&talk.key()).unwrap();
    let before = before.unwrap();
    assert_eq!(
        (after.mode, after.wscale, after.mss),
        (before.mode, before.wscale, before.mss)
    );
    assert_eq!((after.edge, after.snd_nxt), (before.edge, 300));
}

/// SYNs that nothing answers, from other ports than those of tests.
fn flood(kernel: &Kernel, syns: std::ops::Range<u32>) {
    for number in syns {
        let [_, high, low, port] = number.to_be_bytes();
        let from = format!("10.3.{high}.{low}:{}", 1 + u16::from(port));
        let route = Route::new(&from, "10.2.0.1:5001");
        let talk = Talk { kernel, route };
        talk.pass(&talk.syn(), OUT);
    }
}

/// Of how many SYNs the interface is said to wait for the answers.
fn unanswered(kernel: &Kernel) -> u32 {
    let until = kernel.interface().unwrap().unanswered;
    until.saturating_sub((NOW_NS >> 20) as u32)
}

#[test]
fn a_flood_of_syns_makes_no_handshake_forgotten() {
    let kernel = kernel();
    kernel.set_interface(&Interface::default());
    let slow = Talk::on(&kernel, 1);
    slow.pass(&slow.syn(), OUT);
    flood(&kernel, 0..40_000);
    assert_eq!(unanswered(&kernel), 1024);
    slow.pass(&slow.answer(), IN);
    assert!(slow.is_known(), "one that had begun before");
    assert_eq!(unanswered(&kernel), 1023);
    flood(&kernel, 40_000..40_010);
    let quick = Talk::on(&kernel, 2);
    quick.connect();
    assert!(quick.is_known(), "one amid the flood");
    assert_eq!(unanswered(&kernel), 1024, "which took no share");
}

#[test]
fn connections_take_no_share() {
    let kernel = kernel();
    kernel.set_interface(&Interface::default());
    for port in 1..=5_000 {
        let talk = Talk::on(&kernel, port);
        talk.connect();
        // SYN and SYN/ACK come again.
        talk.connect();
    }
    assert_eq!(unanswered(&kernel), 0);
}
