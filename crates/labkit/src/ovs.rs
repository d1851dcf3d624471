//! Open vSwitch with its datapath in userspace, beside any other of this machine: its database,
//! sockets and logs are in a directory of its own, and its interfaces in the namespace of the
//! calling thread.
//!
//! ```text
//!   ovsdb-server ── db.sock ── ovs-vswitchd ── interfaces (packet sockets)
//!                                  │      └─── sockets of vhost-user (DPDK)
//!                               vswitchd.ctl (counters, static addresses)
//! ```

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

/// The daemon built with DPDK. The other one cannot read the headers of TAP interfaces by which
/// checksums are left to do.
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// The bridge.
pub const BRIDGE: &str = "ovs";

/// Time for a daemon to come up, or to go.
const UP: Duration = Duration::from_secs(20);
const DOWN: Duration = Duration::from_secs(2);

/// How it moves frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// By packet sockets of interfaces (`datapath_type=netdev`).
    Sockets,
    /// With DPDK: sockets of vhost-user, and a thread that polls them.
    Dpdk(Dpdk),
}

/// What only DPDK has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpdk {
    /// The CPU of the thread that polls.
    pub cpu: usize,
    /// Its memory, MB.
    pub memory_mb: u32,
    /// Whether that is of pages of 2 MB, which the machine must have. Without them each port has
    /// memory of its own, for some 20 000 frames, instead of a share in one for 262 144.
    pub large_pages: bool,
}

impl Dpdk {
    fn options(&self) -> [String; 5] {
        // Without large pages it must not be told that its memory has no file.
        let pages = match self.large_pages {
            true => "",
            false => "--no-huge --legacy-mem ",
        };
        let (memory, process) = (self.memory_mb, std::process::id());
        let rest = format!("-m {memory} --no-pci --no-telemetry --file-prefix=sgo{process}");
        [
            "dpdk-init=true".to_owned(),
            "dpdk-lcore-mask=0x1".to_owned(),
            format!("per-port-memory={}", !self.large_pages),
            format!("pmd-cpu-mask={:#x}", 1_u64 << self.cpu),
            format!("dpdk-extra={pages}{rest}"),
        ]
    }
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// An interface of the namespace, by its name.
    Interface(String),
    /// A socket of this name in its directory, where it listens. Such a port has no counters.
    VhostUser(String),
    /// A socket of this name in its directory, where another process listens.
    VhostUserClient(String),
}

impl Port {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Interface(name) | Self::VhostUser(name) | Self::VhostUserClient(name) => name,
        }
    }
}

/// What passed a port since it is up, as the daemon counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Frames that came by it.
    pub received: u64,
    /// Frames that came and were dropped.
    pub receive_drops: u64,
    /// Frames that left by it.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames for it that found no room.
    pub send_drops: u64,
}

/// The counters of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By the name of the port.
    pub ports: BTreeMap<String, PortCounts>,
    /// Frames dropped by the switch as a whole: `lost` (upcalls without room) and its counters
    /// `datapath_drop_*` and `drop_action_*`.
    pub drops: BTreeMap<String, u64>,
}

/// What is missing on this machine, and the package that has it.
pub fn missing() -> Option<&'static str> {
    let there = [DAEMON, SCHEMA].iter().all(|file| Path::new(file).exists());
    (!there).then_some("no Open vSwitch with DPDK: apt-get install openvswitch-switch-dpdk")
}

/// A running switch. It ends when dropped, or when the thread that started it does.
#[derive(Debug)]
pub struct OpenVswitch {
    directory: PathBuf,
    /// The database, and the daemon.
    children: Vec<Child>,
}

