/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A fuzzer's bytes as a stream of values, and the check that ends a run. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <sluice/types.h>

/* Loops of the harness itself: nothing to find there, and most of the time. */
#define PLAIN __attribute__((noinline, no_sanitize("address", "undefined", "coverage")))

struct input {
	const unsigned char *at;
	size_t left;
};

/* Zero once the bytes are used up, so that every prefix is a valid input. */
static inline sg_u8 take8(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static inline sg_u16 take16(struct input *in)
{
	sg_u16 low = take8(in);

	return (sg_u16)(low | take8(in) << 8);
}

static inline sg_u32 take32(struct input *in)
{
	sg_u32 low = take16(in);

	return low | (sg_u32)take16(in) << 16;
}

/* low..=high */
static inline sg_u32 take_range(struct input *in, sg_u32 low, sg_u32 high)
{
	return low + (sg_u32)(take32(in) % ((sg_u64)high - low + 1));
}

/* Ends the run with the values that broke the invariant. */
#define require(condition, ...)                                           \
	do {                                                              \
		if (!(condition)) {                                       \
			fprintf(stderr, "%s:%d: broken: %s: ", __FILE__,  \
				__LINE__, #condition);                    \
			fprintf(stderr, __VA_ARGS__);                     \
			fputc('\n', stderr);                              \
			abort();                                          \
		}                                                         \
	} while (0)

#endif /* FUZZ_INPUT_H */
