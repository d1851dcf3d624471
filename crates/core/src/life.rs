//! The life of a flow, for callers with tables of flows and half-open connections of their own: the
//! safe face of `c/sluice/lifecycle.h`, where each of these functions is described. Nothing here
//! has state.
//!
//! ```text
//!  look up ──▶ fate ──▶ core writes what is to be kept ──▶ keep it, or say that there was no room
//! ```

#![allow(unsafe_code)]

use crate::{
    abi::{Blackhole, BlackholeKey, Flow, FlowKey, HalfOpen, Params, RULE_NONE, Remembered},
    path::Path,
    segment::{Segment, Verdict},
};

unsafe extern "C" {
    fn sluice_opener_of(seg: &Segment) -> u32;
    fn sluice_fate_of_syn(rule: u32, out: &mut Verdict) -> u32;
    fn sluice_fate_of_synack(
        half: Option<&HalfOpen>,
        seg: &Segment,
        rule: u32,
        has_flow: u32,
    ) -> u32;
    fn sluice_life_is_spent(half: &HalfOpen, has_flow: u32) -> u32;
    fn sluice_fate_of_segment(seg: &Segment, flow: Option<&Flow>, answered: u32) -> u32;
    fn sluice_fate_recalled(
        note: Option<&HalfOpen>,
        flow: &Flow,
        seg: &Segment,
        now_ns: u64,
    ) -> u32;
    fn sluice_life_segment(
        flow: Option<&mut Flow>,
        answered: u32,
        seg: &Segment,
        now_ns: u64,
        params: &Params,
        path: &mut Path,
        out: &mut Verdict,
    ) -> u32;
    fn sluice_life_step(
        flow: &mut Flow,
        seg: &Segment,
        now_ns: u64,
        params: &Params,
        path: &mut Path,
        out: &mut Verdict,
    );
    fn sluice_run_room(flow: &Flow, una: u32, seg: &Segment, out: &Verdict) -> u32;
    fn sluice_run_step(
        flow: &mut Flow,
        seg: &Segment,
        packets: u32,
        now_ns: u64,
        params: &Params,
        path: &mut Path,
        out: &mut Verdict,
    ) -> u32;
    fn sluice_life_claims(seg: &Segment) -> u32;
    fn sluice_life_refuse(seg: &Segment, trusted: u32, params: &Params, out: &mut Verdict);
    fn sluice_life_syn(
        half: &mut HalfOpen,
        seg: &Segment,
        now_ns: u64,
        rule: u32,
        has_flow: u32,
        offers: u32,
        params: &Params,
        out: &mut Verdict,
    ) -> u32;
    fn sluice_blackhole_key(key: &FlowKey) -> BlackholeKey;
    fn sluice_offers_to(known: Option<&Blackhole>, key: &FlowKey, now_ns: u64) -> u32;
    fn sluice_blackhole_note(known: &mut Blackhole, key: &FlowKey, news: u32, now_ns: u64) -> u32;
    fn sluice_life_synack_news(half: &HalfOpen, seg: &Segment) -> u32;
    fn sluice_partner_of(flow: Option<&Flow>, now_ns: u64) -> u32;
    fn sluice_life_gives_up(flow: Option<&mut Flow>, made: &mut Flow) -> u32;
    fn sluice_life_awaits_peer(flow: &Flow, seg: &Segment) -> u32;
    fn sluice_life_peer_news(flow: &Flow, half: Option<&HalfOpen>, seg: &Segment) -> u32;
    fn sluice_life_synack(
        flow: &mut Flow,
        half: &mut HalfOpen,
        seg: &Segment,
        now_ns: u64,
        rule: u32,
        partner: u32,
        params: &Params,
        out: &mut Verdict,
    );
    fn sluice_life_note(note: &mut HalfOpen, seg: &Segment, now_ns: u64);
    fn sluice_answers_anew(flow: &Flow, seg: &Segment) -> u32;
    fn sluice_life_unkept(half: Option<&mut HalfOpen>, seg: &Segment, out: &mut Verdict);
    fn sluice_life_know(
        known: &mut Remembered,
        seg: &Segment,
        answer: Option<&HalfOpen>,
        of_tenant: Option<&HalfOpen>,
        of_remote: Option<&HalfOpen>,
    );
    fn sluice_life_midstream(
        flow: &mut Flow,
        seg: &Segment,
        now_ns: u64,
        rule: u32,
        params: &Params,
        known: &Remembered,
        before: Option<&Flow>,
    );
    fn sluice_life_rematch(flow: &mut Flow, rule: u32) -> u32;
    fn sluice_life_silence(flow: &Flow) -> u32;
    fn sluice_life_has_room(flows: u32, quota: u32) -> u32;
    fn sluice_life_is_short(flows: u32, quota: u32) -> u32;
    fn sluice_life_patience_ns(silence: u32, is_short: u32, idle_ns: u64, closed_ns: u64) -> u64;
    fn sluice_sweep_slots() -> u32;
    fn sluice_sweep_period_ns() -> u64;
    fn sluice_life_remember(what: &mut Remembered, flow: &Flow) -> u32;
    fn sluice_unanswered(until: u32, now_ns: u64) -> u32;
    fn sluice_unanswered_add(until: &mut u32, now_ns: u64) -> u32;
    fn sluice_unanswered_sub(until: &mut u32, now_ns: u64);
}

