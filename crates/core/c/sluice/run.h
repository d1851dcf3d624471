/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Runs: segments of one flow that pass at the same time, each behind the one before, and alike but
 * for their numbers and lengths. They are data, or ACKs without data.
 *
 * A kernel that enforces sees data of a run as one packet, since its stack has not cut them yet, or
 * has put them together (GRO); the step takes it as one segment. A caller that has the segments one
 * by one steps the first of a run, lets those behind it pass with the same verdict, as many bytes
 * as sg_run_room() says, and then calls sg_run_step() with these as one segment, before the flow
 * sees anything else. What the flow is then, their steps one by one would have made of it.
 *
 * ACKs are stepped likewise while they move no window: that of the flow is not full, so that it
 * earns no growth; no mark is to be answered, no RTT sample taken, no round ended. `bytes` of such
 * a run are those that are acknowledged.
 */
#ifndef SLUICE_RUN_H
#define SLUICE_RUN_H

#include "enforce.h"

/* No more: longer segments do not exist. */
#define SG_RUN_MAX 0xffffU

/* Bytes behind snd_nxt of which none begins an RTT sample, or tells the size of segments. */
SG_INLINE sg_u32 sg_run_untimed(const struct sg_flow *flow)
{
	sg_u32 next = sg_seq_max(flow->rtt_next, flow->snd_una + sg_mss_enough(flow)) - 1;

	if (sg_seq_lt(flow->snd_una, flow->karn_end))
		return SG_RUN_MAX;
	return sg_room(next, flow->snd_nxt);
}

/* The tenant sends: within the edge that it was shown, and behind all that it has sent. */
SG_INLINE sg_u32 sg_run_sent(const struct sg_flow *flow, const struct sg_segment *seg)
{
	if (seg->seq + seg->payload != flow->snd_nxt || !(flow->flags & SG_FLOW_EDGE_KNOWN))
		return 0;
	/* What it acknowledges is known already, so that the run says nothing new of it. */
	if ((flow->marks & SG_FLOW_RCV_KNOWN) && seg->ack != flow->rcv_nxt)
		return 0;
	return sg_min32(sg_room(flow->edge, flow->snd_nxt), sg_run_untimed(flow));
}

/* It receives: behind all that has come, within its window, and acknowledging nothing new. */
SG_INLINE sg_u32 sg_run_received(const struct sg_flow *flow, const struct sg_segment *seg)
{
	if (!(flow->marks & SG_FLOW_RCV_KNOWN) || seg->seq + seg->payload != flow->rcv_high ||
	    seg->ack != flow->snd_una || seg->window != flow->peer_window)
		return 0;
	/* Segments without a codepoint are counted one by one. */
	if (flow->mode == SG_MODE_TWO_SIDED && seg->ecn != SG_ECT0)
		return 0;
	return sg_room(flow->rcv_nxt + sg_rcv_window(flow), flow->rcv_high);
}

/* Whether a pure ACK of the tenant has room for feedback, and nothing that is to be seen to. */
SG_INLINE int sg_run_is_plain_ack(const struct sg_segment *seg)
{
	return seg->tcp_flags == SG_ACK && !(seg->options & ~SG_OPT_FEEDBACK) &&
	       seg->header_len + SG_OPTION_LEN <= 60;
}

/*
 * The tenant acknowledges, in place, less than has come for it. Its window is as far as its edge,
 * and all feedback is with the peer, so that what further ACKs report is known there.
 */
SG_INLINE sg_u32 sg_run_acknowledges(const struct sg_flow *flow, const struct sg_segment *seg)
{
	const sg_u16 known = SG_FLOW_RCV_KNOWN;

	if ((flow->marks & (known | SG_FLOW_RCV_UNSEEN | SG_FLOW_SKIPPED_ACK)) != known ||
	    !sg_run_is_plain_ack(seg) || seg->seq != flow->snd_nxt || seg->ack != flow->rcv_nxt ||
	    seg->window != flow->rcv_window || (flow->flags & SG_FLOW_CE_UNREPORTED))
		return 0;
	if (flow->mode == SG_MODE_TWO_SIDED &&
	    (flow->unreported || flow->fack_round != flow->snd_nxt))
		return 0;
	return sg_room(flow->rcv_high, flow->rcv_nxt);
}

