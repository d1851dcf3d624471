//! Whether an agent that starts takes its policy file.
//!
//! It may start by itself, after a crash or an upgrade, while a file is being written, or with what
//! a full disk has left of it. Where a policy of an earlier agent is in force, a file that was
//! written in place is held to what a running agent asks of it. What was in force is known from the
//! kernel, its file from the state of the last agent.

use anyhow::{Result, bail};
use sluicegate_policy::Policy;
use tracing::warn;

use super::{
    Config,
    whole::{Read, fewer, writing},
};
use crate::{
    bpffs::{self, Found, Pins},
    state::{self, FileId, InForce, Reload, State},
    takeover::{self, Amounts},
};

/// # Errors
/// The file is probably not whole, and a policy of an earlier agent is in force in this namespace.
pub(super) fn refuse_partial(config: &Config, netns: &str) -> Result<()> {
    let pins = Pins::new(&config.bpffs, netns);
    let is_ours = pins.try_exist()?;
    let is_other = |found: &Found| found.netns == netns && !found.interfaces().is_empty();
    if !is_ours && !bpffs::instances(&config.bpffs).iter().any(is_other) {
        return Ok(());
    }
    let amounts = is_ours.then(|| takeover::pinned_amounts(&pins)).transpose();
    let amounts = amounts.unwrap_or_else(|error| {
        warn!("the policy in force is not known from the pinned maps: {error:#}");
        None
    });
    let state = state::read(&config.run_dir, netns).unwrap_or_else(|error| {
        warn!("the policy file in force is not known from the state of the last agent: {error:#}");
        None
    });
    let path = &config.policy_file.path;
    let read = Read::before(&config.policy_file);
    let known = Known::of(amounts, state.as_ref());
    let Some(doubt) = known.doubt(&read, writing(path).as_deref(), &config.policy) else {
        return Ok(());
    };
    let problem = format!(
        "the policy file {path} {doubt}: the file may not be whole, so {} in force in network \
         namespace {netns} goes on; write the whole policy again, or if the file is meant, rename \
         the file into its place (cp -p {path} {path}.new && mv {path}.new {path})",
        known.in_words(),
        path = path.display(),
    );
    match note_refusal(config, netns, state, &read, &problem) {
        Ok(()) => bail!("{problem}"),
        // The next start would not know that another file has taken its name.
        Err(error) if known.file.is_none() => bail!(
            "{problem}; for that, the agent has to know which file it has refused, and cannot write it \
             down ({error:#}): make room there first"
        ),
        Err(error) => bail!("{problem} (others do not hear of it: {error:#})"),
    }
}

/// Writes down that a file was refused: `flows` and `doctor` tell, and the next start knows by it
/// whether another file has taken its name.
fn note_refusal(
    config: &Config,
    netns: &str,
    before: Option<State>,
    read: &Read,
    problem: &str,
) -> Result<()> {
    let path = &config.policy_file.path;
    let mut state = before.unwrap_or_else(|| State {
        version: state::VERSION,
        netns: netns.to_owned(),
        bpffs: config.bpffs.clone(),
        policy: InForce {
            path: path.clone(),
            ..InForce::default()
        },
        ..State::default()
    });
    state.reload = Some(Reload {
        at_unix_s: state::unix_s(),
        fingerprint: read.file.fingerprint(),
        problems: vec![problem.to_owned()],
        held_back: writing(path),
        held_file: read.id,
        ..Reload::default()
    });
    state::write(&config.run_dir, &state)
}

/// What is known of the policy in force, and of a file that was held back since.
#[derive(Debug, Default)]
struct Known {
    fingerprint: Option<String>,
    rules: Option<usize>,
    buckets: Option<usize>,
    file: Option<FileId>,
    ends_line: bool,
    beginnings: Vec<String>,
    held_back: Option<String>,
    held_file: Option<FileId>,
}

