// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Enforcement on the host side of a tenant's interface: thin glue around core.
 *
 *   from_tenant  TCX ingress: what the tenant sends
 *   to_tenant    TCX egress: what the tenant receives
 *
 * Each packet: parse, find its flow, run core's step under the lock of its slot,
 * apply the verdict. No helper is called under the lock. On any doubt the packet
 * passes as it is and a counter moves.
 */
#include "kernel.h"

/*
 * A function that the verifier checks once, apart from its callers: what they
 * know of its arguments does not multiply its paths. Not allowed under a lock.
 */
#define SG_GLOBAL __attribute__((noinline))

#include "charge.h"
#include "edit.h"
#include "known.h"
#include "summed.h"
#include "table.h"

#include "sluice/lifecycle.h"
#include "sluice/policy.h"

/*
 * skb->mark of a copy on its way to become a FACK. Tenants can't set it: marks end at their
 * namespace.
 */
#define SG_FACK_MARK 0x5347464bU

/* Ethernet, one VLAN tag, IPv6 and the longest TCP header: what parsing may read. */
#define SG_HEADERS_MAX 118U
/* Ethernet, IPv4, TCP without options: less linear data than this can't be TCP's headers. */
#define SG_HEADERS_MIN 54U

/*
 * Set before loading, tests choose the time, in skb->tstamp. Read-only: the verifier
 * sees a constant and leaves no trace of the branch.
 */
const volatile sg_u32 clock_in_packet SEC(".rodata.clock") = 0;

SG_INLINE sg_u64 sg_now(const struct __sk_buff *skb)
{
	return clock_in_packet ? skb->tstamp : bpf_ktime_get_ns();
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, sg_u32);
	__type(value, struct sg_policy);
} policy SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, sg_u32);
	__type(value, struct sg_flow);
} scratch SEC(".maps");

/*
 * Where a verdict is made. Not on the stack: there the verifier would tell verdicts apart
 * and walk what follows once for each.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, sg_u32);
	__type(value, struct sg_verdict);
} verdicts SEC(".maps");

SG_INLINE struct sg_verdict *sg_blank_verdict(void)
{
	sg_u32 zero = 0;
	struct sg_verdict *out = bpf_map_lookup_elem(&verdicts, &zero);

	if (out)
		__builtin_memset(out, 0, sizeof(*out));
	return out;
}

/* One of two policies is in force while the agent writes the other. */
SG_INLINE struct sg_policy *sg_policy_here(void)
{
	sg_u32 zero = 0, active;
	struct sg_config *here = bpf_map_lookup_elem(&config, &zero);

	if (!here)
		return 0;
	active = here->active;
	return bpf_map_lookup_elem(&policy, &active);
}

SG_INLINE struct sg_params *sg_params_of(struct sg_policy *rules, sg_u32 slot)
{
	return &rules->slots[slot & (SG_SLOTS_MAX - 1)].params;
}

/* The per-CPU place where a flow is made, a blank one. */
SG_INLINE struct sg_flow *sg_blank_flow(sg_u64 now_ns, sg_u32 rule)
{
	sg_u32 zero = 0;
	struct sg_flow *flow = bpf_map_lookup_elem(&scratch, &zero);

	if (flow)
		sg_life_blank(flow, now_ns, rule);
	return flow;
}

/* The slot of the rule for what this tenant sends, or SG_RULE_NONE. */
SG_GLOBAL int sg_rule_here(const struct sg_flow_key *key)
{
	struct sg_policy *rules = sg_policy_here();
	struct sg_place *place;
	sg_u32 ifindex;

	if (!rules || !key)
		return SG_RULE_NONE;
	ifindex = key->ifindex;
	place = bpf_map_lookup_elem(&places, &ifindex);
	return (int)sg_policy_match(rules, place ? &place->scope : &rules->anywhere, key);
}

SG_GLOBAL int sg_remote_trusted(const struct sg_flow_key *key)
{
	struct sg_policy *rules = sg_policy_here();

	return rules && key ? sg_policy_trusts(rules, &key->remote) : 0;
}

/*
 * Removes what a tenant wrote in a host's place, where no flow or handshake is known: its
 * peer's host may know one. Returns 0 where no rule covers what the tenant sends.
 */
SG_GLOBAL int sg_refuse_claims_here(struct sg_packet *p, sg_u32 rule, struct sg_verdict *out)
{
	struct sg_policy *rules = sg_policy_here();

	if (!rules || !p || !out || rule == SG_RULE_NONE)
		return 0;
	sg_life_refuse(&p->seg, sg_remote_trusted(&p->key), sg_params_of(rules, rule), out);
	return 1;
}

