/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * DC-Vegas: "DC-Vegas: A delay-based TCP congestion control algorithm for
 * datacenter applications", JNCA 2015. DCTCP's law with delay in place of marks,
 * at the sender alone:
 *
 *	q     = w / RTT (RTT - RTTmin)		on every ACK
 *	F     = fraction of a window's bytes acknowledged with q > K
 *	alpha <- (1 - g) alpha + g F		once per window
 *	end of a window: F > 0: w <- w (1 - alpha / 2), else w <- w + 1 MSS
 *	loss: w <- w / 2
 *
 * K is k_segments of the flow's MSS (the paper's unit) or k_bytes; or it is a
 * delay, the same for every window (ours): RTT - RTTmin > k_delay_ns. The public
 * text does not say how slow start ends. Here: with the
 * first ACK whose q > K; and alpha starts at 1, so that the window which overshot
 * is halved at its end. A round without any RTT sample counts as F = 0 (a window
 * that cannot be measured is still bounded by loss) and leaves alpha.
 */
#ifndef SLUICE_CC_DCVEGAS_H
#define SLUICE_CC_DCVEGAS_H

#include "cc_dctcp.h"
#include "cc_slack.h"

/*
 * Does this ACK say q > K? w is what was in flight, where the application kept
 * less than the window in flight.
 */
SG_INLINE int sg_dcvegas_late(const struct sg_cc *cc, const struct sg_params *params,
			      const struct sg_cc_ack *ack)
{
	sg_u32 window = ack->flight ? sg_min32(cc->cwnd, ack->flight) : cc->cwnd;
	sg_u64 backlog = params->k_bytes ? params->k_bytes :
					   (sg_u64)params->k_segments * cc->mss;
	sg_u32 delay_ns;

	if (!ack->min_rtt_ns || ack->rtt_ns <= ack->min_rtt_ns)
		return 0;
	delay_ns = ack->rtt_ns - ack->min_rtt_ns;
	if (!backlog && !params->k_delay_ns)
		return delay_ns > sg_slack_ns(cc, window, ack->rtt_ns);
	if (!backlog)
		return delay_ns > params->k_delay_ns;
	return sg_mul_div(window, delay_ns, ack->rtt_ns) > backlog;
}

/* The end of a window. Not a cut in the sense of SG_CC_CUT: rounds cannot overlap. */
SG_INLINE void sg_dcvegas_decide(struct sg_cc *cc, const struct sg_params *params,
				 int late, int growing)
{
	if (late && !(cc->flags & SG_CC_CUT)) {
		cc->prior = cc->cwnd;
		sg_cc_set(cc, params, sg_dctcp_reduced(cc, SG_ONE_Q10));
		cc->ssthresh = cc->cwnd;
	} else if (!late && growing && !sg_cc_in_slow_start(cc)) {
		sg_cc_set(cc, params, (sg_u64)cc->cwnd + cc->mss);
	}
}

SG_NOINLINE int sg_dcvegas_on_ack(struct sg_cc *cc, const struct sg_params *params,
				  const struct sg_cc_ack *ack)
{
	int ended = sg_cc_round(cc, ack);
	sg_u32 measured = ack->rtt_ns ? ack->acked : 0;
	int late, late_round, growing;

	late = sg_dcvegas_late(cc, params, ack);
	late_round = late || cc->dctcp.marked_bytes;
	sg_dctcp_count(cc, params, measured, late ? measured : 0, ended);
	if (sg_cc_marked(cc, params, ack, SG_RENO_KEEP_Q10))
		return 0;
	if (late)
		cc->ssthresh = sg_min32(cc->ssthresh, cc->cwnd);
	growing = sg_cc_may_grow(cc, ack);
	if (ended)
		sg_dcvegas_decide(cc, params, late_round, growing);
	if (growing)
		sg_cc_slow_start(cc, params, ack->acked);
	return 0;
}

#endif /* SLUICE_CC_DCVEGAS_H */
