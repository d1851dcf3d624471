//! The host under test: virtual time, sockets, one connection, and what it has sent.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{
    Config, Drops, Endpoint, Error, Events, Segment, State,
    config::Buffer,
    segment::{ecn, flags, option},
};

use crate::{
    Step, Stop,
    calls::Blocked,
    fast_open::{self, Answer},
    info::{Delivered, Limits},
    machine::{Keepalive, Machine, Reuse, Stack, Tunnel},
    memory::{self, Memory, Space},
    notices::Notices,
    packet::{self, FastOpen, LOCAL_ISN, Packet},
    record::Record,
    socket::{Options, Other, Role, Socket},
    stamps::Stamps,
};

/// Steps without progress after which an endpoint is given up: it would go on for ever.
const MOST_STEPS: usize = 200_000;
/// How long the machine has been up when a script begins.
const BOOT_NS: u64 = 1_000_000_000;
/// As late as a script's clock goes.
const END_OF_TIME_NS: u64 = 1 << 60;
/// The segment sizes that a SYN cookie can say.
const MSS_IPV4: [u16; 4] = [536, 1_300, 1_440, 1_460];
const MSS_IPV6: [u16; 4] = [1_220, 1_420, 1_440, 8_940];
/// Room for options (`MAX_TCP_OPTION_SPACE`).
const SYN_OPTIONS: u16 = 40;
const SECOND_NS: u64 = 1_000_000_000;

/// A segment that has left.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at_ns: u64,
    pub packet: Packet,
    /// The connection that sent it, or the last one before it.
    pub number: u32,
    /// Time to live, and the byte of the type of service without ECN.
    pub ttl: u8,
    pub tos: u8,
}

#[derive(Clone, Debug)]
pub struct Connection {
    pub endpoint: Endpoint,
    pub number: u32,
    pub passive: bool,
    /// An application has it: by `connect`, or by `accept`.
    pub owned: bool,
    pub established: bool,
    /// The application has closed it.
    pub orphan: bool,
    /// The send buffer has enough space again since a write found none.
    pub writable: bool,
    /// What its send buffer has grown to, in bytes of memory.
    grown: u64,
    /// The error that the next call on it returns.
    pub error: Option<&'static str>,
    /// First sequence number that is not acknowledged, and the first that has not left; relative.
    pub una: u32,
    pub nxt: u32,
    /// The former when space for writers was looked at last.
    seen_una: u32,
    /// One past the last byte that the application has written; relative.
    pub written: u32,
    /// One past the last urgent byte that was written; relative.
    pub urgent_end: Option<u32>,
    /// A SYN with data was answered by an ACK of it, ours or the peer's.
    pub syn_data: bool,
    /// The fast open option of the next SYN, or of the SYN-ACK.
    pub fast_open: Option<FastOpen>,
    /// The one that a SYN of ours had: a cookie in the answer is for it.
    pub asked: Option<FastOpen>,
    pub delivered: Delivered,
    /// The TSval of our first SYN, and the peer's last; what our SYN echoes.
    first_stamp: Option<u32>,
    peer_stamp: u32,
    echo: u32,
    pub notices: Notices,
    /// How often something has happened that an application may wait for.
    pub wakeups: u64,
    /// When data came last.
    pub data_ns: u64,
    pub limits: Limits,
    /// When the peer was heard last, and probes since that it has not answered.
    heard_ns: u64,
    unanswered: u32,
    /// When the connection began.
    began_ns: u64,
    pub options: Options,
}

