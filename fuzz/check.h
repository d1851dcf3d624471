/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Passes a frame through a host and checks what must hold of every frame,
 * whatever the state of the flow.
 */
#ifndef FUZZ_CHECK_H
#define FUZZ_CHECK_H

#include <sluice/host.h>

#include "wire.h"

/* Frames that have passed through a host in this process; run.sh shows how many. */
static sg_u64 frames;

__attribute__((destructor)) static void show_frames(void)
{
	fprintf(stderr, "stat::frames: %llu\n", (unsigned long long)frames);
}

/* The fate of a frame. */
struct passage {
	struct sg_host_result result;
	struct wire after;
	struct wire fack; /* len 0 = none */
};

/* Options other than padding, our two and (when hidden) MPTCP, one after another. */
static inline sg_u32 foreign_options(const struct wire *w, const struct view *v,
				     int mptcp_too, sg_u8 *to)
{
	sg_u32 at = v->tcp + TCP_LEN, n = 0;

	while (at < v->payload && w->bytes[at]) {
		sg_u32 kind = w->bytes[at];
		sg_u32 len = at + 1 < v->payload ? w->bytes[at + 1] : 0;

		if (kind == 1) {
			at++;
			continue;
		}
		if (len < 2 || at + len > v->payload)
			return ~0U; /* malformed */
		if (!(kind == SG_KIND_FEEDBACK && len == SG_OPTION_LEN) &&
		    !(kind == SG_KIND_EXPERIMENT && len == SG_OPTION_LEN &&
		      get16(w->bytes + at + 2) == SG_EXID) &&
		    !(kind == 30 && mptcp_too)) {
			memcpy(to + n, w->bytes + at, len);
			n += len;
		}
		at += len;
	}
	return n;
}

/*
 * Whether a header carries a hosts' option: of this kind, as long as theirs; with `exid`, ours
 * only.
 */
static inline int has_option(const struct wire *w, const struct view *v, sg_u8 kind,
			     int exid)
{
	sg_u32 at = v->tcp + TCP_LEN;

	while (at + 1 < v->payload && w->bytes[at]) {
		if (w->bytes[at] == 1) {
			at++;
			continue;
		}
		if (w->bytes[at + 1] < 2 || at + w->bytes[at + 1] > v->payload)
			return 0;
		if (w->bytes[at] == kind && w->bytes[at + 1] == SG_OPTION_LEN &&
		    (!exid || get16(w->bytes + at + 2) == SG_EXID))
			return 1;
		at += w->bytes[at + 1];
	}
	return 0;
}

/* The end of the options became NOPs: those before it are all that a parser reads of either. */
static inline void check_blanked(const struct wire *before, const struct view *b,
				 const struct wire *after, const struct view *a, sg_u32 end_at,
				 int hides_mptcp)
{
	sg_u8 was[OPTIONS_MAX + 1], is[OPTIONS_MAX + 1];
	struct view read = *b;
	sg_u32 n, m, i;

	require(end_at >= TCP_LEN && b->tcp + end_at < b->payload, "options do not end at %u", end_at);
	read.payload = b->tcp + end_at;
	n = foreign_options(before, &read, hides_mptcp, was);
	for (i = b->tcp + end_at; i < b->payload; i++)
		require(after->bytes[i] == 1, "byte %u behind the options is %u", i,
			after->bytes[i]);
	m = foreign_options(after, a, hides_mptcp, is);
	require(n != ~0U && n == m && !memcmp(was, is, n), "options that are read changed");
}

static inline void check_options(const struct wire *before, const struct view *b,
				 const struct wire *after, const struct view *a,
				 int hides_mptcp)
{
	sg_u8 was[OPTIONS_MAX + 1], is[OPTIONS_MAX + 1];
	sg_u32 n = foreign_options(before, b, hides_mptcp, was);
	sg_u32 m = foreign_options(after, a, hides_mptcp, is);

	/* Malformed options cannot be compared by their meaning: the bytes must be as they were. */
	if (n == ~0U) {
		require(a->payload - a->tcp == b->payload - b->tcp &&
				!memcmp(before->bytes + b->tcp + TCP_LEN,
					after->bytes + a->tcp + TCP_LEN,
					b->payload - b->tcp - TCP_LEN),
			"malformed options were edited");
		return;
	}
	require(n == m && !memcmp(was, is, n), "the tenant's options changed, %u to %u bytes",
		n, m);
}

