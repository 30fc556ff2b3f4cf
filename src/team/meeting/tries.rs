//! Meetings of founders that may fail and be held again under the same name: windows, layers, barriers.
//!
//! A meeting is held in tries, which have numbers from 1 on. In a try each founder prepares what it brings and writes its word as
//! `TOPIC/TRY/RANK`. One record, `TOPIC/outcome`, says how the newest try has ended. It is only set by compare-and-set, so that all
//! founders read the same:
//!
//! - A founder that has read the words of all sets it to *made*.
//! - A founder that cannot prepare, or waits in vain, sets it to *failed*, with its reason. If another one has set it to made
//!   meanwhile, the words of all are there, and this one has met, too.
//!
//! A founder that begins looks at the record first. If a try has failed and the founder has not heard of it, the founder reports
//! the newest such failure and takes part in no try. So each founder hears why the meeting has failed, and one call later all are
//! at the same try. What failed at one founder fails that try at all founders, and no later one. If a founder lost its store in a
//! try, others may have read its word. It ends that try as failed before it takes part in another, and brings nothing twice under
//! one number.
//!
//! A rank that has failed for good ends every meeting; its failure stands under `failed/` (`failed.rs`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::arguments::check_wanted;
use super::exchange::Exchange;
use super::gather::{Gathered, pause};
use crate::deadline::Looks;
use crate::team::error::TeamError;
use crate::team::limits::{PEACE, PROCESSES};

/// Most characters of a reason that are published.
const LONGEST: usize = 4096;

/// The end of the newest try of a meeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    number: u32,
    /// The failure of the try. None: the try was made.
    failure: Option<Failure>,
}

/// The failure of a try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    /// The rank that reports the failure.
    rank: u32,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Why {
    Words(String),
    /// The ranks that have not come.
    Absent(Vec<u32>),
    /// The process of this rank has ended; the text names the process.
    Ended(u32, String),
    /// An argument in which two ranks differ, and both ranks with their values.
    Mismatch(String, (u32, String), (u32, String)),
}

impl Failure {
    fn new(rank: u32, error: &TeamError) -> Self {
        let why = match error {
            TeamError::Absent { missing, .. } => Why::Absent(missing.clone()),
            TeamError::PeerEnded { rank, process } => Why::Ended(*rank, process.clone()),
            TeamError::Mismatch {
                what,
                first_rank,
                first,
                second_rank,
                second,
            } => Why::Mismatch(
                what.clone(),
                (*first_rank, first.clone()),
                (*second_rank, second.clone()),
            ),
            error => return Self::of(rank, error),
        };
        Self { rank, why }
    }

    fn of(rank: u32, error: &dyn Display) -> Self {
        let words = error.to_string().chars().take(LONGEST).collect();
        let why = Why::Words(words);
        Self { rank, why }
    }

    /// Returns the error of a founder that hears of the failure.
    fn heard(self, topic: &str, waited: Duration) -> TeamError {
        match self.why {
            Why::Words(message) => TeamError::PeerFailed {
                rank: self.rank,
                message,
            },
            Why::Absent(missing) => TeamError::Absent {
                missing,
                topic: topic.to_owned(),
                waited,
            },
            Why::Ended(rank, process) => TeamError::PeerEnded { rank, process },
            Why::Mismatch(what, (first_rank, first), (second_rank, second)) => {
                TeamError::Mismatch {
                    what,
                    first_rank,
                    first,
                    second_rank,
                    second,
                }
            }
        }
    }
}

/// The knowledge of a founder about the tries of one meeting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Tries {
    /// The newest try of whose end the founder has heard.
    heard: u32,
    /// The newest try in which the founder has taken part.
    begun: u32,
}

/// The first step of a founder that begins a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// The founder reports how this try has ended.
    Report(u32),
    /// The founder ends this try, in which it has taken part, as failed.
    End(u32),
    /// The founder takes part in this try.
    Take(u32),
}

impl Tries {
    /// Returns what the founder does. `ended` is the newest try that has ended, 0 if none has.
    fn begin(self, ended: u32) -> Begin {
        if ended > self.heard {
            return Begin::Report(ended);
        }
        let newest = ended.max(self.heard);
        if self.begun > newest {
            Begin::End(self.begun)
        } else {
            Begin::Take(newest + 1)
        }
    }
}

/// The meetings of a team: what this founder knows of the tries of each, by topic.
#[derive(Debug, Default)]
pub(in crate::team) struct Meetings(Mutex<BTreeMap<String, Tries>>);

impl Meetings {
    /// Meets the other founders ([`meet`]).
    pub(in crate::team) fn meet<T, W, E>(
        &self,
        exchange: &Exchange,
        topic: &str,
        prepare: impl FnOnce() -> Result<(T, W), E>,
        check: impl Fn(u32, &W) -> Result<(), TeamError>,
    ) -> Result<(T, Vec<(u32, W)>), E>
    where
        W: Serialize + DeserializeOwned,
        E: From<TeamError> + Display,
    {
        let meetings = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tries = meetings().get(topic).copied().unwrap_or_default();
        let met = meet(exchange, topic, &mut tries, prepare, check);
        meetings().insert(topic.to_owned(), tries);
        met
    }
}

