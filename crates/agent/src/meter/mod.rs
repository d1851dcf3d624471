//! The operator's view: everything that the pins of an agent tell, once ([`Snapshot`]) and
//! over time ([`Ledger`]), as text for Prometheus ([`exposition`]), served or not ([`serve`]).
//!
//! ```text
//! pins ──Snapshot──▶ Ledger ──exposition──▶ text ──serve──▶ Prometheus
//!          └─▶ `sluicegate flows`, `top`
//! ```

pub mod amounts;
#[cfg(test)]
mod dashboard;
pub mod exposition;
mod families;
mod help;
mod histogram;
mod ledger;
pub mod ports;
pub mod serve;

use std::collections::BTreeMap;

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;
use sluicegate_core::abi::{self, Bucket, BucketKey, PolicyTable};

pub use self::{
    amounts::{Amounts, FlowId},
    ledger::Ledger,
};
use crate::{
    FlowRecord,
    bpffs::Pins,
    instance::{self, pinned},
    inventory::ProgramInfo,
    object, plain,
    record::{self, Names},
    tcx::{Direction, TcxLink},
};

/// Everything that is known of enforcement in one network namespace at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When, CLOCK_MONOTONIC in ns.
    pub at_ns: u64,
    /// Every flow.
    pub flows: Vec<FlowRecord>,
    /// Counters of the programs since the maps were made, by name.
    pub counters: BTreeMap<String, u64>,
    /// The interfaces on which it enforces.
    pub interfaces: Vec<InterfaceUse>,
    /// Size of the table of flows.
    pub slots: u32,
    /// Their buckets for what has no flow.
    pub buckets: Vec<BucketUse>,
    /// The policy in force.
    pub policy: Box<PolicyTable>,
}

/// How much of the table of flows an interface uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterfaceUse {
    /// Its index.
    pub ifindex: u32,
    /// Its name; `#N` if that is not known any more.
    pub interface: String,
    /// Its tenant: its label, else its name.
    pub tenant: String,
    /// Flows in the table.
    pub flows: u32,
    /// Most that it may have; 0 = no limit.
    pub quota: u32,
}

/// The use of an interface's bucket for packets without a flow: passed, and not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BucketUse {
    /// Name of the interface; `#N` if that is not known any more.
    pub interface: String,
    /// The tenant of the interface: its label, else its name.
    pub tenant: String,
    /// Position in the policy, from 0.
    pub bucket: u32,
    /// Packets beyond the rate are dropped, not only counted.
    pub enforced: bool,
    /// Bytes within the rate.
    pub passed_bytes: u64,
    /// Bytes beyond it.
    pub exceeded_bytes: u64,
    /// Packets beyond it.
    pub exceeded_packets: u64,
}

impl Snapshot {
    /// Reads what is pinned.
    ///
    /// # Errors
    /// Nothing is pinned there, it is of another layout, or no right to open it.
    pub fn read(pins: &Pins, names: &Names) -> Result<Self> {
        Ok(Self {
            at_ns: record::monotonic_ns(),
            flows: instance::pinned_flows(pins, names)?,
            counters: instance::pinned_counters(pins)?,
            interfaces: interfaces(&pinned(pins, "interfaces")?, names)?,
            buckets: buckets(&pinned(pins, "buckets")?, names)?,
            slots: pinned(pins, "flows")?.max_entries(),
            policy: Box::new(instance::pinned_policy(pins)?),
        })
    }
}

fn interfaces(map: &dyn MapCore, names: &Names) -> Result<Vec<InterfaceUse>> {
    object::check_layout(map, size_of::<u32>(), size_of::<abi::Interface>())?;
    let mut found = Vec::new();
    for key in map.keys() {
        // One that was let go of meanwhile is no error.
        let Some(bytes) = map.lookup(&key, MapFlags::ANY)? else {
            continue;
        };
        let row: abi::Interface = plain::value(&bytes)?;
        let ifindex: u32 = plain::value(&key)?;
        let (interface, tenant) = names.of(ifindex);
        found.push(InterfaceUse {
            ifindex,
            tenant,
            interface,
            flows: row.flows,
            quota: row.quota,
        });
    }
    found.sort_by(|a, b| a.interface.cmp(&b.interface));
    Ok(found)
}

fn buckets(map: &dyn MapCore, names: &Names) -> Result<Vec<BucketUse>> {
    object::check_layout(map, size_of::<BucketKey>(), size_of::<Bucket>())?;
    let mut found = Vec::new();
    for key in map.keys() {
        let Some(bytes) = map.lookup(&key, MapFlags::ANY)? else {
            continue;
        };
        let row: Bucket = plain::value(&bytes)?;
        let key: BucketKey = plain::value(&key)?;
        let (interface, tenant) = names.of(key.ifindex);
        found.push(BucketUse {
            tenant,
            interface,
            bucket: key.bucket,
            enforced: row.mode == abi::BUCKET_ENFORCE,
            passed_bytes: row.passed_bytes,
            exceeded_bytes: row.exceeded_bytes,
            exceeded_packets: row.exceeded_packets,
        });
    }
    found.sort_by(|a, b| (&a.interface, a.bucket).cmp(&(&b.interface, b.bucket)));
    Ok(found)
}

/// The kernel's account of the pinned programs; those that it does not tell of, for want of a right
/// (CAP_SYS_ADMIN), are missing.
pub fn pinned_programs(pins: &Pins) -> Vec<ProgramInfo> {
    let mut found: Vec<ProgramInfo> = Vec::new();
    for index in pins.interfaces() {
        for direction in [Direction::Ingress, Direction::Egress] {
            let program = TcxLink::open(&pins.link(index, direction))
                .and_then(|link| Ok(link.link().info()?.prog_id))
                .and_then(ProgramInfo::of_id);
            if let Ok(program) = program {
                if !found.iter().any(|known| known.id == program.id) {
                    found.push(program);
                }
            }
        }
    }
    found
}
