/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A constant window: the operator's number, whatever happens to packets. Cap
 * divided by RTT is the rate.
 */
#ifndef SLUICE_CC_FIXED_H
#define SLUICE_CC_FIXED_H

#include "cc_state.h"

SG_INLINE void sg_fixed_init(struct sg_cc *cc, const struct sg_params *params)
{
	sg_cc_set(cc, params, params->fixed_bytes);
	cc->ssthresh = cc->cwnd;
}

SG_NOINLINE int sg_fixed_on_ack(struct sg_cc *cc, const struct sg_params *params,
				const struct sg_cc_ack *ack)
{
	(void)ack;
	sg_fixed_init(cc, params);
	return 0;
}

SG_INLINE void sg_fixed_on_loss(struct sg_cc *cc, const struct sg_params *params,
				const struct sg_cc_ack *ack)
{
	(void)cc, (void)params, (void)ack;
}

SG_INLINE void sg_fixed_on_timeout(struct sg_cc *cc, const struct sg_params *params,
				   const struct sg_cc_ack *ack)
{
	(void)cc, (void)params, (void)ack;
}

#endif /* SLUICE_CC_FIXED_H */
