//! One enforcement instance: the programs and maps of one host, and where they are attached.
//!
//! ```text
//! policy ──load──▶ Instance ──attach(interface)──▶ from_tenant at ingress, to_tenant at egress
//!                     │ flows, counters                of the host side of a tenant's interface
//! ```
//!
//! An instance belongs to one network namespace, since flows are keyed by interface index. It
//! detaches when it is dropped, unless it was given a place to pin what it makes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::AsFd,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, OpenObject, ProgramInput, query::LinkInfo};
use sluicegate_core::abi::{
    self, COUNTER_NAMES, Config, Flow, FlowKey, HashKey, Params, PolicyTable, Sweeper,
};
use sluicegate_policy::{Class, Policy};

use crate::{
    bpffs::Pins,
    include_object,
    interfaces::{self, Interface},
    inventory::{Inventory, ProgramInfo},
    maps, object,
    plain::{self, Plain},
    record::{self, FlowRecord, Names},
    table,
    takeover::{self, Takeover},
    tcx::{Direction, TcxLink},
};

/// Value of the `counters` map on one CPU (`struct sg_counters`).
type Counters = [u64; COUNTER_NAMES.len()];

/// Programs of the object: at ingress and at egress of a tenant's interface.
pub const PROGRAMS: [&str; 2] = ["from_tenant", "to_tenant"];

/// Maps that outlive an agent.
pub(crate) const PINNED_MAPS: [&str; 11] = [
    "policy",
    "config",
    "flows",
    "occupied",
    "sweeper",
    "half_open",
    "remembered",
    "interfaces",
    "places",
    "buckets",
    "counters",
];

/// How often and after what pause a slot in use is tried again.
const FORGET_TRIES: u32 = 100;
const FORGET_PAUSE: Duration = Duration::from_millis(1);

/// `struct __sk_buff`, of which only the mark and the priority are set.
const SKB_CONTEXT_BYTES: usize = 192;
const SKB_CONTEXT_MARK: usize = 8;
const SKB_CONTEXT_PRIORITY: usize = 32;

/// Size of the table of flows, unless told otherwise.
pub const FLOWS_DEFAULT: u32 = 65_536;

/// How to load.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the table of flows, rounded up to a power of two. It is full for some flows from
    /// about nine tenths on.
    pub flows_max: u32,
    /// When flows are forgotten.
    pub config: Config,
    /// Most flows of one interface; 0 = no limit but the table's.
    pub interface_quota: u32,
    /// Pin everything here, and take over what is pinned already; `None` = end with this process.
    pub pins: Option<Pins>,
    /// Tenants of interfaces that are taken over, by index; without a name it is that of the
    /// interface.
    pub tenants: BTreeMap<u32, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            flows_max: FLOWS_DEFAULT,
            config: Config::default(),
            interface_quota: 0,
            pins: None,
            tenants: BTreeMap::new(),
        }
    }
}

/// Loaded programs with their maps.
#[derive(Debug)]
pub struct Instance {
    object: Object,
    attached: BTreeMap<u32, Attached>,
    pins: Option<Pins>,
    interface_quota: u32,
    takeover: Takeover,
    /// In force, by which interfaces are judged.
    policy: Policy,
}

/// An interface on which it enforces.
#[derive(Debug)]
pub(crate) struct Attached {
    /// The interface's name.
    pub(crate) name: String,
    /// Its tenant, as policies and reports name it.
    pub(crate) tenant: String,
    /// Id of the network namespace of its other end; below 0 = none known.
    pub(crate) netns_id: i32,
    links: [TcxLink; 2],
}

/// Which program stands where.
const PLACES: [(&str, Direction); 2] = [
    (PROGRAMS[0], Direction::Ingress),
    (PROGRAMS[1], Direction::Egress),
];

