//! Which attempt of a reunion an end is in, and which rails the attempt leaves out: decisions alone, which `reunite.rs` carries out.
//!
//! The rails that an attempt leaves out are settled when an end begins it, and never change. `model` visits every order in which two
//! ends may take their steps.

use super::TeamError;
use super::rails::{Carriers, RailSet};

#[cfg(test)]
mod model;

/// The last attempt: records tell smaller numbers or this one.
pub(super) const LAST_ATTEMPT: u64 = u64::MAX - 1;

/// How far this end is with a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reunion {
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

/// Where this end is in its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    /// On the way.
    UnderWay,
    /// At the end: both were together.
    Together,
    /// Nowhere: it has come to nothing, or none was begun.
    Nowhere,
}

/// What the probes of an attempt say of the rails that carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Each QP of these was answered.
    pub(super) answered: RailSet,
    /// Each of these has a QP that the HCA has given up.
    pub(super) failed: RailSet,
    /// The others.
    pub(super) pending: RailSet,
}

/// What follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Together,
    Wait,
    /// The attempt is over, and the next one leaves more rails out.
    GoRound,
    /// The attempt has come to nothing.
    Unreached,
}

impl Told {
    fn of(ready: bool) -> Self {
        match ready {
            true => Self::Ready,
            false => Self::Begun,
        }
    }
}

impl Reunion {
    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The first proof of the QPs to `generation` comes before any attempt: what it finds of rails holds for the first one.
    pub(super) fn introduce(&mut self, generation: u32) {
        if self.generation != generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
    }

    pub(super) fn without(&self) -> RailSet {
        self.without
    }

    /// The attempt with `generation` that this end is to be in, if the other end is in attempt `theirs` (0: none), which leaves out
    /// rails. `None`: no other one than that in which both came together.
    pub(super) fn next(
        &mut self,
        generation: u32,
        (theirs, without): (u64, RailSet),
        at: At,
    ) -> Result<Option<u64>, TeamError> {
        if self.generation != generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
        let own = self.attempt;
        self.attempt = match theirs > own {
            true => {
                self.without = without;
                theirs
            }
            false if at == At::UnderWay => return Ok(Some(own)),
            false if at == At::Together => return Ok(None),
            false if own == LAST_ATTEMPT => {
                let limit = format!("at most {LAST_ATTEMPT}");
                return Err(TeamError::limit("attempt", u64::MAX, limit));
            }
            false => own + 1,
        };
        (self.told, self.theirs) = (Told::Nothing, None);
        Ok(Some(self.attempt))
    }

    /// The rails that both ends leave out, if the other end names these. What it has named in this attempt before stays: an `Err` is
    /// that, and another set is refused.
    pub(super) fn agree(&mut self, theirs: RailSet) -> Result<RailSet, RailSet> {
        match *self.theirs.get_or_insert(theirs) {
            known if known == theirs => Ok(self.without.with(theirs)),
            known => Err(known),
        }
    }

    /// Whether this end has still to publish that it is in its attempt, or that its QPs are ready.
    pub(super) fn is_to_tell(&self, ready: bool) -> bool {
        self.told < Told::of(ready)
    }

    pub(super) fn has_told(&mut self, ready: bool) {
        self.told = Told::of(ready);
    }

    /// Judges the answers `heard` on the rails that `carriers` names. If `shares`, all of these rails but one may be left out. The
    /// next attempt that this end begins leaves out the rails without an answer, or none if no rail answered. `late`: the deadline
    /// has passed.
    pub(super) fn judge(
        &mut self,
        heard: Heard,
        late: bool,
        (carriers, shares): (Carriers, bool),
    ) -> Outcome {
        let waits = !heard.pending.is_empty() && !late;
        let dead = match late {
            true => heard.failed.with(heard.pending),
            false => heard.failed,
        };
        let outcome = match (heard.answered.is_empty(), dead.is_empty()) {
            (false, true) if !waits => Outcome::Together,
            (false, false) if shares && !waits => Outcome::GoRound,
            (_, false) if !heard.failed.is_empty() && !waits => Outcome::Unreached,
            _ => Outcome::Wait,
        };
        match outcome {
            Outcome::Wait => {}
            Outcome::GoRound => self.without = carriers.without().with(dead),
            Outcome::Together | Outcome::Unreached => self.without = RailSet::EMPTY,
        }
        outcome
    }
}
