//! A socket of AF_XDP: one queue of an interface, with frames in memory that it shares.
//!
//! Half of its memory is for frames that are received, half for those that are sent, in pieces of
//! [`CHUNK`] bytes. Each ring has an entry for every piece that can be in it, so no ring of the
//! switch's is ever full.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    io::Errno,
    net::{
        RecvFlags, SendFlags, recv, send, sockopt,
        xdp::{
            XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
            XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpStatistics,
        },
    },
};
use serde::{Deserialize, Serialize};

use super::ring::{Consumer, Producer};
use crate::{
    fill::Filler,
    frame::{FRAME_MIN, Frame},
    memory::Memory,
    offload::Work,
    port::{Delivery, Intake, Outgoing},
    ring::Broken,
};

/// Bytes of a piece of its memory, which is no longer than a page.
pub(super) const CHUNK: u32 = 4096;

/// Bytes of a piece that the kernel keeps before a frame.
pub(super) const HEADROOM: u32 = 256;

/// Calls of the kernel in a row for one burst; each sends at least one frame, mostly 32.
const CALLS_MAX: usize = 64;

/// What a socket had, for another process that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    /// Pieces of received frames which the switch had; it has delivered or copied the frames.
    held: Vec<u16>,
    /// Pieces for sending that nobody used.
    free: Vec<u16>,
    /// Frames that the interface dropped when they were to be sent.
    dropped: u64,
}

/// Why an interface takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    /// The operator has set it down.
    Down,
    /// There is no such interface any more.
    Gone,
}

/// A socket that is bound.
#[derive(Debug)]
pub(super) struct Queue {
    socket: OwnedFd,
    /// Its number.
    number: u16,
    /// Entries of each ring, and pieces of each half.
    ring: u16,
    /// Where its memory begins in that of the port.
    base: u64,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<XdpDesc>,
    transmit: Producer<XdpDesc>,
    /// Of each piece of the first half: whether the switch has it.
    held: Vec<bool>,
    /// Pieces that are to be filled again.
    emptied: Vec<u16>,
    /// Pieces of the second half that are free, counted from its beginning.
    free: Vec<u16>,
    dropped: u64,
    /// Something was received since the rings were shown last.
    has_sent: bool,
    link: Link,
}

