//! The thread that follows the rules: it looks into the store, asks [`Local::next`] what to do, does it, and looks again.
//!
//! It waits for nobody. What blocks (connecting) or must not wait for the store (words of kernels, ends of processes) is done
//! by threads of their own; see `connect.rs` and `watch.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rendezvous::{Lease, StoreError};

use super::GroupError;
use super::event::{GroupEventKind, GroupState};
use super::group_store::{GroupStore, Look, Row};
use super::presence::{Presence, RankGeneration};
use super::record::{GroupRecord, Members, newer};
use super::rules::{Limit, Local};
use super::see;
use super::shared::Shared;

/// Longest time between two looks into the store.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time for which news of this rank wait for the store to be looked at.
const NEWS: Duration = Duration::from_millis(2);
/// Pause after the store, or a step, has failed.
const AGAIN: Duration = Duration::from_millis(10);

/// What a turn has left to do.
pub(super) enum TurnOutcome {
    /// A step was done, or failed because the record has changed: look again.
    Again,
    /// Nothing, until something changes.
    Wait,
    /// This generation has ended.
    Over(GroupState),
}

/// One rank's way through the rules. What it does at each step is in `steps.rs`, what it sees in `see.rs`.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) store: GroupStore,
    founders: Vec<u32>,
    pub(super) local: Local,
    pub(super) lease: Option<Lease>,
    pub(super) presence: Presence,
    /// First calls of the device's views, the older one first.
    pub(super) views: Vec<u32>,
    /// Those to whom kernels may post.
    pub(super) opened: BTreeSet<RankGeneration>,
    pub(super) row: Row,
    preparing: Option<BTreeSet<u32>>,
    asked: bool,
    /// A change is under way.
    pub(super) busy: bool,
    pub(super) since: Instants,
}

