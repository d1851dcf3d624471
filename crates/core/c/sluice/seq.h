/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Sequence space arithmetic modulo 2^32 (RFC 9293 section 3.4): a is before b
 * when the distance from a to b is less than 2^31.
 */
#ifndef SLUICE_SEQ_H
#define SLUICE_SEQ_H

#include "types.h"

SG_INLINE int sg_seq_lt(sg_u32 a, sg_u32 b) { return (sg_s32)(a - b) < 0; }
SG_INLINE int sg_seq_le(sg_u32 a, sg_u32 b) { return (sg_s32)(a - b) <= 0; }
SG_INLINE int sg_seq_gt(sg_u32 a, sg_u32 b) { return (sg_s32)(a - b) > 0; }
SG_INLINE int sg_seq_ge(sg_u32 a, sg_u32 b) { return (sg_s32)(a - b) >= 0; }

SG_INLINE sg_u32 sg_seq_max(sg_u32 a, sg_u32 b) { return sg_seq_gt(a, b) ? a : b; }

#endif /* SLUICE_SEQ_H */
