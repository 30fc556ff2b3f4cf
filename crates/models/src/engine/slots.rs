//! A model of the ids of transfers: a slot is used again while an old id is polled (T3).
//!
//! An id is a slot's number and generation. Another thread releases the transfer and submits the next one in the same slot. A poll of the
//! old id returns the outcome of its own transfer, or that the id is unknown.

use std::marker::PhantomData;

use super::account::Outcome;
use super::limits::MOST_STATES;
use super::transfer::Property;
use crate::explore::{Codec, Model, broken};

type Broken = crate::explore::Broken<Property>;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// No transfer.
    Free,
    /// A transfer that is not concluded.
    Pending,
    /// A transfer that is concluded.
    Ended(Outcome),
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The transfer is not concluded.
    Pending,
    /// The transfer is concluded.
    Ended(Outcome),
    /// The id is of a transfer that was released.
    Unknown,
}

/// The fields of a slot's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The number of the slot's use.
    pub generation: u64,
    /// The content of the slot.
    pub held: Held,
}

/// The word of a slot, with all operations on it. Each function is one access to memory.
pub trait SlotWord: Copy + PartialEq {
    /// Returns a word with `parts`.
    fn of(parts: Parts) -> Self;

    /// Returns the fields of the word.
    fn parts(self) -> Parts;

    /// Puts the next transfer into a free slot.
    fn take(self) -> Option<Self>;

    /// Concludes the transfer, which is pending.
    fn conclude(self, outcome: Outcome) -> Option<Self>;

    /// Frees the slot of the transfer of `generation`, if that transfer is concluded.
    fn release(self, generation: u64) -> Option<Self>;

    /// Returns the state of the transfer of `generation`.
    fn poll(self, generation: u64) -> Status;
}

impl SlotWord for Parts {
    fn of(parts: Parts) -> Self {
        parts
    }

    fn parts(self) -> Parts {
        self
    }

    fn take(self) -> Option<Self> {
        (self.held == Held::Free).then_some(Self {
            generation: self.generation + 1,
            held: Held::Pending,
        })
    }

    fn conclude(self, outcome: Outcome) -> Option<Self> {
        (self.held == Held::Pending).then_some(Self {
            held: Held::Ended(outcome),
            ..self
        })
    }

    fn release(self, generation: u64) -> Option<Self> {
        let has_ended = matches!(self.held, Held::Ended(_));
        (has_ended && self.generation == generation).then_some(Self {
            held: Held::Free,
            ..self
        })
    }

    fn poll(self, generation: u64) -> Status {
        match self.held {
            _ if self.generation != generation => Status::Unknown,
            Held::Free => Status::Unknown,
            Held::Pending => Status::Pending,
            Held::Ended(outcome) => Status::Ended(outcome),
        }
    }
}

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    IdWithoutGeneration,
    GenerationKept,
}

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Slot<W> {
    /// How often the slot is used, at most 8 times.
    pub uses: u8,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
    /// The number of states that the reference implementation's model in Python found.
    pub states: Option<usize>,
    word: PhantomData<W>,
}

/// Returns the configuration with three uses of a slot.
pub fn three_uses<W: SlotWord>() -> Slot<W> {
    Slot {
        uses: 3,
        mutant: None,
        states: Some(41),
        word: PhantomData,
    }
}

/// Returns the mutants, each with the property that it breaks.
pub fn mutants<W: SlotWord>() -> Vec<(Slot<W>, Property)> {
    [Mutant::IdWithoutGeneration, Mutant::GenerationKept]
        .map(|mutant| {
            let slot = Slot {
                mutant: Some(mutant),
                ..three_uses()
            };
            (slot, Property::T3)
        })
        .into()
}

/// The most uses of a slot.
const USES: usize = 8;

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State<W> {
    word: W,
    /// The last result of a poll of the first id; None: it was not polled yet.
    told: Option<Status>,
    uses: u8,
    /// How each use has ended, in the order of the uses.
    ended: [Option<Outcome>; USES],
    endings: u8,
}

/// The generation that is polled.
const FIRST: u64 = 1;

impl<W: SlotWord> Slot<W> {
    /// Returns the result of a poll of the first id.
    fn poll(&self, word: W) -> Status {
        match self.mutant {
            Some(Mutant::IdWithoutGeneration) => word.poll(word.parts().generation),
            _ => word.poll(FIRST),
        }
    }