/* `rule`: sg_rule_here(), here and below. Callers ask, for the stack is short. */
SG_GLOBAL int sg_skb_syn(struct sg_packet *p, sg_u64 now_ns, sg_u32 rule, struct sg_verdict *out)
{
	struct sg_policy *rules = sg_policy_here();
	struct sg_half_open *half, fresh = { 0 };
	sg_u32 counted, offers, news;
	int has_flow;

	if (!rules || !p || !out)
		return 0;
	if (sg_fate_of_syn(rule, out) == SG_FATE_PASS)
		return 0;
	p->seg.peer_trusted = (sg_u8)sg_remote_trusted(&p->key);
	has_flow = sg_has_flow(&p->key);
	offers = (sg_u32)sg_offers_here(&p->key, now_ns);
	p->key.opener = sg_opener_of(&p->seg);
	half = sg_half_of(&p->key, &counted);
	if (half)
		fresh = *half;
	news = sg_life_syn(&fresh, &p->seg, now_ns, rule, has_flow, offers,
			   sg_params_of(rules, rule), out);
	if (sg_unlikely(news))
		sg_note_here(&p->key, news, now_ns);
	if (counted ? bpf_map_update_elem(&half_open, &p->key, &fresh, BPF_ANY) :
		      sg_keep_half(&p->key, &fresh, now_ns))
		sg_life_unkept(0, &p->seg, out);
	return 0;
}

/*
 * A SYN/ACK that answers no SYN that was read, or one that has been answered. What follows tells
 * whether it was forged. One that the flow began with says nothing new.
 */
SG_GLOBAL int sg_keep_answer(struct sg_packet *p, sg_u64 now_ns)
{
	struct sg_half_open note = { 0 };
	struct sg_slot *slot;
	sg_u32 at, counted;
	int refused;

	if (!p)
		return 0;
	slot = sg_find(sg_tag_of(&p->key), &at);
	if (slot && !sg_answers_anew(&slot->flow, &p->seg))
		return 0;
	sg_note_answer(&note, &p->seg, now_ns);
	p->key.opener = SG_OPENED_UNSEEN;
	sg_half_of(&p->key, &counted);
	refused = counted ? (int)bpf_map_update_elem(&half_open, &p->key, &note, BPF_ANY) :
			    sg_keep_half(&p->key, &note, now_ns);
	if (!refused && slot)
		__sync_fetch_and_or(&slot->missed, SG_MISSED_ANSWER);
	p->key.opener = 0;
	return 0;
}

/* The flow of this tuple, or null. */
SG_INLINE struct sg_flow *sg_flow_here(const struct sg_flow_key *key)
{
	sg_u32 at, tag = sg_tag_of(key);
	struct sg_slot *slot = sg_find(tag, &at);

	return slot && sg_slot_holds(slot, tag, key) ? &slot->flow : 0;
}

/* enum sg_partner of the flow of this tuple. */
SG_GLOBAL int sg_partner_here(const struct sg_flow_key *key, sg_u64 now_ns)
{
	return key ? (int)sg_partner_of(sg_flow_here(key), now_ns) : SG_PARTNER_NONE;
}

/* sg_life_gives_up() of the flow of this tuple and the one that has been made. */
SG_GLOBAL int sg_gives_up_here(const struct sg_flow_key *key)
{
	struct sg_flow *made;
	sg_u32 zero = 0;

	made = bpf_map_lookup_elem(&scratch, &zero);
	return key && made && sg_life_gives_up(sg_flow_here(key), made);
}

/* Returns 1 if it has made a flow, which sg_keep_made() stores. */
SG_GLOBAL int sg_skb_synack(struct sg_packet *p, sg_u64 now_ns, sg_u32 rule,
			    struct sg_verdict *out)
{
	struct sg_policy *rules = sg_policy_here();
	struct sg_half_open *half;
	struct sg_flow *made;
	sg_u32 counted, news;
	enum sg_partner partner;
	enum sg_fate fate;

	if (!rules || !p || !out)
		return 0;
	p->key.opener = sg_opener_of(&p->seg);
	half = sg_half_of(&p->key, &counted);
	p->key.opener = 0;
	fate = sg_fate_of_synack(half, &p->seg, rule, sg_has_flow(&p->key));
	if (fate == SG_FATE_PASS)
		return 0;
	/* Without a SYN there is nothing but NOTE, which the verifier does not know. */
	if (fate == SG_FATE_NOTE || !half) {
		if (sg_refuse_claims_here(p, rule, out))
			sg_keep_answer(p, now_ns);
		return 0;
	}
	p->seg.peer_trusted = (sg_u8)sg_remote_trusted(&p->key);
	made = sg_blank_flow(now_ns, rule);
	if (!made)
		return 0;
	news = sg_life_synack_news(half, &p->seg);
	if (sg_unlikely(news))
		sg_note_here(&p->key, news, now_ns);
	partner = (enum sg_partner)sg_partner_here(&p->key, now_ns);
	sg_life_synack(made, half, &p->seg, rule, partner, sg_params_of(rules, rule), out);
	if (fate == SG_FATE_REPEAT && !sg_gives_up_here(&p->key)) {
		sg_keep_answer(p, now_ns);
		return 0;
	}
	if (counted && fate == SG_FATE_MAKE)
		sg_half_answered(p->key.ifindex, now_ns);
	return 1;
}

