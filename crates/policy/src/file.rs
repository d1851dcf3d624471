//! The content of a policy file at one moment. A process that waits until it is in force compares
//! fingerprints.

use std::path::{Path, PathBuf};

use sluicegate_config::{Problems, file};

use crate::{rule::Policy, warning::Warning};

/// The text of a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// Where it stands.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

impl PolicyFile {
    /// Reads the text, whatever it is.
    ///
    /// # Errors
    /// One problem that says why the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        Ok(Self {
            path: path.to_owned(),
            text: file::read(path)?,
        })
    }

    /// The policy, with what is allowed but probably not meant.
    ///
    /// # Errors
    /// Every error in the text; a policy with any is refused as a whole.
    pub fn policy(&self) -> Result<(Policy, Vec<Warning>), Problems> {
        Policy::parse_with_warnings(&self.path.display().to_string(), &self.text)
    }

    /// Equal for equal texts, and hardly ever for others: 16 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.text)
    }
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo) in hexadecimal: the same in every build.
pub fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_those_of_fnv1a() {
        // Test vectors of draft-eastlake-fnv.
        assert_eq!(fingerprint(""), "cbf29ce484222325");
        assert_eq!(fingerprint("a"), "af63dc4c8601ec8c");
        assert_eq!(fingerprint("foobar"), "85944171f73967e8");
    }
}
