//! Enforcement at the ports: what eBPF programs do at an interface of the kernel, by the same core
//! step, table and policy (`agent/bpf/enforce.bpf.c`).
//!
//! ```text
//!  frame's start ─core: parse─▶ segment ─Vnics, core's step─▶ verdict ─core: apply─▶ start
//!        └─ no TCP, or none that is governed ─▶ bucket of its class
//! ```

mod between;
mod run;

use std::path::PathBuf;

use sluicegate_core::{
    abi::{
        BUCKET_NONE, Bucket, CLASS_NAMES, COUNTER_NAMES, FlowKey, HashKey, MODE_WATCH, RULE_ENFORCE,
    },
    bucket::classify,
    frame::{self, Packet},
    segment::{Action, Direction, Segment, Verdict, edit, tcp},
};
use sluicegate_policy::{Class, Policy, PolicyFile};
use sluicegate_vswitch::{Limits, Vnics, vnic::number};

use self::run::Run;
use crate::{
    count::Drop,
    frame::{Frame, START},
    memory::Memory,
};

const PACKETS: usize = number("packets");
const MALFORMED: usize = number("malformed");
const TRIMMED: usize = number("trimmed");
const EDIT_FAILED: usize = number("edit_failed");
const RULE_CHANGED: usize = number("rule_changed");
const BUCKET_DROPPED: usize = number("bucket_dropped");
const BUCKET_EXCEEDED: usize = number("bucket_exceeded");

/// A policy, the file that it was read from, and how many flows there may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Governing {
    /// The file.
    pub path: PathBuf,
    /// That of its text ([`PolicyFile::fingerprint`]).
    pub fingerprint: String,
    /// What it says.
    pub policy: Policy,
    /// How many flows there may be, and how long they may be silent.
    pub limits: Limits,
    /// Most flows of a port; 0 = no limit.
    pub quota: u32,
}

impl Governing {
    /// From a policy's file, with the bounds of the agent.
    pub fn new(file: &PolicyFile, policy: Policy) -> Self {
        Self {
            path: file.path.clone(),
            fingerprint: file.fingerprint(),
            policy,
            limits: Limits::default(),
            quota: 0,
        }
    }
}

/// The fate of a frame at a port.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on, edited or not.
    Pass,
    /// It goes on, and this frame after it: feedback in a packet of its own.
    PassWith(Vec<u8>),
    /// It is dropped.
    Drop(Drop),
    /// It was a message of another host's enforcement.
    Consumed,
}

/// A governed port.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its name, which conditions on interfaces are about.
    pub name: String,
    /// Its tenant, which conditions on tenants are about.
    pub tenant: String,
    /// The number by which flows refer to it, of no port before.
    pub ifindex: u32,
    /// By class, the bucket of its packets without a flow.
    classes: [u8; CLASS_NAMES.len()],
    /// By position in the policy.
    pub buckets: Vec<Bucket>,
}

/// Enforcement of one policy at the ports of a switch.
pub struct Govern {
    /// Its policy and bounds.
    pub governing: Governing,
    vnics: Vnics<FlowKey>,
    places: Vec<Option<Place>>,
    /// Ports that were ever governed.
    attached: u32,
    /// Number of its thread, and how many there are: each numbers its ports apart.
    thread: (u32, u32),
    charges_bare: bool,
    /// A frame as a whole, where its start is not enough.
    whole: Vec<u8>,
    /// Frames whose steps wait until the end of a burst.
    run: Run,
}

/// Where and when a frame passes.
#[derive(Clone, Copy)]
struct At {
    port: u16,
    direction: Direction,
    vlan: u16,
    now_ns: u64,
}

/// Another range than that of TCP is none of its checksum.
#[inline]
fn is_partial(frame: &Frame) -> bool {
    matches!(frame.work.checksum, Some((_, 16)))
}

#[inline]
fn view_of(frame: &mut Frame) -> frame::Frame<'_> {
    let is_partial = is_partial(frame);
    frame::Frame::new(&mut frame.start, frame.bytes, is_partial)
}

/// A packet that is still to be cut is no segment of its size.
#[inline]
fn tell_segments(packet: &mut Packet, frame: &Frame) {
    if let Some((_, bytes, _)) = frame.work.segment {
        packet.set_segment_bytes(bytes);
    }
}

