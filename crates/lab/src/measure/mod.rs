//! What a run measures, and how one knows that nothing else was measured.

pub mod cpu;
pub mod outside;
pub mod queues;
