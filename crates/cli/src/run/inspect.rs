//! Arguments of `sluicegate run` for captures, traces and films.

use std::{path::Path, time::Duration};

use sluicegate_config::units::parse_duration;
use sluicegate_scenario::{
    inspect::{Captures, Films, Inspect, Traces},
    results::TraceKind,
};

use super::files;

/// Arguments about captures, traces and films.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Capture packets at these hosts and links (patterns such as 'h*'):
    /// DIR/pcap/VARIANT/NAME.pcapng
    #[arg(long, value_name = "HOST|LINK", num_args = 1.., requires = "out")]
    pcap: Vec<String>,
    /// Bytes kept of each captured frame; headers need 114 at most
    #[arg(long, value_name = "BYTES", default_value_t = 128, requires = "pcap")]
    #[arg(value_parser = clap::value_parser!(u32).range(54..=65_535))]
    snaplen: u32,
    /// Record series over time: queue, all_queues, cwnd, rwnd, enforced, ssthresh, srtt, alpha,
    /// in_flight, goodput
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "out")]
    trace: Vec<TraceKind>,
    /// Time between samples, such as 100us; without it 500 of a run
    #[arg(long, value_name = "TIME", requires = "trace", value_parser = interval)]
    trace_interval: Option<Duration>,
    /// Record every link and queue over time: the network as a picture that moves, in report.html
    #[arg(long, requires = "out")]
    film: bool,
    /// Time between frames, such as 100us; without it 500 of a run
    #[arg(long, value_name = "TIME", requires = "film", value_parser = interval)]
    film_interval: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|complaint| complaint.to_string())?;
    match interval.is_zero() {
        true => Err("it must be longer than nothing".to_owned()),
        false => Ok(interval),
    }
}

impl Args {
    /// Whether packets are to be captured.
    pub fn captures(&self) -> bool {
        !self.pcap.is_empty()
    }

    /// The requested captures, traces and films of a scenario whose results go to `out`.
    pub fn inspect(&self, out: Option<&Path>) -> Inspect {
        let captures = out.filter(|_| !self.pcap.is_empty()).map(|out| Captures {
            names: self.pcap.clone(),
            snaplen_bytes: self.snaplen,
            directory: out.join(files::CAPTURES),
        });
        let traces = (!self.trace.is_empty()).then(|| Traces {
            kinds: self.trace.clone(),
            interval: self.trace_interval,
        });
        let films = self.film.then_some(Films {
            interval: self.film_interval,
        });
        Inspect {
            captures,
            traces,
            films,
        }
    }
}
