//! Calls of a script on this kernel. A thread of its own makes them, so that one that waits holds
//! nothing up.

use std::{
    collections::BTreeMap,
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::{
    constants::{errno, error, number},
    device::Addresses,
    sys::{self, Address, Buffer, Called},
};
use crate::{
    calls::{names, vector},
    model::{Call, Expr},
};

/// The port of sockets of this host, and of peers to which it connects.
pub const PORT: u16 = 8_080;
/// How long a call may take that a script wants to return at once.
const AT_ONCE: Duration = Duration::from_millis(300);
/// How long a thread may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
const CONTROL_BYTES: usize = 1 << 12;

/// What a call returned.
#[derive(Clone, Debug, Default)]
pub struct Returned {
    /// As a script writes it.
    pub answer: String,
    /// What it gave back is not what the script has.
    pub wrong: Option<String>,
    /// How long it took, in ns.
    pub took_ns: u64,
}

/// The outcome of a call; an error says what of it cannot be made here.
type Outcome = Result<Returned, String>;

/// Descriptors by the numbers that a script gives them.
#[derive(Default)]
pub struct Table {
    open: BTreeMap<i64, Arc<OwnedFd>>,
    /// Sockets that listen, and whether a SYN has come to them.
    pub listeners: BTreeMap<i64, bool>,
    /// The socket of the last connection.
    pub latest: Option<Arc<OwnedFd>>,
    /// Memory that the kernel may read after a call has returned.
    lent: Vec<Vec<Buffer>>,
}

/// The thread that makes calls.
pub struct Caller {
    table: Arc<Mutex<Table>>,
    jobs: Option<Sender<Call>>,
    done: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
    waits: bool,
}

impl Caller {
    /// `algorithm`: congestion control of all sockets.
    pub fn new(addresses: Addresses, algorithm: &'static str) -> Self {
        let table = Arc::<Mutex<Table>>::default();
        let (jobs, todo) = channel::<Call>();
        let (tell, done) = channel();
        let shared = Arc::clone(&table);
        let thread = std::thread::spawn(move || {
            sys::hurry();
            while let Ok(call) = todo.recv() {
                let begun_ns = sys::now_ns();
                let mut outcome = Maker {
                    table: &shared,
                    addresses,
                    algorithm,
                    call: &call,
                }
                .make();
                if let Ok(returned) = &mut outcome {
                    returned.took_ns = sys::now_ns().saturating_sub(begun_ns);
                }
                if tell.send(outcome).is_err() {
                    return;
                }
            }
        });
        Self {
            table,
            jobs: Some(jobs),
            done,
            thread: Some(thread),
            waits: false,
        }
    }

    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call has not returned.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Begins a call. One that may wait is left to [`Caller::finish`]; `None`: it has not returned.
    pub fn begin(&mut self, call: &Call, may_wait: bool) -> Option<Outcome> {
        let sent = self
            .jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(call.clone()).is_ok());
        if !sent {
            return Some(Err("the thread of calls has ended".to_owned()));
        }
        self.waits = true;
        let patience = if may_wait { Duration::ZERO } else { AT_ONCE };
        self.finish(patience)
    }

    /// The outcome of the call that waits, if it comes in time.
    pub fn finish(&mut self, within: Duration) -> Option<Outcome> {
        if !self.waits {
            return None;
        }
        match self.done.recv_timeout(within) {
            Ok(outcome) => {
                self.waits = false;
                Some(outcome)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.waits = false;
                Some(Err("the thread of calls has ended".to_owned()))
            }
        }
    }
}

impl Drop for Caller {
    /// Whatever waits is woken.
    fn drop(&mut self) {
        self.jobs = None;
        for socket in self.table().open.values() {
            let _ = sys::shutdown(socket.as_fd(), libc::SHUT_RDWR);
        }
        if self.waits && self.finish(PATIENCE).is_none() {
            return; // it ends with the process
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut table = self.table();
        table.open.clear();
        table.latest = None;
    }
}

/// Makes one call.
struct Maker<'a> {
    table: &'a Mutex<Table>,
    addresses: Addresses,
    algorithm: &'static str,
    call: &'a Call,
}

