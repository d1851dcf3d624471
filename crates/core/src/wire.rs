//! Our options and checksums as bytes: the safe face of `c/native_wire.c`, for callers that write
//! frames of segments which never were bytes (simulated packets).

#![allow(unsafe_code)]

use crate::number::narrow;

pub use crate::host::OPTION_BYTES;

unsafe extern "C" {
    fn sluice_feedback_option(out: &mut [u8; OPTION_BYTES], e0b: u32, ceb: u32);
    fn sluice_peer_option(out: &mut [u8; OPTION_BYTES], fack: u32);
    fn sluice_ipv4_checksum(ip: &[u8; IPV4_BYTES]) -> u16;
    fn sluice_tcp_checksum(ip: *const u8, ipv6: u32, tcp: *const u8, l4_len: u32) -> u16;
}

/// Length of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Length of an IPv6 header without extensions.
pub const IPV6_BYTES: usize = 40;

/// The feedback option (kind 172): EE0B and ECEB, 24 bits each.
pub fn feedback_option(e0b: u32, ceb: u32) -> [u8; OPTION_BYTES] {
    let mut option = [0; OPTION_BYTES];
    // SAFETY: writes the eight bytes that it is lent.
    unsafe { sluice_feedback_option(&mut option, e0b, ceb) };
    option
}

/// The option by which enforcing hosts know each other (kind 253), or the mark of a FACK.
pub fn peer_option(fack: bool) -> [u8; OPTION_BYTES] {
    let mut option = [0; OPTION_BYTES];
    // SAFETY: writes the eight bytes that it is lent.
    unsafe { sluice_peer_option(&mut option, fack.into()) };
    option
}

/// The checksum of an IPv4 header whose checksum field is zero, as it goes into the field.
pub fn ipv4_checksum(header: &[u8; IPV4_BYTES]) -> [u8; 2] {
    // SAFETY: reads the twenty bytes that it is lent.
    unsafe { sluice_ipv4_checksum(header) }.to_ne_bytes()
}

/// The checksum of a TCP segment, payload included, behind this IPv4 header, as it goes into the
/// field, which is zero.
pub fn tcp_checksum_v4(ip: &[u8; IPV4_BYTES], segment: &[u8]) -> [u8; 2] {
    tcp_checksum(ip.as_ptr(), 0, segment)
}

/// The same behind an IPv6 header.
pub fn tcp_checksum_v6(ip: &[u8; IPV6_BYTES], segment: &[u8]) -> [u8; 2] {
    tcp_checksum(ip.as_ptr(), 1, segment)
}

fn tcp_checksum(ip: *const u8, ipv6: u32, segment: &[u8]) -> [u8; 2] {
    // No IP packet is longer; what is beyond would not be in its checksum.
    let length = narrow::<u32>(segment.len().min(usize::from(u16::MAX)));
    // SAFETY: `ip` is the whole header of its version, and no more than the segment is read.
    unsafe { sluice_tcp_checksum(ip, ipv6, segment.as_ptr(), length) }.to_ne_bytes()
}
