/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Congestion control: the state, the input, and what every algorithm shares:
 * bounds, rounds, one cut per window, New Reno's growth (RFC 5681).
 *
 * Invariant: after sg_cc_init(), cwnd is within [sg_cc_floor(), sg_cc_cap()]
 * whatever the inputs, and it changes only through sg_cc_set().
 */
#ifndef SLUICE_CC_STATE_H
#define SLUICE_CC_STATE_H

#include "math.h"
#include "params.h"
#include "seq.h"

enum sg_cc_flags {
	SG_CC_STARTED = 1 << 0,   /* round_end is valid */
	SG_CC_CUT = 1 << 1,       /* cut_end and prior are valid: no second cut yet */
	SG_CC_HOLD = 1 << 2,      /* no growth until the cut's window is acknowledged */
	SG_CC_TIMED_OUT = 1 << 3, /* no ACK since the last timeout */
	SG_CC_EPOCH = 1 << 4,     /* cubic: the epoch has begun */
	SG_CC_FULL = 1 << 5,      /* the window was full, and ACKs have come close together since */
	SG_CC_UNSUITED = 1 << 6,  /* delay is no sign of congestion on this path */
	SG_CC_PATH = 1 << 7,      /* dctcp: what is known of the path is valid */
	SG_CC_WAS_FULL = 1 << 8,  /* the window was full in the round before */
	SG_CC_BY_SILENCE = 1 << 9, /* SG_CC_CUT was a timeout's */
};

struct sg_cc {
	sg_u32 cwnd;      /* bytes */
	sg_u32 ssthresh;  /* bytes; all ones = not yet known */
	sg_u32 mss;       /* payload bytes of the largest segment, never 0 after init */
	sg_u32 round_end; /* snd_nxt when this window's round began */
	sg_u32 cut_end;   /* no cut by marks before snd_una passes this, by losses before it is here */
	sg_u32 credit;    /* bytes acknowledged towards the next increase */
	sg_u32 prior;     /* cwnd in bytes before the last cut */
	sg_u16 flags;     /* enum sg_cc_flags */
	sg_u8 algorithm;  /* enum sg_algorithm whose state this is */
	sg_u8 pad;
	union {
		sg_u64 word[4];
		struct {
			sg_u32 alpha_q20;   /* fraction marked, 0..SG_ONE_Q20 */
			sg_u32 acked_bytes; /* this round */
			sg_u32 marked_bytes;
			sg_u32 path_alpha_q20; /* SG_CC_PATH: of all flows on the path */
			sg_u32 path_acked;     /* the same: their sums when this round began */
			sg_u32 path_marked;
			sg_u32 path_seen;      /* the same: marks that have been answered */
		} dctcp; /* also dcvegas, where late bytes take the place of marked ones */
		struct {
			sg_u64 epoch_ns;  /* when this congestion avoidance began */
			sg_u64 seen_ns;   /* the previous ACK */
			sg_u32 w_max;     /* bytes; 0 = none, the epoch starts convex */
			sg_u32 k_q10;     /* K in 1/1024 s */
			sg_u32 w_est;     /* bytes: what Reno would have */
			sg_u32 srtt_ns;   /* smoothed RTT; 0 = none yet */
		} cubic;
		struct {
			sg_u32 rtt_ns;  /* smallest of this round */
			sg_u32 samples; /* of this round */
		} vegas;
		struct {
			sg_u64 own[2];   /* dcvegas, vegas, swift: as above and below */
			sg_u32 last_ns;  /* last RTT sample */
			sg_u32 window;   /* bytes, with the last sample */
			sg_u32 explained_ns; /* RTTs may still fall by this after cuts */
			sg_u32 score;    /* RTTs that fall by themselves, lately */
		} slack; /* cc_slack.h */
		struct {
			sg_u64 rtt_sum_ns; /* this round */
			sg_u32 samples;    /* this round */
			sg_u32 max_rtt_ns; /* largest sample of the flow */
			sg_u32 alpha_q10;  /* segments per window to add */
			sg_u32 beta_q10;   /* fraction of the window to give up */
			sg_u8 rounds_low;  /* consecutive rounds with little delay */
			sg_u8 above;       /* delay has exceeded the first threshold since */
		} illinois;
		struct {
			sg_u64 cut_ns;   /* when delay last cut the window */
			sg_u32 delay_ns; /* last RTT sample; 0 = none since the last timeout */
		} swift;
	};
};
SG_ASSERT_SIZE(struct sg_cc, 64);
SG_ASSERT_AT(struct sg_cc, credit, 20);
SG_ASSERT_AT(struct sg_cc, flags, 28);
SG_ASSERT_AT(struct sg_cc, word, 32);

