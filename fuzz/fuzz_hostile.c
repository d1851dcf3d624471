/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One enforcing host whose tenant, whose tenant's peer and whose strangers send whatever
 * they like, in any order. A model keeps what really passed and says what must hold:
 *
 *   window     new data of a governed tenant that no bucket is charged with and that are not
 *              acknowledged stay within what enforcement has shown, and the slack of policing
 *   receiving  what is far from the flow's sequence space changes nothing of it; of a flow that
 *              one end governs neither does an ACK outside the tenant's window
 *   hosts      no option of hosts leaves towards a trusted peer unless the host wrote it
 *   ahead      no number beyond the data that came for the tenant is acknowledged
 *   growth     no window exceeds a new connection's and what the model has seen acknowledged since
 *   marks      no more marked bytes are pending than bytes are out, or were not counted yet
 *
 * Input: a policy, how the connection began, then packets until the bytes are used up.
 */
#include "check.h"

#define SEGMENTS 512U
#define MSS 1460U /* of both ends, as a connection that is met from the middle is taken to have */

/* New data of the tenant that passed and that no bucket was charged for. */
struct segment {
	sg_u32 seq;
	sg_u32 len;
};

struct model {
	struct sg_host host;
	struct segment out[SEGMENTS];
	sg_u32 outs;
	sg_u32 tenant;  /* number of the tenant's first byte */
	sg_u32 peer;
	sg_u32 sent;    /* end of the highest data that passed */
	sg_u32 largest; /* segment of the tenant that passed, whose size it may go on with */
	sg_u32 edge;    /* highest right edge of the operator's windows */
	sg_u32 came;    /* end of the highest data that passed to the tenant */
	sg_u64 acked;   /* bytes that the peer has acknowledged, as far as the host believed it */
	sg_u32 owed;    /* bytes that marks last counted may be of */
	sg_u64 now_ns;
	int ip_version;
	int vlan;       /* the connection's frames have a tag */
};

enum operation {
	TENANT_DATA, TENANT_ACK, PEER_ACK, PEER_DATA, STRANGER, HANDSHAKE, LATER, OPERATIONS
};

static int governed(const struct model *m)
{
	const struct sg_flow *flow = &m->host.flow;

	return m->host.flow_exists && flow->mode != SG_MODE_WATCH &&
	       !(flow->marks & (SG_FLOW_SCALE_BOUND | SG_FLOW_SIGNS)) &&
	       m->host.policy.slots[0].params.mode == SG_RULE_ENFORCE;
}

static void shape_from(const struct model *m, struct shape *s, int tenant)
{
	memset(s, 0, sizeof(*s));
	s->ip_version = m->ip_version;
	s->vlan = m->vlan;
	s->local = tenant ? 0x0a000001 : 0x0a000002;
	s->remote = tenant ? 0x0a000002 : 0x0a000001;
	s->source_port = tenant ? 40000 : 5001;
	s->destination_port = tenant ? 5001 : 40000;
	s->flags = SG_ACK;
	s->window = 0xffff;
}

/* A number near `base`, by turns: in order, a little off, far off. */
static sg_u32 number(struct input *in, sg_u32 base)
{
	sg_u8 how = take8(in);

	switch (how & 7) {
	case 0:
		return base + take32(in);
	case 1:
		return base + (take32(in) & 0xffffff);
	case 2:
		return base - take16(in);
	case 3:
		return base + take16(in) * 16U;
	default:
		return base;
	}
}

static void put_option(struct shape *s, const sg_u8 *bytes, sg_u32 len)
{
	if (s->options_len + len > OPTIONS_MAX)
		return;
	memcpy(s->options + s->options_len, bytes, len);
	s->options_len += len;
}

