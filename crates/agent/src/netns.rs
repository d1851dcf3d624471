//! Network namespaces: naming them, and doing work inside one without leaving the caller's.

use std::{
    fs::{self, File},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    thread,
};

use anyhow::{Context, Result, anyhow};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sched::{CloneFlags, setns},
    sys::stat::fstat,
};

/// Where iproute2 keeps named namespaces.
const NAMED: &str = "/run/netns";

/// That of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// An open network namespace; it exists at least as long as this value.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    name: String,
}

impl NetNs {
    /// The calling thread's namespace. Its name is the one under /run/netns if it has one,
    /// `host` for that of process 1, else `inode-N`.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn current() -> Result<Self> {
        let file = File::open(OWN).with_context(|| format!("opening {OWN}"))?;
        let inode = file.metadata()?.ino();
        let name = if is_that_of_process_1() {
            "host".to_owned()
        } else {
            name_of(inode).unwrap_or_else(|| format!("inode-{inode}"))
        };
        Ok(Self { file, name })
    }

    /// The namespace called `name` by `ip netns`.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self> {
        let path = Path::new(NAMED).join(name);
        let file = File::open(&path).with_context(|| {
            format!(
                "network namespace {name}: cannot open {}; `ip netns list` shows those that exist",
                path.display()
            )
        })?;
        Ok(Self {
            file,
            name: name.to_owned(),
        })
    }

    /// `named` if there is a name, else the calling thread's own.
    ///
    /// # Errors
    /// As [`NetNs::named`] and [`NetNs::current`].
    pub fn select(name: Option<&str>) -> Result<Self> {
        name.map_or_else(Self::current, Self::named)
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread into this namespace for good, if it is elsewhere.
    ///
    /// # Errors
    /// It is elsewhere and has no CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<()> {
        enter(self.file.as_fd())
            .with_context(|| format!("entering network namespace {}", self.name))
    }

    /// Claims this namespace for one agent until the guard is dropped or the process ends.
    ///
    /// # Errors
    /// Another agent runs here.
    pub fn claim(&self) -> Result<Flock<File>> {
        // The lock is on the namespace itself: no lock file to be left behind, to be kept on
        // another file system or to be confused with that of an older namespace of this name.
        let file = self
            .file
            .try_clone()
            .context("claiming a network namespace")?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => anyhow!(
                "another agent already enforces in network namespace {}: stop it first",
                self.name
            ),
            error => anyhow!("claiming network namespace {}: {error}", self.name),
        })
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Runs `work` on a thread of its own inside the namespace behind `netns`. That takes CAP_SYS_ADMIN
/// where it is not the calling thread's own.
///
/// # Errors
/// The namespace cannot be entered, or `work` fails.
pub fn within<T: Send>(
    netns: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(netns)?;
                work()
            })
            .join()
            .map_err(|_| anyhow!("the work inside a network namespace panicked"))?
    })
}

fn enter(netns: BorrowedFd<'_>) -> Result<()> {
    if is_own(netns)? {
        return Ok(());
    }
    setns(netns, CloneFlags::CLONE_NEWNET)
        .context("setns (needs CAP_SYS_ADMIN; to do without, start inside it)")
}

fn is_own(netns: BorrowedFd<'_>) -> Result<bool> {
    let own = fs::metadata(OWN).with_context(|| format!("asking about {OWN}"))?;
    let other = fstat(netns).context("asking about a network namespace")?;
    Ok((own.dev(), own.ino()) == (other.st_dev, other.st_ino))
}

/// Whether the calling thread is in the namespace of process 1. `/proc/1/ns` may be looked at only
/// with as many capabilities as process 1 has; the files about each namespace have numbers of their
/// own.
fn is_that_of_process_1() -> bool {
    let number = |path| fs::metadata(path).map(|data| data.ino()).ok();
    let own = number("/proc/thread-self/net/dev");
    own.is_some() && own == number("/proc/1/net/dev")
}

fn name_of(inode: u64) -> Option<String> {
    fs::read_dir(NAMED)
        .ok()?
        .flatten()
        .find(|entry| fs::metadata(entry.path()).is_ok_and(|data| data.ino() == inode))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}
