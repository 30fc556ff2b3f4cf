//! What a rank sees of its group: the look from which the rules conclude, and the reports on what it has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use membership_rules::clocks::back_off;
use membership_rules::look::{Ask, Look, Row};
use membership_rules::members::Members;
use membership_rules::newcomers::OfSlot;
use membership_rules::record::{Promise, RankGeneration, Record, newer};
use membership_rules::rulebook::Rulebook;
use membership_rules::slots::Slots;

use super::GroupError;
use super::age::can_be_last;
use super::connect::MEET;
use super::driver::{Driver, rank_generations};
use super::event::{Cause, GroupEventKind};
use super::stored::StoredRow;

/// A newcomer has served long enough when it has done so for this many times to live of a lease (P6).
const SERVED: u32 = 10;
/// Most times to live that a slot waits whose newcomers come to nothing.
const MOST_LEASES: u32 = 64;

impl Driver {
    /// What the rules go by; `call` is the slowest call of the store since the last look, which was `passed` ago.
    pub(super) fn see(
        &mut self,
        record: &Record,
        passed: Duration,
        call: Duration,
    ) -> Result<Look<Duration>, GroupError> {
        let own = self.own();
        self.refuse_promises(record);
        let ended = self.ended(record);
        let (heard, contact, silent) = self.hear(record)?;
        let wrote = self.wrote(record);
        self.successors = self.successors(record);
        let inner = self.shared.lock();
        self.own.broken = inner
            .suspects
            .broken(Instant::now(), self.shared.bounds.error);
        if !self.own.is_current(record) {
            self.own.broken.add(&self.own.fenced);
        }
        let (kept, successors) = (&self.store.kept, &self.successors);
        let comes = |who: &RankGeneration| successors.get(&who.0) == Some(&who.1);
        let named = |who: RankGeneration| {
            record.is_member(who.0, who.1) || comes(&who) && !record.members.contains_key(who.0)
        };
        let connected = inner.connected.iter().filter(|who| named(**who));
        self.own.connected = connected.map(|who| who.0).collect();
        let unproven = inner.unproven.iter().filter(|who| named(**who));
        self.own.unproven = unproven.map(|who| who.0).collect();
        drop(inner);

        // By slot of the generation that the record names.
        let takes = record.open.as_ref().map(|open| &open.takes);
        let takes = takes.into_iter().flat_map(rank_generations);
        let takes = takes.filter(|who| !record.members.contains_key(who.0));
        let takes = takes.filter(|who| *who == own || kept.members.contains(*who));
        let mut holders = self.holders(record);
        holders.add(&takes.map(|who| who.0).collect());
        // A rank that does not act has the rows of few.
        let of_members = kept
            .rows
            .iter()
            .filter(|(who, _)| record.is_member(who.0, who.1) && holders.contains(who.0));
        let rows: BTreeMap<u32, Row> = of_members
            .map(|(who, row)| (who.0, row.row(record.epoch, named)))
            .collect();
        let now = Instant::now();
        let asking = kept.members.iter().filter(|(who, _)| comes(who));
        let asks = asking.filter(|(who, _)| {
            !record.is_member(who.0, who.1) && (*who == own || self.newcomers.may_come(who.0, now))
        });
        let ask = |who: RankGeneration| Ask {
            holds: true,
            row: kept
                .rows
                .get(&who)
                .map_or_else(Row::default, |row| row.row(record.epoch, named)),
        };
        let promises = record.open.as_ref().map(|open| {
            let is_asked = |(slot, generation): RankGeneration| {
                record.is_member(slot, generation) && open.keep.contains(slot)
                    || open.takes.get(slot) == Some(generation)
            };
            let all = kept.promises_for(record.number);
            let all = all.filter(|(who, _)| is_asked(*who));
            all.map(|(who, promise)| (who.0, *promise)).collect()
        });
        let said = kept
            .goodbyes
            .iter()
            .filter(|(who, _)| record.is_member(who.0, who.1));
        let said = said.filter(|(_, goodbye)| goodbye.epoch == record.epoch);
        let goodbyes = said.map(|(who, goodbye)| (who.0, goodbye.last));
        let beside = match ended.is_empty() {
            true => Slots::default(),
            false => kept.members.beside(&record.members),
        };
        let mut look = Look {
            passed,
            call,
            holders,
            wrote,
            heard,
            contact,
            calls: self.heard.calls(now),
            silent,
            ended,
            beside,
            rows,
            asks: asks.map(|(who, _)| (who, ask(who))).collect(),
            promises: promises.unwrap_or_default(),
            goodbyes: goodbyes.collect(),
            has_place: self.shared.layer.has_place(record.first),
            behind: newer(record.first.wrapping_sub(1), self.shared.layer.finished()),
            through: false,
            started: self.shared.layer.started(),
            overtaken: self.is_overtaken(record),
        };
        look.through = self.is_through(record, &look);
        Ok(look)
    }

