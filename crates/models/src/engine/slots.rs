//! Ids of transfers: a slot is used again while an old id is polled (T3).
//!
//! The id is a slot's number and its generation. Another thread releases the transfer and submits the next one in the same slot;
//! who polls the old id is told what became of its own transfer, or that the id is unknown.

use super::MOST_STATES;
use super::transfer::Property;
use crate::explore::{Codec, Model, broken};

type Broken = crate::explore::Broken<Property>;

/// What is done wrong in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    IdWithoutGeneration,
    GenerationKept,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// How often the slot is used.
    pub uses: u8,
    /// What is done wrong.
    pub mutant: Option<Mutant>,
    /// How many states the reference found.
    pub states: Option<usize>,
}

/// The one of every run.
pub const THREE_USES: Slot = Slot {
    uses: 3,
    mutant: None,
    states: Some(41),
};

/// Each breaks the property named with it.
pub fn mutants() -> Vec<(Slot, Property)> {
    [Mutant::IdWithoutGeneration, Mutant::GenerationKept]
        .map(|mutant| {
            let slot = Slot {
                mutant: Some(mutant),
                ..THREE_USES
            };
            (slot, Property::T3)
        })
        .into()
}

/// What a poll says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    #[default]
    Pending,
    Done,
    Failed,
    Unknown,
}

const STATUSES: [Status; 4] = [
    Status::Pending,
    Status::Done,
    Status::Failed,
    Status::Unknown,
];

/// Uses of a slot at most.
const USES: usize = 8;

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    generation: u8,
    /// `Unknown` never stands in a slot.
    status: Status,
    /// What the id of the first generation was told last.
    seen: Status,
    uses: u8,
    /// How each use has ended, the first one first.
    ended: [Status; USES],
    endings: u8,
}

impl Slot {
    /// What a poll of the first id says.
    fn poll(&self, state: &State) -> Status {
        let matches = state.generation == FIRST || self.mutant == Some(Mutant::IdWithoutGeneration);
        match matches {
            true => state.status,
            false => Status::Unknown,
        }
    }

    fn released(&self, state: &State) -> State {
        State {
            generation: match self.mutant {
                Some(Mutant::GenerationKept) => state.generation,
                _ => state.generation + 1,
            },
            status: Status::Pending,
            uses: state.uses + 1,
            ..*state
        }
    }
}

/// The generation that is polled.
const FIRST: u8 = 1;

impl Model for Slot {
    type State = State;
    type Step = &'static str;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        State {
            generation: FIRST,
            status: Status::Pending,
            seen: Status::Pending,
            uses: 1,
            ended: [Status::Pending; USES],
            endings: 0,
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        for field in [&mut state.generation, &mut state.uses, &mut state.endings] {
            codec.byte(field, 4);
        }
        for status in [&mut state.status, &mut state.seen]
            .into_iter()
            .chain(&mut state.ended)
        {
            let mut place = *status as u8;
            codec.byte(&mut place, 2);
            *status = STATUSES[usize::from(place)];
        }
    }

    fn steps(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        if state.status == Status::Pending {
            for (name, outcome) in [("it is done", Status::Done), ("it fails", Status::Failed)] {
                let mut next = *state;
                next.status = outcome;
                next.ended[usize::from(state.endings)] = outcome;
                next.endings += 1;
                emit(name, next);
            }
        }
        let told = self.poll(state);
        if told != Status::Pending {
            check(state, told)?;
            let next = State {
                seen: told,
                ..*state
            };
            if next != *state {
                emit("the first id is polled", next);
            }
        }
        let was_seen = state.seen != Status::Pending;
        if state.status != Status::Pending && was_seen && state.uses < self.uses {
            emit("the slot is used again", self.released(state));
        }
        Ok(())
    }

    fn at_rest(&self, _state: &State) -> Result<(), Broken> {
        Ok(())
    }

    fn is_live(&self) -> bool {
        true
    }
}

fn check(state: &State, told: Status) -> Result<(), Broken> {
    let State { seen, ended, .. } = *state;
    let changes = seen != Status::Pending && seen != told && told != Status::Unknown;
    if changes {
        let text = format!("the first id was told {seen:?}, now {told:?}");
        return broken(Property::T3, text);
    }
    match told != Status::Unknown && ended[0] != told {
        true => broken(Property::T3, format!("{told:?} is of another transfer")),
        false => Ok(()),
    }
}
