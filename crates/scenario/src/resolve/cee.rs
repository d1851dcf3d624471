//! `[network.cee]`: converged Ethernet.

use std::time::Duration;

use sluicegate_config::{
    bound::Bytes,
    problem::Complaint,
    table::{Item, Table},
    units::{format_bytes, format_rate, parse_bytes},
};
use sluicegate_fabric::Routing;
use sluicegate_fabric::cee::{
    Buffer, CeeConfig, EtsClass, EtsConfig, PRIORITIES, Pause, PfcConfig, QcnConfig, QcnParams,
    Sampling, Span,
};

use super::{
    ETHERNET_BYTES, delay,
    network::{read_rate, read_size},
    ps,
};
use crate::bounds;
use crate::experiment::{Action, Link, Node, SwitchId, Variant};

/// How long a neighbour may take to obey where nothing is said: 6144 bit times at 10 Gb/s (802.1Q
/// annex N).
const RESPONSE: Duration = Duration::from_nanos(614);

/// Reads `[network.cee]` of a network with this routing and those of priorities, in a run that
/// takes `total`.
pub fn read(
    network: &Table<'_>,
    routing: (Routing, &[(u8, Routing)]),
    total: Duration,
) -> Option<CeeConfig> {
    let table = network.table("cee")?;
    for key in ["shared_buffer", "vnic_queue"] {
        network.refuse(key, "with [network.cee], that says what keeps frames");
    }
    refuse_queue(network);
    let defaults = CeeConfig::default();
    let read_delay = |key, default| delay(&table, key, total).map_or(default, ps);
    let forwarding = [("cut-through", true), ("store-and-forward", false)];
    let config = CeeConfig {
        buffer: read_buffer(&table),
        cut_through: table.choice("forwarding", &forwarding).unwrap_or(true),
        switch_delay_ps: read_delay("switch_delay", defaults.switch_delay_ps),
        adapter_delay_ps: read_delay("adapter_delay", defaults.adapter_delay_ps),
        adapter_bytes: read_adapter(&table).unwrap_or(defaults.adapter_bytes),
        resequence_bytes: read_size(&table, "resequence_buffer")
            .unwrap_or(defaults.resequence_bytes),
        pfc: table.table("pfc").map(|pfc| read_pfc(pfc, total)),
        qcn: table.table("qcn").map(|qcn| read_qcn(qcn, routing)),
        ets: table.table("ets").map(read_ets).unwrap_or_default(),
    };
    // What they say has been read.
    table.get("routings");
    table.close();
    Some(config)
}

/// Of the network or of a link: frames wait where they came in.
pub fn refuse_queue(table: &Table<'_>) {
    let reason = "means nothing with [network.cee], which says what a switch keeps: \
        `port_buffer` of each input, or `memory` with `switch = \"shared\"`";
    table.refuse("queue", reason);
}

/// The buffer of an adapter for a priority: a size, or `"unlimited"`.
fn read_adapter(table: &Table<'_>) -> Option<u64> {
    let item = table.get("adapter_buffer")?;
    let bytes = item.parse(|text| match text {
        "unlimited" => Ok(None),
        _ => parse_bytes(text).map(Some).map_err(|complaint| {
            let advice = format!("{}, or \"unlimited\"", complaint.advice);
            Complaint::new(complaint.reason, advice)
        }),
    })?;
    match bytes {
        None => Some(CeeConfig::UNLIMITED),
        Some(bytes) if bounds::SIZE.allows(Bytes(bytes)) => Some(bytes),
        Some(bytes) => {
            let complaint = bounds::SIZE.complaint(Bytes(bytes));
            let reason = format!("{}; or be \"unlimited\"", complaint.reason);
            item.complain(reason, complaint.advice);
            None
        }
    }
}

fn read_buffer(table: &Table<'_>) -> Buffer {
    let kinds = [("input", false), ("shared", true)];
    if !table.choice("switch", &kinds).unwrap_or(false) {
        for key in ["memory", "alpha"] {
            table.refuse(key, "belongs to `switch = \"shared\"`");
        }
        return match read_size(table, "port_buffer") {
            Some(bytes) => Buffer::Input { bytes },
            None => CeeConfig::default().buffer,
        };
    }
    table.refuse("port_buffer", "belongs to `switch = \"input\"`");
    let bytes = read_size(table, "memory");
    if bytes.is_none() && table.get("memory").is_none() {
        table.require(
            "memory",
            "give each switch some, for example memory = \"4MB\"",
        );
    }
    Buffer::Shared {
        bytes: bytes.unwrap_or(4_000_000),
        alpha: table.within("alpha", &bounds::ALPHA).unwrap_or(1.0),
    }
}

