//! The enforcement programs run on packets of our own (`BPF_PROG_TEST_RUN`), at times of our own.

#![allow(unsafe_code)]

use std::net::SocketAddr;

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use sluicegate_agent::{include_object, object, table};
use sluicegate_core::{
    abi::{
        Blackhole, Bucket, BucketKey, COUNTER_NAMES, Config, Flow, FlowKey, HalfOpen, HashKey,
        Interface, Place, PolicyTable, SLOT_LIVE, Slot, TableShape,
    },
    hash::flow_hash,
    host::Direction,
    life,
    path::{Path, Paths},
};

/// `struct __sk_buff`, of which only four fields are set.
const CONTEXT_BYTES: usize = 192;
const CONTEXT_MARK: usize = 8;
const CONTEXT_IFINDEX: usize = 40;
const CONTEXT_TSTAMP: usize = 152;
/// `SG_FACK_MARK`: a copy on its way to become a FACK.
const FACK_MARK: u32 = 0x5347_464b;
/// `SG_TCX_NEXT`.
const NEXT: u32 = u32::MAX;
/// The loopback interface, which every namespace has.
pub const IFINDEX: u32 = 1;

/// Key of a flow of the tenant at that interface.
pub fn key_between(tenant: SocketAddr, remote: SocketAddr) -> FlowKey {
    FlowKey {
        local: tenant.ip().into(),
        remote: remote.ip().into(),
        local_port: tenant.port().to_be(),
        remote_port: remote.port().to_be(),
        ifindex: IFINDEX,
        ..FlowKey::default()
    }
}

/// The kernel runs no program on a frame that ends before its IP header does.
pub fn runs_on(frame: &[u8]) -> bool {
    let ip = match frame.get(12..14) {
        Some([0x08, 0x00]) => 20,
        Some([0x86, 0xdd]) => 40,
        Some(_) => 1,
        None => return false,
    };
    frame.len() >= 14 + ip
}

/// The result of the programs for a frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Made {
    pub passes: bool,
    pub frame: Vec<u8>,
}

/// Slots of the table of flows: few, so that flows meet in it.
pub const SLOTS: u32 = 64;

/// Loaded programs that belong to no interface.
pub struct Kernel(pub Object);

impl Kernel {
    /// Moves the calling thread into a network namespace of its own: FACKs loop over `lo` there.
    pub fn load(policy: &PolicyTable) -> Self {
        Self::load_object(include_object!("enforce"), policy)
    }

