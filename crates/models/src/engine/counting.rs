//! A model of WRITEs with an immediate that count at the receiver. The sender has two lives, and one pair of QPs that fails and is used
//! again.
//!
//! The bytes of a WRITE land first. Then the WRITE takes a receive WQE and completes at the receiver, and only then it is acknowledged. The
//! receiver's worker reaps the completion, counts, and posts the receive WQE again. The pair may fail at any moment. The sender then knows
//! nothing of WRITEs that were not acknowledged, and reports them as failed, after the fence. The receiver resets its end when its QP is in
//! error and it has counted all that was received. The program may ask for the counter late. After the end of the sender's first life it
//! resets the counter. Then the second life writes.
//!
//! Over libfabric (`tells`) an acknowledgement may come before the receiver has the completion, and the close of its endpoint drops what it
//! has not taken. So after both closes and before the fence the sender tells how many WRITEs are done, and the receiver counts those that
//! it has not counted.

use super::keys::one_of;
use super::limits::MOST_STATES;
use crate::explore::{Codec, Model, broken};

/// The properties that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// The counter is n only if the bytes of n WRITEs have landed.
    Order,
    /// No WRITE is counted twice.
    Twice,
    /// Every WRITE that is done is counted.
    Lost,
    /// A WRITE that has failed is not counted any more after its conclusion.
    Final,
    /// No WRITE of a life is counted after the end of that life.
    Stale,
    /// The counter is not higher than the number of WRITEs that are done. This property does not hold: a WRITE that has failed may be
    /// counted.
    Exact,
    /// Every WRITE is concluded.
    Ends,
}

impl Property {
    /// All properties. For each, some mutant must break it.
    pub const ALL: [Self; 7] = [
        Self::Order,
        Self::Twice,
        Self::Lost,
        Self::Final,
        Self::Stale,
        Self::Exact,
        Self::Ends,
    ];
}

type Broken = crate::explore::Broken<Property>;

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    ImmediateByAnotherQp,
    ImmediateRepeated,
    FlushedLooksDone,
    DroppedBeforeAsked,
    DroppedWithoutReceive,
    ReceiveNotPostedAgain,
    ResetWithUncounted,
    OldCompletionsCounted,
    ConcludedBeforeTheFence,
    GoneBeforeReset,
    FailedTakenForUncounted,
    ToldForgotten,
    ToldOnTop,
}

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Counting {
    /// The number of WRITEs of both lives, at most 4.
    pub writes: u8,
    /// The number of them that are of the second life.
    pub second: u8,
    /// The number of receive WQEs, 1 or 2.
    pub receives: u8,
    /// How often the pair fails, at most 3.
    pub failures: u8,
    /// True if a close drops completions, and the sender tells what is done.
    pub tells: bool,
    /// The defect; None: the model keeps all rules.
    pub mutant: Option<Mutant>,
}

/// Returns the configurations that every run checks.
pub fn configurations() -> Vec<Counting> {
    let held = [
        (3, 0, 1, 0),
        (3, 0, 2, 1),
        (4, 0, 2, 2),
        (3, 1, 1, 1),
        (4, 2, 2, 1),
    ]
    .map(|(writes, second, receives, failures)| Counting {
        writes,
        second,
        receives,
        failures,
        tells: false,
        mutant: None,
    });
    let told = [(3, 0, 1), (3, 0, 2), (3, 1, 1)].map(|(writes, second, failures)| Counting {
        writes,
        second,
        receives: 1,
        failures,
        tells: true,
        mutant: None,
    });
    held.into_iter().chain(told).collect()
}

/// Returns the mutants, each with the property that it breaks.
pub fn mutants() -> Vec<(Counting, Property)> {
    [
        (Mutant::ImmediateByAnotherQp, Property::Order),
        (Mutant::ImmediateRepeated, Property::Twice),
        (Mutant::FlushedLooksDone, Property::Lost),
        (Mutant::DroppedBeforeAsked, Property::Lost),
        (Mutant::DroppedWithoutReceive, Property::Lost),
        (Mutant::ReceiveNotPostedAgain, Property::Ends),
        (Mutant::ResetWithUncounted, Property::Lost),
        (Mutant::OldCompletionsCounted, Property::Final),
        (Mutant::ConcludedBeforeTheFence, Property::Final),
        (Mutant::GoneBeforeReset, Property::Stale),
        (Mutant::FailedTakenForUncounted, Property::Exact),
        (Mutant::ToldForgotten, Property::Lost),
        (Mutant::ToldOnTop, Property::Order),
    ]
    .map(|(mutant, property)| {
        let counting = Counting {
            writes: 3,
            second: u8::from(property == Property::Stale),
            receives: 1,
            failures: 1,
            tells: matches!(mutant, Mutant::ToldForgotten | Mutant::ToldOnTop),
            mutant: Some(mutant),
        };
        (counting, property)
    })
    .into()
}

