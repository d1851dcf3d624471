//! Runs a script: one event after another, each at its time.

use std::fmt::Write as _;

use sluicegate_tcp::segment::{ecn, flags};

use crate::{
    Settings, Step, Stop,
    assertion::{self, Wrong},
    calls,
    fast_open::Peer,
    host::{Host, Sent},
    info,
    machine::{Check, Machine},
    model::{Action, Call, EcnWanted, Event, Expected, Script, When},
    time::seconds,
};

/// How long `*` waits.
const PATIENCE_NS: u64 = 3_600_000_000_000;

/// Runs `script`.
pub fn run(script: &Script, settings: &Settings) -> Step {
    let mut machine = Machine::new(script, settings)?;
    calls::foresee(script, &mut machine.config)?;
    let host = Host::new(&machine);
    let mut runner = Runner {
        host,
        machine,
        settings,
        last_ns: 0,
    };
    for event in &script.events {
        runner.event(event)?;
    }
    runner.host.finish_blocked()?;
    runner.leftovers()
}

struct Runner<'a> {
    host: Host,
    machine: Machine,
    settings: &'a Settings,
    /// When the last event happened.
    last_ns: u64,
}

impl Runner<'_> {
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
        self.last_ns = self.host.now_ns;
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

    /// First and last time at which an event may happen.
    fn times(&self, when: When) -> (u64, u64) {
        let after = |ns: u64| self.last_ns.saturating_add(ns);
        match when {
            When::Any => (self.last_ns, after(PATIENCE_NS)),
            When::At(at) => (at, at),
            When::After(ns) => (after(ns), after(ns)),
            When::Between(from, to) => (from, to),
            When::AfterBetween(from, to) => (after(from), after(to)),
        }
    }

    /// The tolerance of the time of something expected at `at_ns`.
    fn tolerance(&self, at_ns: u64) -> u64 {
        let elapsed = at_ns.saturating_sub(self.last_ns);
        let share = elapsed / 1_000 * self.machine.tolerance_permille;
        self.machine.tolerance_ns.max(share)
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

    fn code(&self, line: usize, code: &str) -> Step {
        match assertion::run(code, |name| info::value(&self.host, name)) {
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
        let Some(mut sent) = self.host.sent.pop_front() else {
            let wanted = expected.describe();
            return Stop::fail(
                event.line,
                format!("expected > {wanted} by {}; got nothing", seconds(limit)),
            );
        };
        self.gather(&mut sent, expected);
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

    /// Segments that left together may be written as one, unless the script wants each by itself.
    fn gather(&mut self, sent: &mut Sent, expected: &Expected) {
        while !self.machine.strict_segments && sent.packet.len < expected.packet.len {
            let Some(next) = self.host.sent.front() else {
                return;
            };
            let together = next.at_ns.saturating_sub(sent.at_ns) <= self.machine.tolerance_ns;
            let fits = sent.packet.len.saturating_add(next.packet.len) <= expected.packet.len;
            if !together || !fits || !sent.packet.merge(&next.packet) {
                return;
            }
            self.host.sent.pop_front();
        }
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
        *live = self.host.learn_timestamp(script, *live);
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

impl Expected {
    /// The parts of a segment that are not as expected.
    fn differences(&self, sent: &Sent, compare_psh: bool) -> Vec<&'static str> {
        let (wanted, got) = (&self.packet, &sent.packet);
        let ignored = if compare_psh { 0 } else { flags::PSH };
        let options = {
            // TSval has a clock of its own.
            let mut same = wanted.options.clone();
            if let (Some((_, ecr)), Some(live)) = (same.timestamps, got.options.timestamps) {
                same.timestamps = Some(if self.any_clock { live } else { (live.0, ecr) });
            }
            same == got.options
        };
        let ecn_fits = match self.ecn {
            EcnWanted::Any => true,
            EcnWanted::Capable => matches!(got.ecn, ecn::ECT0 | ecn::ECT1),
            EcnWanted::Exactly(codepoint) => got.ecn == codepoint,
        };
        let checks = [
            (
                "flags",
                (wanted.flags ^ got.flags) & !ignored == 0 && wanted.ae == got.ae,
            ),
            ("seq", self.any_seq || wanted.seq == got.seq),
            ("length", wanted.len == got.len),
            ("urg", wanted.urgent == got.urgent),
            ("ack", !wanted.has(flags::ACK) || wanted.ack == got.ack),
            ("win", self.window.is_none_or(|window| window == got.window)),
            ("options", self.any_options || options),
            ("ECN", ecn_fits),
            ("TTL", self.ttl.is_none_or(|ttl| ttl == sent.ttl)),
            ("DSCP", self.dscp.is_none_or(|dscp| dscp == sent.tos >> 2)),
        ];
        let wrong = checks.into_iter().filter(|(_, fits)| !fits);
        wrong.map(|(name, _)| name).collect()
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        match self.ecn {
            EcnWanted::Exactly(ecn::NOT_ECT) => text.push_str("[noecn] "),
            EcnWanted::Capable => text.push_str("[ect01] "),
            _ => (),
        }
        let mut packet = self.packet.clone();
        if let EcnWanted::Exactly(codepoint) = self.ecn {
            packet.ecn = codepoint;
        }
        let _ = write!(text, "{}", packet.shown(self.window.is_some()));
        if self.any_options {
            text.push_str(" <...>");
        }
        text
    }
}
