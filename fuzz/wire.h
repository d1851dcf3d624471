/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Builds Ethernet frames that carry TCP and looks at them again, independently
 * of the code under test: what is compared must not be computed by it.
 */
#ifndef FUZZ_WIRE_H
#define FUZZ_WIRE_H

#include <netinet/in.h>
#include <string.h>

#include "input.h"

#define WIRE_MAX 4096U
#define PAYLOAD_MAX 3000U
#define ETHERNET_LEN 14U
#define VLAN_LEN 4U
#define TCP_LEN 20U
#define OPTIONS_MAX 40U

/* The contents of a frame; multi-byte values in host order. */
struct shape {
	int ip_version; /* 4 or 6 */
	int vlan;       /* one 802.1Q tag */
	sg_u32 local;   /* last 32 bits of the sender's address */
	sg_u32 remote;
	sg_u16 source_port;
	sg_u16 destination_port;
	sg_u32 seq;
	sg_u32 ack;
	sg_u8 flags;
	sg_u8 ecn;
	sg_u8 dscp;
	sg_u16 window;
	sg_u8 options[OPTIONS_MAX]; /* padded with zeros (end of list) to 4 */
	sg_u32 options_len;
	sg_u32 payload;
	sg_u8 payload_seed;
};

struct wire {
	sg_u8 bytes[WIRE_MAX];
	sg_u32 len;
};

/* Where the parts of a frame are. */
struct view {
	sg_u32 ip;      /* offset of the IP header */
	sg_u32 tcp;
	sg_u32 payload;
	sg_u32 end;     /* of the IP packet; the rest is Ethernet padding */
	int version;
	sg_u16 window;
	sg_u8 flags;
	sg_u8 traffic_class; /* DSCP and ECN */
};

static inline void put16(sg_u8 *at, sg_u32 x)
{
	at[0] = (sg_u8)(x >> 8);
	at[1] = (sg_u8)x;
}

static inline void put32(sg_u8 *at, sg_u32 x)
{
	put16(at, x >> 16);
	put16(at + 2, x);
}

static inline sg_u16 get16(const sg_u8 *at) { return (sg_u16)(at[0] << 8 | at[1]); }

static inline sg_u32 get32(const sg_u8 *at)
{
	return (sg_u32)get16(at) << 16 | get16(at + 2);
}

/* RFC 1071 sum, folded, not complemented; in words as they lie in memory, turned at the end. */
static PLAIN sg_u32 sum16(sg_u32 sum, const sg_u8 *at, sg_u32 len)
{
	sg_u64 words = htons((sg_u16)sum);
	sg_u16 last = 0;
	sg_u32 word, i;

	for (i = 0; i + 4 <= len; i += 4) {
		memcpy(&word, at + i, 4);
		words += word;
	}
	for (; i < len; i += 2) {
		last = 0;
		memcpy(&last, at + i, len - i < 2 ? 1 : 2);
		words += last;
	}
	while (words >> 16)
		words = (words & 0xffff) + (words >> 16);
	return ntohs((sg_u16)words);
}

/* Sum over the pseudo header, TCP header and payload; 0xffff when it is right. */
static inline sg_u32 tcp_sum(const sg_u8 *ip, int version, const sg_u8 *tcp, sg_u32 len)
{
	sg_u8 tail[4];
	sg_u32 sum;

	put16(tail, len);
	put16(tail + 2, 6);
	sum = version == 4 ? sum16(0, ip + 12, 8) : sum16(0, ip + 8, 32);
	return sum16(sum16(sum, tail, 4), tcp, len);
}

static inline sg_u32 build_ipv4(sg_u8 *ip, const struct shape *s, sg_u32 tcp_total)
{
	memset(ip, 0, 20);
	ip[0] = 0x45;
	ip[1] = (sg_u8)(s->dscp << 2 | s->ecn);
	put16(ip + 2, 20 + tcp_total);
	put16(ip + 6, 0x4000); /* DF */
	ip[8] = 64;
	ip[9] = 6;
	put32(ip + 12, s->local);
	put32(ip + 16, s->remote);
	put16(ip + 10, ~sum16(0, ip, 20) & 0xffff);
	return 20;
}

static inline sg_u32 build_ipv6(sg_u8 *ip, const struct shape *s, sg_u32 tcp_total)
{
	memset(ip, 0, 40);
	put32(ip, 6U << 28 | (sg_u32)(s->dscp << 2 | s->ecn) << 20 | 0x12345);
	put16(ip + 4, tcp_total);
	ip[6] = 6;
	ip[7] = 64;
	put32(ip + 8, 0xfd000000);
	put32(ip + 20, s->local);
	put32(ip + 24, 0xfd000000);
	put32(ip + 36, s->remote);
	return 40;
}

