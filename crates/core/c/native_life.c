/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The native build of the life of a flow, for callers with tables of flows and half-open
 * connections of their own (src/life.rs).
 */
#include "sluice/lifecycle.h"
#include "sluice/run.h"

sg_u32 sluice_opener_of(const struct sg_segment *seg);
sg_u32 sluice_fate_of_syn(sg_u32 rule, struct sg_verdict *out);
sg_u32 sluice_fate_of_synack(const struct sg_half_open *half, const struct sg_segment *seg,
			     sg_u32 rule, sg_u32 has_flow);
sg_u32 sluice_life_is_spent(const struct sg_half_open *half, sg_u32 has_flow);
sg_u32 sluice_fate_of_segment(const struct sg_segment *seg, const struct sg_flow *flow,
			      sg_u32 answered);
sg_u32 sluice_fate_recalled(const struct sg_half_open *note, const struct sg_flow *flow,
			    const struct sg_segment *seg, sg_u64 now_ns);
sg_u32 sluice_life_segment(struct sg_flow *flow, sg_u32 answered, const struct sg_segment *seg,
			   sg_u64 now_ns, const struct sg_params *params,
			   struct sg_path *path, struct sg_verdict *out);
void sluice_life_step(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
		      const struct sg_params *params, struct sg_path *path,
		      struct sg_verdict *out);
sg_u32 sluice_run_room(const struct sg_flow *flow, sg_u32 una, const struct sg_segment *seg,
		       const struct sg_verdict *out);
sg_u32 sluice_run_step(struct sg_flow *flow, const struct sg_segment *seg, sg_u32 packets,
		       sg_u64 now_ns, const struct sg_params *params, struct sg_path *path,
		       struct sg_verdict *out);
sg_u32 sluice_life_claims(const struct sg_segment *seg);
void sluice_life_refuse(const struct sg_segment *seg, sg_u32 trusted,
			const struct sg_params *params, struct sg_verdict *out);
sg_u32 sluice_life_syn(struct sg_half_open *half, const struct sg_segment *seg, sg_u64 now_ns,
		       sg_u32 rule, sg_u32 has_flow, sg_u32 offers,
		       const struct sg_params *params, struct sg_verdict *out);
struct sg_blackhole_key sluice_blackhole_key(const struct sg_flow_key *key);
sg_u32 sluice_offers_to(const struct sg_blackhole *known, const struct sg_flow_key *key,
			sg_u64 now_ns);
sg_u32 sluice_blackhole_note(struct sg_blackhole *known, const struct sg_flow_key *key,
			     sg_u32 news, sg_u64 now_ns);
sg_u32 sluice_life_synack_news(const struct sg_half_open *half, const struct sg_segment *seg);
sg_u32 sluice_partner_of(const struct sg_flow *flow, sg_u64 now_ns);
sg_u32 sluice_life_gives_up(struct sg_flow *flow, struct sg_flow *made);
sg_u32 sluice_life_awaits_peer(const struct sg_flow *flow, const struct sg_segment *seg);
sg_u32 sluice_life_peer_news(const struct sg_flow *flow, const struct sg_half_open *half,
			     const struct sg_segment *seg);
void sluice_life_synack(struct sg_flow *flow, struct sg_half_open *half,
			const struct sg_segment *seg, sg_u64 now_ns, sg_u32 rule,
			sg_u32 partner, const struct sg_params *params, struct sg_verdict *out);
void sluice_life_note(struct sg_half_open *note, const struct sg_segment *seg, sg_u64 now_ns);
sg_u32 sluice_answers_anew(const struct sg_flow *flow, const struct sg_segment *seg);
void sluice_life_unkept(struct sg_half_open *half, const struct sg_segment *seg,
			struct sg_verdict *out);
void sluice_life_know(struct sg_remembered *known, const struct sg_segment *seg,
		      const struct sg_half_open *answer, const struct sg_half_open *of_tenant,
		      const struct sg_half_open *of_remote);
void sluice_life_midstream(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
			   sg_u32 rule, const struct sg_params *params,
			   const struct sg_remembered *known, const struct sg_flow *before);
