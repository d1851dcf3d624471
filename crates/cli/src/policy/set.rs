//! `sluicegate policy set`: one rule's mode, in the file and, where an agent runs on it, in force.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use sluicegate_agent::{
    FlowRecord,
    bpffs::Pins,
    file, instance,
    netns::NetNs,
    state::{self, State},
};
use sluicegate_policy::{
    Mode, Policy, PolicyFile,
    edit::{self, EditError, Edited},
    fingerprint,
};

use crate::output::{self, Failure};

/// How long an agent may take to read the file again.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// Flows that a dry run names, at most.
const NAMED_MAX: usize = 10;

/// Set the mode of one rule, in the policy file; comments and layout stay.
///
/// `enforce` says what it leaves open, as `policy check` does. Where agents run on that file, waits
/// until they have adopted it. A file with errors is left alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sluicegate policy set enforce --rule bulk --dry-run
  sluicegate policy set enforce --rule bulk
  sluicegate policy set observe --rule 2 --policy /etc/sluicegate/policy.toml")]
pub struct Args {
    /// observe: compute and report only; enforce: edit packets; off: do not track
    #[arg(value_parser = parse_mode)]
    mode: Mode,

    /// The rule's name, or its number from 1
    #[arg(long, value_name = "NAME")]
    rule: String,

    /// Policy file [default: that of the agent in this network namespace]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Only show what would change: the file's lines, and the open flows that it would touch
    #[arg(long)]
    dry_run: bool,

    /// Network namespace of the agent, as `ip netns` names it [default: the current one]
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,

    /// Where agents say what they do
    #[arg(long, value_name = "DIR", default_value = state::RUN_DIR)]
    run_dir: PathBuf,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    let found = Mode::NAMES.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, mode)| *mode)
        .ok_or_else(|| "write observe, enforce or off".to_owned())
}

/// Sets it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let path = policy_path(args)?;
    let file = PolicyFile::read(&path)?;
    let shown = path.display().to_string();
    let edited = edit::set_mode(&shown, &file.text, &args.rule, args.mode).map_err(bad_input)?;
    if args.mode == Mode::Enforce {
        super::warn(&Policy::parse_with_warnings(&shown, &edited.text)?.1);
    }
    let agents = agents_on(&args.run_dir, &path);
    let label = edited.policy.rules[edited.rule].label(edited.rule);
    if args.dry_run {
        return output::print(&preview(&file, &edited, &label, &agents)?);
    }
    let mut said = if edited.text == file.text {
        format!("{shown}: {label} is {} already\n", args.mode)
    } else {
        file::replace_alike(&path, edited.text.as_bytes())?;
        format!("{shown}: {label} is {} now\n", args.mode)
    };
    if agents.is_empty() {
        said.push_str("no agent runs on this file\n");
    }
    output::print(&said)?;
    for agent in &agents {
        output::print(&wait(&args.run_dir, agent, &fingerprint(&edited.text))?)?;
    }
    Ok(())
}

fn bad_input(error: EditError) -> Failure {
    Failure::BadInput(error.to_string())
}

/// The file itself, where the name given is a link to it: the link stays.
fn policy_path(args: &Args) -> Result<PathBuf, Failure> {
    let path = match &args.policy {
        Some(path) => path.clone(),
        None => {
            let netns = NetNs::select(args.netns.as_deref())?;
            let state = state::read(&args.run_dir, netns.name())?;
            let state = state.ok_or_else(|| {
                Failure::BadInput(format!(
                    "no agent of network namespace {} has said in {} which policy is in force: name one with \
                     --policy",
                    netns.name(),
                    args.run_dir.display()
                ))
            })?;
            state.policy.path
        }
    };
    // A file that is not there is said so when it is read.
    Ok(fs::canonicalize(&path).unwrap_or(path))
}

/// Agents that run on the file at `path`.
fn agents_on(run_dir: &Path, path: &Path) -> Vec<State> {
    let same = |other: &Path| fs::canonicalize(other).is_ok_and(|other| other == path);
    let state::All {
        states: mut agents,
        failures,
    } = state::all(run_dir);
    for failure in failures {
        output::say(&format!(
            "warning: an agent may run on this file and is not waited for, which cannot be told: {failure}"
        ));
    }
    agents.retain(|state| state.is_running() && same(&state.policy.path));
    agents
}

