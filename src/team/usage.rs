//! What a team costs its devices: commands and memory, counted so that a change of one peer can be shown to touch one peer.

use super::Team;
use crate::fabric::Rail;

impl Team {
    /// Commands that have gone to the HCAs through this team's contexts: made, moved, asked about and destroyed QPs, CQs, keys.
    /// Address handles are no commands.
    #[must_use]
    pub(crate) fn commands(&self) -> u64 {
        self.rails
            .iter()
            .map(|rail| rail.context().commands())
            .sum()
    }

    /// Bytes of device and pinned host memory that were ever taken on this team's device, plus the bytes of its heaps that QPs
    /// hold. Between two looks that show the same nothing was allocated.
    #[must_use]
    pub(crate) fn bytes_allocated(&self) -> u64 {
        let heaps: u64 = self.rails.iter().map(Rail::heap_bytes).sum();
        self.gpu.allocated() + heaps
    }
}