    /// The same of another build of the programs.
    pub fn load_object(bytes: &'static [u8], policy: &PolicyTable) -> Self {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a namespace: be root");
        let up = std::process::Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.expect("iproute2 is installed").success());
        let mut open = object::open("vectors", bytes).unwrap();
        object::open_map(&mut open, ".rodata.clock")
            .unwrap()
            .set_initial_value(&1_u32.to_ne_bytes())
            .unwrap();
        object::open_map(&mut open, "flows")
            .unwrap()
            .set_max_entries(SLOTS)
            .unwrap();
        let shape = TableShape {
            mask: SLOTS - 1,
            shift: 32 - SLOTS.ilog2(),
            hash_key: HashKey::FIXED,
        };
        object::open_map(&mut open, ".rodata.shape")
            .unwrap()
            .set_initial_value(bytes_of(&shape))
            .unwrap();
        let kernel = Self(object::load(open, "vectors").unwrap());
        kernel.write("policy", &0_u32, policy);
        kernel.write("config", &0_u32, &Config::default());
        kernel
    }

    pub fn set_policy(&self, policy: &PolicyTable) {
        self.write("policy", &0_u32, policy);
    }

    pub fn set_interface(&self, row: &Interface) {
        self.write("interfaces", &IFINDEX, row);
    }

    pub fn set_place(&self, row: &Place) {
        self.write("places", &IFINDEX, row);
    }

    pub fn set_bucket(&self, bucket: u32, row: &Bucket) {
        let key = BucketKey {
            ifindex: IFINDEX,
            bucket,
        };
        self.write("buckets", &key, row);
    }

    pub fn bucket(&self, bucket: u32) -> Option<Bucket> {
        let key = BucketKey {
            ifindex: IFINDEX,
            bucket,
        };
        self.read("buckets", &key)
    }

    pub fn interface(&self) -> Option<Interface> {
        self.read("interfaces", &IFINDEX)
    }

    pub fn flow(&self, key: &FlowKey) -> Option<Flow> {
        let found: Vec<Slot> = self
            .slots()
            .into_iter()
            .filter(|slot| slot.tag & SLOT_LIVE != 0 && slot.key == *key)
            .collect();
        assert!(found.len() <= 1, "a flow has one slot: {found:#?}");
        let slot = found.first()?;
        // The programs computed the same as the native build.
        assert_eq!(slot.tag, flow_hash(key, &HashKey::FIXED) | SLOT_LIVE);
        Some(slot.flow)
    }

    /// The whole table of flows.
    pub fn slots(&self) -> Vec<Slot> {
        let map = self.map("flows");
        object::check_layout(&map, size_of::<u32>(), size_of::<Slot>()).unwrap();
        // At once: a read for each slot after each frame would take most of the tests' time.
        map.lookup_batch(SLOTS, MapFlags::ANY, MapFlags::ANY)
            .unwrap()
            .map(|(_, bytes)| value_of(&bytes))
            .collect()
    }

    /// As if a program on another CPU had begun (or ended) to change the flow `key`.
    pub fn hold(&self, key: &FlowKey, hold: bool) {
        let (index, mut slot) = (0_u32..)
            .zip(self.slots())
            .find(|(_, slot)| slot.tag & SLOT_LIVE != 0 && slot.key == *key)
            .expect("the flow has a slot");
        assert_eq!(slot.version % 2 == 0, hold, "held once, let go once");
        slot.version += 1;
        self.write("flows", &index, &slot);
    }

    /// Slots that are marked as in use.
    pub fn occupied(&self) -> u32 {
        let words: [u64; 64] = self.read("occupied", &0_u32).expect("an array's entry");
        words.iter().map(|word| word.count_ones()).sum()
    }

    /// As if just loaded, with this policy: to load takes longer than most tests.
    pub fn reset(&self, policy: &PolicyTable) {
        self.forget_flows();
        for name in ["half_open", "crowd", "blackholes", "interfaces"] {
            let map = self.map(name);
            let keys: Vec<Vec<u8>> = map.keys().collect();
            for key in keys {
                map.delete(&key).unwrap();
            }
        }
        let paths = self.map("paths");
        for index in 0..paths.max_entries() {
            paths
                .update(&index.to_ne_bytes(), &[0; 8], MapFlags::ANY)
                .unwrap();
        }
        let cpus = libbpf_rs::num_possible_cpus().unwrap();
        let zeros = vec![vec![0; COUNTER_NAMES.len() * 8]; cpus];
        self.map("counters")
            .update_percpu(bytes_of(&0_u32), &zeros, MapFlags::ANY)
            .unwrap();
        self.set_policy(policy);
    }

    /// Forgets every flow.
    pub fn forget_flows(&self) {
        self.run("forget_flows", &[0; 64], 0, 0);
    }

    /// What the flows to this one's peer have met.
    pub fn path(&self, key: &FlowKey) -> Path {
        let place = u32::from(Paths::new(HashKey::FIXED).place(key));
        self.read("paths", &place).expect("an array's entry")
    }

    /// What is at the place for this one's peer; zeros without anything.
    pub fn blackhole(&self, key: &FlowKey) -> Blackhole {
        let place = life::blackhole_key(key);
        self.read("blackholes", &place).unwrap_or_default()
    }

    pub fn half_open(&self, key: &FlowKey) -> Option<HalfOpen> {
        self.read("half_open", key)
    }

    /// Removes all entries of a map.
    pub fn clear(&self, map: &str) {
        let map = self.map(map);
        for key in map.keys() {
            map.delete(&key).unwrap();
        }
    }

    /// Summed over CPUs, in the order of [`COUNTER_NAMES`].
    pub fn counters(&self) -> [u64; COUNTER_NAMES.len()] {
        let map = self.map("counters");
        let values = map
            .lookup_percpu(bytes_of(&0_u32), MapFlags::ANY)
            .unwrap()
            .expect("an array's slot");
        let mut sum = [0; COUNTER_NAMES.len()];
        for of_cpu in values {
            for (total, bytes) in sum.iter_mut().zip(of_cpu.chunks_exact(8)) {
                *total += u64::from_ne_bytes(bytes.try_into().unwrap());
            }
        }
        sum
    }

    /// One frame that the kernel [`runs_on`].
    pub fn frame(&self, frame: &[u8], direction: Direction, now_ns: u64) -> Made {
        let program = match direction {
            Direction::FromTenant => "from_tenant",
            Direction::ToTenant => "to_tenant",
        };
        self.run(program, frame, now_ns, 0)
    }

    /// The result for the copy of a frame that was just sent.
    pub fn fack(&self, frame: &[u8], now_ns: u64) -> Made {
        self.run("from_tenant", frame, now_ns, FACK_MARK)
    }

    /// The value that one of the agent's own programs returns.
    pub fn call(&self, program: &str) -> i32 {
        self.returned(program, &[0; 64], 0, 0).0 as i32
    }

    /// Starts the timer that collects silent flows, as the agent does.
    pub fn begin_sweeping(&self) -> anyhow::Result<()> {
        table::begin_sweeping(|| Ok(self.call("begin_sweeping")))
    }

    fn run(&self, program: &str, frame: &[u8], now_ns: u64, mark: u32) -> Made {
        let (value, frame) = self.returned(program, frame, now_ns, mark);
        Made {
            passes: value == NEXT,
            frame,
        }
    }

    fn returned(&self, program: &str, frame: &[u8], now_ns: u64, mark: u32) -> (u32, Vec<u8>) {
        let mut context = [0; CONTEXT_BYTES];
        context[CONTEXT_MARK..][..4].copy_from_slice(&mark.to_ne_bytes());
        context[CONTEXT_IFINDEX..][..4].copy_from_slice(&IFINDEX.to_ne_bytes());
        context[CONTEXT_TSTAMP..][..8].copy_from_slice(&now_ns.to_ne_bytes());
        let mut out = vec![0; frame.len() + 64];
        let run = object::program(&self.0, program)
            .unwrap()
            .test_run(ProgramInput {
                context_in: Some(&mut context),
                data_in: Some(frame),
                data_out: Some(&mut out),
                ..ProgramInput::default()
            })
            .expect("the programs run");
        (run.return_value, run.data.expect("there is data").to_vec())
    }

    pub fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        self.0
            .maps()
            .find(|map| map.name() == name)
            .expect("the object's map")
    }

    pub fn write<K: Copy, V: Copy>(&self, map: &str, key: &K, value: &V) {
        let map = self.map(map);
        object::check_layout(&map, size_of::<K>(), size_of::<V>()).unwrap();
        map.update(bytes_of(key), bytes_of(value), MapFlags::ANY)
            .unwrap();
    }

    pub fn read<K: Copy, V: Copy>(&self, map: &str, key: &K) -> Option<V> {
        let map = self.map(map);
        object::check_layout(&map, size_of::<K>(), size_of::<V>()).unwrap();
        let bytes = map.lookup(bytes_of(key), MapFlags::ANY).unwrap()?;
        Some(value_of(&bytes))
    }
}

/// The mirror that these bytes are.
fn value_of<T: Copy>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: mirrors of C structures, numbers only, of just this size.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
}

/// A mirror's bytes.
fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the mirrors are numbers without padding, so every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}
