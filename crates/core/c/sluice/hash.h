/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A keyed hash of a connection, for tables that tenants must not be able to
 * overfill: without the key they cannot choose colliding connections.
 *
 * NH (Black et al., "UMAC", CRYPTO 1999, section 4; RFC 4418 5.2.2) maps eleven
 * words to 64 bits so that two connections collide with probability 2^-32. It is
 * linear in neighbouring ports, so a finaliser in the manner of MurmurHash3's, a
 * bijection, spreads them. No loop, no call, and NH's products don't wait for each
 * other.
 */
#ifndef SLUICE_HASH_H
#define SLUICE_HASH_H

#include "flow.h"

struct sg_hash_key {
	sg_u64 spread;   /* random and odd */
	sg_u32 word[12]; /* random */
};
SG_ASSERT_SIZE(struct sg_hash_key, 56);

/* 2^64 divided by the golden ratio, odd: neighbours end far apart (Knuth, TAOCP 3, 6.4). */
#define SG_HASH_SPREAD 0x9e3779b97f4a7c15ULL

SG_INLINE sg_u64 sg_nh(sg_u32 a, sg_u32 key_a, sg_u32 b, sg_u32 key_b)
{
	return (sg_u64)(sg_u32)(a + key_a) * (sg_u32)(b + key_b);
}

/* The finaliser: 32 bits of a sum, of which the high ones are the best. */
SG_INLINE sg_u32 sg_hash_end(sg_u64 sum, const volatile struct sg_hash_key *key)
{
	sum = (sum ^ sum >> 32) * key->spread;
	sum = (sum ^ sum >> 32) * SG_HASH_SPREAD;
	return (sg_u32)(sum >> 32);
}

/* 32 bits, of which the high ones are the best. The key is one that loaders fill in (volatile). */
SG_INLINE sg_u32 sg_flow_hash(const struct sg_flow_key *flow,
			      const volatile struct sg_hash_key *key)
{
	const sg_u32 *local = flow->local.word, *remote = flow->remote.word;
	const volatile sg_u32 *k = key->word;
	sg_u32 ports = (sg_u32)flow->local_port << 16 | flow->remote_port;
	sg_u32 tag = (sg_u32)flow->vlan << 16 | flow->opener;
	sg_u64 sum = sg_nh(local[0], k[0], local[1], k[1]) + sg_nh(local[2], k[2], local[3], k[3]) +
		     sg_nh(remote[0], k[4], remote[1], k[5]) +
		     sg_nh(remote[2], k[6], remote[3], k[7]) +
		     sg_nh(ports, k[8], flow->ifindex, k[9]) + sg_nh(tag, k[10], 0, k[11]);

	return sg_hash_end(sum, key);
}

#endif /* SLUICE_HASH_H */
