//! Source filters: which addresses a port may use as its own.
//!
//! A frame passes if its Ethernet source, the source of its IPv4 or IPv6 packet, and what its ARP
//! or neighbour discovery message claims are among the port's addresses. A list that is empty
//! allows every address of its kind. A link-local address of IPv6 is the port's if a prefix has it,
//! or if it is formed of an Ethernet address of the port. What only routers say is refused of a
//! port that is a host's ([`Filter::is_host`], RFC 6105).
//!
//! A filter lets nothing pass that it cannot read. A port with prefixes sends ARP, IPv4 and IPv6,
//! and the types that the operator names. A port with Ethernet addresses alone sends other types as
//! well; what claims an address is found behind LLC and SNAP too, and a frame in which a receiver
//! could find something else than the filter does is refused.

mod content;
#[cfg(test)]
mod content_tests;
mod neighbour;
#[cfg(test)]
mod neighbour_tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::learning::Mac;

/// The filter of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Ethernet addresses.
    pub macs: Vec<Mac>,
    /// Prefixes of IPv4 and IPv6: address and length in bits.
    pub prefixes: Vec<(IpAddr, u8)>,
    /// Other types of Ethernet than ARP, IPv4 and IPv6 that pass where there are prefixes.
    pub types: Vec<u16>,
    /// No router is behind the port: router advertisements and redirects are refused.
    pub is_host: bool,
}

/// Why a frame is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forged {
    /// The Ethernet source, or one that ARP or neighbour discovery claims.
    Mac,
    /// The source of the packet.
    Address,
    /// The address that an ARP or neighbour discovery message claims.
    Claim,
    /// A router advertisement or a redirect, of a host.
    Router,
    /// Neighbour discovery in fragments, behind headers that were not seen to their end, or with
    /// options that were not.
    Hidden,
    /// LLC, SNAP or ARP that say of themselves what is not so.
    Unreadable,
    /// A type that the port may not send.
    Type,
    /// A tag behind the first, or one of a provider.
    Tag,
}

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// In the form of ARP: so hypervisors announce a guest that has moved (RFC 903).
const RARP: u16 = 0x8035;
/// What a header of ARP says of addresses of Ethernet and IPv4.
const ARP_OF_IPV4: [u8; 4] = [8, 0, 6, 4];

pub use content::{JUMBO_LLC, TYPE_MIN};

/// Types that are checked, and pass by themselves.
pub const CHECKED: [u16; 4] = [IPV4, ARP, IPV6, RARP];

/// Whether a type says that another tag follows (IEEE 802.1Q and 802.1ad, and older ones).
pub fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300)
}

/// Bytes from the beginning of a frame that [`Filter::check`] wants to see: Ethernet, a tag, IPv6
/// and a neighbour discovery message with its options.
pub const LOOK: usize = 18 + 40 + 80;

impl Filter {
    /// Whether it allows everything.
    pub fn is_open(&self) -> bool {
        self.macs.is_empty() && self.prefixes.is_empty() && !self.is_host
    }

    /// Checks the beginning of a frame of so many bytes, at least [`LOOK`] of them or all. `at` is
    /// the offset of the type behind its tags.
    ///
    /// # Errors
    /// What it forges; a packet too short to tell is refused as well.
    pub fn check(&self, frame: &[u8], at: usize, bytes: usize) -> Result<(), Forged> {
        let source = array(frame, 6).ok_or(Forged::Mac)?;
        self.mac(source)?;
        if self.is_open() {
            return Ok(());
        }
        let (kind, packet) = content::of(frame, at, bytes)?;
        match kind {
            Some(IPV4) => self.ipv4(packet),
            Some(ARP | RARP) => self.arp(packet),
            Some(IPV6) => self.ipv6(packet, source),
            _ if self.prefixes.is_empty() => Ok(()),
            Some(kind) if self.types.contains(&kind) => Ok(()),
            _ => Err(Forged::Type),
        }
    }

    fn mac(&self, mac: Mac) -> Result<(), Forged> {
        let allowed = self.macs.is_empty() || self.macs.contains(&mac);
        allowed.then_some(()).ok_or(Forged::Mac)
    }

    /// Whether a prefix of the port has this address. Without a prefix of its family a port may
    /// have no address of it, unless it has no prefix at all.
    fn owns(&self, address: IpAddr) -> bool {
        let covers = |&(prefix, bits): &(IpAddr, u8)| covers(prefix, bits, address);
        self.prefixes.is_empty() || self.prefixes.iter().any(covers)
    }

    fn ipv4(&self, packet: &[u8]) -> Result<(), Forged> {
        let source = array::<4>(packet, 12).ok_or(Forged::Address)?;
        let source = Ipv4Addr::from(source);
        // A host that asks for its first address has none (RFC 2131, 4.1).
        let allowed = source.is_unspecified() || self.owns(source.into());
        allowed.then_some(()).ok_or(Forged::Address)
    }

