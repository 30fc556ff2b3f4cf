//! The rules in every order: three ranks, each a host that follows `Local::next` and a device that starts calls, and deaths,
//! suspicions and a joiner at every moment.
//!
//! A host looks and acts in two moments, between which anything happens, where what it does is seen by others. Checked: E2 nobody is dropped whom a member of the
//! new view has not fenced; E3 a call runs in one view everywhere; E6 nobody is kept whom a member has fenced; VT a device
//! finds a view for its call; L in the end every living member has run all calls; T who has left was part of every call that
//! another ran in a view with it, and of no other. What leaves does beside the rules is `leave.rs` in few lines.

use std::collections::{BTreeMap, BTreeSet};

mod code;
mod faults;
mod leave;
mod runs;

use super::choose::Suspicions;
use super::record::{Goodbye, GroupRecord, Members, Promise};
use super::rules::{Limit, Local, Seen, Step};
use faults::Fault;
use models::explore::{Broken, broken};

/// One configuration.
#[derive(Clone, Copy, Debug, Default)]
struct Config {
    ranks: u32,
    /// So many of them, the last ones, are no members yet.
    joiners: u32,
    calls: u32,
    deaths: u32,
    suspicions: u32,
    /// Held calls whose deadline runs out; further ones end at once until the limit changes.
    aborts: u32,
    /// Members that want to go.
    leavers: u32,
    fault: Option<Fault>,
}

#[derive(Clone)]
struct Rank {
    alive: bool,
    local: Local,
    /// The step it is about to do, and the record that it saw.
    pending: Option<(StepKey, GroupRecord)>,
    /// What `started` was when `pending` was computed, for `StartedReadBeforeClose`.
    early: u32,
    views: Vec<(u32, u32)>,
    /// Device: next call, last started, and whether `next` waits for the limit (1) or has passed it (2).
    next: u32,
    started: u32,
    stage: u8,
    /// Epoch of each call that it ran; 0: not run; [`ABORTED`]: it used up its number and did nothing.
    ran: Vec<u32>,
    /// The limit at which a held call has ended aborted.
    refused: Option<Limit>,
    /// It wants to go.
    leaving: bool,
    /// It has gone, and was let go.
    left: bool,
}

const ABORTED: u32 = u32::MAX;

/// A step as part of a state.
#[derive(Clone, PartialEq, Eq)]
enum StepKey {
    Store(GroupRecord),
    Close,
    Limit(u32),
    Fence(BTreeSet<u32>),
    Promise(Promise),
    View,
    Open,
    Leave,
    Goodbye,
}

#[derive(Clone)]
struct State {
    ranks: Vec<Rank>,
    record: GroupRecord,
    promises: BTreeMap<u32, Promise>,
    suspected: BTreeSet<(u32, u32)>,
    said: BTreeMap<u32, Goodbye>,
    /// Members of each view, from the first.
    history: Vec<BTreeSet<u32>>,
    leavers: u32,
    deaths: u32,
    suspicions: u32,
    aborts: u32,
}

struct Model(Config);

type Violation = Broken<&'static str>;

impl Model {
    fn start(&self) -> State {
        let members = self.0.ranks - self.0.joiners;
        let view: Members = (0..members).map(|slot| (slot, 1)).collect();
        let rank = |slot: u32| {
            let member = slot < members;
            let local = Local {
                viewed: member.into(),
                applied: member.into(),
                limit: if member { Limit::Open } else { Limit::Closed },
                ..Local::joiner(slot, 1)
            };
            Rank {
                alive: true,
                local,
                pending: None,
                early: 0,
                views: if member { vec![(1, 1)] } else { Vec::new() },
                next: 1,
                started: 0,
                stage: 0,
                ran: vec![0; self.0.calls as usize],
                refused: None,
                leaving: false,
                left: false,
            }
        };
        State {
            ranks: (0..self.0.ranks).map(rank).collect(),
            history: vec![view.keys().copied().collect()],
            record: GroupRecord::founded(view),
            said: BTreeMap::new(),
            leavers: self.0.leavers,
            promises: BTreeMap::new(),
            suspected: BTreeSet::new(),
            deaths: self.0.deaths,
            suspicions: self.0.suspicions,
            aborts: self.0.aborts,
        }
    }

