//! Packet counters of interfaces (`/proc/net/dev`).

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};

/// Packets of an interface since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received.
    pub received: u64,
    /// Not received.
    pub receive_drops: u64,
    /// Sent.
    pub sent: u64,
    /// Not sent.
    pub send_drops: u64,
}

/// Those of the calling thread's namespace by name, without the loopback.
///
/// # Errors
/// /proc cannot be read.
pub fn read() -> Result<BTreeMap<String, Counters>> {
    let bytes = fs::read("/proc/thread-self/net/dev").context("/proc/net/dev")?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(parse(&text))
}

/// Of each eight columns the second has packets, the fourth drops.
fn parse(text: &str) -> BTreeMap<String, Counters> {
    let interfaces = text.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let numbers = numbers.split_whitespace();
        let numbers: Vec<u64> = numbers.map_while(|field| field.parse().ok()).collect();
        let counters = Counters {
            received: *numbers.get(1)?,
            receive_drops: *numbers.get(3)?,
            sent: *numbers.get(9)?,
            send_drops: *numbers.get(11)?,
        };
        (name.trim() != "lo").then(|| (name.trim().to_owned(), counters))
    });
    interfaces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_told_apart_and_the_loopback_is_left_out() {
        let text = "Inter-|   Receive  |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop\n\
            \x20 eth0: 100 2 0 3 0 0 0 0 100 5 0 4 0 0 0 0\n\
            \x20   lo: 100 2 0 9 0 0 0 0 100 2 0 9 0 0 0 0\n";
        let eth0 = Counters {
            received: 2,
            receive_drops: 3,
            sent: 5,
            send_drops: 4,
        };
        assert_eq!(parse(text), [("eth0".to_owned(), eth0)].into());
    }
}
