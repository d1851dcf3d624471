//! Following the policy file.

use sluicegate_policy::{Change, Policy, Warning, Weight};
use tracing::{error, info, warn};

use super::{
    Agent,
    whole::{InPlace, Read, writing},
};
use crate::{
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
            if fingerprint == self.state.policy.fingerprint && read.id.is_some() {
                self.in_place.is_now(&read);
                self.state.policy.file = read.id;
            }
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
            reload.held_file = read.id;
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
                self.state.policy = InForce::now(&read.file, read.id, policy);
                self.state.reload = Some(Reload {
                    at_unix_s: state::unix_s(),
                    fingerprint: fingerprint.clone(),
                    adopted: true,
                    problems: Vec::new(),
                    changes,
                    flows_rematched: reloaded.rematched,
                    ..Reload::default()
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
        if let Some(reload) = &mut self.state.reload {
            reload.held_file = made.and_then(|read| read.id);
        }
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
