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
 * longer), so a window's worth within an RTT at most. A tenant that repeats the data of
 * its window without end would take any share of the network, whatever its edge.
 *
 * A tenant may have been shown windows that no rule governed: before a connection is met
 * from the middle, while packets pass unseen, before the first ACK of its peer. Data within
 * those edges are no offence, but nothing holds them either: what lies beyond the edge
 * that enforcement has shown (`held`) is charged to a bucket, like all that has no window.
 */
#ifndef SLUICE_POLICE_H
#define SLUICE_POLICE_H

#include "cc.h"
#include "flow.h"
#include "params.h"
#include "segment.h"
#include "seq.h"

/* Bytes from `from` to an edge that was shown; 0 where it is behind. */
SG_INLINE sg_u32 sg_room(sg_u32 edge, sg_u32 from)
{
	return sg_seq_gt(edge, from) ? edge - from : 0;
}

/*
 * Dropped data make a hole in the tenant's sequence, and its stack goes on beyond
 * it: were the edge all that counts, nothing would pass any more, no duplicate ACK
 * would tell the stack of the drop, and each attempt would cost it an RTO. So holes
 * do not count as in flight: what the tenant has in the network is held to its window,
 * whatever it sent in vain.
 *
 * Repeated data fill a hole as long as there is one: that is no loss of the network,
 * nor are the duplicate ACKs until it is acknowledged. Who repeats more than was
 * dropped has lost packets.
 */
#define SG_HOLE_BYTES 16U

/* So many windows ahead: a tenant may have no more holes, nor hide more losses behind them. */
#define SG_HOLE_WINDOWS 8U

/* No more than this is counted, in bytes. */
#define SG_HOLES_MAX (0xffffU * SG_HOLE_BYTES)

SG_INLINE sg_u32 sg_holes(const struct sg_flow *flow)
{
	return flow->marks & SG_FLOW_SCALE_BOUND ? 0 : flow->holes * SG_HOLE_BYTES;
}

/*
 * How far beyond the edge data may go: the segment of a window probe, or 3/32 of the
 * window. A stack that ignores its window learns of it by losing a segment, gives up
 * a third of what it has, and comes back; with this room it has the window on average,
 * and who never gives up anything has no tenth more.
 */
SG_INLINE sg_u32 sg_police_slack(const struct sg_flow *flow, sg_u32 edge)
{
	sg_u32 window = sg_room(edge, flow->snd_una);

	return sg_max32(flow->mss, sg_min32(window, flow->cc.cwnd) / 32 * 3);
}

/* Whether snd_nxt is where no window shown to the tenant reaches. */
SG_INLINE int sg_is_ahead(const struct sg_flow *flow)
{
	return sg_seq_gt(flow->snd_nxt, flow->edge) && (flow->flags & SG_FLOW_EDGE_KNOWN) &&
	       !(flow->marks & SG_FLOW_SCALE_BOUND);
}

/* From here on the tenant may go beyond `held`, up to `edge`, where that is farther. */
SG_INLINE void sg_be_lenient(struct sg_flow *flow, sg_u32 held)
{
	if (flow->marks & SG_FLOW_LENIENT)
		return;
	flow->marks |= SG_FLOW_LENIENT;
	flow->held = held;
}

/* Of data up to `end`, those that the operator's windows cover end here. */
SG_INLINE sg_u32 sg_held_end(const struct sg_flow *flow, sg_u32 end)
{
	return sg_unlikely(flow->marks & SG_FLOW_LENIENT) && sg_seq_gt(end, flow->held) ?
		       flow->held :
		       end;
}

/*
 * Bytes of the tenant in the network, or with a receiver that misses some before them:
 * no more than policing lets pass, whatever is left of holes.
 */
SG_INLINE sg_u32 sg_flight(const struct sg_flow *flow)
{
	sg_u32 span = flow->snd_nxt - flow->snd_una;
	sg_u32 out = span - sg_min32(sg_holes(flow), span);
	sg_u32 window = sg_room(flow->edge, flow->snd_una);

	if (sg_likely(!sg_is_ahead(flow)))
		return out;
	return sg_min32(out, window + sg_police_slack(flow, flow->edge));
}

/*
 * Holes are where data are out: what an ACK has passed is none, and a peer may acknowledge what
 * never came.
 */
SG_RARE int sg_holes_count(struct sg_flow *flow SG_NONNULL)
{
	sg_u64 bytes = 0;
	sg_u32 i;

	for (i = 0; i < SG_HOLE_RANGES; i++) {
		struct sg_hole *hole = &flow->hole[i];

		if (sg_seq_lt(hole->start, flow->snd_una))
			hole->start = flow->snd_una;
		if (sg_seq_gt(hole->end, flow->snd_nxt) || sg_seq_ge(hole->start, hole->end))
			hole->start = hole->end;
		bytes += hole->end - hole->start;
	}
	flow->holes = (sg_u16)(sg_min64(bytes, SG_HOLES_MAX) / SG_HOLE_BYTES);
	return 0;
}

/* The flow is elsewhere in its sequence space. */
SG_INLINE void sg_holes_forget(struct sg_flow *flow)
{
	if (sg_likely(!sg_holes(flow)))
		return;
	__builtin_memset(flow->hole, 0, sizeof(flow->hole));
	flow->holes = 0;
}

/*
 * A segment beyond all that was sent before is dropped: a new hole, or more of the one before.
 * Where there are as many as can be remembered it is none, and counts as in flight once the
 * tenant goes on behind it. What lies between is part of the hole, but not within the window: the
 * tenant may still send that, and would be taken to repeat it if snd_nxt were behind it.
 */
