/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two tenants that follow the standards, each behind its host, and a network that
 * marks, drops, repeats, reorders and bleaches.
 *
 * Beyond what check.h says of every frame: neither tenant is ever policed while it
 * keeps to the windows it was shown, and always when it does not; neither sees
 * marks or the hosts' options while both enforce; a sender is never told of more
 * marked bytes than arrived marked. Sequence numbers and feedback counters start
 * wherever the input says, near their wrap-around too.
 *
 * Input: policies, tenants, then operations until the bytes are used up.
 */
#include "check.h"
#include "tenant.h"

#define QUEUE 8U

struct side {
	struct sg_host host;
	struct tenant tenant;
	int enforces;         /* its programs are attached */
	int cheated;          /* its tenant has sent beyond its window */
	sg_u32 dropped_bytes; /* the farthest that it sent in vain, from what was acknowledged then */
	sg_u64 marked_bytes;  /* payload that reached it with CE */
	sg_u32 late_edge;     /* the farthest that ACKs showed which came too late for it */
	int late;             /* there was one */
};

struct network {
	struct side side[2];
	struct wire queue[2][QUEUE]; /* frames that left side i */
	sg_u32 queued[2];
	sg_u64 now_ns;
	int ip_version;
	int bleaches;
	int undisturbed; /* one connection so far: byte counts can be compared */
	int in_order;    /* whatever arrived did so in the order in which it left */
};

enum operation {
	CONNECT, ACCEPT, DATA, ACKNOWLEDGE, DELIVER, DELIVER_MARKED, DUPLICATE, LOSE,
	RETRANSMIT, PROBE, FINISH, BURST, CHEAT, CALM, DETACH, BLEACH, REUSE, RESET,
	OPERATIONS
};

static void enqueue(struct network *n, int from, const struct wire *w)
{
	if (n->queued[from] == QUEUE) {
		memmove(n->queue[from], n->queue[from] + 1, sizeof(*w) * (QUEUE - 1));
		n->queued[from]--;
	}
	memcpy(&n->queue[from][n->queued[from]++], w, sizeof(*w));
}

/*
 * Bytes of a segment that enforcement leaves room for: neither end's MSS decides alone, no path is
 * taken to carry more than `path`, and what smaller segments prove is 1460 at least.
 */
static sg_u32 segment_of(const struct tenant *t, sg_u32 path)
{
	sg_u32 own = sg_max32(t->mss, SG_MSS_COMMON);

	return sg_max32(sg_min32(t->mss_read, sg_min32(own, path)), SG_MSS_MIN);
}

/*
 * The decision of policing on a segment, from the model: never drop what ends within a
 * segment beyond the edge; drop what the window, a tenth of it, what has been
 * dropped before, and duplicate ACKs (a window of them at most) leave no room for.
 */
static void check_policing(struct side *s, const struct shape *shape, sg_u32 action)
{
	const struct tenant *t = &s->tenant;
	sg_u32 limit = t->edge + segment_of(t, SG_MSS_COMMON);
	sg_u32 end = shape->seq + shape->payload;
	/* The step may have cut cwnd: what it had showed in the edge. */
	sg_u32 window = sg_max32(s->host.flow.cc.cwnd, t->edge - t->una);
	sg_u32 most = t->edge + segment_of(t, SG_MSS_JUMBO) + window + window / 10 + s->dropped_bytes;
	int beyond = t->state == OPEN && shape->payload && sg_seq_gt(end, limit);

	if (action != SG_PASS)
		require(s->cheated && (beyond || s->host.counters.value[SG_COUNT_REPEATED]), "policed within its window: end %u, limit %u",
			end, limit);
	/* An ACK of what was never seen leaves doubt about what the tenant was shown. */
	if (beyond && sg_seq_gt(end, most) && s->host.flow.mode != SG_MODE_WATCH && s->host.flow_exists &&
	    !s->host.counters.value[SG_COUNT_ACK_BEYOND] &&
	    !(s->host.flow.marks & SG_FLOW_ADOPTED) && s->host.flow.reason != SG_WHY_ONE_DIRECTION &&
	    s->host.policy.slots[0].params.mode == SG_RULE_ENFORCE)
		require(action == SG_DROP, "not policed: end %u, limit %u", end, most);
	if (action == SG_DROP)
		s->dropped_bytes = sg_max32(s->dropped_bytes, end - t->una);
}

