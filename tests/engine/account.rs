//! The account word: the model of transfers runs on it, it does what plain fields do, and threads that share it conclude once.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use models::engine::account::{self as model, Account as _, Fields};
use models::engine::transfer;
use models::explore::search;
use warpverbs::internal::engine::{Account, AtomicAccount, Close, MOST_SLICES, Outcome};

/// The runtime's word as the model's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Word(Account);

impl model::Account for Word {
    /// By the transitions that lead to it.
    fn of(fields: Fields) -> Self {
        let mut word = Account::default();
        if let Some((next, _)) = word.hand_out(fields.handed, fields.handed) {
            word = next;
        }
        if fields.cancelled {
            word = word.close(Close::Cancelled);
        }
        if fields.timed_out {
            word = word.close(Close::TimedOut);
        }
        let word = Self(word.finish(0, fields.failed).finish(fields.finished, false));
        assert_eq!(word.fields(), fields, "no transitions lead there");
        word
    }

    fn fields(self) -> Fields {
        Fields {
            handed: self.0.handed(),
            finished: self.0.finished(),
            closed: self.0.is_closed(),
            failed: self.0.has_failed(),
            cancelled: self.0.is_cancelled(),
            timed_out: self.0.has_timed_out(),
        }
    }

    fn hand_out(self, most: u32, total: u32) -> Option<(Self, Range<u32>)> {
        let (next, slices) = self.0.hand_out(most, total)?;
        Some((Self(next), slices))
    }

    fn finish(self, slices: u32, failed: bool) -> Self {
        Self(self.0.finish(slices, failed))
    }

    fn close(self, why: model::Close) -> Self {
        Self(self.0.close(match why {
            model::Close::Failed => Close::Failed,
            model::Close::Cancelled => Close::Cancelled,
            model::Close::TimedOut => Close::TimedOut,
        }))
    }

    fn write_off(self, total: u32) -> Self {
        Self(self.0.write_off(total))
    }

    fn is_settled(self, total: u32) -> bool {
        self.0.is_settled(total)
    }

    fn outcome(self, total: u32) -> model::Outcome {
        match self.0.outcome(total) {
            Outcome::Done => model::Outcome::Done,
            Outcome::Failed => model::Outcome::Failed,
            Outcome::Cancelled => model::Outcome::Cancelled,
            Outcome::TimedOut => model::Outcome::TimedOut,
        }
    }
}

#[test]
fn the_model_of_transfers_holds_on_the_word_of_the_runtime() {
    let mut states = 0;
    for transfer in transfer::configurations::<Word>() {
        let found = search(&transfer);
        let name = transfer.name;
        if let Some((broken, way)) = found.violation {
            panic!("{name}: {broken:?} after\n  {}", way.join("\n  "));
        }
        let expected = transfer.states.unwrap_or(found.states);
        assert_eq!(found.states, expected, "{name}");
        states += found.states;
    }
    println!("{states} states");
}

#[test]
fn the_word_does_what_plain_fields_do() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for run in 0..2_000 {
        let place = format!("seed {seed}, run {run}");
        let total = match random.u32(0..4) {
            0 => random.u32(0..6),
            1 => MOST_SLICES - random.u32(0..3),
            2 => MOST_SLICES.saturating_add(random.u32(1..3)),
            _ => random.u32(..=MOST_SLICES),
        };
        let (mut word, mut fields) = (Word(Account::default()), Fields::default());
        for _ in 0..random.u32(1..40) {
            let left = fields.handed - fields.finished;
            match random.u32(0..8) {
                0..=3 => {
                    let most = [1, 16, total / 3, u32::MAX][random.usize(0..4)];
                    let handed = word.hand_out(most, total);
                    // Further numbers do not exist.
                    let same = fields.hand_out(most, total.min(MOST_SLICES));
                    let taken = handed.as_ref().map(|(_, slices)| slices.clone());
                    assert_eq!(
                        taken,
                        same.as_ref().map(|(_, slices)| slices.clone()),
                        "{place}"
                    );
                    word = handed.map_or(word, |(next, _)| next);
                    fields = same.map_or(fields, |(next, _)| next);
                }
                4..=6 if left > 0 => {
                    let (slices, failed) = (random.u32(1..=left), random.u32(0..6) == 0);
                    word = word.finish(slices, failed);
                    fields = fields.finish(slices, failed);
                }
                _ => {
                    let ways = [
                        model::Close::Failed,
                        model::Close::Cancelled,
                        model::Close::TimedOut,
                    ];
                    let why = ways[random.usize(0..3)];
                    if random.u32(0..30) == 0 {
                        (word, fields) = (word.write_off(total), fields.write_off(total));
                    } else if random.u32(0..8) == 0 {
                        (word, fields) = (word.close(why), fields.close(why));
                    }
                }
            }
            assert_eq!(word.fields(), fields, "{place}");
            assert_eq!(word.is_settled(total), fields.is_settled(total), "{place}");
            assert_eq!(word.outcome(total), fields.outcome(total), "{place}");
        }
    }
}

