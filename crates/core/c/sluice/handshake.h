/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Handshakes: what a SYN is remembered by, and the flow that its SYN/ACK makes.
 *
 * A SYN never touches a live flow: it has a table of its own, and only a SYN/ACK
 * that acknowledges it makes (or replaces) the flow. A forged SYN thus costs
 * nothing but its own entry.
 */
#ifndef SLUICE_HANDSHAKE_H
#define SLUICE_HANDSHAKE_H

#include "blackhole.h"
#include "enforce.h"

SG_INLINE int sg_handshake_editable(const struct sg_segment *seg, const struct sg_params *params)
{
	return params->mode == SG_RULE_ENFORCE &&
	       !(seg->options & (SG_OPT_SIGNED | SG_OPT_MALFORMED | SG_OPT_FIXED));
}

/*
 * The MSS that the tenant reads, which bounds the segments that it sends: that of the packet, or
 * the rule's where that is smaller and can be written. What the tenant itself announces bounds its
 * peer, whose host has a rule for that.
 */
SG_INLINE sg_u16 sg_mss_shown(const struct sg_segment *seg, const struct sg_params *params,
			      struct sg_verdict *out)
{
	sg_u16 mss = sg_mss_of(seg);

	if (!params->mss || mss <= params->mss ||
	    (seg->options & (SG_OPT_MSS | SG_OPT_FIXED)) != SG_OPT_MSS)
		return mss;
	out->edits |= SG_EDIT_MSS;
	out->mss = params->mss;
	return params->mss;
}

/* Data that come with a SYN (RFC 7413) and may be moved for an option: a jumbo frame's. */
#define SG_SYN_DATA_MAX 9000U

/*
 * Our option goes between header and data while the packet fits the path still. The MSS that
 * it offers and 20 bytes of header are a packet of its sender's MTU; Linux leaves room for 40
 * bytes of options whatever it sends with a SYN.
 */
SG_INLINE sg_u8 sg_room_for_option(const struct sg_segment *seg)
{
	sg_u32 header_len = seg->header_len + SG_OPTION_LEN;

	if (header_len > 60)
		return SG_PEER_NO_ROOM;
	if (seg->payload > SG_SYN_DATA_MAX ||
	    (seg->payload && header_len + seg->payload > 20U + sg_mss_of(seg)))
		return SG_PEER_SYN_DATA;
	return SG_PEER_OFFERED;
}

/*
 * Our option goes to trusted prefixes only. The SYN becomes ECN-capable, so that
 * a marking switch does not drop it, unless the tenant offers ECN: an ECT mark
 * on such a SYN would spoil the negotiation with a host that doesn't enforce. `soon`: it was
 * repeated before an answer was due.
 */
SG_INLINE sg_u8 sg_offer(struct sg_half_open *half, const struct sg_segment *seg, int soon,
			 struct sg_verdict *out)
{
	sg_u8 room = sg_room_for_option(seg), before = half->peer & SG_PEER_MASK;

	if (!seg->peer_trusted)
		return SG_PEER_NONE;
	if (room != SG_PEER_OFFERED)
		return room;
	if (sg_unlikely(!half->offers && !soon)) {
		out->count = SG_COUNT_SYN_FALLBACK;
		return before == SG_PEER_OFFERED || before == SG_PEER_FALLBACK ? SG_PEER_FALLBACK :
										 SG_PEER_AVOIDED;
	}
	half->offers -= !soon;
	sg_add_option(out, seg, SG_EDIT_ADD_PEER);
	out->count = SG_COUNT_PEER_OFFERED;
	if (!(seg->tcp_flags & (SG_ECE | SG_CWR)))
		sg_edit_ecn(out, seg, SG_ECT0);
	return SG_PEER_OFFERED;
}

/*
 * A SYN to the tenant. If it has our option from a trusted prefix, ECN offers are hidden from it,
 * unless no option of ours is to answer it. The peer's host may have given its offer up.
 */
