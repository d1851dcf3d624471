/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's HighSpeed TCP, as Linux's tcp_highspeed.c behaves: in congestion
 * avoidance it counts ACKs, not bytes, so delayed ACKs slow it down.
 */
#include "tenant.h"

#define STACK_ALGORITHM SG_CC_HIGHSPEED
#define STACK_LOSS_HALVES 0

static __always_inline void stack_acked(struct sock *sk, struct tenant *t,
					struct sg_cc_ack *ack)
{
	if (!sg_cc_in_slow_start(&t->cc))
		ack->acked = t->cc.mss;
	sg_highspeed_on_ack(&t->cc, &tenant_params, ack);
}

static __always_inline sg_u32 stack_reduced(const struct tenant *t)
{
	return tenant_packets(t, sg_cc_scaled(t->cc.cwnd, sg_highspeed_keep(&t->cc)));
}

static __always_inline void stack_opened(struct sock *sk, struct tenant *t)
{
}

#include "tenant_ops.h"

STACK_OPS("sg_highspeed", tenant_init, tenant_cwnd_event,
	  .flags = TCP_CONG_NON_RESTRICTED);
