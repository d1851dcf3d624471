/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * CUBIC: RFC 9438. Section numbers below are its own.
 *
 *	W_cubic(t) = C (t - K)^3 + W_max,  C = 0.4 segments/s^3
 *	K          = cbrt((W_max - cwnd_epoch) / C)
 *
 * Time runs in 1/1024 s, windows in bytes. Time in which the application did not
 * fill the window does not count (5.8): the epoch is shifted by it.
 *
 * beta_cubic is 0.7 unless params say otherwise: stacks after the drafts before
 * RFC 8312, such as FreeBSD 9's, have 0.8.
 */
#ifndef SLUICE_CC_CUBIC_H
#define SLUICE_CC_CUBIC_H

#include "cc_state.h"

#define SG_CUBIC_KEEP_Q10 717U     /* beta_cubic = 0.7 (4.6) */
#define SG_CUBIC_CONVERGE_Q10 870U /* (1 + beta_cubic) / 2 (4.7) */
#define SG_CUBIC_ALPHA_Q10 542U    /* 3 (1 - beta_cubic) / (1 + beta_cubic) (4.3) */
/* beta_cubic; the other two follow from it. */
SG_INLINE sg_u32 sg_cubic_keep(const struct sg_params *params)
{
	sg_u32 keep_q10 = params->cubic_keep_q10;

	return keep_q10 ? sg_min32(keep_q10, SG_ONE_Q10 - 1) : SG_CUBIC_KEEP_Q10;
}

SG_INLINE sg_u32 sg_cubic_converge(const struct sg_params *params)
{
	return params->cubic_keep_q10 ? (SG_ONE_Q10 + sg_cubic_keep(params)) / 2 :
					SG_CUBIC_CONVERGE_Q10;
}

SG_INLINE sg_u32 sg_cubic_alpha(const struct sg_params *params)
{
	sg_u32 keep_q10 = sg_cubic_keep(params);

	if (!params->cubic_keep_q10)
		return SG_CUBIC_ALPHA_Q10;
	return 3 * (SG_ONE_Q10 - keep_q10) * SG_ONE_Q10 / (SG_ONE_Q10 + keep_q10);
}

/* 256 s: (t - K)^3 stays within 54 bits, and the window beyond 6 million segments. */
#define SG_CUBIC_TIME_MAX (1U << 18)

/* 64 cbrt(i + 1/2) */
static const sg_u16 sg_cbrt_table[64] __attribute__((unused)) = {
	51, 73, 87, 97, 106, 113, 119, 125, 131, 136, 140, 144,
	149, 152, 156, 160, 163, 166, 169, 172, 175, 178, 181, 183,
	186, 188, 191, 193, 195, 198, 200, 202, 204, 206, 208, 210,
	212, 214, 216, 218, 220, 222, 223, 225, 227, 228, 230, 232,
	233, 235, 237, 238, 240, 241, 243, 244, 246, 247, 248, 250,
	251, 253, 254, 255,
};

/* Cube root, within 0.1 % above 2^18: a table by the top six bits, one Newton step. */
SG_INLINE sg_u32 sg_cbrt(sg_u64 x)
{
	sg_u32 bits = sg_bits(x);
	sg_u32 thirds = bits > 6 ? (bits - 4) / 3 : 0;
	sg_u64 root = ((sg_u64)sg_cbrt_table[sg_shr(x, 3 * thirds) & 63] << thirds) >> 6;

	root = sg_max64(root, 1);
	return sg_sat32((2 * root + x / (root * root)) / 3);
}

/* K in 1/1024 s for a window `missing` bytes below W_max; 5 * 2^61 < 2^64. */
SG_INLINE sg_u32 sg_cubic_k(sg_u32 missing, sg_u32 mss)
{
	return sg_min32(sg_cbrt(sg_mul_div((sg_u64)missing * 5, 1ULL << 29, mss)),
			SG_CUBIC_TIME_MAX);
}

/* W_cubic(t) in bytes (4.2), t in 1/1024 s. */
SG_INLINE sg_u64 sg_cubic_window(const struct sg_cc *cc, sg_u64 t_q10)
{
	sg_u64 k_q10 = cc->cubic.k_q10;
	sg_u64 distance = sg_min64(t_q10 < k_q10 ? k_q10 - t_q10 : t_q10 - k_q10,
				   SG_CUBIC_TIME_MAX);
	sg_u64 cube_q20 = distance * distance * distance >> 10;
	sg_u64 offset = cube_q20 * 2 / 5 * cc->mss >> 20;

	if (t_q10 >= k_q10)
		return cc->cubic.w_max + offset;
	return cc->cubic.w_max > offset ? cc->cubic.w_max - offset : 0;
}

/* Congestion avoidance begins: the only place where a root is drawn (4.2). */
SG_INLINE void sg_cubic_begin(struct sg_cc *cc, sg_u64 now_ns)
{
	cc->flags |= SG_CC_EPOCH;
	cc->credit = 0;
	cc->cubic.epoch_ns = now_ns;
	cc->cubic.w_est = cc->cwnd;
	cc->cubic.k_q10 = 0;
	if (cc->cwnd < cc->cubic.w_max)
		cc->cubic.k_q10 = sg_cubic_k(cc->cubic.w_max - cc->cwnd, cc->mss);
	else
		cc->cubic.w_max = cc->cwnd;
}

