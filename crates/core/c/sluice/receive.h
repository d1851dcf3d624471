/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The receiving half of a flow: what has come for the tenant, what it has said of it, and, while
 * both hosts enforce, what its peer's host is told.
 *
 *	rcv_nxt      what the tenant has acknowledged
 *	rcv_high     end of the highest data that has come for it
 *	rcv_window   from rcv_nxt to the farthest edge that it advertised
 *
 * Numbers that are not of the flow's sequence space count for nothing, and data that have not come
 * cannot be acknowledged.
 */
#ifndef SLUICE_RECEIVE_H
#define SLUICE_RECEIVE_H

#include "feedback.h"
#include "mode.h"
#include "police.h"
#include "seq.h"

/* Feedback in a packet of its own is worth it from this many bytes on. */
#define SG_FACK_BYTES 0xffffU

/* So many data segments in a row without any ECN codepoint: the peer's host is gone. */
#define SG_NOT_ECT_SEGMENTS 16U

SG_INLINE void sg_report(struct sg_flow *flow, struct sg_verdict *out)
{
	out->e0b = flow->rcv_e0b;
	out->ceb = flow->rcv_ceb;
	flow->unreported = 0;
	flow->marks &= (sg_u16)~SG_FLOW_SKIPPED_ACK;
	flow->flags &= (sg_u8)~SG_FLOW_CE_UNREPORTED;
	flow->fack_round = flow->snd_nxt;
}

/*
 * A header-only copy carries the counters when no ACK of the tenant can: at most
 * once per window of the tenant's own data, or per SG_FACK_BYTES received, and
 * not for a trickle: small messages back and forth would cost a packet each.
 */
SG_INLINE int sg_fack_due(const struct sg_flow *flow)
{
	sg_u32 worth = flow->flags & SG_FLOW_CE_UNREPORTED ? flow->mss : 2U * flow->mss;

	if (flow->unreported >= SG_FACK_BYTES)
		return 1;
	if (flow->unreported < worth)
		return 0;
	return sg_seq_ge(flow->snd_una, flow->fack_round);
}

/* Data without any ECN codepoint says that the peer's host no longer enforces. */
SG_INLINE int sg_peer_reads_feedback(const struct sg_flow *flow)
{
	return flow->bytes_received && flow->not_ect_run < SG_NOT_ECT_SEGMENTS;
}

/*
 * Room for an option is made and unmade at a price, so pure ACKs report by turns
 * while nothing but ECT(0) arrives in order. Marks are reported at once. So RFC 9768
 * 3.2.3.3: a counter that goes on counting is repeated every n ACKs, CE always.
 * Losses are when ACKs are few and matter, and a tenant that sends data as well has
 * fewer pure ACKs: there all of them report.
 */
SG_INLINE int sg_reports(struct sg_flow *flow, const struct sg_segment *seg)
{
	if ((flow->flags & SG_FLOW_CE_UNREPORTED) || (seg->options & SG_OPT_SACK) ||
	    flow->fack_round != flow->snd_nxt || (flow->marks & SG_FLOW_SKIPPED_ACK))
		return 1;
	flow->marks |= SG_FLOW_SKIPPED_ACK;
	return 0;
}

SG_INLINE void sg_give_feedback(struct sg_flow *flow, const struct sg_segment *seg,
				struct sg_verdict *out)
{
	int signs = flow->marks & SG_FLOW_SIGNS;
	int pure_ack = !seg->payload && !(seg->tcp_flags & SG_FIN) && !signs;

	/* Only hosts write this option; a tenant's own would be a forgery. */
	if (sg_unlikely(seg->options & (SG_OPT_FEEDBACK | SG_OPT_MALFORMED)) &&
	    !(seg->options & SG_OPT_SIGNED)) {
		if (seg->options & SG_OPT_FEEDBACK)
			out->edits |= SG_EDIT_STRIP_FEEDBACK;
		/* Without the first of two that were forged, its host would believe the second. */
		if (seg->options & SG_OPT_MALFORMED)
			out->edits |= SG_EDIT_BLANK_REST;
	}
	if (!sg_peer_reads_feedback(flow))
		return;
	if (pure_ack && seg->header_len + SG_OPTION_LEN <= 60) {
		if (!sg_reports(flow, seg))
			return;
		sg_add_option(out, seg, SG_EDIT_ADD_FEEDBACK);
		sg_report(flow, out);
	} else if (sg_unlikely(sg_fack_due(flow))) {
		out->edits |= SG_EDIT_WANT_FACK;
		sg_report(flow, out);
	}
}

