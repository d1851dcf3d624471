use super::EtsConfig;
pub struct Ets;
impl Ets {
    pub fn new(_: &EtsConfig) -> Self {
        Self
    }
    pub fn choose(&mut self, eligible: u8, _: impl Fn(usize) -> u32) -> Option<usize> {
        (eligible != 0).then(|| 7 - eligible.leading_zeros() as usize)
    }
}
