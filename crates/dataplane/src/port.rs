//! Ports: what the switch asks of each kind.

use crate::{
    frame::Frame,
    memory::{Memory, Piece},
    offload::{Takes, Work},
    ring::Broken,
    shm::{cable::Cable, pfc::FlowControl},
    tap::Tap,
    vhost::device::Device,
    xdp::Xdp,
};

/// What a port has for the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// A frame.
    Frame,
    /// Something that is none, and was taken; its buffers are to be released.
    Malformed,
    /// Nothing now.
    Empty,
}

/// The fate of a frame at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The receiver has it.
    Done,
    /// The receiver has no buffers for it now.
    NoRoom,
    /// The receiver has no buffers for its priority now.
    Held,
    /// The turn ended behind one of the parts into which the frame is cut; the receiver may have
    /// buffers for the next one.
    Later,
    /// The receiver never has a buffer for a frame of this length.
    TooLong,
    /// Nobody receives here.
    Down,
    /// The kernel refused it.
    Refused,
}

/// A frame as it leaves.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The sender's queue pair.
    pub pair: u16,
    /// Its priority.
    pub lane: u8,
    /// Its first bytes, with the tag that it has at this exit.
    pub start: &'a [u8],
    /// The bytes behind, if the switch has them.
    pub own: Option<&'a [u8]>,
    /// The bytes behind, in the memory of its sender.
    pub pieces: &'a [Piece],
    /// The memory of its sender.
    pub memory: &'a Memory,
    /// The work that is left.
    pub work: Work,
    /// Length of the bytes behind the start.
    pub rest_bytes: u32,
}

impl<'a> Outgoing<'a> {
    /// A frame with this start, by `shift` bytes longer than its own.
    #[inline]
    pub fn new(frame: &'a Frame, start: &'a [u8], shift: i16, memory: &'a Memory) -> Self {
        Self {
            pair: frame.pair,
            lane: frame.lane.number,
            start,
            own: frame.is_own().then_some(&frame.own),
            pieces: &frame.pieces,
            memory,
            work: frame.work.shifted(shift),
            rest_bytes: frame.bytes - frame.start().len() as u32,
        }
    }

    /// A frame whose bytes are all here, of no guest.
    pub fn whole(bytes: &'a [u8], work: Work, memory: &'a Memory) -> Self {
        Self {
            pair: 0,
            lane: 0,
            start: bytes,
            own: None,
            pieces: &[],
            memory,
            work,
            rest_bytes: 0,
        }
    }

    /// Appends its first `bytes` bytes, or all.
    pub fn head(&self, bytes: usize, to: &mut Vec<u8>) {
        let start = &self.start[..bytes.min(self.start.len())];
        to.extend_from_slice(start);
        let mut left = bytes - start.len();
        if let Some(own) = self.own {
            return to.extend_from_slice(&own[..left.min(own.len())]);
        }
        for piece in self.pieces {
            let part = piece.first(piece.len.min(left as u32));
            self.memory.append(&[part], to);
            left -= part.len as usize;
        }
    }

    /// Its length.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.start.len() as u32 + self.rest_bytes
    }

    /// Length of its headers up to the payload of TCP, for the header of a segment.
    #[inline]
    pub fn headers(&self) -> u16 {
        self.work.headers(self.start)
    }
}

/// A port of any kind.
#[derive(Debug)]
pub enum Port {
    /// An adapter of a guest.
    Vhost(Box<Device>),
    /// An interface of the kernel.
    Tap(Box<Tap>),
    /// A cable of shared memory to another process.
    Shm(Box<Cable>),
    /// Queues of an interface of the kernel.
    Xdp(Box<Xdp>),
    /// A port of another thread, by its number; the engine hands frames over ([`crate::mesh`]).
    Remote(usize),
}

impl Port {
    /// What it takes.
    pub fn takes(&self) -> Takes {
        match self {
            Self::Vhost(device) => device.takes(),
            Self::Tap(_) => Tap::TAKES,
            // Its own thread does what is left to do.
            Self::Remote(_) => Takes::ALL,
            Self::Shm(cable) => cable.takes(),
            Self::Xdp(_) => Xdp::TAKES,
        }
    }

    /// Whether somebody sends and receives here.
    pub fn is_up(&self) -> bool {
        match self {
            Self::Vhost(device) => device.is_up(),
            Self::Tap(_) | Self::Remote(_) => true,
            Self::Shm(cable) => cable.plug().is_some(),
            Self::Xdp(xdp) => xdp.is_up(),
        }
    }

    /// Fills `frame` with the next one.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    #[inline]
    pub fn take(&mut self, frame: &mut Frame) -> Result<Intake, Broken> {
        match self {
            Self::Vhost(device) => device.take(frame),
            Self::Tap(tap) => Ok(tap.take(frame)),
            Self::Shm(cable) => match cable.plug_mut() {
                Some(plug) => plug.take(frame),
                None => Ok(Intake::Empty),
            },
            Self::Xdp(xdp) => xdp.take(frame),
            Self::Remote(_) => Ok(Intake::Empty),
        }
    }

