//! Breadth-first search over all states of a model. A violation is returned with the shortest way to it.

use std::fmt::{Debug, Display};

use super::codec::{Codec, Reader, Writer};
use super::cycles::{Cycles, Edge, Repeats};
use super::live::Live;
use super::met::Met;

/// A model: its states, its steps, and what must hold.
pub trait Model {
    /// Everything that a step may change.
    type State: Clone;
    /// The name of a step in a trace.
    type Step: Display;
    /// The name of a property that must hold.
    type Property: Debug;

    /// The most states of a search. Configurations have far fewer. The limit stops a mistake in one from using up the machine.
    const MOST_STATES: usize;

    /// Returns the first state.
    fn first(&self) -> Self::State;

    /// Codes all fields in a fixed order. Equal states have equal bits.
    fn code(&self, state: &mut Self::State, codec: &mut impl Codec);

    /// Emits all steps from `state`. The error says that one of them breaks a property.
    fn steps(
        &self,
        state: &Self::State,
        emit: &mut impl FnMut(Self::Step, Self::State),
    ) -> Result<(), Broken<Self::Property>>;

    /// Checks what must hold in a state without a next step.
    fn at_rest(&self, state: &Self::State) -> Result<(), Broken<Self::Property>>;

    /// Returns whether a state for which `at_rest` holds must be reachable from every state. Such a state may have steps.
    fn is_live(&self) -> bool {
        false
    }

    /// Returns what is broken if a step with [`Edge::Once`] lies on a cycle. None: the search looks for no cycles.
    fn once(&self) -> Option<Broken<Self::Property>> {
        None
    }

    /// Returns how a step may lie on a cycle.
    fn edge(&self, _step: &Self::Step) -> Edge {
        Edge::Inner
    }

    /// Checks whether a cycle of other states may pass through this state.
    fn on_cycle(&self, _state: &Self::State) -> Result<(), Broken<Self::Property>> {
        Ok(())
    }
}

/// A property that does not hold.
#[derive(Debug)]
pub struct Broken<P> {
    /// Which property of the model does not hold.
    pub property: P,
    /// The state in which it does not hold, in words.
    pub text: String,
}

/// Returns the error that `property` is broken.
pub fn broken<T, P>(property: P, text: String) -> Result<T, Broken<P>> {
    Err(Broken { property, text })
}

/// The result of a search.
pub struct Found<P> {
    /// The number of states met.
    pub states: usize,
    /// The first violation, and the steps that lead to it.
    pub violation: Option<(Broken<P>, Vec<String>)>,
}

/// Visits all states, or those up to the first violation.
pub fn search<M: Model>(model: &M) -> Found<M::Property> {
    let mut search = Search {
        model,
        first: model.first(),
        met: Met::new(),
        before: vec![0],
        live: model.is_live().then(Live::default),
        cycles: model.once().map(|_| Cycles::default()),
    };
    let violation = search
        .run()
        .map(|(broken, state)| (broken, search.way_to(state)));
    Found {
        states: search.met.count(),
        violation,
    }
}

