/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Any frames, in any state of the flow they may belong to.
 *
 * Input: a policy, then frames until the bytes are used up. A frame is either
 * raw bytes, or a well-formed one of chosen fields and any options with at most a
 * few bytes overwritten; handshakes in between put the flow into every mode.
 */
#include "check.h"

static void take_options(struct input *in, struct shape *s)
{
	sg_u32 wanted = take_range(in, 0, OPTIONS_MAX), i;

	s->options_len = 0;
	while (s->options_len < wanted) {
		sg_u8 *at = s->options + s->options_len;
		sg_u8 kind = take8(in);
		static const sg_u8 lengths[] = { [0] = 1, [1] = 1, [2] = 4, [3] = 3,
						 [4] = 2, [5] = 18, [8] = 10, [19] = 18,
						 [29] = 16, [30] = 12, [34] = 10,
						 [SG_KIND_FEEDBACK] = 8,
						 [SG_KIND_EXPERIMENT] = 8 };
		sg_u32 len = kind < sizeof(lengths) && lengths[kind] ? lengths[kind] :
								   2 + kind % 7;

		if (s->options_len + len > OPTIONS_MAX)
			break;
		at[0] = kind;
		if (len > 1)
			at[1] = (sg_u8)len;
		for (i = 2; i < len; i++)
			at[i] = take8(in);
		if (kind == SG_KIND_EXPERIMENT && !(at[7] & 3)) {
			put16(at + 2, SG_EXID);
			at[4] = SG_PEER_VERSION;
		}
		s->options_len += len;
	}
}

/* Near what the host knows, so that the interesting branches are within reach. */
static sg_u32 take_sequence(struct input *in, sg_u32 near)
{
	sg_u8 how = take8(in);

	if (how & 1)
		return near + take16(in);
	return how & 2 ? near - take16(in) : how & 4 ? take32(in) : near;
}

static void take_shape(struct input *in, const struct sg_host *host, sg_u32 direction,
		       struct shape *s)
{
	const struct sg_flow *flow = &host->flow;
	static const sg_u8 flags[] = { SG_ACK, SG_ACK, SG_ACK, SG_SYN, SG_SYN | SG_ACK,
				       SG_ACK | SG_FIN, SG_RST, SG_ACK | SG_ECE };
	sg_u8 bits = take8(in);

	memset(s, 0, sizeof(*s));
	s->ip_version = bits & 1 ? 6 : 4;
	s->vlan = bits >> 1 & 1;
	s->ecn = bits >> 2 & 3;
	s->flags = flags[bits >> 4 & 7];
	if (bits & 128)
		s->flags = take8(in);
	s->local = 0x0a000001;
	s->remote = 0x0a000002;
	s->source_port = 40000;
	s->destination_port = 5001;
	s->seq = take_sequence(in, direction == SG_FROM_TENANT ? flow->snd_nxt :
								 host->half[SG_TO_TENANT].isn);
	s->ack = take_sequence(in, direction == SG_TO_TENANT ?
					   flow->snd_una :
					   host->half[SG_FROM_TENANT].isn + 1);
	s->window = take16(in);
	s->payload = take8(in) & 1 ? take_range(in, 0, 1400) : 0;
	s->payload_seed = take8(in);
	take_options(in, s);
}

static void damage(struct input *in, struct wire *w)
{
	sg_u32 bytes = take8(in), at;

	if (bytes > 8)
		return;
	while (bytes--) {
		at = take16(in) % w->len;
		w->bytes[at] = take8(in);
	}
	if (take8(in) & 1)
		w->len = take_range(in, 0, w->len);
}

static void take_raw(struct input *in, struct wire *w)
{
	sg_u32 i;

	w->len = take_range(in, 0, 128);
	for (i = 0; i < w->len; i++)
		w->bytes[i] = take8(in);
}

/* Ethernet pads short frames with bytes that are no part of the IP packet. */
static void pad_short(struct input *in, struct wire *w)
{
	if (take8(in) & 1)
		while (w->len < 60)
			w->bytes[w->len++] = 0xa5;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	struct input in = { data, size };
	static struct sg_host host;
	struct passage passage;
	struct shape shape;
	struct wire wire;
	sg_u64 now_ns = 1;

	memset(&host, 0, sizeof(host));
	take_policy(&in, &host);
	while (in.left) {
		sg_u8 how = take8(&in);
		sg_u32 direction = how & 1 ? SG_TO_TENANT : SG_FROM_TENANT;

		now_ns += (sg_u64)take16(&in) << (how >> 4);
		if (how & 2) {
			take_raw(&in, &wire);
		} else {
			take_shape(&in, &host, direction, &shape);
			build(&wire, &shape);
			damage(&in, &wire);
			pad_short(&in, &wire);
		}
		pass(&host, &wire, direction, now_ns, how & 4 ? SG_OPTION_LEN : 0, &passage);
	}
	return 0;
}
