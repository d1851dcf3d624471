/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's stack that is core's algorithm as it is: at the sender alone, no ECN. The
 * build script compiles it for each stack in the table of algorithms that has no file of
 * its own, with STACK_NAME and STACK_ALGORITHM.
 */
#include "tenant.h"

#define STACK_LOSS_HALVES 0

static __always_inline void stack_acked(struct sock *sk, struct tenant *t,
					struct sg_cc_ack *ack)
{
	sg_cc_on_ack(&t->cc, &tenant_params, STACK_ALGORITHM, ack);
}

/* Where core's answer to a loss would lead. */
static __always_inline sg_u32 stack_reduced(const struct tenant *t)
{
	struct sg_cc cc = t->cc;
	struct sg_cc_ack ack = {};

	sg_cc_on_loss(&cc, &tenant_params, STACK_ALGORITHM, &ack);
	return sg_max32((sg_u32)sg_div(cc.cwnd, cc.mss), 2);
}

static __always_inline void stack_opened(struct sock *sk, struct tenant *t)
{
}

#include "tenant_ops.h"

STACK_OPS(STACK_NAME, tenant_init, tenant_cwnd_event,
	  .flags = TCP_CONG_NON_RESTRICTED);
