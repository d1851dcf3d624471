/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The result of compiling a policy rule: the constants that govern one flow.
 *
 * The policy crate fills this; eBPF keeps it in an array map indexed by rule,
 * the userspace switch and the simulator in a plain array.
 */
#ifndef SLUICE_PARAMS_H
#define SLUICE_PARAMS_H

#include "cc_table.h"
#include "types.h"

#define SG_CC_NUMBER(constant, ...) SG_CC_##constant,
enum sg_algorithm {
	SG_ALGORITHMS(SG_CC_NUMBER)
	SG_CC_COUNT
};

/* The intervention that a rule permits in a flow's packets. */
enum sg_rule_mode {
	SG_RULE_OFF = 0,     /* not tracked */
	SG_RULE_OBSERVE = 1, /* everything computed, nothing edited */
	SG_RULE_ENFORCE = 2,
};

enum sg_rule_flags {
	SG_RULE_POLICE = 1 << 0,      /* drop data beyond the enforced edge */
	SG_RULE_STRIP_MPTCP = 1 << 1, /* hide MPTCP from the peer instead of passing the flow by */
	SG_RULE_CUT_ONLY = 1 << 2,    /* `dctcp`: beta scales the cut, as published, not the growth */
};

/* 2^20: the unit of alpha, and of every fraction that needs finer steps than 1/1024. */
#define SG_ONE_Q20 (1U << 20)
/* 1024: the unit of beta. */
#define SG_ONE_Q10 1024U

/* The largest enforced window: a 24-bit byte counter cannot wrap within one (8 MiB). */
#define SG_WINDOW_MAX (8U << 20)

/* At least the largest window that a TCP header can show: 65535 << 14 (RFC 7323 2.3). */
#define SG_TCP_WINDOW_MAX (1U << 30)

struct sg_params {
	sg_u8 algorithm;    /* enum sg_algorithm, both ends enforcing */
	sg_u8 one_sided;    /* enum sg_algorithm when the peer does not enforce */
	sg_u8 mode;         /* enum sg_rule_mode */
	sg_u8 flags;        /* enum sg_rule_flags */
	sg_u8 floor_mss;    /* 1 or 2: smallest window, in MSS as the tenant reads it */
	sg_u8 init_segments; /* initial window in segments, 1..64 */
	sg_u8 g_shift;      /* gain of alpha: g = 2^-g_shift, 1..10 */
	sg_u8 fallback;     /* enum sg_algorithm, both ends enforcing, on a path that drops and never marks */
	sg_u32 beta_q10;    /* DCTCP priority, 0..1024 */
	sg_u32 window_cap;  /* bytes, at most SG_WINDOW_MAX */
	sg_u32 fixed_bytes; /* `fixed`: the window in bytes */
	sg_u32 k_bytes;     /* `dcvegas`: threshold of the flow's own backlog; 0 = k_segments */
	sg_u32 k_delay_ns;  /* `dcvegas`: of the queueing delay, when k_bytes and k_segments are 0 */
	sg_u8 vegas_alpha;  /* `vegas`: lower and upper backlog in segments */
	sg_u8 vegas_beta;
	sg_u8 k_segments;   /* `dcvegas`: the backlog in segments of the flow; 0 = k_delay_ns */
	sg_u8 pad1;
	sg_u32 rto_min_us;  /* silence with data outstanding that counts as a timeout, at least */
	sg_u16 rule_id;     /* position in the policy file, for reports */
	sg_u16 mss;         /* largest MSS option that the tenant reads; 0 = any */
	sg_u64 rate_cap;    /* bytes per second of one flow, held by its window; 0 = none */
	sg_u32 swift_target_ns; /* `swift`: target of the RTT for the largest windows */
	sg_u32 swift_range_ns;  /* `swift`: what the smallest windows have in addition */
	sg_u16 swift_ai_q10;    /* `swift`: segments per window to add */
	sg_u16 swift_beta_q10;  /* `swift`: part of the relative excess to give up, 0..1024 */
	sg_u16 swift_mdf_q10;   /* `swift`: largest part of the window to give up at once, 0..1024 */
	sg_u16 cubic_keep_q10;  /* `cubic`: beta_cubic, what a cut keeps, below 1024; 0 = 717, 0.7 */
};
SG_ASSERT_SIZE(struct sg_params, 64);
SG_ASSERT_AT(struct sg_params, beta_q10, 8);
SG_ASSERT_AT(struct sg_params, vegas_alpha, 28);
SG_ASSERT_AT(struct sg_params, rto_min_us, 32);
SG_ASSERT_AT(struct sg_params, rule_id, 36);
SG_ASSERT_AT(struct sg_params, mss, 38);
SG_ASSERT_AT(struct sg_params, rate_cap, 40);
SG_ASSERT_AT(struct sg_params, swift_target_ns, 48);
SG_ASSERT_AT(struct sg_params, swift_mdf_q10, 60);
SG_ASSERT_AT(struct sg_params, cubic_keep_q10, 62);

