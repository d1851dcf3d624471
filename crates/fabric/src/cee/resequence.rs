//! The receiving side of an adapter: frames that have overtaken others wait for them (the thesis,
//! section 2.5.2).

use std::collections::VecDeque;

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
    /// With their numbers, in the order of these from `expected` on. Most frames that are kept
    /// belong at the end.
    kept: VecDeque<(u32, T)>,
    /// When the adapter stops waiting for the missing frames.
    until_ps: Option<u64>,
    /// When the last frame that was next arrived: the one that is missing now was not before.
    last_ps: u64,
}

impl<T: Copy> Resequencer<T> {
    /// A frame with this number arrives. Frames behind a missing one are kept for `patience_ps` at
    /// most.
    #[inline]
    pub fn arrive(&mut self, number: u32, frame: T, now_ps: u64, patience_ps: u64) -> Verdict {
        let ahead = number.wrapping_sub(self.expected);
        if ahead == 0 && self.kept.is_empty() {
            return self.next(now_ps);
        }
        // Half of the numbers lie behind.
        let place = match self.place(number) {
            Ok(place) if ahead <= i32::MAX as u32 => place,
            _ => return Verdict::Late,
        };
        if ahead == 0 {
            return self.next(now_ps);
        }
        self.kept.insert(place, (number, frame));
        if self.until_ps.is_some() {
            return Verdict::Kept(None);
        }
        let until_ps = now_ps.saturating_add(patience_ps);
        self.until_ps = Some(until_ps);
        Verdict::Kept(Some(until_ps))
    }

    fn next(&mut self, now_ps: u64) -> Verdict {
        self.expected = self.expected.wrapping_add(1);
        self.last_ps = now_ps;
        Verdict::Next
    }

    /// Where a frame belongs among the kept ones; an error if one with its number is kept.
    fn place(&self, number: u32) -> Result<usize, usize> {
        let expected = self.expected;
        // Numbers wrap: those ahead are in order.
        let ahead = |number: u32| number.wrapping_sub(expected);
        match self.kept.back() {
            Some(&(last, _)) if ahead(last) < ahead(number) => Ok(self.kept.len()),
            _ => {
                let key = |&(number, _): &(u32, T)| ahead(number);
                match self.kept.binary_search_by_key(&ahead(number), key) {
                    Ok(at) => Err(at),
                    Err(at) => Ok(at),
                }
            }
        }
    }

    /// The frame that is next in order, if it is there. The time is when to call
    /// [`Resequencer::give_up`] if others are missing now.
    pub fn take_next(&mut self) -> Option<T> {
        let &(number, frame) = self.kept.front()?;
        if number != self.expected {
            return None;
        }
        self.kept.pop_front();
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
        (self.expected, _) = *self.kept.front()?;
        Some(())
    }

    /// Whether no frame is kept.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The number of kept frames.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What a resequencer does, by a map instead of a queue in order.
    #[derive(Default)]
    struct Model {
        expected: u32,
        kept: BTreeMap<u32, u32>,
        until_ps: Option<u64>,
        last_ps: u64,
    }

    impl Model {
        fn arrive(&mut self, number: u32, frame: u32, now_ps: u64, patience_ps: u64) -> Verdict {
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
            let is_new = self.until_ps.is_none();
            let until_ps = *self.until_ps.get_or_insert(now_ps + patience_ps);
            Verdict::Kept(is_new.then_some(until_ps))
        }

        fn take_next(&mut self) -> Option<u32> {
            let frame = self.kept.remove(&self.expected)?;
            self.expected = self.expected.wrapping_add(1);
            if self.kept.is_empty() {
                self.until_ps = None;
            }
            Some(frame)
        }

        fn give_up(&mut self, now_ps: u64, patience_ps: u64) -> Option<u64> {
            let until_ps = self.until_ps?.max(self.last_ps + patience_ps);
            self.until_ps = Some(until_ps);
            if until_ps <= now_ps {
                self.skip()?;
                self.until_ps = Some(now_ps + patience_ps);
            }
            self.until_ps
        }

        fn skip(&mut self) -> Option<()> {
            let expected = self.expected;
            let ahead = |number: &u32| number.wrapping_sub(expected);
            self.expected = self.kept.keys().copied().min_by_key(ahead)?;
            Some(())
        }
    }

    proptest! {
        /// Frames late, twice, far ahead and around the greatest number; time passes, and the
        /// buffer is full now and then: the model says the same of each.
        #[test]
        fn it_does_what_a_map_does(
            first in prop_oneof![Just(0u32), Just(u32::MAX - 20), any::<u32>()],
            steps in proptest::collection::vec((0u8..8, 0u32..24, 0u64..40), 0..200),
        ) {
            let mut resequencer = Resequencer { expected: first, ..Resequencer::default() };
            let mut model = Model { expected: first, ..Model::default() };
            let mut now_ps = 0;
            for (frame, (step, offset, gap_ps)) in steps.into_iter().enumerate() {
                now_ps += gap_ps;
                match step {
                    0..6 => {
                        let number = model.expected.wrapping_add(offset).wrapping_sub(4);
                        let said = resequencer.arrive(number, frame as u32, now_ps, 100);
                        let expected = model.arrive(number, frame as u32, now_ps, 100);
                        prop_assert_eq!(said, expected);
                    }
                    6 => {
                        let until_ps = model.give_up(now_ps, 100);
                        prop_assert_eq!(resequencer.give_up(now_ps, 100), until_ps);
                    }
                    _ => prop_assert_eq!(resequencer.skip(), model.skip()),
                }
                if offset % 3 > 0 {
                    while let Some(taken) = model.take_next() {
                        prop_assert_eq!(resequencer.take_next(), Some(taken));
                    }
                    prop_assert_eq!(resequencer.take_next(), None);
                }
                prop_assert_eq!(resequencer.kept(), model.kept.len());
            }
        }
    }

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
