/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * State of one connection at one end: the half that governs what the local
 * tenant sends (snd_*, cc, rtt, feedback taken) and the half that reports on
 * what it receives (rcv_*).
 */
#ifndef SLUICE_FLOW_H
#define SLUICE_FLOW_H

#include "cc.h"
#include "types.h"

/* A connection seen from the tenant's interface. Addresses and ports in network order. */
struct sg_flow_key {
	struct sg_addr local;  /* the tenant */
	struct sg_addr remote;
	sg_u16 local_port;
	sg_u16 remote_port;
	sg_u32 ifindex;        /* the tenant's interface: addresses may overlap between tenants */
	sg_u16 vlan;           /* 0 = untagged */
	sg_u16 opener;         /* half-open connections only: enum sg_opener; 0 for flows */
};
SG_ASSERT_SIZE(struct sg_flow_key, 44);

enum sg_mode {
	SG_MODE_WATCH = 0,     /* counted, never edited; `reason` says why */
	SG_MODE_ONE_SIDED = 1, /* window only; the tenant's ECN is its own */
	SG_MODE_TWO_SIDED = 2, /* the operator owns ECN, the peer sends feedback */
	SG_MODE_TENANT_ECN = 3, /* observing tenants that use ECN: their ECE is the feedback */
};

/* Why a flow is in its mode. */
enum sg_reason {
	SG_WHY_NONE = 0,
	SG_WHY_MIDSTREAM = 1,         /* handshake not seen: window scale unknown */
	SG_WHY_MPTCP = 2,
	SG_WHY_SIGNED = 3,
	SG_WHY_PEER_SILENT = 4,       /* the peer's host did not show our option */
	SG_WHY_PEER_UNTRUSTED = 5,
	SG_WHY_FEEDBACK_STOPPED = 6,
	SG_WHY_FEEDBACK_MISMATCH = 7, /* ECN bleached, or counts forged */
	SG_WHY_MALFORMED_OPTION = 8,
	SG_WHY_SYN_WITH_DATA = 9,
	SG_WHY_NO_ROOM = 10,          /* our option did not fit in the handshake */
	SG_WHY_ONE_DIRECTION = 11,    /* the hook sees only one direction: ACKs, or data, bypass it */
	SG_WHY_OPTION_DROPPED = 12,   /* the handshake was repeated without our option (blackhole.h) */
	SG_WHY_ECT_DROPPED = 13,      /* of its first data, only what was not ECN-capable arrived */
};

enum sg_flow_flags {
	SG_FLOW_EDGE_KNOWN = 1 << 0,  /* an ACK to the tenant has been seen */
	SG_FLOW_RECOVERY = 1 << 1,    /* until snd_una reaches `recover` */
	SG_FLOW_CLOSED = 1 << 2,      /* RST, or FIN both ways */
	SG_FLOW_FIN_SENT = 1 << 3,
	SG_FLOW_FIN_SEEN = 1 << 4,
	SG_FLOW_SACK_SEEN = 1 << 5,   /* from then on a duplicate ACK brings a block */
	SG_FLOW_FED = 1 << 6,         /* this ACK that advances or the one before brought feedback */
	SG_FLOW_CE_UNREPORTED = 1 << 7,
};

enum sg_flow_marks {
	SG_FLOW_UNSEEN = 1 << 0,      /* packets have passed unseen, and no data since */
	SG_FLOW_SENT = 1 << 1,        /* a packet of the tenant has been seen */
	SG_FLOW_HEARD = 1 << 2,       /* a packet for the tenant has been seen */
	SG_FLOW_SCALE_BOUND = 1 << 3, /* wscale is a lower bound: what is shown may be larger */
	SG_FLOW_UNMARKED = 1 << 4,    /* the path has dropped and never marked */
	SG_FLOW_ADOPTED = 1 << 5,     /* met without its handshake, enforced all the same */
	SG_FLOW_REFILLS = 1 << 6,     /* until `recover`: repeats what policing dropped */
	SG_FLOW_LENIENT = 1 << 7,     /* `edge` may be beyond `held`: data in between are charged */
	SG_FLOW_SIGNS = 1 << 8,       /* the tenant signs its segments since: no header is edited */
	SG_FLOW_AHEAD = 1 << 9,       /* its ACKs are ahead of what has come, since ahead_time */
	SG_FLOW_RCV_UNSEEN = 1 << 10, /* packets have passed unseen: its next ACK says how far data came */
	SG_FLOW_ODD_OPTIONS = 1 << 11, /* for reports: ACKs had malformed options, or signatures */
	SG_FLOW_ACKED_AHEAD = 1 << 12, /* for reports: the tenant acknowledged what had not come */
	SG_FLOW_STRANGERS = 1 << 13,  /* for reports: segments came that are not of this flow */
	SG_FLOW_SKIPPED_ACK = 1 << 14, /* a pure ACK of the tenant has not reported, since feedback left */
	SG_FLOW_RCV_KNOWN = 1 << 15,  /* where the peer's data begin was in the handshake */
};