/*
 * A connection is met from the middle: its flow begins, if a rule covers it. As sg_skb_synack(),
 * returns 1 if sg_keep_made() is to store what it has made.
 */
SG_GLOBAL int sg_skb_midstream(struct __sk_buff *skb, struct sg_packet *p, sg_u64 now_ns)
{
	struct sg_policy *rules = sg_policy_here();
	struct sg_remembered known = { 0 };
	struct sg_flow *made;
	sg_u32 rule;

	if (!rules || !p)
		return 0;
	rule = (sg_u32)sg_rule_here(&p->key);
	if (rule == SG_RULE_NONE)
		return 0;
	made = sg_blank_flow(now_ns, rule);
	if (!made)
		return 0;
	sg_find_out(skb, p, &known);
	sg_life_midstream(made, &p->seg, now_ns, sg_params_of(rules, rule), &known,
			  sg_flow_here(&p->key));
	return 1;
}

/*
 * Stores the flow that a packet has made. Called by the programs themselves, not by what makes the
 * flow: the stack is short.
 */
SG_GLOBAL int sg_keep_made(struct sg_packet *p, struct sg_verdict *out)
{
	struct sg_half_open *half;
	struct sg_flow *made;
	sg_u32 zero = 0, counted;
	int refused;

	made = bpf_map_lookup_elem(&scratch, &zero);
	if (!made || !p || !out)
		return 0;
	refused = sg_store_flow(&p->key, made);
	if (p->seg.tcp_flags & SG_SYN) {
		if (!refused)
			return 0;
		p->key.opener = sg_opener_of(&p->seg);
		half = sg_half_of(&p->key, &counted);
		p->key.opener = 0;
		sg_life_unkept(half, &p->seg, out);
	} else if (!refused) { /* else it is found out again when there is room */
		bpf_map_delete_elem(&remembered, &p->key);
		sg_count_one(SG_COUNT_FLOW_MIDSTREAM);
	}
	return 0;
}

/* Nothing is known of the connection, or of its new life. */
SG_INLINE void sg_skb_stray(struct __sk_buff *skb, struct sg_packet *p, enum sg_fate fate,
			    struct sg_verdict *out)
{
	/* Without claims there is nothing to look up. */
	if (sg_life_claims(&p->seg))
		sg_refuse_claims_here(p, (sg_u32)sg_rule_here(&p->key), out);
	if (fate == SG_FATE_MAKE && sg_skb_midstream(skb, p, sg_now(skb)))
		sg_keep_made(p, out);
}

/* The usual shapes of an ACK's options, without a parser; 0 = something else. */
SG_INLINE int sg_usual_options(struct __sk_buff *skb, struct sg_packet *p)
{
	sg_u8 *tcp = sg_skb_data(skb) + (p->l4_at & 0x7f);
	sg_u32 len = p->seg.header_len - 20U;

	if (len == 12 || len == 20) {
		if (tcp + 40 > sg_skb_end(skb))
			return len == 12 && tcp + 32 <= sg_skb_end(skb) &&
			       sg_load32(tcp + 20) == 0x0101080a;
		if (sg_load32(tcp + 20) != 0x0101080a)
			return 0;
		if (len == 12)
			return 1;
		tcp += 12;
	} else if (len != 8 || tcp + 28 > sg_skb_end(skb)) {
		return 0;
	}
	if (sg_load16(tcp + 20) != (SG_KIND_FEEDBACK << 8 | SG_OPTION_LEN))
		return 0;
	p->seg.options = SG_OPT_FEEDBACK;
	p->seg.feedback_at = (sg_u8)(len + 20 - SG_OPTION_LEN);
	p->seg.e0b = sg_load24(tcp + 22);
	p->seg.ceb = sg_load24(tcp + 25);
	return 1;
}

