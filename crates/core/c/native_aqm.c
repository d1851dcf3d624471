/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The native build of active queue management (src/aqm.rs). */
#include "sluice/aqm.h"

SG_ASSERT_AT(struct sg_aqm_params, red_min_bytes, 12);
SG_ASSERT_AT(struct sg_aqm_params, packet_ns, 32);
SG_ASSERT_AT(struct sg_red, drained_ns, 8);
SG_ASSERT_AT(struct sg_red, since_mark, 16);

sg_u32 sluice_aqm_arrival(struct sg_red *red, const struct sg_aqm_params *params, sg_u64 now_ns,
			  sg_u32 backlog, sg_u32 bytes, sg_u32 ect, sg_u32 random);

sg_u32 sluice_aqm_arrival(struct sg_red *red, const struct sg_aqm_params *params, sg_u64 now_ns,
			  sg_u32 backlog, sg_u32 bytes, sg_u32 ect, sg_u32 random)
{
	return (sg_u32)sg_aqm_arrival(red, params, now_ns, backlog, bytes, (int)ect, random);
}
