/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's TCP Vegas, as Linux's tcp_vegas.c behaves: it measures only while the
 * connection is open, and is New Reno otherwise.
 */
#include "tenant.h"

#define STACK_ALGORITHM SG_CC_VEGAS
#define STACK_LOSS_HALVES 0

static __always_inline void stack_acked(struct sock *sk, struct tenant *t,
					struct sg_cc_ack *ack)
{
	if (tenant_phase(sk) == TENANT_OPEN)
		sg_vegas_on_ack(&t->cc, &tenant_params, ack);
	else if (ack->window_used)
		sg_cc_grow(&t->cc, &tenant_params, ack->acked);
}

static __always_inline sg_u32 stack_reduced(const struct tenant *t)
{
	return tenant_half(t);
}

/* A new round from here; what was measured before does not count. */
static __always_inline void stack_opened(struct sock *sk, struct tenant *t)
{
	t->cc.vegas.samples = 0;
	t->cc.round_end = tenant_tcp(sk)->snd_nxt;
	t->cc.flags |= SG_CC_STARTED;
}

#define STACK_OWN_EVENTS
#include "tenant_ops.h"

/* After idleness the path may be another: the base RTT is found anew. */
SEC("struct_ops")
void BPF_PROG(vegas_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tenant *t = tenant_of(sk);

	if (event != CA_EVENT_TX_START)
		return;
	tenant_restart(sk);
	t->min_rtt_us = 0;
	stack_opened(sk, t);
}

STACK_OPS("sg_vegas", tenant_init, vegas_cwnd_event,
	  .flags = TCP_CONG_NON_RESTRICTED);
