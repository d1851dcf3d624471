//! What all traces say together, before programs are made of them: which communicators are the
//! same, which messages have both ends, and which collectives all members have called.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use sluicegate_program::phase_name;

use crate::{
    expand::{Instance, Transfers},
    format::{Call, Fault, Record, Records, Trace, What},
};

/// Source, destination, context and tag of messages that match in their order.
pub type Key = (u32, u32, u32, u32);

/// Messages of a key.
#[derive(Debug, Default)]
pub struct Messages {
    /// Their bytes, in the order of sending.
    pub sent: Vec<u64>,
    /// How many were received.
    pub received: u64,
}

impl Messages {
    /// Those with both ends.
    pub fn matched(&self) -> u64 {
        self.received.min(self.sent.len() as u64)
    }
}

/// A collective that was called in a context.
#[derive(Clone, Debug)]
pub struct Collective {
    /// Tag of its first round.
    pub tag: u32,
    /// Its messages; equal ones are there once.
    pub transfers: Arc<Transfers>,
    /// Index in [`Survey::phases`].
    pub phase: u16,
    what: What,
}

/// A communicator as all members know it.
#[derive(Debug)]
pub struct Context {
    /// Ranks of the world.
    pub members: Arc<[u32]>,
    calls: Vec<BTreeMap<u32, Call>>,
    /// Those that all members have called.
    pub collectives: Vec<Collective>,
}

/// Contexts by their members and how many of the same members were made before.
#[derive(Debug, Default)]
struct Contexts {
    numbers: HashMap<(Arc<[u32]>, u32), u32>,
    all: Vec<Context>,
}

impl Contexts {
    fn number(&mut self, members: Arc<[u32]>, nth: u32) -> u32 {
        let next = self.all.len() as u32;
        let all = &mut self.all;
        *self
            .numbers
            .entry((members.clone(), nth))
            .or_insert_with(|| {
                all.push(Context {
                    members,
                    calls: Vec::new(),
                    collectives: Vec::new(),
                });
                next
            })
    }
}

/// What is known of a rank.
#[derive(Debug, Default)]
pub struct Own {
    /// By number of the rank: the context.
    pub contexts: Vec<u32>,
    /// By request of a receive that has ended: member of the context, and tag.
    pub received: HashMap<u64, (u32, u32)>,
    /// Receives that have not ended.
    pub open: u64,
    /// CPU time in ns when it ended.
    pub cpu_ns: Option<u64>,
}

/// The survey.
#[derive(Debug)]
pub struct Survey {
    /// Number 0 is the world.
    pub contexts: Vec<Context>,
    /// Names of the collectives as parts of the program.
    pub phases: Vec<String>,
    /// By rank.
    pub ranks: Vec<Own>,
    /// Messages between two ranks.
    pub messages: HashMap<Key, Messages>,
    /// Context and tag of messages that are not the world's, and their tag in the program.
    pub tags: HashMap<(u32, u32), u32>,
    /// Collectives that a member has not called: its trace ends before.
    pub cut: u64,
    /// Calls that are not recorded, by name.
    pub unsupported: BTreeMap<String, u64>,
}

/// A member of a context as a rank of the world.
pub fn rank_of(context: &Context, member: u32, me: u32) -> Result<u32, Fault> {
    let rank = context.members.get(member as usize).copied();
    rank.ok_or_else(|| {
        let count = context.members.len();
        fault(me, format!("member {member} of a communicator of {count}"))
    })
}

/// Something is wrong in the trace of a rank.
pub fn fault(rank: u32, reason: String) -> Fault {
    Fault {
        rank: Some(rank),
        reason,
    }
}

