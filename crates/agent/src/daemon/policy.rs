//! Following the policy file.

use sluicegate_policy::{Change, Policy, PolicyFile, Warning, Weight};
use tracing::{error, info, warn};

use super::Agent;
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

impl Agent<'_> {
    /// Looks at the policy file and puts it in force if it says something else than before. A file
    /// with errors changes nothing. `asked`: says so also if it says the same.
    pub(super) fn reload(&mut self, asked: bool) {
        let path = &self.config.policy_file.path;
        let file = match PolicyFile::read(path) {
            Ok(file) => file,
            // Between an editor's two steps there may be none.
            Err(problems) if asked || !self.seen.is_empty() => {
                return self.refuse(String::new(), problems.to_string());
            }
            // Said already.
            Err(_) => return,
        };
        let fingerprint = file.fingerprint();
        if fingerprint == self.seen && !self.retry {
            if asked {
                info!("the policy file is as it was");
            }
            return;
        }
        match file.policy() {
            Ok((policy, warnings)) => {
                log_warnings(&warnings);
                self.adopt(fingerprint, &policy);
            }
            Err(problems) => self.refuse(fingerprint, problems.to_string()),
        }
    }

    fn adopt(&mut self, fingerprint: String, policy: &Policy) {
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
                });
                self.seen = fingerprint;
                self.retry = false;
            }
            Err(error) => {
                self.refuse(fingerprint, format!("the kernel refused: {error:#}"));
                self.retry = true;
            }
        }
    }

    fn refuse(&mut self, fingerprint: String, problems: String) {
        error!("the policy file is not taken over, what was in force goes on:");
        let problems: Vec<String> = problems.lines().map(str::to_owned).collect();
        for problem in &problems {
            error!("{problem}");
        }
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
