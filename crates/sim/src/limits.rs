//! Requests of a scenario that the simulator cannot fulfil.

use sluicegate_core::cc::Algorithm;
use sluicegate_fabric::routing::{Routing, fits_conga};
use sluicegate_scenario::{
    experiment::{Experiment, TrafficKind, Variant, congestion_controls},
    world::Problem,
};

use crate::{packet::HOSTS_MAX, world::NAME};

/// Each with its key and what to do.
pub fn of(experiment: &Experiment) -> Vec<Problem> {
    let variants = experiment.variants.iter();
    let of_variants = variants.flat_map(of_variant);
    of_variants.chain(of_expectations(experiment)).collect()
}

/// Lines that compare frames at vNICs, of variants whose hosts have no switch that counts them.
fn of_expectations(experiment: &Experiment) -> impl Iterator<Item = Problem> {
    let has_switches = |name: &str| {
        let named = experiment.variants.iter().find(|v| v.name == name);
        named.is_none_or(|variant| variant.host_switch.is_some())
    };
    let lines = experiment.expectations.iter();
    let lines = lines.filter(|line| line.is_for(NAME));
    lines.filter_map(move |line| {
        let figures = line.figures();
        let uncounted =
            (figures.iter()).find(|it| it.quantity.is_of_vnics() && !has_switches(&it.variant))?;
        let reason = format!(
            "variant \"{}\" has no [network.host_switch], so that no frames are counted at vNICs",
            uncounted.variant
        );
        Some(line.problem(&reason, EXPECT_ADVICE))
    })
}

const EXPECT_ADVICE: &str =
    "give its hosts a switch, move the line to [expect.lab], or run it in the lab (--world lab)";

fn of_variant(variant: &Variant) -> Vec<Problem> {
    let mut found = of_tenants(variant);
    let blasts = variant.traffic.iter();
    found.extend(
        blasts
            .filter(|traffic| matches!(traffic.kind, TrafficKind::Blast { .. }))
            .map(|traffic| {
                let path = format!("traffic.{}.kind", traffic.name);
                let reason = "simulated tenants have no raw sockets";
                variant.places.problem(&path, reason, LAB_ADVICE)
            }),
    );
    let hosts = variant.hosts.len();
    if hosts > HOSTS_MAX {
        let reason = format!("{hosts} hosts; the simulator takes at most {HOSTS_MAX}");
        let path = variant
            .places
            .first_of("network", &["external", "topology"]);
        found.push(variant.places.problem(&path, &reason, "choose fewer"));
    }
    if matches!(variant.routing, Routing::Conga { .. }) {
        let reason = fits_conga(&variant.graph()).err();
        let problem = |reason: String| {
            let advice = "choose another scheme";
            variant.places.problem("network.routing", &reason, advice)
        };
        found.extend(reason.map(problem));
    }
    found
}

const LAB_ADVICE: &str = "run it in the lab (--world lab)";

/// Congestion controls that only a kernel has; one problem for each key, however many tenants it is
/// for.
fn of_tenants(variant: &Variant) -> Vec<Problem> {
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        (congestion_controls().into_iter()).partition(|name| name.parse::<Algorithm>().is_ok());
    let advice = format!("use one of {}, or {LAB_ADVICE}", known.join(", "));
    let tenants = variant.tenants.iter();
    let mut found: Vec<Problem> = tenants
        .filter(|tenant| unknown.contains(&tenant.congestion_control.as_str()))
        .map(|tenant| {
            let places = &variant.places;
            let path = places.of_tenant(&tenant.name, "congestion_control");
            let reason = format!("the simulator has no \"{}\"", tenant.congestion_control);
            places.problem(&path, &reason, &advice)
        })
        .collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluicegate_core::cc::{Algorithm, Stack};
    use sluicegate_scenario::{
        file,
        world::{Problems, Refused, World},
    };

    use crate::Sim;

    fn refusal(rest: &str) -> Vec<String> {
        let text = format!("[network]\ntopology = 'dumbbell'\n{rest}");
        let parsed = file::parse(Path::new("t.toml"), &text, &file::Options::default());
        let experiment = parsed.unwrap_or_else(|problems| panic!("{problems}"));
        let error = Sim::default().check(&experiment).unwrap_err();
        let Refused(Problems(problems)) = error.downcast().unwrap();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_congestion_control_of_the_lab_is_refused_where_it_is_said() {
        let found = refusal(
            "[traffic.b]\nkind = 'bulk'\n[tenant.default]\ncongestion_control = 'reno'\n[tenant.'s*']\n\
            ecn = true\ncongestion_control = 'bbr'\n[tenant.r1]\ncongestion_control = 'bbr'\n",
        );
        assert_eq!(found.len(), 2, "the pattern is told once: {found:#?}");
        assert!(found[0].starts_with(
            "t.toml:9:22: tenant.s*.congestion_control: the simulator has no \"bbr\""
        ));
        let stacks = Algorithm::stacks(&[Stack::Linux, Stack::Module, Stack::Ours]);
        let names: Vec<_> = stacks.map(Algorithm::name).collect();
        let advice = format!(
            "; use one of {}, or run it in the lab (--world lab)",
            names.join(", ")
        );
        assert!(found[0].ends_with(&advice), "{}", found[0]);
        assert!(
            found[1].starts_with("t.toml:11:22: tenant.r1."),
            "{found:#?}"
        );
    }

    #[test]
    fn raw_sockets_are_refused_where_they_are_said() {
        let found = refusal("[traffic.x]\nkind = 'blast'\nrate = '1Mbit'\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        let expected = "t.toml:4:8: traffic.x.kind: simulated tenants have no raw sockets";
        assert!(found[0].starts_with(expected), "{}", found[0]);
    }

    #[test]
    fn lines_on_vnics_are_refused_where_no_switch_counts_them() {
        let rest = "[traffic.b]\nkind = 'bulk'\n[variant.without]\n[variant.with]\n\
            network.host_switch = { lossless = true }\n[expect]\nfirst = 'with.vnics.all.drops == 0'\n\
            second = 'with.vnics.all.sent == without.vnics.s1.sent'\n[expect.sim]\n\
            third = 'without.vnics.all.drops.full == 0'\n[expect.lab]\n\
            fourth = 'without.vnics.all.received > 0'\n";
        let found = refusal(rest);
        let reason = "variant \"without\" has no [network.host_switch], so that no frames are counted at vNICs; \
            give its hosts a switch, move the line to [expect.lab], or run it in the lab (--world lab)";
        let expected = [
            "t.toml:10:10: expect.second: ",
            "t.toml:12:9: expect.sim.third: ",
        ];
        assert_eq!(found, expected.map(|place| format!("{place}{reason}")));
    }

    #[test]
    fn too_many_messages_are_refused_where_they_are_said() {
        let found = refusal("[traffic.m]\nkind = 'messages'\nbytes = '1KB'\ninterval = '1us'\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        let expected = "t.toml:6:12: traffic.m.interval: 12000000 arrivals of one sender";
        assert!(found[0].starts_with(expected), "{found:#?}");
    }
}
