/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * DCTCP: Alizadeh et al., "Data Center TCP", SIGCOMM 2010; RFC 8257. With the
 * priority beta of AC/DC TCP (He et al., SIGCOMM 2016, section 3.4):
 *
 *	alpha <- (1 - g) alpha + g F                once per window
 *	w     <- w (1 - (alpha - alpha beta / 2))   at most once per window
 *
 * F is the fraction of a window's bytes that met CE. beta = 1 is DCTCP, beta = 0
 * backs off by the whole of alpha. Loss and timeout are New Reno's.
 *
 * Flows of a host to one peer share F, and are cut when any of them is marked (ours;
 * path.h says why): F and the moments of cuts then are the same for all of them,
 * whatever phase of the queue each one meets, and equal flows come to equal windows.
 *
 * Growth is New Reno's for beta = 1. A smaller beta also grows more slowly (ours;
 * SG_RULE_CUT_ONLY leaves it out). The paper's rule lacks this: flows that meet the
 * same marks and grow alike settle where growth = w alpha (1 - beta / 2), so that
 * the rule alone never sets them further apart than 2 to 1
 * (docs/congestion-control.md).
 */
#ifndef SLUICE_CC_DCTCP_H
#define SLUICE_CC_DCTCP_H

#include "cc_reno.h"

/* RFC 8257 3.3: alpha starts at 1, so that the first mark halves. */
SG_INLINE void sg_dctcp_init(struct sg_cc *cc, const struct sg_params *params)
{
	(void)params;
	cc->dctcp.alpha_q20 = SG_ONE_Q20;
}

/*
 * alpha <- (1 - g) alpha + g F with g = 2^-g_shift. The decay is rounded up, so
 * that alpha reaches 0 and cannot pass 1.
 */
SG_INLINE sg_u32 sg_dctcp_alpha(sg_u32 alpha_q20, sg_u32 marked, sg_u32 acked,
				sg_u32 g_shift)
{
	sg_u64 fraction_q20 = sg_min64(sg_mul_div(marked, SG_ONE_Q20, acked),
				       SG_ONE_Q20);
	sg_u64 decay = sg_shr(alpha_q20 + sg_shl(1, g_shift & 31) - 1, g_shift & 31);

	return sg_sat32(alpha_q20 - sg_min64(decay, alpha_q20) +
			sg_shr(fraction_q20, g_shift & 31));
}

/*
 * Count bytes of this ACK; at the end of a round turn the counts into alpha. A
 * round of which nothing was counted says nothing and leaves alpha.
 */
SG_INLINE void sg_dctcp_count(struct sg_cc *cc, const struct sg_params *params,
			      sg_u32 acked, sg_u32 marked, int round_ended)
{
	cc->dctcp.acked_bytes = sg_sat32((sg_u64)cc->dctcp.acked_bytes + acked);
	cc->dctcp.marked_bytes = sg_sat32((sg_u64)cc->dctcp.marked_bytes + marked);
	if (!round_ended || !cc->dctcp.acked_bytes)
		return;
	cc->dctcp.alpha_q20 = sg_dctcp_alpha(cc->dctcp.alpha_q20,
					     cc->dctcp.marked_bytes,
					     cc->dctcp.acked_bytes,
					     params->g_shift);
	cc->dctcp.acked_bytes = 0;
	cc->dctcp.marked_bytes = 0;
}

/*
 * A flow goes by the marks of its path as long as its own fraction is within this factor of the
 * path's. Beyond it the flow meets another queue (another of several paths), or a receiver reports
 * marks that are not the network's: it goes by its own. So flows that are not marked lose nothing
 * to others, and one that is marked much more than others is cut by its own fraction.
 */
#define SG_DCTCP_PATH_RATIO 4U

SG_INLINE int sg_dctcp_on_path(const struct sg_cc *cc)
{
	sg_u64 own = cc->dctcp.alpha_q20, path = cc->dctcp.path_alpha_q20;

	return (cc->flags & SG_CC_PATH) && own && own * SG_DCTCP_PATH_RATIO >= path &&
	       path * SG_DCTCP_PATH_RATIO >= own;
}

