/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Congestion control on demand, for tests only: the packet is one struct
 * cc_vector behind an Ethernet header. It runs as the enforcement programs run
 * it, on a map value, and goes back in the packet. One test runs at a time.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "sluice/cc.h"

enum cc_event {
	CC_INIT = 0,
	CC_ACK = 1,
	CC_LOSS = 2,
	CC_TIMEOUT = 3,
	CC_IDLE = 4,
};

struct cc_vector {
	sg_u32 event; /* enum cc_event */
	sg_u32 algorithm;
	sg_u32 mss;
	sg_u32 pad;
	struct sg_params params;
	struct sg_cc cc;
	struct sg_cc_ack ack;
};
SG_ASSERT_SIZE(struct cc_vector, 192);

struct slot {
	struct cc_vector vector;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

#define ETHERNET_BYTES 14

static __always_inline void happen(struct cc_vector *v)
{
	switch (v->event) {
	case CC_INIT:
		sg_cc_init(&v->cc, &v->params, v->algorithm, v->mss);
		break;
	case CC_ACK:
		sg_cc_on_ack(&v->cc, &v->params, v->algorithm, &v->ack);
		break;
	case CC_LOSS:
		sg_cc_on_loss(&v->cc, &v->params, v->algorithm, &v->ack);
		break;
	case CC_TIMEOUT:
		sg_cc_on_timeout(&v->cc, &v->params, v->algorithm, &v->ack);
		break;
	default:
		sg_cc_on_idle(&v->cc, &v->params);
		break;
	}
}

/* 0: done; 1: no vector in the packet. */
SEC("tc")
int cc_vectors(struct __sk_buff *skb)
{
	__u32 key = 0;
	struct slot *slot = bpf_map_lookup_elem(&slots, &key);

	if (!slot || bpf_skb_load_bytes(skb, ETHERNET_BYTES, &slot->vector,
					sizeof(slot->vector)))
		return 1;
	happen(&slot->vector);
	return !!bpf_skb_store_bytes(skb, ETHERNET_BYTES, &slot->vector,
				     sizeof(slot->vector), 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