pub struct Host {
    pub config: Config,
    pub stack: Stack,
    pub memory: Memory,
    notsent_lowat: u32,
    pub keepalive: Keepalive,
    pub fast_open: fast_open::Settings,
    pub icmp_resets: bool,
    pub tunnel: Tunnel,
    drop_synfin: bool,
    ecn_on_control: u8,
    syn_cookies: bool,
    /// The tolerance of a time in a script.
    pub tolerance_ns: u64,
    pub now_ns: u64,
    /// Line of the event that is running.
    pub line: usize,
    pub sockets: BTreeMap<i64, Socket>,
    pub others: BTreeMap<i64, Other>,
    pub connection: Option<Connection>,
    pub sent: VecDeque<Sent>,
    /// What happens is told here, and is no failure.
    pub record: Option<Record>,
    pub blocked: Option<Blocked>,
    /// An application has written.
    pub wrote: bool,
    /// The MTU of the path to the peer as far as it is known, in bytes of IP.
    pub path_mtu: Option<u16>,
    pub peer: fast_open::Peer,
    reuse: Reuse,
    /// ICMP messages that quoted nothing that was out.
    pub strange_icmp: u64,
    /// What had been dropped when counters were looked at last.
    dropped: Drops,
    /// The script's initial sequence number of the peer, and ours.
    peer_isn: Option<u32>,
    pub own_isn: u32,
    pub header: u16,
    ttl: u8,
    connections: u32,
    pub stamps: Stamps,
}

impl Host {
    pub fn new(machine: &Machine) -> Self {
        Self {
            config: machine.config,
            stack: machine.stack,
            memory: machine.memory,
            notsent_lowat: machine.notsent_lowat,
            keepalive: machine.keepalive,
            fast_open: machine.fast_open.clone(),
            icmp_resets: machine.icmp_resets,
            tunnel: machine.tunnel,
            drop_synfin: machine.drop_synfin,
            ecn_on_control: machine.ecn_on_control,
            syn_cookies: machine.syn_cookies,
            tolerance_ns: machine.tolerance_ns,
            now_ns: 0,
            line: 0,
            sockets: BTreeMap::new(),
            others: BTreeMap::new(),
            connection: None,
            sent: VecDeque::new(),
            record: None,
            blocked: None,
            wrote: false,
            path_mtu: None,
            peer: fast_open::Peer::default(),
            reuse: machine.reuse,
            strange_icmp: 0,
            dropped: Drops::default(),
            peer_isn: None,
            own_isn: 0,
            header: machine.header(),
            ttl: 64,
            connections: 0,
            stamps: Stamps::default(),
        }
    }

    /// A new connection takes the place of the last one.
    pub fn begin(&mut self, endpoint: Endpoint, passive: bool, options: Options) -> u32 {
        let last = self.connection.as_ref();
        let last = last.filter(|open| options.one_port && open.endpoint.state() == State::TimeWait);
        let echo = last.map_or(0, |open| open.peer_stamp);
        self.connections += 1;
        self.stamps = Stamps::default();
        self.own_isn = 0;
        self.connection = Some(Connection {
            endpoint,
            number: self.connections,
            passive,
            owned: !passive,
            established: false,
            orphan: false,
            writable: true,
            grown: 0,
            error: None,
            una: 0,
            nxt: 0,
            seen_una: 0,
            written: 1,
            urgent_end: None,
            syn_data: false,
            fast_open: None,
            asked: None,
            delivered: Delivered::default(),
            first_stamp: None,
            peer_stamp: 0,
            echo,
            notices: Notices::default(),
            wakeups: 0,
            data_ns: self.now_ns,
            limits: Limits::default(),
            heard_ns: self.now_ns,
            unanswered: 0,
            began_ns: self.now_ns,
            options,
        });
        self.connections
    }

