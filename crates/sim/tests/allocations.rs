//! In steady state nothing is allocated.

mod support;

use sluicegate_scenario::{runner, world::Unobserved};
use sluicegate_sim::{Sim, Threads};

/// Allocations of a run of so many milliseconds, and the packets that its bottleneck has sent.
fn run(duration_ms: u32) -> (u64, u64) {
    let text = format!(
        "warmup = '20ms'\nduration = '{duration_ms}ms'\n\
         [network]\ntopology = 'dumbbell'\npairs = 4\nrate = '10Gbit'\n\
         marking = {{ kind = 'threshold', k = '100KB' }}\n\
         [tenant.default]\ncongestion_control = 'dctcp'\necn = true\n\
         [traffic.bulk]\nkind = 'bulk'\n\
         [variant.native]\n\
         [variant.enforced]\n\
         enforcement = {{ hosts = 'all', policy = {{ rule = [{{ algorithm = 'dctcp', mode = 'enforce' }}] }} }}\n"
    );
    let experiment = support::experiment(&text);
    let mut world = Sim {
        threads: Threads::Exactly(1),
    };
    let mut packets = 0;
    let counted = allocation_counter::measure(|| {
        let results = runner::run(&experiment, &mut world, &mut Unobserved).expect("it runs");
        let links = results.variants.iter().flat_map(|variant| &variant.links);
        packets = links.map(|link| link.sent).sum();
    });
    (counted.count_total, packets)
}

/// A message as datagrams is never there as a whole: these would be 680 million.
#[test]
fn a_message_of_a_terabyte_takes_no_memory() {
    let text = "warmup = '0s'\nduration = '5ms'\n[network]\ntopology = 'fat-tree'\n\
        children = [4, 2]\nparents = [1, 2]\nrate = '10Gbit'\n[network.cee.pfc]\n\
        [traffic.p]\nkind = 'program'\ncollective = 'shift'\nsize = '1000GB'\n\
        transport = 'datagrams'\n";
    let experiment = support::experiment(text);
    let mut world = Sim {
        threads: Threads::Exactly(1),
    };
    let mut sent = 0;
    let counted = allocation_counter::measure(|| {
        let results = runner::run(&experiment, &mut world, &mut Unobserved).expect("it runs");
        let links = results.variants.iter().flat_map(|variant| &variant.links);
        sent = links.map(|link| link.sent).sum();
    });
    assert!(sent > 8 * 3_000, "{sent} packets");
    assert!(counted.bytes_max < 100_000_000, "{counted:?}");
}

#[test]
fn a_longer_run_allocates_no_more() {
    let (short, few) = run(60);
    let (long, many) = run(180);
    assert!(many > few + 300_000, "{few} and {many} packets");
    // Samples grow with time; they are counted in hundreds, packets in hundreds of thousands.
    assert!(long < short + 1_000, "{short} and {long} allocations");
}
