//! From TOML to [`Policy`].

use std::{path::Path, time::Duration};

use ipnet::IpNet;
use sluicegate_config::{
    Problems, document,
    problem::{Complaint, Sink},
    table::{Item, Table},
    units::{format_duration, parse_bytes, parse_duration, parse_rate},
};
use sluicegate_core::{
    abi,
    cc::{Algorithm, Needs},
};

use crate::{
    bucket::{Bucket, Class},
    file::PolicyFile,
    place::Where,
    rule::{MSS_RANGE, Mode, Mptcp, Policy, PortRange, Ports, Rule, Swift, Threshold},
    warning::{Warning, Weight},
    way_out::At,
};

impl Policy {
    /// Reads a policy from text; `file` is its name in messages.
    ///
    /// # Errors
    /// Every error in the file; a policy with any is refused as a whole.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        Ok(Self::parse_with_warnings(file, text)?.0)
    }

    /// Reads a policy from text, with what is allowed but probably not meant.
    ///
    /// # Errors
    /// As [`Policy::parse`].
    pub fn parse_with_warnings(file: &str, text: &str) -> Result<(Self, Vec<Warning>), Problems> {
        let node = document::parse(file, text)?;
        let sink = Sink::default();
        let policy = Self::from_table(Table::root(&node, &sink));
        let policy = sink.finish(policy)?;
        let sink = Sink::default();
        let root = Table::root(&node, &sink);
        let (rules, buckets) = (root.tables("rule"), root.tables("bucket"));
        let one_way = policy.one_way_rules().into_iter();
        let one_way = one_way.map(|(index, complaint)| {
            let item = rules[index].item();
            Warning {
                weight: Weight::Warning,
                problem: item.place().problem(item.path(), complaint),
                snippet: String::new(),
            }
        });
        let absolute = policy.absolute_thresholds().into_iter();
        let absolute = absolute.map(|(index, complaint)| {
            let item = rules[index].item();
            Warning {
                weight: Weight::Warning,
                problem: item.place().problem(item.path(), complaint),
                snippet: String::new(),
            }
        });
        let ways_out = policy.ways_out().into_iter().map(|way_out| {
            let item = match way_out.at {
                At::Rule(index) => rules[index].item(),
                At::Bucket(index) => buckets[index].item(),
            };
            Warning {
                weight: way_out.weight,
                problem: item.place().problem(item.path(), way_out.complaint),
                snippet: way_out.snippet,
            }
        });
        let warnings = one_way.chain(absolute).chain(ways_out).collect();
        Ok((policy, warnings))
    }

    /// Reads a policy file.
    ///
    /// # Errors
    /// As [`Policy::parse`], or one problem that says why the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        Ok(Self::read_with_warnings(path)?.0)
    }

    /// Reads a policy file, with what is allowed but probably not meant.
    ///
    /// # Errors
    /// As [`Policy::read`].
    pub fn read_with_warnings(path: &Path) -> Result<(Self, Vec<Warning>), Problems> {
        PolicyFile::read(path)?.policy()
    }

    /// Reads the keys of a policy from a table; errors go to the table's sink.
    pub fn from_table(table: Table<'_>) -> Self {
        let trusted = read_trusted(&table);
        let mut rules = Vec::new();
        let mut compiled = 0;
        for rule_table in table.tables("rule") {
            let item = rule_table.item().clone();
            let rule = read_rule(rule_table);
            compiled += rule.compiled_rules();
            if compiled > abi::RULES_MAX {
                item.complain(
                    format!("a policy holds at most {} rules", abi::RULES_MAX),
                    "merge rules; one with `port` counts twice",
                );
                break;
            }
            rules.push(rule);
        }
        let buckets = read_buckets(&table);
        table.close();
        Self {
            trusted,
            rules,
            buckets,
        }
    }
}

fn read_trusted(table: &Table<'_>) -> Vec<IpNet> {
    let Some(item) = table.get("trusted") else {
        return Vec::new();
    };
    let items = item.list().unwrap_or_default();
    if items.len() > abi::TRUSTED_MAX {
        item.complain(
            format!("at most {} prefixes can be trusted", abi::TRUSTED_MAX),
            "merge neighbouring prefixes",
        );
    }
    let parsed = items.iter().filter_map(|item| item.parse(parse_prefix));
    parsed.collect()
}

