//! The messages of DCB (linux/dcbnl.h), as bytes and back. What comes is read with every length
//! checked.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NetlinkDeserializable, NetlinkHeader,
    NetlinkPayload, NetlinkSerializable, Nla, NlasIterator,
};

use crate::{Dcb, Dcbx, Ets, Pfc, TCS};

/// `RTM_GETDCB` and `RTM_SETDCB` (linux/rtnetlink.h).
const RTM_GETDCB: u16 = 78;
const RTM_SETDCB: u16 = 79;

/// `DCB_CMD_IEEE_SET` and `DCB_CMD_IEEE_GET`.
const IEEE_SET: u8 = 20;
const IEEE_GET: u8 = 21;

/// `DCB_ATTR_IFNAME`, `DCB_ATTR_IEEE` and `DCB_ATTR_DCBX`.
const ATTR_IFNAME: u16 = 1;
const ATTR_IEEE: u16 = 13;
const ATTR_DCBX: u16 = 14;

/// `DCB_ATTR_IEEE_ETS` and `DCB_ATTR_IEEE_PFC`.
const IEEE_ETS: u16 = 1;
const IEEE_PFC: u16 = 2;

/// `struct dcbmsg`: family, command, padding.
const HEAD_BYTES: usize = 4;

/// `struct ieee_pfc`: capacity, enabled, MBC, an octet of padding, delay, two counters for each
/// priority.
const PFC_BYTES: usize = 8 + 2 * 8 * TCS;

/// `struct ieee_ets`: willing, classes, CBS, and seven lists of an octet for each class.
const ETS_BYTES: usize = 3 + 7 * TCS;

/// A question to the kernel, or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    is_set: bool,
    command: u8,
    attributes: Vec<DefaultNla>,
}

fn name(interface: &str) -> DefaultNla {
    let name = interface.bytes().chain([0]).collect();
    DefaultNla::new(ATTR_IFNAME, name)
}

impl Message {
    /// Asks what an interface has.
    pub fn get(interface: &str) -> Self {
        Self {
            is_set: false,
            command: IEEE_GET,
            attributes: vec![name(interface)],
        }
    }

    /// Sets the PFC of an interface.
    pub fn set_pfc(interface: &str, pfc: &Pfc) -> Self {
        let inner = DefaultNla::new(IEEE_PFC, pfc_bytes(pfc).to_vec());
        let mut nested = vec![0; inner.buffer_len()];
        inner.emit(&mut nested);
        Self {
            is_set: true,
            command: IEEE_SET,
            attributes: vec![
                name(interface),
                DefaultNla::new(ATTR_IEEE | NLA_F_NESTED, nested),
            ],
        }
    }

    /// What an answer to [`Message::get`] says.
    pub fn dcb(&self) -> Dcb {
        let mut dcb = Dcb::default();
        for attribute in &self.attributes {
            let value = value(attribute);
            match attribute.kind() {
                ATTR_DCBX => dcb.dcbx = value.first().copied().map(Dcbx),
                ATTR_IEEE => read_ieee(&value, &mut dcb),
                _ => {}
            }
        }
        dcb
    }

    /// The error that an answer to [`Message::set_pfc`] says, a number of errno.h; 0 = none.
    pub fn refusal(&self) -> i32 {
        let mut attributes = self.attributes.iter();
        let code = attributes.find(|attribute| attribute.kind() == ATTR_IEEE);
        // The kernel writes a negative number into one octet.
        let code = code.and_then(|code| value(code).first().copied());
        -i32::from(code.unwrap_or(0) as i8)
    }
}

fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut value = vec![0; attribute.value_len()];
    attribute.emit_value(&mut value);
    value
}

fn read_ieee(nested: &[u8], dcb: &mut Dcb) {
    // What is behind an attribute that lies about its length cannot be read.
    for attribute in NlasIterator::new(nested).map_while(Result::ok) {
        match attribute.kind() {
            IEEE_ETS => dcb.ets = read_ets(attribute.value()),
            IEEE_PFC => dcb.pfc = read_pfc(attribute.value()),
            _ => {}
        }
    }
}

