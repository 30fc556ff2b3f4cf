//! Vector clocks: the accesses of all other agents that one agent knows.

/// The newest known epoch of each slot. Slots beyond the end are at 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<u32>);

impl Clock {
    /// Returns the newest known epoch of `slot`.
    pub(super) fn of(&self, slot: u32) -> u32 {
        self.0.get(slot as usize).copied().unwrap_or(0)
    }

    /// Returns whether the access that `slot` made in `epoch` is known.
    pub(super) fn knows(&self, slot: u32, epoch: u32) -> bool {
        self.of(slot) >= epoch
    }

    /// Raises one component to `epoch`. Returns whether it was lower.
    pub(super) fn raise(&mut self, slot: u32, epoch: u32) -> bool {
        let at = slot as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        let raised = self.0[at] < epoch;
        if raised {
            self.0[at] = epoch;
        }
        raised
    }

    /// Learns all that `other` knows. Returns whether any of it was new.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut changed = false;
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            changed |= *mine < *theirs;
            *mine = (*mine).max(*theirs);
        }
        changed
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_clock_knows_what_either_knew_and_says_whether_that_is_new() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        assert!(a.raise(3, 5) && b.raise(1, 2) && !a.raise(3, 4));
        assert!(a.join(&b) && !a.join(&b));
        assert!(a.knows(3, 5) && a.knows(1, 2) && !a.knows(1, 3) && !a.knows(9, 1));
        assert!(a.knows(9, 0));
    }
}
