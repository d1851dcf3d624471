/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The programs that every tenant's stack has. Before this is included the stack
 * has defined STACK_ALGORITHM, STACK_LOSS_HALVES (loss halves, whatever the stack
 * answers to ECE), its stack_ functions (tenant.h) and, where it brings its own
 * programs for init or cwnd_event, STACK_OWN_INIT or STACK_OWN_EVENTS. After it comes
 * STACK_OPS() with the stack's name, these programs and further fields.
 */
#ifndef SLUICE_TENANT_OPS_H
#define SLUICE_TENANT_OPS_H

#include "tenant.h"

/* A reduction begins: where to, from where. */
static __always_inline void tenant_begin(struct tenant *t, const struct tcp_sock *tp)
{
	tenant_load(t, tp);
	t->prior_cwnd = t->cwnd;
	t->prr_delivered = 0;
	t->ssthresh = stack_reduced(t);
}

/* It ends, or ended within one ACK (a loss that a tail probe repaired). */
static __always_inline void tenant_finish(struct tenant *t)
{
	t->cwnd = sg_clamp32(t->ssthresh, 1, sg_max32(t->prior_cwnd, 1));
}

/* The kernel's verdict on the connection has changed, or it asked for ssthresh. */
static __always_inline void tenant_follow(struct sock *sk, struct tenant *t)
{
	struct tcp_sock *tp = tenant_tcp(sk);
	enum tenant_phase phase = tenant_phase(sk), was = t->phase;
	int begun = t->asked;

	/* Begun while the kernel skipped our ssthresh. */
	if (!begun && was == TENANT_OPEN && phase != TENANT_OPEN) {
		tenant_begin(t, tp);
		begun = 1;
	}
	if (STACK_LOSS_HALVES && phase >= TENANT_RECOVERY && (begun || phase > was))
		t->ssthresh = sg_max32((begun ? t->prior_cwnd : t->cwnd) / 2, 2);
	/* Lowered by the kernel: a timeout. Raised: only tenant_undo_cwnd may. */
	if (phase == TENANT_OPEN || phase == TENANT_LOSS)
		t->cwnd = sg_clamp32(tp->snd_cwnd, 1, t->cwnd);
	if (phase == TENANT_OPEN) {
		if (begun || was == TENANT_CWR || was == TENANT_RECOVERY)
			tenant_finish(t);
		if (was != TENANT_OPEN)
			stack_opened(sk, t);
	}
	t->phase = (sg_u8)phase;
	t->asked = 0;
}

static __always_inline sg_u32 tenant_in_flight(const struct tcp_sock *tp)
{
	sg_u32 left = tp->sacked_out + tp->lost_out;
	sg_u32 out = tp->packets_out + tp->retrans_out;

	return out > left ? out - left : 0;
}

/*
 * Proportional rate reduction (RFC 6937 section 3, with the limit of its slow
 * start reduction bound): what was delivered decides what may be sent.
 */
static __always_inline void tenant_reduce(struct tenant *t, const struct tcp_sock *tp,
					  sg_u32 delivered, int repairing)
{
	sg_u32 pipe = tenant_in_flight(tp), sent = tp->prr_out, may;
	sg_u64 share;

	if (!delivered)
		return;
	t->prr_delivered += delivered;
	if (pipe > t->ssthresh) {
		share = sg_div((sg_u64)t->prr_delivered * t->ssthresh + t->prior_cwnd - 1,
			       t->prior_cwnd);
		may = share > sent ? sg_sat32(share - sent) : 0;
	} else {
		may = t->prr_delivered > sent ? t->prr_delivered - sent : 0;
		may = sg_max32(may, delivered) + !!repairing;
		may = sg_min32(may, t->ssthresh - pipe);
	}
	/* The first retransmission does not wait. */
	if (!sent)
		may = sg_max32(may, 1);
	t->cwnd = sg_clamp32(pipe + may, 1, sg_max32(t->prior_cwnd, 1));
}

static __always_inline void tenant_grow(struct sock *sk, struct tenant *t, sg_u32 acked)
{
	struct tcp_sock *tp = tenant_tcp(sk);
	struct sg_cc_ack ack;

	tenant_load(t, tp);
	tenant_ack(t, tp, &ack, acked);
	stack_acked(sk, t, &ack);
	tenant_store(t);
}

/*
 * Linux's pacing rate, which sizes its super-packets: twice the window per RTT
 * in slow start, 1.2 times later.
 */
static __always_inline void tenant_pace(struct sock *sk, const struct tenant *t)
{
	struct tcp_sock *tp = tenant_tcp(sk);
	sg_u64 percent = t->cwnd < t->ssthresh / 2 ? 200 : 120;
	sg_u64 rate = (sg_u64)tp->mss_cache * 8 * 10000 * percent *
		      sg_max32(t->cwnd, tp->packets_out);

	if (tp->srtt_us)
		sk->sk_pacing_rate = sg_min64(rate / tp->srtt_us, sk->sk_max_pacing_rate);
}

