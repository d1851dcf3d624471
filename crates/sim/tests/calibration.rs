//! Measurements from which a calibration was made come out again.

use sluicegate_scenario::{
    calibration::{self, Measured, RoundTrips},
    runner,
    world::Unobserved,
};
use sluicegate_sim::Sim;

/// The simulator's measurements with the delays that a lab's measurements give.
fn simulated(lab: &Measured) -> Measured {
    let mut experiment = calibration::experiment().unwrap_or_else(|problems| panic!("{problems}"));
    experiment.repeats = 1;
    for variant in &mut experiment.variants {
        // A full queue leaves the probe few round trips.
        if variant.name != "beside-bulk" {
            variant.duration /= 8;
        }
        variant.sim = lab.delays();
    }
    let results = runner::run(&experiment, &mut Sim::default(), &mut Unobserved).expect("it runs");
    Measured::of(&results).unwrap_or_else(|problem| panic!("{problem}"))
}

fn idle(p10_us: f64, p50_us: f64, p99_us: f64) -> RoundTrips {
    RoundTrips {
        p10_us,
        p50_us,
        p99_us,
    }
}

#[test]
fn idle_round_trips_are_within_a_tenth_of_those_measured() {
    for (near, far) in [
        // As measured on a virtual machine of two CPUs which others used, too.
        (idle(41.1, 44.6, 68.1), idle(45.0, 47.8, 69.0)),
        // Faster and steadier; slower, with links that count.
        (idle(20.5, 21.0, 24.0), idle(21.0, 21.5, 24.5)),
        (idle(190.0, 200.0, 250.0), idle(236.0, 246.0, 296.0)),
    ] {
        let lab = Measured {
            near,
            far,
            last_start_us: 8_000.0,
            ..Measured::default()
        };
        let sim = simulated(&lab);
        assert!(sim.idle_ratio(&lab) <= 1.1, "{lab:?}\n{sim:?}");
        let last_start = sim.last_start_us / lab.last_start_us;
        assert!((0.8..1.1).contains(&last_start), "{last_start}");
        // Nothing of what the bulk flow does is fitted.
        assert!(sim.bulk_share > 0.95, "{sim:?}");
        assert!((sim.packets_per_ack - 2.0).abs() < 0.05, "{sim:?}");
        assert!(
            sim.beside_bulk.p50_us > 5.0 * near.p50_us,
            "a queue stands there: {sim:?}"
        );
    }
}
