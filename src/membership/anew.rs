//! A rank whose store has lost the group's record: it says what it had, and one rank writes the newest of that anew. Crate
//! `membership-rules` has the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::anew::{Anew, Place, Situation, Word, anew};
use membership_rules::look::Leaving;
use membership_rules::record::{RankGeneration, Record};
use rendezvous::printable;

use super::GroupError;
use super::driver::{Driver, TurnOutcome, rank_generations};
use super::event::GroupEventKind;
use super::group_store::{Had, named};

/// Leases for which the record may be gone before an event says why no rank writes it.
const PATIENCE: u32 = 3;
/// What the operator can do where the ranks cannot.
const MENDS: &str =
    "Calls go on. If those ranks are gone for good, start all ranks anew with another store";

impl Driver {
    /// A newcomer whose generation is that of a member, and which has promised nothing: another process had its name before the store
    /// lost what it held.
    pub(super) fn is_namesake(&mut self, record: &Record) -> bool {
        let own = self.own();
        let joins = self.own.applied == 0;
        let never = record.is_member(own.0, own.1) && !self.promises;
        self.namesake = joins && (never || self.store.has_namesake());
        if self.namesake {
            let (rank, generation) = own;
            self.shared.tell(GroupEventKind::Failed {
                error: format!(
                    "another process has generation {generation} of rank {rank}, which this process drew from a store that had lost \
                     what was drawn. This process ends; start it again, and it draws a later one"
                ),
            });
        }
        self.namesake
    }

