/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Token buckets for what has no flow: other protocols than TCP, packets whose
 * headers are not read (so that they are no way out), TCP that is only watched; and for
 * segments without data, which no window holds either.
 *
 * A bucket is one number: when it will be full again if nothing more comes (the
 * theoretical arrival time of ITU-T I.371's virtual scheduling algorithm). A packet
 * conforms if that lies no further ahead than a burst takes. One that is larger than a
 * burst (segmentation offload) conforms where the bucket is full, and is charged as a
 * whole: bursts of frames can then be shorter than the largest packet.
 */
#ifndef SLUICE_BUCKET_H
#define SLUICE_BUCKET_H

#include "types.h"

/* The classes of packets without a governed flow. */
enum sg_class {
	SG_CLASS_UDP = 0,
	SG_CLASS_ICMP = 1,      /* ICMP and ICMPv6 but neighbour discovery */
	SG_CLASS_NEIGHBOUR = 2, /* ARP, IPv6 neighbour discovery */
	SG_CLASS_FRAGMENT = 3,
	SG_CLASS_OPAQUE = 4,    /* IP options, extension headers, double tags, contradictory lengths */
	SG_CLASS_WATCHED = 5,   /* data of TCP that no window holds (agent/bpf/enforce.bpf.c) */
	SG_CLASS_OTHER = 6,     /* every other protocol */
	SG_CLASS_BARE = 7,      /* TCP without data: ACKs, SYNs, FINs, RSTs */
	SG_CLASS_COUNT = 8,
};

#define SG_BUCKET_NONE 0xffU
/* Buckets of one policy. */
#define SG_BUCKETS_MAX 16

enum sg_bucket_mode {
	SG_BUCKET_OBSERVE = 1, /* counted only */
	SG_BUCKET_ENFORCE = 2,
};

struct sg_bucket {
	sg_u64 full_ns;         /* when it is full again */
	sg_u64 ps_per_byte;     /* > 0 */
	sg_u64 burst_ns;        /* what a full bucket takes to fill */
	sg_u64 passed_bytes;
	sg_u64 exceeded_bytes;  /* beyond the rate: dropped, or only counted */
	sg_u64 exceeded_packets;
	sg_u32 mode;            /* enum sg_bucket_mode */
	sg_u32 pad;
};
SG_ASSERT_SIZE(struct sg_bucket, 56);

/*
 * The next `full_ns`, with a packet of `bytes` at `now_ns`; 0 = it does not
 * conform. For a caller that shares the bucket: compare and exchange with it.
 */
SG_INLINE sg_u64 sg_bucket_next(const struct sg_bucket *bucket, sg_u64 full_ns, sg_u32 bytes,
				sg_u64 now_ns)
{
	sg_u64 next = sg_max64(full_ns, now_ns) + bytes * bucket->ps_per_byte / 1000;

	return full_ns <= now_ns || next - now_ns <= bucket->burst_ns ? next : 0;
}

#endif /* SLUICE_BUCKET_H */