    /// P6: of each slot for which ranks ask, the generation with which this rank connects.
    fn successors(&self, record: &Record) -> BTreeMap<u32, u32> {
        let members = &self.store.kept.members;
        let mut asks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (who, _) in members.iter().filter(|(_, member)| member.asks) {
            let ended = || members.near(who).is_some_and(|process| process.has_ended());
            let dropped = record.was_dropped(who.0, who.1);
            if !record.is_member(who.0, who.1) && !dropped && (who == self.own() || !ended()) {
                asks.entry(who.0).or_default().push(who.1);
            }
        }
        if asks.is_empty() {
            return BTreeMap::new();
        }
        let told = self.shared.transport.ended();
        let connected: BTreeMap<u32, u32> = self.shared.lock().connected.iter().copied().collect();
        let takes = record.open.as_ref().map(|open| &open.takes);
        let chosen = |(slot, mut generations): (u32, Vec<u32>)| {
            generations.retain(|generation| !told.contains(&(slot, *generation)));
            let of = OfSlot {
                proposed: takes.and_then(|takes| takes.get(slot)),
                connected: connected.get(&slot).copied(),
                newest: self.shared.transport.newest(slot),
            };
            Some((slot, self.rules.book.successor(&generations, of)?))
        };
        asks.into_iter().filter_map(chosen).collect()
    }

    /// P6: whether a member says that it is connected with a later generation of this newcomer's slot.
    fn is_overtaken(&self, record: &Record) -> bool {
        let (slot, generation) = self.own();
        let kept = &self.store.kept;
        let members = kept.rows.iter().filter(|(who, _)| {
            record.is_member(who.0, who.1) && kept.members.contains(**who) && who.0 != slot
        });
        let theirs = members.filter_map(|(_, row)| row.connected.get(slot)).max();
        self.own.applied == 0 && self.rules.book.is_overtaken(generation, theirs)
    }

    /// The earlier generation of its slot for which this newcomer waits: a member, or another that asks.
    pub(super) fn earlier(&self, record: &Record) -> Option<u32> {
        let (slot, own) = self.own();
        let first = || self.successors.get(&slot).copied();
        let earlier = record.members.get(slot).or_else(first);
        earlier.filter(|generation| self.own.applied == 0 && *generation != own)
    }

    /// Promises of calls that no rank can have started count as missing: the view would begin where no rank ever comes to.
    fn refuse_promises(&mut self, record: &Record) {
        if self.own.applied == 0 || record.open.is_none() {
            return;
        }
        let finished = self.shared.layer.finished();
        let promises = self.store.kept.promises_for(record.number);
        let last = |(who, promise): (RankGeneration, &Promise)| Some((who, promise.last?));
        let far = promises.filter_map(last);
        let far: Vec<_> = far.filter(|it| !can_be_last(it.1, finished)).collect();
        for (who, last) in far {
            let reason = format!(
                "its rank promises call {last} as its last one, and this rank is at call {finished}; ranks of a view are less than \
                 2^30 calls apart"
            );
            self.store.refuse_promise(record.number, who, &reason);
        }
    }

