//! The rings of a port, in the hands of the worker.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use super::{
    Change, PAIRS_MAX, Setup, feature,
    queue::{Hold, Queue},
};
use crate::{
    fill::Filler,
    frame::{FRAME_MAX, FRAME_MIN, Frame},
    ledger::{ALL_PARTS, PortRecord, fingerprint},
    memory::{Log, Memory, Piece, Refused},
    offload::{HEADER, Takes, Work},
    port::{Delivery, Intake, Outgoing},
    ring::{Broken, Ring, Seen},
};

/// Length of the header before a frame of a driver that knows neither Virtio 1 nor buffers that
/// merge: without `num_buffers`.
const LEGACY_HEADER: usize = 10;

/// A frame takes at most so many receive buffers, and about as many descriptors of them are read:
/// a guest whose buffers are long chains of short pieces takes no time from others.
const BUFFERS_MAX: usize = 1024;

/// Bytes that are copied in the time in which a descriptor is read.
const DESCRIPTOR: u32 = 256;

/// The rings of a port: 2n is the receive ring of queue pair n, 2n + 1 its transmit ring, as the
/// guest names them.
#[derive(Debug)]
pub struct Device {
    features: u64,
    memory: Arc<Memory>,
    queues: Vec<Option<Queue>>,
    enabled: [bool; 2 * PAIRS_MAX],
    /// The pair whose turn it is to send, by its place in `pairs`.
    turn: usize,
    /// The pairs that have both rings.
    pairs: Vec<usize>,
    /// No ring has this number or a higher one.
    used: usize,
    heads: Vec<(u16, u32)>,
    pieces: Vec<Piece>,
    /// Descriptors of chains that were read; see [`Device::descriptors`].
    read: u32,
    record: Option<PortRecord>,
    /// The log of a migration.
    log: Option<Arc<Log>>,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            features: 0,
            memory: Arc::default(),
            queues: (0..2 * PAIRS_MAX).map(|_| None).collect(),
            enabled: [false; 2 * PAIRS_MAX],
            turn: 0,
            pairs: Vec::new(),
            used: 0,
            heads: Vec::new(),
            pieces: Vec::new(),
            read: 0,
            record: None,
            log: None,
        }
    }
}

fn transmit(pair: usize) -> usize {
    2 * pair + 1
}

fn receive(pair: usize) -> usize {
    2 * pair
}

impl Device {
    /// With a record from which a successor goes on, and its features if a predecessor had a guest.
    pub fn new(record: Option<PortRecord>) -> Self {
        let was_up = record.as_ref().and_then(PortRecord::was_up);
        Self {
            features: was_up.map_or(0, |(_, features)| features),
            record,
            ..Self::default()
        }
    }

    /// Its guest has broken the rules.
    pub fn reset(&mut self) {
        (0..self.queues.len()).for_each(|index| drop(self.end(index)));
        self.leave();
    }

    /// Its guest has gone. If it comes back without having stopped its rings, they go on where they
    /// were left.
    fn leave(&mut self) {
        let record = self.record.take();
        *self = Self {
            record,
            ..Self::default()
        };
    }

    /// Queue pairs that the guest uses.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Whether a ring has been started.
    pub fn has_rings(&self) -> bool {
        self.used > 0
    }

    /// Queue pairs that the guest of a predecessor used; those of this guest are recorded instead.
    pub fn pairs_before(&self) -> usize {
        let was_up = self.record.as_ref().and_then(PortRecord::was_up);
        was_up.map_or(0, |(pairs, _)| pairs)
    }

    /// Records how many queue pairs the guest uses.
    pub fn record_pairs(&self) {
        if let Some(record) = &self.record {
            record.set_up(self.pairs.len(), self.features);
        }
    }