impl OpenVswitch {
    /// Starts it in an existing directory and waits until it has its ports.
    ///
    /// # Errors
    /// A program is missing or does not come up; the message ends with its log.
    pub fn start(directory: &Path, datapath: Datapath, ports: &[Port]) -> Result<Self> {
        if let Some(advice) = missing() {
            bail!("{advice}");
        }
        let mut switch = Self {
            directory: directory.to_owned(),
            children: Vec::new(),
        };
        let database = switch.at("conf.db");
        run(Command::new("ovsdb-tool").args(["create", &database, SCHEMA]))?;
        let mut server = Command::new("ovsdb-server");
        server.args([&database, &format!("--remote=punix:{}", switch.at(DB))]);
        server.arg(format!("--unixctl={}", switch.at("ovsdb.ctl")));
        switch.spawn(&mut server)?;
        switch.wait("the database", |it| it.directory.join(DB).exists())?;
        switch.configure(datapath, ports)?;
        let mut daemon = Command::new(DAEMON);
        daemon.arg(format!("unix:{}", switch.at(DB)));
        daemon.arg(format!("--unixctl={}", switch.at(CONTROL)));
        switch.spawn(&mut daemon)?;
        switch.wait("a port", |it| match counts(&it.directory) {
            Ok(counts) => ports
                .iter()
                .all(|port| counts.ports.contains_key(port.name())),
            Err(_) => false,
        })?;
        let daemon = switch.processes().next_back();
        if let (Datapath::Dpdk(_), Some(daemon)) = (datapath, daemon) {
            let maps = fs::read_to_string(format!("/proc/{daemon}/maps"))?;
            if let Some(advice) = pool_driver_missing(&maps) {
                bail!("Open vSwitch: {advice}");
            }
        }
        Ok(switch)
    }

    /// Starts one for a moment, in the network namespace of the calling thread: the proof that this
    /// machine has what the datapath needs.
    ///
    /// # Errors
    /// Those of [`Self::start`].
    pub fn try_out(datapath: Datapath) -> Result<()> {
        let directory = std::env::temp_dir().join(format!("sg-ovs-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory); // a former process of this number was killed
        fs::create_dir(&directory)?;
        let ports = match datapath {
            Datapath::Sockets => Vec::new(),
            Datapath::Dpdk(_) => vec![Port::VhostUser("guest".to_owned())],
        };
        let tried = Self::start(&directory, datapath, &ports).map(drop);
        fs::remove_dir_all(&directory)?;
        tried
    }

    /// Its processes; the last one moves the frames.
    pub fn processes(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.children.iter().map(Child::id)
    }

    /// Frames to an Ethernet address leave by this port, for as long as the switch runs.
    ///
    /// # Errors
    /// No such port, or the switch does not answer.
    pub fn add_address(&self, port: &str, mac: &str) -> Result<()> {
        ask(&self.directory, &["fdb/add", BRIDGE, port, "0", mac]).map(drop)
    }

    fn at(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn configure(&self, datapath: Datapath, ports: &[Port]) -> Result<()> {
        self.set(&["init"])?;
        let table = ["set", "Open_vSwitch", "."];
        match datapath {
            // Its sockets then have the headers of interfaces, for checksums too.
            Datapath::Sockets => {
                self.set(&[&table[..], &["other_config:userspace-tso-enable=true"]].concat())?;
            }
            Datapath::Dpdk(dpdk) => {
                let options = dpdk
                    .options()
                    .map(|option| format!("other_config:{option}"));
                let options = options.each_ref().map(String::as_str);
                self.set(&[&table[..], &options].concat())?;
            }
        }
        let kind = "datapath_type=netdev";
        self.set(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, kind])?;
        ports.iter().try_for_each(|port| self.add(port))
    }

    fn add(&self, port: &Port) -> Result<()> {
        let name = port.name();
        let path = format!("options:vhost-server-path={}", self.at(name));
        let set: &[&str] = match port {
            // It would remove the queueing discipline of the interface.
            Port::Interface(_) => &[
                "port",
                name,
                "qos=@keep",
                "--",
                "--id=@keep",
                "create",
                "qos",
                "type=linux-noop",
            ],
            Port::VhostUser(_) => &["interface", name, "type=dpdkvhostuser"],
            Port::VhostUserClient(_) => &["interface", name, "type=dpdkvhostuserclient", &path],
        };
        self.set(&[&["add-port", BRIDGE, name, "--", "set"], set].concat())
    }

    /// Writes into the database, whether or not there is a daemon.
    fn set(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new("ovs-vsctl");
        let database = format!("--db=unix:{}", self.at(DB));
        run(command.args([&database, "--no-wait"]).args(words)).map(drop)
    }

    fn spawn(&mut self, command: &mut Command) -> Result<()> {
        let log = fs::File::create(log(&self.directory, self.children.len()))?;
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "RUNTIME_DIRECTORY"] {
            command.env(name, &self.directory);
        }
        let quiet = command.stdin(Stdio::null()).stdout(log.try_clone()?);
        quiet.stderr(log);
        // SAFETY: prctl is a plain system call, safe between fork and exec.
        unsafe {
            command.pre_exec(
                || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                },
            );
        }
        let child = command.spawn();
        let child = child.with_context(|| format!("{:?}", command.get_program()))?;
        self.children.push(child);
        Ok(())
    }