SG_GLOBAL int sg_skb_parse_options(struct __sk_buff *skb, struct sg_packet *p)
{
	struct sg_options options = { 0 };
	sg_u32 len;

	if (!p)
		return 0;
	len = p->seg.header_len - 20U;
	if (len < 1 || len > 40 || bpf_skb_load_bytes(skb, p->l4_at + 20, options.bytes, len)) {
		p->seg.options |= SG_OPT_MALFORMED;
		return 0;
	}
	sg_parse_options(&options, &p->seg, len);
	return 0;
}

/* Returns SG_COUNT_NONE for TCP that can be tracked, else the counter that says why not. */
SG_INLINE sg_u32 sg_skb_parse(struct __sk_buff *skb, struct sg_packet *p)
{
	sg_u32 vlan = skb->vlan_present ? (skb->vlan_tci & 0xfff) | 0x1000 : 0, why;

	why = sg_parse(p, sg_skb_data(skb), sg_skb_end(skb), skb->len, vlan);
	if (why)
		return why;
	if (sg_needs_options(&p->seg) &&
	    ((p->seg.tcp_flags & SG_SYN) || !sg_usual_options(skb, p)))
		sg_skb_parse_options(skb, p);
	return SG_COUNT_NONE;
}

/*
 * Headers may lie beyond the linear part (a TAP's packets). Pulling copies
 * payload, so it is for those only whose headers could not be read.
 */
SG_GLOBAL int sg_skb_pull(struct __sk_buff *skb, struct sg_packet *p)
{
	sg_u32 linear = skb->data_end - skb->data;

	if (!p || linear >= SG_HEADERS_MAX || linear >= skb->len ||
	    bpf_skb_pull_data(skb, sg_min32(skb->len, SG_HEADERS_MAX)))
		return SG_COUNT_MALFORMED;
	return (int)sg_skb_parse(skb, p);
}

SG_INLINE sg_u32 sg_skb_read(struct __sk_buff *skb, struct sg_packet *p)
{
	sg_u32 linear = skb->data_end - skb->data, why = SG_COUNT_MALFORMED;

	if (sg_likely(linear >= SG_HEADERS_MIN || linear >= skb->len))
		why = sg_skb_parse(skb, p);
	return sg_unlikely(why == SG_COUNT_MALFORMED) ? (sg_u32)sg_skb_pull(skb, p) : why;
}

/*
 * Whether the options of a SYN can be written has to be known before the step, for the flow begins
 * with what its tenant reads: an MSS that is not lowered is the flow's.
 */
SG_GLOBAL int sg_skb_syn_reach(struct __sk_buff *skb, struct sg_packet *p)
{
	if (!p || !sg_skb_reach(skb, p))
		return 0;
	p->seg.options |= SG_OPT_FIXED;
	return -1;
}

/* What the tenant's interface takes of a TCP segment. A loopback's MTU is no packet's. */
SG_INLINE void sg_skb_path(struct __sk_buff *skb, struct sg_packet *p)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);
	sg_u32 mtu = kernel->dev->mtu, headers = p->ipv6 ? 60 : 40;

	p->seg.path_mss = mtu > headers && mtu <= 0xffff ? mtu - headers : 0;
}

/* The tenant says how large the segments of a super-packet are: its interface takes no larger. */
SG_INLINE sg_u8 sg_skb_segment_units(struct __sk_buff *skb)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);

	return sg_segment_units(sg_min32(skb->gso_size, kernel->dev->mtu));
}

/* Applies a verdict's edits of the TCP header. Returns 0, or -1 when the kernel refused one. */
SG_GLOBAL int sg_skb_edit(struct __sk_buff *skb, struct sg_packet *p, struct sg_verdict *out)
{
	if (!p || !out)
		return -1;
	return sg_skb_apply(skb, p, out);
}

/*
 * To read the clock takes a tenth of a data packet's time: a call, an indirect one
 * within it, their returns. Most data does without, and a tick is a plain load, so
 * that the flow is still seen to be alive. Other CPUs may change the flow before it
 * is locked; the time is then a tick old at most.
 */
SG_INLINE sg_u64 sg_flow_now(struct __sk_buff *skb, struct sg_slot *slot,
			     const struct sg_segment *seg)
{
	sg_u32 tick = (sg_u32)bpf_jiffies64();

	if (!clock_in_packet && slot->tick == tick && !sg_needs_clock(&slot->flow, seg))
		return slot->flow.seen_ns;
	slot->tick = tick;
	return sg_now(skb);
}

/* Another CPU does not let go of the flow: the packet passes, unless it is a host's own. */
SG_INLINE void sg_skb_contended(struct sg_slot *slot, const struct sg_packet *p,
				struct sg_verdict *out)
{
	__sync_fetch_and_or(&slot->missed, SG_MISSED_PACKET);
	out->count = SG_COUNT_CONTENDED;
	if ((p->seg.options & SG_OPT_FACK) && sg_consumes_fack(&slot->flow, &p->seg))
		out->action = SG_CONSUME;
}

