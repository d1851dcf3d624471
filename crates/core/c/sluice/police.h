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

SG_INLINE int sg_police_exceeds(const struct sg_flow *flow, sg_u32 end)
{
	return (flow->flags & SG_FLOW_EDGE_KNOWN) &&
	       sg_seq_gt(end, flow->edge + flow->mss);
}

#endif /* SLUICE_POLICE_H */
