//! Ends of connections without a kernel, and strangers to them.

use std::{
    net::Ipv4Addr,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{Hostile, honest, options::large_windows};
use crate::{
    frame::{self, ACK, End, PSH, Segment},
    mangle,
    measure::pause,
    net::{Net, Side},
    raw::{Optimist, Sender},
    tap::Tap,
    traffic::{self, Bulk, PORT, Sink},
    worker::Worker,
};

/// Of a connection whose first packet was not read: less than any edge that may be believed of it.
const CONNECTION_BYTES: u32 = 60_000_000;
/// Of it at a time: most of what the bottleneck's queue holds, so that little is lost.
const FLIGHT_BYTES: u32 = 300_000;
const FIRST_PORT: u16 = 20_000;

/// Short connections one after another; `change` does something to each SYN.
fn short_connections(net: &Net, change: fn(&mut Vec<u8>)) -> Result<Hostile> {
    large_windows(net)?;
    let buffers = "4096 16777216 33554432";
    net.sysctl(&Side::Receiver.tenant(1), "net/ipv4/tcp_rmem", buffers)?;
    let far = mangle::carry(&net.receiver, mangle::nothing(), mangle::nothing())?;
    let sink = Sink::start(net, 1)?;
    let useful = Arc::clone(&sink.received);
    let tap = net.sender.host.try_clone()?;
    let sender = Worker::start(move |ending| {
        traffic::hurry();
        let peer = Side::Receiver.end(1, PORT);
        for port in FIRST_PORT.. {
            let near = Side::Sender.end(1, port);
            let Some(mut sender) = Sender::open(&tap, near, peer, ending, change) else {
                return;
            };
            // Once these are acknowledged the connection counts as known.
            sender.begin(2, ending);
            sender.blast(CONNECTION_BYTES, FLIGHT_BYTES, ending);
            sender.reset();
        }
    });
    Ok(Hostile {
        useful,
        prelude: None,
        parts: vec![Box::new(sender), Box::new(sink), Box::new(far)],
    })
}

/// Each SYN has an option of IPv4.
pub fn syn_with_ip_option(net: &Net) -> Result<Hostile> {
    short_connections(net, |syn| frame::insert_ip_options(syn, &[1, 1, 1, 0]))
}

/// Each SYN has 20 bytes behind its IP packet.
pub fn syn_with_trailer(net: &Net) -> Result<Hostile> {
    short_connections(net, |syn| syn.extend([0; 20]))
}

/// The same connections with a SYN that can be read.
pub fn blast(net: &Net) -> Result<Hostile> {
    short_connections(net, |_| ())
}

/// Two segments each time: 233 Mb/s.
const OPTIMISM: Duration = Duration::from_micros(100);

fn optimist(net: &Net, hostile: &Hostile) -> Result<Worker> {
    let tap = net.receiver.host.try_clone()?;
    let useful = Arc::clone(&hostile.useful);
    Ok(Worker::start(move |ending| {
        traffic::hurry();
        let optimist = Optimist {
            tap: &tap,
            near: Side::Receiver.end(1, PORT),
            every: OPTIMISM,
        };
        optimist.run(ending, |bytes| {
            useful.fetch_add(bytes, Ordering::Relaxed);
        });
    }))
}

/// A receiver acknowledges what has not come; its sender is an honest kernel.
pub fn optimistic_receiver(net: &Net) -> Result<Hostile> {
    let [out, back] = honest();
    let near = mangle::carry(&net.sender, out, back)?;
    let mut hostile = Hostile::default();
    let far = optimist(net, &hostile)?;
    let address = Ipv4Addr::from(Side::Receiver.address(1));
    let sender = traffic::Endless::start(net, 1, (address, PORT).into())?;
    hostile.parts = vec![Box::new(sender), Box::new(far), Box::new(near)];
    Ok(hostile)
}

/// The same with a sender that does nothing but send what it may.
pub fn optimistic_pair(net: &Net) -> Result<Hostile> {
    let mut hostile = Hostile::default();
    let far = optimist(net, &hostile)?;
    let tap = net.sender.host.try_clone()?;
    let sender = Worker::start(move |ending| {
        traffic::hurry();
        let (near, far) = (Side::Sender.end(1, FIRST_PORT), Side::Receiver.end(1, PORT));
        if let Some(mut sender) = Sender::open(&tap, near, far, ending, |_| ()) {
            sender.obey(ending);
        }
    });
    hostile.parts = vec![Box::new(sender), Box::new(far)];
    Ok(hostile)
}

/// How long a stranger speaks before what it did is measured.
const SPOOFING: Duration = Duration::from_secs(2);
/// So many frames each millisecond: 200 Mb/s.
const SPOOFED_EACH_MS: u64 = 17;
/// The pair whose name it takes.
pub const VICTIM: usize = 2;

/// Numbers without an order, that are the same each time.
pub fn scrambled(number: u64) -> u32 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as u32
}

