//! The account of a transfer: one atomic word {handed, finished, closed, failed, cancelled, timed out}.
//!
//! Workers take slices from it and finish them, and any thread that wants the transfer to end closes it. Each of these steps is one
//! read-modify-write. It is *settled* when no slice will be handed out any more and all slices handed out are finished. The
//! read-modify-write that settles it concludes the transfer, and no other does. A transfer without slices is settled from the
//! start: its submitter concludes it.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::limits::MOST_SLICES;

const COUNT_BITS: u32 = 30;
const COUNT_MASK: u32 = MOST_SLICES;
const _: () = assert!(COUNT_MASK == (1 << COUNT_BITS) - 1);
/// One finished slice.
const FINISHED: u64 = 1 << COUNT_BITS;
/// The bits of both counts.
const COUNTS: u64 = CLOSED - 1;
const CLOSED: u64 = 1 << 60;
const FAILED: u64 = 1 << 61;
const CANCELLED: u64 = 1 << 62;
const TIMED_OUT: u64 = 1 << 63;

/// Why no more slices are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// No QP is left.
    Failed,
    /// The program has cancelled the transfer.
    Cancelled,
    /// Its deadline has passed.
    TimedOut,
}

/// How a transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes have landed.
    Done,
    /// A slice has failed for good.
    Failed,
    /// The program has cancelled it before it was done or had failed.
    Cancelled,
    /// Its deadline has passed before it was done or had failed.
    TimedOut,
}

/// The value of the word at one moment, and the value that each read-modify-write makes of it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Account(u64);

impl Account {
    /// Returns how many slices workers have taken. Their numbers are below this.
    #[must_use]
    pub const fn handed(self) -> u32 {
        self.count(0)
    }

    /// Returns how many of these slices are done or have failed.
    #[must_use]
    pub const fn finished(self) -> u32 {
        self.count(COUNT_BITS)
    }

    /// Returns whether nothing more is handed out.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Returns whether a slice has failed, or no QP was left.
    #[must_use]
    pub const fn has_failed(self) -> bool {
        self.0 & FAILED != 0
    }

    /// Returns whether the program has closed the transfer, before anything else did.
    #[must_use]
    pub const fn is_cancelled(self) -> bool {
        self.0 & CANCELLED != 0
    }

    /// Returns whether the deadline has closed the transfer, before anything else did.
    #[must_use]
    pub const fn has_timed_out(self) -> bool {
        self.0 & TIMED_OUT != 0
    }

    /// Hands out the next slices of `total`, at most `most`. None: the account is closed, or no slice is left.
    #[must_use]
    pub fn hand_out(self, most: u32, total: u32) -> Option<(Self, Range<u32>)> {
        let first = self.handed();
        let slices = most.min(total.min(MOST_SLICES).saturating_sub(first));
        if self.is_closed() || slices == 0 {
            return None;
        }
        let word = self.0 + u64::from(slices);
        Some((Self(word), first..first + slices))
    }

    /// Finishes `slices` that were handed out. The first failure closes the account.
    #[must_use]
    pub fn finish(self, slices: u32, failed: bool) -> Self {
        let flags = if failed { CLOSED | FAILED } else { 0 };
        Self(self.0.wrapping_add(u64::from(slices) * FINISHED) | flags)
    }

    /// Closes the account, so that no more slices are handed out. The thread that closes it first decides how the transfer ends,
    /// if it is not done by then.
    #[must_use]
    pub fn close(self, why: Close) -> Self {
        let flags = match why {
            Close::Failed => FAILED,
            _ if self.is_closed() => 0,
            Close::Cancelled => CANCELLED,
            Close::TimedOut => TIMED_OUT,
        };
        Self(self.0 | CLOSED | flags)
    }

    /// Closes the account and finishes all slices that were handed out. Those that were not finished count as failed. A settled
    /// account stays as it is.
    #[must_use]
    pub fn write_off(self, total: u32) -> Self {
        if self.is_settled(total) {
            return self;
        }
        let handed = u64::from(self.handed());
        let counts = handed + handed * FINISHED;
        Self(self.0 & !COUNTS | counts | CLOSED | FAILED)
    }