/*
 * An ACK of what was sent, and no older than two windows: who is not on the path would
 * have to guess the sequence number that closely.
 */
SG_INLINE int sg_ack_plausible(const struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 flight = flow->snd_nxt - flow->snd_una;
	sg_u32 window = sg_max32(sg_cc_before_cut(&flow->cc), flight);

	return sg_seq_le(seg->ack, flow->snd_nxt) &&
	       flow->snd_nxt - seg->ack <= flight + 2 * window + 2U * flow->mss;
}

/* The data of a few super-packets: more does not pass unseen on a busy CPU. */
#define SG_RCV_UNSEEN_MAX (256U << 10)

/*
 * Whether a number of the tenant's is one that it sends from: what is out, the next, or a probe's.
 */
SG_INLINE int sg_is_in_place(const struct sg_flow *flow, sg_u32 seq)
{
	return seq - (flow->snd_una - 1) <= flow->snd_nxt - (flow->snd_una - 1);
}

/* The window that the tenant has advertised, in bytes. */
SG_INLINE sg_u32 sg_rcv_window(const struct sg_flow *flow)
{
	return (sg_u32)flow->rcv_window << (flow->rcv_wscale & 15);
}

/*
 * Whether a segment for the tenant is near what has come, in sequence space: two windows
 * around it, or as many bytes as the tenant takes (RFC 9293 3.10.7.4). What is not is of
 * another connection, or of someone who is not on the path, and changes nothing of the flow.
 */
SG_INLINE int sg_is_near(const struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 beyond = sg_max32(2 * SG_WINDOW_MAX, sg_rcv_window(flow));

	return seg->seq - flow->rcv_nxt + 2 * SG_WINDOW_MAX <= 2 * SG_WINDOW_MAX + beyond;
}

/*
 * Whether data that are near can be of the flow: their checksum is not wrong, and their
 * sender knows what the tenant has sent (RFC 5961 5.2), which others have to guess as well.
 * Of what the tenant has sent unseen, it may know a window, or more where packets are
 * known to have passed.
 */
SG_INLINE int sg_is_genuine(const struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 unseen = flow->marks & SG_FLOW_UNSEEN ? SG_UNSEEN_MAX :
						       sg_cc_before_cut(&flow->cc) + flow->mss;

	if (seg->damaged || !(seg->tcp_flags & SG_ACK))
		return 0;
	return sg_likely(seg->ack == flow->snd_una) || sg_ack_plausible(flow, seg) ||
	       seg->ack - flow->snd_nxt <= unseen;
}

/* Whether a segment lies within the tenant's window of `middle`, or within the one before. */
SG_INLINE int sg_is_within(const struct sg_flow *flow, const struct sg_segment *seg,
			   sg_u32 middle)
{
	sg_u32 window = sg_max32(sg_rcv_window(flow), SG_RCV_UNSEEN_MAX);

	return seg->seq - middle + window <= 2 * window;
}

/* An RST that its tenant's stack may believe is within the window (RFC 5961 3.2). */
SG_INLINE int sg_rst_is_near(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return !(seg->tcp_flags & SG_RST) || flow->mode != SG_MODE_TWO_SIDED ||
	       seg->seq - flow->rcv_nxt <= sg_rcv_window(flow);
}

/*
 * The messages of hosts to each other come on segments of the window, or of the one before: a
 * sender off the path would have to guess that, and the acknowledged number.
 */
SG_INLINE int sg_may_bring_feedback(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return sg_is_within(flow, seg, flow->rcv_nxt) && sg_ack_plausible(flow, seg);
}

/* The tenant's stack will take data of this segment: they are new, and within its window. */
SG_INLINE int sg_is_receivable(const struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 end = seg->seq + seg->payload;

	return sg_seq_gt(end, flow->rcv_nxt) && end - flow->rcv_nxt <= sg_rcv_window(flow);
}

/* Two-sided: data for the tenant. What it cannot take counts for nothing. */
SG_INLINE void sg_data_come(struct sg_flow *flow, const struct sg_segment *seg,
			    const struct sg_params *params)
{
	if (sg_unlikely(!seg->payload || !sg_is_receivable(flow, seg)))
		return;
	flow->bytes_received += seg->payload;
	if (sg_likely(params->mode == SG_RULE_ENFORCE))
		sg_feedback_count(flow, seg);
}

/* Data or a FIN has come so far for the tenant. */
SG_INLINE void sg_has_come(struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 end = seg->seq + seg->payload + !!(seg->tcp_flags & SG_FIN);

	if (sg_likely(sg_seq_gt(end, flow->rcv_high)) && sg_is_near(flow, seg)) {
		flow->rcv_high = end;
		flow->marks &= (sg_u16)~SG_FLOW_AHEAD;
	}
}

