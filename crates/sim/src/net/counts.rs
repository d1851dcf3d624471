//! What became of packets outside the fabric.

/// Packets, by where they began and where they ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// By stacks and sockets.
    pub sent: u64,
    /// By vNIC stages.
    pub facks: u64,
    /// By other parts.
    pub imported: u64,
    /// To stacks and sockets.
    pub handed: u64,
    /// By vNIC stages, of arriving packets.
    pub consumed: u64,
    /// By vNIC stages, of leaving packets.
    pub policed: u64,
    /// To other parts.
    pub exported: u64,
}

impl Counts {
    /// Packets that were made here or came from elsewhere.
    pub fn made(&self) -> u64 {
        self.sent + self.facks + self.imported
    }

    /// Packets that are gone.
    pub fn over(&self) -> u64 {
        self.handed + self.consumed + self.policed + self.exported
    }
}
