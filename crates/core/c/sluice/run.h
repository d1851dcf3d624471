/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Runs of data: segments of one flow that pass at the same time, each behind the one before, and
 * alike but for their numbers and lengths. A kernel that enforces sees them as one packet, since
 * its stack has not cut them yet, or has put them together (GRO); the step takes it as one
 * segment. A caller that has the segments one by one steps the first of a run, lets those behind
 * it pass with the same verdict, as many bytes as sg_run_room() says, and then steps these as one
 * segment, before the flow sees anything else.
 */
#ifndef SLUICE_RUN_H
#define SLUICE_RUN_H

#include "enforce.h"

/* No more: longer segments do not exist. */
#define SG_RUN_MAX 0xffffU

/* Bytes behind snd_nxt of which none begins an RTT sample. */
SG_INLINE sg_u32 sg_run_untimed(const struct sg_flow *flow)
{
	sg_u32 next = sg_seq_max(flow->rtt_next, flow->snd_una + 2U * flow->mss) - 1;

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

/*
 * Bytes of data that may follow `seg` as a run, after its step said *out. Their step, as one
 * segment, says the same, and leaves the flow as their steps one by one would.
 */
SG_INLINE sg_u32 sg_run_room(const struct sg_flow *flow, const struct sg_segment *seg,
			     const struct sg_verdict *out)
{
	const sg_u16 special = SG_FLOW_LOOSE | SG_FLOW_ADOPTED | SG_FLOW_UNSEEN | SG_FLOW_AHEAD;
	sg_u32 room;

	if (!seg->payload || (seg->tcp_flags & ~SG_PSH) != SG_ACK || seg->ecn == SG_CE ||
	    out->action != SG_PASS || out->count ||
	    (out->edits & ~(SG_EDIT_WINDOW | SG_EDIT_ECN)) || flow->mode == SG_MODE_WATCH ||
	    (flow->marks & special))
		return 0;
	room = seg->direction == SG_FROM_TENANT ? sg_run_sent(flow, seg) :
						   sg_run_received(flow, seg);
	return sg_min32(room, SG_RUN_MAX);
}

#endif /* SLUICE_RUN_H */
