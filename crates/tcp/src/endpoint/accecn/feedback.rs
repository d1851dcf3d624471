//! The sending half of AccECN: how many segments and bytes have met CE, by the peer's ACE and its
//! option (RFC 9768 3.2.2.5 and appendix A).

use sluicegate_core::number::narrow;

use super::{index, initial};
use crate::segment::{ByteCounters, Field};

/// ACE counts modulo this.
const MODULUS: u32 = 8;
/// ACE begins here (RFC 9768 3.2.1).
const ACE_INITIAL: u32 = 5;
/// An ACK of as many segments leaves ACE's delta open even for an option that speaks of marks.
const MANY: u32 = 2 * MODULUS;
/// The mean of the segments that an ACK acknowledges has weight 1/64 and this unit (Linux).
const MEAN_SHIFT: u32 = 6;
/// With a larger mean long ACKs are the rule here, and no sign that others were lost (Linux).
const COMPRESSED: u32 = 4 << MEAN_SHIFT;

/// What has been acknowledged at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    pub bytes: u32,
    pub packets: u32,
    /// Bytes of a full segment.
    pub mss: u32,
    /// `bytes` is exact: SACK, or no losses.
    pub calm: bool,
}

/// What the peer has told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    pub delivered_ce: u32,
    /// By [`index`].
    pub delivered_bytes: [u32; 3],
    /// The counter that grew when only one did: what comes without an option is added to it.
    usual: Option<Field>,
    /// See [`MEAN_SHIFT`]; 0 = none yet.
    mean_packets: u32,
}

impl Feedback {
    /// An ACK with `ace`, perhaps with `counters`; `seen`: there have been some, and they are
    /// right. Returns how many of the delivered bytes were marked, as far as is known.
    pub fn hear(
        &mut self,
        ace: u8,
        counters: Option<ByteCounters>,
        seen: bool,
        delivered: &Delivered,
    ) -> u32 {
        let before = self.delivered_bytes[index(Field::Ce)];
        let known = match counters {
            Some(counters) => self.read(&counters),
            None => seen && self.assume(delivered.bytes),
        };
        let marked = self.delivered_bytes[index(Field::Ce)].wrapping_sub(before);
        self.note_mean(delivered.packets);
        let packets = self.newly_marked(ace, known.then_some(marked), delivered);
        self.delivered_ce = self.delivered_ce.wrapping_add(packets);
        if packets == 0 {
            return 0;
        }
        if known && marked > 0 {
            return marked.min(delivered.bytes).max(1);
        }
        let bytes = match delivered.packets {
            0 => delivered.mss,
            all => delivered.bytes / all,
        };
        bytes.saturating_mul(packets).max(1)
    }

    /// Takes counters over. True if it is clear which of them have grown by how much.
    fn read(&mut self, counters: &ByteCounters) -> bool {
        let usual = self.usual;
        let (mut clear, mut first) = (usual.is_some(), true);
        let mut ambiguous = false;
        for (field, value) in counters.iter() {
            let known = &mut self.delivered_bytes[index(field)];
            // Of 24 bits, so that an older option that was overtaken counts backwards.
            let delta = value.wrapping_sub(initial(field)).wrapping_sub(*known) << 8;
            let delta = delta as i32 >> 8;
            *known = known.wrapping_add_signed(delta);
            ambiguous |= delta < 0;
            if delta != 0 && usual != Some(field) {
                if std::mem::take(&mut first) {
                    self.usual = Some(field);
                } else {
                    ambiguous = true;
                }
            }
        }
        if ambiguous {
            (self.usual, clear) = (None, false);
        }
        clear
    }

    /// Without an option the bytes are taken for what they usually are.
    fn assume(&mut self, bytes: u32) -> bool {
        let Some(field) = self.usual else {
            return false;
        };
        let known = &mut self.delivered_bytes[index(field)];
        *known = known.wrapping_add(bytes);
        true
    }

    fn note_mean(&mut self, packets: u32) {
        let scaled = packets.min(1 << 16) << MEAN_SHIFT;
        if scaled > 0 {
            self.mean_packets = match self.mean_packets {
                0 => scaled,
                mean => (mean * ((1 << MEAN_SHIFT) - 1) + scaled) >> MEAN_SHIFT,
            };
        }
    }

    /// Segments marked since the last ACK. ACE tells their number modulo 8; where more were
    /// delivered, the safe answer is the largest (RFC 9768 3.2.2.5.2), unless `marked` bytes or the
    /// usual length of ACKs speak against it.
    fn newly_marked(&self, ace: u8, marked: Option<u32>, delivered: &Delivered) -> u32 {
        let packets = delivered.packets;
        let counted = u32::from(ace).wrapping_sub(ACE_INITIAL);
        let delta = counted.wrapping_sub(self.delivered_ce) % MODULUS;
        if packets < MODULUS {
            return delta;
        }
        let safe = packets - (packets - delta) % MODULUS;
        let Some(marked) = marked else {
            return match self.mean_packets > COMPRESSED {
                true => delta,
                false => safe,
            };
        };
        if marked == 0 {
            return delta;
        }
        if packets >= MANY && delivered.calm {
            return self.estimated(delta, safe, marked, delivered);
        }
        if u64::from(marked) > u64::from(delta) * u64::from(delivered.mss) {
            return safe;
        }
        // Fewer than half of the safe number's bytes: it is too many.
        if u64::from(marked) < u64::from(safe) * u64::from(delivered.mss) / 2 {
            return delta;
        }
        safe
    }