fn read_rule(table: Table<'_>) -> Rule {
    let default = Rule::default();
    let mode = table.choice("mode", &Mode::NAMES);
    let algorithm = table.choice("algorithm", &Algorithm::NAMES);
    let algorithm = algorithm.unwrap_or(default.algorithm);
    let one_sided = read_one_sided(&table, algorithm);
    let fallback = read_fallback(&table, algorithm, one_sided);
    let used = [algorithm, one_sided, fallback];
    refuse_unused(&table, &used);
    let vegas_backlog = read_vegas_backlog(&table);
    let (source, destination) = read_prefixes(&table);
    let rule = Rule {
        name: table.text("name").map(str::to_owned),
        source,
        destination,
        ports: read_ports(&table),
        place: read_place(&table),
        vlan: table
            .integer("vlan", 0..=4094)
            .and_then(|id| u16::try_from(id).ok()),
        mode: mode.unwrap_or(default.mode),
        algorithm,
        one_sided,
        fallback,
        beta: table.number("beta", 0.0..=1.0).unwrap_or(default.beta),
        beta_growth: table.boolean("beta_growth").unwrap_or(default.beta_growth),
        gain_shift: read_gain(&table).unwrap_or(default.gain_shift),
        window_cap_bytes: read_window(&table, "window_cap").unwrap_or(default.window_cap_bytes),
        rate_cap_bps: read_rate_cap(&table),
        window_bytes: read_fixed_window(&table, &used),
        k: table.parse("k", parse_threshold),
        vegas_backlog,
        swift: read_swift(&table),
        mss_bytes: read_mss(&table),
        floor_mss: small(&table, "floor_mss", 1, 2).unwrap_or(default.floor_mss),
        initial_window_segments: small(&table, "initial_window", 1, 64)
            .unwrap_or(default.initial_window_segments),
        rto_min: read_rto_min(&table).unwrap_or(default.rto_min),
        police: table.boolean("police").unwrap_or(default.police),
        mptcp: table
            .choice("mptcp", &[("pass", Mptcp::Pass), ("strip", Mptcp::Strip)])
            .unwrap_or(default.mptcp),
    };
    table.close();
    rule
}

fn small(table: &Table<'_>, key: &'static str, low: u8, high: u8) -> Option<u8> {
    let value = table.integer(key, i64::from(low)..=i64::from(high))?;
    u8::try_from(value).ok()
}

/// A rule that names K means DC-Vegas.
fn read_one_sided(table: &Table<'_>, algorithm: Algorithm) -> Algorithm {
    let default = match algorithm.needs() {
        Needs::Peer if table.get("k").is_some() => Algorithm::Dcvegas,
        Needs::Peer => Rule::default().one_sided,
        Needs::Nothing => algorithm,
    };
    let Some(item) = table.get("one_sided") else {
        return default;
    };
    match item.choice(&Algorithm::NAMES) {
        Some(chosen) if chosen.needs() == Needs::Peer => {
            let independent = names(|it| it.needs() == Needs::Nothing);
            item.complain(
                format!("{chosen} needs the feedback of a peer that enforces"),
                format!(
                    "use one that works from one side: {}",
                    independent.join(", ")
                ),
            );
            default
        }
        chosen => chosen.unwrap_or(default),
    }
}

/// Keys that say how much delay, or how large a window, is right for the paths of a rule.
const THRESHOLDS: [&str; 5] = ["k", "vegas_alpha", "vegas_beta", "swift_target", "window"];

/// CUBIC where the path does not suit the rule's algorithms, unless the rule names a threshold:
/// then the operator knows the path. A window that is named suits every path.
fn read_fallback(table: &Table<'_>, algorithm: Algorithm, one_sided: Algorithm) -> Algorithm {
    let used = [one_sided, algorithm];
    if used == [Algorithm::Cubic; 2] {
        table.refuse(
            "fallback",
            "stands in for algorithms that a path does not suit, and cubic suits every path",
        );
        return algorithm;
    }
    let named = |it: &&Algorithm| {
        let mut keys = it.keys().iter().filter(|key| THRESHOLDS.contains(key));
        keys.any(|key| table.get(key).is_some())
    };
    let fixed = used.iter().find(|it| **it == Algorithm::Fixed);
    let known = fixed.or_else(|| used.iter().find(named)).copied();
    table
        .choice("fallback", &Algorithm::NAMES)
        .unwrap_or(known.unwrap_or(Algorithm::Cubic))
}

