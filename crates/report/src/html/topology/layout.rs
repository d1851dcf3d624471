//! Where nodes, links and queues of a network stand in its picture; a function of the graph alone.
//!
//! | network | arrangement |
//! |---|---|
//! | a tree, or any other whose links all join neighbouring levels | hosts at the bottom, roots on top |
//! | switches in a line: dumbbell, parking lot | switches side by side, hosts below |
//! | one switch | in the middle, hosts around it |
//! | any other graph | switches on an ellipse, hosts outside |

use std::f64::consts::TAU;

use serde::Serialize;
use sluicegate_fabric::{Graph, graph::NodeId};
use sluicegate_scenario::results::Film;

use super::places::{self, Shape, Side};

/// Width of a picture in its own unit, which is about a pixel.
const WIDTH: f64 = 1200.0;
/// Distance between ports side by side.
const PITCH: std::ops::RangeInclusive<f64> = 8.0..=52.0;
/// From one level to the next.
const LEVEL_GAP: f64 = 165.0;
/// From hosts to the switches above.
const HOST_GAP: f64 = 105.0;
/// Height of a switch, and of a host.
const HEIGHTS: [f64; 2] = [52.0, 20.0];
/// Room at the edges.
const MARGIN: f64 = 24.0;
/// Room for the lower half of hosts, and their names.
const HOST_ROOM: f64 = 54.0;
/// How much wider than high an ellipse is.
const STRETCH: f64 = 1.8;
/// Radius of a host on an ellipse.
const HOST_RADIUS: f64 = 11.0;

/// How a network is arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// By level.
    Levels,
    /// Switches in a line.
    Row,
    /// Around one switch, or on an ellipse.
    Round,
}

/// A picture without time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layout {
    /// How it is arranged.
    pub kind: Kind,
    /// Its size.
    pub width: f64,
    /// Its size.
    pub height: f64,
    /// The widest that a direction of a link may be drawn.
    pub line: f64,
    /// As in the film.
    pub nodes: Vec<Place>,
    /// As the film's directions.
    pub ways: Vec<Direction>,
}

/// A node: a rectangle or a disc around its centre.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    pub name: String,
    pub host: bool,
    /// Links to the hosts; 0 for a host.
    pub level: usize,
    pub round: bool,
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
    /// Room for the name side by side with others.
    pub room: f64,
}

/// A direction of a link, and the queue at its sending end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Direction {
    pub from: usize,
    pub to: usize,
    /// Where it begins and ends: x, y, x, y.
    pub line: [f64; 4],
    /// Where the queue stands when it is empty and when it is full: x, y, x, y.
    pub bar: [f64; 4],
    /// Width of the queue.
    pub bar_width: f64,
}

/// A graph whose nodes have names. Places are kept by node, so here nodes are indices, those of
/// [`NodeId::index`].
pub struct Network<'a> {
    pub names: Vec<&'a str>,
    pub graph: Graph,
}

impl<'a> Network<'a> {
    /// The network of a film.
    pub fn of(film: &'a Film) -> Self {
        let hosts = film.nodes.iter().filter(|node| node.is_host).count();
        let switches = film.nodes.len() - hosts;
        let mut graph = Graph::new(hosts as u32, switches as u32);
        for both in film.directions.chunks_exact(2) {
            graph.link(NodeId::at(both[0].from), NodeId::at(both[0].to));
        }
        let names = film.nodes.iter().map(|node| node.name.as_str()).collect();
        Self { names, graph }
    }

    /// Neighbours of a node, in the order of links.
    fn near(&self, node: usize) -> impl Iterator<Item = usize> + Clone {
        let adjacent = self.graph.adjacent(NodeId::at(node)).iter();
        adjacent.map(|&(_, near)| near.index())
    }

    fn links(&self) -> Vec<(usize, usize)> {
        let links = self.graph.links().iter();
        links.map(|&(a, b)| (a.index(), b.index())).collect()
    }

    fn is_host(&self, node: usize) -> bool {
        self.graph.is_host(NodeId::at(node))
    }

    /// Links to the nearest host; what no host reaches is at level 1.
    fn levels(&self) -> Vec<usize> {
        let levels = self.graph.levels().0.into_iter();
        let level = |level: Option<u32>| level.map_or(1, |level| level as usize);
        levels.map(level).collect()
    }
}

