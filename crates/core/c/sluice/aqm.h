/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Active queue management at a switch's transmit queue: what becomes of one
 * arriving packet, given the backlog it meets.
 *
 * - threshold: CE above K bytes of instantaneous backlog (DCTCP, Alizadeh et
 *   al., SIGCOMM 2010, section 3.1); a super-packet stands for its frames, and is marked
 *   for what the last of them meets: it would never be for the queue that it makes, and of
 *   equal flows the one with the largest window would be marked least;
 * - RED: an averaged queue and randomly spaced marks (Floyd & Jacobson, "Random
 *   Early Detection Gateways for Congestion Avoidance", 1993, figure 2).
 *
 * The caller passes time and randomness, and applies the verdict.
 */
#ifndef SLUICE_AQM_H
#define SLUICE_AQM_H

#include "math.h"

enum sg_aqm_kind {
	SG_AQM_NONE = 0,
	SG_AQM_THRESHOLD = 1,
	SG_AQM_RED = 2,
};

enum sg_aqm_verdict {
	SG_AQM_PASS = 0,
	SG_AQM_MARK = 1,
	SG_AQM_DROP = 2,
};

struct sg_aqm_params {
	sg_u32 kind;          /* enum sg_aqm_kind */
	sg_u32 k_bytes;       /* threshold: mark when the backlog exceeds it */
	sg_u32 drop_not_ect;  /* drop what would be marked but cannot be (WRED); else it passes */
	sg_u32 red_min_bytes; /* RED: nothing happens below, on average */
	sg_u32 red_max_bytes; /* RED: everything is marked or dropped from here on, on average */
	sg_u32 p_max_q20;     /* RED: probability at red_max_bytes, 0..2^20 */
	sg_u32 weight_q20;    /* RED: weight of a new sample, 1..2^20 */
	sg_u32 ns_per_kbyte;  /* RED: time to send 1024 bytes at the link's rate */
	sg_u32 packet_ns;     /* RED: time to send one full packet; an idle queue ages by it */
	sg_u32 red_drop_above; /* RED: what can be marked is dropped there, too */
	sg_u32 frame_bytes;   /* threshold: of a full frame, what is larger is several; 0 = nothing is */
};
SG_ASSERT_SIZE(struct sg_aqm_params, 44);

/* RED's memory of one queue; zero is an idle queue. */
struct sg_red {
	sg_u64 average_q16; /* averaged backlog, bytes * 2^16 */
	sg_u64 drained_ns;  /* when the backlog known last will have been sent */
	sg_u32 since_mark;  /* packets since the last one marked, that one included */
	sg_u32 pad;
};
SG_ASSERT_SIZE(struct sg_red, 24);

/* Backlogs are cut to 2^26 - 1 bytes here, so that no product leaves 64 bits. */
#define SG_AQM_BACKLOG_MAX ((1U << 26) - 1)

/* base^n for a fraction base < 1 in units of 2^-32; n counts to 65535. */
SG_INLINE sg_u64 sg_aqm_power_q32(sg_u64 base, sg_u32 n)
{
	sg_u64 result = 0xffffffffULL;
	int bit;

	for (bit = 0; bit < 16; bit++) {
		if (n & (1U << bit))
			result = (result * base) >> 32;
		base = (base * base) >> 32;
	}
	return result;
}

/* avg <- (1 - w)^m avg: as if m small packets had found the queue empty. */
SG_INLINE void sg_red_age(struct sg_red *red, const struct sg_aqm_params *params,
			  sg_u64 now_ns)
{
	sg_u64 idle_ns = now_ns > red->drained_ns ? now_ns - red->drained_ns : 0;
	sg_u64 packets = sg_min64(sg_div(idle_ns, params->packet_ns), 65535);
	sg_u64 keep = (sg_u64)((1U << 20) - params->weight_q20) << 12;

	/* 2^42 * 2^32 does not fit: the average loses 12 bits that it cannot need. */
	red->average_q16 = ((red->average_q16 >> 12) *
			    sg_aqm_power_q32(keep, (sg_u32)packets)) >> 20;
}

SG_INLINE void sg_red_average(struct sg_red *red, const struct sg_aqm_params *params,
			      sg_u64 now_ns, sg_u32 backlog, sg_u32 bytes)
{
	sg_u64 sample = (sg_u64)backlog << 16;
	sg_u64 w = params->weight_q20;

	/* 2^42 * 2^20 < 2^64; difference by cases, since BPF has no signed division. */
	if (!backlog)
		sg_red_age(red, params, now_ns);
	else if (sample >= red->average_q16)
		red->average_q16 += ((sample - red->average_q16) * w) >> 20;
	else
		red->average_q16 -= ((red->average_q16 - sample) * w) >> 20;
	red->drained_ns = now_ns +
		(((sg_u64)backlog + bytes) * params->ns_per_kbyte >> 10);
}

/*
 * p_a = p_b / (1 - count p_b), p_b linear between min and max: gaps between
 * marks are uniform, not geometric (Floyd & Jacobson, section 7).
 */
SG_INLINE int sg_red_chosen(struct sg_red *red, const struct sg_aqm_params *params,
			    sg_u32 random)
{
	sg_u32 average = (sg_u32)(red->average_q16 >> 16);
	sg_u64 p_b, spread;

	if (average >= params->red_max_bytes)
		return 1;
	if (average < params->red_min_bytes) {
		red->since_mark = 0;
		return 0;
	}
	p_b = sg_mul_div(params->p_max_q20, average - params->red_min_bytes,
			 params->red_max_bytes - params->red_min_bytes);
	spread = p_b * red->since_mark;
	if (red->since_mark < 0xffffffffU)
		red->since_mark++;
	/* random / 2^12 < 2^20 p_b / (2^20 - count p_b), without the division. */
	return spread >= (1U << 20) ||
	       (sg_u64)(random >> 12) * ((1U << 20) - spread) < p_b << 20;
}

/* `bytes` is the arriving packet's size, `ect` whether its ECN field may carry CE. */
SG_INLINE int sg_aqm_arrival(struct sg_red *red, const struct sg_aqm_params *params,
			     sg_u64 now_ns, sg_u32 backlog, sg_u32 bytes, int ect,
			     sg_u32 random)
{
	backlog = sg_min32(backlog, SG_AQM_BACKLOG_MAX);
	if (params->kind == SG_AQM_THRESHOLD) {
		if (params->frame_bytes && bytes > params->frame_bytes)
			backlog += bytes - params->frame_bytes;
		if (backlog <= params->k_bytes)
			return SG_AQM_PASS;
		if (ect)
			return SG_AQM_MARK;
		return params->drop_not_ect ? SG_AQM_DROP : SG_AQM_PASS;
	}
	if (params->kind != SG_AQM_RED)
		return SG_AQM_PASS;
	sg_red_average(red, params, now_ns, backlog, bytes);
	if (!sg_red_chosen(red, params, random))
		return SG_AQM_PASS;
	red->since_mark = 0;
	if (ect && params->red_drop_above &&
	    red->average_q16 >> 16 >= params->red_max_bytes)
		return SG_AQM_DROP;
	if (ect)
		return SG_AQM_MARK;
	return params->drop_not_ect ? SG_AQM_DROP : SG_AQM_PASS;
}

#endif /* SLUICE_AQM_H */
