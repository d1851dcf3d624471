//! Payload that proves itself: the byte at offset `i` of a stream is a fixed function of `i`.

/// Length after which the pattern repeats: a prime, so that a shift by any usual size shows.
const PERIOD: usize = 65_521;

/// Bytes that one write takes at most.
pub const CHUNK: usize = 256 * 1024;

/// The repeating pattern, long enough to be sliced at any phase.
pub struct Pattern {
    bytes: Vec<u8>,
}

impl Default for Pattern {
    fn default() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut period = Vec::with_capacity(PERIOD);
        for _ in 0..PERIOD {
            // xorshift64 (Marsaglia 2003): any sequence without short cycles will do.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            period.push((state >> 32) as u8);
        }
        let bytes = period
            .iter()
            .copied()
            .cycle()
            .take(PERIOD + CHUNK)
            .collect();
        Self { bytes }
    }
}

impl Pattern {
    /// The bytes from offset `position` of a stream, at most [`CHUNK`] and at most `length`.
    pub fn at(&self, position: u64, length: u64) -> &[u8] {
        let phase = (position % PERIOD as u64) as usize;
        &self.bytes[phase..phase + length.min(CHUNK as u64) as usize]
    }

    /// Offset within `data` of the first byte that differs, if `data` was received at `position`.
    pub fn mismatch(&self, position: u64, data: &[u8]) -> Option<usize> {
        let mut done = 0;
        for part in data.chunks(CHUNK) {
            let expected = self.at(position + done as u64, part.len() as u64);
            if part != expected {
                let at = part.iter().zip(expected).position(|(a, b)| a != b)?;
                return Some(done + at);
            }
            done += part.len();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_matches_itself_and_shows_a_flipped_bit() {
        let pattern = Pattern::default();
        let mut stream = Vec::new();
        while stream.len() < 3 * CHUNK {
            stream.extend_from_slice(pattern.at(stream.len() as u64, 10_007));
        }
        assert_eq!(pattern.mismatch(0, &stream), None);
        stream[2 * CHUNK + 5] ^= 1;
        assert_eq!(pattern.mismatch(0, &stream), Some(2 * CHUNK + 5));
    }

    #[test]
    fn shift_by_a_segment_shows() {
        let pattern = Pattern::default();
        for shift in [1, 1448, 1460, 4096, 65_536] {
            assert!(
                pattern.mismatch(shift, pattern.at(0, 9000)).is_some(),
                "{shift}"
            );
        }
    }
}
