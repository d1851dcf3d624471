//! Huge pages for large networks: of a hundred megabytes that are read at random much time goes into finding where
//! pages are (`docs/performance.md`).

use std::{env, os::unix::process::CommandExt, path::Path, process::Command};

/// Makes glibc ask the kernel for huge pages; read once, when a program starts.
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Hosts from which they are worth it.
const HOSTS: usize = 512;

/// Begins this program anew, with huge pages, if the largest network to be simulated has so many hosts. Goes on as it
/// is where that can't be done, or where the user has tuned glibc already.
pub fn ask_for_huge_pages<'a>(hosts: usize, files: impl IntoIterator<Item = &'a Path>) {
    let (variable, setting) = HUGE_PAGES;
    if hosts < HOSTS || env::var_os(variable).is_some() {
        return;
    }
    // What comes through a pipe can't be read twice.
    if !files.into_iter().all(Path::is_file) {
        return;
    }
    if let Ok(program) = env::current_exe() {
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).env(variable, setting);
        // It returns only if it failed, which costs some speed and nothing else.
        let _ = command.exec();
    }
}
