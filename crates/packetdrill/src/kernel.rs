//! A script on this kernel's own TCP, in real time: its sockets are the kernel's, and we are the
//! network behind an interface of a namespace that ends with the run.

mod calls;
mod constants;
mod device;
mod info;
mod shell;
mod sys;
mod wire;

use std::{collections::VecDeque, os::fd::AsFd, path::Path, time::Duration};

use sluicegate_tcp::segment::flags;

use crate::{
    Problem, Settings,
    assertion::{self, Names, Wrong},
    expected::gather_offloaded,
    host::Sent,
    machine::Machine,
    model::{Action, Call, Event, Expected, Icmp, IcmpMeaning, Script},
    packet::Packet,
    record::{Record, What},
    stamps::Stamps,
};
use calls::{Caller, PORT, Returned};
use device::{Addresses, Device, Seen};
use wire::{Ends, Read};

/// The first port of peers that connect.
const PEER_PORT: u16 = 40_000;
/// How much later than on an idle machine something may happen.
const LATE_NS: u64 = 60_000_000;
/// How long `*` waits.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Parameters whose default depends on the kernel's version or on the machine's memory, as the
/// profile has them.
const USUAL: [(&str, &str); 2] = [
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
];
/// What is left of a wait is spent awake.
const AWAKE_NS: u64 = 200_000;

/// What cannot be run, and why.
type Step<T = ()> = Result<T, Problem>;

/// Runs `script` on this kernel and tells what happened; its commands run in `folder`. `machine` is
/// what the script and the settings ask for.
///
/// # Errors
/// What of it cannot be run here.
pub fn observe(
    script: &Script,
    settings: &Settings,
    machine: &Machine,
    folder: &Path,
) -> Step<Record> {
    // A thread of its own, for the namespace is the thread's.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let mut world = World::new(settings, machine, folder)?;
            world.all(script)
        });
        let line = script.events.first().map_or(1, |event| event.line);
        run.join()
            .unwrap_or_else(|_| problem(line, "the run has broken off"))
    })
}

fn problem<T>(line: usize, text: impl Into<String>) -> Step<T> {
    let text = text.into();
    Err(Problem { line, text })
}

/// One connection as the script sees it.
#[derive(Clone, Debug)]
struct Flow {
    local: u16,
    remote: u16,
    /// Initial sequence numbers on the wire: the kernel's, once it is known, and the peer's.
    local_isn: Option<u32>,
    peer_isn: Option<u32>,
    /// The script's number of the kernel's SYN.
    own_isn: u32,
    /// What the peer has acknowledged; relative.
    una: u32,
}

impl Flow {
    fn new(local: u16, remote: u16) -> Self {
        Self {
            local,
            remote,
            local_isn: None,
            peer_isn: None,
            own_isn: 0,
            una: 0,
        }
    }
}

struct World<'a> {
    device: Device,
    caller: Caller,
    addresses: Addresses,
    settings: &'a Settings,
    machine: &'a Machine,
    folder: &'a Path,
    flow: Flow,
    connections: u32,
    /// Packets that have left and were not looked at, and those of the connection.
    seen: VecDeque<Seen>,
    queue: VecDeque<Sent>,
    stamps: Stamps,
    record: Record,
    /// When the script began by the clock, and when its last event happened.
    start_ns: u64,
    last_ns: u64,
    /// The call that has not returned: its line, its name, and until when it may take.
    waits: Option<(usize, String, u64)>,
    /// Names that code has given values.
    names: Names,
}

impl<'a> World<'a> {
    fn new(settings: &'a Settings, machine: &'a Machine, folder: &'a Path) -> Step<Self> {
        let addresses = match machine.header() > 40 {
            true => Addresses::v6(),
            false => Addresses {
                local: machine.fast_open.local.into(),
                remote: machine.fast_open.remote.into(),
            },
        };
        let device = match Device::new(&addresses, machine.mtu()) {
            Ok(device) => device,
            Err(reason) => return problem(0, reason),
        };
        sys::hurry();
        Ok(Self {
            device,
            caller: Caller::new(addresses, machine.config.algorithm.name()),
            addresses,
            settings,
            machine,
            folder,
            flow: Flow::new(PORT, PEER_PORT),
            connections: 0,
            seen: VecDeque::new(),
            queue: VecDeque::new(),
            stamps: Stamps::default(),
            record: Record::default(),
            start_ns: 0,
            last_ns: 0,
            waits: None,
            names: Names::new(),
        })
    }

