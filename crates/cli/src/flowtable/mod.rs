//! Flows as rows of a table: what `sluicegate flows` and `sluicegate top` have in common.

mod column;
mod filter;

use sluicegate_agent::{FlowRecord, meter::Amounts};

pub use self::{
    column::{Column, Value, rate},
    filter::Filter,
};

/// A flow, and how fast it is if it was looked at before.
#[derive(Clone, Debug)]
pub struct Row {
    /// The flow.
    pub flow: FlowRecord,
    /// Rates since an earlier look.
    pub rates: Option<Rates>,
}

/// Amounts per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Rates {
    /// Payload acknowledged, in bits per second.
    pub acked_bps: f64,
    /// Of it, what met congestion marks, in bits per second.
    pub marked_bps: f64,
    /// Payload towards the tenant, in bits per second.
    pub received_bps: f64,
    /// Losses and timeouts per second.
    pub losses_per_s: f64,
    /// Segments policed per second.
    pub policed_per_s: f64,
}

impl Rates {
    /// Of what happened within `seconds`, which are more than 0.
    pub fn of(news: Amounts, seconds: f64) -> Self {
        let per_second = |amount: u64| amount as f64 / seconds;
        Self {
            acked_bps: 8.0 * per_second(news.acked_bytes),
            marked_bps: 8.0 * per_second(news.marked_bytes),
            received_bps: 8.0 * per_second(news.received_bytes),
            losses_per_s: per_second(news.losses + news.timeouts),
            policed_per_s: per_second(news.policed),
        }
    }

    /// Of the bytes acknowledged, which part met marks; `None` if there were none.
    pub fn marked_share(&self) -> Option<f64> {
        (self.acked_bps > 0.0).then(|| (self.marked_bps / self.acked_bps).min(1.0))
    }
}

/// In which order rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// By this column.
    pub column: Column,
    /// Largest first, or z before a.
    pub descending: bool,
}

impl Order {
    /// By `column`, numbers from the largest down, names from a to z.
    pub fn natural(column: Column) -> Self {
        Self {
            column,
            descending: column.is_number(),
        }
    }

    /// Sorts `indices` into `rows`; what is equal stays as listings have it, what has no value
    /// comes last.
    pub fn sort(&self, rows: &[Row], indices: &mut [usize]) {
        let keys: Vec<Value<'_>> = rows.iter().map(|row| self.column.value(row)).collect();
        indices.sort_by(|&a, &b| {
            let (key_a, key_b) = (&keys[a], &keys[b]);
            let by_key = match (key_a.is_none(), key_b.is_none()) {
                (false, false) if self.descending => key_b.compare(key_a),
                (false, false) => key_a.compare(key_b),
                (none_a, none_b) => none_a.cmp(&none_b),
            };
            by_key.then_with(|| FlowRecord::order(&rows[a].flow, &rows[b].flow))
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A flow of `interface` from port `port`.
    pub(crate) fn flow(interface: &str, port: u16) -> FlowRecord {
        FlowRecord {
            interface: interface.to_owned(),
            tenant: interface.to_owned(),
            ifindex: 1,
            vlan: None,
            local: ([10, 0, 0, 1], port).into(),
            remote: ([10, 0, 0, 2], 5201).into(),
            rule_mode: "observe",
            rule: Some(0),
            rule_name: None,
            mode: "one-sided",
            reason: Some("observe"),
            noticed: Vec::new(),
            enforced: false,
            algorithm: Some("dctcp"),
            cwnd_bytes: 20_000,
            ssthresh_bytes: None,
            allowed_window_bytes: Some(20_480),
            enforced_window_bytes: 1 << 20,
            advertised_window_bytes: 1 << 20,
            alpha: Some(0.5),
            srtt_us: Some(250.0),
            min_rtt_us: Some(100.0),
            mss_bytes: 1460,
            flight_bytes: 0,
            acked_bytes: 1000,
            marked_bytes: 10,
            received_bytes: 500,
            losses: 1,
            timeouts: 2,
            policed: 0,
            idle_ms: 5,
        }
    }

    pub(crate) fn row(interface: &str, port: u16) -> Row {
        Row {
            flow: flow(interface, port),
            rates: None,
        }
    }

    fn ports(rows: &[Row], order: Order) -> Vec<u16> {
        let mut indices: Vec<usize> = (0..rows.len()).collect();
        order.sort(rows, &mut indices);
        indices.iter().map(|&i| rows[i].flow.local.port()).collect()
    }

    #[test]
    fn numbers_descend_names_ascend_and_nothing_comes_last() {
        let mut rows = vec![row("b", 1), row("a", 2), row("c", 3)];
        rows[0].flow.srtt_us = Some(9.0);
        rows[1].flow.srtt_us = None;
        rows[2].flow.srtt_us = Some(100.0);
        assert_eq!(ports(&rows, Order::natural(Column::Interface)), [2, 1, 3]);
        let by_rtt = Order::natural(Column::Srtt);
        assert_eq!(ports(&rows, by_rtt), [3, 1, 2]);
        let ascending = Order {
            descending: false,
            ..by_rtt
        };
        assert_eq!(ports(&rows, ascending), [1, 3, 2]);
    }

    #[test]
    fn equals_stay_in_the_order_of_listings() {
        let rows = vec![row("a", 3), row("a", 1), row("a", 2)];
        assert_eq!(ports(&rows, Order::natural(Column::Mode)), [1, 2, 3]);
        assert_eq!(ports(&rows, Order::natural(Column::Acked)), [1, 2, 3]);
    }

    #[test]
    fn rates_are_per_second() {
        let news = Amounts {
            acked_bytes: 1000,
            marked_bytes: 250,
            losses: 1,
            timeouts: 1,
            ..Amounts::default()
        };
        let rates = Rates::of(news, 2.0);
        assert_eq!((rates.acked_bps, rates.losses_per_s), (4000.0, 1.0));
        assert_eq!(rates.marked_share(), Some(0.25));
        assert_eq!(Rates::default().marked_share(), None);
        assert_eq!(json!(rates)["marked_bps"], json!(1000.0));
    }
}
