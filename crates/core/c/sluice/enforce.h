/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The enforcement step: (flow, segment, now) -> verdict.
 *
 * sg_from_tenant() and sg_to_tenant() are its two directions, for a flow that
 * exists; handshake.h makes flows. Callers hold the flow's lock, if they share
 * flows between threads. In `observe` mode everything is computed and no edit
 * is asked for.
 *
 * After He et al., "AC/DC TCP" (SIGCOMM 2016), section 3. What differs, and why,
 * is said where it happens.
 */
#ifndef SLUICE_ENFORCE_H
#define SLUICE_ENFORCE_H

#include "adopt.h"
#include "loss.h"
#include "path.h"
#include "receive.h"
#include "window.h"

/*
 * The first data after idleness. Feedback is judged anew, for its judge's patience
 * is measured in windows and the window becomes small again.
 */
SG_INLINE void sg_restart(struct sg_flow *flow, const struct sg_params *params)
{
	sg_cc_on_idle(&flow->cc, params);
	flow->uncounted = 0;
	flow->counted_bytes = 0;
	flow->judge_start = flow->snd_una;
}

/* Data or FIN leaves the tenant. */
SG_INLINE void sg_data_sent(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
			    const struct sg_params *params, struct sg_verdict *out)
{
	sg_u32 end = seg->seq + seg->payload + !!(seg->tcp_flags & SG_FIN);

	if (sg_unlikely(sg_seq_lt(seg->seq, flow->snd_nxt))) {
		/* A keepalive repeats the last byte that was acknowledged: nothing is lost. */
		if (sg_seq_ge(seg->seq, flow->snd_una)) {
			sg_rtt_retransmitted(flow);
			if (!sg_hole_filled(flow, seg))
				sg_repair(flow, seg, now_ns, params, out);
		}
	} else {
		if (sg_unlikely(flow->snd_una == flow->snd_nxt)) {
			if (sg_since(now_ns, flow->progress_ns) >= sg_rto_ns(flow, params))
				sg_restart(flow, params);
			flow->progress_ns = now_ns;
		}
		sg_rtt_sent(flow, seg, end, now_ns);
	}
	flow->snd_nxt = sg_seq_max(flow->snd_nxt, end);
}

/* The part of the tenant's sequence space that an RST of its may name. */
SG_INLINE int sg_rst_fits(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return sg_seq_ge(seg->seq, flow->snd_una) && sg_seq_le(seg->seq, flow->snd_nxt);
}

/*
 * A closed flow may be collected before an idle one. An RST may be one that the receiver
 * does not believe (RFC 5961 3.2); then traffic goes on, and the flow is open again. It
 * may go on after any silence: FINs both ways, acknowledged, are what a
 * table may rely on. What does not fit the flow's sequence space ends nothing.
 */
SG_INLINE void sg_note_close(struct sg_flow *flow, const struct sg_segment *seg, sg_u8 mine,
			     int fits, struct sg_verdict *out)
{
	const sg_u8 both = SG_FLOW_FIN_SENT | SG_FLOW_FIN_SEEN;

	if (sg_likely(!(seg->tcp_flags & (SG_FIN | SG_RST)))) {
		if (sg_unlikely(flow->flags & SG_FLOW_CLOSED) && fits &&
		    (flow->flags & both) != both) {
			flow->flags &= (sg_u8)~SG_FLOW_CLOSED;
			out->count = SG_COUNT_RST_OUTLIVED;
		}
		return;
	}
	if ((seg->tcp_flags & SG_FIN) && fits)
		flow->flags |= mine;
	if ((flow->flags & both) == both || ((seg->tcp_flags & SG_RST) && fits))
		flow->flags |= SG_FLOW_CLOSED;
	else if (seg->tcp_flags & SG_RST)
		out->count = SG_COUNT_RST_OUTLIVED;
}

SG_INLINE int sg_polices(const struct sg_flow *flow, const struct sg_params *params)
{
	return (params->flags & SG_RULE_POLICE) && sg_may_edit(flow, params);
}

/*
 * Whether the step does more with the time of this segment than to note it in
 * seen_ns. Where it does not, a caller for whom the clock is dear may pass seen_ns
 * itself, as long as it passes the time now and then.
 */
