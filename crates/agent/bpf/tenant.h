/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Core's congestion control as a tenant's own stack (struct_ops).
 *
 * The kernel stays the judge of what it judges for every module: when loss or
 * ECE begins a reduction (it asks ssthresh), how the window goes down
 * (proportional rate reduction, RFC 6937), when growth is due (cong_avoid), when
 * a reduction was spurious (undo_cwnd). It counts in packets; core in bytes. So
 * each call takes the kernel's windows times mss_cache into struct sg_cc, runs
 * core, and takes the result back; whole segments in, whole segments out.
 */
#ifndef SLUICE_TENANT_H
#define SLUICE_TENANT_H

#include "kernel_tcp.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "sluice/cc.h"

/* The socket's private 104 bytes. */
struct tenant {
	struct sg_cc cc;
	sg_u32 rtt_us;     /* sample of the ACK in progress; 0 = none */
	sg_u32 min_rtt_us; /* smallest since the start; 0 = none */
	sg_u32 loss_cwnd;  /* packets before the last reduction (dctcp) */
	sg_u32 delivered;  /* as of the previous ACK */
	sg_u32 delivered_ce;
	sg_u32 prior_rcv_nxt;
	sg_u32 ce_state; /* the last data segment met CE */
	sg_u32 pad[3];
};
SG_ASSERT_SIZE(struct tenant, 104);

/* What Linux's modules have built in. In .data: a loader may change it. */
struct sg_params tenant_params = {
	.floor_mss = 2,
	.init_segments = 10,
	.g_shift = 4,
	.beta_q10 = SG_ONE_Q10,
	.window_cap = 1U << 30,
	.vegas_alpha = 2,
	.vegas_beta = 4,
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline struct tcp_sock *tenant_tcp(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct tenant *tenant_of(struct sock *sk)
{
	return (struct tenant *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline int tenant_state(struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;

	return BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
}

/* The kernel's windows into core's. Cuts are the kernel's to time, see above. */
static __always_inline void tenant_load(struct tenant *t, const struct tcp_sock *tp)
{
	sg_u32 mss = sg_clamp32(tp->mss_cache, 1, 65535);
	sg_u32 ssthresh = tp->snd_ssthresh;

	t->cc.mss = mss;
	t->cc.cwnd = sg_sat32((sg_u64)tp->snd_cwnd * mss);
	t->cc.ssthresh = ssthresh >= TCP_INFINITE_SSTHRESH ?
				 SG_SSTHRESH_UNKNOWN :
				 sg_sat32((sg_u64)ssthresh * mss);
	t->cc.flags &= ~(SG_CC_CUT | SG_CC_HOLD | SG_CC_TIMED_OUT);
}

/* And back, in whole packets. */
static __always_inline void tenant_store(const struct tenant *t, struct tcp_sock *tp)
{
	sg_u32 cwnd = (sg_u32)sg_div(t->cc.cwnd, t->cc.mss);

	tp->snd_cwnd = sg_clamp32(cwnd, 1, sg_max32(tp->snd_cwnd_clamp, 1));
	if (t->cc.ssthresh != SG_SSTHRESH_UNKNOWN)
		tp->snd_ssthresh = (sg_u32)sg_div(t->cc.ssthresh, t->cc.mss);
}

/* Linux's rule: the flow filled its window in the last round, or in slow start half of it. */
static __always_inline int tenant_window_used(struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return tp->snd_cwnd < tp->snd_ssthresh &&
	       tp->snd_cwnd < 2ULL * tp->max_packets_out;
}

/* `acked` packets were acknowledged: load the state and describe the ACK. */
static __always_inline void tenant_begin(struct sock *sk, struct tenant *t,
					 struct sg_cc_ack *ack, sg_u32 acked)
{
	struct tcp_sock *tp = tenant_tcp(sk);

	tenant_load(t, tp);
	ack->now_ns = tp->tcp_mstamp * 1000;
	ack->acked = sg_sat32((sg_u64)acked * t->cc.mss);
	ack->marked = 0;
	ack->rtt_ns = sg_sat32(t->rtt_us * 1000ULL);
	ack->min_rtt_ns = sg_sat32(t->min_rtt_us * 1000ULL);
	ack->snd_una = tp->snd_una;
	ack->snd_nxt = tp->snd_nxt;
	ack->flight = sg_sat32(((sg_u64)tp->packets_out + acked) * t->cc.mss);
	ack->window_used = (sg_u8)tenant_window_used(tp);
	ack->in_recovery = 0;
	ack->pad[0] = 0;
	ack->pad[1] = 0;
}

static __always_inline void tenant_end(struct sock *sk, struct tenant *t)
{
	t->rtt_us = 0;
	tenant_store(t, tenant_tcp(sk));
}

static __always_inline void tenant_init(struct sock *sk, sg_u32 algorithm)
{
	struct tcp_sock *tp = tenant_tcp(sk);
	struct tenant *t = tenant_of(sk);

	sg_cc_init(&t->cc, &tenant_params, algorithm, tp->mss_cache);
	t->rtt_us = 0;
	t->min_rtt_us = 0;
	t->loss_cwnd = 0;
	t->delivered = tp->delivered;
	t->delivered_ce = tp->delivered_ce;
	t->prior_rcv_nxt = tp->rcv_nxt;
	t->ce_state = 0;
}

/* An RTT sample; 1 us at least, since 0 means none. */
static __always_inline void tenant_sample(struct tenant *t, const struct ack_sample *sample)
{
	sg_u32 rtt_us = (sg_u32)sample->rtt_us;

	if (sample->rtt_us < 0)
		return;
	rtt_us = sg_max32(rtt_us, 1);
	t->rtt_us = rtt_us;
	if (!t->min_rtt_us || rtt_us < t->min_rtt_us)
		t->min_rtt_us = rtt_us;
}

/*
 * A reduced window in packets, for ssthresh. Rounded up: the modules take a
 * rounded-down part off the window, so that small windows stay whole.
 */
static __always_inline sg_u32 tenant_packets(const struct tenant *t, sg_u32 window)
{
	return sg_max32((sg_u32)sg_div((sg_u64)window + t->cc.mss - 1, t->cc.mss), 2);
}

/* Half of the window, two packets at least (RFC 5681). */
static __always_inline sg_u32 tenant_half(struct sock *sk)
{
	return sg_max32(tenant_tcp(sk)->snd_cwnd / 2, 2);
}

/* A spurious reduction: back to the window before it. */
static __always_inline sg_u32 tenant_undo(struct sock *sk)
{
	struct tcp_sock *tp = tenant_tcp(sk);

	return sg_max32(tp->snd_cwnd, tp->prior_cwnd);
}

#endif /* SLUICE_TENANT_H */
