//! Huge pages for large networks. The simulation of a large network reads some hundred megabytes at
//! random, and translating the addresses takes much of the time (`docs/performance.md`).

use std::{env, os::unix::process::CommandExt, path::Path, process::Command};

/// The variable by which glibc requests huge pages from the kernel. glibc reads it once, when a
/// program starts.
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Number of hosts from which huge pages gain time.
const HOSTS: usize = 512;

/// Restarts this program with huge pages if the largest network to be simulated has at least
/// [`HOSTS`] hosts. Does nothing if a restart is impossible, or if the user has set glibc's
/// variable.
pub fn ask_for_huge_pages<'a>(hosts: usize, files: impl IntoIterator<Item = &'a Path>) {
    let (variable, setting) = HUGE_PAGES;
    if hosts < HOSTS || env::var_os(variable).is_some() {
        return;
    }
    // A scenario that comes through a pipe cannot be read twice.
    if !files.into_iter().all(Path::is_file) {
        return;
    }
    if let Ok(program) = env::current_exe() {
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).env(variable, setting);
        // exec returns only on failure; the run is then slower, and its results are the same.
        let _ = command.exec();
    }
}
