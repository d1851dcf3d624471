//! Tables, plots, the HTML report, exports.
//!
//! | function | for |
//! |---|---|
//! | [`table`] | a terminal: one row per variant, conditions, expectations |
//! | [`markdown`] | documents and merge requests |
//! | [`html`] | one self-contained page with interactive plots, of one or several scenarios |
//! | [`published`] | published figures beside ours, of many scenarios, as one page |
//! | [`sensitivity`] | what half and double of each parameter change, as one page |
//! | [`sweep`] | sweeps: tables for people and programs, a page with bars |
//! | [`compare`] | directories side by side: a model that is JSON, a text, a page |
//! | [`samples_parquet`], [`traces_parquet`] | every sample, every point of traces for other programs, as Apache Parquet |
//! | [`film_parquet`] | every link and queue over time, as Apache Parquet |
//! | [`samples_csv`], [`traces_csv`] | the same as gzipped CSV |
//! | [`read_samples_parquet`], [`read_samples_csv`] | what CDFs need of files of samples |
//!
//! All take [`Results`](sluicegate_scenario::results::Results). Plots need the samples that a world
//! leaves in memory; from a `results.json` alone there are tables, and the page says which plots
//! have no data.

pub mod compare;
mod comparison;
mod figures;
mod films;
mod html;
mod markdown;
mod parquet;
mod published;
mod samples;
mod sensitivity;
pub mod sweep;
mod table;
mod thin;
mod traces;
mod units;

pub use html::html;
pub use markdown::markdown;
pub use parquet::{film_parquet, read_samples_parquet, samples_parquet, traces_parquet};
pub use published::{Published, published};
pub use samples::{read_samples_csv, samples_csv};
pub use sensitivity::sensitivity;
pub use table::{Style, table};
pub use traces::traces_csv;