/// A try of a meeting, at one founder.
struct Try<'a> {
    exchange: &'a Exchange,
    topic: &'a str,
    number: u32,
    /// The record of the outcome as it was read last, in bytes and parsed.
    read: Option<Vec<u8>>,
    newest: Option<Outcome>,
    start: Instant,
}

/// Meets the other founders under `topic`. `prepare` makes what this rank keeps, and its word for the others. `check` sees each
/// rank's word as soon as it arrives. Returns what was made and the words of all, in the order of the ranks. After an error,
/// nothing is left of this try at any rank, and all may meet again.
///
/// # Errors
/// Errors of `prepare` and `check`, at every rank. Ranks do not come, or have failed for good. Errors of the store.
fn meet<T, W, E>(
    exchange: &Exchange,
    topic: &str,
    tries: &mut Tries,
    prepare: impl FnOnce() -> Result<(T, W), E>,
    check: impl Fn(u32, &W) -> Result<(), TeamError>,
) -> Result<(T, Vec<(u32, W)>), E>
where
    W: Serialize + DeserializeOwned,
    E: From<TeamError> + Display,
{
    let mut it = Try {
        exchange,
        topic,
        number: 0,
        read: None,
        newest: None,
        start: Instant::now(),
    };
    it.begin(tries)?;
    // A rank that has failed for good takes part in no meeting.
    exchange.failure()?;
    let prepared = prepare();
    let (kept, word) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let failure = Failure::of(exchange.rank(), &error);
            // Another rank's failure of the same try is no news to the caller, which has its own.
            if let Err(error) = it.end(Some(failure), tries) {
                tracing::error!("'{topic}' has failed here, and the others wait: {error}");
            }
            return Err(error);
        }
    };
    let words = it.take_part(tries, &word, check)?;
    Ok((kept, words))
}

