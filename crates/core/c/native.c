/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The native build of congestion control: core's inline functions under names
 * that Rust can link, and the offsets that src/cc.rs and src/abi.rs count on.
 */
#include "sluice/cc.h"
#include "sluice/stack.h"

SG_ASSERT_AT(struct sg_cc, cwnd, 0);
SG_ASSERT_AT(struct sg_cc, ssthresh, 4);
SG_ASSERT_AT(struct sg_cc, mss, 8);
SG_ASSERT_AT(struct sg_cc, round_end, 12);
SG_ASSERT_AT(struct sg_cc, cut_end, 16);
SG_ASSERT_AT(struct sg_cc, prior, 24);
SG_ASSERT_AT(struct sg_cc, dctcp.alpha_q20, 32);
SG_ASSERT_AT(struct sg_cc, illinois.alpha_q10, 48);

SG_ASSERT_AT(struct sg_cc_ack, now_ns, 0);
SG_ASSERT_AT(struct sg_cc_ack, acked, 8);
SG_ASSERT_AT(struct sg_cc_ack, marked, 12);
SG_ASSERT_AT(struct sg_cc_ack, rtt_ns, 16);
SG_ASSERT_AT(struct sg_cc_ack, min_rtt_ns, 20);
SG_ASSERT_AT(struct sg_cc_ack, snd_una, 24);
SG_ASSERT_AT(struct sg_cc_ack, snd_nxt, 28);
SG_ASSERT_AT(struct sg_cc_ack, flight, 32);
SG_ASSERT_AT(struct sg_cc_ack, window_used, 36);
SG_ASSERT_AT(struct sg_cc_ack, in_recovery, 37);

SG_ASSERT_AT(struct sg_params, floor_mss, 4);
SG_ASSERT_AT(struct sg_params, init_segments, 5);
SG_ASSERT_AT(struct sg_params, g_shift, 6);
SG_ASSERT_AT(struct sg_params, window_cap, 12);
SG_ASSERT_AT(struct sg_params, fixed_bytes, 16);
SG_ASSERT_AT(struct sg_params, k_bytes, 20);
SG_ASSERT_AT(struct sg_params, k_delay_ns, 24);

void sluice_cc_init(struct sg_cc *cc, const struct sg_params *params,
		    sg_u32 algorithm, sg_u32 mss);
void sluice_cc_on_ack(struct sg_cc *cc, const struct sg_params *params,
		      sg_u32 algorithm, const struct sg_cc_ack *ack);
void sluice_cc_on_loss(struct sg_cc *cc, const struct sg_params *params,
		       sg_u32 algorithm, const struct sg_cc_ack *ack);
void sluice_cc_on_timeout(struct sg_cc *cc, const struct sg_params *params,
			  sg_u32 algorithm, const struct sg_cc_ack *ack);
void sluice_cc_on_idle(struct sg_cc *cc, const struct sg_params *params);
void sluice_stack_params(struct sg_params *params);

void sluice_cc_init(struct sg_cc *cc, const struct sg_params *params,
		    sg_u32 algorithm, sg_u32 mss)
{
	sg_cc_init(cc, params, algorithm, mss);
}

void sluice_cc_on_ack(struct sg_cc *cc, const struct sg_params *params,
		      sg_u32 algorithm, const struct sg_cc_ack *ack)
{
	sg_cc_on_ack(cc, params, algorithm, ack);
}

void sluice_cc_on_loss(struct sg_cc *cc, const struct sg_params *params,
		       sg_u32 algorithm, const struct sg_cc_ack *ack)
{
	sg_cc_on_loss(cc, params, algorithm, ack);
}

void sluice_cc_on_timeout(struct sg_cc *cc, const struct sg_params *params,
			  sg_u32 algorithm, const struct sg_cc_ack *ack)
{
	sg_cc_on_timeout(cc, params, algorithm, ack);
}

void sluice_cc_on_idle(struct sg_cc *cc, const struct sg_params *params)
{
	sg_cc_on_idle(cc, params);
}

void sluice_stack_params(struct sg_params *params)
{
	*params = (struct sg_params)SG_STACK_PARAMS;
}
