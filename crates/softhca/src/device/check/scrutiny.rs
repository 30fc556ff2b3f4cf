//! The record that the checker keeps of a send queue.

/// The record that the checker keeps of a send queue.
#[derive(Debug, Default)]
pub(crate) struct Scrutiny {
    /// A sum for each block of the ring. Empty if the checker does not look at bytes of WQEs.
    pub(crate) sums: Vec<u64>,
    /// The value of a doorbell record that was ahead of its doorbells, and in how many looks in a row.
    pub(crate) ahead: Option<(u16, u16)>,
}
