/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A tenant's DCTCP: RFC 8257, as Linux's tcp_dctcp.c behaves. The sender's half is
 * core's cc_dctcp.h; the receiver's half (section 3.2) is here, since it is about
 * when the kernel sends ACKs.
 */
#include "tenant.h"

#define STACK_ALGORITHM SG_CC_DCTCP
/* Loss halves, also in a window that was reduced for its marks (RFC 8257 3.5). */
#define STACK_LOSS_HALVES 1

static __always_inline void stack_acked(struct sock *sk, struct tenant *t,
					struct sg_cc_ack *ack)
{
	if (ack->window_used)
		sg_dctcp_grow(&t->cc, &tenant_params, ack->acked);
}

static __always_inline sg_u32 stack_reduced(const struct tenant *t)
{
	return tenant_packets(t, sg_dctcp_reduced(&t->cc, tenant_params.beta_q10));
}

static __always_inline void stack_opened(struct sock *sk, struct tenant *t)
{
}

#define STACK_OWN_INIT
#define STACK_OWN_EVENTS
#include "tenant_ops.h"

static const char fallback[] = "reno";

/* Without ECN there is nothing to be DCTCP about: the kernel's New Reno takes over. */
SEC("struct_ops")
void BPF_PROG(dctcp_init, struct sock *sk)
{
	if (tenant_tcp(sk)->ecn_flags & TCP_ECN_OK)
		tenant_start(sk, STACK_ALGORITHM);
	else
		bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, (void *)fallback,
			       sizeof(fallback));
}

/* Every ACK: the fraction marked of what was delivered since the one before. */
SEC("struct_ops")
void BPF_PROG(dctcp_in_ack_event, struct sock *sk, __u32 flags)
{
	struct tcp_sock *tp = tenant_tcp(sk);
	struct tenant *t = tenant_of(sk);
	struct sg_cc_ack ack = {
		.snd_una = tp->snd_una,
		.snd_nxt = tp->snd_nxt,
	};
	sg_u32 delivered = tp->delivered - t->delivered;
	sg_u32 marked = tp->delivered_ce - t->delivered_ce;

	if (!t->cc.mss)
		return;
	t->delivered = tp->delivered;
	t->delivered_ce = tp->delivered_ce;
	sg_dctcp_count(&t->cc, &tenant_params, delivered, marked,
		       sg_cc_round(&t->cc, &ack));
}

static __always_inline void dctcp_echo(struct tcp_sock *tp, int ce)
{
	if (ce)
		tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tp->ecn_flags &= (__u8)~TCP_ECN_DEMAND_CWR;
}

/*
 * The receiver: ECE of every ACK says whether the data that it acknowledges met
 * CE. So when CE changes, a delayed ACK goes out first with the old state and up
 * to the old rcv_nxt, and the new state is acknowledged at once (figure 1).
 */
static __always_inline void dctcp_ce_changed(struct sock *sk, struct tenant *t, sg_u8 ce)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct tcp_sock *tp = tenant_tcp(sk);

	if (t->ce_state != ce) {
		if (icsk->icsk_ack.pending & ICSK_ACK_TIMER) {
			dctcp_echo(tp, t->ce_state);
			bpf_tcp_send_ack(tp, t->prior_rcv_nxt);
		}
		icsk->icsk_ack.pending |= ICSK_ACK_NOW;
	}
	t->prior_rcv_nxt = tp->rcv_nxt;
	t->ce_state = ce;
	dctcp_echo(tp, ce);
}

SEC("struct_ops")
void BPF_PROG(dctcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	switch (event) {
	case CA_EVENT_ECN_IS_CE:
		dctcp_ce_changed(sk, tenant_of(sk), 1);
		break;
	case CA_EVENT_ECN_NO_CE:
		dctcp_ce_changed(sk, tenant_of(sk), 0);
		break;
	case CA_EVENT_TX_START:
		tenant_restart(sk);
		break;
	default:
		break;
	}
}

STACK_OPS("sg_dctcp", dctcp_init, dctcp_cwnd_event,
	  .flags = TCP_CONG_NON_RESTRICTED | TCP_CONG_NEEDS_ECN,
	  .in_ack_event = (void *)dctcp_in_ack_event);
