/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Loss and timeouts, inferred by a bystander: from duplicate ACKs, and from what the tenant
 * sends again.
 */
#ifndef SLUICE_LOSS_H
#define SLUICE_LOSS_H

#include "feedback.h"
#include "mode.h"
#include "police.h"
#include "rtt.h"
#include "seq.h"

/* The facts on the sequence space as it is now, for congestion control. */
SG_INLINE void sg_ack_facts(struct sg_cc_ack *ack, const struct sg_flow *flow, sg_u64 now_ns)
{
	ack->now_ns = now_ns;
	ack->acked = 0;
	ack->marked = 0;
	ack->rtt_ns = 0;
	ack->min_rtt_ns = flow->min_rtt_ns;
	ack->snd_una = flow->snd_una;
	ack->snd_nxt = flow->snd_nxt;
	ack->flight = sg_flight(flow);
	ack->window_used = 0;
	ack->in_recovery = !!(flow->flags & SG_FLOW_RECOVERY);
	ack->on_path = 0;
	ack->pad = 0;
	ack->path_acked = 0;
	ack->path_marked = 0;
}

/* Loss is inferred once per window: recovery lasts until all that is out is acknowledged. */
SG_INLINE void sg_enter_recovery(struct sg_flow *flow)
{
	flow->flags |= SG_FLOW_RECOVERY;
	flow->marks &= (sg_u16)~SG_FLOW_REFILLS;
	flow->recover = flow->snd_nxt;
}

SG_INLINE int sg_may_infer_loss(const struct sg_flow *flow)
{
	return !(flow->flags & SG_FLOW_RECOVERY) && sg_seq_ge(flow->snd_una, flow->recover) &&
	       !sg_holes(flow);
}

/*
 * A switch that marks does so long before it drops. Where several windows have lost packets
 * and none ever met a mark, nothing on the path marks: an algorithm that waits for
 * marks would only be Reno, and the rule names another. One or two losses may be a
 * host's own, short of CPU time.
 */
#define SG_UNMARKED_LOSSES 8U

SG_INLINE void sg_note_unmarked(struct sg_flow *flow, const struct sg_params *params,
				struct sg_verdict *out)
{
	if (flow->mode != SG_MODE_TWO_SIDED || flow->bytes_marked ||
	    (flow->marks & SG_FLOW_UNMARKED) || params->fallback == params->algorithm ||
	    flow->losses + flow->timeouts < SG_UNMARKED_LOSSES)
		return;
	flow->marks |= SG_FLOW_UNMARKED;
	out->count = SG_COUNT_FLOW_UNMARKED;
}

/* Losses that no delay has announced, likewise, end an algorithm that waits for delay. */
SG_INLINE void sg_note_unannounced(struct sg_flow *flow)
{
	sg_u32 algorithm = flow->cc.algorithm;

	if ((algorithm == SG_CC_DCVEGAS || algorithm == SG_CC_VEGAS || algorithm == SG_CC_SWIFT) &&
	    flow->losses + flow->timeouts >= SG_UNMARKED_LOSSES)
		flow->cc.flags |= SG_CC_UNSUITED;
}

SG_INLINE void sg_infer_loss(struct sg_flow *flow, const struct sg_params *params,
			     sg_u64 now_ns, struct sg_verdict *out)
{
	struct sg_cc_ack ack;

	sg_ack_facts(&ack, flow, now_ns);
	sg_cc_on_loss(&flow->cc, params, sg_algorithm_now(flow, params), &ack);
	sg_enter_recovery(flow);
	flow->losses += flow->losses < 0xffff;
	out->count = SG_COUNT_LOSS;
	sg_note_unmarked(flow, params, out);
	sg_note_unannounced(flow);
}

/*
 * A path may drop what is ECN-capable. So data that a second timeout in a row repeats are not
 * (RFC 3168 6.1.5 has it so for all that is repeated). If nothing else gets through, the flow
 * falls back: at once where the first data of the connection show it, else as soon as feedback
 * has counted too little of what is acknowledged.
 */
SG_INLINE void sg_without_ect(struct sg_verdict *out)
{
	out->edits |= SG_EDIT_ECN;
	out->ecn = SG_NOT_ECT;
}

/* The first data are acknowledged: if they were repeated so, no others have come to the peer. */
SG_RARE int sg_first_acked(struct sg_flow *flow SG_NONNULL,
			   const struct sg_params *params SG_NONNULL,
			   struct sg_verdict *out SG_NONNULL)
{
	if (flow->mode == SG_MODE_TWO_SIDED && flow->timeouts >= 2 &&
	    flow->taken_e0b == SG_E0B_START && flow->taken_ceb == SG_CEB_START)
		sg_fall_back(flow, params, SG_WHY_ECT_DROPPED, out);
	return 0;
}

SG_INLINE void sg_infer_timeout(struct sg_flow *flow, const struct sg_params *params,
				sg_u64 now_ns, struct sg_verdict *out)
{
	int again = flow->cc.flags & SG_CC_TIMED_OUT;
	struct sg_cc_ack ack;

	sg_ack_facts(&ack, flow, now_ns);
	sg_cc_on_timeout(&flow->cc, params, sg_algorithm_now(flow, params), &ack);
	/* Slow start begins at once; duplicates of what is out are no new loss (RFC 6582 4). */
	flow->flags &= (sg_u8)~SG_FLOW_RECOVERY;
	flow->marks &= (sg_u16)~SG_FLOW_REFILLS;
	flow->recover = flow->snd_nxt;
	flow->progress_ns = now_ns;
	flow->dupacks = 0;
	flow->timeouts += flow->timeouts < 0xffff;
	out->count = SG_COUNT_TIMEOUT;
	sg_note_unmarked(flow, params, out);
	sg_note_unannounced(flow);
	/* Where the rule leaves thresholds to the path, it may be another one now. */
	if (flow->cc.algorithm != params->fallback && flow->min_rtt_ns < SG_FAR_NS)
		flow->min_rtt_ns = 0;
	if (again && flow->mode == SG_MODE_TWO_SIDED && params->mode == SG_RULE_ENFORCE)
		sg_without_ect(out);
}

/*
 * The tenant repeats the oldest outstanding data. After a silence of an RTO that
 * is its timeout (no timer of ours is needed: the tenant's own tells us). With
 * fewer than three duplicates it is a stack with RACK that knows better.
 */
SG_INLINE void sg_head_repeated(struct sg_flow *flow, const struct sg_params *params,
				sg_u64 now_ns, struct sg_verdict *out)
{
	if (!flow->peer_window)
		return; /* a probe of a closed window: the peer's application is slow */
	if (sg_since(now_ns, flow->progress_ns) >= sg_rto_ns(flow, params))
		sg_infer_timeout(flow, params, now_ns, out);
	else if (flow->dupacks && sg_may_infer_loss(flow))
		sg_infer_loss(flow, params, now_ns, out);
}

/* The tenant repeats what was in the network. */
SG_RARE int sg_repair(struct sg_flow *flow SG_NONNULL,
		      const struct sg_segment *seg SG_NONNULL, sg_u64 now_ns,
		      const struct sg_params *params SG_NONNULL,
		      struct sg_verdict *out SG_NONNULL)
{
	if (sg_unlikely(flow->marks & SG_FLOW_REFILLS) &&
	    sg_since(now_ns, flow->progress_ns) < sg_rto_ns(flow, params))
		sg_infer_loss(flow, params, now_ns, out);
	else if (seg->seq == flow->snd_una)
		sg_head_repeated(flow, params, now_ns, out);
	return 0;
}

#endif /* SLUICE_LOSS_H */