SG_INLINE int sg_needs_clock(const struct sg_flow *flow, const struct sg_segment *seg)
{
	if (seg->direction == SG_TO_TENANT)
		return (seg->tcp_flags & SG_ACK) &&
		       (!seg->payload || seg->ack != flow->snd_una || flow->repeated);
	if (sg_unlikely(sg_acks_ahead(flow, seg)))
		return 1;
	if (!seg->payload && !(seg->tcp_flags & SG_FIN))
		return 0;
	return seg->seq != flow->snd_nxt || flow->snd_una == flow->snd_nxt ||
	       sg_police_exceeds(flow, seg) ||
	       sg_seq_ge(seg->seq + seg->payload + 1, flow->rtt_next);
}

/* Whether data that are repeated, or `exceed` the edge, are dropped; *out says why. */
SG_RARE int sg_police(struct sg_flow *flow SG_NONNULL,
		      const struct sg_segment *seg SG_NONNULL, sg_u64 now_ns,
		      const struct sg_params *params SG_NONNULL,
		      struct sg_verdict *out SG_NONNULL)
{
	if (!sg_police_exceeds(flow, seg)) {
		if (sg_repeats(flow, params, seg->payload, now_ns))
			return 0;
		out->count = SG_COUNT_REPEATED;
	} else if (sg_acks_bypass(flow, params, now_ns)) {
		sg_watch_one_direction(flow, out);
		return 0;
	} else {
		out->count = SG_COUNT_POLICED;
		sg_hole_made(flow, seg);
	}
	flow->policed += flow->policed < 0xffff;
	out->action = SG_DROP;
	return 1;
}

#define SG_FLOW_LOOSE (SG_FLOW_SCALE_BOUND | SG_FLOW_SIGNS | SG_FLOW_LENIENT)

/*
 * Whether nothing holds data that the tenant sends: the flow is only watched; its window
 * scale is a lower bound, so that no edge is one to police; its headers are signed, so that
 * no window is written; or they lie beyond what enforcement has shown. To be charged.
 */
SG_RARE int sg_note_unheld(const struct sg_flow *flow SG_NONNULL,
			   const struct sg_segment *seg SG_NONNULL,
			   const struct sg_params *params SG_NONNULL,
			   struct sg_verdict *out SG_NONNULL)
{
	sg_u32 end = seg->seq + seg->payload;

	if (!seg->payload)
		return 0;
	if (flow->mode == SG_MODE_WATCH || (flow->marks & (SG_FLOW_SCALE_BOUND | SG_FLOW_SIGNS))) {
		out->edits |= SG_EDIT_UNHELD;
	} else if (params->mode == SG_RULE_ENFORCE &&
		   sg_seq_gt(end, flow->held + sg_police_slack(flow, flow->held))) {
		out->edits |= SG_EDIT_UNHELD;
		out->count = SG_COUNT_BEYOND;
	}
	return 0;
}

/*
 * A pure ACK has the number of the next byte (RFC 9293 3.10.7.4). Linux takes that of the right
 * edge instead where the edge has moved left of the next byte (tcp_acceptable_seq()). Enforcement
 * can move it so: data that leave while an ACK arrives may lie beyond the window that the host
 * wrote into the ACK before it saw them. Once the data have arrived, the peer discards ACKs with
 * such an old number. If that happens in both directions at once, each stack discards every
 * segment of the other, and the connection stalls for good. So an ACK whose number lies before
 * what the peer has acknowledged gets the number that the tenant would have written within the
 * peer's own window.
 *
 * Keepalives repeat the byte before snd_una on purpose. An urgent pointer counts from the number
 * (RFC 9293 3.8.5) and would point elsewhere.
 */
SG_RARE int sg_restore_seq(const struct sg_flow *flow SG_NONNULL,
			   const struct sg_segment *seg SG_NONNULL,
			   const struct sg_params *params SG_NONNULL,
			   struct sg_verdict *out SG_NONNULL)
{
	sg_u32 edge = flow->snd_una + ((sg_u32)flow->peer_window << (flow->wscale & 15));
	sg_u32 next = sg_seq_lt(edge, flow->snd_nxt) ? edge : flow->snd_nxt;