fn read_pfc(table: Table<'_>, total: Duration) -> PfcConfig {
    let defaults = PfcConfig::default();
    let config = PfcConfig {
        priorities: read_priorities(&table, defaults.priorities),
        xoff_bytes: read_size(&table, "xoff").unwrap_or(defaults.xoff_bytes),
        xon_bytes: read_size(&table, "xon").unwrap_or(defaults.xon_bytes),
        pause: read_pause(&table, total),
    };
    if config.xon_bytes >= config.xoff_bytes {
        let has = |key| table.get(key).is_some();
        let reason = format!(
            "XON at {}{} must lie below XOFF at {}{}",
            format_bytes(config.xon_bytes),
            marked(!has("xon")),
            format_bytes(config.xoff_bytes),
            marked(!has("xoff"))
        );
        let advice = "give both; a paused input drains by some frames before it goes on";
        complain(
            &table,
            if has("xon") { "xon" } else { "xoff" },
            &reason,
            advice,
        );
    }
    table.close();
    config
}

fn read_pause(table: &Table<'_>, total: Duration) -> Pause {
    let kinds = [("ideal", false), ("wire", true)];
    if !table.choice("pause", &kinds).unwrap_or(false) {
        for key in ["response", "headroom"] {
            table.refuse(key, "belongs to `pause = \"wire\"`");
        }
        return Pause::Ideal;
    }
    Pause::Wire {
        response_ps: ps(delay(table, "response", total).unwrap_or(RESPONSE)),
        headroom_bytes: read_size(table, "headroom"),
    }
}

/// `all`, a priority, or a list of them; bit p for priority p.
fn read_priorities(table: &Table<'_>, default: u8) -> u8 {
    match table.get("priorities") {
        None => default,
        Some(item) if item.is_text() => item.choice(&[("all", u8::MAX)]).unwrap_or(default),
        Some(item) => {
            let bits = item.priorities();
            if item.is_list() && item.one_or_more().is_empty() {
                item.complain("must not be empty", "leave the table out for none");
            }
            bits
        }
    }
}

fn read_qcn(table: Table<'_>, (routing, own): (Routing, &[(u8, Routing)])) -> QcnConfig {
    let presets = [
        ("thesis", (QcnParams::thesis(66_000), 7)),
        ("standard", (QcnParams::standard(), 6)),
    ];
    let (preset, notification_priority) = table.choice("preset", &presets).unwrap_or(presets[0].1);
    let samplings = [("linear", Sampling::Linear), ("steps", Sampling::Steps)];
    let size = |key, default| read_size(&table, key).unwrap_or(default);
    let rate = |key, default| read_rate(&table, key).unwrap_or(default);
    let params = QcnParams {
        set_point_bytes: size("set_point", preset.set_point_bytes),
        weight: table
            .within("weight", &bounds::QCN_WEIGHT)
            .unwrap_or(preset.weight),
        interval_bytes: size("interval", preset.interval_bytes),
        sampling: (table.choice("sampling", &samplings)).unwrap_or(preset.sampling),
        gain: table
            .within("gain", &bounds::QCN_GAIN)
            .unwrap_or(preset.gain),
        min_decrease: table
            .within("min_decrease", &bounds::QCN_MIN_DECREASE)
            .unwrap_or(preset.min_decrease),
        min_rate_bps: rate("min_rate", preset.min_rate_bps),
        active_increase_bps: rate("active_increase", preset.active_increase_bps),
        hyper_increase_bps: rate("hyper_increase", preset.hyper_increase_bps),
        byte_limit: size("byte_limit", preset.byte_limit),
        timer_ps: table
            .within("timer", &bounds::QCN_TIMER)
            .map_or(preset.timer_ps, ps),
        fast_recovery: table
            .within("fast_recovery", &bounds::QCN_FAST_RECOVERY)
            .map_or(preset.fast_recovery, |cycles| cycles as u32),
        extra_fast_recovery: table
            .boolean("extra_fast_recovery")
            .unwrap_or(preset.extra_fast_recovery),
    };
    for (key, never) in [
        ("gain", params.gain == 0.0),
        ("min_decrease", params.min_decrease == 1.0),
    ] {
        if never {
            complain(
                &table,
                key,
                "no notification would lower a rate",
                "see the defaults",
            );
        }
    }
    let priorities = read_priorities(&table, u8::MAX);
    let notification_priority = table
        .within("notification_priority", &bounds::PRIORITY)
        .map_or(notification_priority, |priority| priority as u8);
    let rate_limiters = table.boolean("rate_limiters");
    let is_r3c2 = |routing: &Routing| matches!(routing, Routing::R3c2(_));
    let mut all = own.iter().map(|(_, own)| own).chain([&routing]);
    if all.any(is_r3c2) && rate_limiters == Some(false) {
        let advice = "`r2c2` is the scheme without them";
        complain(&table, "rate_limiters", "r3c2 consists of them", advice);
    }
    table.close();
    QcnConfig {
        priorities,
        notification_priority,
        rate_limiters: rate_limiters.unwrap_or(!matches!(routing, Routing::R2c2(_))),
        params,
    }
}

