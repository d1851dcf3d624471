/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The native build of the enforcement step around one connection (host.h), and
 * the layouts that src/abi.rs and src/host.rs count on.
 */
#include "sluice/hash.h"
#include "sluice/host.h"

_Static_assert(SG_COUNT_MAX == 63, "names of counters are in src/abi.rs");
SG_ASSERT_AT(struct sg_host, counters, 19560);
SG_ASSERT_AT(struct sg_host, half, 20112);
SG_ASSERT_AT(struct sg_host, flow, 20184);
SG_ASSERT_AT(struct sg_host, flow_exists, 20552);
SG_ASSERT_SIZE(struct sg_host, 20568);
SG_ASSERT_AT(struct sg_host, path, 20560);
SG_ASSERT_SIZE(struct sg_host_result, 92);
SG_ASSERT_AT(struct sg_host_result, out, 56);
SG_ASSERT_AT(struct sg_host_result, frame_len, 80);
SG_ASSERT_AT(struct sg_segment, header_len, 17);
SG_ASSERT_AT(struct sg_segment, mss, 22);
SG_ASSERT_AT(struct sg_segment, e0b, 28);
SG_ASSERT_AT(struct sg_segment, sack2_right, 48);
SG_ASSERT_AT(struct sg_verdict, window, 4);
SG_ASSERT_AT(struct sg_verdict, count, 7);
SG_ASSERT_AT(struct sg_verdict, e0b, 8);

sg_u32 sluice_host_frame(struct sg_host *host, sg_u8 *data, sg_u32 len, sg_u32 capacity,
			 sg_u32 direction, sg_u64 now_ns, sg_u8 *fack, sg_u32 fack_capacity,
			 struct sg_host_result *result);

/* One frame through the host; returns its length after the edits. */
sg_u32 sluice_host_frame(struct sg_host *host, sg_u8 *data, sg_u32 len, sg_u32 capacity,
			 sg_u32 direction, sg_u64 now_ns, sg_u8 *fack, sg_u32 fack_capacity,
			 struct sg_host_result *result)
{
	struct sg_frame frame = { .data = data, .len = len, .capacity = capacity };
	struct sg_frame out = { .data = fack, .len = 0, .capacity = fack_capacity };

	sg_host_frame(host, &frame, direction, now_ns, &out, result);
	return result->frame_len;
}

sg_u32 sluice_flow_hash(const struct sg_flow_key *flow, const struct sg_hash_key *key);

sg_u32 sluice_flow_hash(const struct sg_flow_key *flow, const struct sg_hash_key *key)
{
	return sg_flow_hash(flow, key);
}

sg_u32 sluice_path_of(const struct sg_flow_key *flow, const struct sg_hash_key *key);

sg_u32 sluice_path_of(const struct sg_flow_key *flow, const struct sg_hash_key *key)
{
	return sg_path_of(flow, key);
}
