/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's DC-Vegas: delay-based, at the sender alone, no ECN.
 */
#include "tenant.h"

#include "sluice/cc_dcvegas.h"

/* K unless the loader set another: what public re-implementations use at 1 Gb/s. */
#define DCVEGAS_K_SEGMENTS 6

SEC("struct_ops")
void BPF_PROG(dcvegas_init, struct sock *sk)
{
	tenant_init(sk, SG_CC_DCVEGAS);
}

SEC("struct_ops")
void BPF_PROG(dcvegas_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	tenant_sample(tenant_of(sk), sample);
}

SEC("struct_ops")
void BPF_PROG(dcvegas_cong_avoid, struct sock *sk, __u32 una, __u32 acked)
{
	struct tenant *t = tenant_of(sk);
	struct sg_params params = tenant_params;
	struct sg_cc_ack ack;

	tenant_begin(sk, t, &ack, acked);
	if (!params.k_bytes && !params.k_delay_ns)
		params.k_bytes = DCVEGAS_K_SEGMENTS * t->cc.mss;
	sg_dcvegas_on_ack(&t->cc, &params, &ack);
	tenant_end(sk, t);
}

SEC("struct_ops")
__u32 BPF_PROG(dcvegas_ssthresh, struct sock *sk)
{
	return tenant_half(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(dcvegas_undo_cwnd, struct sock *sk)
{
	return tenant_undo(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ops = {
	.name = "sg_dcvegas",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)dcvegas_init,
	.ssthresh = (void *)dcvegas_ssthresh,
	.cong_avoid = (void *)dcvegas_cong_avoid,
	.pkts_acked = (void *)dcvegas_pkts_acked,
	.undo_cwnd = (void *)dcvegas_undo_cwnd,
};
