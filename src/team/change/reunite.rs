//! A reunion brings two living generations together again whose QPs have failed, because a switch was away or a QP went to Err.
//!
//! Both ends call `Team::reunite_peer` again and again, in any order. No call waits for the other end. Each end goes through
//! attempts, which have numbers, and tells how far it is under a key that only it writes, `reunite/RANK.GENERATION/PEER.GENERATION`:
//!
//! 1. It ends the life of its QPs and resets them for the next, with new packet numbers. It publishes the attempt and its QPs.
//! 2. When the other end has published the same attempt, the QPs go to Rtr, and this end publishes that they are ready.
//! 3. When the other end is ready, the QPs go to Rts, and the host posts a probe on each: a write of no bytes.
//! 4. When all probes have completed, the life is the present one. The peer stays closed.
//!
//! **Rails.** An attempt names rails that it leaves out: none at first. An end may have an answer through one rail and none through
//! another, after the HCA has given up or the team deadline has passed. Then it ends the attempt, and the next one leaves that rail
//! out as well. An end that follows to a higher attempt takes over what that one leaves out. If both ends begin the same attempt,
//! it leaves out both sets. Both ends read both sets before they connect, so they connect the same QPs. An attempt leaves out no
//! rail when no rail has answered, or when none would be left: then all must answer. What kernels post to QPs of a rail that is
//! left out goes by other QPs (`rails.rs`) until the pair is connected anew. A new connection begins with all rails.
//!
//! An attempt stands for one reset of the QPs, so an end that has to begin again, whatever the reason, begins the next attempt. An
//! end that finds a higher number in the other end's record goes on with that number. So both ends come to the same number without
//! a message about which of them leads. QPs of two different attempts are never connected, because packet numbers that belong
//! together stand in one record.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::known::read_again;
use super::life::{Keeps, next_life, posting};
use super::steps::finish;
use crate::fabric::PSN_BITS;
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::limits::VERSION;
use crate::team::parts::Parts;
use crate::team::peers::attempts::{At, LAST_ATTEMPT, Outcome, Theirs};
use crate::team::peers::state::{Making, PeerState, Said};
use crate::team::qps::set::QpOffer;
use crate::team::rails::RailSet;

/// The record of one end about its newest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Attempt {
    version: u32,
    /// The number of the attempt, from 1.
    attempt: u64,
    /// The QPs are in Rtr: they take what the other end sends.
    ready: bool,
    /// Rails that this end leaves out.
    without: RailSet,
    qps: Vec<QpOffer>,
}

/// Brings this rank and generation `generation` of `peer` together again after `Team::fail_peer`, as far as is possible now.
/// Returns whether both are together.
pub(in crate::team) fn reunite(own: &Parts, peer: u32, generation: u32) -> Result<bool, TeamError> {
    let entry = own.peers.get(peer)?;
    let Some(_only) = entry.try_work() else {
        return Err(TeamError::Recovering { peer });
    };
    let doubted = {
        let state = entry.state();
        check_same(&state, peer, generation)?;
        if state.is_connected_with(generation) && !own.tables.is_closed(peer) {
            return Ok(true);
        }
        state.doubted
    };
    // Without the thread that rings doorbells, no probe would ever complete.
    own.check_threads()?;
    if doubted {
        read_again(own, peer, generation)?;
    }
    let known = entry.state().qps.remote_qpns();
    let other = Holder::new(peer, generation);
    let theirs = attempt_of(own, other, &known)?;
    let newest = theirs
        .as_ref()
        .map_or_else(Theirs::default, Attempt::theirs);
    let Some(attempt) = next_attempt(&mut entry.state(), generation, newest)? else {
        return Ok(true);
    };
    if !reset_for(own, peer, attempt)? {
        return Ok(false);
    }
    let places = entry.state().places.take();
    if let Some(places) = places {
        own.tables.set_places(peer, &places)?;
    }
    let met = theirs.filter(|theirs| theirs.attempt == attempt);
    if let Some(met) = &met {
        let without = agreed(own, other, met)?;
        let meet = |state: &mut PeerState| {
            state.qps.leave_out(without);
            state.qps.receive(&met.qps).map(|()| true)
        };
        if !step(own, peer, meet)? {
            return Ok(false);
        }
    }
    let key = own.holder().reunite_key(other);
    tell_attempt(own, peer, &key, met.is_some())?;
    match met {
        Some(met) if met.ready => step(own, peer, |state| prove(own, state, peer, &met)),
        _ => Ok(false),
    }
}

/// Returns whether the other end has published an attempt.
pub(super) fn has_begun(own: &Parts, peer: Holder) -> Result<bool, TeamError> {
    let known = own.peers.get(peer.rank)?.state().qps.remote_qpns();
    Ok(attempt_of(own, peer, &known)?.is_some())
}

/// Returns the attempt that the other end has published, checked; none if it has published none.
fn attempt_of(own: &Parts, peer: Holder, known: &[u32]) -> Result<Option<Attempt>, TeamError> {
    let key = peer.reunite_key(own.holder());
    let told: Option<Attempt> = own.exchange.read_versioned(peer.rank, &key)?;
    let rails = own.config.rails_that_share(own.rails.len());
    match told
        .as_ref()
        .map_or(Ok(()), |told| told.check(known, rails))
    {
        Ok(()) => Ok(told),
        Err(reason) => {
            // Either this record is another writer's, or the records by which the two ends were connected are.
            own.peers.get(peer.rank)?.state().doubted = true;
            Err(own.exchange.record(peer.rank, &key, &reason))
        }
    }
}

