//! Priorities: which frames wait, which are dropped, which go first, and what tags say.

use common::{Bench, PLAIN, SIZE, frame, introduce, mac, number, until};
use sluicegate_dataplane::count::Drop;

use crate::common;

/// A frame with a tag.
fn tagged(frame: &[u8], priority: u16, vlan: u16) -> Vec<u8> {
    let [high, low] = (priority << 13 | vlan).to_be_bytes();
    [&frame[..12], &[0x81, 0, high, low], &frame[12..]].concat()
}

/// Priority and VLAN of a frame's tag.
fn tag(frame: &[u8]) -> (u16, u16) {
    assert_eq!(frame[12..14], [0x81, 0]);
    let tag = u16::from_be_bytes([frame[14], frame[15]]);
    (tag >> 13, tag & 0xfff)
}

#[test]
fn lossless_priorities_wait_and_others_are_dropped() {
    let bench = Bench::new(
        "lossless = [3]\nqueue = 10",
        &[("a", "priority = 3"), ("b", ""), ("sink", ""), ("c", "")],
    );
    let [mut a, mut b, mut sink, mut c] =
        ["a", "b", "sink", "c"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut sink, 3), (&mut c, 4)]);
    let ring = u64::from(SIZE);
    // Frames of the lossless priority fill the receiver's ring and then the sender's.
    for sent in 0..2 * ring {
        until("room", || a.send(&frame(mac(3), mac(1), sent, 60)));
    }
    until("a full ring", || a.room() == 0);
    for sent in 0..1000 {
        until("room", || b.send(&frame(mac(3), mac(2), sent, 60)));
    }
    until("a ring that is empty again", || {
        b.room() == usize::from(SIZE)
    });
    assert_eq!(bench.drops(2, Drop::Full), 1000 - 10);
    let (waiting, _) = bench.waiting(2);
    assert_eq!(
        waiting.iter().map(|(_, frames)| frames).sum::<usize>(),
        256 + 10
    );
    // A full receiver is nothing to others.
    assert!(b.send(&frame(mac(4), mac(2), 7, 60)));
    assert_eq!(number(&c.expect()), (2, 7));
    for sent in 0..2 * ring {
        assert_eq!(number(&sink.expect()), (1, sent));
    }
    for sent in 0..10 {
        assert_eq!(number(&sink.expect()), (2, sent));
    }
    assert!(sink.receive().is_none());
    assert_eq!(bench.drops(2, Drop::Full), 1000 - 10);
}

#[test]
fn higher_priorities_leave_first() {
    let bench = Bench::new(
        "",
        &[
            ("up", "trunk = [5]\npriority = \"tag\""),
            ("sink", "vlan = 5"),
        ],
    );
    let [mut up, mut sink] = ["up", "sink"].map(|port| bench.guest(port, PLAIN));
    sink.send(&frame([0xff; 6], mac(3), 0, 60));
    assert_eq!(tag(&up.expect()), (0, 5));
    let ring = u64::from(SIZE);
    let mut send = |priority, number| {
        let frame = tagged(&frame(mac(3), mac(1), number, 60), priority, 5);
        until("room", || up.send(&frame));
    };
    (0..ring).for_each(|number| send(1, number));
    (0..30).for_each(|number| send(1, ring + number));
    (0..30).for_each(|number| send(6, ring + 100 + number));
    (0..30).for_each(|number| send(4, ring + 200 + number));
    until("all read", || {
        let (waiting, _) = bench.waiting(1);
        waiting == [(0, 90)]
    });
    let order = [100..130, 200..230, 0..30].into_iter().flatten();
    let expected = (0..ring).chain(order.map(|number| ring + number));
    for expected in expected {
        assert_eq!(number(&sink.expect()), (1, expected));
    }
    assert_eq!(bench.dropped(), 0);
}

#[test]
fn tags_get_the_priority_of_their_port_and_others_pass_as_they_are() {
    let ports = [
        ("set", "vlan = 5\npriority = 6"),
        ("changed", "trunk = [5]\npriority = 2"),
        ("plain", "trunk = [5]"),
        ("up", "trunk = [5]"),
    ];
    let bench = Bench::new("", &ports);
    let [mut set, mut changed, mut plain, mut up] = ports.map(|(port, _)| bench.guest(port, PLAIN));
    let untagged = |from| frame([0xff; 6], mac(from), 0, 60);
    assert!(set.send(&untagged(1)));
    assert_eq!(tag(&up.expect()), (6, 5));
    assert!(changed.send(&tagged(&untagged(2), 7, 5)));
    assert_eq!(tag(&up.expect()), (2, 5));
    assert!(plain.send(&tagged(&untagged(3), 7, 5)));
    assert_eq!(tag(&up.expect()), (7, 5));
}

#[test]
fn a_reload_changes_the_priority_of_a_port() {
    let bench = Bench::new(
        "",
        &[("a", "vlan = 5\npriority = 6"), ("up", "trunk = [5]")],
    );
    let [mut a, mut up] = ["a", "up"].map(|port| bench.guest(port, PLAIN));
    assert!(a.send(&frame([0xff; 6], mac(1), 0, 60)));
    assert_eq!(tag(&up.expect()), (6, 5));
    let changed = bench.text().replace("priority = 6", "priority = 1");
    let config = sluicegate_dataplane::config::Config::parse("switch.toml", &changed);
    let reload = bench.service.reload(config.expect("a good file"));
    let reload = reload.expect("a reload");
    assert_eq!(
        (&reload.changed[..], reload.needs_restart),
        (&["a".to_owned()][..], false)
    );
    assert!(a.send(&frame([0xff; 6], mac(1), 1, 60)));
    assert_eq!(tag(&up.expect()), (1, 5));
}
