// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A switch port: marks or drops what arrives at a transmit queue, by the real
 * backlog of the port's root qdisc, and measures that queue.
 *
 * Runs at TCX egress, just before the qdisc takes the packet. One load serves
 * many ports: `slots` maps an interface (of one network namespace) to its row
 * in the other maps.
 *
 * A packet that has come to a switch has left its sender: a real adapter would have
 * freed it. Here it is the sender's own skb, and TCP's limit on what one socket has
 * below it (tcp_small_queue_check()) would hold each flow to two super-packets in
 * the bottleneck, whatever its window. So a copy without an owner goes on instead.
 */
#include "kernel.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "ecn_switch.h"
#include "sluice/aqm.h"
#include "sluice/segment.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SG_PORTS_MAX);
	__type(key, __u32); /* interface index */
	__type(value, __u32);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SG_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct sg_port);
} ports SEC(".maps");

struct red_cell {
	struct bpf_spin_lock lock;
	__u32 pad;
	struct sg_red red;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SG_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct red_cell);
} reds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SG_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct sg_port_stats);
} stats SEC(".maps");

/* skb->mark of such a copy: it has been decided upon. Marks of tenants end at their namespace. */
#define COPY_MARK 0x53475357U

/* Where the ECN field is and what it says. */
struct ip_view {
	__u32 offset; /* of the IP header in the frame */
	__u8 version; /* 4, 6, or 0: not IP */
	__u8 ecn;
	__u8 tos;
	__u8 pad;
};

struct vlan_header {
	__be16 tci;
	__be16 protocol;
};

/* Up to here a header must be linear: Ethernet, one tag, IPv6. */
#define LINEAR_BYTES (sizeof(struct ethhdr) + sizeof(struct vlan_header) + sizeof(struct ipv6hdr))

static __always_inline void view_ip(struct __sk_buff *skb, struct ip_view *view)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	void *network = eth + 1;
	__be16 protocol;

	view->version = 0;
	if (network > end)
		return;
	protocol = eth->h_proto;
	if (protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD)) {
		struct vlan_header *tag = network;

		network = tag + 1;
		if (network > end)
			return;
		protocol = tag->protocol;
	}
	view->offset = network - data;
	if (protocol == bpf_htons(ETH_P_IP) && network + sizeof(struct iphdr) <= end) {
		struct iphdr *ip = network;

		view->version = 4;
		view->tos = ip->tos;
	} else if (protocol == bpf_htons(ETH_P_IPV6) &&
		   network + sizeof(struct ipv6hdr) <= end) {
		__u8 *byte = network;

		view->version = 6;
		view->tos = byte[0] << 4 | byte[1] >> 4;
	}
	view->ecn = view->tos & SG_ECN_MASK;
}

