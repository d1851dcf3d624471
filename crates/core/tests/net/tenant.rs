//! A tenant's TCP, as plain as the standards allow: it sends whatever its peer's window lets it
//! (congestion is the operator's business here), retransmits fast on the third duplicate ACK
//! (RFC 5681) and one segment per partial ACK (RFC 6582), and keeps what comes out of order.

use sluicegate_core::host::tcp;

use super::{Packet, opt};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Closed,
    SynSent,
    SynReceived,
    Open,
}

/// The offers of a tenant in its SYN or SYN/ACK.
#[derive(Clone, Debug)]
pub struct Offers {
    pub mss: u16,
    /// `None` = no window scaling.
    pub wscale: Option<u8>,
    pub sack: bool,
    pub timestamps: bool,
    /// RFC 3168.
    pub ecn: bool,
    /// Options before and behind the others of the SYN.
    pub leading: Vec<u8>,
    pub more: Vec<u8>,
    /// Bytes of data that go with the SYN or SYN/ACK (RFC 7413).
    pub data: u32,
}

impl Default for Offers {
    /// As Linux on Ethernet.
    fn default() -> Self {
        Self {
            mss: 1460,
            wscale: Some(10),
            sack: true,
            timestamps: true,
            ecn: false,
            leading: Vec::new(),
            more: Vec::new(),
            data: 0,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Tenant {
    pub offers: Offers,
    pub state: State,
    pub iss: u32,

    pub snd_una: u32,
    pub snd_nxt: u32,
    /// Highest right edge that it was shown.
    pub edge: u32,
    /// Bytes that the application still wants to send.
    pub queued: u64,
    /// Payload per packet; more than an MSS models segmentation offload.
    pub segment: u32,
    /// Its own congestion window in bytes.
    pub cwnd: u32,
    pub retransmits: u32,
    pub fast_retransmits: u32,
    peer: Offers,
    dupacks: u32,
    last_window: u16,
    recover: Option<u32>,

    pub rcv_nxt: u32,
    /// Bytes that it advertises.
    pub window: u32,
    /// Segments per ACK.
    pub ack_every: u32,
    /// Out of order, the newest first.
    pub gaps: Vec<(u32, u32)>,
    pub received: u64,
    unacked: u32,
    /// Every packet that reached it.
    pub seen: Vec<Packet>,
}

/// Any byte of any stream is known from its sequence number.
fn stream_byte(seq: u32) -> u8 {
    (seq.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Tenant {
    pub fn new(iss: u32) -> Self {
        Self {
            offers: Offers::default(),
            state: State::Closed,
            iss,
            snd_una: iss,
            snd_nxt: iss,
            edge: iss,
            queued: 0,
            segment: 1448,
            cwnd: u32::MAX,
            retransmits: 0,
            fast_retransmits: 0,
            peer: Offers::default(),
            dupacks: 0,
            last_window: 0,
            recover: None,
            rcv_nxt: 0,
            window: 4 << 20,
            ack_every: 1,
            gaps: Vec::new(),
            received: 0,
            unacked: 0,
            seen: Vec::new(),
        }
    }

    /// Shift of the windows that it sends.
    fn own_shift(&self) -> u8 {
        match (self.offers.wscale, self.peer.wscale) {
            (Some(own), Some(_)) => own,
            _ => 0,
        }
    }

    /// Shift of the windows that it is shown.
    pub fn peer_shift(&self) -> u8 {
        match (self.offers.wscale, self.peer.wscale) {
            (Some(_), Some(peer)) => peer,
            _ => 0,
        }
    }

    fn handshake_options(&self) -> Vec<u8> {
        let offers = &self.offers;
        let mut parts = vec![offers.leading.clone(), opt::mss(offers.mss)];
        if offers.sack {
            parts.push(opt::sack_permitted());
        }
        if offers.timestamps {
            parts.push(opt::timestamps(1, 0)[2..].to_vec());
        }
        if let Some(shift) = offers.wscale {
            parts.push(opt::wscale(shift));
        }
        parts.push(offers.more.clone());
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        opt::all(&parts)
    }

    fn handshake_data(&self) -> Vec<u8> {
        let from = self.iss.wrapping_add(1);
        let bytes = 0..self.offers.data;
        bytes.map(|i| stream_byte(from.wrapping_add(i))).collect()
    }

    /// A SYN, the first or a repeated one.
    pub fn syn(&mut self) -> Packet {
        self.state = State::SynSent;
        self.snd_nxt = self.iss.wrapping_add(1 + self.offers.data);
        let ecn = if self.offers.ecn {
            tcp::ECE | tcp::CWR
        } else {
            0
        };
        Packet {
            seq: self.iss,
            flags: tcp::SYN | ecn,
            window: 64_240,
            options: self.handshake_options(),
            payload: self.handshake_data(),
            ..Packet::default()
        }
    }

    /// A SYN/ACK, the first or a repeated one.
    pub fn syn_ack(&mut self) -> Packet {
        self.snd_nxt = self.iss.wrapping_add(1 + self.offers.data);
        Packet {
            seq: self.iss,
            ack: self.rcv_nxt,
            flags: tcp::SYN | tcp::ACK,
            window: 65_160,
            options: self.handshake_options(),
            payload: self.handshake_data(),
            ..Packet::default()
        }
    }

    /// A segment at `seq` with what every segment carries.
    pub fn segment_at(&self, seq: u32, flags: u8, len: u32) -> Packet {
        let sacks = self.offers.sack && self.peer.sack && len == 0;
        let mut parts = Vec::new();
        let timestamps = self.offers.timestamps && self.peer.timestamps;
        if timestamps {
            parts.push(opt::timestamps(2, 1));
        }
        if sacks && !self.gaps.is_empty() {
            let most = if timestamps { 3 } else { 4 };
            parts.push(opt::sack(&self.gaps[..self.gaps.len().min(most)]));
        }
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        Packet {
            seq,
            ack: self.rcv_nxt,
            flags: flags | tcp::ACK,
            window: (self.window >> self.own_shift()).min(0xffff) as u16,
            options: opt::all(&parts),
            payload: (0..len).map(|i| stream_byte(seq.wrapping_add(i))).collect(),
            ..Packet::default()
        }
    }

    pub fn ack(&self) -> Packet {
        self.segment_at(self.snd_nxt, 0, 0)
    }

    /// Probes that the other end is there: repeats the last byte that was acknowledged.
    pub fn keepalive(&self) -> Packet {
        self.segment_at(self.snd_una.wrapping_sub(1), 0, 1)
    }

    /// One byte beyond a closed window (RFC 9293 3.8.6.1).
    pub fn window_probe(&mut self) -> Packet {
        let at = self.snd_una;
        if self.snd_nxt == at {
            self.snd_nxt = at.wrapping_add(1);
        }
        self.segment_at(at, tcp::PSH, 1)
    }

    /// Outstanding bytes.
    pub fn flight(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.snd_una)
    }

    /// Bytes that the window still lets it send.
    pub fn room(&self) -> u32 {
        if before(self.snd_nxt, self.edge) {
            self.edge.wrapping_sub(self.snd_nxt)
        } else {
            0
        }
    }

    /// The application writes; what the window allows leaves at once.
    pub fn send(&mut self, bytes: u64) -> Vec<Packet> {
        self.queued += bytes;
        self.pump()
    }

    fn pump(&mut self) -> Vec<Packet> {
        let mut out = Vec::new();
        while self.state == State::Open && self.queued > 0 {
            let full = self.queued.min(u64::from(self.segment)) as u32;
            let room = self.room().min(self.cwnd.saturating_sub(self.flight()));
            // Silly window avoidance (RFC 9293 3.8.6.2.1); a super-packet is cut to whole segments.
            let len = match room {
                room if room >= full => full,
                room => room / u32::from(self.peer.mss) * u32::from(self.peer.mss),
            };
            if len == 0 {
                break;
            }
            out.push(self.segment_at(self.snd_nxt, tcp::PSH, len));
            self.snd_nxt = self.snd_nxt.wrapping_add(len);
            self.queued -= u64::from(len);
        }
        out
    }

    /// Repeats the oldest outstanding segment.
    pub fn retransmit(&mut self) -> Packet {
        self.retransmits += 1;
        let len = self.flight().min(self.segment);
        self.segment_at(self.snd_una, tcp::PSH, len)
    }

    /// Its retransmission timer fires.
    pub fn time_out(&mut self) -> Vec<Packet> {
        if self.flight() == 0 {
            return Vec::new();
        }
        self.dupacks = 0;
        self.recover = Some(self.snd_nxt);
        vec![self.retransmit()]
    }

    /// A packet arrives; what it answers.
    pub fn take(&mut self, packet: &Packet) -> Vec<Packet> {
        self.seen.push(packet.clone());
        if packet.has(tcp::RST) {
            self.state = State::Closed;
            return Vec::new();
        }
        if packet.has(tcp::SYN) {
            return self.take_syn(packet);
        }
        if self.state == State::SynReceived && packet.ack == self.snd_nxt {
            self.state = State::Open;
            self.snd_una = packet.ack;
            self.edge = packet.ack;
        }
        if self.state != State::Open {
            return Vec::new();
        }
        let mut out = self.take_ack(packet);
        if !packet.payload.is_empty() {
            out.extend(self.take_data(packet));
        }
        out.extend(self.pump());
        out
    }

    fn take_syn(&mut self, packet: &Packet) -> Vec<Packet> {
        let value = |kind| opt::find(&packet.options, kind);
        self.peer = Offers {
            mss: value(2).map_or(536, |mss| u16::from_be_bytes([mss[0], mss[1]])),
            wscale: value(3).map(|shift| shift[0]),
            sack: value(4).is_some(),
            timestamps: value(8).is_some(),
            ecn: packet.has(tcp::ECE),
            ..Offers::default()
        };
        let data = packet.payload.len() as u32;
        self.rcv_nxt = packet.seq.wrapping_add(1 + data);
        self.received += u64::from(data);
        if !packet.has(tcp::ACK) {
            self.state = State::SynReceived;
            return vec![self.syn_ack()];
        }
        if self.state == State::SynSent && packet.ack == self.snd_nxt {
            self.state = State::Open;
            self.snd_una = packet.ack;
            self.edge = packet.ack.wrapping_add(u32::from(packet.window));
            self.last_window = packet.window;
        }
        let mut out = vec![self.ack()];
        out.extend(self.pump());
        out
    }

    fn take_ack(&mut self, packet: &Packet) -> Vec<Packet> {
        if before(packet.ack, self.snd_una) || before(self.snd_nxt, packet.ack) {
            return Vec::new();
        }
        let edge = packet
            .ack
            .wrapping_add(u32::from(packet.window) << self.peer_shift());
        if before(self.edge, edge) {
            self.edge = edge;
        }
        let repeats = packet.ack == self.snd_una
            && packet.payload.is_empty()
            && packet.window == self.last_window
            && self.flight() > 0;
        self.last_window = packet.window;
        if repeats {
            self.dupacks += 1;
            if self.dupacks == 3 && self.recover.is_none() {
                self.recover = Some(self.snd_nxt);
                self.fast_retransmits += 1;
                return vec![self.retransmit()];
            }
        }
        if packet.ack == self.snd_una {
            return Vec::new();
        }
        self.snd_una = packet.ack;
        self.dupacks = 0;
        match self.recover {
            Some(recover) if before(packet.ack, recover) => vec![self.retransmit()],
            _ => {
                self.recover = None;
                Vec::new()
            }
        }
    }

    fn take_data(&mut self, packet: &Packet) -> Vec<Packet> {
        for (i, byte) in packet.payload.iter().enumerate() {
            let seq = packet.seq.wrapping_add(i as u32);
            assert_eq!(
                *byte,
                stream_byte(seq),
                "the byte at {seq} is not what was sent"
            );
        }
        let (start, end) = (packet.seq, packet.end());
        let in_order = !before(self.rcv_nxt, start) && before(self.rcv_nxt, end);
        if in_order {
            self.advance(end);
        } else if before(self.rcv_nxt, start) {
            self.keep(start, end);
        }
        self.unacked += 1;
        if in_order && self.gaps.is_empty() && self.unacked < self.ack_every {
            return Vec::new();
        }
        self.unacked = 0;
        vec![self.ack()]
    }

    fn advance(&mut self, mut end: u32) {
        while let Some(at) = self
            .gaps
            .iter()
            .position(|(left, right)| !before(end, *left) && before(end, *right))
        {
            end = self.gaps.swap_remove(at).1;
        }
        self.received += u64::from(end.wrapping_sub(self.rcv_nxt));
        self.rcv_nxt = end;
        self.gaps.retain(|(_, right)| before(end, *right));
    }

    /// Joins neighbours; the newest block comes first (RFC 2018 4).
    fn keep(&mut self, mut left: u32, mut right: u32) {
        self.gaps.retain(|(l, r)| {
            let apart = before(right, *l) || before(*r, left);
            if !apart {
                left = if before(*l, left) { *l } else { left };
                right = if before(right, *r) { *r } else { right };
            }
            apart
        });
        self.gaps.insert(0, (left, right));
    }
}
