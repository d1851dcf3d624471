//! Geometry of a picture: what stands side by side, where ports are.

/// A node: a rectangle, or a disc, around its centre.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
    pub round: bool,
}

impl Shape {
    /// A disc.
    pub fn disc((x, y): (f64, f64), radius: f64) -> Self {
        Self {
            x,
            y,
            w: 2.0 * radius,
            h: 2.0 * radius,
            round: true,
        }
    }
}

/// Where a node has a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Above,
    Below,
    Left,
    Right,
    /// Of a disc, where the neighbour is.
    Towards,
}

/// An end of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Port {
    /// On the edge of its node.
    pub at: [f64; 2],
    /// Into the node, as long as a full queue is drawn.
    pub inwards: [f64; 2],
}

impl Port {
    /// From where an empty queue ends to where a full one does.
    pub fn bar(&self) -> [f64; 4] {
        let ([x, y], [dx, dy]) = (self.at, self.inwards);
        [x, y, x + dx, y + dy]
    }
}

/// Two decimals would be invisible.
pub fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Centres of `count` things at equal distances, together in the middle of `width`.
pub fn side_by_side(width: f64, pitch: f64, count: usize) -> Vec<f64> {
    let first = width / 2.0 - pitch * (count as f64 - 1.0) / 2.0;
    (0..count).map(|n| first + pitch * n as f64).collect()
}

/// Indices by value; equal ones stay in their order.
pub fn ascending(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    order
}

/// Centres as near to the wanted ones (least squares) as sizes, gaps and `order` allow: isotonic
/// regression by pooling adjacent violators (Ayer et al. 1955). What would stand right of `most`
/// moves left.
pub fn without_overlap(
    wanted: &[f64],
    sizes: &[f64],
    gap: f64,
    order: &[usize],
    most: f64,
) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(order.len());
    let mut offset = 0.0;
    for (place, &index) in order.iter().enumerate() {
        if place > 0 {
            offset += (sizes[order[place - 1]] + sizes[index]) / 2.0 + gap;
        }
        offsets.push(offset);
    }
    // Pools: sum of what their members want without offsets, and how many they are.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (&index, offset) in order.iter().zip(&offsets) {
        let mut pool = (wanted[index] - offset, 1);
        while let Some(&(sum, count)) = pools.last() {
            if sum / (count as f64) < pool.0 / pool.1 as f64 {
                break;
            }
            pools.pop();
            pool = (pool.0 + sum, pool.1 + count);
        }
        pools.push(pool);
    }
    let bases = pools
        .iter()
        .flat_map(|&(sum, count)| std::iter::repeat_n(sum / count as f64, count));
    let mut centres = vec![0.0; wanted.len()];
    for ((&index, offset), base) in order.iter().zip(&offsets).zip(bases) {
        centres[index] = base + offset;
    }
    let right = order
        .last()
        .map_or(0.0, |&last| centres[last] + sizes[last] / 2.0);
    let beyond = (right - most).max(0.0);
    centres.into_iter().map(|centre| centre - beyond).collect()
}

/// Both ends of each link. Ports of one side stand in the order of what they lead to.
pub fn ports(
    boxes: &[Shape],
    links: &[(usize, usize)],
    side: impl Fn(usize, usize) -> Side,
) -> Vec<[Port; 2]> {
    // (node, side, where it leads, link, end), so that sorting puts each side's ports in order.
    let mut ends: Vec<(usize, Side, f64, usize, usize)> = Vec::with_capacity(2 * links.len());
    for (link, &(a, b)) in links.iter().enumerate() {
        for (end, node, near) in [(0, a, b), (1, b, a)] {
            let side = side(node, near);
            let along = match side {
                Side::Above | Side::Below => boxes[near].x,
                _ => boxes[near].y,
            };
            ends.push((node, side, along, link, end));
        }
    }
    ends.sort_by(|a, b| {
        let along = a.2.total_cmp(&b.2);
        (a.0, a.1).cmp(&(b.0, b.1)).then(along).then(a.3.cmp(&b.3))
    });
    let mut ports = vec![[Port::default(); 2]; links.len()];
    for group in ends.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let node = group[0].0;
        let both = ends.iter().any(|end| end.0 == node && end.1 != group[0].1);
        for (number, &(_, side, _, link, end)) in group.iter().enumerate() {
            let far = [links[link].1, links[link].0][end];
            let share = (number as f64 + 0.5) / group.len() as f64;
            let at = Edge { share, both };
            ports[link][end] = match side {
                Side::Towards => towards(&boxes[node], &boxes[far], parallel(links, link)),
                side => at.port(&boxes[node], side),
            };
        }
    }
    ports
}

/// How far aside a link is of others between the same nodes, in link widths.
fn parallel(links: &[(usize, usize)], link: usize) -> f64 {
    let same = |other: &(usize, usize)| {
        let (a, b) = links[link];
        *other == (a, b) || *other == (b, a)
    };
    let before = links[..link].iter().filter(|other| same(other)).count();
    let all = links.iter().filter(|other| same(other)).count();
    before as f64 - (all as f64 - 1.0) / 2.0
}

/// A place on one side of a rectangle.
struct Edge {
    /// How far along the side, 0..=1.
    share: f64,
    /// Another side has ports too.
    both: bool,
}

impl Edge {
    fn port(&self, node: &Shape, side: Side) -> Port {
        let along = node.x + (self.share - 0.5) * node.w;
        // A name stands between queues from two sides.
        let deep = match self.both {
            true => node.h / 2.0 - 8.0,
            false => node.h - 17.0,
        };
        let deep = if node.h < 30.0 { node.h - 4.0 } else { deep };
        let aside = node.y - node.h / 2.0 + 6.0 + self.share * (node.h / 2.0 - 14.0);
        let (at, inwards) = match side {
            Side::Above => ([along, node.y - node.h / 2.0], [0.0, deep]),
            Side::Left => (
                [node.x - node.w / 2.0, aside],
                [(node.w * 0.42).min(60.0), 0.0],
            ),
            Side::Right => (
                [node.x + node.w / 2.0, aside],
                [-(node.w * 0.42).min(60.0), 0.0],
            ),
            Side::Below | Side::Towards => ([along, node.y + node.h / 2.0], [0.0, -deep]),
        };
        Port { at, inwards }
    }
}

fn towards(node: &Shape, far: &Shape, aside: f64) -> Port {
    let (dx, dy) = (far.x - node.x, far.y - node.y);
    let (length, radius) = (dx.hypot(dy).max(1e-9), node.w / 2.0);
    let turned = dy.atan2(dx)
        + aside * 12.0 / radius
            * if (node.x, node.y) < (far.x, far.y) {
                1.0
            } else {
                -1.0
            };
    let (ux, uy) = match length > 1e-6 {
        true => (turned.cos(), turned.sin()),
        false => (0.0, 1.0),
    };
    let deep = radius * if radius < 20.0 { 1.5 } else { 0.6 };
    Port {
        at: [node.x + radius * ux, node.y + radius * uy],
        inwards: [-deep * ux, -deep * uy],
    }
}

/// A line to the right of another, as traffic that keeps right; its ends are hidden below the
/// nodes.
pub fn beside([[ax, ay], [bx, by]]: [[f64; 2]; 2], apart: f64) -> [f64; 4] {
    let (dx, dy) = (bx - ax, by - ay);
    let length = dx.hypot(dy).max(1e-9);
    let (ux, uy) = (dx / length * apart, dy / length * apart);
    [ax - uy - ux, ay + ux - uy, bx - uy + ux, by + ux + uy]
}
