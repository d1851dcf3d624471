/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One TCP segment as the enforcement step sees it, in host byte order, and what
 * the step wants done to it. Packets of every world are parsed into the one and
 * edited by the other.
 */
#ifndef SLUICE_SEGMENT_H
#define SLUICE_SEGMENT_H

#include "types.h"

/* TCP header flags (RFC 9293 section 3.1, RFC 3168). */
enum sg_tcp_flags {
	SG_FIN = 0x01,
	SG_SYN = 0x02,
	SG_RST = 0x04,
	SG_PSH = 0x08,
	SG_ACK = 0x10,
	SG_URG = 0x20,
	SG_ECE = 0x40,
	SG_CWR = 0x80,
};

/* ECN codepoints (RFC 3168 section 5). */
enum sg_ecn {
	SG_NOT_ECT = 0,
	SG_ECT1 = 1,
	SG_ECT0 = 2,
	SG_CE = 3,
};

enum sg_direction {
	SG_FROM_TENANT = 0,
	SG_TO_TENANT = 1,
};

/* Options found in the header. */
enum sg_option_bits {
	SG_OPT_MSS = 1 << 0,
	SG_OPT_WSCALE = 1 << 1,
	SG_OPT_SACK = 1 << 2,      /* at least one block */
	SG_OPT_FEEDBACK = 1 << 3,  /* kind 172, length 8 */
	SG_OPT_PEER = 1 << 4,      /* ours, RFC 6994 */
	SG_OPT_FACK = 1 << 5,      /* ours, with the FACK bit */
	SG_OPT_MPTCP = 1 << 6,     /* kind 30 */
	SG_OPT_SIGNED = 1 << 7,    /* MD5 (19) or AO (29) */
	SG_OPT_MALFORMED = 1 << 8, /* from `end_at` on no parser reads: lengths do not add up */
	SG_OPT_ECN_OFFER = 1 << 9, /* no option: a SYN with ECE and CWR (RFC 3168 6.1.1), remembered */
	SG_OPT_FIXED = 1 << 10,    /* no option: the options of this SYN cannot be written */
};

struct sg_segment {
	sg_u32 seq;
	sg_u32 ack;
	sg_u32 payload;      /* bytes of data, all of a super-packet's */
	sg_u16 window;       /* as on the wire, unscaled */
	sg_u8 tcp_flags;     /* enum sg_tcp_flags */
	sg_u8 ecn;           /* enum sg_ecn */
	sg_u8 direction;     /* enum sg_direction */
	sg_u8 header_len;    /* TCP header with options, 20..60 */
	sg_u16 options;      /* enum sg_option_bits */
	sg_u8 peer_trusted;  /* the remote address is in a trusted prefix (filled on SYN) */
	sg_u8 wscale;        /* with SG_OPT_WSCALE, 0..14 */
	sg_u16 mss;          /* with SG_OPT_MSS */
	sg_u8 feedback_at;   /* offset of that option in the TCP header */
	sg_u8 peer_at;
	sg_u8 mptcp_at;
	sg_u8 mptcp_len;
	sg_u32 e0b;          /* with SG_OPT_FEEDBACK, 24 bits */
	sg_u32 ceb;
	union {
		sg_u32 sack_left; /* first block, with SG_OPT_SACK */
		sg_u32 path_mss;  /* of a SYN or SYN/ACK: what the tenant's interface takes; 0 = not known */
	};
	sg_u32 sack_right;
	sg_u32 sack2_left;   /* second block; both 0 without one */
	sg_u32 sack2_right;
	sg_u8 end_at;        /* where options end before the header does: EOL, or a malformed one; 0 = they don't */
	sg_u8 damaged;       /* its checksum is known to be wrong: no receiver takes it */
	sg_u8 mss_at;        /* offset of that option in the TCP header */
	sg_u8 segment_units; /* of a super-packet: payload of its segments, in SG_SEGMENT_UNIT; else 0 */
};
SG_ASSERT_SIZE(struct sg_segment, 56);

#define SG_SEGMENT_UNIT 256U