/* Options that a sender may write behind the header: hosts', signatures, ends, nonsense. */
static void hostile_options(struct input *in, struct shape *s)
{
	sg_u32 count = take8(in) % 4, i;
	sg_u8 bytes[18] = { 0 };

	while (count--) {
		switch (take8(in) % 8) {
		case 0:
			sg_feedback_encode(bytes, take32(in), take32(in));
			put_option(s, bytes, SG_OPTION_LEN);
			break;
		case 1:
			sg_peer_encode(bytes, take8(in) & 1);
			put_option(s, bytes, SG_OPTION_LEN);
			break;
		case 2:
			bytes[0] = 19;
			bytes[1] = 18;
			put_option(s, bytes, 18);
			break;
		case 3:
			put_option(s, (const sg_u8[]){ 0 }, 1);
			break;
		case 4:
			put_option(s, (const sg_u8[]){ 8, take8(in) }, 2);
			break;
		case 5:
			put_option(s, (const sg_u8[]){ 1, 1 }, 2);
			break;
		default:
			for (i = 0; i < 3; i++)
				bytes[i] = take8(in);
			put_option(s, bytes, 3);
			break;
		}
	}
}

/* Data that are acknowledged are no longer out. */
static void forget_acknowledged(struct model *m)
{
	sg_u32 i = 0, una = m->host.flow.snd_una;

	while (i < m->outs) {
		if (sg_seq_le(m->out[i].seq + m->out[i].len, una))
			m->out[i] = m->out[--m->outs];
		else
			i++;
	}
}

static int was_out(const struct model *m, sg_u32 seq, sg_u32 len)
{
	sg_u32 i;

	for (i = 0; i < m->outs; i++) {
		if (sg_seq_lt(seq, m->out[i].seq + m->out[i].len) &&
		    sg_seq_lt(m->out[i].seq, seq + len))
			return 1;
	}
	return 0;
}

static void check_window(struct model *m, const struct shape *s, const struct passage *p)
{
	const struct sg_flow *flow = &m->host.flow;
	sg_u32 window = sg_max32(flow->cc.cwnd, sg_room(m->edge, flow->snd_una)), out = 0, i;

	if (p->result.out.action != SG_PASS || !s->payload)
		return;
	m->sent = sg_seq_max(m->sent, s->seq + s->payload);
	m->largest = sg_max32(m->largest, sg_segment_units(s->payload) * SG_SEGMENT_UNIT);
	if (p->result.unheld || !governed(m) || m->outs == SEGMENTS ||
	    sg_seq_lt(s->seq, flow->snd_una) || was_out(m, s->seq, s->payload))
		return;
	m->out[m->outs++] = (struct segment){ s->seq, s->payload };
	/* Of a segment that is acknowledged in part, the rest is out. */
	for (i = 0; i < m->outs; i++)
		out += sg_min32(m->out[i].len,
				m->out[i].seq + m->out[i].len - flow->snd_una);
	/* Duplicate ACKs make room for a window more while holes are filled (RFC 5681 3.2). */
	require(out <= 2 * window + window / 10 + 2 * flow->mss,
		"%u bytes are out for nothing, the window is %u", out, window);
}

/*
 * Whether an algorithm's window grows by no more than is acknowledged. Others add segments for a
 * window, or for a time.
 */
static int grows_by_what_is_acknowledged(sg_u32 algorithm)
{
	return algorithm == SG_CC_RENO || algorithm == SG_CC_DCTCP;
}

/* A window of the model's own: it knows of the flow what was acknowledged, and no window. */
static void check_growth(const struct model *m)
{
	const struct sg_params *params = &m->host.policy.slots[0].params;
	sg_u64 segment = sg_max64(MSS, sg_min32(m->largest, SG_MSS_JUMBO));
	sg_u64 floor = 2 * segment;
	/* A flow that is adopted begins with segments as large as its tenant has sent. */
	sg_u64 first = sg_max64(params->init_segments * segment, floor);
	sg_u64 most = first + m->acked;

	if (!grows_by_what_is_acknowledged(params->algorithm) ||
	    !grows_by_what_is_acknowledged(params->one_sided))
		most = SG_WINDOW_MAX;
	most = sg_min64(most, params->window_cap);
	require(m->host.flow.cc.cwnd <= sg_max64(most, floor),
		"a window of %u, and %llu are the most", m->host.flow.cc.cwnd, most);
}