impl Govern {
    /// A policy in force, at no port yet. `hash_key` is a secret.
    pub fn new(governing: Governing, hash_key: HashKey) -> Self {
        let (limits, table) = (governing.limits, governing.policy.compile().into());
        Self {
            charges_bare: governing.policy.charges(Class::BareTcp),
            governing,
            vnics: Vnics::with(table, limits, hash_key),
            places: Vec::new(),
            attached: 0,
            thread: (0, 1),
            whole: Vec::new(),
            run: Run::default(),
        }
    }

    /// In this one of so many threads.
    #[must_use]
    pub fn of_thread(mut self, number: usize, threads: usize) -> Self {
        self.thread = (number as u32, threads as u32);
        self
    }

    /// Governs a port, or goes on with another tenant.
    pub fn attach(&mut self, port: u16, name: &str, tenant: &str) {
        self.settle();
        let index = usize::from(port);
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        let before = self.places[index].take();
        self.attached += u32::from(before.is_none());
        let (ifindex, buckets) = match before {
            Some(before) => (before.ifindex, before.buckets),
            None => {
                let (number, threads) = self.thread;
                ((self.attached - 1) * threads + number + 1, Vec::new())
            }
        };
        self.places[index] = Some(Place {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            ifindex,
            classes: [BUCKET_NONE; CLASS_NAMES.len()],
            buckets,
        });
        self.place(port);
        // A flow of another tenant may have another rule.
        self.vnics.set_policy(self.vnics.policy().clone());
    }

    /// Governs a port no longer; its flows are forgotten.
    pub fn detach(&mut self, port: u16) {
        self.settle();
        let place = self.places.get_mut(usize::from(port));
        if let Some(place) = place.and_then(Option::take) {
            self.vnics.detach(place.ifindex);
        }
    }

    /// Whether a port is governed.
    #[inline]
    pub fn governs(&self, port: u16) -> bool {
        let place = self.places.get(usize::from(port));
        place.is_some_and(Option::is_some)
    }

    /// Puts another policy in force, and says how many flows another rule decides now, or none.
    /// The limits stay.
    pub fn reload(&mut self, governing: Governing) -> u64 {
        self.settle();
        let before = self.vnics.counters().0[RULE_CHANGED];
        let (table, _) = governing.policy.compile_after(self.vnics.policy());
        let limits = self.governing.limits;
        self.charges_bare = governing.policy.charges(Class::BareTcp);
        self.governing = Governing {
            limits,
            ..governing
        };
        // All of it happens between two frames, so no frame meets a scope of another policy.
        let table: sluicegate_vswitch::Policy = table.into();
        let ports: Vec<u16> = self.places().map(|(port, _)| port).collect();
        for &port in &ports {
            self.scope(port, &table);
        }
        self.vnics.set_policy(table);
        for port in ports {
            self.place(port);
        }
        self.vnics.counters().0[RULE_CHANGED] - before
    }

    fn scope(&mut self, port: u16, table: &sluicegate_vswitch::Policy) {
        if let Some(Some(place)) = self.places.get(usize::from(port)) {
            let policy = &self.governing.policy;
            let scope = policy.scope(table, &place.name, &place.tenant);
            let quota = self.governing.quota;
            self.vnics.attach(place.ifindex, scope, quota);
        }
    }

    /// The consequences of the policy for a port; what its buckets have counted stays.
    fn place(&mut self, port: u16) {
        self.scope(port, &self.vnics.policy().clone());
        let policy = &self.governing.policy;
        if let Some(Some(place)) = self.places.get_mut(usize::from(port)) {
            place.classes = policy.buckets_at(&place.name, &place.tenant);
            place
                .buckets
                .resize(policy.buckets.len(), Bucket::default());
            for (bucket, rule) in place.buckets.iter_mut().zip(&policy.buckets) {
                let wanted = rule.compile();
                *bucket = Bucket {
                    ps_per_byte: wanted.ps_per_byte,
                    burst_ns: wanted.burst_ns,
                    mode: wanted.mode,
                    ..*bucket
                };
            }
        }
    }

    /// The number by which flows refer to a governed port.
    pub fn ifindex(&self, port: u16) -> Option<u32> {
        let place = self.places.get(usize::from(port))?;
        Some(place.as_ref()?.ifindex)
    }

