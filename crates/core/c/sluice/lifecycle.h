/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a flow: whether a packet belongs to one, makes one, is noted for later, or passes.
 *
 *   packet    looked up                          fate
 *   SYN       its rule                           NOTE, PASS
 *   SYN/ACK   its rule, the SYN that it answers  MAKE, REPEAT, NOTE, PASS
 *   others    their flow                         USE, MAKE, RECALL, PASS
 *
 * The owner of the tables looks up a packet's connection, asks core for its fate, lets core
 * write the entry, and stores it. How long a flow may be silent, when a half-open connection is
 * spent, and whether a reload gives a flow another rule, is decided here as well.
 */
#ifndef SLUICE_LIFECYCLE_H
#define SLUICE_LIFECYCLE_H

#include "handshake.h"

enum sg_fate {
	SG_FATE_PASS = 0,   /* nothing is stored; options that a tenant forged are removed */
	SG_FATE_USE = 1,    /* the packet takes the step of the flow that was found */
	SG_FATE_MAKE = 2,   /* a flow begins, if a rule covers it */
	SG_FATE_NOTE = 3,   /* a half-open connection is stored */
	SG_FATE_REPEAT = 4, /* a SYN/ACK again: edited like the first; the flow lives on */
	SG_FATE_RECALL = 5, /* the tuple may have a new life: sg_fate_recalled() tells, or not yet */
};

/* The opener of a SYN, or of the SYN that a SYN/ACK answers: part of the key of half-open ones. */
SG_INLINE sg_u16 sg_opener_of(const struct sg_segment *seg)
{
	int answers = !!(seg->tcp_flags & SG_ACK);

	return (seg->direction == SG_FROM_TENANT) != answers ? SG_OPENED_BY_TENANT :
							       SG_OPENED_BY_REMOTE;
}

/* A SYN; `rule` covers what its tenant sends. NOTE it by its opener; PASS is counted. */
SG_INLINE enum sg_fate sg_fate_of_syn(sg_u32 rule, struct sg_verdict *out)
{
	if (rule != SG_RULE_NONE)
		return SG_FATE_NOTE;
	out->count = SG_COUNT_NO_RULE;
	return SG_FATE_PASS;
}

/*
 * Whether a half-open connection was answered and the flow of the answer is forgotten. It is then
 * as if it had not been noted, whether or not its owner has freed its entry. `has_flow`: its tuple
 * has a flow.
 */
SG_INLINE int sg_life_is_spent(const struct sg_half_open *half, int has_flow)
{
	return !has_flow && (half->peer & SG_PEER_PROMOTED);
}

/*
 * A SYN/ACK; `half` is what was noted of its opener's SYN, or null; `has_flow`: its tuple has a
 * flow. NOTE, REPEAT: it is noted by SG_OPENED_UNSEEN, unless its tuple has a flow and
 * sg_answers_anew() denies.
 */
SG_INLINE enum sg_fate sg_fate_of_synack(const struct sg_half_open *half,
					 const struct sg_segment *seg, sg_u32 rule, int has_flow)
{
	if (rule == SG_RULE_NONE)
		return SG_FATE_PASS;
	if (!half || sg_life_is_spent(half, has_flow) || !sg_synack_matches(half, seg))
		return SG_FATE_NOTE;
	return half->peer & SG_PEER_PROMOTED ? SG_FATE_REPEAT : SG_FATE_MAKE;
}

/*
 * Whether a segment's numbers are the flow's, or nearly. Where its peer's host has seen none of
 * the tenant's data, only the tenant's own number says so.
 */
SG_INLINE int sg_fits_flow(const struct sg_flow *flow, const struct sg_segment *seg)
{
	if (seg->direction == SG_TO_TENANT)
		return !(seg->tcp_flags & SG_ACK) || sg_is_in_place(flow, seg->ack);
	return sg_is_in_place(flow, seg->seq) &&
	       (!(flow->marks & SG_FLOW_RCV_KNOWN) || !(seg->tcp_flags & SG_ACK) ||
		seg->ack - flow->rcv_nxt <= flow->rcv_high - flow->rcv_nxt ||
		flow->rcv_nxt - seg->ack <= 2 * SG_WINDOW_MAX);
}