impl Instance {
    /// Loads the programs and gives them `policy`. Nothing is attached yet, except what
    /// [`Options::pins`] led to: that now runs these programs.
    ///
    /// # Errors
    /// No right to load, the verifier refused (the error ends with its last words), or the pins
    /// cannot be used. What was pinned before then runs on as it did.
    pub fn load(policy: &Policy, options: &Options) -> Result<Self> {
        let mut open = object::open("sg_enforce", include_object!("enforce"))?;
        let slots = table::slots(options.flows_max);
        size_table(&mut open, slots)?;
        let takeover = match &options.pins {
            Some(pins) => takeover::reuse_maps(&mut open, pins)?,
            None => Takeover::Nothing,
        };
        let kept = options
            .pins
            .as_ref()
            .filter(|_| matches!(takeover, Takeover::Kept { .. }));
        let hash_key = match kept {
            Some(pins) => table::pinned_key(&pinned(pins, "sweeper")?)?,
            None => table::random_key()?,
        };
        shape_table(&mut open, slots, hash_key)?;
        let object = object::load(open, "enforce")?;
        let mut instance = Self {
            object,
            attached: BTreeMap::new(),
            pins: options.pins.clone(),
            interface_quota: options.interface_quota,
            takeover,
            policy: policy.clone(),
        };
        instance.configure(&options.config, policy, kept.is_some())?;
        if kept.is_none() {
            let sweeper = Sweeper {
                hash_key,
                ..Sweeper::default()
            };
            instance.write("sweeper", &0u32, &sweeper)?;
            // Fresh maps have no rule yet: neither packets nor another agent may meet them so.
            instance.reload(policy)?;
        }
        if let Some(pins) = &options.pins {
            if kept.is_none() {
                instance.pin_maps(pins)?;
            } else {
                pins.prepare()?;
            }
            instance.adopt_links(pins, &options.tenants)?;
            instance.drop_stray_rows()?;
        }
        if kept.is_some() {
            // Flows that are kept are decided by where they are, so that interfaces came first.
            instance.reload(policy)?;
        }
        table::begin_sweeping(|| {
            let returned = instance.run("begin_sweeping", 0, 0)?;
            Ok(i32::from_ne_bytes(returned.to_ne_bytes()))
        })?;
        Ok(instance)
    }

    /// Writes when flows are forgotten; the policy in force stays the one that is kept.
    fn configure(&self, wanted: &Config, policy: &Policy, kept: bool) -> Result<()> {
        let mut config = Config {
            active: 0,
            bare: policy.charges(Class::BareTcp).into(),
            ..*wanted
        };
        if kept {
            let before: Config = self.read("config", 0)?;
            config.active = before.active.min(1);
            config.bare = before.bare;
        }
        self.write("config", &0u32, &config)
    }

    /// The fate of the pins of an earlier agent.
    pub fn takeover(&self) -> &Takeover {
        &self.takeover
    }

    /// Attaches to the interface called `name` in the calling thread's network namespace; the
    /// tenant is called like its interface.
    ///
    /// # Errors
    /// There is none, it is attached already, or the kernel refused.
    pub fn attach(&mut self, name: &str) -> Result<()> {
        self.attach_tenant(&interfaces::find(name)?, name)
    }

    /// Attaches to an interface of the calling thread's network namespace. `tenant` is the name of
    /// its tenant in policies and reports.
    ///
    /// # Errors
    /// There is none, it is attached already, or the kernel refused.
    pub fn attach_tenant(&mut self, interface: &Interface, tenant: &str) -> Result<()> {
        let (index, name) = (interface.index, interface.name.as_str());
        ensure!(
            !self.is_attached(index),
            "interface {name} is attached already"
        );
        self.forget_flows(index)?;
        self.write_interface(index)?;
        self.admit(interface, tenant)?;
        match self.attach_links(index) {
            Ok(links) => self.keep(interface, tenant, links),
            Err(error) => {
                // Detaching only covers attached interfaces, so this one has to be undone here.
                if let Err(also) = self.abandon(index) {
                    tracing::warn!("{also:#}");
                }
                Err(error.context(format!("enforcing on interface {name}")))
            }
        }
    }

    fn attach_links(&self, index: u32) -> Result<Vec<TcxLink>> {
        // The first link detaches again if the second fails.
        let mut links = Vec::with_capacity(PLACES.len());
        for (program, direction) in PLACES {
            let program = object::program(&self.object, program)?;
            links.push(TcxLink::attach(&program, index, direction)?);
        }
        if let Some(pins) = &self.pins {
            for (link, (_, direction)) in links.iter_mut().zip(PLACES) {
                let path = pins.link(index, direction);
                Pins::remove(&path)?;
                link.pin(&path)?;
            }
        }
        Ok(links)
    }

