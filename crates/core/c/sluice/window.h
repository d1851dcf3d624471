/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From a window in bytes to the sixteen bits that a tenant's stack obeys.
 *
 * Decisions, each with its reason:
 *
 * Floor. A Linux sender that may send less than one full segment waits for its
 * persist timer, and one that may send exactly one waits for the receiver's
 * delayed ACK. So the smallest window is two segments of the MSS that the tenant
 * reads (or, by an explicit policy, one and 64 bytes: the runt that follows makes
 * the receiver answer at once). There is no window below one segment here.
 *
 * Rounding. The window is rounded up to the scale's unit: rounding down could
 * write zero or fall below the floor.
 *
 * Shrinking. RFC 9293 section 3.8.6.2.1 discourages a right edge that moves
 * left. Data that has left the tenant stays inside the window (a stack would
 * hold back its retransmission otherwise); credit that it has not used is
 * withdrawn, else an application that was idle could burst far beyond cwnd.
 *
 * Raising. Only on an ACK that advances snd_una. On a duplicate a larger window
 * would look like a window update, and fast retransmit would never start. A
 * genuine window update of the peer that we must clip is shown as one unit
 * more, so that it doesn't look like a duplicate either.
 */
#ifndef SLUICE_WINDOW_H
#define SLUICE_WINDOW_H

#include "flow.h"
#include "police.h"
#include "segment.h"
#include "seq.h"

SG_INLINE sg_u16 sg_window_to_wire(sg_u32 bytes, sg_u32 wscale)
{
	sg_u32 unit = 1U << (wscale & 15);
	sg_u32 wire = (bytes + unit - 1) >> (wscale & 15);

	return wire > 0xffff ? 0xffff : (sg_u16)wire;
}

/* The window that holds a flow to its cap: what the rate carries in an RTT. */
SG_INLINE sg_u32 sg_window_of_rate(const struct sg_flow *flow, const struct sg_params *params,
				   sg_u32 cwnd)
{
	sg_u64 bytes = params->rate_cap / 1000 * flow->srtt_ns / 1000000;

	return bytes < cwnd ? (sg_u32)bytes : cwnd;
}

/*
 * On the wire, the window that covers what left within an edge that was shown. What
 * policing lets pass beyond it opens no window, nor does rounding, or the edge would
 * follow the tenant, ACK by ACK.
 */
SG_INLINE sg_u32 sg_flight_to_wire(const struct sg_flow *flow, sg_u32 ack)
{
	int ahead = sg_is_ahead(flow);
	sg_u32 end = sg_held_end(flow, ahead ? flow->edge : flow->snd_nxt);
	sg_u32 flight = sg_seq_gt(end, ack) ? sg_min32(end - ack, SG_WINDOW_MAX) : 0;

	return ahead ? flight >> (flow->wscale & 15) : sg_window_to_wire(flight, flow->wscale);
}

/*
 * The window that enforcement wants to show with an ACK up to `ack`, on the wire. Data that the
 * tenant repeats have their share of it; a sixteenth is what ordinary loss takes.
 */
SG_INLINE sg_u32 sg_window_target(const struct sg_flow *flow, const struct sg_params *params,
				  sg_u32 ack, sg_u64 now_ns)
{
	sg_u32 cwnd = flow->cc.cwnd, repeated;

	if (sg_unlikely(flow->repeated) && (params->flags & SG_RULE_POLICE)) {
		repeated = sg_repeated(flow, params, cwnd, now_ns);
		if (repeated > cwnd / 16)
			cwnd -= sg_min32(cwnd, repeated - cwnd / 16);
	}
	if (sg_unlikely(params->rate_cap) && flow->srtt_ns)
		cwnd = sg_window_of_rate(flow, params, cwnd);
	cwnd = sg_max32(cwnd, sg_cc_floor(&flow->cc, params));
	return sg_max32(sg_window_to_wire(cwnd, flow->wscale), sg_flight_to_wire(flow, ack));
}

/*
 * So many units beyond the target at most, and of large ones fewer: a peer that sends updates
 * without end gains no window, whatever scale it has chosen.
 */
#define SG_UPDATES_SHOWN 8U
#define SG_UPDATES_BYTES 8192U

SG_INLINE sg_u32 sg_updates_shown(const struct sg_flow *flow)
{
	return sg_clamp32(SG_UPDATES_BYTES >> (flow->wscale & 15), 1, SG_UPDATES_SHOWN);
}

