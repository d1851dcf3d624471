//! What may pass, by whom, and in which form.

use common::{
    Bench, Guest, LINUX, PLAIN, frame, introduce, mac, number, segment, switch_table, until,
};
use sluicegate_dataplane::{config::Config, count::Drop, vhost::feature};

use crate::common;

/// A frame with a tag behind its addresses.
fn tagged(vlan: u16, frame: &[u8]) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    tagged.extend([0x81, 0]);
    tagged.extend(vlan.to_be_bytes());
    tagged.extend_from_slice(&frame[12..]);
    tagged
}

#[test]
fn vlans_are_apart_and_tags_belong_to_trunks() {
    let bench = Bench::new(
        "",
        &[
            ("red", "vlan = 10"),
            ("blue", "vlan = 20"),
            ("up", "trunk = [10, 20]"),
        ],
    );
    let [mut red, mut blue, mut up] = ["red", "blue", "up"].map(|port| bench.guest(port, PLAIN));
    let all = [0xff; 6];
    for (guest, from, vlan) in [(&mut red, 1, 10), (&mut blue, 2, 20)] {
        let plain = frame(all, mac(from), 5, 60);
        assert!(guest.send(&plain));
        assert_eq!(up.expect(), tagged(vlan, &plain));
    }
    let back = frame(mac(1), mac(3), 6, 60);
    assert!(up.send(&tagged(10, &back)));
    assert_eq!(red.expect(), back);
    // With a priority of its own, the tag stays on a trunk and goes elsewhere.
    assert!(up.send(&tagged(0xe000 | 20, &frame(mac(2), mac(3), 7, 60))));
    assert_eq!(number(&blue.expect()), (3, 7));
    assert!(up.send(&back));
    assert!(up.send(&tagged(30, &back)));
    assert!(red.send(&tagged(20, &frame(all, mac(1), 8, 60))));
    // A second tag behind one that is only a priority.
    let hop = tagged(0, &tagged(20, &frame(all, mac(1), 9, 60)));
    assert!(red.send(&hop));
    until("drops", || {
        (bench.drops(2, Drop::Vlan), bench.drops(0, Drop::Vlan)) == (2, 2)
    });
    assert!(blue.receive().is_none() && red.receive().is_none());
}

/// A frame with tags of these kinds and numbers, the outermost first.
fn stacked(tags: &[(u16, u16)], frame: &[u8]) -> Vec<u8> {
    let mut stacked = frame[..12].to_vec();
    for (kind, number) in tags {
        stacked.extend(kind.to_be_bytes());
        stacked.extend(number.to_be_bytes());
    }
    stacked.extend_from_slice(&frame[12..]);
    stacked
}

#[test]
fn no_second_tag_and_no_providers_chooses_a_vlan() {
    let ports = [
        ("plain", ""),
        ("other", ""),
        ("red", "vlan = 10"),
        ("up", "trunk = [10, 20]"),
        ("native", "trunk = [20]\nnative_vlan = 10"),
    ];
    let bench = Bench::new("", &ports);
    let mut guests = ports.map(|(name, _)| bench.guest(name, PLAIN));
    let (q, provider, older) = (0x8100, 0x88a8, 0x9100);
    // The sender, its tags, and who gets the frame, with which tags.
    type Case<'a> = (usize, &'a [(u16, u16)], &'a [(usize, &'a [(u16, u16)])]);
    let cases: [Case; 17] = [
        (0, &[], &[(1, &[])]),
        (0, &[(q, 0)], &[(1, &[])]),
        (0, &[(q, 10)], &[]),
        (0, &[(q, 0), (q, 10)], &[]),
        (0, &[(provider, 0)], &[]),
        (0, &[(provider, 10)], &[]),
        (0, &[(provider, 0), (q, 10)], &[]),
        (0, &[(older, 10)], &[]),
        (0, &[(q, 0), (provider, 0)], &[]),
        (2, &[(q, 0), (q, 20)], &[]),
        (2, &[(provider, 20)], &[]),
        (2, &[], &[(3, &[(q, 10)]), (4, &[])]),
        (3, &[(q, 10)], &[(2, &[]), (4, &[])]),
        (3, &[(q, 20)], &[(4, &[(q, 20)])]),
        // Within a VLAN of both trunks a second tag is a guest's own.
        (3, &[(q, 20), (q, 99)], &[(4, &[(q, 20), (q, 99)])]),
        // Without the first tag the second would be that of the next switch.
        (3, &[(q, 10), (q, 20)], &[]),
        (4, &[(provider, 20)], &[(3, &[(q, 10), (provider, 20)])]),
    ];
    for (number, (from, tags, expected)) in cases.into_iter().enumerate() {
        let plain = frame([0xff; 6], mac(from as u8 + 1), number as u64, 60);
        assert!(guests[from].send(&stacked(tags, &plain)));
        for (to, tags) in expected {
            assert_eq!(guests[*to].expect(), stacked(tags, &plain), "case {number}");
        }
    }
    // What follows each frame that no one got has come, so that nothing of it will.
    let last = frame([0xff; 6], mac(1), 99, 60);
    assert!(guests[0].send(&last));
    assert_eq!(guests[1].expect(), last);
    assert!(guests.iter_mut().all(|guest| guest.receive().is_none()));
    let of = |port| bench.drops(port, Drop::Vlan);
    assert_eq!((of(0), of(1), of(3)), (7, 0, 0));
    // Of red two that it sent; the others would have lost their first tag at their exit.
    assert_eq!((of(2), of(4)), (4, 1));
}