    /// The endpoint's configuration for a socket with these options.
    pub fn config_for(&self, options: &Options) -> Arc<Config> {
        let mut config = self.config;
        config.nagle &= !options.nodelay;
        config.user_timeout_ns = options.user_timeout_ns;
        if options.no_options {
            config.sack = false;
            config.timestamps = false;
            config.window_scaling = false;
        }
        if options.syn_retries > 0 {
            (config.syn_retries, config.answer_retries) =
                (options.syn_retries, options.syn_retries);
        }
        if options.tunnel > 0 {
            config.mss = config.mss.saturating_sub(self.tunnel.overhead).max(1);
        }
        if options.maxseg > 0 {
            config.mss = config.mss.min(options.maxseg);
        }
        if options.receive_buffer > 0 {
            config.receive_buffer = fixed(options.receive_buffer);
            if let Some(counted) = &mut config.counted {
                counted.locked = true;
            }
        }
        if let Some(algorithm) = options.algorithm {
            config.algorithm = algorithm;
        }
        config.hystart = self.stack == Stack::Linux && config.algorithm == Algorithm::Cubic;
        // How much an application may write the socket decides.
        config.send_buffer = fixed(1 << 40);
        Arc::new(config)
    }

    /// An active open, whose SYN takes `bytes` along.
    pub fn connect(&mut self, options: Options, bytes: u64) -> (u32, u64) {
        self.peer_isn = None;
        let config = self.config_for(&options);
        let (endpoint, taken) = match bytes {
            0 => (Endpoint::connect(config, LOCAL_ISN), 0),
            _ => Endpoint::connect_fast(config, LOCAL_ISN, bytes),
        };
        let number = self.begin(endpoint, false, options);
        if let Some(connection) = &mut self.connection {
            connection.written += taken as u32;
        }
        (number, taken)
    }

    /// The only port that a socket may have is one of a connection in TIME-WAIT, too young to be
    /// followed by another (Linux's `tcp_twsk_unique`).
    pub fn port_is_taken(&self, options: &Options) -> bool {
        let waits = |open: &&Connection| open.endpoint.state() == State::TimeWait;
        let Some(open) = self.connection.as_ref().filter(waits) else {
            return false;
        };
        let old = self.now_ns - open.heard_ns >= self.reuse.delay_ns;
        options.one_port && !(self.reuse.enabled && open.endpoint.info().timestamps && old)
    }

    /// Bytes that a SYN may take along beside the options that a SYN may have, in segments as the
    /// peer wanted them last.
    pub fn syn_room(&self, options: &Options) -> u64 {
        let mss = self.config_for(options).mss.min(self.peer.mss);
        mss.saturating_sub(SYN_OPTIONS).into()
    }

    fn listener(&mut self) -> Option<&mut Socket> {
        let listens = |socket: &&mut Socket| socket.role == Role::Listener;
        self.sockets.values_mut().find(listens)
    }

    /// A segment arrives.
    pub fn arrive(&mut self, packet: &Packet) -> Step {
        if self.drop_synfin && packet.has(flags::SYN | flags::FIN) {
            return Ok(());
        }
        let elsewhere = |(_, port): (u16, u16)| self.tunnel.port == 0 || port != self.tunnel.port;
        if packet.udp.is_some_and(elsewhere) {
            return Ok(());
        }
        if packet.options.signed && self.stack == Stack::Linux {
            return self.pump(); // no socket here has a key for that
        }
        let mut packet = packet.clone();
        if let Some((_, ecr)) = &mut packet.options.timestamps {
            *ecr = self.stamps.live(*ecr);
        }
        let opens = packet.flags & (flags::SYN | flags::ACK | flags::RST) == flags::SYN;
        let fresh = opens && self.listener().is_some_and(|listener| !listener.used);
        if packet.has(flags::SYN) {
            let isn = match self.peer_isn {
                Some(isn) if !fresh && self.connection.is_some() => isn,
                _ => packet.seq,
            };
            self.peer_isn = Some(isn);
            packet.seq = packet.seq.wrapping_sub(isn);
            packet.ack = packet.ack.wrapping_sub(self.own_isn);
        }
        let bare = |open: &Connection| open.options.no_options;
        if self.connection.as_ref().is_some_and(bare) && !fresh {
            packet.options = packet::Options::default();
        }
        let segment = match packet.to_segment() {
            Ok(segment) => segment,
            Err(reason) => return Stop::unsupported(self.line, reason),
        };
        if self.makes_way(&segment) {
            self.connection = None;
        }
        let now_ns = self.now_ns;
        match &mut self.connection {
            Some(connection)
                if !fresh
                    && connection.endpoint.state() != State::Closed
                    && connection.options.tunnel == packet.tunnel() =>
            {
                let wrong =
                    self.stack == Stack::Linux && connection.echoes_too_much(&packet, now_ns);
                if wrong || connection.refuses(&packet) {
                    self.send(packet.reset());
                } else {
                    self.deliver(&packet, &segment);
                }
            }
            _ => self.arrive_unknown(&packet, &segment),
        }
        self.pump()
    }

