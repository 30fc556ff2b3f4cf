//! A model of a key of a peer's own, from when it is made until it ends, beside keys of other peers that get its number.
//!
//! The owner grants a range: it takes a place, lets the HCA make a key, and sends the key to the peer. The program, the end of the key's
//! time and the end of the connection all want to end the key, in any order. The peer reads late, by a key that may be dead, or whose
//! number may belong to another key by now. A read finds its key in one step, and moves its bytes in a later step.
//!
//! The HCA has two numbers for keys. A command that ends a key takes the key from readers at once. The command is over when no read that
//! has found the key is under way. The HCA may refuse the command. Then the owner tries it again.

use super::limits::MOST_STATES;
use crate::explore::{Codec, Model, broken};

/// The properties that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// No read moves a byte that was written after the program had learned that the key is dead.
    Late,
    /// No read moves a byte of memory that was granted to others.
    Foreign,
    /// A key that is live for its owner is live at the HCA.
    Live,
    /// No key is live after the end of its connection.
    Connection,
    /// A registration exists as long as the HCA has a key over it.
    Registration,
    /// Each thread that ends a key returns.
    Ends,
}

impl Property {
    /// All properties. For each, some mutant must break it.
    pub const ALL: [Self; 6] = [
        Self::Late,
        Self::Foreign,
        Self::Live,
        Self::Connection,
        Self::Registration,
        Self::Ends,
    ];
}

type Broken = crate::explore::Broken<Property>;

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    RevokeReturnsBeforeTheCommand,
    SecondDoesNotWait,
    HcaDoesNotWaitForReads,
    AddressesUsedAgain,
    SecondDestroysByNumber,
    DoomedForgotten,
    MadeBehindTheEnd,
    NotCountedWhileItEnds,
    RefusedStaysEnding,
}

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The number of grants to other peers, at most 3.
    pub others: u8,
    /// The number of commands that the HCA refuses, at most 3.
    pub refusals: u8,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
}

/// Returns the configurations that every run checks.
pub fn configurations() -> Vec<Keys> {
    [(0, 1), (2, 0), (2, 1), (3, 2)]
        .map(|(others, refusals)| Keys {
            others,
            refusals,
            mutant: None,
        })
        .into()
}

/// Returns the mutants, each with the property that it breaks.
pub fn mutants() -> Vec<(Keys, Property)> {
    [
        (Mutant::RevokeReturnsBeforeTheCommand, Property::Late),
        (Mutant::SecondDoesNotWait, Property::Late),
        (Mutant::HcaDoesNotWaitForReads, Property::Late),
        (Mutant::AddressesUsedAgain, Property::Foreign),
        (Mutant::SecondDestroysByNumber, Property::Live),
        (Mutant::DoomedForgotten, Property::Connection),
        (Mutant::MadeBehindTheEnd, Property::Connection),
        (Mutant::NotCountedWhileItEnds, Property::Registration),
        (Mutant::RefusedStaysEnding, Property::Ends),
    ]
    .map(|(mutant, property)| {
        let keys = Keys {
            others: 2,
            refusals: 1,
            mutant: Some(mutant),
        };
        (keys, property)
    })
    .into()
}

/// How far the grant is that the late reader has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    None,
    /// The grant has a place.
    Reserved,
    /// The HCA has made the key.
    Made,
    Live,
    Ending,
    Dead,
}

/// The state of a thread that wants to end the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ender {
    Idle,
    Waits,
    /// The command of the thread runs.
    Runs,
    /// The command of the thread, by the key's number, comes later. Only a mutant does this.
    WillDestroy,
    Returned,
}

/// The state of a number at the HCA. Grants are counted from 0, which is the grant of the late reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Key(u8),
    Dying(u8),
}

const PROGRAM: usize = 0;
const TIME: usize = 1;
const CONNECTION: usize = 2;
/// The index of the thread that made a key whose connection ended before the peer got the key.
const MAKER: usize = 3;

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    stage: Stage,
    is_doomed: bool,
    /// The number of the late reader's key.
    place: u8,
    enders: [Ender; 4],
    slots: [Slot; 2],
    /// The key that a read has found.
    read: Option<u8>,
    /// True if the memory is used for something else.
    is_reused: bool,
    is_over: bool,
    others: u8,
    refusals: u8,
    is_registered: bool,
}

