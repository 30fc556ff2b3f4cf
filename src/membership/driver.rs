//! The thread that follows the rules: it looks into the store, asks [`Rules::next`] what to do, does it, and looks again.
//!
//! `driver/steps.rs` holds the steps, `see.rs` the looks. The thread waits for no rank. Work that would make it wait has threads of its
//! own. `connect.rs` connects QPs. `watch.rs` reads the words of kernels and the ends of processes, which must not wait for the store.
//! `bell.rs` waits for the record. This thread renews the lease, so a rank whose rules are not followed does not count as living.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::evidence::Rules;
use membership_rules::look::{Leaving, Limit, Look, Own, Row};
use membership_rules::members::Members;
use membership_rules::record::{RankGeneration, Record};
use membership_rules::slots::Slots;
use membership_rules::steps::Step;
use rendezvous::StoreError;

use super::GroupError;
use super::age::keep_near;
use super::anew::{LostRecord, find_again, write_anew};
use super::attention::{Attention, Keys, LOOK, Looks, Woken};
use super::connector::Connector;
use super::doubt::Doubts;
use super::event::{GroupEventKind, GroupState};
use super::group_store::{GroupStore, LookAt};
use super::named::{look_at_named, take_down};
use super::outcome::TurnOutcome;
use super::own_row::OwnRow;
use super::rank::{Instants, Rank};
use super::reports::{Reports, tell_held_back};
use super::see::{Sight, has_lost_hca};
use super::shared::Shared;
use super::tidy::Tidying;
use super::turns::{Turns, waits_more};

mod steps;

/// Pause after a step has failed. While the store fails turn after turn, the pause doubles each time.
const AGAIN: Duration = Duration::from_millis(10);

