/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Peers that are not reached by what a host adds to handshakes.
 *
 * Devices drop SYNs and SYN/ACKs with options that they do not know, or with an ECN-capable
 * codepoint. So the third SYN of a connection, and the third try of a SYN/ACK, leave as the tenant
 * wrote them (as in RFC 8684 3.1, RFC 9768 3.1.4 and RFC 7413). If the peer answers such a one,
 * further connections begin without an offer for some time: a minute at first, and twice as
 * long each time that an offer is lost again before as much time has passed since. An offer that is
 * answered ends that time. What connections of the same moment lose counts once.
 *
 * Clients may give up before their third SYN. So where an offer has been repeated, and none was
 * answered since, the second SYN of a connection to that peer already leaves without one.
 *
 * Each interface has SG_BLACKHOLE_SLOTS places for peers, which are keys of the caller's table. So
 * a tenant has a bounded part of the table, and entries are about its own connections only.
 */
#ifndef SLUICE_BLACKHOLE_H
#define SLUICE_BLACKHOLE_H

#include "flow.h"
#include "seq.h"

/* So many SYNs of a connection carry an offer, and so many SYN/ACKs. */
#define SG_OFFERS 2U
/* The same where an offer to the peer has been repeated in vain. */
#define SG_OFFERS_SUSPECT 1U
#define SG_SUSPECT_NS 60000000000ULL
/* A tenant that repeats itself sooner has not waited for an answer (RFC 6298: an RTO is 200 ms at
 * least in all stacks, a second in most): that is no further offer. */
#define SG_OFFER_GAP_NS 200000000ULL

#define SG_BLACKHOLE_SLOTS 256U
#define SG_BLACKHOLE_NS 60000000000ULL
#define SG_BLACKHOLE_DOUBLINGS 4U /* 16 minutes */

struct sg_blackhole_key {
	sg_u32 ifindex;
	sg_u32 slot; /* below SG_BLACKHOLE_SLOTS */
};
SG_ASSERT_SIZE(struct sg_blackhole_key, 8);

struct sg_blackhole {
	struct sg_addr remote;
	sg_u64 until_ns;     /* no offers before */
	sg_u64 suspected_ns; /* when an offer was repeated that nothing has answered; 0 = none */
	sg_u16 vlan;
	sg_u8 times;         /* that offers were found lost one after the other, saturating */
	sg_u8 pad[5];
};
SG_ASSERT_SIZE(struct sg_blackhole, 40);

/* What a packet says of the offers to its peer. */
enum sg_offer_news {
	SG_OFFER_NO_NEWS = 0,
	SG_OFFER_REPEATED = 1, /* the last offer that this connection makes */
	SG_OFFER_ANSWERED = 2,
	SG_OFFER_LOST = 3,     /* only what left without one was answered */
};

/* A tenant that chooses addresses which share a slot makes only its own memory short. */
SG_INLINE struct sg_blackhole_key sg_blackhole_key_of(const struct sg_flow_key *key)
{
	const sg_u32 *word = key->remote.word;
	sg_u32 mixed = (word[0] ^ word[1] * 3 ^ word[2] * 5 ^ word[3] ^ key->vlan) * 0x9e3779b1U;

	return (struct sg_blackhole_key){ key->ifindex, (mixed >> 24) % SG_BLACKHOLE_SLOTS };
}

/* Whether what a slot holds is about this connection's peer. `known` may be null. */
SG_INLINE int sg_blackhole_is_of(const struct sg_blackhole *known, const struct sg_flow_key *key)
{
	return known && known->vlan == key->vlan && known->remote.word[0] == key->remote.word[0] &&
	       known->remote.word[1] == key->remote.word[1] &&
	       known->remote.word[2] == key->remote.word[2] &&
	       known->remote.word[3] == key->remote.word[3];
}

SG_INLINE int sg_blackhole_suspected(const struct sg_blackhole *known, sg_u64 now_ns)
{
	return known->suspected_ns && sg_since(now_ns, known->suspected_ns) < SG_SUSPECT_NS;
}

/* Beside the number of offers: news of them matter, for the peer has an entry. */
#define SG_OFFERS_DOUBTED 0x80U

/* Offers that a new connection may make. `known`: what its slot holds, or null. */
SG_INLINE sg_u32 sg_offers_to(const struct sg_blackhole *known, const struct sg_flow_key *key,
			      sg_u64 now_ns)
{
	if (sg_likely(!sg_blackhole_is_of(known, key)))
		return SG_OFFERS;
	if (now_ns < known->until_ns)
		return 0;
	return SG_OFFERS_DOUBTED |
	       (sg_blackhole_suspected(known, now_ns) ? SG_OFFERS_SUSPECT : SG_OFFERS);
}

/* The time without offers that follows the `times`-th loss in a row. */
SG_INLINE sg_u64 sg_blackhole_lasts_ns(sg_u32 times)
{
	return SG_BLACKHOLE_NS << sg_min32(times, SG_BLACKHOLE_DOUBLINGS);
}

/* An offer was lost, and none is being avoided. */
SG_INLINE void sg_blackhole_lost(struct sg_blackhole *known, sg_u64 now_ns)
{
	if (sg_since(now_ns, known->until_ns) > sg_blackhole_lasts_ns(known->times))
		known->times = 0;
	known->until_ns = now_ns + sg_blackhole_lasts_ns(known->times);
	known->times += known->times < 0xff;
}

/*
 * Writes news into `known`, a copy of what the slot holds, or zeros. Returns whether it is to be
 * stored. A suspicion does not take the place of another peer's entry.
 */
SG_INLINE int sg_blackhole_note(struct sg_blackhole *known, const struct sg_flow_key *key,
				enum sg_offer_news news, sg_u64 now_ns)
{
	int own = sg_blackhole_is_of(known, key);

	if (news == SG_OFFER_NO_NEWS || (news == SG_OFFER_ANSWERED && !own))
		return 0;
	if (!own && news == SG_OFFER_REPEATED &&
	    (now_ns < known->until_ns || sg_blackhole_suspected(known, now_ns)))
		return 0;
	if (own && news == SG_OFFER_LOST && now_ns < known->until_ns)
		return 0;
	if (!own) {
		__builtin_memset(known, 0, sizeof(*known));
		known->remote = key->remote;
		known->vlan = key->vlan;
	}
	known->suspected_ns = 0;
	if (news == SG_OFFER_ANSWERED)
		known->until_ns = sg_min64(known->until_ns, now_ns);
	else if (news == SG_OFFER_REPEATED)
		known->suspected_ns = now_ns;
	else
		sg_blackhole_lost(known, now_ns);
	return 1;
}

#endif /* SLUICE_BLACKHOLE_H */
