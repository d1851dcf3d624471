/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The checksum of a whole segment, for those whose word would be taken. */
#ifndef SLUICE_SUMMED_H
#define SLUICE_SUMMED_H

#include "edit.h"

/* Sum of the pseudo-header of a segment behind the IP header at `ip`; 40 bytes are within reach. */
SG_NOINLINE int sg_pseudo_sum(const sg_u8 *ip, sg_u32 ipv6, sg_u32 l4_len)
{
	sg_u32 sum = __builtin_bswap16(SG_IPPROTO_TCP) + __builtin_bswap16((sg_u16)l4_len), i;

	for (i = 0; i < 16; i++) {
		if (ipv6)
			sum += sg_raw16(ip + 8 + 2 * i);
		else if (i < 4)
			sum += sg_raw16(ip + 12 + 2 * i);
	}
	return (int)sum;
}

#define SG_SUM_CHUNK 64U

struct sg_summing {
	struct __sk_buff *skb;
	sg_u32 at;   /* in the frame */
	sg_u32 left; /* bytes */
	sg_s64 sum;
	sg_u8 chunk[SG_SUM_CHUNK] __attribute__((aligned(8)));
};

static int sg_sum_chunk(sg_u32 i __attribute__((unused)), struct sg_summing *summing)
{
	sg_u32 size = sg_min32(summing->left, SG_SUM_CHUNK);

	if (!size)
		return 1;
	__builtin_memset(summing->chunk, 0, sizeof(summing->chunk));
	sg_opaque(size);
	if (size < 1 || size > SG_SUM_CHUNK ||
	    bpf_skb_load_bytes(summing->skb, summing->at, summing->chunk, size))
		return 1;
	summing->sum = bpf_csum_diff(0, 0, (__be32 *)summing->chunk, sizeof(summing->chunk),
				     (__wsum)summing->sum);
	summing->at += size;
	summing->left -= size;
	return 0;
}

/*
 * Whether a marked segment for the tenant has a wrong checksum. Where a device or the stack
 * has looked at it, or left it to the receiver's device, it is right.
 */
SG_GLOBAL int sg_skb_damaged(struct __sk_buff *skb, struct sg_packet *p)
{
	struct sg_summing summing = { .skb = skb };
	sg_u8 *ip = sg_skb_data(skb);
	sg_u32 summed;

	if (!p || p->l4_len > SG_SUMMED_MAX)
		return 0;
	summed = sg_ip_summed(skb);
	if (summed == SG_CHECKSUM_UNNECESSARY || summed == SG_CHECKSUM_PARTIAL)
		return 0;
	ip += p->l3_at & 0x1f;
	if (ip + 40 > sg_skb_end(skb))
		return 0;
	summing.sum = (sg_u32)sg_pseudo_sum(ip, p->ipv6, p->l4_len);
	summing.at = p->l4_at;
	summing.left = p->l4_len;
	bpf_loop(SG_SUMMED_MAX / SG_SUM_CHUNK, sg_sum_chunk, &summing, 0);
	p->seg.damaged = !summing.left && sg_csum_fold((sg_u32)summing.sum) != 0xffff;
	return 0;
}

#endif /* SLUICE_SUMMED_H */
