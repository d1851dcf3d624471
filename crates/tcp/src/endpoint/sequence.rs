//! Sequence numbers without wrap-around: an offset of 64 bits whose low half is what the wire
//! shows.

use sluicegate_core::number::low_half;

/// Offset of a connection's initial sequence number. 2³² more than on the wire, so that what lies
/// before it is no negative number.
pub fn first(isn: u32) -> u64 {
    (1 << 32) + u64::from(isn)
}

/// The sequence number on the wire.
pub fn wire(offset: u64) -> u32 {
    low_half(offset)
}

/// The offset nearest to `near` that the wire shows as `wire`.
pub fn unwrap(wire: u32, near: u64) -> u64 {
    let distance = wire.wrapping_sub(low_half(near)) as i32;
    near.wrapping_add_signed(i64::from(distance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwrap_finds_the_nearest_on_both_sides_of_a_wrap() {
        let near = first(u32::MAX - 5);
        assert_eq!(unwrap(u32::MAX - 5, near), near);
        assert_eq!(unwrap(4, near), near + 10);
        assert_eq!(unwrap(u32::MAX - 15, near), near - 10);
        let near = near + 10;
        assert_eq!(unwrap(u32::MAX, near), near - 5);
        assert_eq!(wire(near), 4);
    }

    #[test]
    fn unwrap_before_the_initial_number_does_not_underflow() {
        let near = first(0);
        assert_eq!(unwrap(u32::MAX, near), near - 1);
        assert_eq!(unwrap(1 << 31, near), near - (1 << 31));
    }
}
