//! Descriptors that interfaces do not get: those that the agent needs to list interfaces, to read
//! its policy and to write its state.

use std::os::fd::OwnedFd;

use anyhow::{Result, anyhow};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
    process::{Resource, getrlimit},
};

/// How many.
const DESCRIPTORS: usize = 16;

/// Holds them while an interface is attached.
#[derive(Debug)]
pub(super) struct Reserve {
    _held: Vec<OwnedFd>,
}

impl Reserve {
    /// Takes them.
    ///
    /// # Errors
    /// So many are not left.
    pub(super) fn take() -> Result<Self> {
        let held = (0..DESCRIPTORS).map(|_| eventfd(0, EventfdFlags::CLOEXEC));
        let held = held.collect::<Result<_, _>>().map_err(|error| match error {
            Errno::MFILE => anyhow!(
                "no descriptors are left of {}: each interface takes two; raise the limit (LimitNOFILE= of the unit, \
                 ulimit -n)",
                getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
            ),
            error => anyhow!("no descriptors are left: {error}"),
        })?;
        Ok(Self { _held: held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_given_back() {
        // More than a usual limit allows, if each were kept.
        for _ in 0..1000 {
            Reserve::take().unwrap();
        }
    }
}
