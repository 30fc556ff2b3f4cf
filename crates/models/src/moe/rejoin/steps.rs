//! The steps of the three ranks, and of the change of members.

use std::fmt;

use super::configuration::{Mutant, Rejoin};
use super::state::{
    At, FROM_JOINER, Message, STAGES, Side, Stage, State, TO_JOINER, TO_OLD, TO_SURVIVOR, Who,
    code_side,
};
use crate::explore::{Codec, Model, broken};
use crate::moe::limits::MOST_STATES;
use crate::moe::property::{Broken, Property};

/// The name of a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    who: Who,
    what: &'static str,
    call: u8,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.who, self.what, self.call)
    }
}

/// The possible steps of one rank: their names, its next states, and the messages that it sends.
type Moves = Vec<(&'static str, Side, Option<(usize, Message)>)>;

impl Rejoin {
    /// Lets a message land at `who`.
    fn land(
        side: &Side,
        who: Who,
        writer: Who,
        message: Message,
        set: usize,
    ) -> Result<Side, Broken> {
        let mut next = *side;
        next.credit = next.credit.max(message.credit);
        if message.epoch == 0 {
            next.not_sent[set] = (message.call, message.last);
            return Ok(next);
        }
        let (owner, call) = side.slot[set];
        if call > side.released && owner == writer && who != Who::Old {
            return broken(
                Property::C1,
                format!(
                    "call {} of {writer:?} lands at {who:?} over call {call}",
                    message.call
                ),
            );
        }
        next.slot[set] = (writer, message.call);
        next.word[set] = (message.epoch, message.call);
        Ok(next)
    }

    /// Returns the steps of one rank. `free`: the rank gives up whenever it likes.
    fn moves(
        &self,
        side: &Side,
        who: Who,
        epoch: u8,
        free: bool,
        writer: Who,
    ) -> Result<Moves, Broken> {
        let mut moves = Moves::new();
        let Side { call, at, .. } = *side;
        if call > self.calls {
            return Ok(moves);
        }
        let set = usize::from(call % 2);
        let data = |call| Message {
            epoch,
            call,
            last: 0,
            credit: side.released,
        };
        let control = |first, last, credit| Message {
            epoch: 0,
            call: first,
            last,
            credit,
        };
        let passed = Side {
            call: call + 1,
            at: At::Send,
            released: call,
            ..*side
        };
        match at {
            // In epoch 2 the next dispatch is sent before the present one is received.
            At::Ahead | At::Send if epoch == 2 => {
                let sent = if at == At::Ahead { call } else { call + 1 };
                let mut next = *side;
                next.at = At::Receive;
                if sent > self.calls {
                    moves.push(("has no more to send than", next, None));
                } else if side.last[usize::from(sent % 2)] <= side.credit {
                    let set = usize::from(sent % 2);
                    next.at = if at == At::Ahead {
                        At::Send
                    } else {
                        At::Receive
                    };
                    next.last[set] = sent;
                    moves.push(("sends", next, Some((set, data(sent)))));
                }
            }
            At::Ahead | At::Send => {
                let mut next = *side;
                next.at = At::Receive;
                if side.last[set] <= side.credit {
                    next.last[set] = call;
                    moves.push(("sends", next, Some((set, data(call)))));
                } else if free {
                    let message = control(call, call, side.released);
                    moves.push(("skips", next, Some((set, message))));
                }
            }
            At::Receive => {
                let (word_epoch, word) = side.word[set];
                let (first, last) = side.not_sent[set];
                if word == call && word_epoch == epoch {
                    if side.slot[set] != (writer, call) {
                        let slot = side.slot[set];
                        return broken(
                            Property::E1,
                            format!(
                                "{who:?} accepts {call} of {writer:?}, the slot holds {slot:?}"
                            ),
                        );
                    }
                    let mut next = *side;
                    next.at = At::Reading;
                    moves.push(("accepts", next, None));
                } else if word > call || (first <= call && call <= last) {
                    if !free && who != Who::Old {
                        return broken(
                            Property::K1,
                            format!("{who:?} takes {call} of {writer:?} for not sent: {side:?}"),
                        );
                    }
                    moves.push(("finds not sent", passed, None));
                } else if free {
                    moves.push(("gives up", passed, None));
                }
            }
            At::Reading => {
                let tells = (epoch == 2).then(|| (set, control(0, 0, call)));
                moves.push(("releases", passed, tells));
            }
        }
        Ok(moves)
    }

    fn deliver(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        let stage = state.stage;
        for set in 0..2 {
            for way in [TO_SURVIVOR, TO_OLD, FROM_JOINER, TO_JOINER] {
                let fifo = &state.fifos[way][set];
                if fifo.len == 0 {
                    continue;
                }
                let message = fifo.messages[0];
                let mut next = *state;
                next.fifos[way][set].len -= 1;
                next.fifos[way][set].messages.copy_within(1.., 0);
                let land = |side: &Side, who, writer| Self::land(side, who, writer, message, set);
                let unfenced = self.has(Mutant::NoFence);
                let who = match way {
                    TO_SURVIVOR => {
                        if unfenced && stage == Stage::Joined && message.epoch != 0 {
                            let text = format!("call {} lands in a slot in use", message.call);
                            return broken(Property::E2, text);
                        }
                        if stage < Stage::Fenced || unfenced {
                            next.survivor = land(&state.survivor, Who::Survivor, Who::Old)?;
                        }
                        Who::Survivor
                    }
                    TO_OLD => {
                        next.old = land(&state.old, Who::Old, Who::Survivor)?;
                        Who::Old
                    }
                    FROM_JOINER => {
                        next.survivor = land(&state.survivor, Who::Survivor, Who::Joiner)?;
                        Who::Survivor
                    }
                    _ => {
                        next.joiner = land(&state.joiner, Who::Joiner, Who::Survivor)?;
                        Who::Joiner
                    }
                };
                let call = message.call;
                emit(
                    Step {
                        who,
                        what: "gets",
                        call,
                    },
                    next,
                );
            }
        }
        Ok(())
    }

    /// The steps of the change of members.
    fn change(&self, state: &State, emit: &mut impl FnMut(Step, State)) {
        let call = state.survivor.call;
        let mut go = |what, next| {
            emit(
                Step {
                    who: Who::Survivor,
                    what,
                    call,
                },
                next,
            );
        };
        let at = |stage| State { stage, ..*state };
        match state.stage {
            Stage::Old if call + 2 < self.calls => {
                let fixed = State {
                    first: call + 1,
                    ..at(Stage::Fixed)
                };
                go("fixes the first call at", fixed);
            }
            Stage::Fixed => go("fences at", at(Stage::Fenced)),
            Stage::Fenced => go("commits at", at(Stage::Grace)),
            _ => {}
        }
        let early = self.has(Mutant::ClearBeforeFence) && state.stage == Stage::Fixed;
        if call < state.first || !(early || state.stage == Stage::Grace) {
            return;
        }
        let cleared = self.cleared(&state.survivor, state.stage);
        if early {
            let mut next = *state;
            next.survivor = Side {
                at: state.survivor.at,
                ..cleared
            };
            go("clears early at", next);
            return;
        }
        let mut next = at(Stage::Joined);
        next.survivor = cleared;
        let from_one = self.has(Mutant::JoinerCountsFromOne);
        next.joiner = Side::new(if from_one { 1 } else { state.first });
        next.joiner.at = At::Ahead;
        if self.has(Mutant::LastKept) {
            next.joiner.released = 0;
        }
        go("clears at", next);
    }

    fn cleared(&self, side: &Side, stage: Stage) -> Side {
        let mut next = Side {
            call: side.call,
            at: At::Ahead,
            released: side.released,
            slot: side.slot,
            ..Side::default()
        };
        let late = self.has(Mutant::ClearBeforeFence) && stage == Stage::Grace;
        if self.has(Mutant::NotCleared) || late {
            (next.word, next.not_sent, next.credit) = (side.word, side.not_sent, side.credit);
        }
        if self.has(Mutant::CreditNotCleared) {
            next.credit = side.credit;
        }
        if self.has(Mutant::SkipNotCleared) {
            next.not_sent = side.not_sent;
        }
        if self.has(Mutant::LastKept) {
            next.last = side.last;
        }
        next
    }
}

impl Model for Rejoin {
    type State = State;
    type Step = Step;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        State {
            survivor: Side::new(1),
            old: Side::new(1),
            ..State::default()
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        for side in [&mut state.survivor, &mut state.old, &mut state.joiner] {
            code_side(side, codec);
        }
        let mut stage = state.stage as u8;
        codec.byte(&mut stage, 3);
        state.stage = STAGES[usize::from(stage)];
        codec.byte(&mut state.first, 4);
        for fifo in state.fifos.as_flattened_mut() {
            codec.byte(&mut fifo.len, 4);
            for message in &mut fifo.messages[..usize::from(fifo.len)] {
                codec.byte(&mut message.epoch, 2);
                for field in [&mut message.call, &mut message.last, &mut message.credit] {
                    codec.byte(field, 4);
                }
            }
        }
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        self.deliver(state, emit)?;
        let joined = state.stage == Stage::Joined;
        if !joined {
            for (what, side, message) in self.moves(&state.old, Who::Old, 1, true, Who::Survivor)? {
                let mut next = State {
                    old: side,
                    ..*state
                };
                post(&mut next, TO_SURVIVOR, message);
                let call = state.old.call;
                emit(
                    Step {
                        who: Who::Old,
                        what,
                        call,
                    },
                    next,
                );
            }
        }
        let who = Who::Survivor;
        let call = state.survivor.call;
        if state.first == 0 || call < state.first {
            for (what, side, message) in self.moves(&state.survivor, who, 1, true, Who::Old)? {
                let mut next = State {
                    survivor: side,
                    ..*state
                };
                if state.stage < Stage::Fenced {
                    post(&mut next, TO_OLD, message);
                }
                emit(Step { who, what, call }, next);
            }
        } else if joined {
            for (what, side, message) in self.moves(&state.survivor, who, 2, false, Who::Joiner)? {
                let mut next = State {
                    survivor: side,
                    ..*state
                };
                post(&mut next, TO_JOINER, message);
                emit(Step { who, what, call }, next);
            }
        }
        if joined {
            let who = Who::Joiner;
            for (what, side, message) in self.moves(&state.joiner, who, 2, false, Who::Survivor)? {
                let mut next = State {
                    joiner: side,
                    ..*state
                };
                post(&mut next, FROM_JOINER, message);
                let call = state.joiner.call;
                emit(Step { who, what, call }, next);
            }
        }
        self.change(state, emit);
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        let (survivor, joiner) = (state.survivor.call, state.joiner.call);
        let ended = state.stage == Stage::Joined && survivor > self.calls && joiner > self.calls;
        if ended || state.first == 0 {
            Ok(())
        } else {
            broken(
                Property::L,
                format!("stuck: the survivor at {survivor}, the joiner at {joiner}"),
            )
        }
    }
}

fn post(state: &mut State, way: usize, message: Option<(usize, Message)>) {
    if let Some((set, message)) = message {
        let fifo = &mut state.fifos[way][set];
        fifo.messages[usize::from(fifo.len)] = message;
        fifo.len += 1;
    }
}
