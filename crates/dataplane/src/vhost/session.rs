//! The messages of one port, in a thread of their own.
//!
//! The switch is the server (it listens, and the frontend connects) or the client (it connects to
//! the frontend's socket, and tries again). Either way the port lives on when the
//! frontend goes, and the next connection starts anew.

use std::{
    fs::File,
    io,
    os::unix::{
        fs::FileTypeExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use vhost::{
    VhostUserMemoryRegionBase,
    vhost_user::{
        BackendReqHandler, Error, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
        message::{
            VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
            VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig,
            VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags,
            VhostUserVringState,
        },
    },
};

use super::{
    Change, Offer, Owner, PAIRS_MAX, Setup, feature,
    link::{Connection, Link},
    notify::{Call, Kick, Writers},
    relay::{Reader, Relay},
};
use crate::{
    config::Access,
    memory::{Log, Memory, REGIONS_MAX, Refused, Region},
    ring::Addresses,
};

/// The pause before the next connection.
pub(crate) const RETRY: Duration = Duration::from_millis(20);

/// The longest pause of a client that asks less and less often.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(1);

/// Which side of the socket the switch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The switch listens.
    Server,
    /// The frontend listens.
    Client,
}

/// A running session: its thread ends when this is dropped.
#[derive(Debug)]
pub struct Session {
    ends: Arc<AtomicBool>,
    connection: Arc<Mutex<Option<UnixStream>>>,
    link: Arc<Link>,
    listener: Option<UnixListener>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Starts the thread of a port. Of a server, the socket exists when this returns.
    ///
    /// # Errors
    /// The socket cannot be made, or the thread.
    pub fn start(
        path: &Path,
        mode: Mode,
        offer: Offer,
        port: u16,
        owner: impl Owner,
    ) -> anyhow::Result<Self> {
        let listener = match mode {
            Mode::Server => Some(listen(path, Access::default())?),
            Mode::Client => None,
        };
        Self::go_on(path, listener, None, offer, port, owner)
    }

    /// Starts the thread of a port over the socket and the connection of another process, which
    /// stay that one's until [`Link::own`].
    ///
    /// # Errors
    /// No thread, or no descriptors.
    pub fn go_on(
        path: &Path,
        listener: Option<UnixListener>,
        begin: Option<Connection>,
        offer: Offer,
        port: u16,
        owner: impl Owner,
    ) -> anyhow::Result<Self> {
        let (owner, writers) = (Arc::new(owner), Writers::default());
        Self::run(
            path,
            listener,
            begin,
            port,
            RETRY,
            move |next, slot, link| {
                let (owner, writers) = (Arc::clone(&owner), Arc::clone(&writers));
                let backend = Backend::new(port, offer, owner, writers);
                serve(next, backend, slot, link);
                true
            },
        )
    }

    /// Starts the thread of a port whose connections `serve` hears, one after the other. It says
    /// whether one was of use: after others, and while there is none, the pauses grow up to
    /// `retry`.
    ///
    /// # Errors
    /// No thread, or no descriptors.
    pub(crate) fn run(
        path: &Path,
        listener: Option<UnixListener>,
        begin: Option<Connection>,
        port: u16,
        retry: Duration,
        mut serve: impl FnMut(Connection, &Mutex<Option<UnixStream>>, &Link) -> bool + Send + 'static,
    ) -> anyhow::Result<Self> {
        let link = Arc::new(Link::new(begin.is_some())?);
        let mut session = Self {
            ends: Arc::default(),
            connection: Arc::default(),
            listener: listener.as_ref().map(UnixListener::try_clone).transpose()?,
            link: Arc::clone(&link),
            path: path.to_owned(),
            thread: None,
        };
        let (ends, connection) = (Arc::clone(&session.ends), Arc::clone(&session.connection));
        let (path, mut begin, mut pause) = (path.to_owned(), begin, RETRY);
        let mut complaints = Complaints::default();
        let thread = thread::Builder::new()
            .name(format!("port-{port}"))
            .spawn(move || {
                while !ends.load(Ordering::Acquire) {
                    let next = link.connect(|| match begin.take() {
                        None => {
                            let connected = connect(listener.as_ref(), &path);
                            complaints
                                .hear(port, &path, connected)
                                .map(|stream| Connection {
                                    stream,
                                    said: Vec::new(),
                                })
                        }
                        begin => begin,
                    });
                    let mut is_good = false;
                    if let Some(next) = next {
                        is_good = serve(next, &connection, &link);
                        link.disconnected();
                    }
                    pause = match is_good {
                        true => RETRY,
                        false => retry.min(2 * pause),
                    };
                    // Neither a peer that is refused nor one that goes at once makes it run round.
                    rest(pause, &ends);
                }
            })?;
        session.thread = Some(thread);
        Ok(session)
    }

    /// What stops it.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The socket at which it listens.
    pub fn listener(&self) -> Option<&UnixListener> {
        self.listener.as_ref()
    }

    /// Ends the thread, and waits for it. Not to be called by the worker, which the thread may be
    /// waiting for.
    pub fn end(mut self) {
        self.ends.store(true, Ordering::Release);
        self.disconnect();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended as well.
            let _ = thread.join();
        }
        if self.listener.is_some() {
            // It may have been removed by hand.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Ends the connection; its frontend may connect again.
    pub fn disconnect(&self) {
        if self.link.is_borrowed() {
            return;
        }
        let connection = self.connection.lock();
        if let Ok(Some(stream)) = connection.as_deref() {
            // The frontend may have gone meanwhile.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.disconnect();
    }
}

/// Waits for so long, or until the session ends.
fn rest(pause: Duration, ends: &AtomicBool) {
    let mut left = pause;
    while left > Duration::ZERO && !ends.load(Ordering::Acquire) {
        let now = left.min(RETRY);
        thread::sleep(now);
        left -= now;
    }
}

/// Why there is no connection, said once for each reason in a row.
#[derive(Debug, Default)]
struct Complaints(Option<io::ErrorKind>);

impl Complaints {
    fn hear<T>(&mut self, port: u16, path: &Path, result: io::Result<T>) -> Option<T> {
        let error = match result {
            Ok(stream) => {
                self.0 = None;
                return Some(stream);
            }
            Err(error) => error,
        };
        // Nobody asks for a connection, or nobody listens yet.
        let waits = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        );
        if !waits && self.0.replace(error.kind()) != Some(error.kind()) {
            let path = path.display();
            tracing::warn!(port, %path, %error, "no connection; it is tried again");
        }
        None
    }
}

/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 128;

/// A socket that listens at a path.
pub(crate) fn listen(path: &Path, access: Access) -> anyhow::Result<UnixListener> {
    let explain = |error: &dyn std::fmt::Display| {
        anyhow::anyhow!("cannot listen at {}: {error}", path.display())
    };
    if UnixStream::connect(path).is_ok() {
        return Err(explain(&"another process listens there"));
    }
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(|error| explain(&error))?;
    }
    if path
        .symlink_metadata()
        .is_ok_and(|about| !about.file_type().is_socket())
    {
        return Err(explain(
            &"there is a file that is no socket; remove it, or choose another path",
        ));
    }
    if path.symlink_metadata().is_ok() {
        // What is left of a process that was killed.
        std::fs::remove_file(path).map_err(|error| explain(&error))?;
    }
    bind(path, access).map_err(|error| explain(&error))
}

/// A socket that has its mode and group before anybody can connect. It does not block.
///
/// # Errors
/// The kernel's reason.
pub(crate) fn bind(path: &Path, access: Access) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let listens = access
        .apply(path)
        .and_then(|()| Ok(rustix::net::listen(&socket, BACKLOG)?));
    if listens.is_err() {
        // Nobody has it yet.
        let _ = std::fs::remove_file(path);
    }
    listens.map(|()| socket.into())
}

