/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A constant window: the operator's number, whatever happens to packets. Cap
 * divided by RTT is the rate.
 */
#ifndef SLUICE_CC_FIXED_H
#define SLUICE_CC_FIXED_H

#include "cc_state.h"

SG_NOINLINE int sg_fixed_hold(struct sg_cc *cc, const struct sg_params *params)
{
	sg_cc_set(cc, params, params->fixed_bytes);
	cc->ssthresh = cc->cwnd;
	return 0;
}

#endif /* SLUICE_CC_FIXED_H */
