//! Process 1 of a guest: sets the guest up, runs the plan, waits to be killed.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::{
    mount::{MountFlags, mount},
    system::{RebootCommand, finit_module, reboot},
};

use super::{
    Port,
    job::{self, Order, put},
    stamp::Stamp,
};
use crate::{
    net::offloads,
    tenant::{Prepared, netstat},
};

/// Modules of the guest's kernel, one directory per release.
pub const MODULES: &str = "/usr/lib/uml/modules";

/// Where the job directory appears inside the guest.
const JOB: &str = "/tmp/job";

/// Buffers as a machine with more memory has them: Linux shrinks them on small ones, and a guest's
/// TCP would then differ from a namespace's.
const SYSCTLS: [(&str, &str); 4] = [
    ("net/ipv4/tcp_rmem", "4096 131072 6291456"),
    ("net/ipv4/tcp_wmem", "4096 16384 4194304"),
    ("net/ipv4/tcp_mem", "16384 24576 32768"),
    ("net/core/somaxconn", "4096"),
];

/// Modules of the interface of a guest behind vhost-user, in the order of loading.
const VIRTIO: [&str; 3] = [
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
];

/// Pause between looks for the start.
const LOOK: Duration = Duration::from_millis(2);

/// Never returns. After its report the guest stays and answers what still arrives, so that nothing
/// piles up and drops in front of it; the keeper kills it. After an error it powers off.
pub fn run(job_on_host: &Path) -> ! {
    let done = mount_all(job_on_host).and_then(|()| serve());
    if let Err(error) = done {
        let text = format!("{error:#}").replace('\n', " ");
        if put(Path::new(JOB), job::ERROR, text.as_bytes()).is_err() {
            // The console, which the keeper shows when a guest dies.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
        rustix::fs::sync();
        let _ = reboot(RebootCommand::PowerOff); // process 1 must not end by itself
    }
    loop {
        thread::park();
    }
}

fn mount_all(job_on_host: &Path) -> anyhow::Result<()> {
    mount("proc", "/proc", "proc", MountFlags::empty(), c"").context("cannot mount /proc")?;
    mount("tmpfs", "/tmp", "tmpfs", MountFlags::empty(), c"").context("cannot mount /tmp")?;
    fs::create_dir(JOB)?;
    let host = std::ffi::CString::new(job_on_host.as_os_str().as_encoded_bytes())?;
    mount("none", JOB, "hostfs", MountFlags::empty(), host.as_c_str())
        .context("cannot mount the job directory")
}

fn serve() -> anyhow::Result<()> {
    let directory = Path::new(JOB);
    let order = fs::read(directory.join(job::ORDER)).context("cannot read the order")?;
    let order: Order = serde_json::from_slice(&order).context("the order is unreadable")?;
    let kernel = &order.attachment.kernel;
    let own = kernel
        .parameters
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in SYSCTLS.into_iter().chain(own) {
        fs::write(format!("/proc/sys/{name}"), value)
            .with_context(|| format!("cannot set {name} = {value}"))?;
    }
    hold(kernel.udp_hold_ms)?;
    provide_congestion_control(&order.plan.congestion_control)?;
    bring_up(&order)?;
    let prepared = Prepared::new(order.plan)?;
    put(directory, job::READY, &serde_json::to_vec(&Stamp::now())?)?;
    let start = wait_start(&directory.join(job::START))?;
    let report = prepared.run(start);
    put(directory, job::END, &serde_json::to_vec(&Stamp::now())?)?;
    put(directory, job::REPORT, &serde_json::to_vec(&report)?)
}

/// Makes reception wait for room in UDP sockets, where the kernel can.
fn hold(udp_hold_ms: u32) -> anyhow::Result<()> {
    if udp_hold_ms == 0 {
        return Ok(());
    }
    let path = netstat::UDP_HOLD_MS;
    fs::write(path, udp_hold_ms.to_string())
        .with_context(|| format!("cannot set {path}: not the kernel of scripts/guest-kernel.sh?"))
}

/// Loads `tcp_NAME.ko` unless the kernel has the algorithm already.
fn provide_congestion_control(name: &str) -> anyhow::Result<()> {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    if available.split_whitespace().any(|known| known == name) {
        return Ok(());
    }
    load(&format!("net/ipv4/tcp_{name}.ko"), name)
}

/// Loads a module of the guest's kernel, which has `what`.
fn load(file: &str, what: &str) -> anyhow::Result<()> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let path = format!("{MODULES}/{release}/kernel/{file}");
    let module = File::open(&path).with_context(|| format!("guests have no {what:?}: {path}"))?;
    finit_module(&module, c"", 0).with_context(|| format!("cannot load {path}"))
}

/// Interfaces announce their address when they come up. The lab's neighbour entries are fixed, so
/// no tenant asks for it, and a switch that learns would flood frames to a tenant that has sent
/// none.
fn announce() -> anyhow::Result<()> {
    for name in [
        "ipv4/conf/default/arp_notify",
        "ipv6/conf/default/ndisc_notify",
    ] {
        let path = format!("/proc/sys/net/{name}");
        if Path::new(&path).exists() {
            fs::write(&path, "1").with_context(|| format!("cannot set {path}"))?;
        }
    }
    Ok(())
}

fn bring_up(order: &Order) -> anyhow::Result<()> {
    let attachment = &order.attachment;
    let mtu = order.plan.mtu_bytes;
    let first = match attachment.port {
        Port::Tap(_) => format!("link set vec0 name eth0 mtu {mtu}\n"),
        Port::VhostUser(_) => {
            announce()?;
            // A kernel without modules has all that it needs.
            let modular = Path::new("/proc/modules").exists();
            for name in VIRTIO.into_iter().filter(|_| modular) {
                load(&format!("{name}.ko"), name)?;
            }
            // Not every switch says its address.
            format!("link set eth0 address {} mtu {mtu}\n", attachment.mac)
        }
    };
    ip(&(first + &attachment.commands)).context("cannot set up the guest's network")?;
    if !attachment.offloads {
        offloads::disable_segmentation("eth0")?;
    }
    Ok(())
}

/// Runs the host's `ip` on these lines.
fn ip(batch: &str) -> anyhow::Result<()> {
    let places = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"];
    let program = places.into_iter().find(|place| Path::new(place).exists());
    let program = program.context("no program ip; apt-get install iproute2")?;
    let mut child = Command::new(program)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(batch.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// The start of the run on the guest's own clock.
fn wait_start(path: &Path) -> anyhow::Result<u64> {
    loop {
        if let Ok(text) = fs::read_to_string(path) {
            return text
                .trim()
                .parse()
                .with_context(|| format!("no time: {text:?}"));
        }
        thread::sleep(LOOK);
    }
}