impl Known {
    /// `amounts`: what the kernel has of it.
    fn of(amounts: Option<Amounts>, state: Option<&State>) -> Self {
        let said = state.map(|state| &state.policy);
        // A state that could not be written is of a policy before.
        let is_told = |said: &&InForce| {
            let agrees = |amounts: Amounts| {
                let buckets = said.buckets.zip(amounts.buckets);
                amounts.rules == said.rules.len() && buckets.is_none_or(|(one, other)| one == other)
            };
            !said.fingerprint.is_empty() && amounts.is_none_or(agrees)
        };
        let said = said.filter(is_told);
        let rules = amounts.map(|amounts| amounts.rules);
        let buckets = amounts.and_then(|amounts| amounts.buckets);
        let reload = state.and_then(|state| state.reload.as_ref());
        Self {
            fingerprint: said.map(|said| said.fingerprint.clone()),
            rules: rules.or(said.map(|said| said.rules.len())),
            buckets: buckets.or(said.and_then(|said| said.buckets)),
            file: said.and_then(|said| said.file),
            ends_line: said.is_some_and(|said| said.ends_line),
            beginnings: said.map_or_else(Vec::new, |said| said.beginnings.clone()),
            held_back: reload.and_then(|reload| reload.held_back.clone()),
            held_file: reload.and_then(|reload| reload.held_file),
        }
    }

    fn in_words(&self) -> String {
        match (self.rules, self.buckets) {
            (Some(rules), Some(buckets)) => {
                format!("the policy of {rules} rules and {buckets} buckets")
            }
            (Some(rules), None) => format!("the policy of {rules} rules"),
            (None, _) => "the policy".to_owned(),
        }
    }

    /// Whether the file is not known to have been renamed into its place.
    fn is_in_place(&self, id: Option<FileId>) -> bool {
        let is = |known: Option<FileId>| known.is_some() && known == id;
        let is_known = self.file.is_some() || self.held_file.is_some();
        !is_known || id.is_none() || is(self.file) || is(self.held_file)
    }

