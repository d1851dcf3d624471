/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From bytes to a segment.
 *
 * sg_parse() reads Ethernet, at most one VLAN tag, IPv4 without options or IPv6
 * without extension headers, and the fixed TCP header, between two pointers with
 * explicit bounds: the form that the BPF verifier can follow. Options are parsed
 * from a copy, and only where the enforcement step needs them.
 */
#ifndef SLUICE_PACKET_H
#define SLUICE_PACKET_H

#include "bucket.h"
#include "feedback.h"
#include "flow.h"
#include "segment.h"

#define SG_ETHERTYPE_IPV4 0x0800
#define SG_ETHERTYPE_IPV6 0x86dd
#define SG_ETHERTYPE_VLAN 0x8100
#define SG_ETHERTYPE_QINQ 0x88a8
#define SG_ETHERTYPE_ARP 0x0806
#define SG_IPPROTO_ICMP 1
#define SG_IPPROTO_TCP 6
#define SG_IPPROTO_UDP 17
#define SG_IPPROTO_ICMPV6 58

/* A copy of the options is this long, so that indices can be masked. */
#define SG_OPTIONS_BUFFER 64U

struct sg_packet {
	struct sg_flow_key key;
	struct sg_segment seg;
	sg_u16 l3_at;      /* offset of the IP header in the frame */
	sg_u16 l4_at;      /* offset of the TCP header */
	sg_u32 l4_len;     /* TCP header and payload in bytes, without Ethernet padding */
	sg_u16 ipv6;       /* 0 or 1 */
	sg_u16 trim;       /* 1 = bytes behind the IP packet have to go */
};

#if defined(__BPF__) || defined(__bpf__)
SG_INLINE sg_u16 sg_load16(const sg_u8 *p) { return __builtin_bswap16(*(const sg_u16 *)p); }
SG_INLINE sg_u32 sg_load32(const sg_u8 *p) { return __builtin_bswap32(*(const sg_u32 *)p); }
SG_INLINE sg_u16 sg_raw16(const sg_u8 *p) { return *(const sg_u16 *)p; }
SG_INLINE sg_u32 sg_raw32(const sg_u8 *p) { return *(const sg_u32 *)p; }
#else
SG_INLINE sg_u16 sg_raw16(const sg_u8 *p)
{
	sg_u16 v;

	__builtin_memcpy(&v, p, sizeof(v));
	return v;
}
SG_INLINE sg_u32 sg_raw32(const sg_u8 *p)
{
	sg_u32 v;

	__builtin_memcpy(&v, p, sizeof(v));
	return v;
}
SG_INLINE sg_u16 sg_load16(const sg_u8 *p) { return __builtin_bswap16(sg_raw16(p)); }
SG_INLINE sg_u32 sg_load32(const sg_u8 *p) { return __builtin_bswap32(sg_raw32(p)); }
#endif

/* Addresses of the local and the remote end, by direction. */
SG_INLINE void sg_parse_addresses4(struct sg_flow_key *key, const sg_u8 *ip, int from_tenant)
{
	sg_u32 source = sg_raw32(ip + 12), destination = sg_raw32(ip + 16);

	key->local.word[0] = 0;
	key->local.word[1] = 0;
	key->local.word[2] = __builtin_bswap32(0x0000ffff);
	key->local.word[3] = from_tenant ? source : destination;
	key->remote.word[0] = 0;
	key->remote.word[1] = 0;
	key->remote.word[2] = __builtin_bswap32(0x0000ffff);
	key->remote.word[3] = from_tenant ? destination : source;
}

SG_INLINE void sg_parse_addresses6(struct sg_flow_key *key, const sg_u8 *ip, int from_tenant)
{
	const sg_u8 *local = from_tenant ? ip + 8 : ip + 24;
	const sg_u8 *remote = from_tenant ? ip + 24 : ip + 8;

	key->local.word[0] = sg_raw32(local);
	key->local.word[1] = sg_raw32(local + 4);
	key->local.word[2] = sg_raw32(local + 8);
	key->local.word[3] = sg_raw32(local + 12);
	key->remote.word[0] = sg_raw32(remote);
	key->remote.word[1] = sg_raw32(remote + 4);
	key->remote.word[2] = sg_raw32(remote + 8);
	key->remote.word[3] = sg_raw32(remote + 12);
}

