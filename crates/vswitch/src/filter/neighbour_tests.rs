//! Messages of neighbour discovery, honest and forged.

use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::{Filter, Forged, LOOK};
use crate::learning::Mac;

const OWN: Mac = [2, 0, 0, 0, 0, 3];
const OTHER: Mac = [2, 0, 0, 0, 0, 9];
/// The link-local address of [`OWN`].
const LOCAL: &str = "fe80::ff:fe00:3";
const MINE: &str = "2001:db8::3";
const THEIRS: &str = "2001:db8::9";
const GATEWAY: &str = "fe80::1";
const NONE: &str = "::";

fn host() -> Filter {
    Filter {
        macs: vec![OWN],
        prefixes: vec![
            ("10.0.0.3".parse().expect("an address"), 32),
            (MINE.parse().expect("an address"), 128),
        ],
        types: Vec::new(),
        is_host: true,
    }
}

fn router() -> Filter {
    Filter {
        is_host: false,
        ..host()
    }
}

fn address(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().expect("an address").octets()
}

/// A frame with a packet behind headers: the number of the first one, and their bytes.
fn packet(source: &str, (first, headers): (u8, &[u8]), message: &[u8]) -> Vec<u8> {
    let mut frame = [&[0x33, 0x33, 0, 0, 0, 1][..], &OWN, &[0x86, 0xdd]].concat();
    let bytes = (headers.len() + message.len()) as u16;
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(bytes.to_be_bytes());
    frame.extend([first, 255]);
    frame.extend(address(source));
    frame.extend(address("ff02::1"));
    frame.extend_from_slice(headers);
    frame.extend_from_slice(message);
    frame
}

fn option(kind: u8, mac: Mac) -> Vec<u8> {
    [&[kind, 1][..], &mac].concat()
}

/// A message about a target with these options.
fn about(kind: u8, target: &str, options: &[u8]) -> Vec<u8> {
    [
        &[kind, 0, 0, 0, 0x60, 0, 0, 0][..],
        &address(target),
        options,
    ]
    .concat()
}

fn router_advertisement(options: &[u8]) -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0, 7, 8];
    message.resize(16, 0);
    [&message[..], options].concat()
}

/// As the switch does: with what it copies of a frame.
fn check(filter: &Filter, frame: &[u8]) -> Result<(), Forged> {
    filter.check(&frame[..LOOK.min(frame.len())], 12, frame.len())
}

fn judge(filter: &Filter, source: &str, message: &[u8]) -> Result<(), Forged> {
    check(filter, &packet(source, (58, &[]), message))
}

#[test]
fn a_host_speaks_for_its_own_addresses() {
    for source in [MINE, LOCAL] {
        let honest = [
            about(136, source, &option(2, OWN)),
            about(136, source, &[]),
            about(135, THEIRS, &option(1, OWN)),
            [&[133, 0, 0, 0, 0, 0, 0, 0][..], &option(1, OWN)].concat(),
        ];
        for message in honest {
            assert_eq!(judge(&host(), source, &message), Ok(()), "{message:?}");
        }
    }
    // It has no address yet.
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    for target in [MINE, LOCAL] {
        assert_eq!(judge(&host(), NONE, &about(135, target, &nonce)), Ok(()));
    }
    let claim = Err(Forged::Claim);
    assert_eq!(judge(&host(), NONE, &about(135, THEIRS, &nonce)), claim);
}

#[test]
fn nobody_advertises_another_ones_address() {
    for (source, target, expected) in [
        (GATEWAY, GATEWAY, Forged::Address),
        (LOCAL, GATEWAY, Forged::Claim),
        (MINE, GATEWAY, Forged::Claim),
        (MINE, THEIRS, Forged::Claim),
        (THEIRS, THEIRS, Forged::Address),
    ] {
        let message = about(136, target, &option(2, OWN));
        assert_eq!(judge(&host(), source, &message), Err(expected), "{target}");
    }
    // A list may have link-local addresses.
    let mut filter = host();
    filter
        .prefixes
        .push((GATEWAY.parse().expect("an address"), 128));
    let message = about(136, GATEWAY, &option(2, OWN));
    assert_eq!(judge(&filter, GATEWAY, &message), Ok(()));
    // Without Ethernet addresses, the frame's own one counts.
    filter.macs.clear();
    assert_eq!(judge(&filter, LOCAL, &about(136, LOCAL, &[])), Ok(()));
    let other = about(136, "fe80::ff:fe00:9", &[]);
    assert_eq!(judge(&filter, MINE, &other), Err(Forged::Claim));
}

