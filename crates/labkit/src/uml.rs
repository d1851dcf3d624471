//! Kernels of User-Mode Linux on machines whose CPUs have more registers than they know.
//!
//! Such a kernel keeps the vector registers of its processes by `PTRACE_SETREGSET` with
//! `NT_X86_XSTATE`, in 2696 bytes (`HOST_FP_SIZE` of Linux 6.1). A machine with AMX has 11008, and
//! refuses fewer (EFAULT), so that the guest's init is killed at once: "userspace - ptrace set fp
//! regs failed, errno = 14". `c/uml_xstate.c`, preloaded, sets them in the machine's length.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Write},
    os::fd::{AsRawFd, FromRawFd},
    process::Command,
};

/// Bytes of extended state that Linux 6.1 as User-Mode Linux has room for.
const ROOM_BYTES: u32 = 2696;

/// The preloaded library.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/uml_xstate.so"));
const NAME: &CStr = c"uml_xstate.so";

/// Lets `command` be a kernel of User-Mode Linux on this machine, also below programs such as
/// `unshare`. The file has to be kept until the command runs.
///
/// # Errors
/// No memory for a file of some KB.
pub fn adapt(command: &mut Command) -> io::Result<Option<File>> {
    if extended_state_bytes() <= ROOM_BYTES {
        return Ok(None);
    }
    // Inherited by the command: no close on exec.
    // SAFETY: the name ends with 0.
    let fd = unsafe { libc::memfd_create(NAME.as_ptr(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has made the descriptor, and no other value owns it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(LIBRARY)?;
    command.env("LD_PRELOAD", format!("/proc/self/fd/{}", file.as_raw_fd()));
    Ok(Some(file))
}

/// Bytes of the extended state of a process here (CPUID leaf 0DH); 0 where there is none.
#[cfg(target_arch = "x86_64")]
fn extended_state_bytes() -> u32 {
    use std::arch::x86_64::__cpuid_count;
    // SAFETY: every CPU of 64 bits has CPUID; leaf 0 says which others there are.
    #[allow(unused_unsafe)]
    unsafe {
        match __cpuid_count(0, 0).eax {
            0..0xd => 0,
            _ => __cpuid_count(0xd, 0).ebx,
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn extended_state_bytes() -> u32 {
    0
}
