/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Thresholds of the delay for rules that name none, and whether a path allows any.
 *
 * Four segments of the flow's own in queues are no congestion: at least one of them is always on
 * a link, and where links are slow it takes longer than any delay that could be named here.
 *
 * Other delays that no queue of the flow's own explains are the path's: jitter, delayed ACKs,
 * what hosts add. They show where they go away by themselves: RTT samples that fall from one to
 * the next although the window was not cut. While a queue of one's own builds up, samples only
 * rise. Where one sample in 32 falls so by more than the threshold allows, delay is no sign of
 * congestion: SG_CC_UNSUITED, and the rule's `fallback` goes on.
 */
#ifndef SLUICE_CC_SLACK_H
#define SLUICE_CC_SLACK_H

#include "cc_state.h"

#define SG_SLACK_DELAY_NS 25000U
#define SG_SLACK_SEGMENTS 4U
/* Jitter that makes a path one of milliseconds, whatever its smallest RTT. */
#define SG_SLACK_FAR_FALL_NS 500000U
/* A fall counts as much as so many samples without. */
#define SG_SLACK_FALL 32U
#define SG_SLACK_SCORE_MAX (4U * SG_SLACK_FALL)

/* The delay that is not congestion, with `window` bytes out. */
SG_INLINE sg_u64 sg_slack_ns(const struct sg_cc *cc, sg_u32 window, sg_u32 rtt_ns)
{
	sg_u64 own_ns = sg_mul_div((sg_u64)SG_SLACK_SEGMENTS * cc->mss, rtt_ns, window);

	return sg_max64(own_ns, SG_SLACK_DELAY_NS);
}

/* What the flow's own cuts explain of the fall since the last sample, and what they may later. */
SG_INLINE sg_u32 sg_slack_unexplained(struct sg_cc *cc, sg_u32 rtt_ns)
{
	sg_u32 last_ns = cc->slack.last_ns, window = cc->slack.window;
	sg_u32 cut = window - sg_min32(window, cc->cwnd);
	sg_u32 fall_ns = last_ns - sg_min32(last_ns, rtt_ns);
	sg_u64 explained_ns = cc->slack.explained_ns + sg_mul_div(last_ns, cut, window);
	sg_u32 taken_ns = sg_sat32(sg_min64(explained_ns, fall_ns));

	explained_ns -= taken_ns;
	cc->slack.explained_ns = sg_sat32(explained_ns - explained_ns / 8);
	return fall_ns - taken_ns;
}

/* Before the algorithm answers the ACK. Falls of up to `least_ns` are none. */
SG_RARE int sg_slack_sample(struct sg_cc *cc SG_NONNULL,
			   const struct sg_cc_ack *ack SG_NONNULL, sg_u32 least_ns)
{
	sg_u32 fall_ns, score = cc->slack.score;

	if (!ack->rtt_ns)
		return 0;
	fall_ns = sg_slack_unexplained(cc, ack->rtt_ns);
	/* Half of it, since a fall from one sample to the next is rarely the whole range. */
	if (fall_ns > sg_slack_ns(cc, cc->cwnd, cc->slack.last_ns) / 2 && fall_ns > least_ns)
		score += ack->window_used ? SG_SLACK_FALL : 0;
	else
		score -= sg_min32(score, 1);
	cc->slack.score = sg_min32(score, SG_SLACK_SCORE_MAX);
	cc->slack.window = cc->cwnd;
	cc->slack.last_ns = ack->rtt_ns;
	if (score >= SG_SLACK_SCORE_MAX)
		cc->flags |= SG_CC_UNSUITED;
	return 0;
}

/* The same for the algorithms that a path can unsuit. Not called by them: stacks are short. */
SG_INLINE void sg_slack_before(struct sg_cc *cc, sg_u32 algorithm, const struct sg_cc_ack *ack)
{
	if (algorithm == SG_CC_DCVEGAS || algorithm == SG_CC_VEGAS || algorithm == SG_CC_SWIFT)
		sg_slack_sample(cc, ack, 0);
	else if (algorithm == SG_CC_RENO || algorithm == SG_CC_HIGHSPEED)
		sg_slack_sample(cc, ack, SG_SLACK_FAR_FALL_NS);
}

#endif /* SLUICE_CC_SLACK_H */
