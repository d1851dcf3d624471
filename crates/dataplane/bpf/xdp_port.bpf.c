// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A port of the userspace switch: what an interface receives goes to the AF_XDP socket
 * of its queue. Frames of a queue without one go on into the host's own stack.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Queues of an interface that a port may have (PAIRS_MAX). */
#define SG_XDP_QUEUES 8

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, SG_XDP_QUEUES);
	__type(key, __u32); /* number of the queue */
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int xdp_port(struct xdp_md *frame)
{
	return bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
