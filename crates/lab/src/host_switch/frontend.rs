//! Between a guest and the vhost-user socket of a switch that counts on QEMU. That has a control
//! queue itself and says whether the link is up; User-Mode Linux leaves both to the switch. It
//! would wait for an answer in that queue forever, and take the link as down. It also tells a
//! packed ring a start that no packed ring has. So what it is not to ask for is not offered to it.
//! Frames do not come by here: rings and memory are between those two.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    thread,
};

use anyhow::{Context, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Longer than any message; one with a table of eight regions has 276 bytes.
const MESSAGE_MAX: usize = 4096;

/// File descriptors of a message: one for each region.
const DESCRIPTORS_MAX: usize = 8;

/// VHOST_USER_GET_FEATURES, and the bit of an answer in the flags.
const GET_FEATURES: u32 = 1;
const IS_ANSWER: u32 = 1 << 2;

/// VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, CTRL_VQ, CTRL_RX, CTRL_VLAN, GUEST_ANNOUNCE, MQ and
/// CTRL_MAC_ADDR: the queue, and all that needs it.
const CONTROL: u64 = 1 << 2 | 1 << 17 | 1 << 18 | 1 << 19 | 1 << 21 | 1 << 22 | 1 << 23;

/// VIRTIO_NET_F_STATUS and VIRTIO_F_RING_PACKED, too.
const WITHHELD: u64 = CONTROL | 1 << 16 | 1 << 34;

/// Listens for a guest at one socket and for the switch at the other, and joins those who come.
///
/// # Errors
/// A socket cannot be made.
pub(super) fn listen(guest: &Path, switch: &Path) -> Result<()> {
    let bind = |path: &Path| {
        let listener = UnixListener::bind(path);
        listener.with_context(|| format!("a socket at {}", path.display()))
    };
    let (guests, switches) = (bind(guest)?, bind(switch)?);
    thread::spawn(move || {
        for guest in guests.incoming() {
            // A guest whose connection fails here says so itself.
            let _ = guest.and_then(|guest| join(guest, switches.accept()?.0));
        }
    });
    Ok(())
}

fn join(guest: UnixStream, switch: UnixStream) -> io::Result<()> {
    let (from, to) = (guest.try_clone()?, switch.try_clone()?);
    thread::spawn(move || relay(&from, &to, |_| {}));
    thread::spawn(move || relay(&switch, &guest, withhold));
    Ok(())
}

/// Passes on messages with their descriptors until one side has ended, then ends the other.
fn relay(from: &UnixStream, to: &UnixStream, edit: impl Fn(&mut [u8])) {
    while let Ok(true) = relay_one(from, to, &edit) {}
    // Fails only where that side has gone.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// What one call reads has the descriptors of one message; both sides wait for answers, so that it
/// has no second one.
fn relay_one(from: &UnixStream, to: &UnixStream, edit: impl Fn(&mut [u8])) -> io::Result<bool> {
    let mut bytes = [0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let count = recvmsg(from, &mut slices, &mut ancillary, flags)?.bytes;
    let descriptors = descriptors_of(&mut ancillary);
    let mut left = &mut bytes[..count];
    edit(left);
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
    }
    while !left.is_empty() {
        let slices = [IoSlice::new(left)];
        let sent = sendmsg(to, &slices, &mut ancillary, SendFlags::NOSIGNAL)?;
        ancillary.clear(); // they went with the first byte
        left = &mut left[sent..];
    }
    Ok(count > 0)
}

/// The descriptors that came with a message.
fn descriptors_of(ancillary: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect()
}

/// Takes those out of a switch's answer to a question for its features.
fn withhold(message: &mut [u8]) {
    let word = |at: usize| {
        let bytes = message.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    if word(0) != Some(GET_FEATURES) || word(4).is_none_or(|flags| flags & IS_ANSWER == 0) {
        return;
    }
    if let Some(features) = message.get_mut(12..20) {
        for (byte, hidden) in features.iter_mut().zip(WITHHELD.to_ne_bytes()) {
            *byte &= !hidden;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Write, pipe},
    };

    use super::*;

    fn answer(request: u32, flags: u32, features: u64) -> Vec<u8> {
        let mut message = Vec::new();
        for word in [request, flags, 8] {
            message.extend_from_slice(&word.to_ne_bytes());
        }
        message.extend_from_slice(&features.to_ne_bytes());
        message
    }

    #[test]
    fn a_guest_is_not_offered_what_it_would_wait_for() {
        for (request, flags, expected) in [
            (GET_FEATURES, 5, !WITHHELD),
            // A question, and another answer.
            (GET_FEATURES, 1, u64::MAX),
            (15, 5, u64::MAX),
        ] {
            let mut message = answer(request, flags, u64::MAX);
            withhold(&mut message);
            assert_eq!(message, answer(request, flags, expected));
        }
    }

    #[test]
    fn messages_pass_in_both_directions_with_their_descriptors() {
        let ((guest, one), (other, switch)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        join(one, other).unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let borrowed = [writer.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        let slices = [IoSlice::new(b"kick")];
        sendmsg(&guest, &slices, &mut ancillary, SendFlags::empty()).unwrap();
        drop(writer);
        let mut bytes = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(&switch, &mut slices, &mut ancillary, RecvFlags::empty()).unwrap();
        let passed = descriptors_of(&mut ancillary);
        assert_eq!((&bytes[..got.bytes], passed.len()), (&b"kick"[..], 1));
        File::from(passed.into_iter().next().unwrap())
            .write_all(b"x")
            .unwrap();
        let mut heard = Vec::new();
        reader.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"x");
        let (mut guest, mut switch) = (guest, switch);
        switch
            .write_all(&answer(GET_FEATURES, 5, u64::MAX))
            .unwrap();
        let mut heard = [0; 20];
        guest.read_exact(&mut heard).unwrap();
        assert_eq!(heard[..], answer(GET_FEATURES, 5, !WITHHELD)[..]);
        // One side ends, and so does the other.
        drop(switch);
        assert_eq!(guest.read(&mut heard).unwrap(), 0);
    }
}
