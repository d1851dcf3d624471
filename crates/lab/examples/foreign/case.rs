//! One foreign flow beside three of Linux: the scenario, and what came of it.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use sluicegate_lab::{
    Lab,
    foreign::Options,
    tenant::{Report, flows},
};
use sluicegate_policy::Policy;
use sluicegate_scenario::{
    experiment::{Experiment, Variant},
    file,
    results::Conditions,
    world::World,
};

use crate::interrupt::Stopping;

/// Rate of the bottleneck. A foreign stack's packets wait for one process more than Linux's, and a
/// flow's share falls with its RTT: at 300 Mb/s that wait counts beside the queue's delay
/// (docs/lab.md).
const LINK_BPS: f64 = 100e6;

/// The bottleneck marks by a ramp: no packet below 10 KB, every second one at 30 KB, all from 50 KB
/// on. At a step the four windows fill the queue to the threshold and each flow's burst keeps its
/// phase: whose ACKs come in the larger clumps meets the shorter queue, and the scheduler's choice
/// of a CPU decides the shares (docs/lab.md).
const RAMP: &str =
    r#"{ kind = "red", min = "10KB", max = "50KB", p_max = 1.0, weight = 1.0, not_ect = "pass" }"#;
const STEP: &str = r#"{ kind = "threshold", k = "30KB" }"#;

/// The foreign tenants, at either end of the link.
const SENDER: &str = "h1-4";
const RECEIVER: &str = "h2-4";

/// The common part of all cases of a call.
pub struct Setting {
    /// Directory of the programs.
    pub programs: PathBuf,
    /// Both hosts enforce.
    pub enforced: bool,
    /// The bottleneck marks above a threshold, not by a ramp.
    pub step: bool,
    /// Measured time.
    pub duration: Duration,
    /// Before the second try; before the third twice as long, and so on.
    pub pause: Duration,
}

/// A stack and the program that brings it.
#[derive(Clone, Copy)]
pub struct Stack {
    pub name: &'static str,
    /// Of TCP; else both ends are programs, over the kernel's UDP.
    pub is_tcp: bool,
}

const STACKS: [Stack; 4] = [
    Stack {
        name: "gvisor",
        is_tcp: true,
    },
    Stack {
        name: "lwip",
        is_tcp: true,
    },
    Stack {
        name: "smoltcp",
        is_tcp: true,
    },
    Stack {
        name: "quicgo",
        is_tcp: false,
    },
];

/// Which end of its flow is foreign.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Send,
    Receive,
    Both,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Both => "both",
        }
    }
}

/// One run.
#[derive(Clone, Copy)]
pub struct Case {
    pub stack: Stack,
    pub role: Role,
}

impl Case {
    /// Everything.
    pub fn all() -> Vec<Self> {
        STACKS.into_iter().flat_map(Self::of).collect()
    }

    fn of(stack: Stack) -> Vec<Self> {
        let roles: &[Role] = match stack.is_tcp {
            true => &[Role::Send, Role::Receive],
            false => &[Role::Both],
        };
        let cases = roles.iter().map(|&role| Self { stack, role });
        cases.collect()
    }

    /// Those of `STACK` or `STACK:ROLE`.
    ///
    /// # Errors
    /// No stack or role has this name.
    pub fn named(text: &str) -> Result<Vec<Self>> {
        let (name, role) = text.split_once(':').unwrap_or((text, ""));
        let cases: Vec<Self> = Self::all()
            .into_iter()
            .filter(|case| case.stack.name == name)
            .filter(|case| role.is_empty() || case.role.name() == role)
            .collect();
        if cases.is_empty() {
            bail!("{text}: no such stack or role");
        }
        Ok(cases)
    }

