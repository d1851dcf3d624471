//! What a hop costs under each routing scheme, as a multiple of a hop under D-mod-k.

use anyhow::{Context, Result, bail, ensure};
use sluicegate_fabric::Routing;
use sluicegate_sim::{build::FabricOf, converged::Converged, net::Plain};

use super::{TURN_PS, timed};

/// What the servers offer in Mb/s, and how much of it is simulated at a time, [`TURNS`] times.
const OFFERS: [(u64, u64); 2] = [(500, 12 * TURN_PS), (6_000, TURN_PS)];
const TURNS: u64 = 400;
/// The same where a network is alone. The first bytes of TCP leave after a millisecond.
const TURNS_ALONE: u64 = 50;

/// What the servers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Each datagram is sent when it is due, so that all schemes move the same packets unless links
    /// are full.
    Datagrams,
    /// DCTCP: also what TCP does about disorder and marks.
    Tcp,
}

impl Load {
    const ALL: [Self; 2] = [Self::Datagrams, Self::Tcp];

    fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
            Self::Tcp => "tcp",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
            Self::Tcp => "bulk",
        }
    }
}

/// Flows that share no queue with D-mod-k.
fn scenario(scheme: &str, is_converged: bool, load: Load, mbps: u64) -> String {
    let cee = match is_converged {
        true => "[network.cee]\npfc = {}\nqcn = { set_point = '20KB', rate_limiters = true }\n",
        false => "",
    };
    format!(
        "warmup = '0s'\nduration = '1s'\n[network]\ntopology = 'k-ary-n-tree'\nk = 4\nn = 3\n\
         rate = '10Gbit'\ndelay = '1us'\nmarking = {{ kind = 'threshold', k = '97500B' }}\n\
         routing = '{scheme}'\n{cee}[tenant.default]\ncongestion_control = 'dctcp'\necn = true\n\
         [traffic.load]\nkind = '{}'\nfrom = 'h*'\nto = 'h*'\npairs = 'stride:16'\n\
         rate = '{mbps}Mbit'\n",
        load.kind()
    )
}

/// The schemes that `wanted` says, on both fabrics under all loads.
pub fn compare(wanted: impl Fn(&str) -> bool) -> Result<()> {
    let mut known = false;
    for (scheme, routing) in Routing::NAMES.into_iter().filter(|(name, _)| wanted(name)) {
        known = true;
        for (load, offer) in Load::ALL
            .into_iter()
            .flat_map(|load| OFFERS.map(|to| (load, to)))
        {
            if !routing.needs_notifications() {
                compare_one::<Plain>(scheme, false, load, offer)?;
            }
            if !matches!(routing, Routing::Conga { .. }) {
                compare_one::<Converged>(scheme, true, load, offer)?;
            }
        }
    }
    ensure!(known, "no such scheme");
    Ok(())
}

fn compare_one<F: FabricOf>(
    scheme: &str,
    is_converged: bool,
    load: Load,
    (mbps, turn_ps): (u64, u64),
) -> Result<()> {
    let mut fixed = timed::<F>(&scenario("d-mod-k", is_converged, load, mbps))?;
    let mut other = timed::<F>(&scenario(scheme, is_converged, load, mbps))?;
    for turn in 1..=TURNS {
        fixed.run_until(turn * turn_ps)?;
        other.run_until(turn * turn_ps)?;
    }
    other.engine.account()?;
    let hops = other.engine.hops() as f64 / fixed.engine.hops() as f64;
    let fabric = if is_converged { "converged" } else { "plain" };
    println!(
        "routing, {fabric}, {}, {mbps} Mb/s, {scheme}: {:.0} ns/hop, {:.3} of d-mod-k ({:.0} ns), \
         {hops:.3} of its hops",
        load.name(),
        other.ns_per_hop(),
        other.ns_per_hop() / fixed.ns_per_hop(),
        fixed.ns_per_hop(),
    );
    // At the higher load connections that share a link lose datagrams.
    let is_same = load == Load::Datagrams && mbps == OFFERS[0].0;
    ensure!(
        !is_same || (0.999..1.001).contains(&hops),
        "{scheme}: not the same packets"
    );
    Ok(())
}

/// One network, `FABRIC,LOAD,MBPS,SCHEME`, for counters of instructions: prints its hops.
pub fn alone(network: &str) -> Result<()> {
    let mut parts = network.split(',');
    let mut next = || parts.next().context("it is FABRIC,LOAD,MBPS,SCHEME");
    let (fabric, load, mbps, scheme) = (next()?, next()?, next()?.parse()?, next()?);
    let load = Load::ALL.into_iter().find(|known| known.name() == load);
    let load = load.context("the loads are datagrams and tcp")?;
    let offer = OFFERS.into_iter().find(|&(known, _)| known == mbps);
    let (_, turn_ps) = offer.context("not among what is offered")?;
    let end_ps = TURNS_ALONE * turn_ps;
    let hops = match fabric {
        "plain" => run::<Plain>(&scenario(scheme, false, load, mbps), end_ps)?,
        "converged" => run::<Converged>(&scenario(scheme, true, load, mbps), end_ps)?,
        other => bail!("no fabric {other}"),
    };
    println!("{network}: {hops} hops");
    Ok(())
}

fn run<F: FabricOf>(text: &str, end_ps: u64) -> Result<u64> {
    let mut network = timed::<F>(text)?;
    network.run_until(end_ps)?;
    network.engine.account()?;
    Ok(network.engine.hops())
}
