//! The steps of one rank in its present phase.

use super::configuration::{Mutant, Signals};
use super::moves::{Needs, Step, Steps};
use super::pattern::Phase;
use super::state::{COMBINE, DISPATCH, Message, MessageKind, Peer, Rank, State};
use crate::explore::broken;
use crate::moe::property::{Broken, Property};

/// A rank in its present phase, about to take a step.
pub(super) struct RankStep<'a> {
    pub(super) model: &'a Signals,
    pub(super) state: &'a State,
    pub(super) rank: usize,
    pub(super) phase: Phase,
    /// The number of the call, and the index of its signal.
    pub(super) call: u8,
    pub(super) index: usize,
}

impl RankStep<'_> {
    fn me(&self) -> &Rank {
        &self.state.ranks[self.rank]
    }

    fn bit(&self) -> u8 {
        1 << self.phase.call
    }

    fn push(&self, steps: &mut Steps, needs: Needs, what: &'static str, place: usize, next: State) {
        let step = Step {
            what,
            rank: self.rank,
            peer: self.model.peer_of(self.rank, place),
            kind: self.phase.kind,
            call: self.call,
        };
        steps.push((needs, step, next));
    }

    /// Ends the phase.
    fn pass(&self, steps: &mut Steps, what: &'static str) {
        let mut next = *self.state;
        self.end(&mut next);
        self.push(steps, Needs::Nothing, what, 0, next);
    }

    fn end(&self, next: &mut State) {
        let rank = &mut next.ranks[self.rank];
        rank.at += 1;
        rank.done = 0;
        rank.paced = false;
        let begins = self.phase.sends && self.phase.kind == DISPATCH;
        let alone = rank.aborted & self.bit() != 0 || self.awaits_none(rank);
        if self.model.paces && begins && alone {
            rank.ahead += 1;
        }
    }

    /// Returns whether the call has members to exchange with, and all of these are suspects.
    fn awaits_none(&self, rank: &Rank) -> bool {
        let peers = rank.peers[..self.model.ranks - 1].iter();
        let mut wanted = peers
            .filter(|peer| peer.masked & self.bit() == 0)
            .peekable();
        let runs = rank.aborted & self.bit() == 0;
        runs && wanted.peek().is_some() && wanted.all(|peer| peer.suspect)
    }

    /// Lets the call wait for its deadline.
    fn keep_pace(&self, steps: &mut Steps) {
        let mut next = *self.state;
        let rank = &mut next.ranks[self.rank];
        (rank.paced, rank.ahead) = (true, 0);
        self.push(steps, Needs::OwnDeadline, "keeps pace before", 0, next);
    }

    /// Returns the indices of the peers to which the phase may turn next.
    fn places(&self) -> impl Iterator<Item = usize> {
        let done = self.me().done;
        let one = if self.model.parallel { 2 } else { 1 };
        (0..self.model.ranks - 1)
            .filter(move |place| done >> place & 1 == 0)
            .take(one)
    }

    /// Notes that the phase is done with the peer at `place`, and ends the phase if that was the last peer.
    fn sent(&self, next: &mut State, place: usize) {
        let rank = &mut next.ranks[self.rank];
        rank.done |= 1 << place;
        if usize::from(rank.done) == (1 << (self.model.ranks - 1)) - 1 {
            self.end(next);
        }
    }

    fn post(&self, next: &mut State, place: usize, control: bool, message: Message) {
        let model = self.model;
        let lane = match (model.overtakes, model.has(Mutant::QpRotates), control) {
            (true, _, true) => 1,
            (_, true, false) => usize::from(self.phase.call / 2 % 2),
            _ => 0,
        };
        let fifo = model.fifo(self.rank, place, self.index, lane);
        next.fifos[fifo].push(message);
    }

    /// Writes credits and the calls that were not sent.
    fn control(&self, next: &mut State, place: usize) {
        let rank = &mut next.ranks[self.rank];
        let released = rank.released;
        rank.peers[place].told = released;
        let run = rank.peers[place].skipped[self.index];
        let message = Message {
            what: MessageKind::Control,
            call: run.first,
            number: run.number,
            alive: if self.model.tells_calls() {
                self.call
            } else {
                0
            },
            released,
        };
        self.post(next, place, true, message);
    }

    /// The steps of a send phase.
    pub(super) fn send(&self, steps: &mut Steps) {
        let (model, kind) = (self.model, self.phase.kind);
        let mut begun = *self.state;
        if self.me().done == 0 && kind == DISPATCH && !model.has(Mutant::NoClosing) {
            let before = model.before(self.call);
            for closed in &mut begun.ranks[self.rank].released {
                if model.newer(before, *closed) {
                    *closed = before;
                }
            }
        }
        let at_begin = kind == DISPATCH && self.me().done == 0;
        let stopped = (self.me().aborted | self.me().refused) & self.bit() != 0;
        if at_begin && !stopped && self.me().held > 0 {
            self.held(steps, &begun);
            return;
        }
        let waits = at_begin && !self.me().paced && self.awaits_none(self.me());
        if waits && model.paces && !model.has(Mutant::DoesNotKeepPace) {
            self.keep_pace(steps);
            return;
        }
        if self.me().aborted & self.bit() != 0 && model.has(Mutant::AbortNotTold) {
            self.pass(steps, "does not begin");
            return;
        }
        let fresh = kind == DISPATCH && self.me().done == 0 && !stopped;
        let untouched = self.me().peers.iter().all(|p| p.masked & self.bit() == 0);
        if fresh && untouched {
            self.may_stop(steps, &begun);
        }
        for place in self.places() {
            let masked = self.me().peers[place].masked & self.bit() != 0;
            let aborted = self.me().aborted & self.bit() != 0;
            if aborted || (stopped && kind == DISPATCH) || (masked && kind == COMBINE) {
                self.skip(steps, &begun, place, false, "skips");
                continue;
            }
            if kind == DISPATCH && begun.masks > 0 {
                let mut next = begun;
                next.masks -= 1;
                next.ranks[self.rank].peers[place].masked |= self.bit();
                self.skip(steps, &next, place, false, "masks");
            }
            self.send_to(steps, &begun, place);
        }
    }

    /// Lets the call end aborted or refused here. The host may then hold further calls in vain, too.
    fn may_stop(&self, steps: &mut Steps, begun: &State) {
        let bit = self.bit();
        let most = if self.model.paces { begun.aborts } else { 1 };
        for held in 0..most.min(begun.aborts) {
            let mut next = *begun;
            next.aborts -= 1 + held;
            let rank = &mut next.ranks[self.rank];
            rank.aborted |= bit;
            (rank.held, rank.ahead) = (held, 0);
            self.push(steps, Needs::Nothing, "aborts", 0, next);
        }
        if begun.refusals > 0 {
            let mut next = *begun;
            next.refusals -= 1;
            next.ranks[self.rank].refused |= bit;
            self.push(steps, Needs::Nothing, "refuses", 0, next);
        }
    }

    /// Lets a further call be held in vain, until its deadline or until another rank has reached it.
    fn held(&self, steps: &mut Steps, begun: &State) {
        let model = self.model;
        let mut next = *begun;
        let rank = &mut next.ranks[self.rank];
        rank.held -= 1;
        rank.aborted |= self.bit();
        let needs = match self.is_reached() && !model.has(Mutant::HeldToTheDeadline) {
            true => Needs::Nothing,
            false if model.has(Mutant::HeldInVainOnce) => Needs::Nothing,
            false => Needs::OwnDeadline,
        };
        if needs == Needs::OwnDeadline || self.others_have_begun() {
            rank.ahead = 0;
        }
        self.push(steps, needs, "is held in vain before", 0, next);
    }

    /// Returns whether a word says that its sender has begun this call or a later one.
    fn is_reached(&self) -> bool {
        let reached = |word: u8| word != 0 && !self.model.newer(self.call, word);
        let peers = &self.me().peers[..self.model.ranks - 1];
        peers.iter().any(|peer| peer.has_said(reached))
    }

    /// Returns whether a word says that its sender, which is not masked, has begun the call two sets after this one.
    fn is_passed(&self) -> bool {
        let by = if self.model.has(Mutant::PassedBySets) {
            2
        } else {
            4
        };
        let passed = |word: u8| word >= self.call + by;
        let peers = &self.me().peers[..self.model.ranks - 1];
        let mut peers = peers.iter().filter(|peer| peer.masked & self.bit() == 0);
        self.model.passes && peers.any(|peer| peer.has_said(passed))
    }

    /// Ghost: returns whether another rank has begun this call or a later one.
    fn others_have_begun(&self) -> bool {
        let has = |rank: &Rank| {
            let mut begun = self.model.phases.iter().take(1 + usize::from(rank.at));
            begun.any(|phase| phase.call >= self.phase.call)
        };
        let ranks = self.state.ranks[..self.model.ranks].iter().enumerate();
        ranks
            .filter(|(rank, _)| *rank != self.rank)
            .any(|(_, rank)| has(rank))
    }

    /// Sends data if the credit has come. Otherwise the rank sends credits, then waits for the peer's credit.
    fn send_to(&self, steps: &mut Steps, begun: &State, place: usize) {
        let (model, kind) = (self.model, self.phase.kind);
        let rank = &begun.ranks[self.rank];
        let peer = &rank.peers[place];
        let flies = |peer: &Peer| peer.flight[self.index] && peer.last[self.index] != self.call;
        if model.has(Mutant::FlightStopsAll) && self.me().peers.iter().any(flies) {
            self.skip(steps, begun, place, false, "skips");
            return;
        }
        if self.has_credit(peer) || model.has(Mutant::NoCredit) {
            if kind == COMBINE && peer.suspect && model.has(Mutant::SuspectGetsNoCombine) {
                let mut next = *begun;
                self.sent(&mut next, place);
                self.push(steps, Needs::Nothing, "leaves out", place, next);
                return;
            }
            self.data(steps, begun, place);
            return;
        }
        let places = 0..model.ranks - 1;
        let untold = |place: usize| rank.peers[place].told != rank.released;
        if !model.has(Mutant::CreditsNotTold) && places.clone().any(untold) {
            let mut next = *begun;
            for place in places.filter(|place| untold(*place)) {
                self.control(&mut next, place);
            }
            self.push(steps, Needs::Nothing, "sends credits before", place, next);
            return;
        }
        if peer.suspect || peer.vain || self.is_passed() {
            self.skip(steps, begun, place, false, "skips")
        } else {
            self.skip(steps, begun, place, true, "gives up the credit for")
        }
    }

    fn has_credit(&self, peer: &Peer) -> bool {
        if peer.flight[self.index] || (peer.suspect && peer.flight.contains(&true)) {
            return false;
        }
        let (last, credit) = (peer.last[self.index], peer.credit[self.phase.kind]);
        let told = credit != 0 || self.model.has(Mutant::ZeroIsCall);
        last == 0 || (told && !self.model.newer(last, credit))
    }

    fn data(&self, steps: &mut Steps, begun: &State, place: usize) {
        let (model, kind) = (self.model, self.phase.kind);
        let mut next = *begun;
        let rank = &mut next.ranks[self.rank];
        let released = rank.released;
        let peer = &mut rank.peers[place];
        let processed =
            kind == DISPATCH || peer.accepted & self.bit() != 0 || model.has(Mutant::CountRouted);
        peer.last[self.index] = self.call;
        peer.flight[self.index] = model.carried;
        peer.told = released;
        peer.sent[kind] |= self.bit();
        let mut named = released;
        if model.has(Mutant::ReleasedEarly) && rank.at > 0 && kind == DISPATCH {
            named[DISPATCH] = named[DISPATCH].max(self.call - 1);
        }
        let message = Message {
            what: MessageKind::Data,
            call: self.call,
            number: u8::from(processed),
            alive: 0,
            released: named,
        };
        if model.has(Mutant::QpRotates) {
            let payload = Message {
                what: MessageKind::Payload,
                released: [0; 2],
                number: 0,
                ..message
            };
            self.post(&mut next, place, false, payload);
            let word = Message {
                what: MessageKind::Word,
                ..message
            };
            self.post(&mut next, place, false, word);
        } else {
            self.post(&mut next, place, false, message);
        }
        self.sent(&mut next, place);
        self.push(steps, Needs::Nothing, "sends", place, next);
    }

    /// Sends no data to the peer, but a word that says so. `late`: the peer becomes a suspect.
    fn skip(&self, steps: &mut Steps, begun: &State, place: usize, late: bool, what: &'static str) {
        let model = self.model;
        let mut next = *begun;
        if late {
            next.ranks[self.rank].ahead = 0;
        }
        let peer = &mut next.ranks[self.rank].peers[place];
        peer.suspect |= late;
        peer.vain |= late && peer.flight.contains(&true);
        let run = peer.skipped[self.index];
        let skipped = model.with_skipped(run, peer.last[self.index], self.call);
        peer.skipped[self.index] = skipped;
        let masked = peer.masked & self.bit() != 0;
        if model.has(Mutant::SkipOverwrites) {
            let released = next.ranks[self.rank].released;
            next.ranks[self.rank].peers[place].told = released;
            let message = Message {
                what: MessageKind::Overwrite,
                call: self.call,
                number: 0,
                alive: 0,
                released,
            };
            self.post(&mut next, place, true, message);
        } else if model.has(Mutant::NoSkipWord) || (masked && model.has(Mutant::MaskNotTold)) {
            let released = next.ranks[self.rank].released;
            next.ranks[self.rank].peers[place].told = released;
        } else {
            self.control(&mut next, place);
        }
        self.sent(&mut next, place);
        let peer = model.peer_of(self.rank, place);
        let needs = if late {
            Needs::Deadline(peer)
        } else {
            Needs::Nothing
        };
        self.push(steps, needs, what, place, next);
    }

    /// The steps of a receive phase.
    pub(super) fn receive(&self, steps: &mut Steps) -> Result<(), Broken> {
        let kind = self.phase.kind;
        let closed = !self.model.newer(self.call, self.me().released[kind]);
        if closed {
            self.pass(steps, "does not receive");
            return Ok(());
        }
        if self.me().aborted & self.bit() != 0 {
            self.forgo(steps);
            return Ok(());
        }
        if usize::from(self.me().done) == (1 << (self.model.ranks - 1)) - 1 {
            return self.release(steps);
        }
        for place in self.places() {
            self.receive_from(steps, place)?;
        }
        Ok(())
    }

    /// Closes a call that ended aborted at once, and reads nothing.
    fn forgo(&self, steps: &mut Steps) {
        let mut next = *self.state;
        if !self.model.has(Mutant::AbortedClosesLate) {
            next.ranks[self.rank].released[self.phase.kind] = self.call;
        }
        self.end(&mut next);
        self.push(steps, Needs::Nothing, "does not receive", 0, next);
    }

    fn receive_from(&self, steps: &mut Steps, place: usize) -> Result<(), Broken> {
        let (model, kind, index) = (self.model, self.phase.kind, self.index);
        let other = model.peer_of(self.rank, place);
        let peer = &self.me().peers[place];
        let settle = || {
            let mut next = *self.state;
            next.ranks[self.rank].done |= 1 << place;
            next
        };
        if peer.masked & self.bit() != 0 {
            self.push(steps, Needs::Nothing, "does not await", place, settle());
            return Ok(());
        }
        let word = peer.word[index];
        let exact = word.call == self.call && !word.overwritten;
        if exact || (word.call != 0 && model.has(Mutant::AcceptsOlder)) {
            if peer.slot[index] != self.call {
                let (me, call, slot) = (self.rank, self.call, peer.slot[index]);
                return broken(
                    Property::E1,
                    format!("rank {me} accepts call {call} of {other}, the slot holds {slot}"),
                );
            }
            let mut next = settle();
            let own = &mut next.ranks[self.rank].peers[place];
            match kind {
                DISPATCH => own.accepted |= self.bit(),
                _ => own.combined = 1 + u8::from(word.full),
            }
            self.push(steps, Needs::Nothing, "accepts", place, next);
            return Ok(());
        }
        let newer =
            model.word_newer(word.call, self.call) || (word.overwritten && word.call == self.call);
        if newer || model.names(peer.not_sent[index], self.call) {
            let back = model.place_of(other, self.rank);
            if self.state.ranks[other].peers[back].sent[kind] & self.bit() != 0 {
                let (me, call, run) = (self.rank, self.call, peer.not_sent[index]);
                return broken(
                    Property::K1,
                    format!("rank {me} takes call {call} of {other} for not sent: {run:?}"),
                );
            }
            if model.are_healthy(self.rank, other) {
                let (me, call) = (self.rank, self.call);
                return broken(
                    Property::S3,
                    format!("rank {other}, which is well, sends nothing to {me} in call {call}"),
                );
            }
            self.push(steps, Needs::Nothing, "finds not sent", place, settle());
            return Ok(());
        }
        if self.is_passed() {
            if model.are_healthy(self.rank, other) {
                let (me, call) = (self.rank, self.call);
                return broken(
                    Property::S3,
                    format!(
                        "rank {me} takes call {call} for passed, and waits for {other} no more"
                    ),
                );
            }
            let what = "was passed, and does not await";
            self.push(steps, Needs::Nothing, what, place, settle());
            return Ok(());
        }
        let mut next = settle();
        if !peer.suspect {
            next.ranks[self.rank].ahead = 0;
        }
        next.ranks[self.rank].peers[place].suspect = true;
        let (needs, what) = if peer.suspect {
            (Needs::Nothing, "looks in vain for")
        } else {
            (Needs::Deadline(other), "gives up")
        };
        self.push(steps, needs, what, place, next);
        Ok(())
    }

    /// Releases the slots, once all peers are settled and all slots are read.
    fn release(&self, steps: &mut Steps) -> Result<(), Broken> {
        let (model, bit) = (self.model, self.bit());
        let mut next = *self.state;
        next.ranks[self.rank].released[self.phase.kind] = self.call;
        for place in 0..model.ranks - 1 {
            if self.phase.kind == DISPATCH {
                continue;
            }
            let peer = &self.me().peers[place];
            let sent = peer.sent[DISPATCH] & bit != 0;
            let other = model.peer_of(self.rank, place);
            let there = &self.state.ranks[other].peers[model.place_of(other, self.rank)];
            let processed = there.accepted & bit != 0;
            let valid = sent && peer.combined == 2;
            let truth = sent && processed && peer.combined != 0;
            if valid != truth {
                let (me, call) = (self.rank, self.call);
                return broken(
                    Property::M3,
                    format!("token_valid of rank {me} for {other} in call {call} is {valid}"),
                );
            }
            next.ranks[self.rank].peers[place].combined = 0;
        }
        self.end(&mut next);
        self.push(steps, Needs::Nothing, "releases", 0, next);
        Ok(())
    }
}