    fn foreign_tenants(&self) -> &'static [&'static str] {
        match self.role {
            Role::Send => &[SENDER],
            Role::Receive => &[RECEIVER],
            Role::Both => &[SENDER, RECEIVER],
        }
    }

    /// As a file of the scenario language.
    fn scenario(&self, setting: &Setting) -> String {
        let hosts = if setting.enforced { "all" } else { "none" };
        let marking = if setting.step { STEP } else { RAMP };
        // A program with a stack of its own is where a guest would be.
        let mut kinds = String::new();
        for tenant in self.foreign_tenants().iter().filter(|_| self.stack.is_tcp) {
            kinds += &format!("[tenant.{tenant}]\nkind = \"guest\"\n");
        }
        format!(
            r#"
            warmup = "1500ms"
            duration = "{}ms"
            [network]
            topology = "star"
            hosts = 2
            tenants_per_host = 4
            rate = "1Gbit"
            queue = "1MB"
            marking = {marking}
            bottleneck = ["switch-h2"]
            [network.link.switch-h2]
            rate = "{}Mbit"
            [traffic.linux]
            kind = "bulk"
            from = ["h1-1", "h1-2", "h1-3"]
            to = ["h2-1", "h2-2", "h2-3"]
            pairs = "one-to-one"
            [traffic.foreign]
            kind = "bulk"
            from = "{SENDER}"
            to = "{RECEIVER}"
            [enforcement]
            hosts = "{hosts}"
            {kinds}
            "#,
            setting.duration.as_millis(),
            LINK_BPS / 1e6,
        )
    }

    fn experiment(&self, setting: &Setting) -> Result<Experiment> {
        let name = format!("{}-{}.toml", self.stack.name, self.role.name());
        let text = self.scenario(setting);
        file::parse(name.as_ref(), &text, &file::Options::default())
            .map_err(|problems| anyhow!("{problems}"))
    }

    /// Datagrams have no window: where hosts enforce, a bucket holds them to an even share. quic-go
    /// obeys marks, but not for sure: where the switch marks all of its first ten packets it takes
    /// ECN for mangled and sends without (`failIfMangled` in its `ecn.go`, RFC 9000 A.4).
    fn hold_datagrams(&self, experiment: &mut Experiment, link_bps: f64) -> Result<()> {
        let flows = experiment.variants[0].tenants.len() / 2;
        let text = format!(
            "[[bucket]]\nclass = \"non-tcp\"\nrate = \"{}bit\"\nmode = \"enforce\"\n",
            (link_bps / flows as f64) as u64,
        );
        let held = Policy::parse("bucket", &text).map_err(|problems| anyhow!("{problems}"))?;
        let variants = experiment.variants.iter_mut();
        for enforcement in variants.filter_map(|variant| variant.enforcement.as_mut()) {
            enforcement.policy.buckets.clone_from(&held.buckets);
        }
        Ok(())
    }

    fn options(&self, setting: &Setting, variant: &Variant) -> Options {
        let program = setting.programs.join(self.stack.name);
        let tenants = variant.tenants.iter().enumerate();
        let programs = tenants
            .filter(|(_, tenant)| self.foreign_tenants().contains(&tenant.name.as_str()))
            .map(|(id, _)| (id, program.clone()));
        Options {
            programs: programs.collect(),
            verify: true,
        }
    }
}

/// One flow as its receiver saw it.
pub struct Seen {
    pub foreign: bool,
    pub goodput_bps: f64,
    pub bytes: u64,
    pub verified_bytes: u64,
    pub longest_gap_ms: f64,
    /// Of the sender's stack; where that is foreign, over the whole run.
    pub counters: BTreeMap<String, u64>,
}

/// The result of a case.
pub struct Measured {
    pub flows: Vec<Seen>,
    pub enforcement: BTreeMap<String, u64>,
    pub conditions: Conditions,
    pub rate_scale: f64,
    pub link_bps: f64,
    /// Errors that tenants reported, the Linux ones too.
    pub errors: Vec<String>,
}

impl Measured {
    /// Goodput of the foreign flow by that of an even share.
    pub fn share(&self) -> f64 {
        let all: f64 = self.flows.iter().map(|flow| flow.goodput_bps).sum();
        self.foreign().goodput_bps * self.flows.len() as f64 / all.max(1.0)
    }

    pub fn foreign(&self) -> &Seen {
        let mut flows = self.flows.iter();
        flows.find(|flow| flow.foreign).expect("one is foreign")
    }

    /// A receiver got what was not sent.
    pub fn differs(&self) -> bool {
        let differs = |flow: &Seen| flow.verified_bytes != flow.bytes;
        self.flows.iter().any(differs) || self.errors.iter().any(|line| line.contains("differs"))
    }
}

/// Runs a case once, at this part of the rates.
///
/// # Errors
/// The lab cannot; the user asked to stop.
pub fn measure(lab: &mut Lab, setting: &Setting, case: &Case, rate_scale: f64) -> Result<Measured> {
    let written = case.experiment(setting)?;
    lab.check(&written)?;
    let mut experiment = written.scaled(rate_scale);
    if !case.stack.is_tcp {
        case.hold_datagrams(&mut experiment, LINK_BPS * rate_scale)?;
    }
    let variant = &experiment.variants[0];
    let options = case.options(setting, variant);
    let (outcome, reports) = lab
        .run_foreign(variant, experiment.seed, &options, &mut Stopping)
        .with_context(|| format!("{}, {}", case.stack.name, case.role.name()))?;
    Ok(Measured {
        flows: seen(variant, &reports),
        enforcement: outcome.result.enforcement,
        conditions: outcome.conditions,
        rate_scale,
        link_bps: LINK_BPS * rate_scale,
        errors: errors(&reports),
    })
}

fn errors(reports: &[Report]) -> Vec<String> {
    let lines = reports.iter().flat_map(|report| {
        let lines = report.errors.iter();
        lines.map(|line| format!("{}: {line}", report.tenant))
    });
    lines.collect()
}

fn seen(variant: &Variant, reports: &[Report]) -> Vec<Seen> {
    let seconds = variant.duration.as_secs_f64();
    let flows = flows(variant).into_iter();
    let seen = flows.map(|flow| {
        let mut receivers = reports[flow.to].receivers.iter();
        let got = receivers.find(|receiver| receiver.flow == flow.id);
        let got = got.cloned().unwrap_or_default();
        Seen {
            foreign: variant.tenants[flow.from].name == SENDER,
            goodput_bps: got.measured_bytes as f64 * 8.0 / seconds,
            bytes: got.total_bytes,
            verified_bytes: got.verified_bytes,
            longest_gap_ms: got.longest_gap_ns as f64 / 1e6,
            counters: reports[flow.from].netstat.clone(),
        }
    });
    seen.collect()
}
