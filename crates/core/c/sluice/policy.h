/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A policy consulted: once per flow, when its first packet is seen. */
#ifndef SLUICE_POLICY_H
#define SLUICE_POLICY_H

#include "flow.h"
#include "params.h"

SG_INLINE int sg_policy_trusts(const struct sg_policy *policy, const struct sg_addr *address)
{
	sg_u32 i;

	for (i = 0; i < SG_TRUSTED_MAX && i < policy->trusted_count; i++) {
		if (sg_prefix_covers(&policy->trusted[i].address, &policy->trusted[i].mask, address))
			return 1;
	}
	return 0;
}

/*
 * The slot of the first rule that covers what the tenant sends, or SG_RULE_NONE. `scope`
 * is that of the tenant's interface.
 */
SG_INLINE sg_u32 sg_policy_match(const struct sg_policy *policy, const struct sg_scope *scope,
				 const struct sg_flow_key *key)
{
	sg_u16 source = __builtin_bswap16(key->local_port);
	sg_u16 destination = __builtin_bswap16(key->remote_port);
	const struct sg_rule *rule;
	sg_u32 i, slot;

	for (i = 0; i < SG_RULES_MAX && i < policy->rules_count; i++) {
		slot = policy->order[i] & (SG_SLOTS_MAX - 1);
		rule = &policy->slots[slot];
		if (sg_scope_has(scope, slot) &&
		    sg_rule_matches(rule, &key->local, &key->remote, source, destination,
				    key->vlan))
			return rule->params.mode == SG_RULE_OFF ? SG_RULE_NONE : slot;
	}
	return SG_RULE_NONE;
}

#endif /* SLUICE_POLICY_H */
