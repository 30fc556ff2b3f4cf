//! By which rails a lane leaves and enters.

use crate::engine::limits::MOST_RAILS;

/// In the place of a rail: a lane that copies within the machine.
pub(in crate::engine) const NO_RAIL: usize = MOST_RAILS;

/// The rail by which a lane leaves, and the one by which it enters. A lane that copies leaves by [`NO_RAIL`], and names the peer's
/// memory by rail 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Crossing {
    pub(in crate::engine) own: usize,
    pub(in crate::engine) theirs: usize,
}
