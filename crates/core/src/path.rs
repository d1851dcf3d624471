//! What the flows of a host towards one peer have met, taken together: the safe face of
//! `c/sluice/path.h`.

#![allow(unsafe_code)]

use crate::{
    abi::{FlowKey, HashKey},
    number::narrow,
};

unsafe extern "C" {
    fn sluice_path_of(flow: *const FlowKey, key: *const HashKey) -> u32;
}

/// `SG_PATHS`: places of a table.
pub const PATHS: usize = 4096;

/// `struct sg_path`: bytes acknowledged of all these flows, and those of them that met CE, both
/// wrapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Bytes acknowledged.
    pub acked: u32,
    /// Of these, bytes that met CE.
    pub marked: u32,
}

/// The paths of a host, by the hash of the peer's address. It takes memory with the first one.
#[derive(Clone, Debug)]
pub struct Paths {
    key: HashKey,
    sums: Vec<Path>,
}

impl Paths {
    /// No flow has met anything yet.
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            sums: Vec::new(),
        }
    }

    /// The place of a flow's path.
    pub fn place(&self, flow: &FlowKey) -> u16 {
        // SAFETY: both are valid for reads of their C size, and nothing else is touched.
        let place = unsafe { sluice_path_of(flow, &self.key) };
        narrow::<u16>(place % narrow::<u32>(PATHS))
    }

    /// The path there.
    #[inline]
    pub fn at(&mut self, place: u16) -> &mut Path {
        if self.sums.is_empty() {
            self.sums.resize(PATHS, Path::default());
        }
        &mut self.sums[usize::from(place) % PATHS]
    }
}

const _: () = assert!(size_of::<Path>() == 8 && PATHS <= 1 << 16);
