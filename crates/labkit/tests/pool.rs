//! A pool of enforcement instances on a real kernel. Needs root.

use common::Host;
use sluicegate_labkit::pool::Pool;
use sluicegate_policy::Policy;

use crate::common;

fn policy() -> Policy {
    let text = "[[rule]]\nalgorithm = 'dctcp'\nmode = 'enforce'\n";
    Policy::parse("pool.toml", text).expect("the test's policy is valid")
}

#[test]
fn a_pool_hands_out_instances_that_remember_nothing() {
    let host = Host::new();
    let mut pool = Pool::default();
    let mut taken = pool.take(2, &policy()).unwrap();
    let ids: Vec<_> = taken
        .iter()
        .map(|one| one.programs().unwrap()[0].id)
        .collect();
    host.within("h", || taken[0].attach("ta").unwrap());
    let _connection = host.transfer(10_000);
    assert!(!taken[0].flows().unwrap().is_empty());
    pool.give(taken).unwrap();

    let mut again = pool.take(3, &policy()).unwrap();
    for instance in &again {
        assert!(instance.flows().unwrap().is_empty() && instance.interfaces().is_empty());
        assert!(
            instance
                .counters()
                .unwrap()
                .values()
                .all(|count| *count == 0)
        );
    }
    let reused: Vec<_> = again
        .iter()
        .map(|one| one.programs().unwrap()[0].id)
        .collect();
    assert!(
        ids.iter().all(|id| reused.contains(id)),
        "{ids:?} {reused:?}"
    );
    host.within("h", || again[0].attach("ta").unwrap());
    let (client, _server) = host.transfer(10_000);
    let local = client.local_addr().unwrap();
    assert!(
        again[0]
            .flows()
            .unwrap()
            .iter()
            .any(|flow| flow.local == local && flow.enforced)
    );
}
