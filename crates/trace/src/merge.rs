//! From traces to a program.
//!
//! - Messages match by source, communicator and tag, in their order, which MPI guarantees. Receives
//!   that took any source or tag take what they took when they were recorded.
//! - A receive that was probed takes the place of its probe: from there on its message is awaited.
//! - Sends and receives whose other end is in no trace, messages of a rank to itself, and
//!   collectives that a member has not called are left out, and counted.

use std::collections::{BTreeMap, HashMap};

use sluicegate_program::{Kind, NO_PHASE, Operation, Program, RankBuilder};

use crate::{
    format::{Fault, Received, Record, Sent, Trace},
    survey::{Context, Key, Survey, rank_of},
};

/// What was recorded, in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Messages between two ranks.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the largest message of all.
    pub largest: u64,
    /// Messages that collectives are made of.
    pub collective_messages: u64,
    /// Their bytes.
    pub collective_bytes: u64,
    /// Collectives by the name of their call.
    pub collectives: BTreeMap<String, u64>,
    /// Receives that took any source or tag.
    pub wild: u64,
    /// By rank, computation in ns as in the program.
    pub computing_ns: Vec<u64>,
    /// Computation in ns as recorded, and CPU time in ns, of ranks that came to their end.
    pub computing_of: (u64, u64),
    /// What was left out, in words; and ranks that did not come to their end.
    pub notes: Vec<String>,
}

/// What traces become.
#[derive(Debug)]
pub struct Merged {
    /// The program.
    pub program: Program,
    /// Its figures.
    pub figures: Figures,
}

/// Merges the files of the ranks; computation takes `scale` times as long as recorded.
///
/// # Errors
/// A file is no trace, or they do not fit each other.
pub fn merge(files: &[Vec<u8>], scale: f64) -> Result<Merged, Fault> {
    let mut traces = Vec::new();
    for file in files {
        traces.extend(Trace::new(file)?);
    }
    traces.sort_by_key(|trace| trace.rank);
    let Some(first) = traces.first() else {
        return Err(alone("no rank has written a trace"));
    };
    let ranks = first.ranks;
    if traces.iter().any(|trace| trace.ranks != ranks) {
        return Err(alone(
            "the traces are of programs with different numbers of ranks",
        ));
    }
    if traces.windows(2).any(|two| two[0].rank == two[1].rank) {
        return Err(alone("there are two traces of one rank"));
    }
    let survey = Survey::new(ranks, &traces)?;
    let mut figures = Figures::default();
    notes(&survey, &traces, &mut figures.notes);
    let mut program = Program {
        phases: survey.phases.clone(),
        ..Program::default()
    };
    let mut by_rank = traces.iter().peekable();
    for me in 0..ranks {
        let mut maker = Maker::new(me, &survey, scale, &mut figures);
        if let Some(trace) = by_rank.next_if(|trace| trace.rank == me) {
            for record in trace.records() {
                maker.record(record?)?;
            }
        }
        program.ranks.push(maker.finish().into());
    }
    Ok(Merged { program, figures })
}

fn alone(reason: &str) -> Fault {
    Fault {
        rank: None,
        reason: reason.to_owned(),
    }
}

fn notes(survey: &Survey, traces: &[Trace<'_>], notes: &mut Vec<String>) {
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    };
    let silent = survey.ranks.len() - traces.len();
    say(silent as u64, "ranks have written no trace");
    let cut = traces
        .iter()
        .filter(|trace| survey.ranks[trace.rank as usize].cpu_ns.is_none());
    let cut = cut.count() as u64;
    say(
        cut,
        "ranks did not come to MPI_Finalize: their traces end earlier",
    );
    let (mut sends, mut receives, mut own) = (0, 0, 0);
    for ((from, to, ..), messages) in &survey.messages {
        let sent = messages.sent.len() as u64;
        sends += sent - messages.matched();
        receives += messages.received - messages.matched();
        own += if from == to { messages.matched() } else { 0 };
    }
    say(sends, "sends without a receive are left out");
    say(receives, "receives without a send are left out");
    say(own, "messages of a rank to itself are left out");
    let open = survey.ranks.iter().map(|rank| rank.open).sum();
    say(open, "receives that have taken no message are left out");
    say(
        survey.cut,
        "collectives that not all members have called are left out",
    );
    for (name, count) in &survey.unsupported {
        say(*count, &format!("calls are not recorded: {name}"));
    }
}