	if (!sg_may_edit(flow, params) || !(flow->flags & SG_FLOW_EDGE_KNOWN) ||
	    (seg->tcp_flags & (SG_SYN | SG_FIN | SG_ACK | SG_URG)) != SG_ACK)
		return 0;
	/* A number more than a window back, of data or of the ACK, is of another connection. */
	if (sg_seq_ge(seg->seq + 1, next) || next - seg->seq > SG_WINDOW_MAX ||
	    ((flow->marks & SG_FLOW_RCV_KNOWN) && flow->rcv_nxt - seg->ack > sg_rcv_window(flow)))
		return 0;
	out->edits |= SG_EDIT_SEQ;
	out->seq = next;
	return 0;
}

/* A segment of an existing flow leaves the tenant. *out is zeroed by the caller. */
SG_INLINE int sg_from_tenant(struct sg_flow *flow, const struct sg_segment *seg,
			     sg_u64 now_ns, const struct sg_params *params,
			     struct sg_verdict *out)
{
	flow->seen_ns = now_ns;
	flow->marks |= SG_FLOW_SENT;
	sg_note_odd_options(flow, seg, out);
	sg_note_close(flow, seg, SG_FLOW_FIN_SENT,
		      !(seg->tcp_flags & SG_RST) || sg_rst_fits(flow, seg), out);
	if (sg_unlikely(seg->tcp_flags & SG_RST))
		return 0;
	if (sg_unlikely(seg->options & SG_OPT_SIGNED))
		sg_tenant_signs(flow);
	/* Before its data count as sent: those behind them would be in place else. */
	if (sg_unlikely(!sg_is_in_place(flow, seg->seq)) &&
	    sg_acks_ahead(flow, seg) && sg_ack_elsewhere(flow, seg, now_ns, params, out))
		return 0;
	if (seg->payload || (seg->tcp_flags & SG_FIN)) {
		if (sg_unlikely(flow->marks & SG_FLOW_UNSEEN))
			sg_data_after_gap(flow, seg);
		if (sg_polices(flow, params)) {
			if (sg_unlikely(sg_seq_lt(seg->seq, flow->snd_nxt) ||
					sg_police_exceeds(flow, seg)) &&
			    sg_police(flow, seg, now_ns, params, out))
				return 0;
		} else if (params->mode == SG_RULE_OBSERVE && flow->mode != SG_MODE_WATCH &&
			   sg_unlikely(sg_police_exceeds(flow, seg))) {
			out->count = SG_COUNT_WOULD_POLICE;
		}
		if (sg_unlikely(flow->marks & SG_FLOW_ADOPTED))
			sg_learn_sent(flow, seg);
		sg_watch_from(flow, seg->seq);
		sg_data_sent(flow, seg, now_ns, params, out);
		if (sg_unlikely(flow->mode == SG_MODE_WATCH || (flow->marks & SG_FLOW_LOOSE)))
			sg_note_unheld(flow, seg, params, out);
	}
	if (sg_likely(flow->marks & SG_FLOW_RCV_KNOWN))
		sg_tenant_acknowledges(flow, seg, now_ns, params, out);
	if (sg_unlikely(sg_seq_lt(seg->seq + 1, flow->snd_una)) && !seg->payload)
		sg_restore_seq(flow, seg, params, out);
	if (flow->mode == SG_MODE_TWO_SIDED && seg->payload &&
	    sg_unlikely(seg->ack != flow->rcv_nxt || !(seg->tcp_flags & SG_ACK)) &&
	    sg_ack_is_odd(flow, seg, out)) {
		out->edits |= SG_EDIT_UNHELD;
		out->count = SG_COUNT_ODD_ACK;
	}
	if (sg_unlikely(params->mode != SG_RULE_ENFORCE || flow->mode != SG_MODE_TWO_SIDED)) {
		if ((seg->options & SG_OPT_FEEDBACK) && sg_peer_may_believe(flow))
			sg_refuse_claims(seg, params, SG_OPT_FEEDBACK, out);
		return 0;
	}
	if (sg_likely(!(out->edits & SG_EDIT_ECN) || out->ecn))
		sg_edit_ecn(out, seg, SG_ECT0);
	else if (seg->ecn == SG_NOT_ECT)
		out->edits &= (sg_u16)~SG_EDIT_ECN; /* as sg_without_ect() wants it */
	sg_give_feedback(flow, seg, out);
	return 0;
}