/// One rank, with the parts of a turn, as it follows the rules.
pub(super) struct Driver {
    pub(super) rank: Rank,
    sight: Sight,
    attention: Attention,
    turns: Turns,
    /// The proposal that this rank would make, but for ranks of which it has heard nothing since.
    doubts: Doubts,
    reports: Reports,
    row: OwnRow,
    lost: LostRecord,
    tidying: Tidying,
    founders: Vec<u32>,
    preparing: Option<Slots>,
    said_hello: bool,
    /// A call of the store has failed in this turn.
    store_refused: bool,
    /// The number of turns in a row in which the store has failed.
    store_failures: u32,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, store: GroupStore, connector: Arc<Connector>) -> Self {
        let (slot, generation) = (shared.transport.slot(), shared.transport.generation());
        let founders = shared.transport.founders();
        let founds = founders.contains(&slot);
        let own = Own {
            applied: founds.into(),
            limit: if founds { Limit::Open } else { Limit::Closed },
            ..Own::newcomer(slot, generation)
        };
        let opened: Members = if founds {
            founders.iter().map(|&founder| (founder, 1)).collect()
        } else {
            [(slot, generation)].into()
        };
        let rank = Rank {
            rules: Rules::new(shared.bounds.clocks()),
            shared,
            connector,
            store,
            own,
            first: 1,
            opened,
            over: BTreeSet::new(),
            through: None,
            promises: false,
            rung: 0,
            since: Instants {
                begun: Instant::now(),
                viewed: None,
                left: None,
                held: None,
                away: None,
                touched: Instant::now(),
            },
        };
        let bounds = &rank.shared.bounds;
        Self {
            sight: Sight::new(bounds),
            attention: Attention::new(bounds.lease_ttl / 4, !founds),
            turns: Turns::default(),
            doubts: Doubts::default(),
            reports: Reports::default(),
            row: OwnRow::default(),
            lost: LostRecord::default(),
            tidying: Tidying::default(),
            founders,
            preparing: None,
            said_hello: false,
            store_refused: false,
            store_failures: 0,
            rank,
        }
    }

    /// Follows the rules until the group stops or this generation has ended.
    pub(super) fn run(&mut self) {
        while !self.rank.shared.is_stopped() {
            self.store_refused = false;
            let turned = self.turn();
            if let Err(GroupError::Store(error)) = &turned {
                self.store_failed(error);
            }
            // The store counts as back only if no call has failed in this turn. A store may answer reads and refuse changes, as an etcd
            // without space does.
            if !self.store_refused {
                self.store_answered();
            }
            let due = match turned {
                Ok(TurnOutcome::Again) => true,
                Ok(TurnOutcome::Wait(time)) => self.wait(time),
                Ok(TurnOutcome::Over(state)) => {
                    self.end(state);
                    return;
                }
                Err(GroupError::Store(_)) => {
                    let doubled = AGAIN.saturating_mul(1 << self.store_failures.min(16));
                    self.store_failures += 1;
                    self.pause(doubled.min(self.rank.shared.bounds.lease_ttl / 4));
                    true
                }
                Err(error) => {
                    // A layer or an HCA refuses. This rank does not promise meanwhile, so the others go on without it.
                    let error = error.to_string();
                    self.rank.shared.tell(GroupEventKind::Failed { error });
                    self.pause(AGAIN);
                    true
                }
            };
            self.attention.set_due(due);
        }
        self.give_up();
    }

    pub(super) fn turn(&mut self) -> Result<TurnOutcome, GroupError> {
        let (mut woken, told) = {
            let mut inner = self.rank.shared.lock();
            let woken = Woken {
                rang: std::mem::take(&mut inner.rang),
                news: std::mem::take(&mut inner.news),
            };
            (woken, inner.told.take())
        };
        if let Some(entry) = told {
            woken.news = true;
            woken.rang |= !take_down(&mut self.rank, &entry);
        }
        // This comes before any call of the store, because the store may not answer.
        self.end_qps_of_ended()?;
        let looks = self.look(woken)?;
        // Clocks run only from look to look, so none runs in a turn without a look.
        let (mut passed, mut call) = (Duration::ZERO, Duration::ZERO);
        if looks != Looks::Nothing {
            passed = self.attention.looked_at(Instant::now());
            call = self.rank.store.take_slowest();
        }
        self.rank.store.mend_bounds()?;
        // L4: keeping the lease is no step of the rules.
        if let Err(error) = self.rank.store.keep_lease(self.rank.own.applied == 0) {
            self.store_failed(&error);
        }
        self.rank.store.check_record()?;
        let Some(record) = self.rank.store.kept().record.clone() else {
            if self.rank.own.applied == 0 && self.rank.store.reader().has_namesake() {
                let none = Record::founded(Members::default());
                self.lost.is_namesake(&self.rank, &none);
                return Ok(TurnOutcome::Over(GroupState::Expelled));
            }
            return self.found();
        };
        let record = keep_near(&mut self.rank, record);
        self.begin(&record);
        if self.lost.is_namesake(&self.rank, &record) {
            return Ok(TurnOutcome::Over(GroupState::Expelled));
        }
        if self.rank.store.kept().lost.is_some() {
            // While the record is lost this rank looks at all keys, and does nothing else.
            self.attention.read_all(true);
            return write_anew(&mut self.rank, &record);
        }
        find_again(&mut self.rank, &record)?;
        self.rank.since.touched = Instant::now();
        let look = self.sight.see(&mut self.rank, &record, passed, call)?;
        self.conclude(&record, look, looks)
    }

    /// Looks into the store for what is due. Returns the kind of the look.
    fn look(&mut self, woken: Woken) -> Result<Looks, StoreError> {
        let looks = self.attention.begin(woken, Instant::now());
        let mut odd = Vec::new();
        let place = self.rank.store.kept().place();
        let count = self.rank.store.kept().count();
        if looks.count_leases() {
            odd.extend(self.rank.store.reader_mut().look(&LookAt::Members)?);
            self.attention.counted_at(Instant::now());
        }
        let changed = self.rank.store.kept().count() != count;
        match self.attention.keys(looks, changed) {
            Keys::None => {}
            Keys::Named => odd.extend(look_at_named(&mut self.rank)?),
            Keys::All => odd.extend(self.rank.store.reader_mut().look(&LookAt::All)?),
        }
        self.rank.shared.looked(self.rank.store.kept().since());
        // A look does not show that a key was removed.
        if woken.rang && place == self.rank.store.kept().place() {
            self.rank.store.reader_mut().doubt();
        }
        for error in odd {
            self.rank.shared.tell(GroupEventKind::Failed { error });
        }
        Ok(looks)
    }

    /// Does what follows from `look`: tells other ranks and the user, then follows the rules. `looks`: the kind of look with which the turn
    /// began.
    fn conclude(
        &mut self,
        record: &Arc<Record>,
        mut look: Look<Duration>,
        looks: Looks,
    ) -> Result<TurnOutcome, GroupError> {
        let row = observe(&mut self.rank, record, &mut look);
        let whole = self.attention.is_whole();
        self.reports
            .tell_causes(&self.rank, record, &look, &row, whole);
        self.reports.tell_reach(&self.rank, record);
        self.sight
            .connect(&self.rank, &mut self.reports, record, &look);
        self.ask(record)?;
        self.tell_layer(record, &look)?;
        self.see_off(record)?;
        self.row
            .tell(&mut self.rank, &self.sight.newcomers, record, &row)?;
        if whole && has_lost_hca(&self.rank, record, &look) {
            return Ok(TurnOutcome::Over(GroupState::Expelled));
        }
        self.ring(record, &look)?;
        let quiet = self.is_quiet(record, &look, &row);
        let reads = self.turns.reads_all(&self.rank, record, &look, &row, quiet);
        self.attention.read_all(reads);
        if reads && !whole && !quiet {
            return Ok(TurnOutcome::Again);
        }
        let time = match self.follow(record, look)? {
            TurnOutcome::Wait(time) => self.tidying.sweep(&mut self.rank, record, time),
            outcome => return Ok(outcome),
        };
        if quiet && self.attention.rest(looks) && self.rank.store.reader_mut().forget_rows() {
            self.sight.heard.forget_written(record.number);
        }
        Ok(TurnOutcome::Wait(time))
    }

    /// Returns whether this rank has nothing to say and nothing to do. Any other rank that has something to do acts by itself, and wakes
    /// this one by the record.
    fn is_quiet(&self, record: &Record, look: &Look<Duration>, row: &Row) -> bool {
        let inner = self.rank.shared.lock();
        let own = self.rank.own.is_member(record) && self.rank.own.is_current(record);
        own && record.open.is_none()
            && record.parted.is_empty()
            && look.asks.is_empty()
            && look.ended.is_empty()
            && !row.accuses()
            && row.connected.is_empty()
            && self.rank.own.unheard.is_empty()
            && self.rank.own.leaving == Leaving::No
            && look.goodbyes.is_empty()
            && inner.farewells.is_empty()
            && inner.wanted.is_empty()
            && !inner.hca_lost
            && self.rank.since.away.is_none()
    }

    /// Wakes the members, which wait for newcomers, if this rank is a newcomer and finds that all newcomers of the proposal have promised.
    fn ring(&mut self, record: &Arc<Record>, look: &Look<Duration>) -> Result<(), GroupError> {
        let Some(open) = record.open.as_ref().filter(|_| self.rank.own.applied == 0) else {
            return Ok(());
        };
        let promised = |slot: u32| look.promises.contains_key(&slot);
        let done = open.takes.keys().all(promised) && !open.keep.is_empty();
        if !done || self.rank.rung == record.number || !self.rank.own.has_promised(record) {
            return Ok(());
        }
        self.rank.store.wake(record)?;
        // If `wake` found the record changed, another rank has woken the members.
        self.rank.rung = record.number;
        Ok(())
    }

    /// Does the steps that the rules say, as long as they follow from one look.
    fn follow(
        &mut self,
        record: &Arc<Record>,
        mut look: Look<Duration>,
    ) -> Result<TurnOutcome, GroupError> {
        loop {
            let step = self.rank.rules.next(&self.rank.own, record, &look);
            if let Step::Propose(_) | Step::Commit(_) = step {
                let more = match &step {
                    Step::Propose(new) => waits_more(record, new),
                    _ => Duration::ZERO,
                };
                let left = self.turns.turn_left(&self.rank, record, &look, more);
                if !left.is_zero() {
                    return Ok(TurnOutcome::Wait(left));
                }
                if let Step::Propose(new) = &step
                    && self
                        .doubts
                        .is_in_doubt(&self.rank, &self.sight.heard, record, new)?
                {
                    // The words of other ranks wake no thread, so this rank looks again soon.
                    return Ok(TurnOutcome::Wait(self.rank.shared.bounds.lease_ttl / 8));
                }
            }
            let concludes = matches!(step, Step::Propose(_) | Step::Commit(_) | Step::GiveUp);
            if concludes && !self.attention.is_whole() {
                self.attention.read_all(true);
                return Ok(TurnOutcome::Again);
            }
            let again = matches!(step, Step::Limit(_) | Step::View);
            let outcome = match step {
                Step::Wait => TurnOutcome::Wait(self.longest_wait(record, &look)),
                // A change of the record wakes this rank when all have promised.
                step @ Step::Promise(_) => {
                    self.take(record, step)?;
                    TurnOutcome::Wait(self.longest_wait(record, &look))
                }
                step => self.take(record, step)?,
            };
            if !again {
                return Ok(outcome);
            }
            look.started = self.rank.shared.layer.started();
            look.has_place = self.rank.shared.layer.has_place(record.first);
        }
    }

    fn longest_wait(&self, record: &Record, look: &Look<Duration>) -> Duration {
        self.turns
            .longest_wait(&self.rank, &self.attention, record, look)
    }

    /// Founds the group: the first view has all founders, and is written when all of them have come or the found bound has passed.
    fn found(&mut self) -> Result<TurnOutcome, GroupError> {
        let quarter = self.rank.shared.bounds.lease_ttl / 4;
        // A group that has lost its record is not founded anew over it.
        if self.lost.hears_of_lost(&mut self.rank)? {
            return Ok(TurnOutcome::Wait(quarter));
        }
        if self.rank.own.applied == 0 {
            self.hello()?;
            return Ok(TurnOutcome::Wait(LOOK.min(quarter)));
        }
        let members: Members = self.founders.iter().map(|&slot| (slot, 1)).collect();
        let kept = &self.rank.store.kept().members;
        let here = |who: RankGeneration| kept.contains(who);
        let late = self.rank.since.begun.elapsed() >= self.rank.shared.bounds.found;
        // The founder with the lowest slot founds the group. After a quarter of a lease the other founders may do it as well.
        let first = self.founders.iter().min() == Some(&self.rank.own.slot);
        let pause = if first { LOOK.min(quarter) } else { quarter };
        let is_turn = first || self.rank.since.begun.elapsed() >= quarter;
        let is_time = late || is_turn && members.iter().all(here);
        if !is_time {
            return Ok(TurnOutcome::Wait(pause));
        }
        // A founder's process that was started again may find words of members that have lost the record.
        if self.rank.store.reader_mut().is_told_of_lost()? {
            self.attention.read_all(true);
            return Ok(TurnOutcome::Wait(quarter));
        }
        self.rank.store.found(&Record::founded(members))?;
        Ok(TurnOutcome::Again)
    }

    /// Takes over what a record says: the first view once the group is founded, and which ranks come and go.
    fn begin(&mut self, record: &Record) {
        if self.rank.own.applied == record.epoch && self.rank.shared.lock().view.is_none() {
            self.viewed(record);
            self.rank.shared.set_state(GroupState::Serving);
        }
        // Only a founder needs this list, and only until the first record is in the store.
        self.founders = Vec::new();
        let now = Instant::now();
        let newcomers = &mut self.sight.newcomers;
        for slot in newcomers.learn(record, now) {
            let failures = newcomers.held(now).get(slot).unwrap_or(0);
            tell_held_back(&self.rank.shared, slot, failures);
        }
        let is_new = self
            .rank
            .store
            .reader_mut()
            .drop_kept(|who| record.was_dropped(who.0, who.1));
        let mut inner = self.rank.shared.lock();
        if inner.leaving && self.rank.own.leaving == Leaving::No {
            self.rank.own.leaving = Leaving::Wants;
        }
        if !is_new {
            return;
        }
        let (own, kept) = (self.rank.own(), &self.rank.store.kept().members);
        let watched = kept.all_near().filter(|(who, _)| {
            let is_member = inner.suspects.members().get(who.0) == Some(who.1);
            *who != own && is_member && !inner.processes.contains_key(who)
        });
        let watched: Vec<_> = watched.map(|(who, near)| (who, Arc::clone(near))).collect();
        inner.processes.extend(watched);
    }

    /// Writes the hello of a rank that comes later, once, and then wakes all ranks by the record.
    fn ask(&mut self, record: &Arc<Record>) -> Result<(), GroupError> {
        self.reports.tell_own_wait(&self.rank, record);
        let earlier = self.sight.earlier(&self.rank, record);
        self.reports.tell_earlier(&self.rank, earlier);
        if self.rank.own.applied != 0
            || self.said_hello && self.row.takings() == self.rank.store.takings()
        {
            return Ok(());
        }
        self.hello()?;
        self.rank.store.wake(record)?;
        Ok(())
    }

    fn hello(&mut self) -> Result<(), GroupError> {
        if !self.said_hello {
            if let Some((key, text)) = self.rank.shared.transport.hello()? {
                self.rank.store.put(&key, &text)?;
            }
            self.said_hello = true;
        }
        Ok(())
    }

    /// Tells the layer which members have promised the open proposal: the clocks against them stand still while the change is prepared.
    fn tell_layer(&mut self, record: &Record, look: &Look<Duration>) -> Result<(), GroupError> {
        let concerns = self.rank.own.applied != 0 && self.rank.own.is_proposed(record);
        let preparing = concerns.then(|| {
            let mut held: Slots = look.promises.keys().copied().collect();
            // A smaller proposal may have replaced the one that these members promised. Their calls are held all the same.
            if let (Some(before), Some(open)) = (&self.preparing, &record.open) {
                held.add(&before.and(&open.keep));
            }
            held.remove(self.rank.own.slot);
            held
        });
        self.prepare(preparing)
    }

    /// Sets the ranks against which clocks stand still while a change is prepared. None: no change is being prepared.
    pub(super) fn prepare(&mut self, preparing: Option<Slots>) -> Result<(), GroupError> {
        if preparing != self.preparing {
            let ranks: Option<Vec<u32>> = preparing.as_ref().map(|set| set.iter().collect());
            let told = self.rank.shared.layer.set_preparing(ranks.as_deref());
            told.map_err(GroupError::Layer)?;
            self.preparing = preparing;
        }
        Ok(())
    }

    /// Waits for news, at most for `time`. Returns whether `time` has passed.
    fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        let mut inner = self.rank.shared.lock();
        while !inner.has_news() && !self.rank.shared.is_stopped() {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return true;
            }
            inner = self.rank.shared.wait(inner, left);
        }
        false
    }

    /// Waits for `time`, whatever news arrive. The caller then tries a failed step again.
    fn pause(&self, time: Duration) {
        let start = Instant::now();
        let mut inner = self.rank.shared.lock();
        while !self.rank.shared.is_stopped() {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            inner = self.rank.shared.wait(inner, left);
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        self.store_refused = true;
        if self.rank.since.away.is_none() {
            self.rank.since.away = Some(Instant::now());
            self.rank.shared.tell(GroupEventKind::StoreLost {
                error: error.to_string(),
            });
        }
    }

    fn store_answered(&mut self) {
        self.store_failures = 0;
        if let Some(since) = self.rank.since.away.take() {
            let away = since.elapsed();
            self.rank.shared.tell(GroupEventKind::StoreBack { away });
        }
    }
}

/// Moves the clocks of this rank on to `look`, and puts its row into it. Returns the row.
fn observe(rank: &mut Rank, record: &Record, look: &mut Look<Duration>) -> Row {
    let meets = rank.rules.observe(&mut rank.own, record, look);
    // This comes after the look that is measured by the old bounds: a slow call does not excuse itself.
    let clocks = rank.shared.bounds.clocks();
    let ttl = rank.shared.bounds.lease_ttl;
    let bounds = rank.store.pace().bounds(ttl, &clocks);
    rank.rules.keep_pace(&mut rank.own, bounds);
    let row = rank.rules.row(&rank.own, record, look, meets);
    look.rows.insert(rank.own.slot, row.clone());
    if let Some(ask) = look.asks.get_mut(&rank.own()) {
        ask.row = row.clone();
    }
    row
}
