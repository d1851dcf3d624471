//! A tenant of the lab with smoltcp's network stack on a TAP. What it is told and says:
//! `crates/lab/src/foreign.rs`.

mod device;
mod run;

use std::{collections::HashMap, net::Ipv4Addr, os::fd::AsRawFd, process::ExitCode, str::FromStr};

use anyhow::{Context, Result};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy,
    socket::tcp,
    time::Instant,
    wire::{HardwareAddress, IpCidr},
};

use device::Tap;
use run::Run;

/// Bytes of the socket's buffers in either direction; what its windows and flights are at most.
const BUFFER_BYTES: usize = 256 * 1024;
/// Its end of the connection, where it connects.
const LOCAL_PORT: u16 = 49152;

/// The arguments: `NAME=VALUE` each.
pub struct Order(HashMap<String, String>);

impl Order {
    fn read() -> Self {
        let arguments = std::env::args().skip(1);
        let pairs = arguments.filter_map(|argument| {
            let (name, value) = argument.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Self(pairs.collect())
    }

    fn text(&self, name: &str) -> Result<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.with_context(|| format!("argument {name} is missing"))
    }

    fn get<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        &self,
        name: &str,
    ) -> Result<T> {
        let value = self.text(name)?.parse();
        value.with_context(|| format!("argument {name}"))
    }
}

fn main() -> ExitCode {
    match serve(&Order::read()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error {}", format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn serve(order: &Order) -> Result<()> {
    let mut stack = Stack::new(order)?;
    let sends = order.text("role")? == "send";
    let port: u16 = order.get("port")?;
    if !sends {
        let socket = stack.socket();
        socket.listen(port).context("listening")?;
    }
    let mut run = Run::begin(order)?;
    if sends {
        stack.connect(order.get("peer")?, port)?;
    }
    let mut reported = false;
    loop {
        stack.turn()?;
        run.step(stack.socket(), sends);
        if run.over() && !reported {
            reported = true;
            run.report(sends)?;
        }
    }
}

/// smoltcp with one socket.
struct Stack {
    tap: Tap,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Stack {
    fn new(order: &Order) -> Result<Self> {
        let mut tap = Tap::attach(order)?;
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut tap, Instant::now());
        let own = IpCidr::new(
            order.get::<Ipv4Addr>("address")?.into(),
            order.get("prefix")?,
        );
        let mut added = Ok(());
        interface.update_ip_addrs(|addresses| added = addresses.push(own));
        added.ok().context("no room for its address")?;
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER_BYTES]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_congestion_control(tcp::CongestionControl::Cubic);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Ok(Self {
            tap,
            interface,
            sockets,
            handle,
        })
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn connect(&mut self, peer: Ipv4Addr, port: u16) -> Result<()> {
        let socket: &mut tcp::Socket<'static> = self.sockets.get_mut(self.handle);
        let context = self.interface.context();
        let begun = socket.connect(context, (peer, port), LOCAL_PORT);
        begun.context("connecting")
    }

    /// Sends and receives what there is, then waits for the next packet or timer.
    fn turn(&mut self) -> Result<()> {
        let now = Instant::now();
        self.interface.poll(now, &mut self.tap, &mut self.sockets);
        let timer = self.interface.poll_delay(now, &self.sockets);
        // The stack has no timer for the end of the run, so it never waits longer than this.
        let longest = smoltcp::time::Duration::from_millis(10);
        let wait = timer.map_or(longest, |timer| timer.min(longest));
        phy::wait(self.tap.as_raw_fd(), Some(wait)).context("waiting for the TAP")
    }
}
