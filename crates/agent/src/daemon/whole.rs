//! Whether a policy file is whole.
//!
//! Every beginning of a policy is a policy: an empty one, one that ends behind a rule. A writer
//! that writes a file in place shows them all, and one that finds the disk full leaves one of
//! them. So a file that was written in place is taken only if it has no fewer rules and buckets
//! than what is in force, and no mark of a cut. A file that was renamed into its place is whole.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use sluicegate_policy::{Policy, PolicyFile};

use crate::state::FileId;

/// A policy file at one moment.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) file: PolicyFile,
    /// `None`: another file has taken its name meanwhile.
    pub(super) id: Option<FileId>,
}

/// The file at `path` as it was written last: `None` if there is none.
pub(super) fn writing(path: &Path) -> Option<String> {
    let about = fs::metadata(path).ok()?;
    Some(format!(
        "{}:{} at {}.{:09}",
        about.dev(),
        about.ino(),
        about.mtime(),
        about.mtime_nsec()
    ))
}

impl Read {
    /// Reads it.
    ///
    /// # Errors
    /// Why [`PolicyFile::read`] fails.
    pub(super) fn at(path: &Path) -> Result<Self, String> {
        let before = id(path);
        let file = PolicyFile::read(path).map_err(|problems| problems.to_string())?;
        let id = id(path).filter(|after| before == Some(*after));
        Ok(Self { file, id })
    }

    /// One that was read before.
    pub(super) fn before(file: &PolicyFile) -> Self {
        let (file, id) = (file.clone(), id(&file.path));
        Self { file, id }
    }
}

fn id(path: &Path) -> Option<FileId> {
    let about = fs::metadata(path).ok()?;
    Some((about.dev(), about.ino()))
}

/// Why a policy with `now` rules or buckets may be a part of the one in force, which has `before`
/// where that is known.
pub(super) fn fewer(what: &str, now: usize, before: Option<usize>) -> Option<String> {
    let before = before.filter(|before| now < *before)?;
    Some(format!("has {now} {what} and {before} are in force"))
}

/// The file whose policy is in force, and one that was held back.
#[derive(Debug)]
pub(super) struct InPlace {
    text: String,
    id: Option<FileId>,
    rules: usize,
    buckets: usize,
    /// Another file that was made at its place. It may have been refused, or held back.
    made: Option<Option<FileId>>,
    is_held: bool,
}

impl InPlace {
    /// The file that is in force.
    pub(super) fn new(read: Read, policy: &Policy) -> Self {
        Self {
            text: read.file.text,
            id: read.id,
            rules: policy.rules.len(),
            buckets: policy.buckets.len(),
            made: None,
            is_held: false,
        }
    }

    /// The text in force is that of this file now.
    pub(super) fn is_now(&mut self, read: &Read) {
        self.id = read.id.or(self.id);
    }

    /// How many buckets are in force.
    pub(super) fn buckets(&self) -> usize {
        self.buckets
    }

    /// Whether the file as it was read last is held back.
    pub(super) fn holds(&self) -> bool {
        self.is_held
    }

    /// Whether the file that was held back has given way to another one.
    pub(super) fn is_replaced(&self, read: &Read) -> bool {
        self.holds() && !self.is_in_place(read)
    }

    fn is_in_place(&self, read: &Read) -> bool {
        read.id.is_none() || read.id == self.id || self.made == Some(read.id)
    }

    /// Why the file is probably a part of one. `is_created`: it was made at its place, and not
    /// renamed into it.
    pub(super) fn doubt(&self, read: &Read, policy: &Policy, is_created: bool) -> Option<String> {
        if !is_created && !self.is_in_place(read) {
            return None;
        }
        let text = &read.file.text;
        let cut = |is_cut: bool, why: &str| is_cut.then(|| why.to_owned());
        let is_shorter = text.len() < self.text.len();
        let had_end = self.text.ends_with('\n');
        cut(
            is_shorter && text.trim().is_empty() && !self.text.trim().is_empty(),
            "is empty",
        )
        .or_else(|| fewer("rules", policy.rules.len(), Some(self.rules)))
        .or_else(|| fewer("buckets", policy.buckets.len(), Some(self.buckets)))
        .or_else(|| {
            cut(
                is_shorter && self.text.starts_with(text.as_str()),
                "is the beginning of what is in force",
            )
        })
        .or_else(|| cut(had_end && !text.ends_with('\n'), "ends within a line"))
    }