#[test]
fn a_port_uses_only_its_own_addresses() {
    let keys = "macs = [\"02:00:00:00:00:01\"]\naddresses = [\"10.0.0.1\"]";
    let bench = Bench::new("", &[("a", keys), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    let packet = |source: [u8; 4]| {
        let mut packet = frame([0xff; 6], mac(1), 0, 60);
        packet[12..14].copy_from_slice(&[8, 0]);
        packet[26..30].copy_from_slice(&source);
        packet
    };
    assert!(a.send(&packet([10, 0, 0, 2])));
    assert!(a.send(&frame([0xff; 6], mac(9), 0, 60)));
    assert!(a.send(&packet([10, 0, 0, 1])));
    assert_eq!(b.expect(), packet([10, 0, 0, 1]));
    assert_eq!(bench.drops(0, Drop::Forged), 2);
    assert!(b.receive().is_none());
}

fn octets(address: &str) -> [u8; 16] {
    let address = address.parse::<std::net::Ipv6Addr>();
    address.expect("an address").octets()
}

/// A frame with a message of neighbour discovery, to all.
fn neighbour(from: u8, source: &str, message: &[u8]) -> Vec<u8> {
    let mut packet = [&[0x33, 0x33, 0, 0, 0, 1][..], &mac(from), &[0x86, 0xdd]].concat();
    packet.extend([0x60, 0, 0, 0, 0, message.len() as u8, 58, 255]);
    packet.extend([octets(source), octets("ff02::1")].concat());
    packet.extend_from_slice(message);
    packet
}

#[test]
fn a_guest_speaks_for_no_router_and_no_neighbour() {
    let keys = "macs = [\"02:00:00:00:00:01\"]\naddresses = [\"2001:db8::1\"]";
    let router = "macs = [\"02:00:00:00:00:03\"]\nrouter = true";
    let bench = Bench::new("", &[("a", keys), ("b", ""), ("router", router)]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    let [own, gateway] = ["2001:db8::1", "fe80::1"].map(octets);
    let link_layer = |kind: u8, of: u8| [&[kind, 1][..], &mac(of)].concat();
    let advertise =
        |target: &[u8], options: &[u8]| [&[136, 0, 0, 0, 0x60, 0, 0, 0], target, options].concat();
    let route = |of: u8| [vec![134, 0, 0, 0, 64], vec![0; 11], link_layer(1, of)].concat();
    let padding = [&[14, 10][..], &[0; 78]].concat();
    let (local, honest) = ("fe80::ff:fe00:1", advertise(&own, &link_layer(2, 1)));
    // Behind more options than are looked through.
    let hidden = advertise(&own, &[padding, link_layer(2, 9)].concat());
    let forged = [
        ("fe80::1", advertise(&gateway, &link_layer(2, 1))),
        (local, advertise(&gateway, &link_layer(2, 1))),
        (local, route(1)),
        (local, route(9)),
        (
            local,
            [
                &[137, 0, 0, 0, 0, 0, 0, 0][..],
                &own,
                &own,
                &link_layer(2, 9),
            ]
            .concat(),
        ),
        (local, advertise(&own, &link_layer(2, 9))),
    ];
    for (source, message) in &forged {
        assert!(a.send(&neighbour(1, source, message)));
    }
    assert!(a.send(&neighbour(1, local, &hidden)));
    let honest = neighbour(1, local, &honest);
    assert!(a.send(&honest));
    assert_eq!(b.expect(), honest);
    assert_eq!(bench.drops(0, Drop::Forged), forged.len() as u64);
    assert_eq!(bench.drops(0, Drop::Hidden), 1);
    // A port that is a router's.
    let mut router = bench.guest("router", PLAIN);
    let advertisement = neighbour(3, "fe80::ff:fe00:3", &route(3));
    assert!(router.send(&advertisement));
    assert_eq!(b.expect(), advertisement);
}

#[test]
fn a_segment_stays_one_between_guests_that_take_it() {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("plain", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, LINUX));
    let mut plain = bench.guest("plain", PLAIN);
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut plain, 3)]);
    let (bytes, header) = segment(mac(2), mac(1), 30_000);
    a.send_long(header, &bytes);
    let mut got = None;
    until("a segment", || {
        got = b.receive();
        got.is_some()
    });
    let (got_header, got) = got.expect("a segment");
    assert_eq!(got, bytes);
    assert_eq!(got_header[..10], header[..10]);
    assert_eq!(got_header[10], 15, "buffers");
    let (bytes, header) = segment(mac(3), mac(1), 30_000);
    a.send_long(header, &bytes);
    let frames: Vec<_> = (0..22).map(|_| plain.expect()).collect();
    assert!(frames.iter().all(|frame| frame.len() <= 1454));
    let payload: Vec<u8> = frames
        .iter()
        .flat_map(|frame| frame[54..].to_vec())
        .collect();
    assert_eq!(payload, bytes[54..]);
    assert!(plain.receive().is_none());
    // Its buffers are the sender's again when the last part has been delivered.
    until("all taken", || a.room() == usize::from(common::SIZE));
}

