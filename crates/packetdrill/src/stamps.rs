//! TSval of a script against those that have left: their clocks began at different values.

/// Pairs of the two, in order.
#[derive(Clone, Debug, Default)]
pub struct Stamps {
    pairs: Vec<(u32, u32)>,
}

impl Stamps {
    /// `live` left where the script has `script`; returns it by the script's clock, which began
    /// with the first one.
    pub fn learn(&mut self, script: u32, live: u32) -> u32 {
        let (began, first) = *self.pairs.first().unwrap_or(&(script, live));
        self.pairs.push((script, live));
        began.wrapping_add(live.wrapping_sub(first))
    }

    /// What has left in place of the one that a script echoes.
    pub fn live(&self, script: u32) -> u32 {
        if let Some((_, live)) = self.pairs.iter().rev().find(|(known, _)| *known == script) {
            return *live;
        }
        match self.pairs.last() {
            Some((known, live)) if script != 0 => live.wrapping_add(script.wrapping_sub(*known)),
            _ => script,
        }
    }
}