/* W_est, the window that Reno would have (4.3); credit carries its fraction of a byte. */
SG_INLINE void sg_cubic_estimate(struct sg_cc *cc, const struct sg_params *params,
				 sg_u32 acked)
{
	sg_u32 alpha_q10 = cc->cubic.w_est < cc->prior ? sg_cubic_alpha(params) :
							 SG_ONE_Q10;
	sg_u64 growth = cc->credit + ((sg_u64)acked * alpha_q10 >> 10) * cc->mss;
	sg_u64 bytes = sg_div(growth, cc->cwnd);

	cc->credit = sg_sat32(growth - bytes * cc->cwnd);
	cc->cubic.w_est = sg_sat32(cc->cubic.w_est + bytes);
}

/* Time since the epoch began, in 1/1024 s: 1953125 / 2 ns each. */
SG_INLINE sg_u64 sg_cubic_elapsed(const struct sg_cc *cc, sg_u64 now_ns)
{
	sg_u64 ns = now_ns > cc->cubic.epoch_ns ? now_ns - cc->cubic.epoch_ns : 0;

	return sg_min64(ns, 1ULL << 60) * 2 / 1953125;
}

/* Congestion avoidance: Reno-friendly, concave or convex (4.3 to 4.5). */
SG_INLINE void sg_cubic_avoid(struct sg_cc *cc, const struct sg_params *params,
			      sg_u64 now_ns, sg_u32 acked)
{
	sg_u64 cwnd = cc->cwnd;
	sg_u64 elapsed, target, step;

	if (!(cc->flags & SG_CC_EPOCH))
		sg_cubic_begin(cc, now_ns);
	elapsed = sg_cubic_elapsed(cc, now_ns);
	sg_cubic_estimate(cc, params, acked);
	if (sg_cubic_window(cc, elapsed) < cc->cubic.w_est) {
		sg_cc_set(cc, params, sg_max64(cwnd, cc->cubic.w_est));
		return;
	}
	target = sg_cubic_window(cc, elapsed + cc->cubic.srtt_ns * 2ULL / 1953125);
	target = sg_max64(cwnd, sg_min64(target, cwnd + cwnd / 2));
	step = sg_mul_div(target - cwnd, acked, cwnd);
	sg_cc_set(cc, params, cwnd + sg_min64(step, target - cwnd));
}

/* The clock of the epoch: time without growth is taken out of it. */
SG_INLINE void sg_cubic_clock(struct sg_cc *cc, const struct sg_cc_ack *ack,
			      int growing)
{
	if (!growing && ack->now_ns > cc->cubic.seen_ns)
		cc->cubic.epoch_ns += ack->now_ns - cc->cubic.seen_ns;
	cc->cubic.seen_ns = ack->now_ns;
	if (!ack->rtt_ns)
		return;
	if (!cc->cubic.srtt_ns)
		cc->cubic.srtt_ns = ack->rtt_ns;
	cc->cubic.srtt_ns = sg_sat32((7ULL * cc->cubic.srtt_ns + ack->rtt_ns) >> 3);
}

/* W_max for the next epoch, lower when the window did not reach it again: others
 * have come, make room (fast convergence, 4.7). Once per cut. */
SG_INLINE void sg_cubic_remember(struct sg_cc *cc, const struct sg_params *params)
{
	if (cc->flags & SG_CC_CUT)
		return;
	cc->cubic.w_max = cc->cwnd < cc->cubic.w_max ?
				  sg_cc_scaled(cc->cwnd, sg_cubic_converge(params)) :
				  cc->cwnd;
}

SG_NOINLINE int sg_cubic_on_loss(struct sg_cc *cc, const struct sg_params *params,
				 const struct sg_cc_ack *ack)
{
	sg_cubic_remember(cc, params);
	sg_cc_lost(cc, params, ack, sg_cubic_keep(params));
	return 0;
}

/* After a timeout the first epoch is convex from where it begins (4.8). */
SG_NOINLINE int sg_cubic_on_timeout(struct sg_cc *cc,
				    const struct sg_params *params,
				    const struct sg_cc_ack *ack)
{
	cc->cubic.w_max = 0;
	sg_cc_timed_out(cc, params, ack, sg_cubic_keep(params));
	return 0;
}

SG_NOINLINE int sg_cubic_on_ack(struct sg_cc *cc, const struct sg_params *params,
				const struct sg_cc_ack *ack)
{
	sg_u32 acked = ack->acked;
	int growing;

	sg_cc_round(cc, ack);
	growing = sg_cc_may_grow(cc, ack);
	sg_cubic_clock(cc, ack, growing);
	if (ack->marked && !(cc->flags & SG_CC_CUT)) {
		sg_cubic_remember(cc, params);
		sg_cc_lost(cc, params, ack, sg_cubic_keep(params));
		return 0;
	}
	if (!growing)
		return 0;
	acked = sg_cc_slow_start(cc, params, acked);
	if (acked)
		sg_cubic_avoid(cc, params, ack->now_ns, acked);
	return 0;
}

#endif /* SLUICE_CC_CUBIC_H */
