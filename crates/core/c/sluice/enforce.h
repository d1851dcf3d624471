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

#include "cc.h"
#include "feedback.h"
#include "flow.h"
#include "police.h"
#include "rtt.h"
#include "segment.h"
#include "seq.h"
#include "window.h"

/* Feedback in a packet of its own is worth it from this many bytes on. */
#define SG_FACK_BYTES 0xffffU

/* So many data segments in a row without any ECN codepoint: the peer's host is gone. */
#define SG_NOT_ECT_SEGMENTS 16U

/*
 * Edits of the TCP header are allowed: by the rule, by the flow's mode. Not by the segment's
 * own options, which its sender chooses: a peer could show its sender any window else. The
 * fixed header is where it is whatever the options are, and a connection is known to be
 * signed from its handshake, or since its tenant signs.
 */
SG_INLINE int sg_may_edit(const struct sg_flow *flow, const struct sg_params *params)
{
	return params->mode == SG_RULE_ENFORCE && flow->mode != SG_MODE_WATCH &&
	       !(flow->marks & SG_FLOW_SIGNS);
}

/* Options that a governed flow's ACKs have no reason to carry. */
#define SG_OPT_ODD (SG_OPT_SIGNED | SG_OPT_MALFORMED)

SG_INLINE void sg_note_odd_options(struct sg_flow *flow, const struct sg_segment *seg,
				   struct sg_verdict *out)
{
	if (sg_likely(!(seg->options & SG_OPT_ODD)) || flow->mode == SG_MODE_WATCH)
		return;
	flow->marks |= SG_FLOW_ODD_OPTIONS;
	out->count = SG_COUNT_ODD_OPTIONS;
}

/*
 * An option goes behind the others. Where they end before the header does, no parser would
 * find it there: the end, and padding or what is malformed behind it, become NOPs.
 */
SG_INLINE void sg_add_option(struct sg_verdict *out, const struct sg_segment *seg, sg_u16 edit)
{
	out->edits |= edit;
	if (sg_unlikely(seg->end_at))
		out->edits |= SG_EDIT_BLANK_REST;
}

/*
 * A tenant is no host, though its peer's host would believe what only hosts write. Removed
 * whatever is known of the flow; a signed header stays, and no host reads a malformed one.
 */
SG_INLINE void sg_refuse_claims(const struct sg_segment *seg, const struct sg_params *params,
				sg_u16 claims, struct sg_verdict *out)
{
	if (seg->direction != SG_FROM_TENANT || params->mode != SG_RULE_ENFORCE ||
	    (seg->options & SG_OPT_ODD))
		return;
	claims &= seg->options;
	if (claims & SG_OPT_FEEDBACK)
		out->edits |= SG_EDIT_STRIP_FEEDBACK;
	if (claims & SG_OPT_PEER)
		out->edits |= SG_EDIT_STRIP_PEER;
}

SG_INLINE sg_u32 sg_algorithm_of(const struct sg_flow *flow, const struct sg_params *params)
{
	if (flow->mode < SG_MODE_TWO_SIDED)
		return params->one_sided;
	return flow->marks & SG_FLOW_UNMARKED ? params->fallback : params->algorithm;
}

/* The same, once congestion control has followed what the policy or the path has changed. */
SG_INLINE sg_u32 sg_algorithm_now(struct sg_flow *flow, const struct sg_params *params)
{
	sg_u32 algorithm = sg_algorithm_of(flow, params);

	if (sg_unlikely(flow->cc.algorithm != algorithm))
		sg_cc_change(&flow->cc, params, algorithm, flow->snd_nxt);
	return algorithm;
}

/* Two-sided until the peer's feedback ended. */
SG_INLINE int sg_once_two_sided(const struct sg_flow *flow)
{
	return flow->reason == SG_WHY_FEEDBACK_STOPPED ||
	       flow->reason == SG_WHY_FEEDBACK_MISMATCH || flow->reason == SG_WHY_DATA_UNSEEN;
}

/*
 * The peer's host may take this flow for two-sided, and would believe the tenant: it has not
 * noticed the fallback, or it knows the connection from its handshake, as we do not.
 */