    /// Members whose process was seen to end, or that say so themselves, and newcomers of the open proposal.
    pub(super) fn ended(&self, record: &Record) -> Slots {
        let mut ended = self.shared.lock().suspects.ended();
        let kept = &self.store.kept;
        ended.add(&self.said_over(record));
        // The thread that watches processes knows members of this rank's views only.
        let told = self.shared.transport.ended();
        let seen = |who: &RankGeneration| {
            let near = kept.members.near(*who);
            told.contains(who) || near.is_some_and(|process| process.has_ended())
        };
        if self.own.applied == 0 {
            let seen = rank_generations(&record.members).filter(seen);
            ended.add(&seen.map(|who| who.0).collect());
        } else {
            let takes = record
                .open
                .iter()
                .flat_map(|open| rank_generations(&open.takes));
            let comes = takes.filter(|who| !record.members.contains_key(who.0));
            ended.add(&comes.filter(seen).map(|who| who.0).collect());
            ended.remove(self.own.slot);
        }
        ended
    }

    /// Members that hold their leases, as far as this rank has read, and this rank if it is one.
    pub(super) fn holders(&self, record: &Record) -> Slots {
        let mut holders = self.store.kept.members.among(&record.members);
        if self.own.is_member(record) {
            holders.insert(self.own.slot);
        }
        holders
    }

    /// Members that say themselves that they have ended.
    fn said_over(&self, record: &Record) -> Slots {
        let said = self.store.kept.over.iter();
        let said = said.filter(|who| record.is_member(who.0, who.1));
        said.map(|who| who.0).collect()
    }

    /// The slots that have taken their lease again, proposed or promised since the last look.
    fn wrote(&mut self, record: &Record) -> Slots {
        let kept = &self.store.kept;
        let of_row = |row: &StoredRow| Written {
            takings: row.takings,
            number: 0,
        };
        let rows = kept.rows.iter().map(|(who, row)| (*who, of_row(row)));
        let mut written: BTreeMap<RankGeneration, Written> = rows.collect();
        for (who, _) in kept.promises_for(record.number) {
            written.entry(who).or_default().number = record.number;
        }
        if let Some(open) = &record.open
            && let Some(generation) = record.members.get(open.by)
        {
            written.entry((open.by, generation)).or_default().number = record.number;
        }
        written.retain(|who, _| record.is_member(who.0, who.1));
        self.heard.writes(written)
    }

    /// Three sets of slots:
    ///
    /// - those from which something has arrived, or to which something was sent, a moment ago;
    /// - those with which this happened within the stall bound;
    /// - those for which calls wait in vain.
    fn hear(&mut self, record: &Record) -> Result<(Slots, Slots, Slots), GroupError> {
        let now = Instant::now();
        if self.heard.is_due(now) {
            let words = self.shared.layer.heard().map_err(GroupError::Layer)?;
            self.heard.words(&words, now);
            let (started, finished) = (self.shared.layer.started(), self.shared.layer.finished());
            self.heard.called(started, finished, now);
            // The rank queries QPs only to those ranks from which it has heard nothing else.
            self.heard.only_of(&self.own.unheard);
            for &slot in self
                .own
                .unheard
                .keys()
                .filter(|slot| **slot != self.own.slot)
            {
                let completed = self.shared.transport.completed(slot)?;
                self.heard.completed(slot, completed, now);
            }
        }
        let members = record.slots();
        let silent: Slots = self.shared.layer.suspected().into_iter().collect();
        let [heard, contact] = [self.heard.window, self.heard.contact]
            .map(|window| self.heard.within(window, now).and(&members));
        Ok((heard, contact, silent.and(&members)))
    }

