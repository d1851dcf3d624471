//! An interface that is there already: what it is, and who else has it. The kernel says so below
//! `/sys/class/net`, of the network namespace in which that was mounted.

use std::{fs, io, path::PathBuf};

use anyhow::ensure;

use super::IFF_TAP;

/// What an interface of another kind is.
const IFF_TUN: i64 = 1;

fn of(name: &str) -> PathBuf {
    PathBuf::from("/sys/class/net").join(name)
}

/// What stands in the way of TUNSETIFF.
pub(super) fn why_not_attached(name: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "it takes root, or CAP_NET_ADMIN".to_owned(),
        Some(libc::EBUSY) => "another process has it".to_owned(),
        Some(libc::EINVAL) => {
            let flags = fs::read_to_string(of(name).join("tun_flags"));
            let digits = flags
                .as_deref()
                .map(|it| it.trim().trim_start_matches("0x"));
            let flags = digits.map(|it| i64::from_str_radix(it, 16));
            let advice = "delete it, or give the port another name";
            match flags {
                Ok(Ok(flags)) if flags & IFF_TUN != 0 => format!(
                    "there is an interface of this name for packets of IP (`mode tun`), and a port \
                     takes one for frames (`mode tap`): {advice}"
                ),
                Ok(Ok(flags)) if flags & i64::from(IFF_TAP) != 0 => format!(
                    "there is a TAP interface of this name that the kernel does not share \
                     (tun_flags {flags:#x}): {advice}"
                ),
                _ => {
                    format!("there is an interface of this name that is no TAP interface: {advice}")
                }
            }
        }
        _ => "the kernel refuses".to_owned(),
    }
}

/// Whether no other process has a queue of an interface to which this one has just attached: it
/// would get some of the frames.
///
/// # Errors
/// Another one has.
pub(super) fn check_alone(name: &str) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(of(name).join("queues")) else {
        return Ok(());
    };
    let names = entries.flatten().map(|it| it.file_name());
    let queues = names
        .filter(|it| it.to_string_lossy().starts_with("tx-"))
        .count();
    ensure!(
        queues <= 1,
        "other processes have {} queues of the interface {name}, and would get some of its frames: \
         end them, or give the port an interface of its own",
        queues - 1
    );
    Ok(())
}
