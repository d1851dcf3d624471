/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The parts of the kernel's TCP that a congestion control sees, as CO-RE views: libbpf
 * finds the real offsets in the running kernel's BTF at load time.
 */
#ifndef SLUICE_KERNEL_TCP_H
#define SLUICE_KERNEL_TCP_H

#include <linux/bpf.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	volatile unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate; /* bytes per second */
	unsigned long sk_max_pacing_rate;
};

struct inet_connection_sock {
	__u8 icsk_ca_state : 5; /* enum tcp_ca_state */
	__u32 icsk_rto;         /* jiffies */
	struct {
		__u8 pending;
	} icsk_ack;
	__u64 icsk_ca_priv[13];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 tcp_mstamp; /* us */
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 rcv_nxt;
	__u32 mss_cache;       /* payload bytes of a segment */
	__u32 snd_cwnd;        /* packets */
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 prior_ssthresh;  /* what undoing a reduction restores; 0 = nothing */
	__u32 prr_out;         /* packets sent since the reduction began */
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 srtt_us;         /* eighths of us */
	__u32 lsndtime;        /* jiffies */
	__u32 max_packets_out; /* in the last window */
	__u32 delivered;       /* packets, ever */
	__u32 delivered_ce;
	__u8 ecn_flags;
	__u8 is_cwnd_limited : 1;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us; /* below 0: none */
};

struct rate_sample {
	int losses;         /* packets marked lost with this ACK */
	__u32 acked_sacked; /* packets newly acknowledged or SACKed */
};

#pragma clang attribute pop

enum tcp_ca_event {
	CA_EVENT_TX_START,     /* first transmit after idleness */
	CA_EVENT_CWND_RESTART,
	CA_EVENT_COMPLETE_CWR,
	CA_EVENT_LOSS,         /* retransmission timeout */
	CA_EVENT_ECN_NO_CE,
	CA_EVENT_ECN_IS_CE,
};

enum tcp_ca_state {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};

/* libbpf matches members by name; `name` comes first so that the loader can change it. */
struct tcp_congestion_ops {
	char name[16];
	__u32 flags;
	void (*init)(struct sock *);
	__u32 (*ssthresh)(struct sock *);
	void (*cong_control)(struct sock *, __u32, int, const struct rate_sample *);
	void (*cwnd_event)(struct sock *, enum tcp_ca_event);
	void (*in_ack_event)(struct sock *, __u32);
	void (*pkts_acked)(struct sock *, const struct ack_sample *);
	__u32 (*undo_cwnd)(struct sock *);
};

#define TCP_CONG_NON_RESTRICTED (1U << 0) /* any user may choose it */
#define TCP_CONG_NEEDS_ECN (1U << 1)      /* the kernel negotiates ECN for it */

/* cong_control's flags. */
#define FLAG_DATA_ACKED 0x04        /* data was acknowledged */
#define FLAG_SND_UNA_ADVANCED 0x400

#define TCP_INFINITE_SSTHRESH 0x7fffffffU
#define TCP_ECN_OK 1
#define TCP_ECN_DEMAND_CWR 4 /* echo ECE */
#define ICSK_ACK_TIMER 2     /* an ACK is being delayed */
#define ICSK_ACK_NOW 8
#define SOL_TCP 6
#define TCP_CONGESTION 13

#endif /* SLUICE_KERNEL_TCP_H */