/// The next connection.
///
/// # Errors
/// There is none yet, or why there can be none.
fn connect(listener: Option<&UnixListener>, path: &Path) -> io::Result<UnixStream> {
    match listener {
        Some(listener) => {
            let (stream, _) = listener.accept()?;
            stream.set_nonblocking(false)?;
            Ok(stream)
        }
        None => {
            // Who listens may let nobody in: that is not waited for.
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
            let stream = UnixStream::from(socket);
            stream.set_nonblocking(false)?;
            Ok(stream)
        }
    }
}

/// Answers the messages of one connection until it ends.
fn serve(
    next: Connection,
    backend: Backend<impl Owner>,
    connection: &Mutex<Option<UnixStream>>,
    link: &Link,
) {
    let (port, owner) = (backend.port, Arc::clone(&backend.owner));
    if let (Ok(mut slot), Ok(copy)) = (connection.lock(), next.stream.try_clone()) {
        *slot = Some(copy);
    }
    let reason = match backend.hear(&next.stream, link) {
        Ok(relay) => relay.run(next.said),
        Err(error) => Some(format!("no sockets for a connection: {error}")),
    };
    match &reason {
        Some(reason) => tracing::warn!(port, reason, "a request of the frontend was refused"),
        None => tracing::info!(port, "the frontend has gone"),
    }
    // The switch may have ended meanwhile.
    let _ = owner.change(port, Change::Gone(reason));
    if let Ok(mut slot) = connection.lock() {
        *slot = None;
    }
}

