//! What an adapter has of Data Center Bridging, asked and set by rtnetlink (linux/dcbnl.h): PFC
//! (IEEE 802.1Qbb), ETS and DCBX (IEEE 802.1Qaz).
//!
//! Where the kernel's driver of an adapter has it, the adapter itself sends and obeys pauses. No
//! virtual interface has it.

mod message;
mod words;

use std::io;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde::Serialize;

use crate::message::Message;

pub use crate::words::in_words;

/// Priorities, and traffic classes.
pub const TCS: usize = 8;

/// `EOPNOTSUPP` of errno.h: the driver has no DCB.
const NOT_SUPPORTED: i32 = 95;

/// What an adapter has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dcb {
    /// Priority flow control.
    pub pfc: Option<Pfc>,
    /// Enhanced transmission selection.
    pub ets: Option<Ets>,
    /// Who negotiates with the neighbour.
    pub dcbx: Option<Dcbx>,
}

/// Priority flow control of an adapter (`struct ieee_pfc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pfc {
    /// Traffic classes that can have it at the same time.
    pub capacity: u8,
    /// Bit p: it is on for priority p.
    pub enabled: u8,
    /// It works without MACsec only.
    pub mbc: bool,
    /// What cable and adapter take, bit times.
    pub delay: u16,
}

/// Enhanced transmission selection of an adapter (`struct ieee_ets`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ets {
    /// It takes the neighbour's configuration.
    pub willing: bool,
    /// Traffic classes.
    pub capacity: u8,
    /// By class, its share of what strict ones leave, percent.
    pub share_percent: [u8; TCS],
    /// By class, how it is selected: 0 strict, 1 credit-based, 2 by share.
    pub selection: [u8; TCS],
    /// By priority, its class.
    pub class_of: [u8; TCS],
}

/// Who negotiates with the neighbour (`DCB_CAP_DCBX_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Dcbx(pub u8);

impl Dcbx {
    /// The host does; else the adapter.
    pub fn is_of_host(self) -> bool {
        self.0 & 1 != 0
    }

    /// By IEEE 802.1Qaz.
    pub fn is_ieee(self) -> bool {
        self.0 & 8 != 0
    }
}

/// Why an adapter does not what is asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its driver has no DCB.
    #[error("interface {0} has no DCB: it neither sends nor obeys pauses of single priorities")]
    NoDcb(String),
    /// It has DCB without PFC.
    #[error("interface {0} has DCB, but no PFC")]
    NoPfc(String),
    /// It can do so for fewer classes.
    #[error(
        "interface {interface} has PFC for {capacity} traffic classes, and {wanted} are wanted"
    )]
    Capacity {
        /// The interface.
        interface: String,
        /// Traffic classes.
        capacity: u8,
        /// Priorities that were asked for.
        wanted: u32,
    },
    /// It says that it was done, and it was not.
    #[error(
        "interface {interface} has PFC on for priorities {on:#04x} of {wanted:#04x}, bit p each"
    )]
    Ignored {
        /// The interface.
        interface: String,
        /// Bit p: it is on for priority p.
        on: u8,
        /// Bit p: it was asked for.
        wanted: u8,
    },
    /// The kernel refuses, or does not answer.
    #[error("DCB of interface {interface}: {error}")]
    Refused {
        /// The interface.
        interface: String,
        /// Why.
        error: io::Error,
    },
}

/// What an interface has; `None` if its driver has no DCB.
///
/// # Errors
/// There is no such interface, or the kernel does not answer.
pub fn read(interface: &str) -> Result<Option<Dcb>, Error> {
    match ask(Message::get(interface)) {
        Ok(answer) => Ok(Some(answer.dcb())),
        Err(error) if error.raw_os_error() == Some(NOT_SUPPORTED) => Ok(None),
        Err(error) => Err(refused(interface, error)),
    }
}

/// Switches PFC on for these priorities (bit p), and off for others. Needs CAP_NET_ADMIN.
///
/// # Errors
/// The adapter has no PFC, or for fewer traffic classes, or does not do it.
pub fn set_pfc(interface: &str, priorities: u8) -> Result<Pfc, Error> {
    let before = pfc_of(interface)?;
    if u32::from(before.capacity) < priorities.count_ones() {
        return Err(Error::Capacity {
            interface: interface.to_owned(),
            capacity: before.capacity,
            wanted: priorities.count_ones(),
        });
    }
    if before.enabled == priorities {
        return Ok(before);
    }
    let wanted = Pfc {
        enabled: priorities,
        ..before
    };
    let answer = ask(Message::set_pfc(interface, &wanted));
    let answer = answer.map_err(|error| refused(interface, error))?;
    if answer.refusal() != 0 {
        let error = io::Error::from_raw_os_error(answer.refusal());
        return Err(refused(interface, error));
    }
    // A driver without this operation says nothing.
    let after = pfc_of(interface)?;
    match after.enabled == priorities {
        true => Ok(after),
        false => Err(Error::Ignored {
            interface: interface.to_owned(),
            on: after.enabled,
            wanted: priorities,
        }),
    }
}

fn pfc_of(interface: &str) -> Result<Pfc, Error> {
    let dcb = read(interface)?.ok_or_else(|| Error::NoDcb(interface.to_owned()))?;
    dcb.pfc.ok_or_else(|| Error::NoPfc(interface.to_owned()))
}

fn refused(interface: &str, error: io::Error) -> Error {
    Error::Refused {
        interface: interface.to_owned(),
        error,
    }
}

/// Asks the kernel one question with one answer.
fn ask(message: Message) -> io::Result<Message> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    packet.header.flags = NLM_F_REQUEST;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (datagram, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<Message>::deserialize(&datagram);
    match answer.map_err(io::Error::other)?.payload {
        NetlinkPayload::InnerMessage(answer) => Ok(answer),
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Err(io::Error::other("the kernel answered something else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_no_dcb_and_is_refused_by_name() {
        assert_eq!(read("lo").expect("an answer"), None);
        let error = set_pfc("lo", 1 << 3).expect_err("it has none");
        assert!(error.to_string().starts_with("interface lo has no DCB"));
    }

    #[test]
    fn an_interface_that_is_not_there_is_refused_by_name() {
        let error = read("sg-no-such").expect_err("there is none");
        assert!(error.to_string().contains("sg-no-such"), "{error}");
    }
}