/*
 * Bytes of the IP packet from its length field. A zero field is a super-packet
 * beyond 64 KB (BIG TCP); a smaller one than the frame leaves bytes behind the packet.
 */
SG_INLINE sg_u32 sg_ip_bytes(sg_u32 field, sg_u32 header, sg_u32 available)
{
	if (sg_unlikely(available > 0xffff + header) && (!field || field + header <= 0xffff))
		return available;
	return field + header;
}

/*
 * Behind an IP packet a frame may have padding (to 60 bytes, 64 with a tag) and a trailer
 * of its device (a check sequence, a time stamp). What is more belongs to no protocol, is
 * counted by no field of TCP, and bridges and tunnels carry it all the same. Where a rule
 * enforces, a tenant's frame is cut to its IP packet then: were it passed by as unreadable,
 * the peer's host would read it all the same. Where none does, it is unreadable.
 */
#define SG_BEHIND_MAX 16U

SG_INLINE sg_u16 sg_has_trailer(sg_u32 available, sg_u32 bytes, int from_tenant)
{
	return from_tenant && available - bytes > SG_BEHIND_MAX;
}

SG_INLINE sg_u32 sg_parse_ipv4(struct sg_packet *p, const sg_u8 *ip, sg_u32 available,
			       int from_tenant, sg_u32 *bytes)
{
	if (sg_unlikely(ip[0] >> 4 != 4))
		return SG_COUNT_MALFORMED;
	if (sg_unlikely(ip[9] != SG_IPPROTO_TCP))
		return SG_COUNT_NOT_TCP;
	if (sg_unlikely(ip[0] != 0x45))
		return SG_COUNT_IP_OPTIONS;
	if (sg_unlikely(sg_load16(ip + 6) & 0x3fff))
		return SG_COUNT_FRAGMENT;
	p->ipv6 = 0;
	p->seg.ecn = ip[1] & 3;
	*bytes = sg_ip_bytes(sg_load16(ip + 2), 0, available);
	sg_parse_addresses4(&p->key, ip, from_tenant);
	return SG_COUNT_NONE;
}

SG_INLINE sg_u32 sg_parse_ipv6(struct sg_packet *p, const sg_u8 *ip, sg_u32 available,
			       int from_tenant, sg_u32 *bytes)
{
	sg_u8 next = ip[6];

	if (sg_unlikely(ip[0] >> 4 != 6))
		return SG_COUNT_MALFORMED;
	if (sg_unlikely(next == 44))
		return SG_COUNT_FRAGMENT;
	if (next == 0 || next == 43 || next == 60 || next == 51 || next == 135)
		return SG_COUNT_IP_OPTIONS;
	if (next != SG_IPPROTO_TCP)
		return SG_COUNT_NOT_TCP;
	p->ipv6 = 1;
	p->seg.ecn = ip[1] >> 4 & 3;
	*bytes = sg_ip_bytes(sg_load16(ip + 4), 40, available);
	sg_parse_addresses6(&p->key, ip, from_tenant);
	return SG_COUNT_NONE;
}

/* The fixed TCP header at `tcp`; 20 bytes are known to be there. */
SG_INLINE sg_u32 sg_parse_tcp(struct sg_packet *p, const sg_u8 *tcp, int from_tenant)
{
	struct sg_segment *seg = &p->seg;

	seg->header_len = (tcp[12] >> 4) * 4;
	if (sg_unlikely(seg->header_len < 20 || seg->header_len > p->l4_len))
		return SG_COUNT_MALFORMED;
	seg->payload = p->l4_len - seg->header_len;
	seg->seq = sg_load32(tcp + 4);
	seg->ack = sg_load32(tcp + 8);
	seg->tcp_flags = tcp[13];
	seg->window = sg_load16(tcp + 14);
	p->key.local_port = sg_raw16(from_tenant ? tcp : tcp + 2);
	p->key.remote_port = sg_raw16(from_tenant ? tcp + 2 : tcp);
	return SG_COUNT_NONE;
}

