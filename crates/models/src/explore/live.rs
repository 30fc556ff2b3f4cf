//! The check that every state can end: a state at rest must be reachable from each.

/// The steps between states, by the numbers of the states.
#[derive(Default)]
pub(super) struct Live {
    /// Pairs of a state and a state before it.
    before: Vec<(u32, u32)>,
    ends: Vec<u32>,
}

/// The states from which no end can be reached: the first, and how many.
pub(super) struct Stuck {
    pub(super) first: u32,
    pub(super) count: usize,
}

impl Live {
    /// Adds a step from state `from` to state `to`.
    #[inline]
    pub(super) fn step(&mut self, from: u32, to: u32) {
        self.before.push((to, from));
    }

    /// Notes that `state` may be at rest.
    pub(super) fn end(&mut self, state: u32) {
        self.ends.push(state);
    }

    /// Returns the states from which no end can be reached, of `states` states. It goes backwards from the ends.
    pub(super) fn stuck(&mut self, states: usize) -> Option<Stuck> {
        let index = |id: u32| usize::try_from(id).unwrap();
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); states];
        for (state, earlier) in self.before.drain(..) {
            before[index(state)].push(earlier);
        }
        let mut can_end = vec![false; states];
        let mut left = self.ends.clone();
        for end in &left {
            can_end[index(*end)] = true;
        }
        while let Some(state) = left.pop() {
            for earlier in &before[index(state)] {
                if !std::mem::replace(&mut can_end[index(*earlier)], true) {
                    left.push(*earlier);
                }
            }
        }
        let first = can_end.iter().position(|can| !*can)?;
        Some(Stuck {
            first: u32::try_from(first).unwrap(),
            count: can_end.iter().filter(|can| !**can).count(),
        })
    }
}
