/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The table of flows: an array of slots with open addressing, since a slot of an
 * array is found by arithmetic within the program, and an entry of the kernel's
 * hash map by four calls whose returns alone cost what a tenth of a packet may.
 *
 *   hash(key) ── high bits ──▶ home slot ── `homed`: a bit for each of the 32 slots
 *                              from here on that holds a flow whose home this is
 *
 * A flow takes the first free slot of those 32; when there is none the table is
 * full for it. Each slot's lock guards its flow, and its key against a slot that
 * changes hands between being found and being locked. `tag` is the hash, and
 * `homed` a bitmap changed only by atomics, so that finding takes no lock.
 *
 * The lock is a word of the slot: bpf_spin_lock costs 200 cycles a packet, a third
 * of all that enforcement does (five returns, interrupts off and on), an atomic
 * exchange 50. Programs run with bottom halves off, so no other program comes
 * between on the holder's CPU, but a hypervisor may take that CPU away. A CPU
 * that waits in vain lets the packet pass untouched and notes it in `missed`.
 *
 * Silent flows are collected by one timer that walks the table, with no agent
 * alive as well. `occupied` spares it, and agents who list flows, the empty slots.
 */
#ifndef SLUICE_TABLE_H
#define SLUICE_TABLE_H

#include "abi.h"
#include "helpers.h"

#include "sluice/hash.h"
#include "sluice/lifecycle.h"

#define CLOCK_MONOTONIC 1
#define SG_ENOENT 2
#define SG_EBUSY 16

/* Slots from a flow's home on in which it may be. */
#define SG_REACH 32U

/* Mapped memory begins on a page: slots, whole cache lines, on cache lines. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 65536);
	__type(key, sg_u32);
	__type(value, struct sg_slot);
} flows SEC(".maps");

/* The table's size and hash key, set before loading; the verifier sees constants. */
const volatile struct sg_table_shape shape SEC(".rodata.shape") = { .mask = 65535, .shift = 16 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, sg_u32);
	__type(value, struct sg_occupied);
} occupied SEC(".maps");

struct sg_sweeper {
	struct bpf_timer timer;
	sg_u32 next; /* slot to look at */
	sg_u32 pad;
	struct sg_hash_key hash_key; /* as in `shape`: for agents to come */
};
SG_ASSERT_SIZE(struct sg_sweeper, sizeof(struct sg_sweeper_image));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, sg_u32);
	__type(value, struct sg_sweeper);
} sweeper SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, sg_u32);
	__type(value, struct sg_config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, sg_u32);
	__type(value, struct sg_interface);
} interfaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, sg_u32);
	__type(value, struct sg_counters);
} counters SEC(".maps");