    /// The share of the bytes is about that of the segments.
    fn estimated(&self, delta: u32, safe: u32, marked: u32, delivered: &Delivered) -> u32 {
        if delivered.bytes <= marked {
            return safe;
        }
        let share = u64::from(marked) * u64::from(delivered.packets);
        let about = narrow::<u32>(share.div_ceil(delivered.bytes.into()));
        safe.min(delta + about / MODULUS * MODULUS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn delivered(packets: u32) -> Delivered {
        Delivered {
            bytes: packets * MSS,
            packets,
            mss: MSS,
            calm: true,
        }
    }

    /// An option of Linux's order: ECT(1), CE, ECT(0), each since the beginning.
    fn option(ect1: u32, ce: u32, ect0: u32) -> Option<ByteCounters> {
        Some(ByteCounters::new(true, &[ect1 + 1, ce, ect0 + 1]))
    }

    #[test]
    fn ace_tells_of_seven_marks_at_most() {
        let mut feedback = Feedback::default();
        for (ace, all) in [(5, 0), (6, 1), (0, 3), (0, 3), (7, 10)] {
            feedback.hear(ace, None, false, &delivered(7));
            assert_eq!(feedback.delivered_ce, all);
        }
    }

    #[test]
    fn a_long_ack_is_believed_to_tell_of_as_many_marks_as_it_can() {
        let mut feedback = Feedback::default();
        feedback.hear(5, None, false, &delivered(1));
        feedback.hear(5, None, false, &delivered(9));
        assert_eq!(feedback.delivered_ce, 8);
        feedback.hear(6, None, false, &delivered(20));
        assert_eq!(feedback.delivered_ce, 8 + 17);
    }

    #[test]
    fn where_long_acks_are_the_rule_no_more_is_believed_than_they_say() {
        let mut feedback = Feedback::default();
        feedback.hear(6, None, false, &delivered(10));
        assert_eq!(feedback.delivered_ce, 1);
    }

    #[test]
    fn an_option_decides_how_many_marks_a_long_ack_tells_of() {
        let first = |ce: u32, all: u32| {
            let mut feedback = Feedback::default();
            feedback.hear(5, option(0, 0, MSS), true, &delivered(1));
            let ace = ((ce + ACE_INITIAL) % MODULUS) as u8;
            let counters = option(0, ce * MSS, (1 + all - ce) * MSS);
            // Two counters grow: which of them is the usual one is open from here on.
            feedback.usual = Some(Field::Ce);
            let marked = feedback.hear(ace, counters, true, &delivered(all));
            (feedback.delivered_ce, marked)
        };
        assert_eq!(first(0, 12).0, 0);
        assert_eq!(first(9, 12), (9, 9 * MSS));
        assert_eq!(first(1, 12), (1, MSS));
        assert_eq!(first(17, 40), (17, 17 * MSS));
        assert_eq!(first(40, 40), (40, 40 * MSS));
    }

    #[test]
    fn counters_of_24_bits_wrap_and_count_backwards() {
        let mut feedback = Feedback::default();
        feedback.delivered_bytes[index(Field::Ect0)] = 0x00ff_ffff;
        feedback.hear(5, option(0, 0, 0x0100_0000 + 99), true, &delivered(1));
        assert_eq!(feedback.delivered_bytes, [0, 0, 0x0100_0063]);
        assert_eq!(feedback.usual, Some(Field::Ect0));
        feedback.hear(5, option(0, 0, 0x0100_0000), true, &delivered(1));
        assert_eq!(feedback.delivered_bytes, [0, 0, 0x0100_0000]);
        assert_eq!(feedback.usual, None, "an older option");
    }

    #[test]
    fn bytes_without_an_option_are_what_they_usually_are() {
        let mut feedback = Feedback::default();
        feedback.hear(5, None, true, &delivered(1));
        assert_eq!(feedback.delivered_bytes, [0; 3]);
        feedback.hear(5, option(0, 0, 2 * MSS), true, &delivered(1));
        feedback.hear(5, None, true, &delivered(3));
        assert_eq!(feedback.delivered_bytes, [0, 0, 5 * MSS]);
        feedback.hear(5, None, false, &delivered(3));
        assert_eq!(feedback.delivered_bytes, [0, 0, 5 * MSS], "not believed");
    }
}
