//! The steps of the model: a notice is sent, put on a stream, accepted, taken and reported. A stream is made, and ends at either end first.

use super::configurations::Stream;
use super::property::{Broken, Mutant, Property};
use super::state::{State, UnderWay};
use crate::engine::limits::MOST_STATES;
use crate::explore::{Codec, Model, broken};

impl Stream {
    fn push(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        let has_room = state.end < state.first + self.room || self.is(Mutant::RoomNotLookedAt);
        if state.end < self.notices && has_room {
            let mut next = *state;
            next.end += 1;
            emit("the program sends a notice", next);
        }
    }

    fn make(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        let ways = state.ways.iter().take(self.streams.into());
        let Some(number) = ways.into_iter().position(|way| !way.is_made) else {
            return;
        };
        let mut next = *state;
        let way = &mut next.ways[number];
        (way.is_made, way.at_sender, way.at_receiver) = (true, true, true);
        way.back.push(state.accepted);
        way.told = state.taken;
        way.back.push(state.taken);
        emit(
            "a stream is made, and the receiver says what it waits for",
            next,
        );
    }

    /// Lets a stream end at one of its ends. The last stream does not end.
    fn end(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        for number in 0..self.streams - 1 {
            let at = usize::from(number);
            let way = state.ways[at];
            if way.at_sender {
                let mut next = *state;
                next.ways[at].at_sender = false;
                next.ways[at].back = UnderWay::default();
                if !self.is(Mutant::EndedStreamCarries) {
                    next.leave(number);
                }
                emit("the sender's end of a stream is gone", next);
            }
            if way.at_receiver {
                let mut next = *state;
                next.ways[at].at_receiver = false;
                next.ways[at].there = UnderWay::default();
                emit("the receiver's end of a stream is gone", next);
            }
        }
    }

    fn put(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) -> Result<(), Broken> {
        for (at, way) in state.ways.iter().enumerate() {
            let carries = state.carrier() == Some(at) || self.is(Mutant::AllStreamsCarry);
            if !way.at_sender || !way.is_heard || !carries {
                continue;
            }
            let number = if self.is(Mutant::ResumedBeforeTheKept) {
                way.next
            } else {
                way.next.max(state.first)
            };
            if number >= state.end {
                continue;
            }
            if number < state.first {
                let text = format!("notice {number} is to go: from {} on are kept", state.first);
                return broken(Property::Rules, text);
            }
            let mut next = *state;
            next.ways[at].next = number + 1;
            next.sent = state.sent.max(number + 1);
            if way.at_receiver {
                next.ways[at].there.push(number);
            }
            if self.is(Mutant::ForgottenOnceSent) {
                next.first = number + 1;
            }
            emit("a stream gets a notice", next);
        }
        Ok(())
    }

    fn accept(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        for at in 0..state.ways.len() {
            let mut next = *state;
            let Some(number) = next.ways[at].there.pop() else {
                continue;
            };
            let due = state.accepted;
            if number > due {
                return broken(
                    Property::Rules,
                    format!("notice {number} comes: {due} is due"),
                );
            }
            if number < due && !self.is(Mutant::OldNumberAccepted) {
                emit("a notice that was there before is dropped", next);
                continue;
            }
            if number != due {
                return broken(
                    Property::Once,
                    format!("notice {number} is delivered for {due}"),
                );
            }
            if due - state.taken >= self.room {
                return broken(Property::Room, format!("notice {number} has no room"));
            }
            next.accepted += 1;
            emit("a notice is accepted", next);
        }
        Ok(())
    }

    fn take(&self, state: &State, emit: &mut impl FnMut(&'static str, State)) {
        if state.taken < state.accepted {
            let mut next = *state;
            next.taken += 1;
            emit("the program takes a notice", next);
        }
        for (at, way) in state.ways.iter().enumerate() {
            if way.at_receiver && way.told != state.taken {
                let mut next = *state;
                next.ways[at].told = state.taken;
                if way.at_sender {
                    next.ways[at].back.push(state.taken);
                }
                emit("the receiver reports what was taken", next);
            }
        }
    }

    fn hear(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        for number in 0..self.streams {
            let at = usize::from(number);
            let mut next = *state;
            let Some(count) = next.ways[at].back.pop() else {
                continue;
            };
            if count > state.sent {
                let text = format!("{count} are accepted or taken: {} were sent", state.sent);
                return broken(Property::Rules, text);
            }
            if state.ways[at].is_heard {
                next.first = if self.is(Mutant::CountStoredNotRaised) {
                    count
                } else {
                    state.first.max(count)
                };
                emit("the sender hears what was taken", next);
                continue;
            }
            next.ways[at].is_heard = true;
            next.ways[at].next = if self.is(Mutant::ResumedAtTheLastSent) {
                state.sent
            } else {
                count
            };
            next.enter(number);
            emit("the sender hears what is waited for", next);
        }
        Ok(())
    }
}

impl Model for Stream {
    type State = State;
    type Step = &'static str;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        State::default()
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        state.code(codec);
    }

    fn steps(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        self.push(state, emit);
        self.make(state, emit);
        self.end(state, emit);
        self.put(state, emit)?;
        self.accept(state, emit)?;
        self.take(state, emit);
        self.hear(state, emit)
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        let taken = state.taken;
        if taken == self.notices {
            Ok(())
        } else {
            broken(
                Property::Ends,
                format!("{taken} of {} notices are taken", self.notices),
            )
        }
    }

    fn is_live(&self) -> bool {
        true
    }
}
