//! The steps of a state: messages are delivered, ranks go on, deadlines pass.

use std::fmt;

use super::state::{COMBINE, DISPATCH, DataWord, Message, MessageKind, Rank, Run, State};
use super::turn::RankStep;
use super::{Clock, Mutant, Signals, Skips};
use crate::explore::{Codec, Model, broken};
use crate::moe::{Broken, MOST_STATES, Property};

/// One step, by name.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub(super) what: &'static str,
    pub(super) rank: usize,
    pub(super) peer: usize,
    pub(super) kind: usize,
    pub(super) call: u8,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = ["dispatch", "combine"][self.kind];
        let Self {
            what,
            rank,
            peer,
            call,
            ..
        } = self;
        write!(f, "rank {rank}: {what} {kind} {call}, peer {peer}")
    }
}

/// Whether a step needs a deadline to pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// Giving up on this rank.
    Deadline(usize),
    /// That of a call which awaits no member. It counts against no rank.
    OwnDeadline,
}

pub(super) type Steps = Vec<(Needs, Step, State)>;

impl Model for Signals {
    type State = State;
    type Step = Step;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        let mut state = State::default();
        if let Clock::Any(timeouts) = self.clock {
            state.timeouts = timeouts;
        }
        (state.aborts, state.refusals, state.masks) = (self.aborts, self.refusals, self.masks);
        let before = self.wraps_from.map_or(0, |first| first - 1);
        for rank in &mut state.ranks {
            rank.released = [before; 2];
            for peer in &mut rank.peers {
                peer.told = [before; 2];
            }
        }
        state
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        self.code_state(state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        let slow = self.clock == Clock::Slow;
        let mut delivered = false;
        for fifo in 0..self.fifos() {
            if let Some(message) = state.fifos[fifo].front() {
                let (step, next) = self.deliver(state, fifo, message)?;
                emit(step, next);
                delivered = true;
                if slow {
                    return Ok(()); // the network is fast
                }
            }
        }
        let mut steps = Steps::new();
        for rank in 0..self.ranks {
            self.turn(state, rank, &mut steps)?;
        }
        let fast = |(needs, step, _): &(Needs, Step, State)| {
            *needs == Needs::Nothing && !(slow && step.rank == 0)
        };
        let quiet = !delivered && !steps.iter().any(fast);
        let waits = |rank| {
            let own = |(needs, step, _): &&(Needs, Step, State)| {
                step.rank == rank && matches!(needs, Needs::Deadline(_))
            };
            steps.iter().find(own).is_some()
        };
        for (needs, step, next) in &steps {
            if next.ranks[step.rank].ahead > 1 {
                let text = format!("a rank that awaits no member runs ahead: {step}");
                return broken(Property::PA, text);
            }
            match (needs, self.clock) {
                (Needs::Nothing, _) | (Needs::OwnDeadline, Clock::Any(_)) => emit(*step, *next),
                (Needs::OwnDeadline, Clock::Slow) if quiet => emit(*step, *next),
                (Needs::Deadline(_), Clock::Any(_)) if state.timeouts > 0 => {
                    let mut next = *next;
                    next.timeouts -= 1;
                    emit(*step, next);
                }
                (Needs::Deadline(peer), Clock::Slow) if quiet => {
                    if self.beat && waits(*peer) {
                        continue; // its beat starts the clock again
                    }
                    if *peer != 0 {
                        return broken(Property::P4, format!("a healthy rank is given up: {step}"));
                    }
                    emit(*step, *next);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        let ends = |rank: &Rank| usize::from(rank.at) == self.phases.len();
        let clocks_are_left_out = matches!(self.clock, Clock::Any(timeouts) if timeouts > 0);
        if clocks_are_left_out || state.ranks[..self.ranks].iter().all(ends) {
            return Ok(());
        }
        let places: Vec<_> = state.ranks[..self.ranks]
            .iter()
            .map(|rank| self.phases.get(usize::from(rank.at)))
            .collect();
        broken(Property::DL, format!("no rank can move: {places:?}"))
    }
}

impl Signals {
    pub(super) fn peer_of(&self, rank: usize, place: usize) -> usize {
        (rank + 1 + place) % self.ranks
    }

    /// Place of `other` among the peers of `rank`.
    pub(super) fn place_of(&self, rank: usize, other: usize) -> usize {
        (self.ranks + other - rank - 1) % self.ranks
    }

    /// The steps of one rank.
    fn turn(&self, state: &State, rank: usize, steps: &mut Steps) -> Result<(), Broken> {
        let Some(&phase) = self.phases.get(usize::from(state.ranks[rank].at)) else {
            return Ok(());
        };
        let sets = if self.has(Mutant::OneSet) { 1 } else { 2 };
        let turn = RankStep {
            model: self,
            state,
            rank,
            phase,
            call: self.number(phase.call),
            index: phase.kind * 2 + usize::from(phase.call % sets),
        };
        match phase.sends {
            true => {
                turn.send(steps);
                Ok(())
            }
            false => turn.receive(steps),
        }
    }

    fn deliver(
        &self,
        state: &State,
        fifo: usize,
        message: Message,
    ) -> Result<(Step, State), Broken> {
        let signal = fifo / self.lanes();
        let (index, pair) = (signal % 4, signal / 4);
        let (sender, place) = (pair / (self.ranks - 1), pair % (self.ranks - 1));
        let receiver = self.peer_of(sender, place);
        let kind = index / 2;
        let mut next = *state;
        next.fifos[fifo].pop();
        let rank = &mut next.ranks[receiver];
        let closed = rank.released[kind];
        rank.ahead = 0;
        let peer = &mut rank.peers[self.place_of(receiver, sender)];
        let step = Step {
            what: match message.what {
                MessageKind::Data => "gets data of",
                MessageKind::Payload => "gets payload of",
                MessageKind::Word => "gets word of",
                MessageKind::Control | MessageKind::Overwrite => "gets control of",
            },
            rank: receiver,
            peer: sender,
            kind,
            call: message.call,
        };
        if matches!(message.what, MessageKind::Data | MessageKind::Payload) {
            let old = peer.slot[index];
            if old != 0 && old != message.call && self.newer(old, closed) {
                return broken(
                    Property::C1,
                    format!("{step}: lands over call {old}, released only {closed}"),
                );
            }
            peer.slot[index] = message.call;
        }
        match message.what {
            MessageKind::Payload => return Ok((step, next)),
            MessageKind::Data | MessageKind::Word => {
                peer.word[index] = DataWord {
                    call: message.call,
                    full: message.number != 0,
                    overwritten: false,
                };
            }
            MessageKind::Control => {
                peer.not_sent[index] = Run {
                    first: message.call,
                    number: message.number,
                };
                peer.alive[index] = message.alive;
            }
            MessageKind::Overwrite => {
                peer.word[index] = DataWord {
                    call: message.call,
                    full: false,
                    overwritten: true,
                };
            }
        }
        for kind in [DISPATCH, COMBINE] {
            let (old, new) = (peer.credit[kind], message.released[kind]);
            let newest = match self.has(Mutant::ZeroIsCall) {
                true => self.newer(new, old),
                false => new != 0 && (old == 0 || self.newer(new, old)),
            };
            if newest || self.has(Mutant::LastCreditWins) {
                peer.credit[kind] = new;
            }
        }
        peer.suspect = false;
        Ok((step, next))
    }

    /// The run of calls of which a peer learns that they were not sent, with `call` added.
    pub(super) fn with_skipped(&self, run: Run, last: u8, call: u8) -> Run {
        let behind = match self.wraps_from {
            None => run.first + 2 * run.number,
            Some(_) => (run.first + 2 * run.number) % 16,
        };
        let first_of_set = 2 - call % 2;
        let since_data = last == 0 || self.newer(behind, last);
        let first = match self.skips {
            _ if self.has(Mutant::SkipWithoutStart) => first_of_set,
            _ if run.number != 0 && self.has(Mutant::RunOverData) => run.first,
            Skips::Adjacent => {
                let end = (16 + behind - 2) % 16;
                let adjacent = end == self.before(call) && (last == 0 || self.newer(end, last));
                if run.number != 0 && adjacent {
                    run.first
                } else {
                    call
                }
            }
            Skips::Gaps if run.number != 0 && since_data => run.first,
            Skips::Gaps if last == 0 => first_of_set,
            Skips::Gaps if self.has(Mutant::RunFromLast) => last,
            Skips::Gaps if self.wraps_from.is_some() => (last + 2) % 16,
            Skips::Gaps => last + 2,
        };
        let number = self.distance(first, call) + 1;
        // Half of the half of all numbers that is newer than a call: no run may reach round.
        match self.wraps_from.is_some() && number > 2 && !self.has(Mutant::ZeroIsCall) {
            true => Run {
                first: call,
                number: 1,
            },
            false => Run { first, number },
        }
    }

    pub(super) fn names(&self, run: Run, call: u8) -> bool {
        match self.wraps_from {
            None => call >= run.first && call - run.first < 2 * run.number,
            Some(_) => (16 + call - run.first) % 16 < 2 * run.number % 16,
        }
    }
}
