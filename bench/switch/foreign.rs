//! A client of others: `testpmd` with two adapters of virtio-user at two ports of a switch.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{GUESTS_CPU, arms::Running};

/// Ended when dropped.
struct Testpmd(Child);

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Frames a second that circulate each way: the mean of both adapters, in the first whole period of
/// its statistics.
pub fn circulate(running: &Running, lasts: Duration) -> Result<f64> {
    let mut command = Command::new("dpdk-testpmd");
    command.args(["--no-pci", "--no-huge", "-m", "128", "--file-prefix"]);
    command.arg(format!("sgc{}", std::process::id()));
    command.arg(format!("--lcores=0@{GUESTS_CPU},1@{GUESTS_CPU}"));
    for port in 0..2 {
        running.wait_for_port(port)?;
        let path = running.socket(port);
        let path = path.display();
        command.arg(format!(
            "--vdev=net_virtio_user{port},path={path},mac=02:00:00:00:00:0{port}"
        ));
    }
    command.args(["--", "--forward-mode=mac", "--total-num-mbufs=2048"]);
    command.args(["--eth-peer=0,02:00:00:00:00:01", "--no-mlockall"]);
    command.args(["--eth-peer=1,02:00:00:00:00:00", "--tx-first"]);
    let seconds = lasts.as_secs().max(1);
    command.arg(format!("--stats-period={seconds}"));
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut testpmd = Testpmd(command.stderr(Stdio::null()).spawn()?);
    let output = testpmd.0.stdout.take().context("its output")?;
    let mut rates = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        let Some((_, rest)) = line.split_once("Rx-pps:") else {
            continue;
        };
        let rate: f64 = rest.split_whitespace().next().context("a rate")?.parse()?;
        rates.push(rate);
        // Both adapters, once while it starts and once over a whole period.
        if let [.., one, other] = rates[..] {
            if rates.len() >= 6 && rates.len() % 2 == 0 {
                return Ok((one + other) / 2.0);
            }
        }
    }
    anyhow::bail!("testpmd has ended without statistics")
}