    /// Tells what follows from this look of each member, where it is not as it was.
    pub(super) fn tell_causes(&mut self, record: &Record, look: &Look<Duration>, row: &Row) {
        let unanswered = &self.own.unanswered;
        let late = self.own.has_promised(record)
            && unanswered.0 == record.number
            && unanswered.1 >= self.rules.bounds.unanswered;
        let promised: Slots = look.promises.keys().copied().collect();
        let silent = match record.open.as_ref().filter(|_| late) {
            Some(open) => open.keep.without(&promised),
            None => Slots::default(),
        };
        let found = [
            (Cause::Unheard, row.unheard.clone()),
            (Cause::Overdue, row.overdue.clone()),
            (Cause::Over, self.said_over(record)),
            (Cause::Leaves, look.goodbyes.keys().copied().collect()),
            (Cause::Silent, silent),
        ];
        for (cause, mut now) in found {
            if cause == Cause::Silent && late && !self.whole {
                continue;
            }
            now.remove(self.own.slot);
            let before = match now.is_empty() {
                true => self.causes.remove(&cause),
                false => self.causes.insert(cause.clone(), now.clone()),
            };
            let before = before.unwrap_or_default();
            for slot in now.without(&before).iter() {
                self.shared.suspect(slot, cause.clone());
            }
            for slot in before.without(&now).iter() {
                self.shared.trust(slot, &cause);
            }
        }
    }

    /// Passes the ranks to connect with to the thread that connects.
    pub(super) fn connect(&mut self, record: &Record, look: &Look<Duration>) {
        let members = &record.members;
        let to_connect = self.rules.to_connect(&self.own, record, look);
        let current = self.own.is_current(record);
        let parted = if current {
            record.parted.of(self.own.slot)
        } else {
            Slots::default()
        };
        let living = |who: &RankGeneration| look.holders.contains(who.0);
        let theirs = rank_generations(members).filter(|who| to_connect.contains(who.0));
        let theirs = theirs.filter(|who| living(who) && !parted.contains(who.0));
        let comes = look.asks.iter().filter(|(who, ask)| {
            ask.holds && to_connect.contains(who.0) && !members.contains_key(who.0)
        });
        let mut wanted: BTreeSet<RankGeneration> =
            theirs.chain(comes.map(|(who, _)| *who)).collect();
        // No rank connects with this one while another generation of its slot asks.
        let (slot, own) = self.own();
        let first = self.successors.get(&slot);
        if self.own.applied == 0 && first.is_some_and(|first| *first != own) {
            wanted.clear();
        }
        let waits = self.earlier(record).is_some();
        let mut unseen = BTreeSet::new();
        if self.own.applied == 0 && !waits {
            let theirs = rank_generations(members).filter(|who| to_connect.contains(who.0));
            unseen.extend(theirs.filter(|who| !living(who)));
        }
        self.tell_unseen(&unseen);
        let mut inner = self.shared.lock();
        let is_new = inner.wanted != wanted;
        (inner.wanted, inner.waits) = (wanted, waits);
        drop(inner);
        if is_new {
            self.shared.notify();
        }
        self.wake_connector();
    }

    /// Reports members with which this newcomer does not connect, because it has not seen their leases for [`MEET`], once each.
    fn tell_unseen(&mut self, unseen: &BTreeSet<RankGeneration>) {
        let now = Instant::now();
        self.unseen.retain(|who, _| unseen.contains(who));
        for who in unseen {
            let (since, told) = self.unseen.entry(*who).or_insert((now, false));
            let waited = now.duration_since(*since);
            if waited < MEET || std::mem::replace(told, true) {
                continue;
            }
            let (rank, generation) = *who;
            let error = format!(
                "this newcomer has not seen its lease for {waited:.1?}, and does not connect with it: a member without a lease is gone, \
                 or its store does not answer"
            );
            self.shared.tell(GroupEventKind::NotConnected {
                rank,
                generation,
                error,
            });
        }
    }

    /// Without a thread now, the next turn tries again.
    pub(super) fn wake_connector(&self) {
        if let Err(error) = self.connector.wake(&self.shared) {
            let error = error.to_string();
            self.shared.tell(GroupEventKind::Failed { error });
        }
    }