/*
 * Parses the headers between `data` and `end` of a frame of `frame_len` bytes.
 * `vlan` is a tag that the device has already removed, 0 for none. `p` is zeroed
 * and has key.ifindex and seg.direction set. Returns SG_COUNT_NONE for TCP that
 * can be tracked, else the counter that says why not.
 */
SG_INLINE sg_u32 sg_parse(struct sg_packet *p, const sg_u8 *data, const sg_u8 *end,
			  sg_u32 frame_len, sg_u32 vlan)
{
	int from_tenant = p->seg.direction == SG_FROM_TENANT;
	sg_u32 l3_at = 14, bytes = 0, verdict;
	const sg_u8 *ip;
	sg_u16 type;

	if (sg_unlikely(data + 14 > end))
		return SG_COUNT_NOT_TCP;
	type = sg_load16(data + 12);
	p->key.vlan = vlan & 0xfff;
	ip = data + 14;
	if (sg_unlikely(type == SG_ETHERTYPE_VLAN || type == SG_ETHERTYPE_QINQ)) {
		if (vlan)
			return SG_COUNT_DOUBLE_TAG;
		if (data + 18 > end)
			return SG_COUNT_NOT_TCP;
		p->key.vlan = sg_load16(data + 14) & 0xfff;
		type = sg_load16(data + 16);
		l3_at = 18;
		ip = data + 18;
		if (type == SG_ETHERTYPE_VLAN || type == SG_ETHERTYPE_QINQ)
			return SG_COUNT_DOUBLE_TAG;
	}
	p->l3_at = (sg_u16)l3_at;
	if (sg_likely(type == SG_ETHERTYPE_IPV4)) {
		if (sg_unlikely(ip + 40 > end))
			return ip + 20 > end || ip[9] != SG_IPPROTO_TCP ? SG_COUNT_NOT_TCP :
									    SG_COUNT_MALFORMED;
		verdict = sg_parse_ipv4(p, ip, frame_len - l3_at, from_tenant, &bytes);
		if (sg_unlikely(verdict))
			return verdict;
		if (sg_unlikely(bytes > frame_len - l3_at || bytes < 40))
			return SG_COUNT_MALFORMED;
		p->trim = sg_has_trailer(frame_len - l3_at, bytes, from_tenant);
		p->l4_at = (sg_u16)(l3_at + 20);
		p->l4_len = bytes - 20;
		return sg_parse_tcp(p, ip + 20, from_tenant);
	}
	if (type == SG_ETHERTYPE_IPV6) {
		if (sg_unlikely(ip + 60 > end))
			return ip + 40 > end || ip[6] != SG_IPPROTO_TCP ? SG_COUNT_NOT_TCP :
									    SG_COUNT_MALFORMED;
		verdict = sg_parse_ipv6(p, ip, frame_len - l3_at, from_tenant, &bytes);
		if (verdict)
			return verdict;
		if (bytes > frame_len - l3_at || bytes < 60)
			return SG_COUNT_MALFORMED;
		p->trim = sg_has_trailer(frame_len - l3_at, bytes, from_tenant);
		p->l4_at = (sg_u16)(l3_at + 40);
		p->l4_len = bytes - 40;
		return sg_parse_tcp(p, ip + 40, from_tenant);
	}
	return SG_COUNT_NOT_TCP;
}

/* IPv6 neighbour discovery is ICMPv6 of types 133 to 137 (RFC 4861). */
SG_INLINE sg_u32 sg_class_icmp6(const sg_u8 *icmp, const sg_u8 *end)
{
	return icmp < end && icmp[0] >= 133 && icmp[0] <= 137 ? SG_CLASS_NEIGHBOUR :
								SG_CLASS_ICMP;
}

/*
 * The class (enum sg_class) of a packet that sg_parse() gave `why` for. `end` may be within its
 * headers; a packet that cannot be told is of the class that has no name.
 */
