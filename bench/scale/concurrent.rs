//! Thousands of open flows that say little: what the kernel accounts to the programs.

use std::{
    io::{Write, stdin},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sluicegate_agent::{Instance, Options};

use crate::{
    enforced,
    shared::{
        path::{Path, RECEIVER},
        statistics::Statistics,
    },
};

const MEASURED: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(1);
/// The argument with which this program starts itself to keep the receiving ends: machines limit
/// the files of one process, and so many connections may be more than that.
pub const KEEPER: &str = "--keep";

/// Each message is a packet of data and, since the next one on that connection comes much later, an
/// ACK.
pub fn measure(flows: usize, packets_per_second: u64) -> Result<Value> {
    let path = Path::build("many")?;
    let options = Options {
        flows_max: (2 * flows) as u32,
        ..Options::default()
    };
    let hosts = enforced(&path, &options)?;
    let keeper = Keeper::start(&path)?;
    let mut connections = open(&path, keeper.address, flows)?;
    let known = hosts[0].raw_flows()?.len();
    ensure!(known >= flows, "the host knows {known} of {flows} flows");
    let statistics = Statistics::on()?;
    let before = [spent(&hosts[0])?, spent(&hosts[1])?];
    let begun = Instant::now();
    let sent = talk(&mut connections, packets_per_second / 2)?;
    let elapsed = begun.elapsed();
    let after = [spent(&hosts[0])?, spent(&hosts[1])?];
    drop(statistics);
    let cpus = thread::available_parallelism()?.get() as f64;
    let host = |side: usize, name: &str| {
        let (time_ns, runs) = (
            after[side].0 - before[side].0,
            after[side].1 - before[side].1,
        );
        let share = time_ns as f64 / elapsed.as_nanos() as f64 / cpus;
        json!({"host": name, "runs_per_second": runs as f64 / elapsed.as_secs_f64(),
               "average_ns": time_ns as f64 / runs.max(1) as f64, "percentage_points": share * 100.0})
    };
    Ok(
        json!({"flows": known, "messages_per_second": sent as f64 / elapsed.as_secs_f64(),
              "hosts": [host(0, "sending"), host(1, "receiving")]}),
    )
}

/// The process that has the receiving ends; ended when dropped.
struct Keeper {
    process: Child,
    address: SocketAddr,
}

impl Keeper {
    fn start(path: &Path) -> Result<Self> {
        let listener = path.within("b", || Ok(TcpListener::bind((RECEIVER, 0))?))?;
        let address = listener.local_addr()?;
        let process = Command::new(std::env::current_exe()?)
            .arg(KEEPER)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .spawn()
            .context("starting the process that keeps the receiving ends")?;
        Ok(Self { process, address })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Accepts what comes to the socket that is this process's input, and keeps it until the process is
/// ended.
pub fn keep() -> Result<()> {
    let listener = TcpListener::from(stdin().as_fd().try_clone_to_owned()?);
    let mut kept = Vec::new();
    loop {
        kept.push(listener.accept().context("accepting")?);
    }
}

/// The sending ends of so many connections.
fn open(path: &Path, to: SocketAddr, flows: usize) -> Result<Vec<TcpStream>> {
    path.within("a", || {
        let connect = |_| {
            let connection = TcpStream::connect(to).context("connecting")?;
            connection.set_nodelay(true)?;
            Ok(connection)
        };
        (0..flows).map(connect).collect()
    })
}

/// One message after another, each on the next connection; returns how many.
fn talk(connections: &mut [TcpStream], per_second: u64) -> Result<u64> {
    let begun = Instant::now();
    let mut sent = 0u64;
    while begun.elapsed() < MEASURED {
        let due = (begun.elapsed().as_micros() * u128::from(per_second) / 1_000_000) as u64;
        while sent < due {
            let number = (sent % connections.len() as u64) as usize;
            connections[number].write_all(&[0; 64])?;
            sent += 1;
        }
        thread::sleep(TICK);
    }
    Ok(sent)
}

/// Time in ns and runs of all programs of a host.
fn spent(instance: &Instance) -> Result<(u64, u64)> {
    let programs = instance.programs()?;
    Ok(programs.iter().fold((0, 0), |(time_ns, runs), program| {
        (time_ns + program.run_time_ns, runs + program.runs)
    }))
}
