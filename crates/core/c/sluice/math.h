/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Integer arithmetic that means the same natively and in BPF.
 *
 * BPF defines x / 0 = 0 and masks shift widths; C leaves both undefined. These
 * helpers define them for both. BPF (cpu v3) has no signed division and no
 * 128-bit integers, so products are unsigned and bounded by construction.
 */
#ifndef SLUICE_MATH_H
#define SLUICE_MATH_H

#include "types.h"

/* a / b, and 0 when b is 0. */
SG_INLINE sg_u64 sg_div(sg_u64 a, sg_u64 b) { return b ? a / b : 0; }

/*
 * a * b / c in 64 bits; 0 when c is 0. Exact for every 32-bit a and b; callers
 * that pass wider operands state why a * b stays below 2^64.
 */
SG_INLINE sg_u64 sg_mul_div(sg_u64 a, sg_u64 b, sg_u64 c)
{
	return c ? a * b / c : 0;
}

/* x << n and x >> n with n outside 0..63 giving 0. */
SG_INLINE sg_u64 sg_shl(sg_u64 x, sg_u32 n) { return n < 64 ? x << n : 0; }
SG_INLINE sg_u64 sg_shr(sg_u64 x, sg_u32 n) { return n < 64 ? x >> n : 0; }

/* The smaller of x and 2^32 - 1. */
SG_INLINE sg_u32 sg_sat32(sg_u64 x)
{
	return x > 0xffffffffULL ? 0xffffffffU : (sg_u32)x;
}

/*
 * The number of bits that x needs, 0 for 0: ones below the top bit, counted.
 * No branches, which the verifier would follow 64 ways; clang's own
 * count-leading-zeros does not compile for BPF.
 */
SG_INLINE sg_u32 sg_bits(sg_u64 x)
{
	x |= x >> 1;
	x |= x >> 2;
	x |= x >> 4;
	x |= x >> 8;
	x |= x >> 16;
	x |= x >> 32;
	x -= x >> 1 & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (sg_u32)(x * 0x0101010101010101ULL >> 56);
}

/*
 * Square root, within 0.1 % and never below the largest whole one: three Newton steps from
 * a power of two between the root and twice the root. Of x with its lowest bit set, so that
 * no step divides by 0 and the verifier sees no branch.
 */
SG_INLINE sg_u64 sg_sqrt(sg_u64 x)
{
	sg_u64 root;

	x |= 1;
	root = 1ULL << ((sg_bits(x) + 1) / 2);
	root = (root + x / root) / 2;
	root = (root + x / root) / 2;
	return (root + x / root) / 2;
}

/*
 * Time from `then` to `now`; 0 when `now` is the earlier one, which happens where two
 * CPUs read the clock and then wait for the same lock.
 */
SG_INLINE sg_u64 sg_since(sg_u64 now_ns, sg_u64 then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

#endif /* SLUICE_MATH_H */
