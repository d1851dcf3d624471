/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the kernel programs and their loader share: map values. The loader's
 * mirrors are in core/src/abi.rs. The layout's version is part of the pin path;
 * change SG_ABI_VERSION with anything in here or in core's flow.h, params.h.
 *
 *   policy      array[1]        struct sg_policy
 *   config      array[1]        struct sg_config
 *   flows       hash            struct sg_flow_key  -> struct sg_flow_entry
 *   half_open   LRU hash        struct sg_flow_key  -> struct sg_half_open
 *   interfaces  hash            ifindex (u32)       -> struct sg_interface
 *   counters    per-CPU array[1] struct sg_counters
 *   scratch     per-CPU array[1] struct sg_flow_image
 */
#ifndef SLUICE_ABI_H
#define SLUICE_ABI_H

#include "sluice/count.h"
#include "sluice/flow.h"
#include "sluice/params.h"

#define SG_ABI_VERSION 2

/* One flow with what the kernel needs around it: 272 bytes, 316 with its key. */
struct sg_flow_image {
	sg_u64 kernel[3]; /* bpf_timer, bpf_spin_lock, padding */
	struct sg_flow flow;
};
SG_ASSERT_SIZE(struct sg_flow_image, 272);
SG_ASSERT_AT(struct sg_flow_image, flow, 24);

/* An interface that is attached. Unknown interfaces have no quota. */
struct sg_interface {
	sg_u32 flows;  /* live entries */
	sg_u32 quota;  /* most entries it may have; 0 = no limit */
	sg_u32 tenant; /* tenant id for reports */
	sg_u32 pad;
};
SG_ASSERT_SIZE(struct sg_interface, 16);

struct sg_config {
	sg_u64 idle_ns;   /* an open flow without packets is forgotten after this */
	sg_u64 closed_ns; /* a closed one after this */
};
SG_ASSERT_SIZE(struct sg_config, 16);

#endif /* SLUICE_ABI_H */
