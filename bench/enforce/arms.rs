//! The arms of a comparison: flows without enforcement, with programs that do nothing, and with
//! enforcement; each on a path of its own, so that they can take turns.

use std::{fmt, os::fd::AsFd};

use anyhow::{Result, ensure};
use libbpf_rs::Object;
use sluicegate_agent::{
    Instance, Options, include_object, interfaces,
    inventory::ProgramInfo,
    object,
    tcx::{Direction, TcxLink},
};

use crate::shared::{path::Path, policy};

/// Host of a path, and the side that it is on.
const HOSTS: [(&str, &str); 2] = [("ha", "sending host"), ("hb", "receiving host")];

/// The programs on the hooks of a path's hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Nothing.
    Unenforced,
    /// Programs that do nothing.
    Empty,
    /// Enforcement.
    Enforced,
}

impl Arm {
    /// Every arm.
    pub const ALL: [Self; 3] = [Self::Unenforced, Self::Empty, Self::Enforced];

    /// In results.
    pub fn key(self) -> &'static str {
        match self {
            Self::Unenforced => "unenforced",
            Self::Empty => "empty",
            Self::Enforced => "enforced",
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty programs",
            other => other.key(),
        })
    }
}

/// A path for each arm, in the order of [`Arm::ALL`].
pub struct Paths(Vec<Path>);

impl Paths {
    /// Builds them. Needs root.
    pub fn build() -> Result<Self> {
        let build = |arm: &Arm| Path::build(arm.key());
        Ok(Self(Arm::ALL.iter().map(build).collect::<Result<_>>()?))
    }

    /// The one without programs of its own.
    pub fn unenforced(&self) -> &Path {
        &self.0[Arm::Unenforced as usize]
    }

    /// Attaches each arm's programs.
    pub fn arms(&self) -> Result<Vec<Attached<'_>>> {
        let attach = |(&arm, path)| {
            Ok(Attached {
                arm,
                path,
                hooks: Hooks::attach(arm, path)?,
            })
        };
        Arm::ALL.iter().zip(&self.0).map(attach).collect()
    }
}

/// An arm whose programs are attached while this lives.
pub struct Attached<'a> {
    /// Which.
    pub arm: Arm,
    /// Its path.
    pub path: &'a Path,
    hooks: Hooks,
}

impl Attached<'_> {
    /// Programs, each with the side that it is on.
    pub fn programs(&self) -> Result<Vec<(&'static str, ProgramInfo)>> {
        let mut programs = Vec::new();
        for (hook, (_, side)) in self.hooks.0.iter().zip(HOSTS) {
            programs.extend(hook.programs()?.into_iter().map(|program| (side, program)));
        }
        Ok(programs)
    }

    /// The flows must have been what the run claims to have measured.
    pub fn check(&self, flows: usize) -> Result<()> {
        for hook in &self.hooks.0 {
            hook.check(flows)?;
        }
        Ok(())
    }
}

/// The programs that are attached on each of [`HOSTS`].
struct Hooks(Vec<Hook>);

enum Hook {
    Empty {
        object: Object,
        _links: [TcxLink; 2],
    },
    Enforcing(Instance),
}

impl Hooks {
    fn attach(arm: Arm, path: &Path) -> Result<Self> {
        let attach = |(host, _)| match arm {
            Arm::Unenforced => None,
            Arm::Empty => Some(path.within(host, Hook::empty)),
            Arm::Enforced => Some(path.within(host, Hook::enforcing)),
        };
        Ok(Self(
            HOSTS
                .into_iter()
                .filter_map(attach)
                .collect::<Result<_>>()?,
        ))
    }
}

impl Hook {
    /// Programs that do nothing, where enforcement would be.
    fn empty() -> Result<Self> {
        let object = object::load(object::open("empty", include_object!("doctor"))?, "doctor")?;
        let index = interfaces::find("tenant")?.index;
        let link =
            |name, direction| TcxLink::attach(&object::program(&object, name)?, index, direction);
        let links = [
            link(EMPTY[0], Direction::Ingress)?,
            link(EMPTY[1], Direction::Egress)?,
        ];
        Ok(Self::Empty {
            object,
            _links: links,
        })
    }

    fn enforcing() -> Result<Self> {
        let mut instance = Instance::load(&policy::policy()?, &Options::default())?;
        instance.attach("tenant")?;
        Ok(Self::Enforcing(instance))
    }

    fn programs(&self) -> Result<Vec<ProgramInfo>> {
        match self {
            Self::Empty { object, .. } => EMPTY
                .iter()
                .map(|name| ProgramInfo::of(object::program(object, name)?.as_fd()))
                .collect(),
            Self::Enforcing(instance) => instance.programs(),
        }
    }

    fn check(&self, flows: usize) -> Result<()> {
        let Self::Enforcing(instance) = self else {
            return Ok(());
        };
        let records = instance.raw_flows()?;
        let enforced = records.iter().filter(|(_, flow)| flow.mode == 2).count();
        ensure!(
            enforced >= flows,
            "{enforced} of {flows} flows were enforced from both sides"
        );
        Ok(())
    }
}

/// Programs of the object `doctor` that do nothing, from and to the tenant.
const EMPTY: [&str; 2] = ["probe_empty", "probe_empty_egress"];
