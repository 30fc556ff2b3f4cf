//! Decides which attempt of a reunion an end is in, and which rails the attempt leaves out. `reunite.rs` carries the decisions out.
//!
//! The rails that an attempt leaves out are settled when an end begins it, and never change. The tests in `model` visit every order
//! in which two ends may take their steps.

use crate::team::error::TeamError;
use crate::team::qps::set::{GivenUp, Heard};
use crate::team::rails::{Carriers, RailSet};

#[cfg(test)]
mod model;

/// The last attempt. Records of attempts carry this number or a smaller one.
pub(in crate::team) const LAST_ATTEMPT: u64 = u64::MAX - 1;

/// The state of the reunion with one generation of a peer, at this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::team) struct Reunion {
    generation: u32,
    /// The attempt that this end has begun last; 0 if none.
    attempt: u64,
    told: Told,
    /// The rails that the attempt leaves out at this end.
    without: RailSet,
    /// The rails that the attempt leaves out at the other end, once the other end has published them.
    theirs: Option<RailSet>,
}

/// The part of an attempt that this end has published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Told {
    #[default]
    Nothing,
    Begun,
    Ready,
}

/// The newest attempt of the other end; `attempt` is 0 if the other end has begun none.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::team) struct Theirs {
    pub(in crate::team) attempt: u64,
    /// The rails that the attempt leaves out at the other end.
    pub(in crate::team) without: RailSet,
}

/// The state of an attempt at this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::team) enum At {
    /// The attempt goes on.
    UnderWay,
    /// The attempt succeeded: both ends came together.
    Together,
    /// The attempt has failed, or none was begun.
    Nowhere,
}

/// The step that follows when this end has judged the answers to its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::team) enum Outcome {
    Together,
    Wait,
    /// The attempt ends, and the next one leaves more rails out.
    GoRound,
    /// The attempt ends: the HCA has given this QP up.
    Unreached(GivenUp),
}

impl Told {
    fn of(ready: bool) -> Self {
        if ready { Self::Ready } else { Self::Begun }
    }
}

impl Reunion {
    pub(in crate::team) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Notes that the QPs to `generation` are proven before any attempt. If the proof finds rails that do not answer, the first
    /// attempt leaves them out.
    pub(in crate::team) fn introduce(&mut self, generation: u32) {
        if self.generation != generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
    }

    pub(in crate::team) fn without(&self) -> RailSet {
        self.without
    }

    /// Returns the attempt with `generation` that this end is to be in, if the other end is in attempt `theirs`. Returns `None` if
    /// both ends have come together and the other end has begun no later attempt.
    pub(in crate::team) fn next(
        &mut self,
        generation: u32,
        theirs: Theirs,
        at: At,
    ) -> Result<Option<u64>, TeamError> {
        if self.generation != generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
        let own = self.attempt;
        self.attempt = match at {
            _ if theirs.attempt > own => {
                self.without = theirs.without;
                theirs.attempt
            }
            At::UnderWay => return Ok(Some(own)),
            At::Together => return Ok(None),
            At::Nowhere if own == LAST_ATTEMPT => {
                let limit = format!("at most {LAST_ATTEMPT}");
                return Err(TeamError::limit("attempt", u64::MAX, limit));
            }
            At::Nowhere => own + 1,
        };
        (self.told, self.theirs) = (Told::Nothing, None);
        Ok(Some(self.attempt))
    }

    /// Returns the rails that both ends leave out, if the other end leaves out `theirs`. The set that the other end names first in
    /// an attempt stays. If it names another set later, the error is the first set.
    pub(in crate::team) fn agree(&mut self, theirs: RailSet) -> Result<RailSet, RailSet> {
        match *self.theirs.get_or_insert(theirs) {
            known if known == theirs => Ok(self.without.with(theirs)),
            known => Err(known),
        }
    }

    /// Returns whether this end has still to publish its attempt, or if `ready`, that its QPs are ready.
    pub(in crate::team) fn is_to_tell(&self, ready: bool) -> bool {
        self.told < Told::of(ready)
    }

    pub(in crate::team) fn has_told(&mut self, ready: bool) {
        self.told = Told::of(ready);
    }

    /// Judges the answers `heard` on the rails that `carriers` names. If `shares`, all of these rails but one may be left out. The
    /// next attempt that this end begins leaves out the rails without an answer, or none if no rail answered. `late`: the deadline
    /// has passed.
    pub(in crate::team) fn judge(
        &mut self,
        heard: Heard,
        late: bool,
        carriers: Carriers,
        shares: bool,
    ) -> Outcome {
        let waits = !heard.pending.is_empty() && !late;
        let dead = if late {
            heard.failed.with(heard.pending)
        } else {
            heard.failed
        };
        let outcome = match (heard.answered.is_empty(), dead.is_empty()) {
            (false, true) if !waits => Outcome::Together,
            (false, false) if shares && !waits => Outcome::GoRound,
            (_, false) if !waits => heard.first.map_or(Outcome::Wait, Outcome::Unreached),
            _ => Outcome::Wait,
        };
        match outcome {
            Outcome::Wait => {}
            Outcome::GoRound => self.without = carriers.without().with(dead),
            Outcome::Together | Outcome::Unreached(_) => self.without = RailSet::EMPTY,
        }
        outcome
    }
}
