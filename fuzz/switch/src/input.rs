//! The bytes of an input, read one after the other; behind its end there are zeros.

/// An input.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether something is left.
    pub fn has_more(&self) -> bool {
        !self.0.is_empty()
    }

    /// At most so many bytes.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (mut all, some) = ([0; N], self.bytes(N));
        all[..some.len()].copy_from_slice(some);
        all
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// 16 bits.
    pub fn half(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// 64 bits, by turns: near the bounds of numbers, or any.
    pub fn word(&mut self) -> u64 {
        match self.byte() % 4 {
            0 => u64::from(self.byte()),
            1 => u64::from(self.byte()).wrapping_neg(),
            2 => 1 << (self.byte() % 64),
            _ => u64::from_le_bytes(self.array()),
        }
    }
}