/* Events that were missed become known to the flow, under its slot's lock. */
SG_INLINE void sg_catch_up(struct sg_slot *slot)
{
	sg_u32 missed = __sync_fetch_and_and(&slot->missed, SG_MISSED_ANSWER);

	if (missed & SG_MISSED_HANDSHAKE)
		sg_handshake_unseen(&slot->flow);
	else if (missed & SG_MISSED_PACKET)
		sg_unseen(&slot->flow);
}

/* Whether segments without data are charged to a bucket. */
SG_INLINE int sg_charges_bare(void)
{
	sg_u32 zero = 0;
	struct sg_config *here = bpf_map_lookup_elem(&config, &zero);

	return here && here->bare;
}

/* Before the step: what a bucket drops of a flow that is only watched has not left the tenant. */
SG_GLOBAL int sg_skb_charge_watched(struct __sk_buff *skb)
{
	return sg_charge(skb, skb->ifindex, SG_CLASS_WATCHED, sg_now(skb));
}

/*
 * Looks up the flow of a segment that is none of a handshake, and steps it. Returns the fate.
 * A slot that has the tag but not the key has changed hands just now, or belongs to one flow
 * in two billion: the packet passes.
 * `watched`: nothing holds what the packet is part of; SG_CHARGED: a bucket knows of it.
 */
#define SG_CHARGED 0x100U

/* What flows to each peer have met. Not pinned: nothing depends on what it was before. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SG_PATHS);
	__type(key, sg_u32);
	__type(value, struct sg_path);
} paths SEC(".maps");

/* Null where the step does not ask for it. */
SG_NOINLINE struct sg_path *sg_path_here(const struct sg_flow *flow, const struct sg_packet *p)
{
	sg_u32 at;

	if (flow->mode != SG_MODE_TWO_SIDED || p->seg.ack == flow->snd_una)
		return 0;
	at = sg_path_of(&p->key, &shape.hash_key);
	return bpf_map_lookup_elem(&paths, &at);
}

SG_INLINE enum sg_fate sg_skb_segment(struct __sk_buff *skb, struct sg_packet *p,
				      sg_u8 direction, struct sg_verdict *out,
				      sg_u32 *watched)
{
	sg_u32 tag = sg_tag_of(&p->key), at;
	struct sg_slot *slot = sg_find(tag, &at);
	struct sg_policy *rules = sg_policy_here();
	struct sg_params *params;
	enum sg_fate fate;
	sg_u64 now_ns;

	if (sg_unlikely(!slot || !rules))
		return sg_fate_of_segment(&p->seg, 0, 0);
	if (direction == SG_TO_TENANT) {
		/* Of others nothing depends on it. */
		if (sg_unlikely(sg_wants_sum(&p->seg)) &&
		    (slot->flow.mode == SG_MODE_TWO_SIDED || (slot->flow.marks & SG_FLOW_AHEAD)))
			sg_skb_damaged(skb, p);
	} else if (sg_unlikely(slot->flow.mode == SG_MODE_WATCH) && p->seg.payload) {
		*watched = SG_CHARGED;
		if (sg_skb_charge_watched(skb)) {
			out->action = SG_DROP;
			return SG_FATE_USE;
		}
	}
	fate = sg_fate_of_segment(&p->seg, &slot->flow, (int)(slot->missed & SG_MISSED_ANSWER));
	if (sg_unlikely(fate != SG_FATE_USE)) {
		fate = (enum sg_fate)sg_fate_recalled_here(p, &slot->flow, sg_now(skb));
		if (fate != SG_FATE_RECALL)
			__sync_fetch_and_and(&slot->missed, ~SG_MISSED_ANSWER);
		if (fate == SG_FATE_MAKE)
			return SG_FATE_MAKE;
	}
	if (sg_life_awaits_peer(&slot->flow, &p->seg))
		sg_peer_news_here(p, &slot->flow, sg_now(skb));
	now_ns = sg_flow_now(skb, slot, &p->seg);
	if (sg_unlikely(!sg_lock(slot, at))) {
		sg_skb_contended(slot, p, out);
		return SG_FATE_USE;
	}
	params = sg_params_of(rules, slot->flow.rule);
	if (sg_unlikely(!sg_slot_holds(slot, tag, &p->key))) {
		out->count = SG_COUNT_TABLE_FULL;
		*watched |= 1;
	} else {
		if (sg_unlikely(slot->missed))
			sg_catch_up(slot);
		if (direction == SG_FROM_TENANT)
			sg_from_tenant(&slot->flow, &p->seg, now_ns, params, out);
		else
			sg_to_tenant(&slot->flow, &p->seg, now_ns, params,
				     sg_path_here(&slot->flow, p), out);
		*watched |= out->edits & SG_EDIT_UNHELD;
	}
	sg_unlock(slot);
	if (sg_unlikely(out->count == SG_COUNT_ECT_DROPPED))
		sg_note_here(&p->key, SG_OFFER_LOST, sg_now(skb));
	return SG_FATE_USE;
}