/* Whether it left the host. */
static int transmit(struct network *n, int from, const struct shape *shape)
{
	struct side *s = &n->side[from];
	struct passage p;
	struct wire w;

	build(&w, shape);
	if (!s->enforces) {
		enqueue(n, from, &w);
		return 1;
	}
	pass(&s->host, &w, SG_FROM_TENANT, n->now_ns, SG_OPTION_LEN, &p);
	check_policing(s, shape, p.result.out.action);
	if (p.result.out.action == SG_PASS)
		enqueue(n, from, &p.after);
	if (p.fack.len)
		enqueue(n, from, &p.fack);
	return p.result.out.action == SG_PASS;
}

static void shape_of(const struct network *n, int from, struct shape *s, sg_u8 flags,
		     sg_u16 window)
{
	tenant_shape(&n->side[from].tenant, s, n->ip_version, flags, window);
}

/* While both hosts enforce, their talk and the network's marks stay between them. */
static void check_hidden(const struct side *s, const struct wire *w)
{
	struct view v;

	if (s->host.flow.mode != SG_MODE_TWO_SIDED || !look(w, &v) || v.flags & SG_RST)
		return;
	/* A SYN says nothing of the flow that is there, nor does an answer to another one. */
	if ((v.flags & SG_SYN) &&
	    (!(v.flags & SG_ACK) || get32(w->bytes + v.tcp + 8) != s->tenant.iss + 1))
		return;
	require(!(v.traffic_class & 3), "the tenant sees ECN codepoint %u",
		v.traffic_class & 3);
	require(!(v.flags & SG_ECE), "the tenant sees ECE");
	require(!has_option(w, &v, SG_KIND_FEEDBACK, 0), "the tenant sees feedback");
	require(!has_option(w, &v, SG_KIND_EXPERIMENT, 1), "the tenant sees our option");
}

static void check_counts(const struct network *n, int at, const struct passage *p)
{
	const struct side *s = &n->side[at];

	if (n->undisturbed && n->in_order && !n->side[!at].cheated)
		require(p->result.out.count != SG_COUNT_FEEDBACK_STALE,
			"feedback %u, %u refused after %u, %u", p->result.seg.e0b,
			p->result.seg.ceb, s->host.flow.taken_e0b, s->host.flow.taken_ceb);
	if (n->undisturbed)
		require(s->host.flow.bytes_marked <= n->side[!at].marked_bytes,
			"told of %llu marked bytes, %llu arrived",
			s->host.flow.bytes_marked, n->side[!at].marked_bytes);
}

/*
 * Enforcement governs: an ACK that advances shows at most the window, or what is
 * in flight already; and host and tenant agree on the edge that policing uses.
 */
static void check_governed(const struct network *n, int at, sg_u32 una_before,
			   const struct passage *p)
{
	const struct side *s = &n->side[at];
	const struct sg_flow *flow = &s->host.flow;
	const struct sg_segment *seg = &p->result.seg;
	sg_u32 unit = 1U << flow->wscale, flight = flow->snd_nxt - flow->snd_una;
	struct view v;

	if (!look(&p->after, &v) || seg->tcp_flags & (SG_SYN | SG_RST) || !n->undisturbed)
		return;
	if (s->tenant.state == OPEN && !(flow->marks & SG_FLOW_ADOPTED) &&
	    flow->reason != SG_WHY_ONE_DIRECTION)
		/*
		 * A late ACK may have shown what the tenant had no use for: more, if its
		 * peer has shrunk its window since.
		 */
		require(flow->edge - s->tenant.edge < unit ||
				(s->late && sg_seq_gt(flow->edge, s->tenant.edge) &&
				 sg_seq_lt(flow->edge, s->late_edge + unit)),
			"host's edge %u, tenant's %u", flow->edge, s->tenant.edge);
	if (flow->mode != SG_MODE_WATCH && seg->ack == flow->snd_una &&
	    sg_seq_gt(seg->ack, una_before) &&
	    s->host.policy.slots[0].params.mode == SG_RULE_ENFORCE)
		require(((sg_u64)v.window << flow->wscale) <
				(sg_u64)sg_max32(flow->cc.cwnd, flight) + unit,
			"shown %u << %u, cwnd %u, flight %u", v.window, flow->wscale,
			flow->cc.cwnd, flight);
}

