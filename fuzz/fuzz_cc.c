/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Any sequence of ACKs, losses, timeouts and idle periods, for every algorithm.
 *
 * Whatever comes in: floor <= cwnd <= cap and nothing undefined. From a sender
 * that keeps the rules of sequence space also: a window grows only where growth
 * is earned, loss and timeout never raise it, a second loss in the same window
 * does not cut again.
 *
 * Input: parameters, then operations until the bytes are used up.
 */
#include <string.h>

#include <sluice/cc.h>

#include "input.h"

enum operation { SEND, ACK, LOSS, TIMEOUT, IDLE, ACK_ANYTHING, OPERATIONS };

struct world {
	struct sg_cc cc;
	struct sg_params params;
	sg_u32 algorithm;
	sg_u64 now_ns;
	sg_u32 snd_una;
	sg_u32 snd_nxt;
	sg_u32 min_rtt_ns;
};

/* Within what a policy accepts. One past the last algorithm is an unknown one. */
static void take_params(struct input *in, struct world *w)
{
	struct sg_params *p = &w->params;

	w->algorithm = take_range(in, 0, SG_CC_COUNT);
	p->algorithm = (sg_u8)w->algorithm;
	p->floor_mss = (sg_u8)take_range(in, 1, 2);
	p->init_segments = (sg_u8)take_range(in, 1, 64);
	p->g_shift = (sg_u8)take_range(in, 1, 10);
	p->flags = take8(in) & SG_RULE_CUT_ONLY;
	p->beta_q10 = take_range(in, 0, SG_ONE_Q10);
	p->window_cap = take_range(in, 0, SG_WINDOW_MAX);
	p->fixed_bytes = take_range(in, 0, SG_WINDOW_MAX);
	p->k_bytes = take8(in) & 1 ? take_range(in, 0, SG_WINDOW_MAX) : 0;
	p->k_segments = take8(in) & 1 ? take8(in) : 0;
	p->k_delay_ns = take32(in);
	p->vegas_alpha = take8(in);
	p->vegas_beta = take8(in);
	p->rto_min_us = take32(in);
	p->swift_target_ns = take32(in);
	p->swift_range_ns = take32(in);
	p->swift_ai_q10 = take16(in);
	p->swift_beta_q10 = take16(in);
	p->swift_mdf_q10 = take16(in);
}

/* Whether the state of this algorithm, of the table's or unknown, begins as the table names it. */
#define STATE(constant, name, state, ...) [SG_CC_##constant] = #state,
static int has_state(sg_u32 algorithm, const char *state)
{
	static const char *const states[] = { SG_ALGORITHMS(STATE) };

	return algorithm < SG_CC_COUNT && !strcmp(states[algorithm], state);
}

static void check_bounds(const struct world *w)
{
	sg_u32 floor = sg_cc_floor(&w->cc, &w->params);
	sg_u32 cap = sg_cc_cap(&w->cc, &w->params);

	require(w->cc.cwnd > 0 && w->cc.cwnd >= floor && w->cc.cwnd <= cap,
		"algorithm %u cwnd %u not in %u..%u", w->algorithm, w->cc.cwnd,
		floor, cap);
	if (has_state(w->algorithm, "dctcp"))
		require(w->cc.dctcp.alpha_q20 <= SG_ONE_Q20, "alpha %u",
			w->cc.dctcp.alpha_q20);
}

static struct sg_cc_ack next_ack(struct input *in, struct world *w)
{
	struct sg_cc_ack ack = {
		.now_ns = w->now_ns,
		.snd_una = w->snd_una,
		.snd_nxt = w->snd_nxt,
		.flight = w->snd_nxt - w->snd_una,
	};
	sg_u8 bits = take8(in);

	ack.window_used = bits & 1;
	ack.in_recovery = bits >> 1 & 1;
	if (bits & 4)
		ack.rtt_ns = take32(in);
	if (ack.rtt_ns && (!w->min_rtt_ns || ack.rtt_ns < w->min_rtt_ns))
		w->min_rtt_ns = ack.rtt_ns;
	ack.min_rtt_ns = w->min_rtt_ns;
	return ack;
}

