//! Barriers and fences that a kernel has, and that the checker treats as missing.
//!
//! By this a test asks whether the checker would notice the absence of each of them, without a broken copy of the kernel. The kernel runs
//! as it is, so its bytes are right, and only the order is judged.

use super::hooks::with_state;
use super::state::State;

/// The operation that is treated as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Omission {
    /// Barrier number n of the grid, counted from 0 at the beginning of each launch.
    GridBarrier(u32),
    /// All barriers of blocks.
    BlockBarriers,
    /// The acquire half of all fences and atomics, not of barriers.
    Acquire,
    /// The release half of all fences and atomics, not of barriers.
    Release,
}

/// An omission. Until it is dropped, launches of a kernel are checked as if they lacked an operation.
#[derive(Debug)]
#[must_use = "what is omitted comes back when this is dropped"]
pub struct Omitted {
    number: u64,
}

/// Treats `what` of `kernel` as missing, in all launches of this process. The name is that of [`LaunchConfig`](crate::LaunchConfig).
pub fn omit(kernel: &str, what: Omission) -> Omitted {
    with_state(|state| {
        state.omissions.count += 1;
        let number = state.omissions.count;
        state.omissions.all.push(Entry {
            number,
            kernel: kernel.to_owned(),
            what,
            applied: false,
        });
        Omitted { number }
    })
}

impl Omitted {
    /// Returns whether a launch had the operation, so that it was treated as missing.
    #[must_use]
    pub fn applied(&self) -> bool {
        with_state(|state| {
            let mut all = state.omissions.all.iter();
            all.any(|entry| entry.number == self.number && entry.applied)
        })
    }
}

impl Drop for Omitted {
    fn drop(&mut self) {
        with_state(|state| {
            let all = &mut state.omissions.all;
            all.retain(|entry| entry.number != self.number);
        });
    }
}

#[derive(Debug)]
struct Entry {
    number: u64,
    kernel: String,
    what: Omission,
    applied: bool,
}

/// The present omissions.
#[derive(Debug, Default)]
pub(super) struct Omissions {
    all: Vec<Entry>,
    count: u64,
}

impl State {
    /// Returns whether the kernel of the thread in `slot`, which has this operation, is to be treated as if it lacked it.
    pub(super) fn lacks(&mut self, slot: u32, what: Omission) -> bool {
        let Some(agent) = &self.agents[slot as usize] else {
            return false;
        };
        let mut lacks = false;
        for entry in &mut self.omissions.all {
            if entry.what == what && entry.kernel == agent.identity.kernel {
                entry.applied = true;
                lacks = true;
            }
        }
        lacks
    }
}
