//! One process takes the place of another: sockets, interfaces and frames go over, guests notice
//! nothing.
//!
//! ```text
//!  new ── {"ask": "takeover"} ──▶ old
//!  new ◀──────────────── prepare ──
//!  new ── prepared ──────────────▶ old   stops its sessions between two messages, then its thread
//!  new ◀── everything, descriptors ──   (the rings are in the ledger, which goes over as well)
//!  new ── ready ──────────────────▶ old
//!  new ◀────────────────────── go ──    and ends; if anything fails before, it goes on
//! ```
//!
//! In place of `prepared` and `ready` the new one may say why it does not go on, and the old one in
//! place of everything ([`Refused`]).

use std::{
    fs::File,
    io::{self, BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

use crate::{
    count::Counters,
    lanes::Lane,
    offload::Work,
    shm::cable::CableState,
    upgrade::{Refused, Remedy},
    vhost::{link::Connection, relay::Message},
    xdp::{QueueState, XdpEstate},
};

/// The form of what goes over; another one is refused, and the old process goes on.
const FORM: u32 = 5;

/// The longest wait for the other side, while the old process runs.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest wait of a process that has stopped, and for each of its ports.
const STOPPED: Duration = Duration::from_millis(50);
const STOPPED_PER_PORT: Duration = Duration::from_millis(1);

/// How a switch asks its successor, which says so in its question, whether it listens.
const PREPARE: [u8; 8] = *b"prepare\n";
const PREPARED: u8 = b'p';

/// Descriptors of one message of the socket.
const BATCH: usize = 32;

/// Bounds of what is read, in bytes and descriptors.
const HEAD_MAX: u64 = 1 << 28;
const FRAMES_MAX: u64 = 1 << 33;
const DESCRIPTORS_MAX: usize = 1 << 16;

/// How a switch begins its answer that does not hand over, or does not know the question.
const REFUSAL: [u8; 8] = *b"{\"error\"";

/// How the reason begins where a switch does not know a question.
pub const UNKNOWN: &str = "no question that is known";

const READY: u8 = b'r';
const GO: u8 = b'g';

/// A successor gives up; why follows, as JSON, in the same write.
const GIVES_UP: u8 = b'x';

/// The most bytes of a reason.
const REASON_MAX: usize = 1 << 14;

/// A frame that the switch has a copy of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Number of the port by which it came.
    pub from: u16,
    /// The queue pair of that port.
    pub pair: u16,
    /// Number of the port for which it waits.
    pub exit: u16,
    /// VLAN.
    pub vlan: u16,
    /// Priority.
    #[serde(default)]
    pub lane: Lane,
    /// The work that is left.
    pub work: Work,
    /// Whether it is the copy of a flooded frame.
    pub is_flooded: bool,
    /// Length in bytes.
    pub bytes: u32,
}

/// A port.
#[derive(Debug, Default)]
pub struct Bay {
    /// Its name.
    pub name: String,
    /// What is behind it, in words: of another port of this name only the counters are used.
    pub kind: String,
    /// Its counters.
    pub counters: Counters,
    /// Why it was closed.
    pub closed: Option<String>,
    /// The socket at which it listens.
    pub listener: Option<UnixListener>,
    /// Its frontend's connection.
    pub connection: Option<Connection>,
    /// Its interface.
    pub tap: Option<File>,
    /// Where its cable is.
    pub cable: Option<CableState>,
    /// The sockets of its interface.
    pub xdp: Option<XdpEstate>,
}

/// Everything that goes over.
#[derive(Debug)]
pub struct Estate {
    /// The control socket.
    pub control: UnixListener,
    /// The file of [`crate::ledger`], with its lock.
    pub ledger: File,
    /// The ports.
    pub bays: Vec<Bay>,
    /// Frames with their bytes, in the order in which they wait.
    pub copies: Vec<(Copy, Vec<u8>)>,
    /// When the old process stopped, ns of the host's monotonic clock.
    pub stopped_ns: u64,
    /// The old process; 0 where it did not say.
    pub pid: u32,
}

/// What of it is text; descriptors are numbers there.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    form: u32,
    descriptors: usize,
    stopped_ns: u64,
    #[serde(default)]
    pid: u32,
    bays: Vec<BayHead>,
    copies: Vec<Copy>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BayHead {
    name: String,
    kind: String,
    counters: Counters,
    closed: Option<String>,
    listener: Option<usize>,
    tap: Option<usize>,
    connection: Option<ConnectionHead>,
    cable: Option<CableState>,
    xdp: Option<XdpHead>,
}

#[derive(Debug, Serialize, Deserialize)]
struct XdpHead {
    program: usize,
    memory: usize,
    queues: Vec<(usize, QueueState)>,
}

impl XdpHead {
    fn number<'a>(estate: &'a XdpEstate, numbers: &mut Numbers<'a>) -> Self {
        let queues = estate.sockets.iter().zip(&estate.queues);
        Self {
            program: numbers.add(&estate.program),
            memory: numbers.add(&estate.memory),
            queues: queues
                .map(|(socket, state)| (numbers.add(socket), state.clone()))
                .collect(),
        }
    }

    fn estate(self, descriptors: &mut Descriptors) -> anyhow::Result<XdpEstate> {
        let program = descriptors.take(self.program)?;
        let memory = descriptors.take(self.memory)?.into();
        let (sockets, queues): (Vec<_>, _) = self.queues.into_iter().unzip();
        let sockets = sockets.into_iter().map(|number| descriptors.take(number));
        Ok(XdpEstate {
            program,
            memory,
            sockets: sockets.collect::<anyhow::Result<_>>()?,
            queues,
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct ConnectionHead {
    stream: usize,
    said: Vec<(Vec<u8>, Vec<usize>)>,
}

impl ConnectionHead {
    fn number<'a>(connection: &'a Connection, numbers: &mut Numbers<'a>) -> Self {
        let stream = numbers.add(&connection.stream);
        let said = connection.said.iter().map(|message| {
            let descriptors = message.descriptors.iter().map(|fd| numbers.add(fd));
            (message.bytes.clone(), descriptors.collect())
        });
        let said = said.collect();
        Self { stream, said }
    }

    fn connection(self, descriptors: &mut Descriptors) -> anyhow::Result<Connection> {
        let said = self.said.into_iter().map(|(bytes, numbers)| {
            let with = numbers.into_iter().map(|number| descriptors.take(number));
            let descriptors = with.collect::<anyhow::Result<_>>()?;
            Ok(Message { bytes, descriptors })
        });
        let said = said.collect::<anyhow::Result<_>>()?;
        let stream = descriptors.take(self.stream)?.into();
        Ok(Connection { stream, said })
    }
}

impl BayHead {
    fn number<'a>(bay: &'a Bay, numbers: &mut Numbers<'a>) -> Self {
        Self {
            name: bay.name.clone(),
            kind: bay.kind.clone(),
            counters: bay.counters,
            closed: bay.closed.clone(),
            listener: bay.listener.as_ref().map(|fd| numbers.add(fd)),
            tap: bay.tap.as_ref().map(|fd| numbers.add(fd)),
            connection: bay
                .connection
                .as_ref()
                .map(|it| ConnectionHead::number(it, numbers)),
            cable: bay.cable.clone(),
            xdp: bay.xdp.as_ref().map(|it| XdpHead::number(it, numbers)),
        }
    }

    fn bay(self, descriptors: &mut Descriptors) -> anyhow::Result<Bay> {
        let mut take = |number: usize| descriptors.take(number);
        Ok(Bay {
            name: self.name,
            kind: self.kind,
            counters: self.counters,
            closed: self.closed,
            listener: self.listener.map(&mut take).transpose()?.map(Into::into),
            tap: self.tap.map(&mut take).transpose()?.map(Into::into),
            connection: self
                .connection
                .map(|it| it.connection(descriptors))
                .transpose()?,
            cable: self.cable,
            xdp: self.xdp.map(|it| it.estate(descriptors)).transpose()?,
        })
    }
}

/// The host's monotonic clock, ns.
pub fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Numbers descriptors.
#[derive(Default)]
struct Numbers<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Numbers<'a> {
    fn add(&mut self, descriptor: &'a impl AsFd) -> usize {
        self.0.push(descriptor.as_fd());
        self.0.len() - 1
    }
}

/// Waits until the new process is there and hears; nothing has stopped yet.
///
/// # Errors
/// It says nothing.
pub fn prepare(stream: &UnixStream) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut to = stream;
    to.write_all(&PREPARE)?;
    match hear(stream) {
        Some(PREPARED) => Ok(()),
        Some(GIVES_UP) => Err(reason(stream).into()),
        _ => bail!("the new switch said nothing before anything was stopped"),
    }
}