/*
 * Feedback must come, and must follow what is acknowledged. Counters that stand
 * still for two windows and eight segments end the partnership: the feedback has
 * stopped, or no ECN codepoint survives the path. So do counters that cover less
 * than a quarter of two windows. The peer counts before its tenant acknowledges, so that counts run
 * ahead, by a whole window when a hole is filled at last: what they are ahead covers
 * later ACKs. ACKs report by turns, and one may be lost or have no room.
 */
SG_INLINE void sg_check_feedback(struct sg_flow *flow, const struct sg_segment *seg,
				 const struct sg_params *params, sg_u32 flight,
				 struct sg_verdict *out)
{
	sg_u32 patience = 2 * sg_max32(flow->cc.cwnd, flight) + 8U * flow->mss;
	sg_u32 judged = flow->snd_una - flow->judge_start;
	sg_u8 reason = flow->flags & SG_FLOW_FED ? SG_WHY_FEEDBACK_MISMATCH :
						   SG_WHY_FEEDBACK_STOPPED;

	/* Acknowledged by data, which waits for a FACK to be due. */
	if (seg->payload)
		patience += SG_FACK_BYTES;
	if (sg_unlikely((sg_s64)flow->uncounted > patience) ||
	    (judged > patience && flow->counted_bytes < judged / 4)) {
		sg_fall_back(flow, params, reason, out);
	} else if (judged > patience) {
		flow->judge_start = flow->snd_una;
		flow->counted_bytes = flow->uncounted < 0 ? (sg_u32)-flow->uncounted : 0;
	}
	if (!(seg->options & SG_OPT_FEEDBACK))
		flow->flags &= (sg_u8)~SG_FLOW_FED;
}

/*
 * Growth is earned by a window in use (RFC 7661; the test is Linux's): in slow
 * start more than half of it, later all but what a whole segment doesn't fit in.
 */
SG_INLINE int sg_window_used(const struct sg_flow *flow, sg_u32 flight)
{
	if (flow->cc.cwnd < flow->cc.ssthresh)
		return flow->cc.cwnd < 2ULL * flight;
	return (sg_u64)flight + 2U * flow->mss > flow->cc.cwnd;
}

/*
 * Of ACKs that come together each finds less in flight than the one before it, until the tenant
 * has answered the first: taken one by one they would earn next to nothing. So those that
 * follow a full window by an eighth of an RTT, one by one, are answered as the first, until the
 * next round ends. Not in slow start, where half a window is enough.
 */
SG_INLINE int sg_growth_is_earned(struct sg_flow *flow, sg_u32 flight, sg_u64 now_ns)
{
	sg_u32 flags = flow->cc.flags;

	if (sg_since(now_ns, flow->progress_ns) > flow->srtt_ns / 8)
		flags &= ~(SG_CC_FULL | SG_CC_WAS_FULL);
	if (sg_window_used(flow, flight))
		flags |= SG_CC_FULL;
	flow->cc.flags = (sg_u16)flags;
	/* Asked again: the verifier walks through more where an answer is kept until here. */
	if (sg_cc_in_slow_start(&flow->cc))
		return sg_window_used(flow, flight);
	return !!(flags & (SG_CC_FULL | SG_CC_WAS_FULL));
}

/* An ACK ends a round. */
SG_RARE int sg_round_ends(struct sg_flow *flow SG_NONNULL,
			  const struct sg_params *params SG_NONNULL)
{
	sg_u32 flags = flow->cc.flags & ~(SG_CC_FULL | SG_CC_WAS_FULL);

	if (flow->cc.flags & SG_CC_FULL)
		flags |= SG_CC_WAS_FULL;
	flow->cc.flags = (sg_u16)flags;
	sg_mss_judge(flow, params);
	return 0;
}

/*
 * Marks in sequence space that snd_una has passed move along with it, so that
 * none is ever so far behind that it seems to lie ahead.
 */
SG_INLINE void sg_pass_marks(struct sg_flow *flow)
{
	if (sg_seq_ge(flow->snd_una, flow->recover)) {
		flow->flags &= (sg_u8)~SG_FLOW_RECOVERY;
		flow->marks &= (sg_u16)~SG_FLOW_REFILLS;
		flow->recover = flow->snd_una;
	}
	flow->karn_end = sg_seq_max(flow->karn_end, flow->snd_una);
	flow->fack_round = sg_seq_max(flow->fack_round, flow->snd_una);
}

