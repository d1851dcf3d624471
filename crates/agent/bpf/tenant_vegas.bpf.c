/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's TCP Vegas, as Linux's tcp_vegas.c behaves: it measures only while the
 * connection is open, and is New Reno otherwise.
 */
#include "tenant.h"

#include "sluice/cc_vegas.h"

/* A new round from here; what was measured before does not count. */
static __always_inline void vegas_enable(struct sock *sk)
{
	struct tenant *t = tenant_of(sk);

	t->cc.vegas.samples = 0;
	t->cc.round_end = tenant_tcp(sk)->snd_nxt;
	t->cc.flags |= SG_CC_STARTED;
}

SEC("struct_ops")
void BPF_PROG(vegas_init, struct sock *sk)
{
	tenant_init(sk, SG_CC_VEGAS);
	vegas_enable(sk);
}

SEC("struct_ops")
void BPF_PROG(vegas_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	tenant_sample(tenant_of(sk), sample);
}

SEC("struct_ops")
void BPF_PROG(vegas_cong_avoid, struct sock *sk, __u32 una, __u32 acked)
{
	struct tenant *t = tenant_of(sk);
	struct sg_cc_ack ack;

	tenant_begin(sk, t, &ack, acked);
	if (tenant_state(sk) == TCP_CA_Open)
		sg_vegas_on_ack(&t->cc, &tenant_params, &ack);
	else if (ack.window_used)
		sg_cc_grow(&t->cc, &tenant_params, ack.acked);
	tenant_end(sk, t);
}

SEC("struct_ops")
__u32 BPF_PROG(vegas_ssthresh, struct sock *sk)
{
	return tenant_half(sk);
}

SEC("struct_ops")
void BPF_PROG(vegas_set_state, struct sock *sk, __u8 state)
{
	if (state == TCP_CA_Open)
		vegas_enable(sk);
}

/* After idleness the path may be another: the base RTT is found anew. */
SEC("struct_ops")
void BPF_PROG(vegas_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event != CA_EVENT_TX_START && event != CA_EVENT_CWND_RESTART)
		return;
	tenant_of(sk)->min_rtt_us = 0;
	vegas_enable(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(vegas_undo_cwnd, struct sock *sk)
{
	return tenant_undo(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ops = {
	.name = "sg_vegas",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)vegas_init,
	.ssthresh = (void *)vegas_ssthresh,
	.cong_avoid = (void *)vegas_cong_avoid,
	.set_state = (void *)vegas_set_state,
	.cwnd_event = (void *)vegas_cwnd_event,
	.pkts_acked = (void *)vegas_pkts_acked,
	.undo_cwnd = (void *)vegas_undo_cwnd,
};