    /// Lets another thread release the slot and take it again.
    fn used_again(&self, word: W) -> Option<W> {
        let generation = word.parts().generation;
        let taken = word.release(generation)?.take()?;
        Some(match self.mutant {
            Some(Mutant::GenerationKept) => W::of(Parts {
                generation,
                ..taken.parts()
            }),
            _ => taken,
        })
    }
}

impl<W: SlotWord> Model for Slot<W> {
    type State = State<W>;
    type Step = &'static str;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State<W> {
        State {
            word: W::of(Parts {
                generation: FIRST,
                held: Held::Pending,
            }),
            told: None,
            uses: 1,
            ended: [None; USES],
            endings: 0,
        }
    }

    fn code(&self, state: &mut State<W>, codec: &mut impl Codec) {
        code_word(&mut state.word, codec);
        code_told(&mut state.told, codec);
        codec.byte(&mut state.uses, 4);
        codec.byte(&mut state.endings, 4);
        for ended in &mut state.ended[..usize::from(state.endings)] {
            let mut failed = *ended == Some(Outcome::Failed);
            codec.flag(&mut failed);
            *ended = Some(outcome_of(failed));
        }
    }

    fn steps(
        &self,
        state: &State<W>,
        emit: &mut impl FnMut(&'static str, State<W>),
    ) -> Result<(), Broken> {
        for (name, outcome) in [("it is done", Outcome::Done), ("it fails", Outcome::Failed)] {
            if let Some(word) = state.word.conclude(outcome) {
                let mut next = State { word, ..*state };
                next.ended[usize::from(state.endings)] = Some(outcome);
                next.endings += 1;
                emit(name, next);
            }
        }
        let told = self.poll(state.word);
        if told != Status::Pending {
            check(state, told)?;
            if state.told != Some(told) {
                let told = Some(told);
                emit("the first id is polled", State { told, ..*state });
            }
        }
        if state.told.is_some()
            && state.uses < self.uses
            && let Some(word) = self.used_again(state.word)
        {
            let uses = state.uses + 1;
            let next = State {
                word,
                uses,
                ..*state
            };
            emit("the slot is used again", next);
        }
        Ok(())
    }

    fn at_rest(&self, _state: &State<W>) -> Result<(), Broken> {
        Ok(())
    }

    fn is_live(&self) -> bool {
        true
    }
}

fn check<W>(state: &State<W>, told: Status) -> Result<(), Broken> {
    let Status::Ended(outcome) = told else {
        return Ok(());
    };
    if let Some(before) = state.told
        && before != told
    {
        let text = format!("the first id got {before:?}, now {told:?}");
        return broken(Property::T3, text);
    }
    if state.ended[0] == Some(outcome) {
        Ok(())
    } else {
        broken(Property::T3, format!("{told:?} is of another transfer"))
    }
}

/// Returns the outcome of a transfer. The model has only these two.
fn outcome_of(failed: bool) -> Outcome {
    if failed {
        Outcome::Failed
    } else {
        Outcome::Done
    }
}

const ALL_HELD: [Held; 4] = [
    Held::Free,
    Held::Pending,
    Held::Ended(Outcome::Done),
    Held::Ended(Outcome::Failed),
];

fn code_word<W: SlotWord>(word: &mut W, codec: &mut impl Codec) {
    let Parts { generation, held } = word.parts();
    let mut small = u8::try_from(generation).unwrap();
    codec.byte(&mut small, 4);
    let held = place_of(held, &ALL_HELD, codec);
    let generation = u64::from(small);
    *word = W::of(Parts { generation, held });
}

const ALL_TOLD: [Option<Status>; 4] = [
    None,
    Some(Status::Ended(Outcome::Done)),
    Some(Status::Ended(Outcome::Failed)),
    Some(Status::Unknown),
];

fn code_told(told: &mut Option<Status>, codec: &mut impl Codec) {
    *told = place_of(*told, &ALL_TOLD, codec);
}

/// Codes a value of `all`, by its index.
fn place_of<T: Copy + PartialEq>(value: T, all: &[T; 4], codec: &mut impl Codec) -> T {
    let place = all.iter().position(|one| *one == value);
    let mut place = u8::try_from(place.expect("one of all")).unwrap();
    codec.byte(&mut place, 2);
    all[usize::from(place)]
}