    /// A SYN to a listener ends the connection in TIME-WAIT before it.
    fn makes_way(&mut self, segment: &Segment) -> bool {
        let newer = |open: &Connection| open.endpoint.makes_way(segment);
        if !self.connection.as_ref().is_some_and(newer) {
            return false;
        }
        self.listener()
            .map(|listener| listener.used = false)
            .is_some()
    }

    /// A segment of no connection.
    fn arrive_unknown(&mut self, packet: &Packet, segment: &Segment) {
        let opens = packet.flags & (flags::SYN | flags::ACK | flags::RST) == flags::SYN;
        let fin = packet.has(flags::FIN) && self.stack == Stack::Linux;
        let Some(listener) = self.listener().filter(|_| opens && !fin) else {
            if !packet.has(flags::RST) && (self.listener().is_none() || !opens) {
                let mut reset = packet.reset();
                if opens {
                    // Of no connection, so that numbers count from nothing.
                    reset.ack = reset.ack.wrapping_add(self.peer_isn.unwrap_or(0));
                }
                self.send(reset);
            }
            return;
        };
        listener.used = true;
        let options = Options {
            tunnel: packet.tunnel(),
            ..listener.options
        };
        let config = self.config_for(&options);
        let (enabled, without) = (options.fast_open > 0, options.no_cookie);
        let settings = fast_open::Settings {
            key: options.fast_open_key.unwrap_or(self.fast_open.key),
            ..self.fast_open.clone()
        };
        let Answer { open, cookie } = settings.judge(packet, enabled, without);
        let mut segment = *segment;
        if self.syn_cookies {
            keep_in_cookie(&mut segment, self.header);
        }
        let now_ns = self.clock();
        let mut endpoint = match open {
            true => Endpoint::accept_fast(config, LOCAL_ISN, &segment, now_ns),
            false => Endpoint::accept(config, LOCAL_ISN, &segment, now_ns),
        };
        endpoint.own(false);
        self.begin(endpoint, true, options);
        if let Some(connection) = &mut self.connection {
            connection.established = open;
            connection.syn_data = open && packet.len > 0;
            connection.fast_open = cookie;
        }
    }

    /// A segment of the connection.
    fn deliver(&mut self, packet: &Packet, segment: &Segment) {
        let now_ns = self.clock();
        let at_ns = self.now_ns;
        let answers = self.opens_with_data();
        let Some(connection) = &mut self.connection else {
            return;
        };
        (connection.heard_ns, connection.unanswered) = (at_ns, 0);
        if packet.has(flags::ACK) && (packet.ack.wrapping_sub(connection.una) as i32) > 0 {
            let beyond = packet.ack.wrapping_sub(connection.nxt) as i32;
            connection.una = if beyond > 0 {
                connection.una
            } else {
                packet.ack
            };
        }
        connection.delivered.acknowledged(connection.una);
        if let Some((stamp, _)) = packet.options.timestamps {
            connection.peer_stamp = stamp;
        }
        let opening = connection.endpoint.state() == State::SynSent;
        let events = connection.endpoint.segment(now_ns, segment);
        connection.note(events);
        if packet.len > 0 && events.contains(Events::READABLE) {
            connection.data_ns = at_ns;
        }
        if opening && connection.established {
            connection.data_ns = at_ns;
            if answers {
                connection.endpoint.answer_with_data(now_ns);
            }
            self.learn_of_peer(packet);
        }
        self.respect_path_mtu();
        let Some(connection) = &mut self.connection else {
            return;
        };
        if connection.orphan && connection.endpoint.readable() > 0 {
            // The data can never be read (RFC 9293 3.6.1, RFC 2525 2.17).
            self.connection = None;
            self.send(packet.reset());
        }
    }

