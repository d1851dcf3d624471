//! A sender, a receiver and the link between them: nothing is lost whatever their frames, delays
//! and pauses, as long as the delays are within what the headroom was computed for.

use std::{cmp::Reverse, collections::BinaryHeap};

use proptest::prelude::*;
use sluicegate_pfc::{
    CONTROL_BYTES, Demand, Gate, PfcFrame, Span, Thresholds, frame::FRAME_BYTES, headroom::Cells,
};

/// One byte takes one ns.
const RATE_BPS: u64 = 8_000_000_000;
const FRAME_BYTES_MAX: u64 = 1518;
const LOSSLESS: u8 = 3;
const LOSSY: u8 = 5;

/// A receiver that takes everything: so many frames at once, so often.
const END: usize = 100;
const END_NS: u64 = 3_000;

/// Far more than any case has.
const EVENTS_MAX: u64 = 1_000_000;

#[derive(Clone, Debug)]
struct Case {
    delay_ns: u64,
    response_ns: u64,
    /// Bytes of a cell; 1 = no cells.
    cell_bytes: u32,
    /// Frames: bytes, and whether of the lossy priority.
    frames: Vec<(u64, bool)>,
    /// The receiver takes nothing for a time, and then so many frames.
    turns: Vec<(u64, usize)>,
    /// By pause frame: it waits so long for the frame before it, and is obeyed so late.
    late: Vec<(u64, u64)>,
}

fn case() -> impl Strategy<Value = Case> {
    let size = prop_oneof![Just(64), Just(FRAME_BYTES_MAX), 64..=FRAME_BYTES_MAX];
    (0..20_000u64, 0..5_000u64, any::<bool>(), any::<bool>()).prop_flat_map(
        move |(delay_ns, response_ns, has_cells, is_late)| {
            let least = if is_late {
                (FRAME_BYTES_MAX, response_ns)
            } else {
                (0, 0)
            };
            (
                prop::collection::vec((size.clone(), prop::bool::weighted(0.2)), 100..600),
                prop::collection::vec((0..60_000u64, 0..60usize), 1..30),
                prop::collection::vec((least.0..=FRAME_BYTES_MAX, least.1..=response_ns), 1..20),
            )
                .prop_map(move |(frames, turns, late)| Case {
                    delay_ns,
                    response_ns,
                    cell_bytes: if has_cells { 2048 } else { 1 },
                    frames,
                    turns,
                    late,
                })
        },
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The sender's output is free, or a pause may have ended.
    Send,
    /// A frame has come.
    Arrive { bytes: u64, is_lossy: bool },
    /// A frame of PFC is obeyed.
    Obey([u8; FRAME_BYTES]),
    /// The receiver takes frames.
    Drain(usize),
    /// A pause is to be repeated.
    Repeat,
}

struct World {
    case: Case,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    gate: Gate,
    demand: Demand,
    cells: Cells,
    free_ns: u64,
    /// Frames that were not sent: lossless ones and lossy ones.
    left: [Vec<u64>; 2],
    held: std::collections::VecDeque<u64>,
    /// When the reverse direction is free, and how many pauses it had.
    back: (u64, usize),
    lossy_while_paused: usize,
    pauses: u64,
    /// Lossless frames: all, and those that the receiver has taken.
    lossless: usize,
    taken: usize,
}

impl World {
    fn new(case: Case, thresholds: Thresholds) -> Self {
        let of = |is: bool| {
            let frames = case.frames.iter().rev().filter(move |frame| frame.1 == is);
            frames.map(|frame| frame.0).collect::<Vec<_>>()
        };
        Self {
            gate: Gate::new(RATE_BPS, 1 << LOSSLESS),
            demand: Demand::new(RATE_BPS, 1 << LOSSLESS, thresholds),
            cells: cells(&case),
            events: BinaryHeap::new(),
            number: 0,
            free_ns: 0,
            left: [of(false), of(true)],
            held: Default::default(),
            back: (0, 0),
            lossy_while_paused: 0,
            pauses: 0,
            lossless: case.frames.iter().filter(|frame| !frame.1).count(),
            taken: 0,
            case,
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at_ns, self.number, event)));
    }

    fn send(&mut self, now_ns: u64) {
        if now_ns < self.free_ns {
            return;
        }
        let is_paused = self.gate.expire(now_ns) >> LOSSLESS & 1 != 0;
        assert_eq!(self.gate.paused() >> LOSSY & 1, 0);
        let is_lossy = is_paused || self.left[0].is_empty();
        let Some(bytes) = self.left[usize::from(is_lossy)].pop() else {
            if let Some(next_ns) = self.gate.next_ns() {
                self.at(next_ns, Event::Send);
            }
            return;
        };
        self.lossy_while_paused += usize::from(is_paused);
        self.free_ns = now_ns + bytes;
        let arrives_ns = self.free_ns + self.case.delay_ns;
        self.at(arrives_ns, Event::Arrive { bytes, is_lossy });
        self.at(self.free_ns, Event::Send);
    }

    fn ask(&mut self, now_ns: u64) {
        let Some(frame) = self.demand.due(now_ns) else {
            return;
        };
        let (waits_ns, obeys_ns) = self.case.late[self.back.1 % self.case.late.len()];
        // Pauses come in their order, and behind one frame at most.
        let begins_ns = (now_ns + waits_ns).max(self.back.0);
        let ends_ns = begins_ns + u64::from(CONTROL_BYTES);
        self.back = (ends_ns, self.back.1 + 1);
        self.demand.sent(now_ns);
        self.pauses += u64::from(frame.quanta[usize::from(LOSSLESS)] > 0);
        let obeyed_ns = ends_ns + self.case.delay_ns + obeys_ns;
        self.at(obeyed_ns, Event::Obey(frame.bytes([2; 6])));
        if let Some(next_ns) = self.demand.next_ns() {
            self.at(next_ns, Event::Repeat);
        }
    }

    fn in_cells(&self, bytes: u64) -> u64 {
        self.cells.of(bytes as u32) * u64::from(self.cells.cell_bytes)
    }

    /// Runs until nothing happens; the most bytes that the lossless priority has held.
    fn run(&mut self) -> u64 {
        self.at(0, Event::Send);
        let mut at_ns = 0;
        for (pause_ns, count) in self.case.turns.clone() {
            at_ns += pause_ns;
            self.at(at_ns, Event::Drain(count));
        }
        // In the end everything is taken.
        self.at(at_ns + END_NS, Event::Drain(END));
        while let Some(Reverse((now_ns, _, event))) = self.events.pop() {
            assert!(self.number < EVENTS_MAX, "it goes on for ever");
            match event {
                Event::Send => self.send(now_ns),
                Event::Arrive { is_lossy: true, .. } => {}
                Event::Arrive { bytes, .. } => {
                    self.demand.take(LOSSLESS, self.in_cells(bytes));
                    self.held.push_back(bytes);
                }
                Event::Obey(bytes) => {
                    self.gate
                        .hear(&PfcFrame::parse(&bytes).expect("a frame"), now_ns);
                    self.send(now_ns);
                }
                Event::Drain(count) => {
                    for _ in 0..count.min(self.held.len()) {
                        let bytes = self.held.pop_front().expect("a frame");
                        self.demand.give_back(LOSSLESS, self.in_cells(bytes));
                        self.taken += 1;
                    }
                    if count == END && self.taken < self.lossless {
                        self.at(now_ns + END_NS, event);
                    }
                }
                Event::Repeat => {}
            }
            self.ask(now_ns);
        }
        self.demand.most_bytes()
    }
}

