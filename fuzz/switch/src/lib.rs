//! The host's switch under libFuzzer: what hostile guests write into their rings ([`rings`]), what
//! hostile frontends say ([`messages`]), and what hostile peers do at the other end of a cable
//! ([`cables`]). Two honest guests are at the same switch, and must notice nothing. The program's
//! name says which of them it is.

mod cables;
mod guest;
mod input;
mod messages;
mod rings;

use std::{
    cell::RefCell,
    ffi::{CStr, c_char, c_int},
    slice,
    sync::atomic::{AtomicU8, Ordering},
};

const RINGS: u8 = 0;
const MESSAGES: u8 = 1;
const CABLES: u8 = 2;

static TARGET: AtomicU8 = AtomicU8::new(RINGS);

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
    let target = match name.to_bytes() {
        name if name.ends_with(b"messages") => MESSAGES,
        name if name.ends_with(b"cables") => CABLES,
        _ => RINGS,
    };
    TARGET.store(target, Ordering::Relaxed);
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
        static OF_RINGS: RefCell<Option<rings::World>> = const { RefCell::new(None) };
        static OF_MESSAGES: RefCell<Option<messages::World>> = const { RefCell::new(None) };
        static OF_CABLES: RefCell<Option<cables::World>> = const { RefCell::new(None) };
    }
    let bytes = match size {
        0 => &[][..],
        // SAFETY: as the caller promises.
        _ => unsafe { slice::from_raw_parts(data, size) },
    };
    let input = input::Input(bytes);
    match TARGET.load(Ordering::Relaxed) {
        MESSAGES => OF_MESSAGES
            .with_borrow_mut(|world| world.get_or_insert_with(messages::World::new).run(input)),
        CABLES => OF_CABLES
            .with_borrow_mut(|world| world.get_or_insert_with(cables::World::new).run(input)),
        _ => {
            OF_RINGS.with_borrow_mut(|world| world.get_or_insert_with(rings::World::new).run(input))
        }
    }
    0
}
