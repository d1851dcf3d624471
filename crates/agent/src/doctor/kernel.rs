//! Questions to the kernel.

use std::{fs, path::Path, thread};

use anyhow::{Context, Result, anyhow, ensure};
use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};
use sluicegate_core::cc::{Algorithm, Stack};
use tracing::warn;

use super::{Finding, Need, Question, Verdict};
use crate::{
    bpffs, include_object, instance, interfaces, object,
    tcx::{self, Direction, TcxLink},
};

/// Capabilities that enforcement takes: number and name.
const CAPABILITIES: [(u32, &str); 3] = [(12, "net_admin"), (38, "perfmon"), (39, "bpf")];

/// CAP_SYS_ADMIN.
const SYS_ADMIN: u32 = 21;

/// Oldest kernel on which the programs are tested.
const KERNEL_MIN: (u32, u32) = (6, 12);

/// How to get one of those.
const NEWER_KERNEL: &str = "boot Linux 6.12 or newer: Debian 13, Ubuntu 25.04 and RHEL 10 have it; \
    Debian 12: apt-get install -t bookworm-backports linux-image-cloud-amd64 (or linux-image-amd64)";

const RIGHTS: Question = Question {
    id: "rights",
    need: Need::Enforce,
    cost: "no program can be loaded or attached",
    remedy: "run as root, or with the capabilities named",
};

const RELEASE: Question = Question {
    id: "kernel",
    need: Need::Comfort,
    cost: "the programs are not tested on it, and the agent starts only if it has all that follows",
    remedy: NEWER_KERNEL,
};

const BTF: Question = Question {
    id: "btf",
    need: Need::Enforce,
    cost: "programs cannot be fitted to this kernel",
    remedy: "a kernel with CONFIG_DEBUG_INFO_BTF=y",
};

const JIT: Question = Question {
    id: "jit",
    need: Need::Comfort,
    cost: "programs are interpreted, several times slower",
    remedy: "sysctl net.core.bpf_jit_enable=1",
};

const TCX: Question = Question {
    id: "tcx",
    need: Need::Enforce,
    cost: "programs cannot be attached to interfaces",
    remedy: "Linux 6.12 or newer with CONFIG_NET_XGRESS=y",
};

const TIMER: Question = Question {
    id: "timer",
    need: Need::Enforce,
    cost: "idle flows cannot be collected while no agent runs",
    remedy: "Linux 6.12 or newer",
};

const ENFORCE: Question = Question {
    id: "enforcement-programs",
    need: Need::Enforce,
    cost: "the agent cannot start",
    remedy: "see the other answers; if all are yes, report the verifier's words",
};

const KERNEL_CONTEXT: Question = Question {
    id: "kernel-context",
    need: Need::Lab,
    cost: "the lab's switches cannot mark or count",
    remedy: "Linux 6.2 or newer",
};

const STRUCT_OPS: Question = Question {
    id: "struct-ops-stacks",
    need: Need::Lab,
    cost: "no tenants with our own stacks in the lab",
    remedy: "a kernel with CONFIG_BPF_JIT=y and CONFIG_DEBUG_INFO_BTF=y (Linux 5.6)",
};

const BPFFS: Question = Question {
    id: "bpffs",
    need: Need::Comfort,
    cost: "the agent mounts one when it starts; until then nothing can be pinned",
    remedy: "mount -t bpf bpf /sys/fs/bpf",
};

/// All questions to the kernel.
pub(super) fn findings() -> Vec<Finding> {
    let missing = missing_capabilities();
    let mut findings = vec![rights(&missing), supported_release(), btf(), jit()];
    findings.extend(tried(missing.is_empty()));
    findings.push(pin_place());
    findings
}

/// Before the agent mounts, pins or attaches anything.
///
/// # Errors
/// This kernel cannot enforce: what it lacks, and which one can.
pub(crate) fn ensure_able() -> Result<()> {
    let old = supported_release().verdict == Verdict::No;
    let mut findings = vec![btf(), tcx_known(), TIMER.of(try_timer())];
    if old {
        findings.push(ENFORCE.of(instance::try_load()));
    }
    findings.retain(|finding| finding.verdict == Verdict::No);
    let list = |of: fn(&Finding) -> String| findings.iter().map(of).collect::<Vec<_>>().join(", ");
    let release = release();
    let remedy = match old {
        true => NEWER_KERNEL.to_owned(),
        false => list(|finding| finding.remedy.clone().unwrap_or_default()),
    };
    ensure!(
        findings.is_empty(),
        "Linux {release} cannot enforce, for lack of {}: {remedy}; `sluicegate doctor` says more",
        list(|finding| format!("{} ({})", finding.id, finding.detail)),
    );
    if old {
        warn!(
            release,
            "enforcement is not tested on this kernel: {NEWER_KERNEL}"
        );
    }
    Ok(())
}

/// Kernel release, as `uname -r` has it.
pub(super) fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// Capabilities that enforcement takes and this process lacks.
pub(crate) fn missing_capabilities() -> Vec<&'static str> {
    let effective = effective_capabilities();
    CAPABILITIES
        .into_iter()
        .filter(|(number, _)| effective >> number & 1 == 0)
        .map(|(_, name)| name)
        .collect()
}

/// True if this process may walk all programs, maps and links of the kernel.
pub(crate) fn may_walk_objects() -> bool {
    effective_capabilities() >> SYS_ADMIN & 1 == 1
}