SG_INLINE sg_u8 sg_accept_offer(const struct sg_half_open *half, const struct sg_segment *seg,
				struct sg_verdict *out)
{
	sg_u8 before = half->peer & SG_PEER_MASK;

	if (!(seg->options & SG_OPT_PEER)) {
		if (before == SG_PEER_OFFERED || before == SG_PEER_FALLBACK)
			return SG_PEER_AVOIDED;
		return seg->payload ? SG_PEER_SYN_DATA : SG_PEER_NONE;
	}
	if (!seg->peer_trusted) {
		out->count = SG_COUNT_PEER_UNTRUSTED;
		return SG_PEER_DISTRUSTED;
	}
	out->edits |= SG_EDIT_STRIP_PEER;
	sg_edit_ecn(out, seg, SG_NOT_ECT);
	if (before == SG_PEER_FALLBACK)
		return before;
	if (!half->offers && before != SG_PEER_OFFERED)
		return SG_PEER_AVOIDED;
	if (seg->tcp_flags & (SG_ECE | SG_CWR)) {
		out->edits |= SG_EDIT_CLEAR_FLAGS;
		out->clear_flags = SG_ECE | SG_CWR;
	}
	return SG_PEER_OFFERED;
}

/* A repeated SYN may come without the data of the first, which are acknowledged all the same. */
SG_INLINE void sg_note_syn_data(struct sg_half_open *half, const struct sg_segment *seg)
{
	sg_u32 data = sg_min32(seg->payload, 0xffff);

	half->data = half->isn == seg->seq && half->data > data ? half->data : data;
}

/* Another SYN of the opener than the one before has offers of its own: `offers` (sg_offers_to). */
SG_INLINE void sg_begin_offers(struct sg_half_open *half, const struct sg_segment *seg,
			       sg_u32 offers)
{
	if (half->time_ns && half->isn == seg->seq)
		return;
	half->offers = (sg_u8)(offers & ~SG_OFFERS_DOUBTED);
	half->peer = offers & SG_OFFERS_DOUBTED ? SG_PEER_DOUBTED : 0;
}

/*
 * A SYN, either way. `half` is zeroed, or what the opener's earlier SYN of the same tuple left,
 * and has its offers.
 */
SG_NOINLINE int sg_syn(struct sg_half_open *half, const struct sg_segment *seg,
			sg_u64 now_ns, const struct sg_params *params,
			struct sg_verdict *out)
{
	sg_u8 from_tenant = seg->direction == SG_FROM_TENANT;
	sg_u8 kept = half->peer & (SG_PEER_PROMOTED | SG_PEER_DOUBTED);
	sg_u8 peer = seg->payload ? SG_PEER_SYN_DATA : SG_PEER_NONE;
	int soon = (half->peer & SG_PEER_MASK) == SG_PEER_OFFERED &&
		   sg_since(now_ns, half->time_ns) < SG_OFFER_GAP_NS;

	out->count = seg->payload ? SG_COUNT_SYN_WITH_DATA : SG_COUNT_SYN;
	sg_note_syn_data(half, seg);
	half->time_ns = now_ns;
	half->isn = seg->seq;
	half->mss = sg_mss_of(seg);
	half->options = seg->options;
	if ((seg->tcp_flags & (SG_ECE | SG_CWR)) == (SG_ECE | SG_CWR))
		half->options |= SG_OPT_ECN_OFFER;
	half->wscale = seg->wscale;
	if (sg_handshake_editable(seg, params)) {
		if (seg->options & SG_OPT_MPTCP && params->flags & SG_RULE_STRIP_MPTCP) {
			out->edits |= SG_EDIT_HIDE_MPTCP;
			half->options &= (sg_u16)~SG_OPT_MPTCP;
		}
		if (from_tenant) {
			sg_refuse_claims(seg, params, SG_OPT_PEER, out);
			peer = sg_offer(half, seg, soon, out);
		} else {
			peer = sg_accept_offer(half, seg, out);
			half->mss = sg_mss_shown(seg, params, out);
		}
	}
	half->peer = peer | kept;
	return 0;
}