/* Others. `flow`: that of their tuple, or null; `answered`: a SYN/ACK was noted since it began. */
SG_INLINE enum sg_fate sg_fate_of_segment(const struct sg_segment *seg,
					  const struct sg_flow *flow, int answered)
{
	if (sg_unlikely(!flow))
		return sg_begins_midstream(seg) ? SG_FATE_MAKE : SG_FATE_PASS;
	return sg_unlikely(answered) && !(seg->tcp_flags & SG_RST) && !sg_fits_flow(flow, seg) ?
		       SG_FATE_RECALL :
		       SG_FATE_USE;
}

/* A noted SYN/ACK is used for so long. */
#define SG_ANSWER_NS 10000000000ULL
/* And so long the tenant's own waits for its peer to confirm it, in vain if none of it is read. */
#define SG_ANSWER_ALONE_NS 1000000000ULL

/*
 * The fate of a segment that sg_fate_of_segment() would RECALL. `note`: the tuple's SYN/ACK, or
 * null if it is forgotten. The first row that applies decides:
 *
 *   condition                                 fate    reason
 *   no note, or its age >= SG_ANSWER_NS       USE     the SYN/ACK is forgotten
 *   the segment confirms the SYN/ACK          MAKE    both ends say so
 *   not the tenant's first data behind it     RECALL  the segment does not tell
 *   its number is in place in the flow        RECALL  the segment does not tell
 *   the SYN/ACK is the peer's                 MAKE    the tenant goes on where its peer says
 *   the note's age >= SG_ANSWER_ALONE_NS      MAKE    the peer's word is no longer awaited
 *   none of these                             RECALL  only the tenant says so
 *
 * MAKE: the tuple has a new life. RECALL: the segment takes the flow's step, and the next one that
 * does not fit may tell. The tenant alone is believed late: otherwise it could, time after time,
 * free its ACKs of all that is known of the data that have come.
 */
SG_INLINE enum sg_fate sg_fate_recalled(const struct sg_half_open *note,
					const struct sg_flow *flow,
					const struct sg_segment *seg, sg_u64 now_ns)
{
	sg_u64 age = note ? sg_since(now_ns, note->time_ns) : SG_ANSWER_NS;

	if (!note || age >= SG_ANSWER_NS)
		return SG_FATE_USE;
	if (sg_confirms_answer(note, seg))
		return SG_FATE_MAKE;
	if (!sg_begins_midstream(seg) || !sg_follows_answer(note, seg) ||
	    sg_is_in_place(flow, seg->seq))
		return SG_FATE_RECALL;
	return sg_is_peers_answer(note) || age >= SG_ANSWER_ALONE_NS ? SG_FATE_MAKE :
								       SG_FATE_RECALL;
}

/*
 * Options of a packet that belongs to nothing known which only hosts write: its tenant wrote
 * them, and its peer's host may know more of the connection and believe them.
 */
SG_INLINE sg_u16 sg_life_claims(const struct sg_segment *seg)
{
	if (seg->direction != SG_FROM_TENANT)
		return 0;
	return seg->options & (seg->tcp_flags & SG_SYN ? SG_OPT_PEER : SG_OPT_FEEDBACK);
}

/*
 * Removes these options on the way to a trusted peer. `trusted`: the policy trusts the other end;
 * `params` are those of the packet's rule.
 */
SG_INLINE void sg_life_refuse(const struct sg_segment *seg, int trusted,
			      const struct sg_params *params, struct sg_verdict *out)
{
	if (trusted)
		sg_refuse_claims(seg, params, sg_life_claims(seg), out);
}

/*
 * Writes a SYN into `half`, which is zeroed, or has the opener's earlier SYN. `has_flow`: its
 * tuple has a flow; `offers`: to its peer (sg_offers_to). Returns what it says of them.
 */
SG_INLINE enum sg_offer_news sg_life_syn(struct sg_half_open *half, const struct sg_segment *seg,
					 sg_u64 now_ns, sg_u32 rule, int has_flow, sg_u32 offers,
					 const struct sg_params *params, struct sg_verdict *out)
{
	if (sg_life_is_spent(half, has_flow))
		__builtin_memset(half, 0, sizeof(*half));
	half->rule = (sg_u8)rule;
	sg_begin_offers(half, seg, offers);
	sg_syn(half, seg, now_ns, params, out);
	if (!(out->edits & SG_EDIT_ADD_PEER) || half->offers)
		return SG_OFFER_NO_NEWS;
	half->peer |= SG_PEER_DOUBTED;
	return SG_OFFER_REPEATED;
}

/* A flow with nothing in it yet. */
SG_INLINE void sg_life_blank(struct sg_flow *flow, sg_u64 now_ns, sg_u32 rule)
{
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->seen_ns = now_ns;
	flow->progress_ns = now_ns;
	flow->rule = (sg_u8)rule;
}

