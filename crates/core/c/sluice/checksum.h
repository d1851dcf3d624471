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

/* The amount that a 16-bit word's change adds to a sum. */
SG_INLINE sg_u32 sg_csum_change(sg_u16 from, sg_u16 to)
{
	return (sg_u32)(sg_u16)~from + to;
}

/*
 * The amount that a change of the byte at `at` (counted from an even place) adds to a sum.
 * Memory order decides which half of its word it is.
 */
SG_INLINE sg_u32 sg_csum_change_byte(sg_u32 at, sg_u8 from, sg_u8 to)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	sg_u32 shift = at & 1 ? 8 : 0;
#else
	sg_u32 shift = at & 1 ? 0 : 8;
#endif
	return sg_csum_change((sg_u16)((sg_u32)from << shift), (sg_u16)((sg_u32)to << shift));
}

/* A checksum field after a change of the sum it covers. */
SG_INLINE sg_u16 sg_csum_apply(sg_u16 field, sg_u32 change)
{
	return (sg_u16)~sg_csum_fold((sg_u32)(sg_u16)~field + sg_csum_fold(change));
}

#endif /* SLUICE_CHECKSUM_H */
