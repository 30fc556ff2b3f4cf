//! Judges a run by its story alone. It finds ranks expelled for no reason, views that are not reached, and proposals without end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::tokens::Lost;
use crate::record::{Begun, Disturbance, Record, RecordKind};

/// The longest time from the end of the last deed to a view of all ranks, besides the wait of slots whose newcomers came to nothing.
const REACHED_US: u64 = 30_000_000;
/// How many leases after a disturbance it still explains the end of a rank. Nothing is heard for one and a half, a proposal is unanswered
/// for two or more, and one is for the lease itself.
const AFTERMATH_LEASES: u64 = 5;
/// How long after a cut a pair still counts as broken. The connection is tried again after up to 8 error bounds, and a view unites the
/// pair.
const BROKEN_US: u64 = 15_000_000;
/// The number of leases that a newcomer must serve, so that it has not come to nothing.
const SERVED_LEASES: u64 = 10;
/// The most leases that a slot waits.
const MOST_LEASES: u64 = 64;
/// The most proposals for each deed.
const PROPOSALS: u64 = 4;
/// The most pieces of evidence that are shown.
const SHOWN: usize = 24;

/// A forbidden thing that a run has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) what: What,
    /// The ranks concerned, and the records about them, each with its writer and time.
    pub(super) evidence: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Expelled {
        rank: u32,
        generation: u32,
        us: u64,
    },
    NotReached {
        waited_us: u64,
        limit_us: u64,
    },
    Proposals {
        count: u64,
        deeds: u64,
    },
    /// Undisturbed ranks lost tokens of undisturbed ranks, in calls that no deed explains.
    Tokens {
        tokens: u64,
        calls: usize,
    },
    /// Another thing that must not be, or that a deed cannot have done.
    Odd {
        words: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |us: &u64| format!("{}.{:03} s", us / 1_000_000, us / 1000 % 1000);
        match &self.what {
            What::Expelled {
                rank,
                generation,
                us,
            } => write!(
                f,
                "an undisturbed rank was expelled: rank {rank}, generation {generation}, at {}",
                seconds(us)
            )?,
            What::NotReached {
                waited_us,
                limit_us,
            } => write!(
                f,
                "no view of all ranks is reached {} after the last deed; the limit is {}",
                seconds(waited_us),
                seconds(limit_us)
            )?,
            What::Proposals { count, deeds } => write!(
                f,
                "{count} proposals for {deeds} deeds; at most {PROPOSALS} for each are allowed"
            )?,
            What::Tokens { tokens, calls } => write!(
                f,
                "undisturbed ranks lost {tokens} tokens of undisturbed ranks in {calls} calls, later than in the call of a deed and the \
                 next one"
            )?,
            What::Odd { words } => f.write_str(words)?,
        }
        for line in self.evidence.iter().take(SHOWN) {
            write!(f, "\n  {line}")?;
        }
        match self.evidence.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// Returns the verdicts on `records`, which are in the order of their times. A run without a plan is not one of chaos, and is not judged.
pub(super) fn of(records: &[Record]) -> Vec<Verdict> {
    let plan = records.iter().find_map(|record| match record.what {
        RecordKind::Plan {
            ranks, lease_ms, ..
        } => Some((ranks, lease_ms * 1000)),
        _ => None,
    });
    let Some((ranks, lease_us)) = plan else {
        return Vec::new();
    };
    let story = Story::of(records, ranks, lease_us);
    let expelled = records
        .iter()
        .enumerate()
        .filter(|(_, record)| record.what == RecordKind::Expelled);
    let expelled = expelled.filter_map(|(place, record)| story.expelled(place, record));
    let mut verdicts: Vec<Verdict> = expelled.collect();
    verdicts.extend(story.not_reached());
    verdicts.extend(story.proposals());
    verdicts
}

/// Returns the verdict on calls that lost tokens, or None if there are no such calls.
pub(super) fn of_tokens(lost: &[Lost]) -> Option<Verdict> {
    let what = What::Tokens {
        tokens: lost.iter().map(|of| of.tokens).sum(),
        calls: lost.len(),
    };
    let evidence = lost.iter().map(Lost::in_words).collect();
    (!lost.is_empty()).then_some(Verdict { what, evidence })
}

/// A deed, from its begin to its end.
struct Deed<'a> {
    begun: &'a Begun,
    from: u64,
    /// The time of its end; None while the deed is under way.
    until: Option<u64>,
}