    /// Why the file is probably a part of one. `written`: the file as it was written last.
    fn doubt(&self, read: &Read, written: Option<&str>, policy: &Policy) -> Option<String> {
        let fingerprint = read.file.fingerprint();
        if self.fingerprint.as_ref() == Some(&fingerprint) || !self.is_in_place(read.id) {
            return None;
        }
        let (rules, buckets) = (policy.rules.len(), policy.buckets.len());
        let text = &read.file.text;
        let is_empty = text.trim().is_empty();
        let is_less = fewer("rules", rules, self.rules).or(fewer("buckets", buckets, self.buckets));
        if is_less.is_some() && is_empty {
            return Some("is empty".to_owned());
        }
        if is_less.is_some() {
            return is_less;
        }
        if self.rules.is_none() && rules == 0 && buckets == 0 {
            return Some("has no rules, and how many are in force is not known".to_owned());
        }
        if self.ends_line && !is_empty && !text.ends_with('\n') {
            return Some("ends within a line".to_owned());
        }
        if self.beginnings.contains(&fingerprint) {
            return Some("is the beginning of what is in force".to_owned());
        }
        let is_held = self.held_back.is_some() && self.held_back.as_deref() == written;
        is_held.then(|| "was held back by the last agent, and was not written since".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_policy::PolicyFile;

    const TWO: &str = "[[rule]]\nport = 80\n[[rule]]\nmode = 'enforce'\n";
    const BUCKET: &str = "[[bucket]]\nclass = 'udp'\nrate = '50Mbit'\nmode = 'observe'\n";

    fn read(text: &str, inode: u64) -> (Read, Policy) {
        let file = PolicyFile {
            path: "policy.toml".into(),
            text: text.to_owned(),
        };
        let policy = file.policy().unwrap().0;
        let id = Some((1, inode));
        (Read { file, id }, policy)
    }

    /// The state of an agent that had `text` in force, in a file with the inode 7.
    fn state(text: &str) -> State {
        let (read, policy) = read(text, 7);
        State {
            policy: InForce::now(&read.file, read.id, &policy),
            ..State::default()
        }
    }

    fn doubt(known: &Known, text: &str, inode: u64) -> Option<String> {
        let (read, policy) = read(text, inode);
        known.doubt(&read, Some("now"), &policy)
    }

    fn amounts(rules: usize, buckets: usize) -> Option<Amounts> {
        Some(Amounts {
            rules,
            buckets: Some(buckets),
        })
    }

    #[test]
    fn a_start_takes_no_less_than_is_in_force_unless_it_was_renamed() {
        let whole = format!("# Two.\n{TWO}{BUCKET}");
        let known = Known::of(None, Some(&state(&whole)));
        let first = whole.find("[[rule]]\nmode").unwrap();
        for (cut, why) in [
            (0, "is empty"),
            (7, "has 0 rules and 2 are in force"),
            (first, "has 1 rules and 2 are in force"),
            (
                whole.find("[[bucket]]").unwrap(),
                "has 0 buckets and 1 are in force",
            ),
            (whole.len() - 1, "ends within a line"),
            (
                whole.rfind("mode").unwrap(),
                "is the beginning of what is in force",
            ),
        ] {
            assert_eq!(doubt(&known, &whole[..cut], 7).as_deref(), Some(why));
            assert_eq!(doubt(&known, &whole[..cut], 8), None, "{why}");
        }
        assert_eq!(doubt(&known, &whole, 7), None);
        assert_eq!(doubt(&known, &whole.replace("80", "81"), 7), None);
    }

    #[test]
    fn an_empty_file_does_not_end_buckets() {
        let known = Known::of(None, Some(&state(BUCKET)));
        assert_eq!(doubt(&known, "", 7).as_deref(), Some("is empty"));
        assert!(doubt(&known, "# Buckets.\n", 7).is_some());
        let none = Known::of(None, Some(&state("# Nothing yet.\n")));
        assert_eq!(doubt(&none, "", 7), None);
    }

    #[test]
    fn the_kernel_knows_what_is_in_force_where_no_state_was_written() {
        let known = Known::of(amounts(2, 1), None);
        assert_eq!(
            doubt(&known, TWO, 8).as_deref(),
            Some("has 0 buckets and 1 are in force")
        );
        assert_eq!(doubt(&known, &format!("{TWO}{BUCKET}"), 8), None);
        // The state is of a policy before, and so is its file.
        let known = Known::of(amounts(2, 0), Some(&state("[[rule]]\n")));
        assert_eq!(
            doubt(&known, "[[rule]]\n", 8).as_deref(),
            Some("has 1 rules and 2 are in force")
        );
    }

    #[test]
    fn a_refused_file_is_known_where_nothing_else_was_written() {
        let mut refused = State {
            reload: Some(Reload {
                held_file: Some((1, 8)),
                ..Reload::default()
            }),
            ..State::default()
        };
        let known = Known::of(amounts(2, 0), Some(&refused));
        assert!(doubt(&known, "", 8).is_some());
        assert_eq!(doubt(&known, "", 9), None, "it was renamed");
        refused.reload = None;
        let known = Known::of(amounts(2, 0), Some(&refused));
        assert!(doubt(&known, "", 9).is_some());
    }

    #[test]
    fn of_another_layout_no_more_is_known_than_its_agent_said() {
        let unknown = Known::of(None, None);
        assert!(doubt(&unknown, "# cut", 7).is_some());
        assert_eq!(doubt(&unknown, "[[rule]]\n", 7), None);
        let mut earlier = state(TWO);
        (earlier.policy.file, earlier.policy.buckets) = (None, None);
        let known = Known::of(None, Some(&earlier));
        assert_eq!(
            doubt(&known, "[[rule]]\n", 7).as_deref(),
            Some("has 1 rules and 2 are in force")
        );
    }

    #[test]
    fn what_was_held_back_is_so_until_it_is_written_again() {
        let mut before = state(TWO);
        before.reload = Some(Reload {
            held_back: Some("now".to_owned()),
            held_file: Some((1, 9)),
            ..Reload::default()
        });
        let known = Known::of(amounts(2, 0), Some(&before));
        let cut = format!("{TWO}algorithm = 'cubic'\n");
        assert!(doubt(&known, &cut, 9).unwrap().contains("held back"));
        let (read, policy) = read(&cut, 9);
        assert_eq!(known.doubt(&read, Some("later"), &policy), None);
    }
}