#[test]
fn parts_of_a_segment_wait_for_room_as_frames_do() {
    let bench = Bench::new("", &[("a", ""), ("plain", "")]);
    let mut a = bench.guest("a", LINUX);
    let mut plain = bench.guest("plain", PLAIN);
    introduce(&mut [(&mut a, 1), (&mut plain, 2)]);
    let (bytes, header) = segment(mac(2), mac(1), 42_000);
    for _ in 0..9 {
        a.send_long(header, &bytes);
    }
    // 9 times 30 frames, and 256 buffers.
    until("a full receiver", || {
        bench.ask(|worker| worker.engine.waiting(1).1.is_some())
    });
    assert_eq!(a.room(), usize::from(common::SIZE) - 1);
    let frames = plain.drain();
    assert_eq!(frames.len(), 270);
    for part in frames.chunks(30) {
        let payload: Vec<u8> = part.iter().flat_map(|frame| frame[54..].to_vec()).collect();
        assert_eq!(payload, bytes[54..]);
    }
    assert_eq!(bench.dropped(), 0);
}

#[test]
fn a_configuration_is_reloaded_without_touching_other_ports() {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("c", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    let _c = bench.guest("c", PLAIN);
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let socket = |name: &str| format!("vhost_user = \"{}/{name}.sock\"", bench.directory.display());
    let at = bench.directory.join("switch.sock");
    let text = format!(
        "{}[[port]]\nname = \"a\"\n{}\n[[port]]\nname = \"b\"\n{}\nmacs = [\"{}\"]\n\
         [[port]]\nname = \"d\"\n{}\n",
        switch_table(&format!("socket = \"{}\"", at.display())),
        socket("a"),
        socket("b"),
        "02:00:00:00:00:02",
        socket("d"),
    );
    let config = Config::parse("new", &text).expect("a configuration");
    let reload = bench.service.reload(config).expect("in force");
    assert_eq!(
        (reload.added, reload.removed),
        (vec!["d".to_owned()], vec!["c".to_owned()])
    );
    assert_eq!(
        (reload.changed, reload.needs_restart),
        (vec!["b".to_owned()], false)
    );
    // Both rings go on, and the new rule holds.
    assert!(a.send(&frame(mac(2), mac(1), 1, 60)));
    assert_eq!(number(&b.expect()), (1, 1));
    assert!(b.send(&frame(mac(1), mac(7), 2, 60)));
    assert!(b.send(&frame(mac(1), mac(2), 3, 60)));
    assert_eq!(number(&a.expect()), (2, 3));
    // A port with another number of queues is made anew, at the same socket.
    let changed = text.replace("name = \"a\"", "name = \"a\"\nqueues = 2");
    let changed = Config::parse("new", &changed).expect("a configuration");
    let reload = bench.service.reload(changed).expect("in force");
    assert_eq!(
        (reload.added, reload.removed),
        (vec!["a".to_owned()], vec!["a".to_owned()])
    );
    let mut a = bench.guest("a", PLAIN);
    let mut d = bench.guest("d", PLAIN);
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut d, 4)]);
    assert!(d.send(&frame(mac(1), mac(4), 4, 60)));
    assert_eq!(number(&a.expect()), (4, 4));
    let gone = bench.directory.join("c.sock");
    assert!(std::os::unix::net::UnixStream::connect(gone).is_err());
}

#[test]
fn a_guest_that_reconnects_with_other_features_goes_on() {
    let bench = Bench::new("", &[("a", ""), ("b", "")]);
    let mut b = bench.guest("b", PLAIN);
    let kinds = [0, PLAIN, LINUX, feature::MERGEABLE, feature::VERSION_1];
    for (round, features) in kinds.into_iter().enumerate() {
        let mut a: Guest = bench.guest("a", features);
        introduce(&mut [(&mut a, 1), (&mut b, 2)]);
        let number = round as u64;
        assert!(a.send(&frame(mac(2), mac(1), number, 600)));
        assert_eq!(common::number(&b.expect()), (1, number));
        assert!(b.send(&frame(mac(1), mac(2), number, 600)));
        assert_eq!(common::number(&a.expect()), (2, number));
    }
}