impl Deed<'_> {
    /// Returns whether the deed was done at some time in `from..=until`, or ended at most `aftermath` before.
    fn touches(&self, from: u64, until: u64, aftermath: u64) -> bool {
        let over = self
            .until
            .is_none_or(|over| over.saturating_add(aftermath) >= from);
        self.from <= until && over
    }
}

struct Story<'a> {
    records: &'a [Record],
    ranks: u32,
    lease_us: u64,
    deeds: Vec<Deed<'a>>,
}

impl<'a> Story<'a> {
    fn of(records: &'a [Record], ranks: u32, lease_us: u64) -> Self {
        let mut deeds: Vec<Deed<'a>> = Vec::new();
        for record in records {
            match &record.what {
                RecordKind::Deed(begun) => deeds.push(Deed {
                    begun,
                    from: record.us,
                    until: None,
                }),
                RecordKind::DeedOver { deed } => {
                    if let Some(of) = deeds.iter_mut().find(|of| of.begun.deed == *deed) {
                        of.until = Some(record.us);
                    }
                }
                _ => {}
            }
        }
        Self {
            records,
            ranks,
            lease_us,
            deeds,
        }
    }

    /// Judges the rank that says at `place` that it was expelled. Returns a verdict if nothing was done to that rank alone.
    fn expelled(&self, place: usize, record: &Record) -> Option<Verdict> {
        let (rank, generation, us) = (record.rank, record.generation, record.us);
        let (epoch, members) = self.last_view(place, record);
        let dropped = self.dropped(epoch, record);
        if self.was_disturbed(rank, generation, &members, dropped, us) {
            return None;
        }
        let since = dropped.saturating_sub(AFTERMATH_LEASES * self.lease_us);
        let mut evidence = vec![format!(
            "its last view was left behind at {} ms; nothing was done to it alone from {} ms on",
            dropped / 1000,
            since / 1000
        )];
        // The deeds come first: they are few, and the reports of ranks follow from them.
        let deeds = self.deeds.iter().filter(|deed| deed.touches(since, us, 0));
        evidence.extend(deeds.map(Deed::in_words));
        let near = self
            .records
            .iter()
            .filter(|of| (since..=us).contains(&of.us));
        evidence.extend(near.filter_map(|of| self.says(of, rank)));
        let what = What::Expelled {
            rank,
            generation,
            us,
        };
        Some(Verdict { what, evidence })
    }

    /// Returns the last view in which the rank of `record` served, and its members; all ranks if it never served.
    fn last_view(&self, place: usize, record: &Record) -> (u32, Vec<u32>) {
        let mut own = self.records[..place].iter().rev();
        let last = own.find_map(|of| match &of.what {
            RecordKind::Serves { epoch, members, .. }
                if (of.rank, of.generation) == (record.rank, record.generation) =>
            {
                Some((*epoch, members.clone()))
            }
            _ => None,
        });
        last.unwrap_or_else(|| (0, (0..self.ranks).collect()))
    }

    /// Returns when the first other rank was in a view after `last` without the rank of `record`.
    fn dropped(&self, last: u32, record: &Record) -> u64 {
        let without = self.records.iter().find(|of| match &of.what {
            RecordKind::Serves { epoch, members, .. } => {
                *epoch > last && of.rank != record.rank && !members.contains(&record.rank)
            }
            _ => false,
        });
        without.map_or(record.us, |of| of.us.min(record.us))
    }

    /// Returns what `record` says against `rank`.
    fn says(&self, record: &Record, rank: u32) -> Option<String> {
        let (ms, by) = (record.us / 1000, record.rank);
        match &record.what {
            RecordKind::Suspects { other, cause, .. } if *other == rank => {
                Some(format!("{ms} ms: rank {by} says of it: {cause}"))
            }
            RecordKind::Trusts { other } if *other == rank => {
                Some(format!("{ms} ms: rank {by} trusts it again"))
            }
            RecordKind::Proposes { proposal, members } if !members.contains(&rank) => Some(
                format!("{ms} ms: rank {by} proposes {members:?} without it (proposal {proposal})"),
            ),
            RecordKind::Serves { epoch, members, .. } if !members.contains(&rank) => Some(format!(
                "{ms} ms: rank {by} is in view {epoch} of {members:?}"
            )),
            _ => None,
        }
    }

