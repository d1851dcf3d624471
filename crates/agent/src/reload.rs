//! Another policy in place of the one in force, without a gap, touching only flows whose rule
//! changed.
//!
//! ```text
//!  write the policy that is not in force ─▶ interfaces know its rules ─▶ put it in force
//!      ─▶ flows whose rule is gone, or that an earlier rule now covers, are decided anew
//! ```
//!
//! A flow refers to the slot of its rule. Rules with the same conditions keep their slots, so that
//! other parameters reach their flows by themselves, and flows of rules that did not change notice
//! nothing.

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags};
use sluicegate_core::abi::{BUCKETS_MAX, Bucket, BucketKey, Config, Place, PolicyTable, Scope};
use sluicegate_policy::{Change, Class, Policy};

use crate::{
    instance::{Instance, read_slot},
    maps,
    plain::{self, Plain},
    table,
};

/// How often and after what pause the part of the table with a slot in use is gone through again.
const REMATCH_TRIES: u32 = 100;
const REMATCH_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Rules of the data plane that were added, altered or removed.
    pub changes: Vec<Change>,
    /// Flows that another rule decides now, or none.
    pub rematched: u64,
}

impl Instance {
    /// Puts `policy` in force.
    ///
    /// # Errors
    /// The kernel refused; the policy before, or where that went well already this one, is in
    /// force.
    pub fn reload(&mut self, policy: &Policy) -> Result<Reloaded> {
        let mut config: Config = self.read("config", 0)?;
        let current: PolicyTable = self.read("policy", config.active)?;
        let (table, changes) = policy.compile_after(&current);
        let next = 1 - config.active.min(1);
        self.write("policy", &next, &*table)?;
        // Rules of both are known at every interface before and after the switch.
        self.write_places(policy, &table, true)?;
        config.active = next;
        config.bare = policy.charges(Class::BareTcp).into();
        self.write("config", &0u32, &config)?;
        self.remember_policy(policy);
        let rematched = self.rematch()?;
        self.write_places(policy, &table, false)?;
        Ok(Reloaded { changes, rematched })
    }

    /// Tells every attached interface which rules hold there, and gives it its buckets. With
    /// `both`, rules that held so far go on holding.
    fn write_places(&self, policy: &Policy, table: &PolicyTable, both: bool) -> Result<()> {
        for (index, attached) in self.attached() {
            let mut scope = policy.scope(table, &attached.name, &attached.tenant);
            if both {
                self.write_buckets(policy, index)?;
                // None yet where an earlier agent was killed in the middle of its start.
                let before: Option<Place> = self.read_if_any("places", index)?;
                let before = before.map_or_else(Scope::default, |place| place.scope);
                for (word, old) in scope.word.iter_mut().zip(before.word) {
                    *word |= old;
                }
            }
            let place = (
                attached.name.as_str(),
                attached.tenant.as_str(),
                attached.netns_id,
            );
            self.write_place(policy, index, place, scope)?;
        }
        Ok(())
    }

    /// Writes the consequences of the policy for one interface: its name, its tenant and the
    /// namespace of its other end. Its buckets are written before that.
    pub(crate) fn write_place(
        &self,
        policy: &Policy,
        index: u32,
        (name, tenant, netns): (&str, &str, i32),
        scope: Scope,
    ) -> Result<()> {
        let place = Place {
            scope,
            bucket: policy.buckets_at(name, tenant),
            netns,
            pad: 0,
        };
        self.write("places", &index, &place)
    }

    /// The interface's buckets as the policy has them; what they have counted stays.
    pub(crate) fn write_buckets(&self, policy: &Policy, ifindex: u32) -> Result<()> {
        let map = self.map("buckets")?;
        for (bucket, rule) in (0..).zip(&policy.buckets) {
            let key = BucketKey { ifindex, bucket };
            let wanted = rule.compile();
            let found = map.lookup(plain::bytes(&key), MapFlags::ANY)?;
            let found: Bucket = match found {
                Some(bytes) => plain::value(&bytes)?,
                None => Bucket::default(),
            };
            let row = Bucket {
                ps_per_byte: wanted.ps_per_byte,
                burst_ns: wanted.burst_ns,
                mode: wanted.mode,
                ..found
            };
            if row != found {
                map.update(plain::bytes(&key), plain::bytes(&row), MapFlags::ANY)
                    .context("writing map buckets")?;
            }
        }
        self.forget_buckets(ifindex, policy.buckets.len() as u32)
    }

    /// Removes the interface's buckets from number `first` on.
    pub(crate) fn forget_buckets(&self, ifindex: u32, first: u32) -> Result<()> {
        let map = self.map("buckets")?;
        (first..BUCKETS_MAX as u32)
            .try_for_each(|bucket| maps::delete(&map, plain::bytes(&BucketKey { ifindex, bucket })))
    }

    /// Decides anew every flow whose rule is not the one that the policy in force names.
    pub(crate) fn rematch(&self) -> Result<u64> {
        let before = self.counter("rule_changed")?;
        let slots = self.map("flows")?.max_entries();
        'parts: for part in 0..table::parts(slots) {
            for _ in 0..REMATCH_TRIES {
                if self.run("rematch_flows", 0, part)? == 0 {
                    continue 'parts;
                }
                std::thread::sleep(REMATCH_PAUSE);
            }
            bail!("some flows keep their old rules: their slots are in use all the time");
        }
        Ok(self.counter("rule_changed")?.saturating_sub(before))
    }

    fn counter(&self, name: &str) -> Result<u64> {
        let counters = self.counters()?;
        counters
            .get(name)
            .copied()
            .with_context(|| format!("no counter {name}"))
    }

    /// One entry of a map, if it has it.
    fn read_if_any<V: Plain>(&self, map: &str, key: u32) -> Result<Option<V>> {
        let found = self
            .map(map)?
            .lookup(plain::bytes(&key), MapFlags::ANY)
            .with_context(|| format!("reading map {map}"))?;
        found.map(|bytes| plain::value(&bytes)).transpose()
    }

    /// One entry of a map.
    pub(crate) fn read<V: Plain>(&self, map: &str, key: u32) -> Result<V> {
        read_slot(&self.map(map)?, key)
    }
}
