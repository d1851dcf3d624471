//! A flood of SYNs, each with a tuple of its own, from a tenant that also has an established flow.
//!
//! Turns of a path with enforcement and of one without, quiet and flooded: what the flood costs the
//! machine, it costs both; what it costs enforced flows beyond that is enforcement's.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    io::Errno,
    net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt},
};
use serde_json::{Value, json};
use sluicegate_agent::{Instance, Options};

use crate::{
    enforced,
    shared::path::{Path, RECEIVER},
};

/// Rounds of four turns each.
const ROUNDS: u64 = 8;
const TURN: Duration = Duration::from_secs(6);
/// The rate at which the established flow's application sends.
const RATE_BYTES_PER_S: u64 = 25_000_000;
const EXCHANGE_BYTES: usize = 64;
/// Between SYNs: what comes in bursts makes queues of its own on a machine of few CPUs.
const NAP: Duration = Duration::from_micros(20);

/// The result of one turn.
struct Turn {
    goodput_bps: f64,
    p99_us: f64,
    syns: u64,
}

pub fn measure(syns: u64) -> Result<Value> {
    let paths = [Path::build("flood")?, Path::build("bare")?];
    let hosts = enforced(&paths[0], &Options::default())?;
    let per_second = syns / ROUNDS * 1_000_000 / TURN.as_micros() as u64;
    let mut turns: [[Vec<Turn>; 2]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (path, of_path) in paths.iter().zip(&mut turns) {
            for (rate, of_rate) in [0, per_second].into_iter().zip(of_path) {
                of_rate.push(turn(path, rate)?);
            }
        }
    }
    let arm = |name: &str, [quiet, flooded]: &[Vec<Turn>; 2]| {
        let ratio = |of: fn(&Turn) -> f64| {
            median(
                flooded
                    .iter()
                    .zip(quiet)
                    .map(|(f, q)| of(f) / of(q))
                    .collect(),
            )
        };
        json!({"path": name,
               "quiet": summary(quiet), "flooded": summary(flooded),
               "goodput_ratio": ratio(|turn| turn.goodput_bps), "p99_ratio": ratio(|turn| turn.p99_us)})
    };
    Ok(
        json!({"arms": [arm("enforced", &turns[0]), arm("no programs", &turns[1])],
              "host": told(&hosts[0])?}),
    )
}