impl Keys {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn make(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let mut next = *state;
        match state.stage {
            Stage::None => {
                if state.is_registered && (!state.is_over || self.is(Mutant::MadeBehindTheEnd)) {
                    next.stage = Stage::Reserved;
                    emit("a grant gets its place", next);
                }
            }
            Stage::Reserved => match next.free() {
                Some(place) => {
                    next.slots[place] = Slot::Key(0);
                    next.place = u8::from(place == 1);
                    next.stage = Stage::Made;
                    emit("the HCA makes the key", next);
                }
                None => {
                    next.stage = Stage::Dead;
                    emit("the HCA has no number left", next);
                }
            },
            Stage::Made if state.is_doomed && !self.is(Mutant::DoomedForgotten) => {
                next.begin(MAKER);
                emit("the maker of a doomed key ends it", next);
            }
            Stage::Made => {
                if state.enders[CONNECTION] == Ender::Returned {
                    let text = "a key is live and its connection is over".to_owned();
                    return broken(Property::Connection, text);
                }
                next.stage = Stage::Live;
                emit("the peer gets the key", next);
            }
            Stage::Live | Stage::Ending | Stage::Dead => {}
        }
        Ok(())
    }

    /// Makes a key for another peer. Such keys stay.
    fn make_another(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        let mut next = *state;
        if state.others < self.others
            && state.is_registered
            && let Some(place) = next.free()
        {
            next.others += 1;
            next.slots[place] = Slot::Key(next.others);
            emit("another gets a key", next);
        }
    }

    fn end(
        &self,
        state: &State,
        ender: usize,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let mut next = *state;
        match state.enders[ender] {
            Ender::Idle => self.look(state, ender, emit),
            Ender::Waits => match state.stage {
                Stage::Dead => {
                    next.enders[ender] = Ender::Returned;
                    emit("a waiting thread learns that it is dead", next);
                }
                Stage::Live => {
                    next.enders[ender] = Ender::Idle;
                    emit("a waiting thread looks again", next);
                }
                _ => {}
            },
            Ender::Runs => self.run(state, ender, emit),
            Ender::WillDestroy => {
                let slot = &mut next.slots[usize::from(state.place)];
                if matches!(slot, Slot::Key(other) if *other != 0) {
                    let text = "another's key was ended".to_owned();
                    return broken(Property::Live, text);
                }
                *slot = Slot::Free;
                next.enders[ender] = Ender::Returned;
                emit("the second destroys what has the number", next);
            }
            Ender::Returned => {}
        }
        Ok(())
    }

