//! The table of flows, as `bpf/table.h` lays it out: its size, its hash key, and reading it.

use std::{
    fs::File,
    io::{self, Read},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags};
use sluicegate_core::abi::{
    Flow, FlowKey, HashKey, OCCUPIED_SLOTS, SLOT_LIVE, SLOT_REACH, Slot, Sweeper, TableShape,
};

use crate::{
    object,
    plain::{self, Plain},
};

/// Most slots: 5 GB of them.
const SLOTS_MAX: u32 = 1 << 24;

/// Tries to copy a slot between two packets of its flow.
const READ_TRIES: u32 = 100;

/// How often and after what pause the kernel is asked again for the memory of a timer.
const TIMER_TRIES: u32 = 200;
const TIMER_PAUSE: Duration = Duration::from_millis(10);

/// One entry of the `occupied` map.
type Occupied = [u64; OCCUPIED_SLOTS as usize / 64];

/// Slots of a table for this many flows. A flow that finds the 32 slots from its home on taken has
/// no place, so that a table fills up at about nine tenths.
pub(crate) fn slots(flows_max: u32) -> u32 {
    flows_max
        .clamp(2 * SLOT_REACH, SLOTS_MAX)
        .next_power_of_two()
}

/// Parts of a table with this many slots, each an entry of the `occupied` map and what the kernel
/// looks through at a time.
pub(crate) fn parts(slots: u32) -> u32 {
    slots.div_ceil(OCCUPIED_SLOTS)
}

/// The constants with which the programs of a table with this many slots are loaded.
pub(crate) fn shape(slots: u32, hash_key: HashKey) -> TableShape {
    TableShape {
        mask: slots - 1,
        shift: 32 - slots.ilog2(),
        hash_key,
    }
}

/// A random hash key, which tenants cannot guess.
///
/// # Errors
/// The kernel's random source cannot be read.
pub(crate) fn random_key() -> Result<HashKey> {
    let mut bytes = [0; size_of::<HashKey>()];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("reading /dev/urandom for the hash key of the table of flows")?;
    let mut key: HashKey = plain::value(&bytes)?;
    key.spread |= 1;
    Ok(key)
}

/// The hash key of a table that exists, from its `sweeper` map.
///
/// # Errors
/// The kernel refused.
pub(crate) fn pinned_key(sweeper: &dyn MapCore) -> Result<HashKey> {
    Ok(read::<Sweeper>(sweeper, 0)?.hash_key)
}

/// Every flow in a table, as [`each_flow`] finds them.
///
/// # Errors
/// As [`each_flow`].
pub(crate) fn flows(table: &dyn MapCore, occupied: &dyn MapCore) -> Result<Vec<(FlowKey, Flow)>> {
    let mut found = Vec::new();
    each_flow(table, occupied, |key, flow| found.push((*key, *flow)))?;
    Ok(found)
}

/// Shows every flow in a table, in the order of its slots, each as it was between two packets.
/// Flows that come or go meanwhile may be shown or not.
///
/// # Errors
/// The maps are of another layout, or the kernel refused.
pub(crate) fn each_flow(
    table: &dyn MapCore,
    occupied: &dyn MapCore,
    mut show: impl FnMut(&FlowKey, &Flow),
) -> Result<()> {
    object::check_layout(table, size_of::<u32>(), size_of::<Slot>())?;
    for part in 0..occupied.max_entries() {
        for bit in set_bits(&read(occupied, part)?) {
            let slot = read_slot(table, part * OCCUPIED_SLOTS + bit)?;
            if slot.tag & SLOT_LIVE != 0 {
                show(&slot.key, &slot.flow);
            }
        }
    }
    Ok(())
}

/// A slot that no program was changing while it was copied: copied between two copies of the same
/// even version. One that changes all the time is taken as it is after some tries.
fn read_slot(table: &dyn MapCore, index: u32) -> Result<Slot> {
    let mut before: Slot = read(table, index)?;
    let mut slot: Slot = read(table, index)?;
    for _ in 0..READ_TRIES {
        let after: Slot = read(table, index)?;
        if before.version == after.version && after.version % 2 == 0 {
            break;
        }
        (before, slot) = (slot, after);
    }
    Ok(slot)
}

fn read<V: Plain>(map: &dyn MapCore, index: u32) -> Result<V> {
    let name = map.name().to_string_lossy();
    let bytes = map
        .lookup(plain::bytes(&index), MapFlags::ANY)
        .with_context(|| format!("reading map {name}"))?
        .with_context(|| format!("map {name} has no entry {index}"))?;
    plain::value(&bytes)
}

fn set_bits(words: &Occupied) -> impl Iterator<Item = u32> {
    words.iter().zip(0..).flat_map(|(&word, index)| {
        (0..64)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| index * 64 + bit)
    })
}

/// Starts the timer that collects silent flows; `run` runs the program `begin_sweeping`.
///
/// # Errors
/// `run` failed, or the kernel refused: for 2 s where memory was what it lacked.
pub fn begin_sweeping(mut run: impl FnMut() -> Result<i32>) -> Result<()> {
    let lacks_memory = -libc::ENOMEM;
    let mut begun = run()?;
    for _ in 1..TIMER_TRIES {
        if begun != lacks_memory {
            break;
        }
        thread::sleep(TIMER_PAUSE);
        begun = run()?;
    }
    let error = io::Error::from_raw_os_error(begun.saturating_neg());
    match begun {
        0 => Ok(()),
        _ if begun == lacks_memory => bail!(
            "the kernel has no memory for the timer that collects flows, for 2 s: {error}; start \
             again when it has"
        ),
        _ => bail!(
            "the kernel did not start the timer that collects flows: {error}; see sluicegate doctor"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_powers_of_two_that_hold_what_is_asked_for() {
        assert_eq!(
            [0, 1, 64, 65, 65_536, u32::MAX].map(slots),
            [64, 64, 64, 128, 65_536, 1 << 24]
        );
        assert_eq!([64, 4096, 8192].map(parts), [1, 1, 2]);
        for slots in [64, 65_536, SLOTS_MAX] {
            let shape = shape(slots, HashKey::default());
            assert_eq!(u32::MAX >> shape.shift, shape.mask);
        }
    }

    #[test]
    fn bits_are_slots() {
        let mut words: Occupied = [0; 64];
        (words[0], words[63]) = (0b101, 1 << 63);
        assert_eq!(set_bits(&words).collect::<Vec<_>>(), [0, 2, 4095]);
    }

    #[test]
    fn keys_differ_and_spread_is_odd() {
        let keys = [random_key().unwrap(), random_key().unwrap()];
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|key| key.spread % 2 == 1));
    }

    fn sweeping(answers: &[i32]) -> (Result<()>, usize) {
        let mut asked = 0;
        let begun = begin_sweeping(|| {
            let answer = answers[asked.min(answers.len() - 1)];
            asked += 1;
            Ok(answer)
        });
        (begun, asked)
    }

    #[test]
    fn a_timer_without_memory_is_asked_for_again() {
        let (begun, asked) = sweeping(&[-libc::ENOMEM, -libc::ENOMEM, 0]);
        assert!(begun.is_ok() && asked == 3, "{begun:?} {asked}");
        let (begun, asked) = sweeping(&[-libc::ENOMEM]);
        let said = begun.unwrap_err().to_string();
        assert!(
            asked > 1 && said.contains("Cannot allocate memory"),
            "{said}"
        );
        let (begun, asked) = sweeping(&[-libc::EPERM]);
        let said = begun.unwrap_err().to_string();
        assert!(asked == 1 && said.contains("not permitted"), "{said}");
    }
}