fn read_ets(table: Table<'_>) -> EtsConfig {
    let Some(item) = table.get("classes") else {
        let advice = "for example classes = [{ priorities = [0, 1], share = 60 }, { priorities = \"rest\", share = 40 }]";
        table.require("classes", advice);
        return EtsConfig::default();
    };
    let mut classes = Vec::new();
    let mut rest = None;
    let mut taken = 0;
    for own in table.tables("classes") {
        let (class, takes_rest) = read_class(&own, taken);
        if takes_rest && rest.replace(classes.len()).is_some() {
            own.item()
                .complain("the rest is in a class already", "name priorities here");
        }
        taken |= class.priorities;
        classes.push(class);
        own.close();
    }
    match rest {
        Some(_) if taken == u8::MAX => {
            item.complain("no priority is left for \"rest\"", "leave that class out")
        }
        Some(at) => classes[at].priorities = !taken,
        None if taken != u8::MAX => {
            let missing = (0..PRIORITIES)
                .find(|at| taken & (1 << at) == 0)
                .unwrap_or(0);
            let advice = "each belongs to one; give the others as priorities = \"rest\"";
            item.complain(format!("priority {missing} is in no class"), advice);
        }
        None => {}
    }
    check_shares(&item, &classes);
    table.close();
    EtsConfig { classes }
}

/// A class, and whether it has the rest of the priorities; `taken` are those of classes before.
fn read_class(own: &Table<'_>, taken: u8) -> (EtsClass, bool) {
    let share = own
        .within("share", &bounds::SHARE)
        .map(|share| share as u32);
    let mut class = EtsClass {
        priorities: 0,
        share,
    };
    let Some(item) = own.get("priorities") else {
        own.require("priorities", "for example priorities = [3], or \"rest\"");
        return (class, false);
    };
    if item.is_text() {
        return (class, item.choice(&[("rest", ())]).is_some());
    }
    class.priorities = item.priorities();
    let twice = class.priorities & taken;
    if twice != 0 {
        let reason = format!("priority {} is in a class already", twice.trailing_zeros());
        item.complain(reason, "a priority belongs to one class");
    } else if class.priorities == 0 {
        item.complain("a class needs a priority", "for example priorities = [3]");
    }
    (class, false)
}

fn check_shares(item: &Item<'_>, classes: &[EtsClass]) {
    let shares: Vec<u32> = classes.iter().filter_map(|class| class.share).collect();
    let sum: u32 = shares.iter().sum();
    if !shares.is_empty() && sum != 100 {
        let advice = "shares are percent of what classes without one (strict ones) leave";
        item.complain(format!("the shares add up to {sum}, not 100"), advice);
    }
}

