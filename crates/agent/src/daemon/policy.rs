//! Following the policy file.

use anyhow::{Result, bail, ensure};
use sluicegate_policy::{Change, Policy, Warning, Weight};
use tracing::{error, info, warn};

use super::{
    Agent, Config,
    whole::{InPlace, Read, writing},
};
use crate::{
    bpffs::Pins,
    reload::Reloaded,
    state::{self, InForce, Reload},
};

/// Says in the log what a policy probably does not mean, or leaves open.
pub fn log_warnings(warnings: &[Warning]) {
    for warning in warnings {
        match warning.weight {
            Weight::Warning => warn!("{warning}"),
            Weight::Note => info!("{warning}"),
        }
    }
}

/// An agent that starts by itself after a crash must not end enforcement because it finds the
/// policy file empty, or as an agent before has held it back.
///
/// # Errors
/// The file is probably not whole, and rules of an earlier agent are in force in this namespace.
pub(super) fn refuse_partial(config: &Config, netns: &str) -> Result<()> {
    if !Pins::new(&config.bpffs, netns).exist() {
        return Ok(());
    }
    let path = &config.policy_file.path;
    let is_empty = config.policy_file.text.trim().is_empty();
    let before = match state::read(&config.run_dir, netns) {
        Ok(None) => return Ok(()),
        Ok(Some(state)) => state,
        Err(error) if is_empty => bail!(
            "the policy file {} is empty, and the state file of the last agent in network namespace {netns} cannot \
             be read ({error:#}), so that rules may be in force: write the policy, or end enforcement first \
             (sluicegate detach --all)",
            path.display()
        ),
        Err(_) => return Ok(()),
    };
    let rules = before.policy.rules.len();
    ensure!(
        !is_empty || rules == 0,
        "{} is empty, and {rules} rules are in force in network namespace {netns}: write the policy, or end \
         enforcement first (sluicegate detach --all); a line of comment makes a policy without rules",
        path.display()
    );
    let held = before.reload.and_then(|reload| reload.held_back);
    ensure!(
        held.is_none() || held != writing(path),
        "the policy file {} may not be whole: the last agent has held it back, and the file was not written since; \
         the {rules} rules in force in network namespace {netns} go on: write the policy again, or `touch` the file \
         to put the policy in force",
        path.display()
    );
    Ok(())
}

/// Why the agent looks at its policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// By SIGHUP: whatever the file says is meant.
    Asked,
    /// It has changed. `is_created`: it was made at its place, and not renamed into it.
    News { is_created: bool },
}

