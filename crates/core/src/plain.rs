//! Mirrors of C structures as bytes and back: values of the kernel's maps, and what processes of
//! the same build ([`crate::abi::ABI_VERSION`]) tell each other.

#![allow(unsafe_code)]

use crate::abi::{
    Bucket, BucketKey, Config, Flow, FlowKey, HashKey, Interface, Place, PolicyTable, Slot,
    Sweeper, TableShape,
};

/// A type that is nothing but numbers.
///
/// # Safety
/// `repr(C)` without padding, and every pattern of bits is a value.
pub unsafe trait Plain: Copy {}

/// Each has the size of its C structure, which is the sum of its members, and numbers only.
macro_rules! plain {
    ($($type:ty),*) => {
        $(
            // SAFETY: see above.
            unsafe impl Plain for $type {}
        )*
    };
}

plain!(
    u32, u64, Bucket, BucketKey, Config, Flow, FlowKey, HashKey, Interface, Place
);
plain!(PolicyTable, Slot, Sweeper, TableShape);

// SAFETY: numbers, one after the other.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The bytes of a value.
pub fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: no padding, so every byte is initialised; the borrow keeps the value alive.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The value that has these bytes; `None`: they are of another type or another version of it.
pub fn value<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: as many bytes as the type has, and every pattern of bits is a value.
    (bytes.len() == size_of::<T>())
        .then(|| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_way_through_bytes() {
        let number = 0x0123_4567_89ab_cdef_u64;
        assert_eq!(value::<u64>(bytes(&number)), Some(number));
        assert_eq!(value::<u64>(&[1, 2, 3]), None);
        let flow = Flow {
            bytes_acked: 77,
            ..Flow::default()
        };
        assert_eq!(value::<Flow>(bytes(&flow)), Some(flow));
    }
}
