//! The first process of a User-Mode Linux guest in the tests: sets its adapter up, and sends or
//! receives. Its results are lines on the console.

use std::{
    fs::File,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream, UdpSocket},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rustix::{
    mount::{MountFlags, mount},
    system::{finit_module, uname},
};

/// Bytes of the stream.
const STREAM: usize = 20_000_000;
/// Numbered datagrams.
const DATAGRAMS: u32 = 3000;

fn main() {
    let role = std::env::args().nth(1).unwrap_or_default();
    let done = set_up(&role).and_then(|()| match role.as_str() {
        "receiver" => receive(),
        _ => send(),
    });
    match done {
        Ok(text) => println!("result: {text}"),
        Err(error) => println!("error: {error:#}"),
    }
    // Process 1 must not end, and what it has said must reach the console: the test ends the guest.
    loop {
        thread::park();
    }
}

fn set_up(role: &str) -> anyhow::Result<()> {
    mount("proc", "/proc", "proc", MountFlags::empty(), c"").context("mounting /proc")?;
    let release = uname().release().to_string_lossy().into_owned();
    for module in [
        "net/core/failover",
        "drivers/net/net_failover",
        "drivers/net/virtio_net",
    ] {
        let path = format!("/usr/lib/uml/modules/{release}/kernel/{module}.ko");
        let file = File::open(&path).context(path.clone())?;
        finit_module(&file, c"", 0).context(path)?;
    }
    let number = if role == "receiver" { 2 } else { 1 };
    let address = format!("10.9.0.{number}/24");
    for arguments in [
        vec!["link", "set", "lo", "up"],
        vec!["link", "set", "eth0", "up"],
        vec!["addr", "add", &address, "dev", "eth0"],
    ] {
        let status = Command::new("/sbin/ip").args(&arguments).status()?;
        ensure!(status.success(), "ip {}", arguments.join(" "));
    }
    Ok(())
}

/// Counts datagrams, and checks the stream, which comes after them.
fn receive() -> anyhow::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:7001")?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let listener = TcpListener::bind("0.0.0.0:7000")?;
    println!("ready");
    let ends = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ends);
    let counter = thread::spawn(move || count(&socket, &asked));
    let (mut stream, _) = listener.accept()?;
    let (mut total, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let bytes = stream.read(&mut buffer)?;
        if bytes == 0 {
            break;
        }
        let right = |(at, &byte): (usize, &u8)| byte == (total + at) as u8;
        let all = buffer[..bytes].iter().enumerate().all(right);
        ensure!(all, "wrong bytes at {total}");
        total += bytes;
    }
    ends.store(true, Ordering::Relaxed);
    let (datagrams, late) = counter.join().expect("counts")?;
    let full = socket_drops()?;
    Ok(format!("{total} {datagrams} {late} {full}"))
}

/// Datagrams that came, and those of them that came after a later one.
fn count(socket: &UdpSocket, ends: &AtomicBool) -> anyhow::Result<(u32, u32)> {
    let (mut next, mut came, mut late) = (0, 0, 0);
    let mut bytes = [0; 2000];
    loop {
        let Ok(received) = socket.recv(&mut bytes) else {
            if ends.load(Ordering::Relaxed) {
                return Ok((came, late));
            }
            continue;
        };
        ensure!(received >= 4, "a short datagram");
        let number = u32::from_le_bytes(bytes[..4].try_into()?);
        late += u32::from(number < next);
        next = number + 1;
        came += 1;
    }
}

/// Datagrams that this kernel dropped since a socket was full.
fn socket_drops() -> anyhow::Result<u32> {
    let text = std::fs::read_to_string("/proc/net/snmp")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next(), lines.next());
    let (names, values) = names.zip(values).context("no counters of UDP")?;
    let mut both = names.split(' ').zip(values.split(' '));
    let found = both.find(|&(name, _)| name == "RcvbufErrors");
    Ok(found.context("no RcvbufErrors")?.1.parse()?)
}

fn send() -> anyhow::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("10.9.0.2:7001")?;
    // Datagrams before the neighbour is known would meet the bound of its queue.
    let mut stream = TcpStream::connect("10.9.0.2:7000")?;
    let start = Instant::now();
    for number in 0..DATAGRAMS {
        let mut bytes = [0; 200];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        socket.send(&bytes)?;
    }
    let bytes: Vec<u8> = (0..STREAM).map(|at| at as u8).collect();
    stream.write_all(&bytes)?;
    stream.shutdown(Shutdown::Write)?;
    // The receiver closes when it has all; this guest may end only then.
    stream.read_to_end(&mut Vec::new())?;
    Ok(format!("sent in {} ms", start.elapsed().as_millis()))
}