SG_INLINE struct sg_counters *sg_counters_here(void)
{
	sg_u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

SG_INLINE void sg_count_one(sg_u32 which)
{
	struct sg_counters *here = sg_counters_here();

	if (here)
		sg_count(here, which);
}

SG_INLINE struct sg_slot *sg_slot_at(sg_u32 at)
{
	at &= shape.mask;
	return bpf_map_lookup_elem(&flows, &at);
}

SG_INLINE sg_u32 sg_tag_of(const struct sg_flow_key *key)
{
	return sg_flow_hash(key, &shape.hash_key) | SG_SLOT_LIVE;
}

SG_INLINE sg_u32 sg_home_of(sg_u32 tag)
{
	return tag >> (shape.shift & 31);
}

SG_INLINE int sg_same_key(const struct sg_flow_key *a, const struct sg_flow_key *b)
{
	const sg_u32 *x = (const sg_u32 *)a, *y = (const sg_u32 *)b;
	sg_u32 differ = 0, i;

#pragma clang loop unroll(full)
	for (i = 0; i < sizeof(*a) / sizeof(*x); i++)
		differ |= x[i] ^ y[i];
	return !differ;
}

SG_INLINE int sg_try_lock(struct sg_slot *slot)
{
	sg_u32 version = slot->version;

	return !(version & 1) &&
	       __sync_val_compare_and_swap(&slot->version, version, version + 1) == version;
}

#ifdef SG_FAULTS
#define sg_try_lock(...) SG_OR(0, sg_try_lock, __VA_ARGS__)
#endif

SG_INLINE void sg_unlock(struct sg_slot *slot)
{
	/* An exchange, because it is a full barrier everywhere. */
	__sync_lock_test_and_set(&slot->version, slot->version + 1);
}

/* Tries before giving up: tens of microseconds, some hundred times what a step takes. */
#define SG_LOCK_TRIES 4096U

struct sg_wait {
	sg_u32 at;
	sg_u32 locked;
};

static int sg_wait_step(sg_u32 i __attribute__((unused)), struct sg_wait *wait)
{
	struct sg_slot *slot = sg_slot_at(wait->at);

	wait->locked = slot && sg_try_lock(slot);
	return wait->locked;
}

SG_INLINE int sg_wait_for(sg_u32 at)
{
	struct sg_wait wait = { .at = at };

	bpf_loop(SG_LOCK_TRIES, sg_wait_step, &wait, 0);
	return wait.locked;
}

/* Locks the slot, which is the one at `at`; 0 = another CPU does not let go of it. */
SG_INLINE int sg_lock(struct sg_slot *slot, sg_u32 at)
{
	return sg_likely(sg_try_lock(slot)) || sg_wait_for(at);
}

#ifdef SG_FAULTS
#define sg_lock(...) SG_OR(0, sg_lock, __VA_ARGS__)
#endif

/* To be asked under the slot's lock. */
SG_INLINE int sg_slot_holds(const struct sg_slot *slot, sg_u32 tag, const struct sg_flow_key *key)
{
	return slot->tag == tag && sg_same_key(&slot->key, key);
}

/* How far from its home the flow with this tag is, or -1. */
SG_GLOBAL int sg_displacement(sg_u32 tag)
{
	sg_u32 home = sg_home_of(tag), homed, i;
	struct sg_slot *slot = sg_slot_at(home);

	if (!slot)
		return -1;
	homed = slot->homed;
	for (i = 0; i < SG_REACH && homed >> i; i++) {
		slot = homed >> i & 1 ? sg_slot_at(home + i) : 0;
		if (slot && slot->tag == tag)
			return (int)i;
	}
	return -1;
}

/* The slot that has this tag, and where; whether it has the key as well is seen under its lock. */
SG_INLINE struct sg_slot *sg_find(sg_u32 tag, sg_u32 *at)
{
	struct sg_slot *slot;
	int away;

	*at = sg_home_of(tag);
	slot = sg_slot_at(*at);
	if (sg_likely(slot && slot->tag == tag))
		return slot;
	if (!slot || !slot->homed)
		return 0;
	away = sg_displacement(tag);
	if (away < 0)
		return 0;
	*at += (sg_u32)away;
	return sg_slot_at(*at);
}

/* Whether the tuple of this key, whose opener is 0, has a flow, as far as its hash tells. */
SG_GLOBAL int sg_has_flow(const struct sg_flow_key *key)
{
	sg_u32 at;

	return key && sg_find(sg_tag_of(key), &at);
}

/* The word of `occupied` that has this slot's bit. */
SG_INLINE sg_u64 *sg_occupied_word(sg_u32 at)
{
	sg_u32 part = at / SG_OCCUPIED_SLOTS;
	struct sg_occupied *here = bpf_map_lookup_elem(&occupied, &part);

	return here ? &here->word[at / 64 % (SG_OCCUPIED_SLOTS / 64)] : 0;
}

/*
 * Leaves a slot whose tag is SG_SLOT_LEAVING. Its bits go first, for a new owner may
 * set them again.
 */
SG_INLINE void sg_vacate(struct sg_slot *slot, sg_u32 at, sg_u32 tag, sg_u32 ifindex)
{
	struct sg_slot *home = sg_slot_at(sg_home_of(tag));
	struct sg_interface *interface = bpf_map_lookup_elem(&interfaces, &ifindex);
	sg_u64 *word = sg_occupied_word(at);

	if (home)
		__sync_fetch_and_and(&home->homed, ~(1U << ((at - sg_home_of(tag)) & 31)));
	if (word)
		__sync_fetch_and_and(word, ~(1ULL << (at & 63)));
	__sync_lock_test_and_set(&slot->tag, SG_SLOT_FREE);
	/* A row made anew by a second attach does not know the flows of the first. */
	if (interface && interface->flows)
		__sync_fetch_and_add(&interface->flows, (sg_u32)-1);
}

SG_GLOBAL int sg_remember(const struct sg_flow_key *key, const struct sg_flow *flow);

/* The selection of flows that a walk over the table collects. */
struct sg_sweep {
	sg_u64 now_ns;
	sg_u64 idle_ns;
	sg_u64 closed_ns;
	sg_u64 word;    /* of `occupied`, of the 64 slots from `from` on */
	sg_u32 from;    /* slot, a multiple of 64 */
	sg_u32 ifindex; /* of an interface all of whose flows go*/
	sg_u32 mode;    /* enum sg_sweep_mode */
	sg_u32 skipped; /* slots that were held too long */
	sg_u32 crowded; /* more than half of `word`: so is the table, by and large */
};

enum sg_sweep_mode {
	SG_SWEEP_SILENT = 0,
	SG_SWEEP_INTERFACE = 1,
	SG_SWEEP_ALL = 2,
};

/* Whether others need the room of this flow. */
SG_INLINE int sg_room_is_short(const struct sg_slot *slot, const struct sg_sweep *sweep)
{
	sg_u32 ifindex = slot->key.ifindex;
	struct sg_interface *interface = bpf_map_lookup_elem(&interfaces, &ifindex);

	return sweep->crowded ||
	       (interface && sg_life_is_short(interface->flows, interface->quota));
}

SG_INLINE sg_u64 sg_patience_ns(const struct sg_slot *slot, const struct sg_sweep *sweep)
{
	enum sg_silence silence = sg_life_silence(&slot->flow);
	int is_short = silence == SG_SILENCE_BY_ROOM && sg_room_is_short(slot, sweep);

	return sg_life_patience_ns(silence, is_short, sweep->idle_ns, sweep->closed_ns);
}

/* To be asked under the slot's lock; without, to know whether it is worth locking. */
SG_INLINE int sg_is_collected(const struct sg_slot *slot, const struct sg_sweep *sweep)
{
	if (!(slot->tag & SG_SLOT_LIVE))
		return 0;
	if (sweep->mode == SG_SWEEP_INTERFACE)
		return slot->key.ifindex == sweep->ifindex;
	return sweep->mode == SG_SWEEP_ALL ||
	       sg_since(sweep->now_ns, slot->flow.seen_ns) >= sg_patience_ns(slot, sweep);
}

static int sg_sweep_slot(sg_u32 i, struct sg_sweep *sweep)
{
	sg_u32 at = (sweep->from + i) & shape.mask, tag, ifindex;
	struct sg_slot *slot;
	int collected;

	if (!(sweep->word >> (at & 63) & 1))
		return 0;
	slot = sg_slot_at(at);
	if (!slot || !sg_is_collected(slot, sweep))
		return 0;
	if (!sg_lock(slot, at)) {
		sweep->skipped++;
		return 0;
	}
	tag = slot->tag;
	ifindex = slot->key.ifindex;
	collected = sg_is_collected(slot, sweep);
	if (collected)
		slot->tag = SG_SLOT_LEAVING;
	sg_unlock(slot);
	if (!collected)
		return 0;
	/* No other program writes to a slot with this tag. */
	if (sweep->mode == SG_SWEEP_SILENT)
		sg_remember(&slot->key, &slot->flow);
	sg_vacate(slot, at, tag, ifindex);
	if (sweep->mode == SG_SWEEP_SILENT)
		sg_count_one(SG_COUNT_FLOW_EXPIRED);
	return 0;
}

/* The slots of one word of `occupied`. */
static int sg_sweep_word(sg_u32 i __attribute__((unused)), struct sg_sweep *sweep)
{
	sg_u64 *word = sg_occupied_word(sweep->from & shape.mask);

	sweep->word = word ? *word : 0;
	sweep->crowded = (sg_u32)sg_life_is_short((sg_u32)__builtin_popcountll(sweep->word), 64);
	if (sweep->word)
		bpf_loop(64, sg_sweep_slot, sweep, 0);
	sweep->from += 64;
	return 0;
}

static int sg_sweep_some(void *map __attribute__((unused)), sg_u32 *key __attribute__((unused)),
			 struct sg_sweeper *here)
{
	sg_u32 zero = 0, words = sg_min32(shape.mask + 1, SG_SWEEP_SLOTS) / 64;
	struct sg_config *limits = bpf_map_lookup_elem(&config, &zero);
	struct sg_sweep sweep = { .mode = SG_SWEEP_SILENT, .from = here->next };

	if (limits) {
		sweep.now_ns = bpf_ktime_get_ns();
		sweep.idle_ns = limits->idle_ns;
		sweep.closed_ns = limits->closed_ns;
		bpf_loop(words, sg_sweep_word, &sweep, 0);
		here->next = sweep.from;
	}
	/* Cannot fail: the timer has its memory and its callback. */
	bpf_timer_start(&here->timer, SG_SWEEP_PERIOD_NS, 0);
	return 0;
}

/*
 * 0 if the slot, `i` from the flow's home, was free and is its own now. The tag comes
 * last: a CPU that reads it sees the bits, and no CPU frees a slot without it.
 */
SG_GLOBAL int sg_claim(sg_u32 tag, sg_u32 i, const struct sg_flow_key *key,
		       const struct sg_flow *flow)
{
	sg_u32 at = (sg_home_of(tag) + i) & shape.mask;
	struct sg_slot *home = sg_slot_at(sg_home_of(tag)), *slot = sg_slot_at(at);
	sg_u64 *word = sg_occupied_word(at);
	int free;

	if (!home || !slot || !word || !key || !flow || slot->tag != SG_SLOT_FREE ||
	    !sg_lock(slot, at))
		return -1;
	free = slot->tag == SG_SLOT_FREE;
	if (free) {
		slot->tick = 0;
		slot->missed = 0;
		slot->key = *key;
		slot->flow = *flow;
		__sync_fetch_and_or(word, 1ULL << (at & 63));
		__sync_fetch_and_or(&home->homed, 1U << (i & 31));
		__sync_lock_test_and_set(&slot->tag, tag);
	}
	sg_unlock(slot);
	return free ? 0 : -1;
}

/*
 * A new life for a flow that has a slot; -1 if it has none, or one that another CPU
 * holds: the next holder then knows that the old life is over.
 */
SG_GLOBAL int sg_renew(sg_u32 tag, const struct sg_flow_key *key, const struct sg_flow *flow)
{
	sg_u32 at;
	struct sg_slot *slot = sg_find(tag, &at);
	int holds;

	if (!slot || !key || !flow)
		return -1;
	if (!sg_lock(slot, at)) {
		__sync_fetch_and_or(&slot->missed, SG_MISSED_HANDSHAKE);
		return -1;
	}
	holds = sg_slot_holds(slot, tag, key);
	if (holds) {
		slot->missed = 0;
		slot->flow = *flow;
	}
	sg_unlock(slot);
	return holds ? 0 : -1;
}

/* Gives back the slot `i` from home if this flow has it. */
SG_GLOBAL int sg_give_back(sg_u32 tag, sg_u32 i, const struct sg_flow_key *key)
{
	sg_u32 at = (sg_home_of(tag) + i) & shape.mask;
	struct sg_slot *slot = sg_slot_at(at);
	int holds;

	if (!slot || !key || slot->tag != tag || !sg_lock(slot, at))
		return -1;
	holds = sg_slot_holds(slot, tag, key);
	if (holds)
		slot->tag = SG_SLOT_LEAVING;
	sg_unlock(slot);
	if (holds)
		sg_vacate(slot, at, tag, key->ifindex);
	return 0;
}

/*
 * Two CPUs may have handled the first packets of a flow at the same time, and have
 * taken a slot each. Look-ups find the one nearest home: the other one is given back.
 */
SG_GLOBAL int sg_keep_nearest_slot(sg_u32 tag, const struct sg_flow_key *key)
{
	int nearest = sg_displacement(tag);
	sg_u32 i;

	if (!key || nearest < 0)
		return 0;
	for (i = 0; i < SG_REACH; i++) {
		if (i > (sg_u32)nearest)
			sg_give_back(tag, i, key);
	}
	return 0;
}

/* Takes a slot for a new flow. Returns 0, or the counter that says why there is none. */
SG_GLOBAL int sg_take_slot(sg_u32 tag, const struct sg_flow_key *key, const struct sg_flow *flow)
{
	sg_u32 i;

	if (!key || !flow)
		return SG_COUNT_TABLE_FULL;
	for (i = 0; i < SG_REACH; i++) {
		if (sg_claim(tag, i, key, flow))
			continue;
		sg_keep_nearest_slot(tag, key);
		return 0;
	}
	return SG_COUNT_TABLE_FULL;
}

/* Puts a flow into the table, within the interface's quota; 0 if it is there now. */
SG_INLINE int sg_store_flow(const struct sg_flow_key *key, const struct sg_flow *flow)
{
	struct sg_interface *interface;
	sg_u32 ifindex, tag;
	int why;

	if (!key || !flow)
		return -1;
	tag = sg_tag_of(key);
	if (!sg_renew(tag, key, flow))
		return 0;
	ifindex = key->ifindex;
	interface = bpf_map_lookup_elem(&interfaces, &ifindex);
	if (interface && !sg_life_has_room(interface->flows, interface->quota)) {
		sg_count_one(SG_COUNT_QUOTA);
		return -1;
	}
	if (interface)
		__sync_fetch_and_add(&interface->flows, 1);
	why = sg_displacement(tag) < 0 ? sg_take_slot(tag, key, flow) : SG_COUNT_TABLE_FULL;
	if (!why)
		return 0;
	if (interface)
		__sync_fetch_and_add(&interface->flows, (sg_u32)-1);
	sg_count_one(why & 63);
	return -1;
}

#endif /* SLUICE_TABLE_H */