/* Why the two ends don't enforce together; SG_WHY_NONE when they do. */
SG_INLINE sg_u8 sg_partnership(const struct sg_half_open *half, const struct sg_segment *seg)
{
	switch (half->peer & SG_PEER_MASK) {
	case SG_PEER_OFFERED:
		break;
	case SG_PEER_DISTRUSTED:
		return SG_WHY_PEER_UNTRUSTED;
	case SG_PEER_NO_ROOM:
		return SG_WHY_NO_ROOM;
	case SG_PEER_SYN_DATA:
		return SG_WHY_SYN_WITH_DATA;
	case SG_PEER_FALLBACK:
	case SG_PEER_AVOIDED:
		return SG_WHY_OPTION_DROPPED;
	default:
		return SG_WHY_PEER_SILENT;
	}
	if (seg->direction == SG_FROM_TENANT) {
		sg_u8 room = sg_room_for_option(seg);

		if (room != SG_PEER_OFFERED)
			return room == SG_PEER_NO_ROOM ? SG_WHY_NO_ROOM : SG_WHY_SYN_WITH_DATA;
		return half->offers ? SG_WHY_NONE : SG_WHY_OPTION_DROPPED;
	}
	if (!(seg->options & SG_OPT_PEER))
		return SG_WHY_PEER_SILENT;
	return seg->peer_trusted ? SG_WHY_NONE : SG_WHY_PEER_UNTRUSTED;
}

/* The tenants agreed on ECN between themselves (RFC 3168 section 6.1.1). */
SG_INLINE int sg_ecn_agreed(const struct sg_half_open *half, const struct sg_segment *seg)
{
	return (half->options & SG_OPT_ECN_OFFER) &&
	       (seg->tcp_flags & (SG_ECE | SG_CWR)) == SG_ECE;
}

/*
 * Enforcing, a flow is two-sided or one-sided. Observing, no option is added, so
 * the marks that tenants report to each other are what the algorithm can be run on.
 */
SG_INLINE void sg_choose_mode(struct sg_flow *flow, const struct sg_half_open *half,
			      const struct sg_segment *seg, const struct sg_params *params,
			      struct sg_verdict *out)
{
	sg_u16 options = half->options | seg->options;

	flow->mode = SG_MODE_WATCH;
	if (options & SG_OPT_SIGNED) {
		flow->reason = SG_WHY_SIGNED;
		out->count = SG_COUNT_FLOW_SIGNED;
	} else if (options & SG_OPT_MALFORMED) {
		flow->reason = SG_WHY_MALFORMED_OPTION;
		out->count = SG_COUNT_MALFORMED_OPTION;
	} else if (half->options & seg->options & SG_OPT_MPTCP) {
		flow->reason = SG_WHY_MPTCP;
		out->count = SG_COUNT_FLOW_MPTCP;
	} else {
		flow->reason = params->mode == SG_RULE_ENFORCE ? sg_partnership(half, seg) :
								 SG_WHY_PEER_SILENT;
		if (params->mode != SG_RULE_ENFORCE && sg_ecn_agreed(half, seg))
			flow->mode = SG_MODE_TENANT_ECN;
		else
			flow->mode = flow->reason == SG_WHY_NONE ? SG_MODE_TWO_SIDED :
								   SG_MODE_ONE_SIDED;
		out->count = flow->mode == SG_MODE_TWO_SIDED ? SG_COUNT_FLOW_TWO_SIDED :
							       SG_COUNT_FLOW_ONE_SIDED;
	}
}

/* Edits of a SYN/ACK, once the mode is known. Its window is not scaled (RFC 7323 2.2). */
SG_INLINE void sg_edit_synack(struct sg_flow *flow, const struct sg_segment *seg,
			      struct sg_verdict *out)
{
	sg_u16 wire = sg_window_to_wire(flow->cc.cwnd, 0);