/// Makes the program of a rank.
struct Maker<'a> {
    me: u32,
    survey: &'a Survey,
    scale: f64,
    figures: &'a mut Figures,
    own: RankBuilder,
    /// Of the operations that follow.
    phase: u16,
    /// What has to end before the next operation begins.
    front: Vec<u32>,
    /// CPU time in ns since the last operation, as recorded.
    computing_ns: u64,
    /// As recorded, of the whole rank.
    computed_ns: u64,
    scaled_ns: u64,
    /// Operations of requests that have not ended.
    requests: HashMap<u64, Vec<u32>>,
    /// Receives that were probed and not yet made, and their operation.
    probed: HashMap<Key, Option<u32>>,
    /// Sends and receives of a key so far.
    sent: HashMap<Key, u64>,
    taken: HashMap<Key, u64>,
    /// Collectives so far, by context.
    called: HashMap<u32, usize>,
}

impl<'a> Maker<'a> {
    fn new(me: u32, survey: &'a Survey, scale: f64, figures: &'a mut Figures) -> Self {
        Self {
            me,
            survey,
            scale,
            figures,
            own: RankBuilder::default(),
            phase: NO_PHASE,
            front: Vec::new(),
            computing_ns: 0,
            computed_ns: 0,
            scaled_ns: 0,
            requests: HashMap::new(),
            probed: HashMap::new(),
            sent: HashMap::new(),
            taken: HashMap::new(),
            called: HashMap::new(),
        }
    }

    fn record(&mut self, record: Record) -> Result<(), Fault> {
        match record {
            Record::Communicator(..) | Record::Unsupported(_) | Record::End(_) => {}
            Record::Compute(ns) => {
                self.computing_ns = self.computing_ns.saturating_add(ns);
                self.computed_ns = self.computed_ns.saturating_add(ns);
            }
            Record::Send(sent) => {
                let operation = self.send(sent)?;
                self.go_on_after(operation);
            }
            Record::SendLater(request, sent) => {
                let operation = self.send(sent)?;
                self.requests
                    .insert(request, operation.into_iter().collect());
            }
            Record::Receive(one) => {
                self.figures.wild += u64::from(one.wild);
                let operation = self.receive(one)?;
                self.go_on_after(operation);
            }
            Record::ReceiveLater(request, comm, wild) => self.post(request, comm, wild)?,
            Record::Done(request) | Record::DoneReceive(request, ..) => self.done(request),
            Record::Probe(one) => self.probe(one)?,
            Record::Collective(call) => self.collective(call.comm, call.request, &call.what.name()),
        }
        Ok(())
    }

    fn context(&self, comm: u32) -> (u32, &'a Context) {
        let number = self.survey.ranks[self.me as usize].contexts[comm as usize];
        (number, &self.survey.contexts[number as usize])
    }

    /// Adds an operation behind the front.
    fn add(&mut self, kind: Kind, size: u64, peer: u32, tag: u32) -> u32 {
        self.flush();
        self.push(kind, size, peer, tag)
    }

    fn push(&mut self, kind: Kind, size: u64, peer: u32, tag: u32) -> u32 {
        let number = self.own.add(Operation {
            size,
            peer,
            tag,
            requires: 0,
            phase: self.phase,
            cpu: 0,
            kind,
        });
        for before in &self.front {
            self.own.require(number, *before, false);
        }
        number
    }

    /// Computation up to here becomes an operation; so does a wait for more than two.
    fn flush(&mut self) {
        let ns = (self.computing_ns as f64 * self.scale).round() as u64;
        self.computing_ns = 0;
        self.scaled_ns = self.scaled_ns.saturating_add(ns);
        if ns > 0 || self.front.len() > 2 {
            let number = self.push(Kind::Compute, ns.min(i64::MAX as u64), 0, 0);
            self.front = vec![number];
        }
    }

    fn go_on_after(&mut self, operation: Option<u32>) {
        if let Some(operation) = operation {
            self.front = vec![operation];
        }
    }

    fn tag(&self, key: Key) -> u32 {
        let other = self.survey.tags.get(&(key.2, key.3));
        other.copied().unwrap_or(key.3)
    }