/* The tenant acknowledges data that has not come for it. */
SG_INLINE int sg_acks_ahead(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return (flow->marks & SG_FLOW_RCV_KNOWN) && (seg->tcp_flags & SG_ACK) &&
	       sg_seq_ge(seg->ack, flow->rcv_nxt) &&
	       seg->ack - flow->rcv_nxt > flow->rcv_high - flow->rcv_nxt;
}

/*
 * So long may ACKs be ahead of all that comes, in 1024 ns. If nothing has come even then, the
 * data take another path, or cannot be read (fragments): ACKs are let go until data come again.
 * A receiver that acknowledges early gains nothing by that, for its sender answers with data.
 */
#define SG_AHEAD_LIMIT (100000000U >> 10)

/* The ACKs of a flow are let go from `now`, in 1024 ns, on. The 32 bits of that clock may wrap. */
SG_INLINE void sg_let_go(struct sg_flow *flow, sg_u32 now, sg_u32 ack)
{
	flow->marks |= SG_FLOW_AHEAD;
	flow->ahead_time = now - SG_AHEAD_LIMIT - 1;
	flow->let_go = ack;
}

/*
 * Data come by again near an ACK that was let go: what is before it has taken another path.
 * Only data say so. A sender that helps its receiver has to send them, within its windows.
 */
SG_INLINE int sg_comes_back(struct sg_flow *flow, const struct sg_segment *seg)
{
	if (!(flow->marks & SG_FLOW_AHEAD) || !flow->let_go || !seg->payload ||
	    !sg_is_within(flow, seg, flow->let_go) || !sg_is_genuine(flow, seg))
		return 0;
	flow->rcv_nxt = flow->let_go;
	flow->rcv_high = flow->let_go;
	flow->let_go = 0;
	return 1;
}

/*
 * The tuple seems to have begun a new life, of which only the tenant has told. What was known of
 * the old life's receiving half is kept, and ACKs are let go: if data of the old life come all
 * the same, the tenant has lied, and they are what it may acknowledge.
 */
SG_INLINE void sg_keep_receiving(struct sg_flow *made, const struct sg_flow *old, sg_u64 now_ns)
{
	if (!(old->marks & SG_FLOW_RCV_KNOWN))
		return;
	made->rcv_nxt = old->rcv_nxt;
	made->rcv_high = old->rcv_high;
	made->rcv_window = old->rcv_window;
	made->rcv_wscale = old->rcv_wscale;
	made->marks |= SG_FLOW_RCV_KNOWN;
	sg_let_go(made, (sg_u32)(now_ns >> 10), old->rcv_nxt);
}

/*
 * It has begun one, as both ends have told, with this segment. Of the tenant's windows the old
 * life may know the scale.
 */
SG_INLINE void sg_receive_anew(struct sg_flow *made, const struct sg_segment *seg,
			       const struct sg_remembered *known, const struct sg_flow *old)
{
	int to_tenant = seg->direction == SG_TO_TENANT;

	made->rcv_wscale = known->rcv_wscale & 15;
	if (known->rcv_wscale == SG_WSCALE_MAX && old && (old->marks & SG_FLOW_RCV_KNOWN))
		made->rcv_wscale = old->rcv_wscale;
	made->rcv_nxt = to_tenant ? seg->seq : seg->ack;
	made->rcv_high = made->rcv_nxt;
	if (to_tenant)
		made->rcv_high += seg->payload + !!(seg->tcp_flags & SG_FIN);
	made->rcv_window = 0xffff;
	made->marks |= SG_FLOW_RCV_KNOWN;
}

/*
 * Flows that are only watched because little is known of them: a receiver may have brought that
 * about itself. MPTCP and signed connections are left alone.
 */
SG_INLINE int sg_may_hold_acks(const struct sg_flow *flow)
{
	return flow->mode != SG_MODE_WATCH || flow->reason == SG_WHY_MIDSTREAM ||
	       flow->reason == SG_WHY_ONE_DIRECTION;
}

/*
 * The tenant acknowledges what has not come for it: such ACKs make its sender's RTT as short
 * as it likes, and the smallest window in a tiny RTT is a large rate. No stack does so, and this
 * host knows: the number is corrected to what has come.
 */
