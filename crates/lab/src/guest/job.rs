//! The directory through which a keeper and its guest talk.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::Attachment;
use crate::tenant::Plan;

/// Below it every keeper has a directory named after its process id.
const PARENT: &str = "/run/sluicegate/guests";

/// Written by the keeper before the guest boots.
pub const ORDER: &str = "order.json";
/// Written by the guest when its listeners are open: a [`super::stamp::Stamp`].
pub const READY: &str = "ready";
/// Written by the keeper: the start of the run, ns since 1970 as the guest's clock will show it.
pub const START: &str = "start";
/// Written by the guest after the run: another stamp, before [`REPORT`].
pub const END: &str = "end";
/// Written by the guest at the end.
pub const REPORT: &str = "report.json";
/// Written by the guest instead of [`READY`] or [`REPORT`].
pub const ERROR: &str = "error";
/// The messages of the guest's kernel.
pub const CONSOLE: &str = "console.log";

/// Content of [`ORDER`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// The plan of its tenant.
    pub plan: Plan,
    /// On which network.
    pub attachment: Attachment,
}

/// A job directory, removed on drop.
#[derive(Debug)]
pub struct Job {
    path: PathBuf,
}

impl Job {
    /// Makes the directory of this process, and removes those of keepers that died without doing
    /// so.
    pub fn create() -> anyhow::Result<Self> {
        let path = Path::new(PARENT).join(std::process::id().to_string());
        for stale in fs::read_dir(PARENT).into_iter().flatten().flatten() {
            let alive = Path::new("/proc").join(stale.file_name()).exists() && stale.path() != path;
            if !alive {
                let _ = fs::remove_dir_all(stale.path()); // two keepers may remove it at once
            }
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Content of a file that the guest has completed, if it has.
    pub fn take(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.path.join(name)).ok()
    }

    /// See [`put`].
    pub fn put(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        put(&self.path, name, content)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path); // the next keeper tries again
    }
}

/// Writes a file so that no reader ever sees half of it.
pub fn put(directory: &Path, name: &str, content: &[u8]) -> anyhow::Result<()> {
    let (path, part) = (directory.join(name), directory.join(format!("{name}.part")));
    let written = fs::File::create(&part).and_then(|mut file| {
        std::io::Write::write_all(&mut file, content)?;
        file.sync_all()
    });
    written
        .and_then(|()| fs::rename(&part, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}
