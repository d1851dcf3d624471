//! The switches, each as a process with three ports: two for senders, one for a receiver.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

/// The CPU of the switch; the guests have the other.
pub const SWITCH_CPU: usize = 1;

/// Pages of 2 MB for Open vSwitch, which does not run without.
const PAGES: &str = "/proc/sys/vm/nr_hugepages";
const PAGES_NEEDED: u64 = 512;

const POLICY: &str = "[[rule]]\nalgorithm = \"dctcp\"\n";

/// A switch that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Ours, without loss.
    Lossless,
    /// The same, which enforces DCTCP at each port.
    Enforcing,
    /// Ours, which drops where a queue is full.
    Lossy,
    /// `testpmd` between two ports: it copies, and looks at nothing.
    Copying,
    /// Open vSwitch with DPDK.
    OpenVswitch,
    /// This kernel's bridge, with TAP interfaces.
    Bridge,
}

impl Arm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Lossless,
        Self::Enforcing,
        Self::Lossy,
        Self::Copying,
        Self::OpenVswitch,
        Self::Bridge,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lossless => "sluicegate",
            Self::Enforcing => "enforcing",
            Self::Lossy => "lossy",
            Self::Copying => "testpmd-io",
            Self::OpenVswitch => "ovs-dpdk",
            Self::Bridge => "bridge",
        }
    }

    /// Ports with a guest; the third one of `testpmd` would be a loop.
    pub fn ports(self) -> usize {
        if self == Self::Copying { 2 } else { 3 }
    }

    /// Whether segments of 64 KB pass from guest to guest as they are.
    pub fn takes_segments(self) -> bool {
        !matches!(self, Self::OpenVswitch | Self::Bridge)
    }

    /// What is missing on this machine, if anything.
    pub fn missing(self) -> Option<&'static str> {
        let (path, package) = match self {
            Self::Copying => (
                "/usr/bin/dpdk-testpmd",
                "no dpdk-testpmd (package dpdk-dev)",
            ),
            Self::OpenVswitch => (
                OVS,
                "no Open vSwitch with DPDK (package openvswitch-switch-dpdk)",
            ),
            _ => return None,
        };
        (!Path::new(path).exists()).then_some(package)
    }
}

const OVS: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// A running switch. It ends when dropped, and leaves nothing.
pub struct Running {
    /// Its processes; the first one moves the frames.
    children: Vec<Child>,
    directory: PathBuf,
    pages_before: Option<String>,
}

impl Running {
    /// Starts a switch in a directory of its own. The bridge needs no process.
    pub fn start(arm: Arm) -> Result<Self> {
        let name = format!("sg-bench-switch-{}-{}", std::process::id(), arm.name());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory)?;
        let mut running = Self {
            children: Vec::new(),
            directory,
            pages_before: None,
        };
        match arm {
            Arm::Lossless => running.ours("")?,
            Arm::Lossy => running.ours("lossless = false")?,
            Arm::Enforcing => {
                fs::write(running.directory.join("policy.toml"), POLICY)?;
                running.ours("policy = \"policy.toml\"")?;
            }
            Arm::Copying => running.testpmd()?,
            Arm::OpenVswitch => running.open_vswitch()?,
            Arm::Bridge => {}
        }
        Ok(running)
    }

    /// The socket of a port.
    pub fn socket(&self, port: usize) -> PathBuf {
        self.directory.join(["a", "b", "c"][port])
    }

    /// CPU time that the process that moves frames has used, ns.
    pub fn used_ns(&self) -> Result<Option<u64>> {
        let Some(child) = self.children.first() else {
            return Ok(None);
        };
        let mut used_ns = 0;
        for task in fs::read_dir(format!("/proc/{}/task", child.id()))? {
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

    fn ours(&mut self, keys: &str) -> Result<()> {
        let at = |name: &str| self.directory.join(name).display().to_string();
        let mut text = format!(
            "[switch]\nsocket = \"{}\"\ncpu = {SWITCH_CPU}\n{keys}\n",
            at("control")
        );
        for port in ["a", "b", "c"] {
            text += &format!(
                "[[port]]\nname = \"{port}\"\nvhost_user = \"{}\"\n",
                at(port)
            );
        }
        let file = self.directory.join("switch.toml");
        fs::write(&file, text)?;
        self.spawn(Command::new(env!("CARGO_BIN_EXE_test-switch")).arg(file))
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
        let directory = self.directory.clone();
        let at = |name: &str| directory.join(name).display().to_string();
        let environment = [
            ("OVS_RUNDIR", directory.clone()),
            ("OVS_LOGDIR", directory.clone()),
            ("OVS_DBDIR", directory.clone()),
        ];
        let (database, socket) = (at("conf.db"), at("db.sock"));
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        run(Command::new("ovsdb-tool").args(["create", &database, schema]))?;
        let mut server = Command::new("ovsdb-server");
        server.args([&database, &format!("--remote=punix:{socket}")]);
        server.arg(format!("--unixctl={}", at("ovsdb.ctl")));
        self.spawn(server.envs(environment.clone()))?;
        wait_for(&self.directory.join("db.sock"))?;
        let set = |words: &[&str]| {
            let mut command = Command::new("ovs-vsctl");
            command.arg(format!("--db=unix:{socket}")).arg("--no-wait");
            run(command.args(words))
        };
        set(&["init"])?;
        let mask = format!("other_config:pmd-cpu-mask={:#x}", 1 << SWITCH_CPU);
        let extra = format!(
            "other_config:dpdk-extra=-m 512 --no-pci --file-prefix=sgo{}",
            std::process::id()
        );
        let table = ["set", "Open_vSwitch", "."];
        set(&[&table[..], &["other_config:dpdk-init=true", &mask]].concat())?;
        set(&[&table[..], &["other_config:dpdk-lcore-mask=0x1", &extra]].concat())?;
        set(&[
            "add-br",
            "br0",
            "--",
            "set",
            "bridge",
            "br0",
            "datapath_type=netdev",
        ])?;
        for port in ["a", "b", "c"] {
            let kind = "type=dpdkvhostuser";
            set(&[
                "add-port",
                "br0",
                port,
                "--",
                "set",
                "Interface",
                port,
                kind,
            ])?;
        }
        let mut switch = Command::new(OVS);
        switch.arg(format!("unix:{socket}"));
        switch.arg(format!("--unixctl={}", at("vswitchd.ctl")));
        self.spawn(switch.envs(environment))?;
        wait_for(&self.directory.join("c"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(pages) = &self.pages_before {
            let _ = fs::write(PAGES, pages.trim());
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output();
    let output = output.with_context(|| format!("{:?}", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(())
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
