//! Tables and Markdown, to the letter.

use sluicegate_report::{Published, Style, html, markdown, published, table};
use sluicegate_scenario::results::{
    Datagrams, FctQuantiles, Protocol, PublishedResult, Results, SeriesKind, Verdict, VnicResult,
};

use crate::support;

const BOX: Style = Style {
    unicode: true,
    colour: false,
    width: 110,
};

/// The dumbbell with two variants, one alarm and one note.
fn two_variants() -> Results {
    let mut results = support::dumbbell("five-stacks", 5, 1);
    results.variants.remove(1);
    results.variants.remove(1);
    results.variants[0].cpu_idle_min = Some(0.344);
    results.variants[1].cpu_idle_min = Some(0.36);
    results.conditions.cpu_bound = true;
    results.conditions.rate_scale = 0.5;
    results
        .conditions
        .outside
        .insert("softnet_dropped".into(), 12);
    results
        .conditions
        .notes
        .push("repeated at half the rate".into());
    results.expectations.remove(1);
    results
}

fn assert_text(actual: &str, expected: &str) {
    assert!(
        actual == expected,
        "expected:\n{expected}\nactual:\n{actual}"
    );
}

#[test]
fn a_table_with_lines() {
    let expected = "\
five-stacks – Tenants with different TCP stacks share one bottleneck  [lab, seed 7]
┌──────────────────────────────────────────────────────────────────────────────────────────────────┐
│ variant     goodput   Jain  RTT p50   p99  p99.9  drops  marks  queue p50   p99  retr.  CPU idle │
│                Mb/s              µs    µs     µs   pkts   pkts         KB    KB              min │
╞══════════════════════════════════════════════════════════════════════════════════════════════════╡
│ unenforced      890  0.978     1475  4523   6081    867      0        147   235    865       34% │
│ enforced        942  1.000      155   274    317      0  28400       15.5  24.8      0       36% │
└──────────────────────────────────────────────────────────────────────────────────────────────────┘
kernel 6.18.0-test · 2 CPUs · CPU idle ≥ 31% · offloads off · link rates × 0.5
! CPU-BOUND: the CPU, not the network, limited this run; do not use its figures
! outside the experiment: softnet_dropped 12
note: repeated at half the rate
✓ fair      jain(enforced) >= 0.98  [0.9994 against 0.98]
✗ no-drops  drops(cubic-ecn) == 0  [3 against 0]
";
    assert_text(&table(&[&two_variants()], BOX), expected);
}

#[test]
fn what_no_variant_has_is_left_out_and_like_notes_are_one() {
    let mut results = two_variants();
    for variant in &mut results.variants {
        variant.rtt_us = Default::default();
    }
    let ended = |variant| format!("{variant}: ended after 2ms of measured time, when all was done");
    results.conditions.notes = vec![ended("a"), "repeated".into(), ended("b")];
    let text = table(&[&results], BOX);
    assert!(
        !text.contains("RTT") && text.contains("Jain") && text.contains("CPU idle"),
        "{text}"
    );
    let notes: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("note: "))
        .collect();
    let all = "note: 2 variants ended before their time, when all was done";
    assert_eq!(notes, [all, "note: repeated"]);
    results.conditions.notes.pop();
    assert!(table(&[&results], BOX).contains("note: a: ended after 2ms"));
    for variant in &mut results.variants {
        variant.flows.clear();
        variant.links.clear();
        variant.cpu_idle_min = None;
    }
    assert!(
        !table(&[&results], BOX).contains("variant"),
        "no figure at all"
    );
}

#[test]
fn datagrams_have_columns_of_their_own_and_take_those_of_tcp_with_them() {
    let mut results = two_variants();
    results.variants.truncate(1);
    for flow in &mut results.variants[0].flows {
        flow.protocol = Protocol::Udp;
        flow.goodput_bps = 100e6;
        flow.datagrams = Some(Datagrams {
            received_bytes: 3000,
            lost_bytes: 1000,
            ..Datagrams::default()
        });
    }
    let flows = results.variants[0].flows.len();
    let shown = table(&[&results], BOX);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[2].contains(" UDP   lost "), "{shown}");
    assert!(
        lines[5].contains(&format!(" {}  0.250 ", flows * 100)),
        "{shown}"
    );
    for of_tcp in ["goodput", "Jain", "retr."] {
        assert!(!lines[2].contains(of_tcp), "{shown}");
    }
}

