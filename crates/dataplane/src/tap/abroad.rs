//! Counters of an interface in another network namespace, by rtnetlink in this one: that takes
//! CAP_NET_ADMIN over the other one, where entering it takes CAP_SYS_ADMIN as well.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkMessage},
    nsid::{NsidAttribute, NsidMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// What a namespace has that has no number here, and what asks the kernel to choose one.
const NO_NUMBER: i32 = -1;

/// Frames that an interface has dropped by its own count: on their way in, and on their way out.
///
/// The namespace gets a number in this one, if it has none (`ip netns list-id` shows it).
///
/// # Errors
/// The kernel refuses, or there is no such interface.
pub fn dropped(space: BorrowedFd<'_>, name: &str) -> io::Result<(u64, u64)> {
    let number = match number(space)? {
        NO_NUMBER => {
            let wanted = RouteNetlinkMessage::NewNsId(about(space, true));
            ask(wanted, NLM_F_REQUEST | NLM_F_ACK)?;
            number(space)?
        }
        known => known,
    };
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfNetnsId(number),
        LinkAttribute::IfName(name.to_owned()),
    ];
    let answer = ask(RouteNetlinkMessage::GetLink(link), NLM_F_REQUEST)?;
    let Some(RouteNetlinkMessage::NewLink(link)) = answer else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let counters = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Stats64(all) => Some((all.rx_dropped, all.tx_dropped)),
            _ => None,
        });
    counters.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn about(space: BorrowedFd<'_>, gets_number: bool) -> NsidMessage {
    let mut message = NsidMessage::default();
    let descriptor = space.as_raw_fd().unsigned_abs();
    message.attributes.push(NsidAttribute::Fd(descriptor));
    if gets_number {
        message.attributes.push(NsidAttribute::Id(NO_NUMBER));
    }
    message
}

/// The number of a namespace in this one.
fn number(space: BorrowedFd<'_>) -> io::Result<i32> {
    let asked = RouteNetlinkMessage::GetNsId(about(space, false));
    let Some(RouteNetlinkMessage::NewNsId(answer)) = ask(asked, NLM_F_REQUEST)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let number = answer
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NsidAttribute::Id(number) => Some(*number),
            _ => None,
        });
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Asks the kernel one question; `None`: it has done what was asked for.
fn ask(question: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(question));
    packet.header.flags = flags;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (datagram, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::deserialize(&datagram).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::InnerMessage(answer) => Ok(Some(answer)),
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Ok(None),
    }
}
