/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The sources of facts about a connection whose handshake the programs did not see.
 *
 *   remembered  it was seen once, long ago: its slot was given away while it was silent
 *   half_open   of the handshake only the SYN came by: the other direction bypasses the hook; or
 *               only the SYN/ACK was read
 *   socket      the tenant's own end, where that is in this kernel: the other end of its veth
 *               is in a network namespace, whose number the agent wrote into `places`
 */
#ifndef SLUICE_KNOWN_H
#define SLUICE_KNOWN_H

#include "table.h"

#include "sluice/lifecycle.h"

#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct tcp_options_received {
	__u16 wscale_ok : 1;
	__u16 snd_wscale : 4; /* shift of the windows that the peer advertises */
	__u16 mss_clamp;      /* the peer's MSS option, at most */
};

struct tcp_sock {
	__u32 mss_cache; /* of the segments that it sends, without options */
	struct tcp_options_received rx_opt;
};

#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, sg_u32);
	__type(value, struct sg_place);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sg_flow_key);
	__type(value, struct sg_half_open);
} half_open SEC(".maps");

/*
 * Half-open connections of interfaces that have used up their share of `half_open`. A flood evicts
 * only entries of such interfaces.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sg_flow_key);
	__type(value, struct sg_half_open);
} crowd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct sg_flow_key);
	__type(value, struct sg_remembered);
} remembered SEC(".maps");

/* Peers that are not reached by what hosts add to handshakes. Each interface has its own slots. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct sg_blackhole_key);
	__type(value, struct sg_blackhole);
} blackholes SEC(".maps");

SG_GLOBAL int sg_offers_here(const struct sg_flow_key *key, sg_u64 now_ns)
{
	struct sg_blackhole_key place;

	if (!key)
		return SG_OFFERS;
	place = sg_blackhole_key_of(key);
	return (int)sg_offers_to(bpf_map_lookup_elem(&blackholes, &place), key, now_ns);
}

/* Keeps news of offers to a peer. */
SG_GLOBAL int sg_note_here(const struct sg_flow_key *key, sg_u32 news, sg_u64 now_ns)
{
	struct sg_blackhole_key place;
	struct sg_blackhole copy = { 0 }, *known;
	struct sg_counters *here = sg_counters_here();

	if (!key || news == SG_OFFER_NO_NEWS)
		return 0;
	place = sg_blackhole_key_of(key);
	known = bpf_map_lookup_elem(&blackholes, &place);
	if (known)
		copy = *known;
	if (!sg_blackhole_note(&copy, key, (enum sg_offer_news)news, now_ns) ||
	    bpf_map_update_elem(&blackholes, &place, &copy, BPF_ANY))
		return 0;
	if (here)
		sg_count_offers(here, (enum sg_offer_news)news);
	return 0;
}

/* Keeps what a SYN said, or a SYN/ACK alone, that was not known; 0 if it is kept. */
SG_GLOBAL int sg_keep_half(const struct sg_flow_key *key, const struct sg_half_open *half,
			   sg_u64 now_ns)
{
	struct sg_interface *interface;
	sg_u32 ifindex;

	if (!key || !half)
		return -1;
	ifindex = key->ifindex;
	interface = bpf_map_lookup_elem(&interfaces, &ifindex);
	/* Other CPUs count at the same time; one that is lost makes no difference. */
	if (interface && !sg_unanswered_add(&interface->unanswered, now_ns))
		return (int)bpf_map_update_elem(&crowd, key, half, BPF_ANY);
	return (int)bpf_map_update_elem(&half_open, key, half, BPF_ANY);
}

SG_INLINE void sg_half_answered(sg_u32 ifindex, sg_u64 now_ns)
{
	struct sg_interface *interface = bpf_map_lookup_elem(&interfaces, &ifindex);

	if (interface)
		sg_unanswered_sub(&interface->unanswered, now_ns);
}

/*
 * The half-open connection with this key, its opener included. `counted`: it has part of its
 * interface's share.
 */
SG_INLINE struct sg_half_open *sg_half_of(const struct sg_flow_key *key, sg_u32 *counted)
{
	struct sg_half_open *half = bpf_map_lookup_elem(&half_open, key);

	*counted = !!half;
	return half ? half : bpf_map_lookup_elem(&crowd, key);
}

/* A flow that falls silent with its connection open: what a new slot could not find out. */
SG_GLOBAL int sg_remember(const struct sg_flow_key *key, const struct sg_flow *flow)
{
	struct sg_remembered what = { 0 };

	if (!key || !flow || !sg_life_remember(&what, flow))
		return 0;
	return (int)bpf_map_update_elem(&remembered, key, &what, BPF_ANY);
}

/* IPv4 addresses are kept in IPv6's form. */
SG_INLINE int sg_is_ipv4(const struct sg_addr *address)
{
	return !address->word[0] && !address->word[1] &&
	       address->word[2] == __builtin_bswap32(0x0000ffff);
}