/// How far a WRITE is on its way to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    NotPosted,
    Posted,
    /// The bytes of the WRITE have landed, and it waits for a receive WQE.
    Landed,
    /// The WRITE has completed at the receiver.
    Received,
    /// The receiver's end was reset before the WRITE landed.
    Refused,
}

/// What the sender knows of the end of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Pending,
    Done,
    /// The WRITE has failed, and waits for the fence.
    Flushed,
    Failed,
    /// The WRITE was never posted.
    Cancelled,
    /// The life of the WRITE is over.
    Nobodys,
}

/// The state of the pair of QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    Up,
    /// The pair has failed at the sender. Packets under way may still land.
    Failed,
    /// The receiver's QP is in error, or its endpoint is closed.
    Error,
    /// The receiver has reset its end.
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    way: Way,
    outcome: Outcome,
    has_bytes: bool,
    /// The number of completions of the WRITE that the receiver has not reaped.
    queued: u8,
    counted: u8,
    was_repeated: bool,
    /// True if the pair has been reset since it was posted.
    is_old: bool,
}

/// The most WRITEs.
const MOST: usize = 4;

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    writes: [Write; MOST],
    pair: Pair,
    /// The number of receive WQEs that no WRITE has taken.
    receives: u8,
    /// The value of the counter.
    count: u8,
    is_asked: bool,
    is_cancelled: bool,
    is_dead: bool,
    is_second: bool,
    failures: u8,
}

impl Counting {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn numbers(&self) -> std::ops::Range<usize> {
        0..usize::from(self.writes)
    }

    fn is_of_second(&self, number: usize) -> bool {
        number >= usize::from(self.writes - self.second)
    }