    fn look(&self, state: &State, ender: usize, emit: &mut impl FnMut(&'static str, State)) {
        let mut next = *state;
        let second = match () {
            () if self.is(Mutant::SecondDoesNotWait) => Ender::Returned,
            () if self.is(Mutant::SecondDestroysByNumber) => Ender::WillDestroy,
            () => Ender::Waits,
        };
        match (ender, state.stage) {
            // The maker ends a key only if it was doomed before it was live.
            (MAKER, stage) if stage != Stage::Live || !state.is_doomed => {}
            (CONNECTION, _) if !state.is_over => {}
            (CONNECTION, Stage::None) => {
                next.enders[ender] = Ender::Returned;
                emit("the connection has no key", next);
            }
            (CONNECTION, Stage::Reserved | Stage::Made) => {
                (next.is_doomed, next.enders[ender]) = (true, Ender::Returned);
                emit("the end of the connection dooms a key", next);
            }
            (_, Stage::None | Stage::Reserved | Stage::Made) => {}
            (_, Stage::Live) => {
                next.begin(ender);
                if ender == PROGRAM && self.is(Mutant::RevokeReturnsBeforeTheCommand) {
                    // The maker's thread runs the command instead.
                    (next.enders[PROGRAM], next.enders[MAKER]) = (Ender::Returned, Ender::Runs);
                }
                emit("a command begins to end it", next);
            }
            (_, Stage::Ending) => {
                next.enders[ender] = second;
                emit("one comes second", next);
            }
            (_, Stage::Dead) => {
                next.enders[ender] = Ender::Returned;
                emit("it is dead already", next);
            }
        }
    }

    fn run(&self, state: &State, ender: usize, emit: &mut impl FnMut(&'static str, State)) {
        let place = usize::from(state.place);
        let mut next = *state;
        if state.read != Some(0) || self.is(Mutant::HcaDoesNotWaitForReads) {
            next.slots[place] = Slot::Free;
            (next.stage, next.enders[ender]) = (Stage::Dead, Ender::Returned);
            emit("the key is dead", next);
        }
        if state.refusals < self.refusals {
            let mut next = *state;
            next.refusals += 1;
            next.slots[place] = Slot::Key(0);
            next.enders[ender] = Ender::Idle;
            if !self.is(Mutant::RefusedStaysEnding) {
                next.stage = Stage::Live;
            }
            emit("the HCA refuses to end the key", next);
        }
    }

    fn read(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let mut next = *state;
        match state.read {
            None => {
                let is_told = matches!(state.stage, Stage::Live | Stage::Ending | Stage::Dead);
                // The low byte of a key has one bit in the model, so every second grant to a number has the same key.
                if is_told
                    && let Slot::Key(found) = state.slots[usize::from(state.place)]
                    && found % 2 == 0
                    && (found == 0 || self.is(Mutant::AddressesUsedAgain))
                {
                    next.read = Some(found);
                    emit("a read finds its key", next);
                }
            }
            Some(0) if state.is_reused => {
                let text = "a read moves what was written behind the end of its key".to_owned();
                return broken(Property::Late, text);
            }
            Some(0) => {
                next.read = None;
                emit("a read moves its bytes", next);
            }
            Some(other) => {
                let text = format!("a read moves what grant {other} is for");
                return broken(Property::Foreign, text);
            }
        }
        Ok(())
    }

    fn program(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let mut next = *state;
        let is_told_dead = state.enders[PROGRAM] == Ender::Returned
            || state.enders[CONNECTION] == Ender::Returned && !state.is_doomed;
        if is_told_dead && !state.is_reused {
            next.is_reused = true;
            emit("the program uses the memory for something else", next);
        }
        let mut next = *state;
        let is_used = match state.stage {
            Stage::None | Stage::Dead => false,
            Stage::Ending => !self.is(Mutant::NotCountedWhileItEnds),
            Stage::Reserved | Stage::Made | Stage::Live => true,
        };
        if state.is_registered && !is_used && state.others == 0 {
            if state.slots != [Slot::Free; 2] {
                let text = "the HCA has a key over a registration that is gone".to_owned();
                return broken(Property::Registration, text);
            }
            next.is_registered = false;
            emit("the region is taken away", next);
        }
        let mut next = *state;
        if !state.is_over {
            next.is_over = true;
            emit("the connection ends", next);
        }
        Ok(())
    }
}

impl State {
    /// Returns the lowest free number.
    fn free(&self) -> Option<usize> {
        self.slots.iter().position(|slot| *slot == Slot::Free)
    }

    /// Begins the command of thread `ender`. No read finds the key from then on.
    fn begin(&mut self, ender: usize) {
        self.stage = Stage::Ending;
        self.enders[ender] = Ender::Runs;
        self.slots[usize::from(self.place)] = Slot::Dying(0);
    }
}

impl Model for Keys {
    type State = State;
    type Step = &'static str;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        State {
            stage: Stage::None,
            is_doomed: false,
            place: 0,
            enders: [Ender::Idle; 4],
            slots: [Slot::Free; 2],
            read: None,
            is_reused: false,
            is_over: false,
            others: 0,
            refusals: 0,
            is_registered: true,
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        state.stage = one_of(state.stage, &STAGES, codec);
        codec.flag(&mut state.is_doomed);
        codec.byte(&mut state.place, 1);
        for ender in &mut state.enders {
            *ender = one_of(*ender, &ENDERS, codec);
        }
        for slot in &mut state.slots {
            *slot = one_of(*slot, &SLOTS, codec);
        }
        state.read = one_of(state.read, &READS, codec);
        codec.flag(&mut state.is_reused);
        codec.flag(&mut state.is_over);
        codec.byte(&mut state.others, 2);
        codec.byte(&mut state.refusals, 2);
        codec.flag(&mut state.is_registered);
    }

    fn steps(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        self.make(state, emit)?;
        self.make_another(state, emit);
        for ender in [PROGRAM, TIME, CONNECTION, MAKER] {
            self.end(state, ender, emit)?;
        }
        self.read(state, emit)?;
        self.program(state, emit)
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        let waits = state.enders.contains(&Ender::Waits) || state.enders.contains(&Ender::Runs);
        let is_ended = state.enders[CONNECTION] == Ender::Returned;
        if is_ended && !waits && matches!(state.stage, Stage::None | Stage::Dead) {
            Ok(())
        } else {
            broken(Property::Ends, format!("{state:?}"))
        }
    }

    fn is_live(&self) -> bool {
        true
    }
}

const STAGES: [Stage; 6] = [
    Stage::None,
    Stage::Reserved,
    Stage::Made,
    Stage::Live,
    Stage::Ending,
    Stage::Dead,
];

const ENDERS: [Ender; 5] = [
    Ender::Idle,
    Ender::Waits,
    Ender::Runs,
    Ender::WillDestroy,
    Ender::Returned,
];

const SLOTS: [Slot; 6] = [
    Slot::Free,
    Slot::Dying(0),
    Slot::Key(0),
    Slot::Key(1),
    Slot::Key(2),
    Slot::Key(3),
];

const READS: [Option<u8>; 5] = [None, Some(0), Some(1), Some(2), Some(3)];

/// Codes a value of up to 8, by its index in `all`.
pub(super) fn one_of<T: Copy + PartialEq>(value: T, all: &[T], codec: &mut impl Codec) -> T {
    let place = all.iter().position(|one| *one == value);
    let mut place = u8::try_from(place.expect("one of all")).unwrap();
    codec.byte(&mut place, 3);
    all[usize::from(place)]
}
