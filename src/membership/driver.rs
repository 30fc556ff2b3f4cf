//! The thread that follows the rules: it looks into the store, asks [`Rules::next`] what to do, does it, and looks again.
//!
//! It waits for no rank. Work that would make it wait has threads of its own. `connect.rs` connects QPs. `watch.rs` reads the words
//! of kernels and the ends of processes, which must not wait for the store. `bell.rs` waits for the record. This thread renews the
//! lease, so a rank whose rules are not followed does not count as living.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::evidence::Rules;
use membership_rules::look::{Leaving, Limit, Look, Own, Row};
use membership_rules::members::Members;
use membership_rules::record::{Proposal, RankGeneration, Record};
use membership_rules::slots::Slots;
use membership_rules::steps::Step;
use rendezvous::{Entry, MAX_LOOK, StoreError};

use super::GroupError;
use super::connector::Connector;
use super::doubt::Doubt;
use super::event::{Cause, GroupEventKind, GroupState};
use super::group_store::{
    GOODBYES, GroupStore, LookAt, PROMISES, goodbye_key, over_key, promise_key, row_key,
};
use super::see::{Heard, Newcomers, held_for};
use super::shared::Shared;
use super::stored::StoredRow;
use super::tidy::Tidying;

/// Shortest pause between two looks of a rank whose turn it is in a change.
const BUSY: Duration = Duration::from_millis(2);
/// It pauses for this part of the time that it has waited, if that is longer.
const BUSY_PART: u32 = 4;
/// Between two of its looks while ranks want to come in, or have left.
const LOOK: Duration = Duration::from_millis(20);
/// Pause after a step has failed. After turns that the store has failed, one behind the other, it is twice as long each time.
const AGAIN: Duration = Duration::from_millis(10);
/// Behind a pair that was connected anew, the rank waits for more pairs for this long. When ports or a switch come back many pairs
/// do, and each view costs every rank a change.
const UNITE: Duration = Duration::from_millis(40);
/// In peace one look in this many asks for changes, because the watch of the record may have missed one. The others count leases.
const PEACE: u32 = 4;
/// The part of a lease for which one turn does long work; the next turn goes on after a look. Ending the QPs to a thousand peers
/// takes thousands of commands.
pub(super) const TURN_PART: u32 = 8;

/// How a turn ends.
pub(super) enum TurnOutcome {
    /// A step was done, or failed because the record has changed: look again.
    Again,
    /// Look again after this time, or earlier if something changes.
    Wait(Duration),
    /// This generation has ended.
    Over(GroupState),
}

/// One rank's way through the rules. `steps.rs` holds its steps, `see.rs` its looks.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) connector: Arc<Connector>,
    pub(super) store: GroupStore,
    founders: Vec<u32>,
    pub(super) rules: Rules<Duration>,
    pub(super) own: Own<Duration>,
    /// The first call of the newest view that its device has, or a later one (`age.rs`).
    pub(super) first: u32,
    /// The ranks to which kernels may post.
    pub(super) opened: Members,
    /// Members that have ended for certain: the QPs to them are in Err, and no view opens them again.
    pub(super) over: BTreeSet<RankGeneration>,
    /// The row of this rank as the store holds it.
    told: Arc<StoredRow>,
    /// This rank has made all calls up to this one, and the row says so for a leaver that waits.
    pub(super) through: Option<u32>,
    pub(super) heard: Heard,
    pub(super) newcomers: Newcomers,
    /// How many newcomers of its own slot came to nothing before this rank, as it has told.
    held_back: u32,
    /// P6: of each slot for which ranks ask, the generation with which this rank connects.
    pub(super) successors: BTreeMap<u32, u32>,
    /// Members whose lease this newcomer does not see: since when, and whether it was reported.
    pub(super) unseen: BTreeMap<RankGeneration, (Instant, bool)>,
    pub(super) tidying: Tidying,
    /// The ranks reported last, for each cause that follows from looks.
    pub(super) causes: BTreeMap<Cause, Slots>,
    preparing: Option<Slots>,
    /// What it would propose, but for ranks of which it has heard nothing since.
    pub(super) doubt: Option<Doubt>,
    /// This rank looks at all keys: it acts, or its turn to act has come.
    pub(super) reads: bool,
    /// The last look asked for all keys. Other ranks may have taken some words back meanwhile, so conclusions from those words need
    /// such a look.
    pub(super) whole: bool,
    /// The number of the last proposal for which this newcomer has woken the members.
    rung: u64,
    /// This newcomer has told that the store has no record.
    pub(super) told_lost: bool,
    /// A member had the name of this newcomer before it, in another process.
    pub(super) namesake: bool,
    /// It has tried to promise a proposal.
    pub(super) promises: bool,
    /// When this newcomer first heard that the record is lost.
    pub(super) heard_lost: Option<Instant>,
    /// The next turn begins with a look, whatever has woken this rank.
    look_due: bool,
    /// Looks in a row that have found nothing to do.
    peace: u32,
    said_hello: bool,
    /// This newcomer reaches too few members, and has reported that.
    waits_for_reach: bool,
    /// The earlier generation of its slot for whose end this rank waits.
    waits_for: Option<u32>,
    /// The store has failed in this turn.
    store_refused: bool,
    /// Turns in a row that the store has failed.
    store_failures: u32,
    pub(super) since: Instants,
}