    /// RFC 826: sender's Ethernet address and sender's IPv4 address.
    fn arp(&self, packet: &[u8]) -> Result<(), Forged> {
        // With other lengths its addresses would be elsewhere.
        if array(packet, 2) != Some(ARP_OF_IPV4) {
            return Err(Forged::Unreadable);
        }
        let mac = array::<6>(packet, 8).ok_or(Forged::Claim)?;
        self.mac(mac)?;
        let claimed = Ipv4Addr::from(array::<4>(packet, 14).ok_or(Forged::Claim)?);
        // A probe claims nothing (RFC 5227, 2.1.1).
        let allowed = claimed.is_unspecified() || self.owns(claimed.into());
        allowed.then_some(()).ok_or(Forged::Claim)
    }

    /// `mac` is the frame's Ethernet source.
    fn ipv6(&self, packet: &[u8], mac: Mac) -> Result<(), Forged> {
        let source = Ipv6Addr::from(array::<16>(packet, 8).ok_or(Forged::Address)?);
        // A host that has no address yet (RFC 4862, 5.4).
        if !source.is_unspecified() && !self.owns_v6(source, mac) {
            return Err(Forged::Address);
        }
        self.neighbour(packet, source, mac)
    }

    /// As [`Filter::owns`]; a link-local address may be formed of an Ethernet address of the port
    /// instead (RFC 4291, appendix A). A port that may use any has that of the frame.
    fn owns_v6(&self, address: Ipv6Addr, mac: Mac) -> bool {
        let own = if self.macs.is_empty() {
            &[mac][..]
        } else {
            &self.macs
        };
        self.owns(address.into()) || own.iter().any(|&mac| link_local(mac) == address)
    }
}

/// The link-local address of an Ethernet address: fe80::/64 and the modified EUI-64.
fn link_local([a, b, c, d, e, f]: Mac) -> Ipv6Addr {
    let identifier = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    Ipv6Addr::from(0xfe80 << 112 | u128::from(u64::from_be_bytes(identifier)))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn covers(prefix: IpAddr, bits: u8, address: IpAddr) -> bool {
    let wide = |address| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    };
    let shift = 128 - u32::from(bits).min(128);
    let differs = (wide(prefix) ^ wide(address))
        .checked_shr(shift)
        .unwrap_or(0);
    prefix.is_ipv4() == address.is_ipv4() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const OWN: Mac = [2, 0, 0, 0, 0, 1];
    pub(super) const OTHER: Mac = [2, 0, 0, 0, 0, 2];

    pub(super) fn filter() -> Filter {
        Filter {
            macs: vec![OWN],
            prefixes: vec![
                ("10.0.0.1".parse().expect("an address"), 32),
                ("2001:db8::".parse().expect("an address"), 64),
            ],
            types: Vec::new(),
            is_host: true,
        }
    }

    pub(super) fn frame(source: Mac, kind: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(source);
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn check(source: Mac, kind: u16, packet: &[u8]) -> Result<(), Forged> {
        let frame = frame(source, kind, packet);
        filter().check(&frame, 12, frame.len())
    }

    pub(super) fn ipv4(source: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[12..16].copy_from_slice(&source);
        packet
    }

    pub(super) fn arp(mac: Mac, address: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[2..6].copy_from_slice(&ARP_OF_IPV4);
        packet[8..14].copy_from_slice(&mac);
        packet[14..18].copy_from_slice(&address);
        packet
    }

    #[test]
    fn own_addresses_pass_and_others_do_not() {
        assert_eq!(check(OWN, IPV4, &ipv4([10, 0, 0, 1])), Ok(()));
        assert_eq!(check(OWN, IPV4, &ipv4([0, 0, 0, 0])), Ok(()));
        assert_eq!(check(OTHER, IPV4, &ipv4([10, 0, 0, 1])), Err(Forged::Mac));
        assert_eq!(check(OWN, IPV4, &ipv4([10, 0, 0, 2])), Err(Forged::Address));
        assert_eq!(check(OWN, IPV4, &[0; 10]), Err(Forged::Address));
        assert_eq!(check(OWN, 0x88cc, &[]), Err(Forged::Type));
        assert_eq!(check(OWN, 0x88a8, &ipv4([10, 0, 0, 2])), Err(Forged::Tag));
    }

    #[test]
    fn arp_claims_only_own_addresses() {
        assert_eq!(check(OWN, ARP, &arp(OWN, [10, 0, 0, 1])), Ok(()));
        assert_eq!(check(OWN, ARP, &arp(OWN, [0; 4])), Ok(()));
        assert_eq!(
            check(OWN, ARP, &arp(OWN, [10, 0, 0, 9])),
            Err(Forged::Claim)
        );
        assert_eq!(
            check(OWN, ARP, &arp(OTHER, [10, 0, 0, 1])),
            Err(Forged::Mac)
        );
    }

    #[test]
    fn arp_of_other_lengths_is_not_read() {
        let mut packet = arp(OWN, [10, 0, 0, 1]);
        packet[4] = 8;
        assert_eq!(check(OWN, ARP, &packet), Err(Forged::Unreadable));
    }

    #[test]
    fn a_filter_of_ethernet_addresses_alone_leaves_packets_alone() {
        let filter = Filter {
            macs: vec![OWN],
            ..Filter::default()
        };
        let packet = frame(OWN, IPV4, &ipv4([10, 0, 0, 9]));
        assert_eq!(filter.check(&packet, 12, packet.len()), Ok(()));
        assert!(Filter::default().is_open());
    }
}
