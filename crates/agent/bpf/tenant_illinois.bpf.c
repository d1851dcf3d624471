/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's TCP Illinois, as Linux's tcp_illinois.c behaves.
 */
#include "tenant.h"

#include "sluice/cc_illinois.h"

SEC("struct_ops")
void BPF_PROG(illinois_init, struct sock *sk)
{
	tenant_init(sk, SG_CC_ILLINOIS);
}

SEC("struct_ops")
void BPF_PROG(illinois_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	tenant_sample(tenant_of(sk), sample);
}

SEC("struct_ops")
void BPF_PROG(illinois_cong_avoid, struct sock *sk, __u32 una, __u32 acked)
{
	struct tenant *t = tenant_of(sk);
	struct sg_cc_ack ack;

	tenant_begin(sk, t, &ack, acked);
	sg_illinois_on_ack(&t->cc, &tenant_params, &ack);
	tenant_end(sk, t);
}

SEC("struct_ops")
__u32 BPF_PROG(illinois_ssthresh, struct sock *sk)
{
	struct tenant *t = tenant_of(sk);

	tenant_load(t, tenant_tcp(sk));
	return tenant_packets(t, sg_cc_scaled(t->cc.cwnd, sg_illinois_keep(&t->cc)));
}

SEC("struct_ops")
void BPF_PROG(illinois_set_state, struct sock *sk, __u8 state)
{
	if (state == TCP_CA_Loss)
		sg_illinois_reset(&tenant_of(sk)->cc);
}

SEC("struct_ops")
__u32 BPF_PROG(illinois_undo_cwnd, struct sock *sk)
{
	return tenant_undo(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ops = {
	.name = "sg_illinois",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)illinois_init,
	.ssthresh = (void *)illinois_ssthresh,
	.cong_avoid = (void *)illinois_cong_avoid,
	.set_state = (void *)illinois_set_state,
	.pkts_acked = (void *)illinois_pkts_acked,
	.undo_cwnd = (void *)illinois_undo_cwnd,
};