    fn post(&self, state: &State, number: usize, emit: &mut impl FnMut(&'static str, State)) {
        let write = state.writes[number];
        let mut next = *state;
        let lives = !state.is_dead && state.is_second == self.is_of_second(number);
        if !lives || state.is_cancelled && write.way == Way::NotPosted {
            return;
        }
        let is_up = state.pair == Pair::Up;
        if is_up && write.way == Way::NotPosted && write.outcome == Outcome::Pending {
            next.writes[number].way = Way::Posted;
            emit("a WRITE is posted", next);
        }
        let repeats = self.is(Mutant::ImmediateRepeated) && !write.was_repeated;
        if is_up && repeats && write.outcome == Outcome::Failed {
            let write = &mut next.writes[number];
            (write.way, write.outcome) = (Way::Posted, Outcome::Pending);
            write.was_repeated = true;
            emit("a WRITE that has failed is posted again", next);
        }
        let is_there = match write.way {
            Way::Received => true,
            Way::Landed => self.tells,
            Way::NotPosted | Way::Posted | Way::Refused => false,
        };
        if is_up && is_there && write.outcome == Outcome::Pending {
            next.writes[number].outcome = Outcome::Done;
            emit("a WRITE is acknowledged", next);
        }
    }

    fn land(&self, state: &State, number: usize, emit: &mut impl FnMut(&'static str, State)) {
        if !matches!(state.pair, Pair::Up | Pair::Failed) {
            return;
        }
        let mut next = *state;
        let write = &mut next.writes[number];
        match write.way {
            Way::Posted => {
                (write.way, write.has_bytes) = (Way::Landed, true);
                emit("the bytes of a WRITE land", next);
                if self.is(Mutant::ImmediateByAnotherQp) && state.receives > 0 {
                    let mut next = *state;
                    next.receive(number);
                    emit("the immediate comes before the bytes", next);
                }
            }
            Way::Landed if self.tells => {
                (write.way, write.queued) = (Way::Received, write.queued + 1);
                emit("the completion of a WRITE comes to the receiver", next);
            }
            Way::Landed if state.receives > 0 => {
                next.receive(number);
                emit("a WRITE completes at the receiver", next);
            }
            Way::Landed if self.is(Mutant::DroppedWithoutReceive) => {
                write.way = Way::Received;
                emit("a WRITE that meets no receive WQE is acknowledged", next);
            }
            Way::Landed | Way::NotPosted | Way::Received | Way::Refused => {}
        }
    }

    fn reap(
        &self,
        state: &State,
        number: usize,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        if state.writes[number].queued == 0 {
            return Ok(());
        }
        let mut next = *state;
        next.writes[number].queued -= 1;
        let is_taking = matches!(state.pair, Pair::Up | Pair::Failed);
        if is_taking && !self.is(Mutant::ReceiveNotPostedAgain) {
            next.receives = (state.receives + 1).min(self.receives);
        }
        if self.is(Mutant::DroppedBeforeAsked) && !state.is_asked {
            emit("the worker drops what nobody has asked for", next);
            return Ok(());
        }
        self.check(state, number)?;
        next.writes[number].counted += 1;
        next.count += 1;
        let landed = self.landed(&next);
        if next.count > landed {
            let text = format!("the counter says {}, {landed} have landed", next.count);
            return broken(Property::Order, text);
        }
        emit("the worker counts", next);
        Ok(())
    }

    /// Checks what must hold when WRITE `number` is counted.
    fn check(&self, state: &State, number: usize) -> Result<(), Broken> {
        let write = &state.writes[number];
        if state.is_second && !self.is_of_second(number) {
            return broken(Property::Stale, format!("WRITE {number} is counted"));
        }
        if write.counted > 0 {
            return broken(Property::Twice, format!("WRITE {number} is counted again"));
        }
        if write.outcome == Outcome::Failed {
            let text = format!("WRITE {number} has failed and is counted");
            return broken(Property::Final, text);
        }
        Ok(())
    }

    /// Returns how many WRITEs of the sender's present life have landed bytes.
    fn landed(&self, state: &State) -> u8 {
        let is_there = |number: &usize| {
            state.writes[*number].has_bytes && state.is_second == self.is_of_second(*number)
        };
        u8::try_from(self.numbers().filter(is_there).count()).unwrap_or(u8::MAX)
    }

    fn fail(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        if state.pair != Pair::Up {
            return;
        }
        let is_first = self.second > 0 && !state.is_second;
        if is_first {
            let mut next = *state;
            (next.pair, next.is_dead) = (Pair::Failed, true);
            for number in self.numbers().filter(|it| !self.is_of_second(*it)) {
                let outcome = &mut next.writes[number].outcome;
                if matches!(outcome, Outcome::Pending | Outcome::Flushed) {
                    *outcome = Outcome::Nobodys;
                }
            }
            emit("the sender's process ends", next);
        }
        if state.failures < self.failures {
            let mut next = *state;
            (next.pair, next.failures) = (Pair::Failed, state.failures + 1);
            for write in &mut next.writes {
                if write.way != Way::NotPosted && write.outcome == Outcome::Pending {
                    write.outcome = match () {
                        () if self.is(Mutant::FlushedLooksDone) => Outcome::Done,
                        () if self.is(Mutant::ConcludedBeforeTheFence) => Outcome::Failed,
                        () => Outcome::Flushed,
                    };
                }
            }
            emit("the pair fails", next);
        }
    }

    /// Counts what the sender has told of this life of the pair, and the receiver has not counted. The two have closed their ends.
    fn count_told(&self, state: &mut State) -> Result<(), Broken> {
        let of_this_life = |write: &&Write| !write.is_old;
        let all = state.writes.iter().filter(of_this_life);
        let done = all.clone().filter(|write| write.outcome == Outcome::Done);
        // A sender that is dead tells nothing.
        let told = if state.is_dead { 0 } else { done.count() };
        let counted = all.filter(|write| write.counted > 0).count();
        let missing = match self.mutant {
            Some(Mutant::ToldForgotten) => 0,
            Some(Mutant::ToldOnTop) => told,
            _ => told.saturating_sub(counted),
        };
        let lost = state
            .writes
            .iter_mut()
            .filter(|write| !write.is_old && write.outcome == Outcome::Done && write.counted == 0);
        lost.take(missing).for_each(|write| write.counted = 1);
        state.count += u8::try_from(missing).unwrap_or(u8::MAX);
        let landed = self.landed(state);
        if state.count > landed {
            let text = format!("the counter says {}, {landed} have landed", state.count);
            return broken(Property::Order, text);
        }
        Ok(())
    }

    /// The steps by which the pair is reset at both ends and used again.
    fn recover(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let mut next = *state;
        let is_dry = state.writes.iter().all(|write| write.queued == 0);
        match state.pair {
            Pair::Up => {}
            Pair::Failed => {
                if state.is_dead && self.is(Mutant::GoneBeforeReset) && !state.is_second {
                    let mut next = *state;
                    (next.is_second, next.count) = (true, 0);
                    emit("the program is told too early that the peer is gone", next);
                }
                (next.pair, next.receives) = (Pair::Error, 0);
                emit("the receiver's QP is in error", next);
                if self.tells {
                    next.writes.iter_mut().for_each(|write| write.queued = 0);
                    emit("the receiver closes, which drops completions", next);
                }
            }
            Pair::Error => {
                let leaves = self.is(Mutant::ResetWithUncounted);
                if leaves {
                    next.writes.iter_mut().for_each(|write| write.queued = 0);
                }
                if is_dry || leaves || self.is(Mutant::OldCompletionsCounted) {
                    next.pair = Pair::Reset;
                    for write in &mut next.writes {
                        if matches!(write.way, Way::Posted | Way::Landed) {
                            write.way = Way::Refused;
                        }
                    }
                    emit("the receiver has reset its end", next);
                }
            }
            Pair::Reset => {
                if self.tells {
                    self.count_told(&mut next)?;
                }
                for write in &mut next.writes {
                    if write.outcome == Outcome::Flushed {
                        write.outcome = Outcome::Failed;
                    }
                    write.is_old |= self.tells && write.way != Way::NotPosted;
                }
                if state.is_dead {
                    (next.is_dead, next.is_second, next.count) = (false, true, 0);
                }
                (next.pair, next.receives) = (Pair::Up, self.receives);
                emit("the fence stands, and the pair is used again", next);
            }
        }
        Ok(())
    }

    fn program(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        if !state.is_asked {
            let next = State {
                is_asked: true,
                ..*state
            };
            emit("the program asks for the counter", next);
        }
        if !state.is_cancelled {
            let mut next = *state;
            next.is_cancelled = true;
            for write in &mut next.writes {
                if write.way == Way::NotPosted && write.outcome == Outcome::Pending {
                    write.outcome = Outcome::Cancelled;
                }
            }
            emit("the sender's program cancels", next);
        }
    }
}

impl State {
    fn receive(&mut self, number: usize) {
        let write = &mut self.writes[number];
        write.way = Way::Received;
        write.queued += 1;
        self.receives -= 1;
    }
}

impl Model for Counting {
    type State = State;
    type Step = &'static str;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        let write = |number: usize| Write {
            way: Way::NotPosted,
            outcome: if number < usize::from(self.writes) {
                Outcome::Pending
            } else {
                Outcome::Cancelled
            },
            has_bytes: false,
            queued: 0,
            counted: 0,
            was_repeated: false,
            is_old: false,
        };
        State {
            writes: [0, 1, 2, 3].map(write),
            pair: Pair::Up,
            receives: self.receives,
            count: 0,
            is_asked: false,
            is_cancelled: false,
            is_dead: false,
            is_second: false,
            failures: 0,
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        for write in &mut state.writes {
            write.way = one_of(write.way, &WAYS, codec);
            write.outcome = one_of(write.outcome, &OUTCOMES, codec);
            codec.flag(&mut write.has_bytes);
            codec.byte(&mut write.queued, 2);
            codec.byte(&mut write.counted, 2);
            codec.flag(&mut write.was_repeated);
            codec.flag(&mut write.is_old);
        }
        state.pair = one_of(state.pair, &PAIRS, codec);
        codec.byte(&mut state.receives, 2);
        codec.byte(&mut state.count, 3);
        codec.flag(&mut state.is_asked);
        codec.flag(&mut state.is_cancelled);
        codec.flag(&mut state.is_dead);
        codec.flag(&mut state.is_second);
        codec.byte(&mut state.failures, 2);
    }

    fn steps(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        for number in self.numbers() {
            self.post(state, number, emit);
            self.land(state, number, emit);
            self.reap(state, number, emit)?;
        }
        self.fail(state, emit);
        self.recover(state, emit)?;
        self.program(state, emit);
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        for write in &state.writes {
            let (outcome, counted) = (write.outcome, write.counted);
            match outcome {
                Outcome::Pending | Outcome::Flushed => {
                    return broken(Property::Ends, format!("{state:?}"));
                }
                Outcome::Done if !self.tells && counted + write.queued == 0 => {
                    return broken(Property::Lost, format!("{state:?}"));
                }
                Outcome::Failed if counted > 0 && self.is(Mutant::FailedTakenForUncounted) => {
                    return broken(Property::Exact, format!("{state:?}"));
                }
                _ => {}
            }
        }
        // One that has failed and is counted stands for one that is done and whose completion was dropped. What a sender knew that is dead
        // is nobody's.
        let of_life = |number: &usize| state.is_second == self.is_of_second(*number);
        let done = |number: &usize| state.writes[*number].outcome == Outcome::Done;
        let done = self.numbers().filter(of_life).filter(done).count();
        if self.tells && done > usize::from(state.count) {
            return broken(Property::Lost, format!("{state:?}"));
        }
        Ok(())
    }

    fn is_live(&self) -> bool {
        true
    }
}

const WAYS: [Way; 5] = [
    Way::NotPosted,
    Way::Posted,
    Way::Landed,
    Way::Received,
    Way::Refused,
];

const OUTCOMES: [Outcome; 6] = [
    Outcome::Pending,
    Outcome::Done,
    Outcome::Flushed,
    Outcome::Failed,
    Outcome::Cancelled,
    Outcome::Nobodys,
];

const PAIRS: [Pair; 4] = [Pair::Up, Pair::Failed, Pair::Error, Pair::Reset];