    /// Returns whether a disturbance of `rank` alone reaches into `from..=until`. It stood still while others went on, its port was down,
    /// it was on the smaller side, or the machine kept it from running.
    fn was_disturbed(
        &self,
        rank: u32,
        generation: u32,
        members: &[u32],
        from: u64,
        until: u64,
    ) -> bool {
        let aftermath = AFTERMATH_LEASES * self.lease_us;
        self.is_ill(rank, self.has_served(rank, generation), from, until)
            || self.stood(rank, generation, from.saturating_sub(aftermath), until)
            || self.is_cut_off(rank, members, from, until)
    }

    /// Returns whether a deed was done to `rank` alone. Of pairs that are cut only the sides count. A rank with one dead rail has others,
    /// and its pairs go round the dead one. Of two processes for one rank, a deed does not excuse the one that `serves`.
    fn is_ill(&self, rank: u32, serves: bool, from: u64, until: u64) -> bool {
        let aftermath = AFTERMATH_LEASES * self.lease_us;
        self.deeds.iter().any(|deed| {
            deed.begun.pairs.is_empty()
                && deed.begun.how != Disturbance::Rail
                && deed.is_alone(self.ranks)
                && deed.begun.ranks.contains(&rank)
                && deed.touches(from, until, aftermath)
                && !(deed.begun.how == Disturbance::Twice && serves)
        })
    }

    /// Returns whether this generation has served, so that no other process may take its place.
    fn has_served(&self, rank: u32, generation: u32) -> bool {
        self.records.iter().any(|record| {
            (record.rank, record.generation) == (rank, generation)
                && matches!(record.what, RecordKind::Serves { .. })
        })
    }

    /// Returns whether the rank says that it stood still for half a lease while others went on.
    fn stood(&self, rank: u32, generation: u32, from: u64, until: u64) -> bool {
        self.records.iter().any(|record| match record.what {
            RecordKind::Stood { ms }
                if (record.rank, record.generation) == (rank, generation)
                    && (from..=until).contains(&record.us) =>
            {
                let pauses = self.deeds.iter().filter(|deed| {
                    deed.begun.how == Disturbance::PauseAll
                        && deed.touches(record.us.saturating_sub(ms * 1000), record.us, 0)
                });
                ms * 1000 >= self.lease_us / 2 && pauses.count() == 0
            }
            _ => false,
        })
    }