    /// Whether the HCAs of this rank have failed for good while two others meet each other: it is the ill one.
    pub(super) fn has_lost_hca(&self, record: &Record, look: &Look<Duration>) -> bool {
        if !self.shared.lock().hca_lost || !self.own.is_member(record) {
            return false;
        }
        let others = || look.rows.iter().filter(|(slot, _)| **slot != self.own.slot);
        let meet = |a: u32, row: &Row| {
            let both =
                |(b, theirs): (&u32, &Row)| row.meets.contains(*b) && theirs.meets.contains(a);
            others().any(both)
        };
        others().any(|(slot, row)| meet(*slot, row))
    }
}

/// What was heard of others on the data plane, and in the store.
#[derive(Debug)]
pub(super) struct Heard {
    /// A word is a sign of life for so long.
    window: Duration,
    /// And contact for so long.
    contact: Duration,
    begun: Instant,
    read: Option<Instant>,
    /// By slot: what the layer said last. With `at` 12 bytes a rank, since every rank keeps every other.
    words: Vec<u64>,
    /// By slot: when the layer or the QPs said another thing than before, if that is not longer ago than contact lasts.
    at: Vec<Option<Moment>>,
    /// What the QPs to ranks unheard said last.
    completed: BTreeMap<u32, u64>,
    /// The last call of this rank's device, and when it was under way.
    last: (u32, Option<Instant>),
    /// What each rank had written at the last look; None before the first look.
    written: Option<BTreeMap<RankGeneration, Written>>,
    /// Proposals up to this one say nothing of ranks that are not in `written`.
    forgotten: u64,
}

/// What a rank has written.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// How often it has taken its lease.
    takings: u32,
    /// The newest proposal that it has made or promised.
    number: u64,
}

/// A time, in ms since a [`Heard`] began, modulo 2^32, and 1 more.
type Moment = NonZeroU32;

