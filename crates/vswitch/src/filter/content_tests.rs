//! No nesting of tags, LLC and SNAP lets a foreign sender pass a source filter.

use super::{
    Filter, Forged, IPV4,
    tests::{OTHER, OWN, arp, filter, frame, ipv4},
};
use crate::learning::Mac;

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const LLDP: u16 = 0x88cc;
const GATEWAY: [u8; 4] = [10, 0, 0, 254];

/// A filter of Ethernet addresses alone.
fn macs() -> Filter {
    Filter {
        macs: vec![OWN],
        ..Filter::default()
    }
}

fn snap(organisation: [u8; 3], kind: u16, packet: &[u8]) -> Vec<u8> {
    let kind = kind.to_be_bytes();
    [&[0xaa, 0xaa, 3][..], &organisation, &kind, packet].concat()
}

/// A frame of IEEE 802.3 with this payload, padded as on a wire.
fn ieee(payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(OWN, payload.len() as u16, payload);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

fn check(filter: &Filter, frame: &[u8]) -> Result<(), Forged> {
    filter.check(frame, 12, frame.len())
}

#[test]
fn senders_inside_snap_are_checked() {
    for organisation in [[0, 0, 0], [0, 0, 0xf8]] {
        let inside = |kind, packet: &[u8]| ieee(&snap(organisation, kind, packet));
        let own = [
            inside(ARP, &arp(OWN, [10, 0, 0, 1])),
            inside(IPV4, &ipv4([10, 0, 0, 1])),
        ];
        for frame in &own {
            assert_eq!(check(&filter(), frame), Ok(()));
            assert_eq!(check(&macs(), frame), Ok(()));
        }
        let claim = inside(ARP, &arp(OWN, GATEWAY));
        assert_eq!(check(&filter(), &claim), Err(Forged::Claim));
        let other = inside(ARP, &arp(OTHER, [10, 0, 0, 1]));
        assert_eq!(check(&macs(), &other), Err(Forged::Mac));
        let source = inside(IPV4, &ipv4([10, 0, 0, 9]));
        assert_eq!(check(&filter(), &source), Err(Forged::Address));
    }
}

#[test]
fn what_cannot_be_read_does_not_pass() {
    let packet = arp(OWN, [10, 0, 0, 1]);
    let whole = snap([0; 3], ARP, &packet);
    let wrong = |length: u16| frame(OWN, length, &whole);
    let hidden = [
        wrong(0x05f0),
        wrong(whole.len() as u16 + 20),
        ieee(&snap([0; 3], 0x0024, &packet)),
        ieee(&snap([0, 0x80, 0xc2], 7, &packet)),
        ieee(&[&[0xaa, 0xab, 3][..], &whole[3..]].concat()),
        ieee(&[&[0xaa, 0xaa, 0][..], &whole[3..]].concat()),
        ieee(&[0xaa, 0xaa, 3, 0, 0]),
        ieee(&[]),
        frame(OWN, 0, &[]),
    ];
    for frame in &hidden {
        assert_eq!(
            check(&macs(), frame),
            Err(Forged::Unreadable),
            "{frame:02x?}"
        );
        assert_eq!(check(&filter(), frame), Err(Forged::Unreadable));
    }
    let tag = ieee(&snap([0; 3], 0x8100, &packet));
    assert_eq!(check(&macs(), &tag), Err(Forged::Tag));
    // A short one of ARP without SNAP, and a frame without LLC.
    let llc = ieee(&[&[0x98, 0x98, 3][..], &arp(OTHER, [10, 0, 0, 1])].concat());
    assert_eq!(check(&macs(), &llc), Err(Forged::Mac));
    let jumbo = frame(OWN, 0x8870, &snap([0; 3], ARP, &arp(OTHER, [0; 4])));
    assert_eq!(check(&macs(), &jumbo), Err(Forged::Mac));
}

#[test]
fn addresses_let_other_types_pass_only_if_they_are_named() {
    let lldp = frame(OWN, LLDP, &[0; 46]);
    let bpdu = ieee(&[0x42, 0x42, 3, 0, 0]);
    for frame in [&lldp, &bpdu] {
        assert_eq!(check(&macs(), frame), Ok(()));
        assert_eq!(check(&filter(), frame), Err(Forged::Type));
    }
    let named = Filter {
        types: vec![LLDP],
        ..filter()
    };
    assert_eq!(check(&named, &lldp), Ok(()));
    assert_eq!(check(&named, &bpdu), Err(Forged::Type));
    // The announcement of a guest that has moved.
    let rarp = frame(OWN, 0x8035, &arp(OWN, [0; 4]));
    assert_eq!(check(&filter(), &rarp), Ok(()));
    let rarp = frame(OWN, 0x8035, &arp(OTHER, [0; 4]));
    assert_eq!(check(&macs(), &rarp), Err(Forged::Mac));
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// Puts layers around a packet, from the inside out; the first is the type or the length.
fn nest(random: &mut Random, kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut inner = [&kind.to_be_bytes()[..], packet].concat();
    for _ in 0..random.below(4) {
        inner = match random.below(4) {
            0 | 1 => {
                let tag = [[0x81, 0], [0x88, 0xa8], [0x91, 0]][random.below(3) as usize];
                let vlan = [[0, 0], [0xa0, 0], [0, 10]][random.below(3) as usize];
                [&tag[..], &vlan, &inner].concat()
            }
            layer => {
                let organisation = [0, 0, [0, 0xf8][random.below(2) as usize]];
                let llc = [&[0xaa, 0xaa, 3][..], &organisation, &inner].concat();
                let length = match (layer, random.below(3)) {
                    (3, 0) => 0x8870,
                    (_, 1) => random.below(0x600) as u16,
                    _ => llc.len() as u16,
                };
                [&length.to_be_bytes()[..], &llc].concat()
            }
        };
    }
    inner
}

/// As a receiver takes off all that it can: the type and the packet behind all layers.
fn unwrap(mut inner: &[u8]) -> Option<(u16, &[u8])> {
    loop {
        let kind = u16::from_be_bytes([*inner.first()?, *inner.get(1)?]);
        inner = match kind {
            0x8100 | 0x88a8 | 0x9100 => inner.get(4..)?,
            0x8870 | ..0x0600 if inner.get(2..5) == Some(&[0xaa, 0xaa, 3]) => inner.get(8..)?,
            _ => return Some((kind, inner.get(2..)?)),
        };
    }
}

#[test]
fn no_nesting_lets_a_foreign_sender_pass() {
    let mut random = Random(35);
    let mut passed = 0;
    for _ in 0..20_000 {
        let mac: Mac = [OWN, OTHER][random.below(2) as usize];
        let address = [[10, 0, 0, 1], GATEWAY][random.below(2) as usize];
        let (kind, packet) = match random.below(3) {
            0 => (ARP, arp(mac, address)),
            1 => (IPV4, ipv4(address)),
            _ => (IPV6, vec![0xfe; 40]),
        };
        let inner = nest(&mut random, kind, &packet);
        let mut frame = [&[0xff; 6][..], &OWN, &inner].concat();
        frame.resize(frame.len().max(60), 0);
        // The switch looks behind one tag.
        let at = if frame[12..14] == [0x81, 0] { 16 } else { 12 };
        let found = unwrap(&frame[12..]);
        for (filter, checks_addresses) in [(filter(), true), (macs(), false)] {
            if filter.check(&frame, at, frame.len()).is_err() {
                continue;
            }
            passed += 1;
            match found {
                Some((ARP, arp)) => {
                    assert_eq!(arp[8..14], OWN, "{frame:02x?}");
                    assert!(!checks_addresses || arp[14..18] == [10, 0, 0, 1]);
                }
                Some((IPV4, ip)) => assert!(!checks_addresses || ip[12..16] == [10, 0, 0, 1]),
                Some((IPV6, _)) => assert!(!checks_addresses, "{frame:02x?}"),
                _ => {}
            }
        }
    }
    assert!(passed > 2000, "{passed} frames have passed");
}
