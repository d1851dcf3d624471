//! Answers of rtnetlink. What does not parse is never taken for absent: of a message with an
//! attribute that does not parse (a name that is no UTF-8, a form that is newer than the library)
//! the other attributes are known, and of one that does not parse at all the caller hears.

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;

/// A message, or why it is none.
pub(super) type Parsed = Result<NetlinkMessage<RouteNetlinkMessage>, String>;

/// Bytes of a netlink header.
const HEADER: usize = 16;

/// Bytes of an attribute's header, and to what attributes are aligned.
const ATTRIBUTE: usize = 4;

/// IFLA_IFNAME, IFLA_QDISC and IFLA_IFALIAS: texts of RTM_NEWLINK and RTM_DELLINK.
const TEXTS: [u16; 3] = [3, 6, 20];

/// IFLA_LINKINFO, and IFLA_INFO_KIND in it.
const LINKINFO: u16 = 18;
const INFO_KIND: u16 = 1;

/// Bits of an attribute's type that say how it is written.
const FORM: u16 = 0xc000;

/// Splits a datagram.
pub(super) fn messages(datagram: &[u8]) -> Vec<Parsed> {
    let mut rest = datagram;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = rest.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let length = length.and_then(|length| usize::try_from(length).ok());
        let whole = length.filter(|&length| length >= HEADER && length <= rest.len());
        let Some(length) = whole else {
            found.push(Err("a netlink message is cut".to_owned()));
            break;
        };
        found.push(parse(&rest[..length]));
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    found
}

fn parse(message: &[u8]) -> Parsed {
    let strict = NetlinkMessage::deserialize(message);
    strict.or_else(|error| {
        let kept = keep(message).ok_or_else(|| error.to_string())?;
        NetlinkMessage::deserialize(&kept).map_err(|_| error.to_string())
    })
}

/// The message with those of its attributes that parse.
fn keep(message: &[u8]) -> Option<Vec<u8>> {
    let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    let fixed = message.get(..HEADER + fixed_bytes(kind)?)?;
    let is_link = kind / 4 == 4;
    let mut kept = fixed.to_vec();
    let mut rest = &message[fixed.len()..];
    while let Some((attribute, behind)) = next_attribute(rest) {
        rest = behind;
        let parses = |attribute: &[u8]| {
            let alone = sized([fixed, attribute].concat());
            NetlinkMessage::<RouteNetlinkMessage>::deserialize(&alone).is_ok()
        };
        if parses(attribute) {
            kept.extend_from_slice(attribute);
        } else if let Some(text) = lossy(attribute).filter(|text| is_link && parses(text)) {
            kept.extend_from_slice(&text);
        } else if let Some(info) = kind_alone(attribute).filter(|info| is_link && parses(info)) {
            kept.extend_from_slice(&info);
        } else {
            let number = attribute_type(attribute);
            tracing::debug!("attribute {number} of netlink message {kind} does not parse");
        }
    }
    Some(sized(kept))
}

/// Bytes between the header and the attributes, by type of message.
fn fixed_bytes(kind: u16) -> Option<usize> {
    match kind {
        16..=19 => Some(16), // struct ifinfomsg
        20..=23 => Some(8),  // struct ifaddrmsg
        24..=31 => Some(12), // struct rtmsg, struct ndmsg
        36..=47 => Some(20), // struct tcmsg
        88..=90 => Some(4),  // struct rtgenmsg
        _ => None,
    }
}

/// The first attribute with its padding, and what is behind it.
fn next_attribute(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    if length < ATTRIBUTE || length > bytes.len() {
        return None;
    }
    Some(bytes.split_at(length.next_multiple_of(ATTRIBUTE).min(bytes.len())))
}

fn attribute_type(attribute: &[u8]) -> u16 {
    u16::from_ne_bytes([attribute[2], attribute[3]]) & !FORM
}

/// A text with a replacement character for what is no UTF-8; `None`: it is no text.
fn lossy(attribute: &[u8]) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_ne_bytes(*attribute.first_chunk()?));
    if !TEXTS.contains(&attribute_type(attribute)) {
        return None;
    }
    let text = String::from_utf8_lossy(&attribute[ATTRIBUTE..length]);
    let length = u16::try_from(ATTRIBUTE + text.len()).ok()?;
    let mut written = length.to_ne_bytes().to_vec();
    written.extend_from_slice(&attribute[2..ATTRIBUTE]);
    written.extend_from_slice(text.as_bytes());
    written.resize(written.len().next_multiple_of(ATTRIBUTE), 0);
    Some(written)
}