#[test]
fn only_a_router_advertises_routes_and_redirects() {
    let prefix = [[3, 4, 64, 0].as_slice(), &[0; 28]].concat();
    let advertisement = router_advertisement(&[option(1, OWN), prefix].concat());
    let redirect = [
        about(137, LOCAL, &address(THEIRS)),
        option(2, OTHER),
        [4, 120].to_vec(),
        vec![0; 958],
    ]
    .concat();
    for message in [&advertisement, &redirect] {
        assert_eq!(judge(&host(), LOCAL, message), Err(Forged::Router));
        assert_eq!(judge(&router(), LOCAL, message), Ok(()));
        assert_eq!(judge(&router(), GATEWAY, message), Err(Forged::Address));
    }
    let long = router_advertisement(&[option(1, OWN), vec![0; 200]].concat());
    assert_eq!(judge(&router(), LOCAL, &long), Ok(()));
    for before in [vec![], vec![5, 1, 0, 0, 0, 0, 5, 220]] {
        let other = router_advertisement(&[before, option(1, OTHER)].concat());
        assert_eq!(judge(&router(), LOCAL, &other), Err(Forged::Mac));
    }
}

#[test]
fn options_are_seen_to_their_end_or_refused() {
    let forged = option(2, OTHER);
    let far = [[14, 10].to_vec(), vec![0; 78], forged.clone()].concat();
    let hidden = judge(&host(), MINE, &about(136, MINE, &far));
    assert_eq!(hidden, Err(Forged::Hidden));
    let near = [[14, 1, 0, 0, 0, 0, 0, 0].to_vec(), forged].concat();
    let seen = judge(&host(), MINE, &about(136, MINE, &near));
    assert_eq!(seen, Err(Forged::Mac));
    for malformed in [
        &[14, 0, 0, 0, 0, 0, 0, 0][..],
        &[14, 2, 0, 0, 0, 0, 0, 0],
        &[14],
    ] {
        let message = about(136, MINE, malformed);
        assert_eq!(judge(&host(), MINE, &message), Err(Forged::Claim));
    }
    assert_eq!(judge(&host(), MINE, &[136, 0, 0, 0]), Err(Forged::Claim));
    // A packet says that it is longer than its frame.
    let mut short = packet(MINE, (58, &[]), &about(136, MINE, &[]));
    short[18 + 1] += 8;
    assert_eq!(check(&host(), &short), Err(Forged::Hidden));
}

#[test]
fn headers_before_a_message_hide_nothing() {
    let forged = about(136, THEIRS, &option(2, OWN));
    let [options, authentication] = [[58, 0, 1, 4, 0, 0, 0, 0], [58, 0, 0, 0, 0, 0, 0, 1]];
    for (first, header) in [
        (0, options),
        (60, options),
        (43, options),
        (51, authentication),
    ] {
        let frame = packet(MINE, (first, &header), &forged);
        assert_eq!(check(&host(), &frame), Err(Forged::Claim), "header {first}");
    }
    let [whole, begins, goes_on] = [[58, 0, 0, 0], [58, 0, 0, 1], [58, 0, 0, 8]];
    let fragment = |header: [u8; 4], message: &[u8]| {
        check(
            &host(),
            &packet(MINE, (44, &[header, [0; 4]].concat()), message),
        )
    };
    for message in [&forged, &about(136, MINE, &option(2, OWN))] {
        assert_eq!(fragment(whole, message), Err(Forged::Hidden));
        assert_eq!(fragment(begins, message), Err(Forged::Hidden));
    }
    assert_eq!(fragment(goes_on, &[0; 8]), Ok(()));
    // Echo requests may be fragments.
    assert_eq!(fragment(begins, &[128, 0, 0, 0, 0, 0, 0, 0]), Ok(()));
    let mut long = packet(
        MINE,
        (60, &[[58, 11].as_slice(), &[0; 94]].concat()),
        &forged,
    );
    assert_eq!(check(&host(), &long), Err(Forged::Hidden));
    // No receiver takes neighbour discovery that a router could have forwarded.
    long[14 + 7] = 64;
    assert_eq!(check(&host(), &long), Ok(()));
}