/* Sums that have grown by more are of another table. */
#define SG_DCTCP_PATH_MAX (1U << 31)

/*
 * The path's alpha, once a round as the flow's own. Returns whether the path has marked since it
 * was last asked, beyond what a cut in progress answers (`was_cut` before this ACK).
 */
SG_INLINE int sg_dctcp_path(struct sg_cc *cc, const struct sg_params *params,
			    const struct sg_cc_ack *ack, int round_ended, int was_cut)
{
	sg_u32 acked = ack->path_acked - cc->dctcp.path_acked;
	sg_u32 marked = ack->path_marked - cc->dctcp.path_marked;
	int begins = !(cc->flags & SG_CC_PATH) || acked > SG_DCTCP_PATH_MAX;
	int news = !begins && !was_cut && ack->path_marked != cc->dctcp.path_seen;

	if (begins)
		cc->dctcp.path_alpha_q20 = cc->dctcp.alpha_q20;
	else if (round_ended && acked)
		cc->dctcp.path_alpha_q20 = sg_dctcp_alpha(cc->dctcp.path_alpha_q20, marked, acked,
							  params->g_shift);
	if (begins || round_ended) {
		cc->dctcp.path_acked = ack->path_acked;
		cc->dctcp.path_marked = ack->path_marked;
	}
	cc->dctcp.path_seen = ack->path_marked;
	cc->flags |= SG_CC_PATH;
	return news;
}

/* w (1 - (alpha - alpha beta / 2)), not bounded; alpha is the path's, if the flow goes by that. */
SG_INLINE sg_u32 sg_dctcp_reduced(const struct sg_cc *cc, sg_u32 beta_q10)
{
	sg_u64 beta = sg_min32(beta_q10, SG_ONE_Q10);
	sg_u32 alpha = sg_dctcp_on_path(cc) ? cc->dctcp.path_alpha_q20 : cc->dctcp.alpha_q20;
	sg_u64 alpha_q20 = sg_min32(alpha, SG_ONE_Q20);
	sg_u64 factor_q20 = alpha_q20 - (alpha_q20 * beta >> 11);

	return sg_sat32(cc->cwnd - ((sg_u64)cc->cwnd * factor_q20 >> 20));
}

/* The slowest growth: a flow without priority still finds unused bandwidth. */
#define SG_DCTCP_INCREASE_MIN_Q10 (SG_ONE_Q10 / 8)

/* Slow start, then beta segments per window, or one where the rule is the paper's. */
SG_INLINE void sg_dctcp_grow(struct sg_cc *cc, const struct sg_params *params,
			     sg_u32 acked)
{
	sg_u32 least = params->flags & SG_RULE_CUT_ONLY ? SG_ONE_Q10 :
							  SG_DCTCP_INCREASE_MIN_Q10;

	sg_cc_grow_by(cc, params, acked, sg_clamp32(params->beta_q10, least, SG_ONE_Q10));
}

SG_NOINLINE int sg_dctcp_on_ack(struct sg_cc *cc, const struct sg_params *params,
				const struct sg_cc_ack *ack)
{
	sg_u32 marked = sg_min32(ack->marked, ack->acked);
	int was_cut = cc->flags & SG_CC_CUT, ended = sg_cc_round(cc, ack), met = marked > 0;

	/* alpha before the cut: a mark is answered with what its own window showed. */
	sg_dctcp_count(cc, params, ack->acked, marked, ended);
	if (ack->on_path && sg_dctcp_path(cc, params, ack, ended, was_cut) &&
	    sg_dctcp_on_path(cc))
		met = 1;
	if (met && !(cc->flags & SG_CC_CUT))
		sg_cc_cut_to(cc, params, ack,
			     sg_dctcp_reduced(cc, params->beta_q10));
	else if (sg_cc_may_grow(cc, ack))
		sg_dctcp_grow(cc, params, ack->acked);
	return 0;
}

#endif /* SLUICE_CC_DCTCP_H */