/* A segment that has just arrived acknowledges data, unless it begins another life. */
static void note_acknowledged(struct model *m, const struct shape *s, const struct sg_flow *was)
{
	const struct sg_flow *flow = &m->host.flow;

	if (flow->first_own != was->first_own || flow->first_remote != was->first_remote)
		return;
	if (flow->snd_una == s->ack && sg_seq_gt(s->ack, was->snd_una) && !(s->flags & SG_SYN))
		m->acked += s->ack - was->snd_una;
}

/* Bytes that are out, and bytes whose ACKs came before they were counted. */
static sg_u32 unpaid(const struct sg_flow *flow)
{
	return flow->snd_nxt - flow->snd_una +
	       (flow->uncounted > 0 ? (sg_u32)flow->uncounted : 0);
}

/* The operator's window as it was shown with what has just arrived. */
static void note_window(struct model *m, const struct sg_flow *was)
{
	const struct sg_flow *flow = &m->host.flow;
	sg_u32 unit = 1U << (flow->wscale & 15);
	sg_u32 window = sg_max32(flow->cc.cwnd, sg_cc_floor(&flow->cc, &m->host.policy.slots[0].params));

	if (!governed(m))
		return;
	check_growth(m);
	m->edge = m->outs || sg_seq_gt(m->edge, flow->snd_una) ?
			  sg_seq_max(m->edge, flow->snd_una + window + 9 * unit) :
			  flow->snd_una + window + 9 * unit;
	/* Its own ACK may make some of what is out count as acknowledged already. */
	if (flow->taken_ceb != was->taken_ceb)
		m->owed = unpaid(was) + was->snd_nxt - was->snd_una;
	require(flow->marked_pending <= sg_max32(m->owed, unpaid(flow)), "%u marked bytes pending",
		flow->marked_pending);
}

/* Options as another host would read them. */
static void check_claims(const struct model *m, const struct passage *p)
{
	const struct sg_verdict *out = &p->result.out;
	const struct sg_segment *seg = &p->result.seg;
	const struct sg_flow *flow = &m->host.flow;
	struct view v;
	sg_u32 at;

	if (out->action != SG_PASS || !look(&p->after, &v) || v.payload != v.end ||
	    m->host.policy.slots[0].params.mode != SG_RULE_ENFORCE || !m->host.policy.trusted_count)
		return;
	if (seg->options & SG_OPT_SIGNED || v.flags & SG_RST)
		return; /* a signed header stays, and no host believes it */
	if (v.flags & SG_SYN) {
		if (!(out->edits & SG_EDIT_ADD_PEER) && !(seg->options & SG_OPT_MALFORMED))
			require(!has_option(&p->after, &v, SG_KIND_EXPERIMENT, 1),
				"a tenant offers itself as a host");
		return;
	}
	if (!m->host.flow_exists || flow->reason == SG_WHY_NONE || sg_peer_may_believe(flow)) {
		if (seg->options & SG_OPT_MALFORMED && !(out->edits & SG_EDIT_BLANK_REST))
			return; /* nor a malformed one */
		if (!has_option(&p->after, &v, SG_KIND_FEEDBACK, 0))
			return;
		require(out->edits & SG_EDIT_ADD_FEEDBACK, "a tenant's feedback leaves");
		for (at = v.payload - SG_OPTION_LEN; p->after.bytes[at] != SG_KIND_FEEDBACK; at--)
			;
		require(sg_load24(p->after.bytes + at + 2) == flow->rcv_e0b &&
				sg_load24(p->after.bytes + at + 5) == flow->rcv_ceb,
			"feedback is not the host's");
	}
}

