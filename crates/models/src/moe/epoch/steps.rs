//! The steps of a host and of its device.

use std::fmt;

use super::configuration::{Epoch, Mutant};
use super::state::{self, Device, OPEN, Promise, Rank, Record, State, Used, View};
use crate::explore::{Codec, Model, broken};
use crate::moe::limits::MOST_STATES;
use crate::moe::property::{Broken, Property};

/// The name of a step; `value` is its subject.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    rank: usize,
    what: &'static str,
    value: u8,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} {} {}", self.rank, self.what, self.value)
    }
}

impl Model for Epoch {
    type State = State;
    type Step = Step;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        let all = (1 << self.ranks) - 1;
        let members = if self.join { all >> 1 } else { all };
        let mut state = State {
            record: Record {
                epoch: 1,
                mask: members,
                first: 1,
                ..Record::default()
            },
            deaths: self.deaths,
            suspicions: self.suspicions,
            aborts: self.aborts,
            ..State::default()
        };
        for (number, rank) in state.ranks[..self.ranks].iter_mut().enumerate() {
            *rank = Rank {
                alive: true,
                promised: 1,
                next: 1,
                invocation: 1,
                ..Rank::default()
            };
            if members >> number & 1 != 0 {
                rank.epoch = 1;
                rank.limit = OPEN;
                rank.views[0] = View {
                    first: 1,
                    epoch: 1,
                    mask: members,
                };
            }
        }
        state
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        state::code(self, state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        for rank in 0..self.ranks {
            if !state.ranks[rank].alive {
                continue;
            }
            let mut emit = |what, value, next| emit(Step { rank, what, value }, next);
            let Record { mask, proposed, .. } = state.record;
            if state.deaths > 0 && (mask | proposed) >> rank & 1 != 0 {
                let mut next = changed(state, rank, |rank| rank.alive = false);
                next.deaths -= 1;
                emit("dies", 0, next);
            }
            self.end_qps(state, rank, &mut emit);
            self.propose(state, rank, &mut emit);
            self.promise(state, rank, &mut emit);
            self.commit(state, rank, &mut emit)?;
            self.apply(state, rank, &mut emit);
            self.device(state, rank, &mut emit)?;
        }
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        for (number, rank) in state.ranks[..self.ranks].iter().enumerate() {
            let member = state.record.mask >> number & 1 != 0;
            if rank.alive && member && rank.next <= self.calls {
                let next = rank.next;
                return broken(
                    Property::L,
                    format!("member {number} is held at call {next} for ever"),
                );
            }
        }
        Ok(())
    }
}

fn changed(state: &State, rank: usize, change: impl FnOnce(&mut Rank)) -> State {
    let mut next = *state;
    change(&mut next.ranks[rank]);
    next
}

