//! The messages that made a connection what it is, for a successor that goes on with it.
//!
//! What a frontend said is kept as it was said, with its descriptors, and the successor hears it
//! again: so it has no form of its own that two versions would have to agree on.

use std::os::fd::{AsFd, OwnedFd};

use super::relay::{Message, word};

/// With so many messages, changes of single regions are kept no more: the connection cannot be
/// handed over until its frontend sends a whole table of memory.
const KEPT_MAX: usize = 1024;

/// Requests (vhost-user, "Front-end message types").
pub(super) mod request {
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const RESET_DEVICE: u32 = 34;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}
use request::*;

/// Requests in the order in which a successor hears them.
const ORDER: [u32; 13] = [
    SET_OWNER,
    SET_FEATURES,
    SET_PROTOCOL_FEATURES,
    SET_BACKEND_REQ_FD,
    SET_MEM_TABLE,
    ADD_MEM_REG,
    SET_LOG_BASE,
    SET_VRING_NUM,
    SET_VRING_ADDR,
    SET_VRING_BASE,
    SET_VRING_CALL,
    SET_VRING_ENABLE,
    SET_VRING_KICK,
];

/// Where a message's header has its flags, and the one that asks for an answer.
const FLAGS: usize = 4;
const NEED_REPLY: u8 = 8;
const HEADER: usize = 12;

/// Of a message about one region, where its two addresses are: the guest's and the frontend's.
/// Between them is its length.
const ADDRESSES: [std::ops::Range<usize>; 2] = [HEADER + 8..HEADER + 16, HEADER + 24..HEADER + 32];

/// What is kept of a connection.
#[derive(Debug, Default)]
pub struct Kept {
    messages: Vec<Message>,
    is_too_long: bool,
}

fn rank(message: &Message) -> Option<usize> {
    let request = match word(&message.bytes, 0) {
        // Regions come and go in the order in which that was said.
        REM_MEM_REG => ADD_MEM_REG,
        request => request,
    };
    ORDER.iter().position(|&known| known == request)
}

fn region(message: &Message) -> [Option<&[u8]>; 2] {
    ADDRESSES.map(|part| message.bytes.get(part))
}

fn ring(message: &Message) -> u8 {
    message.bytes.get(HEADER).copied().unwrap_or_default()
}

fn is(message: &Message, request: u32) -> bool {
    word(&message.bytes, 0) == request
}

impl Kept {
    fn remove(&mut self, request: u32) {
        self.messages.retain(|message| !is(message, request));
    }

    /// The frontend has said this, and it was passed on.
    pub fn keep(&mut self, mut message: Message) {
        let request = word(&message.bytes, 0);
        match request {
            RESET_OWNER => return self.remove(SET_VRING_KICK),
            RESET_DEVICE => {
                let gone = [SET_VRING_KICK, SET_VRING_ENABLE, SET_FEATURES];
                return gone.into_iter().for_each(|request| self.remove(request));
            }
            SET_MEM_TABLE => {
                let gone = [SET_MEM_TABLE, ADD_MEM_REG, REM_MEM_REG];
                gone.into_iter().for_each(|request| self.remove(request));
                self.is_too_long = false;
            }
            SET_VRING_NUM | SET_VRING_ADDR | SET_VRING_BASE | SET_VRING_KICK | SET_VRING_CALL
            | SET_VRING_ENABLE => {
                let index = ring(&message);
                self.messages
                    .retain(|kept| !is(kept, request) || ring(kept) != index);
            }
            REM_MEM_REG => {
                // As the session removes it; an offset in its file may be another here.
                let before = self.messages.len();
                self.messages
                    .retain(|kept| !is(kept, ADD_MEM_REG) || region(kept) != region(&message));
                if self.messages.len() < before {
                    return;
                }
            }
            // Said again for another pair of queues, it is the same.
            ADD_MEM_REG => self
                .messages
                .retain(|kept| !is(kept, ADD_MEM_REG) || region(kept) != region(&message)),
            _ if rank(&message).is_none() => return,
            _ => self.remove(request),
        }
        // Of every other request one message is kept, or one of each ring.
        let changes_memory = matches!(request, ADD_MEM_REG | REM_MEM_REG);
        if changes_memory && self.messages.len() >= KEPT_MAX {
            self.is_too_long = true;
            return;
        }
        message.bytes[FLAGS] &= !NEED_REPLY;
        self.messages.push(message);
    }

    /// The switch has answered: a ring that has stopped goes on from where it says.
    pub fn answered(&mut self, answer: &Message) {
        if !is(answer, GET_VRING_BASE) || answer.bytes.len() != HEADER + 8 {
            return;
        }
        let index = ring(answer);
        self.messages
            .retain(|kept| !is(kept, SET_VRING_KICK) || ring(kept) != index);
        let mut base = answer.bytes.clone();
        base[..4].copy_from_slice(&SET_VRING_BASE.to_le_bytes());
        base[FLAGS..HEADER - 4].copy_from_slice(&1u32.to_le_bytes());
        self.keep(Message {
            bytes: base,
            descriptors: Vec::new(),
        });
    }

