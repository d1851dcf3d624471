/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The native build of questions to a policy and to a flow, and of counting, for callers
 * with tables of their own (src/step.rs).
 */
#include "sluice/count.h"
#include "sluice/enforce.h"
#include "sluice/policy.h"

sg_u32 sluice_policy_match(const struct sg_policy *policy, const struct sg_scope *scope,
			   const struct sg_flow_key *key);
sg_u32 sluice_policy_trusts(const struct sg_policy *policy, const struct sg_addr *remote);
sg_u32 sluice_algorithm_of(const struct sg_flow *flow, const struct sg_params *params);
sg_u32 sluice_window_allowed(const struct sg_flow *flow, const struct sg_params *params,
			     sg_u64 now_ns);
void sluice_count(struct sg_counters *counters, const struct sg_segment *seg,
		  const struct sg_verdict *out);
void sluice_count_run(struct sg_counters *counters, const struct sg_segment *seg,
		      const struct sg_verdict *out, sg_u64 packets, sg_u64 reports);

sg_u32 sluice_policy_match(const struct sg_policy *policy, const struct sg_scope *scope,
			   const struct sg_flow_key *key)
{
	return sg_policy_match(policy, scope, key);
}

sg_u32 sluice_policy_trusts(const struct sg_policy *policy, const struct sg_addr *remote)
{
	return !!sg_policy_trusts(policy, remote);
}

sg_u32 sluice_algorithm_of(const struct sg_flow *flow, const struct sg_params *params)
{
	return sg_algorithm_of(flow, params);
}

sg_u32 sluice_window_allowed(const struct sg_flow *flow, const struct sg_params *params,
			     sg_u64 now_ns)
{
	return sg_window_allowed(flow, params, now_ns);
}

void sluice_count(struct sg_counters *counters, const struct sg_segment *seg,
		  const struct sg_verdict *out)
{
	counters->value[SG_COUNT_PACKETS]++;
	sg_count_verdict(counters, seg, out);
}

void sluice_count_run(struct sg_counters *counters, const struct sg_segment *seg,
		      const struct sg_verdict *out, sg_u64 packets, sg_u64 reports)
{
	sg_count_run(counters, seg, out, packets, reports);
}