static inline void check_fields(const struct wire *before, const struct view *b,
				const struct wire *after, const struct view *a,
				const struct sg_host_result *result)
{
	const sg_u8 *was = before->bytes + b->tcp, *is = after->bytes + a->tcp;

	require(!memcmp(was, is, 4), "ports changed");
	if (result->out.edits & SG_EDIT_SEQ)
		require(result->seg.direction == SG_FROM_TENANT && b->payload == b->end &&
				!(b->flags & (SG_SYN | SG_FIN | SG_RST)) &&
				get32(is + 4) - get32(was + 4) - 2 <= SG_WINDOW_MAX - 2,
			"sequence number %u became %u", get32(was + 4), get32(is + 4));
	else
		require(!memcmp(was + 4, is + 4, 4), "sequence number changed");
	if (result->out.edits & SG_EDIT_ACK)
		require(result->seg.direction == SG_FROM_TENANT &&
				sg_seq_lt(get32(is + 8), get32(was + 8)),
			"acknowledgement number %u became %u", get32(was + 8), get32(is + 8));
	else
		require(!memcmp(was + 8, is + 8, 4), "acknowledgement number changed");
	require(!memcmp(was + 18, is + 18, 2), "urgent pointer changed");
	require(!(a->flags & ~b->flags), "flags %02x became %02x", b->flags, a->flags);
	require(!((a->flags ^ b->flags) & ~(SG_ECE | SG_CWR)), "flags %02x became %02x",
		b->flags, a->flags);
	require(a->traffic_class >> 2 == b->traffic_class >> 2, "DSCP changed");
	require(a->window <= b->window, "window enlarged from %u to %u", b->window,
		a->window);
	require(a->window || !b->window, "window closed from %u", b->window);
}

/* The MSS that Linux reads in a SYN (tcp_parse_options()); 0 = none. */
static inline sg_u32 mss_read(const struct wire *w, const struct view *v)
{
	sg_u32 at = v->tcp + TCP_LEN, mss = 0;

	while (at < v->payload && w->bytes[at]) {
		sg_u32 len = at + 1 < v->payload ? w->bytes[at + 1] : 0;

		if (w->bytes[at] == 1) {
			at++;
			continue;
		}
		if (len < 2 || at + len > v->payload)
			break;
		if (w->bytes[at] == 2 && len == 4 && get16(w->bytes + at + 2))
			mss = get16(w->bytes + at + 2);
		at += len;
	}
	return mss;
}

/* `was` gets the MSS that the host has written, in place of the larger one that was read. */
static inline void expect_mss(struct wire *was, const struct view *b,
			      const struct sg_host_result *result)
{
	sg_u8 *option = was->bytes + b->tcp + result->seg.mss_at;

	if (!(result->out.edits & SG_EDIT_MSS))
		return;
	require(result->seg.direction == SG_TO_TENANT && (b->flags & SG_SYN),
		"an MSS was written that no tenant reads");
	require(option + 4 <= was->bytes + b->payload && option[0] == 2 && option[1] == 4 &&
			get16(option + 2) > result->out.mss &&
			get16(option + 2) == mss_read(was, b),
		"an MSS was written that was not read");
	put16(option + 2, (sg_u16)result->out.mss);
}

/* The MSS that a tenant reads is at most that of the rule that governs its flow or its SYN. */
static inline void check_mss(const struct sg_host *host, const struct passage *p)
{
	const struct sg_segment *seg = &p->result.seg;
	sg_u32 most = host->policy.slots[0].params.mss, count = p->result.out.count;
	int made = count == SG_COUNT_FLOW_TWO_SIDED || count == SG_COUNT_FLOW_ONE_SIDED;
	struct view a;

	if (!most || host->policy.slots[0].params.mode != SG_RULE_ENFORCE ||
	    seg->direction != SG_TO_TENANT || !(seg->tcp_flags & SG_SYN) ||
	    !look(&p->after, &a))
		return;
	if (seg->tcp_flags & SG_ACK ? made : !(seg->options & (SG_OPT_SIGNED | SG_OPT_MALFORMED)))
		require(mss_read(&p->after, &a) <= most, "a tenant reads an MSS of %u",
			mss_read(&p->after, &a));
}

/* An edited frame is still the tenant's frame. */
static inline void check_edit(const struct wire *before, const struct wire *after,
			      const struct sg_host_result *result, int hides_mptcp)
{
	struct wire was = *before;
	struct view b, a;

	if (!look(before, &b)) {
		require(before->len == after->len &&
				!memcmp(before->bytes, after->bytes, before->len),
			"a frame that is no plain TCP was edited");
		return;
	}
	require(look(after, &a), "an edit made the frame unreadable");
	require(!memcmp(before->bytes, after->bytes, b.ip), "Ethernet header changed");
	require(!ip_sum_ok(before, &b) || ip_sum_ok(after, &a), "IP checksum broken");
	require(!tcp_sum_ok(before, &b) || tcp_sum_ok(after, &a), "TCP checksum broken");
	require(a.end - a.payload == b.end - b.payload &&
			!memcmp(before->bytes + b.payload, after->bytes + a.payload,
				b.end - b.payload),
		"payload changed");
	check_fields(before, &b, after, &a, result);
	expect_mss(&was, &b, result);
	if (result->out.edits & SG_EDIT_BLANK_REST)
		check_blanked(&was, &b, after, &a, result->seg.end_at, hides_mptcp);
	else
		check_options(&was, &b, after, &a, hides_mptcp);
}

