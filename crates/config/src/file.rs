//! The text of a file, or the problem that says why there is none.

use std::{io::ErrorKind, path::Path};

use crate::problem::{Complaint, Problem};

/// Reads a text file.
///
/// # Errors
/// It cannot be read, or is no text in UTF-8.
pub fn read(path: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(path).map_err(|error| {
        let complaint = match error.kind() {
            ErrorKind::InvalidData => Complaint::new(
                "is no text in UTF-8",
                "name a TOML file, or save this one as UTF-8",
            ),
            _ => Complaint::new(
                format!("cannot be read: {error}"),
                "check the path and the permissions",
            ),
        };
        Problem::of_file(path, complaint)
    })
}
