//! Counters of packets outside the fabric.

/// Numbers of packets, by their origin or fate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Packets that stacks and sockets sent.
    pub sent: u64,
    /// FACKs that vNIC stages sent.
    pub facks: u64,
    /// Packets from other parts.
    pub imported: u64,
    /// Packets handed to stacks and sockets.
    pub handed: u64,
    /// Arriving packets that vNIC stages consumed.
    pub consumed: u64,
    /// Leaving packets that vNIC stages did not pass on.
    pub policed: u64,
    /// Packets to other parts.
    pub exported: u64,
}

impl Counts {
    /// Packets that this part has sent or imported.
    pub fn made(&self) -> u64 {
        self.sent + self.facks + self.imported
    }

    /// Packets that have left this part or the network.
    pub fn over(&self) -> u64 {
        self.handed + self.consumed + self.policed + self.exported
    }
}
