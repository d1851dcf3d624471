//! An entrance that many have in common: receivers that take nothing end no other one's reception.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
};

use sluicegate_vswitch::{filter::Filter, learning::Membership};

use super::{
    Engine,
    killed::{memfd, successor},
    resumed::{Guest, USED, WRITE, mac},
};
use crate::{count::Drop, offload::HEADER, port::Port, tap::Tap};

/// The port of the interface.
const UPLINK: u16 = 3;
/// Frames that each batch has.
const BATCH: usize = 60;

struct Bench {
    engine: Engine,
    guests: Vec<Guest>,
    /// The kernel's side of the interface.
    far: UnixDatagram,
    now_ns: u64,
}

impl Bench {
    /// Three guests without buffers, of which the switch knows where they are, and an interface.
    fn new(holds_back: bool) -> Self {
        let mut engine = successor(&memfd(0), 4);
        engine.remove(UPLINK);
        let (near, far) = UnixDatagram::pair().expect("sockets");
        near.set_nonblocking(true).expect("a flag");
        far.set_nonblocking(true).expect("a flag");
        let tap = Tap::over(File::from(OwnedFd::from(near)), "up", holds_back);
        let port = Port::Tap(Box::new(tap));
        engine.add(
            UPLINK,
            "up".to_owned(),
            port,
            Membership::default(),
            Filter::default(),
        );
        let guests: Vec<_> = (0..3)
            .map(|number| Guest::new(number, [1024, 64]))
            .collect();
        let mut bench = Self {
            engine,
            guests,
            far,
            now_ns: 1,
        };
        // The switch knows the interface's address before, so that it floods nothing to guests.
        bench.come(UPLINK, 1);
        for guest in &bench.guests {
            guest.connect(&mut bench.engine);
            guest.send(mac(UPLINK), 1);
        }
        bench.poll();
        bench
    }

    fn poll(&mut self) {
        self.now_ns += 1;
        while self.engine.poll(self.now_ns) > 0 {}
    }

    /// Frames come by the interface for a guest; how many the interface's queue took.
    fn come(&mut self, to: u16, count: usize) -> usize {
        let mut taken = 0;
        let frame = [&[0; HEADER][..], &mac(to), &mac(UPLINK), &[8, 0], &[0; 46]].concat();
        for _ in 0..count {
            taken += usize::from(self.far.send(&frame).is_ok());
            self.poll();
        }
        taken
    }

    fn got(&self, guest: usize) -> u16 {
        let memory = &self.guests[guest].memory;
        let used = memory.word(self.guests[guest].at(USED + 2, 2));
        used.expect("aligned").load()
    }

    fn drops(&mut self, guest: u16, reason: Drop) -> u64 {
        let bay = self.engine.bay_mut(guest).expect("a port");
        bay.counters.drops[reason as usize]
    }
}

#[test]
fn receivers_that_take_nothing_have_a_share_of_an_interface() {
    let mut bench = Bench::new(false);
    bench.guests[0].offer(0, BATCH as u32, 4096, WRITE);
    let entries = usize::from(Tap::HELD_MAX);
    for stalled in [1, 2] {
        assert_eq!(
            bench.come(stalled, 2 * entries),
            2 * entries,
            "all are read"
        );
    }
    let waits = |bench: &Bench, of: u16| bench.engine.waiting(of).0[0].1;
    let waiting = [waits(&bench, 1), waits(&bench, 2)];
    // Of the seven eighths that they have in common, half, and half of the rest.
    assert!(waiting[0] >= entries * 7 / 16 - 1 && waiting[1] >= entries * 7 / 32 - 1);
    assert!(waiting.iter().sum::<usize>() < entries);
    for (guest, waiting) in [1, 2].into_iter().zip(waiting) {
        let dropped = bench.drops(guest, Drop::Share);
        assert_eq!(dropped as usize, 2 * entries - waiting);
    }
    assert_eq!(bench.come(0, BATCH), BATCH);
    assert_eq!(usize::from(bench.got(0)), BATCH);
    // They go on, and get what waited and what comes.
    bench.guests[1].offer(0, 1000, 4096, WRITE);
    bench.poll();
    assert_eq!(usize::from(bench.got(1)), waiting[0]);
    bench.come(1, BATCH);
    assert_eq!(usize::from(bench.got(1)), waiting[0] + BATCH);
    assert_eq!(bench.drops(0, Drop::Share), 0);
}