/* Writes the ECN field and keeps DSCP and every checksum right. */
static __always_inline void set_ecn(struct __sk_buff *skb, const struct ip_view *view, __u8 ecn)
{
	__u8 tos = (view->tos & ~SG_ECN_MASK) | ecn;
	__u8 bytes[2];

	if (view->version == 4) {
		/* tos is the low byte of the header's first 16-bit word */
		bpf_l3_csum_replace(skb, view->offset + offsetof(struct iphdr, check),
				    bpf_htons(view->tos), bpf_htons(tos), 2);
		bpf_skb_store_bytes(skb, view->offset + offsetof(struct iphdr, tos), &tos, 1, 0);
		return;
	}
	/* No header checksum in IPv6, but a complete one over the packet must follow. */
	if (bpf_skb_load_bytes(skb, view->offset, bytes, sizeof(bytes)))
		return;
	bytes[0] = (bytes[0] & 0xf0) | tos >> 4;
	bytes[1] = (bytes[1] & 0x0f) | (__u8)(tos << 4);
	bpf_skb_store_bytes(skb, view->offset, bytes, sizeof(bytes), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline __u32 root_backlog(struct __sk_buff *skb)
{
	struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);

	return kernel_skb->dev->qdisc->qstats.backlog;
}

static __always_inline int decide(__u32 slot, const struct sg_port *port, __u64 now,
				  __u32 backlog, __u32 bytes, int ect)
{
	struct red_cell *cell;
	__u32 random;
	int verdict;

	if (port->aqm.kind != SG_AQM_RED)
		return sg_aqm_arrival(0, &port->aqm, now, backlog, bytes, ect, 0);
	cell = bpf_map_lookup_elem(&reds, &slot);
	if (!cell)
		return SG_AQM_PASS;
	random = bpf_get_prandom_u32();
	bpf_spin_lock(&cell->lock);
	verdict = sg_aqm_arrival(&cell->red, &port->aqm, now, backlog, bytes, ect, random);
	bpf_spin_unlock(&cell->lock);
	return verdict;
}

static __always_inline void count_arrival(struct sg_port_stats *row, __u32 backlog, __u32 bytes)
{
	__u32 bin = sg_backlog_bin(backlog);

	row->packets++;
	row->bytes += bytes;
	if (bin < SG_BACKLOG_BINS)
		row->backlog[bin]++;
}

/* The packet comes from a socket of another network namespace: over a wire. */
static __always_inline int owned_elsewhere(struct __sk_buff *skb)
{
	struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);
	struct sock *sk = kernel_skb->sk;

	return sk && sk->__sk_common.skc_net.net != kernel_skb->dev->nd_net.net;
}

/* Such a packet goes on without its owner; when there is no memory, as it is. */
static __always_inline int disown(struct __sk_buff *skb)
{
	if (!owned_elsewhere(skb))
		return SG_TCX_NEXT;
	skb->mark = COPY_MARK;
	/* Positive is the queue's own answer: it may have dropped the copy. */
	if (bpf_clone_redirect(skb, skb->ifindex, 0) >= 0)
		return SG_TCX_DROP;
	skb->mark = 0;
	return SG_TCX_NEXT;
}

SEC("tcx/egress")
int ecn_switch(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, backlog, slot;
	struct sg_port_stats *row;
	struct ip_view view = {};
	struct sg_port *port;
	int verdict;
	__u32 *found;
	__u64 now;

	if (skb->mark == COPY_MARK) {
		skb->mark = 0;
		return SG_TCX_NEXT;
	}
	found = bpf_map_lookup_elem(&slots, &ifindex);
	if (!found)
		return SG_TCX_NEXT;
	slot = *found;
	port = bpf_map_lookup_elem(&ports, &slot);
	row = bpf_map_lookup_elem(&stats, &slot);
	if (!port || !row)
		return SG_TCX_NEXT;
	backlog = root_backlog(skb);
	now = bpf_ktime_get_ns();
	port->backlog_bytes = backlog + skb->len;
	port->seen_ns = now;
	count_arrival(row, backlog, skb->len);

	if (skb->data + LINEAR_BYTES > skb->data_end)
		bpf_skb_pull_data(skb, sg_min32(skb->len, LINEAR_BYTES));
	view_ip(skb, &view);
	if (!view.version)
		return disown(skb);
	verdict = decide(slot, port, now, backlog, skb->len, view.ecn != SG_NOT_ECT);
	if (verdict == SG_AQM_DROP) {
		if (port->aqm.kind == SG_AQM_RED)
			row->drops_red++;
		else
			row->drops_not_ect++;
		return SG_TCX_DROP;
	}
	if (verdict == SG_AQM_MARK && view.ecn != SG_CE) {
		row->marks++;
		if (!port->bleach)
			set_ecn(skb, &view, SG_CE);
	}
	if (port->bleach && view.ecn != SG_NOT_ECT) {
		row->bleached++;
		set_ecn(skb, &view, SG_NOT_ECT);
	}
	return disown(skb);
}

char _license[] SEC("license") = "Dual BSD/GPL";
