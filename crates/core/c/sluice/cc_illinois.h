/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * TCP Illinois: Liu, Basar, Srikant, "TCP-Illinois: A loss- and delay-based
 * congestion control algorithm for high-speed networks", Performance Evaluation
 * 65 (2008). Loss says when, delay says how much:
 *
 *	w <- w + alpha(da) per window,  w <- w (1 - beta(da)) at a loss
 *
 * da is the average queueing delay of the last window, dm the largest ever. alpha
 * falls from 10 to 0.3, beta rises from 1/8 to 1/2. Below 15 segments: New Reno.
 */
#ifndef SLUICE_CC_ILLINOIS_H
#define SLUICE_CC_ILLINOIS_H

#include "cc_state.h"

#define SG_ILLINOIS_ALPHA_MAX_Q10 10240ULL
#define SG_ILLINOIS_ALPHA_MIN_Q10 307ULL
#define SG_ILLINOIS_BETA_MIN_Q10 128ULL
#define SG_ILLINOIS_BETA_MAX_Q10 512ULL
#define SG_ILLINOIS_THRESHOLD 15U /* segments */
#define SG_ILLINOIS_THETA 5U      /* rounds of low delay before alpha returns to its maximum */

/* New Reno until a round has been measured. */
SG_INLINE void sg_illinois_init(struct sg_cc *cc, const struct sg_params *params)
{
	(void)params;
	cc->illinois.alpha_q10 = SG_ONE_Q10;
	cc->illinois.beta_q10 = SG_ILLINOIS_BETA_MAX_Q10;
}

/* alpha = k1 / (k2 + da) between d1 = dm / 100 and dm; the maximum below d1. */
SG_INLINE sg_u32 sg_illinois_alpha(struct sg_cc *cc, sg_u64 da, sg_u64 dm)
{
	sg_u64 d1 = dm / 100;

	if (da > d1) {
		cc->illinois.above = 1;
		cc->illinois.rounds_low = 0;
		dm -= d1;
		da = (da - d1) * (SG_ILLINOIS_ALPHA_MAX_Q10 - SG_ILLINOIS_ALPHA_MIN_Q10);
		return sg_sat32(sg_mul_div(dm, SG_ILLINOIS_ALPHA_MAX_Q10,
					   dm + da / SG_ILLINOIS_ALPHA_MIN_Q10));
	}
	if (cc->illinois.above && ++cc->illinois.rounds_low < SG_ILLINOIS_THETA)
		return cc->illinois.alpha_q10;
	cc->illinois.above = 0;
	cc->illinois.rounds_low = 0;
	return SG_ILLINOIS_ALPHA_MAX_Q10;
}

/* beta: the minimum up to d2 = dm / 10, the maximum from d3 = 8 dm / 10, linear between. */
SG_INLINE sg_u32 sg_illinois_beta(sg_u64 da, sg_u64 dm)
{
	sg_u64 d2 = dm / 10;
	sg_u64 d3 = dm * 8 / 10;

	if (da <= d2)
		return SG_ILLINOIS_BETA_MIN_Q10;
	if (da >= d3)
		return SG_ILLINOIS_BETA_MAX_Q10;
	return sg_sat32(SG_ILLINOIS_BETA_MIN_Q10 +
			sg_mul_div(SG_ILLINOIS_BETA_MAX_Q10 - SG_ILLINOIS_BETA_MIN_Q10,
				   da - d2, d3 - d2));
}

/* End of a round: alpha and beta for the next. No sample: they stay. */
SG_INLINE void sg_illinois_decide(struct sg_cc *cc, sg_u32 base_rtt_ns)
{
	sg_u64 average = sg_div(cc->illinois.rtt_sum_ns, cc->illinois.samples);
	sg_u64 da = average > base_rtt_ns ? average - base_rtt_ns : 0;
	sg_u64 dm = cc->illinois.max_rtt_ns > base_rtt_ns ?
			    cc->illinois.max_rtt_ns - base_rtt_ns : 0;

	if (cc->cwnd / SG_ILLINOIS_THRESHOLD < cc->mss) {
		cc->illinois.alpha_q10 = SG_ONE_Q10;
		cc->illinois.beta_q10 = SG_ILLINOIS_BETA_MAX_Q10;
	} else if (cc->illinois.samples && base_rtt_ns) {
		cc->illinois.alpha_q10 = sg_illinois_alpha(cc, da, dm);
		cc->illinois.beta_q10 = sg_illinois_beta(da, dm);
	}
	cc->illinois.rtt_sum_ns = 0;
	cc->illinois.samples = 0;
}

SG_INLINE void sg_illinois_sample(struct sg_cc *cc, sg_u32 rtt_ns)
{
	if (!rtt_ns)
		return;
	cc->illinois.rtt_sum_ns += rtt_ns;
	cc->illinois.samples = sg_sat32(cc->illinois.samples + 1ULL);
	cc->illinois.max_rtt_ns = sg_max32(cc->illinois.max_rtt_ns, rtt_ns);
}

/* 1 - beta in 1/1024. */
SG_INLINE sg_u32 sg_illinois_keep(const struct sg_cc *cc)
{
	return SG_ONE_Q10 - sg_min32(cc->illinois.beta_q10, SG_ILLINOIS_BETA_MAX_Q10);
}

/* The delays measured so far are void. */
SG_INLINE void sg_illinois_reset(struct sg_cc *cc, const struct sg_params *params)
{
	sg_illinois_init(cc, params);
	cc->illinois.rtt_sum_ns = 0;
	cc->illinois.samples = 0;
	cc->illinois.rounds_low = 0;
	cc->illinois.above = 0;
}

SG_NOINLINE int sg_illinois_on_loss(struct sg_cc *cc,
				    const struct sg_params *params,
				    const struct sg_cc_ack *ack)
{
	sg_cc_lost(cc, params, ack, sg_illinois_keep(cc));
	return 0;
}

SG_NOINLINE int sg_illinois_on_timeout(struct sg_cc *cc,
				       const struct sg_params *params,
				       const struct sg_cc_ack *ack)
{
	sg_cc_timed_out(cc, params, ack, sg_illinois_keep(cc));
	sg_illinois_reset(cc, params);
	return 0;
}

SG_NOINLINE int sg_illinois_on_ack(struct sg_cc *cc,
				   const struct sg_params *params,
				   const struct sg_cc_ack *ack)
{
	sg_illinois_sample(cc, ack->rtt_ns);
	if (sg_cc_round(cc, ack))
		sg_illinois_decide(cc, ack->min_rtt_ns);
	if (sg_cc_marked(cc, params, ack, sg_illinois_keep(cc)))
		return 0;
	if (!sg_cc_may_grow(cc, ack))
		return 0;
	sg_cc_grow_by(cc, params, ack->acked, cc->illinois.alpha_q10);
	return 0;
}

#endif /* SLUICE_CC_ILLINOIS_H */
