/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Policing: the one deliberate drop of a flow's packets.
 *
 * A sender that follows RFC 9293 sends nothing beyond the right edge of the
 * windows it was shown, but for a window probe of one segment. Every edge ever
 * shown counts, because ACKs may overtake each other. MPTCP subflows share one
 * send window and break the rule lawfully; they are watched, never policed.
 */
#ifndef SLUICE_POLICE_H
#define SLUICE_POLICE_H

#include "flow.h"
#include "segment.h"
#include "seq.h"

/*
 * Before its first ACK a server has seen the window of the SYN, which is never
 * scaled. Without this limit one segment far ahead would make a flight of it that
 * the window must cover.
 */
SG_INLINE int sg_police_exceeds(const struct sg_flow *flow, sg_u32 end)
{
	sg_u32 edge = flow->flags & SG_FLOW_EDGE_KNOWN ? flow->edge : flow->snd_una + 0xffff;

	return sg_seq_gt(end, edge + flow->mss);
}

#endif /* SLUICE_POLICE_H */
