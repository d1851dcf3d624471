//! Real connections between the tenants, with their payload checked to the byte.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{A, ADDRESSES, B, Hosts, TENANTS};

/// Longer than any of it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a connection of this process has received nothing for [`PATIENCE`].
pub static STALLED: AtomicBool = AtomicBool::new(false);

/// Offset in `struct tcp_info` of the scale of the peer's windows (low half) and of the own ones.
pub const SCALE_OF_SENDER: usize = 6;

/// An open connection from tenant a to tenant b.
pub struct Connection {
    pub ends: [TcpStream; 2],
}

/// Any byte of a stream by its position.
fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Connection {
    /// In the family 0 (IPv4) or 1 (IPv6) of [`ADDRESSES`].
    pub fn open(hosts: &Hosts, family: usize) -> Self {
        Self::opened(hosts, family, |address| {
            TcpStream::connect_timeout(address, PATIENCE).expect("a connects")
        })
    }

    /// The SYN has `bytes` of data (TCP Fast Open without cookies, RFC 7413), which arrive.
    pub fn open_fast(hosts: &Hosts, family: usize, bytes: u64) -> Self {
        // Either end offers it, and neither wants a cookie.
        for tenant in TENANTS {
            hosts.within(tenant, || {
                fs::write("/proc/sys/net/ipv4/tcp_fastopen", "519").expect("Fast Open is known");
            });
        }
        let mut open = Self::opened(hosts, family, |address| {
            let mut near = connect_with_data(address);
            send(&mut near, bytes);
            near
        });
        receive(&mut open.ends[B], bytes);
        open
    }

    fn opened(
        hosts: &Hosts,
        family: usize,
        connect: impl FnOnce(&SocketAddr) -> TcpStream + Send,
    ) -> Self {
        let address: SocketAddr = SocketAddr::new(ADDRESSES[family][B].parse().unwrap(), 0);
        let listener = hosts.within(TENANTS[B], || {
            TcpListener::bind(address).expect("b listens")
        });
        let address = listener.local_addr().unwrap();
        let near = hosts.within(TENANTS[A], || connect(&address));
        let (far, _) = listener.accept().expect("b accepts");
        for end in [&near, &far] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
            end.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        Self { ends: [near, far] }
    }

    /// Sends `bytes` from one end to the other; every byte is as sent.
    pub fn transfer(&mut self, from: usize, bytes: u64) {
        let [near, far] = &mut self.ends;
        let (sender, receiver) = if from == A { (near, far) } else { (far, near) };
        thread::scope(|scope| {
            scope.spawn(|| send(sender, bytes));
            receive(receiver, bytes);
        });
    }

    /// Sends `bytes`; the receiver reads a tenth of it between pauses.
    pub fn transfer_paused(&mut self, from: usize, bytes: u64, pause: Duration) {
        let [near, far] = &mut self.ends;
        let (sender, receiver) = if from == A { (near, far) } else { (far, near) };
        thread::scope(|scope| {
            scope.spawn(|| send(sender, bytes));
            let part = bytes / 10;
            for number in 0..10 {
                thread::sleep(pause);
                receive_from(receiver, number * part, (number + 1) * part);
            }
            receive_from(receiver, 10 * part, bytes);
        });
    }

    /// Both ends send at a time.
    pub fn exchange(&mut self, bytes: u64) {
        let clones: Vec<TcpStream> = self
            .ends
            .iter()
            .map(|end| end.try_clone().unwrap())
            .collect();
        thread::scope(|scope| {
            for (end, mut clone) in self.ends.iter_mut().zip(clones) {
                scope.spawn(move || send(&mut clone, bytes));
                scope.spawn(move || receive(end, bytes));
            }
        });
    }

    /// Both ends take turns with messages of `bytes`, each the answer to the other's.
    pub fn ping_pong(&mut self, bytes: u64, rounds: u32) {
        let [near, far] = &mut self.ends;
        for end in [&near, &far] {
            end.set_nodelay(true).unwrap();
        }
        for _ in 0..rounds {
            send(near, bytes);
            receive(far, bytes);
            send(far, bytes);
            receive(near, bytes);
        }
    }

    /// A field of `struct tcp_info` of one end, by its offset.
    fn info(&self, end: usize, offset: usize) -> u32 {
        let mut info = [0_u8; 512];
        let mut size = info.len() as u32;
        // SAFETY: writes at most `size` bytes into what outlives the call.
        let code = unsafe {
            libc::getsockopt(
                self.ends[end].as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &mut size,
            )
        };
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
        assert!(
            size as usize >= offset + 4,
            "this kernel's tcp_info is shorter"
        );
        u32::from_ne_bytes(info[offset..offset + 4].try_into().unwrap())
    }

    /// A byte of `struct tcp_info` of one end, by its offset.
    pub fn info_byte(&self, end: usize, offset: usize) -> u8 {
        self.info(end, offset).to_ne_bytes()[0]
    }

    /// The receive window that the peer lets this end have, in bytes: `tcpi_snd_wnd`.
    pub fn send_window(&self, end: usize) -> u32 {
        self.info(end, 228)
    }

    /// Payload bytes of this end's largest segment: `tcpi_snd_mss`.
    pub fn send_mss(&self, end: usize) -> u32 {
        self.info(end, 16)
    }

    /// Shift of the windows that the peer advertises to this end: `tcpi_snd_wscale`.
    pub fn send_scale(&self, end: usize) -> u32 {
        self.info(end, 4) >> 16 & 0xf
    }

    /// Segments sent again so far: `tcpi_total_retrans`.
    pub fn retransmits(&self, end: usize) -> u32 {
        self.info(end, 100)
    }
}