/* One acknowledgement that advanced snd_una. */
struct sg_cc_ack {
	sg_u64 now_ns;
	sg_u32 acked;       /* bytes newly acknowledged, > 0 */
	sg_u32 marked;      /* of the bytes delivered, those that met CE; 0..acked */
	sg_u32 rtt_ns;      /* 0 = no valid sample with this ACK */
	sg_u32 min_rtt_ns;  /* smallest seen on this flow; 0 = none yet */
	sg_u32 snd_una;     /* after this ACK */
	sg_u32 snd_nxt;     /* highest sent + 1, retransmissions apart */
	sg_u32 flight;      /* bytes outstanding before this ACK */
	sg_u8 window_used;  /* the flow filled its window: growth is earned (RFC 7661) */
	sg_u8 in_recovery;  /* fast recovery is not over; 0 after a timeout, where slow start begins at once */
	sg_u8 on_path;      /* the sums of its path are known */
	sg_u8 pad;
	sg_u32 path_acked;  /* on_path: of all flows of the host to this peer (path.h), with this ACK */
	sg_u32 path_marked;
};
SG_ASSERT_SIZE(struct sg_cc_ack, 48);

#define SG_SSTHRESH_UNKNOWN 0xffffffffU

/* Smallest window in bytes; window.h says why it is what it is. */
SG_INLINE sg_u32 sg_cc_floor(const struct sg_cc *cc, const struct sg_params *params)
{
	return params->floor_mss < 2 ? cc->mss + 64 : 2 * cc->mss;
}

SG_INLINE sg_u32 sg_cc_cap(const struct sg_cc *cc, const struct sg_params *params)
{
	return sg_max32(params->window_cap, sg_cc_floor(cc, params));
}

SG_INLINE sg_u32 sg_cc_bounded(const struct sg_cc *cc,
			       const struct sg_params *params, sg_u64 window)
{
	return sg_clamp32(sg_sat32(window), sg_cc_floor(cc, params),
			  sg_cc_cap(cc, params));
}

SG_INLINE void sg_cc_set(struct sg_cc *cc, const struct sg_params *params,
			 sg_u64 window)
{
	cc->cwnd = sg_cc_bounded(cc, params, window);
}

/* window * keep / 1024. */
SG_INLINE sg_u32 sg_cc_scaled(sg_u32 window, sg_u32 keep_q10)
{
	return sg_sat32((sg_u64)window * keep_q10 >> 10);
}

/* A round ends when `una` reaches where snd_nxt was at its beginning. */
SG_INLINE int sg_cc_round_at(struct sg_cc *cc, const struct sg_cc_ack *ack, sg_u32 una)
{
	cc->flags &= ~SG_CC_TIMED_OUT;
	if (!(cc->flags & SG_CC_STARTED)) {
		cc->flags |= SG_CC_STARTED;
		cc->round_end = ack->snd_nxt;
		return 0;
	}
	if ((cc->flags & SG_CC_CUT) && sg_seq_gt(ack->snd_una, cc->cut_end))
		cc->flags &= ~(SG_CC_CUT | SG_CC_HOLD);
	if (sg_seq_lt(una, cc->round_end))
		return 0;
	cc->round_end = ack->snd_nxt;
	return 1;
}

/*
 * First call of every algorithm's ACK handler: end a cut that this ACK passes,
 * and say whether a round (one window of data) ended. Every ACK comes through
 * here, so neither comparison can be led astray by wrap-around.
 */
SG_INLINE int sg_cc_round(struct sg_cc *cc, const struct sg_cc_ack *ack)
{
	return sg_cc_round_at(cc, ack, ack->snd_una);
}

/* Growth is earned, and neither recovery nor a cut is in progress. */
SG_INLINE int sg_cc_may_grow(const struct sg_cc *cc, const struct sg_cc_ack *ack)
{
	return ack->window_used && !ack->in_recovery && !(cc->flags & SG_CC_HOLD);
}

SG_INLINE int sg_cc_in_slow_start(const struct sg_cc *cc)
{
	return cc->cwnd < cc->ssthresh;
}

/*
 * Slow start with appropriate byte counting (RFC 5681, RFC 3465 without its
 * limit L: stretch ACKs from receive offload are the rule here). Returns the
 * acknowledged bytes left once ssthresh is reached.
 */
SG_INLINE sg_u32 sg_cc_slow_start(struct sg_cc *cc, const struct sg_params *params,
				  sg_u32 acked)
{
	sg_u32 room = cc->ssthresh - cc->cwnd;

	if (!sg_cc_in_slow_start(cc))
		return acked;
	if (acked <= room) {
		sg_cc_set(cc, params, (sg_u64)cc->cwnd + acked);
		return 0;
	}
	sg_cc_set(cc, params, cc->ssthresh);
	return acked - room;
}

