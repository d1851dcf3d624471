/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The congestion controls: the only list of them. enum sg_algorithm and the switches of
 * cc.h follow from it and, through core's build script, Rust's `Algorithm`: the names in
 * policies, scenarios and results, the tenants' stacks, and what the tests run through.
 *
 * A line's position is the number that policies and flows in the kernel hold: a new line
 * comes last. The build script reads the lines as they stand here, one X(...) each.
 *
 *	constant	SG_CC_constant
 *	name		as people write it; sg_NAME_on_ack() is in cc_NAME.h
 *	state		sg_STATE_init() begins its part of struct sg_cc; `zero`: with zeros,
 *			`dctcp`: it has DCTCP's alpha, with the gain g
 *	loss		sg_LOSS_on_loss() and sg_LOSS_on_timeout()
 *	needs		PEER: feedback of a peer that enforces; as a tenant's stack it offers ECN, and
 *			its receivers answer marks one by one. NOTHING: it works from one side
 *	stack		who provides it as a tenant's own stack. LINUX: every kernel; MODULE:
 *			kernels built with the module, Sluicegate for others; OURS:
 *			Sluicegate; NO_STACK: none
 *	keys		its constants in a rule of a policy; rules without it refuse them
 *	title
 */
#ifndef SLUICE_CC_TABLE_H
#define SLUICE_CC_TABLE_H

#define SG_ALGORITHMS(X) \
	X(RENO,      reno,      zero,     reno,      NOTHING, LINUX,    "", "New Reno: RFC 5681, RFC 6582") \
	X(CUBIC,     cubic,     zero,     cubic,     NOTHING, LINUX,    "", "CUBIC: RFC 9438") \
	X(DCTCP,     dctcp,     dctcp,    reno,      PEER,    MODULE,   "beta beta_growth g", "DCTCP: RFC 8257, with AC/DC TCP's priority") \
	X(DCVEGAS,   dcvegas,   dctcp,    reno,      NOTHING, OURS,     "g k", "DC-Vegas: DCTCP's law with delay for marks") \
	X(VEGAS,     vegas,     zero,     reno,      NOTHING, MODULE,   "vegas_alpha vegas_beta", "TCP Vegas: Brakmo and Peterson 1995") \
	X(ILLINOIS,  illinois,  illinois, illinois,  NOTHING, MODULE,   "", "TCP Illinois: Liu, Başar, Srikant 2008") \
	X(HIGHSPEED, highspeed, zero,     highspeed, NOTHING, MODULE,   "", "HighSpeed TCP: RFC 3649") \
	X(FIXED,     fixed,     fixed,    fixed,     NOTHING, NO_STACK, "window", "A constant window") \
	X(SWIFT,     swift,     zero,     swift,     NOTHING, OURS,     "swift_target swift_range swift_ai swift_beta swift_max_mdf", "Swift: Kumar et al. 2020, its window on RTTs")

#endif /* SLUICE_CC_TABLE_H */
