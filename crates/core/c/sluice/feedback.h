/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Feedback between enforcing hosts.
 *
 * Layout: the AccECN option of RFC 9768 section 3.2.3, order 0, cut to its first
 * two fields: kind 172, length 8, EE0B and ECEB, 24-bit counters of payload
 * bytes that arrived with ECT(0) and with CE. EE0B starts at 1, ECEB at 0.
 *
 * Hosts recognise each other by an experimental option (RFC 6994) on SYN and
 * SYN/ACK: kind 253, length 8, ExID 0x5347, version, flags, two zero bytes. The
 * same option with the FACK flag tells a header-only copy from a tenant's ACK.
 *
 * Both are eight bytes, so that an edit always moves two words.
 */
#ifndef SLUICE_FEEDBACK_H
#define SLUICE_FEEDBACK_H

#include "flow.h"
#include "math.h"
#include "params.h"
#include "segment.h"
#include "seq.h"

#define SG_KIND_FEEDBACK 172
#define SG_KIND_EXPERIMENT 253
#define SG_EXID 0x5347U
#define SG_PEER_VERSION 1
#define SG_PEER_FLAG_FACK 1
#define SG_OPTION_LEN 8U

#define SG_COUNTER_MASK 0xffffffU
#define SG_E0B_START 1U
#define SG_CEB_START 0U

SG_INLINE void sg_feedback_encode(sg_u8 out[SG_OPTION_LEN], sg_u32 e0b, sg_u32 ceb)
{
	out[0] = SG_KIND_FEEDBACK;
	out[1] = SG_OPTION_LEN;
	out[2] = (sg_u8)(e0b >> 16);
	out[3] = (sg_u8)(e0b >> 8);
	out[4] = (sg_u8)e0b;
	out[5] = (sg_u8)(ceb >> 16);
	out[6] = (sg_u8)(ceb >> 8);
	out[7] = (sg_u8)ceb;
}

SG_INLINE sg_u32 sg_load24(const sg_u8 *p)
{
	return (sg_u32)p[0] << 16 | (sg_u32)p[1] << 8 | p[2];
}

SG_INLINE void sg_peer_encode(sg_u8 out[SG_OPTION_LEN], sg_u8 flags)
{
	out[0] = SG_KIND_EXPERIMENT;
	out[1] = SG_OPTION_LEN;
	out[2] = SG_EXID >> 8;
	out[3] = SG_EXID & 0xff;
	out[4] = SG_PEER_VERSION;
	out[5] = flags;
	out[6] = 0;
	out[7] = 0;
}

/* Bytes of a FACK's TCP header: no options but feedback and our mark. */
#define SG_FACK_HEADER (20U + 2 * SG_OPTION_LEN)

/*
 * Turns the first 20 bytes of a segment's header into a FACK's: its options are
 * ours, no flag but ACK, no urgent pointer. The checksum is left zero.
 */
SG_INLINE void sg_fack_header(sg_u8 tcp[SG_FACK_HEADER], sg_u32 e0b, sg_u32 ceb)
{
	tcp[12] = SG_FACK_HEADER / 4 << 4;
	tcp[13] = SG_ACK;
	tcp[16] = 0;
	tcp[17] = 0;
	tcp[18] = 0;
	tcp[19] = 0;
	sg_feedback_encode(tcp + 20, e0b, ceb);
	sg_peer_encode(tcp + 20 + SG_OPTION_LEN, SG_PEER_FLAG_FACK);
}

SG_INLINE void sg_feedback_start(struct sg_flow *flow)
{
	flow->taken_e0b = SG_E0B_START;
	flow->taken_ceb = SG_CEB_START;
	flow->rcv_e0b = SG_E0B_START;
	flow->rcv_ceb = SG_CEB_START;
}

/*
 * Receiving half: count a data segment by its codepoint. ECT(1) never leaves an
 * enforcing host; it counts as neither, like Not-ECT, and the sender sees bytes
 * that the receiving host did not count.
 */
SG_INLINE void sg_feedback_count(struct sg_flow *flow, const struct sg_segment *seg)
{
	flow->unreported = (sg_u16)sg_min32(flow->unreported + sg_min32(seg->payload, 0xffff), 0xffff);
	if (seg->ecn == SG_CE) {
		flow->rcv_ceb = (flow->rcv_ceb + seg->payload) & SG_COUNTER_MASK;
		flow->not_ect_run = 0;
		flow->flags |= SG_FLOW_CE_UNREPORTED;
	} else if (seg->ecn == SG_ECT0) {
		flow->rcv_e0b = (flow->rcv_e0b + seg->payload) & SG_COUNTER_MASK;
		flow->not_ect_run = 0;
	} else {
		flow->not_ect_run += flow->not_ect_run < 255;
	}
}

/*
 * No more marked bytes wait for their acknowledgement than there are bytes that could be
 * acknowledged, and bytes whose ACKs came before their counts: whatever else was counted is
 * no debt of the data to come.
 */
SG_INLINE void sg_bound_pending(struct sg_flow *flow)
{
	sg_u32 out = sg_seq_gt(flow->snd_nxt, flow->snd_una) ? flow->snd_nxt - flow->snd_una : 0;

	out += flow->uncounted > 0 ? (sg_u32)flow->uncounted : 0;

	flow->marked_pending = sg_min32(flow->marked_pending, out);
}

/* Any count ends the silence; what it counts beyond what is acknowledged covers later ACKs. */
SG_INLINE void sg_feedback_counted(struct sg_flow *flow, const struct sg_segment *seg,
				   sg_u32 bytes)
{
	sg_s64 ahead = (sg_s64)bytes - flow->uncounted;
	/* No more is ahead than will be out: what is counted twice covers nothing. */
	sg_u32 una = sg_seq_gt(seg->ack, flow->snd_una) ? seg->ack : flow->snd_una;
	sg_u32 out = sg_seq_gt(flow->snd_nxt, una) ? flow->snd_nxt - una : 0;

	if (ahead > out)
		ahead = sg_min32(out, SG_WINDOW_MAX);
	flow->uncounted = ahead > 0 ? -(sg_s32)ahead : 0;
}

/*
 * Sending half: take counters from an option. Returns 0 when they are older
 * than what was taken before (a reordered ACK) and therefore ignored: a step of
 * half the counter's range can't happen, since a window is at most 8 MiB.
 */
SG_INLINE int sg_feedback_take(struct sg_flow *flow, const struct sg_segment *seg)
{
	sg_u32 e0b = (seg->e0b - flow->taken_e0b) & SG_COUNTER_MASK;
	sg_u32 ceb = (seg->ceb - flow->taken_ceb) & SG_COUNTER_MASK;

	if (e0b > SG_WINDOW_MAX || ceb > SG_WINDOW_MAX)
		return 0;
	flow->taken_e0b = seg->e0b;
	flow->taken_ceb = seg->ceb;
	if (ceb) {
		flow->bytes_marked += ceb;
		flow->marked_pending = sg_sat32((sg_u64)flow->marked_pending + ceb);
		sg_bound_pending(flow);
	}
	flow->flags |= SG_FLOW_FED;
	if (e0b + ceb) {
		sg_feedback_counted(flow, seg, e0b + ceb);
		flow->counted_bytes = sg_sat32((sg_u64)flow->counted_bytes + e0b + ceb);
	}
	return 1;
}

#endif /* SLUICE_FEEDBACK_H */
