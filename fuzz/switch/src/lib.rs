//! The host's switch under libFuzzer: what hostile guests write into their rings ([`rings`]), and
//! what hostile frontends say ([`messages`]). Two honest guests are at the same switch, and must
//! notice nothing. The program's name says which of the two it is.

mod guest;
mod input;
mod messages;
mod rings;

use std::{
    cell::RefCell,
    ffi::{CStr, c_char, c_int},
    slice,
    sync::atomic::{AtomicBool, Ordering},
};

static IS_MESSAGES: AtomicBool = AtomicBool::new(false);

/// Called by libFuzzer at the beginning.
///
/// # Safety
/// `arguments` has a program's arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerInitialize(
    _: *mut c_int,
    arguments: *mut *mut *mut c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(**arguments) };
    IS_MESSAGES.store(name.to_bytes().ends_with(b"messages"), Ordering::Relaxed);
    // As in every program of Rust.
    // SAFETY: no handler runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    0
}

/// Called by libFuzzer with each input.
///
/// # Safety
/// `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> c_int {
    thread_local! {
        static RINGS: RefCell<Option<rings::World>> = const { RefCell::new(None) };
        static MESSAGES: RefCell<Option<messages::World>> = const { RefCell::new(None) };
    }
    let bytes = match size {
        0 => &[][..],
        // SAFETY: as the caller promises.
        _ => unsafe { slice::from_raw_parts(data, size) },
    };
    let input = input::Input(bytes);
    if IS_MESSAGES.load(Ordering::Relaxed) {
        MESSAGES.with_borrow_mut(|world| world.get_or_insert_with(messages::World::new).run(input));
    } else {
        RINGS.with_borrow_mut(|world| world.get_or_insert_with(rings::World::new).run(input));
    }
    0
}
