/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Verdicts applied to an skb. The same edits as core's frame.h makes to a frame
 * in memory, plus what an skb adds to them:
 *
 * Checksums. A partial checksum (CHECKSUM_PARTIAL: the device or the final
 * receiver will sum the segment) holds only the pseudo-header's sum, so it
 * follows a change of length and nothing else. A complete one (CHECKSUM_COMPLETE)
 * has a second sum in skb->csum over the whole packet; that one stays right
 * through every incremental edit, since field and bytes cancel out, except for
 * a pseudo-header's change in IPv4, which helpers account for.
 *
 * Lengths. bpf_skb_change_tail() invalidates pointers: a tail is cut last, and room is
 * made before anything is written into it.
 */
#ifndef SLUICE_EDIT_H
#define SLUICE_EDIT_H

#include "sluice/checksum.h"
#include "sluice/handshake.h"
#include "sluice/packet.h"

#include "helpers.h"
#include "kernel.h"

#include <bpf/bpf_core_read.h>

#define SG_CHECKSUM_UNNECESSARY 1
#define SG_CHECKSUM_COMPLETE 2
#define SG_CHECKSUM_PARTIAL 3

struct sg_edit {
	sg_u32 fields;    /* change of the segment's own bytes */
	sg_u32 pseudo;    /* change of the pseudo-header's length */
	sg_u32 ip_summed;
};

SG_INLINE sg_u32 sg_ip_summed(struct __sk_buff *skb)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);

#ifdef SG_FAULTS
	if (faults.ip_summed)
		return faults.ip_summed;
#endif
	return BPF_CORE_READ_BITFIELD(kernel, ip_summed);
}

/* Bytes of the linear part, which alone can be written. */
SG_INLINE sg_u32 sg_skb_linear(struct __sk_buff *skb)
{
#ifdef SG_FAULTS
	if (faults.linear)
		return faults.linear;
#endif
	return skb->data_end - skb->data;
}

/* The whole TCP header into the linear part. Returns 0, or -1 when the kernel refuses. */
SG_INLINE int sg_skb_reach(struct __sk_buff *skb, const struct sg_packet *p)
{
	sg_u32 len = p->l4_at + p->seg.header_len;

	return sg_skb_linear(skb) < len && bpf_skb_pull_data(skb, len) ? -1 : 0;
}

SG_INLINE sg_u8 *sg_skb_data(struct __sk_buff *skb) { return (sg_u8 *)(long)skb->data; }
SG_INLINE sg_u8 *sg_skb_end(struct __sk_buff *skb) { return (sg_u8 *)(long)skb->data_end; }

/* Sets the 16-bit word at an even offset of the TCP header. */
SG_INLINE sg_u32 sg_skb_word(sg_u8 *at, sg_u16 value)
{
	sg_u32 change = sg_csum_change(*(sg_u16 *)at, value);

	*(sg_u16 *)at = value;
	return change;
}

/* Sets the 32-bit number at an even offset of the TCP header. */
SG_INLINE sg_u32 sg_skb_number(sg_u8 *at, sg_u32 value)
{
	return sg_skb_word(at, __builtin_bswap16((sg_u16)(value >> 16))) +
	       sg_skb_word(at + 2, __builtin_bswap16((sg_u16)value));
}

/* The TCP checksum at `tcp` + 16 after the changes so far. */
SG_INLINE void sg_skb_checksum(struct __sk_buff *skb, sg_u8 *tcp, sg_u32 l4_at, sg_u32 ipv6,
			       const struct sg_edit *edit)
{
	sg_u16 *field = (sg_u16 *)(tcp + 16);

	if (edit->ip_summed == SG_CHECKSUM_PARTIAL) {
		if (edit->pseudo)
			*field = (sg_u16)sg_csum_fold(*field + sg_csum_fold(edit->pseudo));
		return;
	}
	if (edit->fields)
		*field = sg_csum_apply(*field, edit->fields);
	if (!edit->pseudo)
		return;
	if (edit->ip_summed == SG_CHECKSUM_COMPLETE && !ipv6) {
		if (!bpf_l4_csum_replace(skb, l4_at + 16, 0, edit->pseudo, BPF_F_PSEUDO_HDR))
			return;
		/*
		 * Refused: the skb's sum stays behind, and a receiver looks at the bytes instead.
		 */
		field = (sg_u16 *)(sg_skb_data(skb) + (l4_at & 0x7f) + 16);
		if ((sg_u8 *)(field + 1) > sg_skb_end(skb))
			return;
	}
	*field = sg_csum_apply(*field, edit->pseudo);
}