/// Whether buffers hold what flow control lets come, which depends on links; errors go to the
/// table's sink.
pub fn check(root: &Table<'_>, variant: &Variant) {
    let Some(config) = &variant.cee else {
        return;
    };
    let Some(table) = root
        .table("network")
        .and_then(|network| network.table("cee"))
    else {
        return;
    };
    let frame_bytes = variant.mtu_bytes + ETHERNET_BYTES;
    if config.adapter_bytes < frame_bytes.into() {
        let reason = format!("holds no frame of {frame_bytes} B");
        complain(
            &table,
            "adapter_buffer",
            &reason,
            "choose more, or a smaller `mtu`",
        );
    }
    if let (Some(qcn), Some(own)) = (&config.qcn, table.table("qcn")) {
        check_qcn(&own, variant, config.buffer, &qcn.params);
    }
    let (Some(pfc), Some(own)) = (&config.pfc, table.table("pfc")) else {
        return;
    };
    check_impairments(&own, variant);
    let inputs = inputs(variant, config, pfc);
    let Some(worst) = inputs.iter().max_by_key(|input| input.needed_bytes) else {
        return;
    };
    let headroom_bytes = match pfc.pause {
        Pause::Ideal => worst.needed_bytes,
        Pause::Wire { headroom_bytes, .. } => headroom_bytes.unwrap_or(worst.needed_bytes),
    };
    if matches!(pfc.pause, Pause::Wire { .. }) && headroom_bytes < worst.needed_bytes {
        let (needed, link, mtu) = (worst.needed_bytes, &worst.link.name, variant.mtu_bytes);
        let reason = format!(
            "too little: {needed} B may still come over {link} after XOFF, with its rate and delay, an MTU of {mtu} B and this response"
        );
        let advice = format!("give {needed} B, or leave it out for as much as is needed");
        return complain(&own, "headroom", &reason, &advice);
    }
    match config.buffer {
        Buffer::Input { bytes } => {
            let is_default = table.get("port_buffer").is_none();
            check_input(&own, pfc, (bytes, is_default), headroom_bytes, worst.link);
        }
        Buffer::Shared { bytes, .. } => check_shared(&table, variant, &inputs, pfc, bytes),
    }
}

/// Checks that congestion points can send notifications, and that these can lower rates.
fn check_qcn(own: &Table<'_>, variant: &Variant, buffer: Buffer, params: &QcnParams) {
    let slowest = variant.links.iter().min_by_key(|link| link.rate_bps);
    if let Some(slowest) = slowest.filter(|link| params.min_rate_bps > link.rate_bps) {
        let rate = format_rate(slowest.rate_bps);
        let reason = format!(
            "no notification would lower a rate to that of {}, {rate}",
            slowest.name
        );
        complain(
            own,
            "min_rate",
            &reason,
            "choose less than the slowest link carries",
        );
    }
    let inputs = |switch: SwitchId| {
        let at = Node::Switch(switch);
        variant
            .links
            .iter()
            .filter(|link| link.a == at || link.b == at)
            .count() as u64
    };
    let longest = match buffer {
        Buffer::Shared { bytes, .. } => bytes,
        Buffer::Input { bytes } => {
            let switches = SwitchId::first(variant.switches.len());
            let most = switches.map(inputs).max().unwrap_or(0);
            bytes.saturating_mul(most)
        }
    };
    if params.set_point_bytes >= longest {
        let longest = format_bytes(longest);
        let reason =
            format!("no notification would come: no output queue can hold more than {longest}");
        let advice = "choose less than the buffers of a switch hold";
        complain(own, "set_point", &reason, advice);
    }
}

/// Late and doubled frames come after XOFF, too, and more of them than there is headroom for.
fn check_impairments(own: &Table<'_>, variant: &Variant) {
    let of_links = variant.links.iter().map(|link| {
        let rates = &link.impairment;
        (rates.reorder_rate, rates.duplicate_rate)
    });
    let of_events = variant
        .events
        .iter()
        .filter_map(|event| match &event.action {
            Action::Impair { change, .. } => {
                let rate = |rate: Option<f64>| rate.unwrap_or(0.0);
                Some((rate(change.reorder_rate), rate(change.duplicate_rate)))
            }
            _ => None,
        });
    for (reorders, duplicates) in of_links.chain(of_events) {
        let key = match (reorders > 0.0, duplicates > 0.0) {
            (true, _) => "reorder_rate",
            (_, true) => "duplicate_rate",
            _ => continue,
        };
        let reason = format!(
            "with `{key}` nothing is lossless: frames that are late or doubled come after XOFF, beyond its headroom"
        );
        let advice = format!("leave out `{key}`, or flow control: pfc = false");
        return own.item().complain(reason, advice);
    }
}

