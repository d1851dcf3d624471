//! Between a guest and DPDK: hides features of vhost-user that DPDK offers and leaves to QEMU.
//!
//! A control queue is served by QEMU, not by the switch. A guest of User-Mode Linux has no QEMU,
//! and would wait for ever for the answer to its first command.

use std::{
    io::{IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Length of a message's header: request, flags, length of the body.
const HEADER: usize = 12;
/// The request whose answer has the features.
const GET_FEATURES: u32 = 1;
/// Control queue, what needs it, and several queue pairs (`VIRTIO_NET_F_…`, by bits).
const HIDDEN: u64 = 1 << 2 | 1 << 17 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21 | 1 << 22 | 1 << 23;
/// Descriptors of one message: memory regions.
const DESCRIPTORS_MAX: usize = 8;

/// Listens at a socket for one guest, and connects it to the switch's.
///
/// # Errors
/// It cannot listen there.
pub(super) fn listen(at: &Path, switch: PathBuf) -> Result<()> {
    let listener =
        UnixListener::bind(at).with_context(|| format!("cannot listen at {}", at.display()))?;
    thread::spawn(move || {
        while let Ok((guest, _)) = listener.accept() {
            // A guest whose connection breaks says so at its console.
            let _ = connect(&guest, &switch);
            let _ = guest.shutdown(Shutdown::Both);
        }
    });
    Ok(())
}

/// Passes messages on until one side ends.
fn connect(guest: &UnixStream, switch: &Path) -> Result<()> {
    let backend = UnixStream::connect(switch)?;
    let (from, to) = (backend.try_clone()?, guest.try_clone()?);
    thread::spawn(move || {
        let _ = answers(from, &to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let passed = requests(guest, &backend);
    let _ = backend.shutdown(Shutdown::Both);
    passed
}

/// Bytes and descriptors of a guest, as they come.
fn requests(guest: &UnixStream, backend: &UnixStream) -> Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut part = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(guest, &mut part, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Ok(());
        }
        let with = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors: Vec<OwnedFd> = with.flatten().collect();
        send(backend, &bytes[..received.bytes], &descriptors)?;
    }
}

fn send(to: &UnixStream, bytes: &[u8], descriptors: &[OwnedFd]) -> Result<()> {
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let sent = sendmsg(
        to,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    let mut rest = to;
    Ok(rest.write_all(&bytes[sent..])?)
}

/// Messages of the switch, which bring no descriptors.
fn answers(mut backend: UnixStream, mut guest: &UnixStream) -> Result<()> {
    loop {
        let mut message = vec![0; HEADER];
        backend.read_exact(&mut message)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| message[at + byte]));
        let (request, length) = (word(0), word(8) as usize);
        message.resize(HEADER + length.min(4096), 0);
        backend.read_exact(&mut message[HEADER..])?;
        if request == GET_FEATURES && length == size_of::<u64>() {
            hide(&mut message[HEADER..]);
        }
        guest.write_all(&message)?;
    }
}

/// Of eight bytes of features.
fn hide(features: &mut [u8]) {
    for (byte, hidden) in features.iter_mut().zip(HIDDEN.to_le_bytes()) {
        *byte &= !hidden;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_pass_and_the_control_queue_is_hidden() {
        let directory = std::env::temp_dir().join(format!("sgl-{}-mask", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (at, switch) = (directory.join("guest"), directory.join("switch"));
        let backend = UnixListener::bind(&switch).unwrap();
        listen(&at, switch).unwrap();
        let mut guest = UnixStream::connect(&at).unwrap();
        let mut asked = [0; HEADER];
        asked[0] = GET_FEATURES as u8;
        guest.write_all(&asked).unwrap();
        let (mut backend, _) = backend.accept().unwrap();
        let mut heard = [0; HEADER];
        backend.read_exact(&mut heard).unwrap();
        assert_eq!(heard, asked);
        heard[8] = 8;
        backend.write_all(&heard).unwrap();
        backend.write_all(&u64::MAX.to_le_bytes()).unwrap();
        let mut answer = [0; HEADER + 8];
        guest.read_exact(&mut answer).unwrap();
        assert_eq!(answer[HEADER..], (!HIDDEN).to_le_bytes());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