struct Search<'a, M: Model> {
    model: &'a M,
    /// The first state. Packed states are unpacked into a copy of it.
    first: M::State,
    met: Met,
    /// For each state, the state from which it was met first.
    before: Vec<u32>,
    live: Option<Live>,
    cycles: Option<Cycles>,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self) -> Option<(Broken<M::Property>, u32)> {
        let model = self.model;
        let mut writer = Writer::default();
        pack(model, &mut self.first, &mut writer);
        self.met.number(writer.end());
        let mut me = 0;
        // States are numbered as they are met, which is the order of the search.
        while let Some(state) = self.state(me) {
            let mut moved = false;
            let steps = model.steps(&state, &mut |step, mut next| {
                moved = true;
                pack(model, &mut next, &mut writer);
                let id = self.met.number(writer.end());
                if id as usize == self.before.len() {
                    self.before.push(me);
                }
                if let Some(live) = &mut self.live {
                    live.step(me, id);
                }
                if let Some(cycles) = &mut self.cycles {
                    cycles.step(model.edge(&step), id);
                }
            });
            let rests = steps.and_then(|()| match moved {
                true => Ok(()),
                false => model.at_rest(&state),
            });
            if let Err(broken) = rests {
                return Some((broken, me));
            }
            if let Some(live) = &mut self.live
                && model.at_rest(&state).is_ok()
            {
                live.end(me);
            }
            if let Some(cycles) = &mut self.cycles {
                cycles.state(model.on_cycle(&state).is_err());
            }
            let met = self.met.count();
            assert!(met <= M::MOST_STATES, "more than {} states", M::MOST_STATES);
            me += 1;
        }
        self.livelock().or_else(|| self.repeats())
    }

    fn repeats(&self) -> Option<(Broken<M::Property>, u32)> {
        match self.cycles.as_ref()?.repeats()? {
            Repeats::Step(from) => Some((self.model.once()?, from)),
            Repeats::State(number) => {
                let state = self.state(number).expect("met");
                let why = self.model.on_cycle(&state).expect_err("it may not repeat");
                Some((why, number))
            }
        }
    }

    fn livelock(&mut self) -> Option<(Broken<M::Property>, u32)> {
        let stuck = self.live.as_mut()?.stuck(self.met.count())?;
        let state = self.state(stuck.first).expect("met");
        let why = self.model.at_rest(&state).expect_err("no end");
        let count = stuck.count;
        let text = format!("livelock: from {count} states no end can be reached");
        Some((Broken { text, ..why }, stuck.first))
    }

    fn state(&self, number: u32) -> Option<M::State> {
        let mut reader = Reader::new(self.met.state(number)?);
        let mut state = self.first.clone();
        self.model.code(&mut state, &mut reader);
        Some(state)
    }

    /// Returns the steps from the first state to `last`. Steps are not kept, so each is found again.
    fn way_to(&self, last: u32) -> Vec<String> {
        let mut way = Vec::new();
        let mut writer = Writer::default();
        let mut to = last;
        while to != 0 {
            let from = self.before[to as usize];
            let mut name = None;
            let state = self.state(from).expect("met");
            // If a later step of the state breaks a property, that does not concern the way.
            let _ = self.model.steps(&state, &mut |step, mut next| {
                pack(self.model, &mut next, &mut writer);
                if name.is_none() && Some(writer.end()) == self.met.state(to) {
                    name = Some(step.to_string());
                }
            });
            way.push(name.expect("a step led there"));
            to = from;
        }
        way.reverse();
        way
    }
}

fn pack<M: Model>(model: &M, state: &mut M::State, writer: &mut Writer) {
    writer.begin();
    model.code(state, writer);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model whose states are numbers, from 0 on.
    struct Graph {
        edges: &'static [(u8, u8)],
        ends: &'static [u8],
        wrong: Option<u8>,
        live: bool,
    }

    impl Model for Graph {
        type State = u8;
        type Step = u8;
        type Property = u8;

        const MOST_STATES: usize = 10;

        fn first(&self) -> u8 {
            0
        }

        fn code(&self, state: &mut u8, codec: &mut impl Codec) {
            codec.whole(state);
        }

        fn steps(&self, state: &u8, emit: &mut impl FnMut(u8, u8)) -> Result<(), Broken<u8>> {
            if self.wrong == Some(*state) {
                return broken(*state, "wrong".to_owned());
            }
            for (_, to) in self.edges.iter().filter(|(from, _)| from == state) {
                emit(*to, *to);
            }
            Ok(())
        }

        fn at_rest(&self, state: &u8) -> Result<(), Broken<u8>> {
            if self.ends.contains(state) {
                Ok(())
            } else {
                broken(*state, "no end".to_owned())
            }
        }

        fn is_live(&self) -> bool {
            self.live
        }
    }

    #[test]
    fn the_way_to_a_violation_is_the_shortest() {
        let graph = |wrong| Graph {
            edges: &[(0, 1), (1, 2), (2, 3), (0, 4), (4, 3)],
            ends: &[3],
            wrong,
            live: false,
        };
        let found = search(&graph(None));
        assert!(found.violation.is_none());
        assert_eq!(found.states, 5);
        let (broken, way) = search(&graph(Some(3))).violation.unwrap();
        assert_eq!((broken.property, way.join(" ").as_str()), (3, "4 3"));
    }

    #[test]
    fn states_from_which_no_end_can_be_reached_are_found() {
        let graph = |live| Graph {
            edges: &[(0, 1), (0, 2), (2, 3), (3, 2)],
            ends: &[1],
            wrong: None,
            live,
        };
        assert!(search(&graph(false)).violation.is_none());
        let (broken, way) = search(&graph(true)).violation.unwrap();
        let expected = "livelock: from 2 states no end can be reached";
        assert_eq!((broken.property, broken.text.as_str()), (2, expected));
        assert_eq!(way, ["2"]);
    }
}
