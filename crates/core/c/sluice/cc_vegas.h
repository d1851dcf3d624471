/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * TCP Vegas: Brakmo and Peterson, "TCP Vegas: End to End Congestion Avoidance on
 * a Global Internet", IEEE JSAC 13(8), 1995. Once per RTT it compares what the
 * window would carry without a queue with what it carried,
 *
 *	diff = w (RTT - BaseRTT) / BaseRTT	segments
 *
 * and keeps alpha <= diff <= beta. Two things follow Linux's tcp_vegas.c, the
 * Vegas that tenants run, and not the paper: the divisor (the paper's definition
 * gives RTT), and a slow start that doubles each RTT and not every other.
 *
 * A round ends with the first ACK beyond its data, so that the smallest windows
 * have the three samples that a decision needs.
 */
#ifndef SLUICE_CC_VEGAS_H
#define SLUICE_CC_VEGAS_H

#include "cc_slack.h"
#include "cc_reno.h"

#define SG_VEGAS_GAMMA 1U   /* backlog in segments that ends slow start */
#define SG_VEGAS_SAMPLES 3U /* fewer in a round: a delayed ACK may be all of them */

/* Whole segments queued; RTT is the round's smallest. */
SG_INLINE sg_u64 sg_vegas_backlog(const struct sg_cc *cc, sg_u32 base_rtt_ns)
{
	sg_u32 rtt_ns = sg_max32(cc->vegas.rtt_ns, base_rtt_ns);

	return sg_div(sg_mul_div(cc->cwnd, rtt_ns - base_rtt_ns, base_rtt_ns),
		      cc->mss);
}

/* One segment less; slow start is over. */
SG_INLINE void sg_vegas_back_off(struct sg_cc *cc, const struct sg_params *params,
				 sg_u64 window)
{
	sg_cc_set(cc, params, sg_min64(window, cc->cwnd));
	cc->ssthresh = sg_min32(cc->ssthresh, cc->cwnd);
}

/* The decision at the end of a round. */
SG_INLINE void sg_vegas_decide(struct sg_cc *cc, const struct sg_params *params,
			       const struct sg_cc_ack *ack, int growing)
{
	sg_u64 backlog = sg_vegas_backlog(cc, ack->min_rtt_ns);

	if (sg_cc_in_slow_start(cc)) {
		if (backlog > SG_VEGAS_GAMMA)
			sg_vegas_back_off(cc, params,
					  sg_mul_div(cc->cwnd, ack->min_rtt_ns,
						     cc->vegas.rtt_ns) + cc->mss);
		else if (growing)
			sg_cc_slow_start(cc, params, ack->acked);
	} else if (backlog > params->vegas_beta) {
		sg_vegas_back_off(cc, params, cc->cwnd - sg_min32(cc->mss, cc->cwnd));
	} else if (backlog < params->vegas_alpha && growing) {
		sg_cc_set(cc, params, (sg_u64)cc->cwnd + cc->mss);
	}
}

SG_INLINE void sg_vegas_sample(struct sg_cc *cc, sg_u32 rtt_ns)
{
	if (!rtt_ns)
		return;
	if (!cc->vegas.samples || rtt_ns < cc->vegas.rtt_ns)
		cc->vegas.rtt_ns = rtt_ns;
	cc->vegas.samples = sg_sat32(cc->vegas.samples + 1ULL);
}

SG_NOINLINE int sg_vegas_on_ack(struct sg_cc *cc, const struct sg_params *params,
				const struct sg_cc_ack *ack)
{
	int ended = sg_cc_round_at(cc, ack, ack->snd_una - 1);
	int growing;

	sg_vegas_sample(cc, ack->rtt_ns);
	if (sg_cc_marked(cc, params, ack, SG_RENO_KEEP_Q10))
		return 0;
	growing = sg_cc_may_grow(cc, ack);
	if (!ended) {
		if (growing)
			sg_cc_slow_start(cc, params, ack->acked);
		return 0;
	}
	if (cc->vegas.samples >= SG_VEGAS_SAMPLES && ack->min_rtt_ns)
		sg_vegas_decide(cc, params, ack, growing);
	else if (growing)
		sg_cc_grow(cc, params, ack->acked); /* what this ACK alone has earned */
	cc->vegas.samples = 0;
	return 0;
}

#endif /* SLUICE_CC_VEGAS_H */
