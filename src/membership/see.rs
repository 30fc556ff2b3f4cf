//! What a rank sees of its group: fills the look from which the rules conclude.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::look::{Ask, Leaving, Look, Row};
use membership_rules::members::Members;
use membership_rules::newcomers::{self, OfSlot};
use membership_rules::record::{Promise, RankGeneration, Record, newer};
use membership_rules::slots::Slots;

use super::GroupError;
use super::age::can_be_last;
use super::config::Bounds;
use super::heard::{Heard, Written};
use super::newcomers::Newcomers;
use super::rank::Rank;
use super::reports::Reports;
use super::stored::StoredRow;

/// What a rank has heard of the others, and which newcomers it goes by.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) heard: Heard,
    pub(super) newcomers: Newcomers,
    /// P6: for each slot for which ranks ask, the generation with which this rank connects.
    successors: BTreeMap<u32, u32>,
}

impl Sight {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self {
            heard: Heard::new(bounds.lease_ttl, bounds.stall),
            newcomers: Newcomers::new(bounds.lease_ttl),
            successors: BTreeMap::new(),
        }
    }

    /// Returns the look from which the rules conclude. `call`: the time of the slowest call of the store since the last look. `passed`: the
    /// time since that look.
    ///
    /// The function is long because it fills each field of a [`Look`], and reads all of them at one moment.
    pub(super) fn see(
        &mut self,
        rank: &mut Rank,
        record: &Record,
        passed: Duration,
        call: Duration,
    ) -> Result<Look<Duration>, GroupError> {
        let own = rank.own();
        refuse_promises(rank, record);
        let ended = rank.ended(record);
        let (heard, contact, silent) = self.hear(rank, record)?;
        let wrote = self.wrote(rank, record);
        self.successors = self.successors(rank, record);
        let inner = rank.shared.lock();
        rank.own.broken = inner
            .suspects
            .broken(Instant::now(), rank.shared.bounds.error);
        if !rank.own.is_current(record) {
            rank.own.broken.add(&rank.own.fenced);
        }
        let (kept, successors) = (rank.store.kept(), &self.successors);
        let comes = |who: &RankGeneration| successors.get(&who.0) == Some(&who.1);
        let named = |who: RankGeneration| {
            record.is_member(who.0, who.1) || comes(&who) && !record.members.contains_key(who.0)
        };
        let connected = inner.connected.iter().filter(|who| named(**who));
        rank.own.connected = connected.map(|who| who.0).collect();
        let unproven = inner.unproven.iter().filter(|who| named(**who));
        rank.own.unproven = unproven.map(|who| who.0).collect();
        drop(inner);

        // The holders are slots, of the generations that the record names.
        let takes = record.open.as_ref().map(|open| &open.takes);
        let takes = takes.into_iter().flat_map(Members::iter);
        let takes = takes.filter(|who| !record.members.contains_key(who.0));
        let takes = takes.filter(|who| *who == own || kept.members.contains(*who));
        let mut holders = rank.holders(record);
        holders.add(&takes.map(|who| who.0).collect());
        // A rank that does not act has read the rows of few ranks.
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
        let beside = if ended.is_empty() {
            Slots::default()
        } else {
            kept.members.beside(&record.members)
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
            has_place: rank.shared.layer.has_place(record.first),
            behind: newer(record.first.wrapping_sub(1), rank.shared.layer.finished()),
            through: false,
            started: rank.shared.layer.started(),
            overtaken: is_overtaken(rank, record),
        };
        look.through = is_through(rank, record, &look);
        Ok(look)
    }

    /// P6: returns, for each slot for which ranks ask, the generation with which this rank connects.
    fn successors(&self, rank: &Rank, record: &Record) -> BTreeMap<u32, u32> {
        let members = &rank.store.kept().members;
        let mut asks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (who, _) in members.iter().filter(|(_, member)| member.asks) {
            let ended = || members.near(who).is_some_and(|process| process.has_ended());
            let dropped = record.was_dropped(who.0, who.1);
            if !record.is_member(who.0, who.1) && !dropped && (who == rank.own() || !ended()) {
                asks.entry(who.0).or_default().push(who.1);
            }
        }
        if asks.is_empty() {
            return BTreeMap::new();
        }
        let told = rank.shared.transport.ended();
        let connected: BTreeMap<u32, u32> = rank.shared.lock().connected.iter().copied().collect();
        let takes = record.open.as_ref().map(|open| &open.takes);
        let chosen = |(slot, mut generations): (u32, Vec<u32>)| {
            generations.retain(|generation| !told.contains(&(slot, *generation)));
            let of = OfSlot {
                proposed: takes.and_then(|takes| takes.get(slot)),
                connected: connected.get(&slot).copied(),
                newest: rank.shared.transport.newest(slot),
            };
            Some((slot, newcomers::successor(&generations, of)?))
        };
        asks.into_iter().filter_map(chosen).collect()
    }

    /// Returns the earlier generation of its slot for which this newcomer waits: a member, or another generation that asks.
    pub(super) fn earlier(&self, rank: &Rank, record: &Record) -> Option<u32> {
        let (slot, own) = rank.own();
        let first = || self.successors.get(&slot).copied();
        let earlier = record.members.get(slot).or_else(first);
        earlier.filter(|generation| rank.own.applied == 0 && *generation != own)
    }

    /// Returns the slots whose rank has taken its lease again, proposed or promised since the last look.
    fn wrote(&mut self, rank: &Rank, record: &Record) -> Slots {
        let kept = rank.store.kept();
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

    /// Returns three sets of slots:
    ///
    /// - those from which something has arrived, or to which something was sent, within half a lease;
    /// - those from or to which that has happened within the stall bound;
    /// - those for which calls wait in vain.
    fn hear(&mut self, rank: &Rank, record: &Record) -> Result<(Slots, Slots, Slots), GroupError> {
        let now = Instant::now();
        if self.heard.is_due(now) {
            let words = rank.shared.layer.heard().map_err(GroupError::Layer)?;
            self.heard.words(&words, now);
            let (started, finished) = (rank.shared.layer.started(), rank.shared.layer.finished());
            self.heard.called(started, finished, now);
            // The HCA's commands are asked only of QPs to ranks of which nothing else was heard.
            self.heard.only_of(&rank.own.unheard);
            for &slot in rank
                .own
                .unheard
                .keys()
                .filter(|slot| **slot != rank.own.slot)
            {
                let completed = rank.shared.transport.completed(slot)?;
                self.heard.completed(slot, completed, now);
            }
        }
        let members = record.slots();
        let silent: Slots = rank.shared.layer.suspected().into_iter().collect();
        let [heard, contact] =
            [self.heard.lately(now), self.heard.in_contact(now)].map(|slots| slots.and(&members));
        Ok((heard, contact, silent.and(&members)))
    }

    /// Passes the ranks to connect with to the thread that connects.
    pub(super) fn connect(
        &self,
        rank: &Rank,
        reports: &mut Reports,
        record: &Record,
        look: &Look<Duration>,
    ) {
        let members = &record.members;
        let to_connect = rank.rules.to_connect(&rank.own, record, look);
        let current = rank.own.is_current(record);
        let parted = if current {
            record.parted.of(rank.own.slot)
        } else {
            Slots::default()
        };
        let living = |who: &RankGeneration| look.holders.contains(who.0);
        let theirs = members.iter().filter(|who| to_connect.contains(who.0));
        let theirs = theirs.filter(|who| living(who) && !parted.contains(who.0));
        let comes = look.asks.iter().filter(|(who, ask)| {
            ask.holds && to_connect.contains(who.0) && !members.contains_key(who.0)
        });
        let mut wanted: BTreeSet<RankGeneration> =
            theirs.chain(comes.map(|(who, _)| *who)).collect();
        // No rank connects with this one while another generation of its slot asks.
        let (slot, own) = rank.own();
        let first = self.successors.get(&slot);
        if rank.own.applied == 0 && first.is_some_and(|first| *first != own) {
            wanted.clear();
        }
        let waits = self.earlier(rank, record).is_some();
        let mut unseen = BTreeSet::new();
        if rank.own.applied == 0 && !waits {
            let theirs = members.iter().filter(|who| to_connect.contains(who.0));
            unseen.extend(theirs.filter(|who| !living(who)));
        }
        reports.tell_unseen(rank, &unseen);
        let mut inner = rank.shared.lock();
        let is_new = inner.wanted != wanted;
        (inner.wanted, inner.waits) = (wanted, waits);
        drop(inner);
        if is_new {
            rank.shared.notify();
        }
        rank.wake_connector();
    }
}