impl Epoch {
    /// A11: a host ends QPs only on certain evidence. A missed deadline is no evidence.
    fn end_qps(&self, state: &State, rank: usize, emit: &mut impl FnMut(&'static str, u8, State)) {
        let host = &state.ranks[rank];
        if !self.evidence || host.epoch == 0 {
            return;
        }
        for other in (0..self.ranks).filter(|other| *other != rank) {
            let alive = state.ranks[other].alive;
            let clock = self.has(Mutant::EndsAtTheDeadline) && state.suspicions > 0;
            if host.fenced >> other & 1 != 0 || (alive && !clock) {
                continue;
            }
            let mut next = changed(state, rank, |host| host.fenced |= 1 << other);
            next.suspicions -= u8::from(alive);
            emit("ends the QPs to", u8::try_from(other).unwrap(), next);
        }
    }

    /// A member that has applied the present epoch proposes a change, or makes an open proposal smaller.
    fn propose(&self, state: &State, rank: usize, emit: &mut impl FnMut(&'static str, u8, State)) {
        let record = state.record;
        let open = record.proposal != 0;
        let now = if open { record.proposed } else { record.mask };
        let applied = state.ranks[rank].epoch == record.epoch;
        if !applied || record.mask >> rank & 1 == 0 || now >> rank & 1 == 0 {
            return;
        }
        let dead = |number: usize| !state.ranks[number].alive;
        let dead: u8 = (0..self.ranks).filter(|r| dead(*r)).map(|r| 1 << r).sum();
        let number = if open {
            record.proposal + 1
        } else {
            record.epoch * 8
        };
        if number % 8 >= 5 {
            return;
        }
        let mut propose = |mask, suspicions| {
            let mut next = *state;
            next.record.proposal = number;
            next.record.proposed = mask;
            next.suspicions = suspicions;
            emit("proposes", mask, next);
        };
        if now & dead != 0 {
            propose(now & !dead, state.suspicions);
        }
        if state.suspicions > 0 {
            for other in (0..self.ranks).filter(|other| *other != rank) {
                if now & !dead & 1 << other != 0 {
                    propose(now & !(1 << other), state.suspicions - 1);
                }
            }
        }
        let joiner = self.ranks - 1;
        let joins = self.join && !open && record.epoch == 1;
        if joins && record.mask >> joiner & 1 == 0 && state.ranks[joiner].alive {
            propose(record.mask & !dead | 1 << joiner, state.suspicions);
        }
        let grown = record.mask & !dead;
        if self.has(Mutant::ProposalGrows) && open && grown & !record.proposed != 0 {
            propose(record.proposed | grown, state.suspicions);
        }
    }

    /// The host closes `limit`, reads `started`, opens `limit` up to it, fences and promises.
    fn promise(&self, state: &State, rank: usize, emit: &mut impl FnMut(&'static str, u8, State)) {
        let record = state.record;
        let host = state.ranks[rank];
        let open = record.proposal != 0 && record.proposed >> rank & 1 != 0;
        let joins = record.mask >> rank & 1 == 0 || self.has(Mutant::PromiseBeforeApply);
        let applied = host.epoch == record.epoch || (host.epoch == 0 && joins);
        if !open || host.proposal == record.proposal || !applied {
            return;
        }
        let fenced = if self.has(Mutant::FenceAfterCommit) {
            host.fenced
        } else {
            host.fenced | (record.mask & !record.proposed)
        };
        let attempt = usize::from(record.proposal % 8);
        let promised = |change: &dyn Fn(&mut Rank), number| {
            let mut next = changed(state, rank, |host| {
                change(host);
                host.proposal = record.proposal;
                host.fenced = fenced;
            });
            next.promises[attempt][rank] = number + 1;
            next
        };
        let again = host.proposal / 8 == record.proposal / 8;
        if host.epoch == 0 || again {
            let number = if host.epoch == 0 { 0 } else { host.promised };
            emit("promises again", number, promised(&|_| {}, number));
            return;
        }
        let reads_first = self.has(Mutant::StartedReadBeforeLimitClosed);
        let read = |to| {
            changed(state, rank, |host| {
                host.promise = to;
                host.promised = host.started;
            })
        };
        match host.promise {
            Promise::Idle if reads_first => {
                emit("reads started", host.started, read(Promise::Closed))
            }
            Promise::Idle => {
                let next = changed(state, rank, |host| {
                    host.promise = Promise::Closed;
                    host.limit = 0;
                });
                emit("closes limit", 0, next);
            }
            Promise::Closed if reads_first => {
                let next = changed(state, rank, |host| {
                    host.promise = Promise::Read;
                    host.limit = host.promised;
                });
                emit("closes limit", 0, next);
            }
            Promise::Closed => emit("reads started", host.started, read(Promise::Read)),
            Promise::Read => {
                let number = host.promised;
                let next = promised(
                    &|host| {
                        host.promise = Promise::Idle;
                        host.limit = number;
                    },
                    number,
                );
                emit("promises", number, next);
            }
        }
    }

    /// A member commits when every rank of the proposal has promised it.
    fn commit(
        &self,
        state: &State,
        rank: usize,
        emit: &mut impl FnMut(&'static str, u8, State),
    ) -> Result<(), Broken> {
        let record = state.record;
        let open = record.proposal != 0 && record.proposed >> rank & 1 != 0;
        if !open || state.ranks[rank].proposal != record.proposal {
            return Ok(());
        }
        let promises = state.promises[usize::from(record.proposal % 8)];
        let kept = |number: usize| record.proposed >> number & 1 != 0;
        let have: Vec<usize> = (0..self.ranks)
            .filter(|number| kept(*number) && promises[*number] != 0)
            .collect();
        let need = record.proposed.count_ones() as usize;
        let majority = self.has(Mutant::CommitByMajority) && have.len() * 2 > need;
        if have.len() != need && !majority {
            return Ok(());
        }
        let members = have
            .iter()
            .filter(|number| record.mask >> **number & 1 != 0);
        // A promise is kept as 1 + its number.
        let mut first = members.map(|number| promises[*number]).max().unwrap_or(1);
        if self.has(Mutant::OwnPromiseOnly) {
            first = promises[rank];
        }
        if self.has(Mutant::FirstIsLargestPromise) {
            first -= 1;
        }
        let next_record = Record {
            epoch: record.epoch + 1,
            mask: record.proposed,
            first: first.max(record.first),
            ..Record::default()
        };
        let dropped = record.mask & !record.proposed;
        for number in (0..self.ranks).filter(|number| kept(*number)) {
            let host = &state.ranks[number];
            if host.alive && dropped & !host.fenced != 0 {
                return broken(
                    Property::E2,
                    format!("{next_record:?} committed, {number} has not fenced {dropped:03b}"),
                );
            }
            let ended = (0..self.ranks).filter(|other| !state.ranks[*other].alive);
            let ended: u8 = ended.map(|other| 1 << other).sum();
            let kept = record.proposed & if self.evidence { !ended } else { !0 };
            if host.alive && kept & host.fenced != 0 {
                return broken(
                    Property::E6,
                    format!(
                        "{number} has fenced {:03b}, kept by {next_record:?}",
                        host.fenced
                    ),
                );
            }
        }
        self.check_used(state, &next_record)?;
        let mut next = *state;
        next.record = next_record;
        next.promises = Default::default();
        emit("commits an epoch from call", next_record.first, next);
        Ok(())
    }

    /// A host applies a view: it sets the limit to first - 1, then writes the view, then opens the limit.
    fn apply(&self, state: &State, rank: usize, emit: &mut impl FnMut(&'static str, u8, State)) {
        let record = state.record;
        let host = state.ranks[rank];
        let member = record.mask >> rank & 1 != 0;
        let next_epoch = host.epoch + 1 == record.epoch;
        if !((host.epoch != 0 && next_epoch) || (host.epoch == 0 && member)) {
            if host.epoch != 0 && host.epoch + 1 < record.epoch {
                let next = changed(state, rank, |host| host.alive = false);
                emit("is two epochs behind", host.epoch, next);
            }
            return;
        }
        let epoch = record.epoch;
        if !member {
            let next = changed(state, rank, |host| {
                host.epoch = epoch;
                host.alive = false;
            });
            emit("learns that it was dropped by", epoch, next);
            return;
        }
        let view = View {
            first: record.first,
            epoch,
            mask: record.mask,
        };
        let publish = |host: &mut Rank| {
            if host.views[0].epoch == 0 {
                host.views[0] = view;
            } else if host.views[1].epoch == 0 {
                host.views[1] = view;
            } else {
                host.views = [host.views[1], view];
            }
        };
        let open = |host: &mut Rank| {
            host.limit = OPEN;
        };
        let done = |host: &mut Rank| {
            host.epoch = epoch;
            host.promise = Promise::Idle;
        };
        let opens_first = self.has(Mutant::LimitOpenedBeforeView);
        let opens_up = !opens_first && !self.has(Mutant::LimitNotOpenedToFirst);
        if opens_first {
            let next = changed(state, rank, |host| match host.limit {
                OPEN => {
                    publish(host);
                    done(host);
                }
                _ => open(host),
            });
            emit("opens limit, then publishes", epoch, next);
        } else if host.newest().epoch == epoch {
            let next = changed(state, rank, |host| {
                open(host);
                done(host);
            });
            emit("opens limit in epoch", epoch, next);
        } else if host.epoch != 0 && host.limit < record.first - 1 && opens_up {
            let next = changed(state, rank, |host| host.limit = record.first - 1);
            emit("opens limit to", record.first - 1, next);
        } else {
            let full = host.views[1].epoch != 0;
            let needed = full && host.next < host.views[1].first;
            if needed && !self.has(Mutant::ViewOverwritten) {
                return;
            }
            let next = changed(state, rank, |host| {
                publish(host);
                if host.epoch == 0 {
                    // A joiner's first call is the first of its epoch.
                    host.next = record.first;
                    host.invocation = record.first;
                }
            });
            emit("publishes the view of epoch", epoch, next);
        }
    }

    /// The device begins calls up to the limit, and ends calls aborted.
    fn device(
        &self,
        state: &State,
        rank: usize,
        emit: &mut impl FnMut(&'static str, u8, State),
    ) -> Result<(), Broken> {
        let host = state.ranks[rank];
        let call = host.next;
        if host.views[0].epoch == 0 || call > self.calls {
            return Ok(());
        }
        let to = |device, started| {
            changed(state, rank, |host| {
                host.device = device;
                host.started = started;
            })
        };
        let loads_first = self.has(Mutant::LimitLoadedBeforeStartedStored);
        match host.device {
            Device::Idle if loads_first => {
                if call <= host.limit {
                    emit(
                        "loads limit for call",
                        call,
                        to(Device::Started, host.started),
                    );
                }
            }
            Device::Started if loads_first => {
                emit("stores started", call, to(Device::MayRun, call));
            }
            Device::Idle => emit("stores started", call, to(Device::Started, call)),
            Device::Started => {
                if call <= host.limit {
                    emit("may run call", call, to(Device::MayRun, host.started));
                } else if state.aborts > 0 {
                    let mut next = changed(state, rank, |host| {
                        host.device = Device::Idle;
                        host.invocation += 1;
                        if !self.has(Mutant::AbortKeepsNumber) {
                            host.next += 1;
                            host.aborted |= 1 << call;
                        }
                    });
                    next.aborts -= 1;
                    emit("aborts call", call, next);
                }
            }
            Device::MayRun => {
                let views = host.views.iter().rev();
                let found = views.copied().find(|v| v.epoch != 0 && v.first <= call);
                let Some(view) = found else {
                    let views = host.views;
                    return broken(
                        Property::VT,
                        format!("device {rank} finds no view for call {call} in {views:?}"),
                    );
                };
                let next = changed(state, rank, |host| {
                    host.device = Device::Idle;
                    host.next += 1;
                    host.used[usize::from(call) - 1] = Used {
                        epoch: view.epoch,
                        mask: view.mask,
                        invocation: host.invocation,
                    };
                    host.invocation += 1;
                });
                self.check_used(&next, &state.record)?;
                emit("runs call", call, next);
            }
        }
        Ok(())
    }

    /// Checks that all living members run a call in one epoch, with one view, as the same invocation.
    fn check_used(&self, state: &State, record: &Record) -> Result<(), Broken> {
        for call in 1..=self.calls {
            let mut seen: Option<Used> = None;
            for (number, rank) in state.ranks[..self.ranks].iter().enumerate() {
                let used = rank.used[usize::from(call) - 1];
                if !rank.alive || used.epoch == 0 || record.mask >> number & 1 == 0 {
                    continue;
                }
                if call >= record.first && used.epoch != record.epoch {
                    return broken(
                        Property::E3,
                        format!(
                            "member {number} ran call {call} in epoch {}: {record:?}",
                            used.epoch
                        ),
                    );
                }
                let other = seen.unwrap_or(used);
                if (used.epoch, used.mask) != (other.epoch, other.mask) {
                    return broken(Property::E3, format!("call {call}: {used:?} and {other:?}"));
                }
                if used.invocation != other.invocation {
                    return broken(Property::AL, format!("call {call}: {used:?} and {other:?}"));
                }
                seen = Some(used);
            }
        }
        Ok(())
    }
}
