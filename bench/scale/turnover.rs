//! Flows that are opened and closed, a million of them: what is left.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sluicegate_agent::{Instance, Options};

use crate::{
    enforced,
    shared::path::{Path, RECEIVER},
};

/// Ports of the receiver, each with a thread at both ends: a tuple is not used again while it may
/// linger.
const PORTS: usize = 16;
/// A closed flow is kept for ten seconds, and the timer must come by.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn measure(total: u64) -> Result<Value> {
    let path = Path::build("turn")?;
    let options = Options {
        flows_max: 1 << 18,
        interface_quota: 1 << 18,
        ..Options::default()
    };
    let hosts = enforced(&path, &options)?;
    let before = memory_bytes(&hosts)?;
    path.within("a", || {
        for (name, value) in [
            ("ip_local_port_range", "1024 65535"),
            ("tcp_max_tw_buckets", "20000"),
        ] {
            fs::write(format!("/proc/sys/net/ipv4/{name}"), value).context(name)?;
        }
        Ok(())
    })?;
    let begun = Instant::now();
    let failed = turn_over(&path, total / PORTS as u64)?;
    let took = begun.elapsed();
    let counters = hosts[0].counters()?;
    let (most, emptied) = (hosts[0].raw_flows()?.len(), empties(&hosts)?);
    Ok(
        json!({"flows": total, "failed": failed, "per_second": total as f64 / took.as_secs_f64(),
              "two_sided": counters["flow_two_sided"], "no_place": counters["table_full"] + counters["quota"],
              "known_at_the_end": most, "known_after_s": emptied.as_secs_f64(), "known_then": 0,
              "map_bytes_before": before, "map_bytes_after": memory_bytes(&hosts)?}),
    )
}

/// Connections one after another on each port; returns how many failed.
fn turn_over(path: &Path, each: u64) -> Result<u64> {
    let listeners = path.within("b", || {
        let bind = || TcpListener::bind((RECEIVER, 0));
        Ok((0..PORTS).map(|_| bind()).collect::<Result<Vec<_>, _>>()?)
    })?;
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for listener in listeners {
            let address = listener.local_addr()?;
            scope.spawn(move || {
                for connection in listener.incoming().take(each as usize).flatten() {
                    answer(connection);
                }
            });
            clients.push(scope.spawn(move || {
                path.within("a", || {
                    Ok((0..each).filter(|_| ask(address).is_err()).count() as u64)
                })
            }));
        }
        let mut failed = 0;
        for client in clients {
            failed += match client.join() {
                Ok(count) => count?,
                Err(_) => bail!("a client died"),
            };
        }
        // Servers wait for as many as were asked for: those that failed are made up for by nobody.
        if failed > 0 {
            bail!("{failed} connections failed");
        }
        Ok(failed)
    })
}

fn ask(address: SocketAddr) -> std::io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.write_all(b"question")?;
    connection.shutdown(Shutdown::Write)?;
    connection.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A connection that breaks is the client's to tell.
fn answer(mut connection: TcpStream) {
    let mut question = Vec::new();
    if connection.read_to_end(&mut question).is_ok() {
        let _ = connection.write_all(b"answer");
    }
}

/// Until neither host knows a flow.
fn empties(hosts: &[Instance]) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        let mut left = 0;
        for host in hosts {
            left += host.raw_flows()?.len();
        }
        if left == 0 {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > PATIENCE {
            bail!("{left} flows are still known {PATIENCE:?} after the last was closed");
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Kernel memory of all maps of both hosts, as the kernel accounts it.
fn memory_bytes(hosts: &[Instance]) -> Result<u64> {
    let mut sum = 0;
    for map in hosts.iter().flat_map(|host| host.object().maps()) {
        let info = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
        let text = fs::read_to_string(&info).context(info)?;
        let memlock = text.lines().find_map(|line| line.strip_prefix("memlock:"));
        sum += memlock
            .context("the kernel does not tell a map's memory")?
            .trim()
            .parse::<u64>()?;
    }
    Ok(sum)
}
