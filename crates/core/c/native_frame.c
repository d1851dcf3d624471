/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The native build of what is read from a frame and written into it, for callers whose
 * frames lie in memory of their own (src/frame.rs).
 */
#include "sluice/frame.h"

SG_ASSERT_SIZE(struct sg_packet, 112);
SG_ASSERT_AT(struct sg_packet, seg, 44);
SG_ASSERT_AT(struct sg_packet, l4_len, 104);
SG_ASSERT_SIZE(struct sg_frame, 24);

sg_u32 sluice_frame_parse(struct sg_packet *p, const struct sg_frame *frame, sg_u32 direction);
sg_u32 sluice_frame_wants_all(const struct sg_packet *p, const struct sg_frame *frame);
void sluice_frame_trim(const struct sg_packet *p, struct sg_frame *frame);
void sluice_frame_apply(struct sg_packet *p, struct sg_frame *frame,
			const struct sg_verdict *out);
sg_u32 sluice_frame_fack(const struct sg_packet *p, const struct sg_frame *frame,
			 const struct sg_verdict *out, sg_u8 *to, sg_u32 capacity);

sg_u32 sluice_frame_parse(struct sg_packet *p, const struct sg_frame *frame, sg_u32 direction)
{
	return sg_frame_parse(p, frame, direction);
}

sg_u32 sluice_frame_wants_all(const struct sg_packet *p, const struct sg_frame *frame)
{
	return (sg_u32)sg_frame_wants_all(p, frame);
}

void sluice_frame_trim(const struct sg_packet *p, struct sg_frame *frame)
{
	sg_frame_trim(p, frame);
}

void sluice_frame_apply(struct sg_packet *p, struct sg_frame *frame,
			const struct sg_verdict *out)
{
	sg_frame_apply(p, frame, out);
}

sg_u32 sluice_frame_fack(const struct sg_packet *p, const struct sg_frame *frame,
			 const struct sg_verdict *out, sg_u8 *to, sg_u32 capacity)
{
	return sg_frame_fack(p, frame, out, to, capacity);
}
