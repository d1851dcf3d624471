//! The measurements of a run, and the evidence that nothing else was measured.

pub mod cpu;
pub mod outside;
pub mod queues;