SG_INLINE int sg_skb_ecn(struct __sk_buff *skb, const struct sg_packet *p, sg_u8 ecn)
{
	sg_u8 *ip = sg_skb_data(skb) + (p->l3_at & 0x1f);
	sg_u16 before, after;
	sg_u8 byte;

	if (ip + 20 > sg_skb_end(skb))
		return -1;
	if (p->ipv6) {
		byte = (sg_u8)((ip[1] & 0xcf) | ecn << 4);
		/* No header checksum hides this change from a complete sum. */
		return bpf_skb_store_bytes(skb, p->l3_at + 1, &byte, 1, BPF_F_RECOMPUTE_CSUM);
	}
	/* Word by word: a byte written and then read as part of a word stalls. */
	before = *(sg_u16 *)ip;
	after = __builtin_bswap16((sg_u16)((__builtin_bswap16(before) & 0xfffc) | ecn));
	*(sg_u16 *)ip = after;
	*(sg_u16 *)(ip + 10) = sg_csum_apply(*(sg_u16 *)(ip + 10), sg_csum_change(before, after));
	return 0;
}

/*
 * An option becomes NOPs, byte by byte: `at`, in the TCP header, may be odd. Returns what
 * that adds to the sum. One subprogram for all callers: the verifier walks the loop byte by byte.
 */
SG_GLOBAL int sg_skb_blank(struct __sk_buff *skb, sg_u32 l4_at, sg_u32 at, sg_u32 len)
{
	sg_u8 *tcp = sg_skb_data(skb) + (l4_at & 0x7f);
	sg_u32 change = 0, i;

	for (i = 0; i < 40; i++) {
		sg_u8 *byte = tcp + ((at + i) & 0x3f);

		if (i >= len || byte + 1 > sg_skb_end(skb))
			break;
		change += sg_csum_change_byte(at + i, *byte, 1);
		*byte = 1;
	}
	return (int)change;
}

/*
 * The value of the MSS option, which is behind `at`, in the TCP header, and may be at an odd
 * place. Returns what that adds to the sum.
 */
SG_GLOBAL int sg_skb_mss(struct __sk_buff *skb, sg_u32 l4_at, sg_u32 at, sg_u32 mss)
{
	sg_u8 *option = sg_skb_data(skb) + (l4_at & 0x7f) + (at & 0x3f);
	sg_u32 change;

	if (option + 4 > sg_skb_end(skb))
		return 0;
	change = sg_csum_change_byte(at + 2, option[2], (sg_u8)(mss >> 8)) +
		 sg_csum_change_byte(at + 3, option[3], (sg_u8)mss);
	option[2] = (sg_u8)(mss >> 8);
	option[3] = (sg_u8)mss;
	return (int)change;
}

SG_INLINE int sg_strips_tail(struct __sk_buff *skb, const struct sg_packet *p, sg_u32 at)
{
	return p->seg.direction == SG_TO_TENANT && !p->seg.payload &&
	       at + SG_OPTION_LEN == p->seg.header_len &&
	       skb->len == p->l4_at + p->l4_len;
}

/* Edits that move nothing. Returns 0, or -1 when the header is out of reach. */
SG_INLINE int sg_skb_fields(struct __sk_buff *skb, const struct sg_packet *p,
			    const struct sg_verdict *out, sg_u32 edits, struct sg_edit *edit)
{
	sg_u8 *tcp = sg_skb_data(skb) + (p->l4_at & 0x7f);

	if (tcp + 20 > sg_skb_end(skb))
		return -1;
	if (edits & SG_EDIT_WINDOW)
		edit->fields += sg_skb_word(tcp + 14, __builtin_bswap16(out->window));
	if (edits & SG_EDIT_CLEAR_FLAGS) {
		sg_u16 clear = out->clear_flags;

		/* AccECN's third bit belongs to the same offer (RFC 9768 3.1.1). */
		if (clear & SG_CWR)
			clear |= 0x100;
		edit->fields += sg_skb_word(tcp + 12, *(sg_u16 *)(tcp + 12) &
							      (sg_u16)~__builtin_bswap16(clear));
	}
	if (edits & SG_EDIT_ACK)
		edit->fields += sg_skb_number(tcp + 8, out->ack);
	if (edits & SG_EDIT_SEQ)
		edit->fields += sg_skb_number(tcp + 4, out->seq);
	if (edits & SG_EDIT_MSS)
		edit->fields += (sg_u32)sg_skb_mss(skb, p->l4_at, p->seg.mss_at, out->mss);
	if (edits & SG_EDIT_HIDE_MPTCP)
		edit->fields += (sg_u32)sg_skb_blank(skb, p->l4_at, p->seg.mptcp_at,
						     p->seg.mptcp_len);
	if (edits & SG_EDIT_BLANK_REST)
		edit->fields += (sg_u32)sg_skb_blank(skb, p->l4_at, p->seg.end_at,
						     p->seg.header_len - p->seg.end_at);
	return 0;
}

