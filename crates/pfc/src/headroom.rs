//! Headroom: the room of a lossless priority above XOFF (IEEE 802.1Q, annex N).

use crate::CONTROL_BYTES;

const PS_PER_S: u64 = 1_000_000_000_000;

/// A direction of a link, as far as headroom depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bits per second, both ways.
    pub rate_bps: u64,
    /// From the sender's output to the receiver's decision to pause, the last bit's or the
    /// header's.
    pub there_ps: u64,
    /// From the receiver's output to the end of the pause frame at the sender.
    pub back_ps: u64,
    /// The longest frame.
    pub frame_bytes: u32,
}

impl Span {
    /// Bytes that may still come after an input has passed XOFF, and what made it pass: the frame
    /// that did, those on the wire, and those sent while the pause frame waits for the one before
    /// it, crosses the link and is obeyed.
    pub fn headroom_bytes(&self, cut_through: bool, response_ps: u64) -> u64 {
        let flight = self.flight_bytes(self.there_ps + self.back_ps + response_ps);
        // The frame before the pause frame, and the one that its obedience comes too late for.
        // Where a switch hears of a frame by its header, the frame that passes XOFF is sent in that
        // time, too.
        let frames = if cut_through { 2 } else { 3 };
        flight + u64::from(CONTROL_BYTES) + frames * u64::from(self.frame_bytes)
    }

    /// The same where a pause takes effect before the sender's next frame, without a frame of its
    /// own: what is on the wire, and the end of the frame that is being sent. `back_ps` is of no
    /// account.
    pub fn ideal_headroom_bytes(&self, cut_through: bool) -> u64 {
        // The frame that passes XOFF is on the wire still where a switch hears of it by its header.
        let frames = if cut_through { 1 } else { 2 };
        self.flight_bytes(self.there_ps) + frames * u64::from(self.frame_bytes)
    }

    fn flight_bytes(&self, flight_ps: u64) -> u64 {
        let bits = u128::from(flight_ps) * u128::from(self.rate_bps);
        let bytes = bits.div_ceil(8 * u128::from(PS_PER_S));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The headroom in a memory of cells, each of which belongs to one frame: the most bytes of
    /// cells that [`Span::headroom_bytes`] can take. Short frames take most: what is on the wire
    /// counts as frames of `least_bytes`, each in a cell of its own; the longest frames, each of
    /// which has `header_bytes` more there, take the cells that they need.
    pub fn headroom_cell_bytes(&self, response_ps: u64, cells: Cells) -> u64 {
        let flight = self.flight_bytes(self.there_ps + self.back_ps + response_ps);
        let short = (flight + u64::from(CONTROL_BYTES)).div_ceil(cells.least_bytes.max(1).into());
        let long = cells.of(self.frame_bytes) * 3;
        (short * cells.of(cells.least_bytes) + long) * u64::from(cells.cell_bytes)
    }
}

/// A memory of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    /// Bytes of a cell, > 0.
    pub cell_bytes: u32,
    /// Bytes that lie in front of each frame there.
    pub header_bytes: u32,
    /// The shortest frame on the wire, > 0.
    pub least_bytes: u32,
}

impl Cells {
    /// Cells of a frame.
    pub fn of(&self, frame_bytes: u32) -> u64 {
        u64::from((frame_bytes + self.header_bytes).div_ceil(self.cell_bytes.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Gbit/s, 100 m of cable each way (5 ns/m).
    const SPAN: Span = Span {
        rate_bps: 10_000_000_000,
        there_ps: 500_000,
        back_ps: 500_000,
        frame_bytes: 1518,
    };

    #[test]
    fn headroom_is_flight_control_frame_and_whole_frames() {
        // 1 µs at 10 Gbit/s are 1250 bytes.
        assert_eq!(SPAN.headroom_bytes(false, 0), 1250 + 64 + 3 * 1518);
        assert_eq!(SPAN.headroom_bytes(true, 0), 1250 + 64 + 2 * 1518);
        assert_eq!(
            SPAN.headroom_bytes(false, 1_000_000),
            2 * 1250 + 64 + 3 * 1518
        );
        assert_eq!(SPAN.ideal_headroom_bytes(false), 625 + 2 * 1518);
    }

    #[test]
    fn short_frames_take_a_cell_each() {
        let cells = Cells {
            cell_bytes: 2048,
            header_bytes: 12,
            least_bytes: 64,
        };
        // 1314 bytes are 21 of the shortest frames, and each of three long ones takes one cell.
        assert_eq!(SPAN.headroom_cell_bytes(0, cells), (21 + 3) * 2048);
        let long = Span {
            frame_bytes: 9018,
            ..SPAN
        };
        assert_eq!(long.headroom_cell_bytes(0, cells), (21 + 3 * 5) * 2048);
    }
}
