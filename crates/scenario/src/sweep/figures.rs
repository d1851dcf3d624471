//! Every scalar figure of a variant's results, by the names of [`figures`](crate::figures).

use crate::{figures::Quantity, results::VariantResult};

/// Figures of the senders of flows, of all or of a traffic table.
const SENDERS: [&str; 6] = [
    "retransmits",
    "timeouts",
    "srtt_us",
    "stalled_us",
    "loss",
    "socket_drops",
];

/// Names of the figures that `result` has, in the order in which `results.json` has them.
pub fn names(result: &VariantResult) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |group: &str, fields: &[&str]| {
        names.extend(fields.iter().map(|field| format!("{group}.{field}")));
    };
    add("goodput_bps", &["sum", "mean", "jain", "max"]);
    add("flows.all", &["count"]);
    add("flows.all", &SENDERS);
    let mut tables: Vec<&str> = result.flows.iter().map(|f| f.traffic.as_str()).collect();
    tables.sort_unstable();
    tables.dedup();
    for table in tables {
        add(&format!("traffic.{table}"), &["goodput_bps", "jain"]);
        add(&format!("traffic.{table}"), &SENDERS);
    }
    add("rtt_us", &["count", "p50", "p99", "p999", "max"]);
    for class in result.fct_us.keys() {
        let fields = [
            "count",
            "unfinished",
            "mean",
            "p50",
            "p99",
            "p999",
            "missed",
        ];
        add(&format!("fct_us.{class}"), &fields);
    }
    for interval in result.intervals.keys() {
        add(
            &format!("intervals.{interval}.goodput_bps"),
            &["sum", "mean", "jain", "max"],
        );
    }
    let queues = ["queue_bytes.p50", "queue_bytes.p99", "queue_bytes.max"];
    for links in ["links.bottleneck", "links.all"] {
        add(links, &["sent", "sent_bytes", "marks", "drops"]);
        add(links, &queues);
        add(
            links,
            &["pauses", "paused_us", "notifications", "ingress_max_bytes"],
        );
    }
    if result.links.iter().any(|link| link.cee.is_some()) {
        names.push("deadlocks".to_owned());
    }
    let mut add = |group: &str, field: &String| names.push(format!("{group}.{field}"));
    for counter in result.enforcement.keys() {
        add("enforcement", counter);
    }
    for name in result.derived.keys() {
        add("derived", name);
    }
    names.retain(|name| value(name, result).is_some());
    names
}

/// The figure of this name; `None` if it was not measured.
pub fn value(name: &str, result: &VariantResult) -> Option<f64> {
    let quantity = Quantity::parse(name).ok()?;
    quantity.value(result).filter(|value| value.is_finite())
}

/// The unit of a figure, as its name tells; `1` for plain numbers.
pub fn unit(name: &str) -> &'static str {
    let part = |end: &str| name.split('.').any(|part| part.ends_with(end));
    let last = name.rsplit('.').next().unwrap_or_default();
    match last {
        "jain" | "missed" | "loss" | "count" | "unfinished" | "timeouts" | "deadlocks" => {
            return "1";
        }
        "pauses" | "notifications" => return "frames",
        "socket_drops" => return "packets",
        "retransmits" => return "segments",
        _ => {}
    }
    if part("_us") {
        "us"
    } else if part("_bps") {
        "bit/s"
    } else if part("_bytes") {
        "bytes"
    } else if name.starts_with("links.") {
        "packets"
    } else {
        "1"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{FctQuantiles, FlowResult, LinkResult, QueueQuantiles};

    fn result() -> VariantResult {
        let fct = |count, mean| FctQuantiles {
            count,
            mean,
            ..FctQuantiles::default()
        };
        VariantResult {
            flows: vec![FlowResult {
                traffic: "bulk".to_owned(),
                goodput_bps: 5.0,
                ..FlowResult::default()
            }],
            fct_us: [
                ("query".to_owned(), fct(3, Some(7.5))),
                ("none".to_owned(), fct(0, None)),
            ]
            .into(),
            links: vec![LinkResult {
                bottleneck: true,
                queue_bytes: QueueQuantiles {
                    p99: Some(1.0),
                    ..QueueQuantiles::default()
                },
                ..LinkResult::default()
            }],
            enforcement: [("policed".to_owned(), 2)].into(),
            ..VariantResult::default()
        }
    }

    #[test]
    fn figures_are_those_that_were_measured() {
        let names = names(&result());
        for present in [
            "traffic.bulk.goodput_bps",
            "fct_us.query.mean",
            "fct_us.none.count",
            "links.bottleneck.drops",
            "links.all.queue_bytes.p99",
            "enforcement.policed",
        ] {
            assert!(
                names.iter().any(|name| name == present),
                "{present}: {names:?}"
            );
        }
        for absent in [
            "fct_us.none.mean",
            "fct_us.query.missed",
            "rtt_us.p50",
            "links.all.queue_bytes.p50",
            "flows.all.retransmits",
        ] {
            assert!(!names.iter().any(|name| name == absent), "{absent}");
        }
        assert_eq!(value("fct_us.query.mean", &result()), Some(7.5));
    }

    #[test]
    fn units_follow_from_names() {
        for (name, expected) in [
            ("goodput_bps.sum", "bit/s"),
            ("goodput_bps.jain", "1"),
            ("intervals.two.goodput_bps.mean", "bit/s"),
            ("rtt_us.p99", "us"),
            ("fct_us.query.count", "1"),
            ("links.all.queue_bytes.max", "bytes"),
            ("links.all.sent_bytes", "bytes"),
            ("links.bottleneck.drops.tail", "packets"),
            ("links.all.pauses", "frames"),
            ("links.all.paused_us", "us"),
            ("links.all.ingress_max_bytes", "bytes"),
            ("flows.all.retransmits", "segments"),
            ("derived.window_correlation", "1"),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }
}