    pub fn send(&mut self, packet: Packet) {
        let at_ns = self.now_ns;
        let options = self.connection.as_ref().map(|open| open.options);
        let options = options.unwrap_or_default();
        self.sent.push_back(Sent {
            at_ns,
            packet,
            number: self.connections,
            ttl: if options.ttl > 0 {
                options.ttl
            } else {
                self.ttl
            },
            tos: options.tos,
        });
    }

    /// Everything that may leave now leaves, and a call that waits is looked at again.
    pub fn pump(&mut self) -> Step {
        // The rest of such a call takes the acknowledgement of the SYN-ACK along.
        if self.opens_with_data() {
            self.resume()?;
        }
        for _ in 0..MOST_STEPS {
            self.transmit()?;
            if !self.resume()? {
                return Ok(());
            }
        }
        Stop::fail(self.line, "a call goes on for ever")
    }

    pub fn transmit(&mut self) -> Step {
        let now_ns = self.clock();
        for _ in 0..MOST_STEPS {
            let Some(connection) = &mut self.connection else {
                return Ok(());
            };
            let Some(segment) = connection.endpoint.transmit(now_ns) else {
                self.look_around();
                return Ok(());
            };
            let mut packet = Packet::from_segment(&segment);
            packet.udp = connection.options.udp(self.tunnel.port);
            connection.mark_urgent(&mut packet);
            if (packet.end().wrapping_sub(connection.nxt) as i32) > 0 {
                connection.nxt = packet.end();
            }
            connection.delivered.left(connection.una, &packet);
            packet.ecn = ecn_of(self.ecn_on_control, &packet, &connection.endpoint);
            if packet.has(flags::SYN) && connection.options.no_options {
                packet.options = packet::Options::default();
            }
            if packet.has(flags::SYN) {
                packet.options.fast_open.clone_from(&connection.fast_open);
                if !connection.passive && connection.fast_open.is_some() {
                    // What is sent again does without (RFC 7413 4.1.3.1).
                    connection.asked = connection.fast_open.take();
                }
                connection.note_stamps(&mut packet);
                packet.ack = match packet.has(flags::ACK) {
                    true => packet.ack.wrapping_add(self.peer_isn.unwrap_or(0)),
                    false => 0,
                };
            }
            self.send(packet);
        }
        Stop::fail(self.line, "the endpoint sends for ever")
    }

    /// Updates what follows from the connection's state: notices, space for writers, what limits
    /// it.
    fn look_around(&mut self) {
        let Some(open) = &mut self.connection else {
            return;
        };
        let acked = open.seen_una != open.una;
        open.seen_una = open.una;
        if acked && !open.writable {
            open.grown = open.grown.max(memory::expanded(&open.endpoint));
        }
        let space = self.space();
        let (memory, now_ns) = (self.memory, self.now_ns);
        let waits = self.blocked.as_ref().is_some_and(Blocked::waits_to_write);
        let Some(connection) = &mut self.connection else {
            return;
        };
        let (una, nxt) = (connection.una, connection.nxt);
        let mut woken = connection.notices.update(una, nxt, now_ns);
        if acked && !connection.writable && memory.is_writable(&connection.endpoint, space) {
            connection.writable = true;
            woken = true;
        }
        connection.wakeups += u64::from(woken);
        let full = waits || !connection.writable;
        connection.limits.note(&connection.endpoint, full, now_ns);
    }

    /// What bounds the data in the connection's socket now.
    pub fn space(&self) -> Space {
        let own = self.connection.as_ref().map(|it| it.options.notsent_lowat);
        let unsent = own.filter(|unsent| *unsent > 0);
        Space {
            buffer: self.send_buffer(),
            unsent: unsent.unwrap_or(self.notsent_lowat).into(),
        }
    }