impl Heard {
    /// Half a lease, or a call, is a moment; contact lasts for the stall bound.
    pub(super) fn new(ttl: Duration, stall: Duration) -> Self {
        Self {
            window: ttl / 2,
            contact: stall,
            begun: Instant::now(),
            read: None,
            words: Vec::new(),
            at: Vec::new(),
            completed: BTreeMap::new(),
            last: (0, None),
            written: None,
            forgotten: 0,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let pause = self.window / 8;
        self.read
            .is_none_or(|read| now.duration_since(read) >= pause)
    }

    /// A moment and how long it is ago do not depend on how long this rank runs: [`Heard::words`] forgets what is older than contact.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "moments are counted modulo 2^32"
    )]
    fn moment(&self, now: Instant) -> Moment {
        let ms = now.saturating_duration_since(self.begun).as_millis() as u32;
        Moment::MIN.saturating_add(ms)
    }

    fn is_within(window: Duration, at: Moment, now: Moment) -> bool {
        let ago = now.get().wrapping_sub(at.get());
        Duration::from_millis(ago.into()) <= window
    }

    /// The first number says nothing: it may be old.
    fn words(&mut self, words: &[u64], now: Instant) {
        let first = self.read.replace(now).is_none();
        let ranks = words.len().max(self.words.len());
        self.words.resize(ranks, 0);
        self.at.resize(ranks, None);
        let (now, contact) = (self.moment(now), self.contact.max(self.window));
        for at in &mut self.at {
            *at = at.filter(|at| Self::is_within(contact, *at, now));
        }
        for ((before, at), word) in self.words.iter_mut().zip(&mut self.at).zip(words) {
            if *before != *word {
                *before = *word;
                *at = (!first).then_some(now);
            }
        }
    }

    /// QPs to ranks that are heard again are not asked any more.
    fn only_of<T>(&mut self, unheard: &BTreeMap<u32, T>) {
        self.completed.retain(|slot, _| unheard.contains_key(slot));
    }

    fn completed(&mut self, slot: u32, completed: u64, now: Instant) {
        let before = self.completed.insert(slot, completed);
        let now = self.moment(now);
        if before.is_some_and(|before| before != completed)
            && let Some(at) = self.at.get_mut(slot as usize)
        {
            *at = Some(now);
        }
    }

    /// How far the calls of this rank are.
    fn called(&mut self, started: u32, finished: u32, now: Instant) {
        if started != finished || started != self.last.0 {
            self.last = (started, Some(now));
        }
    }

    /// Whether a call of this rank was under way within the stall bound.
    fn calls(&self, now: Instant) -> bool {
        self.calls_within(self.contact, now)
    }

    /// Whether one was under way a moment ago.
    pub(super) fn calls_lately(&self, now: Instant) -> bool {
        self.calls_within(self.window, now)
    }

    fn calls_within(&self, window: Duration, now: Instant) -> bool {
        let (_, at) = self.last;
        at.is_some_and(|at| now.duration_since(at) <= window)
    }

    /// The slots from which something was heard within `window`.
    fn within(&self, window: Duration, now: Instant) -> Slots {
        let now = self.moment(now);
        let fresh = |at: &Option<Moment>| at.is_some_and(|at| Self::is_within(window, at, now));
        let all = (0u32..).zip(&self.at);
        all.filter(|(_, at)| fresh(at))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// The ranks that have written since the last look, `now` being what each has written so far. The first look says nothing.
    fn writes(&mut self, now: BTreeMap<RankGeneration, Written>) -> Slots {
        let Some(written) = &mut self.written else {
            self.written = Some(now);
            return Slots::default();
        };
        let mut wrote = Slots::default();
        for (who, now) in now {
            // How often it had taken its lease before its row was read first says nothing.
            let unknown = Written {
                takings: now.takings,
                number: self.forgotten,
            };
            let before = written.entry(who).or_insert(unknown);
            if before.takings < now.takings || before.number < now.number {
                wrote.insert(who.0);
            }
            *before = now;
        }
        wrote
    }

    /// Rows and promises are forgotten, those for the proposal of `number` among them: what is read of them again is old.
    pub(super) fn forget_written(&mut self, number: u64) {
        self.forgotten = number;
        if let Some(written) = &mut self.written {
            written.clear();
        }
    }

    /// Takes over a new view. `stays` says for which ranks earlier words still count.
    pub(super) fn retain(&mut self, stays: impl Fn(RankGeneration) -> bool) {
        if let Some(written) = &mut self.written {
            written.retain(|who, _| stays(*who));
        }
    }
}

/// P6: how often ranks have come into a slot and were gone before they had served.
#[derive(Debug)]
pub(super) struct Newcomers {
    ttl: Duration,
    slots: BTreeMap<u32, Tries>,
}

#[derive(Debug, Default)]
struct Tries {
    /// The generation that is proposed, or that has come, and since when.
    now: Option<(u32, Instant)>,
    failures: u32,
    not_before: Option<Instant>,
}

/// How long a slot waits behind the last of `failures` newcomers that came to nothing, one after the other (P6).
pub(super) fn held_for(ttl: Duration, failures: u32) -> Duration {
    back_off(ttl, failures.saturating_sub(1), MOST_LEASES)
}

