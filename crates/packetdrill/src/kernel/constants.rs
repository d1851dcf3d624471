//! Numbers of Linux behind the names in scripts.

/// The number of a name; `None`: no script that was met has it.
pub fn number(name: &str) -> Option<i64> {
    let known = TABLES.iter().flat_map(|table| table.iter());
    let mut found = known.filter(|(known, _)| *known == name);
    found.next().map(|(_, number)| *number)
}

/// The name of an error as scripts have it.
pub fn error(number: i32) -> &'static str {
    let known = ERRORS.iter().find(|(_, known)| *known == number);
    known.map_or("EUNKNOWN", |(name, _)| name)
}

/// The number of an error's name.
pub fn errno(name: &str) -> Option<i64> {
    let known = ERRORS.iter().find(|(known, _)| *known == name);
    known.map(|(_, number)| (*number).into())
}

macro_rules! numbers {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as i64)),*] };
}

type Table = &'static [(&'static str, i64)];

const TABLES: [Table; 6] = [SOCKETS, LEVELS, OPTIONS, MESSAGES, EVENTS, OTHERS];

const SOCKETS: Table = numbers! {
    AF_INET AF_INET6 AF_UNSPEC SOCK_STREAM SOCK_NONBLOCK SOCK_CLOEXEC IPPROTO_TCP IPPROTO_IP
    SHUT_RD SHUT_WR SHUT_RDWR
};

const LEVELS: Table = numbers! { SOL_SOCKET SOL_TCP SOL_IP SOL_IPV6 IPPROTO_IPV6 };

const OPTIONS: Table = numbers! {
    SO_REUSEADDR SO_REUSEPORT SO_SNDBUF SO_RCVBUF SO_KEEPALIVE SO_LINGER SO_ERROR SO_ZEROCOPY
    SO_TIMESTAMPING SO_PRIORITY SO_MARK SO_BUSY_POLL SO_INCOMING_CPU SO_BINDTODEVICE SO_BROADCAST
    SO_DEBUG TCP_NODELAY TCP_CORK TCP_MAXSEG TCP_USER_TIMEOUT TCP_FASTOPEN TCP_FASTOPEN_CONNECT
    TCP_FASTOPEN_KEY TCP_FASTOPEN_NO_COOKIE TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT
    TCP_CONGESTION TCP_NOTSENT_LOWAT TCP_INQ TCP_QUICKACK TCP_DEFER_ACCEPT TCP_LINGER2
    TCP_WINDOW_CLAMP IP_TTL IP_TOS IP_FREEBIND IP_BIND_ADDRESS_NO_PORT IP_MTU_DISCOVER IP_RECVERR
    IPV6_UNICAST_HOPS IPV6_TCLASS IPV6_RECVERR IPV6_MTU_DISCOVER IP_PMTUDISC_DONT
    IP_PMTUDISC_WANT IP_PMTUDISC_DO IP_PMTUDISC_PROBE
    SOF_TIMESTAMPING_TX_SOFTWARE SOF_TIMESTAMPING_SOFTWARE SOF_TIMESTAMPING_OPT_ID
    SOF_TIMESTAMPING_TX_SCHED SOF_TIMESTAMPING_TX_ACK SOF_TIMESTAMPING_OPT_TSONLY
    SOF_TIMESTAMPING_OPT_CMSG
};

const MESSAGES: Table = numbers! {
    MSG_DONTWAIT MSG_NOSIGNAL MSG_MORE MSG_EOR MSG_OOB MSG_ZEROCOPY MSG_FASTOPEN MSG_ERRQUEUE
    MSG_PEEK MSG_TRUNC MSG_WAITALL
};

const EVENTS: Table = numbers! {
    POLLIN POLLOUT POLLERR POLLHUP POLLRDHUP POLLPRI EPOLLIN EPOLLOUT EPOLLERR EPOLLHUP EPOLLRDHUP
    EPOLLPRI EPOLLET EPOLLONESHOT EPOLLEXCLUSIVE EPOLL_CTL_ADD EPOLL_CTL_MOD EPOLL_CTL_DEL
};

/// Those that have no name in the library.
const OTHERS: Table = &[
    ("IP_LOCAL_PORT_RANGE", 51),
    ("SIOCINQ", 0x541b),
    ("FIONREAD", 0x541b),
    ("SIOCOUTQ", 0x5411),
    ("SIOCOUTQNSD", 0x894b),
    ("F_GETFL", libc::F_GETFL as i64),
    ("F_SETFL", libc::F_SETFL as i64),
    ("O_RDWR", libc::O_RDWR as i64),
    ("O_RDONLY", libc::O_RDONLY as i64),
    ("O_NONBLOCK", libc::O_NONBLOCK as i64),
];

macro_rules! errors {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

const ERRORS: &[(&str, i32)] = errors! {
    EAGAIN EALREADY EINPROGRESS EISCONN ENOTCONN ECONNREFUSED ECONNRESET ECONNABORTED ETIMEDOUT
    EPIPE EINVAL EBADF EFAULT EINTR EMFILE ENOMEM ENOBUFS EMSGSIZE EOPNOTSUPP ENOPROTOOPT EPROTO
    EHOSTUNREACH ENETUNREACH EHOSTDOWN ENONET EADDRINUSE EADDRNOTAVAIL EDESTADDRREQ EACCES EPERM
    ENOTSOCK EEXIST ENOENT EAFNOSUPPORT EPROTONOSUPPORT EIO EDOM ERANGE
};