	if (flow->mode == SG_MODE_TWO_SIDED) {
		if (seg->direction == SG_FROM_TENANT) {
			sg_add_option(out, seg, SG_EDIT_ADD_PEER);
			sg_edit_ecn(out, seg, SG_ECT0);
			return;
		}
		out->edits |= SG_EDIT_STRIP_PEER;
		sg_edit_ecn(out, seg, SG_NOT_ECT);
	} else if (seg->direction == SG_TO_TENANT && flow->reason == SG_WHY_OPTION_DROPPED &&
		   (seg->options & SG_OPT_PEER)) {
		/* It answers a SYN of before the fallback, late. */
		out->edits |= SG_EDIT_STRIP_PEER;
		sg_edit_ecn(out, seg, SG_NOT_ECT);
	}
	if (seg->direction == SG_TO_TENANT && wire < seg->window) {
		out->edits |= SG_EDIT_WINDOW;
		out->window = wire;
	}
}

/* A SYN/ACK of the tenant is one offer less, or is the first without one. */
SG_INLINE void sg_synack_offers(struct sg_half_open *half, const struct sg_flow *flow,
				const struct sg_segment *seg)
{
	if (seg->direction != SG_FROM_TENANT || (half->peer & SG_PEER_MASK) != SG_PEER_OFFERED)
		return;
	if (flow->mode == SG_MODE_TWO_SIDED)
		half->offers--;
	else if (flow->reason == SG_WHY_OPTION_DROPPED)
		half->peer = (half->peer & (sg_u8)~SG_PEER_MASK) | SG_PEER_FALLBACK;
}

/* Is a SYN remembered that no SYN/ACK has answered here? `half` may be null. */
SG_INLINE int sg_is_unanswered(const struct sg_half_open *half)
{
	return half && half->time_ns && !(half->peer & SG_PEER_PROMOTED);
}

/* Does this SYN/ACK answer the SYN that is remembered of the other side? */
SG_INLINE int sg_synack_matches(const struct sg_half_open *half, const struct sg_segment *seg)
{
	/* Data on the SYN may be acknowledged as well (RFC 7413). */
	return half->time_ns && seg->ack - half->isn - 1 <= half->data;
}

/*
 * A SYN/ACK whose SYN was not read, or is forgotten, or was answered before with another number
 * (sg_answers_anew). One for the tenant has a window scale only if the SYN had one, so that it
 * says all that is to be known of the peer's windows. Either says where the data of both ends
 * begin, but only one end has said so.
 */
SG_INLINE void sg_note_answer(struct sg_half_open *note, const struct sg_segment *seg,
			      sg_u64 now_ns)
{
	int to_tenant = seg->direction == SG_TO_TENANT;

	note->time_ns = now_ns;
	note->isn = to_tenant ? seg->ack - 1 : seg->seq;
	note->remote_isn = to_tenant ? seg->seq : seg->ack - 1;
	note->mss = (sg_u16)(to_tenant ? sg_mss_at_first(sg_mss_of(seg), 0, seg) : 0);
	note->options = seg->options;
	note->wscale = seg->options & SG_OPT_WSCALE ? seg->wscale : 0;
}

/* Are these the first data behind that SYN/ACK? */
SG_INLINE int sg_follows_answer(const struct sg_half_open *note, const struct sg_segment *seg)
{
	return note->time_ns && seg->seq == note->isn + 1;
}

/* Is that SYN/ACK the peer's? */
SG_INLINE int sg_is_peers_answer(const struct sg_half_open *note)
{
	return !!note->mss;
}