sg_u32 sluice_life_rematch(struct sg_flow *flow, sg_u32 rule);
sg_u32 sluice_life_silence(const struct sg_flow *flow);
sg_u32 sluice_life_has_room(sg_u32 flows, sg_u32 quota);
sg_u32 sluice_life_is_short(sg_u32 flows, sg_u32 quota);
sg_u64 sluice_life_patience_ns(sg_u32 silence, sg_u32 is_short, sg_u64 idle_ns, sg_u64 closed_ns);
sg_u32 sluice_sweep_slots(void);
sg_u64 sluice_sweep_period_ns(void);
sg_u32 sluice_life_remember(struct sg_remembered *what, const struct sg_flow *flow);
sg_u32 sluice_unanswered(sg_u32 until, sg_u64 now_ns);
sg_u32 sluice_unanswered_add(sg_u32 *until, sg_u64 now_ns);
void sluice_unanswered_sub(sg_u32 *until, sg_u64 now_ns);

sg_u32 sluice_opener_of(const struct sg_segment *seg)
{
	return sg_opener_of(seg);
}

sg_u32 sluice_fate_of_syn(sg_u32 rule, struct sg_verdict *out)
{
	return sg_fate_of_syn(rule, out);
}

sg_u32 sluice_fate_of_synack(const struct sg_half_open *half, const struct sg_segment *seg,
			     sg_u32 rule, sg_u32 has_flow)
{
	return sg_fate_of_synack(half, seg, rule, (int)has_flow);
}

sg_u32 sluice_life_is_spent(const struct sg_half_open *half, sg_u32 has_flow)
{
	return !!sg_life_is_spent(half, (int)has_flow);
}

sg_u32 sluice_fate_of_segment(const struct sg_segment *seg, const struct sg_flow *flow,
			      sg_u32 answered)
{
	return sg_fate_of_segment(seg, flow, (int)answered);
}

sg_u32 sluice_fate_recalled(const struct sg_half_open *note, const struct sg_flow *flow,
			    const struct sg_segment *seg, sg_u64 now_ns)
{
	return sg_fate_recalled(note, flow, seg, now_ns);
}

void sluice_life_step(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
		      const struct sg_params *params, struct sg_path *path,
		      struct sg_verdict *out)
{
	sg_step(flow, seg, now_ns, params, path, out);
}

/* The fate of a segment of `flow`, or of none (null), and its step if that is USE. */
sg_u32 sluice_life_segment(struct sg_flow *flow, sg_u32 answered, const struct sg_segment *seg,
			   sg_u64 now_ns, const struct sg_params *params,
			   struct sg_path *path, struct sg_verdict *out)
{
	enum sg_fate fate = sg_fate_of_segment(seg, flow, (int)answered);

	if (fate == SG_FATE_USE)
		sluice_life_step(flow, seg, now_ns, params, path, out);
	return fate;
}

sg_u32 sluice_run_room(const struct sg_flow *flow, sg_u32 una, const struct sg_segment *seg,
		       const struct sg_verdict *out)
{
	return sg_run_room(flow, una, seg, out);
}

sg_u32 sluice_run_step(struct sg_flow *flow, const struct sg_segment *seg, sg_u32 packets,
		       sg_u64 now_ns, const struct sg_params *params, struct sg_path *path,
		       struct sg_verdict *out)
{
	return sg_run_step(flow, seg, packets, now_ns, params, path, out);
}

sg_u32 sluice_life_claims(const struct sg_segment *seg)
{
	return sg_life_claims(seg);
}

void sluice_life_refuse(const struct sg_segment *seg, sg_u32 trusted,
			const struct sg_params *params, struct sg_verdict *out)
{
	sg_life_refuse(seg, (int)trusted, params, out);
}

sg_u32 sluice_life_syn(struct sg_half_open *half, const struct sg_segment *seg, sg_u64 now_ns,
		       sg_u32 rule, sg_u32 has_flow, sg_u32 offers,
		       const struct sg_params *params, struct sg_verdict *out)
{
	return sg_life_syn(half, seg, now_ns, rule, (int)has_flow, offers, params, out);
}

struct sg_blackhole_key sluice_blackhole_key(const struct sg_flow_key *key)
{
	return sg_blackhole_key_of(key);
}

sg_u32 sluice_offers_to(const struct sg_blackhole *known, const struct sg_flow_key *key,
			sg_u64 now_ns)
{
	return sg_offers_to(known, key, now_ns);
}

