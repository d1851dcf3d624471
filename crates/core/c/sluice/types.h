/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Fixed-width types, attributes and layout assertions.
 *
 * Everything in this directory is freestanding: it includes nothing but its
 * neighbours, allocates nothing, calls no helper, reads no clock. The same text
 * compiles natively (gcc, clang) and for BPF (clang -target bpf).
 */
#ifndef SLUICE_TYPES_H
#define SLUICE_TYPES_H

typedef unsigned char sg_u8;
typedef unsigned short sg_u16;
typedef unsigned int sg_u32;
typedef unsigned long long sg_u64;
typedef signed int sg_s32;
typedef signed long long sg_s64;

#define SG_INLINE static inline __attribute__((always_inline, unused))
/*
 * A BPF subprogram of its own: keeps the verifier's stack and state small. It
 * returns an int, 0 by habit, because the verifier takes whatever is left in r0
 * for a result and refuses a stack pointer there; `used` stops the compiler from
 * optimising a result away that no caller reads.
 */
#if defined(__BPF__) || defined(__bpf__)
#define SG_NOINLINE static __attribute__((noinline, used))
#else
#define SG_NOINLINE static __attribute__((noinline, unused))
#endif

/*
 * A subprogram that the verifier checks once, apart from its callers: what they know does
 * not multiply its paths, nor do its ends multiply theirs. Its pointers are SG_NONNULL.
 */
#if defined(__BPF__) || defined(__bpf__)
#define SG_RARE __attribute__((noinline))
#define SG_NONNULL __attribute__((btf_decl_tag("arg:nonnull")))
#else
#define SG_RARE static __attribute__((noinline, unused))
#define SG_NONNULL
#endif

#define SG_ASSERT_SIZE(type, bytes) \
	_Static_assert(sizeof(type) == (bytes), "size of " #type " changed")
#define SG_ASSERT_AT(type, field, byte)                       \
	_Static_assert(__builtin_offsetof(type, field) == (byte), \
		       "offset of " #type "." #field " changed")

#define sg_likely(x) __builtin_expect(!!(x), 1)
#define sg_unlikely(x) __builtin_expect(!!(x), 0)

/*
 * The compiler forgets what it knew of a variable. It would merge comparisons into
 * one of a copy (x && x < n into x - 1 < n - 1), from which Linux 6.12's verifier
 * learns nothing of x itself.
 */
#define sg_opaque(variable) __asm__ volatile("" : "+r"(variable))

SG_INLINE sg_u32 sg_min32(sg_u32 a, sg_u32 b) { return a < b ? a : b; }
SG_INLINE sg_u32 sg_max32(sg_u32 a, sg_u32 b) { return a > b ? a : b; }
SG_INLINE sg_u64 sg_min64(sg_u64 a, sg_u64 b) { return a < b ? a : b; }
SG_INLINE sg_u64 sg_max64(sg_u64 a, sg_u64 b) { return a > b ? a : b; }

SG_INLINE sg_u32 sg_clamp32(sg_u32 x, sg_u32 low, sg_u32 high)
{
	return x < low ? low : x > high ? high : x;
}

#endif /* SLUICE_TYPES_H */
