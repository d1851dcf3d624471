/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The Internet checksum, incrementally (RFC 1071, RFC 1624 equation 3). Sums are
 * of 16-bit words as they lie in memory, so byte order never matters.
 */
#ifndef SLUICE_CHECKSUM_H
#define SLUICE_CHECKSUM_H

#include "types.h"

SG_INLINE sg_u32 sg_csum_fold(sg_u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* What a 16-bit word's change adds to a sum. */
SG_INLINE sg_u32 sg_csum_change(sg_u16 from, sg_u16 to)
{
	return (sg_u32)(sg_u16)~from + to;
}

/* A checksum field after a change of the sum it covers. */
SG_INLINE sg_u16 sg_csum_apply(sg_u16 field, sg_u32 change)
{
	return (sg_u16)~sg_csum_fold((sg_u32)(sg_u16)~field + sg_csum_fold(change));
}

#endif /* SLUICE_CHECKSUM_H */