fn cells(case: &Case) -> Cells {
    Cells {
        cell_bytes: case.cell_bytes,
        header_bytes: if case.cell_bytes == 1 { 0 } else { 12 },
        least_bytes: 64,
    }
}

fn headroom_bytes(case: &Case) -> u64 {
    let span = Span {
        rate_bps: RATE_BPS,
        there_ps: case.delay_ns * 1000,
        back_ps: case.delay_ns * 1000,
        frame_bytes: FRAME_BYTES_MAX as u32,
    };
    match case.cell_bytes {
        1 => span.headroom_bytes(false, case.response_ns * 1000),
        _ => span.headroom_cell_bytes(case.response_ns * 1000, cells(case)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_buffer_of_xoff_and_headroom_loses_nothing(case in case()) {
        let thresholds = Thresholds { xoff_bytes: 40_000, xon_bytes: 30_000 };
        let room = thresholds.xoff_bytes + headroom_bytes(&case);
        let mut world = World::new(case, thresholds);
        let most = world.run();
        prop_assert!(most <= room, "{most} bytes of {room}");
        // Everything has come, and nothing is paused for ever.
        prop_assert!(world.left.iter().all(Vec::is_empty) && world.held.is_empty());
        prop_assert_eq!((world.demand.asked(), world.gate.paused()), (0, 0));
    }
}

#[test]
fn headroom_is_used_and_lossy_frames_pass() {
    let case = Case {
        delay_ns: 10_000,
        response_ns: 2_000,
        cell_bytes: 1,
        frames: [(FRAME_BYTES_MAX, false); 100]
            .into_iter()
            .chain([(64, true); 50])
            .collect(),
        turns: vec![(1_000_000, 0)],
        late: vec![(FRAME_BYTES_MAX, 2_000)],
    };
    // XOFF is passed by the last byte of the frame that passes it.
    let thresholds = Thresholds {
        xoff_bytes: 10 * FRAME_BYTES_MAX - 1,
        xon_bytes: 1,
    };
    let headroom = headroom_bytes(&case);
    let mut world = World::new(case, thresholds);
    let most = world.run();
    assert!(most <= thresholds.xoff_bytes + headroom);
    assert!(
        most > thresholds.xoff_bytes + headroom - 2 * FRAME_BYTES_MAX,
        "{most} of {headroom}"
    );
    assert!(world.pauses > 0 && world.lossy_while_paused == 50);
}

proptest! {
    /// Whatever bytes come, reading them neither fails nor says more than they do.
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(frame) = PfcFrame::parse(&bytes) {
            prop_assert_eq!(&frame.bytes([0; 6])[12..34], &bytes[12..34]);
        }
    }

    #[test]
    fn frames_are_read_as_they_were_written(enabled: u8, quanta: [u16; 8], source: [u8; 6]) {
        let frame = PfcFrame { enabled, quanta };
        prop_assert_eq!(PfcFrame::parse(&frame.bytes(source)), Ok(frame));
    }
}