    /// One turn of a rank that has a record which the store has not.
    pub(super) fn write_anew(&mut self, record: &Arc<Record>) -> Result<TurnOutcome, GroupError> {
        let (now, ttl) = (Instant::now(), self.shared.bounds.lease_ttl);
        // It looks at all keys, and as long as the record is lost at nothing else.
        self.reads = true;
        let touched = now.duration_since(self.since.touched) + ttl <= self.shared.bounds.found;
        let Some(lost) = &mut self.store.kept.lost else {
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
                self.shared.tell(GroupEventKind::Failed { error });
            }
            self.store.restore()?;
            self.shared.transport.tell_all_again()?;
            if let Some(lost) = &mut self.store.kept.lost {
                lost.restored = true;
            }
        }
        self.store.read_lost()?;
        if self.store.kept.lost.is_none() {
            return Ok(TurnOutcome::Again);
        }
        let verdict = self.judge_lost(record);
        if let Anew::Later(who) = verdict
            && self.store.take_over(who)
        {
            return Ok(TurnOutcome::Again);
        }
        let waits = waits(&verdict);
        self.say_had(record, &waits)?;
        if let Anew::Write(new) = &verdict
            && self.store.write_anew(new)?
        {
            return Ok(TurnOutcome::Again);
        }
        self.tell_lost(&verdict, waits);
        Ok(TurnOutcome::Wait(ttl / 4))
    }

    /// What the rules say of what this rank has read.
    fn judge_lost(&mut self, record: &Record) -> Anew {
        let (own, ttl) = (self.own(), self.shared.bounds.lease_ttl);
        let ended = self.ended_for_certain(record);
        let said = self.store.kept.words.living();
        let mut words: BTreeMap<RankGeneration, Word> =
            said.iter().map(|(who, had)| (*who, had.word())).collect();
        let Some(lost) = &mut self.store.kept.lost else {
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

    /// Ranks that have ended for certain: as this rank has seen, or as the machine of another has.
    fn ended_for_certain(&self, record: &Record) -> BTreeSet<RankGeneration> {
        let seen = self.ended(record);
        let takes = record.open.iter().flat_map(|open| open.takes.iter());
        let all = rank_generations(&record.members).chain(takes);
        let mut ended: BTreeSet<RankGeneration> = all.filter(|who| seen.contains(who.0)).collect();
        let said = self.store.kept.words.living();
        ended.extend(said.values().flat_map(|had| had.ended.iter().copied()));
        ended.extend(self.store.kept.over.iter().copied());
        ended.remove(&self.own());
        ended
    }

    fn say_had(&mut self, record: &Record, waits: &str) -> Result<(), GroupError> {
        let Some(lost) = &self.store.kept.lost else {
            return Ok(());
        };
        let place = Place::of(record);
        let had = Had {
            epoch: place.epoch,
            number: place.number,
            record: self.store.had_text(),
            touched: lost.touched,
            ended: self.ended_for_certain(record).into_iter().collect(),
            lost_ms: millis(lost.since.elapsed()),
            waits: waits.to_owned(),
        };
        self.store.say_had(&had)?;
        Ok(())
    }

    /// One event says why no rank writes the record, if that takes long.
    fn tell_lost(&mut self, verdict: &Anew, waits: String) {
        let ttl = self.shared.bounds.lease_ttl;
        let hopeless = matches!(verdict, Anew::Misses(_) | Anew::Untouched);
        let Some(lost) = &mut self.store.kept.lost else {
            return;
        };
        if !hopeless || lost.told || lost.since.elapsed() < PATIENCE * ttl {
            return;
        }
        lost.told = true;
        let lost = lost.since.elapsed();
        self.shared.tell(GroupEventKind::RecordLost {
            store: self.shared.transport.store().name(),
            lost,
            reason: format!("{waits}. {MENDS}"),
        });
    }

    /// The record is in the store again.
    pub(super) fn find_again(&mut self, record: &Record) -> Result<(), GroupError> {
        if !std::mem::take(&mut self.store.kept.found_again) {
            return Ok(());
        }
        self.store.forget_had()?;
        // A store that is new to this rank has no goodbye of it.
        if self.own.leaving == Leaving::Said {
            self.own.leaving = Leaving::Wants;
        }
        let lost = self.since.touched.elapsed();
        self.shared.tell(GroupEventKind::RecordBack {
            epoch: record.epoch,
            lost,
        });
        Ok(())
    }

    /// Whether ranks say that they had a record which the store has lost. A newcomer that finds none for long tells that once.
    pub(super) fn hears_of_lost(&mut self) -> Result<bool, GroupError> {
        let ttl = self.shared.bounds.lease_ttl;
        let said = self.store.kept.words.living();
        // The one that knows it for the longest time.
        let longest = said.values().max_by_key(|had| had.lost_ms);
        let (since, reason) = match longest {
            Some(had) => {
                let heard = *self.heard_lost.get_or_insert_with(Instant::now);
                let lost = Duration::from_millis(had.lost_ms);
                let waits = match had.waits.is_empty() {
                    true => "the ranks that had the record have not written it anew yet".to_owned(),
                    false => printable(&had.waits),
                };
                let long = heard.elapsed() >= PATIENCE * ttl;
                (lost, long.then(|| format!("{waits}. {MENDS}")))
            }
            None => {
                let waited = self.since.begun.elapsed();
                let long = self.own.applied == 0 && waited >= self.shared.bounds.found;
                let reason = "no group has met in it, or it has lost what it held and no rank that had the record is there. Start the \
                              founders, or all ranks anew with another store";
                (waited, long.then(|| reason.to_owned()))
            }
        };
        let hears = !said.is_empty();
        let had = Had {
            lost_ms: millis(self.since.begun.elapsed()),
            ..Had::default()
        };
        if let Some(reason) = reason.filter(|_| !self.told_lost) {
            self.told_lost = true;
            self.shared.tell(GroupEventKind::RecordLost {
                store: self.shared.transport.store().name(),
                lost: since,
                reason,
            });
        }
        // It may stand in a proposal that it has not seen, if it has held a lease in the store of before.
        if hears && self.own.applied == 0 && self.store.takings > 1 {
            self.store.say_had(&had)?;
        }
        Ok(hears)
    }
}

/// What the ranks wait for, in words; nothing if they only wait for a moment.
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