/// A stranger sends marked segments in another tenant's name, with any sequence numbers.
fn spoof(net: &Net, honest: &[Bulk], right_checksum: bool) -> Result<Hostile> {
    let mut hostile = Hostile::mangled(net, super::honest(), super::honest())?;
    let tap = net.stranger.try_clone()?;
    let near = stranger(honest[VICTIM - 2].port);
    hostile.prelude = Some(Box::new(move || {
        let (begun, mut sent) = (Instant::now(), 0);
        while begun.elapsed() < SPOOFING {
            while sent < SPOOFED_EACH_MS * begun.elapsed().as_millis() as u64 {
                tap.send(&spoofed(&near, sent, right_checksum));
                sent += 1;
            }
            pause(Duration::from_micros(500))?;
        }
        Ok(())
    }));
    Ok(hostile)
}

/// The victim, at the stranger's interface.
fn stranger(port: u16) -> End {
    End {
        mac: [2, 0, 0, 0, 9, 9],
        ..Side::Sender.end(VICTIM, port)
    }
}

fn spoofed(near: &End, number: u64, right_checksum: bool) -> Vec<u8> {
    let segment = Segment {
        seq: scrambled(number),
        ack: scrambled(!number),
        flags: ACK | PSH,
        window: 500,
        ecn: 3,
        options: &[],
        payload: &[0x66; 1400],
    };
    let mut frame = frame::build(near, &Side::Receiver.end(VICTIM, PORT), &segment);
    if !right_checksum {
        frame[51] ^= 0x55;
    }
    frame
}

/// Spoofed marks with right checksums.
pub fn spoofed_marks(net: &Net, honest: &[Bulk]) -> Result<Hostile> {
    spoof(net, honest, true)
}

/// Spoofed marks with wrong ones.
pub fn spoofed_wrong_sums(net: &Net, honest: &[Bulk]) -> Result<Hostile> {
    spoof(net, honest, false)
}

/// How fast a flood of ACKs is.
#[derive(Clone, Copy)]
pub enum Flood {
    /// 40 000 a second: six times what the bucket lets pass, and no CPU's whole time.
    Paced,
    /// As fast as a thread can.
    Unpaced,
}

/// ACKs that a paced flood sends at once, and how often.
const PACED_ACKS: usize = 64;
const PACED_EVERY: Duration = Duration::from_nanos(64 * 1_000_000_000 / 40_000);

/// A sender that only acknowledges.
pub fn ack_flood(net: &Net, flood: Flood) -> Result<Hostile> {
    flooded(&net.sender.host, &net.receiver.host, Side::Sender, flood)
}

/// The same of a receiver, on the way back.
pub fn ack_flood_back(net: &Net, flood: Flood) -> Result<Hostile> {
    flooded(&net.receiver.host, &net.sender.host, Side::Receiver, flood)
}

fn flooded(tap: &Tap, far: &Tap, side: Side, flood: Flood) -> Result<Hostile> {
    let far = mangle::drain(far)?;
    let tap = tap.try_clone()?;
    let acks: Vec<Vec<u8>> = (0..256).map(|number| bare_ack(side, number)).collect();
    let worker = Worker::start(move |ending| {
        let mut next = Instant::now();
        for few in acks.chunks(PACED_ACKS).cycle() {
            if ending.is_near() {
                return;
            }
            few.iter().for_each(|ack| tap.send(ack));
            if matches!(flood, Flood::Paced) {
                next += PACED_EVERY;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
    });
    Ok(Hostile {
        parts: vec![Box::new(worker), Box::new(far)],
        ..Hostile::default()
    })
}

/// Of one of many connections that do not exist.
fn bare_ack(side: Side, number: u64) -> Vec<u8> {
    let segment = Segment {
        seq: scrambled(number),
        ack: scrambled(!number),
        flags: ACK,
        window: 500,
        options: &[1; 40],
        ..Segment::default()
    };
    let port = FIRST_PORT + number as u16;
    frame::build(&side.end(1, port), &side.other().end(1, PORT), &segment)
}

/// A stranger says that the victim's packets are too large, and that nobody is there.
pub fn icmp_errors(net: &Net, honest: &[Bulk]) -> Result<Hostile> {
    let mut hostile = Hostile::mangled(net, super::honest(), super::honest())?;
    let tap = net.stranger.try_clone()?;
    let port = honest[VICTIM - 2].port;
    let worker = Worker::start(move |ending| {
        for number in 0.. {
            if ending.is_near() {
                return;
            }
            tap.send(&unreachable(port, number));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    hostile.parts.push(Box::new(worker));
    Ok(hostile)
}

/// By turns "fragmentation needed" for 68 bytes and "port unreachable", about a segment with any
/// number.
fn unreachable(port: u16, number: u64) -> Vec<u8> {
    let about = Segment {
        seq: scrambled(number),
        ..Segment::default()
    };
    let victim = Side::Sender.end(VICTIM, port);
    let quoted = frame::build(&victim, &Side::Receiver.end(VICTIM, PORT), &about);
    let mut message = if number % 2 == 0 {
        vec![3, 4, 0, 0, 0, 0, 0, 68]
    } else {
        vec![3, 3, 0, 0, 0, 0, 0, 0]
    };
    message.extend(&quoted[frame::ETHERNET..frame::ETHERNET + 28]);
    frame::icmp(
        &stranger(port),
        &Side::Receiver.end(VICTIM, 0),
        &victim,
        message,
    )
}