/* The network's change of the ECN field, with the IPv4 checksum kept right. */
static void set_ecn(struct wire *w, const struct view *v, sg_u8 ecn)
{
	sg_u8 *ip = w->bytes + v->ip;

	if (v->version == 4) {
		ip[1] = (sg_u8)((ip[1] & 0xfc) | ecn);
		put16(ip + 10, 0);
		put16(ip + 10, ~sum16(0, ip, 20) & 0xffff);
	} else {
		ip[1] = (sg_u8)((ip[1] & 0xcf) | ecn << 4);
	}
}

/* An ACK of less than the tenant has already: it looks no further (RFC 9293 3.10.7.4). */
static void note_late(struct side *s, const struct wire *w)
{
	sg_u32 ack, edge;
	struct view v;

	if (!look(w, &v) || v.flags & (SG_SYN | SG_RST) || !(v.flags & SG_ACK))
		return;
	ack = get32(w->bytes + v.tcp + 8);
	edge = ack + ((sg_u32)v.window << s->tenant.peer_wscale);
	if (s->tenant.state != OPEN || !sg_seq_lt(ack, s->tenant.una))
		return;
	s->late_edge = s->late ? sg_seq_max(s->late_edge, edge) : edge;
	s->late = 1;
}

/*
 * A segment that the host takes for a stranger's is outside all windows of the tenant: the tenant
 * looks no further (RFC 9293 3.10.7.4). Data that its host only distrusts it may take.
 */
static int is_refused(const struct side *s, const struct sg_flow *was, const struct passage *p)
{
	const struct sg_segment *seg = &p->result.seg;
	sg_s32 away = (sg_s32)(seg->seq - s->tenant.rcv_nxt), far = (sg_s32)SG_WINDOW_MAX;

	if (s->tenant.state != OPEN || p->result.out.count != SG_COUNT_STRANGER)
		return 0;
	if (sg_is_near(was, seg)) {
		if ((seg->payload || seg->tcp_flags & SG_FIN) && !sg_is_genuine(was, seg))
			return 0;
		far = (sg_s32)SG_RCV_UNSEEN_MAX / 2;
	}
	require(away > far || away < -far, "%d bytes away is near", away);
	return 1;
}

static void arrive(struct network *n, int at, struct wire *w, int mark)
{
	struct side *s = &n->side[at];
	sg_u32 una = s->host.flow.snd_una, known = s->tenant.una;
	struct sg_flow was = s->host.flow;
	struct passage p;
	struct view v;

	require(look(w, &v), "a host sent an unreadable frame");
	if (n->bleaches)
		set_ecn(w, &v, SG_NOT_ECT);
	else if (mark && (v.traffic_class & 3))
		set_ecn(w, &v, SG_CE);
	require(look(w, &v), "unreadable");
	if ((v.traffic_class & 3) == SG_CE)
		s->marked_bytes += v.end - v.payload;
	if (!s->enforces) {
		tenant_takes(&s->tenant, &n->side[!at].tenant, w);
		tenant_times(&s->tenant, known, n->now_ns);
		return;
	}
	pass(&s->host, w, SG_TO_TENANT, n->now_ns, SG_OPTION_LEN, &p);
	check_counts(n, at, &p);
	if (p.result.out.action == SG_CONSUME) {
		require(has_option(w, &v, SG_KIND_EXPERIMENT, 1), "a tenant's packet was consumed");
		return;
	}
	require(p.result.out.action == SG_PASS, "a packet to the tenant was dropped");
	check_hidden(s, &p.after);
	if (is_refused(s, &was, &p))
		return;
	note_late(s, &p.after);
	tenant_takes(&s->tenant, &n->side[!at].tenant, &p.after);
	tenant_times(&s->tenant, known, n->now_ns);
	check_governed(n, at, una, &p);
}

