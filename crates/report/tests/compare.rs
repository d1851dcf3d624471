//! Comparisons of results: what is matched, what is said of it.

use sluicegate_report::{
    Style,
    compare::{Comparison, Run, Side, Tolerances, Unmatched, agreement, compare, html, text},
};
use sluicegate_scenario::results::Results;

use crate::support;

const BOX: Style = Style {
    unicode: true,
    colour: false,
    width: 110,
};

fn side(directory: &str, all: impl IntoIterator<Item = Results>) -> Side {
    let run = |results| Run {
        results,
        as_run: None,
    };
    Side {
        directory: directory.into(),
        runs: all.into_iter().map(run).collect(),
    }
}

fn compared(sides: &[Side]) -> Comparison {
    compare(sides, Tolerances::default())
}

/// The dumbbell with the variants `unenforced`, `dctcp` and `enforced`.
fn lab() -> Results {
    let mut results = support::dumbbell("five-stacks", 5, 1);
    results.variants.remove(1);
    results
}

/// The same from another world, where everything that takes time takes `factor` as long.
fn sim(factor: f64) -> Results {
    let mut results = lab();
    results.world = "sim".into();
    results.conditions.kernel = "simulated, 0.1.0".into();
    (results.conditions.cpus, results.conditions.cpu_idle_min) = (None, None);
    for variant in &mut results.variants {
        variant.cpu_idle_min = None;
        let rtt = &mut variant.rtt_us;
        for value in [&mut rtt.p50, &mut rtt.p99, &mut rtt.p999] {
            *value = value.map(|us| us * factor);
        }
    }
    results
}

fn assert_text(actual: &str, expected: &str) {
    assert!(
        actual == expected,
        "expected:\n{expected}\nactual:\n{actual}"
    );
}

#[test]
fn a_comparison_to_the_letter() {
    let mut other = sim(1.1);
    other.variants.remove(1);
    other.variants[0].links[0].drops.insert("tail".into(), 0);
    let sides = [side("out/lab", [lab()]), side("out/sim", [other])];
    let expected = "\
A  out/lab
B  out/sim

five-stacks – Tenants with different TCP stacks share one bottleneck
A  lab · seed 7 · sluicegate 0.1.0 · kernel 6.18.0-test · 2 CPUs · CPU idle ≥ 31% · offloads off
B  sim · seed 7 · sluicegate 0.1.0 · kernel simulated, 0.1.0 · offloads off
different: world, kernel
┌──────────────────────────────────────────────────────────────────────────────────────────────┐
│ variant     side  goodput   Jain  RTT p50   p99  p99.9  drops  marks  queue p50   p99  retr. │
│                      Mb/s              µs    µs     µs   pkts   pkts         KB    KB        │
╞══════════════════════════════════════════════════════════════════════════════════════════════╡
│ unenforced  A         890  0.978     1475  4523   6081    867      0        147   235    865 │
│             B         890  0.978     1622  4976   6689      0      0        147   235    865 │
│             B/A      1.00   1.00     1.10  1.10   1.10      0   1.00       1.00  1.00   1.00 │
│ enforced    A         942  1.000      155   274    317      0  28400       15.5  24.8      0 │
│             B         942  1.000      170   301    348      0  28400       15.5  24.8      0 │
│             B/A      1.00   1.00     1.10  1.10   1.10   1.00   1.00       1.00  1.00   1.00 │
└──────────────────────────────────────────────────────────────────────────────────────────────┘
┌───────────────────────────────────────────────────────────┐
│ ratio                  side  goodput  Jain    RTT     RTT │
│                                               p50     p99 │
╞═══════════════════════════════════════════════════════════╡
│ enforced / unenforced  A        1.06  1.02  0.105  0.0605 │
│                        B        1.06  1.02  0.105  0.0605 │
│                        B/A      1.00  1.00   1.00    1.00 │
└───────────────────────────────────────────────────────────┘
same winners? the variants, best first, = is a tie:
✓ goodput  A, B: enforced, unenforced
✓ Jain     A, B: unenforced = enforced
✓ RTT p50  A, B: enforced, unenforced
✓ RTT p99  A, B: enforced, unenforced

only in A: dctcp of five-stacks

all within the tolerances: goodput 5%, RTT p50 20%, p99 2x; ratios of variants 20%, of p99 2x; ties 5%
";
    assert_text(&text(&compared(&sides), BOX), expected);
}