#define SG_RTT_RING 4U

/* A data segment's end and when it left, for RTT samples. */
struct sg_sent {
	sg_u32 end_seq;
	sg_u32 time; /* low 32 bits of ns: distances below 4.29 s */
};

/* Sequence numbers start..end-1 were dropped by policing and not sent since; start = end: none. */
struct sg_hole {
	sg_u32 start;
	sg_u32 end;
};

#define SG_HOLE_RANGES 4U

/*
 * Ordered by which code reads and writes each field: in the kernel's table a flow begins on a cache
 * line, and at a hundred thousand packets a second each line is a miss. Data
 * either way needs the first line; an ACK that advances the first four; the
 * last one is for what is rare.
 */
struct sg_flow {
	sg_u64 seen_ns;         /* last packet either way */
	sg_u64 bytes_received;  /* payload towards the tenant */
	sg_u32 snd_una;
	sg_u32 snd_nxt;         /* end of the highest data seen from the tenant */
	sg_u32 edge;            /* highest right edge that the tenant may have been shown */
	sg_u32 rtt_next;        /* no RTT sample of data that ends before this */
	sg_u32 rcv_e0b;         /* counters of what arrived, 24 bits (RFC 9768 3.2.3) */
	sg_u32 rcv_ceb;
	sg_u32 rcv_nxt;         /* SG_FLOW_RCV_KNOWN: what the tenant has acknowledged */
	sg_u32 rcv_high;        /* the same: end of the highest data that has come for it */
	sg_u16 unreported;      /* bytes counted since feedback last left, saturating */
	sg_u16 marks;           /* enum sg_flow_marks */
	sg_u16 peer_window;     /* as last advertised by the peer, on the wire */
	sg_u16 wire_window;     /* as last shown to the tenant, on the wire */
	sg_u16 rcv_window;      /* the same: from rcv_nxt to the farthest edge advertised, in its unit */
	sg_u8 wscale;           /* shift of the windows the peer advertises */
	sg_u8 rcv_wscale;       /* shift of the windows the tenant advertises */
	sg_u8 mode;             /* enum sg_mode */
	sg_u8 rule;             /* slot of the policy, SG_RULE_NONE = none */
	sg_u8 flags;            /* enum sg_flow_flags */
	sg_u8 not_ect_run;      /* data segments since the last ECN-capable one, saturating */

	struct sg_cc cc;

	sg_u64 bytes_acked;     /* payload of the tenant acknowledged */
	sg_u32 recover;         /* loss recovery lasts until here (RFC 6582) */
	sg_u32 karn_end;        /* no RTT samples before snd_una passes this */
	sg_s32 uncounted;       /* bytes acknowledged since feedback last counted any; < 0: counted ahead */
	sg_u32 counted_bytes;   /* in the peer's counters since snd_una passed judge_start */
	sg_u32 judge_start;
	sg_u32 taken_e0b;       /* feedback counters last taken, 24 bits */
	sg_u32 taken_ceb;
	sg_u32 marked_pending;  /* CE bytes reported, not yet given to cc: at most what is out */
	sg_u32 fack_round;      /* next FACK when snd_una passes this */
	sg_u32 srtt_ns;         /* RFC 6298 with g = 1/8; 0 = none yet */
	sg_u32 rttvar_ns;
	sg_u32 min_rtt_ns;
	sg_u32 rtt_first;       /* smallest end in the ring that is not acknowledged */
	sg_u16 dupacks;
	sg_u16 mss;             /* of segments, nothing subtracted, as far as the path is known (mss.h) */

	sg_u64 progress_ns;     /* last ACK that advanced, or first data after idle */
	sg_u64 bytes_marked;    /* of the bytes acknowledged, delivered with CE; tenant-ecn: with ECE */
	struct sg_sent ring[SG_RTT_RING];
	sg_u16 losses;          /* inferred from duplicate ACKs, saturating */
	sg_u16 timeouts;        /* saturating */
	sg_u32 repeated;        /* bytes that the tenant sent again lately: fades within an RTT */
	sg_u32 repeat_time;     /* when it last did so, in 1024 ns */
	union {
		sg_u16 top_window; /* SG_FLOW_SCALE_BOUND: largest that the peer advertised, on the wire */
		sg_u16 holes;      /* else: the sum of `hole`, in 16 bytes, rounded down */
	};
	sg_u16 repeat_flight;   /* most in flight while it did so, in 128 bytes: fades within eight */