/* snd_una advances. `path`: the sums of the flow's path, null = not kept. */
SG_INLINE void sg_ack_advances(struct sg_flow *flow, const struct sg_segment *seg,
			       sg_u64 now_ns, const struct sg_params *params,
			       struct sg_path *path, struct sg_verdict *out)
{
	sg_u32 flight = sg_flight(flow), algorithm;
	struct sg_cc_ack ack;

	sg_ack_facts(&ack, flow, now_ns);
	ack.acked = seg->ack - flow->snd_una;
	ack.rtt_ns = sg_rtt_acked(flow, seg->ack, now_ns);
	ack.min_rtt_ns = flow->min_rtt_ns;
	ack.marked = sg_min32(flow->marked_pending, ack.acked);
	flow->marked_pending -= ack.marked;
	/* Exact from a DCTCP receiver (RFC 8257 3.2), a window's worth from a classic one. */
	if (flow->mode == SG_MODE_TENANT_ECN && (seg->tcp_flags & SG_ECE)) {
		ack.marked = ack.acked;
		flow->bytes_marked += ack.acked;
	}
	if (sg_unlikely(!flow->bytes_acked))
		sg_first_acked(flow, params, out);
	flow->bytes_acked += ack.acked;
	ack.window_used = (sg_u8)sg_growth_is_earned(flow, flight, now_ns);
	if (sg_seq_ge(seg->ack, flow->cc.round_end))
		sg_round_ends(flow, params);
	flow->snd_una = seg->ack;
	flow->progress_ns = now_ns;
	if (sg_unlikely(flow->marked_pending))
		sg_bound_pending(flow);
	sg_pass_marks(flow);
	flow->dupacks = sg_dupacks_left(flow, ack.acked);
	sg_holes_passed(flow);
	ack.snd_una = flow->snd_una;
	ack.in_recovery = !!(flow->flags & SG_FLOW_RECOVERY);
	if (sg_unlikely(flow->marks & SG_FLOW_UNMARKED) && flow->bytes_marked)
		flow->marks &= (sg_u16)~SG_FLOW_UNMARKED;
	algorithm = sg_algorithm_now(flow, params);
	if (path && algorithm == SG_CC_DCTCP && flow->mode == SG_MODE_TWO_SIDED)
		sg_path_acked(path, &ack);
	sg_cc_on_ack(&flow->cc, params, algorithm, &ack);
	if (flow->mode == SG_MODE_TWO_SIDED)
		sg_check_feedback(flow, seg, params, flight, out);
}

/* A block that the last SACK did not begin with, and that reports no duplicate (RFC 2883). */
SG_INLINE int sg_sack_is_new(struct sg_flow *flow, const struct sg_segment *seg)
{
	int seen = seg->sack_left == flow->sack_left && seg->sack_right == flow->sack_right;
	int has_second = seg->sack2_left != seg->sack2_right;
	int duplicate = sg_seq_lt(seg->sack_left, seg->ack) ||
			(has_second && sg_seq_ge(seg->sack_left, seg->sack2_left) &&
			 sg_seq_le(seg->sack_right, seg->sack2_right));

	flow->sack_left = seg->sack_left;
	flow->sack_right = seg->sack_right;
	return !seen && !duplicate;
}

/*
 * RFC 5681 section 2: outstanding data, no payload, no change of window; with
 * SACK also a new block, which keepalive and probe replies lack.
 */
SG_RARE int sg_ack_repeats(struct sg_flow *flow SG_NONNULL,
			   const struct sg_segment *seg SG_NONNULL, sg_u64 now_ns,
			   const struct sg_params *params SG_NONNULL,
			   struct sg_verdict *out SG_NONNULL)
{
	if (seg->payload || (seg->tcp_flags & SG_FIN) || !seg->window ||
	    seg->window != flow->peer_window || flow->snd_una == flow->snd_nxt)
		return 0;
	if (seg->options & SG_OPT_SACK) {
		flow->flags |= SG_FLOW_SACK_SEEN;
		if (!sg_sack_is_new(flow, seg))
			return 0;
	} else if (flow->flags & SG_FLOW_SACK_SEEN) {
		return 0;
	}
	flow->dupacks += flow->dupacks < 0xffff;
	if (flow->dupacks == 3 && sg_may_infer_loss(flow))
		sg_infer_loss(flow, params, now_ns, out);
	return 0;
}

