/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A TCP congestion control in BPF, as small as the kernel takes one (struct_ops, Linux 5.6). */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct sock;

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	char name[16];
};

SEC("struct_ops")
__u32 BPF_PROG(probe_ssthresh, struct sock *sk)
{
	return 2;
}

SEC("struct_ops")
__u32 BPF_PROG(probe_undo_cwnd, struct sock *sk)
{
	return 2;
}

SEC("struct_ops")
void BPF_PROG(probe_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
}

SEC(".struct_ops")
struct tcp_congestion_ops probe_stack = {
	.ssthresh = (void *)probe_ssthresh,
	.undo_cwnd = (void *)probe_undo_cwnd,
	.cong_avoid = (void *)probe_cong_avoid,
	.name = "sg_probe",
};