/// The next byte, if it comes in time.
fn hear(mut stream: &UnixStream) -> Option<u8> {
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    Some(byte[0])
}

/// Says that this process, the new one, does not take over. Whether the other one hears it is no
/// matter: it goes on in any case.
pub fn give_up(mut stream: &UnixStream, why: &anyhow::Error) {
    let mut message = vec![GIVES_UP];
    let reason = serde_json::to_vec(&Refused::of(why)).unwrap_or_default();
    message.extend(reason.into_iter().take(REASON_MAX));
    let _ = stream.set_write_timeout(Some(STOPPED));
    let _ = stream.write_all(&message);
}

/// Says that this process, the old one, does not hand over; nothing else was sent.
pub fn refuse(mut stream: &UnixStream, why: &anyhow::Error) {
    let reason = serde_json::to_string(&Refused::of(why)).unwrap_or_default();
    let _ = writeln!(stream, "{reason}");
}

/// Why the new process gives up: one read, because frames may wait meanwhile.
fn reason(mut stream: &UnixStream) -> Refused {
    let mut text = vec![0; REASON_MAX];
    let read = stream.read(&mut text).unwrap_or(0);
    let known = serde_json::from_slice(&text[..read]);
    known.unwrap_or_else(|_| Refused::new(Remedy::Other, "the new switch gave up"))
}

