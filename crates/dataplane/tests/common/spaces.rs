//! Network namespaces of this kernel.

use std::{
    fs::File,
    os::fd::AsFd,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs `ip`.
pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("ip").success(), "ip {arguments}");
}

/// Network namespaces; gone when dropped.
pub struct Spaces(Vec<String>);

impl Spaces {
    /// Makes two.
    pub fn new(names: [&str; 2]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let names = names.map(|name| format!("sgd-{}-{number}-{name}", process::id()));
        for name in &names {
            ip(&format!("netns add {name}"));
        }
        Self(names.to_vec())
    }

    /// The name of one.
    pub fn name(&self, at: usize) -> &str {
        &self.0[at]
    }

    /// Does something in a namespace, in a thread of its own.
    pub fn within<T: Send + 'static>(
        &self,
        at: usize,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let file = File::open(format!("/run/netns/{}", self.0[at])).expect("a namespace");
        let thread = thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), kind).expect("root");
            run()
        });
        thread.join().expect("it ran")
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}