SG_INLINE int sg_peer_may_believe(const struct sg_flow *flow)
{
	return sg_once_two_sided(flow) || (flow->marks & SG_FLOW_ADOPTED) ||
	       flow->reason == SG_WHY_ONE_DIRECTION;
}

SG_INLINE void sg_edit_ecn(struct sg_verdict *out, const struct sg_segment *seg, sg_u8 ecn)
{
	if (seg->ecn == ecn)
		return;
	out->edits |= SG_EDIT_ECN;
	out->ecn = ecn;
}

/* What congestion control is told of the sequence space as it is now. */
SG_INLINE void sg_ack_facts(struct sg_cc_ack *ack, const struct sg_flow *flow, sg_u64 now_ns)
{
	ack->now_ns = now_ns;
	ack->acked = 0;
	ack->marked = 0;
	ack->rtt_ns = 0;
	ack->min_rtt_ns = flow->min_rtt_ns;
	ack->snd_una = flow->snd_una;
	ack->snd_nxt = flow->snd_nxt;
	ack->flight = sg_flight(flow);
	ack->window_used = 0;
	ack->in_recovery = !!(flow->flags & SG_FLOW_RECOVERY);
	ack->pad[0] = 0;
	ack->pad[1] = 0;
}

/* Loss is inferred once per window: recovery lasts until all that is out is acknowledged. */
SG_INLINE void sg_enter_recovery(struct sg_flow *flow)
{
	flow->flags |= SG_FLOW_RECOVERY;
	flow->marks &= (sg_u16)~SG_FLOW_REFILLS;
	flow->recover = flow->snd_nxt;
}

SG_INLINE int sg_may_infer_loss(const struct sg_flow *flow)
{
	return !(flow->flags & SG_FLOW_RECOVERY) && sg_seq_ge(flow->snd_una, flow->recover) &&
	       !sg_holes(flow);
}

/*
 * A switch that marks does so long before it drops. Where several windows have lost packets
 * and none ever met a mark, nothing on the path marks: an algorithm that waits for
 * marks would only be Reno, and the rule names another. One or two losses may be a
 * host's own, short of CPU time.
 */
#define SG_UNMARKED_LOSSES 8U

SG_INLINE void sg_note_unmarked(struct sg_flow *flow, const struct sg_params *params,
				struct sg_verdict *out)
{
	if (flow->mode != SG_MODE_TWO_SIDED || flow->bytes_marked ||
	    (flow->marks & SG_FLOW_UNMARKED) || params->fallback == params->algorithm ||
	    flow->losses + flow->timeouts < SG_UNMARKED_LOSSES)
		return;
	flow->marks |= SG_FLOW_UNMARKED;
	out->count = SG_COUNT_FLOW_UNMARKED;
}

SG_INLINE void sg_infer_loss(struct sg_flow *flow, const struct sg_params *params,
			     sg_u64 now_ns, struct sg_verdict *out)
{
	struct sg_cc_ack ack;

	sg_ack_facts(&ack, flow, now_ns);
	sg_cc_on_loss(&flow->cc, params, sg_algorithm_now(flow, params), &ack);
	sg_enter_recovery(flow);
	flow->losses += flow->losses < 0xffff;
	out->count = SG_COUNT_LOSS;
	sg_note_unmarked(flow, params, out);
}

SG_INLINE void sg_infer_timeout(struct sg_flow *flow, const struct sg_params *params,
				sg_u64 now_ns, struct sg_verdict *out)
{
	struct sg_cc_ack ack;

	sg_ack_facts(&ack, flow, now_ns);
	sg_cc_on_timeout(&flow->cc, params, sg_algorithm_now(flow, params), &ack);
	/* Slow start begins at once; duplicates of what is out are no new loss (RFC 6582 4). */
	flow->flags &= (sg_u8)~SG_FLOW_RECOVERY;
	flow->marks &= (sg_u16)~SG_FLOW_REFILLS;
	flow->recover = flow->snd_nxt;
	flow->progress_ns = now_ns;
	flow->dupacks = 0;
	flow->timeouts += flow->timeouts < 0xffff;
	out->count = SG_COUNT_TIMEOUT;
	sg_note_unmarked(flow, params, out);
}

