//! Peers of a cable that break the rules close their own port, and others notice nothing.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{
    PLAIN,
    cables::{Place, Switch},
    frame, mac, number,
    others::Others,
    until,
};
use sluicegate_dataplane::{
    count::Drop as Reason,
    offload::{Takes, Work},
    shm::{end::End, layout::Layout},
};

use crate::common;

/// Where the cable is among the ports.
const CABLE: u16 = 2;

/// The direction to the switch, which listens.
const INWARD: usize = 1;

fn layout() -> Layout {
    Layout::new(64, 2048).expect("a layout")
}

/// A switch with a cable that listens, and two guests.
fn switch(place: &Place) -> Switch {
    place.switch("left", &["a", "b"], "ring = 64")
}

/// An honest peer: both directions work.
fn works(place: &Place, switch: &Switch) {
    let mut end = place.end();
    switch.until_up(CABLE);
    assert_eq!(switch.closed(CABLE), None);
    let mut a = place.guest("a", PLAIN);
    assert_eq!(
        end.send(&frame(mac(1), mac(8), 5, 60), Work::default()),
        Ok(true)
    );
    while number(&a.expect()) != (8, 5) {}
    until("room", || a.send(&frame(mac(8), mac(1), 6, 60)));
    let mut bytes = Vec::new();
    let start = Instant::now();
    while bytes.get(..6) != Some(&mac(8)[..]) {
        assert!(start.elapsed() < common::PATIENCE, "no frame");
        if end.receive(&mut bytes).expect("a switch").is_none() {
            end.wait(Duration::from_secs(1)).expect("a switch");
        }
    }
    assert_eq!(number(&bytes), (1, 6));
}

/// Lets a hostile peer do something, and checks that the port is closed for this reason, that
/// others go on, and that an honest peer can connect afterwards.
fn closes(reason: &str, attack: impl FnOnce(&mut End)) {
    let place = Place::new();
    let switch = switch(&place);
    let others = Others::begin(["a", "b"].map(|name| place.guest(name, PLAIN)));
    let mut bad = place.end();
    switch.until_up(CABLE);
    attack(&mut bad);
    until(reason, || {
        switch.closed(CABLE).is_some_and(|why| why.contains(reason))
    });
    until("the end", || !switch.is_up(CABLE));
    drop(bad);
    thread::sleep(Duration::from_millis(20));
    others.end();
    works(&place, &switch);
}

/// Writes an entry and shows it, as no honest sender does.
fn offer(bad: &End, entry: u64) {
    let (memory, layout) = (Arc::clone(bad.memory()), layout());
    let words = layout.words(&memory, INWARD).expect("words");
    let index = words.offered.load();
    let at = layout.places(INWARD).entry(&memory, index);
    memory.store(at, entry.to_le_bytes());
    words.offered.store(index.wrapping_add(1));
    kick(bad);
}

/// Wakes the switch whether or not it asked for that.
fn kick(bad: &End) {
    let words = layout().words(bad.memory(), INWARD).expect("words");
    if words.receiver_asks.replace(1, 0) {
        let _ = bad.stream().write(&[0]);
    }
}

#[test]
fn an_index_that_jumps() {
    for jump in [65, 0x8000, 0xffff] {
        closes("an index jumps", |bad| {
            let words = layout().words(bad.memory(), INWARD).expect("words");
            words.offered.store(words.offered.load().wrapping_add(jump));
            kick(bad);
        });
    }
}

#[test]
fn a_length_beyond_its_buffer() {
    closes("a length beyond its buffer", |bad| offer(bad, 2049 << 32));
}

#[test]
fn a_buffer_that_is_none() {
    closes("a buffer is sent that is none", |bad| {
        offer(bad, 64 | 100 << 32)
    });
}

#[test]
fn a_frame_without_an_end() {
    closes("a frame has no end", |bad| offer(bad, 1 << 16 | 2048 << 32));
}

#[test]
fn a_buffer_that_was_never_sent_comes_back() {
    closes("a buffer comes back that was not sent", |bad| {
        let (memory, layout) = (Arc::clone(bad.memory()), layout());
        let words = layout.words(&memory, 1 - INWARD).expect("words");
        // All at once, so that each one is wrong; the switch looks when its buffers are used up.
        for index in 0..64 {
            let at = layout.places(1 - INWARD).returned(&memory, index);
            memory.store(at, u16::to_le_bytes(63));
        }
        words.returned.store(2);
        until("frames", || words.offered.load() >= 64);
    });
}

#[test]
fn a_storm_of_kicks() {
    closes("it kicks without being asked", |bad| {
        while bad.stream().write_all(&[1; 64]).is_ok() {}
    });
}