/// Since when something is so.
pub(super) struct Instants {
    pub(super) begun: Instant,
    /// The last look has ended.
    looked: Option<Instant>,
    /// The leases were counted.
    counted: Option<Instant>,
    /// P9: this rank would do a step that any rank may do, of the record with this epoch and number.
    turn: Option<((u32, u64), Instant)>,
    /// Since when a step is to be done by some rank, in the record with this epoch and number.
    busy: Option<((u32, u64), Instant)>,
    /// The newest view was given to the device.
    pub(super) viewed: Option<Instant>,
    /// This rank has left, and ends the calls that it is still part of.
    pub(super) left: Option<Instant>,
    /// Calls have been held.
    pub(super) held: Option<Instant>,
    /// The store has not answered.
    away: Option<Instant>,
    /// A turn has followed the record that the store had.
    pub(super) touched: Instant,
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
        let opened: Members = match founds {
            true => founders.iter().map(|&founder| (founder, 1)).collect(),
            false => [(slot, generation)].into(),
        };
        Self {
            rules: Rules::new(shared.bounds.clocks()),
            heard: Heard::new(shared.bounds.lease_ttl, shared.bounds.stall),
            newcomers: Newcomers::new(shared.bounds.lease_ttl),
            held_back: 0,
            successors: BTreeMap::new(),
            unseen: BTreeMap::new(),
            shared,
            connector,
            store,
            founders,
            own,
            first: 1,
            opened,
            over: BTreeSet::new(),
            told: Arc::default(),
            through: None,
            tidying: Tidying::default(),
            causes: BTreeMap::new(),
            preparing: None,
            doubt: None,
            reads: !founds,
            whole: false,
            rung: 0,
            told_lost: false,
            namesake: false,
            promises: false,
            heard_lost: None,
            look_due: true,
            peace: 0,
            said_hello: false,
            waits_for_reach: false,
            waits_for: None,
            store_refused: false,
            store_failures: 0,
            since: Instants {
                begun: Instant::now(),
                looked: None,
                counted: None,
                turn: None,
                busy: None,
                viewed: None,
                left: None,
                held: None,
                away: None,
                touched: Instant::now(),
            },
        }
    }

    /// Follows the rules until the group stops or this generation has ended.
    pub(super) fn run(&mut self) {
        while !self.shared.is_stopped() {
            self.store_refused = false;
            let turned = self.turn();
            if let Err(GroupError::Store(error)) = &turned {
                self.store_failed(error);
            }
            // A store may answer questions and refuse changes, as an etcd without space does: that is not yet an answer.
            if !self.store_refused {
                self.store_answered();
            }
            self.look_due = match turned {
                Ok(TurnOutcome::Again) => true,
                Ok(TurnOutcome::Wait(time)) => self.wait(time),
                Ok(TurnOutcome::Over(state)) => {
                    self.end(state);
                    return;
                }
                Err(GroupError::Store(_)) => {
                    let doubled = AGAIN.saturating_mul(1 << self.store_failures.min(16));
                    self.store_failures += 1;
                    self.pause(doubled.min(self.shared.bounds.lease_ttl / 4));
                    true
                }
                Err(error) => {
                    // A layer or an HCA that refuses: this rank does not promise meanwhile, so the others go on without it.
                    let error = error.to_string();
                    self.shared.tell(GroupEventKind::Failed { error });
                    self.pause(AGAIN);
                    true
                }
            };
        }
        self.give_up();
    }

    pub(super) fn own(&self) -> RankGeneration {
        (self.own.slot, self.own.generation)
    }

    pub(super) fn turn(&mut self) -> Result<TurnOutcome, GroupError> {
        let (mut news, mut rang, told) = {
            let mut inner = self.shared.lock();
            (
                std::mem::take(&mut inner.news),
                std::mem::take(&mut inner.rang),
                inner.told.take(),
            )
        };
        if let Some(entry) = told {
            news = true;
            rang |= !self.take_down(&entry);
        }
        // Before the store is asked, which may not answer.
        self.end_qps_of_ended()?;
        let quarter = self.shared.bounds.lease_ttl / 4;
        let is_due = |of: Option<Instant>| of.is_none_or(|of| of.elapsed() + BUSY >= quarter);
        // The store does not hold what this rank's own threads have found. So the rank concludes from what it has read, unless it
        // acts.
        let looks = rang || self.look_due || self.reads || is_due(self.since.looked);
        // Whatever follows from this look, the next one is whole unless nothing does.
        let before = std::mem::take(&mut self.peace);
        let mut asks = rang || news || before.is_multiple_of(PEACE);
        let due = is_due(self.since.counted);
        // In peace a rank that reads all keys counts leases in every second look.
        let rests = self.reads && before > 0 && !rang && !news;
        let counts = match (rests, before) {
            (true, _) => !before.is_multiple_of(2),
            (false, 0) => due,
            (false, _) if self.reads => due,
            (false, _) => !asks,
        };
        asks = if rests { !counts } else { asks || self.reads };
        let mut looked = Vec::new();
        let place = self.store.kept.place();
        if looks && counts {
            let count = self.store.kept.count();
            looked.extend(self.store.look(&LookAt::Members)?);
            asks |= self.store.kept.count() != count;
            self.since.counted = Some(Instant::now());
        }
        self.whole = looks && asks && self.reads;
        match looks && asks {
            true if self.reads => looked.extend(self.store.look(&LookAt::All)?),
            true => looked.extend(self.look_at_named()?),
            false => {}
        }
        self.shared.looked(self.store.kept.since());
        // A look shows no removal.
        if rang && place == self.store.kept.place() {
            self.store.doubt();
        }
        for error in looked {
            self.shared.tell(GroupEventKind::Failed { error });
        }
        // No clock runs where this rank has not looked.
        let (mut passed, mut call) = (Duration::ZERO, Duration::ZERO);
        if looks {
            let now = Instant::now();
            let before = self.since.looked.replace(now);
            passed = before.map_or(Duration::ZERO, |before| now.duration_since(before));
            call = self.store.take_slowest();
        }
        self.store.mend_bounds()?;
        // L4: no step asks for the own lease.
        if let Err(error) = self.store.keep_lease(self.own.applied == 0) {
            self.store_failed(&error);
        }
        self.store.check_record()?;
        let Some(record) = self.store.kept.record.clone() else {
            if self.own.applied == 0 && self.store.has_namesake() {
                self.is_namesake(&Record::founded(Members::default()));
                return Ok(TurnOutcome::Over(GroupState::Expelled));
            }
            return self.found();
        };
        let record = self.keep_near(record);
        self.begin(&record);
        if self.is_namesake(&record) {
            return Ok(TurnOutcome::Over(GroupState::Expelled));
        }
        if self.store.kept.lost.is_some() {
            return self.write_anew(&record);
        }
        self.find_again(&record)?;
        self.since.touched = Instant::now();
        let mut look = self.see(&record, passed, call)?;
        let meets = self.rules.observe(&mut self.own, &record, &look);
        // Behind the look that they are asked for: a call that was slow does not excuse itself.
        let clocks = self.shared.bounds.clocks();
        let bounds = self
            .store
            .pace
            .bounds(self.shared.bounds.lease_ttl, &clocks);
        self.rules.keep_pace(&mut self.own, bounds);
        let row = self.rules.row(&self.own, &record, &look, meets);
        look.rows.insert(self.own.slot, row.clone());
        if let Some(ask) = look.asks.get_mut(&self.own()) {
            ask.row = row.clone();
        }
        self.tell_causes(&record, &look, &row);
        self.tell_reach(&record);
        self.connect(&record, &look);
        self.ask(&record)?;
        self.tell_layer(&record, &look)?;
        self.see_off(&record)?;
        self.tell_row(&record, &row)?;
        if self.whole && self.has_lost_hca(&record, &look) {
            return Ok(TurnOutcome::Over(GroupState::Expelled));
        }
        self.ring(&record, &look)?;
        let quiet = self.is_quiet(&record, &look, &row);
        self.reads = self.reads_all(&record, &look, &row, quiet);
        if self.reads && !self.whole && !quiet {
            return Ok(TurnOutcome::Again);
        }
        let outcome = match self.follow(&record, look)? {
            TurnOutcome::Wait(time) => self.sweep(&record, time),
            outcome => outcome,
        };
        if let (TurnOutcome::Wait(_), true) = (&outcome, quiet) {
            self.peace = before.wrapping_add(looks.into()).max(1);
            // Behind a lease of peace.
            if self.peace == PEACE && !self.reads && self.store.forget_rows() {
                self.heard.forget_written(record.number);
            }
        }
        Ok(outcome)
    }

    /// Takes down the record that the watch delivered. Returns whether this rank needs to know nothing else now.
    fn take_down(&mut self, entry: &Entry) -> bool {
        let before = self.store.kept.record.clone();
        if let Some(error) = self.store.take_down(entry) {
            self.shared.tell(GroupEventKind::Failed { error });
        }
        let (Some(before), Some(now)) = (before, &self.store.kept.record) else {
            return false;
        };
        // A rank has asked to be taken in, or the newcomers of a proposal have promised.
        if before.asked != now.asked || self.own.applied == 0 {
            return false;
        }
        let own = row_key(self.own());
        // A leaver wakes the members by the record, as newcomers do. So the look need not ask for these keys.
        let rings = |key: &String| key.starts_with(PROMISES) || key.starts_with(GOODBYES);
        self.named().iter().all(|key| *key == own || rings(key))
    }

    /// Whether this rank has nothing to say and nothing to do: any other rank that has acts by itself, and rings by the record.
    fn is_quiet(&self, record: &Record, look: &Look<Duration>, row: &Row) -> bool {
        let inner = self.shared.lock();
        let own = self.own.is_member(record) && self.own.is_current(record);
        own && record.open.is_none()
            && record.parted.is_empty()
            && look.asks.is_empty()
            && look.ended.is_empty()
            && !row.accuses()
            && row.connected.is_empty()
            && self.own.unheard.is_empty()
            && self.own.leaving == Leaving::No
            && look.goodbyes.is_empty()
            && inner.farewells.is_empty()
            && inner.wanted.is_empty()
            && !inner.hca_lost
            && self.since.away.is_none()
    }

    /// Looks at the record, at the newcomers, and at [`Driver::named`]. A rank that misses many leases reads all keys, and may not
    /// have read them yet. Founders that find the record at their first look have not. The rank then reads them first, and names
    /// the rest after that.
    fn look_at_named(&mut self) -> Result<Vec<String>, StoreError> {
        let mut named = self.named();
        let mut odd = Vec::new();
        if named.len() >= MAX_LOOK {
            let own = BTreeSet::from([row_key(self.own())]);
            odd = self.store.look(&LookAt::Named(own))?;
            named = self.named();
        }
        odd.extend(self.store.look(&LookAt::Named(named))?);
        Ok(odd)
    }

    /// Keys that this rank asks for even when it does not act:
    ///
    /// - its own row, which another writer may have changed;
    /// - row, `over` and promise of each member whose lease it misses;
    /// - the rows of the ranks from which the view parts it;
    /// - of leavers, row and `over`, which say whether they are through;
    /// - the promises of newcomers, which come first;
    /// - the goodbye of the rank that acts, which cannot take itself out.
    ///
    /// If these are too many for one look it returns some of them, as many as that: a look at all keys takes their place.
    fn named(&self) -> BTreeSet<String> {
        let own = self.own();
        let mut named = BTreeSet::from([row_key(own)]);
        let kept = &self.store.kept;
        let Some(record) = &kept.record else {
            return named;
        };
        let holders = self.holders(record);
        let member = |slot| Some((slot, record.members.get(slot)?));
        let missed = record.slots().without(&holders);
        for who in missed.iter().filter_map(member).filter(|who| *who != own) {
            if named.len() >= MAX_LOOK {
                return named;
            }
            named.extend([row_key(who), over_key(who)]);
            if record.open.is_some() {
                named.insert(promise_key(record.number, who));
            }
        }
        // Whether they have calls to make before the view.
        let parted = record.parted.of(own.0);
        let parted = rank_generations(&record.members).filter(|who| parted.contains(who.0));
        named.extend(parted.map(row_key));
        for who in self.shared.lock().farewells.keys() {
            named.extend([row_key(*who), over_key(*who)]);
        }
        let takes = record.open.as_ref().map(|open| &open.takes);
        let takes = takes.into_iter().flat_map(rank_generations);
        named.extend(takes.map(|who| promise_key(record.number, who)));
        let mut before = rank_generations(&record.members).take_while(|who| *who != own);
        let acts = before.find(|who| holders.contains(who.0));
        named.extend(acts.map(goodbye_key));
        named
    }

    /// P9: whether this rank looks at all keys. The rank that acts does, and a rank that comes or goes. Another rank does so only
    /// when its turn has passed without a change, and not before its next regular look. What this rank has against others it
    /// follows by itself.
    fn reads_all(
        &mut self,
        record: &Record,
        look: &Look<Duration>,
        row: &Row,
        quiet: bool,
    ) -> bool {
        let of = (record.epoch, record.number);
        if quiet {
            self.since.busy = None;
        } else if self.since.busy.is_none_or(|(same, _)| same != of) {
            self.since.busy = Some((of, Instant::now()));
        }
        let alone = !self.own.is_member(record) || self.own.leaving != Leaving::No;
        if self.own.applied == 0 || alone || self.shared.lock().hca_lost {
            return true;
        }
        let place = self.place(record, look);
        if place == 0 || self.waits_for_promises(record) {
            return true;
        }
        let Some((_, since)) = self.since.busy else {
            return false;
        };
        let accuses = row.accuses() || !look.ended.is_empty();
        since.elapsed() >= self.reading_turn(record, accuses, place)
    }

    /// How long something has to be done before the rank at `place` looks whether it is.
    fn reading_turn(&self, record: &Record, accuses: bool, place: u32) -> Duration {
        let turn = self.store.pace.turn(place);
        match record.open.is_none() && accuses {
            true => turn,
            false => turn.max((self.shared.bounds.lease_ttl / 4).saturating_mul(place)),
        }
    }

    /// Whether a call of this rank has waited so long in a change that the rank needs to know which members have promised. The
    /// clocks against those members stand still.
    fn waits_for_promises(&self, record: &Record) -> bool {
        let held = self.since.held.map(|since| since.elapsed());
        let long = held.is_some_and(|held| held >= self.shared.transport.deadline() / 4);
        long && self.has_waiting_call(record)
    }

    /// Whether a call of this rank is under way in a change that it has promised.
    fn has_waiting_call(&self, record: &Record) -> bool {
        let layer = &self.shared.layer;
        self.own.has_promised(record) && layer.finished() != layer.started()
    }

    /// A newcomer that finds the promises of all newcomers wakes the members, which wait for them.
    fn ring(&mut self, record: &Arc<Record>, look: &Look<Duration>) -> Result<(), GroupError> {
        let Some(open) = record.open.as_ref().filter(|_| self.own.applied == 0) else {
            return Ok(());
        };
        let promised = |slot: u32| look.promises.contains_key(&slot);
        let done = open.takes.keys().all(promised) && !open.keep.is_empty();
        if !done || self.rung == record.number || !self.own.has_promised(record) {
            return Ok(());
        }
        self.wake(record)?;
        // If another was faster it has woken them.
        self.rung = record.number;
        Ok(())
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
                let more = match &step {
                    Step::Propose(new) if only_unites(record, new) => UNITE,
                    _ => Duration::ZERO,
                };
                let left = self.turn_left(record, &look, more);
                if !left.is_zero() {
                    return Ok(TurnOutcome::Wait(left));
                }
                if let Step::Propose(new) = &step
                    && self.is_in_doubt(record, new)?
                {
                    // Words wake no thread.
                    return Ok(TurnOutcome::Wait(self.shared.bounds.lease_ttl / 8));
                }
            }
            let concludes = matches!(step, Step::Propose(_) | Step::Commit(_) | Step::GiveUp);
            if concludes && !self.whole {
                self.reads = true;
                return Ok(TurnOutcome::Again);
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
            look.has_place = self.shared.layer.has_place(record.first);
        }
    }

    /// P9: how long this rank still leaves to others what any of them may do; all of them wait for `more`.
    fn turn_left(&mut self, record: &Record, look: &Look<Duration>, more: Duration) -> Duration {
        let of = (record.epoch, record.number);
        let now = Instant::now();
        let since = match self.since.turn {
            Some((same, since)) if same == of => since,
            _ => now,
        };
        self.since.turn = Some((of, since));
        let turn = self.store.pace.turn(self.place(record, look));
        turn.saturating_add(more)
            .saturating_sub(now.duration_since(since))
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

    /// Pause between two looks of a rank that waits for others in a change: a quarter of the time that it has waited already. So
    /// the number of looks in a change grows only slowly with the time that other ranks take.
    fn busy_pause(&self) -> Duration {
        let waited = self
            .since
            .busy
            .map(|(_, since)| since.elapsed() / BUSY_PART);
        let shortest = BUSY.max(self.store.pace.slowest());
        shortest.max(waited.unwrap_or_default())
    }

    /// When the next look is due if nothing changes before.
    fn longest_wait(&self, record: &Record, look: &Look<Duration>) -> Duration {
        let quarter = self.shared.bounds.lease_ttl / 4;
        let busy = self.busy_pause();
        let place = self.place(record, look);
        let row = look.rows.get(&self.own.slot);
        let accuses = row.is_some_and(Row::accuses) || !look.ended.is_empty();
        // A newcomer that has woken the members waits for the record. So does the rank that acts, until then.
        let rung = |open: &Proposal| open.takes.keys().all(|it| look.promises.contains_key(&it));
        let device = !look.has_place || self.since.left.is_some();
        let comes = match self.own.applied {
            // It founds the group anew with others that ask.
            0 => look.holders.and(&record.slots()).is_empty(),
            _ => !look.asks.is_empty(),
        };
        let bound = self.shared.bounds.error;
        let (parts, breaks) = {
            let inner = self.shared.lock();
            let breaks = inner.suspects.next_broken(Instant::now(), bound);
            (!inner.farewells.is_empty(), breaks)
        };
        let time = match &record.open {
            Some(open) if place == 0 && rung(open) => busy,
            Some(_) if self.own.applied == 0 && self.rung != record.number => busy,
            _ if device => busy.min(LOOK),
            _ if parts || comes && place == 0 => LOOK.max(busy),
            _ => quarter,
        };
        let waits = match self.has_waiting_call(record) {
            true => self.shared.transport.deadline() / 4,
            false => quarter,
        };
        let reads = match self.since.busy {
            Some((_, since)) if !self.reads => {
                let turn = self.reading_turn(record, accuses, place);
                turn.saturating_sub(since.elapsed())
            }
            _ => quarter,
        };
        let looked = self
            .since
            .looked
            .map_or(quarter, |looked| quarter.saturating_sub(looked.elapsed()));
        let others = breaks.unwrap_or(quarter).min(waits).min(reads).min(looked);
        time.min(quarter).min(others.max(BUSY))
    }

    /// The first view is that of all founders, once all of them have come.
    fn found(&mut self) -> Result<TurnOutcome, GroupError> {
        let quarter = self.shared.bounds.lease_ttl / 4;
        // A group that has lost its record is not founded over it.
        if self.hears_of_lost()? {
            return Ok(TurnOutcome::Wait(quarter));
        }
        if self.own.applied == 0 {
            self.hello()?;
            return Ok(TurnOutcome::Wait(LOOK.min(quarter)));
        }
        let members: Members = self.founders.iter().map(|&slot| (slot, 1)).collect();
        let kept = &self.store.kept.members;
        let here = |who: RankGeneration| kept.contains(who);
        let late = self.since.begun.elapsed() >= self.shared.bounds.found;
        // One of them is enough; if it does not come, the others look now and then.
        let first = self.founders.iter().min() == Some(&self.own.slot);
        let pause = if first { LOOK.min(quarter) } else { quarter };
        let is_turn = first || self.since.begun.elapsed() >= quarter;
        let is_time = late || is_turn && members.iter().all(here);
        if !is_time {
            return Ok(TurnOutcome::Wait(pause));
        }
        // A process of a founder that is started again finds what the members say.
        if self.store.is_told_of_lost()? {
            self.reads = true;
            return Ok(TurnOutcome::Wait(quarter));
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
        // A founder needs this list until the first record is in the store.
        self.founders = Vec::new();
        let now = Instant::now();
        for rank in self.newcomers.learn(record, now) {
            let failures = self.newcomers.held(now).get(rank).unwrap_or(0);
            self.tell_held_back(rank, failures);
        }
        let is_new = self.store.drop_kept(|who| record.was_dropped(who.0, who.1));
        let mut inner = self.shared.lock();
        if inner.leaving && self.own.leaving == Leaving::No {
            self.own.leaving = Leaving::Wants;
        }
        if !is_new {
            return;
        }
        let (own, kept) = (self.own(), &self.store.kept.members);
        let watched = kept.all_near().filter(|(who, _)| {
            let is_member = inner.suspects.members().get(who.0) == Some(who.1);
            *who != own && is_member && !inner.processes.contains_key(who)
        });
        let watched: Vec<_> = watched.map(|(who, near)| (who, Arc::clone(near))).collect();
        inner.processes.extend(watched);
    }

    /// A rank that comes later tells what it is, once, and then wakes all by the record.
    fn ask(&mut self, record: &Arc<Record>) -> Result<(), GroupError> {
        let (rank, _) = self.own();
        self.tell_own_wait(record);
        let earlier = self.earlier(record);
        if earlier != self.waits_for {
            self.waits_for = earlier;
            if let Some(generation) = earlier {
                self.shared.tell(GroupEventKind::Waits { rank, generation });
            }
        }
        if self.own.applied != 0 || self.said_hello && self.told.takings == self.store.takings {
            return Ok(());
        }
        self.hello()?;
        self.wake(record)
    }

    /// A rank that comes says that members hold its slot back, once for each newcomer before it that came to nothing.
    fn tell_own_wait(&mut self, record: &Record) {
        let (rank, _) = self.own();
        let rows =
            rank_generations(&record.members).filter_map(|who| self.store.kept.rows.get(&who));
        let failures = rows.filter_map(|row| row.held.get(rank)).max().unwrap_or(0);
        if self.own.applied == 0 && failures != self.held_back {
            self.held_back = failures;
            if failures > 0 {
                self.tell_held_back(rank, failures);
            }
        }
    }

    fn tell_held_back(&self, rank: u32, failures: u32) {
        let wait = held_for(self.shared.bounds.lease_ttl, failures);
        self.shared.tell(GroupEventKind::HeldBack {
            rank,
            failures,
            wait,
        });
    }

    /// Wakes all ranks by the record.
    pub(super) fn wake(&mut self, record: &Record) -> Result<(), GroupError> {
        let woken = Record {
            asked: record.asked.wrapping_add(1),
            ..record.clone()
        };
        self.store.replace(&woken)?;
        Ok(())
    }

    /// Reports once that this newcomer reaches too few members to come in.
    fn tell_reach(&mut self, record: &Record) {
        let waits = self.rules.waits_for_reach(&self.own, record);
        let is_new = waits.is_some() && !self.waits_for_reach;
        self.waits_for_reach = waits.is_some();
        let Some(apart) = waits.filter(|_| is_new) else {
            return;
        };
        let (members, apart) = (record.members.len(), apart.iter().collect::<Vec<u32>>());
        let error = format!(
            "this newcomer waits: writes to {} of {members} members, {apart:?}, get no answer, and it must reach more than half. \
             It comes in when they do",
            apart.len()
        );
        self.shared.tell(GroupEventKind::Failed { error });
    }

    fn hello(&mut self) -> Result<(), GroupError> {
        if !self.said_hello {
            if let Some((key, text)) = self.shared.transport.hello()? {
                self.store.put(&key, &text)?;
            }
            self.said_hello = true;
        }
        Ok(())
    }

    /// While a change is prepared, the clocks against members that have promised it stand still.
    fn tell_layer(&mut self, record: &Record, look: &Look<Duration>) -> Result<(), GroupError> {
        let concerns = self.own.applied != 0 && self.own.is_proposed(record);
        let preparing = concerns.then(|| {
            let mut held: Slots = look.promises.keys().copied().collect();
            // A smaller proposal has replaced the one that they promised. Their calls are held all the same.
            if let (Some(before), Some(open)) = (&self.preparing, &record.open) {
                held.add(&before.and(&open.keep));
            }
            held.remove(self.own.slot);
            held
        });
        self.prepare(preparing)
    }

    /// Clocks stand still against these ranks while a change is prepared; none: no change is.
    pub(super) fn prepare(&mut self, preparing: Option<Slots>) -> Result<(), GroupError> {
        if preparing != self.preparing {
            let ranks: Option<Vec<u32>> = preparing.as_ref().map(|set| set.iter().collect());
            let told = self.shared.layer.set_preparing(ranks.as_deref());
            told.map_err(GroupError::Layer)?;
            self.preparing = preparing;
        }
        Ok(())
    }

    /// Writes the row of this rank, if the store holds another one.
    fn tell_row(&mut self, record: &Record, row: &Row) -> Result<(), GroupError> {
        let (connected, unproven) = {
            let inner = self.shared.lock();
            let unproven = inner.unproven.difference(&inner.connected);
            (
                inner.connected.iter().copied().collect(),
                unproven.copied().collect(),
            )
        };
        let own = self.own();
        let says = row.behind || row.accuses();
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
            behind: row.behind,
            unbuffered: self.shared.layer.unbuffered(),
            connected,
            held: self.held(record),
            unproven,
        };
        // Another writer may have replaced the row, also by text that is no row.
        let kept = self.store.kept.rows.get(&own);
        let away = self.since.away.is_some();
        let stands = kept == Some(&self.told);
        if stands && !away && !row.accuses() && self.may_wait(record, &stored) {
            return Ok(());
        }
        // And a store that has refused a change is back when it takes one.
        if stored != *self.told || !stands || away {
            self.store.tell(&stored)?;
            self.told = Arc::new(stored);
            self.store.kept.rows.insert(own, Arc::clone(&self.told));
        }
        Ok(())
    }

    /// The slots that are held back, by the word of the member with the lowest slot: it takes newcomers in while it acts.
    fn held(&self, record: &Record) -> Members {
        match record.members.keys().next() == Some(self.own.slot) {
            true => self.newcomers.held(Instant::now()),
            false => Members::default(),
        }
    }

    /// Whether the row may wait for a moment behind a view. It may if it accuses no rank, and only says less than before or which
    /// ranks this one meets. What it said against others held in the view before, and no rank is expelled for want of contact yet.
    fn may_wait(&self, record: &Record, row: &StoredRow) -> bool {
        let told = &self.told;
        let quarter = self.shared.bounds.lease_ttl / 4;
        let new = self
            .since
            .viewed
            .is_some_and(|viewed| viewed.elapsed() < quarter);
        let parted = record.parted.of(self.own.slot);
        let connected = |row: &StoredRow, slot: u32| row.connected.get(slot);
        let mut slots = row.connected.keys().chain(parted.iter());
        new && (row.takings, row.through) == (told.takings, told.through)
            && row.unproven == told.unproven
            && slots.all(|slot| connected(row, slot) == connected(told, slot))
    }

    /// Waits for news, at most for `time`. Whether that has passed.
    fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        let mut inner = self.shared.lock();
        while !inner.has_news() && !self.shared.is_stopped() {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return true;
            }
            inner = self.shared.wait(inner, left);
        }
        false
    }

    /// Waits for `time`, whatever news arrive: a failed step is tried again after that.
    fn pause(&self, time: Duration) {
        let start = Instant::now();
        let mut inner = self.shared.lock();
        while !self.shared.is_stopped() {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            inner = self.shared.wait(inner, left);
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        self.store_refused = true;
        if self.since.away.is_none() {
            self.since.away = Some(Instant::now());
            self.shared.tell(GroupEventKind::StoreLost {
                error: error.to_string(),
            });
        }
    }

    fn store_answered(&mut self) {
        self.store_failures = 0;
        if let Some(since) = self.since.away.take() {
            let away = since.elapsed();
            self.shared.tell(GroupEventKind::StoreBack { away });
        }
    }
}

/// Whether `new` does nothing but unite pairs: no rank comes or goes, and no pair parts.
fn only_unites(record: &Record, new: &Proposal) -> bool {
    record.open.is_none()
        && new.takes.is_empty()
        && new.keep == record.slots()
        && new.parts != record.parted
        && new.parts.is_subset(&record.parted)
}

/// Slot and generation of each.
pub(super) fn rank_generations(members: &Members) -> impl Iterator<Item = RankGeneration> {
    members.iter()
}
