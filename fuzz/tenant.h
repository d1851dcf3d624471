/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's TCP that follows the standards, as plain as can be: it accepts data
 * in order only, obeys every window that it was shown, repeats what is
 * outstanding, each byte once in a round trip. Enforcement must never police it, nor
 * show it what hosts say to each other.
 */
#ifndef FUZZ_TENANT_H
#define FUZZ_TENANT_H

#include <sluice/seq.h>

#include "wire.h"

enum tenant_state { CLOSED, SYN_SENT, SYN_RECEIVED, OPEN };

struct tenant {
	enum tenant_state state;
	sg_u32 iss;
	sg_u32 una;
	sg_u32 nxt;
	sg_u32 edge;       /* highest right edge shown to it */
	sg_u32 rcv_nxt;
	sg_u32 repeated;   /* of what it repeats in this round trip, what it has repeated */
	sg_u32 recover;    /* where that ends */
	sg_u64 repeat_ns;  /* when that began */
	sg_u64 idle_ns;    /* when nothing of its own was on its way, as far as is known */
	sg_u64 rtt_ns;     /* no ACK has taken longer on this connection */
	sg_u16 mss;        /* its own offer */
	sg_u16 mss_read;   /* the peer's, as it came */
	sg_u8 wscale;      /* its own offer, 0 = none */
	sg_u8 peer_wscale; /* shift of the windows it is shown */
	int mptcp;
	int ecn;
	sg_u8 id;          /* 1 or 2: address and payload */
};

/* Any byte of a stream is known from its sequence number. */
static inline sg_u8 stream_byte(const struct tenant *from, sg_u32 seq)
{
	return (sg_u8)(from->id * 31 + seq * 7);
}

/* The header fields that every segment of a tenant shares. */
static inline void tenant_shape(const struct tenant *t, struct shape *s, int ip_version,
				sg_u8 flags, sg_u16 window)
{
	memset(s, 0, sizeof(*s));
	s->ip_version = ip_version;
	s->local = 0x0a000000U + t->id;
	s->remote = 0x0a000003U - t->id;
	s->source_port = (sg_u16)(4000 + t->id);
	s->destination_port = (sg_u16)(4003 - t->id);
	s->seq = t->nxt;
	s->ack = flags & SG_ACK ? t->rcv_nxt : 0;
	s->flags = flags;
	s->window = window;
	s->payload_seed = stream_byte(t, t->nxt);
}

static inline void add_option(struct shape *s, sg_u8 kind, sg_u8 len, sg_u32 value)
{
	sg_u8 *at = s->options + s->options_len;

	if (s->options_len + len > OPTIONS_MAX)
		return;
	memset(at, 0, len);
	at[0] = kind;
	at[1] = len;
	if (len == 3)
		at[2] = (sg_u8)value;
	if (len == 4)
		put16(at + 2, value);
	s->options_len += len;
}

static inline void handshake_options(const struct tenant *t, struct shape *s)
{
	add_option(s, 2, 4, t->mss);
	if (t->wscale)
		add_option(s, 3, 3, t->wscale);
	if (t->mptcp)
		add_option(s, 30, 12, 0);
	while (s->options_len & 3)
		s->options[s->options_len++] = 1;
}

static inline sg_u8 option_value(const struct wire *w, const struct view *v, sg_u8 kind)
{
	sg_u32 at = v->tcp + TCP_LEN;

	while (at + 2 < v->payload && w->bytes[at]) {
		if (w->bytes[at] == kind)
			return w->bytes[at + 2];
		at += w->bytes[at] == 1 ? 1 : w->bytes[at + 1];
	}
	return 0;
}

static inline void tenant_learns_offer(struct tenant *t, const struct wire *w,
				       const struct view *v)
{
	sg_u8 offered = option_value(w, v, 3);
	sg_u32 mss = mss_read(w, v);

	t->mss_read = (sg_u16)(mss ? mss : SG_MSS_DEFAULT);
	t->peer_wscale = t->wscale && offered ? offered : 0;
}