static inline void check_fack(const struct wire *fack, const struct wire *of)
{
	struct view f, v;

	require(look(fack, &f), "unreadable FACK");
	require(look(of, &v), "FACK of an unreadable frame");
	require(!ip_sum_ok(of, &v) || ip_sum_ok(fack, &f), "FACK with a wrong IP checksum");
	require(tcp_sum_ok(fack, &f), "FACK with a wrong TCP checksum");
	require(f.end == fack->len && f.payload == f.end, "FACK with payload");
	require(f.flags == SG_ACK, "FACK with flags %02x", f.flags);
	require(!memcmp(fack->bytes + f.tcp, of->bytes + v.tcp, 12),
		"FACK of another segment");
}

/* Flows that may not be edited were not: observers', watched ones, ECN of one-sided ones. */
static inline void check_restraint(const struct sg_host *host, sg_u32 mode_before,
				   const struct wire *before, const struct passage *p)
{
	int same = before->len == p->after.len &&
		   !memcmp(before->bytes, p->after.bytes, before->len);
	/* A tenant's word for its host, and its ACKs of what never came, stop here in any case. */
	sg_u16 refusals = SG_EDIT_STRIP_FEEDBACK | SG_EDIT_STRIP_PEER | SG_EDIT_ACK;
	int refused = p->result.seg.direction == SG_FROM_TENANT &&
		      (p->result.out.edits & refusals) &&
		      !(p->result.out.edits & ~(refusals | SG_EDIT_UNHELD));
	int cut = p->after.len < before->len &&
		  !memcmp(before->bytes, p->after.bytes, p->after.len);
	int untouched = (same || refused || cut) && p->result.out.action == SG_PASS &&
			!p->fack.len;
	int syn = p->result.seg.tcp_flags & SG_SYN;
	int held = (same || cut) && p->result.out.action == SG_DROP && !p->fack.len &&
		   p->result.out.count == SG_COUNT_ACK_AHEAD;
	struct view b, a;

	if (host->policy.slots[0].params.mode != SG_RULE_ENFORCE)
		require(untouched && same, "a host that observes edited a packet");
	if (syn || mode_before == SG_MODE_TWO_SIDED)
		return;
	if (!host->flow_exists || host->flow.mode == SG_MODE_WATCH)
		require(untouched || held, "a watched flow was edited");
	if (look(before, &b) && look(&p->after, &a))
		require(b.flags == a.flags && b.traffic_class == a.traffic_class,
			"the ECN of a one-sided flow was touched");
}

/* A window that was lowered holds a full segment: with less a Linux sender waits for a timer. */
static inline void check_floor(const struct sg_host *host, const struct wire *before,
			       const struct passage *p)
{
	const struct sg_segment *seg = &p->result.seg;
	sg_u32 mss = host->flow.mss, scale = host->flow.wscale;
	struct view b, a;

	/* Met from the middle, segments may turn out to be larger than was thought. */
	if (!host->flow_exists || !look(before, &b) || !look(&p->after, &a) ||
	    a.window == b.window || (host->flow.marks & SG_FLOW_SCALE_BOUND))
		return;
	if (b.flags & SG_SYN) { /* a repeated one may say something else than the first */
		mss = seg->options & SG_OPT_MSS ? sg_max32(seg->mss, SG_MSS_MIN) :
						  SG_MSS_DEFAULT;
		if (p->result.out.edits & SG_EDIT_MSS)
			mss = p->result.out.mss;
		mss = sg_min32(mss, host->flow.mss); /* what it says may be more than paths carry */
		scale = 0;
	}
	require(((sg_u32)a.window << scale) > mss,
		"window %u at scale %u is no full segment of %u", a.window, scale, mss);
}

/* Where the step says that it needs no clock, an older time makes the same of the segment. */
static inline void check_clock(const struct sg_host *was, const struct sg_host *is,
			       const struct passage *p)
{
	const struct sg_segment *seg = &p->result.seg;
	struct sg_verdict out = { 0 };
	struct sg_flow flow = was->flow;

	/* With such a packet another flow begins, which no step has seen. */
	if (was->flow_exists &&
	    sg_fate_of_segment(seg, &was->flow, (int)was->answered) == SG_FATE_RECALL)
		return;
	if (!was->flow_exists || !seg->header_len || (seg->tcp_flags & SG_SYN) ||
	    sg_needs_clock(&flow, seg))
		return;
	sg_step(&flow, seg, flow.seen_ns, &was->policy.slots[flow.rule].params, 0, &out);
	flow.seen_ns = is->flow.seen_ns;
	require(!memcmp(&flow, &is->flow, sizeof(flow)) &&
			!memcmp(&out, &p->result.out, sizeof(out)),
		"an older time made a difference");
}

