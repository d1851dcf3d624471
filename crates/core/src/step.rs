//! Questions to a policy and to a flow, and counting, for callers with tables of their own: the
//! safe face of `c/native_step.c`. The steps themselves are in [`crate::life`].

#![allow(unsafe_code)]

use crate::{
    abi::{Addr, COUNTER_NAMES, Flow, FlowKey, Params, PolicyTable, RULE_NONE, Scope},
    cc::Algorithm,
    segment::{Segment, Verdict},
};

unsafe extern "C" {
    fn sluice_policy_match(policy: &PolicyTable, scope: &Scope, key: &FlowKey) -> u32;
    fn sluice_policy_trusts(policy: &PolicyTable, remote: &Addr) -> u32;
    fn sluice_algorithm_of(flow: &Flow, params: &Params) -> u32;
    fn sluice_window_allowed(flow: &Flow, params: &Params, now_ns: u64) -> u32;
    fn sluice_count(counters: &mut Counters, seg: &Segment, out: &Verdict);
    fn sluice_count_run(
        counters: &mut Counters,
        seg: &Segment,
        out: &Verdict,
        packets: u64,
        reports: u64,
    );
}

// The C functions take pointers that are valid for the call, keep none, and are total: any bytes
// in the structures give a defined result.

/// The counters, in the order of [`COUNTER_NAMES`] (`struct sg_counters`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters(pub [u64; COUNTER_NAMES.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; COUNTER_NAMES.len()])
    }
}

impl Counters {
    /// Counts a packet and what its verdict says.
    pub fn packet(&mut self, segment: &Segment, verdict: &Verdict) {
        // SAFETY: exclusive and shared references to mirrors of the C structures, for this call.
        unsafe { sluice_count(self, segment, verdict) };
    }

    /// Counts packets of a run for which this segment stands, each of which has this verdict
    /// ([`crate::life::run_room`]), and `reports` of which bring feedback.
    pub fn run(&mut self, segment: &Segment, verdict: &Verdict, packets: u64, reports: u64) {
        // SAFETY: as in `packet`.
        unsafe { sluice_count_run(self, segment, verdict, packets, reports) };
    }

    /// Counts one more of `COUNTER_NAMES[which]`.
    pub fn one(&mut self, which: usize) {
        self.0[which] += 1;
    }
}

impl PolicyTable {
    /// The slot of the rule for what the tenant of `key` sends, whose interface has this scope;
    /// `None` if no rule covers it or the rule is off.
    pub fn rule_for(&self, scope: &Scope, key: &FlowKey) -> Option<u8> {
        // SAFETY: as in `Counters::packet`.
        let slot = unsafe { sluice_policy_match(self, scope, key) };
        u8::try_from(slot).ok().filter(|&slot| slot != RULE_NONE)
    }

    /// Whether hosts at this address are trusted to enforce.
    pub fn trusts(&self, remote: &Addr) -> bool {
        // SAFETY: as in `Counters::packet`.
        unsafe { sluice_policy_trusts(self, remote) != 0 }
    }
}

impl Flow {
    /// Which of the algorithms of its rule, whose parameters these are, governs the flow; `None` if
    /// this build knows none by that number.
    pub fn algorithm(&self, params: &Params) -> Option<Algorithm> {
        // SAFETY: as in `Counters::packet`.
        let number = unsafe { sluice_algorithm_of(self, params) };
        u8::try_from(number).ok().and_then(Algorithm::from_number)
    }

    /// Window that the tenant is to be shown as things are, or would be if the rule enforced, in
    /// bytes; never above the peer's. `params` are those of its rule. 0 = no algorithm governs the
    /// flow.
    pub fn allowed_window_bytes(&self, params: &Params, now_ns: u64) -> u32 {
        // SAFETY: as in `Counters::packet`.
        unsafe { sluice_window_allowed(self, params, now_ns) }
    }
}