// The C functions take pointers that are valid for the call, or null where they say so, keep none,
// and are total: any bytes in the structures give a defined result.

/// `enum sg_fate`: what becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing is kept; hosts' options of a tenant are refused.
    Pass,
    /// The step of the flow that was found.
    Use,
    /// A flow begins, if a rule covers it.
    Make,
    /// A half-open connection is kept.
    Note,
    /// A SYN/ACK again: edited like the first, its flow lives on.
    Repeat,
    /// The tuple may have a new life: [`recalled`] tells, or says this again: not yet.
    Recall,
}

impl Fate {
    fn of(number: u32) -> Self {
        match number {
            1 => Self::Use,
            2 => Self::Make,
            3 => Self::Note,
            4 => Self::Repeat,
            5 => Self::Recall,
            _ => Self::Pass,
        }
    }
}

/// `enum sg_opener`: by what else than its connection a half-open one is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Opener {
    /// The tenant's SYN.
    Tenant = 1,
    /// The other end's SYN.
    Remote = 2,
    /// By either: only the SYN/ACK was read.
    Unseen = 3,
}

/// `enum sg_rematch`: what another policy makes of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rematch {
    /// Its rule is the same.
    Same,
    /// Another rule decides it.
    Other,
    /// No rule covers it: it is forgotten.
    None,
}

/// `enum sg_silence`: how long a flow may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// As long as an open connection.
    Idle,
    /// As long as a closed one.
    Closed,
    /// The latter where others need its room.
    ByRoom,
}

/// As C has it: `SG_RULE_NONE` for none.
fn slot(rule: Option<u8>) -> u32 {
    u32::from(rule.unwrap_or(RULE_NONE))
}

/// The opener of a SYN, or of the SYN that a SYN/ACK answers.
pub fn opener(segment: &Segment) -> Opener {
    // SAFETY: see above.
    match unsafe { sluice_opener_of(segment) } {
        1 => Opener::Tenant,
        _ => Opener::Remote,
    }
}

/// The fate of a SYN under this rule, and the verdict on one that passes.
pub fn of_syn(rule: Option<u8>) -> (Fate, Verdict) {
    let mut verdict = Verdict::default();
    // SAFETY: see above.
    let fate = unsafe { sluice_fate_of_syn(slot(rule), &mut verdict) };
    (Fate::of(fate), verdict)
}

/// The fate of a SYN/ACK. `half`: the note of its opener's SYN; `has_flow`: its tuple has a flow.
pub fn of_synack(
    half: Option<&HalfOpen>,
    segment: &Segment,
    rule: Option<u8>,
    has_flow: bool,
) -> Fate {
    // SAFETY: see above.
    Fate::of(unsafe { sluice_fate_of_synack(half, segment, slot(rule), has_flow.into()) })
}

/// Whether a half-open connection was answered and the flow of the answer is forgotten. It is then
/// as if it had not been noted, and its entry may be freed. `has_flow`: its tuple has a flow.
pub fn is_spent(half: &HalfOpen, has_flow: bool) -> bool {
    // SAFETY: see above.
    unsafe { sluice_life_is_spent(half, has_flow.into()) != 0 }
}