    /// The file was held back.
    pub(super) fn hold(&mut self, read: &Read) {
        (self.made, self.is_held) = (Some(read.id), true);
    }

    /// What is there now is not held back: it has errors, or is no file. One that was made at its
    /// place goes on being written there.
    pub(super) fn let_go(&mut self, made: Option<&Read>) {
        self.is_held = false;
        if let Some(read) = made {
            self.made = Some(read.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "trusted = ['10.0.0.0/8']\n[[rule]]\nname = 'a'\nport = 80\nmode = 'enforce'\n\
                        [[rule]]\nalgorithm = 'cubic'\nmode = 'enforce'\n\
                        [[bucket]]\nclass = 'udp'\nrate = '50Mbit'\nmode = 'enforce'\n";

    fn read(text: &str, inode: u64) -> (Read, Option<Policy>) {
        let file = PolicyFile {
            path: "policy.toml".into(),
            text: text.to_owned(),
        };
        let policy = file.policy().ok().map(|(policy, _)| policy);
        let id = Some((1, inode));
        (Read { file, id }, policy)
    }

    fn in_force() -> InPlace {
        let (file, policy) = read(FULL, 7);
        InPlace::new(file, &policy.unwrap())
    }

    #[test]
    fn no_beginning_of_a_policy_is_taken_in_place_and_each_is_when_renamed() {
        let mut parsed = 0;
        for cut in 0..FULL.len() {
            let (written, policy) = read(&FULL[..cut], 7);
            let Some(policy) = policy else { continue };
            parsed += 1;
            let before = in_force();
            assert!(before.doubt(&written, &policy, false).is_some(), "{cut}");
            let (renamed, _) = read(&FULL[..cut], 8);
            assert_eq!(before.doubt(&renamed, &policy, false), None, "{cut}");
            assert!(before.doubt(&renamed, &policy, true).is_some(), "{cut}");
        }
        assert!(parsed > 5, "{parsed}");
    }

    #[test]
    fn no_beginning_of_another_policy_is_taken_in_place_if_rules_are_missing() {
        let other = FULL.replace("cubic", "dctcp").replace("50Mbit", "1Gbit");
        let last = other.rfind("[[bucket]]").unwrap();
        for cut in 0..last {
            let (written, policy) = read(&other[..cut], 7);
            let doubt = policy.map(|policy| in_force().doubt(&written, &policy, false));
            assert!(doubt.is_none_or(|doubt| doubt.is_some()), "{cut}");
        }
        let (whole, policy) = read(&other, 7);
        assert_eq!(in_force().doubt(&whole, &policy.unwrap(), false), None);
    }

    #[test]
    fn a_file_that_was_held_back_is_known_until_another_takes_its_name() {
        let mut before = in_force();
        let (created, policy) = read("", 9);
        let policy = policy.unwrap();
        assert!(before.doubt(&created, &policy, true).is_some());
        before.hold(&created);
        assert!(before.holds() && !before.is_replaced(&created));
        assert!(before.doubt(&created, &policy, false).is_some());
        let (renamed, _) = read("", 10);
        assert!(before.is_replaced(&renamed));
        before.let_go(None);
        assert!(!before.holds());
    }

    #[test]
    fn a_file_with_the_text_in_force_is_the_one_that_may_be_written_in_place() {
        let mut before = in_force();
        let (renamed, _) = read(FULL, 8);
        before.is_now(&renamed);
        let (cut, policy) = read("", 8);
        assert!(before.doubt(&cut, &policy.unwrap(), false).is_some());
    }

    #[test]
    fn a_file_that_is_made_in_steps_is_none_that_was_renamed_after_one_with_an_error() {
        let mut before = in_force();
        let (first, policy) = read("trusted = [", 9);
        assert!(policy.is_none());
        before.let_go(Some(&first));
        let (second, policy) = read("trusted = []\n[[rule]]\nmode = 'enforce'\n", 9);
        let policy = policy.unwrap();
        assert!(before.doubt(&second, &policy, false).is_some());
        let (renamed, _) = read("trusted = []\n[[rule]]\nmode = 'enforce'\n", 10);
        assert_eq!(before.doubt(&renamed, &policy, false), None);
    }
}
