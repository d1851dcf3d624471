/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's DC-Vegas: delay-based, at the sender alone, no ECN.
 */
#include "tenant.h"

#define STACK_ALGORITHM SG_CC_DCVEGAS
#define STACK_LOSS_HALVES 0
/*
 * K unless the loader set another. Re-implementations use 6 segments at 1 Gb/s, 72 us of
 * queueing; the lab's links carry a few 100 Mb/s, where 3 segments already last longer.
 */
#define DCVEGAS_K_SEGMENTS 3

static __always_inline void stack_acked(struct sock *sk, struct tenant *t,
					struct sg_cc_ack *ack)
{
	struct sg_params params = tenant_params;

	if (!params.k_bytes && !params.k_delay_ns)
		params.k_bytes = DCVEGAS_K_SEGMENTS * t->cc.mss;
	sg_dcvegas_on_ack(&t->cc, &params, ack);
}

static __always_inline sg_u32 stack_reduced(const struct tenant *t)
{
	return tenant_half(t);
}

static __always_inline void stack_opened(struct sock *sk, struct tenant *t)
{
}

#include "tenant_ops.h"

SEC("struct_ops")
void BPF_PROG(dcvegas_init, struct sock *sk)
{
	tenant_start(sk, STACK_ALGORITHM);
}

SEC("struct_ops")
void BPF_PROG(dcvegas_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		tenant_restart(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ops = {
	.name = "sg_dcvegas",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)dcvegas_init,
	.ssthresh = (void *)tenant_ssthresh,
	.cong_control = (void *)tenant_cong_control,
	.cwnd_event = (void *)dcvegas_cwnd_event,
	.pkts_acked = (void *)tenant_pkts_acked,
	.undo_cwnd = (void *)tenant_undo_cwnd,
};
