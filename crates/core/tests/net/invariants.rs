//! Invariants of every packet that passes a host, whatever else happens.

use sluicegate_core::host::{Action, Direction, Outcome, edit, tcp};

use super::{opt, wire};

/// `before` and `after` are whole frames; `before` is well-formed.
pub fn check(before: &[u8], after: &[u8], direction: Direction, outcome: &Outcome) {
    if outcome.action != Action::Pass {
        assert_eq!(before, after, "what does not go on is not edited");
        return;
    }
    let (route, was) = wire::read(before);
    let (route_after, is) = wire::read(after); // checksums and lengths are right
    assert_eq!(route, route_after);
    assert_eq!(was.payload, is.payload, "payload is the tenant's");
    assert_eq!((was.urgent, was.dscp), (is.urgent, is.dscp));
    match outcome.edits & edit::SEQ {
        0 => assert_eq!(was.seq, is.seq),
        _ => {
            assert_eq!(direction, Direction::FromTenant);
            assert!(was.is_pure_ack(), "data keep their place");
            let more = is.seq.wrapping_sub(was.seq);
            assert!((2..=8 << 20).contains(&more), "{} → {}", was.seq, is.seq);
        }
    }
    match outcome.edits & edit::ACK {
        0 => assert_eq!(was.ack, is.ack),
        _ => {
            assert_eq!(direction, Direction::FromTenant);
            let less = was.ack.wrapping_sub(is.ack);
            assert!((1..1 << 31).contains(&less), "{} → {}", was.ack, is.ack);
        }
    }
    assert!(is.window <= was.window, "{} → {}", was.window, is.window);
    assert!(is.window > 0 || was.window == 0, "a window was closed");
    let cleared = was.flags & !is.flags;
    assert_eq!(is.flags & !was.flags, 0, "no flag is set");
    assert_eq!(
        cleared & !(tcp::ECE | tcp::CWR),
        0,
        "only ECN flags are cleared"
    );
    assert!(was.ae || !is.ae, "no flag is set");
    if direction == Direction::FromTenant {
        assert_eq!(was.ae, is.ae);
        assert_eq!(cleared, 0, "the tenant's own flags stay");
        assert_eq!(was.window, is.window, "the tenant's own window stays");
    }
    if outcome.edits & edit::MSS != 0 {
        assert_eq!(direction, Direction::ToTenant);
        assert!(was.has(tcp::SYN), "an MSS is of a handshake");
    }
    check_options(&was.options, &is.options, outcome.edits);
    if outcome.edits == 0 {
        assert_eq!(before, after);
    }
}

/// The tenant's options stay, in their order; hosts' own come and go.
fn check_options(was: &[u8], is: &[u8], edits: u16) {
    if opt::split(was).is_none() && edits & edit::BLANK_REST == 0 {
        assert_eq!(was, is, "malformed options are not edited");
        return;
    }
    let (was, is) = match edits & edit::BLANK_REST {
        0 => (
            opt::split(was).unwrap_or_default(),
            opt::split(is).unwrap_or_default(),
        ),
        _ => (opt::readable(was), opt::readable(is)),
    };
    let hidden = edits & edit::HIDE_MPTCP != 0;
    let foreign = |options: Vec<(u8, &[u8])>| -> Vec<Vec<u8>> {
        options
            .into_iter()
            .filter(|(kind, _)| *kind != opt::FEEDBACK && *kind != opt::EXPERIMENT)
            .filter(|(kind, _)| !hidden || *kind != opt::MPTCP)
            .map(|(_, bytes)| bytes.to_vec())
            .collect()
    };
    let (was, is) = (foreign(was), foreign(is));
    if edits & edit::MSS == 0 {
        assert_eq!(was, is, "the tenant's options stay");
        return;
    }
    assert_eq!(was.len(), is.len());
    let mut changed = was.iter().zip(&is).filter(|(was, is)| was != is);
    let (was, is) = changed.next().expect("an MSS that changes");
    assert!(changed.next().is_none(), "nothing but one MSS changes");
    assert_eq!((&was[..2], &is[..2]), (&[2, 4][..], &[2, 4][..]));
    assert!(is[2..] < was[2..], "an MSS is lowered");
}