/// Places everything.
pub fn layout(network: &Network<'_>) -> Layout {
    let switches = (0..network.names.len()).filter(|&node| !network.is_host(node));
    let plan = Plan {
        network,
        hosts: hosts_by_switch(network),
        switches: switches.collect(),
        levels: network.levels(),
    };
    let neighbours = |&(a, b): &(usize, usize)| plan.levels[a].abs_diff(plan.levels[b]) == 1;
    if plan.switches.len() < 2 {
        plan.round()
    } else if network.links().iter().all(neighbours) {
        plan.by_level()
    } else if let Some(line) = plan.line() {
        plan.in_a_row(&line)
    } else {
        plan.round()
    }
}

/// Hosts, those of one switch together, in the order of their first ones.
fn hosts_by_switch(network: &Network<'_>) -> Vec<usize> {
    let hosts = (0..network.names.len()).filter(|&node| network.is_host(node));
    let mut hosts: Vec<usize> = hosts.collect();
    let first = |host: usize| {
        let near = network.near(host).next();
        let beside = near.into_iter().flat_map(|near| network.near(near));
        let least = beside.filter(|&other| network.is_host(other)).min();
        (least.unwrap_or(host), near, host)
    };
    hosts.sort_by_cached_key(|&host| first(host));
    hosts
}

/// The facts about a network before anything has a place.
struct Plan<'a> {
    network: &'a Network<'a>,
    levels: Vec<usize>,
    hosts: Vec<usize>,
    switches: Vec<usize>,
}