	sg_u32 held;            /* highest right edge that enforcement has shown the tenant */
	sg_u32 ahead_time;      /* SG_FLOW_AHEAD: since when, in 1024 ns */
	sg_u32 sack_left;       /* first block of the last SACK */
	sg_u32 sack_right;
	sg_u16 policed;         /* segments dropped, saturating */
	sg_u8 reason;           /* enum sg_reason */
	sg_u8 largest;          /* new segment of this round, in SG_SEGMENT_UNIT (mss.h) */
	struct sg_hole hole[SG_HOLE_RANGES];
	sg_u32 first_own;       /* the tenant's first number, by the SYN/ACK that the flow began with */
	sg_u32 first_remote;    /* the peer's; both 0: its SYN/ACK is not known */
	sg_u32 let_go;          /* SG_FLOW_AHEAD: the last ACK that was let go; 0 = none was */
};
SG_ASSERT_SIZE(struct sg_flow, 320);
SG_ASSERT_AT(struct sg_flow, wscale, 58);
SG_ASSERT_AT(struct sg_flow, cc, 64);
SG_ASSERT_AT(struct sg_flow, bytes_acked, 128);
SG_ASSERT_AT(struct sg_flow, progress_ns, 192);
SG_ASSERT_AT(struct sg_flow, held, 256);

/*
 * The sender of a SYN. Each direction of a tuple has an entry of its own: a SYN that comes
 * the other way (stale, or forged) does not make a handshake forgotten.
 */
enum sg_opener {
	SG_OPENED_BY_TENANT = 1,
	SG_OPENED_BY_REMOTE = 2,
	SG_OPENED_UNSEEN = 3, /* by either: only the SYN/ACK was read */
};

/*
 * The facts that a handshake has shown so far; apart from flows, so that a SYN flood evicts only
 * SYNs.
 */
struct sg_half_open {
	sg_u64 time_ns;
	sg_u32 isn;             /* of the SYN */
	sg_u16 mss;             /* offered by the SYN, as its receiver reads it */
	sg_u16 options;         /* enum sg_option_bits of the SYN */
	sg_u8 wscale;
	sg_u8 rule;
	sg_u8 peer;             /* enum sg_half_open_peer, SG_PEER_PROMOTED, SG_PEER_DOUBTED */
	sg_u8 offers;           /* so many more SYNs, or SYN/ACKs, carry our option */
	union {
		sg_u32 data;       /* bytes that came with the SYN (RFC 7413), saturating */
		sg_u32 remote_isn; /* SG_OPENED_UNSEEN: of the other end */
	};
};
SG_ASSERT_SIZE(struct sg_half_open, 24);

enum sg_half_open_peer {
	SG_PEER_NONE = 0,
	SG_PEER_OFFERED = 1,   /* our option went out or came in, and may be believed */
	SG_PEER_DISTRUSTED = 2,
	SG_PEER_NO_ROOM = 3,
	SG_PEER_SYN_DATA = 4,  /* too many data came with it for an option before them */
	SG_PEER_FALLBACK = 5,  /* our option went out as often as it may (blackhole.h) */
	SG_PEER_AVOIDED = 6,   /* no offer is made, or the opener's host makes none any more */
	SG_PEER_MASK = 0x3f,
	SG_PEER_DOUBTED = 0x40, /* the peer has an entry, which an answer to our option ends */
	SG_PEER_PROMOTED = 0x80, /* the flow exists: a repeated SYN/ACK must not reset it */
};

/* The largest shift (RFC 7323 2.3). */
#define SG_WSCALE_MAX 14U

/* How the window scale of a connection is known whose handshake was not seen. */
enum sg_scale {
	SG_SCALE_UNKNOWN = 0, /* only from what is in flight */
	SG_SCALE_EXACT = 1,
};

/* The facts that are kept of a flow that was silent for so long that its slot was given away. */
struct sg_remembered {
	sg_u16 mss;
	sg_u8 wscale;
	sg_u8 scale;       /* enum sg_scale */
	sg_u8 one_way;     /* a handshake of which only the SYN was seen */
	sg_u8 confirmed;   /* both ends have told the numbers that the connection begins with */
	sg_u8 rcv_wscale;  /* the same: shift of the tenant's windows, as far as it is known */
	sg_u8 pad;
};
SG_ASSERT_SIZE(struct sg_remembered, 8);

#endif /* SLUICE_FLOW_H */
