//! Guests behind the kernel's bridge: its TAP interfaces, in a network namespace of the benchmark.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsFd,
    process::{self, Command},
};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sluicegate_dataplane::{offload::HEADER, tap::Tap};

use crate::stream::{PATCH, PATCH_AT, Patch, Stream, mac};

/// A network namespace; gone when dropped.
pub struct Space(String);

impl Space {
    /// Makes one with a bridge of three TAP interfaces, and moves the calling thread into it.
    pub fn enter() -> Result<(Self, [TapGuest; 3])> {
        let name = format!("sg-bench-{}", process::id());
        ip(&format!("netns add {name}"))?;
        let space = Self(name);
        let file = File::open(format!("/run/netns/{}", space.0))?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), kind).context("entering a namespace")?;
        ip("link add br0 type bridge")?;
        let guest = |name: &str| -> Result<TapGuest> {
            let tap = Tap::open(name, false)?;
            ip(&format!("link set dev {name} master br0 up"))?;
            Ok(TapGuest::new(
                tap.descriptor().try_clone_to_owned()?.into(),
                tap,
            ))
        };
        let guests = [guest("a")?, guest("b")?, guest("c")?];
        ip("link set dev br0 up")?;
        Ok((space, guests))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(arguments: &str) -> Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    ensure!(status.success(), "ip {arguments}");
    Ok(())
}

/// A guest at an interface of the bridge.
pub struct TapGuest {
    file: File,
    /// Keeps the interface.
    _tap: Tap,
    /// The frame that is sent, behind its header.
    frame: Vec<u8>,
    buffer: Vec<u8>,
}

impl TapGuest {
    fn new(file: File, tap: Tap) -> Self {
        Self {
            file,
            _tap: tap,
            frame: Vec::new(),
            buffer: vec![0; HEADER + (1 << 16) + 64],
        }
    }

    /// What it sends from now on.
    pub fn load(&mut self, header: [u8; HEADER], frame: &[u8]) {
        self.frame = [&header, frame].concat();
    }

    /// Sends at most so many frames; how many the kernel took.
    pub fn send(&mut self, most: usize, stream: &mut Stream) -> usize {
        let at = HEADER + PATCH_AT;
        for sent in 0..most {
            self.frame[at..at + PATCH].copy_from_slice(&stream.next());
            if self.file.write(&self.frame).is_err() {
                return sent;
            }
        }
        most
    }

    /// Takes at most so many frames.
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(&Patch)) -> usize {
        let mut count = 0;
        for _ in 0..most {
            let Ok(bytes) = self.file.read(&mut self.buffer) else {
                return count;
            };
            let frame = &self.buffer[HEADER..bytes.max(HEADER)];
            // The kernel sends frames of its own.
            if frame.get(..5) != Some(&mac(0)[..5]) {
                continue;
            }
            // It takes the padding of short ones away.
            let part = &frame[PATCH_AT.min(frame.len())..frame.len().min(PATCH_AT + PATCH)];
            let mut patch = [0; PATCH];
            patch[..part.len()].copy_from_slice(part);
            each(&patch);
            count += 1;
        }
        count
    }
}