    /// Copies of all messages in the order in which a successor is to hear them.
    pub fn copies(&self) -> std::io::Result<Vec<Message>> {
        if self.is_too_long {
            return Err(std::io::Error::other("its frontend has said too much"));
        }
        let copy = |message: &Message| {
            let copies = message.descriptors.iter().map(OwnedFd::as_fd);
            let copies = copies.map(|descriptor| descriptor.try_clone_to_owned());
            Ok(Message {
                bytes: message.bytes.clone(),
                descriptors: copies.collect::<std::io::Result<_>>()?,
            })
        };
        let copies = self.messages.iter().map(copy);
        let mut copies = copies.collect::<std::io::Result<Vec<_>>>()?;
        copies.sort_by_key(rank);
        Ok(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(request: u32, body: &[u8]) -> Message {
        let mut bytes = request.to_le_bytes().to_vec();
        bytes.extend((1u32 | u32::from(NEED_REPLY)).to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        Message {
            bytes,
            descriptors: Vec::new(),
        }
    }

    const GET_FEATURES: u32 = 1;

    #[test]
    fn what_holds_is_kept_in_the_order_of_a_beginning() {
        let mut kept = Kept::default();
        kept.keep(message(SET_VRING_KICK, &[1; 8]));
        kept.keep(message(SET_VRING_KICK, &[0; 8]));
        kept.keep(message(SET_VRING_NUM, &[0; 8]));
        kept.keep(message(SET_VRING_NUM, &[0, 0, 0, 0, 7, 0, 0, 0]));
        kept.keep(message(ADD_MEM_REG, &[1; 40]));
        kept.keep(message(ADD_MEM_REG, &[2; 40]));
        kept.keep(message(REM_MEM_REG, &[1; 40]));
        kept.keep(message(SET_FEATURES, &[3; 8]));
        kept.keep(message(SET_FEATURES, &[4; 8]));
        kept.keep(message(GET_FEATURES, &[]));
        kept.answered(&message(GET_VRING_BASE, &[1, 0, 0, 0, 9, 0, 0, 0]));
        let copies = kept.copies().expect("copies");
        let all: Vec<_> = copies
            .iter()
            .map(|copy| (word(&copy.bytes, 0), copy.bytes[HEADER..].to_vec()))
            .collect();
        let expected = [
            (SET_FEATURES, vec![4; 8]),
            (ADD_MEM_REG, vec![2; 40]),
            (SET_VRING_NUM, vec![0, 0, 0, 0, 7, 0, 0, 0]),
            (SET_VRING_BASE, vec![1, 0, 0, 0, 9, 0, 0, 0]),
            (SET_VRING_KICK, vec![0; 8]),
        ];
        assert_eq!(all, expected);
        assert!(copies.iter().all(|copy| copy.bytes[FLAGS] == 1));
    }

    /// A region by its addresses, with an offset in its file.
    fn region_at(request: u32, guest: u64, user: u64, offset: u64) -> Message {
        let words = [0, guest, 0x1000, user, offset].map(u64::to_le_bytes);
        message(request, &words.concat())
    }

    fn said(kept: &Kept) -> Vec<(u32, u8)> {
        let copies = kept.copies().expect("copies");
        let each = copies.iter();
        each.map(|copy| (word(&copy.bytes, 0), copy.bytes[HEADER + 8]))
            .collect()
    }

    #[test]
    fn regions_go_by_their_addresses_and_in_their_order() {
        let mut kept = Kept::default();
        kept.keep(region_at(ADD_MEM_REG, 1, 7, 0x5000));
        kept.keep(region_at(ADD_MEM_REG, 2, 8, 0x6000));
        kept.keep(region_at(REM_MEM_REG, 1, 7, 0));
        assert_eq!(said(&kept), [(ADD_MEM_REG, 2)]);
        kept.keep(region_at(ADD_MEM_REG, 2, 8, 0x6000));
        assert_eq!(said(&kept), [(ADD_MEM_REG, 2)]);
        // One of a table goes, and another comes in its place.
        kept.keep(message(SET_MEM_TABLE, &[5; 40]));
        kept.keep(region_at(REM_MEM_REG, 3, 9, 0));
        kept.keep(region_at(ADD_MEM_REG, 3, 9, 0x7000));
        let expected = [(SET_MEM_TABLE, 5), (REM_MEM_REG, 3), (ADD_MEM_REG, 3)];
        assert_eq!(said(&kept), expected);
    }

    #[test]
    fn a_new_table_ends_what_was_too_much() {
        let mut kept = Kept::default();
        for region in 0..=KEPT_MAX as u64 {
            kept.keep(region_at(ADD_MEM_REG, region, 0, 0));
        }
        kept.keep(message(SET_VRING_KICK, &[4; 16]));
        assert!(kept.copies().is_err());
        kept.keep(message(SET_MEM_TABLE, &[5; 40]));
        assert_eq!(said(&kept), [(SET_MEM_TABLE, 5), (SET_VRING_KICK, 4)]);
    }
}