    /// Removes the pins of an interface's links and what the maps have of it.
    fn abandon(&self, index: u32) -> Result<()> {
        if let Some(pins) = &self.pins {
            for (_, direction) in PLACES {
                Pins::remove(&pins.link(index, direction))?;
            }
        }
        self.dismiss(index)
    }

    /// Calls an attached interface and its tenant otherwise, which may bring other rules into force
    /// there: how many flows another rule decides now, or none.
    ///
    /// # Errors
    /// It is not attached, or the kernel refused.
    pub fn relabel(&mut self, interface: &Interface, tenant: &str) -> Result<u64> {
        ensure!(
            self.attached.contains_key(&interface.index),
            "interface {} is not attached",
            interface.name
        );
        self.admit(interface, tenant)?;
        let rematched = self.rematch()?;
        // Only now: what has failed is tried again, since it is not called so yet.
        if let Some(attached) = self.attached.get_mut(&interface.index) {
            attached.name.clone_from(&interface.name);
            attached.tenant = tenant.to_owned();
            attached.netns_id = interface.netns_id.unwrap_or(-1);
        }
        Ok(rematched)
    }

    /// Whether an attached interface and its tenant are called so.
    pub fn is_labelled(&self, interface: &Interface, tenant: &str) -> bool {
        self.attached.get(&interface.index).is_some_and(|attached| {
            attached.name == interface.name
                && attached.tenant == tenant
                && attached.netns_id == interface.netns_id.unwrap_or(-1)
        })
    }

    /// Ends enforcement on the interface called `name` and forgets its flows.
    ///
    /// # Errors
    /// As [`Instance::detach_index`].
    pub fn detach(&mut self, name: &str) -> Result<()> {
        let index = self
            .attached
            .iter()
            .find_map(|(index, attached)| (attached.name == name).then_some(*index))
            .with_context(|| format!("interface {name} is not attached"))?;
        self.detach_index(index)
    }

    /// Ends enforcement on the interface that had this index, which may be gone already, and
    /// forgets its flows: no program sees them any more, and others need their slots.
    ///
    /// # Errors
    /// It is not attached, a pin cannot be removed, or slots are in use all the time.
    pub fn detach_index(&mut self, index: u32) -> Result<()> {
        self.attached
            .remove(&index)
            .with_context(|| format!("interface {index} is not attached"))?;
        self.abandon(index)
    }

    /// Forgets what the maps have of an interface.
    fn dismiss(&self, index: u32) -> Result<()> {
        for map in ["interfaces", "places"] {
            maps::delete(&self.map(map)?, plain::bytes(&index))?;
        }
        self.forget_buckets(index, 0)?;
        self.forget_flows(index)
    }

    /// Interfaces on which it enforces: index and name.
    pub fn interfaces(&self) -> BTreeMap<u32, String> {
        self.attached
            .iter()
            .map(|(index, attached)| (*index, attached.name.clone()))
            .collect()
    }

    /// Whether it enforces on the interface with this index.
    pub fn is_attached(&self, index: u32) -> bool {
        self.attached.contains_key(&index)
    }

    /// Tenants of the interfaces on which it enforces, by index.
    pub fn tenants(&self) -> BTreeMap<u32, String> {
        self.attached
            .iter()
            .map(|(index, attached)| (*index, attached.tenant.clone()))
            .collect()
    }

    /// Detaches everywhere and removes the pins: nothing is left in the kernel.
    ///
    /// # Errors
    /// A pin cannot be removed.
    pub fn end(mut self) -> Result<()> {
        self.attached.clear();
        match self.pins.take() {
            Some(pins) => pins.remove_all(),
            None => Ok(()),
        }
    }

