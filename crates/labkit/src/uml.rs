//! Kernels of User-Mode Linux on machines whose CPUs have more registers than they know.
//!
//! Such a kernel keeps the vector registers of its processes by `PTRACE_SETREGSET` with
//! `NT_X86_XSTATE`, in 2696 bytes (`HOST_FP_SIZE` of Linux 6.1). A machine with AMX has 11008, and
//! refuses fewer (EFAULT), so that the guest's init is killed at once: "userspace - ptrace set fp
//! regs failed, errno = 14". A kernel that finds no such set at its start keeps what FXSAVE has.

use std::{io, os::unix::process::CommandExt, process::Command};

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JUMP, BPF_K, BPF_LD, BPF_RET, BPF_STMT, BPF_W,
    SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter, sock_fprog,
};

/// Bytes of extended state that Linux 6.1 as User-Mode Linux has room for.
const ROOM_BYTES: u32 = 2696;

/// `PTRACE_GETREGSET`, `PTRACE_SETREGSET` and the note of the set in question (`linux/ptrace.h`,
/// `linux/elf.h`).
const GETREGSET: u32 = 0x4204;
const SETREGSET: u32 = 0x4205;
const XSTATE: u32 = 0x202;

/// Instructions that glibc leaves out, since their registers are common to the threads of a guest's
/// process where FXSAVE alone is kept.
const WITHOUT_VECTORS: &str = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,\
    -AVX512BW,-ERMS";

/// Lets `command` be a kernel of User-Mode Linux on this machine, also below programs such as
/// `unshare`. To be called before arguments for the guest's init are added (behind `--`).
pub fn adapt(command: &mut Command) {
    if extended_state_bytes() <= ROOM_BYTES {
        return;
    }
    command.arg(WITHOUT_VECTORS);
    // SAFETY: two plain system calls, safe between fork and exec.
    unsafe { command.pre_exec(hide_extended_state) };
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

/// From here on `ptrace` says EIO to who asks for the extended state.
fn hide_extended_state() -> io::Result<()> {
    let load = |at: usize| step(BPF_LD | BPF_W | BPF_ABS, at);
    // Offsets of `struct seccomp_data`: the call's number, then its arguments, low halves first.
    let mut filter = [
        load(0),
        equal(libc::SYS_ptrace, 0, 5),
        load(16 + 2 * 8),
        equal(XSTATE.into(), 0, 3),
        load(16),
        equal(GETREGSET.into(), 2, 0),
        equal(SETREGSET.into(), 1, 0),
        step(BPF_RET | BPF_K, SECCOMP_RET_ALLOW as usize),
        step(
            BPF_RET | BPF_K,
            SECCOMP_RET_ERRNO as usize | libc::EIO as usize,
        ),
    ];
    let program = sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its steps live until the calls have ended.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) != 0
    };
    match refused {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}

fn step(code: u32, value: usize) -> sock_filter {
    // SAFETY: makes a value of its arguments.
    unsafe { BPF_STMT(code as u16, value as u32) }
}

fn equal(value: i64, then: u8, else_: u8) -> sock_filter {
    // SAFETY: makes a value of its arguments.
    unsafe {
        BPF_JUMP(
            (BPF_JMP | BPF_JEQ | BPF_K) as u16,
            value as u32,
            then,
            else_,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The set of this process's tracee, asked for by a program that a filter was put on.
    #[test]
    fn extended_state_is_hidden_and_nothing_else() {
        // A child that stops is traced by another one, which has the filter.
        let asked = |request: i64, note: u64| -> i32 {
            // SAFETY: after fork only system calls are made, until the process ends.
            match unsafe { libc::fork() } {
                0 => unsafe {
                    let hidden = hide_extended_state().is_ok();
                    let failed = libc::syscall(libc::SYS_ptrace, request, 1, note, 0) == -1;
                    let errno = *libc::__errno_location();
                    libc::_exit(if hidden && failed { errno } else { 255 })
                },
                child => {
                    let mut status = 0;
                    unsafe { libc::waitpid(child, &mut status, 0) };
                    libc::WEXITSTATUS(status)
                }
            }
        };
        let nobody_is_traced = libc::ESRCH;
        assert_eq!(asked(GETREGSET.into(), XSTATE.into()), libc::EIO);
        assert_eq!(asked(SETREGSET.into(), XSTATE.into()), libc::EIO);
        assert_eq!(asked(GETREGSET.into(), 1), nobody_is_traced);
        assert_eq!(asked(16, XSTATE.into()), libc::EPERM);
    }
}
