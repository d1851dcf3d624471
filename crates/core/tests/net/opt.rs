//! TCP options as bytes.

pub const NOP: u8 = 1;
pub const SACK: u8 = 5;
pub const MPTCP: u8 = 30;
pub const FEEDBACK: u8 = 172;
pub const EXPERIMENT: u8 = 253;
pub const EXID: [u8; 2] = [0x53, 0x47];

/// Joined and padded with NOPs to whole words.
pub fn all(options: &[&[u8]]) -> Vec<u8> {
    let mut bytes = options.concat();
    bytes.resize(bytes.len().next_multiple_of(4), NOP);
    bytes
}

pub fn mss(bytes: u16) -> Vec<u8> {
    [&[2, 4], &bytes.to_be_bytes()[..]].concat()
}

pub fn wscale(shift: u8) -> Vec<u8> {
    vec![3, 3, shift]
}

pub fn sack_permitted() -> Vec<u8> {
    vec![4, 2]
}

/// As Linux writes them: two NOPs in front.
pub fn timestamps(now: u32, echo: u32) -> Vec<u8> {
    [
        &[NOP, NOP, 8, 10],
        &now.to_be_bytes()[..],
        &echo.to_be_bytes()[..],
    ]
    .concat()
}

pub fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = vec![NOP, NOP, SACK, 2 + 8 * blocks.len() as u8];
    for (left, right) in blocks {
        bytes.extend(left.to_be_bytes());
        bytes.extend(right.to_be_bytes());
    }
    bytes
}

/// RFC 9768, order 0: EE0B, ECEB.
pub fn feedback(e0b: u32, ceb: u32) -> Vec<u8> {
    [
        &[FEEDBACK, 8],
        &e0b.to_be_bytes()[1..],
        &ceb.to_be_bytes()[1..],
    ]
    .concat()
}

/// Hosts' own, RFC 6994; `flags` 1 = FACK.
pub fn peer(flags: u8) -> Vec<u8> {
    vec![EXPERIMENT, 8, EXID[0], EXID[1], 1, flags, 0, 0]
}

/// MP_CAPABLE of version 1 as on a SYN (RFC 8684 3.1).
pub fn mptcp() -> Vec<u8> {
    vec![MPTCP, 4, 0x01, 0x81]
}

/// RFC 2385.
pub fn md5() -> Vec<u8> {
    [&[19, 18][..], &[0xab; 16]].concat()
}

/// RFC 5925 with a 96-bit MAC.
pub fn ao() -> Vec<u8> {
    [&[29, 16][..], &[0xcd; 14]].concat()
}

/// Options before EOL, the header's end, the first one that is malformed, or a second one of hosts'
/// own.
pub fn readable(options: &[u8]) -> Vec<(u8, &[u8])> {
    let mut end = options.len();
    let mut found = loop {
        if let Some(found) = split(&options[..end]) {
            break found;
        }
        end -= 1;
    };
    let own = |(kind, bytes): &(u8, &[u8])| match *kind {
        FEEDBACK => bytes.len() == 8,
        EXPERIMENT => bytes.len() == 8 && bytes[2..5] == [EXID[0], EXID[1], 1],
        _ => false,
    };
    let is_second = |i: usize| {
        let before = |other: &(u8, &[u8])| other.0 == found[i].0 && own(other);
        own(&found[i]) && found[..i].iter().any(before)
    };
    if let Some(end) = (0..found.len()).find(|i| is_second(*i)) {
        found.truncate(end);
    }
    found
}

/// Splits well-formed options into (kind, bytes), without padding. `None` if malformed.
pub fn split(options: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < options.len() && options[at] != 0 {
        if options[at] == NOP {
            at += 1;
            continue;
        }
        let length = usize::from(*options.get(at + 1)?);
        let bytes = options.get(at..at + length).filter(|_| length >= 2)?;
        found.push((options[at], bytes));
        at += length;
    }
    Some(found)
}

/// Replaces options of this kind by NOPs.
pub fn blank(options: &mut Vec<u8>, kind: u8) {
    let blanked = split(options).expect("well-formed").into_iter();
    let blanked = blanked.map(|(found, bytes)| match found == kind {
        true => vec![NOP; bytes.len()],
        false => bytes.to_vec(),
    });
    let mut blanked: Vec<u8> = blanked.flatten().collect();
    blanked.resize(options.len(), NOP);
    *options = blanked;
}

/// The value of the first option of this kind.
pub fn find(options: &[u8], kind: u8) -> Option<Vec<u8>> {
    split(options)?
        .into_iter()
        .find(|(found, _)| *found == kind)
        .map(|(_, bytes)| bytes[2..].to_vec())
}

/// EE0B and ECEB of a feedback option.
pub fn feedback_of(options: &[u8]) -> Option<(u32, u32)> {
    let value = find(options, FEEDBACK).filter(|value| value.len() == 6)?;
    let counter = |at: usize| u32::from_be_bytes([0, value[at], value[at + 1], value[at + 2]]);
    Some((counter(0), counter(3)))
}

/// Flags of a host's option.
pub fn peer_of(options: &[u8]) -> Option<u8> {
    let value = find(options, EXPERIMENT)?;
    (value.len() == 6 && value[..2] == EXID).then(|| value[3])
}

/// Blocks of a SACK option.
pub fn sack_of(options: &[u8]) -> Vec<(u32, u32)> {
    let word = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    find(options, SACK)
        .unwrap_or_default()
        .chunks_exact(8)
        .map(|block| (word(block), word(&block[4..])))
        .collect()
}