impl Maker<'_> {
    fn make(&self) -> Outcome {
        match self.call.name.as_str() {
            "poll" => self.poll(),
            "epoll_wait" => self.epoll_wait(),
            "getsockopt" => self.get_option(),
            "ioctl" => self.ioctl(),
            _ => Ok(self.told(self.number()?)),
        }
    }

    /// Calls that return a number and give nothing back that a script looks at.
    fn number(&self) -> Result<Called, String> {
        let call = self.call;
        match call.name.as_str() {
            "socket" => return self.socket(),
            "open" => return self.open(),
            "pipe" => return self.pipe(),
            "epoll_create" | "epoll_create1" => return Ok(self.install(sys::epoll())),
            "close" => return Ok(self.close()),
            _ => (),
        }
        let Some(fd) = self.descriptor(0) else {
            return Ok(Err(libc::EBADF));
        };
        let fd = fd.as_fd();
        Ok(match call.name.as_str() {
            "bind" => sys::bind(fd, &self.address(1, self.addresses.local)?),
            "listen" => self.listen(fd)?,
            "accept" | "accept4" => return self.accept(fd),
            "connect" => self.connect(fd)?,
            "read" => sys::receive(fd, &mut self.buffer(2)?, None),
            "recv" | "recvfrom" => sys::receive(fd, &mut self.buffer(2)?, Some(self.flags(3)?)),
            "write" => sys::send(fd, &mut self.buffer(2)?, None, None),
            "send" | "sendto" => self.send(fd)?,
            "readv" | "writev" => {
                let mut buffers = self.vector(call.arguments.get(1))?;
                sys::vectored(fd, &mut buffers, call.name == "writev")
            }
            "recvmsg" | "sendmsg" => self.message(fd)?,
            "sendfile" => self.send_file(fd)?,
            "splice" => self.splice(fd)?,
            "shutdown" => sys::shutdown(fd, self.flags(1)?),
            "fcntl" => sys::fcntl(fd, self.flags(1)?, self.flags(2).unwrap_or(0)),
            "setsockopt" => self.set_option(fd)?,
            "epoll_ctl" => self.epoll_control(fd)?,
            name => return Err(format!("system call {name}")),
        })
    }

    fn told(&self, called: Called) -> Returned {
        let answer = match (called, &self.call.result) {
            (Ok(_), Expr::Ellipsis) => "...".to_owned(),
            (Ok(value), _) => value.to_string(),
            (Err(number), _) => format!("-1 {}", error(number)),
        };
        Returned {
            answer,
            ..Returned::default()
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn descriptor(&self, index: usize) -> Option<Arc<OwnedFd>> {
        let number = self.call.integer(index)?;
        self.table().open.get(&number).cloned()
    }

    /// A new descriptor, under the number that the script gives it.
    fn install(&self, made: Result<OwnedFd, i32>) -> Called {
        let fd = Arc::new(made?);
        let mut table = self.table();
        let number = match self.call.result {
            Expr::Integer(number) if number >= 0 => number,
            _ => table.open.keys().last().map_or(3, |last| last + 1),
        };
        table.listeners.remove(&number);
        table.open.insert(number, fd);
        Ok(number)
    }

    fn close(&self) -> Called {
        let mut table = self.table();
        let number = self.call.integer(0).unwrap_or(-1);
        table.listeners.remove(&number);
        let closed = table.open.remove(&number).ok_or(libc::EBADF)?;
        if table
            .latest
            .as_ref()
            .is_some_and(|latest| Arc::ptr_eq(latest, &closed))
        {
            table.latest = None;
        }
        Ok(0)
    }

    fn socket(&self) -> Result<Called, String> {
        let v6 = self.addresses.local.is_ipv6();
        let family = match self.call.arguments.first() {
            Some(Expr::Ellipsis) if v6 => libc::AF_INET6,
            Some(Expr::Ellipsis) => libc::AF_INET,
            _ => self.flags(0)?,
        };
        let kind = self.flags(1)? | libc::SOCK_CLOEXEC;
        let made = sys::socket(family, kind, self.flags(2)?);
        if let Ok(socket) = &made {
            self.choose_congestion_control(socket.as_fd())?;
        }
        Ok(self.install(made))
    }

    /// For each socket, because a namespace has only those that the machine allows to all.
    fn choose_congestion_control(&self, socket: BorrowedFd<'_>) -> Result<(), String> {
        let name = self.algorithm;
        let (level, option) = (libc::SOL_TCP, libc::TCP_CONGESTION);
        let done = sys::set_option(socket, level, option, name.as_bytes(), name.len() as u32);
        done.map(drop)
            .map_err(|_| format!("the congestion control {name}"))
    }

    fn open(&self) -> Result<Called, String> {
        let Some(Expr::Text(path)) = self.call.arguments.first() else {
            return Err("open without a path".to_owned());
        };
        if self.flags(1)? != libc::O_RDONLY {
            return Err("a file to write to".to_owned());
        }
        let opened = File::open(path).map(OwnedFd::from);
        Ok(self.install(opened.map_err(|error| error.raw_os_error().unwrap_or(0))))
    }

    fn pipe(&self) -> Result<Called, String> {
        let Some(Expr::List(list)) = self.call.arguments.first() else {
            return Err("a pipe without numbers".to_owned());
        };
        let ends = match sys::pipe() {
            Ok(ends) => ends,
            Err(number) => return Ok(Err(number)),
        };
        for (number, end) in list.iter().zip(ends) {
            let Expr::Integer(number) = number else {
                return Err("a pipe without numbers".to_owned());
            };
            self.table().open.insert(*number, Arc::new(end));
        }
        Ok(Ok(0))
    }

    fn listen(&self, fd: BorrowedFd<'_>) -> Result<Called, String> {
        let called = sys::listen(fd, self.flags(1)?);
        if let (Ok(_), Some(number)) = (called, self.call.integer(0)) {
            self.table().listeners.insert(number, false);
        }
        Ok(called)
    }

    fn accept(&self, fd: BorrowedFd<'_>) -> Result<Called, String> {
        let flags = match self.call.name.as_str() {
            "accept4" => self.flags(3)?,
            _ => 0,
        };
        let called = self.install(sys::accept(fd, flags | libc::SOCK_CLOEXEC));
        if let Ok(number) = called {
            let mut table = self.table();
            table.latest = table.open.get(&number).cloned();
        }
        Ok(called)
    }

    /// The socket of the call is the one that connects.
    fn becomes_latest(&self) {
        let mut table = self.table();
        let number = self.call.integer(0).unwrap_or(-1);
        table.latest = table.open.get(&number).cloned();
    }

    fn connect(&self, fd: BorrowedFd<'_>) -> Result<Called, String> {
        self.becomes_latest();
        Ok(sys::connect(fd, &self.address(1, self.addresses.remote)?))
    }

    fn send(&self, fd: BorrowedFd<'_>) -> Result<Called, String> {
        let flags = self.flags(3)?;
        let to = match self.call.arguments.get(4) {
            None => None,
            Some(_) if self.call.words(4).contains(&"NULL") => None,
            Some(_) if flags & libc::MSG_FASTOPEN == 0 => None,
            Some(_) => Some(self.address(4, self.addresses.remote)?),
        };
        if to.is_some() {
            self.becomes_latest();
        }
        let mut buffer = self.buffer(2)?;
        let called = sys::send(fd, &mut buffer, Some(flags), to.as_ref());
        self.lend(flags, vec![buffer]);
        Ok(called)
    }

    /// Memory of a call without a copy stays.
    fn lend(&self, flags: i32, buffers: Vec<Buffer>) {
        if flags & libc::MSG_ZEROCOPY != 0 {
            self.table().lent.push(buffers);
        }
    }

    fn message(&self, fd: BorrowedFd<'_>) -> Result<Called, String> {
        let message = self.call.arguments.get(1);
        let field = |name| message.and_then(|message| message.field(name));
        let mut buffers = match field("msg_iov") {
            Some(vector) => self.vector(Some(vector))?,
            None => Vec::new(),
        };
        let sends = self.call.name == "sendmsg";
        let flags = self.flags(2)?;
        if sends && field("msg_control").is_some() {
            return Err("control messages that are sent".to_owned());
        }
        let mut control = vec![0; if sends { 0 } else { CONTROL_BYTES }];
        let fast = sends && flags & libc::MSG_FASTOPEN != 0;
        let to = fast.then(|| Address::new(self.addresses.remote, PORT));
        if fast {
            self.becomes_latest();
        }
        let called = sys::message(fd, &mut buffers, &mut control, flags, sends, to.as_ref());
        self.lend(flags, buffers);
        Ok(called)
    }

    fn send_file(&self, fd: BorrowedFd<'_>) -> Result<Called, String> {
        let Some(file) = self.descriptor(1) else {
            return Ok(Err(libc::EBADF));
        };
        let offset = match self.call.arguments.get(2) {
            Some(Expr::List(list)) => match list.first() {
                Some(Expr::Integer(offset)) => Some(*offset),
                _ => None,
            },
            _ => None,
        };
        Ok(sys::send_file(fd, file.as_fd(), offset, self.length(3)?))
    }

    /// `splice(4, NULL, 6, NULL, 99, 0)`
    fn splice(&self, fd: BorrowedFd<'_>) -> Result<Called, String> {
        let Some(to) = self.descriptor(2) else {
            return Ok(Err(libc::EBADF));
        };
        let flags = u32::try_from(self.flags(5)?).unwrap_or(0);
        Ok(sys::splice(fd, to.as_fd(), self.length(4)?, flags))
    }

    fn set_option(&self, fd: BorrowedFd<'_>) -> Result<Called, String> {
        let (level, name) = (self.flags(1)?, self.flags(2)?);
        let value = self.option_value()?;
        let len = match self.call.integer(4) {
            Some(len) if len <= value.len() as i64 => len as u32,
            _ => value.len() as u32,
        };
        Ok(sys::set_option(fd, level, name, &value, len))
    }

    fn option_value(&self) -> Result<Vec<u8>, String> {
        let value = self.call.arguments.get(3);
        let value = match value {
            Some(Expr::List(list)) if list.len() == 1 => list.first(),
            value => value,
        };
        Ok(match value {
            Some(Expr::Text(text)) => bytes(text),
            Some(Expr::Struct(_)) if self.call.words(2).contains(&"SO_LINGER") => {
                let field = |name| match value.and_then(|value| value.field(name)) {
                    Some(Expr::Integer(value)) => *value as i32,
                    _ => 0,
                };
                [field("onoff"), field("linger")]
                    .map(i32::to_ne_bytes)
                    .concat()
            }
            Some(Expr::List(list)) => {
                let numbers = list.iter().map(value_of).collect::<Result<Vec<_>, _>>()?;
                numbers
                    .iter()
                    .flat_map(|number| (*number as i32).to_ne_bytes())
                    .collect()
            }
            Some(one) => (value_of(one)? as i32).to_ne_bytes().to_vec(),
            None => return Err("a socket option without a value".to_owned()),
        })
    }

    fn get_option(&self) -> Outcome {
        let Some(fd) = self.descriptor(0) else {
            return Ok(self.told(Err(libc::EBADF)));
        };
        let mut value = [0; 4];
        let called = sys::get_option(fd.as_fd(), self.flags(1)?, self.flags(2)?, &mut value);
        let mut returned = self.told(called.map(|_| 0));
        if called.is_ok() {
            returned.wrong = self.differs(3, i32::from_ne_bytes(value).into())?;
        }
        Ok(returned)
    }

    fn ioctl(&self) -> Outcome {
        let Some(fd) = self.descriptor(0) else {
            return Ok(self.told(Err(libc::EBADF)));
        };
        let request = u64::try_from(self.flags(1)?).unwrap_or(0);
        let called = sys::ioctl(fd.as_fd(), request);
        let mut returned = self.told(called.map(|_| 0));
        if let Ok(value) = called {
            returned.wrong = self.differs(2, value)?;
        }
        Ok(returned)
    }

    /// A number that a call gives back, `[n]` in the script.
    fn differs(&self, index: usize, got: i64) -> Result<Option<String>, String> {
        let wanted = match self.call.arguments.get(index) {
            Some(Expr::List(list)) => list.first(),
            one => one,
        };
        let fits = match wanted {
            Some(Expr::Ellipsis) => true,
            Some(Expr::Word(name)) => errno(name).or_else(|| number(name)) == Some(got),
            // Numbers of 32 bits, with a sign or without.
            Some(one) => value_of(one)? as i32 == got as i32,
            None => return Err("a value of this form".to_owned()),
        };
        let name = &self.call.name;
        Ok((!fits).then(|| format!("expected {name} to give {wanted:?}; got {got}")))
    }

    fn poll(&self) -> Outcome {
        let Some(Expr::List(list)) = self.call.arguments.first() else {
            return Err("poll without a list".to_owned());
        };
        let (mut open, mut wanted) = (Vec::new(), Vec::new());
        for entry in list {
            let number = match entry.field("fd") {
                Some(Expr::Integer(number)) => *number,
                _ => return Err("poll without numbers".to_owned()),
            };
            let Some(fd) = self.table().open.get(&number).cloned() else {
                return Err("poll of nothing".to_owned());
            };
            let mask = |name: &str| entry.field(name).map_or(Ok(0), value_of);
            wanted.push((mask("events")?, mask("revents")?));
            open.push(fd);
        }
        let asked = open.iter().zip(&wanted);
        let mut asked: Vec<_> = asked
            .map(|(fd, (events, _))| (fd.as_fd(), *events as i16, 0))
            .collect();
        let called = sys::poll(&mut asked, self.flags(2)?);
        let mut returned = self.told(called);
        let both = asked.iter().zip(&wanted);
        let mut differ = both.filter(|((.., got), (_, wanted))| i64::from(*got) != *wanted);
        if let (Ok(_), Some(((.., got), (_, wanted)))) = (called, differ.next()) {
            let (wanted, got) = (names(*wanted as u32), names(*got as u32));
            returned.wrong = Some(format!("expected events {wanted}; got {got}"));
        }
        Ok(returned)
    }

    fn epoll_control(&self, epoll: BorrowedFd<'_>) -> Result<Called, String> {
        let Some(fd) = self.descriptor(2) else {
            return Ok(Err(libc::EBADF));
        };
        let events = self
            .call
            .arguments
            .get(3)
            .and_then(|event| event.field("events"));
        let events = events.map_or(Ok(0), value_of)?;
        Ok(sys::epoll_control(
            epoll,
            self.flags(1)?,
            fd.as_fd(),
            events as u32,
        ))
    }

    fn epoll_wait(&self) -> Outcome {
        let Some(epoll) = self.descriptor(0) else {
            return Ok(self.told(Err(libc::EBADF)));
        };
        let called = sys::epoll_wait(epoll.as_fd(), self.flags(3)?);
        let mut returned = self.told(called.map(|(count, _)| count));
        let wanted = self
            .call
            .arguments
            .get(1)
            .and_then(|event| event.field("events"));
        let wanted = wanted.map_or(Ok(0), value_of)? as u32;
        if let Ok((1.., got)) = called {
            if got != wanted && self.call.result != Expr::Integer(0) {
                let (wanted, got) = (names(wanted), names(got));
                returned.wrong = Some(format!("expected events {wanted}; got {got}"));
            }
        }
        Ok(returned)
    }

    /// The address of an argument: `...` is the usual one.
    fn address(&self, index: usize, usual: std::net::IpAddr) -> Result<Address, String> {
        match self.call.arguments.get(index) {
            Some(Expr::Ellipsis) => Ok(Address::new(usual, PORT)),
            Some(_) if self.call.words(index) == ["AF_UNSPEC"] => Ok(Address::unspecified()),
            Some(one) => match one.field("sa_family").map(Expr::words).as_deref() {
                Some(["AF_UNSPEC"]) => Ok(Address::unspecified()),
                // There is one of this host, and one peer.
                Some(["AF_INET" | "AF_INET6"]) => Ok(Address::new(usual, PORT)),
                _ => Err("an address of its own".to_owned()),
            },
            None => Err("a call without an address".to_owned()),
        }
    }

    /// A number, or names of flags.
    fn flags(&self, index: usize) -> Result<i32, String> {
        match self.call.arguments.get(index) {
            Some(one) => value_of(one).map(|value| value as i32),
            None => Ok(0),
        }
    }

    fn length(&self, index: usize) -> Result<usize, String> {
        let length = self
            .call
            .integer(index)
            .and_then(|length| usize::try_from(length).ok());
        length.ok_or_else(|| "a call without a number of bytes".to_owned())
    }

    /// Memory of so many bytes as the argument says, `NULL` where the one before it does.
    fn buffer(&self, index: usize) -> Result<Buffer, String> {
        let null = self.call.words(index - 1).contains(&"NULL");
        Buffer::new(self.length(index)? as u64, null).ok_or_else(|| "that many bytes".to_owned())
    }

    fn vector(&self, value: Option<&Expr>) -> Result<Vec<Buffer>, String> {
        let Some(Expr::List(list)) = value else {
            return Err("no list of buffers".to_owned());
        };
        let lengths = vector(list).ok_or("buffers without lengths")?;
        let buffers = lengths.into_iter().map(|len| Buffer::new(len, false));
        buffers
            .collect::<Option<_>>()
            .ok_or_else(|| "that many bytes".to_owned())
    }
}

/// A number, a name, or names of flags.
fn value_of(value: &Expr) -> Result<i64, String> {
    match value {
        Expr::Integer(value) => Ok(*value),
        Expr::Word(name) => number(name).ok_or_else(|| format!("the name {name}")),
        Expr::Or(parts) => {
            let values = parts.iter().map(value_of).collect::<Result<Vec<_>, _>>()?;
            Ok(values.into_iter().fold(0, |all, value| all | value))
        }
        Expr::List(list) if list.len() == 1 => value_of(&list[0]),
        _ => Err("an argument of this form".to_owned()),
    }
}

/// The bytes of a string, `\x41` for one of them.
fn bytes(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or("").as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(2));
        bytes.extend(u8::from_str_radix(digits, 16));
        bytes.extend(rest.as_bytes());
    }
    bytes
}
