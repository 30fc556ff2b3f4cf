//! A reunion brings two living generations together again whose QPs have failed, because a switch was away or a QP went to Err.
//!
//! Both ends call `Team::reunite_peer` again and again, in any order. No call waits for the other end. Each end goes through
//! attempts (`attempt.rs`), which have numbers, and tells how far it is under `reunite/RANK.GENERATION/PEER.GENERATION`. When both
//! are ready, the host posts a probe on each QP: a write of no bytes. When all probes have completed, the life is the present one.
//! The peer stays closed.
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
//! a message about which of them leads.

use std::time::Instant;

use super::attempt::{Attempt, attempt_of, go_through};
use super::contact::read_again;
use super::life::{Keeps, begin_again, next_life};
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::parts::Parts;
use crate::team::peers::attempts::{At, Outcome, Theirs};
use crate::team::peers::state::{Making, PeerState, Said};
use crate::team::rails::RailSet;

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
    let other = Holder::new(peer, generation);
    let theirs = newest_of(own, other)?;
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
    let mut met = theirs.filter(|theirs| theirs.attempt == attempt);
    if let Some(met) = &mut met {
        met.without = agreed(own, other, met)?;
    }
    let tell = |ready| tell_attempt(own, other, ready);
    let end = |state: &mut PeerState, met: &Attempt| prove(own, state, peer, met);
    go_through(own, peer, met.as_ref(), tell, end)
}

/// Returns whether the other end has published an attempt.
pub(super) fn has_begun(own: &Parts, peer: Holder) -> Result<bool, TeamError> {
    Ok(newest_of(own, peer)?.is_some())
}

/// Returns the attempt that the other end has published, checked; none if it has published none.
fn newest_of(own: &Parts, peer: Holder) -> Result<Option<Attempt>, TeamError> {
    let key = peer.reunite_key(own.holder());
    attempt_of(
        own,
        peer,
        &key,
        own.config.rails_that_share(own.rails.len()),
    )
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
fn tell_attempt(own: &Parts, peer: Holder, ready: bool) -> Result<(), TeamError> {
    let entry = own.peers.get(peer.rank)?;
    let told = {
        let state = entry.state();
        let reunion = &state.reunion;
        if !reunion.is_to_tell(ready) {
            return Ok(());
        }
        Attempt::new(&state, reunion.attempt(), ready, reunion.without())
    };
    let key = own.holder().reunite_key(peer);
    let text = own.exchange.put_kept(&key, &told)?;
    let mut state = entry.state();
    state.said = Some(Said {
        generation: state.told,
        key,
        text,
    });
    state.reunion.has_told(ready);
    Ok(())
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
    begin_again(own, state, peer)
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
