/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Packets that passed unseen, and connections met without their handshake.
 */
#ifndef SLUICE_ADOPT_H
#define SLUICE_ADOPT_H

#include "mode.h"
#include "police.h"
#include "rtt.h"
#include "seq.h"

/*
 * Packets have passed that no step has seen, ACKs with any window among them. The
 * next data will tell where the tenant is; what is timed may be a repetition.
 */
SG_INLINE void sg_unseen(struct sg_flow *flow)
{
	flow->marks |= SG_FLOW_UNSEEN | SG_FLOW_RCV_UNSEEN;
	sg_rtt_retransmitted(flow);
}

/*
 * Policing begins anew: the tenant may have been shown the largest window. What it sends
 * beyond the one that enforcement has shown is charged.
 */
SG_RARE int sg_data_after_gap(struct sg_flow *flow SG_NONNULL,
			      const struct sg_segment *seg SG_NONNULL)
{
	sg_u32 end = seg->seq + seg->payload;

	if (end - flow->snd_una > SG_UNSEEN_MAX)
		return 0;
	flow->marks &= (sg_u16)~SG_FLOW_UNSEEN;
	sg_be_lenient(flow, flow->flags & SG_FLOW_EDGE_KNOWN ? flow->edge :
							       flow->snd_una + flow->cc.cwnd);
	if (!(flow->flags & SG_FLOW_EDGE_KNOWN)) {
		flow->flags |= SG_FLOW_EDGE_KNOWN;
		flow->edge = end;
		flow->peer_window = 0xffff;
		flow->wire_window = 0xffff;
	}
	flow->edge = sg_seq_max(flow->edge, end + (0xffffU << (flow->wscale & 15)));
	return 0;
}

/*
 * Flows met without their handshake. The shift of the peer's windows was in it, so the
 * window that we write is a guess until the shift is known: exactly (the tenant's
 * socket is of this kernel, or the flow was known before it fell silent), or a
 * lower bound from what is in flight, which no window of the peer may have been too
 * small for. By too small a shift we show too large a window: weaker, never wrong.
 */

/* Data of the tenant within windows that have all been seen. */
SG_NOINLINE int sg_learn_sent(struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 flight = seg->seq + seg->payload - flow->snd_una, shift = flow->wscale & 15;
	sg_u32 bytes = sg_segment_bytes(seg);

	if (!(flow->marks & SG_FLOW_SCALE_BOUND))
		return 0;
	if (bytes >= flow->mss + (seg->segment_units ? SG_SEGMENT_UNIT : 1U)) {
		flow->mss = (sg_u16)sg_min32(bytes, SG_MSS_JUMBO);
		flow->cc.mss = flow->mss;
	}
	if (flow->mode == SG_MODE_WATCH || flight > SG_UNSEEN_MAX)
		return 0;
	/* A window probe may be a segment beyond. */
	if (shift < 14 && flight > ((sg_u32)flow->top_window << shift) + flow->mss)
		flow->wscale = (sg_u8)(shift + 1);
	return 0;
}

SG_INLINE void sg_learn_window(struct sg_flow *flow, const struct sg_segment *seg)
{
	if ((flow->marks & SG_FLOW_SCALE_BOUND) && seg->window > flow->top_window)
		flow->top_window = seg->window;
}

/*
 * A pure ACK, whose options are read, acknowledges data that were seen to leave. From here on
 * all that is in flight is known, and the flow may be governed. What is out need not have
 * arrived, so that the flow has a new connection's window, and slow start brings it, by what is
 * acknowledged, to the one that it had. Its ACKs are back where they had bypassed the hook.
 */
SG_RARE int sg_adopt(struct sg_flow *flow SG_NONNULL,
		     const struct sg_segment *seg SG_NONNULL,
		     const struct sg_params *params SG_NONNULL,
		     struct sg_verdict *out SG_NONNULL)
{
	int heard_again = flow->reason == SG_WHY_ONE_DIRECTION &&
			  (flow->flags & SG_FLOW_EDGE_KNOWN);
	sg_u32 flight = sg_flight(flow);

	if ((!(flow->marks & SG_FLOW_ADOPTED) && !heard_again) || seg->payload)
		return 0;
	if (seg->options & (SG_OPT_SIGNED | SG_OPT_MPTCP | SG_OPT_MALFORMED)) {
		flow->marks &= (sg_u16)~SG_FLOW_ADOPTED;
		flow->reason = seg->options & SG_OPT_SIGNED ? SG_WHY_SIGNED :
			       seg->options & SG_OPT_MPTCP ? SG_WHY_MPTCP :
							     SG_WHY_MALFORMED_OPTION;
		return 0;
	}
	flow->mode = SG_MODE_ONE_SIDED;
	sg_cc_init(&flow->cc, params, params->one_sided, flow->mss);
	flow->cc.ssthresh = sg_cc_bounded(&flow->cc, params, sg_max32(flow->cc.cwnd, flight));
	flow->cc.round_end = flow->snd_nxt;
	flow->cc.cut_end = flow->snd_una;
	sg_unseen(flow);
	out->count = SG_COUNT_FLOW_ADOPTED;
	return 0;
}

/*
 * Data is out, and for an RTO nothing has come back for it, but the tenant goes on beyond
 * its window: its ACKs take a path that we do not see. They do not for who blasts at a
 * peer that answers: data beyond the edge is dropped, the rest acknowledged.
 */
SG_INLINE int sg_acks_bypass(const struct sg_flow *flow, const struct sg_params *params,
			     sg_u64 now_ns)
{
	return flow->snd_una != flow->snd_nxt && !flow->dupacks &&
	       sg_since(now_ns, flow->progress_ns) >= sg_rto_ns(flow, params);
}

SG_INLINE void sg_watch_one_direction(struct sg_flow *flow, struct sg_verdict *out)
{
	flow->mode = SG_MODE_WATCH;
	flow->reason = SG_WHY_ONE_DIRECTION;
	out->count = SG_COUNT_FLOW_ONE_DIRECTION;
}

/*
 * Where a connection is only watched, data beyond a gap, or far behind what a forged ACK
 * acknowledged, begin it anew: adopted, it will have the window that was seen to leave,
 * not one that a single segment far ahead spans.
 */
SG_INLINE void sg_watch_from(struct sg_flow *flow, sg_u32 seq)
{
	int behind = flow->snd_una - seq - 1 < 1U << 31 &&
		     flow->snd_una - seq > 2 * SG_WINDOW_MAX;

	if (flow->mode != SG_MODE_WATCH || (sg_seq_le(seq, flow->snd_nxt) && !behind) ||
	    (!(flow->marks & SG_FLOW_ADOPTED) && flow->reason != SG_WHY_ONE_DIRECTION))
		return;
	sg_holes_forget(flow);
	flow->snd_una = seq;
	flow->snd_nxt = seq;
	/* Edges of where it was hold nothing here: behind them, any data would be lawful. */
	flow->flags &= (sg_u8)~SG_FLOW_EDGE_KNOWN;
	flow->marks &= (sg_u16)~SG_FLOW_LENIENT;
	flow->edge = seq;
	flow->held = seq;
	sg_rtt_forget(flow);
}

#endif /* SLUICE_ADOPT_H */