/// The fate of any other segment. `flow`: that of its tuple; `answered`: a SYN/ACK was noted since
/// the flow began.
pub fn of_segment(segment: &Segment, flow: Option<&Flow>, answered: bool) -> Fate {
    // SAFETY: see above.
    Fate::of(unsafe { sluice_fate_of_segment(segment, flow, answered.into()) })
}

/// The fate of a segment that [`of_segment`] would recall. `note`: the tuple's SYN/ACK, unless it
/// is forgotten. [`Fate::Recall`]: the segment takes the flow's step, and the next one may tell.
pub fn recalled(note: Option<&HalfOpen>, flow: &Flow, segment: &Segment, now_ns: u64) -> Fate {
    // SAFETY: see above.
    Fate::of(unsafe { sluice_fate_recalled(note, flow, segment, now_ns) })
}

/// The fate of a segment that has this flow or none, and what its step says if that is
/// [`Fate::Use`]. `path` is that of the flow ([`crate::path`]).
pub fn segment(
    flow: Option<&mut Flow>,
    answered: bool,
    segment: &Segment,
    now_ns: u64,
    params: &Params,
    path: &mut Path,
) -> (Fate, Verdict) {
    let mut verdict = Verdict::default();
    // SAFETY: see above.
    let fate = unsafe {
        sluice_life_segment(
            flow,
            answered.into(),
            segment,
            now_ns,
            params,
            path,
            &mut verdict,
        )
    };
    (Fate::of(fate), verdict)
}

/// The step of a flow, where its fate is known.
pub fn step(
    flow: &mut Flow,
    segment: &Segment,
    now_ns: u64,
    params: &Params,
    path: &mut Path,
) -> Verdict {
    let mut verdict = Verdict::default();
    // SAFETY: see above.
    unsafe { sluice_life_step(flow, segment, now_ns, params, path, &mut verdict) };
    verdict
}

/// Bytes that may follow a segment as a run, after its step gave this verdict; before the step
/// `snd_una` was `una`. A run is segments that pass at the same time, each behind the one before,
/// alike but for their numbers and lengths. Of data they are the bytes that the segments bring, of
/// ACKs those that they acknowledge. [`run_step`] gives them the same verdict (`c/sluice/run.h`).
pub fn run_room(flow: &Flow, una: u32, segment: &Segment, verdict: &Verdict) -> u32 {
    // SAFETY: see above.
    unsafe { sluice_run_room(flow, una, segment, verdict) }
}

/// The step of so many segments of a run, for which this one stands: it has the number of the first
/// and the data of all, or is the last ACK. Returns the verdict, and how many of a tenant's ACKs
/// report feedback; the verdict is that of the last one.
pub fn run_step(
    flow: &mut Flow,
    segment: &Segment,
    packets: u32,
    now_ns: u64,
    params: &Params,
    path: &mut Path,
) -> (Verdict, u32) {
    let mut verdict = Verdict::default();
    // SAFETY: see above.
    let reports =
        unsafe { sluice_run_step(flow, segment, packets, now_ns, params, path, &mut verdict) };
    (verdict, reports)
}

/// Whether a packet that belongs to nothing known has options that only hosts write.
pub fn has_claims(segment: &Segment) -> bool {
    // SAFETY: see above.
    unsafe { sluice_life_claims(segment) != 0 }
}

/// Removes the options that only hosts write, on the way to a trusted peer. `trusted`: the policy
/// trusts the other end; `params` are those of the packet's rule.
pub fn refuse(segment: &Segment, trusted: bool, params: &Params, verdict: &mut Verdict) {
    // SAFETY: see above.
    unsafe { sluice_life_refuse(segment, trusted.into(), params, verdict) };
}

/// Notes a SYN in `half`, zeroed, or what the opener's earlier one left. `has_flow`: its tuple has
/// a flow; `offers`: what [`offers_to`] says of its peer.
pub fn syn(
    half: &mut HalfOpen,
    segment: &Segment,
    now_ns: u64,
    (rule, has_flow, offers): (u8, bool, u32),
    params: &Params,
) -> (Verdict, News) {
    let mut verdict = Verdict::default();
    let (rule, has_flow) = (u32::from(rule), u32::from(has_flow));
    // SAFETY: see above.
    let news = unsafe {
        sluice_life_syn(
            half,
            segment,
            now_ns,
            rule,
            has_flow,
            offers,
            params,
            &mut verdict,
        )
    };
    (verdict, News::of(news))
}