SG_RARE int sg_ack_ahead(struct sg_flow *flow SG_NONNULL,
			 const struct sg_segment *seg SG_NONNULL, sg_u64 now_ns,
			 const struct sg_params *params SG_NONNULL,
			 struct sg_verdict *out SG_NONNULL)
{
	sg_u32 now = (sg_u32)(now_ns >> 10);
	int unseen = (flow->marks & SG_FLOW_RCV_UNSEEN) &&
		     seg->ack - flow->rcv_high <= SG_RCV_UNSEEN_MAX;

	if (params->mode != SG_RULE_ENFORCE || !sg_may_hold_acks(flow) || unseen) {
		flow->marks &= (sg_u16)~(SG_FLOW_RCV_UNSEEN | SG_FLOW_AHEAD);
		flow->rcv_high = seg->ack;
		return 0;
	}
	if (!(flow->marks & SG_FLOW_AHEAD)) {
		flow->marks |= SG_FLOW_AHEAD;
		flow->ahead_time = now;
		flow->let_go = 0;
	} else if (now - flow->ahead_time > SG_AHEAD_LIMIT) {
		sg_let_go(flow, now, seg->ack);
		out->count = SG_COUNT_DATA_UNSEEN;
		return 0;
	}
	flow->marks |= SG_FLOW_ACKED_AHEAD;
	out->edits |= SG_EDIT_ACK;
	out->ack = flow->rcv_high;
	out->count = SG_COUNT_ACK_AHEAD;
	return 0;
}

/*
 * The right edge of what the tenant takes. It does not come back: data that are on their way
 * would count for nothing, and with them the marks that they have met.
 */
SG_INLINE void sg_advertised(struct sg_flow *flow, sg_u32 ack, sg_u32 window)
{
	sg_u32 shift = flow->rcv_wscale & 15, unit = 1U << shift;
	sg_u32 before = flow->rcv_nxt + sg_rcv_window(flow), kept;

	if (sg_seq_gt(before, ack + (window << shift))) {
		kept = (before - ack + unit - 1) >> shift;
		window = sg_min32(kept, 0xffff);
	}
	flow->rcv_nxt = ack;
	flow->rcv_window = (sg_u16)window;
}

/*
 * It does so on a segment that is not where its sequence is. The tuple may have begun a
 * new life of which the host has seen no handshake; a corrected number would make the peer reset
 * that connection. So the segment is dropped: the stack of a new connection repeats it until ACKs
 * are let go, and a tenant without a new connection gains nothing.
 */
SG_INLINE int sg_ack_elsewhere(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
			       const struct sg_params *params, struct sg_verdict *out)
{
	sg_ack_ahead(flow, seg, now_ns, params, out);
	if (!(out->edits & SG_EDIT_ACK))
		return 0;
	out->edits &= (sg_u16)~SG_EDIT_ACK;
	out->action = SG_DROP;
	return 1;
}

/* The tenant's word on what it has received, and will take. */
SG_INLINE void sg_tenant_acknowledges(struct sg_flow *flow, const struct sg_segment *seg,
				      sg_u64 now_ns, const struct sg_params *params,
				      struct sg_verdict *out)
{
	if (!(seg->tcp_flags & SG_ACK))
		return;
	if (sg_unlikely(sg_acks_ahead(flow, seg)))
		sg_ack_ahead(flow, seg, now_ns, params, out);
	/* Older than the last, or let go though it is ahead: nothing follows from it. */
	if (sg_unlikely(sg_seq_lt(seg->ack, flow->rcv_nxt) || (sg_acks_ahead(flow, seg) &&
							       !(out->edits & SG_EDIT_ACK))))
		return;
	sg_advertised(flow, out->edits & SG_EDIT_ACK ? out->ack : seg->ack, seg->window);
}

/*
 * The tenant's data have an ACK number with which no receiver's host takes them for the flow's
 * (sg_is_genuine): none at all, one much older than the last, or one of data that never came by.
 * They would pass that host uncounted. No stack sends such data.
 */
SG_INLINE int sg_ack_is_odd(const struct sg_flow *flow, const struct sg_segment *seg,
			    const struct sg_verdict *out)
{
	sg_u32 old = flow->rcv_nxt - seg->ack;

	return !(seg->tcp_flags & SG_ACK) || (old > 4U * flow->mss && old < 1U << 31) ||
	       (sg_acks_ahead(flow, seg) && !(out->edits & SG_EDIT_ACK));
}

/* The tenant signs its segments, which no handshake told: its headers stay as they are. */
SG_INLINE void sg_tenant_signs(struct sg_flow *flow)
{
	if (flow->mode != SG_MODE_WATCH)
		flow->marks |= SG_FLOW_SIGNS;
}

#endif /* SLUICE_RECEIVE_H */
