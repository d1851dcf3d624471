/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Swift's window: Kumar et al., "Swift: Delay is Simple and Effective for Congestion
 * Control in the Datacenter", SIGCOMM 2020, on the RTT that the host measures:
 *
 *	delay < target:	w <- w + ai				per window
 *	else:		w <- w (1 - min(beta (delay - target) / delay, max_mdf))
 *								at most once per RTT
 *	loss:		w <- w (1 - max_mdf)
 *
 * and the target is lower for larger windows, so that flows which share a queue come to
 * equal windows (3.5), with w in segments:
 *
 *	target = base + range (1 / sqrt(w) - 1 / sqrt(w_max)) /
 *			      (1 / sqrt(w_min) - 1 / sqrt(w_max)),	w_min <= w <= w_max
 *
 * Ours: slow start, which ends with the first ACK at or above the target; an ACK without
 * a sample does not cut, and grows where the last sample would; marks cut as a loss does;
 * a timeout is answered as by all. Windows below a segment and a target of its own for the
 * endpoint's delay are not modelled.
 */
#ifndef SLUICE_CC_SWIFT_H
#define SLUICE_CC_SWIFT_H

#include "cc_slack.h"

/* 1 / sqrt(w) in 1/65536, of 100 segments (the paper's) and of 2, the smallest window here. */
#define SG_SWIFT_ROOT_MIN_Q16 6554U
#define SG_SWIFT_ROOT_MAX_Q16 46341U

/* Queueing that is no congestion where the rule names no target. */
#define SG_SWIFT_QUEUE_NS 100000U

/* The target of the largest windows: the rule's, or beyond the path's own RTT. */
SG_INLINE sg_u64 sg_swift_base(const struct sg_cc *cc, const struct sg_params *params,
			       const struct sg_cc_ack *ack)
{
	if (params->swift_target_ns)
		return params->swift_target_ns;
	return ack->min_rtt_ns + sg_max64(SG_SWIFT_QUEUE_NS,
					  sg_slack_ns(cc, cc->cwnd, cc->swift.delay_ns));
}

/* The RTT at which this window is neither too large nor too small. */
SG_INLINE sg_u64 sg_swift_target(const struct sg_cc *cc, const struct sg_params *params,
				 const struct sg_cc_ack *ack)
{
	/* One byte more than the window: never 0. */
	sg_u64 root_q16 = sg_sqrt(((sg_u64)cc->mss << 32) / (cc->cwnd + 1ULL));

	/* No comparison of a constant, which would have the verifier keep values apart. */
	root_q16 = root_q16 < SG_SWIFT_ROOT_MIN_Q16 ? SG_SWIFT_ROOT_MIN_Q16 :
		   root_q16 > SG_SWIFT_ROOT_MAX_Q16 ? SG_SWIFT_ROOT_MAX_Q16 : root_q16;
	return sg_swift_base(cc, params, ack) +
	       sg_mul_div(params->swift_range_ns, root_q16 - SG_SWIFT_ROOT_MIN_Q16,
			  SG_SWIFT_ROOT_MAX_Q16 - SG_SWIFT_ROOT_MIN_Q16);
}

/* The rest of the window after a delay of at least the target. */
SG_INLINE sg_u64 sg_swift_reduced(const struct sg_cc *cc, const struct sg_params *params,
				  sg_u64 target_ns)
{
	sg_u64 delay_ns = cc->swift.delay_ns;
	sg_u64 beta_q20 = sg_min32(params->swift_beta_q10, SG_ONE_Q10) << 10;
	sg_u64 most_q20 = sg_min32(params->swift_mdf_q10, SG_ONE_Q10) << 10;
	/* 20 and 32 bits. */
	sg_u64 cut_q20 = sg_min64(sg_mul_div(beta_q20, delay_ns - target_ns, delay_ns), most_q20);

	return cc->cwnd - (cc->cwnd * cut_q20 >> 20);
}

/* 1 - max_mdf in 1/1024. */
SG_INLINE sg_u32 sg_swift_keep(const struct sg_params *params)
{
	return SG_ONE_Q10 - sg_min32(params->swift_mdf_q10, SG_ONE_Q10);
}

/*
 * Too much delay. The time of the last cut is kept beside the end of its window, which a
 * tenant's stack does not know; and growth may go on as soon as the delay allows.
 */
SG_INLINE void sg_swift_cut(struct sg_cc *cc, const struct sg_params *params,
			    const struct sg_cc_ack *ack, sg_u64 target_ns)
{
	if ((cc->flags & SG_CC_CUT) ||
	    sg_since(ack->now_ns, cc->swift.cut_ns) < cc->swift.delay_ns)
		return;
	cc->swift.cut_ns = ack->now_ns;
	sg_cc_cut_to(cc, params, ack, sg_swift_reduced(cc, params, target_ns));
	cc->flags &= ~SG_CC_HOLD;
}

SG_RARE int sg_swift_on_ack(struct sg_cc *cc SG_NONNULL,
			    const struct sg_params *params SG_NONNULL,
			    const struct sg_cc_ack *ack SG_NONNULL)
{
	sg_u64 target_ns;

	sg_cc_round(cc, ack);
	if (ack->rtt_ns)
		cc->swift.delay_ns = ack->rtt_ns;
	target_ns = sg_swift_target(cc, params, ack);
	if (sg_cc_marked(cc, params, ack, sg_swift_keep(params)))
		return 0;
	if (cc->swift.delay_ns < target_ns) {
		if (sg_cc_may_grow(cc, ack))
			sg_cc_grow_by(cc, params, ack->acked, params->swift_ai_q10);
	} else if (ack->rtt_ns) {
		sg_swift_cut(cc, params, ack, target_ns);
	}
	return 0;
}

SG_RARE int sg_swift_on_loss(struct sg_cc *cc SG_NONNULL,
			    const struct sg_params *params SG_NONNULL,
			    const struct sg_cc_ack *ack SG_NONNULL)
{
	sg_cc_lost(cc, params, ack, sg_swift_keep(params));
	return 0;
}

/* Measurements from before the timeout say nothing of an empty path. */
SG_RARE int sg_swift_on_timeout(struct sg_cc *cc SG_NONNULL,
			    const struct sg_params *params SG_NONNULL,
			    const struct sg_cc_ack *ack SG_NONNULL)
{
	sg_cc_timed_out(cc, params, ack, sg_swift_keep(params));
	cc->swift.delay_ns = 0;
	return 0;
}

#endif /* SLUICE_CC_SWIFT_H */