SG_INLINE sg_u32 sg_classify(sg_u32 why, const sg_u8 *data, const sg_u8 *end)
{
	const sg_u8 *ip = data + 14;
	sg_u32 protocol;
	sg_u16 type;

	if (why == SG_COUNT_FRAGMENT)
		return SG_CLASS_FRAGMENT;
	if (why != SG_COUNT_NOT_TCP)
		return SG_CLASS_OPAQUE;
	if (data + 14 > end)
		return SG_CLASS_OTHER;
	type = sg_load16(data + 12);
	if (type == SG_ETHERTYPE_VLAN || type == SG_ETHERTYPE_QINQ) {
		if (data + 18 > end)
			return SG_CLASS_OTHER;
		type = sg_load16(data + 16);
		ip = data + 18;
	}
	if (type == SG_ETHERTYPE_ARP)
		return SG_CLASS_NEIGHBOUR;
	if (type != SG_ETHERTYPE_IPV4 && type != SG_ETHERTYPE_IPV6)
		return SG_CLASS_OTHER;
	if (ip + 10 > end)
		return SG_CLASS_OTHER;
	protocol = type == SG_ETHERTYPE_IPV4 ? ip[9] : ip[6];
	if (protocol == SG_IPPROTO_UDP)
		return SG_CLASS_UDP;
	if (protocol == SG_IPPROTO_ICMP && type == SG_ETHERTYPE_IPV4)
		return SG_CLASS_ICMP;
	if (protocol == SG_IPPROTO_ICMPV6)
		return ip + 41 > end ? SG_CLASS_ICMP : sg_class_icmp6(ip + 40, end);
	return SG_CLASS_OTHER;
}

/*
 * A mark on what no receiver takes must not count. So the checksum of a marked segment
 * for the tenant is looked at, where no device has done so already.
 */
#define SG_SUMMED_MAX 16384U

SG_INLINE int sg_wants_sum(const struct sg_segment *seg)
{
	return seg->ecn == SG_CE && seg->payload && seg->direction == SG_TO_TENANT;
}

/* Whether the step needs this segment's options at all: not for data in flight. */
SG_INLINE int sg_needs_options(const struct sg_segment *seg)
{
	return seg->header_len > 20 && (!seg->payload || (seg->tcp_flags & SG_SYN));
}

SG_INLINE sg_u32 sg_option32(const sg_u8 *options, sg_u32 at)
{
	return (sg_u32)options[at & 63] << 24 | (sg_u32)options[(at + 1) & 63] << 16 |
	       (sg_u32)options[(at + 2) & 63] << 8 | options[(at + 3) & 63];
}

/* Of several the last counts, and 0 is none, as in Linux' tcp_parse_options(). */
SG_INLINE void sg_option_mss(struct sg_segment *seg, const sg_u8 *options, sg_u32 at, sg_u32 len)
{
	sg_u16 mss = (sg_u16)(sg_option32(options, at + 2) >> 16);

	if (len != 4 || !mss)
		return;
	seg->options |= SG_OPT_MSS;
	seg->mss = mss;
	seg->mss_at = (sg_u8)(20 + at);
}

SG_INLINE void sg_option_sack(struct sg_segment *seg, const sg_u8 *options, sg_u32 at, sg_u32 len)
{
	/* One on a SYN means nothing; its place there is path_mss, which no packet says. */
	if (len < 10 || (seg->tcp_flags & SG_SYN))
		return;
	seg->options |= SG_OPT_SACK;
	seg->sack_left = sg_option32(options, at + 2);
	seg->sack_right = sg_option32(options, at + 6);
	if (len >= 18) {
		seg->sack2_left = sg_option32(options, at + 10);
		seg->sack2_right = sg_option32(options, at + 14);
	}
}

/*
 * A second one of hosts' own options could only be there to outlive the removal of
 * the first: a tenant's forgery, which no host may believe. Returns 1; there the walk ends.
 */