    fn successors(&self, state: &State) -> Result<Vec<(String, State)>, Violation> {
        let mut all = Vec::new();
        for slot in 0..self.0.ranks {
            let rank = &state.ranks[slot as usize];
            if !rank.alive {
                continue;
            }
            if state.deaths > 0 {
                let mut next = state.clone();
                next.deaths -= 1;
                next.ranks[slot as usize].alive = false;
                all.push((format!("{slot} dies"), next));
            }
            if state.leavers > 0 && !rank.leaving && state.record.members.contains_key(&slot) {
                let mut next = state.clone();
                next.leavers -= 1;
                next.ranks[slot as usize].leaving = true;
                all.push((format!("{slot} wants to go"), next));
            }
            for of in 0..self.0.ranks {
                let fresh = state.record.members.contains_key(&slot)
                    && state.record.members.contains_key(&of)
                    && !state.suspected.contains(&(slot, of));
                if of != slot && state.suspicions > 0 && fresh {
                    let mut next = state.clone();
                    next.suspicions -= 1;
                    next.suspected.insert((slot, of));
                    all.push((format!("{slot} suspects {of}"), next));
                }
            }
            self.host(state, slot, &mut all)?;
            self.device(state, slot, &mut all)?;
        }
        Ok(all)
    }

    fn host(
        &self,
        state: &State,
        slot: u32,
        all: &mut Vec<(String, State)>,
    ) -> Result<(), Violation> {
        let rank = &state.ranks[slot as usize];
        if let Some((step, record)) = &rank.pending {
            let mut next = state.clone();
            next.ranks[slot as usize].pending = None;
            self.act(&mut next, slot, step, record)?;
            all.push((format!("{slot} acts"), next));
            return Ok(());
        }
        if rank.leaving && self.leaves(state, slot, all) {
            return Ok(());
        }
        let step = match rank.local.next(&state.record, &self.seen(state, slot)) {
            Step::Wait => return Ok(()),
            Step::Store(record) => StepKey::Store(record),
            Step::Close => StepKey::Close,
            Step::Limit(last) => StepKey::Limit(last),
            Step::Fence(slots) => StepKey::Fence(slots),
            Step::Promise(promise) => StepKey::Promise(promise),
            Step::View => StepKey::View,
            Step::Open => StepKey::Open,
            Step::Leave => StepKey::Leave,
        };
        let mut next = state.clone();
        let rank = &mut next.ranks[slot as usize];
        if step == StepKey::Close {
            rank.early = rank.started;
        }
        let alone = matches!(
            step,
            StepKey::Fence(_) | StepKey::View | StepKey::Open | StepKey::Leave
        );
        if alone {
            let (record, name) = (state.record.clone(), format!("{slot} acts alone"));
            self.act(&mut next, slot, &step, &record)?;
            all.push((name, next));
            return Ok(());
        }
        rank.pending = Some((step, state.record.clone()));
        all.push((format!("{slot} looks"), next));
        Ok(())
    }

    fn seen(&self, state: &State, slot: u32) -> Seen {
        let rank = &state.ranks[slot as usize];
        let gone = |r: &u32| !state.ranks[*r as usize].alive;
        let mut suspicions = Suspicions::default();
        for &(a, b) in &state.suspected {
            suspicions.add(a, b);
        }
        let mut promises = state.promises.clone();
        if self.0.fault == Some(Fault::CommitByMajority)
            && let Some(proposed) = &state.record.proposed
            && promises.len() * 2 >= proposed.len()
        {
            for &slot in proposed.keys() {
                promises.entry(slot).or_insert(Promise { last: Some(0) });
            }
        }
        let doubts = |(a, b): &(u32, u32)| *b == slot && state.record.members.contains_key(a);
        let joiners = self.0.ranks - self.0.joiners..self.0.ranks;
        let living = joiners.filter(|joiner| !gone(joiner));
        Seen {
            promises,
            started: match self.0.fault {
                Some(Fault::StartedReadBeforeClose) => rank.early,
                _ => rank.started,
            },
            older_view_needed: rank.views.len() == 2 && rank.next < rank.views[1].0,
            gone: (0..self.0.ranks)
                .filter(|r| gone(r) || *r != slot && self.goodbyes(state).any(|(who, _)| who == *r))
                .map(|r| (r, 1))
                .collect(),
            leaves: match self.0.fault {
                Some(Fault::LeaverFenced) => BTreeMap::new(),
                _ => self
                    .goodbyes(state)
                    .map(|(r, last)| ((r, 1), last))
                    .collect(),
            },
            suspicions,
            accused: state.suspected.iter().any(doubts),
            joining: living.map(|joiner| (joiner, 1)).collect(),
            connected: (0..self.0.ranks).map(|r| (r, 1)).collect(),
        }
    }

