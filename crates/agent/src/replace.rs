//! Taking the place of an agent whose maps this build cannot read: of an older build, or of a newer
//! one.
//!
//! Its pins lie beside ours, in the directory of their own layout. On each of its interfaces our
//! programs are attached first in the chain, then its links go: at no moment is an interface
//! without enforcement. Between the two our programs meet every flow from the middle and leave it
//! alone, so that none is edited twice.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    bpffs::{self, Found, LAYOUT_VERSION},
    instance::Instance,
    interfaces::{self, Interface},
    tcx::TcxLink,
};

/// Pins of another layout whose place was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The layout.
    pub layout: u32,
    /// Interfaces that went over.
    pub interfaces: Vec<String>,
    /// Links that could not be detached, and why; their pins are gone.
    pub failures: Vec<String>,
}

impl Instance {
    /// Takes the place of what is pinned for the namespace called `netns`, which the calling thread
    /// is in, in other layouts. `tenant` names the tenant of an interface.
    ///
    /// # Errors
    /// The kernel refused; what was not replaced enforces on.
    pub fn replace_other_layouts(
        &mut self,
        directory: &Path,
        netns: &str,
        tenant: &dyn Fn(&Interface) -> String,
    ) -> Result<Vec<Replaced>> {
        let others = bpffs::instances(directory).into_iter();
        let others = others.filter(|found| found.netns == netns && found.version != LAYOUT_VERSION);
        others.map(|found| self.replace(&found, tenant)).collect()
    }

    fn replace(
        &mut self,
        found: &Found,
        tenant: &dyn Fn(&Interface) -> String,
    ) -> Result<Replaced> {
        let mut replaced = Replaced {
            layout: found.version,
            interfaces: Vec::new(),
            failures: Vec::new(),
        };
        let present = interfaces::list()?;
        let attached_by_them: Vec<u32> = found.interfaces();
        for interface in &present {
            if !attached_by_them.contains(&interface.index) {
                continue;
            }
            if !self.is_attached(interface.index) {
                self.attach_tenant(interface, &tenant(interface))?;
            }
            replaced.interfaces.push(interface.name.clone());
        }
        for path in found.links() {
            // Its interface may be gone, or another program's file lie there.
            let outcome = TcxLink::open(&path).and_then(|link| link.detach());
            if let Err(error) = outcome {
                replaced
                    .failures
                    .push(format!("{}: {error:#}", path.display()));
            }
        }
        fs::remove_dir_all(&found.root)
            .with_context(|| format!("removing {}", found.root.display()))?;
        if let Some(version) = found.root.parent() {
            // Another namespace's pins keep it.
            let _ = fs::remove_dir(version);
        }
        Ok(replaced)
    }
}