SEC("struct_ops")
void BPF_PROG(tenant_cong_control, struct sock *sk, __u32 una, int flag,
	      const struct rate_sample *rs)
{
	struct tcp_sock *tp = tenant_tcp(sk);
	struct tenant *t = tenant_of(sk);

	if (!t->cc.mss)
		tenant_start(sk, STACK_ALGORITHM);
	tenant_follow(sk, t);
	if (t->phase == TENANT_CWR || t->phase == TENANT_RECOVERY)
		tenant_reduce(t, tp, rs->acked_sacked,
			      (flag & FLAG_SND_UNA_ADVANCED) && rs->losses <= 0);
	else if (flag & FLAG_DATA_ACKED)
		tenant_grow(sk, t, rs->acked_sacked);
	t->cwnd = sg_min32(t->cwnd, sg_max32(tp->snd_cwnd_clamp, 1));
	tp->snd_cwnd = t->cwnd;
	tp->snd_ssthresh = t->ssthresh;
	t->rtt_us = 0;
	tenant_pace(sk, t);
}

SEC("struct_ops")
void BPF_PROG(tenant_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tenant *t = tenant_of(sk);
	sg_u32 rtt_us = sg_max32((sg_u32)sample->rtt_us, 1);

	if (sample->rtt_us < 0)
		return;
	t->rtt_us = rtt_us;
	if (!t->min_rtt_us || rtt_us < t->min_rtt_us)
		t->min_rtt_us = rtt_us;
}

/* The kernel begins a reduction; which kind shows in its state afterwards. */
SEC("struct_ops")
__u32 BPF_PROG(tenant_ssthresh, struct sock *sk)
{
	struct tenant *t = tenant_of(sk);

	if (!t->cc.mss)
		tenant_start(sk, STACK_ALGORITHM);
	tenant_begin(t, tenant_tcp(sk));
	t->asked = 1;
	return t->ssthresh;
}

/* The reduction was spurious: as before it. */
SEC("struct_ops")
__u32 BPF_PROG(tenant_undo_cwnd, struct sock *sk)
{
	struct tenant *t = tenant_of(sk);

	t->cwnd = sg_max32(t->cwnd, t->prior_cwnd);
	t->ssthresh = sg_clamp32(tenant_tcp(sk)->prior_ssthresh, t->ssthresh,
				 TCP_INFINITE_SSTHRESH);
	t->phase = TENANT_OPEN;
	t->asked = 0;
	return t->cwnd;
}

/*
 * The first transmission after idleness: half of the window for each RTO, but
 * not below the initial one (RFC 2861 3.1, as the kernel does it for stacks
 * without cong_control).
 */
static __always_inline void tenant_restart(struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct tcp_sock *tp = tenant_tcp(sk);
	struct tenant *t = tenant_of(sk);
	sg_u32 idle = (sg_u32)bpf_jiffies64() - tp->lsndtime;
	sg_u32 rtos = (sg_u32)sg_div(idle, icsk->icsk_rto);

	if (!t->cc.mss || tp->packets_out || !rtos || (sg_s32)idle < 0)
		return;
	t->ssthresh = sg_max32(t->ssthresh, t->cwnd / 2 + t->cwnd / 4);
	t->cwnd = sg_max32(t->cwnd >> sg_min32(rtos, 31),
			   sg_min32(t->cwnd, tenant_params.init_segments));
	tp->snd_cwnd = t->cwnd;
	tp->snd_ssthresh = t->ssthresh;
}

/* The kernel refuses programs that the stack does not use. */
#ifndef STACK_OWN_INIT
SEC("struct_ops")
void BPF_PROG(tenant_init, struct sock *sk)
{
	tenant_start(sk, STACK_ALGORITHM);
}
#endif

#ifndef STACK_OWN_EVENTS
SEC("struct_ops")
void BPF_PROG(tenant_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		tenant_restart(sk);
}
#endif

#define STACK_OPS(stack_name, init_program, event_program, ...)       \
	SEC(".struct_ops.link")                                       \
	struct tcp_congestion_ops ops = {                             \
		.name = stack_name,                                   \
		.init = (void *)init_program,                         \
		.ssthresh = (void *)tenant_ssthresh,                  \
		.cong_control = (void *)tenant_cong_control,          \
		.cwnd_event = (void *)event_program,                  \
		.pkts_acked = (void *)tenant_pkts_acked,              \
		.undo_cwnd = (void *)tenant_undo_cwnd,                \
		__VA_ARGS__                                           \
	}

#endif /* SLUICE_TENANT_OPS_H */
