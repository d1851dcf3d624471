/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The few kernel structures that the programs read, as CO-RE views: libbpf
 * finds the real offsets in the running kernel's BTF at load time.
 */
#ifndef SLUICE_KERNEL_H
#define SLUICE_KERNEL_H

#include <linux/bpf.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct gnet_stats_queue {
	__u32 qlen;
	__u32 backlog; /* bytes queued */
	__u32 drops;
};

struct Qdisc {
	struct gnet_stats_queue qstats;
};

struct net;

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	struct Qdisc *qdisc; /* the root qdisc */
	int ifindex;
	unsigned int mtu;
	possible_net_t nd_net;
};

struct sock_common {
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk; /* whose memory it counts as; none after an orphaning device */
	unsigned int len;
	__u8 ip_summed : 2; /* CHECKSUM_* */
};

#pragma clang attribute pop

/* enum tcx_action_base (Linux 6.6), under our names: older headers lack it. */
#define SG_TCX_NEXT (-1)
#define SG_TCX_PASS 0
#define SG_TCX_DROP 2

/*
 * The kernel's own view of a program's context (Linux 6.2). Weak: without it only programs that
 * call it are refused.
 */
extern void *bpf_cast_to_kern_ctx(void *context) __attribute__((section(".ksyms"), weak));

#endif /* SLUICE_KERNEL_H */
