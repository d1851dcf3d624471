//! Ports at interfaces of the kernel by AF_XDP: a program in the interface's driver gives frames to
//! sockets, past the host's own stack.
//!
//! ```text
//!  interface ── program ──▶ receive ring ─┐                        ┌─▶ fill ring ──▶ kernel
//!   (queue)                               ▼                        │
//!                      frames in shared memory, until all exits have them
//!   kernel ◀── transmit ring ◀── copy of a frame for this port     ▲
//!      └──────────────────────────── completion ring ──────────────┘
//! ```
//!
//! A frame that is received stays in the memory that the port shares with the kernel until its
//! receivers have a copy. When the switch has all of it the kernel drops what comes, and counts it
//! ([`Xdp::drops`]): this port is lossy at ingress. Frames for the port wait with their senders
//! while the interface takes none.

mod attach;
pub(crate) mod interface;
mod queue;
mod ring;

use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail, ensure};
use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt,
        xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags},
    },
};
use serde::Serialize;

pub use self::queue::QueueState;
use self::{
    interface::Interface,
    queue::{CHUNK, HEADROOM, Link, Queue},
};
use crate::{
    frame::Frame,
    memory::{Memory, Region},
    offload::Takes,
    port::{Delivery, Intake, Outgoing},
    ring::Broken,
    vhost::PAIRS_MAX,
};

/// Entries of a ring.
pub const RING_MIN: u16 = 64;
/// Entries of a ring.
pub const RING_MAX: u16 = 16384;

/// The longest payload of frames for which a piece of memory has room, with a tag or two.
const MTU_MAX: u32 = CHUNK - HEADROOM - 22;

/// What is left of a process that was killed is gone within this time.
const LEFTOVER: Duration = Duration::from_secs(1);

/// Who copies frames between the interface and the shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The adapter if its driver can, else the kernel.
    #[default]
    Auto,
    /// The kernel.
    Copy,
    /// The adapter itself; a driver that cannot is refused.
    ZeroCopy,
}

impl Mode {
    /// As files have it.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("copy", Self::Copy),
        ("zero-copy", Self::ZeroCopy),
    ];

    /// As files have it.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    fn flags(self) -> SocketAddrXdpFlags {
        let mode = match self {
            Self::Auto => SocketAddrXdpFlags::empty(),
            Self::Copy => SocketAddrXdpFlags::XDP_COPY,
            Self::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
        mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
    }
}

/// What a port is, as its file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The interface.
    pub interface: String,
    /// Its first queues that the port has; `None`: all.
    pub queues: Option<u16>,
    /// Entries of each ring: a power of two, [`RING_MIN`] to [`RING_MAX`].
    pub ring: u16,
    /// Who copies.
    pub mode: Mode,
    /// Which frames for the neighbour on the link are the switch's and not the host's
    /// (`sluicegate_vswitch::reserved`).
    pub relayed: u16,
}

impl Wanted {
    /// Bytes of the memory of a queue.
    fn queue_bytes(&self) -> u64 {
        2 * u64::from(self.ring) * u64::from(CHUNK)
    }
}

/// Frames that the kernel dropped at a port, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelDrops {
    /// Of frames that came, for want of a piece of memory: the switch had all. With zero-copy an
    /// adapter may ask several times for one frame, or for none.
    pub xdp_no_buffer: u64,
    /// Of frames that came: the receive ring was full.
    pub xdp_ring_full: u64,
    /// Of frames that came, for other reasons, such as that they are too long.
    pub xdp_dropped: u64,
    /// Entries of the fill ring that the kernel refused.
    pub xdp_rx_invalid: u64,
    /// Entries of the transmit ring that the kernel refused.
    pub xdp_tx_invalid: u64,
    /// Of frames from the switch: the interface, or what is behind it, had no room.
    pub xdp_tx_dropped: u64,
    /// Of frames that came, by the interface's own count; with some drivers some of those above.
    pub interface_rx: Option<u64>,
    /// Of frames that went out, by the interface's own count, other programs' included.
    pub interface_tx: Option<u64>,
}

/// What another process had of a port.
#[derive(Debug)]
pub struct XdpEstate {
    /// Keeps the program attached.
    pub program: OwnedFd,
    /// The memory.
    pub memory: File,
    /// The sockets of its queues.
    pub sockets: Vec<OwnedFd>,
    /// What each of them had.
    pub queues: Vec<QueueState>,
}

