/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Map values that a switch port's program and its loader share; mirrored in src/port.rs.
 */
#ifndef SLUICE_ECN_SWITCH_H
#define SLUICE_ECN_SWITCH_H

#include "sluice/aqm.h"

#define SG_PORTS_MAX 512

/* The ECN field within the traffic class (RFC 3168 section 5). */
#define SG_ECN_MASK 3

/*
 * Backlogs fall into log-linear bins: exact below 32 bytes, then 32 bins for
 * each power of two, so a bin is at most 1/32 of its value wide.
 */
#define SG_BACKLOG_SUB_BITS 5
#define SG_BACKLOG_BINS ((32 - SG_BACKLOG_SUB_BITS + 1) << SG_BACKLOG_SUB_BITS)

SG_INLINE sg_u32 sg_backlog_bin(sg_u32 bytes)
{
	sg_u32 shift = 0, rest = bytes;

	/* rest >> shift has at most SUB_BITS + 1 bits: a binary search for shift. */
	if (rest >> (16 + SG_BACKLOG_SUB_BITS)) {
		shift += 16;
		rest >>= 16;
	}
	if (rest >> (8 + SG_BACKLOG_SUB_BITS)) {
		shift += 8;
		rest >>= 8;
	}
	if (rest >> (4 + SG_BACKLOG_SUB_BITS)) {
		shift += 4;
		rest >>= 4;
	}
	if (rest >> (2 + SG_BACKLOG_SUB_BITS)) {
		shift += 2;
		rest >>= 2;
	}
	if (rest >> (1 + SG_BACKLOG_SUB_BITS)) {
		shift += 1;
		rest >>= 1;
	}
	return (shift << SG_BACKLOG_SUB_BITS) + rest;
}

/* One port, written by the loader before and while it runs. */
struct sg_port {
	struct sg_aqm_params aqm;
	sg_u32 bleach;        /* clear the ECN field of everything that leaves */
	sg_u32 backlog_bytes; /* with the packet that arrived last */
	sg_u32 pad;
	sg_u64 seen_ns;       /* CLOCK_MONOTONIC of that arrival */
};
SG_ASSERT_SIZE(struct sg_port, 64);

/* Counted per CPU; only differences mean anything. */
struct sg_port_stats {
	sg_u64 packets;       /* arrived, whatever became of them */
	sg_u64 bytes;
	sg_u64 marks;         /* packets that got CE here (then cleared again when bleaching) */
	sg_u64 drops_not_ect; /* above the threshold and not ECN-capable */
	sg_u64 drops_red;
	sg_u64 bleached;
	sg_u64 backlog[SG_BACKLOG_BINS]; /* met by arriving packets, without themselves */
};
SG_ASSERT_SIZE(struct sg_port_stats, 48 + 8 * SG_BACKLOG_BINS);

#endif /* SLUICE_ECN_SWITCH_H */