static inline void tenant_takes_syn(struct tenant *t, const struct wire *w,
				    const struct view *v)
{
	sg_u32 seq = get32(w->bytes + v->tcp + 4), ack = get32(w->bytes + v->tcp + 8);

	if (!(v->flags & SG_ACK) && (t->state == CLOSED || t->state == SYN_RECEIVED)) {
		if (t->state == SYN_RECEIVED && t->rcv_nxt != seq + 1)
			return;
		if (t->state == CLOSED) {
			t->una = t->iss;
			t->nxt = t->iss;
		}
		t->state = SYN_RECEIVED;
		t->rcv_nxt = seq + 1;
		tenant_learns_offer(t, w, v);
	} else if ((v->flags & SG_ACK) && t->state == SYN_SENT && ack == t->iss + 1) {
		t->state = OPEN;
		t->una = ack;
		t->rcv_nxt = seq + 1;
		tenant_learns_offer(t, w, v);
		t->edge = ack + v->window; /* not scaled (RFC 7323 2.2) */
	}
}

/* How many bytes at `at` are those of the stream from `seq` on. */
static PLAIN sg_u32 stream_match(const struct tenant *from, sg_u32 seq, const sg_u8 *at,
				 sg_u32 len)
{
	sg_u32 i;

	for (i = 0; i < len && at[i] == stream_byte(from, seq + i); i++)
		;
	return i;
}

static inline void tenant_takes_data(struct tenant *t, const struct tenant *peer,
				     const struct wire *w, const struct view *v)
{
	sg_u32 seq = get32(w->bytes + v->tcp + 4), payload = v->end - v->payload;
	sg_u32 right = stream_match(peer, seq, w->bytes + v->payload, payload);

	require(right == payload, "byte %u of the stream is wrong", seq + right);
	if (seq == t->rcv_nxt)
		t->rcv_nxt += payload + !!(v->flags & SG_FIN);
}

/* RFC 9293 3.10.7.4, without what the model has no use for. */
static inline void tenant_takes(struct tenant *t, const struct tenant *peer,
				const struct wire *w)
{
	sg_u32 ack, edge;
	struct view v;

	require(look(w, &v), "a tenant was given an unreadable frame");
	require(ip_sum_ok(w, &v) && tcp_sum_ok(w, &v), "a tenant was given a wrong checksum");
	ack = get32(w->bytes + v.tcp + 8);
	if (v.flags & SG_SYN) {
		tenant_takes_syn(t, w, &v);
		return;
	}
	if (v.flags & SG_RST || t->state < SYN_RECEIVED || !(v.flags & SG_ACK) ||
	    sg_seq_lt(ack, t->una) || sg_seq_gt(ack, t->nxt))
		return;
	edge = ack + ((sg_u32)v.window << t->peer_wscale);
	if (t->state == SYN_RECEIVED) {
		if (ack != t->iss + 1)
			return;
		t->state = OPEN;
		t->edge = edge;
	}
	t->una = ack;
	t->edge = sg_seq_max(t->edge, edge);
	tenant_takes_data(t, peer, w, &v);
}

/* Bytes that the tenant may send now. */
static inline sg_u32 tenant_room(const struct tenant *t)
{
	return t->state == OPEN && sg_seq_gt(t->edge, t->nxt) ? t->edge - t->nxt : 0;
}

/* Before anything is sent or comes at this time. */
static inline void tenant_looks(struct tenant *t, sg_u64 now_ns)
{
	if (t->una == t->nxt)
		t->idle_ns = now_ns;
}

/* An ACK may have come, for what was sent after it had last been idle. */
static inline void tenant_times(struct tenant *t, sg_u32 una_before, sg_u64 now_ns)
{
	if (t->una != una_before && now_ns - t->idle_ns > t->rtt_ns)
		t->rtt_ns = now_ns - t->idle_ns;
}

/*
 * From where it repeats outstanding data: each byte once in a round trip of `rtt_ns`, which
 * is what a duplicate ACK, a SACK or a timer takes at least. Where nothing is left of this
 * one's, it waits for the next.
 */
static inline sg_u32 tenant_repeats_from(struct tenant *t, sg_u64 rtt_ns, sg_u64 *now_ns)
{
	sg_u32 from = sg_seq_max(t->una, t->repeated);

	if (sg_seq_lt(from, t->recover))
		return from;
	if (t->repeat_ns && *now_ns < t->repeat_ns + rtt_ns)
		*now_ns = t->repeat_ns + rtt_ns;
	t->repeat_ns = *now_ns;
	t->recover = t->nxt;
	return t->una;
}

#endif /* FUZZ_TENANT_H */
