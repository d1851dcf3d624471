//! A tenant that cheats, for the lab: a program inside its namespace opens every window that
//! arrives.

use std::fmt;

use anyhow::Result;
use libbpf_rs::Object;
use sluicegate_agent::{
    include_object, object,
    tcx::{Direction, TcxLink},
};

/// The program and where it is attached. Dropping it detaches.
pub struct IgnoreWindow {
    object: Object,
    links: Vec<TcxLink>,
}

impl fmt::Debug for IgnoreWindow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("IgnoreWindow")
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}

impl IgnoreWindow {
    /// Loads the program; attaches nothing yet.
    ///
    /// # Errors
    /// The kernel refuses the program (Linux ≥ 6.6, CAP_BPF and CAP_NET_ADMIN needed).
    pub fn load() -> Result<Self> {
        let opened = object::open("ignore_window", include_object!("ignore_window"))?;
        Ok(Self {
            object: object::load(opened, "ignore_window")?,
            links: Vec::new(),
        })
    }

    /// Attaches to what arrives at an interface of the calling thread's network namespace: the
    /// tenant's own end.
    ///
    /// # Errors
    /// No such interface; the kernel refuses.
    pub fn attach(&mut self, ifindex: u32) -> Result<()> {
        let program = object::program(&self.object, "ignore_window")?;
        let link = TcxLink::attach(&program, ifindex, Direction::Ingress)?;
        self.links.push(link);
        Ok(())
    }
}