fn read_place(table: &Table<'_>) -> Where {
    Where {
        interfaces: read_patterns(table, "interface"),
        tenants: read_patterns(table, "tenant"),
    }
}

/// The elements of a list, or the value itself. An empty list would read as nothing and mean
/// everything.
fn one_or_more<'a>(table: &Table<'a>, key: &'static str) -> Vec<Item<'a>> {
    let Some(item) = table.get(key) else {
        return Vec::new();
    };
    let items = item.one_or_more();
    if items.is_empty() {
        item.complain("lists nothing", "leave it out if it does not matter");
    }
    items
}

fn read_patterns(table: &Table<'_>, key: &'static str) -> Vec<glob::Pattern> {
    one_or_more(table, key)
        .into_iter()
        .filter_map(|item| {
            let text = item.text()?;
            let pattern = glob::Pattern::new(text);
            pattern
                .map_err(|error| {
                    item.complain(
                        format!("\"{text}\" is no pattern: {error}"),
                        "write names or shell patterns such as \"veth*\" or \"tap-[ab]\"",
                    );
                })
                .ok()
        })
        .collect()
}

fn read_buckets(table: &Table<'_>) -> Vec<Bucket> {
    let tables = table.tables("bucket");
    if let Some(more) = tables.get(abi::BUCKETS_MAX) {
        more.item().complain(
            format!("a policy holds at most {} buckets", abi::BUCKETS_MAX),
            "give one bucket several classes",
        );
    }
    tables.into_iter().map(read_bucket).collect()
}

fn read_bucket(table: Table<'_>) -> Bucket {
    if table.get("rate").is_none() {
        table.require("rate", "for example \"100Mbit\"");
    }
    let rate_bps = table.get("rate").and_then(|item| {
        let rate_bps = item.parse(parse_rate)?;
        if (1_000..=1_000_000_000_000).contains(&rate_bps) {
            return Some(rate_bps);
        }
        item.complain("must lie between 1Kbit and 1Tbit", "");
        None
    });
    let rate_bps = rate_bps.unwrap_or(1_000_000);
    let mode = table.choice("mode", &[("observe", false), ("enforce", true)]);
    let bucket = Bucket {
        name: table.text("name").map(str::to_owned),
        place: read_place(&table),
        classes: read_classes(&table),
        rate_bps,
        burst_bytes: read_burst(&table, rate_bps),
        enforce: mode.unwrap_or(false),
    };
    table.close();
    bucket
}

/// Two frames of the smallest MTU that IPv6 has.
const BURST_MIN_BYTES: u64 = 3 << 10;

/// Ten milliseconds' worth, and ten frames of 1500 bytes.
fn read_burst(table: &Table<'_>, rate_bps: u64) -> u64 {
    let default = (rate_bps / 800).max(15 << 10);
    let Some(item) = table.get("burst") else {
        return default;
    };
    match item.parse(parse_bytes) {
        Some(bytes) if (BURST_MIN_BYTES..=1 << 30).contains(&bytes) => bytes,
        Some(_) => {
            item.complain(
                "must lie between 3KiB and 1GiB",
                "two frames must fit; a larger packet passes where the bucket is full",
            );
            default
        }
        None => default,
    }
}

fn read_classes(table: &Table<'_>) -> Vec<Class> {
    if table.get("class").is_none() {
        return Class::NON_TCP.to_vec();
    }
    let mut choices: Vec<(&str, &[Class])> = Class::ALL
        .iter()
        .map(|class| (class.name(), std::slice::from_ref(class)))
        .collect();
    choices.push(("non-tcp", &Class::NON_TCP));
    one_or_more(table, "class")
        .into_iter()
        .filter_map(|item| item.choice(&choices))
        .flatten()
        .copied()
        .collect()
}

fn read_rate_cap(table: &Table<'_>) -> Option<u64> {
    let item = table.get("rate_cap")?;
    let rate_bps = item.parse(parse_rate)?;
    if (1_000_000..=1_000_000_000_000).contains(&rate_bps) {
        return Some(rate_bps);
    }
    item.complain(
        "must lie between 1Mbit and 1Tbit",
        "a window of two segments cannot hold less; see docs/policy.md",
    );
    None
}

