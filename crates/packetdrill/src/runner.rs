//! Runs a script: one event after another, each at its time.

use std::fmt::Write as _;

use crate::{
    Settings, Step, Stop,
    assertion::{self, Names, Wrong},
    calls,
    expected::gather,
    fast_open::Peer,
    host::{Host, Sent},
    info,
    machine::{Check, Machine},
    model::{Action, Call, Event, Expected, Script, When},
    record::{Record, What},
    time::seconds,
};

/// How long `*` waits.
const PATIENCE_NS: u64 = 3_600_000_000_000;

/// Runs `script` up to the first thing that is not as it says.
pub fn run(script: &Script, settings: &Settings) -> Step {
    let mut runner = Runner::new(script, settings)?;
    runner.all(script)?;
    runner.leftovers()
}

/// Runs `script` whatever happens, and tells what did. The machine is the one that it asked for.
pub fn observe(script: &Script, settings: &Settings) -> Step<(Record, Machine)> {
    let mut runner = Runner::new(script, settings)?;
    let machine = runner.machine.clone();
    runner.host.record = Some(Record::default());
    runner.all(script)?;
    let last_ns = runner.last_ns;
    let mut record = runner.host.record.take().unwrap_or_default();
    for sent in runner.host.sent.drain(..) {
        record.note_extra(sent, last_ns);
    }
    Ok((record, machine))
}

struct Runner<'a> {
    host: Host,
    machine: Machine,
    settings: &'a Settings,
    /// When the last event happened.
    last_ns: u64,
    /// Names that code has given values.
    names: Names,
}

impl<'a> Runner<'a> {
    fn new(script: &Script, settings: &'a Settings) -> Step<Self> {
        let mut machine = Machine::new(script, settings)?;
        calls::foresee(script, &mut machine.config)?;
        Ok(Self {
            host: Host::new(&machine),
            machine,
            settings,
            last_ns: 0,
            names: Names::new(),
        })
    }

    fn all(&mut self, script: &Script) -> Step {
        for event in &script.events {
            let done = self.event(event);
            self.noted(done)?;
            self.last_ns = self.host.now_ns;
        }
        let done = self.host.finish_blocked();
        self.noted(done)
    }

    /// Where all is recorded, what is not as the script has it is no end.
    fn noted(&mut self, done: Step) -> Step {
        match (done, &mut self.host.record) {
            (Err(Stop::Fail(problem)), Some(record)) => {
                record.note(problem.line, What::Wrong(problem.text));
                Ok(())
            }
            (done, _) => done,
        }
    }

    fn event(&mut self, event: &Event) -> Step {
        self.host.line = event.line;
        match &event.action {
            Action::Leaves(expected) => self.leaves(event, expected)?,
            Action::Unsupported(what) => return Stop::unsupported(event.line, what),
            action => {
                self.wait(event)?;
                match action {
                    Action::Arrives(packet) => self.host.arrive(packet)?,
                    Action::Icmp(icmp) => self.host.hear_icmp(*icmp)?,
                    Action::Call(call) => self.call(event, call)?,
                    Action::Shell(command) => self.shell(event.line, command)?,
                    Action::Code(code) => self.code(event.line, code)?,
                    Action::Leaves(_) | Action::Unsupported(_) => (),
                }
            }
        }
        Ok(())
    }

    /// Time passes until the event begins.
    fn wait(&mut self, event: &Event) -> Step {
        let (at_ns, _) = self.times(event.when);
        if at_ns < self.host.now_ns {
            if self.host.now_ns - at_ns > self.tolerance(at_ns) {
                return Stop::unsupported(event.line, "time goes backwards in the script");
            }
            return Ok(());
        }
        self.host.advance(at_ns, false)
    }

    fn times(&self, when: When) -> (u64, u64) {
        when.bounds(self.last_ns, PATIENCE_NS)
    }

    /// The tolerance of the time of something expected at `at_ns`.
    fn tolerance(&self, at_ns: u64) -> u64 {
        self.machine.tolerance(at_ns.saturating_sub(self.last_ns))
    }

    fn call(&mut self, event: &Event, call: &Call) -> Step {
        let base = match event.when {
            When::After(_) => self.last_ns,
            _ => 0,
        };
        let until = call.returns_ns.map(|ns| base.saturating_add(ns));
        let tolerance = self.tolerance(until.unwrap_or(self.host.now_ns));
        self.host.call(call, until, tolerance)
    }

    /// Parameters in the middle of a script hold for connections that begin later.
    fn shell(&mut self, line: usize, command: &str) -> Step {
        self.machine.config = self.host.config;
        let checks = self.machine.shell(line, command)?;
        self.host.adopt(&self.machine);
        for (line, check) in checks {
            self.check(line, check)?;
        }
        Ok(())
    }

