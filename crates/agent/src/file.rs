//! Files that are replaced as a whole: a reader sees the old text or the new one, never a part.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{MetadataExt, fchown},
    path::Path,
};

use anyhow::{Context, Result};
use nix::sys::signal::{SigHandler, Signal, signal};

/// Has a write beyond the largest size of a file (RLIMIT_FSIZE) fail with an error like others,
/// instead of ending the process. Programs that it starts inherit that.
pub fn outlive_size_limit() {
    // SAFETY: no handler runs; the process has given this signal none before.
    let outcome = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    outcome.expect("every process may ignore SIGXFSZ");
}

/// Puts `content` in the place of the file at `path`, which need not exist.
///
/// # Errors
/// Its directory does not exist or cannot be written; the file is as it was.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    put(path, |file| file.write_all(content))
}

/// As [`replace`]; it is on the disk after that, whatever happens to the machine.
///
/// # Errors
/// As [`replace`].
pub fn replace_durably(path: &Path, content: &[u8]) -> Result<()> {
    put(path, |file| {
        file.write_all(content)?;
        file.sync_all()
    })?;
    let directory = path.parent().filter(|parent| parent.as_os_str() != "");
    let directory = directory.unwrap_or(Path::new("."));
    // The new name is part of the directory.
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.with_context(|| format!("writing {}", directory.display()))
}

/// Puts `content` in the place of the file at `path`, with its owner and permissions; it is on the
/// disk after that.
///
/// # Errors
/// There is no such file, or no right to replace it; it is as it was.
pub fn replace_alike(path: &Path, content: &[u8]) -> Result<()> {
    let before = fs::metadata(path).with_context(|| format!("reading {}", path.display()))?;
    put(path, |file| {
        fchown(&*file, Some(before.uid()), Some(before.gid()))?;
        file.set_permissions(before.permissions())?;
        file.write_all(content)?;
        file.sync_all()
    })
}

/// Fills a neighbour, and gives it the name.
fn put(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let name = path
        .file_name()
        .with_context(|| format!("{} names no file", path.display()))?;
    // Readers of a directory go by the end of a name; two writers do not meet in one neighbour.
    let next = path.with_file_name(format!(
        ".{}.new.{}",
        name.to_string_lossy(),
        std::process::id()
    ));
    let filled = File::create(&next)
        .and_then(|mut file| fill(&mut file))
        .with_context(|| format!("writing {}", next.display()));
    let renamed = filled.and_then(|()| {
        fs::rename(&next, path).with_context(|| format!("replacing {}", path.display()))
    });
    renamed.inspect_err(|_| {
        let _ = fs::remove_file(&next);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let directory = std::env::temp_dir().join(format!("sga-{}-replace", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.prom");
        for text in ["one\n", "two\n"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
        let error = replace(&path, b"three\n").unwrap_err();
        assert!(format!("{error:#}").contains("a.prom.new"));
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let path = std::env::temp_dir().join(format!("sga-{}-alike", std::process::id()));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace_alike(&path, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        fs::remove_file(&path).unwrap();
        assert!(replace_alike(&path, b"newer").is_err(), "there is none");
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing_beside_it() {
        let directory = std::env::temp_dir().join(format!("sga-{}-refused", std::process::id()));
        fs::create_dir_all(directory.join("a/b")).unwrap();
        assert!(replace(&directory.join("a"), b"a file for a directory").is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
