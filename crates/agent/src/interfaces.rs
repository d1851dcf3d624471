//! A network namespace's interfaces: a listing, and news of those that come and go.

mod rtnetlink;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use anyhow::{Context, Result, anyhow, bail};
use glob::Pattern;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    route::{RouteAddress, RouteAttribute, RouteMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use rtnetlink::{inner, messages};

/// How often a listing that was interrupted by a change is asked for again.
const DUMPS_MAX: u32 = 10;

/// In the flags of an answer: what is listed has changed meanwhile.
const NLM_F_DUMP_INTR: u16 = 0x10;

/// RTNLGRP_LINK as a bit of the group mask.
const GROUP_LINK: u32 = 1;

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Interface {
    /// Number, unique within its namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// `veth`, `bridge`, `tun`, …; empty for plain adapters.
    pub kind: String,
    /// Largest network-layer packet in bytes.
    pub mtu_bytes: u32,
    /// Root queueing discipline.
    pub qdisc: String,
    /// Index of the bridge, bond or VRF that it belongs to.
    pub controller: Option<u32>,
    /// The operator's name for it (`ip link set … alias`).
    pub alias: Option<String>,
    /// Id of the network namespace of a veth's other end, as seen from here; `None` = this one, or
    /// no veth.
    pub netns_id: Option<i32>,
    /// Index of a veth's other end in its namespace.
    pub other_end: Option<u32>,
    /// It is switched on.
    pub up: bool,
}

/// Kinds that carry other interfaces' packets: enforcing there would meet a flow twice, or
/// several tenants' flows with overlapping addresses.
const TRANSIT_KINDS: [&str; 14] = [
    "bridge",
    "bond",
    "team",
    "vlan",
    "vxlan",
    "geneve",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "ipip",
    "sit",
    "wireguard",
    "openvswitch",
];

/// Kinds whose host side is a tenant's interface.
const TENANT_KINDS: [&str; 3] = ["veth", "tun", "netkit"];

impl Interface {
    /// One of which no more is known than its index: it has just vanished.
    pub(crate) fn nameless(index: u32) -> Self {
        Self {
            index,
            name: String::new(),
            kind: String::new(),
            mtu_bytes: 0,
            qdisc: String::new(),
            controller: None,
            alias: None,
            netns_id: None,
            other_end: None,
            up: false,
        }
    }

    /// A veth whose other end is in this namespace too: a cable between two of its bridges, or one
    /// whose other end is still to be given away.
    pub fn is_cable(&self) -> bool {
        self.kind == "veth" && self.other_end.is_some() && self.netns_id.is_none()
    }

    /// It carries other interfaces' packets rather than one tenant's.
    pub fn is_transit(&self) -> bool {
        TRANSIT_KINDS.contains(&self.kind.as_str())
    }

    /// Why this is probably no tenant's interface; `None` if it may well be one.
    pub fn doubt(&self) -> Option<String> {
        if self.is_transit() {
            return Some(format!(
                "a {} carries other interfaces' packets: attach to the tenants' interfaces instead, or a flow \
                 is met twice",
                self.kind
            ));
        }
        if self.name == "lo" {
            return Some("the loopback is no tenant's interface".into());
        }
        if self.is_cable() {
            return Some(
                "both ends of this veth are in this network namespace: a cable, or its tenant is still to come"
                    .into(),
            );
        }
        if !TENANT_KINDS.contains(&self.kind.as_str()) {
            return Some(
                "neither veth, TAP nor netkit: a plain adapter carries every tenant's packets; attach to the \
                 tenants' interfaces"
                    .into(),
            );
        }
        None
    }
}

/// A change of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is new, or something about it changed (a new name, for example).
    Present(Interface),
    /// It is gone.
    Gone {
        /// Index that it had.
        index: u32,
    },
}

/// Which interfaces are tenants': any of a list of shell patterns (`veth*`, `tap-?`).
#[derive(Clone, Debug)]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Compiles patterns.
    ///
    /// # Errors
    /// Names the pattern that is none.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self> {
        patterns
            .iter()
            .map(|text| {
                let text = text.as_ref();
                Pattern::new(text).map_err(|error| anyhow!("interface pattern `{text}`: {error}"))
            })
            .collect::<Result<_>>()
            .map(Self)
    }

    /// True if any pattern covers `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }

    /// True if any pattern is `name` itself: the operator meant this interface.
    pub fn names(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.as_str() == name)
    }
}

/// All interfaces of the calling thread's network namespace.
///
/// # Errors
/// The kernel does not answer.
pub fn list() -> Result<Vec<Interface>> {
    let answers = dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
        .context("listing network interfaces")?;
    Ok(answers
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => interface(link),
            _ => None,
        })
        .collect())
}