    /// Returns whether the pairs that were cut leave `rank` outside the largest side of `members`. A rank that is no member joins no sides.
    fn is_cut_off(&self, rank: u32, members: &[u32], from: u64, until: u64) -> bool {
        let is_cut =
            |deed: &&Deed<'_>| !deed.begun.pairs.is_empty() && deed.touches(from, until, BROKEN_US);
        let cuts = || self.deeds.iter().filter(is_cut);
        let all = || members.iter().copied();
        // The rank may be outside by this cut alone, or with the other cuts at the time when this one began.
        let at_once = |cut: &Deed<'_>| {
            let then = cuts().filter(|other| other.touches(cut.from, cut.from, 0));
            is_outside(rank, all(), then)
        };
        // Or it may be outside by all cuts together. A rank that was disturbed alone may be missing on either side.
        let well = all().filter(|of| *of == rank || !self.is_ill(*of, false, from, until));
        cuts().any(at_once) || is_outside(rank, well, cuts())
    }

    /// Returns a verdict if no view of all ranks, with no pair parted, was reached for too long since the last deed ended.
    fn not_reached(&self) -> Option<Verdict> {
        if self.deeds.iter().any(|deed| deed.until.is_none()) {
            return None;
        }
        let last = self.deeds.iter().filter_map(|deed| deed.until).max()?;
        let end = self.records.last()?.us;
        let waited_us = end.saturating_sub(last);
        let limit_us = REACHED_US.saturating_add(self.slots_wait());
        if waited_us <= limit_us {
            return None;
        }
        let mut standing = Standing::default();
        for record in self.records {
            standing.see(record);
            if record.us >= last && record.us <= last + limit_us && standing.is_whole(self.ranks) {
                return None;
            }
        }
        let evidence = (0..self.ranks)
            .map(|rank| standing.in_words(rank))
            .collect();
        let what = What::NotReached {
            waited_us,
            limit_us,
        };
        Some(Verdict { what, evidence })
    }

    /// Returns the longest wait of a slot, by how many newcomers of it came to nothing in a row (P6).
    fn slots_wait(&self) -> u64 {
        let mut failures: BTreeMap<u32, u32> = BTreeMap::new();
        let mut served: BTreeMap<u32, u64> = BTreeMap::new();
        let mut most = 0;
        for record in self.records {
            match &record.what {
                RecordKind::Serves { .. } => {
                    served.entry(record.rank).or_insert(record.us);
                }
                RecordKind::Killed | RecordKind::Expelled | RecordKind::GaveUp { .. } => {
                    let since = served.remove(&record.rank);
                    let long = SERVED_LEASES * self.lease_us;
                    let lived = since.is_some_and(|since| record.us - since >= long);
                    let count = failures.entry(record.rank).or_default();
                    *count = if lived { 0 } else { *count + 1 };
                    most = most.max(*count);
                }
                _ => {}
            }
        }
        match most {
            0 => 0,
            most => (1u64 << (most - 1).min(6)).min(MOST_LEASES) * self.lease_us,
        }
    }

    /// Returns a verdict if there are too many proposals for the deeds. Each death in a crash loop counts as a deed.
    fn proposals(&self) -> Option<Verdict> {
        let mut by: BTreeMap<u32, u64> = BTreeMap::new();
        let mut numbers = BTreeSet::new();
        let mut deaths: u64 = 0;
        for record in self.records {
            match record.what {
                RecordKind::Proposes { proposal, .. } => {
                    *by.entry(record.rank).or_default() += 1;
                    numbers.insert(proposal);
                }
                RecordKind::Killed => deaths += 1,
                _ => {}
            }
        }
        let killed = |deed: &&Deed<'_>| deed.begun.how.kills();
        let loops = deaths.saturating_sub(self.deeds.iter().filter(killed).count() as u64);
        let (count, deeds) = (numbers.len() as u64, self.deeds.len() as u64 + loops);
        if count <= PROPOSALS * deeds {
            return None;
        }
        let words = |(rank, count): (&u32, &u64)| format!("rank {rank} made {count} of them");
        let evidence = by.iter().map(words).collect();
        let what = What::Proposals { count, deeds };
        Some(Verdict { what, evidence })
    }
}

impl Deed<'_> {
    /// Returns whether the deed is done to some ranks while others go on.
    fn is_alone(&self, ranks: u32) -> bool {
        (self.begun.ranks.len() as u64) < u64::from(ranks)
    }

    fn in_words(&self) -> String {
        let Begun {
            deed,
            how,
            ranks,
            words,
            ..
        } = self.begun;
        let until = match self.until {
            Some(until) => format!("{} ms", until / 1000),
            None => "now".to_owned(),
        };
        let from = self.from / 1000;
        format!(
            "{from} ms to {until}: deed {deed}, {} at {ranks:?} {words}",
            how.name()
        )
    }
}

/// Returns whether `cuts` leave `rank` outside the largest side of `ranks`. Of several equally large sides, the one with the lowest slot
/// counts. If no two ranks meet, no side exists.
fn is_outside<'a>(
    rank: u32,
    ranks: impl Iterator<Item = u32>,
    cuts: impl Iterator<Item = &'a Deed<'a>>,
) -> bool {
    let cut: BTreeSet<(u32, u32)> = cuts
        .flat_map(|deed| deed.begun.pairs.iter().copied())
        .collect();
    let mut left: BTreeSet<u32> = ranks.collect();
    let mut sides: Vec<BTreeSet<u32>> = Vec::new();
    while let Some(first) = left.pop_first() {
        let mut side = BTreeSet::from([first]);
        let mut new = vec![first];
        while let Some(one) = new.pop() {
            let meets = |of: &u32| !cut.contains(&(one.min(*of), one.max(*of)));
            let more: Vec<u32> = left.iter().copied().filter(meets).collect();
            left.retain(|of| !more.contains(of));
            side.extend(&more);
            new.extend(more);
        }
        sides.push(side);
    }
    // Of equally large sides the first has the lowest slot.
    let largest = sides.iter().rev().max_by_key(|side| side.len());
    largest.is_some_and(|side| side.len() > 1 && !side.contains(&rank))
}

