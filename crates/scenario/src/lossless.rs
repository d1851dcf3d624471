//! Faults of lossless Ethernet, and drops between guests and their hosts' switches: `--check`
//! refuses them unless an expectation of the scenario is about them. Simulated switches of hosts
//! drop what the scenario makes them drop, so there these drops are no fault.

use crate::{
    figures::Quantity,
    results::{LinkResult, VariantResult},
};

/// Counter of frames of lossless priorities that were dropped, in
/// [`crate::results::Conditions::outside`].
pub const DROPS: &str = "lossless_drops";

/// Counter of cycles of pauses that never end.
pub const DEADLOCKS: &str = "deadlocks";

/// Counter of frames that were dropped at guests' adapters, sockets and ports of host switches.
pub const VNICS: &str = "vnic_drops";

/// Cause of a drop for which headroom is there.
const CAUSE: &str = "headroom";

/// By counter, what happened in a variant that none of the figures `said` of it tells.
pub fn unsaid(variant: &VariantResult, said: &[&Quantity]) -> [(&'static str, u64); 3] {
    let untold = |link: &&LinkResult| {
        let tells = |quantity: &&Quantity| quantity.counts_drops(link, CAUSE);
        !said.iter().any(tells)
    };
    let dropped = variant.links.iter().filter(untold);
    let dropped = dropped.filter_map(|link| link.drops.get(CAUSE)).sum();
    let deadlocks = match said.contains(&&Quantity::Deadlocks) {
        true => 0,
        false => variant.deadlocks.len() as u64,
    };
    let is_simulated = variant.cpu_idle_min.is_none();
    let at_vnics = match is_simulated || said.iter().any(|quantity| quantity.is_vnic_drops()) {
        true => 0,
        false => variant
            .vnics
            .iter()
            .flat_map(|vnic| vnic.drops.values())
            .sum(),
    };
    [(DROPS, dropped), (DEADLOCKS, deadlocks), (VNICS, at_vnics)]
}

/// Whether a figure tells of what this counter counts, wherever that was.
pub fn tells(quantity: &Quantity, counter: &str) -> bool {
    match counter {
        DROPS => quantity.is_drops(CAUSE),
        DEADLOCKS => *quantity == Quantity::Deadlocks,
        VNICS => quantity.is_vnic_drops(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Deadlock, VnicResult};

    fn link(id: &str, bottleneck: bool, drops: u64) -> LinkResult {
        LinkResult {
            id: id.to_owned(),
            bottleneck,
            drops: [(CAUSE.to_owned(), drops), ("tail".to_owned(), 100)].into(),
            ..LinkResult::default()
        }
    }

    #[test]
    fn what_a_figure_tells_is_not_counted() {
        let mut variant = VariantResult {
            links: vec![link("a>b", true, 1), link("b>a", false, 2)],
            cpu_idle_min: Some(0.9),
            vnics: vec![VnicResult {
                drops: [("full".to_owned(), 3), ("socket".to_owned(), 1)].into(),
                ..VnicResult::default()
            }],
            deadlocks: vec![Deadlock {
                repeat: 1,
                priority: 0,
                since_s: 0.1,
                links: Vec::new(),
                bytes: 0,
                behind: 0,
            }],
            ..VariantResult::default()
        };
        let unsaid = |variant: &VariantResult, names: &[&str]| {
            let said: Vec<_> = names.iter().map(|n| Quantity::parse(n).unwrap()).collect();
            unsaid(variant, &said.iter().collect::<Vec<_>>()).map(|(_, count)| count)
        };
        assert_eq!(unsaid(&variant, &[]), [3, 1, 4]);
        assert_eq!(
            unsaid(&variant, &["links.all.sent", "links.all.drops.tail"]),
            [3, 1, 4]
        );
        assert_eq!(unsaid(&variant, &["links.all.drops"]), [0, 1, 4]);
        assert_eq!(unsaid(&variant, &["links.all.drops.headroom"]), [0, 1, 4]);
        assert_eq!(unsaid(&variant, &["links.bottleneck.drops"]), [2, 1, 4]);
        assert_eq!(
            unsaid(&variant, &["links.b-a.drops", "deadlocks"]),
            [1, 0, 4]
        );
        assert_eq!(
            unsaid(&variant, &["vnics.all.sent", "vnics.all.drops.full"]),
            [3, 1, 0]
        );
        variant.cpu_idle_min = None;
        assert_eq!(unsaid(&variant, &[]), [3, 1, 0], "simulated");
    }
}
