//! The kernel's accounting of its programs' time, which costs time of its own.

use std::fs;

use anyhow::{Context, Result};

/// `/proc/sys/kernel/bpf_stats_enabled`, put back when dropped.
pub struct Statistics(String);

impl Statistics {
    const FILE: &str = "/proc/sys/kernel/bpf_stats_enabled";

    /// Turns it on.
    pub fn on() -> Result<Self> {
        let before = fs::read_to_string(Self::FILE).context(Self::FILE)?;
        fs::write(Self::FILE, "1").context(Self::FILE)?;
        Ok(Self(before))
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, self.0.trim());
    }
}