    /// Prepares in the record what its rings are now. Whether anything changed.
    #[inline]
    pub fn prepare(&mut self) -> bool {
        let queues = self.queues[..self.used].iter_mut().flatten();
        queues.fold(false, |changed, queue| queue.prepare() | changed)
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Whether the guest sends and receives.
    pub fn is_up(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// The work of reading chains of descriptors since this was asked before, as many bytes as are
    /// copied in that time.
    #[inline]
    pub fn descriptors(&mut self) -> u32 {
        DESCRIPTOR * std::mem::take(&mut self.read)
    }

    /// Negotiated features.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// What its driver takes.
    pub fn takes(&self) -> Takes {
        let has = |feature| self.features & feature != 0;
        Takes {
            checksum: has(feature::GUEST_CHECKSUM),
            tcp4: has(feature::GUEST_TSO4),
            tcp6: has(feature::GUEST_TSO6),
            ecn: has(feature::GUEST_ECN),
        }
    }

    fn is_mergeable(&self) -> bool {
        self.features & feature::MERGEABLE != 0
    }

    fn header_bytes(&self) -> usize {
        if self.features & (feature::MERGEABLE | feature::VERSION_1) != 0 {
            HEADER
        } else {
            LEGACY_HEADER
        }
    }

    /// Applies a change. The caller has copied out all frames of this port before its memory
    /// changes and before a ring stops. Returns the next entry of a ring that stops.
    ///
    /// # Errors
    /// A ring that is not in the guest's memory, or malformed.
    pub fn apply(&mut self, change: Change) -> Result<u16, Refused> {
        let mut base = 0;
        match change {
            Change::Features(features) => self.features = features,
            Change::Memory(memory) => self.change_memory(memory)?,
            Change::Start(index, setup) => self.start(index, setup)?,
            Change::Stop(index) => {
                base = self.end(index).map_or(0, |queue| queue.ring.base());
            }
            Change::Enable(index, enabled) => self.enabled[index] = enabled,
            Change::Call(index, call) => {
                if let Some(queue) = &mut self.queues[index] {
                    queue.call = call;
                }
            }
            Change::Log(log) => self.log = Some(log),
            Change::LogRing(index, log) => {
                if let Some(queue) = &mut self.queues[index] {
                    queue.log = log;
                    queue.mark(self.log.as_deref());
                }
            }
            Change::Plug(_) => return Err(Refused("the port has no cable".to_owned())),
            Change::Gone(_) => self.leave(),
        }
        self.update_pairs();
        Ok(base)
    }

    fn end(&mut self, index: usize) -> Option<Queue> {
        let queue = self.queues[index].take()?;
        if let Some(record) = &queue.record {
            record.end();
        }
        Some(queue)
    }

    /// Starts a ring where the frontend says, or where a predecessor of this process left it.
    fn start(&mut self, index: usize, setup: Setup) -> Result<(), Refused> {
        let event_index = self.features & feature::EVENT_INDEX != 0;
        let Setup {
            size,
            at,
            log,
            base,
            kick,
            call,
        } = setup;
        let ring = Ring::new(&self.memory, size, at, base, event_index)?;
        let is_in_order = self.features & feature::IN_ORDER != 0 && index % 2 == 1;
        let holds = vec![Hold::default(); if index % 2 == 1 { size as usize } else { 0 }];
        let mut queue = Queue {
            taken: u64::from(base),
            recorded: (u64::from(base), ring.next_used()),
            ring,
            size,
            at,
            log,
            kick,
            call,
            full_at: None,
            record: self.record.as_ref().map(|record| record.ring(index)),
            holds,
            unrecorded: Vec::new(),
            again: VecDeque::new(),
            in_order: is_in_order.then(VecDeque::new),
        };
        if !self.resume(&mut queue)? {
            self.begin(&mut queue)?;
        }
        queue.ring.want_no_kick();
        queue.mark(self.log.as_deref());
        self.queues[index] = Some(queue);
        Ok(())
    }

    fn place(&self, ring: &Ring) -> Result<u64, Refused> {
        let places = ring.places(&self.memory)?;
        Ok(fingerprint(places.into_iter().flatten()))
    }

    /// The record of a ring begins.
    fn begin(&self, queue: &mut Queue) -> Result<(), Refused> {
        queue.recorded = (queue.taken, queue.ring.next_used());
        let Some(record) = &mut queue.record else {
            return Ok(());
        };
        let (place, size) = (self.place(&queue.ring)?, queue.ring.size());
        if let Err(error) = record.begin(place, size, queue.taken, queue.recorded.1) {
            // The guest is served all the same; what was there before is of another ring.
            record.end();
            queue.record = None;
            tracing::warn!(
                "no record of a ring: its guest loses frames if the switch is killed: {error:#}"
            );
        }
        Ok(())
    }

    /// Goes on where a predecessor was killed, if this is the ring that it had: then its driver has
    /// been shown either what is in force or what was before.
    fn resume(&self, queue: &mut Queue) -> Result<bool, Refused> {
        let Some(record) = queue.record.as_mut() else {
            return Ok(false);
        };
        let place = self.place(&queue.ring)?;
        let Some(resumed) = record.resume(place, queue.ring.size()) else {
            return Ok(false);
        };
        let shown = queue.ring.next_used();
        let event_index = self.features & feature::EVENT_INDEX != 0;
        let base = resumed.taken as u16;
        let mut ring = Ring::new(&self.memory, queue.size, queue.at, base, event_index)?;
        if ![resumed.used, resumed.shown].contains(&shown) || ring.look().is_err() {
            return Ok(false);
        }
        ring.resume(resumed.used);
        queue.ring = ring;
        queue.taken = resumed.taken;
        queue.recorded = (resumed.taken, resumed.used);
        for (number, &(head, parts)) in (1..).zip(&resumed.held) {
            let Some(hold) = queue.holds.get_mut(usize::from(head)) else {
                continue;
            };
            *hold = Hold {
                order: number,
                parts,
                is_recorded: true,
                is_listed: false,
            };
        }
        if let Some(taken) = &mut queue.in_order {
            taken.extend(resumed.held.iter().map(|(head, _)| *head));
        }
        let is_held = |(_, parts): &(u16, u16)| *parts != ALL_PARTS;
        let (held, done): (Vec<_>, Vec<_>) = resumed.held.into_iter().partition(is_held);
        queue.again = held.into();
        done.into_iter().for_each(|(head, _)| queue.release(head));
        if let Some(call) = &queue.call {
            // The predecessor may have been killed before it called.
            call.call();
        }
        Ok(true)
    }

    /// Rings of a guest whose memory grows or shrinks go on where they are. If one of them is not
    /// in the new memory, nothing changes.
    fn change_memory(&mut self, memory: Arc<Memory>) -> Result<(), Refused> {
        let event_index = self.features & feature::EVENT_INDEX != 0;
        let moved = self.queues.iter().map(|queue| {
            let Some(queue) = queue else { return Ok(None) };
            let base = queue.ring.base();
            Ring::new(&memory, queue.size, queue.at, base, event_index).map(Some)
        });
        let moved: Vec<_> = moved.collect::<Result<_, _>>()?;
        self.memory = memory;
        let mut queues = std::mem::take(&mut self.queues);
        let mut result = Ok(());
        for (queue, ring) in queues.iter_mut().zip(moved) {
            if let (Some(queue), Some(ring)) = (queue, ring) {
                (queue.ring, queue.full_at) = (ring, None);
                result = result.and_then(|()| self.begin(queue));
            }
        }
        self.queues = queues;
        result
    }

    fn update_pairs(&mut self) {
        let works = |index: usize| self.enabled[index] && self.queues[index].is_some();
        let pairs = 0..PAIRS_MAX;
        self.pairs = pairs
            .filter(|&pair| works(receive(pair)) && works(transmit(pair)))
            .collect();
        let last = self.queues.iter().rposition(Option::is_some);
        self.used = last.map_or(0, |last| last + 1);
        self.turn = 0;
    }

    /// The descriptors of its kicks, with the numbers of their rings.
    pub fn kicks(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let queues = self.queues.iter().enumerate();
        queues.filter_map(|(index, queue)| Some((index, queue.as_ref()?.kick.as_ref()?.as_fd())))
    }

    /// Empties the descriptor of a kick.
    pub fn kicked(&self, index: usize) {
        let queue = self.queues.get(index).and_then(Option::as_ref);
        if let Some(kick) = queue.and_then(|queue| queue.kick.as_ref()) {
            kick.clear();
        }
    }

    /// The port's turn begins: the next pair that has frames sends first, so that none starves
    /// another one. Starts to fetch what it sends, so that the frames of a burst do not wait for
    /// the memory of another CPU one after the other.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn begin_turn(&mut self) -> Result<(), Broken> {
        if self.pairs.len() > 1 {
            return self.turn_to_next();
        }
        self.prefetch(0).map(|_| ())
    }

    #[inline(never)]
    fn turn_to_next(&mut self) -> Result<(), Broken> {
        let (last, count) = (self.turn, self.pairs.len());
        for after in 1..=count {
            let turn = (last + after) % count;
            if self.prefetch(turn)? {
                self.turn = turn;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Starts to fetch what a pair sends next. Whether it sends something.
    #[inline]
    fn prefetch(&mut self, turn: usize) -> Result<bool, Broken> {
        let Some(&pair) = self.pairs.get(turn) else {
            return Ok(false);
        };
        let Some(queue) = &mut self.queues[transmit(pair)] else {
            return Ok(false);
        };
        queue.ring.fetch(&self.memory, false)?;
        Ok(!queue.again.is_empty() || queue.ring.seen().is_some())
    }

    /// Fills `frame` with the next one that the guest sends.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    #[inline]
    pub fn take(&mut self, frame: &mut Frame) -> Result<Intake, Broken> {
        for _ in 0..self.pairs.len() {
            let pair = self.pairs[self.turn];
            let Some(queue) = &mut self.queues[transmit(pair)] else {
                continue;
            };
            if !queue.again.is_empty() || queue.ring.available()? > 0 {
                return self.take_from(pair, frame);
            }
            self.turn = (self.turn + 1) % self.pairs.len();
        }
        Ok(Intake::Empty)
    }

    /// Fills `frame` with the next one, if it was read ahead, is in one piece and has a header that
    /// is right: most are. If not, nothing has changed, and [`Device::take`] says what it is.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    #[inline]
    pub fn take_ahead(&mut self, frame: &mut Frame) -> Result<bool, Broken> {
        const LEAST: u32 = HEADER as u32 + FRAME_MIN;
        const MOST: u32 = HEADER as u32 + FRAME_MAX;
        let is_short = self.header_bytes() != HEADER;
        let Some(&pair) = self.pairs.get(self.turn).filter(|_| !is_short) else {
            return Ok(false);
        };
        let Some(queue) = &mut self.queues[transmit(pair)] else {
            return Ok(false);
        };
        let Some(Seen { head, mut piece }) = queue.ring.seen() else {
            return Ok(false);
        };
        if !queue.again.is_empty() || piece.len < LEAST || piece.len > MOST {
            return Ok(false);
        }
        let bytes = piece.len - HEADER as u32;
        let Ok(work) = Work::parse(&self.memory.load(piece), bytes) else {
            return Ok(false);
        };
        queue.hold(head)?;
        queue.ring.advance(1);
        (frame.pair, frame.token, frame.parts) = (pair as u16, Some(head), 0);
        (frame.bytes, frame.work) = (bytes, work);
        piece.skip(HEADER as u32);
        frame.read_piece(&self.memory, piece);
        Ok(true)
    }

    /// Delivers a frame whose bytes behind its start are in the sender's memory, if a receive
    /// buffer was read ahead that has room for all of it. If not, nothing has changed, and
    /// [`Device::deliver`] says why.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    #[inline]
    pub fn deliver_ahead(&mut self, frame: &Frame, memory: &Memory) -> Result<bool, Broken> {
        const FITTING: u64 = feature::VERSION_1 | feature::MERGEABLE;
        let pair = match self.pairs[..] {
            [] => return Ok(false),
            [pair] => pair,
            _ => self.pairs[usize::from(frame.pair) % self.pairs.len()],
        };
        let is_fitting = self.features & FITTING != 0 && self.features & feature::LOG_ALL == 0;
        let Some(queue) = self.queues[receive(pair)].as_mut().filter(|_| is_fitting) else {
            return Ok(false);
        };
        queue.ring.fetch(&self.memory, true)?;
        let bytes = HEADER as u32 + frame.bytes;
        let Some(Seen { head, piece }) = queue.ring.seen().filter(|seen| bytes <= seen.piece.len)
        else {
            return Ok(false);
        };
        let mut header = match frame.work.is_none() {
            true => [0; HEADER],
            false => frame.work.header(frame.work.headers(frame.start())),
        };
        header[10] = 1;
        let mut room = self.memory.write_behind(piece, header, frame.start());
        for &piece in &frame.pieces {
            self.memory.copy(room, memory, piece);
            room.skip(piece.len);
        }
        queue.full_at = None;
        queue.ring.complete(head, bytes);
        queue.ring.advance(1);
        queue.taken += 1;
        Ok(true)
    }

    /// Fills `frame` with the next one that a predecessor had taken, whether or not its ring is
    /// enabled.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn take_again(&mut self, frame: &mut Frame) -> Result<Intake, Broken> {
        let waits = |pair: &usize| {
            let queue = self.queues[transmit(*pair)].as_ref();
            queue.is_some_and(|queue| !queue.again.is_empty())
        };
        match (0..PAIRS_MAX).find(waits) {
            Some(pair) => self.take_from(pair, frame),
            None => Ok(Intake::Empty),
        }
    }

    fn take_from(&mut self, pair: usize, frame: &mut Frame) -> Result<Intake, Broken> {
        let header_bytes = self.header_bytes();
        let Some(queue) = &mut self.queues[transmit(pair)] else {
            return Ok(Intake::Empty);
        };
        let again = queue.again.pop_front();
        let seen = queue.ring.seen().filter(|_| again.is_none());
        let (head, parts) = match (again, seen) {
            (Some(again), _) => again,
            (None, Some(seen)) => (seen.head, 0),
            (None, None) => (queue.ring.head(0)?, 0),
        };
        frame.pieces.clear();
        match seen.map(|seen| seen.piece).filter(|piece| piece.len > 0) {
            Some(piece) => frame.pieces.push(piece),
            None => {
                let (ring, pieces) = (&queue.ring, &mut frame.pieces);
                self.read += ring.chain(&self.memory, head, false, pieces)? as u32;
            }
        }
        if again.is_none() {
            queue.hold(head)?;
            queue.ring.advance(1);
        }
        (frame.pair, frame.token, frame.parts) = (pair as u16, Some(head), parts);
        let total: u64 = frame.pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let bytes = total.saturating_sub(header_bytes as u64);
        if bytes < u64::from(FRAME_MIN) || bytes > u64::from(FRAME_MAX) {
            return Ok(Intake::Malformed);
        }
        frame.bytes = bytes as u32;
        let mut header = [0; HEADER];
        match frame.pieces.first_mut() {
            Some(first) if header_bytes == HEADER && first.len > HEADER as u32 => {
                header = self.memory.load(*first);
                first.skip(HEADER as u32);
            }
            _ => self
                .memory
                .take(&mut frame.pieces, &mut header[..header_bytes]),
        }
        frame.read_start(&self.memory);
        let Ok(work) = Work::parse(&header, frame.bytes) else {
            return Ok(Intake::Malformed);
        };
        frame.work = work;
        Ok(Intake::Frame)
    }

    /// All exits have a frame: its sender may use its buffers again.
    #[inline]
    pub fn release(&mut self, pair: u16, head: u16) {
        if let Some(queue) = &mut self.queues[transmit(usize::from(pair))] {
            queue.release(head);
        }
    }

    /// Where the ledger has a chain that was taken; 0 without one.
    #[inline]
    pub fn chain(&self, pair: u16, head: u16) -> usize {
        let queue = self.queues[transmit(usize::from(pair))].as_ref();
        let record = queue.and_then(|queue| queue.record.as_ref());
        record.map_or(0, |record| record.chain(head))
    }

    /// Whether a chain was taken of a ring that runs, and is not released.
    pub fn holds(&self, pair: u16, head: u16) -> bool {
        let queue = self.queues[transmit(usize::from(pair))].as_ref();
        let hold = queue.and_then(|queue| queue.holds.get(usize::from(head)));
        hold.is_some_and(|hold| hold.order != 0)
    }

    /// So many parts of a frame are delivered, which a successor does not send again.
    pub fn deliver_parts(&mut self, pair: u16, head: u16, parts: u16) {
        if let Some(queue) = &mut self.queues[transmit(usize::from(pair))] {
            let hold = queue.holds.get_mut(usize::from(head));
            let Some(hold) = hold.filter(|hold| hold.order != 0) else {
                return;
            };
            hold.parts = parts;
            if !std::mem::replace(&mut hold.is_listed, true) {
                queue.unrecorded.push(head);
            }
        }
    }

    /// Delivers a frame to the guest.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    #[inline]
    pub fn deliver(&mut self, frame: &Outgoing<'_>) -> Result<Delivery, Broken> {
        let Some(&pair) = self
            .pairs
            .get(usize::from(frame.pair) % self.pairs.len().max(1))
        else {
            return Ok(Delivery::Down);
        };
        let (header_bytes, mergeable) = (self.header_bytes(), self.is_mergeable());
        let wanted = header_bytes as u32 + frame.bytes();
        let Some(queue) = &mut self.queues[receive(pair)] else {
            return Ok(Delivery::Down);
        };
        queue.ring.fetch(&self.memory, true)?;
        if let Some(Seen { head, piece: room }) = queue.ring.seen() {
            if wanted <= room.len {
                queue.full_at = None;
                self.fill(pair, head, room, frame);
                return Ok(Delivery::Done);
            }
        }
        let fits = gather(
            &mut queue.ring,
            &self.memory,
            wanted,
            mergeable,
            (&mut self.pieces, &mut self.heads, &mut self.read),
        )?;
        queue.full_at = (fits == Delivery::NoRoom).then(|| queue.ring.known());
        if fits != Delivery::Done {
            return Ok(fits);
        }
        let mut header = frame.work.header(frame.headers());
        header[10..12].copy_from_slice(&(self.heads.len() as u16).to_le_bytes());
        let mut out = Filler::new(&self.memory, &self.pieces);
        out.bytes(&header[..header_bytes]);
        out.frame(frame);
        if let Some(log) = self
            .log
            .as_ref()
            .filter(|_| self.features & feature::LOG_ALL != 0)
        {
            log_pieces(log, &self.memory, &self.pieces, wanted);
        }
        for &(head, written) in &self.heads {
            queue.ring.complete(head, written);
        }
        queue.ring.advance(self.heads.len() as u16);
        queue.taken += self.heads.len() as u64;
        Ok(Delivery::Done)
    }

    /// Delivers a frame into a receive buffer that has room for all of it.
    #[inline]
    fn fill(&mut self, pair: usize, head: u16, buffer: Piece, frame: &Outgoing<'_>) {
        let header_bytes = self.header_bytes();
        let mut header = frame.work.header(frame.headers());
        header[10] = 1;
        let mut room = buffer;
        if header_bytes == HEADER {
            room = self.memory.write_behind(room, header, frame.start);
        } else {
            self.memory.write(room, &header[..header_bytes]);
            room.skip(header_bytes as u32);
            self.memory.write(room, frame.start);
            room.skip(frame.start.len() as u32);
        }
        match frame.own {
            Some(own) => self.memory.write(room, own),
            None => {
                for &piece in frame.pieces {
                    self.memory.copy(room, frame.memory, piece);
                    room.skip(piece.len);
                }
            }
        }
        let bytes = header_bytes as u32 + frame.bytes();
        let logs = self.features & feature::LOG_ALL != 0;
        if let Some(log) = self.log.as_ref().filter(|_| logs) {
            log_pieces(log, &self.memory, &[buffer], bytes);
        }
        if let Some(queue) = &mut self.queues[receive(pair)] {
            queue.ring.complete(head, bytes);
            queue.ring.advance(1);
            queue.taken += 1;
        }
    }

    /// Whether a ring in which a frame did not fit has more buffers now.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn has_new_room(&mut self) -> Result<bool, Broken> {
        let mut is_full = false;
        for &pair in &self.pairs {
            let Some(queue) = &mut self.queues[receive(pair)] else {
                continue;
            };
            let Some(known) = queue.full_at else { continue };
            is_full = true;
            if queue.ring.look()? != known {
                queue.full_at = None;
                return Ok(true);
            }
        }
        // The ring that was full has been replaced or disabled meanwhile.
        Ok(!is_full)
    }

    /// No frame waits for room any more.
    pub fn unblock(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.full_at = None;
        }
    }

    /// Shows the driver what it has received (`sent = false`), or which buffers it may use again
    /// (`sent = true`), and calls it if it wants that.
    pub fn publish(&mut self, sent: bool) {
        let first = if sent { transmit(0) } else { receive(0) };
        for queue in self.queues[..self.used].iter_mut().skip(first).step_by(2) {
            let Some(queue) = queue else { continue };
            let before = queue.ring.shown();
            let wants = queue.ring.publish();
            if before != queue.ring.shown() {
                queue.mark(self.log.as_deref());
            }
            if let Some(call) = queue.call.as_ref().filter(|_| wants) {
                call.call();
            }
        }
    }

    /// Asks for kicks before the worker sleeps. Whether there is work already.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn arm(&mut self) -> Result<bool, Broken> {
        let mut work = false;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let Some(queue) = queue else { continue };
            let sends = index % 2 == 1;
            if !self.pairs.contains(&(index / 2)) {
                continue;
            }
            if !sends && queue.full_at.is_none() {
                continue;
            }
            // Nobody wakes the worker for a ring that has no kick.
            work |= !queue.again.is_empty() || queue.kick.is_none();
            queue.ring.look()?;
            queue.ring.want_kick();
            queue.mark(self.log.as_deref());
            let known = queue.ring.look()?;
            work |= match queue.full_at {
                Some(full_at) => known != full_at,
                None => known > 0,
            };
        }
        Ok(work)
    }

    /// The worker polls again.
    pub fn disarm(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.ring.want_no_kick();
            queue.mark(self.log.as_deref());
        }
    }
}