sg_u32 sluice_blackhole_note(struct sg_blackhole *known, const struct sg_flow_key *key,
			     sg_u32 news, sg_u64 now_ns)
{
	return (sg_u32)sg_blackhole_note(known, key, (enum sg_offer_news)news, now_ns);
}

sg_u32 sluice_life_synack_news(const struct sg_half_open *half, const struct sg_segment *seg)
{
	return sg_life_synack_news(half, seg);
}

sg_u32 sluice_partner_of(const struct sg_flow *flow, sg_u64 now_ns)
{
	return sg_partner_of(flow, now_ns);
}

sg_u32 sluice_life_gives_up(struct sg_flow *flow, struct sg_flow *made)
{
	return (sg_u32)sg_life_gives_up(flow, made);
}

sg_u32 sluice_life_awaits_peer(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return !!sg_life_awaits_peer(flow, seg);
}

sg_u32 sluice_life_peer_news(const struct sg_flow *flow, const struct sg_half_open *half,
			     const struct sg_segment *seg)
{
	return sg_life_peer_news(flow, half, seg);
}

void sluice_life_synack(struct sg_flow *flow, struct sg_half_open *half,
			const struct sg_segment *seg, sg_u64 now_ns, sg_u32 rule,
			sg_u32 partner, const struct sg_params *params, struct sg_verdict *out)
{
	sg_life_blank(flow, now_ns, rule);
	sg_life_synack(flow, half, seg, rule, (enum sg_partner)partner, params, out);
}

void sluice_life_note(struct sg_half_open *note, const struct sg_segment *seg, sg_u64 now_ns)
{
	sg_note_answer(note, seg, now_ns);
}

sg_u32 sluice_answers_anew(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return !!sg_answers_anew(flow, seg);
}

void sluice_life_unkept(struct sg_half_open *half, const struct sg_segment *seg,
			struct sg_verdict *out)
{
	sg_life_unkept(half, seg, out);
}

void sluice_life_know(struct sg_remembered *known, const struct sg_segment *seg,
		      const struct sg_half_open *answer, const struct sg_half_open *of_tenant,
		      const struct sg_half_open *of_remote)
{
	sg_life_know(known, seg, answer, of_tenant, of_remote);
}

void sluice_life_midstream(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
			   sg_u32 rule, const struct sg_params *params,
			   const struct sg_remembered *known, const struct sg_flow *before)
{
	sg_life_blank(flow, now_ns, rule);
	sg_life_midstream(flow, seg, now_ns, params, known, before);
}

sg_u32 sluice_life_rematch(struct sg_flow *flow, sg_u32 rule)
{
	return sg_life_rematch(flow, rule);
}

sg_u32 sluice_life_silence(const struct sg_flow *flow)
{
	return sg_life_silence(flow);
}

sg_u32 sluice_life_has_room(sg_u32 flows, sg_u32 quota)
{
	return !!sg_life_has_room(flows, quota);
}

sg_u32 sluice_life_is_short(sg_u32 flows, sg_u32 quota)
{
	return !!sg_life_is_short(flows, quota);
}

sg_u64 sluice_life_patience_ns(sg_u32 silence, sg_u32 is_short, sg_u64 idle_ns, sg_u64 closed_ns)
{
	return sg_life_patience_ns((enum sg_silence)silence, (int)is_short, idle_ns, closed_ns);
}

sg_u32 sluice_sweep_slots(void)
{
	return SG_SWEEP_SLOTS;
}

sg_u64 sluice_sweep_period_ns(void)
{
	return SG_SWEEP_PERIOD_NS;
}

sg_u32 sluice_life_remember(struct sg_remembered *what, const struct sg_flow *flow)
{
	return !!sg_life_remember(what, flow);
}

sg_u32 sluice_unanswered(sg_u32 until, sg_u64 now_ns)
{
	return sg_unanswered(until, now_ns);
}

sg_u32 sluice_unanswered_add(sg_u32 *until, sg_u64 now_ns)
{
	return !!sg_unanswered_add(until, now_ns);
}

void sluice_unanswered_sub(sg_u32 *until, sg_u64 now_ns)
{
	sg_unanswered_sub(until, now_ns);
}