    /// Returns whether nothing more of `total` will be handed out, and all that was handed out is finished.
    #[must_use]
    pub fn is_settled(self, total: u32) -> bool {
        (self.is_closed() || self.handed() >= total) && self.finished() == self.handed()
    }

    /// Returns how a transfer of `total` slices ends, whose account is settled and says this.
    #[must_use]
    pub fn outcome(self, total: u32) -> Outcome {
        let is_whole = self.handed() >= total && !self.has_failed();
        if is_whole {
            Outcome::Done
        } else if self.is_cancelled() {
            Outcome::Cancelled
        } else if self.has_timed_out() {
            Outcome::TimedOut
        } else {
            Outcome::Failed
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low 32 bits, of which the mask keeps 30"
    )]
    const fn count(self, shift: u32) -> u32 {
        (self.0 >> shift) as u32 & COUNT_MASK
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("handed", &self.handed())
            .field("finished", &self.finished())
            .field("closed", &self.is_closed())
            .field("failed", &self.has_failed())
            .field("cancelled", &self.is_cancelled())
            .field("timed_out", &self.has_timed_out())
            .finish()
    }
}

/// What one read-modify-write has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// What the word said before.
    pub before: Account,
    /// What the word says since.
    pub after: Account,
}

impl Change {
    /// Returns whether this change has settled the account of a transfer of `total` slices. If so, its caller concludes the transfer.
    #[must_use]
    pub fn settles(self, total: u32) -> bool {
        self.after.is_settled(total) && !self.before.is_settled(total)
    }
}

/// The word that workers, cancellers and deadlines share.
#[derive(Debug, Default)]
pub struct AtomicAccount(AtomicU64);

impl AtomicAccount {
    /// Returns what the word says now.
    #[must_use]
    pub fn load(&self) -> Account {
        Account(self.0.load(Ordering::Acquire))
    }

    /// Begins the account of the next transfer of the slot. No worker has the slot.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Hands the next slices of `total` to one worker, at most `most`. None: the account is closed, or no slice is left.
    pub fn hand_out(&self, most: u32, total: u32) -> Option<Range<u32>> {
        let mut handed = None;
        let taken = |word| {
            let (next, slices) = Account(word).hand_out(most, total)?;
            handed = Some(slices);
            Some(next.0)
        };
        // Acquire pairs with `reset`. This releases nothing, since it settles nothing.
        self.0
            .fetch_update(Ordering::Acquire, Ordering::Acquire, taken)
            .ok()?;
        handed
    }

    /// Finishes `slices` that were handed out to the caller.
    ///
    /// Each change of this word releases what its caller has written of the transfer, and acquires what earlier callers have
    /// written. So the thread that concludes the transfer sees all of it.
    pub fn finish(&self, slices: u32, failed: bool) -> Change {
        if failed {
            return self.change(|account| account.finish(slices, true));
        }
        let added = u64::from(slices) * FINISHED;
        let before = Account(self.0.fetch_add(added, Ordering::AcqRel));
        let after = before.finish(slices, false);
        debug_assert!(
            after.finished() <= after.handed(),
            "finished twice: {after:?}"
        );
        Change { before, after }
    }

    /// Closes the account, so that no more slices are handed out.
    pub fn close(&self, why: Close) -> Change {
        self.change(|account| account.close(why))
    }

    /// Finishes all slices of `total` that were handed out. The caller knows that no other thread will finish any of them.
    pub fn write_off(&self, total: u32) -> Change {
        self.change(|account| account.write_off(total))
    }

    fn change(&self, next: impl Fn(Account) -> Account) -> Change {
        let step = |word| Some(next(Account(word)).0);
        let update = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        let (Ok(before) | Err(before)) = update;
        let before = Account(before);
        let after = next(before);
        debug_assert!(
            after.finished() <= after.handed(),
            "finished twice: {after:?}"
        );
        Change { before, after }
    }
}
