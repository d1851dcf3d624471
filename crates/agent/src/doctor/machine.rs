//! Questions to the machine: what the lab and the report's tests use.

use std::{env, fs, path::PathBuf, thread};

use sluicegate_core::cc::{Algorithm, Stack};

use super::{Finding, Need, Question};

const CPUS: Question = Question {
    id: "cpus",
    need: Need::Comfort,
    cost: "lab runs are limited by the CPU at low link rates",
    remedy: "two CPUs or more",
};

const IPROUTE2: Question = Question {
    id: "iproute2",
    need: Need::Lab,
    cost: "the lab cannot build networks",
    remedy: "apt-get install iproute2",
};

const ETHTOOL: Question = Question {
    id: "ethtool",
    need: Need::Lab,
    cost: "the lab cannot switch offloads off, so that queues hold super-packets",
    remedy: "apt-get install ethtool",
};

const GUESTS: Question = Question {
    id: "user-mode-linux",
    need: Need::Lab,
    cost: "no guests as tenants: no scenario against the stacks of a kernel's modules",
    remedy: "apt-get install user-mode-linux",
};

const CHROMIUM: Question = Question {
    id: "chromium",
    need: Need::Comfort,
    cost: "the test that opens a report in a browser cannot run",
    remedy: "apt-get install chromium",
};

const STACKS: Question = Question {
    id: "tcp-stacks",
    need: Need::Comfort,
    cost: "tenants on this kernel use our struct_ops versions, or run as guests with the real modules",
    remedy: "modprobe tcp_NAME for each that is lacking, where the kernel has the module",
};

/// All questions to the machine.
pub(super) fn findings() -> Vec<Finding> {
    let cpus = cpus();
    let enough = if cpus >= 2 {
        Question::yes
    } else {
        Question::no
    };
    vec![
        enough(CPUS, format!("{cpus} online")),
        program(IPROUTE2, &["ip", "tc"]),
        program(ETHTOOL, &["ethtool"]),
        program(GUESTS, &["linux.uml"]),
        program(CHROMIUM, &["chromium"]),
        stacks(),
    ]
}

/// CPUs online.
pub(super) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// All of these commands are in `PATH` (or where Debian keeps those for root).
fn program(question: Question, commands: &[&str]) -> Finding {
    let found: Vec<Option<PathBuf>> = commands.iter().map(|command| which(command)).collect();
    let missing: Vec<&str> = commands
        .iter()
        .zip(&found)
        .filter(|(_, path)| path.is_none())
        .map(|(command, _)| *command)
        .collect();
    if !missing.is_empty() {
        return question.no(format!("not found: {}", missing.join(", ")));
    }
    let paths: Vec<String> = found
        .into_iter()
        .flatten()
        .map(|path| path.display().to_string())
        .collect();
    question.yes(paths.join(", "))
}

fn which(command: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(command))
        .find(|candidate| candidate.is_file())
}

fn stacks() -> Finding {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let text = fs::read_to_string(path).unwrap_or_default();
    let available: Vec<&str> = text.split_whitespace().collect();
    let wanted = Algorithm::stacks(&[Stack::Linux, Stack::Module]).map(Algorithm::name);
    let missing: Vec<&str> = wanted.filter(|name| !available.contains(name)).collect();
    if missing.is_empty() {
        STACKS.yes(available.join(", "))
    } else {
        STACKS.no(format!(
            "has {}; lacks {}",
            available.join(", "),
            missing.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_missing_command_is_named() {
        let finding = program(IPROUTE2, &["sh", "no-such-command"]);
        assert_eq!(finding.verdict, Verdict::No);
        assert_eq!(finding.detail, "not found: no-such-command");
    }

    #[test]
    fn a_command_is_found_by_its_path() {
        let finding = program(IPROUTE2, &["sh"]);
        assert_eq!(finding.verdict, Verdict::Yes);
        assert!(finding.detail.ends_with("/sh"));
    }
}
