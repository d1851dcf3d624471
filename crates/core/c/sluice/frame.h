/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Verdicts applied to a frame in memory: the adapter of the userspace switch, the
 * tests and the fuzzers. Of a frame whose payload stays elsewhere the headers are
 * enough. The eBPF adapter (agent/bpf/edit.h) does the same to an skb; the same
 * vectors go through both and must give the same bytes.
 *
 * Edits keep checksums as right as they were: every change is incremental.
 */
#ifndef SLUICE_FRAME_H
#define SLUICE_FRAME_H

#include "checksum.h"
#include "packet.h"

struct sg_frame {
	sg_u8 *data;
	sg_u32 len;      /* of the frame */
	sg_u32 capacity; /* of `data` */
	sg_u32 reach;    /* bytes of the frame in `data`: all headers, or the whole frame */
	sg_u32 partial;  /* 1 = its TCP checksum is that of the pseudo-header: another sums the rest */
};

SG_INLINE void sg_store16(sg_u8 *p, sg_u16 host)
{
	p[0] = (sg_u8)(host >> 8);
	p[1] = (sg_u8)host;
}

SG_INLINE void sg_frame_checksum(sg_u8 *field, sg_u32 change)
{
	sg_u16 sum = sg_csum_apply(sg_raw16(field), change);

	__builtin_memcpy(field, &sum, sizeof(sum));
}

SG_INLINE sg_u32 sg_frame_sum(const sg_u8 *data, sg_u32 len, sg_u32 sum);
SG_INLINE sg_u32 sg_frame_pseudo(const sg_u8 *ip, sg_u32 ipv6, sg_u32 l4_len);

/*
 * Whether the payload has to be within reach: of a marked segment for the tenant, to sum it; of a
 * SYN with data, to move them by an option.
 */
SG_INLINE int sg_frame_wants_all(const struct sg_packet *p, const struct sg_frame *frame)
{
	if (!p->seg.payload)
		return 0;
	if (p->seg.tcp_flags & SG_SYN)
		return p->l4_at + p->l4_len + SG_OPTION_LEN > frame->capacity;
	if (frame->reach >= p->l4_at + p->l4_len)
		return 0;
	return sg_wants_sum(&p->seg) && p->l4_len <= SG_SUMMED_MAX && !frame->partial;
}

/*
 * Whether a marked segment for the tenant has a wrong checksum. Beyond SG_SUMMED_MAX it is a
 * super-packet, whose maker has summed it.
 */
SG_INLINE int sg_frame_damaged(const struct sg_packet *p, const struct sg_frame *frame)
{
	sg_u32 sum;

	if (!sg_wants_sum(&p->seg) || p->l4_len > SG_SUMMED_MAX || frame->partial ||
	    frame->reach < p->l4_at + p->l4_len)
		return 0;
	sum = sg_frame_pseudo(frame->data + p->l3_at, p->ipv6, p->l4_len);
	return sg_csum_fold(sg_frame_sum(frame->data + p->l4_at, p->l4_len, sum)) != 0xffff;
}

/* Parses headers and, where the step needs them, options. */
SG_INLINE sg_u32 sg_frame_parse(struct sg_packet *p, const struct sg_frame *frame, sg_u32 direction)
{
	struct sg_options options = { 0 };
	sg_u32 verdict, len, i;

	p->seg.direction = (sg_u8)direction;
	verdict = sg_parse(p, frame->data, frame->data + frame->reach, frame->len, 0);
	if (verdict)
		return verdict;
	len = p->seg.header_len - 20U;
	if (sg_needs_options(&p->seg)) {
		for (i = 0; i < len && i < 40; i++)
			options.bytes[i] = frame->data[p->l4_at + 20U + i];
		sg_parse_options(&options, &p->seg, len);
	}
	p->seg.damaged = (sg_u8)sg_frame_damaged(p, frame);
	return SG_COUNT_NONE;
}

