//! A TAP as smoltcp's device: packets of IP, with the one Ethernet header that the lab's static
//! tables want.

use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context, Result, ensure};
use smoltcp::{
    phy::{Device, DeviceCapabilities, Medium, RxToken, TunTapInterface, TxToken},
    time::Instant,
};

use crate::Order;

const HEADER_BYTES: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];

type Header = [u8; HEADER_BYTES];

/// The TAP.
pub struct Tap {
    inner: TunTapInterface,
    header: Header,
}

impl Tap {
    pub fn attach(order: &Order) -> Result<Self> {
        let name = order.text("tap")?;
        let inner = TunTapInterface::new(name, Medium::Ethernet)
            .with_context(|| format!("TAP {name} cannot be attached to"))?;
        let (to, from) = (address(order, "peer-mac")?, address(order, "mac")?);
        let header = [&to[..], &from, &IPV4].concat();
        let header = header.try_into().expect("14 bytes");
        Ok(Self { inner, header })
    }
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

fn address(order: &Order, name: &str) -> Result<Vec<u8>> {
    let parts = order.text(name)?.split(':');
    let bytes: Result<Vec<u8>, _> = parts.map(|part| u8::from_str_radix(part, 16)).collect();
    let bytes = bytes.with_context(|| format!("argument {name}"))?;
    ensure!(bytes.len() == 6, "argument {name}: not six bytes");
    Ok(bytes)
}

impl Device for Tap {
    type RxToken<'a> = Rx<<TunTapInterface as Device>::RxToken<'a>>;
    type TxToken<'a> = Tx<<TunTapInterface as Device>::TxToken<'a>>;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let header = self.header;
        let (rx, tx) = self.inner.receive(now)?;
        Some((Rx(rx), Tx(tx, header)))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        let header = self.header;
        Some(Tx(self.inner.transmit(now)?, header))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit -= HEADER_BYTES;
        capabilities
    }
}

/// A frame that came; anything but IPv4 is empty to the stack, which drops it.
pub struct Rx<T>(T);

impl<T: RxToken> RxToken for Rx<T> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        self.0.consume(|frame| {
            let ipv4 = frame.get(12..14) == Some(&IPV4);
            f(if ipv4 { &frame[HEADER_BYTES..] } else { &[] })
        })
    }
}

/// A frame to send.
pub struct Tx<T>(T, Header);

impl<T: TxToken> TxToken for Tx<T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        self.0.consume(HEADER_BYTES + length, |frame| {
            let (header, packet) = frame.split_at_mut(HEADER_BYTES);
            header.copy_from_slice(&self.1);
            f(packet)
        })
    }
}