static void from_tenant(struct model *m, const struct shape *s, sg_u32 behind)
{
	sg_u32 unseen = m->host.flow.marks & SG_FLOW_RCV_UNSEEN;
	struct passage p;
	struct wire w;
	struct view v;

	build(&w, s);
	memset(w.bytes + w.len, 0xa5, behind);
	w.len += behind;
	pass(&m->host, &w, SG_FROM_TENANT, m->now_ns, SG_OPTION_LEN, &p);
	check_window(m, s, &p);
	check_claims(m, &p);
	/* Packets have passed unseen: once, an ACK tells how far. */
	if (unseen && !(m->host.flow.marks & SG_FLOW_RCV_UNSEEN) &&
	    s->ack - m->came <= SG_RCV_UNSEEN_MAX)
		m->came = s->ack;
	/* ACKs are let go where nothing has come for long. */
	if (p.result.out.action == SG_PASS && governed(m) &&
	    m->host.flow.marks & SG_FLOW_RCV_KNOWN &&
	    !(m->host.flow.marks & SG_FLOW_AHEAD && !(p.result.out.edits & SG_EDIT_ACK)) &&
	    s->flags & SG_ACK && !(s->flags & (SG_SYN | SG_RST)) && look(&p.after, &v)) {
		sg_u32 ack = get32(p.after.bytes + v.tcp + 8);

		/* An old number acknowledges nothing. */
		require(sg_seq_le(ack, m->came) || sg_seq_lt(ack, m->host.flow.rcv_nxt),
			"%u is acknowledged, %u came", ack, m->came);
	}
}

/* After a detour, of which only ACKs that were let go have told, data come by the host again. */
static int came_back(const struct model *m, const struct sg_flow *was)
{
	return m->host.flow_exists && was->let_go && !m->host.flow.let_go &&
	       m->host.flow.rcv_nxt == was->let_go;
}

static void to_tenant(struct model *m, const struct shape *s, int damaged)
{
	sg_u32 end = s->seq + s->payload + !!(s->flags & SG_FIN);
	struct sg_flow was = m->host.flow;
	struct passage p;
	struct wire w;

	build(&w, s);
	if (damaged)
		w.bytes[w.len - 1] ^= 0x55;
	pass(&m->host, &w, SG_TO_TENANT, m->now_ns, SG_OPTION_LEN, &p);
	/* Data that the host takes for a stranger's have not come, though its tenant gets them. */
	if (came_back(m, &was)) /* what the ACK covers that was let go has taken the other path */
		m->came = sg_seq_max(end, was.let_go);
	else if (p.result.out.count != SG_COUNT_STRANGER && end - m->came < 1U << 27)
		m->came = end;
	note_acknowledged(m, s, &was);
	forget_acknowledged(m);
	note_window(m, &was);
}

/* The host knows the tenant's receive space, and the tenant has told no lies of it. */
static int tells_strangers(const struct sg_flow *flow)
{
	return flow->mode != SG_MODE_WATCH && (flow->marks & SG_FLOW_RCV_KNOWN) &&
	       !(flow->marks & SG_FLOW_AHEAD);
}

/* A stranger has to guess where the flow is. Here it guesses wrong: outside the tenant's window. */
static void stranger(struct model *m, struct input *in)
{
	struct sg_flow was = m->host.flow, is;
	struct shape s;
	int near;

	shape_from(m, &s, 0);
	s.seq = was.rcv_nxt + (1U << 27) + take32(in) % (1U << 31);
	/* Near the flow, but outside the window, ACKs without data advance nothing. */
	near = take8(in) & 1;
	if (near)
		s.seq = was.rcv_nxt + (1U << 23) + take32(in) % (1U << 20);
	s.ack = number(in, was.snd_una);
	s.window = take16(in);
	s.ecn = take8(in) & 3;
	s.payload = near ? 0 : take16(in) % 1400;
	s.flags = (sg_u8)(SG_ACK | (take8(in) & (SG_FIN | SG_RST | SG_PSH | SG_ECE)));
	hostile_options(in, &s);
	if (near)
		s.flags &= (sg_u8)~(SG_FIN | SG_RST);
	if (!tells_strangers(&was) || (was.rcv_window << was.rcv_wscale) >= 1 << (near ? 23 : 27) ||
	    (near && (sg_seq_le(s.ack, was.snd_una) || sg_seq_gt(s.ack, was.snd_nxt))) ||
	    sg_seq_gt(s.ack, was.snd_nxt))
		return;
	{
		struct passage p;
		struct wire w;

		build(&w, &s);
		pass(&m->host, &w, SG_TO_TENANT, m->now_ns, SG_OPTION_LEN, &p);
	}
	is = m->host.flow;
	is.seen_ns = was.seen_ns;
	is.marks = was.marks;
	require(!memcmp(&is, &was, sizeof(is)), "a stranger changed the flow");
}