/// The reader of messages, with its end of the relay's socket.
pub struct Requests<O: Owner>(BackendReqHandler<Mutex<Backend<O>>>);

impl<O: Owner> Reader for Requests<O> {
    fn read(&mut self) -> std::result::Result<(), String> {
        loop {
            match self.0.handle_request() {
                Err(Error::SocketRetry(_)) => {}
                Err(Error::ReqHandlerError(error)) => return Err(error.to_string()),
                result => return result.map_err(|error| error.to_string()),
            }
        }
    }
}

/// What was said of a ring so far.
#[derive(Debug, Default)]
struct Told {
    size: u32,
    at: Option<Addresses>,
    log: Option<u64>,
    base: u16,
    kick: Option<Kick>,
    call: Option<Call>,
    runs: bool,
}

/// Answers to the frontend.
pub struct Backend<O> {
    port: u16,
    offer: Offer,
    owner: Arc<O>,
    features: u64,
    protocol: VhostUserProtocolFeatures,
    regions: Vec<Arc<Region>>,
    rings: Vec<Told>,
    /// The threads that call drivers of this port.
    writers: Writers,
    /// The channel for requests of the switch; it has none, but the frontend wants it open.
    channel: Option<vhost::vhost_user::Backend>,
}

fn fail(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(reason))
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        fail(refused.0)
    }
}

impl<O: Owner> Backend<O> {
    /// Of a port, which offers this, and whose owner does what its frontend says. `writers` counts
    /// the port's threads that call drivers, those of earlier connections included.
    pub fn new(port: u16, offer: Offer, owner: Arc<O>, writers: Writers) -> Self {
        Self {
            port,
            offer,
            owner,
            features: 0,
            protocol: VhostUserProtocolFeatures::empty(),
            regions: Vec::new(),
            channel: None,
            writers,
            rings: (0..2 * PAIRS_MAX).map(|_| Told::default()).collect(),
        }
    }

    /// What hears a frontend: it answers each message before the next one passes.
    ///
    /// # Errors
    /// The kernel gives no sockets.
    pub fn hear<'a>(
        self,
        frontend: &'a UnixStream,
        link: &'a Link,
    ) -> io::Result<Relay<'a, Requests<O>>> {
        let (inward, inner) = UnixStream::pair()?;
        let requests = BackendReqHandler::from_stream(inner, Arc::new(Mutex::new(self)));
        Ok(Relay::new(frontend, inward, Requests(requests), link))
    }

    fn tell(&self, change: Change) -> Result<u16> {
        self.owner.change(self.port, change).map_err(fail)
    }

    fn ring(&mut self, index: u32) -> Result<&mut Told> {
        let ring = self.rings.get_mut(index as usize);
        ring.ok_or(Error::InvalidParam)
    }

    fn tell_memory(&self) -> Result<()> {
        let memory = Memory::new(self.regions.clone())?;
        self.tell(Change::Memory(Arc::new(memory)))?;
        Ok(())
    }

    fn map(region: &VhostUserSingleMemoryRegion, file: File) -> Result<Arc<Region>> {
        let mapped = Region::map(
            region.guest_phys_addr,
            region.user_addr,
            region.memory_size,
            file,
            region.mmap_offset,
        )?;
        Ok(Arc::new(mapped))
    }

    /// A ring starts with its kick descriptor (vhost-user, "Starting and stopping rings").
    fn start(&mut self, index: u32) -> Result<()> {
        let negotiates = self.features & feature::PROTOCOL != 0;
        let ring = self.ring(index)?;
        let Some(at) = ring.at else {
            return Err(fail("a ring was started before it had addresses"));
        };
        let setup = Setup {
            size: ring.size,
            at,
            log: ring.log,
            base: ring.base,
            kick: ring.kick.take(),
            call: ring.call.clone(),
        };
        ring.runs = true;
        self.tell(Change::Start(index as usize, setup))?;
        if !negotiates {
            self.tell(Change::Enable(index as usize, true))?;
        }
        Ok(())
    }

    fn stop(&mut self, index: u32) -> Result<u16> {
        let ring = self.ring(index)?;
        let base = ring.base;
        if !std::mem::take(&mut ring.runs) {
            return Ok(base);
        }
        self.tell(Change::Stop(index as usize))
    }

    fn stop_all(&mut self) -> Result<()> {
        for index in 0..self.rings.len() as u32 {
            let base = self.stop(index)?;
            self.ring(index)?.base = base;
        }
        Ok(())
    }
}