static void deliver(struct network *n, int from, sg_u32 index, int mark, int keep)
{
	struct wire w;

	if (!n->queued[from])
		return;
	index %= n->queued[from];
	n->in_order &= !index && !keep;
	memcpy(&w, &n->queue[from][index], sizeof(w));
	if (!keep) {
		n->queued[from]--;
		memmove(&n->queue[from][index], &n->queue[from][index + 1],
			sizeof(w) * (n->queued[from] - index));
	}
	arrive(n, !from, &w, mark);
}

static void do_connect(struct network *n, int from, sg_u16 window)
{
	struct tenant *t = &n->side[from].tenant;
	struct shape s;

	if (t->state != CLOSED && t->state != SYN_SENT)
		return;
	t->state = SYN_SENT;
	t->una = t->iss;
	t->nxt = t->iss;
	shape_of(n, from, &s, t->ecn ? SG_SYN | SG_ECE | SG_CWR : SG_SYN, window);
	handshake_options(t, &s);
	t->nxt++;
	transmit(n, from, &s);
}

static void do_accept(struct network *n, int from, sg_u16 window)
{
	struct tenant *t = &n->side[from].tenant;
	struct shape s;

	if (t->state != SYN_RECEIVED)
		return;
	t->una = t->iss;
	t->nxt = t->iss;
	shape_of(n, from, &s, SG_SYN | SG_ACK, window);
	handshake_options(t, &s);
	t->nxt++;
	transmit(n, from, &s);
}

static void send_data(struct network *n, int from, sg_u32 bytes, sg_u16 window, sg_u8 flags)
{
	struct tenant *t = &n->side[from].tenant;
	struct shape s;

	shape_of(n, from, &s, SG_ACK | flags, window);
	s.payload = bytes;
	t->nxt += bytes + !!(flags & SG_FIN);
	transmit(n, from, &s);
}

static void do_data(struct network *n, int from, sg_u32 bytes, sg_u16 window)
{
	bytes = sg_min32(bytes % PAYLOAD_MAX, tenant_room(&n->side[from].tenant));
	if (bytes)
		send_data(n, from, bytes, window, SG_PSH);
}

/* A pure ACK, with options that leave room for feedback or do not. */
static void do_acknowledge(struct network *n, int from, struct input *in, sg_u16 window)
{
	const struct tenant *t = &n->side[from].tenant;
	sg_u8 bits = take8(in);
	struct shape s;

	if (t->state != OPEN)
		return;
	shape_of(n, from, &s, (sg_u8)(SG_ACK | (bits & 1 ? SG_ECE : 0)), window);
	if (bits & 2)
		add_option(&s, 8, 10, 0);
	if (bits & 4)
		add_option(&s, 5, bits & 8 ? 26 : 10, 0);
	if (bits & 4 && s.options_len >= 10) {
		put32(s.options + s.options_len - 8, t->rcv_nxt + take16(in));
		put32(s.options + s.options_len - 4, t->rcv_nxt + take16(in));
	}
	transmit(n, from, &s);
}

/*
 * The tenant's least estimate of a round trip: that of its ACKs, or the least
 * timeout. If the host thinks that it was more, the host is wrong.
 */
static sg_u64 round_trip_ns(const struct side *s)
{
	const struct sg_params *params = &s->host.policy.slots[0].params;
	sg_u64 hosts = ((sg_u64)sg_repeat_rtt(&s->host.flow, params) + 1) << 10;
	sg_u64 own = sg_max64(s->tenant.rtt_ns, (sg_u64)params->rto_min_us << 10) + 1024;

	return sg_min64(hosts, own);
}

