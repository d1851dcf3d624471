//! The trace of a rank: what it called, in order, and the CPU time that it spent between calls.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | `SGTRACE1` |
//! | 8 | 4, 4 | number of ranks, this rank; little-endian |
//! | 16 | | records |
//!
//! A record is its kind (a byte) and numbers in LEB128. A zero instead of a kind, or the end of the
//! file, ends the trace: of a rank that was killed, the file is longer than its records.

use std::fmt;

/// What a trace begins with.
pub const MAGIC: &[u8; 8] = b"SGTRACE1";

const HEADER_BYTES: usize = 16;

/// What a record says. Ranks are those of the communicator, whose number is the rank's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// CPU time in ns since the last call.
    Compute(u64),
    /// A communicator and its members, as ranks of the world.
    Communicator(u32, Vec<u32>),
    /// A message was sent.
    Send(Sent),
    /// A message was received.
    Receive(Received),
    /// A send has begun: its request.
    SendLater(u64, Sent),
    /// A receive was posted: its request, communicator, and whether it takes any source or tag.
    ReceiveLater(u64, u32, bool),
    /// A request has ended: a send, a collective, or a receive that was cancelled.
    Done(u64),
    /// A receive has ended: its request, the source, the tag and the bytes of the message.
    DoneReceive(u64, u32, u32, u64),
    /// A message was seen that is not yet received.
    Probe(Received),
    /// A collective.
    Collective(Call),
    /// A call that is not recorded.
    Unsupported(String),
    /// The rank has ended, with so much CPU time in ns since it was started.
    End(u64),
}

/// A message that a rank sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Communicator.
    pub comm: u32,
    /// Its member that receives.
    pub to: u32,
    /// Tag.
    pub tag: u32,
    /// Length.
    pub bytes: u64,
}

/// A message that a rank has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Communicator.
    pub comm: u32,
    /// Its member that sent.
    pub from: u32,
    /// Tag.
    pub tag: u32,
    /// Length.
    pub bytes: u64,
    /// The receive would have taken another source or tag.
    pub wild: bool,
}

/// A member's part of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub what: What,
    /// Communicator.
    pub comm: u32,
    /// Of one that does not block.
    pub request: Option<u64>,
    /// Member that is the root; 0 if there is none.
    pub root: u32,
    /// What the member contributes; of a scatter, what it gets. One number, or one for each member.
    pub bytes: Vec<u64>,
}

/// The collectives of MPI. `Reduce_scatter_block` is a [`What::ReduceScatter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum What {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    Allgather,
    Allgatherv,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Alltoall,
    Alltoallv,
    ReduceScatter,
    Scan,
    Exscan,
}

impl What {
    /// In the order of their numbers in traces.
    pub(crate) const ALL: [Self; 15] = [
        Self::Barrier,
        Self::Bcast,
        Self::Reduce,
        Self::Allreduce,
        Self::Allgather,
        Self::Allgatherv,
        Self::Gather,
        Self::Gatherv,
        Self::Scatter,
        Self::Scatterv,
        Self::Alltoall,
        Self::Alltoallv,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
    ];

    /// The name of its part in a program.
    pub(crate) fn phase(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "all-reduce",
            Self::Allgather => "all-gather",
            Self::Allgatherv => "all-gather-v",
            Self::Gather => "gather",
            Self::Gatherv => "gather-v",
            Self::Scatter => "scatter",
            Self::Scatterv => "scatter-v",
            Self::Alltoall => "all-to-all",
            Self::Alltoallv => "all-to-all-v",
            Self::ReduceScatter => "reduce-scatter",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }

    /// The name of its call.
    pub fn name(self) -> String {
        match self {
            Self::ReduceScatter => "MPI_Reduce_scatter".to_owned(),
            other => format!("MPI_{other:?}"),
        }
    }
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank, if it is known.
    pub rank: Option<u32>,
    /// What, with the offset in bytes.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "trace of rank {rank}: {}", self.reason),
            None => write!(f, "{}", self.reason),
        }
    }
}

impl std::error::Error for Fault {}

/// A trace whose begin was read.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// Ranks of the program.
    pub ranks: u32,
    /// The one that wrote it.
    pub rank: u32,
    records: &'a [u8],
}

impl<'a> Trace<'a> {
    /// Reads the begin; `None` if the file has none, since its rank died before it wrote it.
    ///
    /// # Errors
    /// It is no trace.
    pub fn new(file: &'a [u8]) -> Result<Option<Self>, Fault> {
        let unwritten = file.iter().take(HEADER_BYTES).all(|byte| *byte == 0);
        let Some((header, records)) = file.split_at_checked(HEADER_BYTES) else {
            return match unwritten {
                true => Ok(None),
                false => Err(no_trace("it has less than 16 bytes")),
            };
        };
        if unwritten {
            return Ok(None);
        }
        if &header[..8] != MAGIC {
            return Err(no_trace("it does not begin with SGTRACE1"));
        }
        let number = |at: usize| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_le_bytes(bytes)
        };
        let (ranks, rank) = (number(8), number(12));
        if ranks == 0 || ranks > sluicegate_program::RANKS_MAX || rank >= ranks {
            return Err(no_trace(&format!("rank {rank} of {ranks}")));
        }
        Ok(Some(Self {
            ranks,
            rank,
            records,
        }))
    }

    /// Its records, in order. A record that the file's end cuts off is left out.
    pub fn records(&self) -> Records<'a> {
        Records {
            rank: self.rank,
            bytes: self.records,
            at: 0,
        }
    }
}

