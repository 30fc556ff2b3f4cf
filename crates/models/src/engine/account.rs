//! The account word of a transfer: the operations that the model needs of it, and the fields that it has.

use std::fmt::Debug;
use std::ops::Range;

/// The fields of the word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "bits of one word, each set by a rule of its own"
)]
pub struct Fields {
    /// The number of slices that workers have taken.
    pub handed: u32,
    /// The number of these slices that are done or have failed.
    pub finished: u32,
    /// True if nothing more is handed out.
    pub closed: bool,
    /// True if a slice has failed, or no QP is left.
    pub failed: bool,
    /// True if the user has closed the transfer, and was the first to do so.
    pub cancelled: bool,
    /// True if the deadline has closed the transfer, and was the first to do so.
    pub timed_out: bool,
}

/// Why no more slices are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// No QP is left.
    Failed,
    /// The user has cancelled the transfer.
    Cancelled,
    /// The transfer takes too long.
    TimedOut,
}

/// How a transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Outcome {
    Done,
    Failed,
    Cancelled,
    TimedOut,
}

/// The word, with all operations on it. Each function is one read-modify-write.
pub trait Account: Copy + Debug + PartialEq {
    /// Returns a word with `fields`.
    fn of(fields: Fields) -> Self;

    /// Returns the fields of the word.
    fn fields(self) -> Fields;

    /// Hands out the next slices of `total`, at most `most`. Returns None if the transfer is closed or no slice is left.
    fn hand_out(self, most: u32, total: u32) -> Option<(Self, Range<u32>)>;

    /// Counts `slices` as finished. The first failure closes the transfer.
    #[must_use]
    fn finish(self, slices: u32, failed: bool) -> Self;

    /// Closes the transfer, so that no more slices are handed out. The first to close it, or to fail a slice, decides how the transfer
    /// ends.
    #[must_use]
    fn close(self, why: Close) -> Self;

    /// Closes the transfer, and counts every slice that was handed out as finished, and as failed if it was not finished. A settled word
    /// stays as it is.
    #[must_use]
    fn write_off(self, total: u32) -> Self;

    /// Returns whether no more slices will be handed out, and all slices that were are finished.
    fn is_settled(self, total: u32) -> bool;

    /// Returns how the transfer ends, if it is settled.
    fn outcome(self, total: u32) -> Outcome;
}

impl Account for Fields {
    fn of(fields: Fields) -> Self {
        fields
    }

    fn fields(self) -> Fields {
        self
    }

    fn hand_out(self, most: u32, total: u32) -> Option<(Self, Range<u32>)> {
        let slices = most.min(total.saturating_sub(self.handed));
        if self.closed || slices == 0 {
            return None;
        }
        let handed = self.handed + slices;
        Some((Self { handed, ..self }, self.handed..handed))
    }

    fn finish(self, slices: u32, failed: bool) -> Self {
        Self {
            finished: self.finished + slices,
            closed: self.closed || failed,
            failed: self.failed || failed,
            ..self
        }
    }

    fn close(self, why: Close) -> Self {
        Self {
            closed: true,
            failed: self.failed || why == Close::Failed,
            cancelled: self.cancelled || !self.closed && why == Close::Cancelled,
            timed_out: self.timed_out || !self.closed && why == Close::TimedOut,
            ..self
        }
    }

    fn write_off(self, total: u32) -> Self {
        if self.is_settled(total) {
            self
        } else {
            Self {
                finished: self.handed,
                closed: true,
                failed: true,
                ..self
            }
        }
    }

    fn is_settled(self, total: u32) -> bool {
        (self.closed || self.handed >= total) && self.finished == self.handed
    }

    fn outcome(self, total: u32) -> Outcome {
        match self {
            _ if self.handed >= total && !self.failed => Outcome::Done,
            Self {
                cancelled: true, ..
            } => Outcome::Cancelled,
            Self {
                timed_out: true, ..
            } => Outcome::TimedOut,
            _ => Outcome::Failed,
        }
    }
}
