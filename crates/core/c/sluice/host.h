/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A host with room for one connection: frames in, frames out. What tests,
 * fuzzers and vectors drive; a data plane has the same sequence around a table.
 */
#ifndef SLUICE_HOST_H
#define SLUICE_HOST_H

#include "count.h"
#include "frame.h"
#include "handshake.h"
#include "policy.h"

struct sg_host {
	struct sg_policy policy;
	struct sg_scope scope;       /* of the tenant's interface */
	struct sg_counters counters;
	struct sg_flow_key key;      /* of the flow, or of the last SYN */
	struct sg_half_open half[2]; /* by the direction of the SYN */
	struct sg_half_open answer;  /* a SYN/ACK whose SYN was not seen */
	struct sg_flow flow;
	struct sg_remembered known;  /* of a connection met from the middle */
	sg_u32 flow_exists;
	sg_u32 answered;             /* `answer` has come since the flow's last data */
};

struct sg_host_result {
	struct sg_segment seg;   /* as parsed */
	struct sg_verdict out;
	sg_u32 frame_len;        /* after the edits */
	sg_u32 fack_len;         /* 0 = none */
	sg_u32 unheld;           /* data of the tenant that no window holds: for a bucket */
};

SG_INLINE void sg_host_handshake(struct sg_host *host, struct sg_packet *p, sg_u64 now_ns,
				 struct sg_verdict *out)
{
	int answers = !!(p->seg.tcp_flags & SG_ACK);
	struct sg_half_open *half = &host->half[(p->seg.direction ^ answers) & 1];
	const struct sg_params *params;
	struct sg_flow made = { 0 };
	sg_u32 rule, promoted;

	rule = sg_policy_match(&host->policy, &host->scope, &p->key);
	if (answers) {
		if (rule == SG_RULE_NONE)
			return;
		if (!sg_synack_matches(half, &p->seg)) {
			host->key = p->key;
			host->answered = 1;
			sg_note_answer(&host->answer, &p->seg, now_ns);
			if (p->seg.peer_trusted)
				sg_refuse_claims(&p->seg, &host->policy.slots[rule].params,
						 SG_OPT_PEER, out);
			return;
		}
		/* Another policy may have come into force since the SYN. */
		half->rule = (sg_u8)rule;
		params = &host->policy.slots[rule].params;
		made.rule = half->rule;
		made.seen_ns = now_ns;
		made.progress_ns = now_ns;
		promoted = half->peer & SG_PEER_PROMOTED;
		sg_synack(&made, half, &p->seg, params, out);
		if (promoted)
			return;
		host->flow = made;
		host->flow_exists = 1;
		host->answered = 0;
		return;
	}
	if (rule == SG_RULE_NONE) {
		out->count = SG_COUNT_NO_RULE;
		return;
	}
	host->key = p->key;
	half->rule = (sg_u8)rule;
	sg_syn(half, &p->seg, now_ns, &host->policy.slots[rule].params, out);
}

/*
 * A flow met without its handshake begins with this packet, but does not count it. `again`: in
 * the place of one that the tuple has had until now.
 */
SG_INLINE void sg_host_midstream(struct sg_host *host, const struct sg_packet *p, int again,
				 sg_u64 now_ns)
{
	struct sg_remembered known = host->known;
	struct sg_flow before = host->flow;
	sg_u32 rule = sg_policy_match(&host->policy, &host->scope, &p->key);

	if (rule == SG_RULE_NONE || !sg_begins_midstream(&p->seg))
		return;
	if (sg_follows_answer(&host->answer, &p->seg))
		sg_recall_answer(&known, &host->answer);
	known.one_way = (sg_u8)(sg_is_unanswered(&host->half[0]) ||
				sg_is_unanswered(&host->half[1]));
	host->key = p->key;
	host->flow = (struct sg_flow){ 0 };
	host->flow.rule = (sg_u8)rule;
	host->flow.seen_ns = now_ns;
	host->flow.progress_ns = now_ns;
	sg_midstream(&host->flow, &p->seg, &host->policy.slots[rule].params, &known);
	if (again)
		sg_keep_receiving(&host->flow, &before, now_ns);
	host->flow_exists = 1;
	host->counters.value[SG_COUNT_FLOW_MIDSTREAM]++;
}

