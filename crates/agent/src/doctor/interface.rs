//! Questions to interfaces: is this a tenant's, and what else sits on it.

use std::{
    mem::zeroed,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::Result;
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcMessage},
};
use serde::Serialize;
use sluicegate_dcb::Dcb;

use crate::{
    interfaces::{self, Interface, Patterns},
    inventory::ProgramInfo,
    tcx::{self, Direction},
};

/// The doctor's report on one interface.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceReport {
    /// The kernel's description of it.
    #[serde(flatten)]
    pub interface: Interface,
    /// It carries other interfaces' packets rather than one tenant's.
    pub transit: bool,
    /// Offloads that are on; `None` without an answer.
    pub offloads: Option<Offloads>,
    /// Programs attached through TCX, in the order in which packets meet them, at ingress.
    pub tcx_ingress: Vec<String>,
    /// The same at egress.
    pub tcx_egress: Vec<String>,
    /// A clsact or ingress qdisc; its filters run after TCX.
    pub clsact: bool,
    /// What its driver has of DCB; `None` = nothing, or no answer.
    pub dcb: Option<Dcb>,
    /// The same in words, of an adapter, and of any other interface that has it.
    pub lossless: Option<String>,
    /// Facts to know before attaching here.
    pub notes: Vec<String>,
}

/// Offloads of an interface, true = on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offloads {
    /// Transmit checksums.
    pub tx_checksum: bool,
    /// TCP segmentation.
    pub tso: bool,
    /// Generic segmentation.
    pub gso: bool,
    /// Generic receive.
    pub gro: bool,
    /// Large receive.
    pub lro: bool,
}

/// Reports on the interfaces that `patterns` cover.
pub(super) fn reports(patterns: &Patterns) -> Result<Vec<InterfaceReport>> {
    let clsact = clsact_interfaces().map_err(|error| format!("{error:#}"));
    Ok(interfaces::list()?
        .into_iter()
        .filter(|interface| patterns.matches(&interface.name))
        .map(|interface| report(interface, &clsact))
        .collect())
}

fn report(interface: Interface, clsact: &Result<Vec<u32>, String>) -> InterfaceReport {
    let mut unknown = Vec::new();
    let mut attached = |direction: Direction| {
        attached(interface.index, direction).unwrap_or_else(|error| {
            let direction = direction.name();
            unknown.push(format!(
                "TCX programs at {direction} are not known: {error:#}"
            ));
            Vec::new()
        })
    };
    let (tcx_ingress, tcx_egress) = (attached(Direction::Ingress), attached(Direction::Egress));
    let clsact = clsact
        .as_ref()
        .map(|found| found.contains(&interface.index));
    let clsact = clsact.unwrap_or_else(|error| {
        unknown.push(format!("clsact filters are not known: {error}"));
        false
    });
    let mut report = InterfaceReport {
        transit: interface.is_transit(),
        offloads: offloads(&interface.name),
        tcx_ingress,
        tcx_egress,
        clsact,
        dcb: sluicegate_dcb::read(&interface.name).ok().flatten(),
        lossless: None,
        notes: Vec::new(),
        interface,
    };
    let is_adapter = report.interface.kind.is_empty() && report.interface.name != "lo";
    if is_adapter || report.dcb.is_some() {
        report.lossless = Some(sluicegate_dcb::in_words(report.dcb.as_ref()));
    }
    report.notes = notes(&report);
    report.notes.extend(unknown);
    report
}

fn notes(report: &InterfaceReport) -> Vec<String> {
    let mut notes = Vec::from_iter(report.interface.doubt());
    if report.offloads.is_some_and(|offloads| offloads.lro) {
        notes.push("LRO merges segments irreversibly: switch it off on forwarding hosts".into());
    }
    let others: Vec<&str> = report
        .tcx_ingress
        .iter()
        .chain(&report.tcx_egress)
        .map(String::as_str)
        .filter(|name| !crate::instance::PROGRAMS.contains(name) && !name.starts_with('#'))
        .collect();
    if !others.is_empty() {
        notes.push(format!(
            "other TCX programs ({}) see packets after enforcement",
            others.join(", ")
        ));
    }
    notes
}

/// Names of the programs at one direction of an interface, `#id` without the right to ask for names
/// (CAP_SYS_ADMIN).
fn attached(ifindex: u32, direction: Direction) -> Result<Vec<String>> {
    let ids = match tcx::attached(ifindex, direction) {
        // A kernel without TCX, as the doctor says elsewhere.
        Err(error) if is_unknown_to_kernel(&error) => Vec::new(),
        ids => ids?,
    };
    let ids = ids.into_iter();
    let names =
        ids.map(|id| ProgramInfo::of_id(id).map_or_else(|_| format!("#{id}"), |info| info.name));
    Ok(names.collect())
}

fn is_unknown_to_kernel(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.and_then(std::io::Error::raw_os_error) == Some(libc::EINVAL)
}

/// Indices of interfaces with a clsact or ingress qdisc.
fn clsact_interfaces() -> Result<Vec<u32>> {
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let qdiscs = interfaces::dump(request)?
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc) => Some(qdisc),
            _ => None,
        })
        .filter(|qdisc| {
            qdisc.attributes.iter().any(|attribute| {
                matches!(attribute, TcAttribute::Kind(kind) if kind == "clsact" || kind == "ingress")
            })
        })
        .filter_map(|qdisc| u32::try_from(qdisc.header.index).ok());
    Ok(qdiscs.collect())
}

/// `ETHTOOL_G*` of linux/ethtool.h.
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
/// `ETH_FLAG_LRO`.
const FLAG_LRO: u32 = 1 << 15;

fn offloads(name: &str) -> Option<Offloads> {
    // SAFETY: no pointers; returns a new descriptor or -1.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let on = |command| ethtool(&socket, name, command).map(|value| value != 0);
    Some(Offloads {
        tx_checksum: on(ETHTOOL_GTXCSUM)?,
        tso: on(ETHTOOL_GTSO)?,
        gso: on(ETHTOOL_GGSO)?,
        gro: on(ETHTOOL_GGRO)?,
        lro: ethtool(&socket, name, ETHTOOL_GFLAGS)? & FLAG_LRO != 0,
    })
}

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

fn ethtool(socket: &OwnedFd, name: &str, command: u32) -> Option<u32> {
    if name.len() >= libc::IFNAMSIZ {
        return None;
    }
    let mut value = EthtoolValue { command, data: 0 };
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names a terminated string and a value that outlive the call.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) };
    (code == 0).then_some(value.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_asked_is_said_and_not_taken_for_nothing() {
        let lo = interfaces::find("lo").unwrap();
        let told = report(lo.clone(), &Err("no room".to_owned()));
        let note = "clsact filters are not known: no room".to_owned();
        assert!(told.notes.contains(&note) && !told.clsact, "{told:?}");
        assert!(report(lo.clone(), &Ok(vec![lo.index])).clsact);
        assert!(
            attached(u32::MAX, Direction::Ingress).is_err(),
            "no interface"
        );
    }

    #[test]
    fn the_loopback_has_offloads() {
        let offloads = offloads("lo").expect("the loopback answers");
        assert!(offloads.gso && !offloads.lro);
    }
}
