//! The thread that follows the rules: it looks into the store, asks [`Rules::next`] what to do, does it, and looks again.
//!
//! It waits for no rank. What blocks (connecting), must not wait for the store (words of kernels, ends of processes) or only waits
//! (for the record) is done by threads of their own: `connect.rs`, `watch.rs`, `bell.rs`. The lease is renewed here, so a rank
//! whose rules are not followed does not count as living.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rendezvous::StoreError;

use super::GroupError;
use super::event::{Cause, GroupEventKind, GroupState};
use super::group_store::{GroupStore, LookAt, StoredRow};
use super::rules::evidence::{Leaving, Limit, Look, Own, Row};
use super::rules::named::Rules;
use super::rules::record::{Members, RankGeneration, Record};
use super::rules::slots::Slots;
use super::rules::steps::Step;
use super::see::{Heard, Newcomers};
use super::shared::Shared;

/// Shortest pause between two looks of a rank whose turn it is in a change.
const BUSY: Duration = Duration::from_millis(2);
/// The same while ranks want to come in, or have left.
const LOOK: Duration = Duration::from_millis(20);
/// Pause after the store, or a step, has failed.
const AGAIN: Duration = Duration::from_millis(10);
/// In peace one look in so many is at changes, which the record's bell may have missed; the others are at leases.
const PEACE: u32 = 4;

/// What a turn has left to do.
pub(super) enum TurnOutcome {
    /// A step was done, or failed because the record has changed: look again.
    Again,
    /// Nothing before this time has passed, unless something changes.
    Wait(Duration),
    /// This generation has ended.
    Over(GroupState),
}

/// One rank's way through the rules. What it does at each step is in `steps.rs`, what it sees in `see.rs`.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) store: GroupStore,
    founders: Vec<u32>,
    pub(super) rules: Rules<Duration>,
    pub(super) own: Own<Duration>,
    /// First calls of the device's views, the older one first.
    pub(super) views: Vec<u32>,
    /// Those to whom kernels may post.
    pub(super) opened: BTreeSet<RankGeneration>,
    /// What the store has of this rank.
    told: StoredRow,
    /// This rank has made all calls up to this one, and a leaver has waited for it.
    pub(super) through: Option<u32>,
    pub(super) heard: Heard,
    pub(super) newcomers: Newcomers,
    /// What was told last, for each cause that follows from looks.
    pub(super) causes: BTreeMap<Cause, Slots>,
    preparing: Option<Slots>,
    /// Looks in a row that have found nothing to do.
    peace: u32,
    said_hello: bool,
    pub(super) since: Instants,
}

