//! What ranks do when the store has lost the group's record. Each rank says which record it had, and one rank writes the newest of these
//! anew. Crate `membership-rules` has the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use membership_rules::anew::{Anew, Place, Situation, Word, anew};
use membership_rules::look::Leaving;
use membership_rules::record::{RankGeneration, Record};
use rendezvous::printable;

use super::GroupError;
use super::event::GroupEventKind;
use super::outcome::TurnOutcome;
use super::rank::Rank;
use super::stored::Had;

/// The number of leases for which the record may be lost before an event says why no rank writes it.
const PATIENCE: u32 = 3;
/// The largest number of ranks that a text names, since a person reads it.
const MOST_NAMED: usize = 16;
/// What the operator can do when no rank can write the record anew.
const MENDS: &str =
    "Calls go on. If those ranks are gone for good, start all ranks anew with another store";

/// What this rank has said and heard about a record that the store has lost.
#[derive(Debug, Default)]
pub(super) struct LostRecord {
    /// An earlier process had the slot and generation of this newcomer, and was a member.
    namesake: bool,
    /// This newcomer has told its user that the store has no record.
    told: bool,
    /// When a rank first told this newcomer that the record is lost.
    heard: Option<Instant>,
}

impl LostRecord {
    /// Returns whether this rank is a newcomer whose slot and generation another process has, and if so tells that. Another process has
    /// them if the record names them as a member and this rank has promised nothing, or if the store says so. The store must have lost what
    /// it held.
    pub(super) fn is_namesake(&mut self, rank: &Rank, record: &Record) -> bool {
        let own = rank.own();
        let joins = rank.own.applied == 0;
        let never = record.is_member(own.0, own.1) && !rank.promises;
        self.namesake = joins && (never || rank.store.reader().has_namesake());
        if self.namesake {
            let (slot, generation) = own;
            rank.shared.tell(GroupEventKind::Failed {
                error: format!(
                    "another process has generation {generation} of rank {slot}, which this process drew from a store that had lost \
                     what was drawn. This process ends; start it again, and it draws a later one"
                ),
            });
        }
        self.namesake
    }

    /// Returns whether a rank of another process has the name of this one.
    pub(super) fn has_namesake(&self) -> bool {
        self.namesake
    }

    /// Returns whether ranks say that they had a record which the store has lost. If no rank writes that record for long, this call tells
    /// it once.
    pub(super) fn hears_of_lost(&mut self, rank: &mut Rank) -> Result<bool, GroupError> {
        let ttl = rank.shared.bounds.lease_ttl;
        let said = rank.store.kept().words.living();
        // The word of the rank that has known of the loss for the longest time.
        let longest = said.values().max_by_key(|had| had.lost_ms);
        let (since, reason) = match longest {
            Some(had) => {
                let heard = *self.heard.get_or_insert_with(Instant::now);
                let lost = Duration::from_millis(had.lost_ms);
                let waits = if had.waits.is_empty() {
                    "the ranks that had the record have not written it anew yet".to_owned()
                } else {
                    printable(&had.waits)
                };
                let long = heard.elapsed() >= PATIENCE * ttl;
                (lost, long.then(|| format!("{waits}. {MENDS}")))
            }
            None => {
                let waited = rank.since.begun.elapsed();
                let long = rank.own.applied == 0 && waited >= rank.shared.bounds.found;
                let reason = "no group has met in it, or it has lost what it held and no rank that had the record is there. Start the \
                              founders, or all ranks anew with another store";
                (waited, long.then(|| reason.to_owned()))
            }
        };
        let hears = !said.is_empty();
        let had = Had {
            lost_ms: millis(rank.since.begun.elapsed()),
            ..Had::default()
        };
        if let Some(reason) = reason.filter(|_| !self.told) {
            self.told = true;
            rank.shared.tell(GroupEventKind::RecordLost {
                store: rank.shared.transport.store().name(),
                lost: since,
                reason,
            });
        }
        // A newcomer that held a lease in the store before the loss may stand in a proposal that it has not seen.
        if hears && rank.own.applied == 0 && rank.store.takings() > 1 {
            rank.store.reader_mut().say_had(&had)?;
        }
        Ok(hears)
    }
}

/// Makes one turn of a rank that has a record which the store has lost.
pub(super) fn write_anew(rank: &mut Rank, record: &Record) -> Result<TurnOutcome, GroupError> {
    let (now, ttl) = (Instant::now(), rank.shared.bounds.lease_ttl);
    let touched = now.duration_since(rank.since.touched) + ttl <= rank.shared.bounds.found;
    let Some(lost) = rank.store.reader_mut().lost_mut() else {
        return Ok(TurnOutcome::Again);
    };
    let gap = now.duration_since(lost.turned) > ttl;
    lost.turned = now;
    if gap {
        lost.hush = None;
    }
    if !lost.restored {
        lost.touched = touched;
        let first = !std::mem::replace(&mut lost.noticed, true);
        if first {
            let error = "the group's record is gone from the store: calls go on, and no view changes. The ranks write it anew \
                         when all members have said which one they had"
                .to_owned();
            rank.shared.tell(GroupEventKind::Failed { error });
        }
        rank.store.reader_mut().restore()?;
        rank.shared.transport.tell_all_again()?;
        if let Some(lost) = rank.store.reader_mut().lost_mut() {
            lost.restored = true;
        }
    }
    rank.store.reader_mut().read_lost()?;
    if rank.store.kept().lost.is_none() {
        return Ok(TurnOutcome::Again);
    }
    let verdict = judge_lost(rank, record);
    if let Anew::Later(who) = verdict
        && rank.store.reader_mut().take_over(who)
    {
        return Ok(TurnOutcome::Again);
    }
    let waits = waits(&verdict);
    say_had(rank, record, &waits)?;
    if let Anew::Write(new) = &verdict
        && rank.store.reader_mut().write_anew(new)?
    {
        return Ok(TurnOutcome::Again);
    }
    tell_lost(rank, &verdict, waits);
    Ok(TurnOutcome::Wait(ttl / 4))
}

