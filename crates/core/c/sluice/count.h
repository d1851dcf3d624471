/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Which counters a verdict moves: the same in every world. */
#ifndef SLUICE_COUNT_H
#define SLUICE_COUNT_H

#include "blackhole.h"
#include "segment.h"

struct sg_counters {
	sg_u64 value[SG_COUNT_MAX];
};

SG_INLINE void sg_count(struct sg_counters *counters, sg_u32 which)
{
	if (!which)
		return;
	sg_opaque(which);
	if (which < SG_COUNT_MAX)
		counters->value[which]++;
}

/* News of offers that were noted. */
SG_INLINE void sg_count_offers(struct sg_counters *counters, enum sg_offer_news news)
{
	if (news == SG_OFFER_LOST)
		counters->value[SG_COUNT_OPTION_DROPPED]++;
}

/*
 * Packets of a run (run.h), for which `seg` stands: their verdict is edits of the window and of the
 * codepoint at most, and feedback of so many of them.
 */
SG_INLINE void sg_count_run(struct sg_counters *counters, const struct sg_segment *seg,
			    const struct sg_verdict *out, sg_u64 packets, sg_u64 reports)
{
	int is_sent = seg->direction == SG_FROM_TENANT;

	counters->value[SG_COUNT_PACKETS] += packets;
	if (out->edits & SG_EDIT_WINDOW)
		counters->value[SG_COUNT_WINDOW_LOWERED] += packets;
	if (out->edits & SG_EDIT_ECN)
		counters->value[out->ecn ? SG_COUNT_ECT_SET : SG_COUNT_ECN_HIDDEN] += packets;
	counters->value[is_sent ? SG_COUNT_FEEDBACK_SENT : SG_COUNT_FEEDBACK_TAKEN] += reports;
}

SG_INLINE void sg_count_verdict(struct sg_counters *counters, const struct sg_segment *seg,
				const struct sg_verdict *out)
{
	sg_u32 edits = out->edits;

	if (out->count)
		sg_count(counters, out->count);
	if (seg->ecn == SG_CE && seg->direction == SG_TO_TENANT)
		counters->value[SG_COUNT_CE_BYTES] += seg->payload;
	if (!edits)
		return;
	if (edits & SG_EDIT_WINDOW)
		counters->value[SG_COUNT_WINDOW_LOWERED]++;
	if (edits & SG_EDIT_SEQ)
		counters->value[SG_COUNT_SEQ_RESTORED]++;
	if (edits & SG_EDIT_MSS)
		counters->value[SG_COUNT_MSS_CLAMPED]++;
	if (edits & SG_EDIT_WOULD_LOWER)
		counters->value[SG_COUNT_WINDOW_WOULD_LOWER]++;
	if (edits & SG_EDIT_ECN)
		counters->value[out->ecn ? SG_COUNT_ECT_SET : SG_COUNT_ECN_HIDDEN]++;
	if (edits & SG_EDIT_ADD_FEEDBACK)
		counters->value[SG_COUNT_FEEDBACK_SENT]++;
	if ((edits & (SG_EDIT_STRIP_FEEDBACK | SG_EDIT_STRIP_PEER)) &&
	    seg->direction == SG_FROM_TENANT)
		counters->value[SG_COUNT_FORGED]++;
	else if (edits & SG_EDIT_STRIP_FEEDBACK)
		counters->value[SG_COUNT_FEEDBACK_TAKEN]++;
	if (edits & SG_EDIT_WANT_FACK) {
		counters->value[SG_COUNT_FACK_SENT]++;
		if (!seg->payload)
			counters->value[SG_COUNT_NO_ROOM]++;
	}
	if ((edits & SG_EDIT_ADD_PEER) && (seg->tcp_flags & SG_ACK))
		counters->value[SG_COUNT_PEER_ACCEPTED]++;
}

#endif /* SLUICE_COUNT_H */