/// Names of the interfaces of the calling thread's network namespace, by index.
///
/// # Errors
/// As [`list`].
pub fn names() -> Result<BTreeMap<u32, String>> {
    let names = list()?
        .into_iter()
        .map(|interface| (interface.index, interface.name));
    Ok(names.collect())
}

/// The interface called `name` in the calling thread's network namespace.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<Interface> {
    list()?
        .into_iter()
        .find(|interface| interface.name == name)
        .with_context(|| format!("there is no interface {name} in this network namespace"))
}

/// Addresses for documentation (RFC 5737, RFC 3849), to which only default routes lead.
const NOWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Interfaces through which default routes leave: towards the network, not towards a tenant.
///
/// # Errors
/// The kernel cannot be asked.
pub fn uplinks() -> Result<BTreeSet<u32>> {
    let ways: Result<Vec<Option<u32>>> = NOWHERE.into_iter().map(way_to).collect();
    let ways = ways.context("looking for default routes")?;
    Ok(ways.into_iter().flatten().collect())
}

/// The interface through which packets to `address` leave; `None` = unreachable.
fn way_to(address: IpAddr) -> Result<Option<u32>> {
    let mut route = RouteMessage::default();
    let (family, destination) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, RouteAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, RouteAddress::Inet6(address)),
    };
    route.header.address_family = family;
    route.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    route
        .attributes
        .push(RouteAttribute::Destination(destination));
    let answer = match ask(RouteNetlinkMessage::GetRoute(route)) {
        Ok(RouteNetlinkMessage::NewRoute(answer)) => answer,
        Ok(_) => bail!("the kernel answered something else"),
        Err(error) if says_unreachable(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut attributes = answer.attributes.iter();
    Ok(attributes.find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    }))
}

/// Whether the kernel has answered that there is no way: each type of route without one has an
/// error of its own, and so has a kernel without this family of addresses.
fn says_unreachable(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<Refusal>();
    let code = refusal.and_then(|Refusal(error)| error.raw_os_error());
    code.is_some_and(|code| code != libc::ENOMEM && code != libc::ENOBUFS)
}

/// The kernel's answer to a request is an error.
#[derive(Debug)]
struct Refusal(io::Error);

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl std::error::Error for Refusal {}

/// Sends one request.
fn send(request: RouteNetlinkMessage, flags: u16) -> Result<Socket> {
    let socket = socket(0)?;
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
    packet.header.flags = flags;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    Ok(socket)
}

/// Asks the kernel one question with one answer.
///
/// # Errors
/// The kernel refuses or does not answer, or its answer does not parse.
pub(crate) fn ask(request: RouteNetlinkMessage) -> Result<RouteNetlinkMessage> {
    let socket = send(request, NLM_F_REQUEST)?;
    let (datagram, _) = socket.recv_from_full()?;
    for message in messages(&datagram) {
        match message.map_err(|error| anyhow!("{error}"))?.payload {
            NetlinkPayload::InnerMessage(message) => return Ok(message),
            NetlinkPayload::Error(error) => return Err(Refusal(error.to_io()).into()),
            _ => {}
        }
    }
    bail!("the kernel answered something else")
}

/// Asks the kernel for everything of a kind.
///
/// # Errors
/// The kernel refuses or does not answer, an answer does not parse, or what is asked for changes
/// all the time: nothing says then what there is.
pub(crate) fn dump(request: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>> {
    for _ in 0..DUMPS_MAX {
        if let Some(answers) = dump_once(request.clone())? {
            return Ok(answers);
        }
    }
    bail!("it changes while the kernel lists it")
}

/// `None`: something has changed meanwhile, so that some of it may be missing.
fn dump_once(request: RouteNetlinkMessage) -> Result<Option<Vec<RouteNetlinkMessage>>> {
    let socket = send(request, NLM_F_DUMP | NLM_F_REQUEST)?;
    let (mut answers, mut is_whole) = (Vec::new(), true);
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        for message in messages(&datagram) {
            let message = message.map_err(|error| anyhow!("{error}"))?;
            is_whole &= message.header.flags & NLM_F_DUMP_INTR == 0;
            match message.payload {
                NetlinkPayload::InnerMessage(message) => answers.push(message),
                NetlinkPayload::Done(_) => return Ok(is_whole.then_some(answers)),
                NetlinkPayload::Error(error) => bail!("{}", error.to_io()),
                _ => {}
            }
        }
    }
}

