//! Fast open (RFC 7413): whose data a listener takes from a SYN, and what is kept of the peer.

use std::hash::Hasher;

use sluicegate_tcp::segment::flags;

use crate::{
    host::Host,
    machine::Stack,
    packet::{FastOpen, Packet},
};

/// Bits of `net.ipv4.tcp_fastopen`.
const CLIENT: i64 = 1;
const CLIENT_WITHOUT_COOKIE: i64 = 4;
const SERVER: i64 = 2;
const SERVER_WITHOUT_COOKIE: i64 = 0x200;
const EVERY_LISTENER: i64 = 0x400;

/// The host's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub bits: i64,
    pub key: [u8; 16],
    /// IPv4 addresses of the peer and of this host.
    pub remote: [u8; 4],
    pub local: [u8; 4],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bits: CLIENT,
            key: [0; 16],
            remote: [192, 0, 2, 1],
            local: [192, 168, 0, 1],
        }
    }
}

/// What is remembered of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its cookie, and the MSS of its last answer to a fast open.
    pub cookie: Option<FastOpen>,
    pub mss: u16,
    /// It does not do fast open (FreeBSD asks it no more).
    pub refuses_data: bool,
    /// Requests that had no cookie in answer: 1 with the option of RFC 7413, 2 with the
    /// experimental one as well (Linux's `try_exp`).
    unanswered: u8,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            cookie: None,
            mss: u16::MAX,
            refuses_data: false,
            unanswered: 0,
        }
    }
}

impl Peer {
    /// The option that asks it for a cookie.
    pub fn request(&self) -> FastOpen {
        FastOpen {
            cookie: Vec::new(),
            experimental: self.unanswered == 1,
        }
    }
}

impl Host {
    /// The answer to a SYN of ours tells of the peer, for later connections.
    pub fn learn_of_peer(&mut self, packet: &Packet) {
        let Some(open) = &mut self.connection else {
            return;
        };
        let with_data = open.nxt > 1;
        let whole = with_data && packet.ack == open.nxt;
        open.syn_data = packet.has(flags::SYN) && whole;
        let cookie = packet.options.fast_open.clone();
        let cookie = cookie.filter(FastOpen::is_valid);
        let peer = &mut self.peer;
        if self.stack == Stack::Freebsd {
            peer.refuses_data |= cookie.is_none() && open.options.fast_open > 0 && !whole;
            peer.cookie = cookie.or(peer.cookie.take());
            return;
        }
        if with_data || open.asked.is_some() {
            peer.mss = packet.options.mss.unwrap_or(peer.mss);
        }
        let Some(asked) = &open.asked else {
            return;
        };
        let once = open.endpoint.stats().timeouts == 0;
        if cookie.is_none() && once && !with_data && peer.cookie.is_none() {
            let tried = if asked.experimental { 2 } else { 1 };
            peer.unanswered = peer.unanswered.max(tried);
        }
        peer.cookie = cookie.or(peer.cookie.take());
    }
}

/// A listener's answer to a SYN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its data is taken, and ours may follow at once.
    pub open: bool,
    /// A cookie that the SYN-ACK has.
    pub cookie: Option<FastOpen>,
}

impl Settings {
    /// A host that begins connections may take data along.
    pub fn client(&self) -> bool {
        self.bits & CLIENT != 0
    }

    /// They may do so without a cookie.
    pub fn client_without_cookie(&self) -> bool {
        self.bits & CLIENT_WITHOUT_COOKIE != 0
    }

    /// The cookie of the peer, as Linux makes it (`__tcp_fastopen_cookie_gen_cipher`): SipHash of
    /// the addresses.
    #[allow(
        deprecated,
        reason = "the standard library has this SipHash under no other name"
    )]
    pub fn cookie(&self) -> Vec<u8> {
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&self.key[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let mut hasher = std::hash::SipHasher::new_with_keys(half(0), half(8));
        hasher.write(&self.remote);
        hasher.write(&self.local);
        hasher.finish().to_le_bytes().to_vec()
    }

    /// `enabled` and `without_cookie` are options of the listener.
    pub fn judge(&self, syn: &Packet, enabled: bool, without_cookie: bool) -> Answer {
        let enabled = enabled || self.bits & EVERY_LISTENER != 0;
        if self.bits & SERVER == 0 || !enabled {
            return Answer::default();
        }
        let without_cookie = without_cookie || self.bits & SERVER_WITHOUT_COOKIE != 0;
        if syn.len > 0 && without_cookie {
            return Answer {
                open: true,
                cookie: None,
            };
        }
        let Some(option) = &syn.options.fast_open else {
            return Answer::default();
        };
        let open = option.cookie == self.cookie();
        let cookie = (!open).then(|| FastOpen {
            cookie: self.cookie(),
            experimental: option.experimental,
        });
        Answer { open, cookie }
    }
}

/// `a1a1a1a1-b2b2b2b2-…`: four numbers in hexadecimal digits, each kept with its low byte first.
pub fn key(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    let text = text.split(',').next()?;
    let words: Vec<_> = text.trim().split('-').collect();
    if words.len() != 4 {
        return None;
    }
    for (at, word) in words.into_iter().enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        key[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_opens_and_another_is_answered_with_the_right_one() {
        let settings = Settings {
            bits: 3,
            key: key("1-2-3-4").expect("is a key"),
            ..Settings::default()
        };
        let mut syn = Packet {
            len: 10,
            ..Packet::default()
        };
        assert_eq!(settings.judge(&syn, true, false), Answer::default());
        assert!(settings.judge(&syn, true, true).open);
        syn.options.fast_open = Some(FastOpen::default());
        let answer = settings.judge(&syn, true, false);
        assert!(!answer.open);
        syn.options.fast_open = answer.cookie;
        assert!(settings.judge(&syn, true, false).open);
        assert!(!settings.judge(&syn, false, false).open);
        assert_eq!(key("1-2-3"), None);
    }
}