static void do_ack(struct input *in, struct world *w)
{
	sg_u32 before = w->cc.cwnd;
	struct sg_cc_ack ack = next_ack(in, w);

	if (!ack.flight)
		return;
	ack.acked = take_range(in, 1, ack.flight);
	ack.marked = take8(in) & 1 ? take_range(in, 0, ack.acked) : 0;
	w->snd_una += ack.acked;
	ack.snd_una = w->snd_una;
	sg_cc_on_ack(&w->cc, &w->params, w->algorithm, &ack);
	/* An algorithm with a fixed window returns to it by design. */
	if (!has_state(w->algorithm, "fixed") && (!ack.window_used || ack.in_recovery))
		require(w->cc.cwnd <= before, "algorithm %u grew %u to %u unearned",
			w->algorithm, before, w->cc.cwnd);
}

static void do_loss(struct input *in, struct world *w)
{
	sg_u32 before = w->cc.cwnd, once;
	struct sg_cc_ack ack = next_ack(in, w);

	sg_cc_on_loss(&w->cc, &w->params, w->algorithm, &ack);
	once = w->cc.cwnd;
	require(once <= before, "algorithm %u: loss raised %u to %u", w->algorithm,
		before, once);
	sg_cc_on_loss(&w->cc, &w->params, w->algorithm, &ack);
	require(w->cc.cwnd == once, "algorithm %u: one window cut twice, %u, %u, %u",
		w->algorithm, before, once, w->cc.cwnd);
}

static void do_timeout(struct input *in, struct world *w)
{
	sg_u32 before = w->cc.cwnd;
	struct sg_cc_ack ack = next_ack(in, w);

	sg_cc_on_timeout(&w->cc, &w->params, w->algorithm, &ack);
	require(w->cc.cwnd <= before, "algorithm %u: timeout raised %u to %u",
		w->algorithm, before, w->cc.cwnd);
}

/* An ACK whose fields contradict each other: only the bounds must hold. */
static void do_ack_anything(struct input *in, struct world *w)
{
	struct sg_cc_ack ack = {
		.now_ns = (sg_u64)take32(in) << 32 | take32(in),
		.acked = take32(in),
		.marked = take32(in),
		.rtt_ns = take32(in),
		.min_rtt_ns = take32(in),
		.snd_una = take32(in),
		.snd_nxt = take32(in),
		.flight = take32(in),
		.window_used = take8(in) & 1,
	};

	sg_cc_on_ack(&w->cc, &w->params, w->algorithm, &ack);
}

static void step(struct input *in, struct world *w)
{
	sg_u8 operation = take8(in);

	/* Mostly steps of a network's size, at times hours. */
	w->now_ns += sg_shl(take16(in), operation >> 4 & 7) << (operation & 128 ? 16 : 0);
	switch (operation % OPERATIONS) {
	case SEND:
		w->snd_nxt += take_range(in, 0, SG_WINDOW_MAX - sg_min32(SG_WINDOW_MAX,
					 w->snd_nxt - w->snd_una));
		break;
	case ACK:
		do_ack(in, w);
		break;
	case LOSS:
		do_loss(in, w);
		break;
	case TIMEOUT:
		do_timeout(in, w);
		break;
	case IDLE:
		sg_cc_on_idle(&w->cc, &w->params);
		break;
	case ACK_ANYTHING:
		do_ack_anything(in, w);
		break;
	}
	check_bounds(w);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	struct input in = { data, size };
	struct world w;

	memset(&w, 0, sizeof(w));
	take_params(&in, &w);
	w.snd_una = take32(&in);
	w.snd_nxt = w.snd_una;
	sg_cc_init(&w.cc, &w.params, w.algorithm, take16(&in));
	check_bounds(&w);
	while (in.left)
		step(&in, &w);
	return 0;
}