impl Queue {
    /// Of a socket whose rings have these sizes, fresh or as another process left it.
    pub(super) fn map(
        socket: OwnedFd,
        number: u16,
        ring: u16,
        base: u64,
        state: Option<&QueueState>,
    ) -> Result<Self, Errno> {
        let at = sockopt::xdp_mmap_offsets(&socket)?;
        let fd = socket.as_fd();
        let size = u32::from(ring);
        let (fill, completion) = (
            Producer::map(fd, XDP_UMEM_PGOFF_FILL_RING, at.fr, size)?,
            Consumer::map(fd, XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, size)?,
        );
        let (receive, transmit) = (
            Consumer::map(fd, XDP_PGOFF_RX_RING, at.rx, size)?,
            Producer::map(fd, XDP_PGOFF_TX_RING, at.tx, size)?,
        );
        let all = || (0..ring).rev().collect();
        let is_piece = |piece: &u16| *piece < ring;
        let (emptied, free, dropped) = match state {
            None => (all(), all(), 0),
            Some(QueueState {
                held,
                free,
                dropped,
            }) => (
                held.iter().copied().filter(is_piece).collect(),
                free.iter().copied().filter(is_piece).collect(),
                *dropped,
            ),
        };
        Ok(Self {
            socket,
            number,
            ring,
            base,
            fill,
            completion,
            receive,
            transmit,
            held: vec![false; usize::from(ring)],
            emptied,
            free,
            dropped,
            has_sent: false,
            link: Link::Up,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    pub(super) fn link(&self) -> Link {
        self.link
    }

    /// For another process that goes on. All frames that the switch has were copied out.
    pub(super) fn state(&self) -> QueueState {
        let held = (0..).zip(&self.held).filter(|(_, is_held)| **is_held);
        let held = held.map(|(piece, _)| piece);
        QueueState {
            held: held.chain(self.emptied.iter().copied()).collect(),
            free: self.free.clone(),
            dropped: self.dropped,
        }
    }

    /// Frames that the kernel counts as dropped at the socket.
    pub(super) fn statistics(&self) -> Option<XdpStatistics> {
        sockopt::xdp_statistics(&self.socket).ok()
    }

    /// Frames that the interface dropped when they were to be sent.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Fills `frame` with the next one; it stays in the memory of the socket.
    #[inline]
    pub(super) fn take(&mut self, memory: &Memory, frame: &mut Frame) -> Result<Intake, Broken> {
        const NONE: Broken = Broken("the kernel gave a frame outside of the port's memory");
        let Some(entry) = self.receive.pop() else {
            return Ok(Intake::Empty);
        };
        let piece = entry.addr / u64::from(CHUNK);
        let held = usize::try_from(piece).ok();
        let held = held
            .and_then(|piece| self.held.get_mut(piece))
            .ok_or(NONE)?;
        *held = true;
        let bytes = memory
            .guest(self.base + entry.addr, entry.len)
            .ok_or(NONE)?;
        (frame.pair, frame.token, frame.parts) = (self.number, Some(piece as u16), 0);
        frame.pieces.clear();
        frame.pieces.push(bytes);
        if entry.len < FRAME_MIN || entry.len > CHUNK {
            return Ok(Intake::Malformed);
        }
        (frame.bytes, frame.work) = (entry.len, Work::default());
        frame.read_start(memory);
        Ok(Intake::Frame)
    }

    /// All exits have a frame.
    #[inline]
    pub(super) fn release(&mut self, piece: u16) {
        let held = self.held.get_mut(usize::from(piece));
        if held.is_some_and(std::mem::take) {
            self.emptied.push(piece);
        }
    }

    /// Gives the kernel back what was emptied.
    #[inline]
    pub(super) fn refill(&mut self) {
        if self.emptied.is_empty() {
            return;
        }
        while let Some(&piece) = self.emptied.last() {
            if !self.fill.push(u64::from(piece) * u64::from(CHUNK)) {
                break;
            }
            self.emptied.pop();
        }
        self.fill.show();
        if self.fill.needs_wake() {
            // Nothing is read: the call only has the driver look.
            let _ = recv(&self.socket, &mut [0u8; 0][..], RecvFlags::DONTWAIT);
        }
    }

    /// Takes back the pieces of frames that were sent.
    pub(super) fn reap(&mut self) {
        while let Some(address) = self.completion.pop() {
            let piece = address / u64::from(CHUNK);
            let piece = piece.checked_sub(u64::from(self.ring));
            if let Some(piece) = piece.filter(|&piece| piece < u64::from(self.ring)) {
                self.free.push(piece as u16);
            }
        }
    }

    /// Whether a frame has room.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reap();
        }
        !self.free.is_empty()
    }

    /// Writes a frame, which the kernel sends after [`Queue::flush`].
    #[inline]
    pub(super) fn deliver(&mut self, memory: &Memory, frame: &Outgoing<'_>) -> Delivery {
        let bytes = frame.bytes();
        if bytes > CHUNK {
            return Delivery::TooLong;
        }
        if self.link != Link::Up {
            return Delivery::Down;
        }
        if !self.has_room() {
            return Delivery::NoRoom;
        }
        let Some(piece) = self.free.pop() else {
            return Delivery::NoRoom;
        };
        let addr = u64::from(self.ring + piece) * u64::from(CHUNK);
        let Some(room) = memory.guest(self.base + addr, bytes) else {
            return Delivery::Refused;
        };
        Filler::new(memory, &[room]).frame(frame);
        let entry = XdpDesc {
            addr,
            len: bytes,
            options: XdpDescOptions::empty(),
        };
        if !self.transmit.push(entry) {
            self.free.push(piece);
            return Delivery::NoRoom;
        }
        self.has_sent = true;
        Delivery::Done
    }

    /// Whether frames wait that the kernel has not taken, while it could.
    pub(super) fn is_sending(&self) -> bool {
        self.link == Link::Up && self.transmit.used() > 0
    }

    /// Whether frames are somewhere below, so that room comes without a wake-up.
    pub(super) fn is_full(&mut self) -> bool {
        self.link == Link::Up && !self.has_room()
    }

    /// Whether there is a frame to take.
    pub(super) fn has_frames(&mut self) -> bool {
        self.receive.has_more()
    }

    /// Has the kernel send what it has not taken.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.has_sent {
            self.has_sent = false;
            self.transmit.show();
        } else if !self.is_sending() {
            return;
        }
        if self.transmit.needs_wake() {
            self.send();
        }
    }

    fn send(&mut self) {
        for _ in 0..CALLS_MAX {
            let before = self.transmit.used();
            match self.call() {
                // It is the device's turn, or it has sent a part and will send more.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                    if self.transmit.used() == before {
                        return;
                    }
                }
                // The device has dropped a frame.
                Err(Errno::BUSY) if self.transmit.used() < before => self.dropped += 1,
                _ => return,
            }
        }
    }

    /// Looks whether the interface is there, and up.
    pub(super) fn look(&mut self) -> Link {
        if self.link != Link::Up || self.transmit.used() == 0 {
            let _ = self.call();
        }
        self.link
    }

    /// A call of the kernel, which sends what it can.
    fn call(&mut self) -> Result<(), Errno> {
        let sent = send(&self.socket, &[], SendFlags::DONTWAIT).map(drop);
        self.link = match sent {
            Err(Errno::NETDOWN) => Link::Down,
            Err(Errno::NXIO | Errno::NODEV) => Link::Gone,
            _ => Link::Up,
        };
        sent
    }

    /// Reads the error by which the kernel woke the thread, so that it does so once.
    pub(super) fn woken(&mut self) {
        if let Ok(Err(_)) = sockopt::socket_error(&self.socket) {
            let _ = self.call();
        }
    }
}