enum sg_edit_bits {
	SG_EDIT_WINDOW = 1 << 0,
	SG_EDIT_ECN = 1 << 1,
	SG_EDIT_CLEAR_FLAGS = 1 << 2,
	SG_EDIT_ADD_FEEDBACK = 1 << 3,   /* append the 8-byte option */
	SG_EDIT_STRIP_FEEDBACK = 1 << 4,
	SG_EDIT_ADD_PEER = 1 << 5,       /* append our 8-byte option */
	SG_EDIT_STRIP_PEER = 1 << 6,
	SG_EDIT_HIDE_MPTCP = 1 << 7,     /* overwrite kind 30 with NOPs */
	SG_EDIT_WANT_FACK = 1 << 8,      /* send a header-only copy with feedback as well */
	SG_EDIT_WOULD_LOWER = 1 << 9,    /* no edit: observing, the window would have been lowered */
	SG_EDIT_ACK = 1 << 10,           /* write the acknowledgement number */
	SG_EDIT_BLANK_REST = 1 << 11,    /* overwrite what no parser reads, from `end_at` on, with NOPs */
	SG_EDIT_UNHELD = 1 << 12,        /* no edit: data that no window holds, for a bucket */
	SG_EDIT_SEQ = 1 << 13,           /* write the sequence number */
	SG_EDIT_MSS = 1 << 14,           /* write the value of the MSS option */
};

enum sg_action {
	SG_PASS = 0,
	SG_DROP = 1,    /* policing */
	SG_CONSUME = 2, /* a FACK: not the tenant's packet */
};

struct sg_verdict {
	sg_u16 edits;       /* enum sg_edit_bits */
	sg_u8 action;       /* enum sg_action */
	sg_u8 ecn;          /* with SG_EDIT_ECN */
	sg_u16 window;      /* with SG_EDIT_WINDOW, as on the wire */
	sg_u8 clear_flags;  /* with SG_EDIT_CLEAR_FLAGS */
	sg_u8 count;        /* enum sg_counter to move, or SG_COUNT_NONE */
	sg_u32 e0b;         /* with SG_EDIT_ADD_FEEDBACK or SG_EDIT_WANT_FACK */
	sg_u32 ceb;
	sg_u32 ack;         /* with SG_EDIT_ACK */
	union {
		sg_u32 seq; /* with SG_EDIT_SEQ, which is for no SYN */
		sg_u32 mss; /* with SG_EDIT_MSS, which is for SYNs and SYN/ACKs */
	};
};
SG_ASSERT_SIZE(struct sg_verdict, 24);

/*
 * The counters of a host. The names, in the same order, are what metrics and
 * results call them (core/src/abi.rs).
 */