/* Data offset, IP length and checksums after the header became `delta` bytes longer. */
SG_INLINE int sg_skb_resized(struct __sk_buff *skb, struct sg_packet *p, sg_s32 delta,
			     struct sg_edit *edit)
{
	sg_u8 *ip = sg_skb_data(skb) + (p->l3_at & 0x1f);
	sg_u8 *tcp = sg_skb_data(skb) + (p->l4_at & 0x7f);
	sg_u8 *field = p->ipv6 ? ip + 4 : ip + 2;
	sg_u16 before, words;

	if (ip + 20 > sg_skb_end(skb) || tcp + 20 > sg_skb_end(skb))
		return -1;
	before = *(sg_u16 *)field;
	*(sg_u16 *)field = __builtin_bswap16((sg_u16)(__builtin_bswap16(before) + delta));
	if (!p->ipv6)
		*(sg_u16 *)(ip + 10) = sg_csum_apply(*(sg_u16 *)(ip + 10),
						     sg_csum_change(before, *(sg_u16 *)field));
	edit->pseudo += sg_csum_change(__builtin_bswap16((sg_u16)p->l4_len),
				       __builtin_bswap16((sg_u16)(p->l4_len + delta)));
	words = __builtin_bswap16(*(sg_u16 *)(tcp + 12));
	words = (sg_u16)(words + (delta / 4) * 4096);
	edit->fields += sg_skb_word(tcp + 12, __builtin_bswap16(words));
	p->l4_len += (sg_u32)delta;
	p->seg.header_len = (sg_u8)(p->seg.header_len + delta);
	return 0;
}

/*
 * Blanks the option, or, when it is the last one, prepares the header for the
 * tail's cut: the option's bytes become zero, so that cutting them off changes
 * no sum.
 */
SG_INLINE int sg_skb_strip(struct __sk_buff *skb, struct sg_packet *p, sg_u32 at, int cut,
			   struct sg_edit *edit)
{
	sg_u8 *option = sg_skb_data(skb) + (p->l4_at & 0x7f) + (at & 0x3f);
	sg_u32 i;

	if (!cut) {
		edit->fields += (sg_u32)sg_skb_blank(skb, p->l4_at, at, SG_OPTION_LEN);
		return 0;
	}
	if (option + SG_OPTION_LEN > sg_skb_end(skb))
		return -1;
	for (i = 0; i < SG_OPTION_LEN; i += 2)
		edit->fields += sg_skb_word(option + i, 0);
	return sg_skb_resized(skb, p, -(sg_s32)SG_OPTION_LEN, edit);
}

struct sg_syn_data {
	sg_u8 bytes[SG_SYN_DATA_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, sg_u32);
	__type(value, struct sg_syn_data);
} syn_data SEC(".maps");

/*
 * The data of a SYN move up by an option, an even number of bytes, which changes no sum. The
 * skb has that room at its end. Refused, nothing has moved.
 */
SG_GLOBAL int sg_skb_move_data(struct __sk_buff *skb, sg_u32 at, sg_u32 len)
{
	sg_u32 zero = 0;
	struct sg_syn_data *data = bpf_map_lookup_elem(&syn_data, &zero);

	if (!data || len < 1)
		return -1;
	/* One comparison for both bounds is none that the verifier of Linux 6.12 follows. */
	barrier_var(len);
	if (len > SG_SYN_DATA_MAX)
		return -1;
	if (bpf_skb_load_bytes(skb, at, data->bytes, len))
		return -1;
	return bpf_skb_store_bytes(skb, at + SG_OPTION_LEN, data->bytes, len, 0) ? -1 : 0;
}

/* Makes room for an option behind the header and writes it. */
SG_INLINE int sg_skb_insert(struct __sk_buff *skb, struct sg_packet *p,
			    const sg_u8 option[SG_OPTION_LEN], struct sg_edit *edit)
{
	sg_u32 at = p->l4_at + p->seg.header_len, i;
	sg_u8 *to;

	if (bpf_skb_change_tail(skb, p->l4_at + p->l4_len + SG_OPTION_LEN, 0))
		return -1;
	if (skb->data_end - skb->data < at + SG_OPTION_LEN &&
	    bpf_skb_pull_data(skb, at + SG_OPTION_LEN))
		return -1;
	if (p->seg.payload && sg_skb_move_data(skb, at, p->seg.payload))
		return -1;
	to = sg_skb_data(skb) + (at & 0xff);
	if (to + SG_OPTION_LEN > sg_skb_end(skb))
		return -1;
	for (i = 0; i < SG_OPTION_LEN; i += 2) {
		*(sg_u16 *)(to + i) = *(const sg_u16 *)(option + i);
		edit->fields += sg_csum_change(0, *(const sg_u16 *)(option + i));
	}
	return sg_skb_resized(skb, p, SG_OPTION_LEN, edit);
}

