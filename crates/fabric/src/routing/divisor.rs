//! Division by a constant.

/// Division of numbers below 2^16 by a constant: a product.
#[derive(Clone, Copy, Debug)]
pub struct Divisor(u64);

impl Divisor {
    /// By `divisor`, 1..=2^16.
    pub fn by(divisor: u32) -> Self {
        Self((1u64 << 32).div_ceil(u64::from(divisor.max(1))))
    }

    /// The quotient of a number below 2^16.
    #[inline]
    pub fn divide(self, number: u32) -> u32 {
        ((u64::from(number) * self.0) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_divides_exactly() {
        for divisor in (1..300).chain([1_000, 4_096, 65_535, 65_536]) {
            let product = Divisor::by(divisor);
            for number in 0..1 << 16 {
                assert_eq!(
                    product.divide(number),
                    number / divisor,
                    "{number} / {divisor}"
                );
            }
        }
    }
}