/* Lengths of the IP header for a TCP segment of `l4_len` bytes. */
SG_INLINE void sg_fack_ip(sg_u8 *ip, sg_u32 ipv6, sg_u32 l4_len)
{
	sg_u16 *field = (sg_u16 *)(ipv6 ? ip + 4 : ip + 2);
	sg_u16 before = *field;

	*field = __builtin_bswap16((sg_u16)(ipv6 ? l4_len : 20 + l4_len));
	if (!ipv6)
		*(sg_u16 *)(ip + 10) = sg_csum_apply(*(sg_u16 *)(ip + 10),
						     sg_csum_change(before, *field));
}

/*
 * The copy that came back to be a FACK: cut to its headers, given the flow's
 * counters. Whatever goes wrong, it is dropped; the original is on its way.
 */
SG_GLOBAL int sg_skb_fack(struct __sk_buff *skb, struct sg_packet *p)
{
	sg_u8 header[SG_FACK_HEADER] __attribute__((aligned(8))) = { 0 };
	struct sg_slot *slot;
	sg_u32 e0b, ceb, size, sum, tag, at, i;
	sg_u8 *ip, *tcp;
	int holds;

	if (!p)
		return SG_TCX_DROP;
	size = (p->l4_at & 0x7f) + sizeof(header);
	tag = sg_tag_of(&p->key);
	slot = sg_find(tag, &at);
	if (!slot || !sg_lock(slot, at))
		return SG_TCX_DROP;
	holds = sg_slot_holds(slot, tag, &p->key);
	e0b = slot->flow.rcv_e0b;
	ceb = slot->flow.rcv_ceb;
	sg_unlock(slot);
	if (!holds)
		return SG_TCX_DROP;
	if (bpf_skb_load_bytes(skb, p->l4_at, header, 20) || bpf_skb_change_tail(skb, size, 0) ||
	    bpf_skb_pull_data(skb, size))
		return SG_TCX_DROP;
	ip = sg_skb_data(skb) + (p->l3_at & 0x1f);
	tcp = sg_skb_data(skb) + (p->l4_at & 0x7f);
	if (ip + 40 > sg_skb_end(skb) || tcp + sizeof(header) > sg_skb_end(skb))
		return SG_TCX_DROP;
	sg_fack_header(header, e0b, ceb);
	sg_fack_ip(ip, p->ipv6, sizeof(header));
	sum = sg_csum_fold((sg_u32)sg_pseudo_sum(ip, p->ipv6, sizeof(header)));
	if (sg_ip_summed(skb) != SG_CHECKSUM_PARTIAL) {
		for (i = 0; i < sizeof(header); i += 2)
			sum += sg_raw16(header + i);
		sum = (sg_u16)~sg_csum_fold(sum);
	}
	*(sg_u16 *)(header + 16) = (sg_u16)sum;
	for (i = 0; i < sizeof(header); i += 4)
		*(sg_u32 *)(tcp + i) = *(sg_u32 *)(header + i);
	sg_skb_ecn(skb, p, SG_ECT0);
	return SG_TCX_NEXT;
}

SG_INLINE void sg_send_fack(struct __sk_buff *skb)
{
	sg_u32 mark = skb->mark;

	skb->mark = SG_FACK_MARK;
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		sg_count_one(SG_COUNT_EDIT_FAILED);
	skb->mark = mark;
}

/* A packet of the tenant that is no TCP that can be tracked, for the reason `why`. */
SG_GLOBAL int sg_skb_charge(struct __sk_buff *skb, sg_u32 why)
{
	sg_u32 class = sg_classify(why, sg_skb_data(skb), sg_skb_end(skb));

	return sg_charge(skb, skb->ifindex, class, sg_now(skb)) ? SG_TCX_DROP : SG_TCX_NEXT;
}

/*
 * A tenant's frame with bytes behind its IP packet: cut, where a rule enforces, or dropped when
 * the kernel refuses; else what is behind makes it malformed. Returns the counter that says so.
 */
