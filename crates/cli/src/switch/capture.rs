//! `sluicegate switch capture`: frames of a running switch as a file for Wireshark.

use std::{
    fs::File,
    io::{self, ErrorKind, IsTerminal, Read, Write},
    net::{IpAddr, Shutdown},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use sluicegate_config::units::parse_duration;
use sluicegate_dataplane::{
    capture::{Asked, Point, SNAPLEN},
    config::{self, read_mac},
    control::{self, Captured},
};
use sluicegate_pcapng::{Block, next_block};

use crate::{
    interrupt,
    output::{self, Failure},
};

/// Between two looks whether the user asked to stop.
const TICK: Duration = Duration::from_millis(100);

/// After that request the switch has so long to send something.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that are read at once.
const CHUNK: usize = 1 << 18;

/// What to capture, and where to.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ports, by their names [default: all]
    #[arg(value_name = "PORT")]
    ports: Vec<String>,

    /// The file; `-` is standard output, for a program such as tshark
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    write: PathBuf,

    /// Where frames are seen: in (taken from a port), out (delivered to it), drop (dropped there;
    /// the reason is the frame's comment) [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    at: Vec<Point>,

    /// Bytes kept of each frame
    #[arg(long, short, value_name = "BYTES", default_value_t = SNAPLEN)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    snaplen: u32,

    /// End after so many frames
    #[arg(long, short, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Only frames from or to this Ethernet address
    #[arg(long, value_name = "ADDRESS", value_parser = mac)]
    mac: Option<String>,

    /// Only packets from or to this IPv4 or IPv6 address, and ARP about it
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,

    /// The control socket
    #[arg(long, value_name = "PATH", default_value = config::SOCKET)]
    socket: PathBuf,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|complaint| complaint.to_string())
}

fn mac(text: &str) -> Result<String, String> {
    let mac = read_mac(text).map_err(|complaint| complaint.to_string())?;
    Ok(config::show_mac(mac))
}

impl Args {
    fn asked(&self) -> Asked {
        Asked {
            ports: self.ports.clone(),
            points: self.at.clone(),
            snaplen: self.snaplen,
            count: self.count,
            duration_ns: self.duration.map(|duration| duration.as_nanos() as u64),
            mac: self.mac.clone(),
            address: self.address,
        }
    }
}

/// Runs `sluicegate switch capture`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let to_stdout = args.write == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::BadInput(
            "a capture is no text for a terminal; write it to a file (-w FILE), or give it to a \
             program (sluicegate switch capture | tshark -r -)"
                .to_owned(),
        ));
    }
    interrupt::install()?;
    let (points, capture) = control::capture(&args.socket, args.asked())?;
    // A file of before is kept where the switch refuses.
    let out = match to_stdout {
        true => io::stdout().as_fd().try_clone_to_owned()?.into(),
        false => File::create(&args.write)
            .with_context(|| format!("{}: cannot be written", args.write.display()))?,
    };
    output::say(&format!(
        "{} points are captured; Ctrl-C ends",
        points.len()
    ));
    let written = follow(capture, out)?;
    if !written.is_complete {
        return Err(anyhow!(
            "the switch ended before the capture: {} frames are written, and nothing says whether \
             others are missing",
            written.frames
        )
        .into());
    }
    output::say(&written.summary());
    Ok(())
}

/// What was written.
#[derive(Debug, Default)]
struct Written {
    frames: u64,
    lost: u64,
    /// The counts of the end are there.
    is_complete: bool,
}

impl Written {
    /// The length of the whole blocks that bytes begin with, which are counted.
    fn add(&mut self, bytes: &[u8]) -> anyhow::Result<usize> {
        let mut at = 0;
        while let Some((block, length)) =
            next_block(&bytes[at..]).context("the switch sent nonsense")?
        {
            match block {
                Block::Frame => self.frames += 1,
                Block::Statistics { dropped } => {
                    self.lost += dropped;
                    self.is_complete = true;
                }
                Block::Other => {}
            }
            at += length;
        }
        Ok(at)
    }

    fn summary(&self) -> String {
        let frames = self.frames;
        match self.lost {
            0 => format!("{frames} frames, none lost"),
            lost => format!(
                "{frames} frames; {lost} lost, for want of a quicker reader: capture fewer points, \
                 or less of each frame (--snaplen)"
            ),
        }
    }
}

/// Writes whole blocks until the capture ends, so that the file is good at any time.
fn follow(mut capture: Captured, mut out: File) -> Result<Written, Failure> {
    capture.get_ref().set_read_timeout(Some(TICK))?;
    let (mut written, mut pending) = (Written::default(), Vec::new());
    let mut chunk = vec![0; CHUNK];
    let (mut ends, mut last) = (false, Instant::now());
    loop {
        if interrupt::requested() && !ends {
            (ends, last) = (true, Instant::now());
            // It fails only if the switch has ended.
            let _ = capture.get_ref().shutdown(Shutdown::Write);
        }
        match capture.read(&mut chunk) {
            Ok(0) => return Ok(written),
            Ok(bytes) => {
                last = Instant::now();
                pending.extend_from_slice(&chunk[..bytes]);
                let whole = written.add(&pending)?;
                out.write_all(&pending[..whole])?;
                pending.drain(..whole);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                _ => return Ok(written),
            },
        }
        if ends && last.elapsed() > PATIENCE {
            return Ok(written);
        }
    }
}
