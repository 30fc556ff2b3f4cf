//! What was heard of other ranks on the data plane, and what they have written into the store.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use membership_rules::record::RankGeneration;
use membership_rules::slots::Slots;

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
pub(super) struct Written {
    /// How often it has taken its lease.
    pub(super) takings: u32,
    /// The newest proposal that it has made or promised.
    pub(super) number: u64,
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

    pub(super) fn is_due(&self, now: Instant) -> bool {
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
    pub(super) fn words(&mut self, words: &[u64], now: Instant) {
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
    pub(super) fn only_of<T>(&mut self, unheard: &BTreeMap<u32, T>) {
        self.completed.retain(|slot, _| unheard.contains_key(slot));
    }

    pub(super) fn completed(&mut self, slot: u32, completed: u64, now: Instant) {
        let before = self.completed.insert(slot, completed);
        let now = self.moment(now);
        if before.is_some_and(|before| before != completed)
            && let Some(at) = self.at.get_mut(slot as usize)
        {
            *at = Some(now);
        }
    }

    /// How far the calls of this rank are.
    pub(super) fn called(&mut self, started: u32, finished: u32, now: Instant) {
        if started != finished || started != self.last.0 {
            self.last = (started, Some(now));
        }
    }

    /// Returns whether a call of this rank was under way within the stall bound.
    pub(super) fn calls(&self, now: Instant) -> bool {
        self.calls_within(self.contact, now)
    }

    /// Returns whether one was under way a moment ago.
    pub(super) fn calls_lately(&self, now: Instant) -> bool {
        self.calls_within(self.window, now)
    }

    fn calls_within(&self, window: Duration, now: Instant) -> bool {
        let (_, at) = self.last;
        at.is_some_and(|at| now.duration_since(at) <= window)
    }

    /// Returns the slots from which something was heard a moment ago.
    pub(super) fn lately(&self, now: Instant) -> Slots {
        self.within(self.window, now)
    }

    /// Returns the slots with which there was contact within the stall bound.
    pub(super) fn in_contact(&self, now: Instant) -> Slots {
        self.within(self.contact, now)
    }

    fn within(&self, window: Duration, now: Instant) -> Slots {
        let now = self.moment(now);
        let fresh = |at: &Option<Moment>| at.is_some_and(|at| Self::is_within(window, at, now));
        let all = (0u32..).zip(&self.at);
        all.filter(|(_, at)| fresh(at))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Returns the ranks that have written since the last look, `now` being what each has written so far. The first look says nothing.
    pub(super) fn writes(&mut self, now: BTreeMap<RankGeneration, Written>) -> Slots {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        // Nothing was forgotten as long as it counts, and all of it after that.
        heard.words(&[2, 2], now + TTL);
        assert_eq!(heard.at[0], None);
        assert_eq!(heard.within(TTL, now + TTL), [1].into_iter().collect());
        // A moment of the same name comes 2^32 ms later.
        heard.words(&[2, 2], now + 2 * TTL);
        let later = now + Duration::from_millis(1 << 32);
        assert!(heard.within(TTL, later).is_empty());
    }
}