/* Repeats outstanding data, or a byte before it to keep alive. Who cheats does not wait. */
static void do_retransmit(struct network *n, int from, sg_u32 bytes, sg_u16 window)
{
	struct side *side = &n->side[from];
	struct tenant *t = &side->tenant;
	struct shape s;

	if (t->state != OPEN || t->una == t->iss)
		return;
	shape_of(n, from, &s, SG_ACK, window);
	s.seq = tenant_repeats_from(t, side->cheated ? 0 : round_trip_ns(side), &n->now_ns);
	if (t->nxt == t->una) {
		s.seq = t->una - 1;
		s.payload = t->una - 1 != t->iss; /* the SYN is no byte */
	} else {
		s.payload = 1 + bytes % sg_min32(t->recover - s.seq, PAYLOAD_MAX);
		t->repeated = s.seq + s.payload;
	}
	s.payload_seed = stream_byte(t, s.seq);
	transmit(n, from, &s);
}

/* One byte beyond a closed window (RFC 9293 3.8.6.1). */
static void do_probe(struct network *n, int from, sg_u16 window)
{
	const struct tenant *t = &n->side[from].tenant;

	if (t->state == OPEN && t->nxt == t->edge)
		send_data(n, from, 1, window, SG_PSH);
}

static void do_finish(struct network *n, int from, sg_u16 window)
{
	if (tenant_room(&n->side[from].tenant) > 1)
		send_data(n, from, 0, window, SG_FIN);
}

/* A stretch of undisturbed transfer, so that short inputs come far. */
static void do_burst(struct network *n, int from, struct input *in, sg_u16 window)
{
	sg_u32 rounds = take8(in) % 32;
	sg_u8 bits = take8(in);
	struct shape s;

	while (rounds--) {
		do_data(n, from, 1448, window);
		deliver(n, from, n->queued[from] - 1, bits & 1, 0);
		n->now_ns += (sg_u64)bits << 10;
		if (n->side[!from].tenant.state != OPEN)
			return;
		shape_of(n, !from, &s, SG_ACK, window);
		transmit(n, !from, &s);
		deliver(n, !from, n->queued[!from] - 1, bits & 2, 0);
	}
}

/* A segment that a standards-following stack would hold back. */
static void do_cheat(struct network *n, int from, sg_u32 beyond, sg_u16 window)
{
	struct side *s = &n->side[from];
	struct shape shape;

	if (s->tenant.state != OPEN)
		return;
	s->cheated = 1;
	shape_of(n, from, &shape, SG_ACK, window);
	shape.seq = s->tenant.edge + beyond % 100000;
	shape.payload = 1000;
	shape.payload_seed = stream_byte(&s->tenant, shape.seq);
	if (transmit(n, from, &shape))
		s->tenant.nxt = sg_seq_max(s->tenant.nxt, shape.seq + 1000);
}

static void forget_syns(struct network *n, int from)
{
	sg_u32 i = 0;
	struct view v;

	while (i < n->queued[from]) {
		if (look(&n->queue[from][i], &v) && (v.flags & SG_SYN)) {
			n->queued[from]--;
			memmove(&n->queue[from][i], &n->queue[from][i + 1],
				sizeof(n->queue[0][0]) * (n->queued[from] - i));
		} else {
			i++;
		}
	}
}

/*
 * The same ports again with other numbers. Old segments stay on their way, old
 * SYNs do not: that is what TIME-WAIT is for (RFC 9293 3.4.1).
 */
static void do_reuse(struct network *n, struct input *in)
{
	int i;

	n->undisturbed = 0;
	for (i = 0; i < 2; i++) {
		struct tenant *t = &n->side[i].tenant;

		forget_syns(n, i);
		t->state = CLOSED;
		t->iss += 1 + take32(in) % 0x7fffffff;
		t->una = t->iss;
		t->nxt = t->iss;
		t->repeated = t->iss;
		t->recover = t->iss;
		t->repeat_ns = 0;
		t->rtt_ns = 0;
		n->side[i].cheated = 0;
	}
}