    /// Makes it as if just loaded, with another policy: detached, no flows, counters at zero. Much
    /// quicker than to load, which has the verifier walk through the programs again.
    ///
    /// # Errors
    /// It is pinned (others may look at it), or the kernel refused.
    pub fn reset(&mut self, policy: &Policy) -> Result<()> {
        ensure!(self.pins.is_none(), "a pinned instance cannot be reset");
        self.attached.clear();
        self.forget(0)?;
        for name in [
            "half_open",
            "crowd",
            "remembered",
            "blackholes",
            "interfaces",
            "places",
            "buckets",
        ] {
            maps::clear(&self.map(name)?)?;
        }
        maps::zero(&self.map("paths")?)?;
        let cpus = libbpf_rs::num_possible_cpus().context("counting CPUs")?;
        let zeros = vec![plain::bytes::<Counters>(&[0; COUNTER_NAMES.len()]).to_vec(); cpus];
        self.map("counters")?
            .update_percpu(plain::bytes(&0u32), &zeros, MapFlags::ANY)
            .context("writing map counters")?;
        self.reload(policy).map(drop)
    }

    /// Every flow that it knows, ready to be shown.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn flows(&self) -> Result<Vec<FlowRecord>> {
        let names = Names {
            interfaces: self.interfaces(),
            tenants: self.tenants(),
            rules: self.policy.rule_names(),
        };
        let config: Config = self.read("config", 0)?;
        records(
            self.raw_flows()?,
            &self.read("policy", config.active)?,
            &names,
        )
    }

    /// Every flow as the kernel has it: for callers that sample often.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn raw_flows(&self) -> Result<Vec<(FlowKey, Flow)>> {
        table::flows(&self.map("flows")?, &self.map("occupied")?)
    }

    /// Shows every flow as the kernel has it, one after another: a large table takes as much memory
    /// again as it has where all of them are held at once.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn each_flow(&self, show: impl FnMut(&FlowKey, &Flow)) -> Result<()> {
        table::each_flow(&self.map("flows")?, &self.map("occupied")?, show)
    }

    /// Counters since the maps were made, by name, summed over CPUs.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>> {
        counters(&self.map("counters")?)
    }

    /// The kernel's account of the two programs, in the order of [`PROGRAMS`].
    ///
    /// # Errors
    /// The kernel refused.
    pub fn programs(&self) -> Result<Vec<ProgramInfo>> {
        PROGRAMS
            .iter()
            .map(|name| ProgramInfo::of(object::program(&self.object, name)?.as_fd()))
            .collect()
    }

    /// A handle that asks the kernel for [`Instance::programs`] from elsewhere, and also without
    /// the right to find programs by id.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn program_meter(&self) -> Result<Box<dyn Fn() -> Vec<ProgramInfo> + Send>> {
        let mut held = Vec::with_capacity(PROGRAMS.len());
        for name in PROGRAMS {
            let program = object::program(&self.object, name)?;
            held.push(
                program
                    .as_fd()
                    .try_clone_to_owned()
                    .context("holding a program")?,
            );
        }
        Ok(Box::new(move || {
            let infos = held.iter().map(|program| ProgramInfo::of(program.as_fd()));
            infos.filter_map(Result::ok).collect()
        }))
    }

    /// The loaded object, for tests and benchmarks that run its programs on packets of their own.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Ids of everything that it holds in the kernel.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn inventory(&self) -> Result<Inventory> {
        let mut found = Inventory::default();
        for program in self.programs()? {
            found.programs.insert(program.id);
            found.maps.extend(program.map_ids);
        }
        for link in self.attached.values().flat_map(|attached| &attached.links) {
            found
                .links
                .insert(LinkInfo::from_fd(link.link().as_fd())?.id);
        }
        Ok(found)
    }

    pub(crate) fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .with_context(|| format!("the enforcement programs have no map {name}"))
    }

    pub(crate) fn write<K: Plain, V: Plain>(&self, map: &str, key: &K, value: &V) -> Result<()> {
        let found = self.map(map)?;
        object::check_layout(&found, size_of::<K>(), size_of::<V>())?;
        found
            .update(plain::bytes(key), plain::bytes(value), MapFlags::ANY)
            .with_context(|| format!("writing map {map}"))
    }

    fn keep(&mut self, interface: &Interface, tenant: &str, links: Vec<TcxLink>) -> Result<()> {
        let links = <[TcxLink; 2]>::try_from(links)
            .map_err(|_| anyhow!("a tenant's interface has two directions"))?;
        let attached = Attached {
            name: interface.name.clone(),
            tenant: tenant.to_owned(),
            netns_id: interface.netns_id.unwrap_or(-1),
            links,
        };
        self.attached.insert(interface.index, attached);
        Ok(())
    }

    /// Writes the consequences of the policy in force for an interface that is about to be
    /// attached, or has a new name or tenant.
    fn admit(&self, interface: &Interface, tenant: &str) -> Result<()> {
        let config: Config = self.read("config", 0)?;
        let table: PolicyTable = self.read("policy", config.active)?;
        let scope = self.policy.scope(&table, &interface.name, tenant);
        let netns_id = interface.netns_id.unwrap_or(-1);
        self.write_buckets(&self.policy, interface.index)?;
        self.write_place(
            &self.policy,
            interface.index,
            (&interface.name, tenant, netns_id),
            scope,
        )
    }

    /// Interfaces on which it enforces, by index.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (u32, &Attached)> {
        self.attached
            .iter()
            .map(|(index, attached)| (*index, attached))
    }

    pub(crate) fn remember_policy(&mut self, policy: &Policy) {
        self.policy = policy.clone();
    }

    /// Drops what is known of an interface's flows: their packets pass unseen when it is not
    /// attached, and policing by an old edge would stop them for good.
    fn forget_flows(&self, index: u32) -> Result<()> {
        ensure!(index != 0, "no interface has the index 0");
        self.forget(index)
    }

    /// Empties the slots of an interface's flows, 0 = all. A slot may be in use at that moment.
    fn forget(&self, index: u32) -> Result<()> {
        let slots = self.map("flows")?.max_entries();
        'parts: for part in 0..table::parts(slots) {
            for _ in 0..FORGET_TRIES {
                if self.run("forget_flows", index, part)? == 0 {
                    continue 'parts;
                }
                thread::sleep(FORGET_PAUSE);
            }
            bail!("flows cannot be forgotten: their slots are in use all the time");
        }
        Ok(())
    }

    /// Runs one of the programs that are there for the agent. `mark` and `priority` are its
    /// arguments.
    pub(crate) fn run(&self, program: &str, mark: u32, priority: u32) -> Result<u32> {
        let mut context = [0; SKB_CONTEXT_BYTES];
        context[SKB_CONTEXT_MARK..][..4].copy_from_slice(&mark.to_ne_bytes());
        context[SKB_CONTEXT_PRIORITY..][..4].copy_from_slice(&priority.to_ne_bytes());
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&[0; 64]),
            ..ProgramInput::default()
        };
        let output = object::program(&self.object, program)?
            .test_run(input)
            .with_context(|| format!("running program {program}"))?;
        Ok(output.return_value)
    }

    fn write_interface(&self, index: u32) -> Result<()> {
        let row = abi::Interface {
            flows: 0,
            quota: self.interface_quota,
            tenant: index,
            unanswered: 0,
        };
        self.write("interfaces", &index, &row)
    }

    /// Gives an interface that was attached already the quota; its count of flows stays where there
    /// is one.
    fn keep_interface(&self, index: u32) -> Result<()> {
        if self.run("set_quota", index, self.interface_quota)? != 0 {
            self.write_interface(index)?;
        }
        Ok(())
    }

    /// Pins these maps in the place of those that may be pinned there, all of them at once: an
    /// agent that is killed leaves the old ones or the new ones.
    fn pin_maps(&self, pins: &Pins) -> Result<()> {
        let next = pins.prepare()?;
        fs::create_dir(&next).with_context(|| format!("creating {}", next.display()))?;
        for name in PINNED_MAPS {
            let path = next.join(name);
            MapHandle::try_from(&self.map(name)?)
                .and_then(|mut handle| handle.pin(&path))
                .with_context(|| format!("pinning {}", path.display()))?;
        }
        pins.put_in_place(&next)
    }

    /// Pins the maps again where another process has removed the pins; returns whether that was so.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn restore_pins(&self) -> Result<bool> {
        match &self.pins {
            Some(pins) if !pins.try_exist()? => self.pin_maps(pins).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Attached interfaces of which another process has detached a program or removed a pin.
    /// Without the pin, enforcement would end with this agent.
    pub(crate) fn lost(&self) -> Vec<u32> {
        let is_lost = |(index, direction, link): (u32, Direction, &TcxLink)| {
            let pins = self.pins.as_ref();
            matches!(link.ifindex(), Ok(None))
                || pins.is_some_and(|pins| {
                    // One that cannot be asked about is not taken for removed.
                    matches!(pins.link(index, direction).try_exists(), Ok(false))
                })
        };
        let attached = self.attached.iter();
        let lost = attached.filter(|(index, attached)| {
            let links = attached.links.iter().zip(PLACES);
            links
                .map(|(link, (_, direction))| (**index, direction, link))
                .any(is_lost)
        });
        lost.map(|(index, _)| *index).collect()
    }

    /// Puts these programs in the place of those that an earlier agent left attached.
    fn adopt_links(&mut self, pins: &Pins, tenants: &BTreeMap<u32, String>) -> Result<()> {
        let kept = matches!(self.takeover, Takeover::Kept { .. });
        let present = interfaces::list()?;
        for index in pins.interfaces() {
            let interface = present.iter().find(|interface| interface.index == index);
            let interface = interface
                .cloned()
                .unwrap_or_else(|| Interface::nameless(index));
            let tenant = tenants.get(&index).unwrap_or(&interface.name);
            self.keep_interface(index)?;
            if !kept {
                self.admit(&interface, tenant)?;
            }
            match self.adopt(pins, index)? {
                Adopted::Links(links) => self.keep(&interface, tenant, links)?,
                Adopted::Nothing { why } => {
                    let interface = interface.name;
                    tracing::warn!(interface, index, "detached: {why}");
                    self.abandon(index)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets what the maps have of interfaces that are not attached: left by an agent that was
    /// killed in the middle of attaching or letting go.
    fn drop_stray_rows(&self) -> Result<()> {
        let mut known = BTreeSet::new();
        for map in ["interfaces", "places", "buckets"] {
            // Each key is or begins with an index.
            for key in self.map(map)?.keys() {
                known.extend(key.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)));
            }
        }
        known.retain(|index| !self.attached.contains_key(index));
        known.into_iter().try_for_each(|index| self.dismiss(index))
    }

    /// Both links of one interface, with these programs in them.
    fn adopt(&self, pins: &Pins, index: u32) -> Result<Adopted> {
        let nothing = |why: String| Ok(Adopted::Nothing { why });
        let mut links = Vec::with_capacity(PLACES.len());
        for (program, direction) in PLACES {
            let path = pins.link(index, direction);
            let is_there = path.try_exists();
            if !is_there.with_context(|| format!("looking for {}", path.display()))? {
                return nothing(format!(
                    "the last agent left one link of two, {} is missing",
                    path.display()
                ));
            }
            let mut link = TcxLink::open(&path)?;
            match link.ifindex()? {
                Some(found) if found == index => {}
                None => return nothing("its interface is gone, or another has detached it".into()),
                Some(other) => {
                    return nothing(format!(
                        "{} is the link of interface {other}",
                        path.display()
                    ));
                }
            }
            link.replace(&object::program(&self.object, program)?)?;
            links.push(link);
        }
        Ok(Adopted::Links(links))
    }
}

/// What a start takes over at an interface.
enum Adopted {
    Links(Vec<TcxLink>),
    /// The interface is gone, or an earlier agent was killed between its two links.
    Nothing {
        why: String,
    },
}

/// Gives the table of flows its size.
fn size_table(open: &mut OpenObject, slots: u32) -> Result<()> {
    for (map, entries) in [("flows", slots), ("occupied", table::parts(slots))] {
        object::open_map(open, map)?
            .set_max_entries(entries)
            .with_context(|| format!("sizing map {map}"))?;
    }
    Ok(())
}

/// Tells the programs what size their table has, and by which key it hashes.
fn shape_table(open: &mut OpenObject, slots: u32, hash_key: HashKey) -> Result<()> {
    object::open_map(open, ".rodata.shape")?
        .set_initial_value(plain::bytes(&table::shape(slots, hash_key)))
        .context("writing map .rodata.shape")
}

fn records(
    flows: Vec<(FlowKey, Flow)>,
    policy: &PolicyTable,
    names: &Names,
) -> Result<Vec<FlowRecord>> {
    let now_ns = record::monotonic_ns();
    let mut records: Vec<FlowRecord> = flows
        .iter()
        .map(|(key, flow)| FlowRecord::new(key, flow, &policy.slots, names, now_ns))
        .collect();
    records.sort_by(FlowRecord::order);
    Ok(records)
}

/// Flows of an agent in another process, through its pins.
///
/// # Errors
/// Nothing is pinned there, it is of another layout, or no right to open it.
pub fn pinned_flows(pins: &Pins, names: &Names) -> Result<Vec<FlowRecord>> {
    let (policy, now_ns) = (pinned_policy(pins)?, record::monotonic_ns());
    let mut records = Vec::new();
    // Not copied first: that would take as much memory again as the table.
    table::each_flow(
        &pinned(pins, "flows")?,
        &pinned(pins, "occupied")?,
        |key, flow| {
            records.push(FlowRecord::new(key, flow, &policy.slots, names, now_ns));
        },
    )?;
    records.sort_by(FlowRecord::order);
    Ok(records)
}

/// Flows of an agent in another process that `policy` would treat otherwise than the policy in
/// force there: those of rules whose parameters differ. Flows that another rule would decide are
/// not among them.
///
/// # Errors
/// As [`pinned_flows`].
pub fn pinned_altered(pins: &Pins, names: &Names, policy: &Policy) -> Result<Vec<FlowRecord>> {
    let current = pinned_policy(pins)?;
    let (next, _) = policy.compile_after(&current);
    let differs = |slot: usize| {
        let (now, then) = (current.slots[slot].params, next.slots[slot].params);
        let rule_id = now.rule_id;
        now != Params { rule_id, ..then }
    };
    let mut flows = table::flows(&pinned(pins, "flows")?, &pinned(pins, "occupied")?)?;
    flows.retain(|(_, flow)| {
        let slot = usize::from(flow.rule);
        current.slots.len() > slot && differs(slot)
    });
    records(flows, &current, names)
}

/// Counters of an agent in another process, through its pins.
///
/// # Errors
/// As [`pinned_flows`].
pub fn pinned_counters(pins: &Pins) -> Result<BTreeMap<String, u64>> {
    counters(&pinned(pins, "counters")?)
}

/// Loads the programs with an empty policy and lets go of them: what the doctor asks.
///
/// # Errors
/// As [`Instance::load`].
pub fn try_load() -> Result<String> {
    let options = Options {
        flows_max: 1,
        ..Options::default()
    };
    let instance = Instance::load(&Policy::default(), &options)?;
    let verified: Vec<String> = instance
        .programs()?
        .iter()
        .map(|program| {
            format!(
                "{} {} instructions verified",
                program.name, program.verified_instructions
            )
        })
        .collect();
    Ok(verified.join(", "))
}

pub(crate) fn pinned(pins: &Pins, name: &str) -> Result<MapHandle> {
    let path = pins.map(name);
    MapHandle::from_pinned_path(&path).with_context(|| format!("opening {}", path.display()))
}

fn counters(map: &dyn MapCore) -> Result<BTreeMap<String, u64>> {
    object::check_layout(map, size_of::<u32>(), size_of::<Counters>())?;
    let per_cpu = map
        .lookup_percpu(plain::bytes(&0u32), MapFlags::ANY)
        .context("reading map counters")?
        .context("map counters is empty")?;
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for bytes in per_cpu {
        let counters: Counters = plain::value(&bytes)?;
        // The first one counts nothing.
        for (name, value) in COUNTER_NAMES.iter().zip(counters).skip(1) {
            *sums.entry((*name).to_owned()).or_default() += value;
        }
    }
    Ok(sums)
}

pub(crate) fn read_slot<V: Plain>(map: &dyn MapCore, slot: u32) -> Result<V> {
    let bytes = map
        .lookup(plain::bytes(&slot), MapFlags::ANY)?
        .with_context(|| format!("map {} has no entry {slot}", map.name().to_string_lossy()))?;
    plain::value(&bytes)
}

/// The policy in force, of any agent.
///
/// # Errors
/// Nothing is pinned there, or it is of another layout.
pub(crate) fn pinned_policy(pins: &Pins) -> Result<PolicyTable> {
    let config: Config = read_slot(&pinned(pins, "config")?, 0)?;
    read_slot(&pinned(pins, "policy")?, config.active)
}