/// News about the interfaces of the namespace in which it was made.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Listens from now on. List the interfaces afterwards and none is missed.
    ///
    /// # Errors
    /// No netlink socket can be had.
    pub fn new() -> Result<Self> {
        let socket = socket(GROUP_LINK).context("watching network interfaces")?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Events since the last call, oldest first; empty if there were none. `None`: news were lost
    /// or do not parse, list all interfaces again.
    ///
    /// # Errors
    /// The socket failed.
    pub fn poll(&self) -> Result<Option<Vec<Event>>> {
        let mut events = Vec::new();
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => {
                    for message in messages(&datagram) {
                        match inner(message) {
                            Ok(message) => events.extend(message.and_then(event)),
                            Err(error) => {
                                tracing::debug!("{error}");
                                return Ok(None);
                            }
                        }
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Ok(Some(events));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(None),
                Err(error) => return Err(error).context("watching network interfaces"),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket owns the descriptor and outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

fn socket(groups: u32) -> std::io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, groups))?;
    if groups == 0 {
        socket.connect(&SocketAddr::new(0, 0))?;
    }
    Ok(socket)
}

fn event(message: RouteNetlinkMessage) -> Option<Event> {
    match message {
        RouteNetlinkMessage::NewLink(link) => interface(link).map(Event::Present),
        // With AF_BRIDGE the same message says that a bridge lost a port, which still exists.
        RouteNetlinkMessage::DelLink(link)
            if link.header.interface_family == AddressFamily::Unspec =>
        {
            Some(Event::Gone {
                index: link.header.index,
            })
        }
        _ => None,
    }
}

fn interface(link: LinkMessage) -> Option<Interface> {
    if link.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let mut interface = Interface {
        up: link.header.flags.contains(LinkFlags::Up),
        ..Interface::nameless(link.header.index)
    };
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu_bytes = mtu,
            LinkAttribute::Qdisc(qdisc) => interface.qdisc = qdisc,
            LinkAttribute::Controller(index) => interface.controller = Some(index),
            LinkAttribute::IfAlias(alias) => interface.alias = Some(alias),
            LinkAttribute::Link(index) => interface.other_end = Some(index),
            LinkAttribute::LinkNetNsId(id) => interface.netns_id = Some(id),
            LinkAttribute::LinkInfo(infos) => interface.kind = kind(&infos),
            _ => {}
        }
    }
    (!interface.name.is_empty()).then_some(interface)
}

fn kind(infos: &[LinkInfo]) -> String {
    infos
        .iter()
        .find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind.to_string()),
            _ => None,
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_names_as_a_shell_would() {
        let patterns = Patterns::new(&["veth*", "tap-?"]).unwrap();
        assert!(patterns.matches("veth0") && patterns.matches("tap-a"));
        assert!(!patterns.matches("eth0") && !patterns.matches("tap-ab"));
    }

    #[test]
    fn only_a_pattern_without_wildcards_names_an_interface() {
        let patterns = Patterns::new(&["veth*", "br0"]).unwrap();
        assert!(patterns.names("br0") && !patterns.names("veth0"));
    }

    fn on(name: &str, kind: &str) -> Interface {
        Interface {
            name: name.into(),
            kind: kind.into(),
            ..Interface::nameless(7)
        }
    }

    #[test]
    fn a_tenants_interface_is_beyond_doubt() {
        assert_eq!(on("veth0", "veth").doubt(), None);
        assert_eq!(on("tap0", "tun").doubt(), None);
    }

    #[test]
    fn transit_and_plain_interfaces_are_doubted() {
        assert!(on("br0", "bridge").doubt().unwrap().contains("met twice"));
        assert!(on("eth0", "").doubt().unwrap().contains("plain adapter"));
        assert!(on("lo", "").doubt().unwrap().contains("loopback"));
    }

    #[test]
    fn a_veth_that_ends_where_it_begins_is_doubted() {
        let mut veth = on("veth0", "veth");
        veth.other_end = Some(8);
        assert!(veth.doubt().unwrap().contains("a cable"));
        veth.netns_id = Some(0);
        assert_eq!(veth.doubt(), None);
    }

    #[test]
    fn only_the_kernel_says_that_there_is_no_way() {
        let answered = |code| Refusal(io::Error::from_raw_os_error(code)).into();
        for code in [libc::ENETUNREACH, libc::EACCES, libc::EOPNOTSUPP] {
            assert!(says_unreachable(&answered(code)), "{code}");
        }
        assert!(!says_unreachable(&answered(libc::ENOBUFS)));
        let not_asked = io::Error::from_raw_os_error(libc::EMFILE);
        assert!(!says_unreachable(&not_asked.into()));
        assert!(uplinks().is_ok());
    }

    #[test]
    fn what_is_no_pattern_is_named() {
        let error = Patterns::new(&["veth["]).unwrap_err().to_string();
        assert!(error.contains("veth["), "{error}");
    }

    #[test]
    fn every_namespace_has_a_loopback() {
        let lo = find("lo").unwrap();
        assert!(lo.index > 0 && lo.mtu_bytes > 0);
        assert!(find("no-such-interface").is_err());
    }
}
