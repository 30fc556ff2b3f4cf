//! Breadth-first search over all states of a model; a violation comes with the shortest way to it.

use std::fmt::Display;

use super::bits::{Codec, Reader, Writer};
use super::property::Property;
use crate::explore::Met;

/// No configuration comes near: a mistake in one must not eat the machine.
const MOST_STATES: usize = 6_000_000;

/// What a model consists of.
pub trait Model {
    /// Everything that a step may change.
    type State: Copy + Default;
    /// Names a step in a trace.
    type Step: Copy + Display;

    /// The state that all begins with.
    fn first(&self) -> Self::State;

    /// All fields, in a fixed order: equal states have equal bits.
    fn code(&self, state: &mut Self::State, codec: &mut impl Codec);

    /// All steps from `state`. `Err`: one of them breaks a property.
    fn steps(
        &self,
        state: &Self::State,
        emit: &mut impl FnMut(Self::Step, Self::State),
    ) -> Result<(), Broken>;

    /// What must hold where there is no step.
    fn at_rest(&self, state: &Self::State) -> Result<(), Broken>;
}

/// A property that does not hold.
#[derive(Debug)]
pub struct Broken {
    /// Which one.
    pub property: Property,
    /// What was seen.
    pub text: String,
}

/// Breaks `property`.
pub(crate) fn broken<T>(property: Property, text: String) -> Result<T, Broken> {
    Err(Broken { property, text })
}

/// What a search found.
pub struct Found {
    /// States met.
    pub states: usize,
    /// The first violation, and the steps that lead to it.
    pub violation: Option<(Broken, Vec<String>)>,
}

/// Visits every state, or those up to the first violation.
pub fn search<M: Model>(model: &M) -> Found {
    let mut search = Search {
        model,
        met: Met::new(),
        before: vec![0],
    };
    let violation = search
        .run()
        .map(|(broken, state)| (broken, search.way_to(state)));
    Found {
        states: search.met.count(),
        violation,
    }
}

struct Search<'a, M> {
    model: &'a M,
    met: Met,
    /// The state from which each was met first.
    before: Vec<u32>,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self) -> Option<(Broken, u32)> {
        let model = self.model;
        let mut writer = Writer::default();
        pack(model, &mut model.first(), &mut writer);
        self.met.number(writer.end());
        let mut me = 0;
        // States are numbered in the order in which they are met, which is that of the search.
        while let Some(state) = self.state(me) {
            let mut moved = false;
            let steps = model.steps(&state, &mut |_, mut next| {
                moved = true;
                pack(model, &mut next, &mut writer);
                let id = self.met.number(writer.end());
                if id as usize == self.before.len() {
                    self.before.push(me);
                }
            });
            let rests = steps.and_then(|()| match moved {
                true => Ok(()),
                false => model.at_rest(&state),
            });
            if let Err(broken) = rests {
                return Some((broken, me));
            }
            let met = self.met.count();
            assert!(met <= MOST_STATES, "more than {MOST_STATES} states");
            me += 1;
        }
        None
    }

    fn state(&self, number: u32) -> Option<M::State> {
        let mut reader = Reader::new(self.met.state(number)?);
        let mut state = M::State::default();
        self.model.code(&mut state, &mut reader);
        Some(state)
    }

    /// The steps from the first state to `last`. They are not kept: each is found again.
    fn way_to(&self, last: u32) -> Vec<String> {
        let mut way = Vec::new();
        let mut writer = Writer::default();
        let mut to = last;
        while to != 0 {
            let from = self.before[to as usize];
            let mut name = None;
            let state = self.state(from).expect("met");
            // A violation later among the steps of the state is not that of the way.
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