/// `enum sg_offer_news`: what a packet says of the offers to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    None,
    /// This is the last offer of its connection.
    Repeated,
    /// An offer was answered.
    Answered,
    /// Only what left without an offer was answered.
    Lost,
}

impl News {
    fn of(number: u32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Repeated,
            2 => Self::Answered,
            _ => Self::Lost,
        }
    }
}

/// The place for the peer of a connection, of those that its interface has.
pub fn blackhole_key(key: &FlowKey) -> BlackholeKey {
    // SAFETY: see above.
    unsafe { sluice_blackhole_key(key) }
}

/// The offers that a new connection to its peer may make, for [`syn`]. `known`: what is at the
/// peer's place.
pub fn offers_to(known: Option<&Blackhole>, key: &FlowKey, now_ns: u64) -> u32 {
    // SAFETY: see above.
    unsafe { sluice_offers_to(known, key, now_ns) }
}

/// Writes news into a copy of what is at the peer's place, or zeros. Returns whether it is to be
/// kept there.
pub fn note_news(known: &mut Blackhole, key: &FlowKey, news: News, now_ns: u64) -> bool {
    // SAFETY: see above.
    unsafe { sluice_blackhole_note(known, key, news as u32, now_ns) != 0 }
}

/// The news in a SYN/ACK that answers `half`, asked for before [`synack`].
pub fn synack_news(half: &HalfOpen, segment: &Segment) -> News {
    // SAFETY: see above.
    News::of(unsafe { sluice_life_synack_news(half, segment) })
}

/// `enum sg_partner`: what the flow of a tuple says of the SYN/ACK that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partner(u32);

/// What the flow of a tuple says, if there is one, before [`synack`].
pub fn partner(flow: Option<&Flow>, now_ns: u64) -> Partner {
    // SAFETY: see above.
    Partner(unsafe { sluice_partner_of(flow, now_ns) })
}

/// Whether `made`, by a repeated SYN/ACK, takes the place of `flow`, that of its tuple. What the
/// tenant was shown by `flow`, and has sent since, goes over to `made`. A `flow` that stays was
/// seen.
pub fn gives_up(flow: Option<&mut Flow>, made: &mut Flow) -> bool {
    // SAFETY: see above.
    unsafe { sluice_life_gives_up(flow, made) != 0 }
}

/// Whether [`peer_news`] is to be asked for, of a flow before its step.
pub fn awaits_peer(flow: &Flow, segment: &Segment) -> bool {
    // SAFETY: see above.
    unsafe { sluice_life_awaits_peer(flow, segment) != 0 }
}

/// The news in the first segment of the peer; `half` is what was noted of its SYN.
pub fn peer_news(flow: &Flow, half: Option<&HalfOpen>, segment: &Segment) -> News {
    // SAFETY: see above.
    News::of(unsafe { sluice_life_peer_news(flow, half, segment) })
}

/// The flow that a SYN/ACK makes which answers `half`.
pub fn synack(
    half: &mut HalfOpen,
    segment: &Segment,
    now_ns: u64,
    (rule, partner): (u8, Partner),
    params: &Params,
) -> (Flow, Verdict) {
    let (mut flow, mut verdict) = (Flow::default(), Verdict::default());
    let rule = u32::from(rule);
    // SAFETY: see above.
    unsafe {
        sluice_life_synack(
            &mut flow,
            half,
            segment,
            now_ns,
            rule,
            partner.0,
            params,
            &mut verdict,
        );
    }
    (flow, verdict)
}

/// The note of a SYN/ACK that answers no known SYN.
pub fn note(segment: &Segment, now_ns: u64) -> HalfOpen {
    let mut note = HalfOpen::default();
    // SAFETY: see above.
    unsafe { sluice_life_note(&mut note, segment, now_ns) };
    note
}

/// Whether a SYN/ACK has other numbers than the one that the flow began with: only then it is
/// noted.
pub fn answers_anew(flow: &Flow, segment: &Segment) -> bool {
    // SAFETY: see above.
    unsafe { sluice_answers_anew(flow, segment) != 0 }
}