/// A view: its epoch, its members, and the pairs that it parts.
type View<'a> = (u32, &'a [u32], &'a [(u32, u32)]);

/// The newest view of each rank.
#[derive(Default)]
struct Standing<'a> {
    /// The views by slot, each with the generation that serves in the slot.
    views: BTreeMap<u32, (u32, View<'a>)>,
}

impl<'a> Standing<'a> {
    fn see(&mut self, record: &'a Record) {
        match &record.what {
            RecordKind::Serves {
                epoch,
                members,
                parted,
                ..
            } => {
                let view = (*epoch, &members[..], &parted[..]);
                self.views.insert(record.rank, (record.generation, view));
            }
            RecordKind::Started
            | RecordKind::Killed
            | RecordKind::Expelled
            | RecordKind::GaveUp { .. } => {
                // A process that took the place of this one before may serve already.
                let serving = self
                    .views
                    .get(&record.rank)
                    .map(|(generation, _)| *generation);
                let is_new = record.what == RecordKind::Started;
                if serving
                    .is_some_and(|of| of < record.generation || !is_new && of == record.generation)
                {
                    self.views.remove(&record.rank);
                }
            }
            _ => {}
        }
    }

    /// Returns whether all ranks serve in one view of all, which parts no pair.
    fn is_whole(&self, ranks: u32) -> bool {
        let newest = self.views.values().map(|(_, view)| view.0).max();
        (0..ranks).all(|rank| {
            self.views
                .get(&rank)
                .is_some_and(|(_, (epoch, members, parted))| {
                    Some(*epoch) == newest && members.len() == ranks as usize && parted.is_empty()
                })
        })
    }