    /// Waits for something of the child that was started last.
    fn wait(&mut self, what: &str, is_there: impl Fn(&Self) -> bool) -> Result<()> {
        let start = Instant::now();
        while !is_there(self) {
            let ended = match self.children.last_mut() {
                Some(child) => child.try_wait()?,
                None => None,
            };
            if ended.is_some() || start.elapsed() > UP {
                let log = log(&self.directory, self.children.len() - 1);
                let log = fs::read_to_string(log).unwrap_or_default();
                bail!("Open vSwitch: {what} does not come up: {}", end_of(&log));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for OpenVswitch {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // SAFETY: a signal to a child that was not waited for yet.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            let begin = Instant::now();
            while begin.elapsed() < DOWN && matches!(child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill(); // fails only when it is dead
            let _ = child.wait();
        }
    }
}

/// The daemon's place among the children.
const DAEMON_CHILD: usize = 1;

const DB: &str = "db.sock";
const CONTROL: &str = "vswitchd.ctl";

/// All bridges in userspace share it.
const DATAPATH: &str = "netdev@ovs-netdev";

/// The counters of the switch in this directory.
///
/// # Errors
/// It does not answer.
pub fn counts(directory: &Path) -> Result<Counts> {
    let mut counts = ports(&ask(directory, &["dpctl/show", "-s", DATAPATH])?);
    for line in ask(directory, &["coverage/show"])?.lines() {
        counts.drops.extend(coverage(line));
    }
    Ok(counts)
}

fn ask(directory: &Path, words: &[&str]) -> Result<String> {
    let control = directory.join(CONTROL);
    let mut command = Command::new("ovs-appctl");
    command.arg("--timeout=5").arg("-t").arg(control);
    run(command.args(words))
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output();
    let output = output.with_context(|| format!("{:?}", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the daemon of the switch in this directory has complained about, in its own words and those
/// of DPDK.
pub fn complaints(directory: &Path) -> String {
    match fs::read_to_string(log(directory, DAEMON_CHILD)) {
        Ok(log) => end_of(&log),
        Err(error) => format!("its log cannot be read: {error}"),
    }
}

/// What a child of the switch in this directory says.
fn log(directory: &Path, child: usize) -> PathBuf {
    directory.join(format!("log-{child}"))
}

/// The last complaints in a log; where there are none, its last lines.
fn end_of(log: &str) -> String {
    let is_error = |line: &&str| ["|ERR|", "|EMER|"].iter().any(|level| line.contains(level));
    let is_warning = |line: &&str| line.contains("|WARN|");
    let mut lines: Vec<&str> = log.lines().filter(is_error).collect();
    if lines.is_empty() {
        lines = log.lines().filter(is_warning).collect();
    }
    if lines.is_empty() {
        lines = log.lines().collect();
    }
    lines.split_off(lines.len().saturating_sub(5)).join("; ")
}

/// What a daemon with DPDK lacks for memory pools, by the files that it has mapped. DPDK loads what
/// manages the pools' frames as a plugin, and does without it until the first guest connects: then
/// the guest's port is removed. A DPDK that is linked into the daemon has it.
fn pool_driver_missing(maps: &str) -> Option<String> {
    if maps.contains("librte_mempool_ring.so") {
        return None;
    }
    let (_, version) = maps.split_once("/librte_mempool.so.")?;
    let version: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some(format!(
        "DPDK has not loaded librte_mempool_ring.so.{version} and can make no memory pool for a \
         guest's port: apt-get install librte-mempool-ring{version}"
    ))
}

/// Reads `dpctl/show -s`.
fn ports(text: &str) -> Counts {
    let mut counts = Counts::default();
    let mut name = String::new();
    // A port that no guest has connected to has no counters, and its line no end.
    let text = text.replace(")  port ", ")\n  port ");
    for line in text.lines().map(str::trim) {
        if let Some(lookups) = line.strip_prefix("lookups:") {
            let lost = number(lookups, "lost:");
            counts.drops.insert("lost".to_owned(), lost);
        } else if let Some((_, port)) = line
            .strip_prefix("port ")
            .and_then(|it| it.split_once(": "))
        {
            name = port.split(' ').next().unwrap_or(port).to_owned();
            counts.ports.insert(name.clone(), PortCounts::default());
        } else if let Some(port) = counts.ports.get_mut(&name) {
            match line.split(':').next() {
                Some("RX packets") => {
                    port.received = number(line, "packets:");
                    port.receive_drops = number(line, "dropped:");
                }
                Some("TX packets") => {
                    port.sent = number(line, "packets:");
                    port.send_drops = number(line, "dropped:");
                }
                Some("RX bytes") => {
                    let sent = line.split("TX ").nth(1).unwrap_or_default();
                    port.sent_bytes = number(sent, "bytes:");
                }
                _ => {}
            }
        }
    }
    counts
}

/// The number behind a word; zero where the port does not count it (`?`).
fn number(line: &str, word: &str) -> u64 {
    let rest = line.split_once(word).map_or("", |(_, rest)| rest);
    let end = rest.find(|digit: char| !digit.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().unwrap_or(0)
}

/// A line of `coverage/show` that counts frames dropped.
fn coverage(line: &str) -> Option<(String, u64)> {
    let name = line.split_whitespace().next()?;
    let drops = ["datapath_drop_", "drop_action_"];
    let counts = drops.iter().any(|start| name.starts_with(start));
    let total = line.split("total: ").nth(1)?;
    counts.then(|| (name.to_owned(), total.trim().parse().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_says_is_read() {
        let text = "netdev@ovs-netdev:\n  lookups: hit:23 missed:7 lost:2\n  flows: 4\n  \
            port 0: ovs-netdev (tap)\n    RX packets:0 errors:0 dropped:0 overruns:0 frame:0\n  \
            port 1: t0 (dpdkvhostuser: mtu=0)\n, could not retrieve stats (Protocol error)  \
            port 2: t1 (dpdkvhostuser: configured_rx_queues=1)\n    \
            RX packets:5 errors:0 dropped:1 overruns:? frame:?\n    \
            TX packets:10 errors:0 dropped:3 aborted:? carrier:?\n    collisions:?\n    \
            RX bytes:500 (0.5 KiB)  TX bytes:1000 (1 KiB)\n";
        let counts = ports(text);
        let t1 = PortCounts {
            received: 5,
            receive_drops: 1,
            sent: 10,
            sent_bytes: 1000,
            send_drops: 3,
        };
        assert_eq!(counts.ports["t1"], t1);
        assert_eq!(counts.ports["t0"], PortCounts::default());
        assert_eq!(counts.ports.len(), 3);
        assert_eq!(counts.drops, [("lost".to_owned(), 2)].into());
        let line =
            "datapath_drop_upcall_error   0.0/sec     0.083/sec        0.0014/sec   total: 5";
        let drop = ("datapath_drop_upcall_error".to_owned(), 5);
        assert_eq!(coverage(line), Some(drop));
        assert_eq!(
            coverage("netlink_sent   0.0/sec 0/sec 0/sec   total: 5"),
            None
        );
    }

    #[test]
    fn a_log_ends_with_its_worst_lines() {
        let said = "1|dpdk|INFO|up\n2|netdev_dpdk|WARN|old\n3|bridge|INFO|added\n";
        assert_eq!(end_of(said), "2|netdev_dpdk|WARN|old");
        let failed = format!("{said}4|netdev_dpdk|ERR|Failed to create mempool\n5|x|INFO|on\n");
        assert_eq!(
            end_of(&failed),
            "4|netdev_dpdk|ERR|Failed to create mempool"
        );
        assert_eq!(end_of("a\nb\nc\nd\ne\nf\n"), "b; c; d; e; f");
        assert_eq!(end_of(""), "");
    }

    #[test]
    fn a_pool_without_its_driver_is_told_with_its_package() {
        let lib = "7f00-7f01 r-xp 0000 fe:00 9 /usr/lib/x86_64-linux-gnu";
        let pool = format!("{lib}/librte_mempool.so.25.0\n{lib}/librte_ring.so.25.0\n");
        let advice = pool_driver_missing(&pool);
        assert!(advice.is_some_and(|it| it.ends_with("apt-get install librte-mempool-ring25")));
        let whole = format!("{pool}{lib}/dpdk/pmds-25.0/librte_mempool_ring.so.25.0\n");
        assert_eq!(pool_driver_missing(&whole), None);
        assert_eq!(
            pool_driver_missing("7f00-7f01 r-xp 0 fe:00 9 /usr/sbin/ovs\n"),
            None
        );
    }
}
