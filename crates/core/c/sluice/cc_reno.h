/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * New Reno: RFC 5681, RFC 6582; marks as loss, RFC 3168.
 */
#ifndef SLUICE_CC_RENO_H
#define SLUICE_CC_RENO_H

#include "cc_state.h"

#define SG_RENO_KEEP_Q10 (SG_ONE_Q10 / 2)

SG_NOINLINE int sg_reno_on_ack(struct sg_cc *cc, const struct sg_params *params,
			       const struct sg_cc_ack *ack)
{
	sg_cc_round(cc, ack);
	if (sg_cc_marked(cc, params, ack, SG_RENO_KEEP_Q10))
		return 0;
	if (sg_cc_may_grow(cc, ack))
		sg_cc_grow(cc, params, ack->acked);
	return 0;
}

/* Also the answer to loss of dctcp, dcvegas and vegas. */
SG_NOINLINE int sg_reno_on_loss(struct sg_cc *cc, const struct sg_params *params,
				const struct sg_cc_ack *ack)
{
	sg_cc_lost(cc, params, ack, SG_RENO_KEEP_Q10);
	return 0;
}

SG_NOINLINE int sg_reno_on_timeout(struct sg_cc *cc,
				   const struct sg_params *params,
				   const struct sg_cc_ack *ack)
{
	sg_cc_timed_out(cc, params, ack, SG_RENO_KEEP_Q10);
	return 0;
}

#endif /* SLUICE_CC_RENO_H */
