//! What the checker remembers of a send queue.

/// The checker's memory of a send queue.
#[derive(Debug, Default)]
pub(crate) struct Scrutiny {
    /// A sum for each block of the ring; empty if no checker wants them.
    pub(crate) sums: Vec<u64>,
    /// A record that was ahead of its doorbells, and in how many looks.
    pub(crate) ahead: Option<(u16, u16)>,
}
