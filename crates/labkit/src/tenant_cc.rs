//! Tenants' own TCP stacks for kernels that lack them, as struct_ops built from core's headers.
//!
//! [`register`] makes congestion controls known to the kernel for as long as the returned [`Guard`]
//! lives; a socket in any network namespace then chooses one with `TCP_CONGESTION` and
//! [`Guard::kernel_name`]. What the kernel has itself, built in or as a module, is preferred and
//! used as it is. Registrations are links that end with the process, however it ends: there is
//! nothing to clean up after a crash. Sockets that use a stack keep it until they close.

use std::{
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::{ErrorKind, Link, MapCore, MapType, Object};
use sluicegate_agent::{include_object, object};

/// Longest name of a congestion control, without the NUL (`TCP_CA_NAME_MAX - 1`).
const NAME_MAX: usize = 15;
/// How many processes may offer the same stack at once.
const COPIES_MAX: usize = 99;
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// One of our stacks: its name in scenarios and its compiled programs.
struct Stack {
    name: &'static str,
    programs: &'static [u8],
}

/// The stacks that Sluicegate brings.
fn stacks() -> impl IntoIterator<Item = Stack> {
    include!(concat!(env!("OUT_DIR"), "/stacks.rs"))
}

/// Where a tenant's congestion control comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Built into the kernel, or a module of it.
    Kernel,
    /// Our struct_ops.
    Sluicegate,
}

/// A congestion control that sockets can choose now.
#[derive(Debug)]
pub struct Registered {
    name: String,
    kernel_name: String,
    // Dropped in this order: the link unregisters, then the programs go.
    link: Option<Link>,
    _programs: Option<Object>,
}

impl Registered {
    /// The name in scenarios: `dctcp`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name for `TCP_CONGESTION`: `dctcp` or `sg_dctcp`.
    pub fn kernel_name(&self) -> &str {
        &self.kernel_name
    }

    /// Its provider.
    pub fn provider(&self) -> Provider {
        match self.link {
            Some(_) => Provider::Sluicegate,
            None => Provider::Kernel,
        }
    }
}

/// Keeps registrations; dropping it ends them.
#[derive(Debug)]
pub struct Guard {
    registered: Vec<Registered>,
}

impl Guard {
    /// The congestion controls that were registered, in the order asked for.
    pub fn registered(&self) -> &[Registered] {
        &self.registered
    }

    /// The name in `TCP_CONGESTION` that gives a socket `name`; `None` if it was not asked for.
    pub fn kernel_name(&self, name: &str) -> Option<&str> {
        self.registered
            .iter()
            .find(|registered| registered.name == name)
            .map(Registered::kernel_name)
    }
}

/// Makes the congestion controls `names` (`cubic`, `dctcp`, …) available to sockets.
///
/// # Errors
/// Neither the kernel nor we have one of that name, or the kernel refused ours. Needs root.
pub fn register(names: &[&str]) -> Result<Guard> {
    let mut registered: Vec<Registered> = Vec::new();
    for name in names {
        if !registered.iter().any(|known| known.name == *name) {
            registered.push(provide(name)?);
        }
    }
    Ok(Guard { registered })
}

fn provide(name: &str) -> Result<Registered> {
    if kernel_has(name)? {
        return Ok(Registered {
            name: name.to_owned(),
            kernel_name: name.to_owned(),
            link: None,
            _programs: None,
        });
    }
    let ours: Vec<Stack> = stacks().into_iter().collect();
    let Some(stack) = ours.iter().find(|stack| stack.name == name) else {
        let names: Vec<_> = ours.iter().map(|stack| stack.name).collect();
        bail!(
            "congestion control \"{name}\": this kernel has none of that name ({AVAILABLE} lists {}), \
             and Sluicegate brings only {}",
            available()?.join(", "),
            names.join(", ")
        );
    };
    offer(stack)
}

fn available() -> Result<Vec<String>> {
    let names = fs::read_to_string(AVAILABLE).with_context(|| format!("reading {AVAILABLE}"))?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// Whether a socket can have `name` from the kernel; asking loads the module if there is one.
fn kernel_has(name: &str) -> Result<bool> {
    let asking = || format!("asking the kernel for congestion control \"{name}\"");
    // SAFETY: no pointers; a descriptor that is ours or an error.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error()).with_context(asking);
    }
    // SAFETY: opened above, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: the pointer and the length describe `name` for the duration of the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOENT) {
        return Ok(false);
    }
    Err(error).with_context(asking)
}

/// Registers one of ours under the first free name of `sg_NAME`, `sg_NAME.1`, …: another process
/// may be offering the same stack.
fn offer(stack: &Stack) -> Result<Registered> {
    let taken = available()?;
    for copy in 0..=COPIES_MAX {
        let kernel_name = match copy {
            0 => format!("sg_{}", stack.name),
            _ => format!("sg_{}.{copy}", stack.name),
        };
        if taken.contains(&kernel_name) {
            continue;
        }
        let (attached, programs) = attach(stack, &kernel_name)?;
        match attached {
            Ok(link) => {
                return Ok(Registered {
                    name: stack.name.to_owned(),
                    kernel_name,
                    link: Some(link),
                    _programs: Some(programs),
                });
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(anyhow!(error))
                    .with_context(|| format!("registering congestion control {kernel_name}"));
            }
        }
    }
    bail!(
        "congestion control sg_{}: {COPIES_MAX} processes offer it already; end some of them",
        stack.name
    )
}

type Attached = libbpf_rs::Result<Link>;

fn attach(stack: &Stack, kernel_name: &str) -> Result<(Attached, Object)> {
    let what = format!("tenant_{}", stack.name);
    let mut opened = object::open(&what, stack.programs)?;
    rename(&mut opened, kernel_name)?;
    let mut programs = object::load(opened, &what)?;
    let attached = programs
        .maps_mut()
        .find(|map| map.map_type() == MapType::StructOps)
        .with_context(|| format!("{what} has no struct_ops"))?
        .attach_struct_ops();
    Ok((attached, programs))
}

/// Writes the name that the kernel will know into `struct tcp_congestion_ops`, whose first field in
/// bpf/kernel_tcp.h it is.
fn rename(opened: &mut libbpf_rs::OpenObject, kernel_name: &str) -> Result<()> {
    let mut ops = object::open_map(opened, "ops")?;
    let field = ops
        .initial_value_mut()
        .and_then(|value| value.get_mut(..=NAME_MAX))
        .context("struct tcp_congestion_ops has no name")?;
    if kernel_name.len() > NAME_MAX {
        bail!("congestion control {kernel_name}: longer than {NAME_MAX} characters");
    }
    field.fill(0);
    field[..kernel_name.len()].copy_from_slice(kernel_name.as_bytes());
    Ok(())
}
