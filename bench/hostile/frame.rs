//! TCP in Ethernet frames: where its parts are, and changes of them that leave lengths and
//! checksums right.

pub const ETHERNET: usize = 14;

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;

/// No operation and the end of the list among TCP's options; IPv4's have the same numbers.
pub const NOP: u8 = 1;
pub const EOL: u8 = 0;

/// Where a TCP segment's parts are in an untagged frame.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    pub tcp: usize,
    pub payload: usize,
    /// Behind the IP packet.
    pub end: usize,
}

impl Tcp {
    /// `None`: no TCP, or not in the first header of an IP packet.
    pub fn find(frame: &[u8]) -> Option<Self> {
        let (tcp, end) = match frame.get(12..14)? {
            [0x08, 0x00] if *frame.get(23)? == 6 => {
                let header = usize::from(frame[ETHERNET] & 15) * 4;
                (ETHERNET + header, ETHERNET + usize::from(half(frame, 16)?))
            }
            [0x86, 0xdd] if *frame.get(20)? == 6 => {
                let at = ETHERNET + 40;
                (at, at + usize::from(half(frame, 18)?))
            }
            _ => return None,
        };
        let payload = tcp + usize::from(*frame.get(tcp + 12)? >> 4) * 4;
        (payload >= tcp + 20 && payload <= end && end <= frame.len()).then_some(Self {
            tcp,
            payload,
            end,
        })
    }

    pub fn flags(&self, frame: &[u8]) -> u8 {
        frame[self.tcp + 13]
    }

    pub fn seq(&self, frame: &[u8]) -> u32 {
        word(frame, self.tcp + 4)
    }

    pub fn ack(&self, frame: &[u8]) -> u32 {
        word(frame, self.tcp + 8)
    }

    pub fn window(&self, frame: &[u8]) -> u16 {
        u16::from_be_bytes([frame[self.tcp + 14], frame[self.tcp + 15]])
    }

    pub fn set_window(&self, frame: &mut [u8], window: u16) {
        frame[self.tcp + 14..self.tcp + 16].copy_from_slice(&window.to_be_bytes());
    }

    pub fn bytes(&self) -> usize {
        self.end - self.payload
    }

    pub fn options<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.tcp + 20..self.payload]
    }

    pub fn is_syn(&self, frame: &[u8]) -> bool {
        self.flags(frame) & SYN != 0
    }

    /// No data, and nothing that opens or closes.
    pub fn is_pure_ack(&self, frame: &[u8]) -> bool {
        self.bytes() == 0 && self.flags(frame) & (SYN | FIN | RST) == 0
    }

    /// Other options, whole words of at most 40 bytes. What stood behind the IP packet is gone.
    pub fn set_options(&self, frame: &mut Vec<u8>, options: &[u8]) {
        frame.truncate(self.end);
        frame.splice(self.tcp + 20..self.payload, options.iter().copied());
        frame[self.tcp + 12] = (((20 + options.len()) / 4) << 4) as u8;
        set_ip_length(frame);
        finish(frame);
    }
}

/// Options one after another, as (kind, bytes); NOPs are left out, and what follows EOL or makes
/// no sense.
pub fn split(options: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = options;
    while let [kind, tail @ ..] = rest {
        match (*kind, tail.first()) {
            (EOL, _) => break,
            (NOP, _) => rest = tail,
            (_, Some(length)) if (2..=rest.len()).contains(&usize::from(*length)) => {
                let (option, after) = rest.split_at(usize::from(*length));
                found.push(option);
                rest = after;
            }
            _ => break,
        }
    }
    found
}

fn set_ip_length(frame: &mut [u8]) {
    let bytes = frame.len() - ETHERNET;
    if frame[12] == 0x08 {
        frame[16..18].copy_from_slice(&(bytes as u16).to_be_bytes());
    } else {
        frame[18..20].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
    }
}