    fn all(&mut self, script: &Script) -> Step<Record> {
        self.prepare(script)?;
        self.start_ns = sys::now_ns();
        for event in &script.events {
            if self.record.ended.is_some() {
                break;
            }
            self.event(event)?;
        }
        self.finish_call()?;
        self.look();
        shell::clean();
        let mut record = std::mem::take(&mut self.record);
        for sent in self.queue.drain(..) {
            record.note_extra(sent, self.last_ns);
        }
        Ok(record)
    }

    /// Parameters of the caller's, and the commands before the first event.
    fn prepare(&mut self, script: &Script) -> Step {
        let merged = |(_, name, _): &&(usize, String, Option<String>)| name == "mss";
        if let Some((line, ..)) = script.options.iter().find(merged) {
            return problem(*line, "arrivals that were put together");
        }
        let given = self.settings.options.iter();
        let given = given.filter(|(name, _)| name == "sysctl");
        let given = given.filter_map(|(_, pair)| pair.split_once('='));
        for (key, value) in USUAL.into_iter().chain(given) {
            shell::set(key, value).or_else(|reason| problem(0, reason))?;
        }
        for (line, command) in &script.setup {
            match shell::run(command, self.folder) {
                Ok(None) => (),
                Ok(Some(reason)) | Err(reason) => return problem(*line, reason),
            }
        }
        Ok(())
    }

    /// Time since the script began, in ns.
    fn now_ns(&self) -> u64 {
        sys::now_ns().saturating_sub(self.start_ns)
    }

    fn event(&mut self, event: &Event) -> Step {
        let line = event.line;
        match &event.action {
            Action::Leaves(Expected { packet, .. }) | Action::Arrives(packet)
                if packet.udp.is_some() =>
            {
                return problem(line, "TCP in UDP, which is FreeBSD's");
            }
            Action::Leaves(expected) => {
                self.leaves(event, expected);
                return Ok(());
            }
            Action::Unsupported(what) => return problem(line, what.as_str()),
            _ => (),
        }
        let (at_ns, _) = event.when.bounds(self.last_ns, PATIENCE_NS);
        self.wait_until(at_ns);
        self.look();
        match &event.action {
            Action::Arrives(packet) => self.arrives(line, packet)?,
            Action::Icmp(icmp) => self.icmp(line, icmp)?,
            Action::Call(call) => self.call(event, call)?,
            Action::Shell(command) => self.shell(line, command)?,
            Action::Code(code) => self.code(line, code)?,
            Action::Leaves(_) | Action::Unsupported(_) => (),
        }
        self.last_ns = self.now_ns();
        Ok(())
    }

    fn wait_until(&self, at_ns: u64) {
        loop {
            let left_ns = at_ns.saturating_sub(self.now_ns());
            match left_ns.checked_sub(AWAKE_NS) {
                Some(sleeps_ns) => std::thread::sleep(Duration::from_nanos(sleeps_ns)),
                None if left_ns > 0 => std::hint::spin_loop(),
                None => return,
            }
        }
    }

    fn shell(&mut self, line: usize, command: &str) -> Step {
        match shell::run(command, self.folder) {
            Err(reason) => return problem(line, reason),
            Ok(None) => (),
            Ok(Some(reason)) => self.record.note(line, What::Wrong(reason)),
        }
        Ok(())
    }

    fn code(&mut self, line: usize, code: &str) -> Step {
        let latest = self.caller.table().latest.clone();
        let Some(socket) = latest else {
            return problem(line, "code about a connection whose socket is closed");
        };
        let info = info::Info::of(socket.as_fd());
        let what = match assertion::run(code, &mut self.names, |name| info.value(name)) {
            Ok(()) => What::Holds,
            Err(Wrong::False(text)) => What::Wrong(format!("expected {text}")),
            Err(Wrong::Unknown(text)) => return problem(line, text),
        };
        self.record.note(line, what);
        Ok(())
    }

