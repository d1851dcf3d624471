//! Where an agent pins what must outlive it:
//! `DIR/sluicegate/vN/NETNS/{maps/NAME,links/IFINDEX-DIRECTION}` on a bpffs.
//!
//! The version in the path is that of the layout of the pinned maps.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use nix::{
    fcntl::{AT_FDCWD, RenameFlags, renameat2},
    mount::{MsFlags, mount},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

use crate::tcx::Direction;

/// Where distributions mount a bpffs.
pub const DEFAULT: &str = "/sys/fs/bpf";

/// Version of the layout of pinned maps.
pub const LAYOUT_VERSION: u32 = sluicegate_core::abi::ABI_VERSION;

/// True if `directory` is on a bpffs.
pub fn is_bpffs(directory: &Path) -> bool {
    statfs(directory).is_ok_and(|data| data.filesystem_type() == BPF_FS_MAGIC)
}

/// Mounts a bpffs at `directory` unless it is on one already.
///
/// # Errors
/// The directory cannot be made, or no CAP_SYS_ADMIN.
pub fn ensure_mounted(directory: &Path) -> Result<()> {
    if is_bpffs(directory) {
        return Ok(());
    }
    let show = directory.display();
    if !directory.exists() {
        fs::create_dir_all(directory).with_context(|| format!("creating {show}"))?;
    }
    mount(
        Some("bpf"),
        directory,
        Some("bpf"),
        MsFlags::empty(),
        None::<&str>,
    )
    .with_context(|| {
        format!("mounting a bpffs at {show} (needs CAP_SYS_ADMIN; --bpffs names another place)")
    })?;
    if is_private_mount_namespace() {
        tracing::warn!(
            "mounted a bpffs at {show} in a mount namespace of this process's own (as `ip netns exec` \
             makes one): pins vanish with it; use --netns instead, or mount one outside"
        );
    }
    Ok(())
}

/// True if this process sees other mounts than process 1.
fn is_private_mount_namespace() -> bool {
    let inode = |path| fs::metadata(path).map(|data: fs::Metadata| data.ino()).ok();
    inode("/proc/self/ns/mnt") != inode("/proc/1/ns/mnt")
}

/// The pins of one network namespace's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    root: PathBuf,
}

impl Pins {
    /// The pins for the namespace called `netns` on the bpffs at `directory`; nothing is made yet.
    pub fn new(directory: &Path, netns: &str) -> Self {
        let root = product_root(directory)
            .join(format!("v{LAYOUT_VERSION}"))
            .join(encoded(netns));
        Self { root }
    }

    /// Makes the directories of the namespace and of its links; where fresh maps may be pinned
    /// until [`Pins::put_in_place`].
    ///
    /// # Errors
    /// No right to, or no bpffs.
    pub(crate) fn prepare(&self) -> Result<PathBuf> {
        let links = self.links();
        fs::create_dir_all(&links).with_context(|| format!("creating {}", links.display()))?;
        let next = self.root.join("maps-next");
        // Of an agent that was killed meanwhile.
        remove_directory(&next)?;
        Ok(next)
    }

    /// Calls what is pinned in `next` the maps from now on; those so far are let go.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn put_in_place(&self, next: &Path) -> Result<()> {
        let maps = self.maps();
        let flags = if self.try_exist()? {
            RenameFlags::RENAME_EXCHANGE
        } else {
            RenameFlags::empty()
        };
        renameat2(AT_FDCWD, next, AT_FDCWD, &maps, flags)
            .with_context(|| format!("putting maps in place at {}", maps.display()))?;
        remove_directory(next)
    }

    /// The directory of all these pins.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// True if an agent left pins here, and this process may look.
    pub fn exist(&self) -> bool {
        self.try_exist().unwrap_or(false)
    }

    /// Whether an agent left pins here.
    ///
    /// # Errors
    /// No right to look, for example: there may be pins or not.
    pub(crate) fn try_exist(&self) -> Result<bool> {
        let maps = self.maps();
        match fs::metadata(&maps) {
            Ok(about) => Ok(about.is_dir()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("looking for {}", maps.display())),
        }
    }

    fn maps(&self) -> PathBuf {
        self.root.join("maps")
    }

    fn links(&self) -> PathBuf {
        self.root.join("links")
    }

    /// Where the map `name` is pinned.
    pub fn map(&self, name: &str) -> PathBuf {
        self.maps().join(name)
    }

    /// Where the program of one direction of an interface is pinned.
    pub fn link(&self, ifindex: u32, direction: Direction) -> PathBuf {
        self.links().join(format!("{ifindex}-{}", direction.name()))
    }

    /// Indices of the interfaces that have a pinned link.
    pub fn interfaces(&self) -> Vec<u32> {
        interfaces_of(&self.links())
    }

    /// Removes one pin; that there is none is no error.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn remove(path: &Path) -> Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes every pin and directory of this namespace, then those above it if they are empty.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn remove_all(&self) -> Result<()> {
        remove_directory(&self.root)?;
        for parent in self.root.ancestors().skip(1).take(2) {
            // Another namespace's pins keep it; that is as it should be.
            let _ = fs::remove_dir(parent);
        }
        Ok(())
    }
}

