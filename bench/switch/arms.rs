//! The switches, each as a process with three ports: two for senders, one for a receiver.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use sluicegate_labkit::ovs::{self, OpenVswitch};

/// The CPU of the switch, and of its second thread; the guests have the others.
pub const SWITCH_CPU: usize = 1;
const SECOND_CPU: usize = 3;
/// CPUs that two threads and their guests need.
const CPUS_OF_THREADS: usize = 4;

/// CPUs of this machine.
pub fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Pages of 2 MB for Open vSwitch, which does not run without.
const PAGES: &str = "/proc/sys/vm/nr_hugepages";
const PAGES_NEEDED: u64 = 512;

/// The ports.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Both vNICs of a connection enforce, and believe each other.
const POLICY: &str =
    "trusted = [\"0.0.0.0/0\"]\n[[rule]]\nalgorithm = \"dctcp\"\nmode = \"enforce\"\n";

/// A switch that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Ours, without loss.
    Lossless,
    /// The same, which enforces DCTCP at each port.
    Enforcing,
    /// The same with an address for each port, as in the documents' example.
    Filtered,
    /// Ours, which drops where a queue is full.
    Lossy,
    /// `testpmd` between two ports: it copies, and looks at nothing.
    Copying,
    /// Open vSwitch with DPDK.
    OpenVswitch,
    /// This kernel's bridge, with TAP interfaces.
    Bridge,
    /// Ours, with pairs of the kernel's interfaces by AF_XDP.
    Xdp,
    /// Ours, with two threads and two guests for each.
    Threads,
    /// No switch: a thread that an eventfd wakes.
    Eventfd,
    /// Ours between two adapters of `testpmd`, which sends back what comes.
    Foreign,
    /// The same with an address for each port.
    ForeignFiltered,
    /// Open vSwitch with DPDK between the same.
    ForeignOpenVswitch,
}

impl Arm {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Lossless,
        Self::Enforcing,
        Self::Filtered,
        Self::Lossy,
        Self::Copying,
        Self::OpenVswitch,
        Self::Bridge,
        Self::Xdp,
        Self::Threads,
        Self::Eventfd,
        Self::Foreign,
        Self::ForeignFiltered,
        Self::ForeignOpenVswitch,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lossless => "sluicegate",
            Self::Enforcing => "enforcing",
            Self::Filtered => "macs",
            Self::Lossy => "lossy",
            Self::Copying => "testpmd-io",
            Self::OpenVswitch => "ovs-dpdk",
            Self::Bridge => "bridge",
            Self::Xdp => "af-xdp",
            Self::Threads => "two-threads",
            Self::Eventfd => "eventfd",
            Self::Foreign => "foreign",
            Self::ForeignFiltered => "foreign-macs",
            Self::ForeignOpenVswitch => "foreign-ovs",
        }
    }

    /// Ports with a guest; the third one of `testpmd` would be a loop.
    pub fn ports(self) -> usize {
        match self {
            Self::Copying => 2,
            _ if self.is_foreign() => 2,
            Self::Threads => 4,
            _ => 3,
        }
    }

    /// Whether both guests are adapters of `testpmd`.
    pub fn is_foreign(self) -> bool {
        matches!(
            self,
            Self::Foreign | Self::ForeignFiltered | Self::ForeignOpenVswitch
        )
    }

    /// Whether it is Open vSwitch.
    fn is_open_vswitch(self) -> bool {
        matches!(self, Self::OpenVswitch | Self::ForeignOpenVswitch)
    }

    /// Whether segments of 64 KB pass from guest to guest as they are.
    pub fn takes_segments(self) -> bool {
        !matches!(self, Self::OpenVswitch | Self::Bridge | Self::Xdp)
    }

    /// Whether it makes interfaces of the kernel, or takes large pages.
    pub fn needs_root(self) -> bool {
        self.is_open_vswitch() || matches!(self, Self::Bridge | Self::Xdp)
    }

    /// What is missing on this machine, if anything.
    pub fn missing(self) -> Option<&'static str> {
        if self.is_open_vswitch() {
            if let Some(what) = ovs::missing() {
                return Some(what);
            }
        }
        let (path, package) = match self {
            Self::Copying | Self::Foreign | Self::ForeignFiltered | Self::ForeignOpenVswitch => (
                "/usr/bin/dpdk-testpmd",
                "no dpdk-testpmd (package dpdk-dev)",
            ),
            Self::Threads if cpus() < CPUS_OF_THREADS => {
                return Some("fewer than four CPUs (the benchmark `frames` counts instructions)");
            }
            _ => return None,
        };
        (!Path::new(path).exists()).then_some(package)
    }
}

