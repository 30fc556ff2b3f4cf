//! The account word of a transfer: what the model asks of it, and one of plain fields.

use std::fmt::Debug;
use std::ops::Range;

/// What the word says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "bits of one word, each set by a rule of its own"
)]
pub struct Fields {
    /// Slices that workers have taken.
    pub handed: u32,
    /// Of those, the slices that are done or have failed.
    pub finished: u32,
    /// Nothing more is handed out.
    pub closed: bool,
    /// A slice has failed, or no QP is left.
    pub failed: bool,
    /// The user has closed it, and was the first to do so.
    pub cancelled: bool,
    /// The deadline has closed it, and was the first to do so.
    pub timed_out: bool,
}

/// Why nothing more is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// No QP is left.
    Failed,
    /// The user does not want it any more.
    Cancelled,
    /// It takes too long.
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

/// The word, with all that is ever done to it. Each function is one read-modify-write.
pub trait Account: Copy + Debug + PartialEq {
    /// A word that says `fields`.
    fn of(fields: Fields) -> Self;

    /// Returns what the word says.
    fn fields(self) -> Fields;

    /// Hands out the next slices of `total`, at most `most`. None: it is closed, or none is left.
    fn hand_out(self, most: u32, total: u32) -> Option<(Self, Range<u32>)>;

    /// Slices are finished; the first failure closes.
    #[must_use]
    fn finish(self, slices: u32, failed: bool) -> Self;

    /// Nothing more is handed out. The first to close, or to fail a slice, decides how the transfer ends.
    #[must_use]
    fn close(self, why: Close) -> Self;

    /// Nothing more is handed out, and what was counts as finished: as failed, where it was not. A settled word stays as it is.
    #[must_use]
    fn write_off(self, total: u32) -> Self;

    /// Nothing more will be handed out, and all that was handed out is finished.
    fn is_settled(self, total: u32) -> bool;

    /// Returns how the transfer ends, if this is settled.
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