/* Sets one byte of the TCP header and returns what that adds to the sum. */
SG_INLINE sg_u32 sg_frame_byte(sg_u8 *tcp, sg_u32 at, sg_u8 value)
{
	sg_u32 change = sg_csum_change_byte(at, tcp[at], value);

	tcp[at] = value;
	return change;
}

SG_INLINE void sg_frame_ecn(sg_u8 *ip, sg_u32 ipv6, sg_u8 ecn)
{
	sg_u16 before = sg_raw16(ip);

	if (ipv6) {
		ip[1] = (sg_u8)((ip[1] & 0xcf) | ecn << 4);
	} else {
		ip[1] = (sg_u8)((ip[1] & 0xfc) | ecn);
		sg_frame_checksum(ip + 10, sg_csum_change(before, sg_raw16(ip)));
	}
}

/*
 * The IP length field and what depends on it, when the TCP header grows or shrinks. Returns what
 * that adds to the sum of the segment's own bytes.
 */
SG_INLINE sg_u32 sg_frame_resize(struct sg_packet *p, sg_u8 *ip, sg_u8 *tcp, sg_s32 delta)
{
	sg_u8 *field = p->ipv6 ? ip + 4 : ip + 2;
	sg_u16 before = sg_raw16(field);
	sg_u8 words = (sg_u8)(tcp[12] + delta / 4 * 16);

	sg_store16(field, (sg_u16)(sg_load16(field) + delta));
	if (!p->ipv6)
		sg_frame_checksum(ip + 10, sg_csum_change(before, sg_raw16(field)));
	p->l4_len += (sg_u32)delta;
	p->seg.header_len = (sg_u8)(p->seg.header_len + delta);
	return sg_frame_byte(tcp, 12, words);
}

/* An option becomes NOPs: where it can't be cut off, or may not be. */
SG_INLINE sg_u32 sg_frame_blank(sg_u8 *tcp, sg_u32 at, sg_u32 len)
{
	sg_u32 change = 0, i;

	for (i = 0; i < len; i++)
		change += sg_frame_byte(tcp, at + i, 1);
	return change;
}

/* Cuts off a last option of a frame without padding, else blanks it. */
SG_INLINE sg_u32 sg_frame_strip(struct sg_packet *p, struct sg_frame *frame, sg_u32 at)
{
	sg_u8 *tcp = frame->data + p->l4_at;
	sg_u32 change = 0, i;

	if (p->seg.direction == SG_FROM_TENANT || p->seg.payload ||
	    at + SG_OPTION_LEN != p->seg.header_len ||
	    frame->len != p->l4_at + p->l4_len)
		return sg_frame_blank(tcp, at, SG_OPTION_LEN);
	for (i = 0; i < SG_OPTION_LEN; i++)
		change += sg_frame_byte(tcp, at + i, 0);
	change += sg_frame_resize(p, frame->data + p->l3_at, tcp, -(sg_s32)SG_OPTION_LEN);
	frame->len -= SG_OPTION_LEN;
	frame->reach = frame->len;
	return change;
}

/*
 * Inserts an option behind the header, before the data of a SYN. They move by an even number
 * of bytes, which changes no sum.
 */
SG_INLINE sg_u32 sg_frame_insert(struct sg_packet *p, struct sg_frame *frame,
				 const sg_u8 option[SG_OPTION_LEN])
{
	sg_u8 *tcp = frame->data + p->l4_at;
	sg_u32 at = p->seg.header_len, change = 0, i;

	if (p->l4_at + p->l4_len + SG_OPTION_LEN > frame->capacity)
		return 0;
	for (i = p->seg.payload; i > 0; i--)
		tcp[at + SG_OPTION_LEN + i - 1] = tcp[at + i - 1];
	for (i = 0; i < SG_OPTION_LEN; i++) {
		tcp[at + i] = option[i];
		change += sg_csum_change_byte(at + i, 0, option[i]);
	}
	change += sg_frame_resize(p, frame->data + p->l3_at, tcp, SG_OPTION_LEN);
	frame->len = p->l4_at + p->l4_len;
	frame->reach = frame->len;
	return change;
}

