//! Presentations of a sweep: tables for people and for other programs, a page.
//!
//! All take an [`Outcome`](sluicegate_scenario::sweep::Outcome); the same outcome gives the same
//! bytes.

mod page;
mod tables;
mod text;

pub use page::html;
pub use tables::{parquet, runs_parquet};
pub use text::{expectations, text};