#[test]
fn a_result_agrees_with_itself() {
    let comparison = compared(&[side("a", [lab()]), side("a", [lab()])]);
    assert_eq!(comparison.outside, Vec::<String>::new());
    assert_eq!(comparison.unmatched, []);
    let scenario = &comparison.scenarios[0];
    assert!(scenario.differs.is_empty() && scenario.warnings.is_empty());
    assert_eq!(scenario.variants.len(), 3);
    for measured in scenario.variants.iter().flat_map(|v| v.figures.values()) {
        assert!(
            measured.ratios.iter().all(|r| r.is_none_or(|r| r == 1.0)),
            "{measured:?}"
        );
    }
    for contest in &scenario.contests {
        assert_eq!(contest.agrees, [Some(true); 2], "{}", contest.what);
        assert_eq!(contest.orders[0], contest.orders[1]);
    }
}

#[test]
fn what_only_some_sides_have_is_listed() {
    let mut fewer = lab();
    fewer.variants.remove(2);
    let sides = [
        side("a", [lab(), support::empty("alone")]),
        side("b", [fewer, support::incast("later")]),
        side("c", [support::incast("later")]),
    ];
    let comparison = compared(&sides);
    let unmatched = |scenario: &str, variant: Option<&str>, only_in: &[char]| Unmatched {
        scenario: scenario.into(),
        variant: variant.map(str::to_owned),
        only_in: only_in.to_vec(),
    };
    assert_eq!(
        comparison.unmatched,
        [
            unmatched("five-stacks", None, &['A', 'B']),
            unmatched("alone", None, &['A']),
            unmatched("later", None, &['B', 'C']),
            unmatched("five-stacks", Some("enforced"), &['A']),
        ]
    );
    let names: Vec<_> = comparison.scenarios[0]
        .variants
        .iter()
        .map(|v| v.name.as_str())
        .collect();
    assert_eq!(names, ["unenforced", "dctcp"]);
    assert_eq!(comparison.scenarios.len(), 1);
    assert_eq!(
        comparison.outside,
        ["C has no variant of a scenario in common with A"]
    );
    let shown = text(&comparison, BOX);
    assert!(
        shown.contains("only in A: alone, enforced of five-stacks\n"),
        "{shown}"
    );
}

#[test]
fn the_order_of_variants_must_not_turn_round() {
    let mut other = sim(1.0);
    // Half the RTT of native DCTCP and 3 % more: one turns the order round, the other is a tie.
    let times = |us: Option<f64>, factor: f64| us.map(|us| us * factor);
    other.variants[2].rtt_us.p50 = times(other.variants[1].rtt_us.p50, 0.5);
    other.variants[2].rtt_us.p99 = times(other.variants[1].rtt_us.p99, 1.03);
    let mut reference = lab();
    reference.variants[2].rtt_us.p50 = times(reference.variants[1].rtt_us.p50, 1.1);
    let comparison = compared(&[side("a", [reference]), side("b", [other])]);
    let contest = |what: &str| {
        let mut contests = comparison.scenarios[0].contests.iter();
        contests.find(|c| c.what == what).unwrap()
    };
    assert_eq!(contest("RTT p50").agrees, [Some(true), Some(false)]);
    assert_eq!(
        contest("RTT p50").orders,
        [
            [vec!["dctcp"], vec!["enforced"], vec!["unenforced"]],
            [vec!["enforced"], vec!["dctcp"], vec!["unenforced"]],
        ]
    );
    assert_eq!(contest("RTT p99").agrees, [Some(true); 2]);
    assert_eq!(
        contest("RTT p99").orders[1],
        [vec!["dctcp", "enforced"], vec!["unenforced"]]
    );
    assert_eq!(contest("goodput").orders[0].concat().len(), 3);
    let pair = "five-stacks: RTT p50 of enforced over dctcp: 1.10 in A, 0.500 in B: the other one is better";
    assert!(
        comparison.outside.iter().any(|line| line == pair),
        "{:?}",
        comparison.outside
    );
}

#[test]
fn tolerances_decide_what_is_outside() {
    let sides = [side("a", [lab()]), side("b", [sim(1.3)])];
    let comparison = compared(&sides);
    // All variants are slower by the same: their ratios stay, and p99 may be twice as long.
    assert_eq!(comparison.outside.len(), 3, "{:?}", comparison.outside);
    assert!(comparison.outside[2].starts_with("five-stacks: enforced: RTT p50 155 µs in A, 20"));
    assert!(comparison.outside[2].ends_with(" µs in B: further apart than 20%"));
    let wider = Tolerances {
        rtt_p50: "1.4x".parse().unwrap(),
        ..Tolerances::default()
    };
    assert!(compare(&sides, wider).outside.is_empty());
}

#[test]
fn what_one_side_did_not_measure_is_outside() {
    let mut other = sim(1.0);
    other.variants[0].rtt_us = Default::default();
    other.conditions.cpu_bound = true;
    let comparison = compared(&[side("a", [lab()]), side("b", [other])]);
    assert_eq!(
        comparison.outside,
        [
            "five-stacks: the CPU was the bottleneck in B",
            "five-stacks: unenforced: RTT p50 was not measured in B",
            "five-stacks: unenforced: RTT p99 was not measured in B",
        ]
    );
}