/// Returns what the rules conclude from the words that this rank has read.
fn judge_lost(rank: &mut Rank, record: &Record) -> Anew {
    let (own, ttl) = (rank.own(), rank.shared.bounds.lease_ttl);
    let ended = ended_for_certain(rank, record);
    let said = rank.store.kept().words.living();
    let mut words: BTreeMap<RankGeneration, Word> =
        said.iter().map(|(who, had)| (*who, had.word())).collect();
    let Some(lost) = rank.store.reader_mut().lost_mut() else {
        return Anew::Hushes;
    };
    let mine = Word {
        place: Place::of(record),
        touched: lost.touched,
    };
    words.insert(own, mine);
    let now = Instant::now();
    let hush = match lost.hush.take() {
        Some((before, since)) if before == words => (before, since),
        _ => (words.clone(), now),
    };
    let hushed = now.duration_since(hush.1) >= ttl;
    let stands = lost.stands();
    lost.hush = Some(hush);
    let situation = Situation {
        own,
        record,
        stands,
        words: &words,
        ended: &ended,
        hushed,
    };
    anew(&(), &situation)
}

/// Returns the ranks that have ended for certain: those that this rank has seen end, and those that the words of other ranks name.
fn ended_for_certain(rank: &Rank, record: &Record) -> BTreeSet<RankGeneration> {
    let seen = rank.ended(record);
    let takes = record.open.iter().flat_map(|open| open.takes.iter());
    let all = record.members.iter().chain(takes);
    let mut ended: BTreeSet<RankGeneration> = all.filter(|who| seen.contains(who.0)).collect();
    let said = rank.store.kept().words.living();
    ended.extend(said.values().flat_map(|had| had.ended.iter().copied()));
    ended.extend(rank.store.kept().over.iter().copied());
    ended.remove(&rank.own());
    ended
}

fn say_had(rank: &mut Rank, record: &Record, waits: &str) -> Result<(), GroupError> {
    let Some(lost) = &rank.store.kept().lost else {
        return Ok(());
    };
    let place = Place::of(record);
    let had = Had {
        epoch: place.epoch,
        number: place.number,
        record: rank.store.reader().had_text(),
        touched: lost.touched,
        ended: ended_for_certain(rank, record).into_iter().collect(),
        lost_ms: millis(lost.since.elapsed()),
        waits: waits.to_owned(),
    };
    rank.store.reader_mut().say_had(&had)?;
    Ok(())
}

/// Tells once, after [`PATIENCE`] leases, why no rank writes the record.
fn tell_lost(rank: &mut Rank, verdict: &Anew, waits: String) {
    let ttl = rank.shared.bounds.lease_ttl;
    let hopeless = matches!(verdict, Anew::Misses(_) | Anew::Untouched);
    let Some(lost) = rank.store.reader_mut().lost_mut() else {
        return;
    };
    if !hopeless || lost.told || lost.since.elapsed() < PATIENCE * ttl {
        return;
    }
    lost.told = true;
    let lost = lost.since.elapsed();
    rank.shared.tell(GroupEventKind::RecordLost {
        store: rank.shared.transport.store().name(),
        lost,
        reason: format!("{waits}. {MENDS}"),
    });
}

/// Notes that the record is in the store again, if a look has found that.
pub(super) fn find_again(rank: &mut Rank, record: &Record) -> Result<(), GroupError> {
    if !rank.store.reader_mut().take_found_again() {
        return Ok(());
    }
    rank.store.reader_mut().forget_had()?;
    // A store that is new to this rank holds no goodbye of this rank.
    if rank.own.leaving == Leaving::Said {
        rank.own.leaving = Leaving::Wants;
    }
    let lost = rank.since.touched.elapsed();
    rank.shared.tell(GroupEventKind::RecordBack {
        epoch: record.epoch,
        lost,
    });
    Ok(())
}

/// Returns, in words, what the ranks wait for. Returns an empty string if they wait for a moment only.
fn waits(verdict: &Anew) -> String {
    match verdict {
        Anew::Misses(ranks) => format!(
            "ranks {} were members and have not said what they had, so one of them may have had a later record",
            named(ranks)
        ),
        Anew::Untouched => {
            "no rank was in touch with the store shortly before, so newcomers may have founded the group anew meanwhile".to_owned()
        }
        Anew::Other | Anew::Later(_) | Anew::Hushes | Anew::Write(_) => String::new(),
    }
}

/// Returns the slots of `ranks` as text for a reader, at most [`MOST_NAMED`] of them.
fn named(ranks: &[RankGeneration]) -> String {
    let some: BTreeSet<u32> = ranks.iter().map(|who| who.0).take(MOST_NAMED).collect();
    let some: Vec<String> = some.iter().map(u32::to_string).collect();
    match ranks.len().checked_sub(MOST_NAMED) {
        Some(more) if more > 0 => format!("{} and {more} more", some.join(", ")),
        _ => some.join(", "),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