    /// Carries out the check of a command.
    fn check(&mut self, line: usize, check: Check) -> Step {
        match check {
            Check::Drop(state) => {
                if self.host.state_name() == Some(state.as_str()) {
                    self.host.connection = None;
                }
                Ok(())
            }
            Check::State(state, wanted) => {
                let got = self.host.in_state(&state);
                match got == wanted {
                    true => Ok(()),
                    false => Stop::fail(
                        line,
                        format!("expected {wanted} sockets in {state}; got {got}"),
                    ),
                }
            }
            Check::Counter(name, wanted) => {
                let Some(got) = self.host.counter(&name) else {
                    return Stop::unsupported(line, format!("counter {name}"));
                };
                match got > 0 && wanted.is_none_or(|wanted| wanted == got) {
                    true => Ok(()),
                    false => Stop::fail(line, format!("expected {name} to have moved; got {got}")),
                }
            }
            Check::ForgetPeer => {
                self.host.peer = Peer::default();
                Ok(())
            }
            Check::Forget => {
                self.host.forget_counters();
                Ok(())
            }
        }
    }

    fn code(&mut self, line: usize, code: &str) -> Step {
        let result = assertion::run(code, &mut self.names, |name| info::value(&self.host, name));
        if let (Some(record), Ok(())) = (&mut self.host.record, &result) {
            record.note(line, What::Holds);
        }
        match result {
            Ok(()) => Ok(()),
            Err(Wrong::False(text)) => Stop::fail(line, format!("expected {text}")),
            Err(Wrong::Unknown(text)) => Stop::unsupported(line, text),
        }
    }

    /// A segment has to leave.
    fn leaves(&mut self, event: &Event, expected: &Expected) -> Step {
        let (from, to) = self.times(event.when);
        let tolerance = match event.when {
            When::Any => 0,
            _ => self.tolerance(from),
        };
        let limit = to.saturating_add(tolerance);
        self.host.forget_older();
        if self.host.sent.is_empty() {
            self.host.advance(limit, true)?;
        }
        let since_ns = self.last_ns;
        let Some(mut sent) = self.host.sent.pop_front() else {
            if let Some(record) = &mut self.host.record {
                record.note(event.line, What::left(None, expected, since_ns));
                return Ok(());
            }
            let wanted = expected.describe();
            return Stop::fail(
                event.line,
                format!("expected > {wanted} by {}; got nothing", seconds(limit)),
            );
        };
        if !self.machine.strict_segments {
            gather(
                &mut sent,
                &mut self.host.sent,
                expected,
                self.machine.tolerance_ns,
            );
        }
        self.host.learn_own_isn(&expected.packet, &mut sent.packet);
        let mut wrong = expected.differences(&sent, self.settings.compare_psh);
        if event.when != When::Any
            && (sent.at_ns.saturating_add(tolerance) < from || sent.at_ns > limit)
        {
            wrong.push("time");
        }
        if self.timestamp_is_off(expected, &mut sent) {
            wrong.push("TSval");
        }
        if let Some(record) = &mut self.host.record {
            self.host.now_ns = self.host.now_ns.max(sent.at_ns);
            record.note(event.line, What::left(Some(sent), expected, since_ns));
            return Ok(());
        }
        if wrong.is_empty() {
            self.host.now_ns = self.host.now_ns.max(sent.at_ns);
            return Ok(());
        }
        let mut text = format!("expected > {}", expected.describe());
        if event.when != When::Any {
            let _ = write!(text, " at {}", seconds(from));
        }
        let _ = write!(text, "; got > {} at {}", sent.packet, seconds(sent.at_ns));
        Stop::fail(event.line, format!("{text} ({})", wrong.join(", ")))
    }

    /// Puts TSval into the script's clock, which is compared only if the script says how it ticks.
    fn timestamp_is_off(&mut self, expected: &Expected, sent: &mut Sent) -> bool {
        let wanted = expected.packet.options.timestamps;
        if expected.any_clock {
            return false;
        }
        let (Some((script, _)), Some((live, _))) = (wanted, &mut sent.packet.options.timestamps)
        else {
            return false;
        };
        *live = self.host.stamps.learn(script, *live);
        let off = u64::from((live.wrapping_sub(script) as i32).unsigned_abs());
        off.saturating_mul(self.machine.ts_tick_ns) > self.machine.tolerance_ns
    }

    /// Fails if a segment left before the end and was not expected, where the settings are strict.
    fn leftovers(&self) -> Step {
        let early = |sent: &&Sent| sent.at_ns + self.machine.tolerance_ns < self.last_ns;
        match self.host.sent.iter().find(early) {
            Some(sent) if self.settings.strict => Stop::fail(
                self.host.line,
                format!(
                    "expected nothing; got > {} at {}",
                    sent.packet,
                    seconds(sent.at_ns)
                ),
            ),
            _ => Ok(()),
        }
    }
}
