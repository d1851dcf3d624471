use sluicegate_fabric::{
    Graph,
    graph::{Node, NodeId},
};

use super::layout::{Kind, Layout, Network, layout};

/// Hosts `h0…`, then switches `s0…`; links by their places in the picture.
fn of(hosts: u32, switches: u32, links: &[(usize, usize)]) -> Layout {
    let mut graph = Graph::new(hosts, switches);
    for &(a, b) in links {
        graph.link(NodeId::at(a), NodeId::at(b));
    }
    of_graph(graph)
}

fn of_graph(graph: Graph) -> Layout {
    let name = |node| match node {
        Node::Host(host) => format!("h{}", host.0),
        Node::Switch(switch) => format!("s{}", switch.0),
    };
    let names: Vec<String> = graph.all().map(name).collect();
    let names = names.iter().map(String::as_str).collect();
    layout(&Network { names, graph })
}

fn xgft(m: &[u32], w: &[u32]) -> Layout {
    of_graph(Graph::xgft(m, w).unwrap())
}

/// No two nodes touch, all are within the picture, and no two lines or queues are in one place.
fn assert_apart(layout: &Layout) {
    for (number, a) in layout.nodes.iter().enumerate() {
        let inside = a.x - a.w / 2.0 >= 0.0
            && a.x + a.w / 2.0 <= layout.width
            && a.y - a.h / 2.0 >= 0.0
            && a.y + a.h / 2.0 <= layout.height;
        assert!(inside, "{a:?} in {} x {}", layout.width, layout.height);
        for b in &layout.nodes[..number] {
            let aside = (a.x - b.x).abs() >= (a.w + b.w) / 2.0 - 0.2;
            let above = (a.y - b.y).abs() >= (a.h + b.h) / 2.0 - 0.2;
            let round = a.round && b.round && (a.x - b.x).hypot(a.y - b.y) >= (a.w + b.w) / 2.0;
            assert!(aside || above || round, "{a:?} and {b:?}");
        }
    }
    for (number, a) in layout.ways.iter().enumerate() {
        for b in &layout.ways[..number] {
            assert_ne!(a.line, b.line);
            assert_ne!(a.bar, b.bar);
        }
    }
}

/// Nodes of each level, all at one height, higher levels higher.
fn assert_levels(layout: &Layout, expected: &[usize]) {
    assert_eq!(layout.kind, Kind::Levels);
    let mut last_y = f64::MAX;
    for (level, &count) in expected.iter().enumerate() {
        let at: Vec<_> = layout.nodes.iter().filter(|n| n.level == level).collect();
        assert_eq!(at.len(), count, "level {level}");
        assert!(at.iter().all(|node| node.y == at[0].y), "level {level}");
        assert!(at[0].y < last_y, "level {level}");
        last_y = at[0].y;
    }
    assert_apart(layout);
}

#[test]
fn a_slimmed_fat_tree_has_its_levels() {
    assert_levels(&xgft(&[16, 4], &[1, 2]), &[64, 4, 2]);
}

#[test]
fn k_ary_n_trees_have_their_levels() {
    assert_levels(&xgft(&[2, 2, 2], &[1, 2, 2]), &[8, 4, 4, 4]);
    assert_levels(&xgft(&[3, 3, 3], &[1, 3, 3]), &[27, 9, 9, 9]);
    assert_levels(&xgft(&[4, 4], &[1, 4]), &[16, 4, 4]);
}

#[test]
fn the_largest_that_must_be_smooth_fits() {
    let tree = xgft(&[8, 4, 4], &[1, 4, 4]);
    assert_levels(&tree, &[128, 16, 16, 16]);
    assert_eq!(tree.ways.len(), 2 * (128 + 64 + 64));
}

#[test]
fn children_stand_below_their_parents() {
    let tree = xgft(&[4, 4], &[1, 1]);
    for way in &tree.ways {
        let (a, b) = (&tree.nodes[way.from], &tree.nodes[way.to]);
        if a.host {
            assert!((a.x - b.x).abs() <= b.w / 2.0 + 1.0, "{a:?} below {b:?}");
        }
    }
}

#[test]
fn a_star_has_its_switch_in_the_middle() {
    for hosts in [2, 17, 64] {
        let links: Vec<_> = (0..hosts).map(|host| (hosts, host)).collect();
        let star = of(hosts as u32, 1, &links);
        assert_eq!(star.kind, Kind::Round);
        let switch = star.nodes.last().unwrap();
        let aside = (switch.x * 2.0 - star.width).abs() + (switch.y * 2.0 - star.height).abs();
        assert!(aside < 0.5, "{switch:?}");
        assert_apart(&star);
    }
}

#[test]
fn switches_in_a_line_stand_side_by_side() {
    // Two pairs on a dumbbell; then a parking lot whose middle switches were not made in order.
    let dumbbell = of(4, 2, &[(4, 5), (4, 0), (4, 1), (5, 2), (5, 3)]);
    let parking_lot = of(4, 3, &[(4, 6), (6, 5), (4, 0), (6, 1), (5, 2), (5, 3)]);
    for (row, order) in [(&dumbbell, &[4, 5][..]), (&parking_lot, &[4, 6, 5])] {
        assert_eq!(row.kind, Kind::Row);
        for pair in order.windows(2) {
            assert!(row.nodes[pair[0]].x < row.nodes[pair[1]].x);
            assert_eq!(row.nodes[pair[0]].y, row.nodes[pair[1]].y);
        }
        assert!(row.nodes[..4].iter().all(|host| host.y > row.nodes[4].y));
        assert_apart(row);
    }
}

#[test]
fn a_ring_is_drawn_as_a_ring() {
    let switches = 6;
    let ring = (0..switches).map(|n| (12 + n, 12 + (n + 1) % switches));
    let hosts = (0..12).map(|host| (12 + host / 2, host));
    let ring = of(12, switches as u32, &ring.chain(hosts).collect::<Vec<_>>());
    assert_eq!(ring.kind, Kind::Round);
    assert_apart(&ring);
    let far = |a: usize, b: usize| {
        let [a, b] = [a, b].map(|n| &ring.nodes[12 + n]);
        (a.x - b.x).hypot(a.y - b.y)
    };
    for n in 0..switches {
        let across = far(n, (n + 3) % switches);
        assert!(far(n, (n + 1) % switches) < across, "{n}");
    }
}

#[test]
fn any_graph_has_a_place_for_everything() {
    // A full mesh with parallel links, uneven hosts, and one that nothing joins.
    let mut links: Vec<_> = (0..9).map(|host| (10 + (host / 7) * 2, host)).collect();
    for a in 10..15 {
        links.extend((a + 1..15).map(|b| (a, b)));
    }
    links.push((10, 11));
    assert_apart(&of(10, 5, &links));
    assert_apart(&of(1, 1, &[(1, 0)]));
    assert_apart(&of(2, 0, &[(0, 1)]));
    assert!(of(0, 0, &[]).nodes.is_empty());
}

#[test]
fn the_same_graph_has_the_same_picture() {
    assert_eq!(xgft(&[4, 4], &[1, 4]), xgft(&[4, 4], &[1, 4]));
}
