/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The size of segments that bounds of enforcement are multiples of (flow->mss): the smallest and
 * the initial window, steps of growth, the slack of policing, patience with feedback.
 *
 * A receiver may announce any MSS (RFC 9293 3.7.1), and would have its sender a large window by
 * that. So a connection begins with the smallest of
 *
 *	the MSS option that the tenant reads
 *	the one that it writes itself, which is its interface's, but 1460 at least
 *	what its interface takes, where that is known; else what Ethernet's jumbo frames do
 *
 * and goes on with the segments that it sends. The largest of each round counts, if nothing was
 * repeated since: a segment that the path does not carry says nothing. Senders with segments
 * larger than this begin to be governed by them after a round; senders whose segments became
 * smaller (path MTU discovery) as well, but for 1460, which all paths are taken to carry.
 */
#ifndef SLUICE_MSS_H
#define SLUICE_MSS_H

#include "cc.h"
#include "flow.h"
#include "segment.h"

#define SG_MSS_DEFAULT 536U /* RFC 9293 section 3.7.1 */
#define SG_MSS_COMMON 1460U /* of Ethernet: too small a floor would stall the sender */
#define SG_MSS_MIN 48U      /* what Linux accepts from a SYN at least */
#define SG_MSS_JUMBO 8960U  /* of an MTU of 9000 */

SG_INLINE sg_u16 sg_mss_of(const struct sg_segment *seg)
{
	return seg->options & SG_OPT_MSS ? seg->mss : SG_MSS_DEFAULT;
}

/* The MSS that a new flow begins with, of the one that its tenant reads; `own`: 0 = not known. */
SG_INLINE sg_u16 sg_mss_at_first(sg_u32 announced, sg_u32 own, const struct sg_segment *handshake)
{
	sg_u32 path = handshake->path_mss ? handshake->path_mss : SG_MSS_JUMBO;

	if (own)
		path = sg_min32(path, sg_max32(own, SG_MSS_COMMON));
	return (sg_u16)sg_max32(sg_min32(announced, path), SG_MSS_MIN);
}

/* Bytes of data of each segment of a packet, rounded up to units where it is a super-packet. */
SG_INLINE sg_u32 sg_segment_bytes(const struct sg_segment *seg)
{
	return seg->segment_units ? seg->segment_units * SG_SEGMENT_UNIT : seg->payload;
}

SG_INLINE sg_u8 sg_segment_units(sg_u32 bytes)
{
	return (sg_u8)sg_min32((bytes + SG_SEGMENT_UNIT - 1) / SG_SEGMENT_UNIT, 0xff);
}

/* With less than this in flight, segments are what an application writes at a time. */
SG_INLINE sg_u32 sg_mss_enough(const struct sg_flow *flow)
{
	return 2 * sg_min32(flow->mss, SG_MSS_COMMON);
}

/* New data leave: their size counts among those of this round. */
SG_INLINE void sg_mss_sample(struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u8 units = seg->segment_units ? seg->segment_units : sg_segment_units(seg->payload);

	if (units > flow->largest)
		flow->largest = units;
}

/* A round has ended. */
SG_INLINE void sg_mss_judge(struct sg_flow *flow, const struct sg_params *params)
{
	sg_u32 mss = flow->mss;
	/* More than jumbo frames only the interface's MTU proves, at the beginning. */
	sg_u32 seen = sg_min32(flow->largest * SG_SEGMENT_UNIT, sg_max32(mss, SG_MSS_JUMBO));

	flow->largest = 0;
	if (!seen)
		return;
	if (seen >= mss + SG_SEGMENT_UNIT)
		mss = seen;
	else if (mss > SG_MSS_COMMON && seen < mss)
		mss = seen >= SG_MSS_COMMON + SG_SEGMENT_UNIT ? seen : SG_MSS_COMMON;
	if (mss == flow->mss)
		return;
	flow->mss = (sg_u16)mss;
	flow->cc.mss = mss;
	sg_cc_set(&flow->cc, params, flow->cc.cwnd);
}

#endif /* SLUICE_MSS_H */