/// Checks that an input has room above XOFF. `is_default`: the file does not say the size of its
/// buffer.
fn check_input(
    own: &Table<'_>,
    pfc: &PfcConfig,
    (buffer_bytes, is_default): (u64, bool),
    headroom_bytes: u64,
    link: &Link,
) {
    let needed = pfc.xoff_bytes.saturating_add(headroom_bytes);
    if needed <= buffer_bytes {
        return;
    }
    let of = match own.get("headroom") {
        Some(_) => String::new(),
        None => format!(", which {} needs,", link.name),
    };
    let reason = format!(
        "XOFF at {}{} and a headroom of {headroom_bytes} B{of} take {needed} B, but `port_buffer` is {}{}",
        format_bytes(pfc.xoff_bytes),
        marked(own.get("xoff").is_none()),
        format_bytes(buffer_bytes),
        marked(is_default)
    );
    let raised = format!("raise `port_buffer` to {needed} B");
    let advice = match buffer_bytes.checked_sub(headroom_bytes) {
        Some(most) if most > pfc.xon_bytes => {
            format!("lower `xoff` to {most} B or less, or {raised}")
        }
        Some(most) if most > 0 => {
            format!("lower `xoff` to {most} B or less, and `xon` below it, or {raised}")
        }
        _ => raised,
    };
    complain(own, "xoff", &reason, &advice);
}

/// The text behind a number, which says if it is a default.
fn marked(is_default: bool) -> &'static str {
    if is_default { " (the default)" } else { "" }
}

/// Headroom is set aside for each input and lossless priority.
fn check_shared(
    table: &Table<'_>,
    variant: &Variant,
    inputs: &[Input<'_>],
    pfc: &PfcConfig,
    memory_bytes: u64,
) {
    let lossless = u64::from(pfc.priorities.count_ones());
    let mut reserved = vec![0u64; variant.switches.len()];
    for input in inputs {
        let bytes = match pfc.pause {
            Pause::Wire { headroom_bytes, .. } => headroom_bytes.unwrap_or(input.needed_bytes),
            Pause::Ideal => input.needed_bytes,
        };
        let reserved = &mut reserved[input.switch.index()];
        *reserved = reserved.saturating_add(bytes.saturating_mul(lossless));
    }
    let most = SwitchId::enumerate(reserved).max_by_key(|&(_, bytes)| bytes);
    let Some((switch, bytes)) = most.filter(|&(_, bytes)| bytes >= memory_bytes) else {
        return;
    };
    let reason = format!(
        "headroom for {lossless} lossless priorities takes {bytes} B at {}: nothing is left",
        variant.node_name(Node::Switch(switch))
    );
    let advice = "give more, or make fewer priorities lossless ([network.cee.pfc] `priorities`)";
    complain(table, "memory", &reason, advice);
}

/// A buffer of a switch: for what comes by one of its links.
struct Input<'a> {
    switch: SwitchId,
    link: &'a Link,
    /// Bytes that may still come after XOFF.
    needed_bytes: u64,
}

fn inputs<'a>(variant: &'a Variant, config: &CeeConfig, pfc: &PfcConfig) -> Vec<Input<'a>> {
    let ends = |link: &'a Link| [link.a, link.b].map(|node| (node, link));
    let at_switch = |(node, link)| match node {
        Node::Switch(switch) => Some((switch, link)),
        Node::Host(_) => None,
    };
    let ends: Vec<(SwitchId, &Link)> = variant
        .links
        .iter()
        .flat_map(ends)
        .filter_map(at_switch)
        .collect();
    let mut fastest_bps = vec![0u64; variant.switches.len()];
    for &(switch, link) in &ends {
        let fastest_bps = &mut fastest_bps[switch.index()];
        *fastest_bps = link.rate_bps.max(*fastest_bps);
    }
    let input = |(switch, link): (SwitchId, &'a Link)| {
        let cut_through = config.cut_through && link.rate_bps >= fastest_bps[switch.index()];
        let propagation_ps = ps(link.delay.unwrap_or(variant.sim.link_delay));
        let span = |back_ps| Span {
            rate_bps: link.rate_bps,
            there_ps: propagation_ps + config.switch_delay_ps,
            back_ps,
            frame_bytes: variant.mtu_bytes + ETHERNET_BYTES,
        };
        let needed_bytes = match (pfc.pause, config.buffer) {
            (Pause::Ideal, Buffer::Input { .. }) => span(0).ideal_headroom_bytes(cut_through),
            // As much as a shared memory sets aside.
            (Pause::Ideal, Buffer::Shared { .. }) => span(0).headroom_bytes(cut_through, 0),
            (Pause::Wire { response_ps, .. }, _) => {
                span(propagation_ps).headroom_bytes(cut_through, response_ps)
            }
        };
        Input {
            switch,
            link,
            needed_bytes,
        }
    };
    ends.into_iter().map(input).collect()
}

fn complain(table: &Table<'_>, key: &'static str, reason: &str, advice: &str) {
    let item = table.get(key);
    item.as_ref()
        .unwrap_or(table.item())
        .complain(reason, advice);
}