impl<O: Owner> VhostUserBackendReqHandlerMut for Backend<O> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all()?;
        for index in 0..self.rings.len() {
            self.tell(Change::Enable(index, false))?;
        }
        self.set_features(0)
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offer.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.offer.features() != 0 {
            return Err(fail(format!(
                "features that were not offered: {features:#x}"
            )));
        }
        self.features = features;
        self.tell(Change::Features(features))?;
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mapped = regions.iter().zip(files).map(|(region, file)| {
            let mapped = Region::map(
                region.guest_phys_addr,
                region.user_addr,
                region.memory_size,
                file,
                region.mmap_offset,
            );
            Ok(Arc::new(mapped?))
        });
        self.regions = mapped.collect::<Result<_>>()?;
        self.tell_memory()?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        self.ring(index)?.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let ring = self.ring(index)?;
        ring.at = Some(Addresses {
            descriptors,
            available,
            used,
        });
        let is_logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
        ring.log = is_logged.then_some(log);
        let (log, runs) = (ring.log, ring.runs);
        if runs {
            self.tell(Change::LogRing(index as usize, log))?;
        }
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.ring(index)?.base = base;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let base = self.stop(index)?;
        self.ring(index)?.base = base;
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, kick: Option<File>) -> Result<()> {
        let kick = kick.map(Kick::new).transpose().map_err(fail)?;
        // A ring that runs stops first, so that nothing is read twice.
        let base = self.stop(u32::from(index))?;
        let ring = self.ring(u32::from(index))?;
        (ring.base, ring.kick) = (base, kick);
        self.start(u32::from(index))
    }

    fn set_vring_call(&mut self, index: u8, call: Option<File>) -> Result<()> {
        let call = call.map(|file| Call::new(file, &self.writers));
        let call = call.transpose().map_err(fail)?;
        let ring = self.ring(u32::from(index))?;
        ring.call.clone_from(&call);
        if ring.runs {
            self.tell(Change::Call(usize::from(index), call))?;
        }
        Ok(())
    }

    fn set_vring_err(&mut self, _: u8, _: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        // QEMU has a configuration space of its own, and warns of another.
        let space = match self.offer.mac {
            Some(_) => VhostUserProtocolFeatures::CONFIG,
            None => VhostUserProtocolFeatures::empty(),
        };
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::REPLY_ACK
            | space
            // UML has no interrupt for its rings without this channel.
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        self.protocol = VhostUserProtocolFeatures::from_bits_truncate(features);
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(u64::from(self.offer.pairs))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?;
        self.tell(Change::Enable(index as usize, enable))?;
        Ok(())
    }

    fn get_config(&mut self, offset: u32, bytes: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let mut space = self.offer.space().to_vec();
        // Fields of features that are not offered are zero.
        space.resize(space.len().max(offset as usize + bytes as usize), 0);
        Ok(space[offset as usize..][..bytes as usize].to_vec())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation(
            "a driver cannot configure this adapter",
        ))
    }

    fn set_backend_req_fd(&mut self, channel: vhost::vhost_user::Backend) {
        self.channel = Some(channel);
    }

    fn set_gpu_socket(&mut self, _: vhost::vhost_user::GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("this is a network adapter"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("this is a network adapter"))
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidOperation("inflight was not offered"))
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        Err(Error::InvalidOperation("inflight was not offered"))
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        let added = Self::map(region, file)?;
        // QEMU 7.2 says it once for each pair of queues.
        if self.regions.iter().any(|known| known.is_same(&added)) {
            return Ok(None);
        }
        self.regions.push(added);
        self.tell_memory()?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let same = |known: &Arc<Region>| {
            known.guest == region.guest_phys_addr && known.user == region.user_addr
        };
        let before = self.regions.len();
        self.regions.retain(|known| !same(known));
        // As above: the last removals find nothing left.
        match self.regions.len() < before {
            true => self.tell_memory(),
            false => Ok(()),
        }
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("there is no state to transfer"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("there is no state to transfer"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation(
            "there is no shared memory of the device",
        ))
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let log = Log::map(log.mmap_size, file, log.mmap_offset)?;
        self.tell(Change::Log(Arc::new(log)))?;
        Ok(())
    }
}