    fn in_words(&self, rank: u32) -> String {
        match self.views.get(&rank) {
            None => format!("rank {rank} serves in no view"),
            Some((_, (epoch, members, parted))) => {
                format!("rank {rank} is in view {epoch} of {members:?}, parted {parted:?}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::recorded::told;

    const S: u64 = 1_000_000;
    const RANKS: u32 = 4;

    /// Returns a story of four ranks that all serve at 1 s.
    fn begin() -> Vec<Record> {
        let plan = RecordKind::Plan {
            ranks: RANKS,
            lease_ms: 2000,
            deadline_ms: 500,
            masks: false,
        };
        let mut story = vec![told(0, 0, 0, plan)];
        for rank in 0..RANKS {
            story.push(told(S / 2, rank, 1, RecordKind::Started));
            story.push(serves(S, rank, 1, &[0, 1, 2, 3], &[]));
        }
        story
    }

    fn serves(us: u64, rank: u32, epoch: u32, members: &[u32], parted: &[(u32, u32)]) -> Record {
        let what = RecordKind::Serves {
            epoch,
            members: members.to_vec(),
            parted: parted.to_vec(),
            commands: 0,
            bytes: 0,
        };
        told(us, rank, 1, what)
    }

    fn deed(story: &mut Vec<Record>, how: Disturbance, ranks: &[u32], from: u64, until: u64) {
        cut(story, how, ranks, &[], from, until);
    }

    fn cut(
        story: &mut Vec<Record>,
        how: Disturbance,
        ranks: &[u32],
        pairs: &[(u32, u32)],
        from: u64,
        until: u64,
    ) {
        let count = story
            .iter()
            .filter(|of| matches!(of.what, RecordKind::Deed(_)));
        let deed = u32::try_from(count.count()).unwrap() + 1;
        let begun = Begun {
            deed,
            how,
            ranks: ranks.to_vec(),
            pairs: pairs.to_vec(),
            words: String::new(),
        };
        story.push(told(from, 0, 0, RecordKind::Deed(begun)));
        story.push(told(until, 0, 0, RecordKind::DeedOver { deed }));
    }

    /// Cuts these pairs of `rank` from 7 s to 11 s.
    fn part(story: &mut Vec<Record>, rank: u32, pairs: &[(u32, u32)]) {
        let how = Disturbance::Partition;
        cut(story, how, &[rank], pairs, 7 * S, 11 * S);
    }

    /// Adds that rank 2 is suspected at 10 s, is dropped at 12 s, and says so at 12.5 s.
    fn expel(story: &mut Vec<Record>) {
        let cause = "its lease has run out, and nothing is heard of it".to_owned();
        story.push(told(
            10 * S,
            3,
            1,
            RecordKind::Suspects {
                other: 2,
                cause,
                qp_failed: false,
            },
        ));
        let (proposal, members) = (1, vec![0, 1, 3]);
        story.push(told(
            11 * S,
            3,
            1,
            RecordKind::Proposes { proposal, members },
        ));
        for rank in [0, 1, 3] {
            story.push(serves(12 * S, rank, 2, &[0, 1, 3], &[]));
        }
        story.push(told(12 * S + S / 2, 2, 1, RecordKind::Expelled));
    }

    fn judged(mut story: Vec<Record>) -> Vec<Verdict> {
        story.sort_by_key(|record| record.us);
        of(&story)
    }

    /// Returns whether the verdict is that rank 2 was expelled for no reason.
    fn for_nothing(story: Vec<Record>) -> bool {
        let verdicts = judged(story);
        let expelled = |verdict: &Verdict| matches!(verdict.what, What::Expelled { rank: 2, .. });
        verdicts.iter().any(expelled)
    }

    #[test]
    fn expelling_an_undisturbed_rank_is_a_verdict_that_quotes_all_statements() {
        let mut story = begin();
        deed(&mut story, Disturbance::Freeze, &[1], 8 * S, 9 * S);
        expel(&mut story);
        let verdicts = judged(story);
        assert_eq!(verdicts.len(), 1, "{verdicts:?}");
        let words = verdicts[0].to_string();
        for part in [
            "an undisturbed rank was expelled: rank 2, generation 1, at 12.500 s",
            "10000 ms: rank 3 says of it: its lease has run out",
            "11000 ms: rank 3 proposes [0, 1, 3] without it (proposal 1)",
            "12000 ms: rank 0 is in view 2 of [0, 1, 3]",
            "8000 ms to 9000 ms: deed 1, freeze at [1]",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }

    #[test]
    fn a_deed_explains_an_expulsion_only_if_it_hit_that_rank_alone() {
        let with = |how, ranks: &[u32], from: u64, until: u64| {
            let mut story = begin();
            deed(&mut story, how, ranks, from, until);
            expel(&mut story);
            for_nothing(story)
        };
        assert!(!with(Disturbance::Freeze, &[2], 7 * S, 11 * S));
        assert!(!with(Disturbance::PortOne, &[2], 7 * S, 11 * S));
        assert!(with(Disturbance::Rail, &[2], 7 * S, 11 * S), "has others");
        assert!(!with(Disturbance::HostFreeze, &[2], S, 3 * S), "10 s later");
        assert!(
            with(Disturbance::HostFreeze, &[2], S, 2 * S - 1),
            "too long ago"
        );
        assert!(with(Disturbance::Freeze, &[2], 13 * S, 14 * S), "behind it");
        let all = [0, 1, 2, 3];
        assert!(with(Disturbance::PauseAll, &all, 7 * S, 11 * S));
        assert!(with(Disturbance::PortsAll, &all, 7 * S, 11 * S));
        assert!(with(Disturbance::StorePause, &[], 7 * S, 11 * S));
        assert!(with(Disturbance::StoreRestart, &[], 7 * S, 11 * S));
        assert!(with(Disturbance::LeaderLoss, &[], 7 * S, 11 * S));
        assert!(with(Disturbance::Garbage, &[], 7 * S, 11 * S));
        assert!(with(Disturbance::Kill, &[0], 7 * S, 11 * S));
        let expelled = with(Disturbance::Twice, &[2], 7 * S, 11 * S);
        assert!(expelled, "it served, and another came for its place");
    }

    #[test]
    fn of_two_processes_for_a_place_the_one_that_never_served_may_go() {
        let mut story = begin();
        deed(&mut story, Disturbance::Twice, &[2], 7 * S, 11 * S);
        story.push(told(9 * S, 2, 3, RecordKind::Expelled));
        assert!(!for_nothing(story));
    }

    #[test]
    fn calls_that_lost_tokens_are_one_verdict_that_names_each() {
        assert_eq!(of_tokens(&[]), None);
        let lost = |call| Lost {
            us: S,
            rank: 2,
            call,
            tokens: 3,
            of: vec![(0, "timeout".to_owned())],
            deed: "deed 1, late at [1], 500 ms before".to_owned(),
        };
        let words = of_tokens(&[lost(7), lost(8)]).unwrap().to_string();
        assert!(
            words.starts_with("undisturbed ranks lost 6 tokens of undisturbed ranks in 2 calls"),
            "{words}"
        );
        let first = "rank 2 lost 3 tokens in call 7 (rank 0: timeout), after deed 1, late at [1]";
        assert!(words.contains(first), "{words}");
    }

    #[test]
    fn who_is_cut_off_from_all_is_disturbed_whatever_is_done_to_the_others() {
        let mut story = begin();
        // If the ranks that stood still did not count, rank 2 would be one of two that are alone.
        part(&mut story, 2, &[(0, 2), (1, 2), (2, 3)]);
        deed(&mut story, Disturbance::HostFreeze, &[0], 7 * S, 8 * S);
        deed(&mut story, Disturbance::Freeze, &[1], 7 * S, 8 * S);
        expel(&mut story);
        assert!(!for_nothing(story));
    }

    #[test]
    fn a_rank_that_is_no_member_joins_no_sides() {
        let cut_but_from_3 = |members: &[u32]| {
            let mut story = begin();
            for &rank in members {
                story.push(serves(3 * S, rank, 2, members, &[]));
            }
            part(&mut story, 2, &[(0, 2), (1, 2)]);
            let without: Vec<u32> = members.iter().copied().filter(|of| *of != 2).collect();
            for &rank in &without {
                story.push(serves(12 * S, rank, 3, &without, &[]));
            }
            story.push(told(12 * S + S / 2, 2, 1, RecordKind::Expelled));
            for_nothing(story)
        };
        assert!(!cut_but_from_3(&[0, 1, 2]));
        assert!(cut_but_from_3(&[0, 1, 2, 3]), "it meets 3");
    }

    #[test]
    fn a_rank_is_cut_off_when_it_is_on_the_smaller_side() {
        let with = |cuts: &[(u32, &[(u32, u32)])]| {
            let mut story = begin();
            for (rank, pairs) in cuts {
                // The deed is aimed at other ranks, so that only the pairs count.
                part(&mut story, *rank, pairs);
            }
            expel(&mut story);
            for_nothing(story)
        };
        assert!(with(&[(0, &[(0, 2)])]), "it meets 1 and 3");
        assert!(with(&[(0, &[(0, 2)]), (1, &[(1, 2)])]), "it meets 3");
        assert!(!with(&[(0, &[(0, 2)]), (1, &[(1, 2)]), (3, &[(2, 3)])]));
        // The sides have two ranks each, and the side of rank 0 stays.
        assert!(!with(&[(0, &[(0, 2), (0, 3)]), (1, &[(1, 2), (1, 3)])]));
        let other = [(0, &[(0, 1), (0, 3)][..]), (1, &[(1, 2), (2, 3)][..])];
        assert!(with(&other), "it is with 0");
        let all = [
            (0, &[(0, 1), (0, 2), (0, 3)][..]),
            (1, &[(1, 2), (1, 3), (2, 3)][..]),
        ];
        assert!(with(&all), "nobody meets anybody");
    }

    #[test]
    fn a_rank_that_the_machine_kept_from_running_is_expelled_for_that() {
        let with = |rank, ms, us, pause: bool| {
            let mut story = begin();
            if pause {
                let all = [0, 1, 2, 3];
                deed(&mut story, Disturbance::PauseAll, &all, 6 * S, 9 * S);
            }
            story.push(told(us, rank, 1, RecordKind::Stood { ms }));
            expel(&mut story);
            for_nothing(story)
        };
        assert!(!with(2, 1000, 9 * S, false));
        assert!(with(2, 999, 9 * S, false), "for less than half a lease");
        assert!(with(1, 3000, 9 * S, false), "another");
        assert!(with(2, 3000, 13 * S, false), "behind it");
        assert!(with(2, 3000, 9 * S, true), "all of them");
    }

    #[test]
    fn all_ranks_reach_one_view_in_time_and_each_rank_that_misses_it_is_named() {
        let whole = |us| (0..RANKS).map(move |rank| serves(us, rank, 5, &[0, 1, 2, 3], &[]));
        let with = |more: Vec<Record>, end: u64| {
            let mut story = begin();
            deed(&mut story, Disturbance::Partition, &[1], 2 * S, 10 * S);
            for rank in 0..RANKS {
                story.push(serves(5 * S, rank, 4, &[0, 1, 2, 3], &[(0, 1)]));
            }
            story.extend(more);
            story.push(told(end, 0, 1, RecordKind::Calm));
            judged(story)
        };
        assert_eq!(with(Vec::new(), 40 * S), [], "30 s are not over");
        let verdicts = with(Vec::new(), 40 * S + 1);
        assert_eq!(verdicts.len(), 1);
        let words = verdicts[0].to_string();
        assert!(
            words.starts_with("no view of all ranks is reached 30.000 s after the last deed"),
            "{words}"
        );
        let rank = "rank 1 is in view 4 of [0, 1, 2, 3], parted [(0, 1)]";
        assert!(words.contains(rank), "{words}");
        assert_eq!(with(whole(39 * S).collect(), 60 * S), []);
        assert_eq!(with(whole(41 * S).collect(), 60 * S).len(), 1, "too late");
        let but_one = whole(39 * S).take(3).collect();
        assert_eq!(with(but_one, 60 * S).len(), 1, "rank 3 has an older view");
        // One rank is gone again before the last one has come.
        let mut gone: Vec<Record> = whole(39 * S).collect();
        gone.insert(2, told(39 * S, 0, 1, RecordKind::Expelled));
        let not_reached = |of: &Verdict| matches!(of.what, What::NotReached { .. });
        assert!(with(gone, 60 * S).iter().any(not_reached));
    }

    #[test]
    fn a_slot_whose_newcomers_came_to_nothing_may_come_later() {
        let with = |deaths: u64, end: u64| {
            let mut story = begin();
            deed(&mut story, Disturbance::CrashLoop, &[1], 2 * S, 10 * S);
            for death in 0..deaths {
                story.push(told((3 + death) * S, 1, 1, RecordKind::Killed));
            }
            story.push(told(end, 0, 1, RecordKind::Calm));
            judged(story).len()
        };
        // The last of three deaths makes the slot wait for four leases.
        assert_eq!(with(3, 48 * S), 0);
        assert_eq!(with(3, 48 * S + 1), 1);
        assert_eq!(with(1, 42 * S + 1), 1);
    }

    #[test]
    fn so_many_proposals_are_enough_for_a_deed() {
        let with = |count: u64, deaths: u64| {
            let mut story = begin();
            deed(&mut story, Disturbance::CrashLoop, &[1], 2 * S, 10 * S);
            for death in 0..deaths {
                story.push(told((3 + death) * S, 1, 1, RecordKind::Killed));
            }
            for proposal in 0..count {
                let members = vec![0, 2, 3];
                let what = RecordKind::Proposes { proposal, members };
                story.push(told(10 * S, 3, 1, what));
            }
            judged(story)
        };
        assert_eq!(with(4, 1), []);
        let verdicts = with(5, 1);
        assert_eq!(verdicts.len(), 1);
        let words = verdicts[0].to_string();
        assert_eq!(
            words,
            "5 proposals for 1 deeds; at most 4 for each are allowed\n  rank 3 made 5 of them"
        );
        assert_eq!(with(8, 2), [], "two deaths in one loop");
        assert_eq!(with(9, 2).len(), 1);
        // A proposal that another rank repeats after an error counts once.
        let mut story = begin();
        deed(&mut story, Disturbance::Kill, &[1], 2 * S, 10 * S);
        let (proposal, members) = (1, vec![0]);
        let what = RecordKind::Proposes { proposal, members };
        story.extend((0..5).map(|_| told(10 * S, 3, 1, what.clone())));
        assert_eq!(judged(story), []);
    }

    #[test]
    fn a_story_without_a_plan_is_not_judged() {
        let mut story = begin();
        story.remove(0);
        expel(&mut story);
        assert_eq!(judged(story), []);
    }
}
