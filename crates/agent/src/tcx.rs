//! TCX: attaching a program to one direction of an interface (Linux 6.6).
//!
//! libbpf-rs knows no TCX links yet, so this wraps libbpf's own call.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd},
    path::Path,
    ptr::NonNull,
};

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::{AsRawLibbpf, Link, ProgramMut, libbpf_sys, query::LinkTypeInfo};

/// Which packets of an interface a program sees. Seen from the host: what a tenant sends
/// arrives at the ingress of the host side of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Packets that come in through the interface.
    Ingress,
    /// Packets that leave through it.
    Egress,
}

impl Direction {
    /// `ingress` or `egress`, as in pin names and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    pub(crate) fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
}

/// A program attached to an interface. Dropping it detaches, unless it is pinned.
#[derive(Debug)]
pub struct TcxLink {
    link: Link,
}

impl TcxLink {
    /// Attaches `program` before every other program of this direction. `ifindex` is looked
    /// up in the calling thread's network namespace.
    ///
    /// The direction must be the one that the program's section names (`tcx/ingress`,
    /// `tcx/egress`).
    ///
    /// # Errors
    /// No such interface, no right to attach (CAP_NET_ADMIN, CAP_BPF), a kernel before 6.6.
    pub fn attach(program: &ProgramMut<'_>, ifindex: u32, direction: Direction) -> Result<Self> {
        let name = program.name().to_string_lossy().into_owned();
        let what = || {
            format!(
                "attaching {name} to {} of interface {ifindex}",
                direction.name()
            )
        };
        let index = i32::try_from(ifindex).with_context(what)?;
        if program.attach_type() as libbpf_sys::bpf_attach_type != direction.attach_type() {
            return Err(anyhow!("its section names another direction").context(what()));
        }
        let options = libbpf_sys::bpf_tcx_opts {
            sz: size_of::<libbpf_sys::bpf_tcx_opts>() as libbpf_sys::size_t,
            flags: libbpf_sys::BPF_F_BEFORE,
            ..Default::default()
        };
        // SAFETY: the program outlives the call and is loaded; `options` says its own size.
        let link = unsafe {
            libbpf_sys::bpf_program__attach_tcx(
                program.as_libbpf_object().as_ptr(),
                index,
                &options,
            )
        };
        let Some(link) = NonNull::new(link) else {
            return Err(anyhow::Error::from(std::io::Error::last_os_error()).context(what()));
        };
        // SAFETY: libbpf has just returned this link, and nothing else owns it.
        let link = unsafe { Link::from_ptr(link) };
        Ok(Self { link })
    }

    /// A link pinned earlier, perhaps by another process.
    ///
    /// # Errors
    /// Nothing is pinned there, something else than a link is, or no right to open it.
    pub fn open(path: &Path) -> Result<Self> {
        let context = || format!("opening {}", path.display());
        let link = Link::open(path).with_context(context)?;
        // libbpf opens whatever is pinned, and would read what the kernel says of it as that of a
        // link.
        let facts = format!("/proc/self/fdinfo/{}", link.as_fd().as_raw_fd());
        let facts = fs::read_to_string(facts).with_context(context)?;
        ensure!(
            facts.lines().any(|fact| fact.starts_with("link_id:")),
            "{}: no link is pinned there",
            path.display()
        );
        Ok(Self { link })
    }

    /// Keeps the program attached when this process ends. `path` is on a bpffs.
    ///
    /// # Errors
    /// The path exists, is no bpffs, or the link is pinned already.
    pub fn pin(&mut self, path: &Path) -> Result<()> {
        self.link
            .pin(path)
            .with_context(|| format!("pinning a link at {}", path.display()))
    }

    /// Undoes [`TcxLink::pin`]: the program stays attached while this value lives.
    ///
    /// # Errors
    /// The link is not pinned.
    pub fn unpin(&mut self) -> Result<()> {
        self.link.unpin().context("unpinning a link")
    }

    /// Detaches at once, also where others hold the link or a pin of it.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn detach(&self) -> Result<()> {
        self.link.detach().context("detaching a link")
    }

    /// The interface that it is attached to; `None` if that is gone.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn ifindex(&self) -> Result<Option<u32>> {
        let info = self.link.info().context("asking about a link")?;
        match info.info {
            LinkTypeInfo::Tcx(tcx) => Ok((tcx.ifindex != 0).then_some(tcx.ifindex)),
            _ => Err(anyhow!("a pinned link is of another kind than TCX")),
        }
    }

    /// The link itself, for queries.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Puts another program in the place of the one attached, without a gap.
    ///
    /// # Errors
    /// The kernel refused; the old program stays.
    pub fn replace(&mut self, program: &ProgramMut<'_>) -> Result<()> {
        self.link
            .update_prog(program)
            .context("replacing an attached program")
    }
}

/// Ids of the programs at one direction of an interface of the calling thread's network namespace,
/// in the order in which packets meet them.
///
/// # Errors
/// No such interface, no right to ask (CAP_NET_ADMIN), a kernel before 6.6.
pub fn attached(ifindex: u32, direction: Direction) -> Result<Vec<u32>> {
    let mut ids = [0u32; 64];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = ids.len() as u32;
    let target = i32::try_from(ifindex).context("no such interface")?;
    // SAFETY: `options` says its own size and that of the array it points to; both outlive the
    // call.
    let code =
        unsafe { libbpf_sys::bpf_prog_query_opts(target, direction.attach_type(), &mut options) };
    if code < 0 {
        let error = std::io::Error::from_raw_os_error(-code);
        return Err(anyhow::Error::from(error).context("asking which TCX programs are attached"));
    }
    // SAFETY: both members of the union are the same number.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    Ok(ids.into_iter().take(count).collect())
}