    fn call(&mut self, event: &Event, call: &Call) -> Step {
        self.finish_call()?;
        if self.caller.waits() {
            self.record.ended = Some(event.line);
            return Ok(());
        }
        let base_ns = match event.when {
            crate::model::When::After(_) => self.last_ns,
            _ => 0,
        };
        let until_ns = call.returns_ns.map(|ns| base_ns.saturating_add(ns));
        let outcome = self.caller.begin(call, until_ns.is_some());
        match (outcome, until_ns) {
            (Some(outcome), _) => self.returned(event.line, &call.name, outcome),
            (None, Some(until_ns)) => {
                self.waits = Some((event.line, call.name.clone(), until_ns));
                Ok(())
            }
            (None, None) => {
                let name = call.name.clone();
                let returned = None;
                self.record
                    .note(event.line, What::Returned { name, returned });
                Ok(())
            }
        }
    }

    /// Waits for the call that may take until later.
    fn finish_call(&mut self) -> Step {
        let Some((line, name, until_ns)) = self.waits.take() else {
            return Ok(());
        };
        let slack_ns = self
            .machine
            .tolerance(until_ns.saturating_sub(self.last_ns))
            .max(LATE_NS);
        let left_ns = until_ns
            .saturating_add(slack_ns)
            .saturating_sub(self.now_ns());
        match self.caller.finish(Duration::from_nanos(left_ns)) {
            Some(outcome) => self.returned(line, &name, outcome),
            None => {
                let returned = None;
                self.record.note(line, What::Returned { name, returned });
                Ok(())
            }
        }
    }

    fn returned(&mut self, line: usize, name: &str, outcome: Result<Returned, String>) -> Step {
        let returned = match outcome {
            Ok(returned) => returned,
            Err(reason) => return problem(line, reason),
        };
        let what = match returned.wrong {
            Some(text) => What::Wrong(text),
            None => What::Returned {
                name: name.to_owned(),
                returned: Some((returned.answer, returned.took_ns)),
            },
        };
        self.record.note(line, what);
        Ok(())
    }

    /// A segment has to leave.
    fn leaves(&mut self, event: &Event, expected: &Expected) {
        let (from_ns, to_ns) = event.when.bounds(self.last_ns, PATIENCE_NS);
        let slack_ns = self
            .machine
            .tolerance(from_ns.saturating_sub(self.last_ns))
            .max(LATE_NS);
        let limit_ns = to_ns.saturating_add(slack_ns);
        self.look();
        while self.queue.is_empty() && self.now_ns() < limit_ns {
            self.device.wait(self.start_ns + limit_ns);
            self.look();
        }
        let since_ns = self.last_ns;
        let Some(mut sent) = self.queue.pop_front() else {
            self.record
                .note(event.line, What::left(None, expected, since_ns));
            self.last_ns = self.now_ns();
            return;
        };
        if !self.machine.strict_segments {
            let together_ns = self.machine.tolerance_ns;
            gather_offloaded(&mut sent, &mut self.queue, expected, together_ns);
        }
        if expected.packet.has(flags::SYN) && sent.packet.has(flags::SYN) {
            self.flow.own_isn = expected.packet.seq;
            sent.packet.seq = sent.packet.seq.wrapping_add(expected.packet.seq);
        }
        let wanted = expected
            .packet
            .options
            .timestamps
            .filter(|_| !expected.any_clock);
        if let (Some((script, _)), Some((live, _))) = (wanted, &mut sent.packet.options.timestamps)
        {
            *live = self.stamps.learn(script, *live);
        }
        self.last_ns = self.last_ns.max(sent.at_ns);
        self.record
            .note(event.line, What::left(Some(sent), expected, since_ns));
    }

    /// Looks at what has left since.
    fn look(&mut self) {
        self.device.look(&mut self.seen);
        while let Some((at_ns, bytes)) = self.seen.pop_front() {
            if let Some(read) = wire::read(&bytes) {
                self.left(at_ns, read);
            }
        }
    }