    /// All exits have a frame of this port. The thread to which it goes home, if that is another
    /// one.
    #[inline]
    pub fn release(&mut self, pair: u16, token: u16) -> Option<usize> {
        match self {
            Self::Vhost(device) => device.release(pair, token),
            Self::Tap(tap) => tap.release(),
            Self::Shm(cable) => cable.release(token),
            Self::Xdp(xdp) => xdp.release(pair, token),
            Self::Remote(thread) => return Some(*thread),
        }
        None
    }

    /// A frame of this port has a priority, until it is released.
    #[inline]
    pub fn charge(&mut self, token: Option<u16>, lane: u8, bytes: u32) {
        if let Self::Shm(cable) = self {
            cable.charge(token, lane, bytes);
        }
    }

    /// Its flow control by priority, if the file says so.
    #[inline]
    pub fn flow(&self) -> Option<&FlowControl> {
        match self {
            Self::Shm(cable) => cable.flow(),
            Self::Vhost(_) | Self::Tap(_) | Self::Xdp(_) | Self::Remote(_) => None,
        }
    }

    /// So many parts of a frame of this port are delivered.
    pub fn deliver_parts(&mut self, pair: u16, token: u16, parts: u16) {
        if let Self::Vhost(device) = self {
            device.deliver_parts(pair, token, parts);
        }
    }

    /// Delivers a frame.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    #[inline]
    pub fn deliver(&mut self, frame: &Outgoing<'_>) -> Result<Delivery, Broken> {
        match self {
            Self::Vhost(device) => device.deliver(frame),
            Self::Tap(tap) => Ok(tap.deliver(frame)),
            Self::Shm(cable) => match cable.plug_mut() {
                Some(plug) => plug.deliver(frame),
                None => Ok(Delivery::Down),
            },
            Self::Xdp(xdp) => Ok(xdp.deliver(frame)),
            Self::Remote(_) => Ok(Delivery::Refused),
        }
    }

    /// The work of reading descriptors since this was asked before; see [`Device::descriptors`].
    #[inline]
    pub fn descriptors(&mut self) -> u32 {
        match self {
            Self::Vhost(device) => device.descriptors(),
            _ => 0,
        }
    }

    /// Whether a frame that did not fit may fit now.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn has_new_room(&mut self) -> Result<bool, Broken> {
        match self {
            Self::Vhost(device) => device.has_new_room(),
            Self::Tap(tap) => Ok(tap.has_room()),
            Self::Remote(_) => Ok(true),
            Self::Shm(cable) => cable
                .plug_mut()
                .map_or(Ok(true), |plug| plug.has_new_room()),
            Self::Xdp(xdp) => Ok(xdp.has_new_room()),
        }
    }

    /// Asks for a wake-up before the worker sleeps. Whether there is work already.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn arm(&mut self) -> Result<bool, Broken> {
        match self {
            Self::Vhost(device) => device.arm(),
            Self::Tap(_) | Self::Remote(_) => Ok(false),
            Self::Shm(cable) => cable.plug_mut().map_or(Ok(false), |plug| plug.arm()),
            Self::Xdp(xdp) => Ok(xdp.arm()),
        }
    }

    /// The worker polls again.
    pub fn disarm(&mut self) {
        match self {
            Self::Vhost(device) => device.disarm(),
            Self::Tap(_) | Self::Xdp(_) | Self::Remote(_) => {}
            Self::Shm(cable) => {
                if let Some(plug) = cable.plug_mut() {
                    plug.disarm();
                }
            }
        }
    }

    /// No frame waits for room any more.
    pub fn unblock(&mut self) {
        match self {
            Self::Vhost(device) => device.unblock(),
            Self::Tap(_) | Self::Remote(_) => {}
            Self::Shm(cable) => {
                if let Some(plug) = cable.plug_mut() {
                    plug.unblock();
                }
            }
            Self::Xdp(xdp) => xdp.unblock(),
        }
    }

    /// Shows the guest or the peer what it has received (`sent = false`), or which buffers it may
    /// use again (`sent = true`).
    pub fn publish(&mut self, sent: bool) {
        match self {
            Self::Vhost(device) => device.publish(sent),
            Self::Tap(_) | Self::Remote(_) => {}
            Self::Shm(cable) => {
                if let Some(plug) = cable.plug_mut() {
                    plug.publish(sent);
                }
            }
            Self::Xdp(xdp) => xdp.publish(sent),
        }
    }

    /// Fills `frame` with the next one that a predecessor had taken.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn take_again(&mut self, frame: &mut Frame) -> Result<Intake, Broken> {
        match self {
            Self::Vhost(device) => device.take_again(frame),
            Self::Tap(_) | Self::Shm(_) | Self::Xdp(_) | Self::Remote(_) => Ok(Intake::Empty),
        }
    }
}
