/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * HighSpeed TCP: RFC 3649. Up to Low_Window = 38 segments it is New Reno; above,
 *
 *	b(w) = (0.1 - 0.5) (log w - log 38) / (log 83000 - log 38) + 0.5
 *	p(w) = 0.078 / w^1.2
 *	a(w) = w^2 p(w) 2 b(w) / (2 - b(w))
 *
 * with w <- w + a(w) per window and w <- (1 - b(w)) w at a loss (section 5).
 */
#ifndef SLUICE_CC_HIGHSPEED_H
#define SLUICE_CC_HIGHSPEED_H

#include "cc_state.h"

#define SG_HIGHSPEED_LOW 38U
#define SG_HIGHSPEED_HIGH 83000U

struct sg_highspeed_point {
	sg_u32 a_q10;
	sg_u32 b_q10;
};

/*
 * a and b at w = (8 + i % 8) 2^(i / 8 + 2) segments: eight points an octave from
 * 32 to beyond 83000, constant below 38 and above 83000.
 */
static const struct sg_highspeed_point sg_highspeed_table[128] __attribute__((unused)) = {
	{ 1024, 512 }, { 1024, 512 }, { 1024, 509 }, { 1077, 504 },
	{ 1141, 500 }, { 1202, 495 }, { 1262, 491 }, { 1321, 488 },
	{ 1378, 484 }, { 1489, 478 }, { 1595, 472 }, { 1697, 467 },
	{ 1796, 463 }, { 1892, 458 }, { 1986, 454 }, { 2076, 451 },
	{ 2165, 447 }, { 2337, 441 }, { 2501, 435 }, { 2659, 430 },
	{ 2812, 426 }, { 2960, 421 }, { 3104, 417 }, { 3244, 414 },
	{ 3381, 410 }, { 3644, 404 }, { 3896, 398 }, { 4138, 393 },
	{ 4372, 389 }, { 4598, 385 }, { 4818, 381 }, { 5031, 377 },
	{ 5238, 373 }, { 5638, 367 }, { 6020, 362 }, { 6386, 356 },
	{ 6739, 352 }, { 7080, 348 }, { 7410, 344 }, { 7730, 340 },
	{ 8041, 337 }, { 8639, 330 }, { 9209, 325 }, { 9755, 320 },
	{ 10279, 315 }, { 10784, 311 }, { 11271, 307 }, { 11743, 303 },
	{ 12201, 300 }, { 13079, 293 }, { 13913, 288 }, { 14707, 283 },
	{ 15468, 278 }, { 16199, 274 }, { 16903, 270 }, { 17583, 266 },
	{ 18240, 263 }, { 19495, 256 }, { 20681, 251 }, { 21806, 246 },
	{ 22878, 241 }, { 23903, 237 }, { 24886, 233 }, { 25831, 229 },
	{ 26741, 226 }, { 28468, 219 }, { 30088, 214 }, { 31613, 209 },
	{ 33056, 204 }, { 34427, 200 }, { 35732, 196 }, { 36978, 192 },
	{ 38170, 189 }, { 40412, 183 }, { 42486, 177 }, { 44416, 172 },
	{ 46219, 167 }, { 47911, 163 }, { 49502, 159 }, { 51003, 155 },
	{ 52422, 152 }, { 55040, 146 }, { 57403, 140 }, { 59546, 135 },
	{ 61497, 130 }, { 63278, 126 }, { 64907, 122 }, { 66399, 118 },
	{ 67766, 115 }, { 70171, 109 }, { 72192, 103 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
	{ 72432, 102 }, { 72432, 102 }, { 72432, 102 }, { 72432, 102 },
};

/* Where a window in bytes lies in the table: point, and the way to the next in 1/256. */
SG_INLINE sg_u32 sg_highspeed_position(const struct sg_cc *cc, sg_u32 window)
{
	sg_u64 w_q4 = sg_min64(sg_mul_div(window, 16, cc->mss), SG_HIGHSPEED_HIGH << 4);
	sg_u32 top;

	if (w_q4 <= SG_HIGHSPEED_LOW << 4)
		return 0;
	/* 609..1328000: the top bit is one of 9..20. */
	top = (sg_bits(w_q4) - 1) & 31;
	return ((top - 9) << 11) + (sg_u32)(sg_shr(w_q4 << 11, top) & 2047);
}

SG_INLINE sg_u32 sg_highspeed_between(sg_u32 from, sg_u32 to, sg_u32 part_q8)
{
	return (from * (256 - part_q8) + to * part_q8) >> 8;
}

/* a(w) in 1/1024 segments per window. */
SG_INLINE sg_u32 sg_highspeed_a(const struct sg_cc *cc)
{
	sg_u32 at = sg_highspeed_position(cc, cc->cwnd);

	return sg_highspeed_between(sg_highspeed_table[at >> 8 & 127].a_q10,
				    sg_highspeed_table[((at >> 8) + 1) & 127].a_q10,
				    at & 255);
}

/* 1 - b(w) in 1/1024, of the window that sg_cc_lost() cuts. */
SG_INLINE sg_u32 sg_highspeed_keep(const struct sg_cc *cc)
{
	sg_u32 at = sg_highspeed_position(cc, sg_cc_before_cut(cc));

	return SG_ONE_Q10 -
	       sg_highspeed_between(sg_highspeed_table[at >> 8 & 127].b_q10,
				    sg_highspeed_table[((at >> 8) + 1) & 127].b_q10,
				    at & 255);
}

SG_NOINLINE int sg_highspeed_on_loss(struct sg_cc *cc,
				     const struct sg_params *params,
				     const struct sg_cc_ack *ack)
{
	sg_cc_lost(cc, params, ack, sg_highspeed_keep(cc));
	return 0;
}

SG_NOINLINE int sg_highspeed_on_timeout(struct sg_cc *cc,
					const struct sg_params *params,
					const struct sg_cc_ack *ack)
{
	sg_cc_timed_out(cc, params, ack, sg_highspeed_keep(cc));
	return 0;
}

SG_NOINLINE int sg_highspeed_on_ack(struct sg_cc *cc,
				    const struct sg_params *params,
				    const struct sg_cc_ack *ack)
{
	sg_u32 acked = ack->acked;

	sg_cc_round(cc, ack);
	if (ack->marked && !(cc->flags & SG_CC_CUT)) {
		sg_cc_lost(cc, params, ack, sg_highspeed_keep(cc));
		return 0;
	}
	if (!sg_cc_may_grow(cc, ack))
		return 0;
	acked = sg_cc_slow_start(cc, params, acked);
	if (acked)
		sg_cc_additive(cc, params, acked, sg_highspeed_a(cc));
	return 0;
}

#endif /* SLUICE_CC_HIGHSPEED_H */
