//! Places in the programs that call what may fail, as `bpf/helpers.h` numbers them.

use std::fmt;

use libbpf_rs::{MapCore, MapFlags};
use sluicegate_core::abi::COUNTER_NAMES;

use crate::kernel::Kernel;

/// `SG_SITES_MAX`.
const SITES_MAX: usize = 128;
/// Bytes of `struct sg_site`: two numbers, two names.
const SITE_BYTES: usize = 8 + 2 * NAME_BYTES;
const NAME_BYTES: usize = 24;

/// `struct sg_faults`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Faults {
    failing: u32,
    ip_summed: u32,
    linear: u32,
    met: [u8; SITES_MAX],
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            failing: 0,
            ip_summed: 0,
            linear: 0,
            met: [0; SITES_MAX],
        }
    }
}

/// A place that calls what may fail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub number: usize,
    line: u32,
    file: String,
    pub what: String,
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "bpf/{}:{}: {}", self.file, self.line, self.what)
    }
}

/// All of them, by their numbers.
pub fn sites(kernel: &Kernel) -> Vec<Site> {
    let map = kernel.map(".rodata.sites");
    let bytes = map
        .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .unwrap()
        .expect("an array's entry");
    let number = |at: &[u8]| u32::from_ne_bytes(at[..4].try_into().unwrap());
    let name = |at: &[u8]| {
        let text = at[..NAME_BYTES].split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    };
    let mut sites: Vec<Site> = bytes
        .chunks_exact(SITE_BYTES)
        .map(|site| Site {
            number: number(site) as usize,
            line: number(&site[4..]),
            file: name(&site[8..]),
            what: name(&site[8 + NAME_BYTES..]),
        })
        .collect();
    sites.sort();
    assert!(sites.iter().map(|site| site.number).eq(0..sites.len()));
    sites
}

/// From here on this place fails, or none; what skbs say of their checksum. None counts as met.
pub fn set(kernel: &Kernel, failing: Option<&Site>, ip_summed: u32) {
    let faults = Faults {
        failing: failing.map_or(0, |site| site.number as u32 + 1),
        ip_summed,
        ..Faults::default()
    };
    kernel.write(".data.faults", &0_u32, &faults);
}

/// From here on skbs pretend to have so many bytes in their linear part, and this place fails, or
/// none. None counts as met.
pub fn set_linear(kernel: &Kernel, failing: Option<&Site>, linear: u32) {
    let faults = Faults {
        failing: failing.map_or(0, |site| site.number as u32 + 1),
        linear,
        ..Faults::default()
    };
    kernel.write(".data.faults", &0_u32, &faults);
}

/// Whether the place was met since the last [`set`].
pub fn met(kernel: &Kernel, site: &Site) -> bool {
    let faults: Faults = kernel.read(".data.faults", &0_u32).unwrap();
    faults.met[site.number] != 0
}

/// How far a counter has moved since it was `before`.
pub fn counted(kernel: &Kernel, before: &[u64; COUNTER_NAMES.len()], name: &str) -> u64 {
    let place = COUNTER_NAMES.iter().position(|known| *known == name);
    let place = place.expect("a counter");
    kernel.counters()[place] - before[place]
}
