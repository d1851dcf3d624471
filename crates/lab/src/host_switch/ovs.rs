//! Open vSwitch between the guests of a host: its userspace datapath, with TAPs or on DPDK.
//!
//! It has a directory, a database and processes of its own, beside any that the machine runs.
//! Frames go where static flows say, as in the lab's bridges.

#![allow(unsafe_code)] // pre_exec

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use sluicegate_scenario::experiment::{HostId, LabSwitch, Variant};

use super::{Guest, PortCounts, UPLINK, mask, ways};
use crate::{net::names, tenant};

const SERVER: &str = "/usr/sbin/ovsdb-server";
const DAEMON: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
/// Where Debian's openvswitch-switch-dpdk has the daemon that knows DPDK.
const DPDK_DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const BRIDGE: &str = "ovs";

/// Memory of DPDK in MB. Without huge pages, which this version calls legacy memory:
/// otherwise it adds an option that excludes `--no-huge`.
const DPDK_MEMORY: &str = "512";

/// How long a part of it may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// A switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    directory: PathBuf,
    dpdk: bool,
    mtu_bytes: u32,
    /// Guests' ports.
    guests: Vec<String>,
    /// Interface of the uplink.
    uplink: Option<String>,
    /// (address, port) of each tenant.
    ways: Vec<(String, String)>,
}

/// For the guests of a host.
pub(super) fn order(
    variant: &Variant,
    directory: &Path,
    guests: &[&Guest],
    host: HostId,
) -> Result<Order> {
    Ok(Order {
        directory: directory.to_owned(),
        dpdk: variant.lab.switch == LabSwitch::OvsDpdk,
        mtu_bytes: variant.mtu_bytes,
        guests: guests.iter().map(|guest| guest.port.clone()).collect(),
        uplink: variant.graph().adapter(host).map(names::port),
        ways: ways(variant, host)?,
    })
}

/// Says what is missing.
pub(super) fn check(kind: LabSwitch) -> Result<()> {
    let mut needed = vec![
        (SERVER, "openvswitch-switch"),
        (DAEMON, "openvswitch-switch"),
    ];
    if kind == LabSwitch::OvsDpdk {
        needed.push((DPDK_DAEMON, "openvswitch-switch-dpdk"));
    }
    for (file, package) in needed {
        if !Path::new(file).exists() {
            bail!("this switch needs {file}, which is missing: apt-get install {package}");
        }
    }
    Ok(())
}

/// Where a guest connects to, in front of the socket that has the port's name.
pub(super) fn socket(directory: &Path, port: &str) -> PathBuf {
    directory.join(format!("{port}.guest"))
}

/// Runs it until the lab closes stdin.
pub(super) fn serve(order: &Order) -> Result<Infallible> {
    let directory = &order.directory;
    let database = directory.join("conf.db");
    run(Command::new("ovsdb-tool")
        .arg("create")
        .args([&database, &PathBuf::from(SCHEMA)]))?;
    let database_socket = format!("unix:{}", directory.join("db.sock").display());
    let mut server = Command::new(SERVER);
    server
        .arg(&database)
        .arg(format!("--remote=p{database_socket}"));
    let _server = start(order, server, "server")?;
    wait_for(&directory.join("db.sock"))?;
    set(order, &["--no-wait", "init"])?;
    if order.dpdk {
        let extra =
            format!("other_config:dpdk-extra=--legacy-mem --no-huge -m {DPDK_MEMORY} --no-pci");
        set(
            order,
            &[
                "--no-wait",
                "set",
                "Open_vSwitch",
                ".",
                "other_config:dpdk-init=true",
                "other_config:userspace-tso-enable=false",
                &extra,
            ],
        )?;
    }
    let mut daemon = Command::new(if order.dpdk { DPDK_DAEMON } else { DAEMON });
    daemon.arg(&database_socket).arg("--disable-system");
    let _daemon = start(order, daemon, "daemon")?;
    connect(order)?;
    if order.dpdk {
        for port in &order.guests {
            mask::listen(&socket(directory, port), directory.join(port))?;
        }
    }
    tenant::say(b"ready")?;
    let _input = tenant::Input::watch();
    loop {
        thread::park(); // the thread behind the input ends the process, and the children with it
    }
}

/// Makes the bridge, its ports and flows.
fn connect(order: &Order) -> Result<()> {
    let mtu = format!("mtu_request={}", order.mtu_bytes);
    let mut arguments: Vec<&str> = vec![
        "add-br",
        BRIDGE,
        "--",
        "set",
        "bridge",
        BRIDGE,
        "datapath_type=netdev",
        "fail_mode=secure",
    ];
    for port in &order.guests {
        arguments.extend(["--", "add-port", BRIDGE, port]);
        if order.dpdk {
            arguments.extend(["--", "set", "interface", port, "type=dpdkvhostuser", &mtu]);
        }
    }
    let uplink = order.uplink.as_deref();
    if let Some(interface) = uplink {
        arguments.extend(["--", "add-port", BRIDGE, interface]);
        // Else the uplink's token bucket would be taken away.
        arguments.extend(["--", "--id=@keep", "create", "qos", "type=linux-noop"]);
        arguments.extend(["--", "set", "port", interface, "qos=@keep"]);
    }
    set(order, &arguments)?;
    let mut flows = String::new();
    for (mac, port) in &order.ways {
        let interface = match (port.as_str(), uplink) {
            (UPLINK, Some(interface)) => interface,
            (port, _) => port,
        };
        let number = set(order, &["get", "interface", interface, "ofport"])?;
        flows.push_str(&format!("dl_dst={mac},actions=output:{}\n", number.trim()));
    }
    let file = order.directory.join("flows");
    std::fs::write(&file, flows)?;
    let bridge = format!(
        "unix:{}",
        order.directory.join(format!("{BRIDGE}.mgmt")).display()
    );
    run(environment(order, Command::new("ovs-ofctl"))
        .arg("add-flows")
        .arg(bridge)
        .arg(file))?;
    Ok(())
}