SG_INLINE int sg_option_feedback(struct sg_segment *seg, const sg_u8 *options, sg_u32 at,
				 sg_u32 len)
{
	if (len != SG_OPTION_LEN)
		return 0;
	if (seg->options & SG_OPT_FEEDBACK)
		return 1;
	seg->options |= SG_OPT_FEEDBACK;
	seg->feedback_at = (sg_u8)(20 + at);
	seg->e0b = sg_option32(options, at + 1) & SG_COUNTER_MASK;
	seg->ceb = sg_option32(options, at + 4) & SG_COUNTER_MASK;
	return 0;
}

SG_INLINE int sg_option_peer(struct sg_segment *seg, const sg_u8 *options, sg_u32 at, sg_u32 len)
{
	sg_u32 head = sg_option32(options, at + 2);

	if (len != SG_OPTION_LEN || head >> 8 != (SG_EXID << 8 | SG_PEER_VERSION))
		return 0;
	if (seg->options & SG_OPT_PEER)
		return 1;
	seg->options |= SG_OPT_PEER;
	if (head & SG_PEER_FLAG_FACK)
		seg->options |= SG_OPT_FACK;
	seg->peer_at = (sg_u8)(20 + at);
	return 0;
}

/* One option of `len` bytes at `at`; 1 = it must not be there. Unknown kinds are left alone. */
SG_INLINE int sg_option(struct sg_segment *seg, const sg_u8 *options, sg_u32 at, sg_u32 len)
{
	switch (options[at & 63]) {
	case 2:
		sg_option_mss(seg, options, at, len);
		break;
	case 3:
		if (len == 3) {
			seg->options |= SG_OPT_WSCALE;
			seg->wscale = (sg_u8)sg_min32(options[(at + 2) & 63], 14);
		}
		break;
	case 5:
		sg_option_sack(seg, options, at, len);
		break;
	case 19:
	case 29:
		seg->options |= SG_OPT_SIGNED;
		break;
	case 30:
		seg->options |= SG_OPT_MPTCP;
		seg->mptcp_at = (sg_u8)(20 + at);
		seg->mptcp_len = (sg_u8)len;
		break;
	case SG_KIND_FEEDBACK:
		return sg_option_feedback(seg, options, at, len);
	case SG_KIND_EXPERIMENT:
		return sg_option_peer(seg, options, at, len);
	default:
		break;
	}
	return 0;
}

/*
 * A walk over options that were copied out of the header, zeroed beyond `len`.
 * One step an option. For the verifier a step is a function that it checks apart
 * from its caller: it couldn't tell by itself that a loop steered by the packet
 * ends.
 */
struct sg_options {
	sg_u8 bytes[SG_OPTIONS_BUFFER];
	sg_u32 at;
	sg_u32 len; /* at most 40 */
};

#ifndef SG_GLOBAL
#define SG_GLOBAL static __attribute__((unused))
#endif

/*
 * The option at `at`; returns 1 after the last. EOL and a wrong length end the walk: seg->end_at.
 */
SG_GLOBAL int sg_options_step(struct sg_options *walk, struct sg_segment *seg)
{
	sg_u32 at, kind, size;

	if (!walk || !seg || walk->at >= walk->len)
		return 1;
	at = walk->at;
	kind = walk->bytes[at & 63];
	if (kind == 0) {
		seg->end_at = (sg_u8)(20 + at);
		return 1;
	}
	if (kind == 1) {
		walk->at = at + 1;
		return 0;
	}
	size = walk->bytes[(at + 1) & 63];
	if (size < 2 || at + size > walk->len || sg_option(seg, walk->bytes, at, size)) {
		seg->options |= SG_OPT_MALFORMED;
		seg->end_at = (sg_u8)(20 + at);
		return 1;
	}
	walk->at = at + size;
	return 0;
}

/* Fills the option fields of `seg`; wrong lengths set SG_OPT_MALFORMED. */
SG_INLINE void sg_parse_options(struct sg_options *walk, struct sg_segment *seg, sg_u32 len)
{
	sg_u32 i;

	walk->at = 0;
	walk->len = len;
	for (i = 0; i < 40; i++) {
		if (sg_options_step(walk, seg))
			break;
	}
}

#endif /* SLUICE_PACKET_H */