/// Removes a directory with all that is in it; that there is none is no error.
fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// `DIR/sluicegate`.
pub fn product_root(directory: &Path) -> PathBuf {
    directory.join("sluicegate")
}

/// The pins of one namespace as [`instances`] found them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Version of the layout of its maps.
    pub version: u32,
    /// Name of the network namespace.
    pub netns: String,
    /// Its directory.
    pub root: PathBuf,
}

/// Every namespace with pins on the bpffs at `directory`, in any version of the layout.
pub fn instances(directory: &Path) -> Vec<Found> {
    let root = product_root(directory);
    let mut found = Vec::new();
    for version_name in names(&root) {
        let Some(version) = version_name
            .strip_prefix('v')
            .and_then(|digits| digits.parse().ok())
        else {
            continue;
        };
        let versioned = root.join(&version_name);
        for name in names(&versioned) {
            found.push(Found {
                version,
                netns: decoded(&name),
                root: versioned.join(&name),
            });
        }
    }
    found.sort_by(|a, b| (a.version, &a.netns).cmp(&(b.version, &b.netns)));
    found
}

impl Found {
    /// Pins of its links.
    pub(crate) fn links(&self) -> Vec<PathBuf> {
        let directory = self.root.join("links");
        let names = names(&directory).into_iter();
        names.map(|name| directory.join(name)).collect()
    }

    /// Indices of the interfaces that have a pinned link; every layout so far names them so.
    pub(crate) fn interfaces(&self) -> Vec<u32> {
        interfaces_of(&self.root.join("links"))
    }
}

fn interfaces_of(links: &Path) -> Vec<u32> {
    let mut indices: Vec<u32> = names(links)
        .iter()
        .filter_map(|name| name.split('-').next()?.parse().ok())
        .collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

fn names(directory: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(directory).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let entries = entries.unwrap_or_else(|error| {
        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
            let directory = directory.display();
            tracing::warn!("what is pinned in {directory} is not known: {error}");
        }
        Vec::new()
    });
    let names = entries.iter().map(fs::DirEntry::file_name);
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// A bpffs refuses dots in names.
pub(crate) fn encoded(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        match character {
            '.' => text.push_str("%2e"),
            '%' => text.push_str("%25"),
            '/' => text.push_str("%2f"),
            other => text.push(other),
        }
    }
    text
}

fn decoded(name: &str) -> String {
    name.replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_bpffs() {
        for name in ["host", "a.b", "50%", "%2e", "x%2.e"] {
            assert!(!encoded(name).contains('.'));
            assert_eq!(decoded(&encoded(name)), name);
        }
    }

    #[test]
    fn paths_carry_the_layout_version() {
        let pins = Pins::new(Path::new("/sys/fs/bpf"), "a.b");
        assert_eq!(
            pins.link(7, Direction::Ingress),
            Path::new(&format!(
                "/sys/fs/bpf/sluicegate/v{LAYOUT_VERSION}/a%2eb/links/7-ingress"
            ))
        );
        assert_eq!(
            pins.map("flows"),
            Path::new(&format!(
                "/sys/fs/bpf/sluicegate/v{LAYOUT_VERSION}/a%2eb/maps/flows"
            ))
        );
    }

    #[test]
    fn a_plain_directory_is_no_bpffs() {
        assert!(!is_bpffs(Path::new("/proc")));
        assert!(!is_bpffs(Path::new("/no/such/place")));
    }
}
