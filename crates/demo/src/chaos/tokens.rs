//! Counts the tokens that undisturbed ranks lost of undisturbed ranks, by the story alone.
//!
//! A call counts if a deed has begun before the call ends, and the call's rank is not disturbed. A token of the call is lost if it lacks
//! experts of a rank that is not disturbed. Tokens may be lost in the call in which a deed happens, and in the next call, but in no other.
//! A rank that chaos tells to pass other arguments does so in a later call. Each rank may lose one call to that, with causes that name the
//! error. Calls do not count while the machine gave some rank without a deed no time.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::away::{Away, Limits};
use crate::record::{Begun, Disturbance, Loss, Record, RecordKind};

/// The number of calls after deeds of which the machine may starve one.
const STARVED: u64 = 10;
/// The begin of the cause where ranks differ in their arguments.
const REFUSED: &str = "MoeError";

/// The tokens lost after deeds of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) deeds: u64,
    /// The calls of undisturbed ranks after such a deed and before the next one, and the tokens of these calls.
    pub(super) calls: u64,
    pub(super) tokens: u64,
    /// The tokens lost in the call in which a deed happened, or in the next one.
    pub(super) lost_at_once: u64,
    /// The tokens lost in later calls, and the longest time from a deed to the end of such a call.
    pub(super) lost_later: u64,
    pub(super) longest_ms: u64,
    /// All lost tokens by cause.
    pub(super) causes: BTreeMap<String, u64>,
}

/// The tokens lost in a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Tokens {
    /// The rows by the kind of the last deed before the end of a call.
    pub(super) deeds: BTreeMap<&'static str, Row>,
    /// The number of calls of undisturbed ranks after the first deed.
    pub(super) calls: u64,
    /// The number of these calls that do not count, and of the tokens lost in them.
    pub(super) starved_calls: u64,
    pub(super) starved_tokens: u64,
    /// The calls that lost tokens later than a deed explains.
    #[serde(skip)]
    pub(super) wrong: Vec<Lost>,
}

/// The tokens while they are counted, and what the count needs to know.
struct Count {
    tokens: Tokens,
    /// The times at which something was done to a rank, ascending.
    events: Vec<u64>,
    away: Away,
    refused: BTreeSet<Refusal>,
}

/// A mark that a rank has lost a call to this deed of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Refusal {
    deed: u32,
    rank: u32,
}

/// A call of an undisturbed rank that lost tokens of undisturbed ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) us: u64,
    pub(super) rank: u32,
    pub(super) call: u32,
    pub(super) tokens: u64,
    /// The undisturbed ranks whose experts the tokens lack, each with the cause.
    pub(super) of: Vec<(u32, String)>,
    /// The last deed before the call's end, in words.
    pub(super) deed: String,
}

impl Lost {
    pub(super) fn in_words(&self) -> String {
        let of = self.of.iter();
        let of: Vec<String> = of
            .map(|(rank, cause)| format!("rank {rank}: {cause}"))
            .collect();
        format!(
            "{} ms: rank {} lost {} tokens in call {} ({}), after {}",
            self.us / 1000,
            self.rank,
            self.tokens,
            self.call,
            of.join(", "),
            self.deed
        )
    }
}

/// The verdict on the tokens of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// No undisturbed rank lost a token that it may not lose.
    Good,
    /// These calls lost tokens that they may not lose.
    Lost(Vec<Lost>),
    /// The machine starved too many calls.
    Starved { calls: u64, of: u64 },
}

/// One call of a rank.
struct Call<'a> {
    rank: u32,
    number: u32,
    /// The times at which the call before this one began, this one began, and this one ended.
    before: u64,
    from: u64,
    until: u64,
    tokens: u32,
    losses: &'a [Loss],
}

/// A deed that has begun, and when.
#[derive(Clone, Copy)]
struct Since<'a> {
    us: u64,
    begun: &'a Begun,
}

impl Tokens {
    /// Returns the tokens that were lost by `records`, which are in the order of their times. A story without a plan, or without counts of
    /// tokens, has None.
    pub(super) fn of(records: &[Record]) -> Option<Self> {
        let limits = records.iter().find_map(|record| match record.what {
            RecordKind::Plan {
                lease_ms,
                deadline_ms,
                masks,
                ..
            } if deadline_ms > 0 => Some(Limits {
                masks,
                lease_us: lease_ms * 1000,
                deadline_us: deadline_ms * 1000,
            }),
            _ => None,
        })?;
        let away = Away::of(records, limits);
        let mut tokens = Self::default();
        let deeds: Vec<Since<'_>> = records.iter().filter_map(since).collect();
        for deed in &deeds {
            tokens.deeds.entry(deed.begun.how.name()).or_default().deeds += 1;
        }
        let is_event = |what: &RecordKind| {
            matches!(
                what,
                RecordKind::Deed(_) | RecordKind::Killed | RecordKind::Disturbed { .. }
            )
        };
        let events = records.iter().filter(|record| is_event(&record.what));
        let events = events.map(|record| record.us).collect();
        let mut count = Count {
            tokens,
            events,
            away,
            refused: BTreeSet::new(),
        };
        for call in calls(records)? {
            let begun = deeds.partition_point(|deed| deed.us <= call.until);
            count.add(&call, &deeds[..begun]);
        }
        Some(count.tokens)
    }