/// Since when something is so.
pub(super) struct Instants {
    begun: Instant,
    /// The last look has ended.
    looked: Option<Instant>,
    /// The leases were counted.
    counted: Option<Instant>,
    /// P9: this rank would do a step that any rank may do, of the record with this epoch and number.
    turn: Option<((u32, u64), Instant)>,
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
        let own = Own {
            applied: founds.into(),
            limit: if founds { Limit::Open } else { Limit::Closed },
            ..Own::newcomer(slot, generation)
        };
        let opened: BTreeSet<RankGeneration> = match founds {
            true => founders.iter().map(|&founder| (founder, 1)).collect(),
            false => BTreeSet::new(),
        };
        Self {
            rules: Rules::new(shared.bounds.clocks()),
            heard: Heard::new(shared.bounds.lease_ttl, shared.bounds.stall),
            newcomers: Newcomers::new(shared.bounds.lease_ttl),
            shared,
            store,
            founders,
            own,
            views: if founds { vec![1] } else { Vec::new() },
            opened,
            told: StoredRow::default(),
            through: None,
            causes: BTreeMap::new(),
            preparing: None,
            peace: 0,
            said_hello: false,
            since: Instants {
                begun: Instant::now(),
                looked: None,
                counted: None,
                turn: None,
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
                Ok(TurnOutcome::Wait(time)) => self.wait(time),
                Ok(TurnOutcome::Over(state)) => {
                    self.end(state);
                    return;
                }
                Err(GroupError::Store(error)) => {
                    self.store_failed(&error);
                    self.pause();
                }
                Err(error) => {
                    // A layer or an HCA that refuses: this rank does not promise meanwhile, so the others go on without it.
                    let error = error.to_string();
                    self.shared.tell(GroupEventKind::Failed { error });
                    self.pause();
                }
            }
        }
        self.give_up();
    }

    pub(super) fn own(&self) -> RankGeneration {
        (self.own.slot, self.own.generation)
    }

    fn turn(&mut self) -> Result<TurnOutcome, GroupError> {
        let news = std::mem::take(&mut self.shared.lock().news);
        let quarter = self.shared.bounds.lease_ttl / 4;
        let counted = self.since.counted;
        let due = counted.is_none_or(|counted| counted.elapsed() + BUSY >= quarter);
        let at = match self.peace {
            0 if due => LookAt::Both,
            looks if news || looks.is_multiple_of(PEACE) => LookAt::Changes,
            _ => LookAt::Members,
        };
        let count = self.store.kept.count();
        // Whatever follows from this look, the next one is whole unless nothing does.
        let before = std::mem::take(&mut self.peace);
        let mut looked = self.store.look(at)?;
        if at == LookAt::Members && self.store.kept.count() != count {
            looked.extend(self.store.look(LookAt::Changes)?);
        }
        if at != LookAt::Changes {
            self.since.counted = Some(Instant::now());
        }
        self.shared.lock().seen = self.store.kept.since();
        self.shared.notify();
        for error in looked {
            self.shared.tell(GroupEventKind::Failed { error });
        }
        let now = Instant::now();
        let passed = self.since.looked.replace(now);
        let passed = passed.map_or(Duration::ZERO, |before| now.duration_since(before));
        let call = self.store.take_slowest();
        // L4: no step asks for the own lease.
        match self.store.keep_lease(self.own.applied == 0) {
            Ok(()) => self.store_answered(),
            Err(error) => self.store_failed(&error),
        }
        let Some(record) = self.store.kept.record.clone() else {
            return self.found();
        };
        self.begin(&record);
        let mut look = self.see(&record, passed, call)?;
        let meets = self.rules.observe(&mut self.own, &record, &look);
        // Behind the look that they are asked for: a call that was slow does not excuse itself.
        let clocks = self.shared.bounds.clocks();
        self.rules.bounds = self
            .store
            .pace
            .bounds(self.shared.bounds.lease_ttl, &clocks);
        let row = self.rules.row(&self.own, &record, &look, meets);
        look.rows.insert(self.own.slot, row.clone());
        if let Some(ask) = look.asks.get_mut(&self.own()) {
            ask.row = row.clone();
        }
        self.tell_causes(&record, &look, &row);
        self.connect(&record, &look);
        self.ask(&record)?;
        self.tell_layer(&record, &look)?;
        self.see_off(&record)?;
        self.tell_row(&record, &row)?;
        if self.has_lost_hca(&record, &look) {
            return Ok(TurnOutcome::Over(GroupState::Expelled));
        }
        let quiet = self.is_quiet(&record, &look, &row);
        let outcome = self.follow(&record, look)?;
        if let (TurnOutcome::Wait(_), true) = (&outcome, quiet) {
            self.peace = before.wrapping_add(1).max(1);
        }
        Ok(outcome)
    }

    /// Whether this rank has nothing to say and nothing to do: any other rank that has acts by itself, and rings by the record.
    fn is_quiet(&self, record: &Record, look: &Look<Duration>, row: &Row) -> bool {
        let inner = self.shared.lock();
        let own = self.own.is_member(record) && self.own.is_current(record);
        let says = [
            &row.unheard,
            &row.broken,
            &row.overdue,
            &row.connected,
            &row.ended,
        ];
        own && record.open.is_none()
            && record.parted.is_empty()
            && look.asks.is_empty()
            && says.into_iter().all(Slots::is_empty)
            && self.own.unheard.is_empty()
            && self.own.leaving == Leaving::No
            && look.goodbyes.is_empty()
            && inner.farewells.is_empty()
            && inner.wanted.is_empty()
            && !inner.hca_lost
            && self.since.away.is_none()
    }

    /// Does what the rules say, as long as that follows from one look.
    fn follow(
        &mut self,
        record: &Arc<Record>,
        mut look: Look<Duration>,
    ) -> Result<TurnOutcome, GroupError> {
        loop {
            let step = self.rules.next(&self.own, record, &look);
            if let Step::Propose(_) | Step::Commit(_) = step {
                let left = self.turn_left(record, &look);
                if !left.is_zero() {
                    return Ok(TurnOutcome::Wait(left));
                }
            }
            let again = matches!(step, Step::Limit(_) | Step::View);
            let outcome = match step {
                Step::Wait => TurnOutcome::Wait(self.longest_wait(record, &look)),
                // The record rings when all have promised.
                step @ Step::Promise(_) => {
                    self.take(record, step)?;
                    TurnOutcome::Wait(self.longest_wait(record, &look))
                }
                step => self.take(record, step)?,
            };
            if !again {
                return Ok(outcome);
            }
            look.started = self.shared.layer.started();
            look.older_view_needed = self.older_view_needed();
        }
    }

    /// P9: how long this rank still leaves to others what any of them may do.
    fn turn_left(&mut self, record: &Record, look: &Look<Duration>) -> Duration {
        let of = (record.epoch, record.number);
        let now = Instant::now();
        let since = match self.since.turn {
            Some((same, since)) if same == of => since,
            _ => now,
        };
        self.since.turn = Some((of, since));
        let turn = self.store.pace.turn(self.place(record, look));
        turn.saturating_sub(now.duration_since(since))
    }

    /// How many living ranks come before this one.
    fn place(&self, record: &Record, look: &Look<Duration>) -> u32 {
        let own = self.own.slot;
        let (from, may, behind) = match &record.open {
            Some(open) if self.own.is_proposed(record) => (open.by, open.all(), 0),
            Some(open) => (0, record.slots().without(&open.all()), 1),
            None if self.own.applied == 0 => (0, look.asks.keys().map(|who| who.0).collect(), 0),
            None => (0, record.slots(), 0),
        };
        let gone = self.rules.gone(&self.own, record, look);
        let asks = look.asks.iter().filter(|(_, ask)| ask.holds);
        let living = look.holders.with(&asks.map(|(who, _)| who.0).collect());
        let living = may.and(&living).without(&gone);
        let order = |slot: u32| (slot < from, slot);
        let before = living.iter().filter(|slot| order(*slot) < order(own));
        behind + u32::try_from(before.count()).unwrap_or(u32::MAX)
    }

    /// When the next look is due if nothing changes before.
    fn longest_wait(&self, record: &Record, look: &Look<Duration>) -> Duration {
        let quarter = self.shared.bounds.lease_ttl / 4;
        let busy = BUSY.max(self.store.pace.slowest());
        // Asked for in a change only: it takes a look at all ranks.
        let first = || self.place(record, look) == 0;
        let waits_for_newcomers = record
            .open
            .as_ref()
            .is_some_and(|open| !open.takes.is_empty());
        let device = look.older_view_needed || self.since.left.is_some();
        let comes = !look.asks.is_empty() || self.own.applied == 0;
        let bound = self.shared.bounds.error;
        let (parts, breaks) = {
            let inner = self.shared.lock();
            let breaks = inner.suspects.next_broken(Instant::now(), bound);
            (!inner.farewells.is_empty(), breaks)
        };
        let time = match &record.open {
            Some(_) if waits_for_newcomers || first() => busy,
            _ if device => busy,
            _ if parts || comes && first() => LOOK.max(busy),
            _ => quarter,
        };
        time.min(quarter).min(breaks.unwrap_or(quarter).max(BUSY))
    }

    /// The first view is that of all founders, once all of them have come.
    fn found(&mut self) -> Result<TurnOutcome, GroupError> {
        let quarter = self.shared.bounds.lease_ttl / 4;
        if self.own.applied == 0 {
            self.hello()?;
            return Ok(TurnOutcome::Wait(LOOK.min(quarter)));
        }
        let members: Members = self.founders.iter().map(|&slot| (slot, 1)).collect();
        let kept = &self.store.kept.members;
        let here = |(&slot, &generation): (&u32, &u32)| kept.contains_key(&(slot, generation));
        let late = self.since.begun.elapsed() >= self.shared.bounds.found;
        if !late && !members.iter().all(here) {
            return Ok(TurnOutcome::Wait(LOOK.min(quarter)));
        }
        self.store.found(&Record::founded(members))?;
        Ok(TurnOutcome::Again)
    }

    /// Takes the first view down once it is founded, and what the newest record says of ranks that come and go.
    fn begin(&mut self, record: &Record) {
        if self.own.applied == record.epoch && self.shared.lock().view.is_none() {
            self.viewed(record);
            self.shared.set_state(GroupState::Serving);
        }
        self.newcomers.learn(record, Instant::now());
        self.store.drop_kept(|who| record.was_dropped(who.0, who.1));
        let mut inner = self.shared.lock();
        if inner.leaving && self.own.leaving == Leaving::No {
            self.own.leaving = Leaving::Wants;
        }
        let (own, kept) = (self.own(), &self.store.kept.members);
        let members: Vec<RankGeneration> = rank_generations(inner.suspects.members()).collect();
        for who in members {
            if let Some(member) = kept.get(&who).filter(|_| who != own)
                && !inner.processes.contains_key(&who)
            {
                inner.processes.insert(who, member.process.clone());
            }
        }
    }

    /// A rank that comes later tells what it is, once, and then wakes all by the record.
    fn ask(&mut self, record: &Arc<Record>) -> Result<(), GroupError> {
        if self.own.applied != 0 || self.said_hello && self.told.takings == self.store.takings {
            return Ok(());
        }
        self.hello()?;
        let woken = Record {
            asked: record.asked.wrapping_add(1),
            ..Record::clone(record)
        };
        self.store.replace(&woken)?;
        Ok(())
    }

    fn hello(&mut self) -> Result<(), GroupError> {
        if !self.said_hello {
            self.shared.transport.hello()?;
            self.said_hello = true;
        }
        Ok(())
    }

    /// While a change is prepared, clocks against those who have promised it stand still.
    fn tell_layer(&mut self, record: &Record, look: &Look<Duration>) -> Result<(), GroupError> {
        let concerns = self.own.applied != 0 && self.own.is_proposed(record);
        let preparing = concerns.then(|| {
            let promised: Slots = look.promises.keys().copied().collect();
            promised.without(&[self.own.slot].into_iter().collect())
        });
        if preparing != self.preparing {
            let ranks: Option<Vec<u32>> = preparing.as_ref().map(|set| set.iter().collect());
            let told = self.shared.layer.set_preparing(ranks.as_deref());
            told.map_err(GroupError::Layer)?;
            self.preparing = preparing;
        }
        Ok(())
    }

    /// Tells the others what this rank has to say, where that is not in the store.
    fn tell_row(&mut self, record: &Record, row: &Row) -> Result<(), GroupError> {
        let connected = self.shared.lock().connected.clone();
        let own = self.own();
        let against = [&row.unheard, &row.broken, &row.overdue, &row.ended];
        let says = !against.into_iter().all(Slots::is_empty);
        let stored = StoredRow {
            slots: self.shared.transport.slots(),
            epoch: if says { record.epoch } else { 0 },
            takings: self.store.takings,
            through: self.through,
            unheard: row.unheard.clone(),
            broken: row.broken.clone(),
            overdue: row.overdue.clone(),
            meets: row.meets.clone(),
            ended: row.ended.clone(),
            connected,
        };
        // Another writer may have changed it, to something else or to what is no row.
        let kept = self.store.kept.rows.get(&own);
        if stored != self.told || kept != Some(&self.told) {
            self.store.tell(&stored)?;
            self.store.kept.rows.insert(own, stored.clone());
            self.told = stored;
        }
        Ok(())
    }

    fn wait(&self, time: Duration) {
        let start = Instant::now();
        let mut inner = self.shared.lock();
        while !inner.news && !self.shared.is_stopped() {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            inner = self.shared.wait(inner, left);
        }
    }

    /// Whatever the news are: what has failed is tried again a moment later.
    fn pause(&self) {
        let start = Instant::now();
        let mut inner = self.shared.lock();
        while !self.shared.is_stopped() && start.elapsed() < AGAIN {
            inner = self.shared.wait(inner, AGAIN);
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        if self.since.away.is_none() {
            self.since.away = Some(Instant::now());
            self.shared.tell(GroupEventKind::StoreLost {
                error: error.to_string(),
            });
        }
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
