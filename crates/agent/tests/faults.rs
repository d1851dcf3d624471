//! Each call in the programs that the kernel may refuse is refused, one place at a time, while frames pass that
//! reach all of them. A refusal may cost an edit, a flow or a drop that was deserved; never a packet, a byte of its
//! payload, a right checksum or a window, and nothing of it lasts.
//!
//! Needs root.

#![allow(unsafe_code)]

mod kernel;
#[path = "../../core/tests/net/mod.rs"]
mod net;
#[path = "faults/scenario.rs"]
mod scenario;
#[path = "faults/site.rs"]
mod site;

use std::collections::BTreeSet;

use kernel::Kernel;
use net::policy;
use scenario::{Run, Socket};
use site::Site;
use sluicegate_agent::include_object;

/// These are for headers beyond the linear part of a packet, which frames of tests do not have.
const BEYOND_THE_LINEAR_PART: [&str; 2] = ["sg_skb_pull", "sg_skb_append"];

fn load() -> Kernel {
    Kernel::load_object(include_object!("enforce_faults"), &policy())
}

/// The scenario with this place failing; which frames passed, and which places were met.
fn play(kernel: &Kernel, failing: Option<&Site>, all: &[Site]) -> (Vec<bool>, BTreeSet<usize>) {
    let socket = Socket::open();
    let mut run = Run::new(kernel, failing, all);
    run.conversations();
    run.contention();
    run.strangers(&socket);
    run.buckets();
    run.room();
    run.the_agents_own();
    run.silence();
    run.all_is_well_again();
    (run.passes, run.met)
}

#[test]
fn whatever_the_kernel_refuses_packets_pass_intact_and_enforcement_goes_on() {
    let all = site::sites(&load());
    assert!(all.len() > 40, "{all:?}");
    let (rightly, met) = play(&load(), None, &all);
    assert!(rightly.contains(&false), "something deserved to be dropped");
    let missed: Vec<String> = all
        .iter()
        .filter(|site| !met.contains(&site.number))
        .map(Site::to_string)
        .collect();
    assert_eq!(missed.len(), BEYOND_THE_LINEAR_PART.len(), "{missed:#?}");
    let begun = std::time::Instant::now();
    for site in all.iter().filter(|site| met.contains(&site.number)) {
        let kernel = load();
        eprintln!("{site} {:?}", begun.elapsed());
        let (passes, _) = play(&kernel, Some(site), &all);
        assert_eq!(passes.len(), rightly.len());
        for (number, (passed, rightly)) in passes.iter().zip(&rightly).enumerate() {
            assert!(
                *passed || !rightly,
                "{site}: frame {number} of the scenario was dropped for it"
            );
        }
    }
}
