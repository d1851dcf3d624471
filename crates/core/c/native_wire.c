/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The native build of our options and of checksums, for callers that write frames
 * of segments which never were bytes (src/wire.rs).
 */
#include "sluice/frame.h"

void sluice_feedback_option(sg_u8 out[SG_OPTION_LEN], sg_u32 e0b, sg_u32 ceb);
void sluice_peer_option(sg_u8 out[SG_OPTION_LEN], sg_u32 fack);
sg_u16 sluice_ipv4_checksum(const sg_u8 ip[20]);
sg_u16 sluice_tcp_checksum(const sg_u8 *ip, sg_u32 ipv6, const sg_u8 *tcp, sg_u32 l4_len);

void sluice_feedback_option(sg_u8 out[SG_OPTION_LEN], sg_u32 e0b, sg_u32 ceb)
{
	sg_feedback_encode(out, e0b, ceb);
}

void sluice_peer_option(sg_u8 out[SG_OPTION_LEN], sg_u32 fack)
{
	sg_peer_encode(out, fack ? SG_PEER_FLAG_FACK : 0);
}

/* Checksums are as they lie in memory, over a checksum field of zero. */
sg_u16 sluice_ipv4_checksum(const sg_u8 ip[20])
{
	return (sg_u16)~sg_csum_fold(sg_frame_sum(ip, 20, 0));
}

sg_u16 sluice_tcp_checksum(const sg_u8 *ip, sg_u32 ipv6, const sg_u8 *tcp, sg_u32 l4_len)
{
	return sg_frame_tcp_checksum(ip, ipv6, tcp, l4_len);
}

sg_u64 sluice_bucket_next(const struct sg_bucket *bucket, sg_u64 full_ns, sg_u32 bytes,
			  sg_u64 now_ns);
sg_u32 sluice_classify(sg_u32 why, const sg_u8 *data, sg_u32 len);

sg_u64 sluice_bucket_next(const struct sg_bucket *bucket, sg_u64 full_ns, sg_u32 bytes,
			  sg_u64 now_ns)
{
	return sg_bucket_next(bucket, full_ns, bytes, now_ns);
}

sg_u32 sluice_classify(sg_u32 why, const sg_u8 *data, sg_u32 len)
{
	return sg_classify(why, data, data + len);
}
