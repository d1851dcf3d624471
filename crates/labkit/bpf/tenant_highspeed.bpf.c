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

SEC("struct_ops")
void BPF_PROG(highspeed_init, struct sock *sk)
{
	tenant_start(sk, STACK_ALGORITHM);
}

SEC("struct_ops")
void BPF_PROG(highspeed_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		tenant_restart(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ops = {
	.name = "sg_highspeed",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)highspeed_init,
	.ssthresh = (void *)tenant_ssthresh,
	.cong_control = (void *)tenant_cong_control,
	.cwnd_event = (void *)highspeed_cwnd_event,
	.pkts_acked = (void *)tenant_pkts_acked,
	.undo_cwnd = (void *)tenant_undo_cwnd,
};
