//! How a turn of the thread that follows the rules ends, and how much one turn may do.

use std::time::Duration;

use super::event::GroupState;

/// The part of a lease for which one turn does long work; the next turn goes on after a look. Ending the QPs to a thousand peers
/// takes thousands of commands.
pub(super) const TURN_PART: u32 = 8;

/// How a turn ends.
pub(super) enum TurnOutcome {
    /// A step was done, or failed because the record has changed. The rank looks again at once.
    Again,
    /// The rank looks again after this time, or earlier if something changes.
    Wait(Duration),
    /// This generation has ended.
    Over(GroupState),
}
