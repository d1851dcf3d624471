use std::path::Path;

use sluicegate_scenario::file::{self, Options};

use crate::{build, converged::Converged};

#[test]
fn both_ends_of_a_connection_have_the_priority_of_their_traffic() {
    let text = "warmup = '0s'\nduration = '10ms'\n[network]\ntopology = 'dumbbell'\n[network.cee]\n\
        [traffic.a]\nkind = 'bulk'\nfrom = 's1'\nto = 'r1'\npriority = 5\n\
        [traffic.b]\nkind = 'messages'\nfrom = 's2'\nto = 'r2'\nbytes = '1KB'\ninterval = '1ms'\n\
        [traffic.c]\nkind = 'incast'\nfrom = 's*'\nto = 'r1'\nbytes = '1KB'\npriority = 7\n";
    let experiment = file::parse(Path::new("t.toml"), text, &Options::default());
    let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
    let mut engine = build::engine::<Converged>(&experiment.variants[0], 1, 1).unwrap();
    engine.begin();
    engine
        .run_until(10_000_000_000, &mut |_, _| Ok(()))
        .unwrap();
    let net = engine.nets().next().unwrap();
    let mut priorities: Vec<(u16, u8)> = (net.sockets.ends.iter())
        .map(|end| {
            (
                end.addressing.port.min(end.addressing.peer_port),
                end.priority,
            )
        })
        .collect();
    priorities.sort_unstable();
    let expected = [(10_000, 5), (10_001, 0), (10_002, 7), (10_003, 7)];
    let both_ends = expected.iter().flat_map(|end| [*end; 2]);
    assert_eq!(priorities, both_ends.collect::<Vec<_>>());
}