/* No flow is known: the peer's host may know one, and would believe the tenant. */
SG_INLINE void sg_host_stray(struct sg_host *host, const struct sg_packet *p,
			     struct sg_verdict *out)
{
	sg_u32 rule = sg_policy_match(&host->policy, &host->scope, &p->key);

	if ((p->seg.options & SG_OPT_FEEDBACK) && rule != SG_RULE_NONE &&
	    sg_policy_trusts(&host->policy, &p->key.remote))
		sg_refuse_claims(&p->seg, &host->policy.slots[rule].params, SG_OPT_FEEDBACK, out);
}

SG_INLINE void sg_host_segment(struct sg_host *host, struct sg_packet *p, sg_u64 now_ns,
			       struct sg_verdict *out)
{
	const struct sg_params *params;
	sg_u32 existed = host->flow_exists;

	if (p->seg.tcp_flags & SG_SYN) {
		sg_host_handshake(host, p, now_ns, out);
		return;
	}
	if (host->answered && sg_begins_midstream(&p->seg)) {
		host->answered = 0;
		if (sg_follows_answer(&host->answer, &p->seg))
			host->flow_exists = 0;
	}
	if (!host->flow_exists) {
		sg_host_stray(host, p, out);
		out->edits |= SG_EDIT_UNHELD;
		sg_host_midstream(host, p, existed, now_ns);
		return;
	}
	params = &host->policy.slots[host->flow.rule].params;
	if (p->seg.direction == SG_FROM_TENANT)
		sg_from_tenant(&host->flow, &p->seg, now_ns, params, out);
	else
		sg_to_tenant(&host->flow, &p->seg, now_ns, params, out);
}

/* Cuts a frame to its IP packet, where a rule enforces; else returns 0. */
SG_INLINE int sg_host_trim(struct sg_host *host, const struct sg_packet *p,
			   struct sg_frame *frame)
{
	sg_u32 rule = sg_policy_match(&host->policy, &host->scope, &p->key);

	if (rule == SG_RULE_NONE || host->policy.slots[rule].params.mode != SG_RULE_ENFORCE)
		return 0;
	frame->len = p->l4_at + p->l4_len;
	sg_count(&host->counters, SG_COUNT_TRIMMED);
	return 1;
}

/* Data of the tenant that a bucket is to be charged with. */
SG_INLINE int sg_host_is_unheld(const struct sg_packet *p, const struct sg_verdict *out)
{
	if (p->seg.direction != SG_FROM_TENANT || !p->seg.payload)
		return 0;
	return (p->seg.tcp_flags & (SG_SYN | SG_RST)) || (out->edits & SG_EDIT_UNHELD);
}

/*
 * One frame through the host. Edits it in place (up to 8 bytes longer, within
 * its capacity) and writes a FACK to `fack` when one is due.
 */
SG_INLINE void sg_host_frame(struct sg_host *host, struct sg_frame *frame, sg_u32 direction,
			     sg_u64 now_ns, struct sg_frame *fack, struct sg_host_result *result)
{
	struct sg_packet p = { 0 };
	struct sg_verdict *out = &result->out;
	sg_u32 why;

	*result = (struct sg_host_result){ .frame_len = frame->len };
	host->counters.value[SG_COUNT_PACKETS]++;
	why = sg_frame_parse(&p, frame, direction);
	if (why) {
		sg_count(&host->counters, why);
		return;
	}
	if (p.trim && !sg_host_trim(host, &p, frame)) {
		sg_count(&host->counters, SG_COUNT_MALFORMED);
		return;
	}
	if (p.seg.tcp_flags & SG_SYN)
		p.seg.peer_trusted = (sg_u8)sg_policy_trusts(&host->policy, &p.key.remote);
	result->seg = p.seg;
	sg_host_segment(host, &p, now_ns, out);
	sg_count_verdict(&host->counters, &p.seg, out);
	if (out->action == SG_PASS)
		sg_frame_apply(&p, frame, out);
	if (out->edits & SG_EDIT_WANT_FACK)
		result->fack_len = sg_frame_fack(&p, frame, out, fack->data, fack->capacity);
	result->unheld = (sg_u32)sg_host_is_unheld(&p, out);
	result->frame_len = frame->len;
}

#endif /* SLUICE_HOST_H */
