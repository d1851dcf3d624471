//! Results that must come out whatever the details, against closed forms: ideal completion,
//! window-limited throughput, waiting times, max-min fair shares, DCTCP's oscillation.

mod dctcp;
mod flows;
mod network;
mod queues;
mod shares;

/// Whether a figure is within 2 % of what theory says.
fn near(got: f64, expected: f64) -> bool {
    (got / expected - 1.0).abs() <= 0.02
}