#[test]
fn headers_that_lie_are_counted_and_the_port_goes_on() {
    let place = Place::new();
    let switch = switch(&place);
    let others = Others::begin(["a", "b"].map(|name| place.guest(name, PLAIN)));
    let bad = place.end();
    switch.until_up(CABLE);
    let places = layout().places(INWARD);
    for number in 0..40u16 {
        let buffer = places.buffer(bad.memory(), number, 12);
        // Segments without a checksum; segments of a kind that is none; a checksum beyond.
        let header = match number % 3 {
            0 => [0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0],
            1 => [1, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0],
            _ => [1, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0],
        };
        bad.memory().store(buffer, header);
        offer(&bad, u64::from(number) | 100 << 32);
    }
    until("a count", || switch.drops(CABLE, Reason::Malformed) == 40);
    assert!(switch.is_up(CABLE));
    others.end();
    drop(bad);
    works(&place, &switch);
}

#[test]
fn a_peer_that_says_nothing_or_garbage_does_not_keep_others_out() {
    let place = Place::new();
    let switch = switch(&place);
    let others = Others::begin(["a", "b"].map(|name| place.guest(name, PLAIN)));
    let silent = UnixStream::connect(place.at("cable")).expect("it listens");
    let refused = |part: &str| {
        until(part, || {
            switch.closed(CABLE).is_some_and(|why| why.contains(part))
        });
    };
    refused("the peer says nothing");
    drop(silent);
    let mut garbage = UnixStream::connect(place.at("cable")).expect("it listens");
    garbage.write_all(&[0xff; 4096]).expect("sent");
    refused("the peer speaks of something else");
    let mut answer = Vec::new();
    // What it has not read resets the connection.
    let _ = garbage.read_to_end(&mut answer);
    others.end();
    works(&place, &switch);
}

#[test]
fn a_peer_that_writes_while_the_switch_reads_changes_nothing_that_was_checked() {
    let place = Place::new();
    let switch = place.switch(
        "left",
        &["a", "b"],
        "ring = 64\nmacs = [\"02:00:00:00:00:08\"]",
    );
    let mut a = place.guest("a", PLAIN);
    let mut bad = place.end();
    switch.until_up(CABLE);
    let memory = Arc::clone(bad.memory());
    let ends = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ends);
    // The source of each frame is now an honest one, now another.
    let flips = thread::spawn(move || {
        let places = layout().places(INWARD);
        while !asked.load(Ordering::Relaxed) {
            for number in 0..64 {
                let mut source = places.buffer(&memory, number, 24);
                source.skip(18);
                memory.write(source, &mac(9));
                memory.write(source, &mac(8));
            }
        }
    });
    for count in 0..20_000 {
        let bytes = frame(mac(1), mac(8), count, 60);
        until("room", || match bad.send(&bytes, Work::default()) {
            Ok(true) => true,
            Ok(false) => {
                let _ = bad.wait(Duration::from_millis(10));
                false
            }
            Err(ended) => panic!("{ended}"),
        });
        while let Some((_, frame)) = a.receive() {
            assert_eq!(frame[6..12], mac(8));
        }
    }
    ends.store(true, Ordering::Relaxed);
    flips.join().expect("it ended");
    assert!(switch.is_up(CABLE));
}

#[test]
fn a_listener_that_lets_nobody_in_or_offers_nonsense_is_asked_now_and_then() {
    let place = Place::new();
    let listener = std::os::unix::net::UnixListener::bind(place.at("cable")).expect("a socket");
    let switch = place.switch("right", &["a", "b"], "listen = false");
    let others = Others::begin(["a", "b"].map(|name| place.guest(name, PLAIN)));
    let mut count = 0;
    let until_then = Instant::now() + Duration::from_millis(2500);
    listener.set_nonblocking(true).expect("a flag");
    while Instant::now() < until_then {
        if let Ok((mut stream, _)) = listener.accept() {
            count += 1;
            // Something else than an offer.
            let _ = stream.write_all(&[7; 128]);
        }
        thread::sleep(Duration::from_millis(5));
    }
    // 40 ms, 80 ms, … 1 s: six or seven times.
    assert!((3..=8).contains(&count), "asked {count} times");
    let why = switch.closed(CABLE).expect("a reason");
    assert!(why.contains("the peer speaks of something else"), "{why}");
    others.end();
    // It ends at once, whoever listens.
    drop(switch);
    drop(listener);
    let takes = Takes::default();
    assert!(End::connect(&place.at("cable"), takes).is_err());
}
