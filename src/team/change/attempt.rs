//! One attempt of two ends to connect again the QPs that they have. A reunion (`reunite.rs`) makes attempts until one succeeds; a
//! recovery (`recover.rs`) has a single one.
//!
//! Each end resets its QPs for the attempt, with new packet numbers (`life.rs`), and tells how far it is under a key that only it
//! writes:
//!
//! 1. It publishes the attempt and its QPs.
//! 2. When the other end has published the same attempt, the QPs go to Rtr, and this end publishes that they are ready.
//! 3. When the other end is ready, the QPs go to Rts.
//!
//! No end sends before the other end receives. QPs of two different attempts are never connected, because packet numbers that
//! belong together stand in one record.

use serde::{Deserialize, Serialize};

use crate::fabric::PSN_BITS;
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::limits::VERSION;
use crate::team::parts::Parts;
use crate::team::peers::attempts::{LAST_ATTEMPT, Theirs};
use crate::team::peers::state::PeerState;
use crate::team::qps::set::QpOffer;
use crate::team::rails::RailSet;

/// The record of one end about its newest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attempt {
    version: u32,
    /// The number of the attempt, from 1.
    pub(super) attempt: u64,
    /// The QPs are in Rtr: they take what the other end sends.
    pub(super) ready: bool,
    /// Rails that this end leaves out.
    pub(super) without: RailSet,
    pub(super) qps: Vec<QpOffer>,
}

impl Attempt {
    /// Returns the record of this end about attempt `attempt`, for which its QPs are reset.
    pub(super) fn new(state: &PeerState, attempt: u64, ready: bool, without: RailSet) -> Self {
        Self {
            version: VERSION,
            attempt,
            ready,
            without,
            qps: state.qps.offers(),
        }
    }

    pub(super) fn theirs(&self) -> Theirs {
        Theirs {
            attempt: self.attempt,
            without: self.without,
        }
    }

    /// Refuses an attempt that the other end of QPs with these numbers cannot have published. It may leave out all but one of
    /// `rails` rails. The error is the reason in words.
    fn check(&self, known: &[u32], rails: u32) -> Result<(), String> {
        if !(1..=LAST_ATTEMPT).contains(&self.attempt) {
            let attempt = self.attempt;
            return Err(format!("attempt {attempt}; it must be 1 to {LAST_ATTEMPT}"));
        }
        let told: Vec<u32> = self.qps.iter().map(|qp| qp.qpn).collect();
        if told != known {
            return Err(format!("QPs {told:x?}; they were {known:x?}"));
        }
        let all = RailSet::first(rails);
        let some_left = self.without.is_empty() || !all.without(self.without).is_empty();
        if !self.without.without(all).is_empty() || !some_left {
            let without = self.without;
            return Err(format!(
                "it leaves out rails {without}; it may leave out some of {all}"
            ));
        }
        let numbers = self.qps.iter().flat_map(|qp| [Some(qp.psn), qp.far]);
        match numbers.flatten().find(|number| *number >= 1 << PSN_BITS) {
            Some(number) => Err(format!("PSN {number:#x}; it has 24 bits")),
            None => Ok(()),
        }
    }
}

/// Returns the attempt that the other end has published under `key`, checked; none if it has published none. It may leave out all
/// but one of `rails` rails.
pub(super) fn attempt_of(
    own: &Parts,
    peer: Holder,
    key: &str,
    rails: u32,
) -> Result<Option<Attempt>, TeamError> {
    let entry = own.peers.get(peer.rank)?;
    let known = entry.state().qps.remote_qpns();
    let told: Option<Attempt> = own.exchange.read_versioned(peer.rank, key)?;
    match told
        .as_ref()
        .map_or(Ok(()), |told| told.check(&known, rails))
    {
        Ok(()) => Ok(told),
        Err(reason) => {
            // Either this record is another writer's, or the records by which the two ends were connected are.
            entry.state().doubted = true;
            Err(own.exchange.record(peer.rank, key, &reason))
        }
    }
}

/// Goes through an attempt for which the QPs are reset, as far as is possible now. `met` is the record of the other end about the
/// same attempt; it names the rails that both ends leave out. `tell` publishes how far this end is, and gets whether its QPs are
/// ready. `end` is called when both ends are ready. Returns what `end` returns, and `false` before, or if the peer was failed
/// meanwhile.
pub(super) fn go_through(
    own: &Parts,
    peer: u32,
    met: Option<&Attempt>,
    tell: impl FnOnce(bool) -> Result<(), TeamError>,
    end: impl FnOnce(&mut PeerState, &Attempt) -> Result<bool, TeamError>,
) -> Result<bool, TeamError> {
    if let Some(met) = met {
        let receive = |state: &mut PeerState| {
            state.qps.leave_out(met.without);
            state.qps.receive(&met.qps).map(|()| true)
        };
        if !step(own, peer, receive)? {
            return Ok(false);
        }
    }
    tell(met.is_some())?;
    match met {
        Some(met) if met.ready => step(own, peer, |state| end(state, met)),
        _ => Ok(false),
    }
}

/// Makes a step of an attempt whose QPs have been reset. Returns `false` if the peer was failed meanwhile. After an error the peer
/// counts as failed.
fn step(
    own: &Parts,
    peer: u32,
    step: impl FnOnce(&mut PeerState) -> Result<bool, TeamError>,
) -> Result<bool, TeamError> {
    let mut state = own.peers.get(peer)?.state();
    if state.failed {
        return Ok(false);
    }
    let done = step(&mut state);
    state.failed |= done.is_err();
    state.doubted |= done.is_err();
    done
}