impl Agent<'_> {
    /// Looks at the policy file and puts it in force if it says something else than before. A file
    /// with errors changes nothing, nor does one that is probably a part of one, unless asked for.
    pub(super) fn reload(&mut self, look: Look) {
        let asked = look == Look::Asked;
        let path = &self.config.policy_file.path;
        let read = match Read::at(path) {
            Ok(read) => read,
            // Between an editor's two steps there may be none.
            Err(problems) if asked || self.retry || !self.seen.is_empty() => {
                return self.refuse(String::new(), problems, None);
            }
            // Said already.
            Err(_) => return,
        };
        let fingerprint = read.file.fingerprint();
        let is_held = self.in_place.holds() && (asked || self.in_place.is_replaced(&read));
        if fingerprint == self.seen && !self.retry && !is_held {
            if asked {
                info!("the policy file is as it was");
            }
            return;
        }
        let (policy, warnings) = match read.file.policy() {
            Ok(good) => good,
            Err(problems) => {
                let is_made = matches!(look, Look::News { is_created: true });
                let made = Some(&read).filter(|_| is_made);
                return self.refuse(fingerprint, problems.to_string(), made);
            }
        };
        let doubt = match look {
            Look::Asked => None,
            Look::News { is_created } => self.in_place.doubt(&read, &policy, is_created),
        };
        if let Some(doubt) = doubt {
            return self.hold_back(&read, &doubt);
        }
        log_warnings(&warnings);
        self.adopt(read, &policy);
    }

    /// Says that a file is probably not whole, and how to put it in force all the same.
    fn hold_back(&mut self, read: &Read, doubt: &str) {
        let fingerprint = read.file.fingerprint();
        let problem = format!(
            "the policy file was written in place and {doubt}: it may not be whole, so that the {} rules and {} \
             buckets in force go on; if it is meant, SIGHUP takes it (systemctl reload sluicegate, or kill -HUP {}), \
             or rename a file into its place",
            self.state.policy.rules.len(),
            self.in_place.buckets(),
            self.state.pid
        );
        warn!("{problem}");
        self.in_place.hold(read);
        self.not_adopted(fingerprint, vec![problem]);
        if let Some(reload) = &mut self.state.reload {
            reload.held_back = writing(&self.config.policy_file.path);
        }
    }

    fn adopt(&mut self, read: Read, policy: &Policy) {
        let fingerprint = read.file.fingerprint();
        let before = self.state.policy.rules.clone();
        match self.instance.reload(policy) {
            Ok(reloaded) => {
                let changes = describe(&reloaded, &before, &policy.rule_names());
                for change in &changes {
                    info!("{change}");
                }
                info!(
                    rules = policy.rules.len(),
                    rules_changed = changes.len(),
                    flows_rematched = reloaded.rematched,
                    "policy reloaded"
                );
                let path = &self.config.policy_file.path;
                self.state.policy = InForce::now(path, fingerprint.clone(), policy);
                self.state.reload = Some(Reload {
                    at_unix_s: state::unix_s(),
                    fingerprint: fingerprint.clone(),
                    adopted: true,
                    problems: Vec::new(),
                    changes,
                    flows_rematched: reloaded.rematched,
                    held_back: None,
                });
                self.seen = fingerprint;
                self.retry = false;
                self.in_place = InPlace::new(read, policy);
            }
            Err(error) => {
                self.refuse(fingerprint, format!("the kernel refused: {error:#}"), None);
                self.retry = true;
            }
        }
    }

    /// `made`: the file, where it was made at its place.
    fn refuse(&mut self, fingerprint: String, problems: String, made: Option<&Read>) {
        error!("the policy file is not taken over, what was in force goes on:");
        let problems: Vec<String> = problems.lines().map(str::to_owned).collect();
        for problem in &problems {
            error!("{problem}");
        }
        self.in_place.let_go(made);
        self.not_adopted(fingerprint, problems);
    }

    fn not_adopted(&mut self, fingerprint: String, problems: Vec<String>) {
        self.state.reload = Some(Reload {
            at_unix_s: state::unix_s(),
            fingerprint: fingerprint.clone(),
            adopted: false,
            problems,
            ..Reload::default()
        });
        self.seen = fingerprint;
        self.retry = false;
    }
}

/// One line for each rule that is not as it was. A rule of the file may be two of the data plane.
fn describe(reloaded: &Reloaded, before: &[String], after: &[String]) -> Vec<String> {
    let name = |names: &[String], position: u32| {
        let name = names.get(position as usize).cloned();
        name.unwrap_or_else(|| format!("rule {}", u64::from(position) + 1))
    };
    let mut lines: Vec<String> = Vec::new();
    for change in &reloaded.changes {
        let line = match *change {
            Change::Added(position) => format!("{}: new conditions", name(after, position)),
            Change::Altered(position) => {
                format!(
                    "{}: same conditions, other treatment",
                    name(after, position)
                )
            }
            Change::Removed(position) => {
                format!("{}: its conditions are gone", name(before, position))
            }
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_said_once_by_name() {
        let reloaded = Reloaded {
            changes: vec![
                Change::Added(0),
                Change::Added(0),
                Change::Altered(1),
                Change::Removed(0),
            ],
            rematched: 3,
        };
        let (before, after) = (["old".to_owned()], ["web".to_owned()]);
        assert_eq!(
            describe(&reloaded, &before, &after),
            [
                "web: new conditions",
                "rule 2: same conditions, other treatment",
                "old: its conditions are gone"
            ]
        );
    }
}