/// There was no room for what a SYN or SYN/ACK was to leave. `half` is that of a flow that was to
/// be made.
pub fn unkept(half: Option<&mut HalfOpen>, segment: &Segment, verdict: &mut Verdict) {
    // SAFETY: see above.
    unsafe { sluice_life_unkept(half, segment, verdict) };
}

/// Adds to `known` what noted packets say of a connection that is met from the middle: a SYN/ACK
/// alone, SYNs of the tenant and of the other end.
pub fn know(
    known: &mut Remembered,
    segment: &Segment,
    answer: Option<&HalfOpen>,
    of_tenant: Option<&HalfOpen>,
    of_remote: Option<&HalfOpen>,
) {
    // SAFETY: see above.
    unsafe { sluice_life_know(known, segment, answer, of_tenant, of_remote) };
}

/// The flow of a connection whose handshake was not seen. `before`: what its tuple has had until
/// now.
pub fn midstream(
    segment: &Segment,
    now_ns: u64,
    rule: u8,
    params: &Params,
    known: &Remembered,
    before: Option<&Flow>,
) -> Flow {
    let mut flow = Flow::default();
    let rule = u32::from(rule);
    // SAFETY: see above.
    unsafe { sluice_life_midstream(&mut flow, segment, now_ns, rule, params, known, before) };
    flow
}

/// Another policy came into force, and this rule covers the flow.
pub fn rematch(flow: &mut Flow, rule: Option<u8>) -> Rematch {
    // SAFETY: see above.
    match unsafe { sluice_life_rematch(flow, slot(rule)) } {
        0 => Rematch::Same,
        1 => Rematch::Other,
        _ => Rematch::None,
    }
}

/// How long the flow may be silent before it is forgotten.
pub fn silence(flow: &Flow) -> Silence {
    // SAFETY: see above.
    match unsafe { sluice_life_silence(flow) } {
        0 => Silence::Idle,
        1 => Silence::Closed,
        _ => Silence::ByRoom,
    }
}

/// Whether an interface that has so many flows may have another one; 0 = no quota.
pub fn has_room(flows: u32, quota: u32) -> bool {
    // SAFETY: see above.
    unsafe { sluice_life_has_room(flows, quota) != 0 }
}

/// Whether others need the room where so many flows are; 0 = no quota.
pub fn is_short(flows: u32, quota: u32) -> bool {
    // SAFETY: see above.
    unsafe { sluice_life_is_short(flows, quota) != 0 }
}

/// The time in ns for which a flow of this silence may be silent: `idle_ns`, that of an open
/// connection, or `closed_ns`. `is_short`, of the table or of the interface's share of it, needs to
/// be known only for [`Silence::ByRoom`].
pub fn patience_ns(silence: Silence, is_short: bool, idle_ns: u64, closed_ns: u64) -> u64 {
    // SAFETY: see above.
    unsafe { sluice_life_patience_ns(silence as u32, is_short.into(), idle_ns, closed_ns) }
}

/// Places for flows that a sweep looks at, once in each [`sweep_period_ns`].
pub fn sweep_slots() -> u32 {
    // SAFETY: it takes nothing and is total.
    unsafe { sluice_sweep_slots() }
}

/// The time from one sweep to the next, in ns.
pub fn sweep_period_ns() -> u64 {
    // SAFETY: it takes nothing and is total.
    unsafe { sluice_sweep_period_ns() }
}

/// The facts that another flow of the connection could not find out, of one that is forgotten for
/// its silence.
pub fn remember(flow: &Flow) -> Option<Remembered> {
    let mut what = Remembered::default();
    // SAFETY: see above.
    (unsafe { sluice_life_remember(&mut what, flow) } != 0).then_some(what)
}

/// SYNs of an interface that nothing has answered, where the last of them fades at `until`.
pub fn unanswered(until: u32, now_ns: u64) -> u32 {
    // SAFETY: see above.
    unsafe { sluice_unanswered(until, now_ns) }
}

/// One more; `false`: the interface's share is used up.
pub fn unanswered_add(until: &mut u32, now_ns: u64) -> bool {
    // SAFETY: see above.
    unsafe { sluice_unanswered_add(until, now_ns) != 0 }
}

/// One that had part of the interface's share is answered.
pub fn unanswered_sub(until: &mut u32, now_ns: u64) {
    // SAFETY: see above.
    unsafe { sluice_unanswered_sub(until, now_ns) };
}
