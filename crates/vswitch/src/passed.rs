//! Packets of a switch, counted at the points that they pass.
//!
//! ```text
//!  sender ─ offered ─▶ entrance ─ entered ─▶ forward ─ put ─▶ queue of the exit ─ taken ─▶ receiver
//!                          │                    │
//!                       refused             overflowed
//! ```

use std::iter::Sum;

/// Packets of one side of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Handed over to its entrance.
    pub offered: u64,
    /// Dropped there, since it was full.
    pub refused: u64,
    /// Come from its entrance into the switch.
    pub entered: u64,
    /// Dropped by the switch on their way to its exit, whose queue was full.
    pub overflowed: u64,
    /// Put into the queue in front of its exit.
    pub put: u64,
    /// Taken from there by its receiver.
    pub taken: u64,
}

impl Passed {
    /// Those since an earlier time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, |now, then| now - then)
    }

    fn with(self, other: Self, both: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            offered: both(self.offered, other.offered),
            refused: both(self.refused, other.refused),
            entered: both(self.entered, other.entered),
            overflowed: both(self.overflowed, other.overflowed),
            put: both(self.put, other.put),
            taken: both(self.taken, other.taken),
        }
    }
}

impl Sum for Passed {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| sum.with(one, |a, b| a + b))
    }
}

/// Of every side, by number. The methods name the fate of a packet; its sides are those of its
/// entrance and of its exit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Vec<Passed>);

impl Tally {
    fn at(&mut self, side: usize) -> &mut Passed {
        if self.0.len() <= side {
            self.0.resize(side + 1, Passed::default());
        }
        &mut self.0[side]
    }

    pub(crate) fn of(&self, side: usize) -> Passed {
        self.0.get(side).copied().unwrap_or_default()
    }

    /// It goes from the sender to the queue of its exit.
    pub(crate) fn passes_at_once(&mut self, sides: [usize; 2]) {
        self.at(sides[0]).offered += 1;
        self.moves_on(sides);
    }

    /// It waits in its entrance.
    pub(crate) fn waits(&mut self, [from, _]: [usize; 2]) {
        self.at(from).offered += 1;
    }

    /// Its entrance is full.
    pub(crate) fn is_refused(&mut self, [from, _]: [usize; 2]) {
        let from = self.at(from);
        from.offered += 1;
        from.refused += 1;
    }

    /// The queue of its exit is full.
    pub(crate) fn overflows(&mut self, [from, to]: [usize; 2]) {
        let from = self.at(from);
        from.offered += 1;
        from.entered += 1;
        self.at(to).overflowed += 1;
    }

    /// It goes from its entrance to the queue of its exit.
    pub(crate) fn moves_on(&mut self, [from, to]: [usize; 2]) {
        self.at(from).entered += 1;
        self.at(to).put += 1;
    }

    /// The receiver behind an exit has it.
    pub(crate) fn is_taken(&mut self, to: usize) {
        self.at(to).taken += 1;
    }

    /// See [`crate::Switch::balance`]; by side, `waiting` has the packets in its entrance and in
    /// the queue of its exit.
    pub(crate) fn balance(
        &self,
        waiting: impl Fn(usize) -> [u64; 2],
        drops: &[u64],
    ) -> Result<(), String> {
        let equal = |what: &str, came: u64, went: u64| match came == went {
            true => Ok(()),
            false => Err(format!(
                "{what}: {came} packets came and {went} are accounted for"
            )),
        };
        for (side, passed) in self.0.iter().enumerate() {
            let [at_entrance, at_exit] = waiting(side);
            let from_entrance = passed.entered + passed.refused + at_entrance;
            equal(&format!("entrance {side}"), passed.offered, from_entrance)?;
            equal(&format!("exit {side}"), passed.put, passed.taken + at_exit)?;
        }
        let all: Passed = self.0.iter().copied().sum();
        equal("forwarding", all.entered, all.put + all.overflowed)?;
        let dropped = drops.iter().sum();
        equal("drops", dropped, all.refused + all.overflowed)
    }
}