/* 128-bit addresses in network order; IPv4 as ::ffff:a.b.c.d (RFC 4291 2.5.5.2). */
struct sg_addr {
	sg_u32 word[4];
};

/*
 * One rule: conditions that must all hold, and what then governs the flow. Conditions on
 * the interface and its tenant need names, which the data plane does not know: they
 * are in the scope of each interface.
 */
struct sg_rule {
	struct sg_addr source;      /* the data sender: this host's tenant */
	struct sg_addr source_mask; /* ones over the prefix, network order */
	struct sg_addr destination;
	struct sg_addr destination_mask;
	sg_u16 source_port_low;     /* inclusive, host order */
	sg_u16 source_port_high;
	sg_u16 destination_port_low;
	sg_u16 destination_port_high;
	sg_u16 vlan;                /* SG_VLAN_ANY, or the VLAN id; 0 = untagged */
	sg_u16 pad;
	sg_u32 scope_id;            /* of the conditions on interface and tenant; 0 = none */
	struct sg_params params;
};
SG_ASSERT_SIZE(struct sg_rule, 144);
SG_ASSERT_AT(struct sg_rule, params, 80);

#define SG_VLAN_ANY 0xffffU

struct sg_prefix {
	struct sg_addr address;
	struct sg_addr mask;
};
SG_ASSERT_SIZE(struct sg_prefix, 32);

/* Rules in order, at most. */
#define SG_RULES_MAX 64
/*
 * Places for rules. A flow refers to the slot of its rule, which keeps the rule from one
 * policy to the next; so there is room for two policies that have nothing in common.
 */
#define SG_SLOTS_MAX 128
#define SG_TRUSTED_MAX 32
#define SG_RULE_NONE 0xffU

/* A set of slots: the rules whose conditions on interface and tenant hold somewhere. */
struct sg_scope {
	sg_u64 word[SG_SLOTS_MAX / 64];
};

/* The whole of a policy as the data plane reads it. No rule matched = not tracked. */
struct sg_policy {
	sg_u32 rules_count;             /* entries of `order` */
	sg_u32 trusted_count;
	struct sg_scope anywhere;       /* rules without such conditions */
	sg_u8 order[SG_RULES_MAX];      /* slots; the first rule that matches decides a flow */
	struct sg_prefix trusted[SG_TRUSTED_MAX];
	struct sg_rule slots[SG_SLOTS_MAX];
};
SG_ASSERT_SIZE(struct sg_policy, 24 + SG_RULES_MAX + 32 * SG_TRUSTED_MAX + 144 * SG_SLOTS_MAX);

SG_INLINE int sg_scope_has(const struct sg_scope *scope, sg_u32 slot)
{
	return (int)(scope->word[slot / 64 % (SG_SLOTS_MAX / 64)] >> (slot & 63) & 1);
}

SG_INLINE int sg_prefix_covers(const struct sg_addr *prefix,
			       const struct sg_addr *mask,
			       const struct sg_addr *address)
{
	return (((address->word[0] ^ prefix->word[0]) & mask->word[0]) |
		((address->word[1] ^ prefix->word[1]) & mask->word[1]) |
		((address->word[2] ^ prefix->word[2]) & mask->word[2]) |
		((address->word[3] ^ prefix->word[3]) & mask->word[3])) == 0;
}

/* Ports in host order. */
SG_INLINE int sg_rule_matches(const struct sg_rule *rule,
			      const struct sg_addr *source,
			      const struct sg_addr *destination,
			      sg_u16 source_port, sg_u16 destination_port, sg_u16 vlan)
{
	return (rule->vlan == SG_VLAN_ANY || rule->vlan == vlan) &&
	       source_port >= rule->source_port_low &&
	       source_port <= rule->source_port_high &&
	       destination_port >= rule->destination_port_low &&
	       destination_port <= rule->destination_port_high &&
	       sg_prefix_covers(&rule->source, &rule->source_mask, source) &&
	       sg_prefix_covers(&rule->destination, &rule->destination_mask,
				destination);
}

#endif /* SLUICE_PARAMS_H */