/* Sets the 32-bit number at `at` of the TCP header. Returns what that adds to the sum. */
SG_INLINE sg_u32 sg_frame_number(sg_u8 *tcp, sg_u32 at, sg_u32 value)
{
	sg_u32 change = 0, i;

	for (i = 0; i < 4; i++)
		change += sg_frame_byte(tcp, at + i, (sg_u8)(value >> (24 - 8 * i)));
	return change;
}

/* Edits in place: nothing moves. */
SG_INLINE sg_u32 sg_frame_fields(struct sg_packet *p, sg_u8 *tcp, const struct sg_verdict *out)
{
	sg_u32 change = 0;

	if (out->edits & SG_EDIT_WINDOW) {
		change += sg_frame_byte(tcp, 14, (sg_u8)(out->window >> 8));
		change += sg_frame_byte(tcp, 15, (sg_u8)out->window);
	}
	if (out->edits & SG_EDIT_CLEAR_FLAGS) {
		change += sg_frame_byte(tcp, 13, (sg_u8)(tcp[13] & ~out->clear_flags));
		/* AccECN's third bit belongs to the same offer (RFC 9768 3.1.1). */
		if (out->clear_flags & SG_CWR)
			change += sg_frame_byte(tcp, 12, tcp[12] & 0xfe);
	}
	if (out->edits & SG_EDIT_ACK)
		change += sg_frame_number(tcp, 8, out->ack);
	if (out->edits & SG_EDIT_SEQ)
		change += sg_frame_number(tcp, 4, out->seq);
	if (out->edits & SG_EDIT_MSS) {
		change += sg_frame_byte(tcp, p->seg.mss_at + 2U, (sg_u8)(out->mss >> 8));
		change += sg_frame_byte(tcp, p->seg.mss_at + 3U, (sg_u8)out->mss);
	}
	if (out->edits & SG_EDIT_HIDE_MPTCP)
		change += sg_frame_blank(tcp, p->seg.mptcp_at, p->seg.mptcp_len);
	if (out->edits & SG_EDIT_BLANK_REST)
		change += sg_frame_blank(tcp, p->seg.end_at, p->seg.header_len - p->seg.end_at);
	return change;
}

/*
 * The TCP checksum after changes of the segment's own bytes, and of its length from `l4_before`,
 * which the pseudo-header has. A partial one follows the pseudo-header only.
 */
SG_INLINE void sg_frame_summed(const struct sg_packet *p, const struct sg_frame *frame, sg_u8 *tcp,
			       sg_u32 change, sg_u32 l4_before)
{
	sg_u32 pseudo = 0;
	sg_u16 sum;

	if (l4_before != p->l4_len)
		pseudo = sg_csum_change(__builtin_bswap16((sg_u16)l4_before),
					__builtin_bswap16((sg_u16)p->l4_len));
	if (!frame->partial) {
		if (change + pseudo)
			sg_frame_checksum(tcp + 16, change + pseudo);
	} else if (pseudo) {
		sum = (sg_u16)sg_csum_fold(sg_raw16(tcp + 16) + sg_csum_fold(pseudo));
		__builtin_memcpy(tcp + 16, &sum, sizeof(sum));
	}
}

/* Applies every edit of a verdict that passes. FACKs are made by sg_frame_fack(). */
SG_INLINE void sg_frame_apply(struct sg_packet *p, struct sg_frame *frame,
			      const struct sg_verdict *out)
{
	sg_u8 *tcp = frame->data + p->l4_at;
	sg_u8 option[SG_OPTION_LEN];
	sg_u32 change, l4_before = p->l4_len;

	if (out->edits & SG_EDIT_ECN)
		sg_frame_ecn(frame->data + p->l3_at, p->ipv6, out->ecn);
	change = sg_frame_fields(p, tcp, out);
	if (out->edits & SG_EDIT_STRIP_FEEDBACK)
		change += sg_frame_strip(p, frame, p->seg.feedback_at);
	if (out->edits & SG_EDIT_STRIP_PEER)
		change += sg_frame_strip(p, frame, p->seg.peer_at);
	if (out->edits & SG_EDIT_ADD_FEEDBACK) {
		sg_feedback_encode(option, out->e0b, out->ceb);
		change += sg_frame_insert(p, frame, option);
	}
	if (out->edits & SG_EDIT_ADD_PEER) {
		sg_peer_encode(option, 0);
		change += sg_frame_insert(p, frame, option);
	}
	sg_frame_summed(p, frame, tcp, change, l4_before);
}