/// A connection whose SYN waits for data to take along.
fn connect_with_data(address: &SocketAddr) -> TcpStream {
    let family = rustix::net::AddressFamily::from_raw(if address.is_ipv4() {
        libc::AF_INET as u16
    } else {
        libc::AF_INET6 as u16
    });
    let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None).unwrap();
    let on: libc::c_int = 1;
    // SAFETY: the value outlives the call, which is told its size.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN_CONNECT,
            (&raw const on).cast(),
            size_of_val(&on) as u32,
        )
    };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    rustix::net::connect(&socket, address).expect("nothing is sent yet");
    TcpStream::from(socket)
}

fn send(stream: &mut TcpStream, bytes: u64) {
    let mut position = 0;
    while position < bytes {
        let end = bytes.min(position + (1 << 16));
        let chunk: Vec<u8> = (position..end).map(byte_at).collect();
        stream.write_all(&chunk).expect("the peer takes it");
        position = end;
    }
}

/// Nothing came for [`PATIENCE`]. Tests that watch [`STALLED`] have time to report why.
fn stalled(stream: &TcpStream, position: u64, error: &io::Error) -> ! {
    STALLED.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_secs(4));
    let ends = (stream.peer_addr(), stream.local_addr());
    panic!("no byte after {position}, {ends:?}: {error}");
}

fn receive(stream: &mut TcpStream, bytes: u64) {
    receive_from(stream, 0, bytes);
}

/// Receives the bytes between two positions of the stream.
fn receive_from(stream: &mut TcpStream, mut position: u64, bytes: u64) {
    let mut buffer = vec![0; 1 << 16];
    while position < bytes {
        let room = (bytes - position).min(buffer.len() as u64) as usize;
        let length = stream
            .read(&mut buffer[..room])
            .unwrap_or_else(|error| stalled(stream, position, &error));
        assert!(length > 0, "the peer closed after {position} bytes");
        for (i, byte) in buffer[..length].iter().enumerate() {
            let at = position + i as u64;
            assert_eq!(*byte, byte_at(at), "byte {at} is not what was sent");
        }
        position += length as u64;
    }
}