impl Newcomers {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            slots: BTreeMap::new(),
        }
    }

    /// Whether a newcomer of `slot` may be taken in now.
    fn may_come(&self, slot: u32, now: Instant) -> bool {
        let not_before = self.slots.get(&slot).and_then(|tries| tries.not_before);
        not_before.is_none_or(|not_before| not_before <= now)
    }

    /// The slots that wait now, each with how many of its newcomers came to nothing, one after the other.
    pub(super) fn held(&self, now: Instant) -> Members {
        let waits = self
            .slots
            .iter()
            .filter(|(slot, _)| !self.may_come(**slot, now));
        waits.map(|(slot, tries)| (*slot, tries.failures)).collect()
    }

    /// Takes over what the newest record says of newcomers. The slots that begin to wait by that.
    pub(super) fn learn(&mut self, record: &Record, now: Instant) -> Vec<u32> {
        let mut begin = Vec::new();
        let takes = record.open.as_ref().map(|open| &open.takes);
        for (slot, generation) in takes.into_iter().flat_map(rank_generations) {
            let tries = self.slots.entry(slot).or_default();
            if tries.now.is_none_or(|(of, _)| of != generation) {
                tries.now = Some((generation, now));
            }
        }
        let served = SERVED * self.ttl;
        for (slot, tries) in &mut self.slots {
            let Some((generation, since)) = tries.now else {
                continue;
            };
            let member = record.members.get(*slot) == Some(generation);
            let proposed = takes.is_some_and(|takes| takes.get(*slot) == Some(generation));
            let left = record
                .left
                .get(slot)
                .is_some_and(|left| left.0 == generation);
            let long = now.duration_since(since) >= served;
            if member && long || left {
                (tries.now, tries.failures, tries.not_before) = (None, 0, None);
            } else if !member && !proposed {
                tries.now = None;
                tries.failures = tries.failures.saturating_add(1);
                let wait = held_for(self.ttl, tries.failures);
                tries.not_before = Some(now + wait);
                if !wait.is_zero() {
                    begin.push(*slot);
                }
            }
        }
        begin
    }
}