/* What the tuple's flow says, when a SYN/ACK is repeated, of the one that made it. */
enum sg_partner {
	SG_PARTNER_NONE = 0,
	SG_PARTNER_AWAITED = 1, /* it had our option; nothing shows that it arrived */
	SG_PARTNER_HEARD = 2,   /* it arrived, though its sender may not know */
	SG_PARTNER_FRESH = 3,   /* awaited since a moment ago: this one is the same try */
};

/* `flow` may be null. */
SG_INLINE enum sg_partner sg_partner_of(const struct sg_flow *flow, sg_u64 now_ns)
{
	if (!flow || flow->mode != SG_MODE_TWO_SIDED)
		return SG_PARTNER_NONE;
	if (flow->marks & SG_FLOW_HEARD)
		return SG_PARTNER_HEARD;
	return sg_since(now_ns, flow->seen_ns) < SG_OFFER_GAP_NS ? SG_PARTNER_FRESH :
								   SG_PARTNER_AWAITED;
}

/*
 * Whether the flow that a repeated SYN/ACK has `made` takes the place of the tuple's (or null).
 * The tenant may have had the first one: what that showed it stands, and what it has sent since.
 * A flow that lives on was seen with it.
 */
SG_INLINE int sg_life_gives_up(struct sg_flow *flow, struct sg_flow *made)
{
	enum sg_partner partner = sg_partner_of(flow, made->seen_ns);

	if (partner == SG_PARTNER_NONE || made->first_own != flow->first_own ||
	    made->first_remote != flow->first_remote)
		return 0;
	if (partner != SG_PARTNER_AWAITED || made->mode != SG_MODE_ONE_SIDED) {
		flow->seen_ns = made->seen_ns;
		return 0;
	}
	made->snd_nxt = sg_seq_max(made->snd_nxt, flow->snd_nxt);
	if ((flow->flags & SG_FLOW_EDGE_KNOWN) &&
	    (!(made->flags & SG_FLOW_EDGE_KNOWN) || sg_seq_gt(flow->edge, made->edge))) {
		made->edge = flow->edge;
		made->flags |= SG_FLOW_EDGE_KNOWN;
	}
	return 1;
}

/*
 * A SYN/ACK that answers `half`: makes `flow`, a blank one, and edits the packet. Another policy
 * may have come into force since the SYN: `rule` covers it now. What REPEAT makes is thrown away
 * unless sg_life_gives_up(). A listener without room repeats its SYN/ACK to a peer that has
 * answered it: to a partner the option goes each time. Where a timer and a repeated SYN bring two
 * at once, they are one try.
 */
SG_INLINE void sg_life_synack(struct sg_flow *flow, struct sg_half_open *half,
			      const struct sg_segment *seg, sg_u32 rule, enum sg_partner partner,
			      const struct sg_params *params, struct sg_verdict *out)
{
	sg_u8 offers = half->offers;

	if (partner == SG_PARTNER_HEARD)
		half->offers = SG_OFFERS;
	else if (partner == SG_PARTNER_FRESH)
		half->offers = (sg_u8)(offers + 1);
	half->rule = (sg_u8)rule;
	sg_synack(flow, half, seg, params, out);
	if (partner == SG_PARTNER_FRESH)
		half->offers = offers;
}

/*
 * The news of offers in a SYN/ACK for the tenant that answers `half`; asked before
 * sg_life_synack().
 */
SG_INLINE enum sg_offer_news sg_life_synack_news(const struct sg_half_open *half,
						 const struct sg_segment *seg)
{
	sg_u8 peer = half->peer & SG_PEER_MASK;

	if (seg->direction != SG_TO_TENANT || (half->peer & SG_PEER_PROMOTED))
		return SG_OFFER_NO_NEWS;
	if (peer == SG_PEER_FALLBACK)
		return seg->options & SG_OPT_PEER ? SG_OFFER_ANSWERED : SG_OFFER_LOST;
	return peer == SG_PEER_OFFERED && (half->peer & SG_PEER_DOUBTED) ? SG_OFFER_ANSWERED :
									   SG_OFFER_NO_NEWS;
}

/*
 * The first segment of the peer may show that of the tenant's SYN/ACKs only what left without our
 * option has arrived. Whether that is to be asked for, of a flow before its step:
 */
SG_INLINE int sg_life_awaits_peer(const struct sg_flow *flow, const struct sg_segment *seg)
{
	return seg->direction == SG_TO_TENANT && sg_unlikely(!(flow->marks & SG_FLOW_HEARD)) &&
	       flow->reason == SG_WHY_OPTION_DROPPED;
}

