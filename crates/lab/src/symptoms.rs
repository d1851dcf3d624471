//! TCP's symptoms of loss and reordering, and what of a run explains them.

use std::collections::BTreeMap;

use sluicegate_scenario::workload::plan::Report;

/// Counters of the kernels of all tenants in measured time, and the packets that the run's
/// queues dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Symptoms {
    /// Segments sent again.
    pub retransmits: u64,
    /// D-SACKs that senders got: the segment had arrived before, nothing was lost (RFC 2883).
    pub duplicates: u64,
    /// Tail loss probes (RFC 8985 7.2: no ACK for 2 RTT + 2 ms with two segments outstanding or
    /// more).
    pub probes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Of these, those that F-RTO found spurious (RFC 5682).
    pub spurious_timeouts: u64,
    /// Senders that found segments overtaken.
    pub reordering: u64,
    /// Segments that arrived before one that belongs in front of them.
    pub out_of_order: u64,
    /// Packets that the run's queues dropped, warm-up included.
    pub drops: u64,
}

/// Retransmissions by what explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Causes {
    /// A queue dropped the segment.
    pub drops: u64,
    /// Unnecessary by D-SACK, after a probe or a timeout: the ACK was late, nothing was lost.
    pub spurious: u64,
    /// Unnecessary by D-SACK, and no timer went off: something looked like loss.
    pub duplicates: u64,
    /// After a probe or a timeout, without a D-SACK that was counted (several may share one, or
    /// come too late), in a run whose queues dropped nothing.
    pub late: u64,
    /// Nothing explains them.
    pub unexplained: u64,
}

impl Symptoms {
    /// Sums what the tenants report.
    pub fn new(reports: &[Report], drops: u64) -> Self {
        let count = |names: &[&str]| -> u64 {
            let counters = names.iter().flat_map(|name| {
                let reports = reports.iter();
                reports.filter_map(move |report| report.netstat.get(*name))
            });
            counters.sum()
        };
        Self {
            retransmits: count(&["RetransSegs"]),
            duplicates: count(&["TCPDSACKRecv", "TCPDSACKOfoRecv"]),
            probes: count(&["TCPLossProbes"]),
            timeouts: count(&["TCPTimeouts"]),
            spurious_timeouts: count(&["TCPSpuriousRTOs"]),
            reordering: count(&["TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"]),
            out_of_order: count(&["TCPOFOQueue"]),
            drops,
        }
    }

    /// Each retransmission to one cause. Where packets were lost, a timeout repeats more than one
    /// segment, and all that were there are its doing.
    pub fn causes(&self) -> Causes {
        let unnecessary = self.retransmits.min(self.duplicates);
        let needed = self.retransmits - unnecessary;
        let drops = needed.min(self.drops);
        let timers = if self.drops > 0 && self.timeouts > 0 {
            unnecessary
        } else {
            self.probes + self.timeouts
        };
        let spurious = unnecessary.min(timers);
        let late = match self.drops {
            0 => needed.min(timers - spurious),
            _ => 0,
        };
        Causes {
            drops,
            spurious,
            duplicates: unnecessary - spurious,
            late,
            unexplained: needed - drops - late,
        }
    }

    /// One line for people, if anything was sent again.
    pub fn note(&self) -> Option<String> {
        let causes = self.causes();
        (self.retransmits > 0).then(|| {
            format!(
                "{} retransmissions: {} lost (queues dropped {}), {} spurious after a timer (D-SACK; {} tail loss probes, \
                 {} timeouts, {} of them spurious by F-RTO), {} duplicates without a timer, {} late, {} unexplained",
                self.retransmits,
                causes.drops,
                self.drops,
                causes.spurious,
                self.probes,
                self.timeouts,
                self.spurious_timeouts,
                causes.duplicates,
                causes.late,
                causes.unexplained
            )
        })
    }

    /// Symptoms that nothing within the experiment explains, by counter. Where a queue dropped
    /// packets, segments behind them arrive out of order.
    pub fn trouble(&self) -> BTreeMap<String, u64> {
        let causes = self.causes();
        let without_drops = |count: u64| if self.drops > 0 { 0 } else { count };
        BTreeMap::from([
            ("tcp_retransmits".to_owned(), causes.unexplained),
            ("tcp_dsack".to_owned(), without_drops(causes.duplicates)),
            ("tcp_reordering".to_owned(), without_drops(self.reordering)),
            (
                "tcp_out_of_order".to_owned(),
                without_drops(self.out_of_order),
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_explains_one_retransmission_where_nothing_was_lost() {
        let symptoms = Symptoms {
            retransmits: 10,
            duplicates: 6,
            probes: 8,
            ..Symptoms::default()
        };
        let causes = symptoms.causes();
        assert_eq!(
            (causes.spurious, causes.late, causes.unexplained),
            (6, 2, 2)
        );
        assert_eq!(symptoms.trouble()["tcp_retransmits"], 2);
        assert!(symptoms.note().unwrap().contains("2 unexplained"));
        let lossy = Symptoms {
            drops: 1,
            ..symptoms
        };
        assert_eq!((lossy.causes().late, lossy.causes().unexplained), (0, 3));
    }

    #[test]
    fn a_packet_dropped_explains_one_retransmission() {
        let symptoms = Symptoms {
            retransmits: 10,
            duplicates: 1,
            out_of_order: 50,
            drops: 8,
            ..Symptoms::default()
        };
        let causes = symptoms.causes();
        assert_eq!((causes.drops, causes.unexplained), (8, 1));
        assert_eq!(symptoms.trouble()["tcp_out_of_order"], 0);
    }

    #[test]
    fn a_duplicate_without_a_timer_is_trouble() {
        let symptoms = Symptoms {
            retransmits: 3,
            duplicates: 3,
            timeouts: 1,
            reordering: 2,
            ..Symptoms::default()
        };
        let trouble = symptoms.trouble();
        assert_eq!((trouble["tcp_dsack"], trouble["tcp_reordering"]), (2, 2));
        assert_eq!(trouble["tcp_retransmits"], 0);
    }

    #[test]
    fn a_clean_run_needs_no_line() {
        assert_eq!(Symptoms::default().note(), None);
        assert!(Symptoms::default().trouble().values().all(|n| *n == 0));
    }
}
