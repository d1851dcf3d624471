// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A port of the userspace switch: what an interface receives goes to the AF_XDP socket
 * of its queue. Frames of a queue without one go on into the host's own stack, and so do
 * those for the neighbour on the link, which no bridge relays (IEEE 802.1Q, 8.6.3): LLDP,
 * LACP, 802.1X and spanning tree are for the host's own daemons.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

/* Queues of an interface that a port may have (PAIRS_MAX). */
#define SG_XDP_QUEUES 8

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, SG_XDP_QUEUES);
	__type(key, __u32); /* number of the queue */
	__type(value, __u32);
} sockets SEC(".maps");

/* Bit n: frames to 01-80-C2-00-00-0n are the switch's all the same, which relays them. */
volatile const __u32 sg_relayed SEC(".rodata.relayed") = 0;

/* Whether a frame is for the host itself. */
static __always_inline int is_for_host(const struct xdp_md *frame)
{
	const unsigned char *to = (void *)(long)frame->data;
	const void *end = (void *)(long)frame->data_end;

	if ((const void *)(to + ETH_ALEN) > end)
		return 0;
	if (to[0] != 0x01 || to[1] != 0x80 || to[2] != 0xc2 || to[3] || to[4] || to[5] > 15)
		return 0;
	return !(sg_relayed >> (to[5] & 15) & 1);
}

SEC("xdp")
int xdp_port(struct xdp_md *frame)
{
	if (is_for_host(frame))
		return XDP_PASS;
	return bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
