//! Both halves against a model of a queue, and against a peer that writes anything.

use std::{collections::VecDeque, sync::Arc};

use proptest::prelude::*;

use super::*;

/// Small, so that rings are full and indices wrap.
const LAYOUT: Layout = Layout {
    slots: 8,
    buffer: 512,
};

struct Both {
    memory: Arc<Memory>,
    sender: Sender,
    receiver: Receiver,
}

impl Both {
    /// Their indices begin just before they wrap.
    fn new() -> Self {
        let file = LAYOUT.make().expect("a file");
        let memory = LAYOUT.map(&file).expect("a memory");
        let words = LAYOUT.words(&memory, 0).expect("words");
        let base = 0xffff - 20;
        words.offered.store(base);
        words.returned.store(base);
        let sends = SenderState {
            offered: base,
            returned: base,
            away: Vec::new(),
        };
        let receives = ReceiverState {
            offered: base,
            returned: base,
            held: Vec::new(),
        };
        Self {
            sender: Sender::new(&memory, LAYOUT, 0, &sends).expect("a sender"),
            receiver: Receiver::new(&memory, LAYOUT, 0, &receives).expect("a receiver"),
            memory,
        }
    }

    fn send(&mut self, bytes: &[u8], work: Work) -> Delivery {
        let memory = Memory::default();
        let frame = Outgoing::whole(bytes, work, &memory);
        let sent = self.sender.put(&self.memory, &frame);
        self.sender.show();
        sent.expect("an honest receiver")
    }

    /// Both go on in another process.
    fn move_on(&mut self) {
        let (sends, receives) = (self.sender.state(), self.receiver.state());
        let held = receives.held.clone();
        self.sender = Sender::new(&self.memory, LAYOUT, 0, &sends).expect("a sender");
        let receives = ReceiverState {
            held: Vec::new(),
            ..receives
        };
        self.receiver = Receiver::new(&self.memory, LAYOUT, 0, &receives).expect("a receiver");
        // The frames that are held stay so here, beside the ring.
        for number in held {
            self.receiver.held[usize::from(number)] = LAST;
        }
    }
}

fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; bytes];
    frame[..4].copy_from_slice(&number.to_le_bytes());
    frame
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Take,
    /// One of the frames that are held.
    Release(usize),
    MoveOn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![14..500usize, 14..4000usize].prop_map(Step::Send),
        4 => Just(Step::Take),
        4 => any::<usize>().prop_map(Step::Release),
        1 => Just(Step::MoveOn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn frames_come_once_in_order_and_whole(steps in prop::collection::vec(step(), 0..200)) {
        let mut both = Both::new();
        let mut queue = VecDeque::new();
        let (mut number, mut slots) = (0, 0);
        // Tokens with the bytes of their frames and their slots.
        let mut held: Vec<(u16, Vec<u8>, usize)> = Vec::new();
        let mut taken = Frame::default();
        for step in steps {
            match step {
                Step::Send(bytes) => {
                    let wanted = (HEADER + bytes).div_ceil(512);
                    let expected = match slots + wanted <= 8 {
                        true => Delivery::Done,
                        false if wanted > 8 => Delivery::TooLong,
                        false => Delivery::NoRoom,
                    };
                    let bytes = frame(number, bytes);
                    prop_assert_eq!(both.send(&bytes, Work::default()), expected);
                    if expected == Delivery::Done {
                        number += 1;
                        slots += wanted;
                        queue.push_back((bytes, wanted));
                    }
                }
                Step::Take => {
                    let intake = both.receiver.take(&both.memory, &mut taken);
                    let intake = intake.expect("an honest sender");
                    let Some((bytes, wanted)) = queue.pop_front() else {
                        prop_assert_eq!(intake, Intake::Empty);
                        continue;
                    };
                    prop_assert_eq!(intake, Intake::Frame);
                    prop_assert_eq!(&taken.whole(&both.memory), &bytes);
                    held.push((taken.token.expect("a token"), bytes, wanted));
                }
                Step::Release(which) if !held.is_empty() => {
                    let (token, _, wanted) = held.swap_remove(which % held.len());
                    both.receiver.release(&both.memory, token);
                    both.receiver.show();
                    slots -= wanted;
                }
                Step::Release(_) => {}
                // What is held would be copied out.
                Step::MoveOn if held.iter().all(|(.., slots)| *slots == 1) => both.move_on(),
                Step::MoveOn => {}
            }
            both.sender.collect(&both.memory).expect("an honest receiver");
            prop_assert_eq!(both.sender.unread() as usize, queue.len() + held.len());
        }
    }

    /// Whatever is in the memory, each half works or says what is wrong; what it says of a frame is
    /// within its bounds.
    #[test]
    fn a_peer_may_write_anything(
        writes in prop::collection::vec((0..2u8, any::<u16>(), any::<u64>(), 0..4u8), 1..60)
    ) {
        let mut both = Both::new();
        let words = LAYOUT.words(&both.memory, 0).expect("words");
        let places = LAYOUT.places(0);
        let mut taken = Frame::default();
        for (kind, index, value, small) in writes {
            // Mostly values that are almost right.
            let number = if small > 0 { value % 9 } else { value & 0xffff };
            let length = if small > 1 { value >> 32 & 0x3ff } else { value >> 32 };
            let entry = number | (value & 0x1_0000) | length << 32;
            if kind == 0 {
                let at = places.entry(&both.memory, both.receiver.offered.next());
                both.memory.store(at, entry.to_le_bytes());
                let ahead = if small > 0 { 1 } else { index };
                words.offered.store(both.receiver.offered.next().wrapping_add(ahead));
                match both.receiver.take(&both.memory, &mut taken) {
                    Ok(Intake::Frame) => {
                        prop_assert!(taken.whole(&both.memory).len() == taken.bytes as usize);
                        prop_assert!(taken.bytes <= 8 * 512);
                        both.receiver.release(&both.memory, taken.token.expect("a token"));
                    }
                    Ok(_) => {}
                    // Such a port is closed.
                    Err(_) => both = Both::new(),
                }
            } else {
                let sent = both.send(&frame(1, 100), Work::default());
                prop_assert!(sent == Delivery::Done || sent == Delivery::NoRoom);
                let at = places.returned(&both.memory, both.sender.returned.next());
                both.memory.store(at, (number as u16).to_le_bytes());
                let ahead = if small > 0 { 1 } else { index };
                words.returned.store(both.sender.returned.next().wrapping_add(ahead));
                if both.sender.collect(&both.memory).is_err() {
                    both = Both::new();
                }
            }
        }
    }
}

