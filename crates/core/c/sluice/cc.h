/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Congestion control: one header per algorithm, one interface.
 *
 * State is struct sg_cc, input is one acknowledgement, a loss or a timeout; the
 * output is cc->cwnd in bytes. The same headers serve as what a host enforces
 * and as a tenant's own stack (struct_ops). No algorithm reads a clock, divides
 * by an unchecked value or leaves cwnd outside
 * [sg_cc_floor(), sg_cc_cap()].
 *
 * Dispatch is a switch, since BPF has no calls through pointers; every
 * algorithm's handlers are subprograms of their own (SG_RARE, or SG_NOINLINE) and
 * run under the lock of the flow's slot: no helper calls, no loops, no static
 * writable data.
 *
 *	sg_cc_init()	once, when the peer's MSS is known
 *	sg_cc_on_ack()	each ACK that advances snd_una
 *	sg_cc_on_loss()	the third duplicate ACK; now_ns, snd_una, snd_nxt, flight
 *			of `ack` are read
 *	sg_cc_on_timeout()	silence with data outstanding; the same fields
 *	sg_cc_on_idle()	before the first data after an RTO without any
 *
 * An unknown algorithm is New Reno.
 */
#ifndef SLUICE_CC_H
#define SLUICE_CC_H

#include "cc_cubic.h"
#include "cc_dctcp.h"
#include "cc_dcvegas.h"
#include "cc_fixed.h"
#include "cc_highspeed.h"
#include "cc_illinois.h"
#include "cc_reno.h"
#include "cc_state.h"
#include "cc_swift.h"
#include "cc_vegas.h"

/* Algorithms whose own state begins with zeros. */
SG_INLINE void sg_zero_init(struct sg_cc *cc, const struct sg_params *params)
{
	(void)cc, (void)params;
}

/* The switches, from the table of algorithms. */
#define SG_CC_CASE_INIT(constant, name, state, ...) \
	case SG_CC_##constant:                      \
		sg_##state##_init(cc, params);      \
		break;
#define SG_CC_CASE_ACK(constant, name, ...)           \
	case SG_CC_##constant:                        \
		sg_##name##_on_ack(cc, params, ack);  \
		break;
#define SG_CC_CASE_LOSS(constant, name, state, loss, ...) \
	case SG_CC_##constant:                            \
		sg_##loss##_on_loss(cc, params, ack);     \
		break;
#define SG_CC_CASE_TIMEOUT(constant, name, state, loss, ...) \
	case SG_CC_##constant:                               \
		sg_##loss##_on_timeout(cc, params, ack);     \
		break;

/* mss: payload bytes of the peer's largest segment, taken into 1..65535. */
SG_INLINE void sg_cc_init(struct sg_cc *cc, const struct sg_params *params,
			  sg_u32 algorithm, sg_u32 mss)
{
	sg_u32 segments = sg_clamp32(params->init_segments, 1, 64);

	cc->mss = sg_clamp32(mss, 1, 65535);
	cc->ssthresh = SG_SSTHRESH_UNKNOWN;
	cc->round_end = 0;
	cc->cut_end = 0;
	cc->credit = 0;
	cc->flags = 0;
	cc->algorithm = (sg_u8)algorithm;
	cc->pad = 0;
	cc->word[0] = 0;
	cc->word[1] = 0;
	cc->word[2] = 0;
	cc->word[3] = 0;
	sg_cc_set(cc, params, segments * cc->mss);
	cc->prior = cc->cwnd;
	switch (algorithm) {
		SG_ALGORITHMS(SG_CC_CASE_INIT)
	default:
		break;
	}
}

/*
 * Goes on with another algorithm from the window that the one before had: the policy
 * has changed, or the path has shown that it does not suit. Slow start that is not over
 * goes on as well; `fixed` has none.
 */
