/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A host with room for one connection: frames in, frames out. What tests,
 * fuzzers and vectors drive; a data plane has the same sequence around a table.
 */
#ifndef SLUICE_HOST_H
#define SLUICE_HOST_H

#include "count.h"
#include "frame.h"
#include "lifecycle.h"
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
	struct sg_blackhole blackhole; /* the only peer */
	sg_u32 flow_exists;
	sg_u32 answered;             /* `answer` has come since the flow began */
	struct sg_path path;         /* of the flow, which is alone on it */
};

struct sg_host_result {
	struct sg_segment seg;   /* as parsed */
	struct sg_verdict out;
	sg_u32 frame_len;        /* after the edits */
	sg_u32 fack_len;         /* 0 = none */
	sg_u32 unheld;           /* data of the tenant that no window holds: for a bucket */
};

SG_INLINE const struct sg_params *sg_host_params(const struct sg_host *host, sg_u32 rule)
{
	return &host->policy.slots[rule & (SG_SLOTS_MAX - 1)].params;
}

SG_INLINE void sg_host_note(struct sg_host *host, const struct sg_packet *p,
			    enum sg_offer_news news, sg_u64 now_ns)
{
	if (sg_blackhole_note(&host->blackhole, &p->key, news, now_ns))
		sg_count_offers(&host->counters, news);
}

SG_INLINE void sg_host_syn(struct sg_host *host, struct sg_packet *p, sg_u64 now_ns,
			   struct sg_verdict *out)
{
	sg_u32 rule = sg_policy_match(&host->policy, &host->scope, &p->key);
	sg_u32 offers = sg_offers_to(&host->blackhole, &p->key, now_ns);
	enum sg_offer_news news;

	if (sg_fate_of_syn(rule, out) == SG_FATE_PASS)
		return;
	host->key = p->key;
	news = sg_life_syn(&host->half[sg_opener_of(&p->seg) - 1], &p->seg, now_ns, rule,
			   (int)host->flow_exists, offers, sg_host_params(host, rule), out);
	sg_host_note(host, p, news, now_ns);
}

SG_INLINE void sg_host_synack(struct sg_host *host, struct sg_packet *p, sg_u64 now_ns,
			      struct sg_verdict *out)
{
	sg_u32 rule = sg_policy_match(&host->policy, &host->scope, &p->key);
	struct sg_half_open *half = &host->half[sg_opener_of(&p->seg) - 1];
	const struct sg_params *params = sg_host_params(host, rule);
	enum sg_fate fate = sg_fate_of_synack(half, &p->seg, rule, (int)host->flow_exists);
	enum sg_partner partner = sg_partner_of(host->flow_exists ? &host->flow : 0,
						now_ns);
	struct sg_flow made;

	if (fate == SG_FATE_PASS)
		return;
	if (fate != SG_FATE_MAKE &&
	    (!host->flow_exists || sg_answers_anew(&host->flow, &p->seg))) {
		host->key = p->key;
		host->answered = 1;
		sg_note_answer(&host->answer, &p->seg, now_ns);
	}
	if (fate == SG_FATE_NOTE) {
		sg_life_refuse(&p->seg, p->seg.peer_trusted, params, out);
		return;
	}
	sg_life_blank(&made, now_ns, rule);
	sg_host_note(host, p, sg_life_synack_news(half, &p->seg), now_ns);
	sg_life_synack(&made, half, &p->seg, rule, partner, params, out);
	if (fate == SG_FATE_REPEAT && !sg_life_gives_up(host->flow_exists ? &host->flow : 0, &made))
		return;
	host->flow = made;
	host->flow_exists = 1;
	host->answered = 0;
}

/* Nothing is known of the connection, or of its new life: its flow begins here, if it has one. */
SG_INLINE void sg_host_stray(struct sg_host *host, const struct sg_packet *p, enum sg_fate fate,
			     sg_u64 now_ns, struct sg_verdict *out)
{
	sg_u32 rule = sg_policy_match(&host->policy, &host->scope, &p->key);
	const struct sg_params *params = sg_host_params(host, rule);
	struct sg_remembered known = host->known;
	struct sg_flow before = host->flow;

	out->edits |= SG_EDIT_UNHELD;
	if (rule == SG_RULE_NONE)
		return;
	sg_life_refuse(&p->seg, sg_policy_trusts(&host->policy, &p->key.remote), params, out);
	if (fate != SG_FATE_MAKE)
		return;
	sg_life_know(&known, &p->seg, &host->answer, &host->half[0], &host->half[1]);
	host->key = p->key;
	sg_life_blank(&host->flow, now_ns, rule);
	sg_life_midstream(&host->flow, &p->seg, now_ns, params, &known,
		     host->flow_exists ? &before : 0);
	host->flow_exists = 1;
	host->answered = 0;
	host->counters.value[SG_COUNT_FLOW_MIDSTREAM]++;
}

SG_INLINE void sg_host_segment(struct sg_host *host, struct sg_packet *p, sg_u64 now_ns,
			       struct sg_verdict *out)
{
	enum sg_fate fate;

	if (p->seg.tcp_flags & SG_SYN) {
		if (p->seg.tcp_flags & SG_ACK)
			sg_host_synack(host, p, now_ns, out);
		else
			sg_host_syn(host, p, now_ns, out);
		return;
	}
	fate = sg_fate_of_segment(&p->seg, host->flow_exists ? &host->flow : 0,
				  (int)host->answered);
	if (fate == SG_FATE_RECALL) {
		fate = sg_fate_recalled(&host->answer, &host->flow, &p->seg, now_ns);
		host->answered = fate == SG_FATE_RECALL;
	}
	if (fate == SG_FATE_MAKE || fate == SG_FATE_PASS) {
		sg_host_stray(host, p, fate, now_ns, out);
		return;
	}
	if (sg_life_awaits_peer(&host->flow, &p->seg))
		sg_host_note(host, p,
			     sg_life_peer_news(&host->flow, &host->half[SG_OPENED_BY_REMOTE - 1],
					       &p->seg), now_ns);
	sg_step(&host->flow, &p->seg, now_ns, sg_host_params(host, host->flow.rule),
		&host->path, out);
	if (out->count == SG_COUNT_ECT_DROPPED)
		sg_host_note(host, p, SG_OFFER_LOST, now_ns);
}

/* Cuts a frame to its IP packet, where a rule enforces; else returns 0. */
SG_INLINE int sg_host_trim(struct sg_host *host, const struct sg_packet *p,
			   struct sg_frame *frame)
{
	sg_u32 rule = sg_policy_match(&host->policy, &host->scope, &p->key);

	if (rule == SG_RULE_NONE || host->policy.slots[rule].params.mode != SG_RULE_ENFORCE)
		return 0;
	sg_frame_trim(p, frame);
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

	frame->reach = frame->len;
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
