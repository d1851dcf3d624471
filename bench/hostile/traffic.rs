//! The traffic of honest tenants: bulk connections, and a datagram to and fro that says how long
//! the queue is.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketType, sockopt, sockopt::Timeout};

use crate::{
    net::{Net, PROBE, Side},
    worker::{Ending, Worker},
};

/// Where receivers listen.
pub const PORT: u16 = 5001;
/// Time between two datagrams of the probe.
const PROBE_EVERY: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_millis(100);
/// Longer than any handshake takes.
const CONNECTING: Duration = Duration::from_secs(5);

/// A connection that is never short of data.
pub struct Bulk {
    pub received: Arc<AtomicU64>,
    /// The sender's.
    pub port: u16,
    // Ends them before the threads that wait for them.
    _ends: Closing,
    _threads: [Worker; 2],
}

struct Closing(Vec<TcpStream>);

impl Drop for Closing {
    fn drop(&mut self) {
        for end in &self.0 {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Bulk {
    /// From sender to receiver of a pair.
    pub fn start(net: &Net, pair: usize) -> Result<Self> {
        Self::to(net, pair, listening(pair))
    }

    /// The same to this address of the receiver.
    pub fn to(net: &Net, pair: usize, address: SocketAddr) -> Result<Self> {
        Self::opened(net, pair, address, connect)
    }

    /// The same with data on the SYN (RFC 7413), which the receiver takes without a cookie.
    pub fn fast(net: &Net, pair: usize) -> Result<Self> {
        for (side, value) in [(Side::Sender, "5"), (Side::Receiver, "1538")] {
            net.sysctl(&side.tenant(pair), "net/ipv4/tcp_fastopen", value)?;
        }
        Self::opened(net, pair, listening(pair), connect_with_data)
    }

    fn opened(net: &Net, pair: usize, address: SocketAddr, connect: Connect) -> Result<Self> {
        let listener = net.within(&Side::Receiver.tenant(pair), || {
            Ok(TcpListener::bind(address)?)
        })?;
        let near = connect(net, pair, address)?;
        let far = accept_soon(&listener).with_context(|| format!("pair {pair} is connected"))?;
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        let (mut out, mut into) = (near.try_clone()?, far.try_clone()?);
        let threads = [
            Worker::start(move |ending| send(&mut out, ending)),
            Worker::start(move |ending| receive(&mut into, ending, &count)),
        ];
        Ok(Self {
            received,
            port: near.local_addr()?.port(),
            _ends: Closing(vec![near, far]),
            _threads: threads,
        })
    }
}

/// The connection that has been opened, whose SYN may have data and be under way.
fn accept_soon(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let until = Instant::now() + CONNECTING;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) => ensure!(Instant::now() < until, "no SYN came"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Where the receiver of a pair listens.
fn listening(pair: usize) -> SocketAddr {
    let address = Ipv4Addr::from(Side::Receiver.address(pair));
    SocketAddr::new(address.into(), PORT)
}

/// How the sender of a pair opens its connection.
type Connect = fn(&Net, usize, SocketAddr) -> Result<TcpStream>;

fn connect(net: &Net, pair: usize, address: SocketAddr) -> Result<TcpStream> {
    let open = || {
        let fd = cubic(address)?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, Some(CONNECTING))?;
        rustix::net::connect(&fd, &address)?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, None)?;
        Ok(TcpStream::from(fd))
    };
    net.within(&Side::Sender.tenant(pair), open)
        .with_context(|| format!("pair {pair} connects"))
}

/// Before it connects: a stack that has begun with another algorithm may go on with its pacing.
fn cubic(address: SocketAddr) -> Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let fd = rustix::net::socket(family, SocketType::STREAM, None)?;
    sockopt::set_tcp_congestion(&fd, "cubic").context("congestion control cubic")?;
    Ok(fd)
}

#[allow(unsafe_code)]
fn connect_with_data(net: &Net, pair: usize, address: SocketAddr) -> Result<TcpStream> {
    net.within(&Side::Sender.tenant(pair), || {
        let fd = cubic(address)?;
        let on: libc::c_int = 1;
        // SAFETY: the value outlives the call, which is told its size.
        let code = unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_FASTOPEN_CONNECT,
                (&raw const on).cast(),
                size_of_val(&on) as u32,
            )
        };
        ensure!(
            code == 0,
            "TCP_FASTOPEN_CONNECT: {}",
            std::io::Error::last_os_error()
        );
        rustix::net::connect(&fd, &address)?;
        let mut stream = TcpStream::from(fd);
        stream.write_all(&[0x5a; 1000])?;
        Ok(stream)
    })
}