#[test]
fn frames_at_the_six_points_have_a_row_per_variant_that_counts_them() {
    let mut results = two_variants();
    assert!(!table(&[&results], BOX).contains("vNIC"));
    let vnic = |tenant: &str, sent, full| VnicResult {
        tenant: tenant.to_owned(),
        sent,
        into_switch: sent - 1,
        out_of_switch: sent - 2,
        received: sent - 3,
        drops: [("full".to_owned(), full), ("socket".to_owned(), 4)].into(),
    };
    results.variants[1].vnics = vec![vnic("h1-1", 1000, 5), vnic("h1-2", 200, 0)];
    let uplink = ("uplink".to_owned(), 7);
    results.variants[1].links[0].drops.extend([uplink]);
    let shown = table(&[&results], BOX);
    let at = shown.find("2 vNIC").expect("it has a table of points");
    let rows: Vec<Vec<&str>> = shown[at..]
        .lines()
        .skip(3)
        .take(2)
        .map(|line| line.split_whitespace().collect())
        .collect();
    let counted = "│ enforced 1200 1198 1196 1194 full 5, socket 8, uplink 7 │";
    assert_eq!(rows[0].join(" "), counted, "{shown}");
    assert!(rows[1][0].starts_with('└'), "{shown}");
    results.variants[1].flows[0].datagrams = Some(Datagrams {
        sent: 33,
        received: 22,
        ..Datagrams::default()
    });
    let text = markdown(&results);
    let with_datagrams =
        "| enforced | 33 | 1200 | 1198 | 1196 | 1194 | 22 | full 5, socket 8, uplink 7 |";
    assert!(text.contains(with_datagrams), "{text}");
    let page = html(&[&results]);
    let own =
        "<th scope=\"row\">h1-1</th><td class=\"figure\">1000</td><td class=\"figure\">999</td>";
    assert!(page.contains("Frames at vNICs") && page.contains(own));
}

#[test]
fn published_figures_and_missed_deadlines_are_shown_where_there_are_any() {
    let mut results = support::incast("incast");
    assert!(!table(&[&results], BOX).contains("missed"));
    let fct = results.variants[0].fct_us.values_mut().next().unwrap();
    fct.missed = Some(0.125);
    let publish = |name: &str, published, ours| PublishedResult {
        name: name.to_owned(),
        expression: "v.rtt_us.p50 ~ 93".to_owned(),
        published,
        ours,
        verdict: ours.map(|_| Verdict::OrderingOnly),
        ..PublishedResult::default()
    };
    results.published = vec![
        publish("acdc-p50-us", 93.0, Some(113.2)),
        publish("acdc-p999-us", 289.0, None),
    ];
    let text = table(&[&results], BOX);
    assert!(text.contains("missed") && text.contains("0.125"), "{text}");
    let row = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).expect(name);
        let cells = line.split_whitespace().skip(2);
        cells
            .filter(|cell| *cell != "│")
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(row("acdc-p50-us"), "93 113.2 1.22 ordering only");
    assert_eq!(row("acdc-p999-us"), "289 – – –");
    assert!(markdown(&results).contains("| acdc-p50-us | 93 | 113.2 | 1.22 | ordering only |"));
}

