//! A client of others: DPDK's `testpmd` has both ends. It sends a burst by each of two adapters,
//! and sends back what comes. What circulates stays as much as it was if nothing is lost or
//! doubled.

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use common::{Bench, until};

use crate::common;

const PROGRAM: &str = "dpdk-testpmd";
/// Frames of the first burst, by each adapter.
const BURST: u64 = 32;
/// Frames that are to have come before it is asked what it has counted.
const FRAMES: u64 = 100_000;

/// The program; ended when dropped.
struct Testpmd(Child);

impl Testpmd {
    fn start(bench: &Bench) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut command = Command::new(PROGRAM);
        command.args(["--no-pci", "--no-huge", "-m", "128", "--lcores=0@0,1@1"]);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        command.arg(format!("--file-prefix=sg-{process}-{number}"));
        for (number, name) in ["a", "b"].into_iter().enumerate() {
            let path = bench.directory.join(format!("{name}.sock"));
            let path = path.display();
            command.arg(format!(
                "--vdev=net_virtio_user{number},path={path},mac=02:00:00:00:00:0{number}"
            ));
        }
        command.args(["--", "-i", "--forward-mode=mac", "--total-num-mbufs=2048"]);
        command.args(["--no-mlockall", "--eth-peer=0,02:00:00:00:00:01"]);
        command.arg("--eth-peer=1,02:00:00:00:00:00");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| {
            panic!("{PROGRAM}: {error}; `make setup` installs it (package dpdk-dev)")
        }))
    }

    fn say(&mut self, words: &str) {
        let input = self.0.stdin.as_mut().expect("piped");
        writeln!(input, "{words}").expect("it reads");
    }

    /// Stops it; all that it has said.
    fn stop(mut self) -> String {
        self.say("stop\nquit");
        let mut said = String::new();
        let output = self.0.stdout.as_mut().expect("piped");
        output.read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A count of both adapters together.
fn counted(said: &str, name: &str) -> u64 {
    let (_, sums) = said.split_once("for all ports").expect(said);
    let (_, count) = sums.split_once(name).expect(said);
    let count = count.split_whitespace().next().expect("a count");
    count.parse().expect("a number")
}

fn circulate(keys: [&str; 2]) {
    let bench = Bench::new("", &[("a", keys[0]), ("b", keys[1])]);
    let delivered = || {
        let each = bench.service.each(|worker| {
            let ports = worker.engine.bays();
            ports
                .map(|(_, bay)| bay.counters.delivered_frames)
                .sum::<u64>()
        });
        each.expect("it runs").iter().sum::<u64>()
    };
    let up = || {
        let each = bench.service.each(|worker| {
            let mut ports = worker.engine.bays();
            ports.all(|(_, bay)| bay.port.is_up())
        });
        each.expect("it runs").iter().all(|&up| up)
    };
    let mut testpmd = Testpmd::start(&bench);
    until("both adapters", up);
    testpmd.say("start tx_first");
    until("frames circulate", || delivered() > FRAMES);
    // What is on its way when an adapter goes is dropped.
    let dropped = bench.dropped();
    let said = testpmd.stop();
    let [sent, came] = ["TX-packets:", "RX-packets:"].map(|name| counted(&said, name));
    assert_eq!(sent - came, 2 * BURST, "{said}");
    assert_eq!(counted(&said, "TX-dropped:"), 0, "{said}");
    assert_eq!(dropped, 0);
}

#[test]
fn what_circulates_stays_as_much_as_it_was() {
    circulate(["", ""]);
}

#[test]
fn what_circulates_between_filtered_ports_stays_as_much_as_it_was() {
    circulate([
        "macs = [\"02:00:00:00:00:00\"]",
        "macs = [\"02:00:00:00:00:01\"]",
    ]);
}
