/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The native build of the enforcement step for whoever has a table of flows of
 * their own: one call per segment (src/step.rs).
 */
#include "sluice/count.h"
#include "sluice/handshake.h"
#include "sluice/policy.h"

sg_u32 sluice_policy_match(const struct sg_policy *policy, const struct sg_scope *scope,
			   const struct sg_flow_key *key);
sg_u32 sluice_policy_trusts(const struct sg_policy *policy, const struct sg_addr *remote);
void sluice_syn(struct sg_half_open *half, const struct sg_segment *seg, sg_u64 now_ns,
		const struct sg_params *params, struct sg_verdict *out);
sg_u32 sluice_synack(struct sg_flow *flow, struct sg_half_open *half,
		     const struct sg_segment *seg, sg_u64 now_ns,
		     const struct sg_params *params, struct sg_verdict *out);
sg_u32 sluice_is_unanswered(const struct sg_half_open *half);
void sluice_midstream(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
		      const struct sg_params *params, const struct sg_remembered *known);
void sluice_segment(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
		    const struct sg_params *params, struct sg_verdict *out);
sg_u32 sluice_algorithm_of(const struct sg_flow *flow, const struct sg_params *params);
sg_u32 sluice_window_allowed(const struct sg_flow *flow, const struct sg_params *params,
			     sg_u64 now_ns);
void sluice_count(struct sg_counters *counters, const struct sg_segment *seg,
		  const struct sg_verdict *out);

sg_u32 sluice_policy_match(const struct sg_policy *policy, const struct sg_scope *scope,
			   const struct sg_flow_key *key)
{
	return sg_policy_match(policy, scope, key);
}

sg_u32 sluice_policy_trusts(const struct sg_policy *policy, const struct sg_addr *remote)
{
	return !!sg_policy_trusts(policy, remote);
}

void sluice_syn(struct sg_half_open *half, const struct sg_segment *seg, sg_u64 now_ns,
		const struct sg_params *params, struct sg_verdict *out)
{
	sg_syn(half, seg, now_ns, params, out);
}

/* Returns 0 when the SYN/ACK answers nothing, 1 when it made a flow, 2 when it is a repeated one. */
sg_u32 sluice_synack(struct sg_flow *flow, struct sg_half_open *half,
		     const struct sg_segment *seg, sg_u64 now_ns,
		     const struct sg_params *params, struct sg_verdict *out)
{
	sg_u32 promoted = half->peer & SG_PEER_PROMOTED;

	if (!sg_synack_matches(half, seg))
		return 0;
	*flow = (struct sg_flow){ .rule = half->rule, .seen_ns = now_ns, .progress_ns = now_ns };
	sg_synack(flow, half, seg, params, out);
	return promoted ? 2 : 1;
}

sg_u32 sluice_is_unanswered(const struct sg_half_open *half)
{
	return !!sg_is_unanswered(half);
}

void sluice_midstream(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
		      const struct sg_params *params, const struct sg_remembered *known)
{
	*flow = (struct sg_flow){ .seen_ns = now_ns, .progress_ns = now_ns };
	sg_midstream(flow, seg, params, known);
}

void sluice_segment(struct sg_flow *flow, const struct sg_segment *seg, sg_u64 now_ns,
		    const struct sg_params *params, struct sg_verdict *out)
{
	if (seg->direction == SG_FROM_TENANT)
		sg_from_tenant(flow, seg, now_ns, params, out);
	else
		sg_to_tenant(flow, seg, now_ns, params, out);
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