/// What holds an interface.
#[derive(Debug)]
struct Attached {
    // Dropped first: then nothing comes for the sockets any more.
    program: OwnedFd,
    queues: Vec<Queue>,
}

/// A port.
#[derive(Debug)]
pub struct Xdp {
    wanted: Wanted,
    /// `None` once its interface has gone.
    attached: Option<Attached>,
    memory: Arc<Memory>,
    file: File,
    is_zero_copy: bool,
    /// The queue whose turn it is.
    turn: usize,
    /// A frame did not fit.
    is_full: bool,
}

impl Xdp {
    /// What the interface takes: checksums and segments are done before.
    pub const TAKES: Takes = Takes {
        checksum: false,
        tcp4: false,
        tcp6: false,
        ecn: false,
    };

    /// Takes an interface.
    ///
    /// # Errors
    /// The kernel's reason, and what to do.
    pub fn open(wanted: Wanted) -> anyhow::Result<Self> {
        let name = &wanted.interface;
        let interface = Interface::find(name)?;
        ensure!(
            interface.mtu <= MTU_MAX,
            "{name} has an MTU of {}, and AF_XDP ports take at most {MTU_MAX}: `ip link set {name} \
             mtu {MTU_MAX}`",
            interface.mtu
        );
        let count = count(&wanted, &interface)?;
        let file = File::from(memfd_create("xdp", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, u64::from(count) * wanted.queue_bytes())?;
        let (memory, start) = map(&wanted, &file)?;
        let until = Instant::now() + LEFTOVER;
        let mut queues = Vec::new();
        for number in 0..count {
            let base = u64::from(number) * wanted.queue_bytes();
            let socket = retried(until, || {
                socket(&wanted, interface.index, number, start + base)
            });
            let socket = socket.map_err(|error| refused(&wanted, number, error))?;
            queues.push(Queue::map(socket, number, wanted.ring, base, None)?);
        }
        queues.iter_mut().for_each(Queue::refill);
        let sockets = queues
            .iter()
            .map(|it| (u32::from(it.number()), it.socket()));
        let program = attach::attach(name, interface.index, until, wanted.relayed, sockets)?;
        queues.iter_mut().for_each(|queue| _ = queue.look());
        Ok(Self::with(
            wanted,
            memory,
            file,
            Attached { program, queues },
        ))
    }

    /// Goes on with what another process had, which touches it no more when the first frame moves.
    ///
    /// # Errors
    /// The kernel maps nothing, or the state contradicts the file.
    pub fn over(estate: XdpEstate, wanted: Wanted) -> anyhow::Result<Self> {
        let (memory, _) = map(&wanted, &estate.memory)?;
        let states = estate.sockets.into_iter().zip(&estate.queues);
        let queues = (0..).zip(states).map(|(number, (socket, state))| {
            let base = u64::from(number) * wanted.queue_bytes();
            Queue::map(socket, number, wanted.ring, base, Some(state))
        });
        let queues = queues.collect::<Result<Vec<_>, _>>();
        let queues = queues.context("the rings of a socket were not mapped again")?;
        let program = estate.program;
        Ok(Self::with(
            wanted,
            memory,
            estate.memory,
            Attached { program, queues },
        ))
    }

    fn with(wanted: Wanted, memory: Arc<Memory>, file: File, attached: Attached) -> Self {
        let options = attached
            .queues
            .iter()
            .map(|it| sockopt::xdp_options(it.socket()));
        let zero_copy = XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY;
        let is_zero_copy = options
            .into_iter()
            .all(|options| options.is_ok_and(|it| it.contains(zero_copy)));
        Self {
            wanted,
            attached: Some(attached),
            memory,
            file,
            is_zero_copy,
            turn: 0,
            is_full: false,
        }
    }

    /// For another process. The switch holds no frame of this port that it has not copied.
    ///
    /// # Errors
    /// No descriptors are left. `None`: its interface has gone.
    pub fn estate(&self) -> std::io::Result<Option<XdpEstate>> {
        let Some(attached) = &self.attached else {
            return Ok(None);
        };
        let sockets = attached
            .queues
            .iter()
            .map(|it| it.socket().try_clone_to_owned());
        Ok(Some(XdpEstate {
            program: attached.program.try_clone()?,
            memory: self.file.try_clone()?,
            sockets: sockets.collect::<Result<_, _>>()?,
            queues: attached.queues.iter().map(Queue::state).collect(),
        }))
    }

    fn queues(&self) -> &[Queue] {
        self.attached.as_ref().map_or(&[], |it| &it.queues)
    }

    fn queues_mut(&mut self) -> &mut [Queue] {
        self.attached.as_mut().map_or(&mut [], |it| &mut it.queues)
    }

    /// Its interface.
    pub fn interface(&self) -> &str {
        &self.wanted.interface
    }

    /// Its memory, in which received frames are.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Whether the adapter itself copies.
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Queues that it has.
    pub fn queue_count(&self) -> usize {
        self.queues().len()
    }

    /// Whether its interface is there, and up when the kernel was asked last.
    pub fn is_up(&self) -> bool {
        self.queues()
            .first()
            .is_some_and(|it| it.link() == Link::Up)
    }

    /// Pieces of memory for received frames that each queue has.
    pub fn entries(&self) -> u16 {
        self.wanted.ring
    }

    /// Its sockets, readable when frames have come.
    pub fn sockets(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.queues().iter().map(Queue::socket).enumerate()
    }

    /// Frames that the kernel dropped.
    pub fn drops(&self) -> KernelDrops {
        let mut drops = KernelDrops::default();
        for queue in self.queues() {
            drops.xdp_tx_dropped += queue.dropped();
            let Some(seen) = queue.statistics() else {
                continue;
            };
            let no_buffer = seen.rx_fill_ring_empty_descs.unwrap_or(0);
            // In copy mode the kernel counts each of these frames a second time.
            let twice = if self.is_zero_copy { 0 } else { no_buffer };
            drops.xdp_no_buffer += no_buffer;
            drops.xdp_ring_full += seen.rx_ring_full.unwrap_or(0);
            drops.xdp_dropped += seen.rx_dropped.saturating_sub(twice);
            drops.xdp_rx_invalid += seen.rx_invalid_descs;
            drops.xdp_tx_invalid += seen.tx_invalid_descs;
        }
        (drops.interface_rx, drops.interface_tx) =
            interface::dropped(&self.wanted.interface).unzip();
        drops
    }

    /// Fills `frame` with the next one.
    ///
    /// # Errors
    /// The kernel's rings make no sense.
    #[inline]
    pub fn take(&mut self, frame: &mut Frame) -> Result<Intake, Broken> {
        let Some(attached) = &mut self.attached else {
            return Ok(Intake::Empty);
        };
        let count = attached.queues.len();
        for _ in 0..count {
            let taken = attached.queues[self.turn].take(&self.memory, frame)?;
            if taken != Intake::Empty {
                return Ok(taken);
            }
            self.turn = (self.turn + 1) % count;
        }
        Ok(Intake::Empty)
    }

    /// All exits have a frame of a queue.
    #[inline]
    pub fn release(&mut self, queue: u16, piece: u16) {
        if let Some(queue) = self.queues_mut().get_mut(usize::from(queue)) {
            queue.release(piece);
        }
    }

    /// Writes a frame, which goes out with [`Xdp::publish`].
    #[inline]
    pub fn deliver(&mut self, frame: &Outgoing<'_>) -> Delivery {
        let Some(attached) = &mut self.attached else {
            return Delivery::Down;
        };
        let count = attached.queues.len().max(1);
        let Some(queue) = attached.queues.get_mut(usize::from(frame.pair) % count) else {
            return Delivery::Down;
        };
        let delivered = queue.deliver(&self.memory, frame);
        self.is_full |= delivered == Delivery::NoRoom;
        delivered
    }

    /// Whether a frame that did not fit may fit now.
    pub fn has_new_room(&mut self) -> bool {
        let mut queues = self.queues_mut().iter_mut();
        queues.all(|queue| !queue.is_full())
    }

    /// No frame waits for room any more.
    pub fn unblock(&mut self) {
        self.is_full = false;
    }

    /// Has the kernel send what was delivered (`sent = false`), or gives it pieces of memory back.
    #[inline]
    pub fn publish(&mut self, sent: bool) {
        for queue in self.queues_mut() {
            match sent {
                false => queue.flush(),
                true => queue.refill(),
            }
        }
    }

    /// Whether there is work before the worker sleeps: frames that came, or that the kernel could
    /// not take yet, of which it says nothing later.
    pub fn arm(&mut self) -> bool {
        let is_full = self.is_full;
        self.queues_mut()
            .iter_mut()
            .any(|queue| queue.has_frames() || queue.is_sending() || (is_full && queue.is_full()))
    }

    /// A socket was readable, or has an error.
    pub fn woken(&mut self, queue: usize) {
        if let Some(queue) = self.queues_mut().get_mut(queue) {
            queue.woken();
        }
    }

    /// Looks whether the interface is there. False once it has gone.
    pub fn look(&mut self) -> bool {
        let mut queues = self.queues_mut().iter_mut();
        queues.all(|queue| queue.look() != Link::Gone)
    }

    /// Whether its interface has gone.
    pub fn is_lost(&self) -> bool {
        self.attached.is_none()
    }

    /// Lets go of an interface that has gone.
    pub fn let_go(&mut self) {
        self.attached = None;
    }
}

/// Queues that a port is to have.
fn count(wanted: &Wanted, interface: &Interface) -> anyhow::Result<u16> {
    let name = &wanted.interface;
    let most = PAIRS_MAX as u32;
    match wanted.queues {
        Some(queues) => {
            ensure!(
                u32::from(queues) <= interface.queues,
                "{name} has {} queues, not {queues}",
                interface.queues
            );
            Ok(queues)
        }
        None if interface.queues <= most => Ok(interface.queues as u16),
        None => bail!(
            "{name} has {} queues, and a port takes at most {most}: `ethtool -L {name} combined \
             {most}`, or `queues` (frames of the others go to the host itself)",
            interface.queues
        ),
    }
}

fn map(wanted: &Wanted, file: &File) -> anyhow::Result<(Arc<Memory>, u64)> {
    let bytes = file.metadata()?.len();
    ensure!(
        bytes > 0 && bytes % wanted.queue_bytes() == 0,
        "its memory has another length"
    );
    let region = Region::map(0, 0, bytes, file.try_clone()?, 0);
    let region = region.map_err(|refused| anyhow!(refused.0))?;
    let start = region.start();
    let memory = Memory::new(vec![Arc::new(region)]).map_err(|refused| anyhow!(refused.0))?;
    Ok((Arc::new(memory), start))
}

/// A socket that is bound to a queue, with memory from this address of the process on.
fn socket(wanted: &Wanted, ifindex: u32, queue: u16, start: u64) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
    let memory = XdpUmemReg {
        addr: start,
        len: wanted.queue_bytes(),
        chunk_size: CHUNK,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    let entries = u32::from(wanted.ring);
    sockopt::set_xdp_umem_reg(&socket, memory)?;
    sockopt::set_xdp_umem_fill_ring_size(&socket, entries)?;
    sockopt::set_xdp_umem_completion_ring_size(&socket, entries)?;
    sockopt::set_xdp_rx_ring_size(&socket, entries)?;
    sockopt::set_xdp_tx_ring_size(&socket, entries)?;
    let address = SocketAddrXdp::new(wanted.mode.flags(), ifindex, u32::from(queue));
    bind(socket.as_fd(), &address)?;
    Ok(socket)
}

/// The kernel frees what a process had that was killed a little after its end.
fn retried<T>(until: Instant, mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match attempt() {
            Err(Errno::BUSY) if Instant::now() < until => thread::sleep(LEFTOVER / 20),
            result => return result,
        }
    }
}

/// Why there is no socket.
fn refused(wanted: &Wanted, queue: u16, error: Errno) -> anyhow::Error {
    let name = &wanted.interface;
    let advice = match error {
        Errno::PERM | Errno::ACCESS => {
            "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: be root".to_owned()
        }
        Errno::NOBUFS | Errno::NOMEM => {
            "its memory cannot be locked: raise `ulimit -l`, or lower `ring`".to_owned()
        }
        Errno::AFNOSUPPORT => "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)".to_owned(),
        Errno::BUSY => format!("another program has queue {queue} of {name}"),
        Errno::OPNOTSUPP | Errno::INVAL if wanted.mode == Mode::ZeroCopy => {
            format!("the driver of {name} has no zero-copy here: write mode = \"auto\" or \"copy\"")
        }
        _ => format!("no AF_XDP socket at queue {queue} of {name}"),
    };
    anyhow!(error).context(advice)
}
