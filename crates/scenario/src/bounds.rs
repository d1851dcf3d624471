//! The least and the most of every number of the language, each with its reason. Numbers are read
//! through these, and `docs/bounds.md` is made from them.

use std::time::Duration;

use sluicegate_config::bound::{Bound, Bytes, Quantity, Rate};
use sluicegate_program::RANKS_MAX;

use crate::ports::{FIRST_PORT, LAST_PORT};

/// Most hosts: tenants have addresses in 10.0.0.0/8 and 11.0.0.0/8, of which two bytes are the
/// host's.
pub const HOSTS_MAX: u32 = 131_070;

/// Most operations of a generated program.
const OPERATIONS_MAX: u64 = 100_000_000;

/// Smallest MTU over IPv4 in bytes: headers of IP and TCP (40), all options (40), and the 8 bytes
/// of data that Linux leaves a segment at least (`tcp_min_snd_mss`). IPv4 itself allows 68, into
/// which an acknowledgement with SACK blocks does not fit.
const MTU_MIN_V4: i64 = 88;

/// Largest MTU in bytes: jumbo frames end at 9000 or a little above.
const MTU_MAX: i64 = 16_000;

/// Numbers that have 32 bits.
const U32_MAX: i64 = u32::MAX as i64;

macro_rules! bounds {
    ($($name:ident: $kind:ty = [$($key:literal),+ $(,)?], $least:expr, $most:expr, $reason:literal;)+) => {
        $(pub const $name: Bound<$kind> = Bound {
            keys: &[$($key),+],
            least: $least,
            most: $most,
            reason: $reason,
        };)+

        /// By name, the keys and the row of each.
        #[cfg(test)]
        fn all() -> Vec<(&'static str, &'static [&'static str], String)> {
            vec![$((stringify!($name), $name.keys, $name.row())),+]
        }
    };
}

bounds! {
    SEED: i64 = ["seed"], 0, i64::MAX, "integers of TOML have 64 bits";
    REPEATS: i64 = ["repeats", "sweep.repeat"], 1, 10_000,
        "the results of all runs are held in memory";

    CHAIN: i64 = ["extends", "variant.NAME.like"], 0, 8,
        "files, or variants, one below the other: more are a circle";
    CELLS: i64 = ["sweep.axis"], 1, 100_000,
        "combinations: more are likelier a typing error than an intention";

    HOSTS: i64 = ["network.hosts"], 1, HOSTS_MAX as i64, "there are addresses for 131070 hosts";
    PAIRS: i64 = ["network.pairs"], 1, HOSTS_MAX as i64 / 2,
        "two hosts each; there are addresses for 131070";
    SENDERS: i64 = ["network.senders"], 2, 4096,
        "each of as many switches has a route to each host";
    DEGREE: i64 = ["network.children", "network.parents", "network.k", "network.external"],
        1, HOSTS_MAX as i64, "there are addresses for 131070 hosts";
    LEVELS: i64 = ["network.n"], 1, 16, "with k = 2, 17 levels have more hosts than addresses";
    TENANTS_PER_HOST: i64 = ["network.tenants_per_host"], 1, 254,
        "the last byte of an address, which is neither 0 nor 255";
    IP: i64 = ["network.ip"], 4, 6, "versions of IP: 4 or 6";
    MTU: i64 = ["network.mtu"], MTU_MIN_V4, MTU_MAX,
        "over IPv4: all headers and options take 80 of 88; jumbo frames end";
    MTU_V6: i64 = ["network.mtu"], 1280, MTU_MAX,
        "over IPv6, whose links carry so much (ip = 4: from 88); jumbo frames end";
    ALPHA: f64 = ["network.alpha", "network.cee.alpha"], 2.5e-10, 4e9,
        "beyond, 4 GB leave no byte, or a byte leaves all of 4 GB";
    RATE: Rate = [
        "network.rate", "network.access_rate", "network.link.NAME.rate", "network.links[].rate",
        "network.host_switch.receive_rate", "network.cee.qcn.min_rate",
        "network.cee.qcn.active_increase", "network.cee.qcn.hyper_increase",
        "tenant.NAME.read_rate", "traffic.NAME.drain", "event[].slow_link.rate",
        "event[].slow_receiver.read_rate",
    ], Rate(100_000), Rate(10_000_000_000_000),
        "a frame of 16000 bytes takes 1.3 s at the least, a byte 0.8 ps at the most";
    FORWARDING: Rate = ["network.host_switch.rate"], RATE.least, Rate::MOST,
        "as of a link, whose most it may exceed; leave it out for no limit";
    SIZE: Bytes = [
        "network.queue", "network.link.NAME.queue", "network.links[].queue",
        "network.shared_buffer", "network.vnic_queue", "network.host_switch.queue",
        "network.host_switch.transmit_ring", "network.host_switch.receive_ring",
        "network.host_switch.arrival_ring", "network.host_switch.uplink_queue",
        "network.cee.port_buffer", "network.cee.memory", "network.cee.adapter_buffer",
        "network.cee.resequence_buffer", "network.cee.pfc.xoff", "network.cee.pfc.xon",
        "network.cee.pfc.headroom", "network.cee.qcn.set_point", "network.cee.qcn.interval",
        "network.cee.qcn.byte_limit",
    ], Bytes(MTU_MIN_V4 as u64 + 14), Bytes(4_000_000_000),
        "a frame of the least MTU; bytes of queues and inputs have 32 bits";
    MARK: Bytes = [
        "network.marking.k", "network.marking.min", "network.marking.max",
        "network.link.NAME.marking.k", "network.link.NAME.marking.min",
        "network.link.NAME.marking.max", "network.links[].marking.k",
        "network.links[].marking.min", "network.links[].marking.max",
    ], Bytes(0), Bytes(u32::MAX as u64), "for marking, the bytes of a queue have 32 bits";
    PROBABILITY: f64 = [
        "network.bit_error_rate", "network.duplicate_rate", "network.reorder_rate",
        "network.link.NAME.bit_error_rate", "network.link.NAME.duplicate_rate",
        "network.link.NAME.reorder_rate", "network.links[].bit_error_rate",
        "network.links[].duplicate_rate", "network.links[].reorder_rate",
        "network.marking.p_max", "network.link.NAME.marking.p_max", "network.links[].marking.p_max", "event[].impair.bit_error_rate",
        "event[].impair.duplicate_rate", "event[].impair.reorder_rate",
    ], 0.0, 1.0, "a probability";
    WEIGHT: f64 = ["network.marking.weight", "network.link.NAME.marking.weight",
        "network.links[].marking.weight"], 0.0, 1.0,
        "a part of the new length; with 0 the average never moves";
    DELAY: Duration = [
        "network.delay", "network.link.NAME.delay", "network.links[].delay",
        "network.cee.switch_delay", "network.cee.adapter_delay", "network.cee.pfc.response",
        "sim.link_delay", "sim.transmit_delay", "sim.receive_delay", "sim.jitter",
        "sim.jitter_mean", "sim.burst", "sim.start_spread", "sim.wake",
    ], Duration::ZERO, Duration::from_secs(10), "no network delays a packet for longer";

    QCN_WEIGHT: f64 = ["network.cee.qcn.weight"], 0.0, 4e9,
        "from there on only the growth of a queue of 4 GB counts";
    QCN_GAIN: f64 = ["network.cee.qcn.gain"], 0.0, 1.0,
        "a part of the rate; with 0 no rate would fall";
    QCN_MIN_DECREASE: f64 = ["network.cee.qcn.min_decrease"], 0.0, 1.0,
        "what is left of a rate; with 1 no rate would fall";
    QCN_FAST_RECOVERY: i64 = ["network.cee.qcn.fast_recovery"], 1, U32_MAX,
        "a rate recovers for a cycle at least; 32 bits";
    QCN_TIMER: Duration = ["network.cee.qcn.timer"], Duration::from_micros(1),
        Duration::from_secs(10), "an event of each source every time; no run waits for longer";
    PRIORITY: i64 = ["network.cee.qcn.notification_priority", "traffic.NAME.priority"], 0, 7,
        "a tag of IEEE 802.1Q has 3 bits for it";
    SHARE: i64 = ["network.cee.ets.classes[].share"], 1, 100, "percent; with 0 nothing is sent";

    REHASH_ROUNDS: i64 = ["network.rehash_rounds"], 1, 31,
        "Linux counts them in 5 bits; with 0 every round would change it";
    IDLE_REHASH_ROUNDS: i64 = ["network.idle_rehash_rounds"], 0, 31,
        "Linux counts them in 5 bits; 0 = never";
    GAP: Duration = ["network.flowlet_gap", "network.congestion_timeout"],
        Duration::from_nanos(1), Duration::from_secs(10),
        "with 0 each packet would be late; no run waits for longer";
    PATH_TIMER: Duration = ["network.path_timer"], Duration::from_micros(1),
        Duration::from_secs(10), "an event of each source every time; no run waits for longer";

    TIMEOUT: Duration = ["tenant.NAME.rto_initial", "tenant.NAME.rto_min"],
        Duration::from_micros(1), Duration::MOST, "a timeout of 0 would send without end";
    OFFLOAD_SEGMENTS: i64 = ["tenant.NAME.offload_segments"], 1, 44,
        "64 KB at an MTU of 1500, as much as an IP packet holds";
    RECEIVE_BUFFER: Bytes = ["tenant.NAME.receive_buffer"], Bytes(MTU_MIN_V4 as u64 - 40),
        Bytes::MOST, "a full segment must fit: what the MTU leaves";

    PORT: i64 = ["traffic.NAME.port"], FIRST_PORT as i64, LAST_PORT as i64,
        "services listen below; Linux hands out those above to clients";
    CONNECTIONS: i64 = ["traffic.NAME.connections"], 1, (LAST_PORT - FIRST_PORT) as i64 + 1,
        "each has a port of its receiver, of 1024 to 32767";
    PARALLEL: i64 = ["traffic.NAME.parallel", "traffic.NAME.concurrent"], 1, U32_MAX,
        "32 bits; more than there are receivers are as many as those";
    BYTES: Bytes = ["traffic.NAME.bytes", "traffic.NAME.request"], Bytes(1),
        Bytes(1_000_000_000_000),
        "nothing is sent in 0; sums of all hosts fit 64 bits";
    PROGRAM_BYTES: Bytes = ["traffic.NAME.size", "traffic.NAME.eager"], Bytes(0), BYTES.most,
        "sums of all ranks fit 64 bits";
    DATAGRAM: Bytes = ["traffic.NAME.bytes"], Bytes(1), Bytes(MTU_MAX as u64 - 28),
        "what the MTU leaves: datagrams are not fragmented";
    SOCKET_BUFFER: Bytes = ["traffic.NAME.socket_buffer"], Bytes(MTU_MAX as u64), Bytes(1 << 40),
        "a datagram of the largest MTU; more is as good as no bound";
    BURST: Bytes = ["traffic.NAME.burst"], Bytes(1), Bytes(1_000_000_000),
        "its datagrams may all be made at one time, and held in memory";
    SPAN: Bytes = ["traffic.NAME.span"], Bytes(1), Bytes(1 << 30),
        "a window of TCP has 30 bits (RFC 7323)";
    QUERIES: i64 = ["traffic.NAME.queries"], 1, 2_000_000,
        "all are drawn before the run, and held in memory";
    INTRA_RACK: f64 = ["traffic.NAME.intra_rack"], 0.0, 1.0, "a part of all messages";
    SIGMA: f64 = ["traffic.NAME.arrivals.sigma"], 0.0, 10.0,
        "the mean is e^(sigma²/2) medians, e^50 at the end";
    SEVERITY: f64 = ["traffic.NAME.severity"], 0.0, 1.4e13,
        "above 1, or all is served; 131070 hosts of 10Tbit on 100Kbit";
    HOT_DEGREE: f64 = ["traffic.NAME.degree"], 0.0, 100.0, "percent of all sources, above 0";

    RANKS: i64 = [
        "traffic.NAME.ranks", "traffic.NAME.grid", "traffic.NAME.training.data",
        "traffic.NAME.training.tensor", "traffic.NAME.training.pipeline",
    ], 1, RANKS_MAX as i64, "a program has up to 65536 ranks";
    DISTANCE: i64 = ["traffic.NAME.distance"], 1, RANKS_MAX as i64 - 1,
        "to another rank, of as many as there are";
    ITERATIONS: i64 = ["traffic.NAME.iterations"], 1, 1_000_000,
        "all are held in memory, also those that send nothing";
    NAS_SCALE: f64 = ["traffic.NAME.nas.scale"], 1e-6, 1e6,
        "beyond, messages vanish, or sums of their bytes pass 64 bits";
    PARAMETERS: f64 = ["traffic.NAME.training.parameters"], 1.0, 1e15,
        "gradients of 8 bytes stay below 2^53 bytes, and exact";
    FLOPS: f64 = ["traffic.NAME.training.flops"], 1.0, 2e33,
        "above, the largest pass of all takes less than 1 ns";
    LAYERS: i64 = ["traffic.NAME.training.layers", "traffic.NAME.training.micro_batches"],
        1, OPERATIONS_MAX as i64, "each is an operation at least, of up to 1e8";
    HIDDEN: i64 = ["traffic.NAME.training.hidden"], 1, 10_000_000,
        "times the most tokens and 8 bytes each, it fits 64 bits";
    TOKENS: i64 = ["traffic.NAME.training.tokens"], 1, 1_000_000_000,
        "times the most of `hidden` and 8 bytes, it fits 64 bits";
    OPERATIONS: i64 = ["traffic.NAME.collective", "traffic.NAME.training", "traffic.NAME.nas"],
        0, OPERATIONS_MAX as i64, "operations that are made, all held in memory";
    TRAINING_SCALE: f64 = ["traffic.NAME.training.scale"], 1e-9, 1.0,
        "shortens a step; larger models have larger keys";
}

#[cfg(test)]
mod tests;
