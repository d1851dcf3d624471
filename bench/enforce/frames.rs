//! Frames of one connection, 10.9.0.1:40000 (the tenant) to 10.9.0.2:5001, for the paths through
//! the programs.

/// The handshake's initial sequence numbers.
pub const TENANT_ISN: u32 = 1000;
/// The remote end's.
pub const REMOTE_ISN: u32 = 5000;

/// TCP flags.
pub const SYN: u8 = 0x02;
/// ACK.
pub const ACK: u8 = 0x10;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const TCP: usize = 20;

/// MSS 1460, NOP, window scale 10.
pub const HANDSHAKE_OPTIONS: [u8; 8] = [2, 4, 0x05, 0xb4, 1, 3, 3, 10];
/// The option by which hosts recognise each other (`feedback.h`).
pub const PEER_OPTION: [u8; 8] = [253, 8, 0x53, 0x47, 1, 0, 0, 0];

/// The feedback option with these byte counts.
pub fn feedback_option(e0b: u32, ceb: u32) -> [u8; 8] {
    let (e0b, ceb) = (e0b.to_be_bytes(), ceb.to_be_bytes());
    [172, 8, e0b[1], e0b[2], e0b[3], ceb[1], ceb[2], ceb[3]]
}

/// A segment, from the tenant or to it.
#[derive(Clone, Debug)]
pub struct Segment<'a> {
    /// Direction.
    pub from_tenant: bool,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// TCP flags.
    pub flags: u8,
    /// ECN codepoint, 0..=3.
    pub ecn: u8,
    /// Options, a multiple of four bytes.
    pub options: &'a [u8],
    /// Bytes of payload.
    pub payload: usize,
}

impl Segment<'_> {
    /// The Ethernet frame. Checksums are left zero: the programs change them, nobody reads them.
    pub fn frame(&self) -> Vec<u8> {
        let header = TCP + self.options.len();
        let mut frame = vec![0; ETHERNET + IPV4 + header + self.payload];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        let total = (IPV4 + header + self.payload) as u16;
        let (tenant, remote) = ([10, 9, 0, 1], [10, 9, 0, 2]);
        let (source, destination) = if self.from_tenant {
            (tenant, remote)
        } else {
            (remote, tenant)
        };
        let ip = &mut frame[ETHERNET..];
        ip[0] = 0x45;
        ip[1] = self.ecn;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[8..10].copy_from_slice(&[64, 6]);
        ip[12..16].copy_from_slice(&source);
        ip[16..20].copy_from_slice(&destination);
        let (near, far) = (40000u16.to_be_bytes(), 5001u16.to_be_bytes());
        let (source, destination) = if self.from_tenant {
            (near, far)
        } else {
            (far, near)
        };
        let tcp = &mut ip[IPV4..];
        tcp[0..2].copy_from_slice(&source);
        tcp[2..4].copy_from_slice(&destination);
        tcp[4..8].copy_from_slice(&self.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.to_be_bytes());
        tcp[12] = ((header / 4) << 4) as u8;
        tcp[13] = self.flags;
        tcp[14..16].copy_from_slice(&60000u16.to_be_bytes());
        tcp[TCP..header].copy_from_slice(self.options);
        frame
    }
}

/// An ARP request: what is not TCP.
pub fn arp() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    frame
}