/* Does this segment acknowledge that SYN/ACK, at the number behind what it answered? */
SG_INLINE int sg_confirms_answer(const struct sg_half_open *note, const struct sg_segment *seg)
{
	int from_tenant = seg->direction == SG_FROM_TENANT;
	sg_u32 own = from_tenant ? seg->seq : seg->ack;
	sg_u32 remote = from_tenant ? seg->ack : seg->seq;

	return note->time_ns && (seg->tcp_flags & SG_ACK) &&
	       from_tenant == sg_is_peers_answer(note) && own == note->isn + 1 &&
	       remote == note->remote_isn + 1;
}

/* Replaces older facts by those of this SYN/ACK: they belong to an earlier connection. */
SG_INLINE void sg_recall_answer(struct sg_remembered *known, const struct sg_half_open *note)
{
	known->mss = note->mss;
	known->wscale = note->wscale;
	known->scale = sg_is_peers_answer(note) ? SG_SCALE_EXACT : SG_SCALE_UNKNOWN;
}

/* The tenant has seen an unscaled window; segments after it count in scaled units. */
SG_INLINE void sg_synack_shown(struct sg_flow *flow, const struct sg_segment *seg,
			       const struct sg_params *params, const struct sg_verdict *out)
{
	sg_u16 wire = out->edits & SG_EDIT_WINDOW ? out->window : seg->window;

	sg_window_shown(flow, seg, wire, 0, params, sg_may_edit(flow, params));
	flow->wire_window = sg_window_to_wire(wire, flow->wscale);
	flow->peer_window = sg_window_to_wire(seg->window, flow->wscale);
}

/*
 * The tenant's receive window begins behind the peer's SYN, or behind the data of that
 * which the tenant has acknowledged. Until it has acknowledged more, its window is that of
 * its SYN or SYN/ACK, which is not scaled.
 */
SG_INLINE void sg_receiving_start(struct sg_flow *flow, const struct sg_half_open *half,
				  const struct sg_segment *seg)
{
	int to_tenant = seg->direction == SG_TO_TENANT;

	if (half->options & seg->options & SG_OPT_WSCALE)
		flow->rcv_wscale = (to_tenant ? half->wscale : seg->wscale) & 15;
	flow->rcv_nxt = to_tenant ? seg->seq + 1 : seg->ack;
	flow->rcv_high = to_tenant ? flow->rcv_nxt + seg->payload : half->isn + 1 + half->data;
	flow->rcv_window = sg_window_to_wire(0xffff, flow->rcv_wscale);
	flow->marks |= SG_FLOW_RCV_KNOWN;
}

/* Both ends' next numbers are their first ones. */
SG_INLINE void sg_begins_here(struct sg_flow *flow)
{
	flow->first_own = flow->snd_una;
	flow->first_remote = flow->rcv_nxt;
}

/* Whether a SYN/ACK has other numbers than the one that the flow began with. */
SG_INLINE int sg_answers_anew(const struct sg_flow *flow, const struct sg_segment *seg)
{
	int to_tenant = seg->direction == SG_TO_TENANT;
	sg_u32 own = to_tenant ? seg->ack : seg->seq + 1;
	sg_u32 remote = to_tenant ? seg->seq + 1 : seg->ack;

	return own != flow->first_own || remote != flow->first_remote;
}

/*
 * A SYN/ACK that matches. Fills `flow`, which the caller zeroed and set `rule`
 * in, and edits the packet. A caller whose `half` says promoted throws the flow
 * away and keeps the edits.
 */
SG_NOINLINE int sg_synack(struct sg_flow *flow, struct sg_half_open *half,
			   const struct sg_segment *seg, const struct sg_params *params,
			   struct sg_verdict *out)
{
	int to_tenant = seg->direction == SG_TO_TENANT;
	sg_u32 mss = to_tenant ? sg_mss_of(seg) : half->mss;
	sg_u32 own = to_tenant ? half->mss : sg_mss_of(seg);