    /// The size of the connection's send buffer now, as the kernel counts it.
    pub fn send_buffer(&self) -> u64 {
        let buffer = &self.config.send_buffer;
        let Some(open) = &self.connection else {
            return buffer.initial_bytes;
        };
        let most = buffer.max_bytes.max(buffer.initial_bytes);
        let grown = |wanted: u64| buffer.initial_bytes.max(wanted.min(most));
        let own = Some(open.options.send_buffer).filter(|bytes| *bytes > 0);
        match self.stack {
            Stack::Linux => own.unwrap_or_else(|| grown(open.grown)),
            // Whole segments (`tcp_mss`).
            Stack::Freebsd => own
                .unwrap_or_else(|| grown(2 * u64::from(open.endpoint.cwnd())))
                .next_multiple_of(u64::from(open.endpoint.mss().max(1))),
        }
    }

    /// The endpoint's clock.
    pub fn clock(&self) -> u64 {
        self.now_ns + BOOT_NS
    }

    /// When something is due by itself; `u64::MAX`: never.
    pub fn deadline(&self) -> u64 {
        let Some(connection) = &self.connection else {
            return u64::MAX;
        };
        let deadline = match connection.endpoint.deadline_ns() {
            u64::MAX => u64::MAX,
            deadline => deadline.saturating_sub(BOOT_NS),
        };
        deadline
            .min(self.keepalive_due(connection))
            .min(self.keepinit_due(connection))
    }

    /// When an idle peer is asked whether it is still there (RFC 9293 3.8.4).
    fn keepalive_due(&self, connection: &Connection) -> u64 {
        let (options, default) = (&connection.options, &self.keepalive);
        let open = matches!(
            connection.endpoint.state(),
            State::Established | State::CloseWait
        );
        let idle = connection.una == connection.nxt && connection.endpoint.unacknowledged() == 0;
        if !(options.keepalive || default.always) || !open || !idle {
            return u64::MAX;
        }
        let given = |own: u32, default: u32| u64::from(if own > 0 { own } else { default });
        let first = given(options.keepalive_idle_s, default.idle_s);
        let next = given(options.keepalive_interval_s, default.interval_s);
        let wait_s = first + u64::from(connection.unanswered) * next;
        connection.heard_ns + wait_s * SECOND_NS
    }

    /// When FreeBSD gives up an opening.
    fn keepinit_due(&self, connection: &Connection) -> u64 {
        let opening = matches!(
            connection.endpoint.state(),
            State::SynSent | State::SynReceived
        );
        if self.stack == Stack::Linux || !opening {
            return u64::MAX;
        }
        let wait_s = match connection.options.keepinit_s {
            0 => self.keepalive.init_s,
            own => own,
        };
        connection.began_ns + u64::from(wait_s) * SECOND_NS
    }

    /// The timers of the host itself.
    fn own_timers(&mut self) {
        let now_ns = self.now_ns;
        let Some(connection) = &self.connection else {
            return;
        };
        let keepalive = self.keepalive_due(connection) <= now_ns;
        let keepinit = self.keepinit_due(connection) <= now_ns;
        let most = match connection.options.keepalive_count {
            0 => self.keepalive.count,
            own => own,
        };
        let Some(connection) = &mut self.connection else {
            return;
        };
        if keepinit || (keepalive && connection.unanswered >= most) {
            let events = connection.endpoint.cut_off();
            connection.note(events);
            connection.error = Some("ETIMEDOUT");
        } else if keepalive {
            connection.unanswered += 1;
            connection.endpoint.probe_peer();
        }
    }