/// So many bytes have been written into these pieces.
fn log_pieces(log: &Log, memory: &Memory, pieces: &[Piece], mut bytes: u32) {
    for piece in pieces {
        let written = piece.len.min(bytes);
        log.mark(memory.address(*piece), u64::from(written));
        bytes -= written;
    }
}

/// Finds buffers for so many bytes: their pieces, and for each chain its head and what will be
/// written into it. Adds the descriptors that were read to the last.
fn gather(
    ring: &mut Ring,
    memory: &Memory,
    wanted: u32,
    mergeable: bool,
    (pieces, heads, sum): (&mut Vec<Piece>, &mut Vec<(u16, u32)>, &mut u32),
) -> Result<Delivery, Broken> {
    pieces.clear();
    heads.clear();
    let (mut found, mut read) = (0, 0);
    while found < wanted {
        let ahead = heads.len() as u16;
        if read >= BUFFERS_MAX {
            return Ok(Delivery::TooLong);
        }
        if ahead >= ring.known() && ring.look()? <= ahead {
            return Ok(if ahead >= ring.size() {
                Delivery::TooLong
            } else {
                Delivery::NoRoom
            });
        }
        let (head, before) = (ring.head(ahead)?, pieces.len());
        let of_chain = ring.chain(memory, head, true, pieces)?;
        (read, *sum) = (read + of_chain, *sum + of_chain as u32);
        let room = pieces[before..].iter().map(|piece| u64::from(piece.len));
        let room = room.sum::<u64>().min(u64::from(wanted)) as u32;
        if room == 0 {
            return Err(Broken("a receive buffer has no room"));
        }
        if !mergeable && room < wanted {
            return Ok(Delivery::TooLong);
        }
        heads.push((head, room.min(wanted - found)));
        found += room;
    }
    Ok(Delivery::Done)
}
