/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Data of a tenant without a flow that governs them are charged to a bucket of its
 * interface, if the policy has one for their class. A bucket is shared by all CPUs and
 * has no lock: a CPU that finds it changed tries again, and after a few tries lets
 * the packet pass.
 */
#ifndef SLUICE_CHARGE_H
#define SLUICE_CHARGE_H

#include "edit.h"
#include "known.h"

#include "sluice/bucket.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct sg_bucket_key);
	__type(value, struct sg_bucket);
} buckets SEC(".maps");

#define SG_CHARGE_TRIES 8U

/* Whether `bytes` conform to the bucket's rate. */
SG_INLINE int sg_bucket_take(struct sg_bucket *bucket, sg_u32 bytes, sg_u64 now_ns)
{
	sg_u64 full_ns, next;
	sg_u32 i;

	for (i = 0; i < SG_CHARGE_TRIES; i++) {
		full_ns = bucket->full_ns;
		next = sg_bucket_next(bucket, full_ns, bytes, now_ns);
		if (!next)
			return 0;
		if (__sync_val_compare_and_swap(&bucket->full_ns, full_ns, next) == full_ns)
			return 1;
	}
	return 1;
}

/* Charges the packet, which is of this class; 1 = it is to be dropped. */
SG_GLOBAL int sg_charge(struct __sk_buff *skb, sg_u32 ifindex, sg_u32 class, sg_u64 now_ns)
{
	struct sg_place *place = bpf_map_lookup_elem(&places, &ifindex);
	struct sg_bucket_key key = { .ifindex = ifindex };
	struct sg_bucket *bucket;
	sg_u32 bytes = skb->len;

	if (!place)
		return 0;
	key.bucket = place->bucket[class & (SG_CLASS_COUNT - 1)];
	if (key.bucket == SG_BUCKET_NONE)
		return 0;
	bucket = bpf_map_lookup_elem(&buckets, &key);
	if (!bucket)
		return 0;
	if (sg_bucket_take(bucket, bytes, now_ns)) {
		__sync_fetch_and_add(&bucket->passed_bytes, bytes);
		return 0;
	}
	__sync_fetch_and_add(&bucket->exceeded_bytes, bytes);
	__sync_fetch_and_add(&bucket->exceeded_packets, 1);
	sg_count_one(bucket->mode == SG_BUCKET_ENFORCE ? SG_COUNT_BUCKET_DROPPED :
							 SG_COUNT_BUCKET_EXCEEDED);
	return bucket->mode == SG_BUCKET_ENFORCE;
}

#endif /* SLUICE_CHARGE_H */
