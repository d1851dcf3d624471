//! What `[traffic.NAME]` says, and what it refuses.

use std::path::Path;

use sluicegate_scenario::{
    experiment::Variant,
    file::{self, Options},
};

/// Ends at line 3.
const PAIR: &str = "[network]\ntopology = 'dumbbell'\npairs = 1\n";

fn parse(text: &str) -> Result<Variant, String> {
    let parsed = file::parse(Path::new("t.toml"), text, &Options::default());
    let parsed = parsed.map(|mut experiment| experiment.variants.remove(0));
    parsed.map_err(|problems| problems.to_string())
}

/// Of a pair with this traffic.
fn one(traffic: &str) -> Variant {
    parse(&format!("{PAIR}{traffic}")).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The first line of what is said of a pair with this traffic.
fn refusal(traffic: &str) -> String {
    match parse(&format!("{PAIR}{traffic}")) {
        Ok(variant) => panic!("accepted: {variant:?}"),
        Err(problems) => problems,
    }
}

#[test]
fn every_kind_of_traffic_may_have_a_priority() {
    let variant = one(
        "[traffic.a]\nkind = 'bulk'\npriority = 7\n[traffic.b]\nkind = 'ping-pong'\n\
        [traffic.c]\nkind = 'trace'\nsizes = 'websearch'\nload = '1Mbit'\npriority = 3\n",
    );
    let priorities = variant.traffic.iter().map(|traffic| traffic.priority);
    assert_eq!(priorities.collect::<Vec<_>>(), [7, 0, 3]);
    let text = refusal("[traffic.a]\nkind = 'bulk'\npriority = 8\n");
    assert!(text.contains("t.toml:6:12: traffic.a.priority: "), "{text}");
}
