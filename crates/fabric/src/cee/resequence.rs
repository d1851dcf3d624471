//! The receiving side of an adapter: frames that have overtaken others wait for them (the thesis,
//! section 2.5.2).

use std::collections::BTreeMap;

/// The fate of a frame that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is next: take it, and then all frames that [`Resequencer::take_next`] gives.
    Next,
    /// Earlier ones are missing: it is kept, until this time at the latest if that is new.
    Kept(Option<u64>),
    /// The resequencer does not wait for it any more: it came too late, or twice. Take it as it is.
    Late,
}

/// Frames of one source in one priority.
#[derive(Clone, Debug, Default)]
pub struct Resequencer<T> {
    expected: u32,
    kept: BTreeMap<u32, T>,
    /// When the adapter stops waiting for the missing frames.
    until_ps: Option<u64>,
    /// When the last frame that was next arrived: the one that is missing now was not before.
    last_ps: u64,
}

impl<T: Copy> Resequencer<T> {
    /// A frame with this number arrives. Frames behind a missing one are kept for `patience_ps` at
    /// most.
    pub fn arrive(&mut self, number: u32, frame: T, now_ps: u64, patience_ps: u64) -> Verdict {
        let ahead = number.wrapping_sub(self.expected) as i32;
        if ahead < 0 || self.kept.contains_key(&number) {
            return Verdict::Late;
        }
        if ahead == 0 {
            self.expected = self.expected.wrapping_add(1);
            self.last_ps = now_ps;
            return Verdict::Next;
        }
        self.kept.insert(number, frame);
        if self.until_ps.is_some() {
            return Verdict::Kept(None);
        }
        let until_ps = now_ps.saturating_add(patience_ps);
        self.until_ps = Some(until_ps);
        Verdict::Kept(Some(until_ps))
    }

    /// The frame that is next in order, if it is there. The time is when to call
    /// [`Resequencer::give_up`] if others are missing now.
    pub fn take_next(&mut self) -> Option<T> {
        let frame = self.kept.remove(&self.expected)?;
        self.expected = self.expected.wrapping_add(1);
        if self.kept.is_empty() {
            self.until_ps = None;
        }
        Some(frame)
    }

    /// Stops waiting for missing frames whose time is over: the first kept frame becomes the next
    /// one. Returns the time of the next call, if there is something to wait for.
    pub fn give_up(&mut self, now_ps: u64, patience_ps: u64) -> Option<u64> {
        let until_ps = self.until_ps?;
        let until_ps = until_ps.max(self.last_ps.saturating_add(patience_ps));
        if until_ps > now_ps {
            self.until_ps = Some(until_ps);
            return self.until_ps;
        }
        self.skip()?;
        self.until_ps = Some(now_ps.saturating_add(patience_ps));
        self.until_ps
    }

    /// Stops waiting for missing frames: the first kept frame becomes the next one. `None` if no
    /// frame is kept.
    pub fn skip(&mut self) -> Option<()> {
        // Numbers wrap: the nearest ahead is the first.
        let expected = self.expected;
        let ahead = |number: &u32| number.wrapping_sub(expected);
        self.expected = self.kept.keys().copied().min_by_key(ahead)?;
        Some(())
    }

    /// The number of kept frames.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take(resequencer: &mut Resequencer<u32>, out: &mut Vec<u32>) {
        while let Some(frame) = resequencer.take_next() {
            out.push(frame);
        }
    }

    proptest! {
        /// Whatever overtakes what, frames come out in order, and all of them.
        #[test]
        fn any_order_becomes_the_right_one(mut order in Just((0u32..60).collect::<Vec<_>>()).prop_shuffle()) {
            let (mut resequencer, mut out) = (Resequencer::default(), Vec::new());
            for (at, number) in order.drain(..).enumerate() {
                if resequencer.arrive(number, number, at as u64, u64::MAX) == Verdict::Next {
                    out.push(number);
                    take(&mut resequencer, &mut out);
                }
            }
            prop_assert_eq!(out, (0..60).collect::<Vec<_>>());
            prop_assert_eq!(resequencer.kept(), 0);
        }
    }

    proptest! {
        /// With a bounded buffer, too, each frame comes out once; only what was missing when the
        /// buffer was full is late.
        #[test]
        fn a_full_buffer_loses_nothing(
            order in Just((0u32..60).collect::<Vec<_>>()).prop_shuffle(),
            most in 1usize..20,
        ) {
            let (mut resequencer, mut out, mut late) = (Resequencer::default(), Vec::new(), 0);
            for number in order {
                match resequencer.arrive(number, number, 0, u64::MAX) {
                    Verdict::Next => {
                        out.push(number);
                        take(&mut resequencer, &mut out);
                    }
                    Verdict::Late => {
                        out.push(number);
                        late += 1;
                    }
                    Verdict::Kept(_) if resequencer.kept() > most => {
                        resequencer.skip();
                        take(&mut resequencer, &mut out);
                    }
                    Verdict::Kept(_) => {}
                }
                prop_assert!(resequencer.kept() <= most);
            }
            prop_assert_eq!(resequencer.kept(), 0);
            let backwards = out.windows(2).filter(|pair| pair[0] > pair[1]).count();
            prop_assert!(backwards <= late, "{backwards} steps back, {late} late");
            out.sort_unstable();
            prop_assert_eq!(out, (0..60).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_lost_is_given_up_in_time() {
        let (mut resequencer, mut out) = (Resequencer::default(), Vec::new());
        assert_eq!(resequencer.arrive(0, 0, 0, 100), Verdict::Next);
        assert_eq!(resequencer.arrive(2, 2, 10, 100), Verdict::Kept(Some(110)));
        assert_eq!(resequencer.arrive(3, 3, 20, 100), Verdict::Kept(None));
        assert_eq!(resequencer.give_up(50, 100), Some(110), "not yet");
        take(&mut resequencer, &mut out);
        assert!(out.is_empty());
        assert_eq!(resequencer.give_up(110, 100), Some(210));
        take(&mut resequencer, &mut out);
        assert_eq!(out, [2, 3]);
        assert_eq!(resequencer.give_up(210, 100), None, "nothing is missing");
        assert_eq!(resequencer.arrive(1, 1, 220, 100), Verdict::Late);
    }

    #[test]
    fn numbers_wrap() {
        let mut resequencer = Resequencer {
            expected: u32::MAX,
            ..Resequencer::default()
        };
        assert!(matches!(resequencer.arrive(0, 0, 0, 9), Verdict::Kept(_)));
        assert_eq!(resequencer.arrive(u32::MAX, u32::MAX, 0, 9), Verdict::Next);
        assert_eq!(resequencer.take_next(), Some(0));
    }
}
