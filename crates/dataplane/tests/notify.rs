//! Descriptors by which a frontend and the switch notify each other: none of them makes the thread
//! of a port wait, and a ring that has none is polled.

#![allow(unsafe_code)] // descriptors as what they are not

use std::{
    fs::File,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use common::{Bench, Guest, PLAIN, frame, introduce, mac, others::Others, until};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{read, write},
    pipe::pipe,
};
use vhost::VhostBackend;
use vmm_sys_util::eventfd::EventFd;

use crate::common;

/// What the messages of a frontend take for an eventfd.
fn as_event(descriptor: impl Into<OwnedFd>) -> EventFd {
    // SAFETY: the descriptor is open, and nobody else has it.
    unsafe { EventFd::from_raw_fd(descriptor.into().into_raw_fd()) }
}

fn borrow(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: it stays open as long as `event` lives.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

fn wait_in(event: &EventFd) {
    let flags = fcntl_getfl(borrow(event)).expect("flags");
    fcntl_setfl(borrow(event), flags - OFlags::NONBLOCK).expect("flags");
}

/// Sends the message by which a ring starts that has no kick (vhost-user,
/// `VHOST_USER_SET_VRING_KICK`: bit 8), which the frontend of the tests does not know.
fn start_without_kick(guest: &mut Guest, ring: u8) {
    let message = [
        [12, 1, 8].map(u32::to_le_bytes).concat(),
        vec![ring, 1, 0, 0, 0, 0, 0, 0],
    ];
    // SAFETY: the connection stays open as long as `guest` lives.
    let socket = unsafe { BorrowedFd::borrow_raw(guest.frontend.as_raw_fd()) };
    assert_eq!(write(socket, &message.concat()), Ok(20));
    guest.frontend.get_features().expect("it was heard");
}

/// Others go on while a port is called whose calls nobody reads. They flood frames to it as well.
fn others_go_on(prepare: impl FnOnce(&mut Guest)) {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("bad", "")]);
    let honest = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    let mut bad = bench.guest("bad", PLAIN);
    prepare(&mut bad);
    let others = Others::begin(honest);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        while bad.receive().is_some() {}
        thread::sleep(Duration::from_millis(1));
    }
    others.end();
}

#[test]
fn a_full_eventfd_that_would_wait_stops_nobody() {
    others_go_on(|bad| {
        for ring in [&bad.receive, &bad.transmit] {
            let _ = ring.call.read();
            ring.call.write(u64::MAX - 1).expect("room");
            wait_in(&ring.call);
        }
    });
}

#[test]
fn a_full_pipe_that_would_wait_stops_nobody() {
    let (_reader, writer) = pipe().expect("a pipe");
    others_go_on(|bad| {
        write(&writer, &[0; 65_536]).expect("room");
        let call = as_event(writer);
        bad.frontend.set_vring_call(0, &call).expect("a call");
        bad.frontend.get_features().expect("it was heard");
        bad.receive.call = call;
    });
}

/// As User-Mode Linux is called.
#[test]
fn a_driver_is_called_through_a_pipe() {
    let bench = Bench::new("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let (reader, writer) = pipe().expect("a pipe");
    let call = as_event(writer);
    b.frontend.set_vring_call(0, &call).expect("a call");
    b.frontend.get_features().expect("it was heard");
    // A pipe is read until the call is there: the test hangs without one.
    for number in 0..100 {
        assert!(a.send(&frame(mac(2), mac(1), number, 60)));
        let mut calls = [0; 4096];
        assert!(read(&reader, &mut calls).expect("a call") >= 8);
        until("the frame", || b.receive().is_some());
    }
}

#[test]
fn other_descriptors_are_refused() {
    const REASON: &str = "through what is no eventfd";
    let descriptors = || {
        let null = File::open("/dev/null").expect("it");
        let (reader, _) = pipe().expect("a pipe");
        [as_event(null), as_event(reader)]
    };
    let refused = |bench: &Bench| {
        until("a reason", || {
            let closed =
                bench.ask(|worker| worker.engine.bay_mut(0).and_then(|bay| bay.closed.clone()));
            closed.is_some_and(|reason| reason.contains(REASON))
        });
    };
    for is_kick in [false, true] {
        let bench = Bench::new("", &[("bad", "")]);
        let bad = bench.guest("bad", PLAIN);
        let [null, pipe] = descriptors();
        // The message asks for no answer, or the answer is that it is refused.
        let _ = match is_kick {
            false => bad.frontend.set_vring_call(0, &null),
            true => bad.frontend.set_vring_kick(0, &pipe),
        };
        refused(&bench);
    }
}

/// A switch that slept would find the frame at its next housekeeping, every 100 ms.
#[test]
fn a_ring_without_a_kick_is_polled() {
    let bench = Bench::new("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    until("a ring of its own", || {
        a.room() == usize::from(common::SIZE)
    });
    start_without_kick(&mut a, 1);
    let mut delays: Vec<Duration> = (0..15)
        .map(|number| {
            thread::sleep(Duration::from_millis(15));
            let sent = Instant::now();
            a.send_quietly(&frame(mac(2), mac(1), number, 60));
            until("it came", || b.receive().is_some());
            sent.elapsed()
        })
        .collect();
    delays.sort();
    assert!(delays[7] < Duration::from_millis(10), "{delays:?}");
}