/// What a receiver that sees the whole frame would believe: addresses and Ethernet addresses that
/// the message claims, and whether it is a router's; `None`: it takes no such message of it.
fn believed(frame: &[u8]) -> Option<(Vec<Ipv6Addr>, Vec<Mac>, bool)> {
    let packet = frame.get(14..)?;
    let end = 40 + usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
    let packet = packet.get(..end).filter(|packet| packet[7] == 255)?;
    let (mut next, mut rest) = (packet[6], &packet[40..]);
    while matches!(next, 0 | 43 | 60) {
        let bytes = 8 * (usize::from(*rest.get(1)?) + 1);
        (next, rest) = (rest[0], rest.get(bytes..)?);
    }
    let kind = *rest.first().filter(|_| next == 58)?;
    let at = match kind {
        133 => 8,
        134 => 16,
        135 | 136 => 24,
        137 => 40,
        _ => return None,
    };
    let source = Ipv6Addr::from(<[u8; 16]>::try_from(&packet[8..24]).expect("16 bytes"));
    let mut options = rest.get(at..)?;
    let mut claims = Vec::new();
    if kind == 136 || kind == 135 && source.is_unspecified() {
        claims.push(Ipv6Addr::from(<[u8; 16]>::try_from(&rest[8..24]).ok()?));
    }
    if !source.is_unspecified() {
        claims.push(source);
    }
    let mut macs = Vec::new();
    while !options.is_empty() {
        let bytes = 8 * usize::from(*options.get(1)?);
        let option = options.get(..bytes).filter(|_| bytes > 0)?;
        if matches!(option[0], 1 | 2) {
            macs.push(option[2..8].try_into().expect("six bytes"));
        }
        options = &options[bytes..];
    }
    Some((claims, macs, matches!(kind, 134 | 137)))
}

proptest! {
    /// Whatever passes, a receiver believes nothing of it that is not the port's.
    #[test]
    fn what_passes_claims_only_what_the_port_has(
        source in prop::sample::select(vec![MINE, LOCAL, GATEWAY, THEIRS, NONE]),
        target in prop::sample::select(vec![MINE, LOCAL, GATEWAY, THEIRS, NONE]),
        kind in 132..139_u8,
        headers in prop::collection::vec((prop::sample::select(vec![0_u8, 43, 60]), 0..3_u8), 0..3),
        options in prop::collection::vec((0..6_u8, 0..12_u8, any::<bool>()), 0..4),
        cut in 0..12_usize,
        changes in prop::collection::vec((14..200_usize, any::<u8>()), 0..2),
    ) {
        let mut chain = Vec::new();
        for (place, &(_, units)) in headers.iter().enumerate() {
            let next = headers.get(place + 1).map_or(58, |header| header.0);
            let at = chain.len();
            chain.resize(at + 8 * (usize::from(units) + 1), 0);
            chain[at..at + 2].copy_from_slice(&[next, units]);
        }
        let mut list = Vec::new();
        for (number, units, is_own) in options {
            let at = list.len();
            list.extend(option(number, if is_own { OWN } else { OTHER }));
            list[at + 1] = units;
            list.resize(at + 8 * usize::from(units.max(1)), 0);
        }
        let message = match kind {
            133 => [&[133, 0, 0, 0, 0, 0, 0, 0][..], &list].concat(),
            134 => router_advertisement(&list),
            137 => [about(137, target, &address(target)), list].concat(),
            _ => about(kind, target, &list),
        };
        let first = headers.first().map_or(58, |header| header.0);
        let mut frame = packet(source, (first, &chain), &message);
        frame.truncate(frame.len() - cut.saturating_sub(8).min(frame.len() - 54));
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        if check(&host(), &frame).is_ok() {
            if let Some((claims, macs, is_router)) = believed(&frame) {
                let own = [MINE, LOCAL].map(|text| Ipv6Addr::from(address(text)));
                prop_assert!(claims.iter().all(|claim| own.contains(claim)), "{:?}", claims);
                prop_assert!(macs.iter().all(|mac| *mac == OWN), "{:?}", macs);
                prop_assert!(!is_router);
            }
        }
    }
}
