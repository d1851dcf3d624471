//! ICMP messages that quote a segment of ours:
//! `icmp unreachable frag_needed mtu 1200 [1:1461(1460)]`.

use super::{Kind, Parser};
use crate::{
    Step,
    model::{Action, Icmp, IcmpMeaning},
};

impl Parser {
    /// One, if it comes next: the quoted segment may stand before it or behind.
    pub(super) fn icmp(&mut self, arrives: bool) -> Step<Option<Action>> {
        let before = match (self.peek(), self.peek_at(1)) {
            (Some(Kind::Symbol('[')), Some(Kind::Integer(_))) => Some(self.quoted_segment()?),
            _ => None,
        };
        if !self.accept_word("icmp") && !self.accept_word("icmpv6") {
            return match before {
                None => Ok(None),
                Some(_) => self.wrong("icmp"),
            };
        }
        let line = self.tokens[self.at - 1].line;
        let Some(Kind::Word(kind)) = self.peek().cloned() else {
            return self.wrong("an ICMP message");
        };
        self.at += 1;
        let code = match self.peek().cloned() {
            Some(Kind::Word(code)) if self.line() == line && code != "mtu" => {
                self.at += 1;
                code
            }
            _ => String::new(),
        };
        let mtu = match self.accept_word("mtu") {
            true => Some(self.number()?),
            false => None,
        };
        let quoted = match self.is_symbol('[') {
            true => Some(self.quoted_segment()?),
            false => before,
        };
        if !arrives {
            return Ok(Some(Action::Unsupported("icmp packets that leave".into())));
        }
        Ok(Some(match meaning(&kind, &code, mtu) {
            Some(meaning) => Action::Icmp(Icmp {
                meaning,
                numbers: numbers(&kind, &code),
                seq: quoted.map(|(seq, _)| seq),
                udp: quoted.and_then(|(_, udp)| udp),
            }),
            None => Action::Unsupported(format!("icmp {kind} {code}")),
        }))
    }

    /// `[1:1461(1460)]`, `[0:0(0)/udp(9811 > 1)]`: its first sequence number, and ports of UDP.
    fn quoted_segment(&mut self) -> Step<(u32, Option<(u16, u16)>)> {
        self.expect('[')?;
        let seq = self.number()?;
        self.expect(':')?;
        let _: u32 = self.number()?;
        self.expect('(')?;
        let _: u16 = self.number()?;
        self.expect(')')?;
        let udp = self.udp()?;
        self.expect(']')?;
        Ok((seq, udp))
    }

    /// `/udp(9811 > 1)`, if it comes next.
    pub(super) fn udp(&mut self) -> Step<Option<(u16, u16)>> {
        let comes = matches!(self.peek_at(1), Some(Kind::Word(word)) if word == "udp");
        if !self.is_symbol('/') || !comes {
            return Ok(None);
        }
        self.at += 2;
        self.expect('(')?;
        let source = self.number()?;
        self.expect('>')?;
        let destination = self.number()?;
        self.expect(')')?;
        Ok(Some((source, destination)))
    }
}

/// Names of types and codes as packetdrill has them; errors as Linux (`icmp_err_convert`) and
/// FreeBSD (`inetctlerrmap`, `tcp_ctlinput`) know them.
fn meaning(kind: &str, code: &str, mtu: Option<u16>) -> Option<IcmpMeaning> {
    let lost = |linux, freebsd| Some(IcmpMeaning::Lost { linux, freebsd });
    if let Some(mtu) = mtu {
        return Some(IcmpMeaning::TooBig(mtu));
    }
    match (kind, code) {
        ("unreachable", "" | "net_unreachable" | "net_unreachable_for_tos" | "no_route") => {
            lost("ENETUNREACH", None)
        }
        (
            "unreachable",
            "host_unreachable" | "host_unreachable_for_tos" | "address_unreachable",
        ) => lost("EHOSTUNREACH", None),
        ("unreachable", "protocol_unreachable") => lost("ENOPROTOOPT", Some("ECONNREFUSED")),
        ("unreachable", "port_unreachable") => lost("ECONNREFUSED", Some("ECONNREFUSED")),
        ("unreachable", "source_route_failed") => lost("EOPNOTSUPP", None),
        ("unreachable", "net_prohibited") => lost("ENETUNREACH", Some("ECONNREFUSED")),
        ("unreachable", "net_unknown") => lost("ENETUNREACH", None),
        ("unreachable", "dest_host_unknown" | "host_unknown") => lost("EHOSTDOWN", None),
        ("unreachable", "source_host_isolated") => lost("ENONET", None),
        (
            "unreachable",
            "host_prohibited"
            | "admin_prohibited"
            | "administratively_prohibited"
            | "communication_prohibited"
            | "comm_prohibited"
            | "packet_filtered",
        ) => lost("EHOSTUNREACH", Some("ECONNREFUSED")),
        ("parameter_problem", "unrecognized_next_header") => lost("EPROTO", Some("ECONNREFUSED")),
        ("time_exceeded", "frag_reass_exceeded" | "exceeded_fragment") => {
            Some(IcmpMeaning::Nothing)
        }
        ("time_exceeded", _) => lost("EHOSTUNREACH", Some("EHOSTUNREACH")),
        ("unreachable", "precedence_violation" | "precedence_cutoff") => lost("EHOSTUNREACH", None),
        ("parameter_problem", _) => lost("EPROTO", None),
        ("source_quench" | "echo_request" | "echo_reply" | "redirect", _) => {
            Some(IcmpMeaning::Nothing)
        }
        _ => None,
    }
}

/// Codes of "destination unreachable", each at its number (RFC 792, RFC 1122, RFC 1812).
const UNREACHABLE: [&str; 16] = [
    "net_unreachable",
    "host_unreachable",
    "protocol_unreachable",
    "port_unreachable",
    "frag_needed",
    "source_route_failed",
    "net_unknown",
    "host_unknown",
    "source_host_isolated",
    "net_prohibited",
    "host_prohibited",
    "net_unreachable_for_tos",
    "host_unreachable_for_tos",
    "packet_filtered",
    "precedence_violation",
    "precedence_cutoff",
];
/// The same of ICMPv6 (RFC 4443).
const UNREACHABLE_V6: [&str; 5] = [
    "no_route",
    "admin_prohibited",
    "not_neighbour",
    "address_unreachable",
    "port_unreachable",
];

/// Type and code of a message of ICMP and of ICMPv6, where it exists there.
fn numbers(kind: &str, code: &str) -> [Option<(u8, u8)>; 2] {
    let at = |codes: &[&str], kind: u8| {
        if code.is_empty() {
            return Some((kind, 0));
        }
        let code = codes.iter().position(|known| *known == code)?;
        Some((kind, u8::try_from(code).ok()?))
    };
    match kind {
        "unreachable" => [at(&UNREACHABLE, 3), at(&UNREACHABLE_V6, 1)],
        "packet_too_big" => [None, Some((2, 0))],
        "source_quench" => [Some((4, 0)), None],
        "time_exceeded" => {
            let code = u8::from(code.contains("frag"));
            [Some((11, code)), Some((3, code))]
        }
        "parameter_problem" => {
            let code = u8::from(code.contains("next_header"));
            [Some((12, 0)), Some((4, code))]
        }
        _ => [None, None],
    }
}
