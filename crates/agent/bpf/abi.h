/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Map values, which the kernel programs and their loader share. The loader's mirrors are in
 * core/src/abi.rs. The layout's version is part of the pin path.
 *
 * Change SG_ABI_VERSION with any change here or in core's flow.h or params.h. Exception: a field
 * in zeroed padding whose value 0 keeps the old behaviour. Older and newer programs then read
 * each other's entries, after an upgrade and after a downgrade.
 *
 *   policy      array[2]        struct sg_policy, one of them in force
 *   config      array[1]        struct sg_config
 *   flows       array[2^n]      struct sg_slot (table.h)
 *   occupied    array[]         struct sg_occupied
 *   sweeper     array[1]        struct sg_sweeper
 *   half_open   LRU hash        struct sg_flow_key  -> struct sg_half_open
 *   crowd       LRU hash        struct sg_flow_key  -> struct sg_half_open
 *   interfaces  hash            ifindex (u32)       -> struct sg_interface
 *   places      hash            ifindex (u32)       -> struct sg_place
 *   buckets     hash            struct sg_bucket_key -> struct sg_bucket
 *   remembered  LRU hash        struct sg_flow_key  -> struct sg_remembered
 *   blackholes  LRU hash        struct sg_blackhole_key -> struct sg_blackhole
 *   counters    per-CPU array[1] struct sg_counters
 *   scratch     per-CPU array[1] struct sg_flow
 */
#ifndef SLUICE_ABI_H
#define SLUICE_ABI_H

#include "sluice/blackhole.h"
#include "sluice/bucket.h"
#include "sluice/count.h"
#include "sluice/flow.h"
#include "sluice/hash.h"
#include "sluice/params.h"

#define SG_ABI_VERSION 8

/* A slot of the table of flows (table.h). */
struct sg_slot {
	sg_u32 version; /* of the flow and its key; odd while a program holds the slot */
	sg_u32 tag;     /* hash | SG_SLOT_LIVE; else SG_SLOT_FREE or SG_SLOT_LEAVING */
	sg_u32 homed;   /* bit i: slot this + i holds a flow whose home is this one */
	sg_u32 tick;    /* of the kernel's timer, when the clock was last read */
	struct sg_flow_key key;
	sg_u32 missed;  /* enum sg_missed */
	struct sg_flow flow; /* on a cache line of its own, as flow.h wants it */
};
SG_ASSERT_SIZE(struct sg_slot, 384);
SG_ASSERT_AT(struct sg_slot, flow, 64);

#define SG_SLOT_FREE 0U
#define SG_SLOT_LIVE 1U
#define SG_SLOT_LEAVING 2U

/* Events that could not be written into a flow, because its slot was held too long. */
enum sg_missed {
	SG_MISSED_PACKET = 1 << 0,
	SG_MISSED_HANDSHAKE = 1 << 1, /* the tuple has begun a new life */
	SG_MISSED_ANSWER = 1 << 2,    /* it may have: a SYN/ACK that answers nothing has come since it began */
};

#define SG_OCCUPIED_SLOTS 4096U

/* A bit for each slot in use, SG_OCCUPIED_SLOTS an entry. */
struct sg_occupied {
	sg_u64 word[SG_OCCUPIED_SLOTS / 64];
};

/* The collector of silent flows, and the hash key of the table for agents to come. */
struct sg_sweeper_image {
	sg_u64 timer[2];
	sg_u32 next;
	sg_u32 pad;
	struct sg_hash_key hash_key;
};
SG_ASSERT_SIZE(struct sg_sweeper_image, 80);

/* Set before the programs are loaded. */
struct sg_table_shape {
	sg_u32 mask;  /* slots - 1; slots are a power of two, at least 64 */
	sg_u32 shift; /* 32 - log2(slots): a hash's home is its high bits */
	struct sg_hash_key hash_key;
};
SG_ASSERT_SIZE(struct sg_table_shape, 64);

/* An interface that is attached. Unknown interfaces have no quota. */
struct sg_interface {
	sg_u32 flows;  /* live entries */
	sg_u32 quota;  /* most entries it may have; 0 = no limit */
	sg_u32 tenant; /* tenant id for reports */
	sg_u32 unanswered; /* when the last of its unanswered SYNs fades (lifecycle.h) */
};
SG_ASSERT_SIZE(struct sg_interface, 16);

/*
 * Policy data and network namespace of an interface. Separate from `sg_interface`, because programs
 * write to that.
 */
struct sg_place {
	struct sg_scope scope; /* rules whose conditions on interface and tenant hold here */
	sg_u8 bucket[SG_CLASS_COUNT]; /* of each class of packets without a flow; SG_BUCKET_NONE */
	sg_s32 netns; /* id of its other end's network namespace, as seen from here; < 0 = none */
	sg_u32 pad;
};
SG_ASSERT_SIZE(struct sg_place, 32);

/* The bucket numbered `bucket` of one interface. */
struct sg_bucket_key {
	sg_u32 ifindex;
	sg_u32 bucket;
};
SG_ASSERT_SIZE(struct sg_bucket_key, 8);

struct sg_config {
	sg_u64 idle_ns;   /* an open flow without packets is forgotten after this */
	sg_u64 closed_ns; /* one closed by FINs both ways after this; by an RST if room is short */
	sg_u32 active;    /* which entry of `policy` is in force: 0 or 1 */
	sg_u32 bare;      /* a bucket of the policy is for SG_CLASS_BARE */
};
SG_ASSERT_SIZE(struct sg_config, 24);

#endif /* SLUICE_ABI_H */
