//! Synthetic results for tests: invented distributions, no measurements.

use std::collections::BTreeMap;

use sluicegate_scenario::results::{
    Conditions, ExpectationResult, FctQuantiles, FlowResult, Goodput, LinkResult, Quantiles,
    QueueQuantiles, Results, SCHEMA, Samples, Series, SeriesKind, VariantResult,
};

pub mod browser;
pub mod films;

/// Numbers in 0..1 from a linear congruential generator; the same on every machine.
pub struct Noise(u64);

impl Noise {
    /// A stream of its own for every seed.
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number in 0..1.
    pub fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Around `median`, with a long tail upward.
    pub fn skewed(&mut self, median: f64, spread: f64) -> f64 {
        let normal = (0..6).map(|_| self.next() - 0.5).sum::<f64>() * 1.4;
        median * (normal * spread).exp()
    }
}

/// The differences of one synthetic variant from another.
pub struct Shape {
    pub name: &'static str,
    pub title: &'static str,
    pub rtt_us: f64,
    pub spread: f64,
    pub unfairness: f64,
    pub drops: u64,
    pub marks: u64,
    pub enforced: bool,
}

/// Four variants as the demo has them.
pub const SHAPES: [Shape; 4] = [
    Shape {
        name: "unenforced",
        title: "Five stacks, drop tail",
        rtt_us: 1470.0,
        spread: 0.5,
        unfairness: 0.7,
        drops: 867,
        marks: 0,
        enforced: false,
    },
    Shape {
        name: "cubic-ecn",
        title: "CUBIC with ECN",
        rtt_us: 900.0,
        spread: 0.6,
        unfairness: 0.2,
        drops: 3,
        marks: 9000,
        enforced: false,
    },
    Shape {
        name: "dctcp",
        title: "Native DCTCP tenants",
        rtt_us: 160.0,
        spread: 0.25,
        unfairness: 0.03,
        drops: 0,
        marks: 30_211,
        enforced: false,
    },
    Shape {
        name: "enforced",
        title: "Five stacks, enforced DCTCP",
        rtt_us: 155.0,
        spread: 0.25,
        unfairness: 0.02,
        drops: 0,
        marks: 28_400,
        enforced: true,
    },
];

/// A dumbbell with `flows` bulk flows for `seconds`, every plot filled.
pub fn dumbbell(scenario: &str, flows: u32, seconds: u32) -> Results {
    let mut results = empty(scenario);
    results.title = "Tenants with different TCP stacks share one bottleneck".into();
    results.mirrors = Some("AC/DC TCP (SIGCOMM 2016), figure 1 and table 1".into());
    results.variants = SHAPES
        .iter()
        .enumerate()
        .map(|(i, s)| variant(s, i as u64, flows, seconds))
        .collect();
    results.expectations = vec![
        expectation(
            "fair",
            "jain(enforced) >= 0.98",
            Some(0.9994),
            Some(0.98),
            true,
        ),
        expectation(
            "rtt-near-dctcp",
            "rtt_p50(enforced) <= 1.2 * rtt_p50(dctcp)",
            Some(155.0),
            Some(192.0),
            true,
        ),
        expectation(
            "no-drops",
            "drops(cubic-ecn) == 0",
            Some(3.0),
            Some(0.0),
            false,
        ),
    ];
    results
}

/// The same with completion times in two classes.
pub fn incast(scenario: &str) -> Results {
    let mut results = dumbbell(scenario, 16, 10);
    results.title = "16-to-1 incast".into();
    for (i, v) in results.variants.iter_mut().enumerate() {
        let mut noise = Noise::new(100 + i as u64);
        for (class, scale) in [("query 64 KB", 3.0), ("background 1 MB", 40.0)] {
            let samples: Vec<f64> = (0..4_000)
                .map(|_| noise.skewed(SHAPES[i].rtt_us * scale, 0.8))
                .collect();
            let q = quantiles(&samples);
            let mean = samples.iter().sum::<f64>() / samples.len() as f64;
            let fct = FctQuantiles {
                count: q.count,
                unfinished: 0,
                mean: Some(mean),
                p50: q.p50,
                p99: q.p99,
                p999: q.p999,
                missed: None,
            };
            v.fct_us.insert(class.into(), fct);
            v.samples.fct_us.insert(class.into(), samples);
        }
    }
    results.expectations.retain(|e| e.held);
    results
}

/// A scenario that has run and measured nothing.
pub fn empty(scenario: &str) -> Results {
    Results {
        schema: SCHEMA,
        scenario: scenario.into(),
        title: String::new(),
        mirrors: None,
        world: "lab".into(),
        seed: 7,
        conditions: Conditions {
            kernel: "6.18.0-test".into(),
            cpus: Some(2),
            cpu_idle_min: Some(0.31),
            rate_scale: 1.0,
            outside: BTreeMap::from([("dsack".into(), 0), ("softnet_dropped".into(), 0)]),
            version: "0.1.0".into(),
            started: "2026-01-02T03:04:05Z".into(),
            ..Default::default()
        },
        variants: Vec::new(),
        expectations: Vec::new(),
        published: Vec::new(),
    }
}

fn expectation(
    name: &str,
    expression: &str,
    left: Option<f64>,
    right: Option<f64>,
    held: bool,
) -> ExpectationResult {
    ExpectationResult {
        name: name.into(),
        expression: expression.into(),
        left,
        right,
        held,
        ..ExpectationResult::default()
    }
}

