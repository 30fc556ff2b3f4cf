//! Limits of a team, and the version of what ranks tell each other.

use std::time::Duration;

/// Most ranks of a team.
pub const MAX_RANKS: u32 = crate::config::MAX_RANKS;
/// Most QPs to one peer.
pub const MAX_QPS_PER_PEER: u32 = crate::config::MAX_QPS_PER_PEER;
/// Room for windows of a team, unless [`TeamSettings::windows`](crate::config::TeamSettings::windows) sets another.
pub const MAX_WINDOWS: u32 = crate::config::MAX_WINDOWS;
/// Most windows that a team may be given room for: more than 300 MoE layers need.
pub const MOST_WINDOWS: u32 = crate::config::MOST_WINDOWS;
/// Version that records carry which name a version.
pub(in crate::team) const VERSION: u32 = 6;
/// Time between two looks at the processes of ranks that this rank waits for.
pub(in crate::team) const PROCESSES: Duration = Duration::from_millis(250);
/// Wait for other ranks after which this rank looks whether they have refused its arguments.
pub(in crate::team) const PEACE: Duration = Duration::from_secs(1);
