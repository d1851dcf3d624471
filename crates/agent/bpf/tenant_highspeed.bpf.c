/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's HighSpeed TCP, as Linux's tcp_highspeed.c behaves: in congestion
 * avoidance it counts ACKs, not bytes, so delayed ACKs slow it down.
 */
#include "tenant.h"

#include "sluice/cc_highspeed.h"

SEC("struct_ops")
void BPF_PROG(highspeed_init, struct sock *sk)
{
	tenant_init(sk, SG_CC_HIGHSPEED);
}

SEC("struct_ops")
void BPF_PROG(highspeed_cong_avoid, struct sock *sk, __u32 una, __u32 acked)
{
	struct tenant *t = tenant_of(sk);
	struct sg_cc_ack ack;

	tenant_begin(sk, t, &ack, acked);
	if (!sg_cc_in_slow_start(&t->cc))
		ack.acked = t->cc.mss;
	sg_highspeed_on_ack(&t->cc, &tenant_params, &ack);
	tenant_end(sk, t);
}

SEC("struct_ops")
__u32 BPF_PROG(highspeed_ssthresh, struct sock *sk)
{
	struct tenant *t = tenant_of(sk);

	tenant_load(t, tenant_tcp(sk));
	return tenant_packets(t, sg_cc_scaled(t->cc.cwnd, sg_highspeed_keep(&t->cc)));
}

SEC("struct_ops")
__u32 BPF_PROG(highspeed_undo_cwnd, struct sock *sk)
{
	return tenant_undo(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ops = {
	.name = "sg_highspeed",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)highspeed_init,
	.ssthresh = (void *)highspeed_ssthresh,
	.cong_avoid = (void *)highspeed_cong_avoid,
	.undo_cwnd = (void *)highspeed_undo_cwnd,
};
