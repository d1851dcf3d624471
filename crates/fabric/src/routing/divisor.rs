//! Division by a constant.

/// Division of numbers below 2^18 by a constant: a product.
#[derive(Clone, Copy, Debug)]
pub struct Divisor(u64);

impl Divisor {
    /// The numbers that are divided are below this one.
    pub const END: u32 = 1 << 18;

    /// By `divisor`, 1..=2^18.
    pub fn by(divisor: u32) -> Self {
        Self((1u64 << 36).div_ceil(u64::from(divisor.max(1))))
    }

    /// The quotient of a number below 2^18.
    #[inline]
    pub fn divide(self, number: u32) -> u32 {
        ((u64::from(number) * self.0) >> 36) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_divides_exactly() {
        for divisor in (1..300).chain([1_000, 4_096, 65_535, 65_536, 100_003, 262_143, 262_144]) {
            let product = Divisor::by(divisor);
            for number in (0..1 << 18).step_by(7).chain((1 << 18) - 9..1 << 18) {
                assert_eq!(
                    product.divide(number),
                    number / divisor,
                    "{number} / {divisor}"
                );
            }
        }
    }
}