/*
 * The peer enlarges its window without acknowledging anything. Where the peer's
 * window was the limit (it may have been closed) ours decides anew; where ours
 * was, one unit more tells the update from a duplicate.
 */
SG_INLINE sg_u32 sg_window_update(const struct sg_flow *flow, const struct sg_params *params,
				  const struct sg_segment *seg, sg_u32 wire, sg_u64 now_ns)
{
	sg_u32 target = sg_window_target(flow, params, seg->ack, now_ns);

	if (wire == flow->peer_window && target > wire)
		return target;
	return wire < sg_min32(target + sg_updates_shown(flow), 0xffff) ? wire + 1 : wire;
}

/* The window field for this segment; never above the peer's own, never 0 unless the peer's is. */
SG_INLINE sg_u16 sg_window_field(const struct sg_flow *flow, const struct sg_params *params,
				 const struct sg_segment *seg, int advances, sg_u64 now_ns)
{
	sg_u32 wire;

	if (advances || !(flow->flags & SG_FLOW_EDGE_KNOWN)) {
		wire = sg_window_target(flow, params, seg->ack, now_ns);
	} else {
		wire = flow->wire_window;
		/* Data is no duplicate ACK: it may open a window that the peer had closed. */
		if (seg->window > flow->peer_window &&
		    (!seg->payload || wire == flow->peer_window))
			wire = sg_window_update(flow, params, seg, wire, now_ns);
	}
	return seg->window < wire ? seg->window : (sg_u16)wire;
}

/*
 * The window that the tenant is to be shown as things are, in bytes: for reports, and in
 * `observe` mode the only place where it shows. 0 without an algorithm's window.
 */
SG_INLINE sg_u32 sg_window_allowed(const struct sg_flow *flow, const struct sg_params *params,
				   sg_u64 now_ns)
{
	sg_u32 wire = sg_window_target(flow, params, flow->snd_una, now_ns);

	return flow->cc.cwnd ? sg_min32(wire, flow->peer_window) << (flow->wscale & 15) : 0;
}

/*
 * The right edge that the operator's window gives the tenant, where the tenant may have seen a
 * farther one that no rule governed (police.h). Once the window has caught up with that one, the
 * two edges are the same again.
 */
SG_RARE int sg_hold(struct sg_flow *flow SG_NONNULL, sg_u32 ack, sg_u32 bytes,
		    sg_u32 wscale, const struct sg_params *params SG_NONNULL)
{
	sg_u32 window = sg_max32(flow->cc.cwnd, sg_cc_floor(&flow->cc, params));
	sg_u32 unit = 1U << (wscale & 15);

	flow->held = sg_seq_max(flow->held, ack + sg_min32(bytes, window + unit - 1));
	if (sg_seq_ge(flow->held, flow->edge))
		flow->marks &= (sg_u16)~SG_FLOW_LENIENT;
	return 0;
}

/* Bytes that have left the tenant beyond `ack`, as many as a window may have. */
SG_INLINE sg_u32 sg_left_bytes(const struct sg_flow *flow, sg_u32 ack)
{
	return sg_seq_gt(flow->snd_nxt, ack) ? sg_min32(flow->snd_nxt - ack, SG_WINDOW_MAX) : 0;
}

/* Remember what the tenant has been shown: the operator's window, if it is `governed`. */
SG_INLINE void sg_window_shown(struct sg_flow *flow, const struct sg_segment *seg, sg_u16 wire,
			       sg_u32 wscale, const struct sg_params *params, int governed)
{
	sg_u32 bytes = (sg_u32)wire << (wscale & 15), edge = seg->ack + bytes;

	if (!governed) {
		sg_be_lenient(flow, flow->flags & SG_FLOW_EDGE_KNOWN ? flow->edge : seg->ack);
		/* Data that leave meanwhile are within windows that the tenant was shown. */
		flow->held = sg_seq_max(flow->held, seg->ack + sg_left_bytes(flow, seg->ack));
	}
	if (!(flow->flags & SG_FLOW_EDGE_KNOWN) || sg_seq_gt(edge, flow->edge))
		flow->edge = edge;
	flow->flags |= SG_FLOW_EDGE_KNOWN;
	flow->peer_window = seg->window;
	flow->wire_window = wire;
	if (governed && sg_unlikely(flow->marks & SG_FLOW_LENIENT))
		sg_hold(flow, seg->ack, bytes, wscale, params);
}

#endif /* SLUICE_WINDOW_H */