/// The sending half of a bulk connection, to any answering host.
pub struct Endless {
    _end: Closing,
    _thread: Worker,
}

impl Endless {
    pub fn start(net: &Net, pair: usize, address: SocketAddr) -> Result<Self> {
        let stream = connect(net, pair, address)?;
        sockopt::set_socket_send_buffer_size(&stream, 4 << 20)?;
        let mut out = stream.try_clone()?;
        Ok(Self {
            _end: Closing(vec![stream]),
            _thread: Worker::start(move |ending| send(&mut out, ending)),
        })
    }
}

/// A receiver that takes all connections and reads what comes.
pub struct Sink {
    pub received: Arc<AtomicU64>,
    _thread: Worker,
}

impl Sink {
    pub fn start(net: &Net, pair: usize) -> Result<Self> {
        let address = Ipv4Addr::from(Side::Receiver.address(pair));
        let listener = net.within(&Side::Receiver.tenant(pair), || {
            Ok(TcpListener::bind((address, PORT))?)
        })?;
        listener.set_nonblocking(true)?;
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        let thread = Worker::start(move |ending| accept(&listener, ending, &count));
        Ok(Self {
            received,
            _thread: thread,
        })
    }
}

fn accept(listener: &TcpListener, ending: &Ending, count: &Arc<AtomicU64>) {
    let mut readers = Vec::new();
    while !ending.is_near() {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let count = Arc::clone(count);
        let ready = stream.set_nonblocking(false).is_ok()
            && stream.set_read_timeout(Some(10 * PATIENCE)).is_ok();
        if ready {
            readers.push(Worker::start(move |ending| {
                receive(&mut stream, ending, &count)
            }));
        }
    }
}

fn send(stream: &mut TcpStream, ending: &Ending) {
    let data = vec![0x5a; 1 << 17];
    while !ending.is_near() && stream.write_all(&data).is_ok() {}
}

fn receive(stream: &mut TcpStream, ending: &Ending, count: &AtomicU64) {
    let mut buffer = vec![0; 1 << 17];
    while !ending.is_near() {
        match stream.read(&mut buffer) {
            Ok(bytes @ 1..) => _ = count.fetch_add(bytes as u64, Ordering::Relaxed),
            _ => return,
        }
    }
}

/// Round trips of a small datagram, in microseconds.
pub struct Probe {
    taken: Arc<Mutex<Vec<u64>>>,
    _threads: [Worker; 2],
}

impl Probe {
    pub fn start(net: &Net) -> Result<Self> {
        let address = Ipv4Addr::from(Side::Receiver.address(PROBE));
        let far = net.within(&Side::Receiver.tenant(PROBE), || {
            Ok(UdpSocket::bind((address, PORT))?)
        })?;
        let near = net.within(&Side::Sender.tenant(PROBE), || {
            let socket = UdpSocket::bind((Ipv4Addr::from(Side::Sender.address(PROBE)), PORT))?;
            socket.connect((address, PORT))?;
            Ok(socket)
        })?;
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        let taken = Arc::new(Mutex::new(Vec::new()));
        let samples = Arc::clone(&taken);
        let threads = [
            Worker::start(move |ending| ask(&near, ending, &samples)),
            Worker::start(move |ending| echo(&far, ending)),
        ];
        Ok(Self {
            taken,
            _threads: threads,
        })
    }

    /// The samples since this was asked last. One that did not come back in time counts as
    /// that time.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.taken.lock().expect("no thread panics with it"))
    }
}

fn ask(socket: &UdpSocket, ending: &Ending, samples: &Mutex<Vec<u64>>) {
    hurry();
    let begun = Instant::now();
    let mut buffer = [0; 64];
    for number in 0_u64.. {
        if ending.is_near() {
            return;
        }
        let sent = Instant::now();
        let _ = socket.send(&number.to_ne_bytes());
        let answered = std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|_| buffer))
            .any(|answer| answer[..8] == number.to_ne_bytes());
        let took = if answered { sent.elapsed() } else { PATIENCE };
        let mut samples = samples.lock().expect("no thread panics with it");
        samples.push(took.as_micros() as u64);
        drop(samples);
        let due = PROBE_EVERY * (begun.elapsed().as_micros() / PROBE_EVERY.as_micros() + 1) as u32;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
}

fn echo(socket: &UdpSocket, ending: &Ending) {
    hurry();
    let mut buffer = [0; 64];
    while !ending.is_near() {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// The calling thread goes before what else the machine does: what it measures is the network's
/// delay, not the wait for a CPU.
#[allow(unsafe_code)]
pub fn hurry() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: of the calling thread; the structure outlives the call. A refusal only makes it less
    // exact.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}