impl Try<'_> {
    fn key(&self, rank: u32) -> String {
        format!("{}/{}/{rank}", self.topic, self.number)
    }

    fn outcome_key(&self) -> String {
        format!("{}/outcome", self.topic)
    }

    /// Returns how the newest try has ended.
    fn look(&mut self) -> Result<Option<Outcome>, TeamError> {
        self.newest = self.read_outcome()?;
        Ok(self.newest.clone())
    }

    fn read_outcome(&mut self) -> Result<Option<Outcome>, TeamError> {
        let key = self.outcome_key();
        let store = self.exchange.store();
        self.read = match store.try_get(&key) {
            Err(error) if error.is_unreadable() => {
                // A value that cannot be read must go first: compare-and-set could not replace it.
                self.exchange.count_as_missing(&key, &error);
                store.remove(&key)?;
                None
            }
            found => found?,
        };
        let Some(text) = &self.read else {
            return Ok(None);
        };
        match self.exchange.parse(self.exchange.rank(), &key, &key, text) {
            Err(error) if error.counts_as_missing() => {
                // The next end of a try replaces the value.
                self.exchange.count_as_missing(&key, &error);
                Ok(None)
            }
            parsed => parsed.map(Some),
        }
    }

    /// Finds the number of this try.
    fn begin(&mut self, tries: &mut Tries) -> Result<(), TeamError> {
        let newest = self.look()?;
        let ended = newest.as_ref().map_or(0, |newest| newest.number);
        match tries.begin(ended) {
            Begin::Take(number) => self.number = number,
            Begin::Report(number) => {
                tries.heard = number;
                return Err(match newest.and_then(|newest| newest.failure) {
                    Some(failure) => failure.heard(self.topic, Duration::ZERO),
                    None => self.made_without(),
                });
            }
            Begin::End(number) => {
                self.number = number;
                let words = "it lost the store while it met the others".to_owned();
                let failure = Failure::of(self.exchange.rank(), &words);
                match self.end(Some(failure), tries)? {
                    Some(_) => self.number = tries.heard + 1,
                    None => return Err(self.made_without()),
                }
            }
        }
        Ok(())
    }

    /// Returns the error that the others have made it with what this rank brought, and that this rank has let that go.
    fn made_without(&self) -> TeamError {
        self.exchange.record(
            self.exchange.rank(),
            &self.outcome_key(),
            &"the other ranks have made it in a try that failed here, without a store; make another team",
        )
    }

    /// Sets how this try has ended, unless another rank has set that. Returns how it has ended: with the failure, or with none if
    /// it was made.
    fn end(
        &mut self,
        failure: Option<Failure>,
        tries: &mut Tries,
    ) -> Result<Option<Failure>, TeamError> {
        let key = self.outcome_key();
        let own = Outcome {
            number: self.number,
            failure,
        };
        let text = self.exchange.text(&key, &own)?;
        // In each round another rank has changed the record. Each rank changes it at most once in a try, so the rounds are limited.
        for _ in 0..=self.exchange.founders().iter().count() {
            // The end of a try is never changed, so a rank that has read it sets nothing.
            if let Some(stands) = self.newest.as_ref().filter(|it| it.number >= self.number) {
                tries.heard = stands.number;
                return Ok(stands.failure.clone());
            }
            let set = self
                .exchange
                .store()
                .compare_and_set(&key, self.read.as_deref(), &text);
            if let Ok(true) = set {
                tries.heard = self.number;
                return Ok(own.failure);
            }
            // Another rank was faster, or the store left open whether the value was set.
            let stands = self.look()?.is_some_and(|it| it.number >= self.number);
            if let (false, Err(error)) = (stands, set) {
                return Err(error.into());
            }
        }
        if let Some(stands) = self.newest.as_ref().filter(|it| it.number >= self.number) {
            tries.heard = stands.number;
            return Ok(stands.failure.clone());
        }
        let reason = "another writer changes it again and again";
        Err(self.exchange.record(self.exchange.rank(), &key, &reason))
    }

    /// Writes the word of this rank and reads the words of all.
    fn take_part<W: Serialize + DeserializeOwned>(
        &mut self,
        tries: &mut Tries,
        word: &W,
        check: impl Fn(u32, &W) -> Result<(), TeamError>,
    ) -> Result<Vec<(u32, W)>, TeamError> {
        let mut gathered = Gathered::new(&self.exchange.founders());
        let own = self.key(self.exchange.rank());
        // The try is noted before its word is written, because a write that ends in an error may have left the word in the store.
        let begun = std::mem::replace(&mut tries.begun, self.number);
        let met = self
            .exchange
            .put(&own, word)
            .and_then(|()| self.wait(tries, &mut gathered, &check));
        let failure = match met {
            Ok(None) => return self.exchange.gathered(gathered),
            Ok(Some(failure)) => failure,
            // Without the store the failure cannot be published. The next call ends this try.
            Err(error @ TeamError::Store(_)) => return Err(error),
            // For a rank that refuses what this rank makes, the try has not begun. So it counts as not begun here, too.
            Err(error @ TeamError::Differs { .. }) => {
                self.take_back(&own);
                tries.begun = begun;
                return Err(error);
            }
            Err(error) => {
                let failure = Failure::new(self.exchange.rank(), &error);
                match self.end(Some(failure.clone()), tries)? {
                    Some(stands) if stands == failure => {
                        self.take_back(&own);
                        return Err(error);
                    }
                    Some(stands) => stands,
                    // Another rank has set the try to made, so the words of all are there.
                    None => {
                        self.gather(&mut gathered, &check)?;
                        return match gathered.missing()[..] {
                            [] => self.exchange.gathered(gathered),
                            _ => Err(self.made_without()),
                        };
                    }
                }
            }
        };
        self.take_back(&own);
        Err(failure.heard(self.topic, self.start.elapsed()))
    }

    /// Removes the word of this rank, which counts for no later try.
    fn take_back(&self, own: &str) {
        if let Err(error) = self.exchange.store().remove(own) {
            tracing::debug!("'{own}' stays: {error}");
        }
    }

    fn gather<W: DeserializeOwned>(
        &self,
        gathered: &mut Gathered<W>,
        check: &impl Fn(u32, &W) -> Result<(), TeamError>,
    ) -> Result<(), TeamError> {
        let key = |rank| self.key(rank);
        self.exchange.gather(self.topic, &key, check, gathered)
    }

    /// Waits until the try has ended. Returns how it has ended: with the failure, or with none if it was made.
    fn wait<W: DeserializeOwned>(
        &mut self,
        tries: &mut Tries,
        gathered: &mut Gathered<W>,
        check: &impl Fn(u32, &W) -> Result<(), TeamError>,
    ) -> Result<Option<Failure>, TeamError> {
        let (start, timeout) = (self.start, self.exchange.timeout());
        let mut next_look = start + PROCESSES;
        let mut missing = Vec::new();
        for left in Looks::within(timeout) {
            // The ended ranks are read before the words. So a word that a rank wrote before its end is read after this.
            let mut gone = BTreeMap::new();
            if left.is_zero() || Instant::now() >= next_look {
                gone = self.exchange.gone()?;
                if start.elapsed() >= PEACE {
                    check_wanted(self.exchange)?;
                }
                next_look = Instant::now() + PROCESSES;
            }
            self.gather(gathered, check)?;
            missing = gathered.missing();
            if missing.is_empty() {
                return self.end(None, tries);
            }
            if let Some(stands) = self.look()?
                && stands.number >= self.number
            {
                tries.heard = stands.number;
                match stands.failure {
                    Some(failure) => return Ok(Some(failure)),
                    // All words are there by now, and the next look reads them.
                    None => continue,
                }
            }
            self.exchange.failure()?;
            if let Some(error) = missing.iter().find_map(|rank| gone.remove(rank)) {
                return Err(error);
            }
            pause(self.exchange.store().as_ref(), start, left);
        }
        Err(TeamError::Absent {
            missing,
            topic: self.topic.to_owned(),
            waited: start.elapsed(),
        })
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
