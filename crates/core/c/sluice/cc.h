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
 * algorithm is a static subprogram of its own.
 */
#ifndef SLUICE_CC_H
#define SLUICE_CC_H

#include "math.h"
#include "params.h"
#include "seq.h"

struct sg_cc {
	sg_u32 cwnd;      /* bytes */
	sg_u32 ssthresh;  /* bytes; all ones = not yet known */
	sg_u32 mss;       /* payload bytes of the largest segment, never 0 after init */
	sg_u32 round_end; /* snd_nxt when this window's round began */
	sg_u32 cut_end;   /* no second cut before snd_una passes this */
	sg_u32 credit;    /* bytes acknowledged towards the next increase */
	union {
		sg_u64 word[5];
		struct {
			sg_u32 alpha_q20;   /* fraction marked, 0..SG_ONE_Q20 */
			sg_u32 acked_bytes; /* this round */
			sg_u32 marked_bytes;
		} dctcp;
	};
};
SG_ASSERT_SIZE(struct sg_cc, 64);

/* One acknowledgement that advanced snd_una. */
struct sg_cc_ack {
	sg_u64 now_ns;
	sg_u32 acked;       /* bytes newly acknowledged, > 0 */
	sg_u32 marked;      /* of the bytes delivered, those that met CE; 0..acked */
	sg_u32 rtt_ns;      /* 0 = no valid sample with this ACK */
	sg_u32 min_rtt_ns;  /* smallest seen on this flow; 0 = none yet */
	sg_u32 snd_una;     /* after this ACK */
	sg_u32 snd_nxt;
	sg_u32 flight;      /* bytes outstanding before this ACK */
	sg_u8 window_used;  /* the flow filled its window: growth is earned (RFC 7661) */
	sg_u8 in_recovery;  /* loss recovery is not over: no growth */
	sg_u8 pad[2];
};
SG_ASSERT_SIZE(struct sg_cc_ack, 40);

#define SG_SSTHRESH_UNKNOWN 0xffffffffU

/* Smallest window in bytes; see sg_window_floor() for why it is what it is. */
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

#endif /* SLUICE_CC_H */