impl Plan<'_> {
    /// The switches from one end to the other, if they are in a line.
    fn line(&self) -> Option<Vec<usize>> {
        let beside = |node: usize| {
            let near = self.network.near(node);
            let mut near: Vec<usize> = near.filter(|&n| !self.network.is_host(n)).collect();
            near.sort_unstable();
            near.dedup();
            near
        };
        let ends = |&&node: &&usize| beside(node).len() == 1;
        let mut line = vec![*self.switches.iter().find(ends)?];
        while let Some(&last) = line.last() {
            let mut further = beside(last);
            further.retain(|near| !line.contains(near));
            match further[..] {
                [] => break,
                [next] => line.push(next),
                _ => return None,
            }
        }
        (line.len() == self.switches.len()).then_some(line)
    }

    /// Slots that ports need at each side of a node: below and above it.
    fn ports(&self, node: usize) -> [usize; 2] {
        let level = self.levels[node];
        let near = self.network.near(node);
        let below = near.clone().filter(|&near| self.levels[near] < level);
        let below = below.count();
        [below, near.count() - below]
    }

    fn by_level(&self) -> Layout {
        let top = self.levels.iter().copied().max().unwrap_or(1);
        let edge = self.edge();
        let rows = (1..=top).map(|level| match level {
            1 => edge.clone(),
            _ => self.at_level(level),
        });
        let rows: Vec<Vec<usize>> = rows.collect();
        let slots = |row: &Vec<usize>| row.iter().map(|&node| self.slots(node) + 0.8).sum::<f64>();
        let most = rows.iter().map(slots).fold(1.0, f64::max);
        let pitch = ((WIDTH - 2.0 * MARGIN) / most).clamp(*PITCH.start(), *PITCH.end());
        let width = WIDTH.max(most * pitch + 2.0 * MARGIN);
        let bottom = MARGIN + HEIGHTS[0] + HOST_GAP + LEVEL_GAP * (top as f64 - 1.0);
        let mut shapes = vec![Shape::default(); self.network.names.len()];
        for (level, row) in rows.iter().enumerate() {
            let y = bottom - HOST_GAP - LEVEL_GAP * level as f64;
            self.place_row(row, y, pitch, width, &mut shapes);
        }
        for &switch in &edge {
            self.place_hosts(switch, bottom, pitch, &mut shapes);
        }
        let height = bottom + HOST_ROOM;
        self.place_strays(&mut shapes, height);
        let side = |node: usize, near: usize| match self.levels[near] < self.levels[node] {
            true => Side::Below,
            false => Side::Above,
        };
        self.finish(Kind::Levels, [width, height], pitch, &shapes, side)
    }

    /// Switches of a level, each as near to the middle of what is below it as the others allow.
    fn place_row(&self, row: &[usize], y: f64, pitch: f64, width: f64, shapes: &mut [Shape]) {
        let sizes = row.iter().map(|&node| (self.slots(node) * pitch).max(34.0));
        let sizes: Vec<f64> = sizes.collect();
        let spare = width - 2.0 * MARGIN - sizes.iter().sum::<f64>();
        let gap = (spare / row.len() as f64 * 0.55).clamp(pitch * 0.8, 110.0);
        let wanted = row.iter().map(|&node| self.above(node, width, shapes));
        let wanted: Vec<f64> = wanted.collect();
        let order = places::ascending(&wanted);
        let xs = places::without_overlap(&wanted, &sizes, gap, &order, width - MARGIN);
        for ((&node, x), w) in row.iter().zip(xs).zip(sizes) {
            let h = HEIGHTS[0];
            shapes[node] = Shape {
                x,
                y,
                w,
                h,
                round: false,
            };
        }
    }

    /// A switch's hosts, side by side below it.
    fn place_hosts(&self, switch: usize, y: f64, pitch: f64, shapes: &mut [Shape]) {
        let hosts = self.hosts_of(switch);
        let xs = places::side_by_side(2.0 * shapes[switch].x, pitch, hosts.len());
        for (host, x) in hosts.into_iter().zip(xs) {
            let (w, h) = ((pitch * 0.8).min(24.0), HEIGHTS[1]);
            shapes[host] = Shape {
                x,
                y,
                w,
                h,
                round: false,
            };
        }
    }

    /// Ports at that side of a node that has more.
    fn slots(&self, node: usize) -> f64 {
        let [below, above] = self.ports(node);
        below.max(above).max(1) as f64
    }

    /// The switches that have hosts, in these hosts' order; then others of the lowest level.
    fn edge(&self) -> Vec<usize> {
        let near = |host: &usize| self.network.near(*host).next();
        let mut edge = Vec::new();
        for switch in self.hosts.iter().filter_map(near).chain(self.at_level(1)) {
            if !edge.contains(&switch) {
                edge.push(switch);
            }
        }
        edge
    }

    fn at_level(&self, level: usize) -> Vec<usize> {
        let nodes = 0..self.network.names.len();
        nodes.filter(|&node| self.levels[node] == level).collect()
    }

    /// The middle of what is below a node; for what has only hosts below, the middle of the
    /// picture.
    fn above(&self, node: usize, width: f64, shapes: &[Shape]) -> f64 {
        let near = self.network.near(node);
        let below: Vec<f64> = near
            .filter(|&near| (1..self.levels[node]).contains(&self.levels[near]))
            .map(|near| shapes[near].x)
            .collect();
        match below.len() {
            0 => width / 2.0,
            count => below.iter().sum::<f64>() / count as f64,
        }
    }

    fn hosts_of(&self, switch: usize) -> Vec<usize> {
        let beside = |&&host: &&usize| self.network.near(host).next() == Some(switch);
        self.hosts.iter().filter(beside).copied().collect()
    }

    fn in_a_row(&self, line: &[usize]) -> Layout {
        let slots: Vec<f64> = line
            .iter()
            .map(|&switch| self.hosts_of(switch).len().max(3) as f64)
            .collect();
        let gaps = line.len() as f64 - 1.0;
        let pitch = (WIDTH - 2.0 * MARGIN - gaps * 60.0) / (slots.iter().sum::<f64>() + 0.2);
        let pitch = pitch.clamp(*PITCH.start(), *PITCH.end());
        let taken = slots.iter().sum::<f64>() * pitch;
        let spare = (WIDTH - 2.0 * MARGIN - taken) / gaps.max(1.0);
        let gap = spare.clamp(60.0, 320.0);
        let width = (taken + gaps * gap + 2.0 * MARGIN).max(WIDTH);
        let (top, height) = (MARGIN + 40.0, MARGIN + 40.0 + 150.0 + HOST_ROOM);
        let mut shapes = vec![Shape::default(); self.network.names.len()];
        let mut left = (width - taken - gaps * gap) / 2.0;
        for (&switch, slots) in line.iter().zip(slots) {
            let (x, w) = (left + slots * pitch / 2.0, slots * pitch);
            shapes[switch] = Shape {
                x,
                y: top,
                w,
                h: 72.0,
                round: false,
            };
            self.place_hosts(switch, top + 150.0, pitch, &mut shapes);
            left += slots * pitch + gap;
        }
        self.place_strays(&mut shapes, height);
        let side = |node: usize, near: usize| match (
            self.network.is_host(node),
            self.network.is_host(near),
        ) {
            (true, _) => Side::Above,
            (false, true) => Side::Below,
            _ if shapes[near].x < shapes[node].x => Side::Left,
            _ => Side::Right,
        };
        self.finish(Kind::Row, [width, height], pitch, &shapes, side)
    }

    /// Hosts that no switch knows stand at the left edge.
    fn place_strays(&self, shapes: &mut [Shape], height: f64) {
        let strays = self
            .hosts
            .iter()
            .filter(|&&host| shapes[host] == Shape::default());
        for (number, &host) in strays.collect::<Vec<_>>().into_iter().enumerate() {
            let (x, y) = (12.0, height - 12.0 - 24.0 * number as f64);
            shapes[host] = Shape {
                x,
                y,
                w: 16.0,
                h: 16.0,
                round: true,
            };
        }
    }

    fn round(&self) -> Layout {
        let order = self.tour();
        let share = |&switch: &usize| self.hosts_of(switch).len().max(2) as f64;
        let slots: f64 = order.iter().map(share).sum::<f64>().max(2.0);
        let fewest = order.iter().map(share).fold(f64::MAX, f64::min);
        let radius = (slots / order.len().max(1) as f64 * 3.0).clamp(26.0, 90.0);
        let inner = match order.len() {
            0 | 1 => 0.0,
            _ => (slots * (2.0 * radius + 16.0) / (TAU * fewest)).max(100.0),
        };
        let outer = (slots * (2.0 * HOST_RADIUS + 8.0) / TAU).max(inner + radius + 85.0);
        let (width, height) = (2.0 * (outer * STRETCH + 70.0), 2.0 * (outer + 45.0));
        let at = |radius: f64, slot: f64| {
            let angle = TAU * slot / slots - TAU / 4.0;
            let (x, y) = (radius * STRETCH * angle.cos(), radius * angle.sin());
            (width / 2.0 + x, height / 2.0 + y)
        };
        let mut shapes = vec![Shape::default(); self.network.names.len()];
        let mut slot = 0.0;
        for switch in &order {
            let hosts = self.hosts_of(*switch);
            let begin = slot + (share(switch) - hosts.len() as f64) / 2.0;
            for (number, host) in hosts.into_iter().enumerate() {
                shapes[host] = Shape::disc(at(outer, begin + number as f64 + 0.5), HOST_RADIUS);
            }
            let middle = slot + share(switch) / 2.0;
            shapes[*switch] = Shape::disc(at(inner, middle), radius);
            slot += share(switch);
        }
        self.place_strays(&mut shapes, height);
        let pitch = 2.0 * HOST_RADIUS + 8.0;
        self.finish(Kind::Round, [width, height], pitch, &shapes, |_, _| {
            Side::Towards
        })
    }

    /// The switches so that neighbours follow each other where they can: depth first from the first
    /// one.
    fn tour(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.switches.len());
        for &start in &self.switches {
            let mut waiting = vec![start];
            while let Some(node) = waiting.pop() {
                if self.network.is_host(node) || order.contains(&node) {
                    continue;
                }
                order.push(node);
                let mut near: Vec<usize> = self.network.near(node).collect();
                near.sort_unstable_by(|a, b| b.cmp(a));
                waiting.extend(near);
            }
        }
        order
    }

    /// Room for a queue where those of a disc come closest to each other, at their full ends.
    fn narrowest(&self, shapes: &[Shape]) -> f64 {
        let discs = shapes.iter().enumerate().filter(|(_, it)| it.round);
        let ports = |node| self.network.near(node).count().max(2) as f64;
        let rooms = discs.map(|(node, it)| 0.8 * TAU * 0.2 * it.w / ports(node));
        rooms.fold(f64::MAX, f64::min)
    }

    /// Gives links their ports.
    fn finish(
        &self,
        kind: Kind,
        [width, height]: [f64; 2],
        pitch: f64,
        shapes: &[Shape],
        side: impl Fn(usize, usize) -> Side,
    ) -> Layout {
        let apart = (pitch * 0.2).clamp(1.6, 4.0);
        let bar_width = places::rounded((pitch * 0.5).min(self.narrowest(shapes)).clamp(2.5, 10.0));
        let links = self.network.links();
        let ports = places::ports(shapes, &links, side);
        let mut ways = Vec::with_capacity(2 * links.len());
        for (&(a, b), ends) in links.iter().zip(&ports) {
            for (from, to, near, far) in [(a, b, &ends[0], &ends[1]), (b, a, &ends[1], &ends[0])] {
                ways.push(Direction {
                    from,
                    to,
                    line: places::beside([near.at, far.at], apart).map(places::rounded),
                    bar: near.bar().map(places::rounded),
                    bar_width,
                });
            }
        }
        let place = |(node, it): (usize, &Shape)| Place {
            name: self.network.names[node].to_owned(),
            host: self.network.is_host(node),
            level: self.levels[node],
            round: it.round,
            x: places::rounded(it.x),
            y: places::rounded(it.y),
            w: places::rounded(it.w),
            h: places::rounded(it.h),
            room: places::rounded(if kind == Kind::Round {
                60.0
            } else {
                it.w.max(pitch)
            }),
        };
        Layout {
            kind,
            width: places::rounded(width),
            height: places::rounded(height),
            line: places::rounded(apart * 1.7),
            nodes: shapes.iter().enumerate().map(place).collect(),
            ways,
        }
    }
}