SG_INLINE void sg_cc_change(struct sg_cc *cc, const struct sg_params *params, sg_u32 algorithm,
			    sg_u32 snd_nxt)
{
	sg_u16 flags;
	sg_u32 cwnd = cc->cwnd;
	sg_u32 ssthresh = cc->algorithm == SG_CC_FIXED ? cwnd : sg_max32(cc->ssthresh, cwnd);

	flags = cc->flags & SG_CC_UNSUITED;
	sg_cc_init(cc, params, algorithm, cc->mss);
	cc->flags = flags;
	cc->cwnd = sg_cc_bounded(cc, params, cwnd);
	cc->ssthresh = sg_max32(cc->cwnd, ssthresh);
	cc->round_end = snd_nxt;
}

SG_INLINE void sg_cc_on_ack(struct sg_cc *cc, const struct sg_params *params,
			    sg_u32 algorithm, const struct sg_cc_ack *ack)
{
	sg_slack_before(cc, algorithm, ack);
	switch (algorithm) {
		SG_ALGORITHMS(SG_CC_CASE_ACK)
	default:
		sg_reno_on_ack(cc, params, ack);
		break;
	}
}

/*
 * Something is lost. Recovery ends when all that was out at the last cut is acknowledged
 * (RFC 6675, section 5): what is lost then left after the cut, so that snd_nxt is beyond
 * cut_end, and deserves one of its own.
 * ACKs end a cut only beyond cut_end (sg_cc_round_at): one that reaches it may still report
 * an earlier mark.
 */
SG_INLINE void sg_cc_end_cut(struct sg_cc *cc, const struct sg_cc_ack *ack)
{
	if ((cc->flags & SG_CC_CUT) && !sg_seq_lt(ack->snd_una, cc->cut_end) &&
	    sg_seq_gt(ack->snd_nxt, cc->cut_end))
		cc->flags &= ~(SG_CC_CUT | SG_CC_HOLD);
}

/*
 * The same at a timeout. Two timeouts with an ACK in between are two reductions, though the
 * second may be of what was out at the first (Linux's tcp_enter_loss).
 */
SG_INLINE void sg_cc_end_cut_at_timeout(struct sg_cc *cc, const struct sg_cc_ack *ack)
{
	if ((cc->flags & SG_CC_BY_SILENCE) && !(cc->flags & SG_CC_TIMED_OUT))
		cc->flags &= ~(SG_CC_CUT | SG_CC_HOLD);
	sg_cc_end_cut(cc, ack);
}

SG_INLINE void sg_cc_on_loss(struct sg_cc *cc, const struct sg_params *params,
			     sg_u32 algorithm, const struct sg_cc_ack *ack)
{
	sg_cc_end_cut(cc, ack);
	switch (algorithm) {
		SG_ALGORITHMS(SG_CC_CASE_LOSS)
	default:
		sg_reno_on_loss(cc, params, ack);
		break;
	}
}

SG_INLINE void sg_cc_on_timeout(struct sg_cc *cc, const struct sg_params *params,
				sg_u32 algorithm, const struct sg_cc_ack *ack)
{
	sg_cc_end_cut_at_timeout(cc, ack);
	switch (algorithm) {
		SG_ALGORITHMS(SG_CC_CASE_TIMEOUT)
	default:
		sg_reno_on_timeout(cc, params, ack);
		break;
	}
}

/*
 * Restart after idleness: the window that fitted the network an RTO ago may not
 * fit now, so begin again from min(initial window, cwnd) (RFC 5681 4.1) and find
 * the old window in slow start (RFC 2861 3.2: ssthresh at least 3/4 of it).
 * `fixed` restores its window with the next ACK.
 */
SG_INLINE void sg_cc_on_idle(struct sg_cc *cc, const struct sg_params *params)
{
	sg_u32 initial = sg_clamp32(params->init_segments, 1, 64) * cc->mss;

	cc->ssthresh = sg_max32(cc->ssthresh, cc->cwnd - cc->cwnd / 4);
	sg_cc_set(cc, params, sg_min32(cc->cwnd, initial));
	cc->credit = 0;
	cc->flags &= ~SG_CC_EPOCH;
}

#endif /* SLUICE_CC_H */
