//! Conversions between numbers, by names that say what becomes of a value that does not fit.
//!
//! `as` drops bits without a word, and a `debug_assert` guards only builds that nobody measures
//! with. So crates that packets pass through deny `clippy::cast_possible_truncation` and convert
//! here. Where each packet converts, a wider type is cheaper than a check.
#![allow(clippy::cast_possible_truncation)]

use std::fmt::Display;

const _: () = assert!(usize::BITS == 64, "numbers of 64 bits index memory");

/// A number of a narrower type.
///
/// # Panics
/// If it does not fit, in every build: whoever accepts input bounds it, so this is an error of the
/// program, and a wrapped number would become a wrong result.
#[inline(always)]
#[track_caller]
pub fn narrow<T>(number: impl TryInto<T> + Copy + Display) -> T {
    match number.try_into() {
        Ok(narrowed) => narrowed,
        Err(_) => does_not_fit(&number, std::any::type_name::<T>()),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn does_not_fit(number: &dyn Display, kind: &str) -> ! {
    panic!("{number} does not fit into {kind}: a bound is missing where it was read")
}

/// The number of something in a list of fewer than 2^32; [`narrow`] where constants are made.
///
/// # Panics
/// If the list is longer.
#[inline(always)]
#[track_caller]
pub const fn ordinal(index: usize) -> u32 {
    assert!(
        index <= u32::MAX as usize,
        "a list has more than 2^32 entries"
    );
    index as u32
}

/// The number, or the largest of the narrower type.
#[inline(always)]
pub fn at_most<T: Bounded>(number: impl TryInto<T>) -> T {
    number.try_into().unwrap_or(T::MAX)
}

/// Types that have a largest number.
pub trait Bounded {
    /// It.
    const MAX: Self;
}

macro_rules! bounded {
    ($($kind:ty)*) => {$(
        impl Bounded for $kind {
            const MAX: Self = <$kind>::MAX;
        }
    )*};
}

bounded!(u8 u16 u32 u64 usize);

/// The low 8 bits; the others are dropped on purpose.
#[inline(always)]
pub const fn low_8(number: u64) -> u8 {
    number as u8
}

/// The low 16 bits; the others are dropped on purpose.
#[inline(always)]
pub const fn low_16(number: u64) -> u16 {
    number as u16
}

/// The low 32 bits; the others are dropped on purpose: of sequence numbers, hashes and drawn bits.
#[inline(always)]
pub const fn low_half(number: u64) -> u32 {
    number as u32
}

/// The high 32 bits.
#[inline(always)]
pub const fn high_half(number: u64) -> u32 {
    (number >> 32) as u32
}

/// The low 64 bits; the others are dropped on purpose.
#[inline(always)]
pub const fn low_64(number: u128) -> u64 {
    number as u64
}

/// The whole part; 0 of what is negative or no number, `u64::MAX` of what is larger.
#[inline(always)]
#[allow(clippy::cast_sign_loss)]
pub const fn whole(number: f64) -> u64 {
    number as u64
}

/// A number of 64 bits as an index: no machine that this runs on has shorter ones.
#[inline(always)]
pub const fn index(number: u64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays() {
        assert_eq!(narrow::<u16>(65_535_u32), 65_535);
        assert_eq!(narrow::<u8>(0_i64), 0);
        assert_eq!(at_most::<u16>(65_536_u64), u16::MAX);
        assert_eq!(at_most::<u16>(7_u64), 7);
    }

    #[test]
    #[should_panic(expected = "65536 does not fit into u16")]
    fn what_does_not_fit_is_an_error_in_every_build() {
        let _: u16 = narrow(65_536_u32);
    }

    #[test]
    fn halves_and_whole_parts() {
        let number = 0x0123_4567_89ab_cdef;
        assert_eq!(
            (high_half(number), low_half(number)),
            (0x0123_4567, 0x89ab_cdef)
        );
        assert_eq!((low_16(number), low_8(number)), (0xcdef, 0xef));
        assert_eq!(low_64(u128::from(number) | 1 << 64), number);
        assert_eq!((whole(2.9), whole(-1.0), whole(f64::NAN)), (2, 0, 0));
        assert_eq!((whole(1e30), index(3)), (u64::MAX, 3));
    }
}
