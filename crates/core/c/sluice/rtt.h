/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * RTT samples in nanoseconds, taken by a bystander.
 *
 * A ring of a few (sequence, time) pairs covers a window. A segment is entered
 * only when it will be acknowledged at once: with two or more segments
 * outstanding the receiver must not delay its ACK (RFC 5681 section 4.2). After
 * a retransmission the ring is empty and stays so until everything outstanding
 * then is acknowledged (Karn's rule, RFC 6298 section 3).
 */
#ifndef SLUICE_RTT_H
#define SLUICE_RTT_H

#include "flow.h"
#include "mss.h"
#include "seq.h"

/* An unused slot: its end is never beyond snd_una. */
SG_INLINE void sg_rtt_forget(struct sg_flow *flow)
{
	sg_u32 i;

	for (i = 0; i < SG_RTT_RING; i++)
		flow->ring[i].end_seq = flow->snd_una;
	flow->rtt_first = flow->snd_una;
	flow->rtt_next = flow->snd_una;
}

SG_INLINE void sg_rtt_retransmitted(struct sg_flow *flow)
{
	sg_rtt_forget(flow);
	flow->largest = 0;
	flow->karn_end = flow->snd_nxt;
}

/* Enters (end, now) into a free slot, if there is one. */
SG_INLINE void sg_rtt_enter(struct sg_flow *flow, sg_u32 end, sg_u64 now_ns)
{
	sg_u32 i;

	if (sg_seq_le(flow->rtt_first, flow->snd_una))
		flow->rtt_first = end;
	for (i = 0; i < SG_RTT_RING; i++) {
		if (sg_seq_gt(flow->ring[i].end_seq, flow->snd_una))
			continue;
		flow->ring[i].end_seq = end;
		flow->ring[i].time = (sg_u32)now_ns;
		break;
	}
	flow->rtt_next = end + flow->cc.cwnd / SG_RTT_RING;
}

/*
 * New data up to `end` leaves now. Entries are spread over the window. What is repeated, and what
 * follows it, tells neither an RTT nor what the path carries.
 */
SG_INLINE void sg_rtt_sent(struct sg_flow *flow, const struct sg_segment *seg, sg_u32 end,
			   sg_u64 now_ns)
{
	if (sg_seq_lt(end, flow->rtt_next) || end - flow->snd_una < sg_mss_enough(flow) ||
	    sg_seq_lt(flow->snd_una, flow->karn_end))
		return;
	sg_mss_sample(flow, seg);
	if (end - flow->snd_una < 2U * flow->mss)
		return;
	sg_rtt_enter(flow, end, now_ns);
}

/* RFC 6298 section 2 with alpha = 1/8, beta = 1/4. */
SG_INLINE void sg_rtt_smooth(struct sg_flow *flow, sg_u32 rtt_ns)
{
	sg_u32 gap;

	if (!flow->min_rtt_ns || rtt_ns < flow->min_rtt_ns)
		flow->min_rtt_ns = rtt_ns;
	if (!flow->srtt_ns) {
		flow->srtt_ns = rtt_ns;
		flow->rttvar_ns = rtt_ns / 2;
		return;
	}
	gap = rtt_ns > flow->srtt_ns ? rtt_ns - flow->srtt_ns : flow->srtt_ns - rtt_ns;
	flow->rttvar_ns = flow->rttvar_ns - flow->rttvar_ns / 4 + gap / 4;
	flow->srtt_ns = flow->srtt_ns - flow->srtt_ns / 8 + rtt_ns / 8;
}

/*
 * An ACK up to `ack` (beyond snd_una, which is still the old one). Returns the
 * sample of the newest entry covered, or 0. Entries covered become free.
 */
SG_INLINE sg_u32 sg_rtt_acked(struct sg_flow *flow, sg_u32 ack, sg_u64 now_ns)
{
	sg_u32 i, rtt_ns = 0, newest = flow->snd_una, first = ack;

	flow->rtt_next = sg_seq_max(flow->rtt_next, ack);
	if (sg_seq_lt(ack, flow->rtt_first))
		return 0;
	for (i = 0; i < SG_RTT_RING; i++) {
		sg_u32 end = flow->ring[i].end_seq;

		if (sg_seq_gt(end, ack)) {
			if (first == ack || sg_seq_lt(end, first))
				first = end;
			continue;
		}
		if (sg_seq_gt(end, newest)) {
			newest = end;
			rtt_ns = sg_max32((sg_u32)now_ns - flow->ring[i].time, 1);
		}
		flow->ring[i].end_seq = ack;
	}
	flow->rtt_first = first;
	if (rtt_ns)
		sg_rtt_smooth(flow, rtt_ns);
	return rtt_ns;
}

/* Silence that counts as a retransmission timeout. */
SG_INLINE sg_u64 sg_rto_ns(const struct sg_flow *flow, const struct sg_params *params)
{
	sg_u64 rto = (sg_u64)flow->srtt_ns + 4ULL * flow->rttvar_ns;

	return sg_max64(rto, (sg_u64)params->rto_min_us * 1000);
}

#endif /* SLUICE_RTT_H */