fn read_mss(table: &Table<'_>) -> Option<u16> {
    let item = table.get("mss")?;
    let bytes = item.parse(parse_bytes)?;
    let mss = u16::try_from(bytes).ok();
    if let Some(mss) = mss.filter(|mss| MSS_RANGE.contains(mss)) {
        return Some(mss);
    }
    item.complain(
        format!(
            "must lie between {}B and {}B",
            MSS_RANGE.start(),
            MSS_RANGE.end()
        ),
        "write for example \"1460B\", an MTU of 1500 bytes less 40 bytes of headers",
    );
    None
}

fn read_prefixes(table: &Table<'_>) -> (Option<IpNet>, Option<IpNet>) {
    let source = table.parse("source", parse_any_prefix).flatten();
    let destination = table.parse("destination", parse_any_prefix).flatten();
    if let (Some(source), Some(destination)) = (source, destination) {
        let same_family = source.addr().is_ipv4() == destination.addr().is_ipv4();
        if !same_family {
            table.item().complain(
                format!("source {source} and destination {destination} never meet in one packet"),
                "use prefixes of one address family",
            );
        }
    }
    (source, destination)
}

fn parse_any_prefix(text: &str) -> Result<Option<IpNet>, Complaint> {
    if text == "any" {
        return Ok(None);
    }
    parse_prefix(text).map(Some)
}

/// A prefix such as `10.0.0.0/8` or `fd00::/64`; an address alone is a prefix of full length.
fn parse_prefix(text: &str) -> Result<IpNet, Complaint> {
    let advice = "write for example \"10.0.0.0/8\" or \"fd00::/64\"";
    let prefix: IpNet = match text.parse::<std::net::IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text
            .parse()
            .map_err(|_| Complaint::new(format!("\"{text}\" is not a prefix"), advice))?,
    };
    if prefix.trunc() != prefix {
        return Err(Complaint::new(
            format!("{prefix} has bits set beyond its length"),
            format!("write \"{}\"", prefix.trunc()),
        ));
    }
    Ok(prefix)
}

fn read_ports(table: &Table<'_>) -> Ports {
    let either = table.get("port");
    let source = table.get("source_port").and_then(|item| read_port(&item));
    let destination = table
        .get("destination_port")
        .and_then(|item| read_port(&item));
    if let Some(item) = either {
        if source.is_some() || destination.is_some() {
            item.complain(
                "excludes `source_port` and `destination_port`",
                "`port` means either end: give it alone, or give the two others",
            );
        }
        return Ports::Either(read_port(&item).unwrap_or(PortRange::ANY));
    }
    Ports::Both(
        source.unwrap_or(PortRange::ANY),
        destination.unwrap_or(PortRange::ANY),
    )
}

fn read_port(item: &Item<'_>) -> Option<PortRange> {
    item.parse(|text| {
        let complaint = || {
            Complaint::new(
                format!("\"{text}\" is not a port or a range of ports"),
                "write for example 443 or \"5000-5999\"",
            )
        };
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let low = low.trim().parse().map_err(|_| complaint())?;
        let high = high.trim().parse().map_err(|_| complaint())?;
        if low > high {
            return Err(complaint());
        }
        Ok(PortRange { low, high })
    })
}

/// Refuses constants of algorithms that the rule does not use.
fn refuse_unused(table: &Table<'_>, used: &[Algorithm]) {
    let mut keys: Vec<&str> = Algorithm::ALL
        .iter()
        .flat_map(|it| it.keys())
        .copied()
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| !used.iter().any(|it| it.keys().contains(key)));
    for key in keys {
        let owners = names(|it| it.keys().contains(&key)).join(" and ");
        let reason = format!("is a constant of {owners}, which this rule does not use");
        table.refuse(key, &reason);
    }
}

/// Names of the algorithms of which this holds.
fn names(holds: impl Fn(&Algorithm) -> bool) -> Vec<&'static str> {
    let all = Algorithm::ALL.into_iter().filter(holds);
    all.map(Algorithm::name).collect()
}

fn read_gain(table: &Table<'_>) -> Option<u8> {
    table.parse("g", |text| {
        let complaint = || {
            Complaint::new(
                format!("{text} is not a power of two from 1/2 to 1/1024"),
                "write for example \"1/16\" or 0.0625",
            )
        };
        let value: f64 = match text.split_once('/') {
            Some(("1", divisor)) => 1.0 / divisor.trim().parse::<f64>().map_err(|_| complaint())?,
            _ => text.parse().map_err(|_| complaint())?,
        };
        let mut shifts = 1..=10u8;
        shifts
            .find(|shift| value == 1.0 / f64::from(1u32 << shift))
            .ok_or_else(complaint)
    })
}