#[test]
fn the_page_of_published_figures_has_a_row_for_each_with_its_cause() {
    let mut results = support::incast("incast");
    let publish = |name: &str, ours, verdict, cause: Option<&str>| PublishedResult {
        name: name.to_owned(),
        expression: "v.rtt_us.p50 ~ 93".to_owned(),
        published: 93.0,
        ours,
        verdict,
        cause: cause.map(str::to_owned),
        ..PublishedResult::default()
    };
    results.expectations[0].held = false;
    results.published = vec![
        publish("near", Some(95.0), Some(Verdict::Agrees), None),
        publish("far", Some(300.0), Some(Verdict::Differs), None),
        publish(
            "floor",
            Some(300.0),
            Some(Verdict::Differs),
            Some("a | floor"),
        ),
        publish("gone", None, None, None),
    ];
    for (verdict, ours) in [(Verdict::Fitted, 95.0), (Verdict::Differs, 300.0)] {
        let mut line = publish(verdict.words(), Some(ours), Some(verdict), None);
        line.fitted = Some("the buffer".to_owned());
        results.published.push(line);
    }
    for (name, ours, verdict) in [
        ("near-again", 95.0, Verdict::Agrees),
        ("near-in-order", 95.0, Verdict::OrderingOnly),
        ("near-once-more", 95.0, Verdict::OrderingOnly),
        ("large", 950.0, Verdict::DiffersInSize),
    ] {
        let mut line = publish(name, Some(ours), Some(verdict), None);
        line.same_as = name.starts_with("near").then(|| "near".to_owned());
        results.published.push(line);
    }
    let page = published(&[Published::of_runs(&[&results]).unwrap()]);
    for line in [
        "- agrees: 1",
        "- ordering only: 1",
        "- differs in size: 1",
        "- differs: 3",
        "- not measured: 1",
        "| incast | near | 93 | 95 | agrees |  |",
        "| incast | far | 93 | 300 | differs | unknown |",
        "| incast | floor | 93 | 300 | differs | a \\| floor |",
        "| incast | gone | 93 | – | not measured |  |",
        "| incast | fitted | 93 | 95 | fitted | fitted: the buffer |",
        "| incast | differs | 93 | 300 | differs | unknown; fitted: the buffer |",
        "| incast | near-again | 93 | 95 | agrees | the same run as near |",
        "| incast | large | 93 | 950 | differs in size | unknown |",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
    let broken = format!("| {} |", results.expectations[0].name);
    assert!(page.contains(&broken), "{page}");
}

#[test]
fn of_several_seeds_the_page_has_means_intervals_and_verdicts_that_change() {
    let run = |seed, p50| {
        let mut results = support::incast("incast");
        results.seed = seed;
        results.expectations[0].held = seed > 1;
        results.published = vec![PublishedResult {
            name: "p50".to_owned(),
            expression: "v.rtt_us.p50 ~ 93".to_owned(),
            published: 93.0,
            ours: Some(p50),
            ..PublishedResult::default()
        }];
        results
    };
    let runs = [run(1, 90.0), run(2, 93.0), run(3, 120.0)];
    let page = published(&[Published::of_runs(&runs.iter().collect::<Vec<_>>()).unwrap()]);
    let broken = format!("{} (1 of 3 seeds) |", runs[0].expectations[0].name);
    for line in [
        "| incast | p50 | 93 | 101 ± 41.04 | undecided | unknown |",
        "- the verdict changes with the seed: 1",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
    let row = page.lines().find(|line| line.ends_with(&broken));
    assert!(row.is_some_and(|row| row.contains("| 1, 2, 3 |")), "{page}");
}

#[test]
fn a_plain_table_is_ascii() {
    let text = table(&[&two_variants()], Style::PLAIN);
    assert!(text.is_ascii(), "{text}");
    assert!(
        text.contains("ok   fair ") && text.contains("FAIL no-drops "),
        "{text}"
    );
}

#[test]
fn a_table_too_wide_is_split_and_repeats_the_variants() {
    let text = table(&[&two_variants()], Style { width: 70, ..BOX });
    assert!(
        text.lines().take(13).all(|line| line.chars().count() <= 85),
        "{text}"
    );
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("│ enforced "))
            .count(),
        2,
        "{text}"
    );
    assert_eq!(text.matches("p99.9").count(), 1, "{text}");
}

#[test]
fn colours_appear_only_when_asked_for() {
    assert!(!table(&[&two_variants()], BOX).contains('\x1b'));
    let coloured = table(
        &[&two_variants()],
        Style {
            colour: true,
            ..BOX
        },
    );
    assert!(coloured.contains("\x1b[1;31m! CPU-BOUND"), "{coloured}");
}