    fn act(
        &self,
        state: &mut State,
        slot: u32,
        step: &StepKey,
        saw: &GroupRecord,
    ) -> Result<(), Violation> {
        let record = state.record.clone();
        let rank = &mut state.ranks[slot as usize];
        let local = &mut rank.local;
        match step {
            StepKey::Store(new) => {
                if record == *saw {
                    let mut new = new.clone();
                    if new.epoch != record.epoch && self.0.fault == Some(Fault::FirstIsThePromise) {
                        new.first = (new.first - 1).max(record.first);
                    }
                    if new.epoch != record.epoch {
                        if self.0.fault == Some(Fault::LeaverForgotten) {
                            new = record
                                .commit(&state.promises, &BTreeMap::new())
                                .unwrap_or(new);
                        }
                        self.committed(state, &new)?;
                        state.history.push(new.members.keys().copied().collect());
                    }
                    state.record = new;
                    state.promises.clear();
                }
            }
            StepKey::Close => local.limit = Limit::Closed,
            StepKey::Limit(last) => {
                let opens = local.viewed != saw.epoch && local.applied != saw.epoch;
                if !(opens && self.0.fault == Some(Fault::NotOpenedToFirst)) {
                    local.limit = Limit::UpTo(*last);
                } else {
                    // The step would be asked for again: pretend it was done.
                    local.limit = Limit::UpTo(u32::MAX >> 2);
                    rank.stage = 9;
                }
            }
            StepKey::Fence(slots) => {
                local.fenced.extend(slots);
                if let Some((of, _)) = self.goodbyes(state).find(|(of, _)| slots.contains(of)) {
                    return broken("T", format!("{slot} fences {of}, which has said goodbye"));
                }
            }
            StepKey::Promise(promise) => {
                if record.proposal == saw.proposal && record.proposed.is_some() {
                    local.promised = Some((saw.proposal, *promise));
                    state.promises.insert(slot, *promise);
                }
            }
            StepKey::View => {
                if rank.views.is_empty() {
                    rank.next = saw.first;
                }
                rank.views.push((saw.first, saw.epoch));
                if rank.views.len() > 2 {
                    rank.views.remove(0);
                }
                local.viewed = saw.epoch;
            }
            StepKey::Open => {
                local.limit = Limit::Open;
                local.applied = saw.epoch;
                local.promised = None;
                local.fenced.clear();
            }
            StepKey::Leave => {
                // One whom somebody suspects goes as that one.
                let of = |pair: &(u32, u32)| pair.0 == slot || pair.1 == slot;
                rank.left = rank.leaving && !state.suspected.iter().any(of);
                rank.alive = false;
            }
            StepKey::Goodbye => {
                let goodbye = local.goodbye(saw, rank.started);
                local.limit = Limit::UpTo(goodbye.last);
                state.said.insert(slot, goodbye);
            }
        }
        Ok(())
    }