/* And the answer; `half` is what was noted of the peer's SYN, or null. */
SG_INLINE enum sg_offer_news sg_life_peer_news(const struct sg_flow *flow,
					       const struct sg_half_open *half,
					       const struct sg_segment *seg)
{
	if (!half || (half->peer & SG_PEER_MASK) != SG_PEER_FALLBACK ||
	    (seg->tcp_flags & (SG_ACK | SG_RST)) != SG_ACK ||
	    seg->ack - flow->first_own > flow->snd_nxt - flow->first_own)
		return SG_OFFER_NO_NEWS;
	return SG_OFFER_LOST;
}

/*
 * There was no room for what a SYN or SYN/ACK was to leave: it has not begun. What a tenant
 * forged is removed all the same. `half` is that of a flow that was to be made, else null.
 */
SG_INLINE void sg_life_unkept(struct sg_half_open *half, const struct sg_segment *seg,
			      struct sg_verdict *out)
{
	if (half)
		half->peer &= (sg_u8)~SG_PEER_PROMOTED;
	out->edits &= seg->direction == SG_FROM_TENANT ? SG_EDIT_STRIP_PEER : 0;
}

/* Adds to `known` the facts in noted SYNs and a SYN/ACK (or null) of a midstream connection. */
SG_INLINE void sg_life_know(struct sg_remembered *known, const struct sg_segment *seg,
			    const struct sg_half_open *answer,
			    const struct sg_half_open *of_tenant,
			    const struct sg_half_open *of_remote)
{
	if (answer && sg_confirms_answer(answer, seg)) {
		sg_recall_answer(known, answer);
		known->confirmed = 1;
		known->rcv_wscale = answer->wscale;
		if (sg_is_peers_answer(answer) && (answer->options & SG_OPT_WSCALE))
			known->rcv_wscale = SG_WSCALE_MAX;
	} else if (answer && seg->direction == SG_FROM_TENANT && sg_follows_answer(answer, seg)) {
		sg_recall_answer(known, answer);
	}
	known->one_way = sg_is_unanswered(of_tenant) || sg_is_unanswered(of_remote);
}

/*
 * The flow of a connection that is met from the middle, a blank one: shown, and left alone until
 * enough is known of it. `before`: the flow that its tuple has had until now, or null. The
 * packet that it begins with is not counted, and no window holds its data.
 */
SG_INLINE void sg_life_midstream(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
				  const struct sg_params *params,
				  const struct sg_remembered *known,
				  const struct sg_flow *before)
{
	sg_midstream(flow, seg, params, known);
	if (known->confirmed) {
		sg_receive_anew(flow, seg, known, before);
		sg_begins_here(flow);
	} else if (before) {
		sg_keep_receiving(flow, before, now_ns);
	}
}

/* The effect of another policy on a flow. */
enum sg_rematch {
	SG_REMATCH_SAME = 0,
	SG_REMATCH_OTHER = 1, /* another rule decides it: SG_COUNT_RULE_CHANGED */
	SG_REMATCH_NONE = 2,  /* no rule covers it: counted as well, and forgotten */
};

SG_INLINE enum sg_rematch sg_life_rematch(struct sg_flow *flow, sg_u32 rule)
{
	if (flow->rule == rule)
		return SG_REMATCH_SAME;
	flow->rule = (sg_u8)rule;
	return rule == SG_RULE_NONE ? SG_REMATCH_NONE : SG_REMATCH_OTHER;
}

/* FINs both ways, the tenant's acknowledged. */
SG_INLINE int sg_is_over(const struct sg_flow *flow)
{
	const sg_u8 both = SG_FLOW_FIN_SENT | SG_FLOW_FIN_SEEN;

	return (flow->flags & both) == both && flow->snd_una == flow->snd_nxt;
}

/*
 * Met from the middle, with packets of one end only since: any data with a tuple of its own
 * make such a flow, so that it has no claim to the room of a connection.
 */
SG_INLINE int sg_is_unproven(const struct sg_flow *flow)
{
	const sg_u8 both = SG_FLOW_SENT | SG_FLOW_HEARD;

	return flow->mode == SG_MODE_WATCH && (flow->marks & SG_FLOW_ADOPTED) &&
	       (flow->marks & both) != both;
}