	if (half->options & seg->options & SG_OPT_WSCALE)
		flow->wscale = (to_tenant ? seg->wscale : half->wscale) & 15;
	flow->snd_una = to_tenant ? seg->ack : seg->seq + 1;
	flow->snd_nxt = flow->snd_una + (to_tenant ? 0 : seg->payload);
	flow->recover = flow->snd_una;
	flow->karn_end = flow->snd_una;
	flow->fack_round = flow->snd_una;
	flow->judge_start = flow->snd_una;
	sg_rtt_forget(flow);
	sg_feedback_start(flow);
	sg_receiving_start(flow, half, seg);
	sg_begins_here(flow);
	sg_choose_mode(flow, half, seg, params, out);
	sg_synack_offers(half, flow, seg);
	if (to_tenant && sg_may_edit(flow, params))
		mss = sg_mss_shown(seg, params, out);
	if (!((to_tenant ? half->options : seg->options) & SG_OPT_MSS))
		own = 0;
	flow->mss = sg_mss_at_first(mss, own, seg);
	sg_cc_init(&flow->cc, params, sg_algorithm_of(flow, params), flow->mss);
	flow->cc.round_end = flow->snd_una;
	flow->cc.cut_end = flow->snd_una;
	if (sg_may_edit(flow, params))
		sg_edit_synack(flow, seg, out);
	sg_refuse_claims(seg, params, SG_OPT_PEER, out);
	if (to_tenant)
		sg_synack_shown(flow, seg, params, out);
	else /* the tenant has seen the window of the SYN, which no rule governed */
		sg_be_lenient(flow, flow->snd_una + flow->cc.cwnd);
	if (half->peer & SG_PEER_PROMOTED)
		out->count = !to_tenant && flow->reason == SG_WHY_OPTION_DROPPED ?
				     SG_COUNT_SYN_FALLBACK :
				     SG_COUNT_NONE; /* a repeated SYN/ACK is no other flow */
	half->peer |= SG_PEER_PROMOTED;
	return 0;
}

/*
 * Whether a segment without a flow makes one: only the tenant's own data do. Otherwise a remote
 * sender could fill the table with flows of connections that do not exist.
 */
SG_INLINE int sg_begins_midstream(const struct sg_segment *seg)
{
	return seg->payload && seg->direction == SG_FROM_TENANT && !(seg->tcp_flags & SG_RST);
}

/* A flow met without its handshake: it is shown and counted, never edited. */
SG_INLINE void sg_midstream(struct sg_flow *flow, const struct sg_segment *seg,
			    const struct sg_params *params, const struct sg_remembered *known)
{
	flow->mode = SG_MODE_WATCH;
	flow->reason = known->one_way ? SG_WHY_ONE_DIRECTION : SG_WHY_MIDSTREAM;
	flow->mss = SG_MSS_COMMON;
	flow->marks = SG_FLOW_ADOPTED | SG_FLOW_SCALE_BOUND;
	if (known->scale == SG_SCALE_EXACT) {
		flow->marks = SG_FLOW_ADOPTED;
		flow->wscale = known->wscale & 15;
		flow->mss = (sg_u16)sg_max32(known->mss, SG_MSS_MIN);
	}
	flow->snd_una = seg->direction == SG_FROM_TENANT ? seg->seq : seg->ack;
	flow->snd_nxt = flow->snd_una;
	flow->recover = flow->snd_una;
	flow->karn_end = flow->snd_una;
	sg_rtt_forget(flow);
	sg_feedback_start(flow);
	sg_cc_init(&flow->cc, params, params->one_sided, flow->mss);
	flow->cc.round_end = flow->snd_una;
	flow->cc.cut_end = flow->snd_una;
}

/* The tuple has begun a new life whose handshake could not be kept. */
SG_INLINE void sg_handshake_unseen(struct sg_flow *flow)
{
	flow->mode = SG_MODE_WATCH;
	flow->reason = SG_WHY_MIDSTREAM;
	flow->marks = SG_FLOW_ADOPTED | SG_FLOW_SCALE_BOUND;
	flow->wscale = 0;
	flow->top_window = 0;
}

#endif /* SLUICE_HANDSHAKE_H */