/// Returns whether `row` says that its rank has made all calls up to `last`.
pub(super) fn says_through(row: Option<&StoredRow>, last: u32) -> bool {
    let through = row.and_then(|row| row.through);
    through.is_some_and(|through| !newer(last, through))
}

/// Forgets promises of calls that no rank can have started. With such a promise the next view would begin at a call that no rank ever comes
/// to.
fn refuse_promises(rank: &mut Rank, record: &Record) {
    if rank.own.applied == 0 || record.open.is_none() {
        return;
    }
    let finished = rank.shared.layer.finished();
    let promises = rank.store.kept().promises_for(record.number);
    let last = |(who, promise): (RankGeneration, &Promise)| Some((who, promise.last?));
    let far = promises.filter_map(last);
    let far: Vec<_> = far.filter(|it| !can_be_last(it.1, finished)).collect();
    for (who, last) in far {
        let reason = format!(
            "its rank promises call {last} as its last one, and this rank is at call {finished}; ranks of a view are less than \
             2^30 calls apart"
        );
        rank.store
            .reader_mut()
            .refuse_promise(record.number, who, &reason);
    }
}

/// P6: returns whether a member says that it is connected with a later generation of this newcomer's slot.
fn is_overtaken(rank: &Rank, record: &Record) -> bool {
    let (slot, generation) = rank.own();
    let kept = rank.store.kept();
    let members = kept.rows.iter().filter(|(who, _)| {
        record.is_member(who.0, who.1) && kept.members.contains(**who) && who.0 != slot
    });
    let theirs = members.filter_map(|(_, row)| row.connected.get(slot)).max();
    rank.own.applied == 0 && newcomers::is_overtaken(generation, theirs)
}