static void tenant_data(struct model *m, struct input *in)
{
	struct shape s;

	shape_from(m, &s, 1);
	s.seq = number(in, m->host.flow_exists ? m->host.flow.snd_nxt : m->sent);
	s.ack = number(in, m->came);
	s.payload = 1 + take16(in) % 2900;
	s.flags |= take8(in) & (SG_PSH | SG_FIN);
	from_tenant(m, &s, 0);
}

static void tenant_ack(struct model *m, struct input *in)
{
	sg_u8 bits = take8(in);
	struct shape s;

	shape_from(m, &s, 1);
	s.seq = number(in, m->sent);
	s.ack = number(in, m->came);
	s.window = bits & 1 ? take16(in) : 0xffff;
	hostile_options(in, &s);
	from_tenant(m, &s, bits & 2 ? take8(in) % 64 : 0);
}

static void peer_packet(struct model *m, struct input *in, int data)
{
	sg_u8 bits = take8(in);
	struct shape s;

	shape_from(m, &s, 0);
	s.seq = number(in, m->came);
	s.ack = number(in, bits & 4 ? m->sent : m->host.flow.snd_una);
	s.window = bits & 1 ? take16(in) : 0xffff;
	s.ecn = bits >> 4 & 3;
	if (data) {
		s.payload = 1 + take16(in) % 2900;
		/*
		 * No receiver takes data without an ACK number; a tenant of ours may say that it
		 * did.
		 */
		s.flags = bits & 2 ? SG_ACK : take8(in) & (SG_ACK | SG_PSH | SG_FIN);
	}
	hostile_options(in, &s);
	to_tenant(m, &s, data && (bits & 0xc8) == 0xc8);
}

static void handshake(struct model *m, struct input *in, int peer_is_host, sg_u8 wscale)
{
	struct shape s;
	sg_u8 bytes[SG_OPTION_LEN];

	m->outs = 0;
	/* Never where it began before: that would be a repeated SYN. */
	m->tenant += (1U << 30) + (take32(in) & 0xfffffff);
	m->peer += (1U << 30) + (take32(in) & 0xfffffff);
	m->sent = m->tenant;
	m->came = m->peer;
	m->edge = m->tenant;
	shape_from(m, &s, 1);
	s.flags = SG_SYN;
	s.seq = m->tenant - 1;
	put_option(&s, (const sg_u8[]){ 2, 4, MSS >> 8, MSS & 0xff, 1, 3, 3, 10 }, 8);
	from_tenant(m, &s, 0);
	shape_from(m, &s, 0);
	s.flags = SG_SYN | SG_ACK;
	s.seq = m->peer - 1;
	s.ack = m->tenant;
	put_option(&s, (const sg_u8[]){ 2, 4, MSS >> 8, MSS & 0xff, 1, 3, 3, wscale }, 8);
	sg_peer_encode(bytes, 0);
	if (peer_is_host)
		put_option(&s, bytes, SG_OPTION_LEN);
	to_tenant(m, &s, 0);
	m->came = m->peer;
}

static void operate(struct model *m, struct input *in)
{
	m->now_ns += (sg_u64)take8(in) << 8;
	switch (take8(in) % OPERATIONS) {
	case TENANT_DATA:
		return tenant_data(m, in);
	case TENANT_ACK:
		return tenant_ack(m, in);
	case PEER_ACK:
		return peer_packet(m, in, 0);
	case PEER_DATA:
		return peer_packet(m, in, 1);
	case STRANGER:
		return stranger(m, in);
	case HANDSHAKE:
		if (!take8(in))
			handshake(m, in, take8(in) & 1, take8(in) % 15);
		return;
	default:
		m->now_ns += 1ULL << take8(in) % 32;
		return;
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static struct model m;
	struct input in = { data, size };
	sg_u8 bits = take8(&in);

	memset(&m, 0, sizeof(m));
	m.now_ns = 1;
	m.ip_version = bits & 1 ? 6 : 4;
	m.vlan = bits >> 3 & 1;
	take_policy(&in, &m.host);
	/* Else the connection is met from the middle. */
	if (bits & 0xe)
		handshake(&m, &in, bits & 6, bits >> 4);
	while (in.left)
		operate(&m, &in);
	return 0;
}