/// A program that is our switch.
#[derive(Clone, Debug)]
pub enum Program {
    /// It is called with a file.
    Switch(PathBuf),
    /// The command `sluicegate`.
    Command(PathBuf),
}

/// A running switch. It ends when dropped, and leaves nothing.
pub struct Running {
    /// Its processes; the first one moves the frames.
    children: Vec<Child>,
    open_vswitch: Option<OpenVswitch>,
    directory: PathBuf,
    pages_before: Option<String>,
    /// Our switch, if it is another program than the one built with this one.
    program: Option<Program>,
}

impl Running {
    /// Starts a switch with so many ports in a directory of its own. The bridge needs no process.
    pub fn start(arm: Arm, ports: usize, program: Option<&Program>) -> Result<Self> {
        let name = format!("sg-bench-switch-{}-{}", std::process::id(), arm.name());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory)?;
        let mut running = Self {
            children: Vec::new(),
            open_vswitch: None,
            directory,
            pages_before: None,
            program: program.cloned(),
        };
        let cpu = format!("cpu = {SWITCH_CPU}\n");
        let directory = running.directory.clone();
        let guest = |port: usize| {
            let socket = directory.join(NAMES[port]);
            format!("vhost_user = \"{}\"", socket.display())
        };
        match arm {
            Arm::Lossless | Arm::Foreign => running.ours(ports, &cpu, guest)?,
            Arm::Filtered | Arm::ForeignFiltered => {
                let own = |port| format!("{}\nmacs = [\"02:00:00:00:00:0{port}\"]", guest(port));
                running.ours(ports, &cpu, own)?;
            }
            Arm::Lossy => running.ours(ports, &(cpu + "lossless = false"), guest)?,
            Arm::Enforcing => {
                fs::write(running.directory.join("policy.toml"), POLICY)?;
                running.ours(ports, &(cpu + "policy = \"policy.toml\""), guest)?;
            }
            Arm::Xdp => running.ours(ports, &cpu, |port| format!("xdp = \"{}\"", NAMES[port]))?,
            Arm::Threads => {
                let second = SECOND_CPU % cpus();
                let keys = format!("threads = 2\ncpus = [{SWITCH_CPU}, {second}]");
                let port = |port| format!("{}\nthread = {}", guest(port), port / 2);
                running.ours(ports, &keys, port)?;
            }
            Arm::Copying => running.testpmd()?,
            Arm::OpenVswitch | Arm::ForeignOpenVswitch => running.open_vswitch()?,
            Arm::Bridge | Arm::Eventfd => {}
        }
        Ok(running)
    }

    /// The socket of a port.
    pub fn socket(&self, port: usize) -> PathBuf {
        self.directory.join(NAMES[port])
    }

    /// Waits until a port can be connected to.
    pub fn wait_for_port(&self, port: usize) -> Result<()> {
        wait_for(&self.socket(port))
    }

    /// Waits until our switch answers; the bridge has no process.
    pub fn wait_for_control(&self) -> Result<()> {
        match self.children.is_empty() {
            true => Ok(()),
            false => wait_for(&self.directory.join("control")),
        }
    }

    /// CPU time that the process that moves frames has used, ns.
    pub fn used_ns(&self) -> Result<Option<u64>> {
        let others = self
            .open_vswitch
            .iter()
            .flat_map(|it| it.processes().last());
        let Some(process) = self
            .children
            .first()
            .map(Child::id)
            .into_iter()
            .chain(others)
            .next()
        else {
            return Ok(None);
        };
        let mut used_ns = 0;
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            let first = text.split(' ').next().context("schedstat")?;
            used_ns += first.parse::<u64>()?;
        }
        Ok(Some(used_ns))
    }

    fn spawn(&mut self, command: &mut Command) -> Result<()> {
        let log = fs::File::create(self.directory.join(format!("log-{}", self.children.len())))?;
        let quiet = command.stdin(Stdio::null()).stdout(log.try_clone()?);
        let child = quiet.stderr(log).spawn();
        let child = child.with_context(|| format!("{:?}", command.get_program()))?;
        self.children.insert(0, child);
        Ok(())
    }

    /// Our switch, with these keys and ports.
    fn ours(&mut self, ports: usize, keys: &str, port: impl Fn(usize) -> String) -> Result<()> {
        let control = self.directory.join("control");
        let mut text = format!("[switch]\nsocket = \"{}\"\n{keys}\n", control.display());
        for (number, name) in NAMES.iter().enumerate().take(ports) {
            text += &format!("[[port]]\nname = \"{name}\"\n{}\n", port(number));
        }
        let file = self.directory.join("switch.toml");
        fs::write(&file, text)?;
        let mut command = match &self.program {
            Some(Program::Switch(program)) => Command::new(program),
            Some(Program::Command(program)) => Command::new(program),
            None => Command::new(env!("CARGO_BIN_EXE_test-switch")),
        };
        if let Some(Program::Command(_)) = self.program {
            command.args(["switch", "run"]);
        }
        self.spawn(command.arg(file))
    }

    fn testpmd(&mut self) -> Result<()> {
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--no-huge", "-m", "256", "--no-pci", "--file-prefix"]);
        command.arg(format!("sg{}", std::process::id()));
        command.arg(format!("--lcores=0@0,1@{SWITCH_CPU}"));
        for port in 0..2 {
            let socket = self.socket(port);
            command.arg(format!("--vdev=net_vhost{port},iface={}", socket.display()));
        }
        command.args(["--", "--forward-mode=io", "--total-num-mbufs=16384"]);
        command.args(["--auto-start", "--nb-cores=1", "--no-mlockall"]);
        // Without this it ends when its standard input does.
        self.spawn(command.arg("--stats-period=3600"))
    }

    /// Open vSwitch with a database of its own, beside any other of this machine.
    fn open_vswitch(&mut self) -> Result<()> {
        let pages = fs::read_to_string(PAGES)?;
        fs::write(PAGES, PAGES_NEEDED.to_string())?;
        self.pages_before = Some(pages);
        let have: u64 = fs::read_to_string(PAGES)?.trim().parse()?;
        ensure!(
            have >= PAGES_NEEDED,
            "no {PAGES_NEEDED} pages of 2 MB in a row"
        );
        let dpdk = ovs::Dpdk {
            cpu: SWITCH_CPU,
            memory_mb: 512,
            large_pages: true,
        };
        let ports = NAMES[..3]
            .iter()
            .map(|name| ovs::Port::VhostUser((*name).into()));
        let ports: Vec<_> = ports.collect();
        let switch = OpenVswitch::start(&self.directory, ovs::Datapath::Dpdk(dpdk), &ports)?;
        self.open_vswitch = Some(switch);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.open_vswitch = None;
        for child in &mut self.children {
            end(child);
        }
        if let Some(pages) = &self.pages_before {
            let _ = fs::write(PAGES, pages.trim());
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Ends a process, which may have ended by itself. One that counts for a profile writes it when it
/// ends in an orderly way.
fn end(child: &mut Child) {
    const PATIENCE: Duration = Duration::from_secs(2);
    if let Some(process) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process(process, Signal::TERM);
    }
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn wait_for(path: &Path) -> Result<()> {
    let start = Instant::now();
    while !path.exists() {
        if start.elapsed() > Duration::from_secs(20) {
            bail!("{} does not appear", path.display());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