    /// Time passes until just before `until_ns`, or to the first segment that leaves if `first`.
    /// Timers that are due at that very moment come after the event there.
    pub fn advance(&mut self, until_ns: u64, first: bool) -> Step {
        for _ in 0..MOST_STEPS {
            if first && !self.sent.is_empty() {
                return Ok(());
            }
            let deadline = self.deadline();
            let due = if first {
                deadline <= until_ns
            } else {
                deadline < until_ns
            };
            if !due {
                self.now_ns = self.now_ns.max(until_ns.min(END_OF_TIME_NS));
                return Ok(());
            }
            self.now_ns = self.now_ns.max(deadline);
            let now_ns = self.clock();
            if let Some(connection) = &mut self.connection {
                let events = connection.endpoint.timeout(now_ns);
                connection.note(events);
            }
            self.own_timers();
            self.pump()?;
        }
        Stop::fail(self.line, "the endpoint's timer never stops")
    }

    /// Drops segments of earlier connections: they are no part of the script any more.
    pub fn forget_older(&mut self) {
        let latest = self.connections;
        while self.sent.front().is_some_and(|sent| sent.number < latest) {
            self.sent.pop_front();
        }
    }

    /// The machine has other parameters now.
    pub fn adopt(&mut self, machine: &Machine) {
        self.config = machine.config;
        self.memory = machine.memory;
        self.notsent_lowat = machine.notsent_lowat;
        self.keepalive = machine.keepalive;
        self.fast_open = machine.fast_open.clone();
        self.icmp_resets = machine.icmp_resets;
        self.tunnel = machine.tunnel;
        self.reuse = machine.reuse;
        // Linux reads these for each segment.
        if let Some(connection) = &mut self.connection {
            let settings = machine.config.accurate;
            connection.endpoint.set_accurate_ecn(settings);
        }
        self.drop_synfin = machine.drop_synfin;
        self.ecn_on_control = machine.ecn_on_control;
        if self.stack == Stack::Freebsd && !self.fast_open.client() {
            self.peer = fast_open::Peer::default();
        }
        self.syn_cookies = machine.syn_cookies;
    }

    /// How often something has happened since counters were looked at last, by Linux's name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let (now, then) = (self.drops(), &self.dropped);
        Some(match name {
            "OutOfWindowIcmps" => self.strange_icmp,
            "BeyondWindow" => now.beyond - then.beyond.min(now.beyond),
            "TCPZeroWindowDrop" => now.closed - then.closed.min(now.closed),
            "TCPRcvQDrop" => now.memory - then.memory.min(now.memory),
            _ => return None,
        })
    }

    /// Counters count from here.
    pub fn forget_counters(&mut self) {
        self.dropped = self.drops();
    }

    fn drops(&self) -> Drops {
        let open = self.connection.as_ref();
        open.map_or_else(Drops::default, |open| open.endpoint.drops())
    }

    /// Sockets in this state, as FreeBSD calls it.
    pub fn in_state(&self, name: &str) -> u32 {
        let listens = |socket: &&Socket| socket.role == Role::Listener;
        match name {
            "LISTEN" => self.sockets.values().filter(listens).count() as u32,
            _ => u32::from(self.state_name() == Some(name)),
        }
    }

    /// The state of the connection, as FreeBSD calls it.
    pub fn state_name(&self) -> Option<&'static str> {
        Some(match self.connection.as_ref()?.endpoint.state() {
            State::Closed => return None,
            State::SynSent => "SYN_SENT",
            State::SynReceived => "SYN_RCVD",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN_WAIT_1",
            State::FinWait2 => "FIN_WAIT_2",
            State::CloseWait => "CLOSE_WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST_ACK",
            State::TimeWait => "TIME_WAIT",
        })
    }

    /// A SYN of ours has the number in the script, whatever it is.
    pub fn learn_own_isn(&mut self, script: &Packet, live: &mut Packet) {
        if script.has(flags::SYN) && live.has(flags::SYN) {
            self.own_isn = script.seq;
            live.seq = live.seq.wrapping_add(script.seq);
        }
    }
}