/// Of what a link says of its kind (IFLA_LINKINFO), the name of that alone: the rest is of the
/// kind, and newer kernels say more.
fn kind_alone(attribute: &[u8]) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_ne_bytes(*attribute.first_chunk()?));
    if attribute_type(attribute) != LINKINFO {
        return None;
    }
    let mut rest = &attribute[ATTRIBUTE..length];
    while let Some((nested, behind)) = next_attribute(rest) {
        if attribute_type(nested) == INFO_KIND {
            let length = u16::try_from(ATTRIBUTE + nested.len()).ok()?;
            let form = &attribute[2..ATTRIBUTE];
            return Some([&length.to_ne_bytes(), form, nested].concat());
        }
        rest = behind;
    }
    None
}

/// A message whose header says its length.
fn sized(mut message: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
}

/// The message itself, if it is none of the protocol's own.
pub(super) fn inner(parsed: Parsed) -> Result<Option<RouteNetlinkMessage>, String> {
    parsed.map(|message| match message.payload {
        NetlinkPayload::InnerMessage(message) => Some(message),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(ATTRIBUTE), 0);
        bytes
    }

    /// RTM_NEWLINK of interface 7.
    fn new_link(attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + 16];
        bytes[4..6].copy_from_slice(&16u16.to_ne_bytes());
        bytes[HEADER + 4..HEADER + 8].copy_from_slice(&7u32.to_ne_bytes());
        bytes.extend(attributes.concat());
        sized(bytes)
    }

    fn link(parsed: &[Parsed]) -> LinkMessage {
        match inner(parsed[0].clone()) {
            Ok(Some(RouteNetlinkMessage::NewLink(link))) => link,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_link_keeps_its_kind_where_the_rest_of_it_does_not_parse() {
        let kind = attribute(INFO_KIND, b"tun\0");
        // IFLA_INFO_PORT_KIND and its data, of which a bridge's priority has two bytes.
        let port = attribute(4, b"bridge\0");
        let data = attribute(5, &attribute(2, &[1]));
        let info = attribute(LINKINFO, &[kind, port, data].concat());
        let parsed = messages(&new_link(&[info, attribute(4, &1500u32.to_ne_bytes())]));
        let attributes = link(&parsed).attributes;
        assert!(attributes.contains(&LinkAttribute::Mtu(1500)));
        let kinds = attributes.iter().filter_map(|it| match it {
            LinkAttribute::LinkInfo(infos) => Some(super::super::kind(infos)),
            _ => None,
        });
        assert!(kinds.eq(["tun"]), "{attributes:?}");
    }

    #[test]
    fn a_text_that_is_no_utf_8_is_read_with_replacement_characters() {
        let alias = attribute(20, b"M\xfcller\0");
        let name = attribute(3, b"v\xe9th0\0");
        let mtu = attribute(4, &1500u32.to_ne_bytes());
        let datagram = [new_link(&[name, alias, mtu]), new_link(&[])].concat();
        let parsed = messages(&datagram);
        assert_eq!(parsed.len(), 2);
        let link = link(&parsed);
        assert_eq!(link.header.index, 7);
        let wanted = [
            LinkAttribute::IfName("v\u{fffd}th0".into()),
            LinkAttribute::IfAlias("M\u{fffd}ller".into()),
            LinkAttribute::Mtu(1500),
        ];
        assert_eq!(link.attributes, wanted);
    }

    #[test]
    fn one_attribute_that_does_not_parse_loses_that_attribute_alone() {
        // IFLA_MTU of one byte, IFLA_MASTER of none, IFLA_LINKINFO with nonsense in it.
        let bad = [
            attribute(4, b"x"),
            attribute(10, b""),
            attribute(18, &[9, 0, 1, 0]),
        ];
        let mut attributes = vec![attribute(3, b"veth0\0")];
        attributes.extend(bad);
        attributes.push(attribute(17, &3u32.to_ne_bytes()));
        let link = link(&messages(&new_link(&attributes)));
        let name = LinkAttribute::IfName("veth0".into());
        assert!(link.attributes.contains(&name), "{link:?}");
        assert_eq!(link.header.index, 7);
    }

    #[test]
    fn a_message_that_does_not_parse_is_told() {
        assert!(messages(&[]).is_empty());
        assert!(messages(&[200, 0, 0, 0, 1, 2, 3, 4])[0].is_err());
        assert!(messages(&[0, 0, 0, 0])[0].is_err());
        let mut cut = new_link(&[]);
        cut.truncate(HEADER + 8);
        let parsed = messages(&sized(cut));
        assert!(parsed[0].is_err());
    }

    #[test]
    fn no_attributes_make_the_parser_panic() {
        let whole = new_link(&[attribute(20, b"M\xfcller"), attribute(3, b"veth0")]);
        for at in HEADER + 16..whole.len() {
            for byte in [0, 1, 3, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                assert_eq!(messages(&bytes).len(), 1);
            }
        }
    }
}
