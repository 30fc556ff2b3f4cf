//! The steps of a state: messages are delivered, ranks go on, deadlines pass.

use super::configuration::{Clock, Mutant, Signals, Skips};
use super::moves::{Needs, Step, Steps};
use super::state::{self, COMBINE, DISPATCH, DataWord, Message, MessageKind, Rank, Run, State};
use super::turn::RankStep;
use crate::explore::{Codec, Model, broken};
use crate::moe::limits::MOST_STATES;
use crate::moe::property::{Broken, Property};

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
        state::code(self, state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        let slow = matches!(self.clock, Clock::Slow | Clock::Cut(_));
        let mut delivered = false;
        self.cut_link(state, emit);
        for fifo in 0..self.fifos() {
            let (sender, receiver) = self.ends_of(fifo);
            if let Some(message) = state.fifos[fifo].front()
                && self.carries(state, sender, receiver)
            {
                let (step, next) = self.deliver(state, fifo, message)?;
                emit(step, next);
                delivered = true;
                if slow {
                    return Ok(()); // the network is fast
                }
            }
        }
        for fifo in (0..self.fifos()).filter(|_| self.carried) {
            if let Some((step, next)) = self.complete(state, fifo) {
                emit(step, next);
                delivered = true;
                if slow {
                    return Ok(());
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
                (Needs::OwnDeadline, Clock::Slow | Clock::Cut(_)) if quiet => emit(*step, *next),
                (Needs::Deadline(_), Clock::Any(_)) if state.timeouts > 0 => {
                    let mut next = *next;
                    next.timeouts -= 1;
                    emit(*step, next);
                }
                (Needs::Deadline(peer), Clock::Slow | Clock::Cut(_)) if quiet => {
                    // A rank that is cut off hears no beat, and what starts the clock again is limited.
                    let beats = self.beat && self.carries(state, *peer, step.rank);
                    let limited = *peer == 0 && state.was_cut;
                    if beats && waits(*peer) && !limited {
                        continue; // its beat starts the clock again
                    }
                    let reached = self.cut().is_some() && !state.cut;
                    if step.rank == 0 && reached && self.has_passed(state, *peer) {
                        let text = format!("{step}, which has passed it");
                        return broken(Property::S5, text);
                    }
                    let cut_off = step.rank == 0 && state.was_cut;
                    if *peer != 0 && !cut_off {
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
    /// Returns whether packets of rank `from` arrive at rank `to`.
    pub(super) fn carries(&self, state: &State, from: usize, to: usize) -> bool {
        let Some(cut) = self.cut().filter(|_| state.cut) else {
            return true;
        };
        !((from == 0 && cut.from) || (to == 0 && cut.to))
    }

    pub(super) fn peer_of(&self, rank: usize, place: usize) -> usize {
        (rank + 1 + place) % self.ranks
    }

    /// Returns the index of `other` among the peers of `rank`.
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
        if phase.sends {
            turn.send(steps);
            Ok(())
        } else {
            turn.receive(steps)
        }
    }

    /// The steps by which the link of rank 0 is cut, and is back.
    fn cut_link(&self, state: &State, emit: &mut impl FnMut(Step, State)) {
        let Some(cut) = self.cut() else {
            return;
        };
        let mut go = |what, next| {
            let step = Step {
                what,
                rank: 0,
                peer: 0,
                kind: DISPATCH,
                call: 0,
            };
            emit(step, next);
        };
        let mut next = *state;
        if !state.was_cut {
            (next.cut, next.was_cut) = (true, true);
            go("has a link that is cut before", next);
        } else if state.cut && cut.mends {
            next.cut = false;
            go("has its link back before", next);
        }
    }

    /// Returns whether rank `other` has told rank 0 all that the phase of rank 0 waits for. Then it has sent, has closed the last call of
    /// the set, and has sent after that.
    fn has_passed(&self, state: &State, other: usize) -> bool {
        let place = |rank: usize| usize::from(state.ranks[rank].at);
        let phase = self.phases[place(0)];
        let passed = |kind, call| {
            let found = self
                .phases
                .iter()
                .position(|other| other.sends && other.kind == kind && other.call == call);
            found.is_some_and(|at| at < place(other))
        };
        if phase.sends {
            // The other rank closes the last call of the set when it begins this call.
            passed(DISPATCH, phase.call)
        } else {
            passed(phase.kind, phase.call)
        }
    }

    /// Returns the sender and the receiver of a FIFO.
    fn ends_of(&self, fifo: usize) -> (usize, usize) {
        let pair = fifo / self.lanes() / 4;
        let (sender, place) = (pair / (self.ranks - 1), pair % (self.ranks - 1));
        (sender, self.peer_of(sender, place))
    }

    /// Lets the HCA of the sender learn that the data of a FIFO has arrived, if it has.
    fn complete(&self, state: &State, fifo: usize) -> Option<(Step, State)> {
        let (sender, receiver) = self.ends_of(fifo);
        let (index, place) = (fifo / self.lanes() % 4, self.place_of(sender, receiver));
        let flies = state.ranks[sender].peers[place].flight[index];
        let arrives = !state.fifos[fifo].has_data() && self.carries(state, receiver, sender);
        if !flies || !arrives || !self.carries(state, sender, receiver) {
            return None;
        }
        let mut next = *state;
        let peer = &mut next.ranks[sender].peers[place];
        peer.flight[index] = false;
        peer.vain &= peer.flight.contains(&true);
        let step = Step {
            what: "has carried",
            rank: sender,
            peer: receiver,
            kind: index / 2,
            call: peer.last[index],
        };
        Some((step, next))
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
            let newest = if self.has(Mutant::ZeroIsCall) {
                self.newer(new, old)
            } else {
                new != 0 && (old == 0 || self.newer(new, old))
            };
            if newest || self.has(Mutant::LastCreditWins) {
                peer.credit[kind] = new;
            }
        }
        peer.suspect = false;
        Ok((step, next))
    }

    /// Returns `run` with `call` added. A run names the calls of which a peer learns that they were not sent.
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
        // The bound is a half of those numbers that count as newer than a call, so that no run reaches round.
        if self.wraps_from.is_some() && number > 2 && !self.has(Mutant::ZeroIsCall) {
            Run {
                first: call,
                number: 1,
            }
        } else {
            Run { first, number }
        }
    }

    pub(super) fn names(&self, run: Run, call: u8) -> bool {
        match self.wraps_from {
            None => call >= run.first && call - run.first < 2 * run.number,
            Some(_) => (16 + call - run.first) % 16 < 2 * run.number % 16,
        }
    }
}