enum sg_counter {
	SG_COUNT_NONE = 0,
	/* The counters that an ordinary packet moves share a cache line. */
	SG_COUNT_PACKETS,          /* packets seen, both directions */
	SG_COUNT_ECT_SET,          /* packet made ECN-capable */
	SG_COUNT_ECN_HIDDEN,       /* codepoint cleared before the tenant */
	SG_COUNT_WINDOW_LOWERED,   /* receive window rewritten */
	SG_COUNT_FEEDBACK_SENT,    /* feedback option appended */
	SG_COUNT_FEEDBACK_TAKEN,   /* feedback option consumed */
	SG_COUNT_CE_BYTES,         /* payload bytes that arrived with CE */
	SG_COUNT_NOT_TCP,          /* not TCP over IPv4 or IPv6 */
	SG_COUNT_FRAGMENT,         /* IP fragment */
	SG_COUNT_IP_OPTIONS,       /* IPv4 options or IPv6 extension headers */
	SG_COUNT_MALFORMED,        /* lengths that contradict each other, or the frame's */
	SG_COUNT_MALFORMED_OPTION, /* TCP options that do not add up */
	SG_COUNT_NO_RULE,          /* SYN that no rule covers */
	SG_COUNT_SYN,              /* SYN remembered */
	SG_COUNT_SYN_WITH_DATA,    /* SYN with data that got no option of ours */
	SG_COUNT_PEER_OFFERED,     /* our option added to a SYN */
	SG_COUNT_PEER_ACCEPTED,    /* our option added to a SYN/ACK */
	SG_COUNT_PEER_UNTRUSTED,   /* our option from outside the trusted prefixes */
	SG_COUNT_FLOW_TWO_SIDED,   /* flow began with both ends enforcing */
	SG_COUNT_FLOW_ONE_SIDED,   /* flow began with this end enforcing */
	SG_COUNT_FLOW_MIDSTREAM,   /* flow met without its handshake: watched */
	SG_COUNT_FLOW_MPTCP,       /* MPTCP: watched */
	SG_COUNT_FLOW_SIGNED,      /* TCP-MD5 or AO: watched */
	SG_COUNT_TABLE_FULL,       /* no room for a flow: passed untouched */
	SG_COUNT_QUOTA,            /* the interface's share of the table is used up */
	SG_COUNT_FEEDBACK_STALE,   /* counters that went backwards: ignored */
	SG_COUNT_FACK_SENT,
	SG_COUNT_FACK_TAKEN,
	SG_COUNT_NO_ROOM,          /* option did not fit beside the others */
	SG_COUNT_FEEDBACK_STOPPED, /* flow fell back to one-sided: no feedback */
	SG_COUNT_FEEDBACK_MISMATCH,/* flow fell back: counts do not follow the ACKs */
	SG_COUNT_ACK_BEYOND,       /* acknowledges data that was never seen: opens a window at most */
	SG_COUNT_LOSS,             /* inferred from duplicate ACKs */
	SG_COUNT_TIMEOUT,          /* inferred from silence */
	SG_COUNT_POLICED,          /* data beyond the edge: dropped */
	SG_COUNT_EDIT_FAILED,      /* the kernel refused an edit: packet passed as it was */
	SG_COUNT_FLOW_EXPIRED,     /* idle flow collected */
	SG_COUNT_CONTENDED,        /* another CPU did not let go of the flow: packet passed as it was */
	SG_COUNT_WINDOW_WOULD_LOWER, /* observing: receive window that enforcement would have rewritten */
	SG_COUNT_WOULD_POLICE,     /* observing: data beyond every window that the peer advertised */
	SG_COUNT_REPEATED,         /* data sent again faster than any stack does: dropped */
	SG_COUNT_FLOW_ADOPTED,     /* flow met without its handshake, window scale known: enforced */
	SG_COUNT_FLOW_ONE_DIRECTION, /* only one direction passes the hook: watched */
	SG_COUNT_FLOW_UNMARKED,    /* flow fell back: its path drops and never marks */
	SG_COUNT_RULE_CHANGED,     /* another rule decides the flow since the policy changed */
	SG_COUNT_DOUBLE_TAG,       /* a second VLAN tag */
	SG_COUNT_BUCKET_DROPPED,   /* beyond the rate of a bucket: dropped */
	SG_COUNT_BUCKET_EXCEEDED,  /* observing: beyond the rate of a bucket */
	SG_COUNT_FORGED,           /* an option that only hosts write, written by a tenant: removed */
	SG_COUNT_RST_OUTLIVED,     /* an RST that ended nothing: it does not fit, or traffic went on */
	SG_COUNT_ODD_OPTIONS,      /* ACK of a governed flow with malformed or signature options: held all the same */
	SG_COUNT_STRANGER,         /* not of the flow's sequence space, or damaged: counted for nothing */
	SG_COUNT_ACK_AHEAD,        /* acknowledges data that has not come: corrected */
	SG_COUNT_DATA_UNSEEN,      /* acknowledges data that never came by: let go */
	SG_COUNT_TRIMMED,          /* bytes behind the IP packet: removed */
	SG_COUNT_BEYOND,           /* data that only an edge from before a gap covers: charged to a bucket */
	SG_COUNT_ODD_ACK,          /* data with an ACK number that no receiver's host takes: charged to a bucket */
	SG_COUNT_SEQ_RESTORED,     /* pure ACK with a number acknowledged already: given the next byte's */
	SG_COUNT_MSS_CLAMPED,      /* MSS option of a SYN or SYN/ACK lowered */
	SG_COUNT_SYN_FALLBACK,     /* SYN, or repeated SYN/ACK, without our option: it did not arrive */
	SG_COUNT_OPTION_DROPPED,   /* a peer found that our option does not reach: remembered */
	SG_COUNT_ECT_DROPPED,      /* flow fell back: its path drops ECN-capable data */
	SG_COUNT_MAX,
};

#endif /* SLUICE_SEGMENT_H */