SG_RARE int sg_hole_made(struct sg_flow *flow SG_NONNULL,
			 const struct sg_segment *seg SG_NONNULL)
{
	sg_u32 window = sg_room(flow->edge, flow->snd_una), i;
	sg_u32 start = flow->snd_nxt, end = seg->seq + seg->payload;

	if (sg_seq_gt(seg->seq, start) && sg_seq_lt(start, flow->snd_una + window))
		return 0;
	if (sg_seq_le(end, start) || sg_holes(flow) + (end - start) > SG_HOLES_MAX ||
	    end - flow->snd_una > sg_min32(window, SG_WINDOW_MAX) * SG_HOLE_WINDOWS)
		return 0;
	end -= (end - start) % SG_HOLE_BYTES;
	for (i = 0; i < SG_HOLE_RANGES; i++) {
		struct sg_hole *hole = &flow->hole[i];

		if (hole->start == hole->end)
			hole->start = start;
		else if (hole->end != start)
			continue;
		hole->end = end;
		flow->snd_nxt = end;
		break;
	}
	sg_holes_count(flow);
	return 0;
}

/*
 * While holes are refilled, each duplicate ACK tells of a segment that has arrived
 * beyond them, and has made room for another (RFC 5681 3.2, step 4).
 */
SG_INLINE sg_u32 sg_arrived(const struct sg_flow *flow)
{
	return flow->marks & SG_FLOW_REFILLS ?
		       sg_min32((sg_u32)flow->dupacks * flow->mss, flow->cc.cwnd) :
		       0;
}

/* An ACK of some holes, not of all: those segments are acknowledged (RFC 6582 3.2, step 3). */
SG_INLINE sg_u16 sg_dupacks_left(const struct sg_flow *flow, sg_u32 acked)
{
	sg_u32 segments = acked / sg_max32(flow->mss, 1);

	if (!(flow->marks & SG_FLOW_REFILLS))
		return 0;
	return flow->dupacks > segments ? (sg_u16)(flow->dupacks - segments) : 0;
}

/* Remembers a hole if there is room for one. */
SG_INLINE void sg_hole_add(struct sg_flow *flow, sg_u32 start, sg_u32 end)
{
	sg_u32 i;

	for (i = 0; i < SG_HOLE_RANGES; i++) {
		struct sg_hole *hole = &flow->hole[i];

		if (hole->start != hole->end)
			continue;
		hole->start = start;
		hole->end = end;
		return;
	}
}

/*
 * Data below snd_nxt are sent, and fill what they meet of holes; returns 1 if they meet any.
 * Stacks fill a hole from its left; but what they send there may be dropped again, and they go on
 * behind it. What lies to the right is then a hole of its own; it is remembered no longer where
 * there are as many as can be.
 */
SG_RARE int sg_hole_fill(struct sg_flow *flow SG_NONNULL,
			 const struct sg_segment *seg SG_NONNULL)
{
	sg_u32 end = seg->seq + seg->payload, right = end, met = 0, i;

	for (i = 0; i < SG_HOLE_RANGES; i++) {
		struct sg_hole *hole = &flow->hole[i];

		/* A segment may span the place of one that is filled. */
		if (hole->start == hole->end || sg_seq_ge(seg->seq, hole->end) ||
		    sg_seq_le(end, hole->start))
			continue;
		met = 1;
		if (sg_seq_le(seg->seq, hole->start)) {
			hole->start = sg_seq_lt(end, hole->end) ? end : hole->end;
			continue;
		}
		if (sg_seq_lt(end, hole->end))
			right = hole->end;
		hole->end = seg->seq;
	}
	if (!met)
		return 0;
	if (right != end)
		sg_hole_add(flow, end, right);
	sg_holes_count(flow);
	flow->marks |= SG_FLOW_REFILLS;
	flow->recover = flow->snd_nxt;
	return 1;
}

/* The same. What was not dropped and is repeated has been lost, as far as is known. */
SG_INLINE int sg_hole_filled(struct sg_flow *flow, const struct sg_segment *seg)
{
	return sg_unlikely(sg_holes(flow)) && sg_hole_fill(flow, seg);
}

/* snd_una has advanced, maybe past holes. */
SG_INLINE void sg_holes_passed(struct sg_flow *flow)
{
	if (sg_unlikely(sg_holes(flow)))
		sg_holes_count(flow);
}

/*
 * Before its first ACK a server has seen the window of the SYN, which is never
 * scaled. Without this limit one segment far ahead would make a flight of it that
 * the window must cover. Where the scale is a lower bound, so is the edge.
 */
SG_INLINE int sg_police_exceeds(const struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 edge = flow->flags & SG_FLOW_EDGE_KNOWN ? flow->edge : flow->snd_una + 0xffff;
	sg_u32 end = seg->seq + seg->payload;

	if (sg_likely(sg_seq_le(end, edge)) || (flow->marks & SG_FLOW_SCALE_BOUND))
		return 0;
	edge += sg_police_slack(flow, edge);
	/* Data that fill a hole are as much more in flight as new data. */
	if (sg_seq_lt(seg->seq, flow->snd_nxt) && sg_seq_gt(end, edge))
		end = flow->snd_nxt + seg->payload;
	return sg_seq_gt(end, edge + sg_holes(flow) + sg_arrived(flow));
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

/* The rest of `bytes` after `past` of the time in which they fade. */
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
	sg_u32 flight = sg_seq_gt(flow->snd_nxt, flow->snd_una) ? sg_flight(flow) : 0;
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
