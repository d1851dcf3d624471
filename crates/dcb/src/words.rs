//! What an adapter has, for people.

use crate::{Dcb, Dcbx, Ets, Pfc};

/// What an interface has, and what that means for priorities that are to be lossless. `None`: its
/// driver has no DCB.
pub fn in_words(dcb: Option<&Dcb>) -> String {
    let Some(dcb) = dcb else {
        return "no DCB: it neither sends nor obeys pauses of single priorities, so no priority is \
                lossless on this link"
            .to_owned();
    };
    let mut parts = vec![dcb.pfc.map_or_else(
        || "DCB without PFC: no priority is lossless on this link".to_owned(),
        |pfc| flow_control(&pfc),
    )];
    parts.extend(dcb.ets.map(|ets| classes(&ets)));
    parts.extend(dcb.dcbx.map(negotiation));
    parts.join("; ")
}

fn flow_control(pfc: &Pfc) -> String {
    let on = (0..8).filter(|priority| pfc.enabled >> priority & 1 != 0);
    let on: Vec<_> = on.map(|priority| priority.to_string()).collect();
    let state = match on.is_empty() {
        true => "off: no priority is lossless on this link".to_owned(),
        false => format!(
            "on for priorities {}: these are lossless if the neighbour has the same",
            on.join(", ")
        ),
    };
    format!("PFC for {} traffic classes, {state}", pfc.capacity)
}

fn classes(ets: &Ets) -> String {
    let willing = if ets.willing {
        ", takes its neighbour's"
    } else {
        ""
    };
    format!("ETS of {} classes{willing}", ets.capacity)
}

fn negotiation(dcbx: Dcbx) -> String {
    let by = if dcbx.is_of_host() {
        "the host"
    } else {
        "the adapter"
    };
    let form = if dcbx.is_ieee() { "IEEE" } else { "not IEEE" };
    format!("DCBX by {by} ({form})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lossless_is_said() {
        assert!(in_words(None).contains("no priority is lossless"));
        let mut dcb = Dcb {
            pfc: Some(Pfc {
                capacity: 4,
                enabled: 0,
                mbc: false,
                delay: 0,
            }),
            ets: None,
            dcbx: Some(Dcbx(1 | 8)),
        };
        assert_eq!(
            in_words(Some(&dcb)),
            "PFC for 4 traffic classes, off: no priority is lossless on this link; DCBX by the host (IEEE)"
        );
        if let Some(pfc) = &mut dcb.pfc {
            pfc.enabled = 1 << 3 | 1 << 4;
        }
        assert!(in_words(Some(&dcb)).contains("on for priorities 3, 4: these are lossless"));
    }
}