#[test]
fn counts_at_their_limit_touch_no_flag() {
    let (all, slices) = Account::default().hand_out(u32::MAX, u32::MAX).unwrap();
    assert_eq!(slices, 0..MOST_SLICES);
    assert_eq!(all.hand_out(1, u32::MAX), None);
    let done = all.finish(MOST_SLICES, false);
    assert_eq!((done.handed(), done.finished()), (MOST_SLICES, MOST_SLICES));
    let flags = [
        Account::is_closed,
        Account::has_failed,
        Account::is_cancelled,
    ];
    assert!(flags.iter().all(|flag| !flag(done)) && !done.has_timed_out());
    assert_eq!(done.outcome(MOST_SLICES), Outcome::Done);
    assert_eq!(done.write_off(MOST_SLICES), done, "it is settled");
    let off = all.finish(1, false).write_off(MOST_SLICES);
    assert_eq!((off.handed(), off.finished()), (MOST_SLICES, MOST_SLICES));
    assert!(off.has_failed() && !off.is_cancelled() && !off.has_timed_out());
}

#[test]
fn an_account_without_handed_out_slices_is_settled_by_its_closer_alone() {
    let account = AtomicAccount::default();
    assert_eq!(account.hand_out(0, 5), None);
    assert!(account.close(Close::TimedOut).settles(5));
    assert!(!account.close(Close::Cancelled).settles(5));
    assert_eq!(account.hand_out(1, 5), None);
    assert_eq!(account.load().outcome(5), Outcome::TimedOut);
    // Without slices it is settled before any worker comes.
    account.reset();
    assert!(account.load().is_settled(0) && !account.close(Close::Cancelled).settles(0));
    assert_eq!(account.load().outcome(0), Outcome::Done);
}

/// Four workers share an account with a canceller. Each slice is finished once, one of all changes settles.
#[test]
fn threads_that_share_an_account_conclude_once() {
    let first = fastrand::u64(..);
    for run in 0..300 {
        let seed = first.wrapping_add(run);
        let mut random = fastrand::Rng::with_seed(seed);
        let total = random.u32(1..400);
        let (fails, cancels) = (random.u32(0..800), random.bool());
        let account = AtomicAccount::default();
        let seen: Vec<AtomicU32> = (0..total).map(|_| AtomicU32::new(0)).collect();
        let concluded = AtomicU32::new(0);
        let count = |settles: bool| concluded.fetch_add(u32::from(settles), Ordering::Relaxed);
        let work = |chain| {
            while let Some(slices) = account.hand_out(chain, total) {
                for slice in slices {
                    seen[slice as usize].fetch_add(1, Ordering::Relaxed);
                    count(account.finish(1, slice == fails).settles(total));
                }
            }
        };
        thread::scope(|scope| {
            for chain in [1, 2, 3, 16] {
                scope.spawn(move || work(chain));
            }
            if cancels {
                scope.spawn(|| count(account.close(Close::Cancelled).settles(total)));
            }
        });
        let end = account.load();
        let numbers = seen.iter().map(|count| count.load(Ordering::Relaxed));
        let expected = (0..total).map(|slice| u32::from(slice < end.handed()));
        assert!(numbers.eq(expected), "seed {seed}: {end:?}");
        assert_eq!(end.finished(), end.handed(), "seed {seed}");
        assert_eq!(concluded.into_inner(), 1, "seed {seed}: {end:?}");
        let outcome = end.outcome(total);
        let is_whole = end.handed() == total && !end.has_failed();
        assert_eq!(outcome == Outcome::Done, is_whole, "seed {seed}: {end:?}");
        assert!(cancels || outcome != Outcome::Cancelled, "seed {seed}");
        assert!(fails < total || outcome != Outcome::Failed, "seed {seed}");
    }
}