/* Bytes whose acknowledgement takes no RTT sample, ends no round, and no patience with feedback. */
SG_INLINE sg_u32 sg_run_uneventful(const struct sg_flow *flow)
{
	sg_u32 room = sg_min32(sg_room(flow->snd_nxt, flow->snd_una),
			       sg_room(flow->cc.round_end - 1, flow->snd_una));
	sg_u32 patience = 2 * flow->cc.cwnd + 8U * flow->mss;
	sg_u32 judged = flow->snd_una - flow->judge_start;
	sg_u64 counted = sg_max64(judged, flow->uncounted > 0 ? (sg_u64)flow->uncounted : 0);

	if (sg_seq_gt(flow->rtt_first, flow->snd_una))
		room = sg_min32(room, flow->rtt_first - 1 - flow->snd_una);
	/* Only a two-sided flow waits for feedback, whose absence would end its mode. */
	if (flow->mode != SG_MODE_TWO_SIDED)
		return room;
	return counted < patience ? sg_min32(room, patience - (sg_u32)counted) : 0;
}

/*
 * It is acknowledged, within what it has sent, and with the peer's window as it was. `seg` has
 * advanced snd_una: one that does not may show another window than one that does.
 */
SG_INLINE sg_u32 sg_run_acked(const struct sg_flow *flow, const struct sg_segment *seg)
{
	if (!(flow->flags & SG_FLOW_EDGE_KNOWN) || !sg_run_is_plain_ack(seg) ||
	    seg->seq != flow->rcv_nxt || seg->ack != flow->snd_una ||
	    seg->window != flow->peer_window)
		return 0;
	if ((flow->flags & SG_FLOW_RECOVERY) || flow->dupacks || flow->holes ||
	    flow->marked_pending || !(flow->cc.flags & SG_CC_STARTED))
		return 0;
	/* The window is that of the flow, not what covers its data, and is not full. */
	if (sg_flight_to_wire(flow, flow->snd_una) >= flow->wire_window ||
	    sg_window_used(flow, sg_flight(flow)))
		return 0;
	/* ACKs that come with one that found it full earn growth, one by one. */
	if ((flow->cc.flags & (SG_CC_FULL | SG_CC_WAS_FULL)) && !sg_cc_in_slow_start(&flow->cc))
		return 0;
	return sg_run_uneventful(flow);
}

/* The rule of a segment's kind and direction. */
SG_INLINE sg_u32 sg_run_bytes(const struct sg_flow *flow, const struct sg_segment *seg)
{
	if (seg->direction == SG_FROM_TENANT)
		return seg->payload ? sg_run_sent(flow, seg) : sg_run_acknowledges(flow, seg);
	return seg->payload ? sg_run_received(flow, seg) : sg_run_acked(flow, seg);
}

/*
 * Bytes that may follow `seg` as a run, after its step said *out, before which snd_una was `una`.
 * Their step, as one segment, says the same, and leaves the flow as their steps one by one would.
 */
SG_INLINE sg_u32 sg_run_room(const struct sg_flow *flow, sg_u32 una, const struct sg_segment *seg,
			     const struct sg_verdict *out)
{
	const sg_u16 special = SG_FLOW_LOOSE | SG_FLOW_ADOPTED | SG_FLOW_UNSEEN | SG_FLOW_AHEAD;
	const sg_u16 feedback = SG_EDIT_ADD_FEEDBACK | SG_EDIT_STRIP_FEEDBACK;
	sg_u16 harmless = SG_EDIT_WINDOW | SG_EDIT_ECN | (seg->payload ? 0 : feedback);

	if ((seg->tcp_flags & ~SG_PSH) != SG_ACK || seg->ecn == SG_CE || out->action != SG_PASS ||
	    out->count || (out->edits & ~harmless) || flow->mode == SG_MODE_WATCH ||
	    (flow->marks & special))
		return 0;
	if (!seg->payload && seg->direction == SG_TO_TENANT && flow->snd_una == una)
		return 0;
	return sg_min32(sg_run_bytes(flow, seg), SG_RUN_MAX);
}

/*
 * The step of `packets` segments that `seg` stands for: numbered as the first of them with the data
 * of all, or acknowledging as the last one. Every second ACK reports (sg_reports()), beginning with
 * the second one. Returns how many do.
 */
SG_INLINE sg_u32 sg_run_step(struct sg_flow *flow, const struct sg_segment *seg, sg_u32 packets,
			     sg_u64 now_ns, const struct sg_params *params, struct sg_path *path,
			     struct sg_verdict *out)
{
	sg_step(flow, seg, now_ns, params, path, out);
	if (seg->payload || seg->direction != SG_FROM_TENANT || params->mode != SG_RULE_ENFORCE ||
	    flow->mode != SG_MODE_TWO_SIDED || !sg_peer_reads_feedback(flow))
		return 0;
	/* *out has what the first step said: the second one adds to it. */
	if (!(packets & 1))
		sg_step(flow, seg, now_ns, params, path, out);
	return packets / 2;
}

#endif /* SLUICE_RUN_H */