/*
 * An ACK of data that was never seen. The tenant may have sent it, within its window (a
 * packet that could not be read): then it is shown the enforced window, and not policed
 * for using it. Of more than that nothing is believed, unless packets are known to have
 * passed unseen: a receiver could open any edge for its sender.
 */
SG_RARE int sg_ack_beyond(struct sg_flow *flow SG_NONNULL,
			  const struct sg_segment *seg SG_NONNULL,
			  const struct sg_params *params SG_NONNULL,
			  struct sg_verdict *out SG_NONNULL)
{
	sg_u32 window = sg_room(flow->edge, flow->snd_una);
	sg_u32 beyond = seg->ack - flow->snd_nxt, shift = flow->wscale & 15, wire = seg->window;

	/* Where data went on unseen shows when they come again (sg_watch_from). */
	if (flow->mode == SG_MODE_WATCH)
		return 0;
	out->count = SG_COUNT_ACK_BEYOND;
	if (flow->marks & SG_FLOW_UNSEEN ? beyond > SG_UNSEEN_MAX :
					   beyond > sg_max32(window, flow->cc.cwnd) + flow->mss)
		return 0;
	if (sg_may_edit(flow, params)) {
		window = sg_max32(flow->cc.cwnd, sg_cc_floor(&flow->cc, params));
		wire = sg_min32(wire, sg_window_to_wire(window, shift));
		out->edits |= wire != seg->window ? SG_EDIT_WINDOW : 0;
		out->window = (sg_u16)wire;
	}
	/* One such ACK after the other would open any edge for a sender that helps. */
	sg_be_lenient(flow, flow->flags & SG_FLOW_EDGE_KNOWN ? flow->edge : flow->snd_nxt);
	flow->edge = sg_seq_max(flow->edge, seg->ack + (wire << shift));
	return 0;
}

/*
 * Stacks ignore the window of an ACK older than the last (RFC 9293 3.10.7.4), but
 * what two CPUs carry may reach the tenant in the other order. So it shows no
 * more than has been shown. One that is older than any window (RFC 5961 5.2) is of another
 * connection, and its edge none of this one's.
 */
SG_RARE int sg_ack_late(struct sg_flow *flow SG_NONNULL,
			const struct sg_segment *seg SG_NONNULL,
			const struct sg_params *params SG_NONNULL,
			struct sg_verdict *out SG_NONNULL)
{
	sg_u32 shift = flow->wscale & 15;
	sg_u32 room = sg_room(flow->edge, seg->ack);
	/* Rounded down, or each of them would push the edge; but not below the smallest window. */
	sg_u32 wire = sg_max32(room >> shift,
			       sg_window_to_wire(sg_cc_floor(&flow->cc, params), shift));

	if (wire >= seg->window || !sg_may_edit(flow, params))
		return 0;
	out->edits |= SG_EDIT_WINDOW;
	out->window = (sg_u16)wire;
	if (flow->snd_una - seg->ack <= SG_TCP_WINDOW_MAX)
		flow->edge = sg_seq_max(flow->edge, seg->ack + (wire << shift));
	return 0;
}

/* The acknowledgement number, and the window that goes with it. */
SG_INLINE void sg_ack_arrives(struct sg_flow *flow, const struct sg_segment *seg,
			      sg_u64 now_ns, const struct sg_params *params,
			      struct sg_path *path, struct sg_verdict *out)
{
	int advances = sg_seq_gt(seg->ack, flow->snd_una), governed;
	sg_u16 wire = seg->window, would;

	if (sg_unlikely(sg_seq_gt(seg->ack, flow->snd_nxt))) {
		sg_ack_beyond(flow, seg, params, out);
		return;
	}
	if (sg_unlikely(sg_seq_lt(seg->ack, flow->snd_una))) {
		sg_ack_late(flow, seg, params, out);
		return;
	}
	if (sg_unlikely(flow->mode == SG_MODE_WATCH) && advances)
		sg_adopt(flow, seg, params, out);
	if (advances)
		sg_ack_advances(flow, seg, now_ns, params, path, out);
	else
		sg_ack_repeats(flow, seg, now_ns, params, out);
	governed = sg_may_edit(flow, params);
	if (governed) {
		wire = sg_window_field(flow, params, seg, advances, now_ns);
	} else if (params->mode == SG_RULE_OBSERVE && flow->mode != SG_MODE_WATCH && advances) {
		would = sg_window_field(flow, params, seg, advances, now_ns);
		out->edits |= would < seg->window ? SG_EDIT_WOULD_LOWER : 0;
	}
	if (wire != seg->window) {
		out->edits |= SG_EDIT_WINDOW;
		out->window = wire;
	}
	sg_window_shown(flow, seg, wire, flow->wscale, params, governed);
}