/// Returns the rails that both ends leave out in this attempt.
fn agreed(own: &Parts, peer: Holder, met: &Attempt) -> Result<RailSet, TeamError> {
    let agreed = own.peers.get(peer.rank)?.state().reunion.agree(met.without);
    agreed.map_err(|known| {
        let reason = format!(
            "attempt {} leaves out rails {}; it left out {known} before, and one attempt keeps its rails",
            met.attempt, met.without
        );
        let key = peer.reunite_key(own.holder());
        own.exchange.record(peer.rank, &key, &reason)
    })
}

/// Resets the QPs for `attempt`, unless that has been done. Returns `false` if kernels hold guards.
fn reset_for(own: &Parts, peer: u32, attempt: u64) -> Result<bool, TeamError> {
    let making = Making::Reunion(attempt);
    {
        let state = own.peers.get(peer)?.state();
        if state.making == Some(making) && state.qps.is_reset() {
            return Ok(true);
        }
    }
    match next_life(own, peer, Keeps::QpsAndKeys(making), Instant::now()) {
        Ok(()) => Ok(true),
        Err(TeamError::Guarded { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Tells the other end how far this end is, unless that has been told.
fn tell_attempt(own: &Parts, peer: u32, key: &str, ready: bool) -> Result<(), TeamError> {
    let entry = own.peers.get(peer)?;
    let told = {
        let state = entry.state();
        if !state.reunion.is_to_tell(ready) {
            return Ok(());
        }
        Attempt {
            version: VERSION,
            attempt: state.reunion.attempt(),
            ready,
            without: state.reunion.without(),
            qps: state.qps.offers(),
        }
    };
    let text = own.exchange.put_kept(key, &told)?;
    let mut state = entry.state();
    state.said = Some(Said {
        generation: state.told,
        key: key.to_owned(),
        text,
    });
    state.reunion.has_told(ready);
    Ok(())
}

/// Makes a step of an attempt whose QPs have been reset. Returns `false` if the peer was failed meanwhile. An error ends the
/// attempt.
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

/// Connects the QPs, posts their probes, and looks at them. Returns `true` if the life is the present one, and `false` if probes
/// are pending or another attempt is to leave rails out.
fn prove(own: &Parts, state: &mut PeerState, peer: u32, met: &Attempt) -> Result<bool, TeamError> {
    let gpu = own.gpu.as_ref();
    state.qps.send(own.peers.patience(), &met.qps)?;
    state.qps.post_probes(gpu)?;
    let since = *state.probed.get_or_insert_with(Instant::now);
    let late = since.elapsed() >= own.config.deadline;
    let heard = state.qps.heard(gpu)?;
    let shares = own.config.rails_that_share(own.rails.len()) > 1;
    let carriers = state.qps.carriers();
    match state.reunion.judge(heard, late, carriers, shares) {
        Outcome::Together => come_together(own, state, peer).map(|()| true),
        Outcome::Unreached(given_up) => Err(TeamError::Unreached {
            peer,
            attempt: met.attempt,
            qp: given_up.qp,
            syndrome: given_up.syndrome,
        }),
        Outcome::Wait => Ok(false),
        Outcome::GoRound => {
            state.failed = true;
            Ok(false)
        }
    }
}

/// Ends an attempt in which every QP was answered: its life is the present one. Releases kernels that still post to QPs of a rail
/// that is left out.
fn come_together(own: &Parts, state: &mut PeerState, peer: u32) -> Result<(), TeamError> {
    let gpu = own.gpu.as_ref();
    state.qps.count_probes(gpu)?;
    state.qps.release_left_out(gpu)?;
    let life = state.next_life();
    own.tables.set_life(peer, &posting(own, state, life))?;
    finish(state, life);
    Ok(())
}

/// Returns the attempt with `generation` that this end is to be in, if the other end is in attempt `theirs`. Returns `None` if both
/// ends have come together and the other end has begun no later attempt.
fn next_attempt(
    state: &mut PeerState,
    generation: u32,
    theirs: Theirs,
) -> Result<Option<u64>, TeamError> {
    let before = state.reunion.attempt();
    let at = match state.making {
        Some(Making::Reunion(making)) if making == before && !state.failed => At::UnderWay,
        _ if state.is_connected_with(generation) => At::Together,
        _ => At::Nowhere,
    };
    state.reunion.next(generation, theirs, at)
}

impl Attempt {
    fn theirs(&self) -> Theirs {
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

/// Refuses a generation that the QPs are not for, or were never connected with.
fn check_same(state: &PeerState, peer: u32, generation: u32) -> Result<(), TeamError> {
    let newest = match state.making {
        Some(Making::Peer(making)) => making.max(state.told),
        _ => state.told,
    };
    if generation < newest {
        return Err(TeamError::Generation {
            peer,
            generation,
            least: newest,
        });
    }
    if state.connected == 0 || state.connected != generation || state.told != generation {
        return Err(TeamError::NotConnected { peer });
    }
    Ok(())
}