    /// Returns the verdict on the tokens of the run.
    pub(super) fn judged(&self) -> Judged {
        match () {
            () if self.starved_calls * STARVED > self.calls => Judged::Starved {
                calls: self.starved_calls,
                of: self.calls,
            },
            () if self.wrong.is_empty() => Judged::Good,
            () => Judged::Lost(self.wrong.clone()),
        }
    }
}

impl Count {
    /// Counts a call. All of `deeds` have begun before its end; if there are none, the call does not count.
    fn add(&mut self, call: &Call<'_>, deeds: &[Since<'_>]) {
        let (from, until) = (call.from, call.until);
        let Some(deed) = deeds.last() else { return };
        let away = &self.away;
        if away.is_away(call.rank, from, until) {
            return;
        }
        let well = |rank: u32| !away.is_away(rank, from, until);
        let lost = losses(call, well);
        let count: u64 = lost.iter().map(|(tokens, _)| tokens).sum();
        self.tokens.calls += 1;
        if away.is_starved(from, until) {
            self.tokens.starved_calls += 1;
            self.tokens.starved_tokens += count;
            return;
        }
        let is_refusal = count > 0 && self.is_first_refusal(call, deeds);
        let row = self.tokens.deeds.entry(deed.begun.how.name()).or_default();
        row.calls += 1;
        row.tokens += u64::from(call.tokens);
        if count == 0 {
            return;
        }
        for (tokens, of) in &lost {
            if let Some((_, cause)) = of.first() {
                *row.causes.entry(cause.clone()).or_default() += tokens;
            }
        }
        row.longest_ms = row.longest_ms.max((until - deed.us) / 1000);
        let at_once = self
            .events
            .iter()
            .any(|us| (call.before..=until).contains(us));
        if at_once || is_refusal {
            row.lost_at_once += count;
            return;
        }
        row.lost_later += count;
        let mut of: BTreeMap<u32, String> = BTreeMap::new();
        of.extend(lost.into_iter().flat_map(|(_, of)| of));
        let Begun {
            deed: number,
            how,
            ranks,
            ..
        } = deed.begun;
        self.tokens.wrong.push(Lost {
            us: until,
            rank: call.rank,
            call: call.number,
            tokens: count,
            of: of.into_iter().collect(),
            deed: format!(
                "deed {number}, {} at {ranks:?}, {} ms before",
                how.name(),
                (until - deed.us) / 1000
            ),
        });
    }

    /// Returns whether `call` is the first that its rank has lost to the newest deed of arguments.
    fn is_first_refusal(&mut self, call: &Call<'_>, deeds: &[Since<'_>]) -> bool {
        let causes = || call.losses.iter().flat_map(|loss| &loss.causes);
        let newest = deeds
            .iter()
            .rev()
            .find(|deed| deed.begun.how == Disturbance::Arguments);
        let Some(deed) = newest.filter(|_| causes().any(|cause| cause.starts_with(REFUSED))) else {
            return false;
        };
        self.refused.insert(Refusal {
            deed: deed.begun.deed,
            rank: call.rank,
        })
    }
}

fn since(record: &Record) -> Option<Since<'_>> {
    match &record.what {
        RecordKind::Deed(begun) => Some(Since {
            us: record.us,
            begun,
        }),
        _ => None,
    }
}

/// Returns the calls of all ranks, in the order of their ends, or None if a step lacks its counts.
fn calls(records: &[Record]) -> Option<Vec<Call<'_>>> {
    // For each rank, when its newest call began and ended. Before its first call both are when the rank served.
    let mut last: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut calls = Vec::new();
    for record in records {
        match &record.what {
            RecordKind::Started => drop(last.remove(&record.rank)),
            RecordKind::Serves { .. } => {
                last.entry(record.rank).or_insert((record.us, record.us));
            }
            RecordKind::Step {
                step,
                tokens,
                losses,
                ..
            } => {
                let losses = losses.as_deref()?;
                let begin = last.get(&record.rank).copied();
                let (before, from) = begin.unwrap_or((record.us, record.us));
                calls.push(Call {
                    rank: record.rank,
                    number: *step,
                    before,
                    from,
                    until: record.us,
                    tokens: *tokens,
                    losses,
                });
                last.insert(record.rank, (from, record.us));
            }
            _ => {}
        }
    }
    Some(calls)
}

/// Returns the numbers of tokens that lack experts of ranks that are `well`, with these ranks and the causes.
fn losses(call: &Call<'_>, well: impl Fn(u32) -> bool) -> Vec<(u64, Vec<(u32, String)>)> {
    let of_well = |loss: &Loss| {
        let pairs = loss.of.iter().copied().zip(loss.causes.iter().cloned());
        let of: Vec<(u32, String)> = pairs.filter(|(rank, _)| well(*rank)).collect();
        (!of.is_empty()).then_some((u64::from(loss.tokens), of))
    };
    call.losses.iter().filter_map(of_well).collect()
}

#[cfg(test)]
mod tests;