impl Survey {
    /// Of the traces of some ranks of so many.
    ///
    /// # Errors
    /// Records that cannot be, or traces that do not fit each other.
    pub fn new(ranks: u32, traces: &[Trace<'_>]) -> Result<Self, Fault> {
        let mut contexts = Contexts::default();
        contexts.number((0..ranks).collect(), 0);
        let mut survey = Self {
            contexts: Vec::new(),
            phases: Vec::new(),
            ranks: (0..ranks).map(|_| Own::default()).collect(),
            messages: HashMap::new(),
            tags: HashMap::new(),
            cut: 0,
            unsupported: BTreeMap::new(),
        };
        for trace in traces {
            let mut rank = Rank {
                me: trace.rank,
                ranks,
                same: HashMap::new(),
                posted: HashMap::new(),
                called: HashMap::new(),
                contexts: &mut contexts,
                survey: &mut survey,
            };
            rank.read(trace.records())?;
        }
        survey.contexts = contexts.all;
        let next = survey.allot_tags()?;
        survey.settle(next)?;
        Ok(survey)
    }

    /// The world keeps its tags; other contexts get those behind. Returns the next free one.
    fn allot_tags(&mut self) -> Result<u64, Fault> {
        let mut others = Vec::new();
        let mut next = 0;
        for (_, _, context, tag) in self.messages.keys().copied() {
            match context {
                0 => next = next.max(u64::from(tag) + 1),
                _ => others.push((context, tag)),
            }
        }
        others.sort_unstable();
        others.dedup();
        for other in others {
            self.tags.insert(other, tag(next)?);
            next += 1;
        }
        Ok(next)
    }

    /// Collectives that all members have called become messages.
    fn settle(&mut self, mut next: u64) -> Result<(), Fault> {
        let mut known: HashMap<Instance, Arc<Transfers>> = HashMap::new();
        for context in &mut self.contexts {
            let calls = std::mem::take(&mut context.calls);
            let members = context.members.len();
            let whole = calls.iter().take_while(|call| call.len() == members);
            let whole = whole.count();
            self.cut += (calls.len() - whole) as u64;
            for call in &calls[..whole] {
                let instance = instance(context, call)?;
                let what = instance.what;
                let transfers = known
                    .entry(instance)
                    .or_insert_with_key(|instance| Arc::new(instance.transfers()));
                context.collectives.push(Collective {
                    tag: tag(next)?,
                    transfers: transfers.clone(),
                    phase: 0,
                    what,
                });
                next += transfers.len() as u64;
            }
        }
        self.name_phases();
        tag(next).map(|_| ())
    }

    /// Collectives of one call are numbered by communicator, the world first, and in their order.
    fn name_phases(&mut self) {
        let mut counts: HashMap<What, u64> = HashMap::new();
        let all = || self.contexts.iter().flat_map(|one| &one.collectives);
        all().for_each(|one| *counts.entry(one.what).or_default() += 1);
        let mut numbers: HashMap<String, u16> = HashMap::new();
        let mut before: HashMap<What, u64> = HashMap::new();
        let contexts = self.contexts.iter_mut();
        for one in contexts.flat_map(|context| &mut context.collectives) {
            let number = before.entry(one.what).or_default();
            *number += 1;
            let name = phase_name(one.what.phase(), *number, counts[&one.what]);
            // No more than the calls that there are, PHASES_MAX of each.
            one.phase = *numbers.entry(name).or_insert_with_key(|name| {
                self.phases.push(name.clone());
                (self.phases.len() - 1) as u16
            });
        }
    }
}

fn tag(number: u64) -> Result<u32, Fault> {
    let fits = u32::try_from(number).ok();
    let fits = fits.filter(|tag| *tag < sluicegate_program::ANY_TAG);
    fits.ok_or_else(|| Fault {
        rank: None,
        reason: "the program has more rounds of messages than there are tags".to_owned(),
    })
}

/// The members' parts of a collective, which have to fit.
fn instance(context: &Context, calls: &BTreeMap<u32, Call>) -> Result<Instance, Fault> {
    let members = context.members.len();
    let mut first: Option<(u32, &Call)> = None;
    let mut bytes = Vec::with_capacity(members);
    for (member, call) in calls {
        let rank = rank_of(context, *member, 0)?;
        let (known, other) = *first.get_or_insert((rank, call));
        if (call.what, call.root) != (other.what, other.root) {
            let reason = format!(
                "calls {} with root {} where rank {known} calls {} with root {}",
                call.what.name(),
                call.root,
                other.what.name(),
                other.root
            );
            return Err(fault(rank, reason));
        }
        if call.root as usize >= members || ![1, members].contains(&call.bytes.len()) {
            let reason = format!(
                "{} with root {} and {} sizes among {members} members",
                call.what.name(),
                call.root,
                call.bytes.len()
            );
            return Err(fault(rank, reason));
        }
        bytes.push(call.bytes.clone());
    }
    let Some((_, call)) = first else {
        return Err(Fault {
            rank: None,
            reason: "a communicator without members".to_owned(),
        });
    };
    Ok(Instance {
        what: call.what,
        root: call.root,
        bytes,
    })
}

/// Reads the trace of a rank.
struct Rank<'a> {
    me: u32,
    ranks: u32,
    /// How many communicators of the same members it has made.
    same: HashMap<Arc<[u32]>, u32>,
    /// Context of the receives that have not ended.
    posted: HashMap<u64, u32>,
    /// By context, its place among the members and the collectives that it has called.
    called: HashMap<u32, (u32, usize)>,
    contexts: &'a mut Contexts,
    survey: &'a mut Survey,
}

