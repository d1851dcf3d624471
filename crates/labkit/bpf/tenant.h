/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Core's congestion control as a tenant's own stack (struct_ops): the state and
 * what the stacks share. A stack's file includes this, defines the functions
 * below whose names begin with stack_, and then includes tenant_ops.h, which
 * holds the programs.
 *
 * The kernel decides when a reduction begins and ends and whether it was
 * spurious; the window itself is kept here, in packets, and written to the
 * socket on each ACK. The kernel's own way (cong_avoid, its rate reduction) is
 * not used because what a skipped struct_ops program returns is undefined: a
 * kernel that skipped one ssthresh in a thousand turned the stale word into a
 * window of two billion packets. Here a skipped call costs one ACK's worth of
 * reaction.
 */
#ifndef SLUICE_TENANT_H
#define SLUICE_TENANT_H

#include "kernel_tcp.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "sluice/cc.h"
#include "sluice/stack.h"

enum tenant_phase {
	TENANT_OPEN = 0,
	TENANT_CWR = 1,      /* reducing after ECE */
	TENANT_RECOVERY = 2, /* reducing after loss */
	TENANT_LOSS = 3,     /* after a timeout */
};

/* The socket's private 104 bytes. Windows in packets. */
struct tenant {
	struct sg_cc cc;
	sg_u32 cwnd;
	sg_u32 ssthresh;   /* TCP_INFINITE_SSTHRESH = not yet known */
	sg_u32 prior_cwnd; /* before the reduction */
	sg_u32 prr_delivered;
	sg_u32 rtt_us;     /* sample of the ACK in progress; 0 = none */
	sg_u32 min_rtt_us; /* 0 = none */
	sg_u32 delivered;  /* dctcp: as of the previous ACK */
	sg_u32 delivered_ce;
	sg_u32 prior_rcv_nxt;
	sg_u8 ce_state; /* dctcp: the last data segment met CE */
	sg_u8 phase;    /* enum tenant_phase as of the previous ACK */
	sg_u8 asked;    /* ssthresh was asked for since */
	sg_u8 pad;
};
SG_ASSERT_SIZE(struct tenant, 104);

struct sg_params tenant_params = SG_STACK_PARAMS;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A stack's own part. cc is loaded when these run. */

/* Data was acknowledged outside of a reduction. */
static void stack_acked(struct sock *sk, struct tenant *t, struct sg_cc_ack *ack);
/* The window in packets to which a reduction leads. */
static sg_u32 stack_reduced(const struct tenant *t);
/* The connection starts, is open again after a reduction, or transmits after idleness. */
static void stack_opened(struct sock *sk, struct tenant *t);

static __always_inline struct tcp_sock *tenant_tcp(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct tenant *tenant_of(struct sock *sk)
{
	return (struct tenant *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline enum tenant_phase tenant_phase(struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;

	switch (BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state)) {
	case TCP_CA_CWR:
		return TENANT_CWR;
	case TCP_CA_Recovery:
		return TENANT_RECOVERY;
	case TCP_CA_Loss:
		return TENANT_LOSS;
	default:
		return TENANT_OPEN;
	}
}

/* The windows into core's bytes. When a cut may follow a cut is the kernel's business. */
static __always_inline void tenant_load(struct tenant *t, const struct tcp_sock *tp)
{
	sg_u32 mss = sg_clamp32(tp->mss_cache, 1, 65535);

	t->cc.mss = mss;
	t->cc.cwnd = sg_sat32((sg_u64)t->cwnd * mss);
	t->cc.ssthresh = t->ssthresh >= TCP_INFINITE_SSTHRESH ?
				 SG_SSTHRESH_UNKNOWN :
				 sg_sat32((sg_u64)t->ssthresh * mss);
	t->cc.flags &= ~(SG_CC_CUT | SG_CC_HOLD | SG_CC_TIMED_OUT);
}

/* And back, in whole packets. */
static __always_inline void tenant_store(struct tenant *t)
{
	t->cwnd = sg_max32((sg_u32)sg_div(t->cc.cwnd, t->cc.mss), 1);
	if (t->cc.ssthresh != SG_SSTHRESH_UNKNOWN)
		t->ssthresh = (sg_u32)sg_div(t->cc.ssthresh, t->cc.mss);
}

/*
 * A reduced window in packets. Rounded up: Linux's modules take a rounded-down
 * part off the window, so that small windows stay whole.
 */
static __always_inline sg_u32 tenant_packets(const struct tenant *t, sg_u32 window)
{
	return sg_max32((sg_u32)sg_div((sg_u64)window + t->cc.mss - 1, t->cc.mss), 2);
}

/* Half of the window, two packets at least (RFC 5681). */
static __always_inline sg_u32 tenant_half(const struct tenant *t)
{
	return sg_max32(t->cwnd / 2, 2);
}

/* Linux's rule: the flow filled its window in the last round, or in slow start half of it. */
static __always_inline int tenant_window_used(const struct tenant *t, struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return t->cwnd < t->ssthresh && t->cwnd < 2ULL * tp->max_packets_out;
}

/* `acked` packets were acknowledged: what core is told. */
static __always_inline void tenant_ack(struct tenant *t, struct tcp_sock *tp,
				       struct sg_cc_ack *ack, sg_u32 acked)
{
	ack->now_ns = tp->tcp_mstamp * 1000;
	ack->acked = sg_sat32((sg_u64)acked * t->cc.mss);
	ack->marked = 0;
	ack->rtt_ns = sg_sat32(t->rtt_us * 1000ULL);
	ack->min_rtt_ns = sg_sat32(t->min_rtt_us * 1000ULL);
	ack->snd_una = tp->snd_una;
	ack->snd_nxt = tp->snd_nxt;
	ack->flight = sg_sat32(((sg_u64)tp->packets_out + acked) * t->cc.mss);
	ack->window_used = (sg_u8)tenant_window_used(t, tp);
	ack->in_recovery = 0;
	ack->on_path = 0;
	ack->pad = 0;
	ack->path_acked = 0;
	ack->path_marked = 0;
}

static __always_inline void tenant_start(struct sock *sk, sg_u32 algorithm)
{
	struct tcp_sock *tp = tenant_tcp(sk);
	struct tenant *t = tenant_of(sk);

	sg_cc_init(&t->cc, &tenant_params, algorithm, tp->mss_cache);
	t->cwnd = sg_max32(tp->snd_cwnd, 1);
	t->ssthresh = sg_min32(tp->snd_ssthresh, TCP_INFINITE_SSTHRESH);
	t->prior_cwnd = t->cwnd;
	t->prr_delivered = 0;
	t->rtt_us = 0;
	t->min_rtt_us = 0;
	t->delivered = tp->delivered;
	t->delivered_ce = tp->delivered_ce;
	t->prior_rcv_nxt = tp->rcv_nxt;
	t->ce_state = 0;
	t->phase = TENANT_OPEN;
	t->asked = 0;
	stack_opened(sk, t);
}

#endif /* SLUICE_TENANT_H */
