//! Each call in the programs that the kernel may refuse is refused, one place at a time, while
//! frames pass that reach all of them. A refusal may cost an edit, a flow or a drop that was
//! deserved; never a packet, a byte of its payload, a right checksum or a window, and nothing of it
//! lasts.
//!
//! Needs root.

#![allow(unsafe_code)]

mod scenario;
mod site;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
};

use kernel::Kernel;
use net::{params, policy, policy_of};
use scenario::{Run, Socket};
use site::Site;
use sluicegate_agent::{include_object, inventory::ProgramInfo};
use sluicegate_core::abi::Params;

use crate::{kernel, net};

/// Three places pull headers that lie beyond the linear part of a packet, where those of frames of
/// tests never are, unless they pretend it.
const UNREACHED: [&str; 3] = ["bpf_skb_pull_data"; 3];

/// Programs in a network namespace of their own, in which a tenant's socket is open.
struct Ground {
    kernel: Kernel,
    socket: Socket,
}

impl Ground {
    fn new() -> Self {
        Self {
            kernel: Kernel::load_object(include_object!("enforce_faults"), &policy()),
            socket: Socket::open(),
        }
    }
}

/// The scenario with this place failing; which frames passed, and which places were met.
fn play(ground: &Ground, failing: Option<&Site>, all: &[Site]) -> (Vec<bool>, BTreeSet<usize>) {
    let mut run = Run::new(&ground.kernel, failing, all);
    run.conversations();
    run.contention();
    run.strangers(&ground.socket);
    run.buckets();
    run.room();
    run.the_agents_own();
    run.silence();
    run.all_is_well_again();
    (run.passes, run.met)
}

#[test]
fn whatever_the_kernel_refuses_packets_pass_intact_and_enforcement_goes_on() {
    let ground = RefCell::new(Ground::new());
    let all = site::sites(&ground.borrow().kernel);
    assert!(all.len() > 40, "{all:?}");
    let (rightly, met) = play(&ground.borrow(), None, &all);
    assert!(rightly.contains(&false), "something deserved to be dropped");
    let missed = all.iter().filter(|site| !met.contains(&site.number));
    let missed: Vec<&Site> = missed.collect();
    assert!(
        missed.iter().map(|site| &site.what).eq(UNREACHED),
        "not reached: {missed:#?}"
    );
    let mut broken = Vec::new();
    for site in all.iter().filter(|site| met.contains(&site.number)) {
        // A timer that runs already does not show that one could not begin.
        if site.what.starts_with("bpf_timer") {
            ground.replace(Ground::new());
        }
        let harm = catch_unwind(AssertUnwindSafe(|| {
            let (passes, _) = play(&ground.borrow(), Some(site), &all);
            assert_eq!(passes.len(), rightly.len());
            for (number, (passed, rightly)) in passes.iter().zip(&rightly).enumerate() {
                assert!(
                    *passed || !rightly,
                    "{site}: frame {number} was dropped for it"
                );
            }
        }));
        if harm.is_err() {
            ground.replace(Ground::new());
            broken.push(site.to_string());
        }
    }
    assert!(broken.is_empty(), "what was said above, by {broken:#?}");
}

/// The flow begins with the MSS that its tenant reads: the rule's, or the peer's where the kernel
/// does not let the option of a SYN or SYN/ACK be written.
#[test]
fn an_mss_that_cannot_be_lowered_is_the_flows() {
    let policy = policy_of(Params {
        mss: 1460,
        ..params()
    });
    let kernel = Kernel::load_object(include_object!("enforce_faults"), &policy);
    let pulls: Vec<Site> = site::sites(&kernel)
        .into_iter()
        .filter(|site| site.what == "bpf_skb_pull_data")
        .collect();
    let mut refused = 0;
    for failing in std::iter::once(None).chain(pulls.iter().map(Some)) {
        for server in [false, true] {
            kernel.reset(&policy);
            site::set_linear(&kernel, failing, 40);
            let before = kernel.counters();
            let (read, flow) = scenario::read_mss(&kernel, server, 8960);
            assert_eq!(
                read, flow.mss,
                "{failing:?}, the tenant is the server: {server}"
            );
            let failed = site::counted(&kernel, &before, "edit_failed");
            assert_eq!(read == 8960, failed > 0, "{failing:?}");
            assert!(read == 8960 || read == 1460, "{read}");
            refused += u32::from(read == 8960);
        }
    }
    // One place, for the SYN of a client and for the SYN/ACK of a server.
    assert_eq!(refused, 2);
}

/// Instructions that the verifier may walk through before it lets a program run: more than was
/// measured (docs/performance.md). The kernel refuses a million.
const BUDGET: [(&str, u32); 6] = [
    ("begin_sweeping", 3_000),
    ("forget_flows", 3_000),
    ("from_tenant", 175_000),
    ("rematch_flows", 115_000),
    ("set_quota", 100),
    ("to_tenant", 260_000),
];

#[test]
fn the_verifier_walks_no_further_than_it_may() {
    let kernel = Kernel::load(&policy());
    let programs = kernel.0.progs_mut().map(|program| {
        let walked = ProgramInfo::of(program.as_fd()).unwrap();
        let name = program.name().to_string_lossy().into_owned();
        (name, walked.verified_instructions)
    });
    let walked: BTreeMap<String, u32> = programs.collect();
    // For docs/performance.md, with --nocapture.
    println!("{walked:?}");
    assert!(
        walked.keys().eq(BUDGET.iter().map(|(name, _)| name)),
        "{walked:?}"
    );
    for (name, most) in BUDGET {
        assert!(
            (1..=most).contains(&walked[name]),
            "{name}, {most} at most: {walked:?}"
        );
    }
}
