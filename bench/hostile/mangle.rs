//! A tenant's kernel whose frames are changed on their way: an honest stack does the work of TCP,
//! and what is hostile is a function of a frame.

use std::time::Duration;

use anyhow::Result;

use crate::{net::Wires, tap::Tap, traffic, worker::Worker};

/// The fate of a frame; false: it is lost.
pub type Change = Box<dyn FnMut(&mut Vec<u8>) -> bool + Send>;

/// Nothing.
pub fn nothing() -> Change {
    Box::new(|_| true)
}

/// Carries frames between a tenant and its host until dropped.
pub fn carry(wires: &Wires, out: Change, back: Change) -> Result<[Worker; 2]> {
    Ok([
        one_way(&wires.tenant, &wires.host, out)?,
        one_way(&wires.host, &wires.tenant, back)?,
    ])
}

fn one_way(from: &Tap, to: &Tap, mut change: Change) -> Result<Worker> {
    let (from, to) = (from.try_clone()?, to.try_clone()?);
    Ok(Worker::start(move |ending| {
        traffic::hurry();
        let mut frame = Vec::new();
        while !ending.is_near() {
            from.wait(Duration::from_millis(50));
            while from.receive(&mut frame) {
                if change(&mut frame) {
                    to.send(&frame);
                }
            }
        }
    }))
}

/// Takes what a host sends its tenant, and forgets it.
pub fn drain(tap: &Tap) -> Result<Worker> {
    let tap = tap.try_clone()?;
    Ok(Worker::start(move |ending| {
        let mut frame = Vec::new();
        while !ending.is_near() {
            tap.wait(Duration::from_millis(50));
            while tap.receive(&mut frame) {}
        }
    }))
}
