use super::*;

const BASE: &str = "
name = 'tiny'
seed = 5
[network]
topology = 'dumbbell'
pairs = 2
rate = '20Mbit'
[traffic.bulk]
kind = 'bulk'
[variant.plain]
[variant.marked]
network.marking = { kind = 'threshold', k = '9KB' }
";

/// Reads `text` as a file of its own.
fn plan(name: &str, text: &str, sets: &[&str], only: &[&str]) -> Result<Plan, String> {
    let directory = std::env::temp_dir().join(format!("sluicegate-sweep-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    let parse = |list: &[&str]| list.iter().map(|set| set.parse().unwrap()).collect();
    let options = Options {
        sets: parse(sets),
        only: parse(only),
        repeat: None,
        file: file::Options::default(),
    };
    let plan = load(&path, &options);
    std::fs::remove_file(&path).unwrap();
    plan.map_err(|problems| {
        let directory = format!("{}/", directory.display());
        problems.to_string().replace(&directory, "")
    })
}

fn labels(plan: &Plan) -> Vec<String> {
    plan.cells.iter().map(|cell| plan.label(cell)).collect()
}

#[test]
fn cells_are_the_cross_product_with_variants() {
    let sets = ["network.rate=10Mbit,20Mbit", "network.pairs=1,2"];
    let plan = plan("cross", BASE, &sets, &["variant=plain"]).unwrap();
    assert_eq!(
        labels(&plan),
        [
            "network.rate=10Mbit network.pairs=1 variant=plain",
            "network.rate=10Mbit network.pairs=2 variant=plain",
            "network.rate=20Mbit network.pairs=1 variant=plain",
            "network.rate=20Mbit network.pairs=2 variant=plain",
        ]
    );
    assert_eq!(plan.seeds, [5]);
    let experiment = plan.experiment(&plan.cells[1], 9).unwrap();
    assert_eq!((experiment.seed, experiment.variants.len()), (9, 1));
    let variant = &experiment.variants[0];
    assert_eq!(variant.hosts.len(), 4);
    assert!(variant.links.iter().any(|link| link.rate_bps == 10_000_000));
}

#[test]
fn a_combination_that_is_not_chosen_is_not_resolved() {
    // With one pair there is no second sender.
    let sets = ["network.pairs=2,1", "traffic.bulk.from=s1,s2"];
    let error = plan("whole", BASE, &sets, &[]).unwrap_err();
    let cell = "with network.pairs=1 traffic.bulk.from=s2: ";
    assert!(error.contains(cell), "{error}");
    let some = plan("part", BASE, &sets, &["traffic.bulk.from=s1"]).unwrap();
    assert_eq!(
        labels(&some),
        [
            "network.pairs=2 traffic.bulk.from=s1 variant=plain",
            "network.pairs=2 traffic.bulk.from=s1 variant=marked",
            "network.pairs=1 traffic.bulk.from=s1 variant=plain",
            "network.pairs=1 traffic.bulk.from=s1 variant=marked",
        ]
    );
    // Variants of combinations that are not resolved are known all the same.
    let text = format!(
        "{BASE}[[sweep.axis]]\nname = 'more'\nvalues.no.network.mtu = 1500\n\
        values.yes.variant.third.network.mtu = 9000\n\
        [sweep.expect]\nx = 'goodput_bps.sum[variant=third] > 0'\n"
    );
    let known = plan("known", &text, &[], &["more=no"]).unwrap();
    assert_eq!(known.cells.len(), 2);
    let none = plan("none", &text, &[], &["more=no", "variant=third"]).unwrap();
    assert_eq!(none.cells, []);
}

#[test]
fn a_named_value_sets_several_keys_and_the_command_line_chooses_among_them() {
    let text = format!(
        "{BASE}[sweep]\nrepeat = 3\n[[sweep.axis]]\nname = 'size'\n\
        [sweep.axis.values.small]\nnetwork.pairs = 1\nnetwork.rate = '10Mbit'\n\
        [sweep.axis.values.large]\nnetwork.pairs = 4\n\
        [[sweep.axis]]\npath = 'network.mtu'\nvalues = [1500, 9000]\n"
    );
    let whole = plan("bundle", &text, &[], &[]).unwrap();
    assert_eq!((whole.cells.len(), whole.seeds.len()), (8, 3));
    let some = plan("some", &text, &["size=large", "network.mtu=1500"], &[]).unwrap();
    assert_eq!(
        labels(&some),
        [
            "size=large network.mtu=1500 variant=plain",
            "size=large network.mtu=1500 variant=marked"
        ]
    );
    let error = plan("unknown", &text, &["size=larg"], &[]).unwrap_err();
    assert!(
        error.contains(
            "axis size has no value \"larg\"; it has small, large; did you mean \"large\"?"
        ),
        "{error}"
    );
}

#[test]
fn a_path_leads_through_arrays() {
    let policy = "policy = { rule = [{ mode = 'enforce', mss = '1460B' }] }";
    let text =
        format!("{BASE}[variant.held]\nenforcement = {{ hosts = 'all', {policy} }}\n[sweep]\n");
    let rule = "variant.held.enforcement.policy.rule";
    let set = format!("{rule}.0.mss=1460B,2920B");
    let plan = plan("array", &text, &[&set], &["variant=held"]).unwrap();
    let inputs: Vec<String> = (plan.cells.iter())
        .map(|cell| input(&plan.experiment(cell, 1).unwrap().variants[0]))
        .collect();
    assert_eq!(inputs.len(), 2);
    assert_ne!(inputs[0], inputs[1]);
    for (set, why) in [
        (
            format!("{rule}.1.mss=1460B"),
            format!("the array `{rule}` has no position \"1\"; its only position is 0"),
        ),
        (
            format!("{rule}.0.ms=1460B"),
            format!("with {rule}.0.ms=1460B: unknown key; did you mean \"mss\"?"),
        ),
    ] {
        let error = super::tests::plan("array", &text, &[&set], &[]).unwrap_err();
        assert!(error.contains(&why), "{set}: {error}");
    }
    let sets = [
        &format!("{rule}.0.mss=1460B"),
        "variant.*.enforcement.policy.rule.0.mss=1B",
    ];
    let error = super::tests::plan("overlap", &text, &sets, &[]).unwrap_err();
    assert!(error.contains("both set"), "{error}");
}

/// Where the combination is left out, also by what it is not.
#[test]
fn axes_may_set_one_key_where_both_are_left_out() {
    let text = |skip: &str| {
        format!(
            "{BASE}[sweep]\n{skip}\n[[sweep.axis]]\nname = 'a'\n\
             [sweep.axis.values.x]\nnetwork.pairs = 1\n\
             [sweep.axis.values.y]\nnetwork.rate = '1Gbit'\n\
             [[sweep.axis]]\nname = 'b'\n\
             [sweep.axis.values.z]\nnetwork.queue = '90KB'\n\
             [sweep.axis.values.w]\nnetwork.rate = '2Gbit'\n"
        )
    };
    let error = plan("pair", &text(""), &[], &[]).unwrap_err();
    assert!(
        error.contains("axes a and b both set network.rate"),
        "{error}"
    );
    for skip in [
        "a == y and b == w",
        "a == y and b != z",
        "a != x and b == w",
    ] {
        let skipping = text(&format!("skip = ['{skip}']"));
        let plan = plan("pair", &skipping, &[], &["variant=plain"]).unwrap();
        let expected = ["a=x b=z", "a=x b=w", "a=y b=z"].map(|it| format!("{it} variant=plain"));
        assert_eq!(labels(&plan), expected, "{skip}");
    }
}

/// A file that is not there stops only those who want it.
#[test]
fn what_is_left_out_is_not_looked_at() {
    let text = "[network]\ntopology = 'crossbar'\nhosts = 4\nrate = '1Gbit'\n\
        [traffic.p]\nkind = 'program'\nnas = { kernel = 'cg', class = 'a' }\n\
        [[sweep.axis]]\nname = 'program'\n[sweep.axis.values.cg]\n\
        traffic.p.nas.kernel = 'cg'\n[sweep.axis.values.recorded]\n\
        traffic.p = { nas = false, goal = 'not-there.goal' }\n";
    let error = plan("file", text, &[], &[]).unwrap_err();
    assert!(error.contains("not-there.goal cannot be read"), "{error}");
    let plan = plan("file", text, &[], &["program=cg"]).unwrap();
    assert_eq!(plan.cells.len(), 1);
}

#[test]
fn what_the_language_refuses_names_axis_value_and_place() {
    for (sets, why) in [
        (
            &["network.rte=1Gbit"][..],
            ":4:1: network.rte: with network.rte=1Gbit: unknown key; did you mean \"rate\"?",
        ),
        (
            &["network.rate=1Gbit,fast"],
            ":7:8: network.rate: with network.rate=fast: ",
        ),
        (
            &["network.pairs=2,0", "network.rate=1Gbit"],
            ":6:9: network.pairs: with network.pairs=0: ",
        ),
        (
            &["variants.x=1"],
            "variants: with variants.x=1: unknown key",
        ),
        (
            &["network.rate.x=1"],
            "network.rate: with network.rate.x=1: must be a string",
        ),
        (&["name=a,b"], "`name` belongs to the file as a whole"),
        (
            &["network.rate=1Gbit", "network.rate=2Gbit,x"],
            "network.rate=x",
        ),
    ] {
        let error = plan("refused", BASE, sets, &[]).unwrap_err();
        assert!(error.contains(why), "{sets:?}: {error}");
        assert!(error.starts_with("refused.toml:"), "{error}");
    }
}

#[test]
fn what_sweep_says_is_checked() {
    for (text, why) in [
        (
            "[sweep]\nrepet = 2\n",
            "sweep.repet: unknown key; did you mean \"repeat\"?",
        ),
        ("[sweep]\nrepeat = 0\n", "sweep.repeat: must lie between 1"),
        ("[sweep]\nfigures = ['rtt_us.p5']\n", "sweep.figures[0]: "),
        (
            "[sweep]\nfigures = ['fct_us.query.mean']\n",
            "has no class of flows \"query\"",
        ),
        ("[[sweep.axis]]\nvalues = [1]\n", "`name` is missing"),
        ("[[sweep.axis]]\nname = 'a'\n", "`values` is missing"),
        (
            "[[sweep.axis]]\nname = 'a'\nvalues = [1]\n",
            "say nothing without a path",
        ),
        (
            "[[sweep.axis]]\nname = 'seed'\npath = 'network.mtu'\nvalues = [1500]\n",
            "a column \"seed\"",
        ),
        (
            "[[sweep.axis]]\npath = 'network.mtu'\nvalues = []\n",
            "has no value",
        ),
        (
            "[[sweep.axis]]\npath = 'network.mtu'\nvalues = [[1]]\n",
            "must be plain, not an array",
        ),
        (
            "[[sweep.axis]]\npath = 'network.mtu'\nvalues = [1500]\n[[sweep.axis]]\nname = 'b'\n[sweep.axis.values.x]\nnetwork.mtu = 9000\n",
            "axes network.mtu and b both set network.mtu",
        ),
        (
            "[sweep.expect]\nx = 'goodput_bps.sum[a=1] > 0'\n",
            "sweep.expect.x: there is no axis \"a\"",
        ),
        (
            "[sweep.expect]\nx = 'flows.nobody.goodput_bps > 0'\n",
            "sweep.expect.x: variant \"plain\" has no tenant",
        ),
    ] {
        let error = plan("said", &format!("{BASE}{text}"), &[], &[]).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    let error = plan("only", BASE, &[], &["variant=plan"]).unwrap_err();
    assert!(error.contains("did you mean \"plain\"?"), "{error}");
}

/// What `--only` leaves out is told, and does not count as a statement that fails.
#[test]
fn statements_without_cells_are_not_judged() {
    let text = format!(
        "{BASE}[sweep.expect]\nplain = 'goodput_bps.sum[variant=plain] > 0'\n\
         both = 'goodput_bps.sum[variant=plain] > goodput_bps.sum[variant=marked]'\n"
    );
    let plan = plan("without", &text, &[], &["variant=plain"]).unwrap();
    let names: Vec<&str> = (plan.statements.iter())
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["plain"]);
    assert!(
        plan.notes[0].ends_with("not judged: both"),
        "{:?}",
        plan.notes
    );
}

#[test]
fn a_single_run_does_not_mind_a_sweep() {
    let text = format!("{BASE}[sweep]\nrepeat = 3\n");
    let options = file::Options::default();
    let single = file::parse(Path::new("t.toml"), &text, &options).unwrap();
    assert_eq!(single.repeats, 1);
}

#[test]
fn an_axis_that_a_variant_overrules_is_told() {
    let sets = ["network.marking.k=9KB,30KB"];
    let text = BASE.replace(
        "rate = '20Mbit'",
        "rate = '20Mbit'\nmarking = { kind = 'threshold', k = '1KB' }",
    );
    let plan = plan("idle", &text, &sets, &[]).unwrap();
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
    assert!(plan.notes[0].contains("no difference to variant marked"));
}

#[test]
fn what_a_run_depends_on_is_its_input_and_not_its_name() {
    let plan = plan("input", BASE, &["network.rate=10Mbit,20Mbit"], &[]).unwrap();
    let inputs: Vec<String> = (plan.cells.iter())
        .map(|cell| input(&plan.experiment(cell, 1).unwrap().variants[0]))
        .collect();
    let text = format!("# A comment.\ntitle = 'Other'\n{BASE}").replace("plain", "simple");
    let other = super::tests::plan("other", &text, &["network.rate=10Mbit,20Mbit"], &[]).unwrap();
    for (cell, known) in other.cells.iter().zip(&inputs) {
        assert_eq!(
            &input(&other.experiment(cell, 1).unwrap().variants[0]),
            known
        );
    }
    let distinct: std::collections::HashSet<_> = inputs.iter().collect();
    assert_eq!(distinct.len(), 4);
}

#[test]
fn deadlocks_that_a_line_tells_of_are_not_outside() {
    let outside = |lines: &str| {
        let text = format!("{BASE}[sweep]\n[sweep.expect]\n{lines}\n");
        let plan = plan("told", &text, &["network.mtu=1500"], &[]).unwrap();
        let measured = Measured {
            cell: 0,
            seed: plan.seeds[0],
            figures: Ok([("deadlocks".to_owned(), 1.0)].into()),
            outside: ["deadlocks", "lossless_drops"]
                .map(|counter| (counter.to_owned(), 1))
                .into(),
        };
        let outcome = plan.outcome(vec![measured], "1", "b");
        outcome.outside.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(outside("d = 'deadlocks == 1'"), ["lossless_drops"]);
    assert_eq!(
        outside("l = 'links.all.drops.headroom == 1'"),
        ["deadlocks"]
    );
}

#[test]
fn a_mean_of_some_runs_of_a_cell_is_noted() {
    let text = format!("{BASE}[sweep]\nrepeat = 3\n");
    let plan = plan("partly", &text, &["network.mtu=1500"], &[]).unwrap();
    let notes = |unmeasured: usize| {
        let run = |(number, seed): (usize, &u64)| {
            let names = ["rtt_us.p50"].iter().skip(usize::from(number < unmeasured));
            Measured {
                cell: 0,
                seed: *seed,
                figures: Ok(names.map(|name| ((*name).to_owned(), 1.0)).collect()),
                outside: Default::default(),
            }
        };
        let measured = plan.seeds.iter().enumerate().map(run).collect();
        plan.outcome(measured, "1", "b").notes
    };
    assert_eq!(
        notes(1),
        [
            "rtt_us.p50 (cells: 1): some runs of a cell did not measure it; its mean is that of the \
             `n` others"
        ]
    );
    // None has it, or all have.
    assert_eq!((notes(3), notes(0)), (Vec::new(), Vec::new()));
}

#[test]
fn tables_do_not_depend_on_the_order_of_runs() {
    let text = format!(
        "{BASE}[sweep]\nrepeat = 3\nfigures = ['goodput_bps.sum']\n[sweep.expect]\nmore = 'every goodput_bps.sum[network.mtu=9000] > goodput_bps.sum[network.mtu=1500]'\n"
    );
    let plan = plan("order", &text, &["network.mtu=1500,9000"], &[]).unwrap();
    let mut measured: Vec<Measured> = Vec::new();
    for cell in 0..plan.cells.len() {
        for seed in &plan.seeds {
            let value = 0.1 * (cell as f64 + 1.0) + 1e-17 * *seed as f64;
            let figures = Ok([("goodput_bps.sum".to_owned(), value)].into());
            measured.push(Measured {
                cell,
                seed: *seed,
                figures,
                outside: [("tenant_errors".to_owned(), 1), ("deadlocks".to_owned(), 1)].into(),
            });
        }
    }
    measured[4].figures = Err("it broke".to_owned());
    let write = |measured| serde_json::to_string(&plan.outcome(measured, "1", "b")).unwrap();
    let forward = write(measured.clone());
    measured.reverse();
    assert_eq!(forward, write(measured.clone()));
    let outcome = plan.outcome(measured, "1", "b");
    assert_eq!(outcome.cells[1].figures["goodput_bps.sum"].summary.n, 2);
    assert_eq!(outcome.outside["tenant_errors"], 12);
    assert_eq!(outcome.outside["deadlocks"], 12);
    assert_eq!(outcome.failed.len(), 1);
    assert_eq!(
        (outcome.failed[0].variant.as_str(), outcome.failed[0].seed),
        ("marked", 6)
    );
    let [plain, marked] = &outcome.expectations[0].instances[..] else {
        panic!("{:?}", outcome.expectations);
    };
    assert!(plain.held);
    // A run of one of its cells is missing.
    assert_eq!((marked.right, marked.held), (None, false));
}

#[test]
fn published_figures_are_checked_with_their_place() {
    let sweep = |line: &str| {
        let text = format!("{BASE}[sweep.published]\np = {line}\n");
        plan("published", &text, &["network.pairs=1,2"], &[])
    };
    for (line, why) in [
        (
            "'every rtt_us.p50 ~ 3'",
            "published.toml:14:5: sweep.published.p: `every` gives",
        ),
        (
            "'rtt_us.p50[network.pair=1] ~ 3'",
            "14:5: sweep.published.p: there is no axis",
        ),
        (
            "{ cause = 'x' }",
            "14:5: sweep.published.p: `figure` is missing",
        ),
        (
            "{ figure = 'rtt_us.p50 ~ 3', caus = 'x' }",
            "sweep.published.p.caus: unknown key",
        ),
        (
            "'fct_us.mice.mean ~ 3'",
            "sweep.published.p: variant \"plain\" has no class of flows",
        ),
    ] {
        let error = sweep(line).unwrap_err();
        assert!(error.contains(why), "{line}: {error}");
    }
    assert_eq!(sweep("false").unwrap().publications.len(), 0);
    let plan = sweep("{ figure = 'goodput_bps.sum ~ 3', fitted = 'the rate' }").unwrap();
    assert_eq!(plan.publications.len(), 1);
}

/// Two rates and two numbers of pairs; of the four, `skip` leaves some.
fn square(skip: &str, more: &str) -> Result<Plan, String> {
    let axes = "[[sweep.axis]]\nname = 'rate'\n[sweep.axis.values.low]\nnetwork.rate = '10Mbit'\n\
        [sweep.axis.values.high]\nnetwork.rate = '20Mbit'\n\
        [[sweep.axis]]\nname = 'pairs'\n[sweep.axis.values.low]\nnetwork.pairs = 1\n\
        [sweep.axis.values.high]\nnetwork.pairs = 2\n";
    let text = format!("{BASE}[sweep]\nskip = {skip}\n{more}\n{axes}");
    plan("square", &text, &[], &[])
}

#[test]
fn what_makes_no_sense_together_is_skipped() {
    let cells = |skip: &str| labels(&square(skip, "").unwrap());
    let plain = "variant=plain";
    assert_eq!(
        cells("['rate == pairs', 'variant == marked']"),
        [
            format!("rate=low pairs=high {plain}"),
            format!("rate=high pairs=low {plain}"),
        ]
    );
    let one = cells("['rate == low and pairs == high', 'variant == marked and pairs == low']");
    assert_eq!(
        one,
        [
            format!("rate=low pairs=low {plain}"),
            format!("rate=high pairs=low {plain}"),
            format!("rate=high pairs=high {plain}"),
            "rate=high pairs=high variant=marked".to_owned(),
        ]
    );
    // Of two combinations that differ in both axes no axis is said to do nothing.
    let two = square("['rate == pairs']", "").unwrap();
    assert_eq!(two.notes, [] as [&str; 0]);
    // A combination that is skipped is not read at all.
    let text = format!(
        "{BASE}[sweep]\nskip = ['network.pairs == 0']\n\
        [[sweep.axis]]\npath = 'network.pairs'\nvalues = [0, 2]\n"
    );
    assert_eq!(plan("unread", &text, &[], &[]).unwrap().cells.len(), 2);
}

#[test]
fn statements_are_not_about_what_is_skipped() {
    let lines = "expect.more = 'every goodput_bps.sum[rate=high] > goodput_bps.sum[rate=low]'\n\
        published.p = 'mean of every goodput_bps.sum[rate=high] ~ 3'";
    let plan = square("['rate == high and pairs == high']", lines).unwrap();
    let cells = plan.cells.iter().enumerate();
    let measured = cells.map(|(cell, of)| Measured {
        cell,
        seed: plan.seeds[0],
        figures: Ok([("goodput_bps.sum".to_owned(), of.values[0] as f64 + 2.0)].into()),
        outside: [].into(),
    });
    let outcome = plan.outcome(measured.collect(), "1", "b");
    // One for each variant, both with the low number of pairs.
    let instances = &outcome.expectations[0].instances;
    assert_eq!((instances.len(), outcome.expectations[0].held), (2, true));
    assert!(instances.iter().all(|i| i.cell[0].1 == "low"));
    assert_eq!(outcome.published[0].ours, Some(3.0));
}

#[test]
fn a_condition_that_cannot_hold_is_told() {
    for (skip, why) in [
        (
            "['rate = low']",
            "sweep.skip[0]: `rate = low` in `rate = low` is no AXIS == VALUE; write",
        ),
        (
            "['rate == low', 'rat == low']",
            "sweep.skip[1]: there is no axis \"rat\"; known axes: rate, pairs, variant; did you mean",
        ),
        (
            "['rate == lo']",
            "axis rate has no value \"lo\"; it has low, high; did you mean \"low\"?",
        ),
        ("['rate == rate']", "`rate` is compared with itself"),
        (
            "['rate == low', 'rate == high']",
            "`skip` leaves out every combination; take a condition away",
        ),
        (
            "['rate == low and variant == plan']",
            "sweep: skip: axis variant has no value \"plan\"; it has plain, marked; did you mean",
        ),
        (
            "['variant == plain', 'variant == marked']",
            "`skip` leaves out every combination",
        ),
    ] {
        let error = square(skip, "").unwrap_err();
        assert!(error.contains(why), "{skip}: {error}");
    }
}