SG_GLOBAL int sg_trim_here(struct __sk_buff *skb, struct sg_packet *p)
{
	struct sg_policy *rules = sg_policy_here();
	sg_u32 rule;

	if (!rules || !p)
		return SG_COUNT_MALFORMED;
	rule = (sg_u32)sg_rule_here(&p->key);
	if (rule == SG_RULE_NONE || sg_params_of(rules, rule)->mode != SG_RULE_ENFORCE)
		return SG_COUNT_MALFORMED;
	return sg_skb_trim(skb, p) ? SG_COUNT_EDIT_FAILED : SG_COUNT_TRIMMED;
}

/*
 * The return code for a packet that is not read: it passes. A copy that was to become a FACK is
 * dropped, because its original has passed.
 */
SG_INLINE int sg_skb_unread(struct __sk_buff *skb, sg_u8 direction)
{
	return direction == SG_FROM_TENANT && skb->mark == SG_FACK_MARK ? SG_TCX_DROP :
									  SG_TCX_NEXT;
}

SG_INLINE int sg_handle(struct __sk_buff *skb, sg_u8 direction)
{
	struct sg_counters *here = sg_counters_here();
	struct sg_packet p = { 0 };
	struct sg_verdict *out = sg_blank_verdict();
	sg_u32 why, rule, watched = 0;
	enum sg_fate fate;

	if (!here || !out)
		return sg_skb_unread(skb, direction);
	here->value[SG_COUNT_PACKETS]++;
	p.seg.direction = direction;
	p.key.ifindex = skb->ifindex;
	if (direction == SG_FROM_TENANT && sg_unlikely(skb->gso_size))
		p.seg.segment_units = sg_skb_segment_units(skb);
	why = sg_skb_read(skb, &p);
	if (sg_unlikely(why)) {
		sg_count(here, why);
		if (direction == SG_FROM_TENANT && skb->mark != SG_FACK_MARK)
			return sg_skb_charge(skb, why);
		return sg_skb_unread(skb, direction);
	}
	if (direction == SG_FROM_TENANT && sg_unlikely(skb->mark == SG_FACK_MARK)) {
		skb->mark = 0;
		return sg_skb_fack(skb, &p);
	}
	if (sg_unlikely(p.trim)) {
		why = (sg_u32)sg_trim_here(skb, &p);
		sg_count(here, why);
		if (why == SG_COUNT_MALFORMED)
			return sg_skb_charge(skb, why);
		if (why != SG_COUNT_TRIMMED)
			return SG_TCX_DROP;
	}
	if (direction == SG_FROM_TENANT && !p.seg.payload && sg_unlikely(sg_charges_bare()) &&
	    sg_charge(skb, skb->ifindex, SG_CLASS_BARE, sg_now(skb)))
		return SG_TCX_DROP;
	if (sg_unlikely(p.seg.tcp_flags & SG_SYN)) {
		sg_skb_path(skb, &p);
		if (sg_skb_syn_reach(skb, &p))
			sg_count(here, SG_COUNT_EDIT_FAILED);
	}
	if (sg_likely(!(p.seg.tcp_flags & SG_SYN))) {
		fate = sg_skb_segment(skb, &p, direction, out, &watched);
		if (sg_unlikely(fate != SG_FATE_USE)) {
			sg_skb_stray(skb, &p, fate, out);
			watched |= 1;
		}
	} else {
		rule = (sg_u32)sg_rule_here(&p.key);
		if (!(p.seg.tcp_flags & SG_ACK))
			sg_skb_syn(&p, sg_now(skb), rule, out);
		else if (sg_skb_synack(&p, sg_now(skb), rule, out))
			sg_keep_made(&p, out);
	}
	if (out->edits | out->count | p.seg.ecn)
		sg_count_verdict(here, &p.seg, out);
	if (sg_unlikely(out->action != SG_PASS))
		return SG_TCX_DROP;
	/* No window holds what a SYN or an RST carries, of whichever flow they are. */
	watched |= p.seg.tcp_flags & (SG_SYN | SG_RST);
	if (direction == SG_FROM_TENANT && sg_unlikely(watched) && p.seg.payload &&
	    !(watched & SG_CHARGED) && sg_skb_charge_watched(skb))
		return SG_TCX_DROP;
	if ((out->edits & SG_EDIT_ECN) && sg_skb_ecn(skb, &p, out->ecn))
		sg_count(here, SG_COUNT_EDIT_FAILED);
	if ((out->edits & (SG_EDITS_FIELDS | SG_EDITS_OPTIONS)) && sg_skb_edit(skb, &p, out))
		sg_count(here, SG_COUNT_EDIT_FAILED);
	if (direction == SG_FROM_TENANT && sg_unlikely(out->edits & SG_EDIT_WANT_FACK))
		sg_send_fack(skb);
	return SG_TCX_NEXT;
}

