/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The features that enforcement needs of a kernel, one small program each: the doctor loads
 * them one at a time and sees which are refused.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct timed {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct timed);
} probe_timed SEC(".maps");

/* The least that TCX takes; also what others are measured against. */
SEC("tcx/ingress")
int probe_empty(struct __sk_buff *skb)
{
	return SG_TCX_NEXT;
}

SEC("tcx/egress")
int probe_empty_egress(struct __sk_buff *skb)
{
	return SG_TCX_NEXT;
}

static int probe_step(__u32 index, void *context)
{
	return 0;
}

static int probe_expired(void *map, __u32 *key, struct timed *value)
{
	__u32 context = 0;

	bpf_loop(2, probe_step, &context, 0);
	return 0;
}

/*
 * A timer in a map's value (Linux 5.15) that walks a table (bpf_loop, Linux 5.17).
 * Not for TCX, without which it should load as well.
 */
SEC("tc")
int probe_timer(struct __sk_buff *skb)
{
	__u32 key = 0;
	struct timed *value = bpf_map_lookup_elem(&probe_timed, &key);

	if (!value)
		return SG_TCX_NEXT;
	bpf_timer_init(&value->timer, &probe_timed, 1 /* CLOCK_MONOTONIC */);
	bpf_timer_set_callback(&value->timer, probe_expired);
	bpf_timer_start(&value->timer, 1000000000ULL, 0);
	return SG_TCX_NEXT;
}

/* The kernel's own packet structure (Linux 6.2): the lab's switch reads a queue's backlog so. */
SEC("tc")
int probe_kernel_context(struct __sk_buff *skb)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);

	return kernel->dev->ifindex ? SG_TCX_NEXT : SG_TCX_PASS;
}