/// Makes the checksums of a frame with TCP right, whatever stands behind its IP packet.
pub fn finish(frame: &mut [u8]) {
    if frame[12] == 0x08 {
        let header = usize::from(frame[ETHERNET] & 15) * 4;
        frame[24..26].fill(0);
        let checksum = !folded(sum(&frame[ETHERNET..ETHERNET + header]));
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    let Some(at) = Tcp::find(frame) else { return };
    frame[at.tcp + 16..at.tcp + 18].fill(0);
    let addresses = if frame[12] == 0x08 { 26..34 } else { 22..54 };
    let pseudo = sum(&frame[addresses]) + 6 + (at.end - at.tcp) as u64;
    let checksum = !folded(pseudo + sum(&frame[at.tcp..at.end]));
    frame[at.tcp + 16..at.tcp + 18].copy_from_slice(&checksum.to_be_bytes());
}

/// Puts options into an IPv4 header without any; whole words.
pub fn insert_ip_options(frame: &mut Vec<u8>, options: &[u8]) {
    frame.splice(34..34, options.iter().copied());
    frame[ETHERNET] = 0x40 | (5 + options.len() / 4) as u8;
    set_ip_length(frame);
    finish(frame);
}

/// One end of a connection of raw frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub mac: [u8; 6],
    pub address: [u8; 4],
    pub port: u16,
}

/// The contents of a frame of our own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub ecn: u8,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

/// A frame from one end to the other with right checksums, over IPv4.
pub fn build(from: &End, to: &End, segment: &Segment<'_>) -> Vec<u8> {
    let l4 = 20 + segment.options.len() + segment.payload.len();
    let mut frame = Vec::with_capacity(ETHERNET + 20 + l4);
    frame.extend(to.mac);
    frame.extend(from.mac);
    frame.extend([0x08, 0x00, 0x45, segment.ecn]);
    frame.extend(((20 + l4) as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from.address);
    frame.extend(to.address);
    frame.extend(from.port.to_be_bytes());
    frame.extend(to.port.to_be_bytes());
    frame.extend(segment.seq.to_be_bytes());
    frame.extend(segment.ack.to_be_bytes());
    let header = ((20 + segment.options.len()) / 4) << 4;
    frame.extend([header as u8, segment.flags]);
    frame.extend(segment.window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(segment.options);
    frame.extend(segment.payload);
    finish(&mut frame);
    frame
}

/// The ends of this frame; `None` unless it is TCP over IPv4.
pub fn ends(frame: &[u8]) -> Option<(End, End)> {
    let at = Tcp::find(frame).filter(|_| frame[12] == 0x08)?;
    let end = |mac: usize, address: usize, port: usize| End {
        mac: frame[mac..mac + 6].try_into().expect("six bytes"),
        address: frame[address..address + 4].try_into().expect("four bytes"),
        port: u16::from_be_bytes([frame[port], frame[port + 1]]),
    };
    Some((end(6, 26, at.tcp), end(0, 30, at.tcp + 2)))
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn word(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2);
    words
        .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)))
        .sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// An ICMP message without its checksum, from the hardware of one, in the name of another.
pub fn icmp(hardware: &End, from: &End, to: &End, mut message: Vec<u8>) -> Vec<u8> {
    let checksum = !folded(sum(&message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = Vec::with_capacity(ETHERNET + 20 + message.len());
    frame.extend(to.mac);
    frame.extend(hardware.mac);
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(((20 + message.len()) as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 1, 0, 0]);
    frame.extend(from.address);
    frame.extend(to.address);
    frame.extend(message);
    finish(&mut frame);
    frame
}

/// Puts a VLAN tag into a frame.
pub fn tag(frame: &mut Vec<u8>, ethertype: u16, id: u16) {
    let tag = [ethertype.to_be_bytes(), id.to_be_bytes()].concat();
    frame.splice(12..12, tag);
}

/// Takes the outermost tag out of a frame.
pub fn untag(frame: &mut Vec<u8>) {
    if let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.get(12..14) {
        frame.drain(12..16);
    }
}

/// Puts an extension header of eight bytes, with nothing in it, behind an IPv6 header.
pub fn insert_extension(frame: &mut Vec<u8>, kind: u8) {
    if frame.get(12..14) != Some(&[0x86, 0xdd]) || frame.len() < 54 {
        return;
    }
    let next = std::mem::replace(&mut frame[20], kind);
    // Padding of six bytes: PadN (RFC 8200 4.2).
    frame.splice(54..54, [next, 0, 1, 4, 0, 0, 0, 0]);
    let bytes = frame.len() - ETHERNET - 40;
    frame[18..20].copy_from_slice(&(bytes as u16).to_be_bytes());
}
