//! What a test changes in a domain: limits below those of its provider, and defects that its seeds must find. Only tests have this.

use std::time::Duration;

/// How much later an endpoint is closed with [`Planted::LateClose`].
pub(crate) const LATE: Duration = Duration::from_millis(30);

/// What a test changes in a domain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trial {
    /// The most bytes of an operation. None: as many as the provider takes.
    pub(crate) most_bytes: Option<usize>,
    pub(crate) planted: Option<Planted>,
}

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A completion is taken for that of all operations that were posted before.
    Prefix,
    /// An endpoint counts as closed, and is closed only after [`LATE`].
    LateClose,
    /// An operation that is refused for now is forgotten.
    Dropped,
    /// An operation that is refused for now is overtaken by all others of its lane, and by the one that counts.
    Overtaken,
    /// What follows the first operation of a WQE is left out, but for an operation that counts.
    LostPart,
    /// An end tells of no write that has counted, so that those are lost whose data a close has dropped.
    LostCount,
    /// A key of the provider is given again while a peer may know it of earlier memory.
    KeyAgain,
    /// A worker sleeps until it is woken, although nothing wakes it for what moves only while it looks. Without the limit of each sleep
    /// while something is under way, which would only make all of it slow.
    DeafSleep,
}