fn no_trace(reason: &str) -> Fault {
    Fault {
        rank: None,
        reason: format!("no trace: {reason}"),
    }
}

/// Reads records.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rank: u32,
    bytes: &'a [u8],
    at: usize,
}

/// Why a record cannot be read.
enum Bad {
    Truncated,
    Wrong(String),
}

impl Records<'_> {
    fn number(&mut self) -> Result<u64, Bad> {
        let mut value = 0u64;
        for shift in (0..).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(Bad::Truncated)?;
            self.at += 1;
            if shift > 63 || (shift == 63 && byte > 1) {
                return Err(Bad::Wrong("a number of more than 64 bits".to_owned()));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    fn u32(&mut self) -> Result<u32, Bad> {
        let value = self.number()?;
        u32::try_from(value).map_err(|_| Bad::Wrong(format!("{value} is too large")))
    }

    fn bytes(&mut self) -> Result<u64, Bad> {
        let value = self.number()?;
        match value > u64::from(u32::MAX) << 16 {
            true => Err(Bad::Wrong(format!("{value} bytes in a message"))),
            false => Ok(value),
        }
    }

    /// A list with its length before it; `most` is the longest.
    fn list<T>(
        &mut self,
        most: u32,
        one: impl Fn(&mut Self) -> Result<T, Bad>,
    ) -> Result<Vec<T>, Bad> {
        let length = self.number()?;
        if length > u64::from(most) {
            return Err(Bad::Wrong(format!(
                "a list of {length}, longer than {most}"
            )));
        }
        (0..length).map(|_| one(self)).collect()
    }

    fn sent(&mut self) -> Result<Sent, Bad> {
        Ok(Sent {
            comm: self.u32()?,
            to: self.u32()?,
            tag: self.u32()?,
            bytes: self.bytes()?,
        })
    }

    fn received(&mut self) -> Result<Received, Bad> {
        Ok(Received {
            comm: self.u32()?,
            from: self.u32()?,
            tag: self.u32()?,
            bytes: self.bytes()?,
            wild: false,
        })
    }

    fn call(&mut self) -> Result<Call, Bad> {
        let what = self.number()?;
        let known = usize::try_from(what).ok().and_then(|at| What::ALL.get(at));
        Ok(Call {
            what: *known.ok_or_else(|| Bad::Wrong(format!("collective {what} is not known")))?,
            comm: self.u32()?,
            request: self.number()?.checked_sub(1),
            root: self.u32()?,
            bytes: self.list(sluicegate_program::RANKS_MAX, Self::bytes)?,
        })
    }

    fn record(&mut self, kind: u8) -> Result<Record, Bad> {
        Ok(match kind {
            1 => Record::Compute(self.number()?),
            2 => Record::Communicator(
                self.u32()?,
                self.list(sluicegate_program::RANKS_MAX, Self::u32)?,
            ),
            3 => Record::Send(self.sent()?),
            4 => {
                let received = self.received()?;
                let wild = self.number()? != 0;
                Record::Receive(Received { wild, ..received })
            }
            5 => Record::SendLater(self.number()?, self.sent()?),
            6 => Record::ReceiveLater(self.number()?, self.u32()?, self.number()? != 0),
            7 => Record::Done(self.number()?),
            8 => Record::DoneReceive(self.number()?, self.u32()?, self.u32()?, self.bytes()?),
            9 => Record::Probe(self.received()?),
            10 => Record::Collective(self.call()?),
            11 => {
                let name = self.list(64, |records| Ok(records.number()? as u8))?;
                Record::Unsupported(String::from_utf8_lossy(&name).into_owned())
            }
            12 => Record::End(self.number()?),
            other => return Err(Bad::Wrong(format!("a record of kind {other}"))),
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let begin = self.at;
        let kind = *self.bytes.get(begin)?;
        if kind == 0 {
            return None;
        }
        self.at += 1;
        match self.record(kind) {
            Ok(record) => Some(Ok(record)),
            Err(bad) => {
                self.at = self.bytes.len();
                let Bad::Wrong(reason) = bad else { return None };
                Some(Err(Fault {
                    rank: Some(self.rank),
                    reason: format!("offset {}: {reason}", begin + HEADER_BYTES),
                }))
            }
        }
    }
}