/// Why everything did not get to the new process.
fn not_taken(stream: &UnixStream, error: anyhow::Error) -> anyhow::Error {
    match hear(stream) {
        Some(GIVES_UP) => reason(stream).into(),
        _ => error,
    }
}

/// The old process did not wait any longer.
fn late() -> Refused {
    const LATE: &str = "the switch that runs goes on: this one was too slow";
    Refused::new(Remedy::Again, LATE)
}

impl Estate {
    /// For how long the other side may do nothing while no frame moves.
    pub fn patience(&self) -> Duration {
        STOPPED + STOPPED_PER_PORT * self.bays.len() as u32
    }

    /// Sends it.
    ///
    /// # Errors
    /// The other side has gone, or says why it does not take it.
    pub fn send(&self, to: &UnixStream) -> anyhow::Result<()> {
        to.set_write_timeout(Some(self.patience()))?;
        to.set_read_timeout(Some(STOPPED_PER_PORT))?;
        self.write(to).map_err(|error| not_taken(to, error))
    }

    fn write(&self, to: &UnixStream) -> anyhow::Result<()> {
        let mut numbers = Numbers::default();
        numbers.add(&self.control);
        numbers.add(&self.ledger);
        let bays = self
            .bays
            .iter()
            .map(|bay| BayHead::number(bay, &mut numbers));
        let bays = bays.collect();
        let head = Head {
            form: FORM,
            descriptors: numbers.0.len(),
            stopped_ns: self.stopped_ns,
            pid: self.pid,
            bays,
            copies: self.copies.iter().map(|(copy, _)| copy.clone()).collect(),
        };
        let head = serde_json::to_vec(&head)?;
        let frames: usize = self.copies.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut stream = to;
        stream.write_all(&(head.len() as u64).to_le_bytes())?;
        stream.write_all(&(frames as u64).to_le_bytes())?;
        stream.write_all(&head)?;
        for (_, bytes) in &self.copies {
            stream.write_all(bytes)?;
        }
        for batch in numbers.0.chunks(BATCH) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ensure!(
                ancillary.push(SendAncillaryMessage::ScmRights(batch)),
                "too many descriptors at once"
            );
            sendmsg(
                to,
                &[IoSlice::new(&[1])],
                &mut ancillary,
                SendFlags::NOSIGNAL,
            )?;
        }
        Ok(())
    }

    /// Receives it.
    ///
    /// # Errors
    /// The other side refuses, has gone, or speaks another form.
    pub fn receive(from: &UnixStream) -> anyhow::Result<Self> {
        from.set_read_timeout(Some(PATIENCE))?;
        let head = read_head(from)?;
        let (mut stream, mut copies) = (from, Vec::new());
        for copy in head.copies {
            let mut bytes = vec![0; copy.bytes as usize];
            stream.read_exact(&mut bytes).map_err(|_| late())?;
            copies.push((copy, bytes));
        }
        let mut descriptors = Descriptors::receive(from, head.descriptors)?;
        let (control, ledger) = (descriptors.take(0)?.into(), descriptors.take(1)?.into());
        let bays = head.bays.into_iter().map(|bay| bay.bay(&mut descriptors));
        Ok(Self {
            control,
            ledger,
            bays: bays.collect::<anyhow::Result<_>>()?,
            copies,
            stopped_ns: head.stopped_ns,
            pid: head.pid,
        })
    }
}

