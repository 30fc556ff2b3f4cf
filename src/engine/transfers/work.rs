//! What workers say of their lanes, and what transfers answer.

/// How much a lane takes.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Room {
    /// Slices for which it has room.
    pub(in crate::engine) most: u32,
    /// Those of them that other lanes may take as well.
    pub(in crate::engine) shared: u32,
    /// So many it takes also where few are left for all.
    pub(in crate::engine) chain: u32,
}

/// What a worker has taken of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Pulled {
    /// So many slices, and more may be left.
    Some,
    /// No slice is left for any worker.
    Nothing,
    /// Some are left, of which other lanes are to take theirs first.
    Later,
    /// What is left is for lanes that enter nearer to its memory, or by other rails than those on which it has failed: a bit for
    /// each lane that takes some of it. Without one it is asked for again.
    Elsewhere(u32),
}

/// Where a WQE has failed: a life of a lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Lost {
    /// Which lane of its link, where packets may be under way; none of a copy.
    pub(in crate::engine) lane: Option<usize>,
    pub(in crate::engine) life: u32,
    /// Number of the QP.
    pub(in crate::engine) qp: Option<u32>,
    /// The QP has failed by a WQE that was wrong itself: one that was only flushed after it has not been tried.
    pub(in crate::engine) is_refused: bool,
}