fn effective_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .unwrap_or_default()
}

fn rights(missing: &[&str]) -> Finding {
    if missing.is_empty() {
        RIGHTS.yes("bpf, perfmon, net_admin")
    } else {
        RIGHTS.no(format!("missing capabilities: {}", missing.join(", ")))
    }
}

fn supported_release() -> Finding {
    let release = release();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_MIN {
        RELEASE.yes(release)
    } else {
        RELEASE.no(release)
    }
}

fn btf() -> Finding {
    let path = "/sys/kernel/btf/vmlinux";
    match fs::metadata(path) {
        Ok(_) => BTF.yes(path),
        Err(error) => BTF.no(format!("{path}: {error}")),
    }
}

fn jit() -> Finding {
    let path = "/proc/sys/net/core/bpf_jit_enable";
    match fs::read_to_string(path).as_deref().map(str::trim) {
        Ok("0") => JIT.no("off"),
        Ok(_) => JIT.yes("on"),
        // Only root may read it; kernels with CONFIG_BPF_JIT_ALWAYS_ON have it on anyway.
        Err(error) => JIT.unknown(format!("{path}: {error}")),
    }
}

fn pin_place() -> Finding {
    let place = Path::new(bpffs::DEFAULT);
    if bpffs::is_bpffs(place) {
        BPFFS.yes(format!("mounted at {}", place.display()))
    } else {
        BPFFS.no(format!("none at {}", place.display()))
    }
}

/// Does what a question asks about; what came of it, in a word.
type Trial = fn() -> Result<String>;

/// The questions that are answered by trying.
fn tried(may: bool) -> Vec<Finding> {
    let trials: [(Question, Trial); 5] = [
        (TCX, try_tcx),
        (TIMER, try_timer),
        (ENFORCE, instance::try_load),
        (KERNEL_CONTEXT, || try_program("probe_kernel_context", &[])),
        (STRUCT_OPS, try_struct_ops),
    ];
    trials
        .into_iter()
        .map(|(question, trial)| {
            if may {
                question.of(trial())
            } else {
                question.unknown("not tried: it takes root")
            }
        })
        .collect()
}

/// Loads one of the probe programs alone, with the maps that it uses.
fn probe(program: &str, maps: &[&str]) -> Result<libbpf_rs::Object> {
    let mut object = object::open("sg_doctor", include_object!("doctor"))?;
    for mut other in object.progs_mut() {
        let wanted = other.name() == program;
        other.set_autoload(wanted);
    }
    for mut map in object.maps_mut() {
        let wanted = maps.iter().any(|name| map.name() == *name);
        map.set_autocreate(wanted)?;
    }
    object::load(object, "sg_doctor")
}

fn try_program(program: &str, maps: &[&str]) -> Result<String> {
    probe(program, maps).map(|_| "loaded".to_owned())
}

fn try_timer() -> Result<String> {
    try_program("probe_timer", &["probe_timed"])
}

/// Whether this kernel knows TCX at all: asked without attaching anything.
fn tcx_known() -> Finding {
    let asked = interfaces::find("lo").map(|lo| tcx::attached(lo.index, Direction::Ingress));
    match asked {
        Ok(Err(error)) if is_invalid(&error) => TCX.no("unknown to this kernel"),
        _ => TCX.yes("known"),
    }
}

fn is_invalid(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.and_then(std::io::Error::raw_os_error) == Some(libc::EINVAL)
}

/// Attaches to the loopback of a namespace that exists only while this function runs; where no
/// namespace can be made, asks what is attached to that of this one.
fn try_tcx() -> Result<String> {
    let attached = thread::spawn(|| {
        match unshare(CloneFlags::CLONE_NEWNET) {
            Err(Errno::EPERM) => return ask_tcx(),
            made => made.context("making a network namespace")?,
        }
        let object = probe("probe_empty", &[])?;
        let program = object::program(&object, "probe_empty")?;
        let lo = interfaces::find("lo")?;
        TcxLink::attach(&program, lo.index, Direction::Ingress).map(|_| "attached".to_owned())
    });
    attached.join().map_err(|_| anyhow!("the trial panicked"))?
}

fn ask_tcx() -> Result<String> {
    let lo = crate::interfaces::find("lo")?;
    tcx::attached(lo.index, Direction::Ingress)
        .map(|_| "asked, not tried: that takes CAP_SYS_ADMIN".to_owned())
}

fn try_struct_ops() -> Result<String> {
    let object = object::open("sg_doctor_stack", include_object!("doctor_stack"))?;
    object::load(object, "sg_doctor_stack")?;
    let ours = Algorithm::stacks(&[Stack::Module, Stack::Ours]).map(Algorithm::name);
    Ok(format!(
        "loaded; ours: {}",
        ours.collect::<Vec<_>>().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_rights_is_named() {
        let finding = rights(&["bpf", "net_admin"]);
        assert_eq!(finding.verdict, Verdict::No);
        assert!(finding.detail.contains("bpf, net_admin"));
        assert!(finding.remedy.is_some() && finding.cost.is_some());
    }

    #[test]
    fn without_rights_nothing_is_tried() {
        for finding in tried(false) {
            assert_eq!(finding.verdict, Verdict::Unknown, "{}", finding.id);
        }
    }
}