/// Reads what is text. The old process may ask before whether this one listens.
fn read_head(from: &UnixStream) -> anyhow::Result<Head> {
    let mut stream = from;
    let mut word = || {
        let mut bytes = [0; 8];
        let read = stream.read_exact(&mut bytes);
        read.map(|()| bytes)
            .context("the switch that runs does not hand over; its log says why")
    };
    let mut first = word()?;
    if first == PREPARE {
        let mut to = from;
        to.write_all(&[PREPARED])?;
        first = word()?;
    }
    if first == REFUSAL {
        return Err(refusal(from).into());
    }
    let (bytes, frames) = (u64::from_le_bytes(first), u64::from_le_bytes(word()?));
    ensure!(bytes <= HEAD_MAX && frames <= FRAMES_MAX, "it is too long");
    let mut text = vec![0; bytes as usize];
    stream.read_exact(&mut text).map_err(|_| late())?;
    let form = serde_json::from_slice::<serde_json::Value>(&text)?["form"].as_u64();
    if form != Some(u64::from(FORM)) {
        const OTHER: &str = "the switch that runs is of another version; restart it instead";
        return Err(Refused::new(Remedy::Restart, OTHER).into());
    }
    Ok(serde_json::from_slice(&text)?)
}

/// Why the old process does not hand over: the rest of a line.
fn refusal(from: &UnixStream) -> Refused {
    let (mut rest, mut reader) = (String::new(), BufReader::new(from).take(REASON_MAX as u64));
    let _ = reader.read_line(&mut rest);
    let line = String::from_utf8_lossy(&REFUSAL) + &rest[..];
    match serde_json::from_str::<Refused>(&line) {
        Ok(refused) if !refused.error.starts_with(UNKNOWN) => Refused {
            error: format!("the switch that runs does not hand over: {}", refused.error),
            ..refused
        },
        _ => Refused::new(
            Remedy::Restart,
            "the switch that runs cannot hand over; restart it instead",
        ),
    }
}

/// Descriptors that have come, by number; each is taken once.
struct Descriptors(Vec<Option<OwnedFd>>);

impl Descriptors {
    fn take(&mut self, number: usize) -> anyhow::Result<OwnedFd> {
        let descriptor = self.0.get_mut(number).and_then(Option::take);
        descriptor.context("a descriptor is missing")
    }

    fn receive(from: &UnixStream, count: usize) -> anyhow::Result<Self> {
        ensure!(count <= DESCRIPTORS_MAX, "too many descriptors");
        let mut descriptors = Vec::with_capacity(count);
        while descriptors.len() < count {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC);
            let mut part = [IoSliceMut::new(&mut byte)];
            let received = recvmsg(from, &mut part, &mut ancillary, flags)?;
            if received.bytes == 0 {
                return Err(late().into());
            }
            let before = descriptors.len();
            for with in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = with {
                    descriptors.extend(some.map(Some));
                }
            }
            ensure!(
                received.bytes == 1 && descriptors.len() > before,
                "descriptors are missing; raise `ulimit -n`"
            );
        }
        Ok(Self(descriptors))
    }
}