/* The same, but that both ends speak, which is easily had: nothing was acknowledged. */
SG_INLINE int sg_is_unacknowledged(const struct sg_flow *flow)
{
	return flow->mode == SG_MODE_WATCH && (flow->marks & SG_FLOW_ADOPTED) &&
	       !flow->bytes_acked;
}

/*
 * How long a flow may be silent before it is forgotten. An RST alone, or a FIN, may be one that
 * its receiver does not believe, on purpose: a flow forgotten for it would go on from the
 * middle, unenforced. So it stays as if open while there is room.
 */
enum sg_silence {
	SG_SILENCE_IDLE = 0,    /* as long as an open connection */
	SG_SILENCE_CLOSED = 1,  /* as long as a closed one */
	SG_SILENCE_BY_ROOM = 2, /* the latter where others need its room */
};

SG_INLINE enum sg_silence sg_life_silence(const struct sg_flow *flow)
{
	if (sg_is_unproven(flow))
		return SG_SILENCE_CLOSED;
	if (!(flow->flags & SG_FLOW_CLOSED) && !sg_is_unacknowledged(flow))
		return SG_SILENCE_IDLE;
	return sg_is_over(flow) ? SG_SILENCE_CLOSED : SG_SILENCE_BY_ROOM;
}

/* An interface that has so many flows may have another one; a quota of 0 is none. */
SG_INLINE int sg_life_has_room(sg_u32 flows, sg_u32 quota)
{
	return !quota || flows < quota;
}

/* Others need the room: a table, or an interface's share of it, is more than half full. */
SG_INLINE int sg_life_is_short(sg_u32 flows, sg_u32 quota)
{
	return quota && flows > quota / 2;
}

/*
 * How long a flow may be silent, in ns: `idle_ns`, the limit of an open connection, or `closed_ns`,
 * that of a closed one. `is_short`, of the table or of the interface's share, needs to be known
 * only for SG_SILENCE_BY_ROOM.
 */
SG_INLINE sg_u64 sg_life_patience_ns(enum sg_silence silence, int is_short, sg_u64 idle_ns,
				     sg_u64 closed_ns)
{
	if (silence == SG_SILENCE_CLOSED || (silence == SG_SILENCE_BY_ROOM && is_short))
		return closed_ns;
	return idle_ns;
}

/* A sweep looks at so many places for flows, once in each period: the default table in 0.8 s. */
#define SG_SWEEP_SLOTS 4096U
#define SG_SWEEP_PERIOD_NS 50000000ULL

/* The facts that a new flow of this connection could not find out. 0 = there are none. */
SG_INLINE int sg_life_remember(struct sg_remembered *what, const struct sg_flow *flow)
{
	if (sg_is_over(flow) || (flow->marks & SG_FLOW_SCALE_BOUND) ||
	    (flow->mode == SG_MODE_WATCH && !(flow->marks & SG_FLOW_ADOPTED)))
		return 0;
	*what = (struct sg_remembered){ .mss = flow->mss, .wscale = flow->wscale };
	what->scale = SG_SCALE_EXACT;
	return 1;
}

/*
 * An interface's share of the half-open connections: so many SYNs, either way, that nothing has
 * answered. Those that nothing ever answers fade one by one, a tick each (954 a second). An
 * answer gives back what its SYN took, so that connections cost nothing, however many.
 */
#define SG_UNANSWERED_MAX 1024U
#define SG_UNANSWERED_SHIFT 20U /* of the clock, to ticks */

/* How many there are, where the last of them fades at `until`. */
SG_INLINE sg_u32 sg_unanswered(sg_u32 until, sg_u64 now_ns)
{
	sg_u32 ahead = until - (sg_u32)(now_ns >> SG_UNANSWERED_SHIFT);

	return ahead <= SG_UNANSWERED_MAX ? ahead : 0;
}

/* One more; 0 = the share is used up: it is kept among its like, where the next may evict it. */
SG_INLINE int sg_unanswered_add(sg_u32 *until, sg_u64 now_ns)
{
	sg_u32 count = sg_unanswered(*until, now_ns);

	if (count >= SG_UNANSWERED_MAX)
		return 0;
	*until = (sg_u32)(now_ns >> SG_UNANSWERED_SHIFT) + count + 1;
	return 1;
}

/* One that had part of the share is answered. Other CPUs may count at the same time. */
SG_INLINE void sg_unanswered_sub(sg_u32 *until, sg_u64 now_ns)
{
	if (sg_unanswered(*until, now_ns))
		__sync_fetch_and_add(until, (sg_u32)-1);
}

#endif /* SLUICE_LIFECYCLE_H */