impl Rank<'_> {
    fn read(&mut self, records: Records<'_>) -> Result<(), Fault> {
        for record in records {
            match record? {
                Record::Compute(_) => {}
                // A receive that ends without a message was cancelled.
                Record::Done(request) => {
                    self.posted.remove(&request);
                }
                Record::Probe(one) => {
                    let context = self.context(one.comm)?;
                    self.rank_of(context, one.from)?;
                }
                Record::Communicator(number, members) => self.communicator(number, members)?,
                Record::Send(sent) | Record::SendLater(_, sent) => {
                    let context = self.context(sent.comm)?;
                    let to = self.rank_of(context, sent.to)?;
                    let key = (self.me, to, context, sent.tag);
                    let messages = self.survey.messages.entry(key).or_default();
                    messages.sent.push(sent.bytes);
                }
                Record::Receive(one) => {
                    let context = self.context(one.comm)?;
                    self.received(context, one.from, one.tag)?;
                }
                Record::ReceiveLater(request, comm, _) => {
                    let context = self.context(comm)?;
                    self.posted.insert(request, context);
                }
                Record::DoneReceive(request, from, tag, _) => {
                    if let Some(context) = self.posted.remove(&request) {
                        self.received(context, from, tag)?;
                        let own = &mut self.survey.ranks[self.me as usize];
                        own.received.insert(request, (from, tag));
                    }
                }
                Record::Collective(call) => self.collective(call)?,
                Record::Unsupported(name) => {
                    *self.survey.unsupported.entry(name).or_default() += 1;
                }
                Record::End(cpu_ns) => {
                    self.survey.ranks[self.me as usize].cpu_ns = Some(cpu_ns);
                }
            }
        }
        self.survey.ranks[self.me as usize].open = self.posted.len() as u64;
        Ok(())
    }

    fn communicator(&mut self, number: u32, members: Vec<u32>) -> Result<(), Fault> {
        let own = &mut self.survey.ranks[self.me as usize];
        if number as usize != own.contexts.len() {
            let reason = format!("communicator {number} is not the next one");
            return Err(fault(self.me, reason));
        }
        if let Some(stranger) = members.iter().find(|rank| **rank >= self.ranks) {
            return Err(fault(
                self.me,
                format!("a communicator with rank {stranger}"),
            ));
        }
        let members: Arc<[u32]> = members.into();
        let nth = self.same.entry(members.clone()).or_default();
        own.contexts.push(self.contexts.number(members, *nth));
        *nth += 1;
        Ok(())
    }

    fn context(&self, comm: u32) -> Result<u32, Fault> {
        let own = &self.survey.ranks[self.me as usize];
        let known = own.contexts.get(comm as usize).copied();
        known.ok_or_else(|| fault(self.me, format!("communicator {comm} was never made")))
    }

    fn rank_of(&self, context: u32, member: u32) -> Result<u32, Fault> {
        rank_of(&self.contexts.all[context as usize], member, self.me)
    }

    fn received(&mut self, context: u32, from: u32, tag: u32) -> Result<(), Fault> {
        let key = (self.rank_of(context, from)?, self.me, context, tag);
        self.survey.messages.entry(key).or_default().received += 1;
        Ok(())
    }

    fn collective(&mut self, call: Call) -> Result<(), Fault> {
        let number = self.context(call.comm)?;
        let context = &mut self.contexts.all[number as usize];
        let place = match self.called.get(&number) {
            Some((place, _)) => *place,
            None => {
                let place = context.members.iter().position(|rank| *rank == self.me);
                let reason = || fault(self.me, "it is no member of a communicator".to_owned());
                place.ok_or_else(reason)? as u32
            }
        };
        let calls = &mut self.called.entry(number).or_insert((place, 0)).1;
        if context.calls.len() == *calls {
            context.calls.push(BTreeMap::new());
        }
        context.calls[*calls].insert(place, call);
        *calls += 1;
        Ok(())
    }
}
