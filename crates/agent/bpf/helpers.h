/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The kernel's helpers. Built with SG_FAULTS, each place that calls one which may fail
 * has a number, and fails when it is told to: whatever a busy kernel may refuse, one
 * place at a time, a test can refuse. Without, this is libbpf's header and no more.
 */
#ifndef SLUICE_HELPERS_H
#define SLUICE_HELPERS_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#ifdef SG_FAULTS

#include "sluice/types.h"

#define SG_SITES_MAX 128U

/* A place that calls what may fail; the array of them is in `.rodata.sites`, in no order. */
struct sg_site {
	sg_u32 number;
	sg_u32 line;
	char file[24];
	char what[24];
};

/* Written by tests, mirrored there. */
struct sg_faults {
	sg_u32 failing;   /* number of the place that fails, + 1; 0 = none */
	sg_u32 ip_summed; /* what skbs pretend of their checksum; 0 = the truth */
	sg_u32 linear;    /* bytes that they pretend to have in their linear part; 0 = the truth */
	sg_u8 met[SG_SITES_MAX]; /* 1 = the place was reached */
};

volatile struct sg_faults faults SEC(".data.faults") = { 0 };

/* Whether this place fails now. */
#define SG_FAILS_AT(count, name)                                            \
	({                                                                  \
		static const volatile struct sg_site site_                  \
			SEC(".rodata.sites") __attribute__((used)) = {      \
				count, __LINE__, __FILE_NAME__, name };     \
		_Static_assert(count < SG_SITES_MAX, "more places of these"); \
		faults.met[count] = 1;                                      \
		faults.failing == count + 1;                                \
	})
#define SG_FAILS(name) SG_FAILS_AT(__COUNTER__, name)

/* The call, or what it returns when the kernel refuses. */
#define SG_OR(refused, name, ...) (SG_FAILS(#name) ? (refused) : name(__VA_ARGS__))

#define bpf_map_lookup_elem(...) SG_OR(0, bpf_map_lookup_elem, __VA_ARGS__)
#define bpf_map_update_elem(...) SG_OR(-12, bpf_map_update_elem, __VA_ARGS__)
#define bpf_map_delete_elem(...) SG_OR(-12, bpf_map_delete_elem, __VA_ARGS__)
#define bpf_skb_load_bytes(...) SG_OR(-14, bpf_skb_load_bytes, __VA_ARGS__)
#define bpf_skb_store_bytes(...) SG_OR(-14, bpf_skb_store_bytes, __VA_ARGS__)
#define bpf_skb_change_tail(...) SG_OR(-12, bpf_skb_change_tail, __VA_ARGS__)
#define bpf_skb_pull_data(...) SG_OR(-12, bpf_skb_pull_data, __VA_ARGS__)
#define bpf_l4_csum_replace(...) SG_OR(-14, bpf_l4_csum_replace, __VA_ARGS__)
#define bpf_clone_redirect(...) SG_OR(-12, bpf_clone_redirect, __VA_ARGS__)
#define bpf_skc_lookup_tcp(...) SG_OR(0, bpf_skc_lookup_tcp, __VA_ARGS__)
#define bpf_skc_to_tcp_sock(...) SG_OR(0, bpf_skc_to_tcp_sock, __VA_ARGS__)
#define bpf_loop(...) SG_OR(-7, bpf_loop, __VA_ARGS__)
#define bpf_timer_init(...) SG_OR(-12, bpf_timer_init, __VA_ARGS__)
#define bpf_timer_set_callback(...) SG_OR(-1, bpf_timer_set_callback, __VA_ARGS__)
#define bpf_timer_start(...) SG_OR(-22, bpf_timer_start, __VA_ARGS__)

#endif /* SG_FAULTS */

#endif /* SLUICE_HELPERS_H */