/// Since when something is so.
pub(super) struct Instants {
    begun: Instant,
    /// The proposal that is open, and since when this rank knows of it.
    pub(super) proposal: Option<(u64, Instant)>,
    /// This rank has left, and ends the calls that it is still part of.
    pub(super) left: Option<Instant>,
    /// Calls have been held.
    pub(super) held: Option<Instant>,
    /// The store has not answered.
    away: Option<Instant>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, store: GroupStore) -> Self {
        let (slot, generation) = (shared.transport.slot(), shared.transport.generation());
        let founders = shared.transport.founders();
        let founds = founders.contains(&slot);
        let local = Local {
            viewed: founds.into(),
            applied: founds.into(),
            limit: if founds { Limit::Open } else { Limit::Closed },
            ..Local::joiner(slot, generation)
        };
        let now = Instant::now();
        let connected: BTreeSet<RankGeneration> = match founds {
            true => founders.iter().map(|&founder| (founder, 1)).collect(),
            false => BTreeSet::new(),
        };
        shared.lock().connected.clone_from(&connected);
        Self {
            presence: Presence::new(shared.bounds.lease_ttl, now),
            shared,
            store,
            founders,
            local,
            lease: None,
            views: if founds { vec![1] } else { Vec::new() },
            opened: connected,
            row: Row::default(),
            preparing: None,
            asked: false,
            busy: true,
            since: Instants {
                begun: now,
                proposal: None,
                left: None,
                held: None,
                away: None,
            },
        }
    }

    /// Follows the rules until the group stops or this generation has ended.
    pub(super) fn run(mut self) {
        while !self.shared.is_stopped() {
            match self.turn() {
                Ok(TurnOutcome::Again) => {}
                Ok(TurnOutcome::Wait) => self.wait(),
                Ok(TurnOutcome::Over(state)) => {
                    self.end(state);
                    return;
                }
                Err(GroupError::Store(error)) => self.store_failed(&error),
                Err(error) => {
                    // A layer or an HCA that refuses: this rank does not promise meanwhile, so the others go on without it.
                    let error = error.to_string();
                    self.shared.tell(GroupEventKind::Failed { error });
                    std::thread::sleep(AGAIN);
                }
            }
        }
    }

    pub(super) fn own(&self) -> RankGeneration {
        (self.local.slot, self.local.generation)
    }

    fn turn(&mut self) -> Result<TurnOutcome, GroupError> {
        if let Some(Err(error)) = self.lease.as_ref().map(Lease::check) {
            let error = error.to_string();
            self.shared.tell(GroupEventKind::Failed { error });
        }
        if self.lease.as_ref().is_none_or(|lease| !lease.is_held()) {
            self.lease = None;
            self.lease = self.store.take_lease(self.shared.bounds.lease_ttl)?;
        }
        self.shared.lock().news = false;
        let look = self.store.look()?;
        self.store_answered();
        let Some(record) = look.record.clone() else {
            return self.found(&look);
        };
        let dropped = record.was_dropped(self.local.slot, self.local.generation);
        if dropped && self.is_leaving(&record, &look)? {
            return Ok(TurnOutcome::Wait);
        }
        if dropped || self.leaves_alone(&record) || self.is_cut_off(&record, &look) {
            return Ok(TurnOutcome::Over(self.over()));
        }
        self.busy = record.proposed.is_some() || self.local.applied != record.epoch;
        self.watch_members(&record, &look)?;
        self.see_off(&look)?;
        self.say_goodbye(&record)?;
        self.ask()?;
        let mut seen = self.see(&record, &look);
        self.tell_layer(&record, &look)?;
        self.tell_row(&record, &look)?;
        loop {
            let step = self.local.next(&record, &seen);
            let goes_on = step.goes_on();
            let turn = self.take(&record, step)?;
            if !goes_on {
                return Ok(turn);
            }
            seen.started = self.shared.layer.started();
            seen.older_view_needed = self.older_view_needed();
            seen.connected = self.shared.lock().connected.clone();
        }
    }

    /// How this generation ends when it is not in the view.
    pub(super) fn over(&self) -> GroupState {
        match self.shared.lock().leaving {
            true => GroupState::Left,
            false => GroupState::Expelled,
        }
    }

    /// Whether this rank wants to go, and nobody else is there to go on without it, or needs it for calls before he left.
    fn leaves_alone(&mut self, record: &GroupRecord) -> bool {
        if !self.shared.lock().leaving {
            return false;
        }
        if !record.members.contains_key(&self.local.slot) {
            return true;
        }
        if record.members.len() > 1 || self.local.applied != record.epoch {
            return false;
        }
        let since = *self.since.left.get_or_insert_with(Instant::now);
        let late = since.elapsed() >= self.shared.transport.deadline();
        let before = record.first.wrapping_sub(1);
        let through = !newer(before, self.shared.layer.finished());
        late || through && self.shared.lock().farewells.is_empty()
    }

    /// Whether this rank has had no port for so long that it goes, so that the others, who live, need not find out who is ill.
    fn is_cut_off(&self, record: &GroupRecord, look: &Look) -> bool {
        let own = self.own();
        let lives = |who: RankGeneration| who != own && look.held.contains(&who);
        let since = self.shared.lock().cut_off;
        since.is_some_and(|since| since.elapsed() >= self.shared.bounds.error)
            && rank_generations(&record.members).any(lives)
    }

    /// The first view is that of all founders, once all of them have come.
    fn found(&mut self, look: &Look) -> Result<TurnOutcome, GroupError> {
        if self.local.applied == 0 {
            self.ask()?;
            return Ok(TurnOutcome::Wait);
        }
        let members: Members = self.founders.iter().map(|&slot| (slot, 1)).collect();
        let here = |(&slot, &generation): (&u32, &u32)| look.held.contains(&(slot, generation));
        let late = self.since.begun.elapsed() >= self.shared.bounds.found;
        if !late && !members.iter().all(here) {
            return Ok(TurnOutcome::Wait);
        }
        self.store.replace(None, &GroupRecord::founded(members))?;
        Ok(TurnOutcome::Again)
    }

    /// A rank that joins says so once.
    fn ask(&mut self) -> Result<(), GroupError> {
        if self.local.applied == 0 && !self.asked {
            self.shared.transport.hello()?;
            self.store.ask()?;
            self.asked = true;
        }
        Ok(())
    }

    /// Watches the processes of members, and takes the first view down once it is founded.
    fn watch_members(&mut self, record: &GroupRecord, look: &Look) -> Result<(), GroupError> {
        let own = self.own();
        if self.local.applied == record.epoch && self.shared.lock().view.is_none() {
            self.viewed(record);
            self.shared.set_state(GroupState::Serving);
        }
        let unknown: Vec<RankGeneration> = {
            let inner = self.shared.lock();
            let members = rank_generations(inner.table.members());
            let others = members.filter(|who| *who != own && look.held.contains(who));
            others
                .filter(|who| !inner.processes.contains_key(who))
                .collect()
        };
        for who in unknown {
            if let Some(process) = self.store.process(who)? {
                self.shared.lock().processes.insert(who, process);
            }
        }
        Ok(())
    }

    /// While a change is prepared, clocks against those who have promised it stand still.
    fn tell_layer(&mut self, record: &GroupRecord, look: &Look) -> Result<(), GroupError> {
        let own = self.local.slot;
        let concerns = |set: &&Members| self.local.applied != 0 && set.contains_key(&own);
        let preparing: Option<BTreeSet<u32>> =
            record.proposed.as_ref().filter(concerns).map(|_| {
                let promised = look.promises.keys().copied();
                promised.filter(|slot| *slot != own).collect()
            });
        if preparing != self.preparing {
            let ranks: Option<Vec<u32>> =
                preparing.as_ref().map(|set| set.iter().copied().collect());
            let told = self.shared.layer.set_preparing(ranks.as_deref());
            told.map_err(GroupError::Layer)?;
            self.preparing = preparing;
        }
        Ok(())
    }

    /// Tells the others whom this rank does not reach, and to whom it has connected; and itself to whom it is to connect.
    fn tell_row(&mut self, record: &GroupRecord, look: &Look) -> Result<(), GroupError> {
        let wanted = see::wanted(record, look, self.own(), self.local.applied != 0);
        let row = {
            let mut inner = self.shared.lock();
            if inner.wanted != wanted {
                inner.wanted = wanted;
                self.shared.notify();
            }
            inner.row(Instant::now(), &self.shared.bounds)
        };
        if row != self.row {
            self.store.tell(&row)?;
            self.row = row;
        }
        Ok(())
    }

    fn wait(&self) {
        let start = Instant::now();
        let longest = if self.busy { NEWS } else { LOOK };
        while start.elapsed() < longest && !self.shared.is_stopped() && !self.shared.lock().news {
            let asked = Instant::now();
            self.store.wait(NEWS);
            if asked.elapsed() < NEWS / 2 {
                return;
            }
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        let now = Instant::now();
        self.presence.store_failed(now);
        // Nobody can promise while nobody can write.
        self.since.proposal = None;
        if self.since.away.is_none() {
            self.since.away = Some(now);
            self.shared.tell(GroupEventKind::StoreLost {
                error: error.to_string(),
            });
        }
        std::thread::sleep(AGAIN);
    }

    fn store_answered(&mut self) {
        if let Some(since) = self.since.away.take() {
            let away = since.elapsed();
            self.shared.tell(GroupEventKind::StoreBack { away });
        }
    }
}

/// Slot and generation of each.
pub(super) fn rank_generations(members: &Members) -> impl Iterator<Item = RankGeneration> {
    members
        .iter()
        .map(|(&slot, &generation)| (slot, generation))
}
