//! A film: samples of every direction of every link, in equal intervals.

use std::time::Duration;

use sluicegate_apps::App;
use sluicegate_core::number::narrow;
use sluicegate_fabric::graph::PortId;
use sluicegate_scenario::{
    experiment::Variant,
    results::{Film, FilmCell, FilmDirection, FilmNode},
};

use crate::{
    build::{self, FabricOf},
    engine::Engine,
    measure::{self, Queue},
};

/// A film while it grows.
pub struct Recorder {
    film: Film,
    queues: Vec<Queue>,
    /// By direction, the counters at the last frame.
    last: Vec<Seen>,
}

/// Totals since the start of the run, but for the backlog.
#[derive(Clone, Copy, Default)]
struct Seen {
    accepted_bytes: u64,
    backlog_bytes: u64,
    paused_ps: u64,
    drops: u64,
}

impl Recorder {
    /// No frame yet; there will be one after each `interval`.
    pub fn new(variant: &Variant, interval: Duration) -> Self {
        let host = |name: &String| node(name, true);
        let switch = |name: &String| node(name, false);
        let hosts = variant.hosts.iter().map(|it| host(&it.name));
        let switches = variant.switches.iter().map(|it| switch(&it.name));
        let queues = measure::directions(variant);
        Self {
            film: Film {
                repeat: 1,
                nodes: hosts.chain(switches).collect(),
                directions: directions(variant),
                interval_ps: narrow::<u64>(interval.as_nanos()) * 1_000,
                cells: Vec::new(),
            },
            last: vec![Seen::default(); queues.len()],
            queues,
        }
    }

    /// Takes one frame.
    pub fn sample<F: FabricOf>(&mut self, engine: &mut Engine<App, F>) {
        for (queue, last) in self.queues.iter().zip(&mut self.last) {
            let now = Seen::of(queue, engine);
            self.film.cells.push(now.since(last));
            *last = now;
        }
    }

    /// The frames of the film.
    pub fn finish(self) -> Film {
        self.film
    }
}

impl Seen {
    fn of<F: FabricOf>(queue: &Queue, engine: &mut Engine<App, F>) -> Self {
        let counts = queue.counts(engine);
        let net = engine.net_of_port(queue.port());
        Self {
            accepted_bytes: counts.accepted_bytes(),
            backlog_bytes: net.backlog_bytes(queue.port()),
            paused_ps: F::converged(net).map_or(0, |net| net.paused_ps(queue.port())),
            drops: counts.drops(),
        }
    }

    /// A packet counts as accepted when it joins the queue: what left is the rest. Where a link
    /// went down, what it lost from the queue is among that.
    fn since(&self, last: &Self) -> FilmCell {
        let accepted_bytes = self.accepted_bytes - last.accepted_bytes;
        FilmCell {
            sent_bytes: (accepted_bytes + last.backlog_bytes).saturating_sub(self.backlog_bytes),
            queue_bytes: self.backlog_bytes,
            paused_ps: self.paused_ps - last.paused_ps,
            drops: self.drops - last.drops,
        }
    }
}

fn node(name: &str, is_host: bool) -> FilmNode {
    FilmNode {
        name: name.to_owned(),
        is_host,
    }
}

/// Both directions of each link.
fn directions(variant: &Variant) -> Vec<FilmDirection> {
    let graph = variant.graph();
    let direction = |port: PortId| {
        let link = &variant.links[port.link()];
        let (from, _) = variant.ends(port);
        FilmDirection {
            link: link.name.clone(),
            from: graph.near(port).index(),
            to: graph.far(port).index(),
            rate_bps: link.rate_bps,
            limit_bytes: build::limit_bytes(variant, link, from),
        }
    };
    variant.ports().map(direction).collect()
}