SG_INLINE int sg_skb_finish(struct __sk_buff *skb, const struct sg_packet *p,
			    const struct sg_edit *edit)
{
	sg_u8 *tcp = sg_skb_data(skb) + (p->l4_at & 0x7f);

	if (tcp + 20 > sg_skb_end(skb))
		return -1;
	sg_skb_checksum(skb, tcp, p->l4_at, p->ipv6, edit);
	return 0;
}

/* Options that come or go: handshakes and pure ACKs only. */
SG_INLINE int sg_skb_options(struct __sk_buff *skb, struct sg_packet *p,
			       const struct sg_verdict *out, struct sg_edit *edit)
{
	sg_u8 option[SG_OPTION_LEN] __attribute__((aligned(8)));
	int cut = 0, error = 0;

	/* Both only where a tenant has forged both: then neither is cut off. */
	if (out->edits & SG_EDIT_STRIP_FEEDBACK) {
		cut = sg_strips_tail(skb, p, p->seg.feedback_at);
		error |= sg_skb_strip(skb, p, p->seg.feedback_at, cut, edit);
	}
	if (out->edits & SG_EDIT_STRIP_PEER) {
		cut |= sg_strips_tail(skb, p, p->seg.peer_at);
		error |= sg_skb_strip(skb, p, p->seg.peer_at, cut, edit);
	}
	if (out->edits & (SG_EDIT_ADD_FEEDBACK | SG_EDIT_ADD_PEER)) {
		if (out->edits & SG_EDIT_ADD_FEEDBACK)
			sg_feedback_encode(option, out->e0b, out->ceb);
		else
			sg_peer_encode(option, 0);
		error |= sg_skb_insert(skb, p, option, edit);
	}
	error |= sg_skb_finish(skb, p, edit);
	if (cut && !error)
		error |= bpf_skb_change_tail(skb, p->l4_at + p->l4_len, 0) ? -1 : 0;
	return error;
}

#define SG_EDITS_OPTIONS                                                              \
	(SG_EDIT_STRIP_FEEDBACK | SG_EDIT_STRIP_PEER | SG_EDIT_ADD_FEEDBACK | \
	 SG_EDIT_ADD_PEER)
#define SG_EDITS_FIELDS                                                                \
	(SG_EDIT_WINDOW | SG_EDIT_CLEAR_FLAGS | SG_EDIT_HIDE_MPTCP | SG_EDIT_ACK | \
	 SG_EDIT_SEQ | SG_EDIT_BLANK_REST | SG_EDIT_MSS)

/* Those behind the first 20 bytes of the header. */
#define SG_EDITS_BEHIND \
	(SG_EDITS_OPTIONS | SG_EDIT_BLANK_REST | SG_EDIT_HIDE_MPTCP | SG_EDIT_MSS)

/* Cuts off what is behind a tenant's IP packet. Returns 0, or -1 when the kernel refused. */
SG_INLINE int sg_skb_trim(struct __sk_buff *skb, const struct sg_packet *p)
{
	return bpf_skb_change_tail(skb, p->l4_at + p->l4_len, 0) ? -1 : 0;
}

/* Applies the edits of a TCP header. Returns 0, or -1 when the kernel refused one. */
SG_INLINE int sg_skb_apply(struct __sk_buff *skb, struct sg_packet *p,
			   const struct sg_verdict *out)
{
	struct sg_edit edit = { 0 };
	sg_u32 edits = out->edits;
	int error = 0;

	edit.ip_summed = sg_ip_summed(skb);
	/* Options may lie beyond the linear part. Without them the window is written still. */
	if ((edits & SG_EDITS_BEHIND) && sg_skb_reach(skb, p)) {
		edits &= ~SG_EDITS_BEHIND;
		error = -1;
	}
	if (edits & SG_EDITS_FIELDS)
		error |= sg_skb_fields(skb, p, out, edits, &edit);
	if (edits & SG_EDITS_OPTIONS)
		return error | sg_skb_options(skb, p, out, &edit);
	return error | sg_skb_finish(skb, p, &edit);
}

#endif /* SLUICE_EDIT_H */