impl Connection {
    /// Whether the host refuses a packet, which the endpoint leaves to it: an ACK of nothing that
    /// was sent, before there is a connection (RFC 9293 3.10.7.3 and 3.10.7.4).
    fn refuses(&self, packet: &Packet) -> bool {
        let out = packet.ack.wrapping_sub(1) < self.nxt.max(1);
        matches!(self.endpoint.state(), State::SynSent | State::SynReceived)
            && packet.has(flags::ACK)
            && !packet.has(flags::RST)
            && !out
    }

    /// Timestamps of a SYN of ours; the first one after TIME-WAIT echoes the peer's last.
    fn note_stamps(&mut self, packet: &mut Packet) {
        let answers = packet.has(flags::ACK);
        if let Some((stamp, ecr)) = &mut packet.options.timestamps {
            self.first_stamp.get_or_insert(*stamp);
            if !answers {
                *ecr = self.echo;
            }
        }
    }

    /// A SYN-ACK echoes a timestamp that no SYN of ours can have had.
    fn echoes_too_much(&self, packet: &Packet, now_ns: u64) -> bool {
        let (Some((_, ecr)), Some(first)) = (packet.options.timestamps, self.first_stamp) else {
            return false;
        };
        let passed_ms = (now_ns - self.began_ns) / 1_000_000 + 1;
        self.endpoint.state() == State::SynSent
            && packet.has(flags::ACK)
            && ecr != 0
            && u64::from(ecr.wrapping_sub(first)) > passed_ms
    }

    /// Segments up to the end of urgent data say where that is, as long as it is not acknowledged
    /// (RFC 9293 3.8.5).
    fn mark_urgent(&self, packet: &mut Packet) {
        let Some(end) = self.urgent_end else {
            return;
        };
        let waits = (end.wrapping_sub(self.una) as i32) > 0;
        let ahead = end.wrapping_sub(packet.seq);
        if waits && packet.len > 0 && (1..=0xffff).contains(&ahead) {
            packet.flags |= flags::URG;
            packet.urgent = ahead as u16;
        }
    }

    pub fn note(&mut self, events: Events) {
        self.established |= events.contains(Events::CONNECTED);
        self.wakeups += u64::from(!events.is_empty());
        if events.contains(Events::FAILED) {
            self.error = match self.endpoint.error() {
                Some(Error::Refused) => Some("ECONNREFUSED"),
                Some(Error::TimedOut) => Some("ETIMEDOUT"),
                Some(Error::Unreachable) => Some("EHOSTUNREACH"),
                Some(Error::Reset) | None => Some("ECONNRESET"),
            };
        }
    }
}

/// The ECN codepoint with which a packet leaves: what has none by itself may have one with ECN+ and
/// ECN++.
fn ecn_of(on_control: u8, packet: &Packet, endpoint: &Endpoint) -> u8 {
    let asks = packet.has(flags::SYN | flags::ECE | flags::CWR);
    let answers = packet.has(flags::SYN | flags::ACK | flags::ECE);
    let marked = match on_control {
        0 => false,
        1 => answers,
        _ => asks || answers || (endpoint.info().ecn && !packet.has(flags::SYN)),
    };
    if marked { ecn::ECT0 } else { packet.ecn }
}

/// What is left of a SYN whose SYN-ACK carries a cookie (Linux's `syncookies.c`): the MSS as the
/// next one of a table; other options if timestamps can carry them.
fn keep_in_cookie(syn: &mut Segment, header: u16) {
    let table = if header == 40 { MSS_IPV4 } else { MSS_IPV6 };
    let mss = syn.mss().unwrap_or(table[0]);
    let kept = table.iter().rfind(|entry| **entry <= mss);
    if syn.options & option::TIMESTAMPS == 0 {
        syn.options = 0;
    }
    syn.set_mss(*kept.unwrap_or(&table[0]));
}

/// A buffer that keeps its size.
pub fn fixed(bytes: u64) -> Buffer {
    Buffer {
        initial_bytes: bytes,
        max_bytes: bytes,
    }
}