/// Returns whether this rank and all living members have made every call before the view of `record`. For a rank that has left, that view
/// is the one that dropped it. The wait ends after the team's deadline.
fn is_through(rank: &mut Rank, record: &Record, look: &Look<Duration>) -> bool {
    let own = rank.own();
    let left = record.left.get(&own.0).filter(|left| left.0 == own.1);
    let first = left.map_or(record.first, |left| left.1);
    let last = first.wrapping_sub(1);
    let alone = record.members.len() == 1;
    if rank.own.leaving == Leaving::No || left.is_none() && !alone {
        return true;
    }
    let since = *rank.since.left.get_or_insert_with(Instant::now);
    // Read before the look, so that a rank which is through by the end says so.
    let is_late = since.elapsed() >= rank.shared.transport.deadline();
    if newer(last, rank.shared.layer.finished()) {
        return is_late;
    }
    if left.is_some() {
        rank.through = Some(last);
    }
    let others = record.members.iter().filter(|who| *who != own);
    let mut living =
        others.filter(|who| look.holders.contains(who.0) && !look.ended.contains(who.0));
    let rows = &rank.store.kept().rows;
    is_late
        || living.all(|who| says_through(rows.get(&who).map(Arc::as_ref), last))
            && (!alone || rank.shared.lock().farewells.is_empty())
}

/// Returns whether the HCAs of this rank have failed for good while two others meet each other: it is the ill one.
pub(super) fn has_lost_hca(rank: &Rank, record: &Record, look: &Look<Duration>) -> bool {
    if !rank.shared.lock().hca_lost || !rank.own.is_member(record) {
        return false;
    }
    let others = || look.rows.iter().filter(|(slot, _)| **slot != rank.own.slot);
    let meet = |a: u32, row: &Row| {
        let both = |(b, theirs): (&u32, &Row)| row.meets.contains(*b) && theirs.meets.contains(a);
        others().any(both)
    };
    others().any(|(slot, row)| meet(*slot, row))
}
