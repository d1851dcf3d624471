/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Policing: the one deliberate drop of a flow's packets. Two rules, neither of which
 * a sender that follows the standards can trip:
 *
 * The edge. It sends nothing beyond the right edge of the windows it was shown (RFC
 * 9293 3.8.6), but for a window probe of one segment. Every edge ever shown counts,
 * because ACKs may overtake each other. MPTCP subflows share one send window and
 * break the rule lawfully; they are watched, never policed.
 *
 * Repetition. It sends a byte again only when an RTT or more has passed since it sent
 * it last (a duplicate ACK, a SACK or a probe's answer takes that long; a timeout
 * longer), so a window's worth within an RTT at most. Who repeats what is inside the
 * window without end would have as much of the network as it likes, edge or not.
 */
#ifndef SLUICE_POLICE_H
#define SLUICE_POLICE_H

#include "cc.h"
#include "flow.h"
#include "params.h"
#include "segment.h"
#include "seq.h"

/*
 * Before its first ACK a server has seen the window of the SYN, which is never
 * scaled. Without this limit one segment far ahead would make a flight of it that
 * the window must cover. Where the scale is a lower bound, so is the edge.
 */
SG_INLINE int sg_police_exceeds(const struct sg_flow *flow, sg_u32 end)
{
	sg_u32 edge = flow->flags & SG_FLOW_EDGE_KNOWN ? flow->edge : flow->snd_una + 0xffff;

	return !(flow->marks & SG_FLOW_SCALE_BOUND) && sg_seq_gt(end, edge + flow->mss);
}

/*
 * Segments that may be repeated beside a window: probes, tail losses, keepalives. As
 * timers of stacks have it, in an RTO rather than in each RTT.
 */
#define SG_REPEAT_SEGMENTS 16U

/* An RTT in 1024 ns, as far as it is known. */
SG_INLINE sg_u32 sg_repeat_rtt(const struct sg_flow *flow, const struct sg_params *params)
{
	return sg_max32(flow->srtt_ns ? flow->srtt_ns >> 10 : params->rto_min_us, 1);
}

/* What is left of `bytes` after `past` of the time in which they fade. */
SG_INLINE sg_u32 sg_faded(sg_u32 bytes, sg_u64 past, sg_u64 within)
{
	return past < within ? (sg_u32)(bytes * (within - past) / within) : 0;
}

/*
 * Of the bytes repeated lately, those that still count at `now_ns`: a window fades over an
 * RTT, what exceeds it over an RTO.
 */
SG_INLINE sg_u32 sg_repeated(const struct sg_flow *flow, const struct sg_params *params,
			     sg_u32 window, sg_u64 now_ns)
{
	sg_u32 past = (sg_u32)(now_ns >> 10) - flow->repeat_time, within;
	sg_u32 rtt = sg_repeat_rtt(flow, params);

	if (sg_likely(!flow->repeated))
		return 0;
	within = sg_min32(flow->repeated, window);
	return sg_faded(within, past, rtt) +
	       sg_faded(flow->repeated - within, past, sg_max32(rtt, params->rto_min_us));
}

/*
 * The most in flight while the tenant repeats. A policy that changes, or begins to enforce,
 * may find far more there than its window, with no cut that remembers it; repeating all
 * of it takes some RTTs, in which the flight shrinks.
 */
#define SG_REPEAT_FLIGHT_SHIFT 7U
#define SG_REPEAT_FLIGHT_RTTS 8ULL

SG_INLINE sg_u32 sg_repeat_flight(const struct sg_flow *flow, const struct sg_params *params,
				  sg_u64 now_ns)
{
	sg_u32 flight = sg_seq_gt(flow->snd_nxt, flow->snd_una) ? flow->snd_nxt - flow->snd_una : 0;
	/* Samples of the RTT are rare while much is repeated, and may be old: an RTO at least. */
	sg_u64 within = sg_max64(SG_REPEAT_FLIGHT_RTTS * sg_repeat_rtt(flow, params),
				 params->rto_min_us);
	sg_u32 kept = sg_faded((sg_u32)flow->repeat_flight << SG_REPEAT_FLIGHT_SHIFT,
			       (sg_u32)(now_ns >> 10) - flow->repeat_time, within);

	return sg_max32(kept, sg_min32(flight, SG_WINDOW_MAX));
}

/*
 * The tenant repeats `bytes`. Returns 0 when that is more than any stack does: what it
 * sends while it recovers is clocked by what arrives, so that all of it together, even
 * before an RTT of the past has shrunk, is a window at most, the one before the cut.
 */
SG_INLINE int sg_repeats(struct sg_flow *flow, const struct sg_params *params, sg_u32 bytes,
			 sg_u64 now_ns)
{
	sg_u32 flight = sg_repeat_flight(flow, params, now_ns);
	sg_u32 window = sg_max32(sg_max32(flow->cc.cwnd, sg_cc_before_cut(&flow->cc)), flight);
	sg_u64 limit = (sg_u64)window + window / 4 + SG_REPEAT_SEGMENTS * flow->mss;
	sg_u64 repeated = (sg_u64)sg_repeated(flow, params, window, now_ns) + bytes;

	if (repeated > limit)
		return 0;
	flow->repeated = (sg_u32)repeated;
	flow->repeat_flight = (sg_u16)sg_min32(flight >> SG_REPEAT_FLIGHT_SHIFT, 0xffff);
	flow->repeat_time = (sg_u32)(now_ns >> 10);
	return 1;
}

#endif /* SLUICE_POLICE_H */