/*
 * Additive increase: segments_q10 / 1024 segments per window acknowledged, in
 * whole segments. Leaves credit < cwnd.
 */
SG_INLINE void sg_cc_additive(struct sg_cc *cc, const struct sg_params *params,
			      sg_u32 acked, sg_u32 segments_q10)
{
	sg_u64 credit = cc->credit + ((sg_u64)acked * segments_q10 >> 10);
	/* Most often there is nothing to divide. */
	sg_u64 steps = credit < cc->cwnd ? 0 : sg_div(credit, cc->cwnd);

	/* A window full of credit at most: no burst after a stretch ACK. */
	steps = sg_min64(steps, 1024);
	cc->credit = sg_sat32(credit - steps * cc->cwnd);
	sg_cc_set(cc, params, cc->cwnd + steps * cc->mss);
	cc->credit = sg_min32(cc->credit, cc->cwnd);
}

/* Slow start, then segments_q10 / 1024 segments per window. */
SG_INLINE void sg_cc_grow_by(struct sg_cc *cc, const struct sg_params *params,
			     sg_u32 acked, sg_u32 segments_q10)
{
	acked = sg_cc_slow_start(cc, params, acked);
	if (acked)
		sg_cc_additive(cc, params, acked, segments_q10);
}

/* New Reno's growth: one segment per window (RFC 5681 3.1). */
SG_INLINE void sg_cc_grow(struct sg_cc *cc, const struct sg_params *params,
			  sg_u32 acked)
{
	sg_cc_grow_by(cc, params, acked, SG_ONE_Q10);
}

/* The window from which a loss is counted: a mark in the same window is no excuse. */
SG_INLINE sg_u32 sg_cc_before_cut(const struct sg_cc *cc)
{
	return cc->flags & SG_CC_CUT ? cc->prior : cc->cwnd;
}

/*
 * Open a cut: from here to snd_nxt is one window and will not be cut twice. Credit
 * towards the next segment survives: where marks come more often than a segment is
 * earned, a window that began anew each time would never grow.
 */
SG_INLINE void sg_cc_cut_to(struct sg_cc *cc, const struct sg_params *params,
			    const struct sg_cc_ack *ack, sg_u64 window)
{
	cc->prior = sg_cc_before_cut(cc);
	sg_cc_set(cc, params, sg_min64(window, cc->cwnd));
	cc->ssthresh = cc->cwnd;
	cc->cut_end = ack->snd_nxt;
	cc->credit = sg_min32(cc->credit, cc->cwnd);
	cc->flags |= SG_CC_CUT | SG_CC_HOLD;
	cc->flags &= ~(SG_CC_EPOCH | SG_CC_BY_SILENCE);
}

/*
 * Three duplicate ACKs: keep keep_q10 / 1024 of the window. After a cut by
 * marks in the same window the larger of the two cuts holds, not their product
 * (RFC 8257 3.5: once per window of data).
 */
SG_INLINE void sg_cc_lost(struct sg_cc *cc, const struct sg_params *params,
			  const struct sg_cc_ack *ack, sg_u32 keep_q10)
{
	sg_cc_cut_to(cc, params, ack,
		     sg_cc_scaled(sg_cc_before_cut(cc), keep_q10));
}

/*
 * CE marks read as loss, once per window (RFC 3168 6.1.2): for the algorithms
 * that have no finer answer. Returns 1 when it cut.
 */
SG_INLINE int sg_cc_marked(struct sg_cc *cc, const struct sg_params *params,
			   const struct sg_cc_ack *ack, sg_u32 keep_q10)
{
	if (!ack->marked || (cc->flags & SG_CC_CUT))
		return 0;
	sg_cc_lost(cc, params, ack, keep_q10);
	return 1;
}

/*
 * Retransmission timeout: the smallest window, slow start to keep_q10 / 1024 of
 * the window before. A second timeout without an ACK in between leaves ssthresh
 * (RFC 5681 3.1: it is set once for a segment).
 */
SG_INLINE void sg_cc_timed_out(struct sg_cc *cc, const struct sg_params *params,
			       const struct sg_cc_ack *ack, sg_u32 keep_q10)
{
	if (cc->flags & SG_CC_TIMED_OUT)
		return;
	sg_cc_cut_to(cc, params, ack,
		     sg_cc_scaled(sg_cc_before_cut(cc), keep_q10));
	sg_cc_set(cc, params, 0);
	cc->flags &= ~SG_CC_HOLD;
	cc->flags |= SG_CC_TIMED_OUT | SG_CC_BY_SILENCE;
}

#endif /* SLUICE_CC_STATE_H */
