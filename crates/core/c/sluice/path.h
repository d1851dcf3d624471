/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the flows of a host towards one peer have met, taken together.
 *
 * Packets of equal flows may reach a switch's queue at different phases of its
 * cycle: a CPU of the host sends what it has in one go, and the flows at the end of
 * each batch always meet the longer queue. Marked more often, such a flow would have
 * the smaller share for as long as it lasts. But the host sees all of its flows to
 * that peer, and their packets pass the same queues.
 *
 * A host keeps a table of these sums, at places that a keyed hash of the peer's
 * address gives: peers that collide are one path. `dctcp` alone uses them
 * (cc_dctcp.h), on flows whose peer's host enforces as well.
 */
#ifndef SLUICE_PATH_H
#define SLUICE_PATH_H

#include "cc_state.h"
#include "hash.h"

/* Sums since the table was made. They wrap around: only differences mean anything. */
struct sg_path {
	sg_u32 acked;  /* bytes */
	sg_u32 marked; /* of these */
};
SG_ASSERT_SIZE(struct sg_path, 8);

#define SG_PATHS 4096U

/* The place of a flow's path in such a table. */
SG_INLINE sg_u32 sg_path_of(const struct sg_flow_key *flow, const volatile struct sg_hash_key *key)
{
	const sg_u32 *remote = flow->remote.word;
	const volatile sg_u32 *k = key->word;

	return sg_hash_end(sg_nh(remote[0], k[4], remote[1], k[5]) +
				   sg_nh(remote[2], k[6], remote[3], k[7]) +
				   sg_nh(flow->vlan, k[10], 0, k[11]),
			   key) &
	       (SG_PATHS - 1);
}

/* Adds what an ACK of one of its flows says. Flows are stepped on several CPUs at a time. */
SG_INLINE void sg_path_acked(struct sg_path *path, struct sg_cc_ack *ack)
{
	ack->path_acked = __sync_fetch_and_add(&path->acked, ack->acked) + ack->acked;
	if (ack->marked)
		ack->path_marked = __sync_fetch_and_add(&path->marked, ack->marked) + ack->marked;
	else
		ack->path_marked = *(volatile sg_u32 *)&path->marked;
	ack->on_path = 1;
}

#endif /* SLUICE_PATH_H */