    /// The send of a message that is received, by another rank.
    fn send(&mut self, sent: Sent) -> Result<Option<u32>, Fault> {
        let (number, context) = self.context(sent.comm);
        let key = (
            self.me,
            rank_of(context, sent.to, self.me)?,
            number,
            sent.tag,
        );
        let nth = self.sent.entry(key).or_default();
        *nth += 1;
        if *nth > self.survey.messages[&key].matched() || key.1 == self.me {
            return Ok(None);
        }
        self.figures.messages += 1;
        self.figures.bytes += sent.bytes;
        self.figures.largest = self.figures.largest.max(sent.bytes);
        let tag = self.tag(key);
        Ok(Some(self.add(Kind::Send, sent.bytes, key.1, tag)))
    }

    fn key(&self, one: &Received) -> Result<Key, Fault> {
        let (number, context) = self.context(one.comm);
        Ok((
            rank_of(context, one.from, self.me)?,
            self.me,
            number,
            one.tag,
        ))
    }

    /// The receive of a message that is sent, by another rank; the probe's if it was probed.
    fn receive(&mut self, one: Received) -> Result<Option<u32>, Fault> {
        let key = self.key(&one)?;
        match self.probed.remove(&key) {
            Some(probed) => Ok(probed),
            None => Ok(self.take(key)),
        }
    }

    fn take(&mut self, key: Key) -> Option<u32> {
        let nth = self.taken.entry(key).or_default();
        *nth += 1;
        let nth = *nth;
        let messages = &self.survey.messages.get(&key)?;
        if nth > messages.matched() || key.0 == self.me {
            return None;
        }
        let bytes = messages.sent[nth as usize - 1];
        let tag = self.tag(key);
        Some(self.add(Kind::Receive, bytes, key.0, tag))
    }

    fn probe(&mut self, one: Received) -> Result<(), Fault> {
        let key = self.key(&one)?;
        if !self.probed.contains_key(&key) {
            let operation = self.take(key);
            self.go_on_after(operation);
            self.probed.insert(key, operation);
        }
        Ok(())
    }

    fn post(&mut self, request: u64, comm: u32, wild: bool) -> Result<(), Fault> {
        let own = &self.survey.ranks[self.me as usize];
        let Some((from, tag)) = own.received.get(&request).copied() else {
            return Ok(());
        };
        self.figures.wild += u64::from(wild);
        let operation = self.receive(Received {
            comm,
            from,
            tag,
            bytes: 0,
            wild,
        })?;
        self.requests
            .insert(request, operation.into_iter().collect());
        Ok(())
    }

    fn done(&mut self, request: u64) {
        let Some(operations) = self.requests.remove(&request) else {
            return;
        };
        if operations.is_empty() {
            return;
        }
        // What was computed before did not wait for it.
        if self.computing_ns > 0 {
            self.flush();
        }
        for operation in operations {
            if !self.front.contains(&operation) {
                self.front.push(operation);
            }
        }
    }

    fn collective(&mut self, comm: u32, request: Option<u64>, name: &str) {
        let (number, context) = self.context(comm);
        let nth = self.called.entry(number).or_default();
        *nth += 1;
        let Some(collective) = context.collectives.get(*nth - 1) else {
            return;
        };
        if context.members.first() == Some(&self.me) {
            *self.figures.collectives.entry(name.to_owned()).or_default() += 1;
        }
        self.flush();
        let begin = self.front.clone();
        self.phase = collective.phase;
        for (tag, round) in (collective.tag..).zip(&*collective.transfers) {
            let mut ends = Vec::new();
            for transfer in round {
                let (from, to) = (
                    context.members[transfer.from as usize],
                    context.members[transfer.to as usize],
                );
                if to == self.me {
                    ends.push(self.add(Kind::Receive, transfer.bytes, from, tag));
                }
                if from == self.me {
                    ends.push(self.add(Kind::Send, transfer.bytes, to, tag));
                    self.figures.collective_messages += 1;
                    self.figures.collective_bytes += transfer.bytes;
                    self.figures.largest = self.figures.largest.max(transfer.bytes);
                }
            }
            if !ends.is_empty() {
                self.front = ends;
            }
        }
        self.phase = NO_PHASE;
        if let Some(request) = request {
            let ends = std::mem::replace(&mut self.front, begin);
            self.requests.insert(request, ends);
        }
    }

    fn finish(mut self) -> sluicegate_program::Rank {
        self.flush();
        self.figures.computing_ns.push(self.scaled_ns);
        if let Some(cpu_ns) = self.survey.ranks[self.me as usize].cpu_ns {
            self.figures.computing_of.0 += self.computed_ns;
            self.figures.computing_of.1 += cpu_ns;
        }
        self.own.finish()
    }
}
