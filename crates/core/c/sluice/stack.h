/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The constants of tenants' own stacks of Linux: the struct_ops stacks of the lab and the endpoints
 * that simulate them. Those of stacks that Linux has are those that its modules have built in.
 */
#ifndef SLUICE_STACK_H
#define SLUICE_STACK_H

#include "params.h"

/*
 * The defaults of a policy (`Rule` in crates/policy) are other numbers on purpose: they are for
 * hosts with 10 Gb/s, and an operator may change them, which must not change a tenant's stack.
 * Vegas' are equal because both are those of Linux's tcp_vegas.c.
 *
 * DC-Vegas: re-implementations use 6 segments at 1 Gb/s, 72 us of queueing; the lab's links carry
 * a few 100 Mb/s, where 3 segments already last longer. Swift: for the same links, whose RTTs begin
 * at 300 us.
 */
#define SG_STACK_PARAMS                      \
	{                                    \
		.floor_mss = 2,              \
		.init_segments = 10,         \
		.g_shift = 4,                \
		.beta_q10 = SG_ONE_Q10,      \
		.window_cap = 1U << 30,      \
		.k_segments = 3,             \
		.vegas_alpha = 2,            \
		.vegas_beta = 4,             \
		.swift_target_ns = 1000000,  \
		.swift_range_ns = 1000000,   \
		.swift_ai_q10 = SG_ONE_Q10,  \
		.swift_beta_q10 = 819,       \
		.swift_mdf_q10 = 512,        \
	}

#endif /* SLUICE_STACK_H */
