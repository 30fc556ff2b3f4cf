//! What a rank has heard of other ranks on the data plane, and what they have written into the store.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use membership_rules::record::RankGeneration;
use membership_rules::slots::Slots;

/// What this rank has heard of others on the data plane, and in the store.
#[derive(Debug)]
pub(super) struct Heard {
    /// How long a word counts as a sign of life.
    window: Duration,
    /// How long a word counts as contact.
    contact: Duration,
    begun: Instant,
    read: Option<Instant>,
    /// What the layer said last of each slot. With `at` this takes 12 bytes a rank, because every rank keeps every other.
    words: Vec<u64>,
    /// When the layer or the QPs last said something new of each slot. None if that is longer ago than contact lasts.
    at: Vec<Option<Moment>>,
    /// What the QPs to ranks that are not heard said last.
    completed: BTreeMap<u32, u64>,
    /// The last call of this rank's device, and when it was under way.
    last: (u32, Option<Instant>),
    /// What each rank had written at the last look; None before the first look.
    written: Option<BTreeMap<RankGeneration, Written>>,
    /// The proposals up to this number say nothing of ranks that are not in `written`.
    forgotten: u64,
}

/// What a rank has written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// How often the rank has taken its lease.
    pub(super) takings: u32,
    /// The newest proposal that it has made or promised.
    pub(super) number: u64,
}

/// A time: 1 + the milliseconds since a [`Heard`] began, modulo 2^32.
type Moment = NonZeroU32;

impl Heard {
    /// Returns the state before the first look. A word is a sign of life for half of `ttl`, and contact for `stall`.
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

    /// Returns `now` as a moment. Moments wrap, and that does no harm however long this rank runs: [`Heard::words`] forgets what is older
    /// than contact.
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

    /// Takes the words that the layer says of each slot. The first words prove nothing, because they may be old.
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

    /// Forgets what the QPs said of ranks that are heard again. Their QPs are not asked any more.
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

    /// Notes how far the calls of this rank are.
    pub(super) fn called(&mut self, started: u32, finished: u32, now: Instant) {
        if started != finished || started != self.last.0 {
            self.last = (started, Some(now));
        }
    }

    /// Returns whether a call of this rank was under way within the stall bound.
    pub(super) fn calls(&self, now: Instant) -> bool {
        self.calls_within(self.contact, now)
    }

    /// Returns whether a call of this rank was under way within half a lease.
    pub(super) fn calls_lately(&self, now: Instant) -> bool {
        self.calls_within(self.window, now)
    }

    fn calls_within(&self, window: Duration, now: Instant) -> bool {
        let (_, at) = self.last;
        at.is_some_and(|at| now.duration_since(at) <= window)
    }

    /// Returns the slots of which something was heard within half a lease.
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

    /// Returns the slots of the ranks that have written since the last look. `now`: what each rank has written so far. The first look
    /// proves nothing.
    pub(super) fn writes(&mut self, now: BTreeMap<RankGeneration, Written>) -> Slots {
        let Some(written) = &mut self.written else {
            self.written = Some(now);
            return Slots::default();
        };
        let mut wrote = Slots::default();
        for (who, now) in now {
            // The number of times that a rank had taken its lease proves nothing when its row is read first.
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

    /// Notes that rows and promises were forgotten, those for the proposal of `number` included. When they are read again they are old.
    pub(super) fn forget_written(&mut self, number: u64) {
        self.forgotten = number;
        if let Some(written) = &mut self.written {
            written.clear();
        }
    }

    /// Takes over a new view. Earlier words count only for ranks for which `stays` holds.
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
        // The number may wrap: any other number counts, not only a greater one.
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
        // Two calls were made between two looks.
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
        // Nothing is forgotten while it counts, and all of it is forgotten after that.
        heard.words(&[2, 2], now + TTL);
        assert_eq!(heard.at[0], None);
        assert_eq!(heard.within(TTL, now + TTL), [1].into_iter().collect());
        // The same moment comes again 2^32 ms later.
        heard.words(&[2, 2], now + 2 * TTL);
        let later = now + Duration::from_millis(1 << 32);
        assert!(heard.within(TTL, later).is_empty());
    }
}
