// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A tenant that cheats: inside its namespace every TCP window that arrives becomes
 * the largest that sixteen bits can say, after its host has lowered it. The lab
 * attaches this to ingress of tenants with `ignore_window`.
 */
#include "kernel.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define OPEN_WINDOW bpf_htons(0xffff)

/* Where TCP begins; 0: not TCP, or behind options and extension headers. */
static __always_inline __u32 tcp_offset(struct __sk_buff *skb)
{
	__u8 first = 0, protocol = 0;
	__u32 ip = ETH_HLEN;

	if (bpf_skb_load_bytes(skb, ip, &first, 1))
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (first != 0x45 ||
		    bpf_skb_load_bytes(skb, ip + offsetof(struct iphdr, protocol), &protocol, 1))
			return 0;
		ip += sizeof(struct iphdr);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ip + offsetof(struct ipv6hdr, nexthdr), &protocol, 1))
			return 0;
		ip += sizeof(struct ipv6hdr);
	}
	return protocol == IPPROTO_TCP ? ip : 0;
}

SEC("tcx/ingress")
int ignore_window(struct __sk_buff *skb)
{
	__u32 tcp = tcp_offset(skb);
	__be16 window, open = OPEN_WINDOW;
	__u32 at = tcp + offsetof(struct tcphdr, window);

	if (!tcp || bpf_skb_load_bytes(skb, at, &window, sizeof(window)) || window == open)
		return SG_TCX_NEXT;
	/* A partial checksum does not cover the field, and the helper knows. */
	if (bpf_skb_store_bytes(skb, at, &open, sizeof(open), 0))
		return SG_TCX_NEXT;
	bpf_l4_csum_replace(skb, tcp + offsetof(struct tcphdr, check), window, open, sizeof(open));
	return SG_TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