fn read_pfc(bytes: &[u8]) -> Option<Pfc> {
    let bytes = bytes.get(..PFC_BYTES)?;
    Some(Pfc {
        capacity: bytes[0],
        enabled: bytes[1],
        mbc: bytes[2] != 0,
        delay: u16::from_ne_bytes([bytes[4], bytes[5]]),
    })
}

fn pfc_bytes(pfc: &Pfc) -> [u8; PFC_BYTES] {
    let mut bytes = [0; PFC_BYTES];
    bytes[..3].copy_from_slice(&[pfc.capacity, pfc.enabled, pfc.mbc.into()]);
    bytes[4..6].copy_from_slice(&pfc.delay.to_ne_bytes());
    bytes
}

fn read_ets(bytes: &[u8]) -> Option<Ets> {
    let bytes = bytes.get(..ETS_BYTES)?;
    let list = |number: usize| {
        let mut list = [0; TCS];
        list.copy_from_slice(&bytes[3 + number * TCS..][..TCS]);
        list
    };
    Some(Ets {
        willing: bytes[0] != 0,
        capacity: bytes[1],
        share_percent: list(0),
        selection: list(2),
        class_of: list(3),
    })
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        if self.is_set { RTM_SETDCB } else { RTM_GETDCB }
    }

    fn buffer_len(&self) -> usize {
        HEAD_BYTES + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..HEAD_BYTES].copy_from_slice(&[0, self.command, 0, 0]);
        self.attributes.as_slice().emit(&mut buffer[HEAD_BYTES..]);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let is_dcb = matches!(header.message_type, RTM_GETDCB | RTM_SETDCB);
        let Some((head, rest)) = payload.split_at_checked(HEAD_BYTES).filter(|_| is_dcb) else {
            return Err(DecodeError::from("no message of DCB"));
        };
        let attributes = NlasIterator::new(rest).map(|attribute| {
            let attribute = attribute?;
            Ok(DefaultNla::new(
                attribute.kind(),
                attribute.value().to_vec(),
            ))
        });
        Ok(Self {
            is_set: header.message_type == RTM_SETDCB,
            command: head[1],
            attributes: attributes.collect::<Result<_, DecodeError>>()?,
        })
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NetlinkMessage;
    use proptest::prelude::*;

    use super::*;

    /// An attribute as the kernel writes it, with its padding.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = (4 + value.len()) as u16;
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// An answer of the kernel: `dcbnl_ieee_get` with ETS, PFC and DCBX.
    fn answer(pfc: &[u8], ets: &[u8]) -> Vec<u8> {
        // Attributes that are not known are among them: DCB_ATTR_IEEE_MAXRATE.
        let ieee = [
            attribute(IEEE_ETS, ets),
            attribute(7, &[0; 64]),
            attribute(IEEE_PFC, pfc),
        ];
        let parts = [
            vec![0, IEEE_GET, 0, 0],
            attribute(ATTR_IFNAME, b"eth0\0"),
            attribute(ATTR_IEEE | NLA_F_NESTED, &ieee.concat()),
            attribute(ATTR_DCBX, &[0x09]),
        ];
        parts.concat()
    }

    fn read(payload: &[u8]) -> Result<Message, DecodeError> {
        let mut header = NetlinkHeader::default();
        header.message_type = RTM_GETDCB;
        Message::deserialize(&header, payload)
    }

    /// `struct ieee_pfc` of eight classes: PFC on priority 3, a delay of 0x1234 bit times.
    fn pfc() -> Vec<u8> {
        let mut bytes = vec![8, 1 << 3, 1, 0xee];
        bytes.extend(0x1234u16.to_ne_bytes());
        bytes.extend([0xee; 2]);
        bytes.extend((0..16u64).flat_map(u64::to_ne_bytes));
        bytes
    }

    fn ets() -> Vec<u8> {
        let mut bytes = vec![1, 8, 0];
        bytes.extend([50, 50, 0, 0, 0, 0, 0, 0]);
        bytes.extend([10; 8]);
        bytes.extend([2, 2, 0, 0, 0, 0, 0, 0]);
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        bytes.extend([0; 24]);
        bytes
    }

    #[test]
    fn an_answer_of_the_kernel_is_read() {
        let dcb = read(&answer(&pfc(), &ets())).expect("a message").dcb();
        let expected = Pfc {
            capacity: 8,
            enabled: 1 << 3,
            mbc: true,
            delay: 0x1234,
        };
        assert_eq!((dcb.pfc, dcb.dcbx), (Some(expected), Some(Dcbx(9))));
        let ets = dcb.ets.expect("classes");
        assert!(ets.willing && ets.capacity == 8);
        assert_eq!(ets.share_percent[..3], [50, 50, 0]);
        assert_eq!((ets.selection[0], ets.class_of[3]), (2, 1));
    }

    #[test]
    fn what_is_short_is_not_there() {
        let (pfc, ets) = (pfc(), ets());
        let short = answer(&pfc[..PFC_BYTES - 1], &ets[..ETS_BYTES - 1]);
        let dcb = read(&short).expect("a message").dcb();
        assert_eq!((dcb.pfc, dcb.ets, dcb.dcbx), (None, None, Some(Dcbx(9))));
        assert_eq!(
            read(&[0, IEEE_GET, 0, 0]).expect("it").dcb(),
            Dcb::default()
        );
        assert!(read(&[0, IEEE_GET, 0]).is_err());
    }

    #[test]
    fn a_request_has_the_bytes_that_the_kernel_expects() {
        let mut message = NetlinkMessage::new(
            NetlinkHeader::default(),
            NetlinkPayload::from(Message::get("eth0")),
        );
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        assert_eq!(bytes[..4], 32u32.to_ne_bytes());
        assert_eq!(bytes[4..6], RTM_GETDCB.to_ne_bytes());
        let body = [vec![0, 21, 0, 0], attribute(1, b"eth0\0")].concat();
        assert_eq!(bytes[16..], body);
        let wanted = Pfc {
            capacity: 8,
            enabled: 1 << 3,
            mbc: true,
            delay: 0x1234,
        };
        let set = Message::set_pfc("eth0", &wanted);
        let mut bytes = vec![0; NetlinkSerializable::buffer_len(&set)];
        NetlinkSerializable::serialize(&set, &mut bytes);
        let mut pfc = pfc();
        // Neither padding nor counters are sent.
        (pfc[3], pfc[6], pfc[7]) = (0, 0, 0);
        pfc[8..].fill(0);
        let nested = attribute(IEEE_PFC, &pfc);
        let body = [
            vec![0, 20, 0, 0],
            attribute(1, b"eth0\0"),
            attribute(13 | NLA_F_NESTED, &nested),
        ];
        assert_eq!(bytes, body.concat());
    }

    #[test]
    fn a_refusal_is_a_negative_octet() {
        let answer = |code: u8| {
            let body = [vec![0, IEEE_SET, 0, 0], attribute(ATTR_IEEE, &[code])].concat();
            read(&body).expect("a message").refusal()
        };
        assert_eq!((answer(0), answer((-22i8) as u8)), (0, 22));
    }

    proptest! {
        /// Whatever comes, reading it does not fail in any other way than by saying so.
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = read(&bytes) {
                let _ = (message.dcb(), message.refusal());
            }
        }

        /// The same of an answer with some octets changed, or cut.
        #[test]
        fn a_damaged_answer_is_read(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            keep in any::<prop::sample::Index>(),
        ) {
            let mut bytes = answer(&pfc(), &ets());
            for (at, to) in changes {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            bytes.truncate(keep.index(bytes.len()) + 1);
            if let Ok(message) = read(&bytes) {
                let _ = (message.dcb(), message.refusal());
            }
        }
    }
}