    /// A segment has left; one of an earlier connection is no part of the script any more.
    fn left(&mut self, at_ns: u64, read: Read) {
        let Read {
            ends,
            mut packet,
            ttl,
            tos,
        } = read;
        let opens = packet.has(flags::SYN);
        let other = ends.from.1 != self.flow.local || self.flow.local_isn != Some(packet.seq);
        if opens && !packet.has(flags::ACK) && other {
            self.begin(Flow::new(ends.from.1, ends.to.1));
        }
        let flow = &mut self.flow;
        if (ends.from.1, ends.to.1) != (flow.local, flow.remote) {
            return;
        }
        if opens {
            flow.local_isn = Some(packet.seq);
        }
        packet.seq = packet.seq.wrapping_sub(flow.local_isn.unwrap_or(0));
        let base = flow.peer_isn.unwrap_or(0);
        if !packet.has(flags::ACK) {
            packet.ack = 0;
        } else if !opens {
            packet.ack = packet.ack.wrapping_sub(base);
        }
        for (left, right) in &mut packet.options.sack {
            (*left, *right) = (left.wrapping_sub(base), right.wrapping_sub(base));
        }
        self.queue.push_back(Sent {
            at_ns: at_ns.saturating_sub(self.start_ns),
            packet,
            number: self.connections,
            ttl,
            tos,
        });
    }

    /// A new connection takes the place of the last one.
    fn begin(&mut self, flow: Flow) {
        self.connections += 1;
        self.flow = flow;
        self.stamps = Stamps::default();
        self.queue.clear();
    }

    /// A SYN for a listener to which none has come begins a connection.
    fn is_fresh(&mut self, packet: &Packet) -> bool {
        let opens = packet.flags & (flags::SYN | flags::ACK | flags::RST) == flags::SYN;
        let mut table = self.caller.table();
        let mut unused = table.listeners.values_mut().filter(|used| !**used);
        match unused.next() {
            Some(used) if opens => {
                *used = true;
                true
            }
            _ => false,
        }
    }

    fn arrives(&mut self, line: usize, script: &Packet) -> Step {
        let mut packet = script.clone();
        if self.is_fresh(&packet) {
            let port = PEER_PORT.wrapping_add(self.connections as u16);
            self.begin(Flow::new(PORT, port));
        }
        if let Some((_, ecr)) = &mut packet.options.timestamps {
            *ecr = self.stamps.live(*ecr);
        }
        let flow = &mut self.flow;
        let opens = packet.has(flags::SYN);
        if opens {
            flow.peer_isn.get_or_insert(packet.seq);
            packet.ack = packet.ack.wrapping_sub(flow.own_isn);
        } else {
            packet.seq = packet.seq.wrapping_add(flow.peer_isn.unwrap_or(0));
        }
        let base = flow.local_isn.unwrap_or(0);
        if packet.has(flags::ACK) {
            if (packet.ack.wrapping_sub(flow.una) as i32) > 0 {
                flow.una = packet.ack;
            }
            packet.ack = packet.ack.wrapping_add(base);
        }
        for (left, right) in &mut packet.options.sack {
            (*left, *right) = (left.wrapping_add(base), right.wrapping_add(base));
        }
        let ends = self.outgoing().turned();
        let Some(bytes) = wire::write(&ends, &packet) else {
            return problem(line, "options that have no room");
        };
        self.device
            .give(&bytes)
            .or_else(|reason| problem(line, reason))
    }

    /// The ends of what the kernel sends.
    fn outgoing(&self) -> Ends {
        Ends {
            from: (self.addresses.local, self.flow.local),
            to: (self.addresses.remote, self.flow.remote),
        }
    }

    fn icmp(&mut self, line: usize, icmp: &Icmp) -> Step {
        let version = usize::from(self.addresses.local.is_ipv6());
        let Some((kind, code)) = icmp.numbers[version] else {
            return problem(line, "an ICMP message of this kind");
        };
        let rest = match icmp.meaning {
            IcmpMeaning::TooBig(mtu) => mtu.into(),
            IcmpMeaning::Lost { .. } | IcmpMeaning::Nothing => 0,
        };
        let seq = icmp.seq.unwrap_or(self.flow.una);
        let seq = seq.wrapping_add(self.flow.local_isn.unwrap_or(0));
        let bytes = wire::write_icmp(&self.outgoing(), kind, code, rest, seq);
        self.device
            .give(&bytes)
            .or_else(|reason| problem(line, reason))
    }
}
