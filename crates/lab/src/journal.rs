//! Changes that a run makes outside itself, written down before they happen, so that a later
//! process can undo them when this one was killed.
//!
//! One file per run under [`DIRECTORY`], one JSON object per line; the lock beside it is held
//! for as long as the run lives.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Where journals and the lock live.
pub const DIRECTORY: &str = "/run/sluicegate/lab";

/// One thing to undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// First line: the boot that all of this belongs to; after another boot only files remain.
    Boot {
        /// /proc/sys/kernel/random/boot_id
        id: String,
    },
    /// A named network namespace and everything in it.
    Netns {
        /// Name under /run/netns.
        name: String,
    },
    /// A kernel parameter outside our namespaces.
    Sysctl {
        /// File under /proc/sys.
        path: PathBuf,
        /// Value before.
        value: String,
    },
    /// A process that we started.
    Child {
        /// Process id.
        pid: i32,
        /// Its start in clock ticks since boot: tells it from a later process of the same id.
        start_ticks: u64,
    },
    /// A directory of ours with everything below it.
    Directory {
        /// Absolute path.
        path: PathBuf,
    },
}

/// Exclusive right to build a lab on this machine.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it.
    ///
    /// # Errors
    /// Another run holds it (the message says which process), or the directory cannot be made.
    pub fn take() -> Result<Self> {
        fs::create_dir_all(DIRECTORY)
            .with_context(|| format!("{DIRECTORY}: cannot be made (the lab needs root)"))?;
        let path = Path::new(DIRECTORY).join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("{}: cannot be opened", path.display()))?;
        if !locked(&file) {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            bail!(
                "another lab run (process {}) is going on; wait for it or stop it, then try again",
                holder.trim()
            );
        }
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        Ok(Self { _file: file })
    }
}

/// A process that only checks whether the lock is held takes it for a moment: try for a fifth of a
/// second.
fn locked(file: &File) -> bool {
    (0..10).any(|attempt| {
        if attempt > 0 {
            thread::sleep(Duration::from_millis(20));
        }
        flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// The journal of a run that is going on.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Starts the journal of `run`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(run: &str) -> Result<Self> {
        let path = Path::new(DIRECTORY).join(format!("{run}.journal"));
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
        let mut journal = Self { path, file };
        journal.add(&Entry::Boot { id: boot_id()? })?;
        Ok(journal)
    }

    /// Writes one line; call it before the deed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        let mut line = serde_json::to_string(entry)?;
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .with_context(|| format!("{}: cannot be written", self.path.display()))
    }

    /// Remembers a child right after its start. Children also ask the kernel to die with us, which
    /// covers the moment between.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_child(&mut self, pid: i32) -> Result<()> {
        match start_ticks(pid) {
            Some(start_ticks) => self.add(&Entry::Child { pid, start_ticks }),
            None => Ok(()),
        }
    }

    /// Sets a kernel parameter outside our namespaces for the time of the run.
    ///
    /// # Errors
    /// There is no such parameter or it cannot be written.
    pub fn set_sysctl(&mut self, path: &Path, value: &str) -> Result<()> {
        let before = fs::read_to_string(path)
            .with_context(|| format!("{}: cannot be read", path.display()))?;
        self.add(&Entry::Sysctl {
            path: path.to_owned(),
            value: before.trim_end().to_owned(),
        })?;
        fs::write(path, value)
            .with_context(|| format!("{}: cannot be set to {value}", path.display()))
    }

    /// File of this journal.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Entries of a journal in the order of writing. A last line cut short by a crash is left out:
/// its deed was not done.
///
/// # Errors
/// The file cannot be read, or a line other than the last is none of ours.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    let mut entries = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(entry) => entries.push(entry),
            Err(_) if !line.ends_with('\n') => {}
            Err(error) => bail!(
                "{}, line {}: not a journal entry: {error}",
                path.display(),
                number + 1
            ),
        }
    }
    Ok(entries)
}

/// Journals of runs that did not end by themselves, or of the one that holds the lock.
///
/// # Errors
/// The directory cannot be read.
pub fn all() -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context(DIRECTORY),
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "journal"))
        .collect();
    paths.sort();
    Ok(paths)
}

/// This boot's id.
///
/// # Errors
/// /proc is not mounted.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).with_context(|| format!("{path}: cannot be read"))?;
    Ok(text.trim().to_owned())
}

/// Start of a process in clock ticks since boot; `None` when there is no such process.
pub fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name in parentheses may hold anything; fields are counted after it. starttime is the
    // 22nd field, the 20th after the name.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}