fn summary(turns: &[Turn]) -> Value {
    json!({"goodput_bps": median(turns.iter().map(|turn| turn.goodput_bps).collect()),
           "p99_us": median(turns.iter().map(|turn| turn.p99_us).collect()),
           "syns": turns.iter().map(|turn| turn.syns).sum::<u64>()})
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Counters that the flood may move, and what the host knows of flows after it.
fn told(instance: &Instance) -> Result<Value> {
    let counters = instance.counters()?;
    Ok(
        json!({"flows": instance.raw_flows()?.len(), "syns_seen": counters["peer_offered"], "table_full": counters["table_full"],
              "quota": counters["quota"], "policed": counters["policed"]}),
    )
}

/// A paced flow, exchanges on another, and so many SYNs a second, all from the tenant a.
fn turn(path: &Path, syns_per_second: u64) -> Result<Turn> {
    let (done, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut paced, paced_far) = connection(path)?;
    let (mut client, mut server) = connection(path)?;
    let (done, received) = (&done, &received);
    thread::scope(|scope| {
        scope.spawn(move || count(paced_far, received));
        scope.spawn(move || {
            let mut buffer = [0; EXCHANGE_BYTES];
            while server.read_exact(&mut buffer).is_ok() && server.write_all(&buffer).is_ok() {}
        });
        let sender = scope.spawn(move || send_paced(&mut paced, done));
        let flood = scope.spawn(move || path.within("a", || flood(syns_per_second, done)));
        let exchanges = exchange(&mut client);
        done.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        let sent_for = joined(sender)??;
        let syns = joined(flood)??;
        let mut times_us = exchanges?;
        times_us.sort_by(f64::total_cmp);
        let p99_us = times_us[times_us.len() * 99 / 100];
        drop(client);
        let seconds = (sent_for + begun.elapsed()).as_secs_f64();
        Ok(Turn {
            goodput_bps: received.load(Ordering::Relaxed) as f64 * 8.0 / seconds,
            p99_us,
            syns,
        })
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("a thread died"))
}

fn connection(path: &Path) -> Result<(TcpStream, TcpStream)> {
    let listener = path.within("b", || Ok(TcpListener::bind((RECEIVER, 0))?))?;
    let address = listener.local_addr()?;
    let near = path.within("a", || Ok(TcpStream::connect(address)?))?;
    near.set_nodelay(true)?;
    let (far, _) = listener.accept()?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

fn count(mut stream: TcpStream, received: &AtomicU64) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        received.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Returns for how long it sent.
fn send_paced(stream: &mut TcpStream, done: &AtomicBool) -> Result<Duration> {
    let begun = Instant::now();
    let data = vec![0; 1 << 16];
    let mut sent = 0;
    while !done.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_micros() * u128::from(RATE_BYTES_PER_S) / 1_000_000) as u64;
        while sent < due {
            let length = (due - sent).min(data.len() as u64);
            stream.write_all(&data[..length as usize])?;
            sent += length;
        }
        thread::sleep(Duration::from_millis(1));
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(begun.elapsed())
}

/// Times of exchanges in µs, one every two milliseconds, for the length of a turn.
fn exchange(stream: &mut TcpStream) -> Result<Vec<f64>> {
    let (begun, mut buffer) = (Instant::now(), [0; EXCHANGE_BYTES]);
    let mut times_us = Vec::new();
    while begun.elapsed() < TURN {
        let asked = Instant::now();
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        times_us.push(asked.elapsed().as_nanos() as f64 / 1e3);
        thread::sleep(Duration::from_millis(2));
    }
    Ok(times_us)
}

/// SYNs with a tuple each, from addresses that nobody has; returns how many.
fn flood(per_second: u64, done: &AtomicBool) -> Result<u64> {
    let raw =
        socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).context("a raw socket")?;
    sockopt::set_socket_send_buffer_size(&raw, 1 << 20)?;
    let receiver: Ipv4Addr = RECEIVER.parse()?;
    let to: SocketAddr = SocketAddrV4::new(receiver, 0).into();
    let begun = Instant::now();
    let mut sent = 0;
    while !done.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_micros() * u128::from(per_second) / 1_000_000) as u64;
        while sent < due && !done.load(Ordering::Relaxed) {
            let packet = syn(
                sent as u32 ^ begun.elapsed().subsec_nanos().rotate_left(8),
                receiver,
            );
            match sendto(&raw, &packet, SendFlags::empty(), &to) {
                Ok(_) | Err(Errno::NOBUFS | Errno::AGAIN) => sent += 1,
                Err(error) => return Err(error).context("sending a SYN"),
            }
        }
        thread::sleep(NAP);
    }
    Ok(sent)
}

/// An IPv4 packet with a SYN; `number` becomes its source's address and port.
fn syn(number: u32, receiver: Ipv4Addr) -> [u8; 40] {
    let [high, low, port_high, port_low] = number.to_be_bytes();
    let mut packet = [0; 40];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&40u16.to_be_bytes());
    packet[8] = 64;
    packet[9] = 6;
    // The kernel fills in the IP checksum.
    packet[12..16].copy_from_slice(&[172, 16, high, low]);
    packet[16..20].copy_from_slice(&receiver.octets());
    packet[20..24].copy_from_slice(&[port_high | 4, port_low, 0, 9]);
    packet[32] = 0x50;
    packet[33] = 2;
    packet[34..36].copy_from_slice(&[0xff, 0xff]);
    let mut sum = 6 + 20u32;
    for pair in packet[12..].chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    packet
}