/// Waits until the agent has adopted the text with this fingerprint; what it said.
fn wait(run_dir: &Path, agent: &State, wanted: &str) -> Result<String, Failure> {
    let name = format!("agent {} in network namespace {}", agent.pid, agent.netns);
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let Some(now) = state::read(run_dir, &agent.netns)? else {
            return Err(anyhow!("the {name} has ended meanwhile").into());
        };
        let reload = now.reload.filter(|reload| reload.fingerprint == wanted);
        if now.policy.fingerprint == wanted {
            let flows = reload.map_or(0, |reload| reload.flows_rematched);
            return Ok(format!(
                "{name}: in force ({flows} flows have another rule)\n"
            ));
        }
        if let Some(refused) = reload.filter(|reload| !reload.adopted) {
            let problems = refused.problems.join("\n  ");
            return Err(anyhow!("the {name} does not take it over:\n  {problems}").into());
        }
        if now.pid != agent.pid || !agent.is_running() {
            return Err(anyhow!("the {name} has ended meanwhile").into());
        }
        thread::sleep(PAUSE);
    }
    Err(anyhow!(
        "the {name} has not taken it over within {} s: see its log",
        PATIENCE.as_secs()
    )
    .into())
}

fn preview(file: &PolicyFile, edited: &Edited, label: &str, agents: &[State]) -> Result<String> {
    let mut text = difference(&file.path.display().to_string(), &file.text, &edited.text);
    for agent in agents {
        let pins = Pins::new(&agent.bpffs, &agent.netns);
        let interfaces = agent.interfaces.iter();
        let interfaces = interfaces.map(|(index, place)| (*index, place.name.clone()));
        let names = agent.names(interfaces.collect());
        let flows = instance::pinned_altered(&pins, &names, &edited.policy)?;
        text += &touched(agent, label, &flows);
    }
    if agents.is_empty() {
        text.push_str("no agent runs on this file\n");
    }
    Ok(text)
}

fn touched(agent: &State, label: &str, flows: &[FlowRecord]) -> String {
    let mut text = format!(
        "network namespace {}: {} open flows of {label} would be treated otherwise\n",
        agent.netns,
        flows.len()
    );
    for flow in flows.iter().take(NAMED_MAX) {
        text += &format!(
            "  {} {} to {} ({})\n",
            flow.tenant, flow.local, flow.remote, flow.mode
        );
    }
    if flows.len() > NAMED_MAX {
        text += &format!("  and {} more\n", flows.len() - NAMED_MAX);
    }
    text
}

/// Lines that differ, with what is around them: everything between the first and the last of them.
fn difference(name: &str, before: &str, after: &str) -> String {
    if before == after {
        return format!("{name}: nothing changes\n");
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = old.iter().zip(&new).take_while(same).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev());
    let tail = tail.take(rest).take_while(same).count();
    let mut text = format!("--- {name}\n+++ {name}\n@@ line {} @@\n", head + 1);
    for line in &old[head.saturating_sub(2)..head] {
        text += &format!(" {line}\n");
    }
    for line in &old[head..old.len() - tail] {
        text += &format!("-{line}\n");
    }
    for line in &new[head..new.len() - tail] {
        text += &format!("+{line}\n");
    }
    for line in old[old.len() - tail..].iter().take(2) {
        text += &format!(" {line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_changes_and_two_lines_around() {
        let shown = difference("p", "a\nb\nc\nd\ne\nf\n", "a\nb\nc\nX\ne\nf\n");
        assert_eq!(
            shown,
            "--- p\n+++ p\n@@ line 4 @@\n b\n c\n-d\n+X\n e\n f\n"
        );
        let added = difference("p", "a\n", "a\na\n");
        assert_eq!(added, "--- p\n+++ p\n@@ line 2 @@\n a\n+a\n");
        assert_eq!(difference("p", "a", "a"), "p: nothing changes\n");
    }
}