static void do_reset(struct network *n, int from)
{
	struct shape s;

	if (n->side[from].tenant.state != OPEN)
		return;
	shape_of(n, from, &s, SG_RST | SG_ACK, 0);
	transmit(n, from, &s);
}

static void operate(struct network *n, struct input *in)
{
	sg_u32 operation = take8(in) % OPERATIONS;
	sg_u8 bits = take8(in);
	int from = bits & 1;
	sg_u16 window = bits & 2 ? 0xffff : take16(in);

	n->now_ns += (sg_u64)take8(in) << (bits >> 3);
	tenant_looks(&n->side[0].tenant, n->now_ns);
	tenant_looks(&n->side[1].tenant, n->now_ns);
	switch (operation) {
	case CONNECT:
		return do_connect(n, from, window);
	case ACCEPT:
		return do_accept(n, from, window);
	case DATA:
		return do_data(n, from, take16(in), window);
	case ACKNOWLEDGE:
		return do_acknowledge(n, from, in, window);
	case DELIVER:
		return deliver(n, from, take8(in), 0, 0);
	case DELIVER_MARKED:
		return deliver(n, from, take8(in), 1, 0);
	case DUPLICATE:
		n->undisturbed = 0;
		return deliver(n, from, take8(in), 0, 1);
	case LOSE:
		n->queued[from] -= !!n->queued[from];
		return;
	case RETRANSMIT:
		return do_retransmit(n, from, take16(in), window);
	case PROBE:
		return do_probe(n, from, window);
	case FINISH:
		return do_finish(n, from, window);
	case BURST:
		return do_burst(n, from, in, window);
	case CHEAT:
		return do_cheat(n, from, take32(in), window);
	case CALM:
		n->now_ns += 1ULL << (bits >> 2);
		return;
	case DETACH:
		/* Rare: a host that is gone does not come back. */
		n->side[from].enforces &= take8(in) != 0;
		return;
	case BLEACH:
		n->bleaches |= !take8(in);
		return;
	case REUSE:
		return do_reuse(n, in);
	case RESET:
		return do_reset(n, from);
	}
}

static void take_side(struct input *in, struct side *s, sg_u8 id)
{
	struct tenant *t = &s->tenant;
	sg_u8 bits = take8(in);

	take_policy(in, &s->host);
	s->enforces = 1;
	t->id = id;
	t->iss = bits & 1 ? 0U - take16(in) : take32(in);
	t->repeated = t->iss;
	t->recover = t->iss;
	t->mss = bits & 2 ? take16(in) : 8960;
	t->wscale = bits & 4 ? (sg_u8)take_range(in, 0, 14) : 10;
	t->mptcp = (bits & 0x70) == 0x70;
	t->ecn = bits >> 7;
}

/* An open connection whose counters have run for a while, as far as hosts can tell. */
static void open_with_history(struct network *n, struct input *in)
{
	int i;

	do_connect(n, 0, 0xffff);
	deliver(n, 0, 0, 0, 0);
	do_accept(n, 1, 0xffff);
	deliver(n, 1, 0, 0, 0);
	for (i = 0; i < 2; i++) {
		sg_u32 e0b = 0U - take16(in), ceb = 0U - take16(in);
		struct sg_flow *counted = &n->side[i].host.flow;
		struct sg_flow *taken = &n->side[!i].host.flow;

		counted->rcv_e0b = e0b & SG_COUNTER_MASK;
		taken->taken_e0b = e0b & SG_COUNTER_MASK;
		counted->rcv_ceb = ceb & SG_COUNTER_MASK;
		taken->taken_ceb = ceb & SG_COUNTER_MASK;
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static struct network n;
	struct input in = { data, size };
	sg_u8 bits = take8(&in);

	memset(&n, 0, sizeof(n));
	n.now_ns = 1;
	n.undisturbed = 1;
	n.in_order = 1;
	n.ip_version = bits & 1 ? 6 : 4;
	take_side(&in, &n.side[0], 1);
	take_side(&in, &n.side[1], 2);
	if (bits & 6)
		open_with_history(&n, &in);
	while (in.left)
		operate(&n, &in);
	return 0;
}
