/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's TCP Illinois, as Linux's tcp_illinois.c behaves.
 */
#include "tenant.h"

#define STACK_ALGORITHM SG_CC_ILLINOIS
#define STACK_LOSS_HALVES 0

static __always_inline void stack_acked(struct sock *sk, struct tenant *t,
					struct sg_cc_ack *ack)
{
	if (tenant_phase(sk) == TENANT_LOSS)
		sg_illinois_reset(&t->cc);
	sg_illinois_on_ack(&t->cc, &tenant_params, ack);
}

static __always_inline sg_u32 stack_reduced(const struct tenant *t)
{
	return tenant_packets(t, sg_cc_scaled(t->cc.cwnd, sg_illinois_keep(&t->cc)));
}

static __always_inline void stack_opened(struct sock *sk, struct tenant *t)
{
}

#include "tenant_ops.h"

SEC("struct_ops")
void BPF_PROG(illinois_init, struct sock *sk)
{
	tenant_start(sk, STACK_ALGORITHM);
}

SEC("struct_ops")
void BPF_PROG(illinois_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		tenant_restart(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ops = {
	.name = "sg_illinois",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)illinois_init,
	.ssthresh = (void *)tenant_ssthresh,
	.cong_control = (void *)tenant_cong_control,
	.cwnd_event = (void *)illinois_cwnd_event,
	.pkts_acked = (void *)tenant_pkts_acked,
	.undo_cwnd = (void *)tenant_undo_cwnd,
};