/// With all files of Open vSwitch in its own directory.
fn environment(order: &Order, mut command: Command) -> Command {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(name, &order.directory);
    }
    command
}

/// Starts a part that dies with this process.
fn start(order: &Order, command: Command, name: &str) -> Result<Child> {
    let log = order.directory.join(format!("{name}.log"));
    let mut command = environment(order, command);
    let control = order.directory.join(format!("{name}.ctl"));
    command
        .arg(format!("--unixctl={}", control.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?);
    // SAFETY: prctl is a plain system call, safe between fork and exec.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
    let spawned = command.spawn();
    spawned.with_context(|| format!("cannot start Open vSwitch's {name}"))
}

fn wait_for(path: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !path.exists() {
        if Instant::now() > deadline {
            bail!("{} does not appear", path.display());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Asks the database for a change, and waits until it is made.
fn set(order: &Order, arguments: &[&str]) -> Result<String> {
    let mut command = environment(order, Command::new("ovs-vsctl"));
    command
        .arg(format!(
            "--db=unix:{}",
            order.directory.join("db.sock").display()
        ))
        .arg(format!("--timeout={}", PATIENCE.as_secs()))
        .args(arguments);
    let answer = run(&mut command);
    answer.with_context(|| {
        let log = std::fs::read_to_string(order.directory.join("daemon.log"));
        let log = log.unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(5).collect();
        format!("Open vSwitch does not answer: {}", tail.join("; "))
    })
}

/// Runs a tool; what it says.
fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| {
        format!("{program}: cannot be run (Debian: apt-get install openvswitch-switch)")
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program}: {}", said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The counters of guests' ports behind vhost-user.
pub(super) fn counts(directory: &Path, guests: &[&Guest]) -> Result<Vec<PortCounts>> {
    let control = directory.join("daemon.ctl");
    // Statistics in the database are seconds old; the datapath's are of now.
    let said = run(Command::new("ovs-appctl")
        .arg("-t")
        .arg(&control)
        .args(["dpctl/show", "-s"]))?;
    guests.iter().map(|guest| of_port(&said, guest)).collect()
}

/// ```text
///   port 2: t0 (dpdkvhostuser: …)
///     RX packets:1 errors:0 dropped:0 overruns:0 frame:0
///     TX packets:1 errors:0 dropped:0 aborted:0 carrier:0
/// ```
fn of_port(said: &str, guest: &Guest) -> Result<PortCounts> {
    let is_port = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.first() == Some(&"port") && words.get(2) == Some(&guest.port.as_str())
    };
    let mut lines = said.lines().skip_while(|line| !is_port(line)).skip(1);
    let number = |line: &str, key: &str| -> Option<u64> {
        let (_, rest) = line.split_once(&format!("{key}:"))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let mut counts = || {
        let (received, sent) = (lines.next()?, lines.next()?);
        Some(PortCounts {
            tenant: guest.tenant,
            into_switch: number(received, "packets")?,
            out_of_switch: number(sent, "packets")?,
            drops: BTreeMap::from([
                (
                    "refused".to_owned(),
                    number(received, "dropped").unwrap_or(0),
                ),
                ("full".to_owned(), number(sent, "dropped").unwrap_or(0)),
            ]),
        })
    };
    counts().with_context(|| format!("no counters of port {} in: {said}", guest.port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_port_are_read() {
        let said = "netdev@ovs-netdev:\n  lookups: hit:3 missed:1 lost:0\n  port 0: ovs-netdev (tap)\n    \
            RX packets:9 errors:0 dropped:0 overruns:0 frame:0\n    TX packets:9 errors:0 dropped:0 aborted:0 carrier:0\n  \
            port 1: t0 (dpdkvhostuser)\n    RX packets:5 errors:0 dropped:1 overruns:? frame:?\n    \
            TX packets:4 errors:? dropped:2 aborted:? carrier:?\n    collisions:?\n";
        let guest = Guest {
            tenant: 3,
            host: HostId(0),
            netns: String::new(),
            port: "t0".to_owned(),
            mac: String::new(),
        };
        let counts = of_port(said, &guest).unwrap();
        assert_eq!((counts.into_switch, counts.out_of_switch), (5, 4));
        assert_eq!((counts.drops["refused"], counts.drops["full"]), (1, 2));
        assert!(
            of_port(
                said,
                &Guest {
                    port: "t".to_owned(),
                    ..guest
                }
            )
            .is_err()
        );
    }
}