static PLAIN void build_tcp(sg_u8 *tcp, const struct shape *s, sg_u32 header)
{
	sg_u32 i;

	memset(tcp, 0, header);
	put16(tcp, s->source_port);
	put16(tcp + 2, s->destination_port);
	put32(tcp + 4, s->seq);
	put32(tcp + 8, s->ack);
	tcp[12] = (sg_u8)(header / 4 << 4);
	tcp[13] = s->flags;
	put16(tcp + 14, s->window);
	memcpy(tcp + TCP_LEN, s->options, s->options_len);
	for (i = 0; i < s->payload; i++)
		tcp[header + i] = (sg_u8)(s->payload_seed + i * 7);
}

/* A well-formed frame with right checksums. */
static inline void build(struct wire *w, const struct shape *s)
{
	sg_u32 header = TCP_LEN + (s->options_len + 3) / 4 * 4;
	sg_u32 total = header + s->payload, at = ETHERNET_LEN;
	sg_u32 type = s->ip_version == 4 ? 0x0800 : 0x86dd;
	sg_u8 *ip, *tcp;

	memset(w->bytes, 0x02, 12);
	if (s->vlan) {
		put16(w->bytes + 12, 0x8100);
		put16(w->bytes + 14, 7);
		at += VLAN_LEN;
	}
	put16(w->bytes + at - 2, type);
	ip = w->bytes + at;
	at += s->ip_version == 4 ? build_ipv4(ip, s, total) : build_ipv6(ip, s, total);
	tcp = w->bytes + at;
	build_tcp(tcp, s, header);
	put16(tcp + 16, ~tcp_sum(ip, s->ip_version, tcp, total) & 0xffff);
	w->len = at + total;
}

static inline sg_u32 look_ip(const struct wire *w, struct view *v)
{
	const sg_u8 *ip = w->bytes + v->ip;
	sg_u32 room = w->len - v->ip, total;

	if (v->version == 4) {
		total = room >= 20 ? get16(ip + 2) : 0;
		if (total < 20 || total > room || ip[0] != 0x45 || ip[9] != 6 ||
		    (get16(ip + 6) & 0x3fff))
			return 0;
		v->traffic_class = ip[1];
		v->tcp = v->ip + 20;
	} else {
		if (room < 40 || ip[0] >> 4 != 6 || ip[6] != 6)
			return 0;
		total = 40U + get16(ip + 4);
		v->traffic_class = (sg_u8)(get16(ip) >> 4);
		v->tcp = v->ip + 40;
	}
	return total <= room ? total : 0;
}

/* Returns 0 when this is not plain TCP with lengths that add up. */
static inline int look(const struct wire *w, struct view *v)
{
	sg_u32 type, total, header;

	memset(v, 0, sizeof(*v));
	if (w->len < ETHERNET_LEN + VLAN_LEN)
		return 0;
	v->ip = ETHERNET_LEN;
	type = get16(w->bytes + 12);
	if (type == 0x8100 || type == 0x88a8) {
		type = get16(w->bytes + 16);
		v->ip += VLAN_LEN;
	}
	if (type != 0x0800 && type != 0x86dd)
		return 0;
	v->version = type == 0x0800 ? 4 : 6;
	total = look_ip(w, v);
	v->end = v->ip + total;
	if (!total || v->end < v->tcp + TCP_LEN)
		return 0;
	header = (sg_u32)(w->bytes[v->tcp + 12] >> 4) * 4;
	if (header < TCP_LEN || v->tcp + header > v->end)
		return 0;
	v->payload = v->tcp + header;
	v->flags = w->bytes[v->tcp + 13];
	v->window = get16(w->bytes + v->tcp + 14);
	return 1;
}

/* IPv6 has no checksum that could be wrong. */
static inline int ip_sum_ok(const struct wire *w, const struct view *v)
{
	return v->version == 6 || sum16(0, w->bytes + v->ip, 20) == 0xffff;
}

static inline int tcp_sum_ok(const struct wire *w, const struct view *v)
{
	return tcp_sum(w->bytes + v->ip, v->version, w->bytes + v->tcp,
		       v->end - v->tcp) == 0xffff;
}

#endif /* FUZZ_WIRE_H */
