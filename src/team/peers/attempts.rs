//! Which attempt of a reunion an end is in, and which rails the attempt leaves out: decisions alone, which `reunite.rs` carries out.
//!
//! The rails that an attempt leaves out are settled when an end begins it, and never change. `model` visits every order in which two
//! ends may take their steps.

use crate::team::error::TeamError;
use crate::team::qps::set::{GivenUp, Heard};
use crate::team::rails::{Carriers, RailSet};

#[cfg(test)]
mod model;

/// The last attempt: records tell smaller numbers or this one.
pub(in crate::team) const LAST_ATTEMPT: u64 = u64::MAX - 1;

/// How far this end is with a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::team) struct Reunion {
    generation: u32,
    /// The attempt that was begun last; 0: none.
    attempt: u64,
    told: Told,
    /// Rails that it leaves out at this end.
    without: RailSet,
    /// Rails that it leaves out at the other end, once the other end has published them.
    theirs: Option<RailSet>,
}

/// How much of an attempt this end has published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Told {
    #[default]
    Nothing,
    Begun,
    Ready,
}

/// The newest attempt of the other end; number 0: none.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::team) struct Theirs {
    pub(in crate::team) attempt: u64,
    /// Rails that it leaves out.
    pub(in crate::team) without: RailSet,
}

/// Where this end is in its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::team) enum At {
    /// On the way.
    UnderWay,
    /// At the end: both were together.
    Together,
    /// Nowhere: it has come to nothing, or none was begun.
    Nowhere,
}

/// What follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::team) enum Outcome {
    Together,
    Wait,
    /// The attempt is over, and the next one leaves more rails out.
    GoRound,
    /// The attempt has come to nothing: the HCA has given this QP up.
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

    /// The first proof of the QPs to `generation` comes before any attempt: what it finds of rails holds for the first one.
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

    /// Returns the attempt with `generation` that this end is to be in, if the other end is in attempt `theirs`. `None`: no other one
    /// than that in which both came together.
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

    /// The rails that both ends leave out, if the other end names these. What it has named in this attempt before stays: an `Err` is
    /// that, and another set is refused.
    pub(in crate::team) fn agree(&mut self, theirs: RailSet) -> Result<RailSet, RailSet> {
        match *self.theirs.get_or_insert(theirs) {
            known if known == theirs => Ok(self.without.with(theirs)),
            known => Err(known),
        }
    }

    /// Returns whether this end has still to publish that it is in its attempt, or that its QPs are ready.
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
