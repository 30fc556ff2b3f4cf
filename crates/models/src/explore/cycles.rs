//! The search for cycles: steps that may be taken again and again, and the states between them.

/// How a step may lie on a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The step may lie on a cycle.
    Inner,
    /// The step comes from outside, and not for ever, so the search counts no cycle with it.
    Outside,
    /// The step must not lie on a cycle.
    Once,
}

/// The steps between states. States are numbered in the order of the search.
#[derive(Default)]
pub(super) struct Cycles {
    /// For each state, the end of its steps in `to`.
    ends: Vec<usize>,
    to: Vec<u32>,
    once: Vec<bool>,
    /// The states that must not lie on a cycle.
    passing: Vec<bool>,
}

/// A step or a state that lies on a cycle and must not.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    /// A step from this state.
    Step(u32),
    /// This state.
    State(u32),
}

impl Cycles {
    /// Adds a step of the present state, to state `to`.
    pub(super) fn step(&mut self, edge: Edge, to: u32) {
        if edge != Edge::Outside {
            self.to.push(to);
            self.once.push(edge == Edge::Once);
        }
    }

    /// Ends the steps of the present state. `passing`: the state must not lie on a cycle.
    pub(super) fn state(&mut self, passing: bool) {
        self.ends.push(self.to.len());
        self.passing.push(passing);
    }

    fn start(&self, state: usize) -> usize {
        state.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Returns the first step that must not repeat and does, or else the first such state.
    pub(super) fn repeats(&self) -> Option<Repeats> {
        let (component, sizes) = self.components();
        let number = |state: usize| u32::try_from(state).unwrap();
        for state in 0..self.ends.len() {
            for at in self.start(state)..self.ends[state] {
                let to = self.to[at] as usize;
                if self.once[at] && component[to] == component[state] {
                    return Some(Repeats::Step(number(state)));
                }
            }
        }
        let cyclic = |state: &usize| sizes[component[*state] as usize] > 1;
        let mut states = 0..self.ends.len();
        let first = states.find(|state| self.passing[*state] && cyclic(state));
        first.map(|state| Repeats::State(number(state)))
    }

    /// Returns the strongly connected component of each state, and the size of each component, by Tarjan's algorithm without recursion.
    fn components(&self) -> (Vec<u32>, Vec<u32>) {
        const NONE: u32 = u32::MAX;
        let states = self.ends.len();
        let mut index = vec![0u32; states];
        let mut low = vec![0u32; states];
        let mut component = vec![NONE; states];
        let mut sizes = Vec::new();
        let mut met = 1;
        let mut open: Vec<usize> = Vec::new();
        let mut work: Vec<(usize, usize)> = Vec::new();
        for root in 0..states {
            if index[root] != 0 {
                continue;
            }
            let mut enter = Some(root);
            loop {
                if let Some(state) = enter.take() {
                    (index[state], low[state]) = (met, met);
                    met += 1;
                    open.push(state);
                    work.push((state, self.start(state)));
                }
                let Some((state, at)) = work.last_mut() else {
                    break;
                };
                let state = *state;
                if *at < self.ends[state] {
                    let to = self.to[*at] as usize;
                    *at += 1;
                    if index[to] == 0 {
                        enter = Some(to);
                    } else if component[to] == NONE {
                        low[state] = low[state].min(index[to]);
                    }
                    continue;
                }
                work.pop();
                if let Some((before, _)) = work.last() {
                    low[*before] = low[*before].min(low[state]);
                }
                if low[state] == index[state] {
                    let number = u32::try_from(sizes.len()).unwrap();
                    let mut size = 0;
                    loop {
                        let last = open.pop().expect("the state itself is open");
                        component[last] = number;
                        size += 1;
                        if last == state {
                            break;
                        }
                    }
                    sizes.push(size);
                }
            }
        }
        (component, sizes)
    }
}

#[test]
fn steps_and_states_that_repeat_are_found() {
    let repeats = |edges: &[(u32, Edge, u32)], passing: u32| {
        let mut cycles = Cycles::default();
        for state in 0..5 {
            for (_, edge, to) in edges.iter().filter(|(from, ..)| *from == state) {
                cycles.step(*edge, *to);
            }
            cycles.state(state == passing);
        }
        cycles.repeats()
    };
    use Edge::{Inner, Once, Outside};
    let line = [(0, Inner, 1), (1, Once, 2), (2, Inner, 3), (3, Outside, 1)];
    assert_eq!(repeats(&line, 2), None);
    let ring = [(0, Inner, 1), (1, Inner, 2), (2, Inner, 3), (3, Inner, 1)];
    assert_eq!(repeats(&ring, 2), Some(Repeats::State(2)));
    assert_eq!(repeats(&ring, 0), None);
    let ring = [(0, Once, 1), (1, Inner, 2), (2, Once, 3), (3, Inner, 1)];
    assert_eq!(repeats(&ring, 1), Some(Repeats::Step(2)));
}