/* With TRACE set, a line per frame: what was seen and decided. */
static inline void trace(const struct sg_host *host, sg_u32 direction,
			 const struct sg_host_result *r)
{
	if (!getenv("TRACE"))
		return;
	fprintf(stderr,
		"%p %s flags %02x seq %u ack %u window %u payload %u ecn %u options %x: "
		"action %u edits %x window %u | mode %u why %u una %u nxt %u edge %u cwnd %u\n",
		(const void *)host, direction == SG_TO_TENANT ? "to  " : "from",
		r->seg.tcp_flags, r->seg.seq, r->seg.ack, r->seg.window, r->seg.payload,
		r->seg.ecn, r->seg.options, r->out.action, r->out.edits, r->out.window,
		host->flow.mode, host->flow.reason, host->flow.snd_una, host->flow.snd_nxt,
		host->flow.edge, host->flow.cc.cwnd);
}

/*
 * One frame through one host. Buffers are exactly as long as the host may use,
 * so that the sanitizer sees a byte read beyond them.
 */
static inline void pass(struct sg_host *host, const struct wire *before,
			sg_u32 direction, sg_u64 now_ns, sg_u32 room, struct passage *p)
{
	struct sg_frame frame = { malloc(before->len + room), before->len,
				  before->len + room, before->len, 0 };
	struct sg_frame fack = { malloc(256), 0, 256, 0, 0 };
	sg_u32 mode_before = host->flow_exists ? host->flow.mode : SG_MODE_WATCH;
	struct sg_host was = *host;

	require(frame.data && fack.data, "out of memory");
	frames++;
	memcpy(frame.data, before->bytes, before->len);
	sg_host_frame(host, &frame, direction, now_ns, &fack, &p->result);
	require(frame.len <= before->len + SG_OPTION_LEN && frame.len == p->result.frame_len,
		"frame of %u bytes became %u", before->len, frame.len);
	memcpy(p->after.bytes, frame.data, frame.len);
	p->after.len = frame.len;
	p->fack.len = p->result.fack_len;
	memcpy(p->fack.bytes, fack.data, p->fack.len);
	free(frame.data);
	free(fack.data);

	trace(host, direction, &p->result);
	check_edit(before, &p->after, &p->result,
		   (host->policy.slots[0].params.flags & SG_RULE_STRIP_MPTCP) &&
			   (p->result.seg.tcp_flags & SG_SYN));
	if (p->fack.len)
		check_fack(&p->fack, &p->after);
	check_restraint(host, mode_before, before, p);
	check_floor(host, before, p);
	check_mss(host, p);
	check_clock(&was, host, p);
	require(!host->flow_exists || host->flow.cc.cwnd, "no window");
}

/* One rule for everything; every prefix is trusted, or none. */
static inline void take_policy(struct input *in, struct sg_host *host)
{
	struct sg_policy *policy = &host->policy;
	struct sg_params *p = &policy->slots[0].params;
	sg_u8 bits = take8(in);

	memset(policy, 0, sizeof(*policy));
	policy->rules_count = 1;
	policy->slots[0].source_port_high = 0xffff;
	policy->slots[0].destination_port_high = 0xffff;
	policy->slots[0].vlan = SG_VLAN_ANY;
	host->scope.word[0] = 1;
	policy->trusted_count = !!(bits & 1);
	p->mode = bits & 0x70 ? SG_RULE_ENFORCE : SG_RULE_OBSERVE;
	p->flags = (sg_u8)(SG_RULE_POLICE | (bits & 2 ? SG_RULE_STRIP_MPTCP : 0));
	p->algorithm = (sg_u8)take_range(in, 0, SG_CC_COUNT - 1);
	p->one_sided = (sg_u8)take_range(in, 0, SG_CC_COUNT - 1);
	p->fallback = p->one_sided;
	p->floor_mss = bits & 4 ? 1 : 2;
	p->mss = bits & 8 ? (bits & 128 ? SG_MSS_DEFAULT : 1460) : 0;
	p->init_segments = (sg_u8)take_range(in, 1, 64);
	p->g_shift = 4;
	p->beta_q10 = take_range(in, 0, SG_ONE_Q10);
	p->window_cap = take_range(in, 0, SG_WINDOW_MAX);
	p->fixed_bytes = take_range(in, 0, SG_WINDOW_MAX);
	p->k_delay_ns = take32(in);
	p->vegas_alpha = 2;
	p->vegas_beta = 4;
	p->rto_min_us = take16(in) * 16U;
}

#endif /* FUZZ_CHECK_H */