SEC("tcx/ingress")
int from_tenant(struct __sk_buff *skb)
{
	return sg_handle(skb, SG_FROM_TENANT);
}

SEC("tcx/egress")
int to_tenant(struct __sk_buff *skb)
{
	return sg_handle(skb, SG_TO_TENANT);
}

/*
 * For the agent, run once: begins to collect silent flows. Harmless when it has begun. Returns 0 or
 * the kernel's error, of which -ENOMEM passes: since 6.18 the kernel takes a timer's memory only
 * where it need not wait for a lock.
 */
SEC("tcx/ingress")
int begin_sweeping(struct __sk_buff *skb __attribute__((unused)))
{
	sg_u32 zero = 0;
	struct sg_sweeper *here = bpf_map_lookup_elem(&sweeper, &zero);
	long error;

	if (!here)
		return -SG_ENOENT;
	error = bpf_timer_init(&here->timer, &sweeper, CLOCK_MONOTONIC);
	if (error && error != -SG_EBUSY)
		return (int)error;
	error = bpf_timer_set_callback(&here->timer, sg_sweep_some);
	if (error)
		return (int)error;
	return (int)bpf_timer_start(&here->timer, SG_SWEEP_PERIOD_NS, 0);
}

/*
 * For the agent: forgets flows of the interface whose index is the mark, 0 = of all,
 * in the part of the table that the priority says, SG_SWEEP_SLOTS at a time. Returns
 * how many it could not get hold of.
 */
SEC("tcx/ingress")
int forget_flows(struct __sk_buff *skb)
{
	struct sg_sweep sweep = {
		.mode = skb->mark ? SG_SWEEP_INTERFACE : SG_SWEEP_ALL,
		.ifindex = skb->mark,
		.from = skb->priority * SG_SWEEP_SLOTS,
	};

	bpf_loop(sg_min32(shape.mask + 1, SG_SWEEP_SLOTS) / 64, sg_sweep_word, &sweep, 0);
	return (int)sweep.skipped;
}

/*
 * For the agent: the interface whose index is the mark gets the quota that the priority
 * says, and its count of flows, which other CPUs change meanwhile, stays. -1 = it has no row.
 */
SEC("tcx/ingress")
int set_quota(struct __sk_buff *skb)
{
	sg_u32 ifindex = skb->mark;
	struct sg_interface *interface = bpf_map_lookup_elem(&interfaces, &ifindex);

	if (!interface)
		return -1;
	interface->quota = skb->priority;
	return 0;
}

static int sg_rematch_slot(sg_u32 i, struct sg_sweep *sweep)
{
	sg_u32 at = (sweep->from + i) & shape.mask, tag, ifindex, rule;
	struct sg_slot *slot;
	enum sg_rematch change;

	if (!(sweep->word >> (at & 63) & 1))
		return 0;
	slot = sg_slot_at(at);
	if (!slot || !(slot->tag & SG_SLOT_LIVE))
		return 0;
	if (!sg_lock(slot, at)) {
		sweep->skipped++;
		return 0;
	}
	tag = slot->tag;
	ifindex = slot->key.ifindex;
	rule = (sg_u32)sg_rule_here(&slot->key);
	change = tag & SG_SLOT_LIVE ? sg_life_rematch(&slot->flow, rule) : SG_REMATCH_SAME;
	if (change == SG_REMATCH_NONE)
		slot->tag = SG_SLOT_LEAVING;
	sg_unlock(slot);
	if (change != SG_REMATCH_SAME)
		sg_count_one(SG_COUNT_RULE_CHANGED);
	if (change == SG_REMATCH_NONE)
		sg_vacate(slot, at, tag, ifindex);
	return 0;
}

static int sg_rematch_word(sg_u32 i __attribute__((unused)), struct sg_sweep *sweep)
{
	sg_u64 *word = sg_occupied_word(sweep->from & shape.mask);

	sweep->word = word ? *word : 0;
	if (sweep->word)
		bpf_loop(64, sg_rematch_slot, sweep, 0);
	sweep->from += 64;
	return 0;
}

/*
 * For the agent, after another policy came into force: decides anew the flows whose rule
 * is not the one that covers them now, in the part of the table that the priority says.
 * One that no rule covers is forgotten. Returns how many it could not get hold of.
 */
SEC("tcx/ingress")
int rematch_flows(struct __sk_buff *skb)
{
	struct sg_sweep sweep = { .from = skb->priority * SG_SWEEP_SLOTS };

	bpf_loop(sg_min32(shape.mask + 1, SG_SWEEP_SLOTS) / 64, sg_rematch_word, &sweep, 0);
	return (int)sweep.skipped;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