/*
 * The tenant repeats the oldest outstanding data. After a silence of an RTO that
 * is its timeout (no timer of ours is needed: the tenant's own tells us). With
 * fewer than three duplicates it is a stack with RACK that knows better.
 */
SG_INLINE void sg_head_repeated(struct sg_flow *flow, const struct sg_params *params,
				sg_u64 now_ns, struct sg_verdict *out)
{
	if (!flow->peer_window)
		return; /* a probe of a closed window: the peer's application is slow */
	if (sg_since(now_ns, flow->progress_ns) >= sg_rto_ns(flow, params))
		sg_infer_timeout(flow, params, now_ns, out);
	else if (flow->dupacks && sg_may_infer_loss(flow))
		sg_infer_loss(flow, params, now_ns, out);
}

/* The tenant repeats what was in the network. */
SG_RARE int sg_repair(struct sg_flow *flow SG_NONNULL,
		      const struct sg_segment *seg SG_NONNULL, sg_u64 now_ns,
		      const struct sg_params *params SG_NONNULL,
		      struct sg_verdict *out SG_NONNULL)
{
	if (sg_unlikely(flow->marks & SG_FLOW_REFILLS) &&
	    sg_since(now_ns, flow->progress_ns) < sg_rto_ns(flow, params))
		sg_infer_loss(flow, params, now_ns, out);
	else if (seg->seq == flow->snd_una)
		sg_head_repeated(flow, params, now_ns, out);
	return 0;
}

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
			if (!sg_hole_filled(flow, seg->payload))
				sg_repair(flow, seg, now_ns, params, out);
		}
	} else {
		if (sg_unlikely(flow->snd_una == flow->snd_nxt)) {
			if (sg_since(now_ns, flow->progress_ns) >= sg_rto_ns(flow, params))
				sg_restart(flow, params);
			flow->progress_ns = now_ns;
		}
		sg_rtt_sent(flow, end, now_ns);
	}
	flow->snd_nxt = sg_seq_max(flow->snd_nxt, end);
}

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
	if (sg_unlikely(seg->options & (SG_OPT_FEEDBACK | SG_OPT_MALFORMED)) && !signs) {
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

/* What of the tenant's sequence space an RST of its may name. */
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

/* The tenant acknowledges data that has not come for it. */
SG_INLINE int sg_acks_ahead(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return flow->mode == SG_MODE_TWO_SIDED && (seg->tcp_flags & SG_ACK) &&
	       sg_seq_gt(seg->ack, flow->rcv_high);
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

/* More data than this does not pass unseen: what claims it is none of this flow. */
#define SG_UNSEEN_MAX (1U << 28)

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

/* The largest payload that is one segment for sure; super-packets are larger. */
#define SG_SEGMENT_MAX 8960U

/* Data of the tenant within windows that have all been seen. */
SG_NOINLINE int sg_learn_sent(struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 flight = seg->seq + seg->payload - flow->snd_una, shift = flow->wscale & 15;

	if (!(flow->marks & SG_FLOW_SCALE_BOUND))
		return 0;
	if (seg->payload > flow->mss) {
		flow->mss = (sg_u16)sg_min32(seg->payload, SG_SEGMENT_MAX);
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
 * By a pure ACK, whose options are read, something is acknowledged that was seen to leave: from here on all that is in flight is
 * known, and the flow may be governed, from the window that it has. Its ACKs are back
 * where they had bypassed the hook.
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
	flow->cc.cwnd = sg_cc_bounded(&flow->cc, params, sg_max32(flow->cc.cwnd, flight));
	flow->cc.ssthresh = flow->cc.cwnd;
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
		sg_hole_made(flow, seg->seq + seg->payload);
	}
	flow->policed += flow->policed < 0xffff;
	out->action = SG_DROP;
	return 1;
}

/*
 * Where a connection is only watched, data beyond a gap begin it anew: adopted, it will have
 * the window that was seen to leave, not one that a single segment far ahead spans.
 */
SG_INLINE void sg_watch_from(struct sg_flow *flow, sg_u32 seq)
{
	if (flow->mode != SG_MODE_WATCH || sg_seq_le(seq, flow->snd_nxt))
		return;
	flow->snd_una = seq;
	flow->snd_nxt = seq;
	sg_rtt_forget(flow);
}

/*
 * So long may ACKs be ahead of all that comes. A sender that lost its ACK has repeated by
 * then what passed here unseen; if nothing comes even so, the data take another path.
 */
#define SG_AHEAD_LIMIT_NS 400000000ULL

/* What a few super-packets carry: more does not pass unseen on a busy CPU. */
#define SG_RCV_UNSEEN_MAX (256U << 10)

SG_INLINE void sg_fall_back(struct sg_flow *flow, const struct sg_params *params,
			    sg_u8 reason, struct sg_verdict *out);

/*
 * The tenant acknowledges what has not come for it: such ACKs make its sender's RTT as short
 * as it likes, and the smallest window in a tiny RTT is a large rate. No stack does so, and this
 * host knows: the number is corrected to what has come. Returns the number to believe.
 */
SG_RARE int sg_ack_ahead(struct sg_flow *flow SG_NONNULL,
			 const struct sg_segment *seg SG_NONNULL, sg_u64 now_ns,
			 const struct sg_params *params SG_NONNULL,
			 struct sg_verdict *out SG_NONNULL)
{
	sg_u32 now = (sg_u32)(now_ns >> 10);
	int unseen = (flow->marks & SG_FLOW_RCV_UNSEEN) &&
		     seg->ack - flow->rcv_high <= SG_RCV_UNSEEN_MAX;

	if (params->mode != SG_RULE_ENFORCE || unseen) {
		flow->marks &= (sg_u16)~(SG_FLOW_RCV_UNSEEN | SG_FLOW_AHEAD);
		flow->rcv_high = seg->ack;
		return 0;
	}
	if (!(flow->marks & SG_FLOW_AHEAD)) {
		flow->marks |= SG_FLOW_AHEAD | SG_FLOW_ACKED_AHEAD;
		flow->ahead_time = now;
	} else if (now - flow->ahead_time > SG_AHEAD_LIMIT_NS >> 10) {
		sg_fall_back(flow, params, SG_WHY_DATA_UNSEEN, out);
		return 0;
	}
	out->edits |= SG_EDIT_ACK;
	out->ack = flow->rcv_high;
	out->count = SG_COUNT_ACK_AHEAD;
	return 0;
}

/* What the tenant of a two-sided flow says of what it has received, and will take. */
SG_INLINE void sg_tenant_acknowledges(struct sg_flow *flow, const struct sg_segment *seg,
				      sg_u64 now_ns, const struct sg_params *params,
				      struct sg_verdict *out)
{
	if (!(seg->tcp_flags & SG_ACK))
		return;
	if (sg_unlikely(sg_acks_ahead(flow, seg)))
		sg_ack_ahead(flow, seg, now_ns, params, out);
	else if (sg_unlikely(sg_seq_lt(seg->ack, flow->rcv_nxt)))
		return;
	flow->rcv_nxt = out->edits & SG_EDIT_ACK ? out->ack : seg->ack;
	flow->rcv_window = seg->window;
}

/* The tenant signs its segments, which no handshake told: its headers stay as they are. */
SG_INLINE void sg_tenant_signs(struct sg_flow *flow)
{
	if (flow->mode != SG_MODE_WATCH)
		flow->marks |= SG_FLOW_SIGNS;
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
	if (flow->mode == SG_MODE_TWO_SIDED)
		sg_tenant_acknowledges(flow, seg, now_ns, params, out);
	if (sg_unlikely(params->mode != SG_RULE_ENFORCE || flow->mode != SG_MODE_TWO_SIDED)) {
		if ((seg->options & SG_OPT_FEEDBACK) && sg_peer_may_believe(flow))
			sg_refuse_claims(seg, params, SG_OPT_FEEDBACK, out);
		return 0;
	}
	sg_edit_ecn(out, seg, SG_ECT0);
	sg_give_feedback(flow, seg, out);
	return 0;
}

/* The peer's help has ended: go on with what one end can do. */
SG_INLINE void sg_fall_back(struct sg_flow *flow, const struct sg_params *params,
			    sg_u8 reason, struct sg_verdict *out)
{
	flow->mode = SG_MODE_ONE_SIDED;
	flow->reason = reason;
	sg_cc_change(&flow->cc, params, params->one_sided, flow->snd_nxt);
	out->count = reason == SG_WHY_FEEDBACK_STOPPED  ? SG_COUNT_FEEDBACK_STOPPED :
		     reason == SG_WHY_FEEDBACK_MISMATCH ? SG_COUNT_FEEDBACK_MISMATCH :
							  SG_COUNT_FLOW_DATA_UNSEEN;
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

/* snd_una advances. */
SG_INLINE void sg_ack_advances(struct sg_flow *flow, const struct sg_segment *seg,
			       sg_u64 now_ns, const struct sg_params *params,
			       struct sg_verdict *out)
{
	sg_u32 flight = sg_flight(flow);
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
	flow->bytes_acked += ack.acked;
	flow->snd_una = seg->ack;
	flow->progress_ns = now_ns;
	if (sg_unlikely(flow->marked_pending))
		sg_bound_pending(flow);
	sg_pass_marks(flow);
	flow->dupacks = sg_dupacks_left(flow, ack.acked);
	sg_holes_passed(flow);
	ack.snd_una = flow->snd_una;
	ack.window_used = (sg_u8)sg_window_used(flow, flight);
	ack.in_recovery = !!(flow->flags & SG_FLOW_RECOVERY);
	if (sg_unlikely(flow->marks & SG_FLOW_UNMARKED) && flow->bytes_marked)
		flow->marks &= (sg_u16)~SG_FLOW_UNMARKED;
	sg_cc_on_ack(&flow->cc, params, sg_algorithm_now(flow, params), &ack);
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

	if (flow->mode == SG_MODE_WATCH) {
		flow->snd_una = seg->ack;
		flow->snd_nxt = seg->ack;
		return 0;
	}
	out->count = SG_COUNT_ACK_BEYOND;
	if (flow->marks & SG_FLOW_UNSEEN ? beyond > SG_UNSEEN_MAX :
					   beyond > sg_max32(window, flow->cc.cwnd) + flow->mss)
		return 0;
	if (sg_may_edit(flow, params)) {
		wire = sg_min32(wire, sg_window_to_wire(flow->cc.cwnd, shift));
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
			      struct sg_verdict *out)
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
		sg_ack_advances(flow, seg, now_ns, params, out);
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
 */
SG_INLINE int sg_is_genuine(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return !seg->damaged && (seg->tcp_flags & SG_ACK) &&
	       (sg_likely(seg->ack == flow->snd_una) || sg_ack_plausible(flow, seg));
}

/* The tenant's stack will take data of this segment: they are new, and within its window. */
SG_INLINE int sg_is_receivable(const struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 end = seg->seq + seg->payload;

	return sg_seq_gt(end, flow->rcv_nxt) && end - flow->rcv_nxt <= sg_rcv_window(flow);
}

/* Two-sided: data or a FIN for the tenant. What it cannot take counts for nothing. */
SG_INLINE void sg_data_come(struct sg_flow *flow, const struct sg_segment *seg,
			    const struct sg_params *params)
{
	sg_u32 end = seg->seq + seg->payload + !!(seg->tcp_flags & SG_FIN);

	if (sg_likely(seg->payload && sg_is_receivable(flow, seg))) {
		flow->bytes_received += seg->payload;
		if (sg_likely(params->mode == SG_RULE_ENFORCE))
			sg_feedback_count(flow, seg);
	}
	if (sg_likely(sg_seq_gt(end, flow->rcv_high))) {
		flow->rcv_high = end;
		flow->marks &= (sg_u16)~SG_FLOW_AHEAD;
	}
}

/* Two-sided: a segment for the tenant that is not of the flow, as far as can be known. */
SG_INLINE int sg_is_stranger(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return !sg_is_near(flow, seg) ||
	       ((seg->payload || (seg->tcp_flags & SG_FIN)) && !sg_is_genuine(flow, seg));
}

/*
 * It changes nothing of the flow. Should its tenant take it after all, its window is no
 * larger than the last one, or is that of an ACK of what was never seen.
 */
SG_RARE int sg_stranger_arrives(struct sg_flow *flow SG_NONNULL,
				const struct sg_segment *seg SG_NONNULL,
				const struct sg_params *params SG_NONNULL,
				struct sg_verdict *out SG_NONNULL)
{
	if (params->mode == SG_RULE_ENFORCE)
		sg_edit_ecn(out, seg, SG_NOT_ECT);
	if (seg->options & SG_OPT_FACK)
		out->action = SG_CONSUME;
	if (sg_is_near(flow, seg) && sg_seq_gt(seg->ack, flow->snd_nxt)) {
		sg_ack_beyond(flow, seg, params, out);
	} else if (seg->window > flow->wire_window && sg_may_edit(flow, params)) {
		out->edits |= SG_EDIT_WINDOW;
		out->window = flow->wire_window;
	}
	out->count = seg->tcp_flags & SG_RST ? SG_COUNT_RST_OUTLIVED : SG_COUNT_STRANGER;
	if (seg->payload)
		flow->marks |= SG_FLOW_STRANGERS;
	return 0;
}

/* What only two enforcing hosts do: count, take feedback, hide ECN. */
SG_INLINE void sg_two_sided_arrival(struct sg_flow *flow, const struct sg_segment *seg,
				    const struct sg_params *params, struct sg_verdict *out)
{
	int signs = flow->marks & SG_FLOW_SIGNS;

	if (seg->payload || (seg->tcp_flags & SG_FIN))
		sg_data_come(flow, seg, params);
	if (sg_unlikely(params->mode != SG_RULE_ENFORCE))
		return;
	if ((seg->tcp_flags & SG_ACK) && sg_seq_gt(seg->ack, flow->snd_una) &&
	    sg_seq_le(seg->ack, flow->snd_nxt)) {
		sg_s64 uncounted = (sg_s64)flow->uncounted + (seg->ack - flow->snd_una);

		flow->uncounted = (sg_s32)(uncounted < SG_UNCOUNTED_MAX ? uncounted :
									  SG_UNCOUNTED_MAX);
	}
	sg_edit_ecn(out, seg, SG_NOT_ECT);
	/* A host leaves no malformed option behind: no feedback is a host's there. */
	if ((seg->options & (SG_OPT_FEEDBACK | SG_OPT_MALFORMED)) == SG_OPT_FEEDBACK) {
		out->edits |= signs ? 0 : SG_EDIT_STRIP_FEEDBACK;
		/* Who cannot tell what is being acknowledged is no host on the path. */
		if (!sg_ack_plausible(flow, seg) || !sg_feedback_take(flow, seg))
			out->count = SG_COUNT_FEEDBACK_STALE;
	}
	if (sg_unlikely(seg->tcp_flags & SG_ECE) && !signs) {
		out->edits |= SG_EDIT_CLEAR_FLAGS;
		out->clear_flags = SG_ECE;
	}
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
			   struct sg_verdict *out)
{
	int two_sided = flow->mode == SG_MODE_TWO_SIDED;

	flow->seen_ns = now_ns;
	flow->marks |= SG_FLOW_HEARD;
	if (two_sided && sg_unlikely(sg_is_stranger(flow, seg)))
		return sg_stranger_arrives(flow, seg, params, out);
	sg_note_close(flow, seg, SG_FLOW_FIN_SEEN, 1, out);
	if (sg_unlikely(seg->tcp_flags & SG_RST))
		return 0;
	if (two_sided)
		sg_two_sided_arrival(flow, seg, params, out);
	else
		flow->bytes_received += seg->payload;
	if (sg_unlikely(seg->options & SG_OPT_FACK) && sg_consumes_fack(flow, seg)) {
		out->action = SG_CONSUME;
		out->count = SG_COUNT_FACK_TAKEN;
		return 0;
	}
	if (seg->tcp_flags & SG_ACK) {
		if (sg_unlikely(flow->marks & SG_FLOW_ADOPTED))
			sg_learn_window(flow, seg);
		sg_ack_arrives(flow, seg, now_ns, params, out);
	}
	sg_note_odd_options(flow, seg, out);
	return 0;
}

#endif /* SLUICE_ENFORCE_H */