/* Where uncounted bytes saturate: above any patience. */
#define SG_UNCOUNTED_MAX (1LL << 30)

/*
 * Most segments are of the flow at first sight: ACKs in order, and data that acknowledge nothing
 * new.
 */
SG_INLINE int sg_is_familiar(const struct sg_flow *flow, const struct sg_segment *seg)
{
	if (!(seg->tcp_flags & SG_ACK) || seg->damaged)
		return 0;
	if (seg->ack == flow->snd_una)
		return sg_is_near(flow, seg);
	return seg->seq == flow->rcv_nxt && !seg->payload && !(seg->tcp_flags & SG_FIN);
}

/*
 * A segment for the tenant that is not of the flow, as far as can be known. One-sided, nothing is
 * known of what is acknowledged; but an ACK that would advance the flow has to be within the
 * tenant's window: one that a stranger's guess has placed could else make an RTT of nothing.
 */
SG_RARE int sg_is_stranger(struct sg_flow *flow SG_NONNULL,
			   const struct sg_segment *seg SG_NONNULL)
{
	int two_sided = flow->mode == SG_MODE_TWO_SIDED;

	if (flow->mode == SG_MODE_WATCH || !(flow->marks & SG_FLOW_RCV_KNOWN))
		return 0;
	if (!two_sided && (flow->marks & SG_FLOW_AHEAD)) {
		sg_comes_back(flow, seg);
		return 0;
	}
	if (!sg_is_near(flow, seg))
		return !sg_comes_back(flow, seg);
	if (two_sided && (seg->payload || (seg->tcp_flags & SG_FIN)) && !sg_is_genuine(flow, seg))
		return 1;
	return (seg->tcp_flags & SG_ACK) && sg_seq_gt(seg->ack, flow->snd_una) &&
	       sg_seq_le(seg->ack, flow->snd_nxt) && !sg_is_within(flow, seg, flow->rcv_nxt);
}

/* Hosts add nothing to malformed or signed options: feedback beside them is no host's. */
SG_INLINE int sg_brings_feedback(const struct sg_segment *seg)
{
	return (seg->options & (SG_OPT_FEEDBACK | SG_OPT_ODD)) == SG_OPT_FEEDBACK;
}

/* While both hosts enforce, marks and what hosts say to each other end here. */
SG_INLINE void sg_hide(const struct sg_flow *flow, const struct sg_segment *seg,
		       struct sg_verdict *out)
{
	sg_edit_ecn(out, seg, SG_NOT_ECT);
	if (sg_unlikely(flow->marks & SG_FLOW_SIGNS))
		return;
	if (sg_brings_feedback(seg))
		out->edits |= SG_EDIT_STRIP_FEEDBACK;
	if (sg_unlikely(seg->tcp_flags & SG_ECE)) {
		out->edits |= SG_EDIT_CLEAR_FLAGS;
		out->clear_flags = SG_ECE;
	}
}

/*
 * It changes nothing of the flow. Should its tenant take it after all, its window is no
 * larger than the last one or the smallest, or is that of an ACK of what was never seen.
 */
SG_RARE int sg_stranger_arrives(struct sg_flow *flow SG_NONNULL,
				const struct sg_segment *seg SG_NONNULL,
				const struct sg_params *params SG_NONNULL,
				struct sg_verdict *out SG_NONNULL)
{
	sg_u16 least = sg_window_to_wire(sg_cc_floor(&flow->cc, params), flow->wscale);
	sg_u16 wire = flow->wire_window > least ? flow->wire_window : least;

	int two_sided = flow->mode == SG_MODE_TWO_SIDED;

