//! Ending enforcement everywhere: every pin on a bpffs, of any agent.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapHandle};
use serde::Serialize;

use crate::{
    bpffs::{self, Found},
    doctor::kernel,
    instance,
    inventory::{Inventory, ProgramInfo},
    state,
    tcx::TcxLink,
};

/// How long the kernel may take to free programs and maps without references.
const PATIENCE: Duration = Duration::from_secs(5);

/// The result of [`all`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Namespaces whose pins were removed.
    pub netns: Vec<String>,
    /// The objects that were there.
    pub removed: Inventory,
    /// Of it, what still exists: another process holds it.
    pub remaining: Inventory,
    /// Objects that could not be read or removed, and why; each pin that could be removed is.
    pub failures: Vec<String>,
    /// Programs of ours that no pin led to, such as those of a lab run in progress, with the
    /// maps and links around them.
    pub foreign: Inventory,
    /// Processes that hold our programs or maps: id and command.
    pub holders: BTreeMap<u32, String>,
}

/// Detaches and removes everything pinned under `directory`, in every namespace and every layout
/// version, with what their agents said of themselves in `run_dir`, then looks whether anything of
/// it still exists.
///
/// # Errors
/// No right to, and then nothing is touched.
pub fn all(directory: &Path, run_dir: &Path) -> Result<Report> {
    ensure!(
        kernel::may_walk_objects(),
        "to find and remove what is left takes CAP_SYS_ADMIN: run it as root"
    );
    let mut report = Report::default();
    for found in bpffs::instances(directory) {
        remove(&found, &mut report);
        if let Err(error) = state::remove(run_dir, &found.netns) {
            report.failures.push(format!("{error:#}"));
        }
        report.netns.push(found.netns);
    }
    remove_empty(&bpffs::product_root(directory));
    report.remaining = report.removed.remaining(PATIENCE);
    report.foreign = Inventory::of_programs(&instance::PROGRAMS);
    report
        .foreign
        .programs
        .retain(|id| !report.remaining.programs.contains(id));
    report
        .foreign
        .maps
        .retain(|id| !report.remaining.maps.contains(id));
    report
        .foreign
        .links
        .retain(|id| !report.remaining.links.contains(id));
    report.holders = holders(&report.remaining);
    Ok(report)
}

/// Detaches and removes one namespace's pins. One that cannot be opened is no reason to leave the
/// others.
fn remove(found: &Found, report: &mut Report) {
    for path in files(&found.root.join("links")) {
        if let Err(error) = detach(&path, &mut report.removed) {
            report.failures.push(format!("{error:#}"));
        }
    }
    for path in files(&found.root.join("maps")) {
        let id = MapHandle::from_pinned_path(&path).and_then(|map| Ok(map.info()?.info.id));
        match id {
            Ok(id) => drop(report.removed.maps.insert(id)),
            Err(error) => report
                .failures
                .push(format!("opening {}: {error}", path.display())),
        }
    }
    if let Err(error) = fs::remove_dir_all(&found.root) {
        let path = found.root.display();
        report.failures.push(format!("removing {path}: {error}"));
    }
}

fn detach(path: &Path, held: &mut Inventory) -> Result<()> {
    let context = || format!("detaching {}", path.display());
    let link = TcxLink::open(path).with_context(context)?;
    let info = link.link().info().with_context(context)?;
    held.links.insert(info.id);
    held.programs.insert(info.prog_id);
    // Also where an agent still holds the link. Its interface may be gone: no error then.
    if let Err(error) = link.detach() {
        tracing::debug!("{}: {error:#}", path.display());
    }
    let program = ProgramInfo::of_id(info.prog_id).with_context(context)?;
    held.maps.extend(program.map_ids);
    Ok(())
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Removes `root` and the version directories below it where they are empty.
fn remove_empty(root: &Path) {
    for version in files(root) {
        let _ = fs::remove_dir(version);
    }
    let _ = fs::remove_dir(root);
}

/// The processes that hold any of these objects open, with id and command.
fn holders(objects: &Inventory) -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    if objects.is_empty() {
        return found;
    }
    for process in files(Path::new("/proc")) {
        let pid = process
            .file_name()
            .and_then(|name| name.to_str()?.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        if files(&process.join("fdinfo"))
            .iter()
            .any(|info| holds(info, objects))
        {
            let command = fs::read(process.join("comm")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command);
            found.insert(pid, command.trim().to_owned());
        }
    }
    found
}

fn holds(fdinfo: &Path, objects: &Inventory) -> bool {
    let text = fs::read_to_string(fdinfo).unwrap_or_default();
    text.lines().any(|line| {
        let Some((key, value)) = line.split_once(':') else {
            return false;
        };
        let Ok(id) = value.trim().parse() else {
            return false;
        };
        match key {
            "prog_id" => objects.programs.contains(&id),
            "map_id" => objects.maps.contains(&id),
            "link_id" => objects.links.contains(&id),
            _ => false,
        }
    })
}