/// An entrance that holds back is full for all, until its receiver has taken nothing for too long.
#[test]
fn a_receiver_that_takes_nothing_for_too_long_holds_nobody_up() {
    const LIMIT_NS: u64 = 1_000_000;
    let mut bench = Bench::new(true);
    bench.engine.choice.stall_limit_ns = Some(LIMIT_NS);
    bench.guests[0].offer(0, BATCH as u32, 4096, WRITE);
    bench.come(1, usize::from(Tap::HELD_MAX));
    assert_eq!(bench.come(0, 1), 1, "it is in the interface's queue");
    assert_eq!(bench.got(0), 0);
    bench.now_ns += LIMIT_NS;
    bench.poll();
    assert_eq!(bench.got(0), 1);
    assert_eq!(bench.drops(1, Drop::Stalled), u64::from(Tap::HELD_MAX));
    // What comes until it takes frames again goes the same way, at once.
    for _ in 0..3 {
        bench.come(1, BATCH);
    }
    let lost = u64::from(Tap::HELD_MAX) + 3 * BATCH as u64;
    assert_eq!(bench.drops(1, Drop::Stalled), lost);
    assert_eq!(bench.come(0, BATCH - 1), BATCH - 1);
    assert_eq!(usize::from(bench.got(0)), BATCH);
    // It takes frames again, and loses no more.
    bench.guests[1].offer(0, BATCH as u32, 4096, WRITE);
    bench.poll();
    bench.come(1, BATCH);
    assert_eq!(usize::from(bench.got(1)), BATCH);
    assert_eq!(bench.drops(1, Drop::Stalled), lost);
    assert_eq!(bench.engine.held(), 0);
}

#[test]
fn what_is_for_a_neighbour_and_what_nobody_sent_goes_nowhere() {
    let mut bench = Bench::new(false);
    for guest in &bench.guests {
        guest.offer(0, BATCH as u32, 4096, WRITE);
    }
    for last in 0..16 {
        bench.guests[0].send([1, 0x80, 0xc2, 0, 0, last], u32::from(last) + 2);
        bench.poll();
        let frame = [
            &[0; HEADER][..],
            &[1, 0x80, 0xc2, 0, 0, last],
            &mac(UPLINK),
            &[0x88, 0xcc],
            &[0; 46],
        ];
        bench.far.send(&frame.concat()).expect("room");
        bench.poll();
    }
    let to_far = std::iter::from_fn(|| bench.far.recv(&mut [0; 2048]).ok());
    // Of each guest the first frame.
    assert_eq!(to_far.count(), 3);
    assert_eq!([0, 1, 2].map(|guest| bench.got(guest)), [0; 3]);
    for port in [0, UPLINK] {
        assert_eq!(bench.drops(port, Drop::Reserved), 15);
        assert_eq!(bench.drops(port, Drop::Control), 1);
    }
    for source in [[0; 6], [1, 0, 0x5e, 0, 0, 1]] {
        let frame = [&[0; HEADER][..], &[0xff; 6], &source, &[8, 0], &[0; 46]].concat();
        bench.far.send(&frame).expect("room");
        bench.poll();
    }
    assert_eq!(bench.drops(UPLINK, Drop::Malformed), 2);
    assert_eq!([0, 1, 2].map(|guest| bench.got(guest)), [0; 3]);
    let known: Vec<_> = bench.engine.learning().addresses().collect();
    assert!(known.iter().all(|it| it.1[0] == 2), "{known:?}");
}