#[test]
fn completion_times_have_a_row_per_class_and_variant() {
    let text = table(&[&support::incast("incast")], BOX);
    let expected = "\
┌───────────────────────────────────────────────────────────────────────────┐
│ FCT class        variant     flows  unfinished   mean    p50   p99  p99.9 │
│                                                    ms     ms    ms     ms │
╞═══════════════════════════════════════════════════════════════════════════╡
│ background 1 MB  unenforced   4000           0   78.8   57.4   355    648 │
│ background 1 MB  cubic-ecn    4000           0   48.3   35.6   222    379 │
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_class_of_which_nothing_was_complete_has_a_row_without_times() {
    let mut results = support::incast("incast");
    results.variants.truncate(1);
    let stuck = FctQuantiles {
        unfinished: 7,
        ..FctQuantiles::default()
    };
    results.variants[0].fct_us = [("query".to_owned(), stuck)].into();
    let text = table(&[&results], BOX);
    assert!(
        text.contains("│ query      unenforced      0           7 │"),
        "{text}"
    );
}

#[test]
fn a_plot_of_completion_times_says_how_many_flows_have_none() {
    let mut results = support::incast("incast");
    let heading = |results: &Results, rest: &str| {
        let class = results.variants[0].fct_us.keys().next().unwrap();
        html(&[results]).contains(&format!("Flow completion time, {class}{rest}<"))
    };
    assert!(heading(&results, ""));
    for variant in &mut results.variants {
        variant.fct_us.values_mut().next().unwrap().unfinished = 3;
    }
    let sum = 3 * results.variants.len();
    assert!(heading(&results, &format!(", without {sum} unfinished")));
}

#[test]
fn what_was_not_measured_is_a_dash() {
    let mut results = two_variants();
    results.variants[0].rtt_us = Default::default();
    results.variants[0].links.clear();
    let text = table(&[&results], BOX);
    let row = text
        .lines()
        .find(|line| line.starts_with("│ unenforced"))
        .unwrap();
    assert_eq!(row.matches('–').count(), 3 + 4, "{row}");
}

#[test]
fn an_alarm_names_the_worst_of_many_queues() {
    let mut results = support::dumbbell("many", 1, 1);
    results.variants.truncate(1);
    let link = results.variants[0].links[0].clone();
    let lossy = |n: u64| {
        let mut lossy = link.clone();
        (lossy.id, lossy.bottleneck) = (format!("e{n}"), false);
        lossy.drops = [("tail".to_owned(), n)].into();
        lossy
    };
    results.variants[0].links = (1..=11).map(lossy).collect();
    let text = table(&[&results], BOX);
    let worst = "bottleneck: 11 at e11, 10 at e10, 9 at e9, 8 at e8, 7 at e7, 6 at e6, 5 at e5, 4 at e4, 6 at 3 others";
    assert!(text.contains(worst), "{text}");
    results.variants[0].links.truncate(8);
    let text = table(&[&results], BOX);
    assert!(text.contains("bottleneck: 1 at e1, 2 at e2,"), "{text}");
    assert!(!text.contains("others"), "{text}");
}

/// A page's size does not grow with the network.
#[test]
fn a_page_of_many_flows_and_queues_has_the_busiest() {
    let mut results = support::dumbbell("large", 300, 5);
    results.variants.truncate(1);
    let variant = &mut results.variants[0];
    let link = variant.links[0].clone();
    let mut series = variant.samples.series.iter();
    let queue = series.find(|series| series.kind == SeriesKind::QueueBytes);
    let queue = queue.unwrap().clone();
    for n in 0..400 {
        let (mut link, mut queue) = (link.clone(), queue.clone());
        (link.id, queue.name) = (format!("c>q{n}"), format!("c>q{n}"));
        link.queue_bytes.max = link.queue_bytes.max.map(|max| max + f64::from(n));
        queue.points = vec![(1.0, f64::from(n) * 1e6)];
        variant.links.push(link);
        variant.samples.series.push(queue);
    }
    for (at, flow) in variant.flows.iter_mut().enumerate() {
        flow.goodput_bps = 1e6 + (at as f64 * 7.0) % 300.0;
    }
    let page = sluicegate_report::html(&[&results]);
    let (_, data) = page.split_once("id=\"plots\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let plots: serde_json::Value = serde_json::from_str(data).unwrap();
    let drawn = |kind: &str| -> Vec<String> {
        let series = plots[0]["series"].as_array().unwrap().iter();
        let of_kind = series.filter(|line| line["kind"] == kind);
        of_kind
            .map(|line| line["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let fullest: Vec<_> = (336..400).map(|n| format!("c>q{n}")).collect();
    assert_eq!(drawn("queue_bytes"), fullest);
    assert_eq!(drawn("goodput_bps").len(), 64);
    // All about a flow, or nothing.
    assert_eq!(drawn("goodput_bps"), drawn("tenant_cwnd_bytes"));
    assert!(page.contains("64 busiest flows"));
    assert!(page.contains("unenforced: of 300 the 256 of most goodput"));
    assert!(page.contains("c&gt;q399") && !page.contains("c&gt;q100"));

    let small = sluicegate_report::html(&[&support::dumbbell("small", 5, 5)]);
    assert!(!small.contains("busiest") && !small.contains("results.json has all"));
}

#[test]
fn drops_away_from_the_bottleneck_are_an_alarm() {
    let mut results = two_variants();
    results.variants[1].links[1].drops.insert("tail".into(), 4);
    let text = table(&[&results], BOX);
    assert!(
        text.contains("! enforced: drops away from the bottleneck: 4 at right>left"),
        "{text}"
    );
}

#[test]
fn a_name_cannot_send_escape_sequences_to_the_terminal() {
    let mut results = two_variants();
    results.title = "\x1b[2J\x07gone".into();
    results.variants[0].name = "\x1b[31mred".into();
    let text = table(&[&results], BOX);
    assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
}

#[test]
fn markdown_holds_the_same_figures() {
    let text = markdown(&two_variants());
    let expected = "\
## five-stacks

Tenants with different TCP stacks share one bottleneck

Mirrors: AC/DC TCP (SIGCOMM 2016), figure 1 and table 1

| variant | goodput Mb/s | Jain | RTT p50 µs | p99 µs | p99.9 µs | drops pkts | marks pkts | queue p50 KB | p99 KB | retr. | CPU idle min |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| unenforced | 890 | 0.978 | 1475 | 4523 | 6081 | 867 | 0 | 147 | 235 | 865 | 34% |
| enforced | 942 | 1.000 | 155 | 274 | 317 | 0 | 28400 | 15.5 | 24.8 | 0 | 36% |

| figure | unenforced | enforced |
|---|---:|---:|
| window\\_correlation | 0.93 | 0.93 |

Conditions: kernel 6.18.0-test, 2 CPUs, CPU idle ≥ 31%, offloads off, link rates × 0.5, seed 7.

**CPU-BOUND: the CPU, not the network, limited this run; do not use its figures**

**outside the experiment: softnet\\_dropped 12**

- ✓ fair: `jain(enforced) >= 0.98` (0.9994 against 0.98)
- ✗ no-drops: `drops(cubic-ecn) == 0` (3 against 0)
";
    assert_text(&text, expected);
}

#[test]
fn several_scenarios_share_one_table() {
    let text = table(
        &[&two_variants(), &support::incast("incast")],
        Style {
            width: 200,
            ..Style::PLAIN
        },
    );
    let headings: Vec<_> = text.lines().filter(|l| l.contains("goodput")).collect();
    assert_eq!(headings.len(), 1, "{text}");
    assert!(headings[0].contains("scenario"), "{text}");
    for name in [two_variants().scenario.as_str(), "incast"] {
        assert!(text.contains(&format!("| {name}")), "{text}");
        assert!(
            text.lines().any(|l| l.starts_with(name)),
            "conditions of {name}: {text}"
        );
    }
}

#[test]
fn a_scenario_without_variants_has_no_table() {
    let text = table(&[&support::empty("nothing")], BOX);
    assert!(text.starts_with("nothing  [lab, seed 7]\nkernel"), "{text}");
}