    /// The governed ports.
    pub fn places(&self) -> impl Iterator<Item = (u16, &Place)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(port, place)| Some((port as u16, place.as_ref()?)))
    }

    /// The tables.
    pub fn vnics(&self) -> &Vnics<FlowKey> {
        &self.vnics
    }

    /// A frame that the guest of a port sends or is about to get. Its flow is that of this VLAN, in
    /// which the guest has the frames of both directions; 0 = without a tag. Edits its start, and
    /// its length.
    #[inline]
    pub fn pass(
        &mut self,
        port: u16,
        frame: &mut Frame,
        memory: &Memory,
        (direction, vlan): (Direction, u16),
        now_ns: u64,
    ) -> Fate {
        self.settle();
        let Some(ifindex) = self.ifindex(port) else {
            return Fate::Pass;
        };
        let mut packet = Packet::default();
        let at = At {
            port,
            direction,
            vlan,
            now_ns,
        };
        match self.parse(at, ifindex, frame, &mut packet) {
            None => self.pass_parsed(at, ifindex, frame, memory, &mut packet),
            Some(fate) => fate,
        }
    }

    /// Reads the headers of a frame; its fate, if it is no TCP that can be tracked.
    #[inline]
    fn parse(
        &mut self,
        at: At,
        ifindex: u32,
        frame: &mut Frame,
        packet: &mut Packet,
    ) -> Option<Fate> {
        let view = view_of(frame);
        match packet.read(&view, at.direction, ifindex) {
            Ok(()) => {
                tell_segments(packet, frame);
                None
            }
            Err(why) => Some(self.unread(at.port, frame, at.direction, why, at.now_ns)),
        }
    }

    /// A segment of TCP, whose headers have been read from the frame's start.
    #[inline]
    fn pass_parsed(
        &mut self,
        at: At,
        ifindex: u32,
        frame: &mut Frame,
        memory: &Memory,
        packet: &mut Packet,
    ) -> Fate {
        let sum = frame.work.checksum;
        if sum.is_some_and(|at| at != (packet.tcp_at(), 16)) {
            return Fate::Drop(Drop::Malformed);
        }
        let mut view = view_of(frame);
        if packet.wants_all(&view) {
            return self.pass_whole(at, ifindex, frame, memory, packet);
        }
        packet.set_vlan(at.vlan);
        let fate = self.read(at, packet, &mut view);
        let bytes = view.bytes();
        if bytes != frame.bytes {
            frame.resize(bytes);
        }
        fate
    }

    /// The same with the frame as a whole.
    #[inline(never)]
    fn pass_whole(
        &mut self,
        at: At,
        ifindex: u32,
        frame: &mut Frame,
        memory: &Memory,
        packet: &mut Packet,
    ) -> Fate {
        let mut whole = std::mem::take(&mut self.whole);
        frame.whole_into(memory, &mut whole);
        whole.resize(whole.len() + EXTRA, 0);
        let mut view = frame::Frame::new(&mut whole, frame.bytes, is_partial(frame));
        // A guest that changes its frame meanwhile has its start copied already.
        if packet.read(&view, at.direction, ifindex).is_err() {
            self.whole = whole;
            return Fate::Drop(Drop::Malformed);
        }
        packet.set_vlan(at.vlan);
        let fate = self.read(at, packet, &mut view);
        let bytes = view.bytes();
        whole.truncate(bytes as usize);
        frame.pieces.clear();
        frame.set_own(&whole);
        self.whole = whole;
        fate
    }

    /// A segment of TCP.
    #[inline]
    fn read(&mut self, at: At, packet: &mut Packet, view: &mut frame::Frame<'_>) -> Fate {
        let bytes = view.bytes();
        if packet.needs_trim() {
            if !self.enforces(packet.key()) {
                self.vnics.unread(MALFORMED, 1);
                return self.charge(at.port, Class::Opaque as usize, bytes, at.now_ns);
            }
            packet.trim(view);
            self.vnics.count(TRIMMED);
        }
        match self.judge(at, packet, bytes) {
            Ok(verdict) => self.edit(at, packet, view, &verdict),
            Err(fate) => fate,
        }
    }

    /// The verdict on a segment of a frame of so many bytes, or what becomes of the frame if it
    /// does not pass.
    #[inline]
    fn judge(&mut self, at: At, packet: &mut Packet, bytes: u32) -> Result<Verdict, Fate> {
        let (port, now_ns) = (at.port, at.now_ns);
        let is_sent = at.direction == Direction::FromTenant;
        let has_data = packet.segment().payload != 0;
        if is_sent && !has_data && self.charges_bare {
            let fate = self.charge(port, Class::BareTcp as usize, bytes, now_ns);
            if fate != Fate::Pass {
                self.vnics.count(PACKETS);
                return Err(fate);
            }
        }
        let mut is_charged = false;
        if is_sent && has_data && self.is_watched(port, packet.key()) {
            // What a bucket drops of a flow that is only watched has not left the tenant.
            is_charged = true;
            let fate = self.charge(port, Class::WatchedTcp as usize, bytes, now_ns);
            if fate != Fate::Pass {
                self.vnics.count(PACKETS);
                return Err(fate);
            }
        }
        let key = *packet.key();
        let segment = packet.segment_mut();
        let verdict = self.vnics.segment(key, segment, now_ns, || key);
        match verdict.action() {
            Action::Pass => {}
            Action::Drop => return Err(Fate::Drop(Drop::Policed)),
            Action::Consume => return Err(Fate::Consumed),
        }
        if is_sent && has_data && !is_charged && is_unheld(segment, &verdict) {
            let fate = self.charge(port, Class::WatchedTcp as usize, bytes, now_ns);
            if fate != Fate::Pass {
                return Err(fate);
            }
        }
        Ok(verdict)
    }

    /// Makes the edits of a verdict.
    #[inline]
    fn edit(
        &mut self,
        at: At,
        packet: &mut Packet,
        view: &mut frame::Frame<'_>,
        verdict: &Verdict,
    ) -> Fate {
        if verdict.edits & EDITS != 0 && !packet.apply(view, verdict) {
            self.vnics.count(EDIT_FAILED);
        }
        let is_sent = at.direction == Direction::FromTenant;
        let wants_fack = is_sent && verdict.edits & edit::WANT_FACK != 0;
        match wants_fack.then(|| packet.fack(view, verdict)).flatten() {
            Some(fack) => Fate::PassWith(fack),
            None => Fate::Pass,
        }
    }

    /// No TCP that can be tracked.
    fn unread(
        &mut self,
        port: u16,
        frame: &Frame,
        direction: Direction,
        why: usize,
        now_ns: u64,
    ) -> Fate {
        self.vnics.unread(why, 1);
        if direction == Direction::ToTenant || !self.has_buckets(port) {
            return Fate::Pass;
        }
        self.charge(port, classify(why, frame.start()), frame.bytes, now_ns)
    }

    fn has_buckets(&self, port: u16) -> bool {
        let place = self.places.get(usize::from(port));
        matches!(place, Some(Some(place)) if !place.buckets.is_empty())
    }

    /// Whether a rule enforces on what this tenant sends.
    fn enforces(&self, key: &FlowKey) -> bool {
        let rule = self.vnics.rule_for(key);
        rule.is_some_and(|slot| {
            let rules = &self.vnics.policy().slots;
            let params = rules.get(usize::from(slot)).map(|rule| rule.params);
            params.is_some_and(|params| params.mode == RULE_ENFORCE)
        })
    }

    /// Whether a bucket is for flows that are only watched, and this is one.
    fn is_watched(&self, port: u16, key: &FlowKey) -> bool {
        let place = self.places.get(usize::from(port));
        let place = place.and_then(Option::as_ref);
        place.is_some_and(|place| place.classes[Class::WatchedTcp as usize] != BUCKET_NONE)
            && self
                .vnics
                .flow(*key)
                .is_some_and(|flow| flow.mode == MODE_WATCH)
    }

    /// Charges a frame of a class to the port's bucket, if it has one.
    fn charge(&mut self, port: u16, class: usize, bytes: u32, now_ns: u64) -> Fate {
        let Some(Some(place)) = self.places.get_mut(usize::from(port)) else {
            return Fate::Pass;
        };
        let number = place.classes.get(class).copied().unwrap_or(BUCKET_NONE);
        let Some(bucket) = place.buckets.get_mut(usize::from(number)) else {
            return Fate::Pass;
        };
        if bucket.take(bytes, now_ns) {
            return Fate::Pass;
        }
        if bucket.drops() {
            self.vnics.count(BUCKET_DROPPED);
            return Fate::Drop(Drop::Rate);
        }
        self.vnics.count(BUCKET_EXCEEDED);
        Fate::Pass
    }
}

/// Room for an option behind a frame.
const EXTRA: usize = sluicegate_core::host::OPTION_BYTES;

/// All that an option is added to fits into the start.
const _: () = assert!(frame::HEADERS_BYTES + EXTRA <= START);
const _: () = assert!(COUNTER_NAMES.len() > RULE_CHANGED);

/// What changes the frame itself.
const EDITS: u16 = !(edit::WANT_FACK | edit::WOULD_LOWER | edit::UNHELD);

/// Data that no window holds.
fn is_unheld(segment: &Segment, verdict: &Verdict) -> bool {
    segment.tcp_flags & (tcp::SYN | tcp::RST) != 0 || verdict.edits & edit::UNHELD != 0
}