fn variant(shape: &Shape, seed: u64, flows: u32, seconds: u32) -> VariantResult {
    let mut noise = Noise::new(seed);
    let rtt: Vec<f64> = (0..20_000)
        .map(|_| noise.skewed(shape.rtt_us, shape.spread))
        .collect();
    let flows: Vec<_> = (0..flows)
        .map(|id| flow(shape, id, flows, &mut noise))
        .collect();
    let series = series(shape, &flows, seconds, &mut noise);
    let sum: f64 = flows.iter().map(|f| f.goodput_bps).sum();
    let squares: f64 = flows.iter().map(|f| f.goodput_bps.powi(2)).sum();
    let n = flows.len() as f64;
    let max = flows.iter().map(|f| f.goodput_bps).fold(0.0, f64::max);
    VariantResult {
        name: shape.name.into(),
        title: shape.title.into(),
        goodput_bps: Goodput {
            sum,
            mean: Some(sum / n),
            jain: Some(sum * sum / (n * squares)),
            max: Some(max),
        },
        flows,
        rtt_us: quantiles(&rtt),
        links: vec![
            link("left>right", true, shape),
            link("right>left", false, &SHAPES[2]),
        ],
        enforcement: if shape.enforced {
            counters()
        } else {
            BTreeMap::new()
        },
        cpu_idle_min: Some(0.3 + 0.1 * noise.next()),
        derived: BTreeMap::from([("window_correlation".into(), 0.93)]),
        samples: Samples {
            rtt_us: rtt,
            series,
            ..Default::default()
        },
        ..Default::default()
    }
}

fn counters() -> BTreeMap<String, u64> {
    BTreeMap::from([
        ("window_lowered".into(), 91_234),
        ("ce_hidden".into(), 28_400),
        ("policed".into(), 0),
    ])
}

fn flow(shape: &Shape, id: u32, count: u32, noise: &mut Noise) -> FlowResult {
    let share = 940e6 / f64::from(count);
    FlowResult {
        id,
        traffic: "bulk".into(),
        tenant: format!("t{id}"),
        from: format!("left{id}"),
        to: format!("right{id}"),
        tenant_cc: ["cubic", "reno", "dctcp", "illinois", "highspeed"][id as usize % 5].into(),
        goodput_bps: share * (1.0 + shape.unfairness * (noise.next() - 0.5)),
        retransmits: Some(shape.drops / u64::from(count)),
        timeouts: Some(0),
        srtt_us: Some(shape.rtt_us),
        ..FlowResult::default()
    }
}

fn link(id: &str, bottleneck: bool, shape: &Shape) -> LinkResult {
    let drops = if bottleneck { shape.drops } else { 0 };
    LinkResult {
        id: id.into(),
        bottleneck,
        sent: 1_600_000,
        sent_bytes: 2_400_000_000,
        drops: BTreeMap::from([("tail".into(), drops), ("not_ect".into(), 0)]),
        marks: if bottleneck { shape.marks } else { 0 },
        queue_bytes: QueueQuantiles {
            p50: Some(shape.rtt_us * 100.0),
            p99: Some(shape.rtt_us * 160.0),
            max: Some(shape.rtt_us * 200.0),
        },
        ..LinkResult::default()
    }
}

fn series(shape: &Shape, flows: &[FlowResult], seconds: u32, noise: &mut Noise) -> Vec<Series> {
    let times =
        |step: f64| (0..(f64::from(seconds) / step) as u32).map(move |i| f64::from(i) * step);
    let mut all = Vec::new();
    let mut push = |name: String, kind, points| all.push(Series { name, kind, points });
    for flow in flows {
        let name = format!("{} {}>{}", flow.id, flow.from, flow.to);
        let ramp = |t: f64| 1.0 - (-(t + 0.05) * 6.0).exp();
        let rate = times(0.1)
            .map(|t| (t, flow.goodput_bps * ramp(t) * (0.9 + 0.2 * noise.next())))
            .collect();
        push(name.clone(), SeriesKind::GoodputBps, rate);
        let window = flow.goodput_bps / 8.0 * shape.rtt_us / 1e6;
        let saw = |t: f64| 0.75 + 0.4 * (t * 1.7 + f64::from(flow.id)).fract();
        if shape.enforced {
            push(
                name.clone(),
                SeriesKind::EnforcedWindowBytes,
                times(0.02).map(|t| (t, window * saw(t))).collect(),
            );
            push(
                name.clone(),
                SeriesKind::Alpha,
                times(0.02)
                    .map(|t| (t, 0.15 + 0.1 * saw(t * 3.0)))
                    .collect(),
            );
        }
        let cwnd = times(0.05)
            .map(|t| (t, window * (1.2 + 0.3 * t + 0.1 * noise.next())))
            .collect();
        push(name, SeriesKind::TenantCwndBytes, cwnd);
    }
    for (id, scale) in [("right>left", 0.05), ("left>right", 1.0)] {
        let backlog = times(0.001)
            .map(|t| (t, shape.rtt_us * 100.0 * scale * (0.4 + 1.2 * noise.next())))
            .collect();
        push(id.into(), SeriesKind::QueueBytes, backlog);
    }
    all
}

fn quantiles(samples: &[f64]) -> Quantiles {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |q: f64| Some(sorted[((sorted.len() as f64 * q) as usize).min(sorted.len() - 1)]);
    Quantiles {
        count: sorted.len() as u64,
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: at(1.0),
    }
}