fn read_window(table: &Table<'_>, key: &'static str) -> Option<u32> {
    let item = table.get(key)?;
    let bytes = item.parse(parse_bytes)?;
    match u32::try_from(bytes) {
        Ok(bytes @ 1..=abi::WINDOW_MAX) => Some(bytes),
        _ => {
            item.complain(
                "must lie between 1B and 8MiB",
                "larger windows could hide a wrap of the 24-bit feedback counters",
            );
            None
        }
    }
}

/// There is no default for it.
fn read_fixed_window(table: &Table<'_>, used: &[Algorithm]) -> Option<u32> {
    let wants = used.iter().find(|it| it.keys().contains(&"window"));
    if let (Some(algorithm), None) = (wants, table.get("window")) {
        let advice = format!("algorithm \"{algorithm}\" needs it, for example \"100KB\"");
        table.require("window", &advice);
    }
    read_window(table, "window")
}

fn parse_threshold(text: &str) -> Result<Threshold, Complaint> {
    let advice = "write packets of the flow such as \"6 packets\" (1 to 255), its bytes such as \
                  \"30KB\" (up to 8MiB), or a delay such as \"25us\" (up to 1s)";
    let complaint = || Complaint::new(format!("\"{text}\" is no queueing threshold"), advice);
    if let Some(count) = packets(text) {
        let count = count.parse().ok().filter(|count| *count > 0);
        return count.map(Threshold::Segments).ok_or_else(complaint);
    }
    if let Ok(bytes) = parse_bytes(text) {
        let bytes = u32::try_from(bytes)
            .ok()
            .filter(|b| (1..=abi::WINDOW_MAX).contains(b));
        return bytes.map(Threshold::Bytes).ok_or_else(complaint);
    }
    match parse_duration(text) {
        Ok(delay) if !delay.is_zero() && delay <= Duration::from_secs(1) => {
            Ok(Threshold::Delay(delay))
        }
        _ => Err(complaint()),
    }
}

/// The text before the unit in "6 packets" or "1 packet".
fn packets(text: &str) -> Option<&str> {
    let count = text.trim().strip_suffix("packet");
    count
        .or_else(|| text.trim().strip_suffix("packets"))
        .map(str::trim)
}

fn read_vegas_backlog(table: &Table<'_>) -> (u8, u8) {
    let default = Rule::default().vegas_backlog;
    let alpha = small(table, "vegas_alpha", 1, 255).unwrap_or(default.0);
    let beta = small(table, "vegas_beta", 1, 255).unwrap_or(default.1.max(alpha));
    if alpha > beta {
        table.item().complain(
            format!("vegas_alpha = {alpha} is above vegas_beta = {beta}"),
            "the lower bound comes first",
        );
    }
    (alpha, beta)
}

fn read_swift(table: &Table<'_>) -> Swift {
    let default = Swift::default();
    let second = Duration::from_secs(1);
    let delay = |key, least| {
        let item = table.get(key)?;
        let delay = item.parse(parse_duration)?;
        if (least..=second).contains(&delay) {
            return Some(delay);
        }
        let least = format_duration(least);
        item.complain(format!("must lie between {least} and 1s"), "");
        None
    };
    let number = |key, low, high| table.number(key, low..=high);
    Swift {
        target: delay("swift_target", Duration::from_micros(1)),
        range: delay("swift_range", Duration::ZERO).unwrap_or(default.range),
        ai: number("swift_ai", 0.01, 16.0).unwrap_or(default.ai),
        beta: number("swift_beta", 0.01, 1.0).unwrap_or(default.beta),
        max_mdf: number("swift_max_mdf", 0.01, 0.9).unwrap_or(default.max_mdf),
    }
}

fn read_rto_min(table: &Table<'_>) -> Option<Duration> {
    let item = table.get("rto_min")?;
    let rto_min = item.parse(parse_duration)?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(60);
    if !allowed.contains(&rto_min) {
        item.complain("must lie between 1ms and 60s", "Linux senders use 200ms");
        return None;
    }
    Some(rto_min)
}
