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

/* Edits are allowed: by the rule, by the flow's mode, by this packet's options. */
SG_INLINE int sg_may_edit(const struct sg_flow *flow, const struct sg_segment *seg,
			  const struct sg_params *params)
{
	return params->mode == SG_RULE_ENFORCE && flow->mode != SG_MODE_WATCH &&
	       !(seg->options & (SG_OPT_SIGNED | SG_OPT_MALFORMED));
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
	       flow->reason == SG_WHY_FEEDBACK_MISMATCH;
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
	flow->marks &= (sg_u8)~SG_FLOW_REFILLS;
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
	flow->marks &= (sg_u8)~SG_FLOW_REFILLS;
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
SG_INLINE void sg_repair(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
			 const struct sg_params *params, struct sg_verdict *out)
{
	if (sg_unlikely(flow->marks & SG_FLOW_REFILLS) &&
	    sg_since(now_ns, flow->progress_ns) < sg_rto_ns(flow, params))
		sg_infer_loss(flow, params, now_ns, out);
	else if (seg->seq == flow->snd_una)
		sg_head_repeated(flow, params, now_ns, out);
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
	flow->unreporting_acks = 0;
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
#define SG_REPORTING_ACK 2U

SG_INLINE int sg_reports(struct sg_flow *flow, const struct sg_segment *seg)
{
	if ((flow->flags & SG_FLOW_CE_UNREPORTED) || (seg->options & SG_OPT_SACK) ||
	    flow->fack_round != flow->snd_nxt)
		return 1;
	flow->unreporting_acks++;
	return flow->unreporting_acks >= SG_REPORTING_ACK;
}

SG_INLINE void sg_give_feedback(struct sg_flow *flow, const struct sg_segment *seg,
				struct sg_verdict *out)
{
	int pure_ack = !seg->payload && !(seg->tcp_flags & SG_FIN);

	/* Only hosts write this option; a tenant's own would be a forgery. */
	if (sg_unlikely(seg->options & SG_OPT_FEEDBACK))
		out->edits |= SG_EDIT_STRIP_FEEDBACK;
	if (!sg_peer_reads_feedback(flow))
		return;
	if (pure_ack && seg->header_len + SG_OPTION_LEN <= 60) {
		if (!sg_reports(flow, seg))
			return;
		out->edits |= SG_EDIT_ADD_FEEDBACK;
		sg_report(flow, out);
	} else if (sg_unlikely(sg_fack_due(flow))) {
		out->edits |= SG_EDIT_WANT_FACK;
		sg_report(flow, out);
	}
}

/* Sequence numbers of what comes to the tenant are not kept: any RST may be a good one. */
SG_INLINE int sg_rst_fits(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return seg->direction == SG_TO_TENANT ||
	       (sg_seq_ge(seg->seq, flow->snd_una) && sg_seq_le(seg->seq, flow->snd_nxt));
}

/*
 * A closed flow may be collected before an idle one. An RST may be one that the receiver
 * does not believe (RFC 5961 3.2); then traffic goes on, and the flow is open again. It
 * may go on after any silence: FINs both ways, acknowledged, are what a
 * table may rely on.
 */
SG_INLINE void sg_note_close(struct sg_flow *flow, const struct sg_segment *seg, sg_u8 mine,
			     struct sg_verdict *out)
{
	const sg_u8 both = SG_FLOW_FIN_SENT | SG_FLOW_FIN_SEEN;

	if (sg_likely(!(seg->tcp_flags & (SG_FIN | SG_RST)))) {
		if (sg_unlikely(flow->flags & SG_FLOW_CLOSED) && (flow->flags & both) != both) {
			flow->flags &= (sg_u8)~SG_FLOW_CLOSED;
			out->count = SG_COUNT_RST_OUTLIVED;
		}
		return;
	}
	if (seg->tcp_flags & SG_FIN)
		flow->flags |= mine;
	if ((flow->flags & both) == both ||
	    ((seg->tcp_flags & SG_RST) && sg_rst_fits(flow, seg)))
		flow->flags |= SG_FLOW_CLOSED;
	else if (seg->tcp_flags & SG_RST)
		out->count = SG_COUNT_RST_OUTLIVED;
}

SG_INLINE int sg_polices(const struct sg_flow *flow, const struct sg_params *params)
{
	return params->mode == SG_RULE_ENFORCE && (params->flags & SG_RULE_POLICE) &&
	       flow->mode != SG_MODE_WATCH;
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
	flow->marks |= SG_FLOW_UNSEEN;
	sg_rtt_retransmitted(flow);
}

/* Policing begins anew: the tenant may have been shown the largest window. */
SG_INLINE void sg_data_after_gap(struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 end = seg->seq + seg->payload;

	if (end - flow->snd_una > SG_UNSEEN_MAX)
		return;
	flow->marks &= (sg_u8)~SG_FLOW_UNSEEN;
	if (!(flow->flags & SG_FLOW_EDGE_KNOWN)) {
		flow->flags |= SG_FLOW_EDGE_KNOWN;
		flow->edge = end;
		flow->peer_window = 0xffff;
		flow->wire_window = 0xffff;
	}
	flow->edge = sg_seq_max(flow->edge, end + (0xffffU << (flow->wscale & 15)));
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
SG_NOINLINE int sg_adopt(struct sg_flow *flow, const struct sg_segment *seg,
			 const struct sg_params *params, struct sg_verdict *out)
{
	int heard_again = flow->reason == SG_WHY_ONE_DIRECTION &&
			  (flow->flags & SG_FLOW_EDGE_KNOWN);
	sg_u32 flight = sg_flight(flow);

	if ((!(flow->marks & SG_FLOW_ADOPTED) && !heard_again) || seg->payload)
		return 0;
	if (seg->options & (SG_OPT_SIGNED | SG_OPT_MPTCP | SG_OPT_MALFORMED)) {
		flow->marks &= (sg_u8)~SG_FLOW_ADOPTED;
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

/* Whether data of the tenant is dropped; *out says why. */
SG_INLINE int sg_police(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
			const struct sg_params *params, struct sg_verdict *out)
{
	if (sg_likely(!sg_police_exceeds(flow, seg))) {
		if (sg_likely(sg_seq_ge(seg->seq, flow->snd_nxt)) ||
		    sg_repeats(flow, params, seg->payload, now_ns))
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

/* A segment of an existing flow leaves the tenant. *out is zeroed by the caller. */
SG_INLINE int sg_from_tenant(struct sg_flow *flow, const struct sg_segment *seg,
			     sg_u64 now_ns, const struct sg_params *params,
			     struct sg_verdict *out)
{
	int may_edit = sg_may_edit(flow, seg, params);

	flow->seen_ns = now_ns;
	flow->marks |= SG_FLOW_SENT;
	sg_note_close(flow, seg, SG_FLOW_FIN_SENT, out);
	if (sg_unlikely(seg->tcp_flags & SG_RST))
		return 0;
	if (seg->payload || (seg->tcp_flags & SG_FIN)) {
		if (sg_unlikely(flow->marks & SG_FLOW_UNSEEN))
			sg_data_after_gap(flow, seg);
		if (sg_polices(flow, params)) {
			if (sg_unlikely(!may_edit && sg_police_exceeds(flow, seg)))
				return 0; /* not ours to drop, nor to believe */
			if (may_edit && sg_police(flow, seg, now_ns, params, out))
				return 0;
			may_edit = sg_may_edit(flow, seg, params);
		} else if (params->mode == SG_RULE_OBSERVE && flow->mode != SG_MODE_WATCH &&
			   sg_unlikely(sg_police_exceeds(flow, seg))) {
			out->count = SG_COUNT_WOULD_POLICE;
		}
		if (sg_unlikely(flow->marks & SG_FLOW_ADOPTED))
			sg_learn_sent(flow, seg);
		sg_data_sent(flow, seg, now_ns, params, out);
	}
	if (sg_unlikely(!may_edit || flow->mode != SG_MODE_TWO_SIDED)) {
		/* The peer's host may not have noticed the fallback, and would believe the tenant. */
		if (may_edit && (seg->options & SG_OPT_FEEDBACK) && sg_once_two_sided(flow))
			out->edits |= SG_EDIT_STRIP_FEEDBACK;
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
	out->count = reason == SG_WHY_FEEDBACK_STOPPED ? SG_COUNT_FEEDBACK_STOPPED :
							  SG_COUNT_FEEDBACK_MISMATCH;
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
		flow->marks &= (sg_u8)~SG_FLOW_REFILLS;
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
	sg_pass_marks(flow);
	flow->dupacks = sg_dupacks_left(flow, ack.acked);
	sg_holes_passed(flow);
	ack.snd_una = flow->snd_una;
	ack.window_used = (sg_u8)sg_window_used(flow, flight);
	ack.in_recovery = !!(flow->flags & SG_FLOW_RECOVERY);
	if (sg_unlikely(flow->marks & SG_FLOW_UNMARKED) && flow->bytes_marked)
		flow->marks &= (sg_u8)~SG_FLOW_UNMARKED;
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
SG_INLINE void sg_ack_repeats(struct sg_flow *flow, const struct sg_segment *seg,
			      sg_u64 now_ns, const struct sg_params *params,
			      struct sg_verdict *out)
{
	if (seg->payload || (seg->tcp_flags & SG_FIN) || !seg->window ||
	    seg->window != flow->peer_window || flow->snd_una == flow->snd_nxt)
		return;
	if (seg->options & SG_OPT_SACK) {
		flow->flags |= SG_FLOW_SACK_SEEN;
		if (!sg_sack_is_new(flow, seg))
			return;
	} else if (flow->flags & SG_FLOW_SACK_SEEN) {
		return;
	}
	flow->dupacks += flow->dupacks < 0xffff;
	if (flow->dupacks == 3 && sg_may_infer_loss(flow))
		sg_infer_loss(flow, params, now_ns, out);
}

/*
 * An ACK of data that was never seen. The tenant may have sent it, within its window (a
 * packet that could not be read): then it is shown the enforced window, and not policed
 * for using it. Of more than that nothing is believed, unless packets are known to have
 * passed unseen: a receiver could open any edge for its sender.
 */
SG_INLINE void sg_ack_beyond(struct sg_flow *flow, const struct sg_segment *seg,
			     const struct sg_params *params, struct sg_verdict *out)
{
	sg_u32 window = sg_room(flow->edge, flow->snd_una);
	sg_u32 beyond = seg->ack - flow->snd_nxt, shift = flow->wscale & 15, wire = seg->window;

	if (flow->mode == SG_MODE_WATCH) {
		flow->snd_una = seg->ack;
		flow->snd_nxt = seg->ack;
		return;
	}
	out->count = SG_COUNT_ACK_BEYOND;
	if (flow->marks & SG_FLOW_UNSEEN ? beyond > SG_UNSEEN_MAX :
					   beyond > sg_max32(window, flow->cc.cwnd) + flow->mss)
		return;
	if (sg_may_edit(flow, seg, params)) {
		wire = sg_min32(wire, sg_window_to_wire(flow->cc.cwnd, shift));
		out->edits |= wire != seg->window ? SG_EDIT_WINDOW : 0;
		out->window = (sg_u16)wire;
	}
	flow->edge = sg_seq_max(flow->edge, seg->ack + (wire << shift));
}

/*
 * Stacks ignore the window of an ACK older than the last (RFC 9293 3.10.7.4), but
 * what two CPUs carry may reach the tenant in the other order. So it shows no
 * more than has been shown. One that is older than any window (RFC 5961 5.2) is of another
 * connection, and its edge none of this one's.
 */
SG_INLINE void sg_ack_late(struct sg_flow *flow, const struct sg_segment *seg,
			   const struct sg_params *params, struct sg_verdict *out)
{
	sg_u32 shift = flow->wscale & 15;
	sg_u32 room = sg_room(flow->edge, seg->ack);
	/* Rounded down, or each of them would push the edge; but not below the smallest window. */
	sg_u32 wire = sg_max32(room >> shift,
			       sg_window_to_wire(sg_cc_floor(&flow->cc, params), shift));

	if (wire >= seg->window || !sg_may_edit(flow, seg, params))
		return;
	out->edits |= SG_EDIT_WINDOW;
	out->window = (sg_u16)wire;
	if (flow->snd_una - seg->ack <= SG_TCP_WINDOW_MAX)
		flow->edge = sg_seq_max(flow->edge, seg->ack + (wire << shift));
}

/* The acknowledgement number, and the window that goes with it. */
SG_INLINE void sg_ack_arrives(struct sg_flow *flow, const struct sg_segment *seg,
			      sg_u64 now_ns, const struct sg_params *params,
			      struct sg_verdict *out)
{
	int advances = sg_seq_gt(seg->ack, flow->snd_una);
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
	if (sg_may_edit(flow, seg, params)) {
		wire = sg_window_field(flow, params, seg, advances, now_ns);
	} else if (params->mode == SG_RULE_OBSERVE && flow->mode != SG_MODE_WATCH && advances) {
		would = sg_window_field(flow, params, seg, advances, now_ns);
		out->edits |= would < seg->window ? SG_EDIT_WOULD_LOWER : 0;
	}
	if (wire != seg->window) {
		out->edits |= SG_EDIT_WINDOW;
		out->window = wire;
	}
	sg_window_shown(flow, seg, wire, flow->wscale);
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

/* What only two enforcing hosts do: count, take feedback, hide ECN. */
SG_INLINE void sg_two_sided_arrival(struct sg_flow *flow, const struct sg_segment *seg,
				    struct sg_verdict *out)
{
	if (seg->payload)
		sg_feedback_count(flow, seg);
	if ((seg->tcp_flags & SG_ACK) && sg_seq_gt(seg->ack, flow->snd_una) &&
	    sg_seq_le(seg->ack, flow->snd_nxt)) {
		sg_s64 uncounted = (sg_s64)flow->uncounted + (seg->ack - flow->snd_una);

		flow->uncounted = (sg_s32)(uncounted < SG_UNCOUNTED_MAX ? uncounted :
									  SG_UNCOUNTED_MAX);
	}
	if (seg->options & SG_OPT_FEEDBACK) {
		out->edits |= SG_EDIT_STRIP_FEEDBACK;
		/* Who cannot tell what is being acknowledged is no host on the path. */
		if (!sg_ack_plausible(flow, seg) || !sg_feedback_take(flow, seg))
			out->count = SG_COUNT_FEEDBACK_STALE;
	}
	sg_edit_ecn(out, seg, SG_NOT_ECT);
	if (sg_unlikely(seg->tcp_flags & SG_ECE)) {
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
	return !(seg->options & (SG_OPT_SIGNED | SG_OPT_MALFORMED)) &&
	       (flow->mode == SG_MODE_TWO_SIDED || sg_once_two_sided(flow));
}

/* A segment of an existing flow arrives for the tenant. *out is zeroed by the caller. */
SG_INLINE int sg_to_tenant(struct sg_flow *flow, const struct sg_segment *seg,
			   sg_u64 now_ns, const struct sg_params *params,
			   struct sg_verdict *out)
{
	flow->seen_ns = now_ns;
	flow->marks |= SG_FLOW_HEARD;
	sg_note_close(flow, seg, SG_FLOW_FIN_SEEN, out);
	if (sg_unlikely(seg->tcp_flags & SG_RST))
		return 0;
	flow->bytes_received += seg->payload;
	if (flow->mode == SG_MODE_TWO_SIDED && sg_may_edit(flow, seg, params))
		sg_two_sided_arrival(flow, seg, out);
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
	return 0;
}

#endif /* SLUICE_ENFORCE_H */