#[test]
fn the_work_of_a_sender_goes_with_its_frame() {
    let mut both = Both::new();
    let work = Work {
        checksum: Some((34, 16)),
        segment: Some((crate::offload::Family::Tcp4, 1448, true)),
    };
    assert_eq!(both.send(&frame(7, 3000), work), Delivery::Done);
    let mut taken = Frame::default();
    let intake = both.receiver.take(&both.memory, &mut taken);
    assert_eq!(intake.map_err(|broken| broken.0), Ok(Intake::Frame));
    assert_eq!((taken.work, taken.bytes), (work, 3000));
}

/// Writes an entry as a hostile sender, and says what the receiver makes of it.
fn entry(entries: &[(u16, u16, u32)]) -> Result<Intake, &'static str> {
    let mut both = Both::new();
    let words = LAYOUT.words(&both.memory, 0).expect("words");
    let mut index = both.receiver.offered.next();
    for &(number, flags, used) in entries {
        let entry = u64::from(number) | u64::from(flags) << 16 | u64::from(used) << 32;
        let at = LAYOUT.places(0).entry(&both.memory, index);
        both.memory.store(at, entry.to_le_bytes());
        index = index.wrapping_add(1);
    }
    words.offered.store(index);
    let mut taken = Frame::default();
    let mut last = Intake::Empty;
    loop {
        match both.receiver.take(&both.memory, &mut taken) {
            Ok(Intake::Empty) => return Ok(last),
            Ok(intake) => last = intake,
            Err(broken) => return Err(broken.0),
        }
    }
}

#[test]
fn entries_that_lie_are_refused() {
    assert_eq!(entry(&[(3, 0, 100)]), Ok(Intake::Frame));
    assert_eq!(entry(&[(3, 1, 512), (2, 0, 1)]), Ok(Intake::Frame));
    assert_eq!(entry(&[(3, 0, 25)]), Ok(Intake::Malformed));
    assert_eq!(entry(&[(3, 0, 3)]), Ok(Intake::Malformed));
    let other = Err("a buffer is sent that is none, or is here already");
    assert_eq!(entry(&[(8, 0, 100)]), other);
    assert_eq!(entry(&[(0xffff, 0, 100)]), other);
    assert_eq!(entry(&[(3, 0, 100), (3, 0, 100)]), other);
    assert_eq!(entry(&[(3, 1, 512), (3, 0, 100)]), other);
    let short = Err("a frame goes on behind a buffer that is not full");
    assert_eq!(entry(&[(3, 1, 100), (4, 0, 100)]), short);
    let length = Err("a length beyond its buffer");
    assert_eq!(entry(&[(3, 0, 513)]), length);
    assert_eq!(entry(&[(3, 0, 0)]), length);
    assert_eq!(entry(&[(3, 0, u32::MAX)]), length);
    assert_eq!(entry(&[(3, 1, 512)]), Err("a frame has no end"));
}

#[test]
fn a_buffer_that_comes_back_must_have_been_sent() {
    for number in [3, 8, 0xffff] {
        let mut both = Both::new();
        assert_eq!(both.send(&frame(0, 60), Work::default()), Delivery::Done);
        let words = LAYOUT.words(&both.memory, 0).expect("words");
        let index = both.sender.returned.next();
        let at = LAYOUT.places(0).returned(&both.memory, index);
        both.memory.store(at, u16::to_le_bytes(number));
        words.returned.store(index.wrapping_add(1));
        let broken = both
            .sender
            .collect(&both.memory)
            .expect_err("it is refused");
        assert_eq!(broken.0, "a buffer comes back that was not sent");
    }
}

#[test]
fn what_another_process_held_comes_back_first() {
    let mut both = Both::new();
    let mut taken = Frame::default();
    for number in 0..3 {
        assert_eq!(
            both.send(&frame(number, 700), Work::default()),
            Delivery::Done
        );
        let intake = both.receiver.take(&both.memory, &mut taken);
        assert_eq!(intake.map_err(|broken| broken.0), Ok(Intake::Frame));
    }
    assert_eq!(both.sender.unread(), 3);
    let state = both.receiver.state();
    assert_eq!(state.held.len(), 6);
    both.receiver = Receiver::new(&both.memory, LAYOUT, 0, &state).expect("a receiver");
    assert_eq!(
        both.sender.collect(&both.memory).map_err(|it| it.0),
        Ok(false)
    );
    both.receiver.show();
    assert_eq!(
        both.sender.collect(&both.memory).map_err(|it| it.0),
        Ok(true)
    );
    assert_eq!(both.sender.unread(), 0);
}
