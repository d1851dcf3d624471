/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which edits a flow permits (by its rule, its mode and its tenant's behaviour), how a flow loses
 * its partner, and longer edits.
 */
#ifndef SLUICE_MODE_H
#define SLUICE_MODE_H

#include "cc.h"
#include "flow.h"
#include "segment.h"

/*
 * Edits of the TCP header are allowed: by the rule, by the flow's mode. Not by the segment's
 * own options, which its sender chooses: a peer could show its sender any window else. The
 * fixed header is where it is whatever the options are, and a connection is known to be
 * signed from its handshake, or since its tenant signs.
 */
SG_INLINE int sg_may_edit(const struct sg_flow *flow, const struct sg_params *params)
{
	return params->mode == SG_RULE_ENFORCE && flow->mode != SG_MODE_WATCH &&
	       !(flow->marks & SG_FLOW_SIGNS);
}

/* More data than this does not pass unseen: what claims it is none of this flow. */
#define SG_UNSEEN_MAX (1U << 28)

/* Options that a governed flow's ACKs have no reason to carry. */
#define SG_OPT_ODD (SG_OPT_SIGNED | SG_OPT_MALFORMED)

SG_INLINE void sg_note_odd_options(struct sg_flow *flow, const struct sg_segment *seg,
				   struct sg_verdict *out)
{
	if (sg_likely(!(seg->options & SG_OPT_ODD)) || flow->mode == SG_MODE_WATCH)
		return;
	flow->marks |= SG_FLOW_ODD_OPTIONS;
	out->count = SG_COUNT_ODD_OPTIONS;
}

/*
 * An option goes behind the others. Where they end before the header does, no parser would
 * find it there: the end, and padding or what is malformed behind it, become NOPs.
 */
SG_INLINE void sg_add_option(struct sg_verdict *out, const struct sg_segment *seg, sg_u16 edit)
{
	out->edits |= edit;
	if (sg_unlikely(seg->end_at))
		out->edits |= SG_EDIT_BLANK_REST;
}

/*
 * A tenant is no host, though its peer's host would believe what only hosts write. Removed
 * whatever is known of the flow; a signed header stays, and no host reads a malformed one.
 */
SG_INLINE void sg_refuse_claims(const struct sg_segment *seg, const struct sg_params *params,
				sg_u16 claims, struct sg_verdict *out)
{
	if (seg->direction != SG_FROM_TENANT || params->mode != SG_RULE_ENFORCE ||
	    (seg->options & SG_OPT_ODD))
		return;
	claims &= seg->options;
	if (claims & SG_OPT_FEEDBACK)
		out->edits |= SG_EDIT_STRIP_FEEDBACK;
	if (claims & SG_OPT_PEER)
		out->edits |= SG_EDIT_STRIP_PEER;
}

/*
 * From this RTT on a path is far: no datacenter has it without a queue. There growth by one
 * segment per RTT does not find back to the window that a loss has cut, and no threshold of
 * a delay is known; unless the rule says otherwise, `fallback` is CUBIC (AC/DC TCP 3.4).
 */
#define SG_FAR_NS 2000000U

/* Both ends enforcing: marks have come, so that the path is not one of which nothing is known. */
SG_INLINE int sg_path_marks(const struct sg_flow *flow)
{
	return flow->mode >= SG_MODE_TWO_SIDED && flow->bytes_marked;
}

/* Whether the path has shown that the rule's algorithm, which is not CUBIC, does not suit it. */
SG_INLINE int sg_is_unsuited(const struct sg_flow *flow)
{
	if ((flow->cc.flags & SG_CC_UNSUITED) ||
	    (flow->mode >= SG_MODE_TWO_SIDED && (flow->marks & SG_FLOW_UNMARKED)))
		return 1;
	return flow->min_rtt_ns >= SG_FAR_NS && !sg_path_marks(flow);
}

SG_INLINE sg_u32 sg_algorithm_of(const struct sg_flow *flow, const struct sg_params *params)
{
	sg_u32 algorithm = flow->mode < SG_MODE_TWO_SIDED ? params->one_sided : params->algorithm;

	return algorithm != SG_CC_CUBIC && sg_is_unsuited(flow) ? params->fallback : algorithm;
}

/* The same, once congestion control has followed what the policy or the path has changed. */
SG_INLINE sg_u32 sg_algorithm_now(struct sg_flow *flow, const struct sg_params *params)
{
	sg_u32 algorithm = sg_algorithm_of(flow, params);

	if (sg_unlikely(flow->cc.algorithm != algorithm))
		sg_cc_change(&flow->cc, params, algorithm, flow->snd_nxt);
	return algorithm;
}

/* Two-sided until its host or the peer's gave that up, which the other one may not know. */
SG_INLINE int sg_once_two_sided(const struct sg_flow *flow)
{
	return flow->reason == SG_WHY_FEEDBACK_STOPPED ||
	       flow->reason == SG_WHY_FEEDBACK_MISMATCH ||
	       flow->reason == SG_WHY_OPTION_DROPPED || flow->reason == SG_WHY_ECT_DROPPED;
}

/*
 * The peer's host may take this flow for two-sided, and would believe the tenant: it has not
 * noticed the fallback, or it knows the connection from its handshake, as we do not.
 */
SG_INLINE int sg_peer_may_believe(const struct sg_flow *flow)
{
	return sg_once_two_sided(flow) || (flow->marks & SG_FLOW_ADOPTED) ||
	       flow->reason == SG_WHY_ONE_DIRECTION;
}

SG_INLINE void sg_edit_ecn(struct sg_verdict *out, const struct sg_segment *seg, sg_u8 ecn)
{
	if (seg->ecn == ecn)
		return;
	out->edits |= SG_EDIT_ECN;
	out->ecn = ecn;
}

/* The peer's help has ended: go on with what one end can do. */
SG_INLINE void sg_fall_back(struct sg_flow *flow, const struct sg_params *params,
			    sg_u8 reason, struct sg_verdict *out)
{
	flow->mode = SG_MODE_ONE_SIDED;
	flow->reason = reason;
	sg_cc_change(&flow->cc, params, sg_algorithm_of(flow, params), flow->snd_nxt);
	out->count = reason == SG_WHY_FEEDBACK_STOPPED ? SG_COUNT_FEEDBACK_STOPPED :
		     reason == SG_WHY_ECT_DROPPED      ? SG_COUNT_ECT_DROPPED :
							 SG_COUNT_FEEDBACK_MISMATCH;
}

#endif /* SLUICE_MODE_H */