    fn committed(&self, state: &State, new: &GroupRecord) -> Result<(), Violation> {
        for slot in new.members.keys() {
            let rank = &state.ranks[*slot as usize];
            if !rank.alive || rank.local.applied == 0 {
                continue;
            }
            for dropped in state
                .record
                .members
                .keys()
                .filter(|s| !new.members.contains_key(s))
            {
                let said = state.said.get(dropped);
                if said.is_some_and(|goodbye| goodbye.epoch == state.record.epoch) {
                    continue;
                }
                if self.0.fault == Some(Fault::NoFence) || !rank.local.fenced.contains(dropped) {
                    return broken("E2", format!("{slot} has not fenced {dropped}"));
                }
            }
            if let Some(kept) = new.members.keys().find(|s| rank.local.fenced.contains(s)) {
                return broken("E6", format!("{slot} has fenced {kept}, which is kept"));
            }
        }
        self.same_view(state, new)
    }

    fn same_view(&self, state: &State, record: &GroupRecord) -> Result<(), Violation> {
        for call in 1..=self.0.calls {
            let mut epoch = None;
            for (slot, rank) in (0u32..).zip(&state.ranks) {
                let ran = rank.ran[call as usize - 1];
                if !rank.alive || ran == 0 || ran == ABORTED || !record.members.contains_key(&slot)
                {
                    continue;
                }
                if call >= record.first && ran != record.epoch {
                    let (epoch, first) = (record.epoch, record.first);
                    return broken(
                        "E3",
                        format!("{slot} ran call {call} in epoch {ran}; {epoch} begins at {first}"),
                    );
                }
                if *epoch.get_or_insert(ran) != ran {
                    return broken("E3", format!("call {call} ran in two epochs"));
                }
            }
        }
        Ok(())
    }

    fn device(
        &self,
        state: &State,
        slot: u32,
        all: &mut Vec<(String, State)>,
    ) -> Result<(), Violation> {
        let rank = &state.ranks[slot as usize];
        if rank.views.is_empty() || rank.next > self.0.calls || rank.stage == 9 {
            return Ok(());
        }
        let may = match rank.local.limit {
            Limit::Closed => false,
            Limit::UpTo(last) => rank.next <= last,
            Limit::Open => true,
        };
        let may = may
            || (self.0.fault == Some(Fault::OpenBeforeView)
                && rank.local.applied != 0
                && rank.local.applied != state.record.epoch);
        let held = rank.stage == 1 && !may;
        if held && (state.aborts > 0 || rank.refused == Some(rank.local.limit)) {
            let mut next = state.clone();
            let device = &mut next.ranks[slot as usize];
            if device.refused != Some(device.local.limit) {
                next.aborts -= 1;
                device.refused = Some(device.local.limit);
            }
            device.ran[rank.next as usize - 1] = ABORTED;
            device.next += 1;
            device.stage = 0;
            all.push((format!("device {slot} gives call {} up", rank.next), next));
        }
        let load_first = self.0.fault == Some(Fault::DeviceLoadsLimitFirst);
        let mut next = state.clone();
        let device = &mut next.ranks[slot as usize];
        match (rank.stage, load_first) {
            (0, false) => {
                device.started = rank.next;
                device.stage = 1;
            }
            (0, true) if may => device.stage = 1,
            (1, true) => {
                device.started = rank.next;
                device.stage = 2;
            }
            (1, false) if may => device.stage = 2,
            (2, _) => {
                let view = rank
                    .views
                    .iter()
                    .rev()
                    .find(|(first, _)| *first <= rank.next);
                let Some(&(_, epoch)) = view else {
                    return broken("VT", format!("{slot} finds no view for call {}", rank.next));
                };
                device.ran[rank.next as usize - 1] = epoch;
                device.next += 1;
                device.stage = 0;
                self.same_view(&next, &next.record)?;
            }
            _ => return Ok(()),
        }
        all.push((format!("device {slot} at call {}", rank.next), next));
        Ok(())
    }

    fn stuck(&self, state: &State) -> Result<(), Violation> {
        self.lost(state)?;
        let held = (0u32..).zip(&state.ranks).find(|(slot, rank)| {
            let member = state.record.members.contains_key(slot);
            rank.alive && (rank.next <= self.0.calls || !member)
        });
        match held {
            Some((slot, rank)) => {
                let next = rank.next;
                broken("L", format!("{slot} is held at call {next} for ever"))
            }
            None => Ok(()),
        }
    }
}