/// The new process has everything: the old one is to end. Returns when it does, or has died and
/// left everything.
///
/// # Errors
/// The old process goes on instead.
pub fn ready(stream: &UnixStream) -> anyhow::Result<()> {
    const SILENT: &str = "the switch that runs says nothing";
    let (mut stream, mut byte) = (stream, [0]);
    let has_died = |error: &io::Error| {
        matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        )
    };
    match stream.write_all(&[READY]) {
        Err(error) if !has_died(&error) => return Err(error).context(SILENT),
        // It may have said before that it goes on.
        _ => {}
    }
    match stream.read(&mut byte) {
        Ok(1) if byte == [GO] => Ok(()),
        Ok(0) => Ok(()),
        Ok(_) => Err(late().into()),
        Err(error) if has_died(&error) => Ok(()),
        Err(error) => Err(error).context(SILENT),
    }
}

/// Waits for so long until the new process has everything, and lets it go.
///
/// # Errors
/// It failed: the old process goes on.
pub fn let_go(stream: &UnixStream, patience: Duration) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    let mut to = stream;
    match hear(stream) {
        Some(READY) => return Ok(to.write_all(&[GO])?),
        Some(GIVES_UP) => return Err(reason(stream).into()),
        _ => {}
    }
    // If it is only slow, it hears that it is too late.
    let _ = to.write_all(b"n");
    let patience = patience.as_millis();
    Err(Refused::new(
        Remedy::Again,
        format!("the new switch was not ready within {patience} ms"),
    )
    .into())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair")
    }

    #[test]
    fn a_successor_goes_on_unless_its_predecessor_does() {
        let (new, old) = pair();
        (&old).write_all(&[GO]).expect("sent");
        ready(&new).expect("it ends");
        let (new, old) = pair();
        drop(old);
        ready(&new).expect("it had died");
        // It dies with something unread: that resets the connection.
        let (new, old) = pair();
        (&new).write_all(b"x").expect("sent");
        drop(old);
        ready(&new).expect("it had died");
        let (new, old) = pair();
        (&new).write_all(b"x").expect("sent");
        let dies = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(old);
        });
        ready(&new).expect("it has died");
        dies.join().expect("it ended");
        // It was too late, whether the connection is still open or not.
        for stays in [true, false] {
            let (new, old) = pair();
            (&old).write_all(b"n").expect("sent");
            let old = stays.then_some(old);
            let error = ready(&new).expect_err("the other goes on");
            assert_eq!(Refused::of(&error).remedy, Remedy::Again);
            drop(old);
        }
    }

    #[test]
    fn a_switch_that_does_not_know_the_question_is_said_to() {
        let (new, old) = pair();
        let answer = b"{\"error\":\"no question that is known: unknown variant\"}\n";
        (&old).write_all(answer).expect("sent");
        let error = Estate::receive(&new).expect_err("it is no estate");
        assert!(error.to_string().contains("cannot hand over; restart it"));
        assert_eq!(Refused::of(&error).remedy, Remedy::Restart);
    }

    #[test]
    fn each_side_hears_why_the_other_does_not_go_on() {
        let why = || anyhow!("no room");
        let (new, old) = pair();
        refuse(&old, &why());
        let error = Estate::receive(&new).expect_err("refused");
        assert!(error.to_string().ends_with("hand over: no room"), "{error}");
        // Before anything was stopped, and when all was sent.
        for stopped in [false, true] {
            let (new, old) = pair();
            give_up(&new, &why());
            let heard = match stopped {
                false => prepare(&old),
                true => let_go(&old, Duration::from_millis(50)),
            };
            assert_eq!(heard.expect_err("it gave up").to_string(), "no room");
        }
        let (new, old) = pair();
        give_up(&new, &Refused::new(Remedy::Restart, "another form").into());
        let heard = Refused::of(&let_go(&old, STOPPED).expect_err("it gave up"));
        assert_eq!(heard, Refused::new(Remedy::Restart, "another form"));
        let (_new, old) = pair();
        let heard = Refused::of(&let_go(&old, STOPPED_PER_PORT).expect_err("silence"));
        assert_eq!(heard.remedy, Remedy::Again);
    }
}