#[test]
fn scaled_rates_and_other_durations_are_warned_of() {
    let mut other = sim(1.0);
    other.conditions.rate_scale = 0.25;
    let mut sides = [side("a", [lab()]), side("b", [other])];
    sides[0].runs[0].as_run = Some("duration = '20s'\nseed = 1".into());
    sides[1].runs[0].as_run = Some("duration = '5s'\nseed = 2".into());
    let comparison = compared(&sides);
    let scenario = &comparison.scenarios[0];
    assert_eq!(scenario.differs, ["world", "link rates", "kernel"]);
    assert_eq!(scenario.as_run.len(), 1);
    assert_eq!(scenario.warnings.len(), 2);
    let shown = text(&comparison, BOX);
    for line in [
        "! NOT THE SAME EXPERIMENT: link rates × 1 in A, × 0.25 in B; ",
        "! the sides measured for different times: ",
        "scenario.toml: duration: \"20s\" in A, \"5s\" in B\n",
    ] {
        assert!(
            shown.contains(&format!("\n{line}")) || shown.contains(line),
            "{shown}"
        );
    }
    assert!(html(&comparison, &sides).contains("NOT THE SAME EXPERIMENT"));
    let scaled = sides[1].clone();
    let both = compared(&[scaled.clone(), scaled]);
    assert_eq!(both.scenarios[0].warnings.len(), 1);
    assert!(both.scenarios[0].warnings[0].starts_with("all sides ran at link rates × 0.25"));
}

#[test]
fn completion_times_are_compared_by_class() {
    let sides = [
        side("a", [support::incast("incast")]),
        side("b", [support::incast("incast")]),
    ];
    let comparison = compared(&sides);
    let shown = text(&comparison, BOX);
    assert!(
        shown
            .contains("FCT class        variant     side  flows  unfinished    p50   p99  p99.9 │"),
        "{shown}"
    );
    assert!(shown.contains("✓ FCT query 64 KB p99"), "{shown}");
    assert!(comparison.outside.is_empty(), "{:?}", comparison.outside);
}

#[test]
fn the_plain_text_is_ascii_and_names_steer_no_terminal() {
    let mut hostile = lab();
    hostile.title = "\x1b[2J".into();
    hostile.variants[0].name = "\x1b[31mred".into();
    let sides = [side("\x1b[31m", [hostile.clone()]), side("b", [hostile])];
    let shown = text(&compared(&sides), Style::PLAIN);
    assert!(!shown.contains(['\x1b', '\x07']), "{shown:?}");
    assert!(shown.is_ascii(), "{shown}");
}

#[test]
fn the_json_has_a_list_entry_for_every_side() {
    let sides = [
        side("a", [lab()]),
        side("b", [sim(1.0)]),
        side("c", [lab()]),
    ];
    let json = serde_json::to_value(compared(&sides)).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["tolerances"]["rtt_p99"], "2x");
    let figures = &json["scenarios"][0]["variants"][0]["figures"];
    for list in ["values", "ratios"] {
        assert_eq!(figures["rtt_us.p50"][list].as_array().unwrap().len(), 3);
    }
    assert_eq!(json["scenarios"][0]["origins"][1]["world"], "sim");
}

#[test]
fn agreement_is_a_row_per_variant_bold_where_it_is_outside() {
    let mut other = sim(1.1);
    let p50 = &mut other.variants[0].rtt_us.p50;
    *p50 = p50.map(|us| us * 1.5);
    other.variants[1].goodput_bps.sum *= 0.9;
    let sides = [
        side("out/lab", [lab()]),
        side("out/sim", [other]),
        side("out/again", [lab()]),
    ];
    let text = agreement(&compared(&sides));
    let expected = "\
| scenario | variant | goodput B/A | RTT p50 B/A | RTT p99 B/A | goodput over first A, B | RTT p50 over first A, B | other ratios, other winners |
|---|---|---|---|---|---|---|---|
| five-stacks | unenforced | 1.00 | **1.65** | 1.10 |  |  | **winner by goodput, ratio of RTT p50** |
|  | dctcp | **0.900** | 1.10 | 1.10 | **1.05, 0.947** | **0.109, 0.0725** |  |
|  | enforced | 1.00 | 1.10 | 1.10 | 1.06, 1.06 | **0.105, 0.0699** |  |

0 of 1 scenarios agree in everything
(goodput 5%, ";
    assert!(text.starts_with(expected), "{text}");
    let other = text.lines().nth(9);
    assert!(
        other.is_some_and(|heading| heading.contains("goodput C/A")),
        "{text}"
    );
    assert!(text.contains("\n1 of 1 scenarios agree"), "{text}");
}
