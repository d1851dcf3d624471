//! Which programs, maps and links exist in the kernel, by id: to show that nothing was left behind.

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys;
use serde::Serialize;

/// Ids of kernel objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Maps.
    pub maps: BTreeSet<u32>,
    /// Links.
    pub links: BTreeSet<u32>,
}

impl Inventory {
    /// All programs, links and maps there are now, of any maker. Needs CAP_SYS_ADMIN; empty
    /// without.
    pub fn now() -> Self {
        Self {
            programs: walk(libbpf_sys::bpf_prog_get_next_id),
            maps: walk(libbpf_sys::bpf_map_get_next_id),
            links: walk(libbpf_sys::bpf_link_get_next_id),
        }
    }

    /// The programs with one of these names, the maps that they use and the links that hold them.
    pub fn of_programs(names: &[&str]) -> Self {
        let mut found = Self::default();
        for id in walk(libbpf_sys::bpf_prog_get_next_id) {
            let Ok(program) = ProgramInfo::of_id(id) else {
                continue;
            };
            if names.contains(&program.name.as_str()) {
                found.programs.insert(id);
                found.maps.extend(program.map_ids);
            }
        }
        for id in walk(libbpf_sys::bpf_link_get_next_id) {
            if link_program(id).is_ok_and(|program| found.programs.contains(&program)) {
                found.links.insert(id);
            }
        }
        found
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.links.is_empty()
    }

    /// Adds what `other` has.
    pub fn extend(&mut self, other: Self) {
        self.programs.extend(other.programs);
        self.maps.extend(other.maps);
        self.links.extend(other.links);
    }

    /// Those of its objects that still exist. The kernel frees objects some milliseconds after
    /// their last user has gone, so this asks again until none is left or `patience` is over.
    pub fn remaining(&self, patience: Duration) -> Self {
        let deadline = Instant::now() + patience;
        loop {
            let now = Self::now();
            let left = Self {
                programs: &self.programs & &now.programs,
                maps: &self.maps & &now.maps,
                links: &self.links & &now.links,
            };
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The kernel's account of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Id.
    pub id: u32,
    /// Name, cut to 15 characters by the kernel.
    pub name: String,
    /// Maps that it uses.
    pub map_ids: Vec<u32>,
    /// Instructions that the verifier walked through.
    pub verified_instructions: u32,
    /// Bytes of machine code.
    pub jited_bytes: u32,
    /// Time spent in it in ns, while statistics are on (`BPF_ENABLE_STATS`).
    pub run_time_ns: u64,
    /// Runs, while statistics are on.
    pub runs: u64,
}

impl ProgramInfo {
    /// Asks about the program with this id.
    ///
    /// # Errors
    /// It does not exist, or no right to ask.
    pub fn of_id(id: u32) -> Result<Self> {
        // SAFETY: takes a number, returns a new descriptor or an error.
        let fd = owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })
            .with_context(|| format!("program {id}"))?;
        Self::of(fd.as_fd())
    }

    /// Asks about an open program.
    ///
    /// # Errors
    /// The descriptor is no program's.
    pub fn of(program: BorrowedFd<'_>) -> Result<Self> {
        let mut map_ids = vec![0u32; 64];
        let mut info = libbpf_sys::bpf_prog_info {
            nr_map_ids: map_ids.len() as u32,
            map_ids: map_ids.as_mut_ptr() as u64,
            ..Default::default()
        };
        let mut length = size_of_val(&info) as u32;
        // SAFETY: `info` and the array it points to outlive the call, which is told their sizes.
        let code = unsafe {
            libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length)
        };
        succeeded(code).context("asking about a program")?;
        map_ids.truncate(info.nr_map_ids as usize);
        Ok(Self {
            id: info.id,
            name: text(&info.name),
            map_ids,
            verified_instructions: info.verified_insns,
            jited_bytes: info.jited_prog_len,
            run_time_ns: info.run_time_ns,
            runs: info.run_cnt,
        })
    }
}

/// Id of the program that a link holds.
fn link_program(id: u32) -> Result<u32> {
    // SAFETY: takes a number, returns a new descriptor or an error.
    let fd = owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) })?;
    Ok(libbpf_rs::query::LinkInfo::from_fd(fd.as_fd())?.prog_id)
}

/// The kernel's iteration over ids: the next one after that given.
type NextId = unsafe extern "C" fn(u32, *mut u32) -> i32;

fn walk(next: NextId) -> BTreeSet<u32> {
    let mut ids = BTreeSet::new();
    let mut id = 0;
    // SAFETY: writes one number, to where it is told.
    while unsafe { next(id, &mut id) } == 0 {
        ids.insert(id);
    }
    ids
}

fn owned(fd: i32) -> std::io::Result<OwnedFd> {
    succeeded(fd)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf returns `-errno`.
fn succeeded(code: i32) -> std::io::Result<()> {
    if code < 0 {
        return Err(std::io::Error::from_raw_os_error(-code));
    }
    Ok(())
}

fn text(characters: &[libc::c_char]) -> String {
    characters
        .iter()
        .take_while(|character| **character != 0)
        .map(|character| char::from(*character as u8))
        .collect()
}