/* Reads the socket that `tuple` leads to in the namespace with this number. */
SG_INLINE void sg_ask_tuple(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, sg_u32 size,
			    sg_s32 netns, struct sg_remembered *known)
{
	struct bpf_sock *found = bpf_skc_lookup_tcp(skb, tuple, size, (sg_u64)netns, 0);
	struct tcp_sock *sock;

	if (!found)
		return;
	sock = (struct tcp_sock *)bpf_skc_to_tcp_sock(found);
	if (sock) {
		known->scale = SG_SCALE_EXACT;
		known->mss = (sg_u16)sg_min32(sock->rx_opt.mss_clamp, sock->mss_cache + 40);
		if (BPF_CORE_READ_BITFIELD(sock, rx_opt.wscale_ok))
			known->wscale = BPF_CORE_READ_BITFIELD(sock, rx_opt.snd_wscale);
	}
	bpf_sk_release(found);
}

/* Asks the tenant's socket, if it is one of this kernel. */
SG_GLOBAL int sg_ask_socket(struct __sk_buff *skb, const struct sg_flow_key *key,
			    struct sg_remembered *known)
{
	struct bpf_sock_tuple tuple = { 0 };
	struct sg_place *place;
	sg_u32 ifindex;

	if (!key || !known)
		return 0;
	ifindex = key->ifindex;
	place = bpf_map_lookup_elem(&places, &ifindex);
	if (!place || place->netns < 0)
		return 0;
	/* As a packet that comes in for the tenant would have it. */
	if (sg_is_ipv4(&key->local)) {
		tuple.ipv4.saddr = key->remote.word[3];
		tuple.ipv4.daddr = key->local.word[3];
		tuple.ipv4.sport = key->remote_port;
		tuple.ipv4.dport = key->local_port;
		sg_ask_tuple(skb, &tuple, sizeof(tuple.ipv4), place->netns, known);
		return 0;
	}
	__builtin_memcpy(tuple.ipv6.saddr, key->remote.word, sizeof(tuple.ipv6.saddr));
	__builtin_memcpy(tuple.ipv6.daddr, key->local.word, sizeof(tuple.ipv6.daddr));
	tuple.ipv6.sport = key->remote_port;
	tuple.ipv6.dport = key->local_port;
	sg_ask_tuple(skb, &tuple, sizeof(tuple.ipv6), place->netns, known);
	return 0;
}

/* The SYN/ACK of this tuple of which nothing else was read. */
SG_INLINE struct sg_half_open *sg_answer_here(struct sg_packet *p)
{
	struct sg_half_open *note;
	sg_u32 counted;

	p->key.opener = SG_OPENED_UNSEEN;
	note = sg_half_of(&p->key, &counted);
	p->key.opener = 0;
	return note;
}

/* The first segment of the peer, for the tenant whose SYN/ACK went without our option. */
SG_GLOBAL int sg_peer_news_here(struct sg_packet *p, const struct sg_flow *flow, sg_u64 now_ns)
{
	struct sg_half_open *half;
	sg_u32 counted, news;

	if (!p || !flow)
		return 0;
	p->key.opener = SG_OPENED_BY_REMOTE;
	half = sg_half_of(&p->key, &counted);
	p->key.opener = 0;
	news = sg_life_peer_news(flow, half, &p->seg);
	return sg_note_here(&p->key, news, now_ns);
}

SG_GLOBAL int sg_fate_recalled_here(struct sg_packet *p, const struct sg_flow *flow,
				    sg_u64 now_ns)
{
	if (!p || !flow)
		return SG_FATE_USE;
	return (int)sg_fate_recalled(sg_answer_here(p), flow, &p->seg, now_ns);
}

/* All that can be found out about a connection that is met from the middle. */
SG_GLOBAL int sg_find_out(struct __sk_buff *skb, struct sg_packet *p,
			  struct sg_remembered *known)
{
	struct sg_half_open *of_tenant, *of_remote;
	struct sg_remembered *before;
	sg_u32 counted;

	if (!p || !known)
		return 0;
	before = bpf_map_lookup_elem(&remembered, &p->key);
	if (before)
		*known = *before;
	p->key.opener = SG_OPENED_BY_TENANT;
	of_tenant = sg_half_of(&p->key, &counted);
	p->key.opener = SG_OPENED_BY_REMOTE;
	of_remote = sg_half_of(&p->key, &counted);
	p->key.opener = 0;
	sg_life_know(known, &p->seg, sg_answer_here(p), of_tenant, of_remote);
	if (known->scale == SG_SCALE_UNKNOWN)
		sg_ask_socket(skb, &p->key, known);
	return 0;
}

#endif /* SLUICE_KNOWN_H */
