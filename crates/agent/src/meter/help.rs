//! The help texts of the programs' counters in Prometheus.

/// The counters of `COUNTER_NAMES` with their help.
const HELP: [(&str, &str); 62] = [
    ("packets", "Packets seen, in both directions."),
    (
        "ect_set",
        "Packets made ECN-capable towards an enforcing peer.",
    ),
    (
        "ecn_hidden",
        "Packets whose ECN codepoint was cleared before the tenant.",
    ),
    ("window_lowered", "Receive windows rewritten."),
    (
        "feedback_sent",
        "Packets to which the feedback option was added.",
    ),
    (
        "feedback_taken",
        "Packets whose feedback option was read and removed.",
    ),
    ("ce_bytes", "Payload bytes that arrived with a CE mark."),
    ("not_tcp", "Packets left alone: not TCP over IPv4 or IPv6."),
    ("fragment", "Packets left alone: IP fragments."),
    (
        "ip_options",
        "Packets left alone: IPv4 options or IPv6 extension headers.",
    ),
    (
        "malformed",
        "Packets left alone: lengths that contradict each other.",
    ),
    (
        "malformed_option",
        "Packets left alone: TCP options that do not add up.",
    ),
    ("no_rule", "SYNs that no rule of the policy covers."),
    ("syn", "SYNs remembered."),
    (
        "syn_with_data",
        "SYNs with data to which no option of ours was added.",
    ),
    (
        "peer_offered",
        "SYNs that offered enforcement to the peer's host.",
    ),
    (
        "peer_accepted",
        "SYN/ACKs that accepted the enforcement that a peer's host offered.",
    ),
    (
        "peer_untrusted",
        "Offers of enforcement from outside the trusted prefixes: not believed.",
    ),
    (
        "flow_two_sided",
        "Flows that began with both ends enforcing.",
    ),
    (
        "flow_one_sided",
        "Flows that began with this end alone enforcing, or observing.",
    ),
    (
        "flow_midstream",
        "Flows met without their handshake: watched, not enforced.",
    ),
    ("flow_mptcp", "Flows that use MPTCP: watched, not enforced."),
    (
        "flow_signed",
        "Flows that use TCP-MD5 or TCP-AO: watched, not enforced.",
    ),
    (
        "table_full",
        "Packets left alone: no room in the table of flows.",
    ),
    (
        "quota",
        "Packets left alone: the interface's share of the table of flows is used up.",
    ),
    (
        "feedback_stale",
        "Feedback ignored: its counters went backwards.",
    ),
    ("fack_sent", "Packets made to carry feedback alone."),
    (
        "fack_taken",
        "Packets with feedback alone that were consumed.",
    ),
    (
        "no_room",
        "ACKs in which the feedback option did not fit beside the others.",
    ),
    (
        "feedback_stopped",
        "Flows that fell back to one-sided: no feedback came any more.",
    ),
    (
        "feedback_mismatch",
        "Flows that fell back to one-sided: feedback did not follow the acknowledgements.",
    ),
    (
        "ack_beyond",
        "ACKs left alone: they acknowledge data that was never seen.",
    ),
    ("loss", "Losses inferred from duplicate ACKs."),
    ("timeout", "Losses inferred from silence."),
    (
        "policed",
        "Segments dropped: beyond every window that the tenant was shown.",
    ),
    (
        "edit_failed",
        "Packets passed as they were because the kernel refused an edit.",
    ),
    ("flow_expired", "Flows collected after they were silent."),
    (
        "contended",
        "Packets passed as they were because another CPU held their flow.",
    ),
    (
        "window_would_lower",
        "Receive windows that would have been rewritten, had their rule enforced instead of observed.",
    ),
    (
        "would_police",
        "Segments beyond every window that the peer offered, where the rule observes.",
    ),
    (
        "repeated",
        "Segments dropped: sent again faster than any stack does.",
    ),
    (
        "flow_adopted",
        "Flows met without their handshake that are governed: their window scale became known.",
    ),
    (
        "flow_one_direction",
        "Flows of which only one direction is seen: watched, not enforced.",
    ),
    (
        "flow_unmarked",
        "Flows that got the fallback algorithm: their path drops and never marks.",
    ),
    (
        "rule_changed",
        "Flows that another rule decides since the policy changed.",
    ),
    ("double_tag", "Packets left alone: a second VLAN tag."),
    (
        "bucket_dropped",
        "Packets without a flow dropped: beyond the rate of a bucket.",
    ),
    (
        "bucket_exceeded",
        "Packets without a flow beyond the rate of a bucket that only observes.",
    ),
    (
        "forged",
        "Options that only hosts write, written by a tenant: removed.",
    ),
    (
        "rst_outlived",
        "RSTs that ended nothing: they do not fit, or traffic went on.",
    ),
    (
        "odd_options",
        "Segments of governed flows with malformed or signature options: held to the window all the same.",
    ),
    (
        "stranger",
        "Segments towards a tenant that are not of its flow's sequence space, or damaged: counted for nothing.",
    ),
    (
        "ack_ahead",
        "ACKs of a tenant for data that had not come for it: corrected to what has come.",
    ),
    (
        "data_unseen",
        "ACKs of a tenant for data that never came by, though nothing else did for 100 ms: let go.",
    ),
    (
        "trimmed",
        "Frames of tenants with bytes behind the IP packet: cut to the packet.",
    ),
    (
        "beyond_held",
        "Data beyond the window that enforcement has shown, within one from before: charged to a bucket.",
    ),
    (
        "odd_ack",
        "Data without an ACK number, or with one that no receiver's host takes for the flow's: charged to a bucket.",
    ),
    (
        "seq_restored",
        "Pure ACKs of a tenant with a number that was acknowledged already: given that of the next byte.",
    ),
    (
        "mss_clamped",
        "SYNs and SYN/ACKs whose MSS option was lowered to the rule's, for the tenant that reads it.",
    ),
    (
        "syn_fallback",
        "SYNs and repeated SYN/ACKs that left without the host's option, because it did not arrive.",
    ),
    (
        "option_dropped",
        "Peers found to be out of the reach of the host's option, and remembered as such.",
    ),
    (
        "ect_dropped",
        "Flows that fell back to one end because their path drops ECN-capable data.",
    ),
];

/// The help text of the counter called `name`.
pub(super) fn counter(name: &str) -> &'static str {
    HELP.iter()
        .find(|(known, _)| *known == name)
        .map_or("A counter of the enforcement programs.", |(_, help)| help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::abi::COUNTER_NAMES;

    #[test]
    fn every_counter_is_explained_and_nothing_else() {
        let known: Vec<&str> = HELP.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, COUNTER_NAMES[1..]);
        assert!(HELP.iter().all(|(_, help)| help.ends_with('.')));
    }
}
