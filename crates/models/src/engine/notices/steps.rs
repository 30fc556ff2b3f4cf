//! The steps of the model: a record is posted, a write lands, a record is taken, credit travels, the connection breaks and is made again.

use super::configurations::Notices;
use super::property::{Broken, Mutant, Property};
use super::state::{Credit, RING, Receiver, Record, Sender, State, Write};
use crate::engine::limits::MOST_STATES;
use crate::explore::{Codec, Model, broken};

impl Notices {
    fn post(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        let sender = state.sender;
        let has_credit = sender.next < sender.credit || self.is(Mutant::CreditNotLookedAt);
        if sender.is_broken || sender.next >= self.records || !has_credit {
            return;
        }
        let mut next = *state;
        next.sender.next += 1;
        for half in [false, true] {
            next.writes.push(Write {
                connection: sender.connection,
                is_header: half != self.is(Mutant::HeaderBeforeTheBody),
                number: sender.next,
            });
        }
        emit("the sender posts a record", next);
    }

    /// Lets the first write of each connection land, if the receiver's end still takes it.
    fn land(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let writes = state.writes.all();
        for connection in 0..=state.sender.connection {
            let of_it = |write: &Write| write.connection == connection;
            let Some(first) = writes.iter().position(of_it) else {
                continue;
            };
            let write = writes[first];
            let mut next = *state;
            next.writes.remove(first);
            let current = state.receiver.connection;
            if connection != current && !self.is(Mutant::EndNotReset) {
                emit("a write is refused", next);
                continue;
            }
            if connection != current {
                let text = format!("a write of connection {connection} lands in {current}");
                return broken(Property::N3, text);
            }
            self.check_overwritten(state, write.number)?;
            let record = &mut next.ring[self.slot(write.number)];
            if write.is_header {
                record.header = write.number + 1;
            } else {
                record.body = write.number + 1;
            }
            let sender = &mut next.sender;
            if write.is_header && !sender.is_broken && connection == sender.connection {
                sender.completed = sender.completed.max(write.number + 1);
            }
            emit("a write lands", next);
        }
        Ok(())
    }

    fn check_overwritten(&self, state: &State, number: u8) -> Result<(), Broken> {
        let Some(before) = number.checked_sub(self.ring) else {
            return Ok(());
        };
        let is_there = state.ring[self.slot(number)].header == before + 1;
        if is_there && state.receiver.taken <= before {
            broken(
                Property::N2,
                format!("record {before} is overwritten before it is taken"),
            )
        } else {
            Ok(())
        }
    }

    fn take(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let Receiver {
            taken,
            told,
            connection,
            ..
        } = state.receiver;
        let Record { header, body } = state.ring[self.slot(taken)];
        if header == taken + 1 || header > 0 && self.is(Mutant::HeaderWithoutNumber) {
            if (header, body) != (taken + 1, taken + 1) {
                let text =
                    format!("record {taken}: header {header} and body {body}, counted from 1");
                return broken(Property::N1, text);
            }
            let mut next = *state;
            next.receiver.taken += 1;
            emit("the receiver takes a record", next);
        }
        if told < taken {
            let mut next = *state;
            next.receiver.told = taken;
            let count = taken + self.ring;
            next.credits.push(Credit { connection, count });
            emit("the receiver sends credit", next);
        }
        Ok(())
    }

    fn get_credit(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        for (number, credit) in state.credits.all().iter().enumerate() {
            let mut next = *state;
            next.credits.remove(number);
            let is_current = credit.connection == state.sender.connection;
            if !is_current && !self.is(Mutant::OldCreditTaken) {
                emit("an old credit is dropped", next);
                continue;
            }
            if credit.count > state.receiver.taken + self.ring {
                let text = "credit for records that are not taken";
                return broken(Property::N3, text.to_owned());
            }
            next.sender.credit = if self.is(Mutant::CreditStoredNotRaised) {
                credit.count
            } else {
                state.sender.credit.max(credit.count)
            };
            emit("the sender gets credit", next);
        }
        Ok(())
    }

    /// Breaks the connection, and makes it again. At first the sender's QP is in the error state, and packets under way may still land.
    fn break_and_resume(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        let State {
            sender, receiver, ..
        } = *state;
        let mut next = *state;
        if !sender.is_broken {
            if state.breaks > 0 {
                next.sender.is_broken = true;
                next.breaks -= 1;
                emit("the connection breaks", next);
            }
            return;
        }
        let due = state.ring[self.slot(receiver.taken)];
        let is_whole = due.header == receiver.taken + 1;
        if receiver.connection == sender.connection {
            if !is_whole || self.is(Mutant::RingClearedUntaken) {
                next.receiver = Receiver {
                    connection: receiver.connection + 1,
                    told: receiver.taken,
                    answer: receiver.taken + 1,
                    ..receiver
                };
                next.ring = [Record::default(); RING];
                emit("the receiver resets its end and answers", next);
            }
        } else if let Some(accepted) = receiver.answer.checked_sub(1) {
            let start = if self.is(Mutant::ResumedAtTheLastCompletion) {
                sender.completed
            } else if self.is(Mutant::ResumedAtTheLastPost) {
                sender.next
            } else {
                accepted
            };
            next.sender = Sender {
                next: start,
                completed: start,
                credit: accepted + self.ring,
                connection: sender.connection + 1,
                is_broken: false,
            };
            next.receiver.answer = 0;
            if !self.is(Mutant::OldCreditTaken) {
                next.credits = Default::default();
            }
            emit("the sender goes on", next);
        }
    }

    fn slot(&self, number: u8) -> usize {
        usize::from(number % self.ring)
    }
}

impl Model for Notices {
    type State = State;
    type Step = &'static str;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        let mut state = State {
            breaks: self.breaks,
            ..State::default()
        };
        state.sender.credit = self.ring;
        state
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        state.code(codec);
    }

    fn steps(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let emit = &mut |step, next: State| {
            if next != *state {
                emit(step, next);
            }
        };
        self.post(state, emit);
        self.land(state, emit)?;
        self.take(state, emit)?;
        self.get_credit(state, emit)?;
        self.break_and_resume(state, emit);
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        let taken = state.receiver.taken;
        if taken == self.records {
            Ok(())
        } else {
            broken(
                Property::N4,
                format!("{taken} of {} records are delivered", self.records),
            )
        }
    }

    fn is_live(&self) -> bool {
        true
    }
}