	if (two_sided && params->mode == SG_RULE_ENFORCE)
		sg_hide(flow, seg, out);
	if ((seg->options & SG_OPT_FACK) && (two_sided || sg_once_two_sided(flow)))
		out->action = SG_CONSUME;
	if (sg_seq_gt(seg->ack, flow->snd_nxt) && (!two_sided || sg_is_near(flow, seg))) {
		sg_ack_beyond(flow, seg, params, out);
	} else if (seg->window > wire && sg_may_edit(flow, params)) {
		out->edits |= SG_EDIT_WINDOW;
		out->window = wire;
	}
	out->count = seg->tcp_flags & SG_RST ? SG_COUNT_RST_OUTLIVED : SG_COUNT_STRANGER;
	if (seg->payload)
		flow->marks |= SG_FLOW_STRANGERS;
	return 0;
}

/* The work that only two enforcing hosts do: count, take feedback, hide ECN. */
SG_INLINE void sg_two_sided_arrival(struct sg_flow *flow, const struct sg_segment *seg,
				    const struct sg_params *params, struct sg_verdict *out)
{
	sg_data_come(flow, seg, params);
	if (sg_unlikely(params->mode != SG_RULE_ENFORCE))
		return;
	if ((seg->tcp_flags & SG_ACK) && sg_seq_gt(seg->ack, flow->snd_una) &&
	    sg_seq_le(seg->ack, flow->snd_nxt)) {
		sg_s64 uncounted = (sg_s64)flow->uncounted + (seg->ack - flow->snd_una);

		flow->uncounted = (sg_s32)(uncounted < SG_UNCOUNTED_MAX ? uncounted :
									  SG_UNCOUNTED_MAX);
	}
	sg_hide(flow, seg, out);
	/* A sender that does not know which data are acknowledged is not on the path. */
	if (sg_brings_feedback(seg) &&
	    (!sg_may_bring_feedback(flow, seg) || !sg_feedback_take(flow, seg)))
		out->count = SG_COUNT_FEEDBACK_STALE;
}

/*
 * FACKs of a peer's host that has not noticed the fallback yet stop here as well,
 * and those of one that has not noticed that the rule only observes now: the
 * tenant would count duplicate ACKs.
 */
SG_INLINE int sg_consumes_fack(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return !(seg->options & SG_OPT_ODD) &&
	       (flow->mode == SG_MODE_TWO_SIDED || sg_once_two_sided(flow));
}

/* A segment of an existing flow arrives for the tenant. *out is zeroed by the caller. */
SG_INLINE int sg_to_tenant(struct sg_flow *flow, const struct sg_segment *seg,
			   sg_u64 now_ns, const struct sg_params *params,
			   struct sg_path *path, struct sg_verdict *out)
{
	int two_sided = flow->mode == SG_MODE_TWO_SIDED;

	if (sg_unlikely(!sg_is_familiar(flow, seg)) && sg_is_stranger(flow, seg))
		return sg_stranger_arrives(flow, seg, params, out);
	flow->seen_ns = now_ns;
	flow->marks |= SG_FLOW_HEARD;
	sg_note_close(flow, seg, SG_FLOW_FIN_SEEN, sg_rst_is_near(flow, seg), out);
	if (sg_unlikely(seg->tcp_flags & SG_RST))
		return 0;
	if (two_sided)
		sg_two_sided_arrival(flow, seg, params, out);
	else
		flow->bytes_received += seg->payload;
	if (sg_likely(flow->marks & SG_FLOW_RCV_KNOWN) &&
	    (seg->payload || (seg->tcp_flags & SG_FIN)))
		sg_has_come(flow, seg);
	if (sg_unlikely(seg->options & SG_OPT_FACK) && sg_consumes_fack(flow, seg)) {
		out->action = SG_CONSUME;
		out->count = SG_COUNT_FACK_TAKEN;
		return 0;
	}
	if (seg->tcp_flags & SG_ACK) {
		if (sg_unlikely(flow->marks & SG_FLOW_ADOPTED))
			sg_learn_window(flow, seg);
		sg_ack_arrives(flow, seg, now_ns, params, path, out);
	}
	sg_note_odd_options(flow, seg, out);
	return 0;
}

/*
 * The step of a segment in its direction. *out is zeroed by the caller. A program of one direction
 * calls that direction's step, so that it does not have the code of both.
 */
SG_INLINE void sg_step(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
		       const struct sg_params *params, struct sg_path *path,
		       struct sg_verdict *out)
{
	if (seg->direction == SG_FROM_TENANT)
		sg_from_tenant(flow, seg, now_ns, params, out);
	else
		sg_to_tenant(flow, seg, now_ns, params, path, out);
}

#endif /* SLUICE_ENFORCE_H */