/// Whether a row says that its rank has made all calls up to `last`.
pub(super) fn says_through(row: Option<&StoredRow>, last: u32) -> bool {
    let through = row.and_then(|row| row.through);
    through.is_some_and(|through| !newer(last, through))
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_rules::record::Proposal;

    const TTL: Duration = Duration::from_secs(2);

    #[test]
    fn a_word_proves_life_for_half_a_lease_and_the_first_look_proves_nothing() {
        let start = Instant::now();
        let mut heard = Heard::new(TTL, TTL / 2);
        heard.words(&[5, 7, 0], start);
        assert!(heard.within(TTL / 2, start).is_empty());
        let next = start + TTL / 4;
        heard.words(&[5, 8, 0], next);
        assert_eq!(heard.within(TTL / 2, next), [1].into_iter().collect());
        assert_eq!(
            heard.within(TTL / 2, next + TTL / 2),
            [1].into_iter().collect()
        );
        assert!(
            heard
                .within(TTL / 2, next + TTL / 2 + Duration::from_millis(1))
                .is_empty()
        );
        // The number may wrap: another one counts, not a greater one.
        heard.words(&[4, 8, 0], next);
        assert_eq!(heard.within(TTL / 2, next), [0, 1].into_iter().collect());
        heard.completed(2, 10, next);
        assert!(
            !heard.within(TTL / 2, next).contains(2),
            "the first says nothing"
        );
        heard.completed(2, 11, next);
        assert!(heard.within(TTL / 2, next).contains(2));
        heard.completed(9, 1, next);
        heard.completed(9, 2, next);
        assert!(
            !heard.within(TTL / 2, next).contains(9),
            "a slot that the layer has not"
        );
    }

    #[test]
    fn a_rank_calls_while_a_call_is_under_way_and_half_a_lease_behind_it() {
        let start = Instant::now();
        let mut heard = Heard::new(TTL, TTL / 2);
        heard.called(0, 0, start);
        assert!(!heard.calls(start), "none was made");
        heard.called(5, 4, start);
        heard.called(5, 4, start + TTL);
        assert!(heard.calls(start + TTL), "one lasts");
        heard.called(5, 5, start + TTL);
        heard.called(5, 5, start + 2 * TTL);
        assert!(!heard.calls(start + 2 * TTL));
        // Two were made between two looks.
        heard.called(7, 7, start + 3 * TTL);
        assert!(heard.calls(start + 3 * TTL));
    }

    #[test]
    fn who_takes_its_lease_again_or_promises_has_written() {
        let mut heard = Heard::new(TTL, TTL / 2);
        let mut writes = |who, (takings, number)| {
            let written = Written { takings, number };
            heard.writes([(who, written)].into()).contains(1)
        };
        assert!(!writes((1, 1), (3, 0)), "the first look");
        assert!(!writes((1, 1), (3, 0)));
        assert!(writes((1, 1), (4, 0)));
        assert!(writes((1, 1), (4, 9)));
        assert!(!writes((1, 1), (4, 9)));
        assert!(!writes((1, 2), (1, 0)), "another generation");
        assert!(
            writes((1, 3), (1, 9)),
            "its promise is read before its row was"
        );
    }

    #[test]
    fn what_was_forgotten_and_is_read_again_is_no_sign_of_life() {
        let mut heard = Heard::new(TTL, TTL / 2);
        let writes = |heard: &mut Heard, takings, number| {
            let written = Written { takings, number };
            heard.writes([((1, 1), written)].into()).contains(1)
        };
        writes(&mut heard, 3, 0);
        assert!(writes(&mut heard, 3, 9));
        heard.forget_written(9);
        assert!(!writes(&mut heard, 3, 9), "it promised before");
        assert!(!writes(&mut heard, 3, 9));
        assert!(writes(&mut heard, 3, 10));
        heard.forget_written(10);
        assert!(writes(&mut heard, 3, 11));
        assert!(writes(&mut heard, 4, 11));
    }

    #[test]
    fn words_of_a_rank_that_runs_for_months_age_as_those_of_a_new_rank() {
        let mut heard = Heard::new(TTL, TTL);
        let wrap = heard.begun + Duration::from_millis(1 << 32);
        heard.words(&[1, 1], wrap - 3 * TTL);
        heard.words(&[2, 1], wrap - TTL / 4);
        let now = wrap + TTL / 4;
        heard.words(&[2, 2], now);
        assert_eq!(heard.within(TTL / 4, now), [1].into_iter().collect());
        let both: Slots = [0, 1].into_iter().collect();
        assert_eq!(heard.within(TTL, now), both);
        // Nothing was forgotten as long as it counts, and all of it behind that.
        heard.words(&[2, 2], now + TTL);
        assert_eq!(heard.at[0], None);
        assert_eq!(heard.within(TTL, now + TTL), [1].into_iter().collect());
        // A moment of the same name comes 2^32 ms later.
        heard.words(&[2, 2], now + 2 * TTL);
        let later = now + Duration::from_millis(1 << 32);
        assert!(heard.within(TTL, later).is_empty());
    }

    #[test]
    fn a_slot_whose_newcomers_come_to_nothing_waits_twice_as_long_each_time() {
        let start = Instant::now();
        let mut newcomers = Newcomers::new(TTL);
        let alone = Record::founded(Members::from([(0, 1)]));
        let takes = |generation: u32| {
            let proposal = Proposal {
                keep: alone.slots(),
                takes: Members::from([(1, generation)]),
                ..Proposal::default()
            };
            alone.propose(proposal).unwrap()
        };
        let mut now = start;
        let mut waits = Vec::new();
        for generation in 1..10 {
            assert!(newcomers.learn(&takes(generation), now).is_empty());
            assert!(newcomers.may_come(1, now) && newcomers.held(now).is_empty());
            let begins = newcomers.learn(&alone, now);
            let wait = held_for(TTL, generation);
            let held = newcomers.held(now);
            match wait.is_zero() {
                true => assert!(begins.is_empty() && held.is_empty()),
                false => {
                    assert_eq!((begins, held), (vec![1], Members::from([(1, generation)])));
                    assert!(newcomers.held(now + wait).is_empty());
                }
            }
            let mut waited = 0;
            while !newcomers.may_come(1, now) {
                now += TTL;
                waited += 1;
            }
            waits.push(waited);
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
        // One that serves for ten leases ends that.
        let mut served = alone.clone();
        newcomers.learn(&takes(10), now);
        served.members.insert(1, 10);
        newcomers.learn(&served, now + 9 * TTL);
        newcomers.learn(&served, now + 10 * TTL);
        newcomers.learn(&alone, now + 11 * TTL);
        assert!(newcomers.may_come(1, now + 11 * TTL));
        assert_eq!(newcomers.slots[&1].failures, 0);
    }
}