/* Cuts a frame to its IP packet. */
SG_INLINE void sg_frame_trim(const struct sg_packet *p, struct sg_frame *frame)
{
	frame->len = p->l4_at + p->l4_len;
	frame->reach = sg_min32(frame->reach, frame->len);
}

/* Sum of 16-bit words in memory order; a last odd byte is padded. */
SG_INLINE sg_u32 sg_frame_sum(const sg_u8 *data, sg_u32 len, sg_u32 sum)
{
	sg_u8 last[2] = { 0, 0 };
	sg_u32 i;

	for (i = 0; i + 1 < len; i += 2)
		sum += sg_raw16(data + i);
	if (len & 1) {
		last[0] = data[len - 1];
		sum += sg_raw16(last);
	}
	return sum;
}

/* Sum of the pseudo-header of `l4_len` bytes behind the IP header at `ip`. */
SG_INLINE sg_u32 sg_frame_pseudo(const sg_u8 *ip, sg_u32 ipv6, sg_u32 l4_len)
{
	sg_u8 pseudo[4] = { 0, SG_IPPROTO_TCP, (sg_u8)(l4_len >> 8), (sg_u8)l4_len };
	sg_u32 sum = sg_frame_sum(pseudo, 4, 0);

	return ipv6 ? sg_frame_sum(ip + 8, 32, sum) : sg_frame_sum(ip + 12, 8, sum);
}

/* The whole TCP checksum of a segment of `l4_len` bytes behind the IP header at `ip`. */
SG_INLINE sg_u16 sg_frame_tcp_checksum(const sg_u8 *ip, sg_u32 ipv6, const sg_u8 *tcp, sg_u32 l4_len)
{
	sg_u32 sum = sg_frame_pseudo(ip, ipv6, l4_len);

	return (sg_u16)~sg_csum_fold(sg_frame_sum(tcp, l4_len, sum));
}

/*
 * A FACK: the segment's header without payload or options of its own, carrying
 * feedback, marked so that the peer's host consumes it. `p` and `frame` are the
 * segment after its edits. Returns the length of what `to` holds, 0 when it
 * does not fit.
 */
SG_INLINE sg_u32 sg_frame_fack(const struct sg_packet *p, const struct sg_frame *frame,
			       const struct sg_verdict *out, sg_u8 *to, sg_u32 capacity)
{
	sg_u32 len = p->l4_at + SG_FACK_HEADER, i;
	sg_u8 *ip = to + p->l3_at, *tcp = to + p->l4_at;
	sg_u16 sum;

	if (len > capacity)
		return 0;
	for (i = 0; i < p->l4_at + 20U; i++)
		to[i] = frame->data[i];
	sg_fack_header(tcp, out->e0b, out->ceb);
	if (p->ipv6) {
		sg_store16(ip + 4, SG_FACK_HEADER);
	} else {
		sg_u16 before = sg_raw16(ip + 2);

		sg_store16(ip + 2, 20 + SG_FACK_HEADER);
		sg_frame_checksum(ip + 10, sg_csum_change(before, sg_raw16(ip + 2)));
	}
	sum = sg_frame_tcp_checksum(ip, p->ipv6, tcp, SG_FACK_HEADER);
	__builtin_memcpy(tcp + 16, &sum, sizeof(sum));
	return len;
}

#endif /* SLUICE_FRAME_H */
