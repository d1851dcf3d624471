//! Values of maps as Rust structs and back.

use anyhow::{Result, bail};

/// A type that is nothing but numbers.
///
/// # Safety
/// `repr(C)` without padding, and every pattern of bits is a value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: a number.
unsafe impl Plain for u64 {}
// SAFETY: numbers, one after the other.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The bytes of a value, as the kernel stores it.
pub(crate) fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: no padding, so every byte is initialised; the borrow keeps the value alive.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The value that the kernel stored as `bytes`.
///
/// # Errors
/// The sizes differ: these bytes are of another type or of another version of it.
pub(crate) fn value<T: Plain>(bytes: &[u8]) -> Result<T> {
    if bytes.len() != size_of::<T>() {
        bail!(
            "a map's value has {} bytes, this build expects {}",
            bytes.len(),
            size_of::<T>()
        );
    }
    // SAFETY: as many bytes as the type has, and every pattern of bits is a value.
    Ok(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_way_through_bytes() {
        assert_eq!(
            value::<u64>(bytes(&0x0123_4567_89ab_cdef_u64)).unwrap(),
            0x0123_4567_89ab_cdef
        );
        assert!(value::<u64>(&[1, 2, 3]).is_err());
    }
}
