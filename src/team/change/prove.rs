//! A newcomer is proven before any kernel posts to it: each end writes nothing to the other on each QP, and both writes are answered.
//!
//! The first proof is of the life that `Team::connect_peer` has begun, and needs no record: both ends have read what the other
//! offers, so both connect. An end that comes later finds the other's first write repeated by its HCA. Where the HCA gives up, or
//! only some rails answer, the two go on as in a reunion (`reunite.rs`), which agrees on another life and leaves rails out that carry
//! nothing. An end whose own writes were answered follows the other end into such an attempt until the peer is opened.

use std::time::{Duration, Instant};

use super::reunite::{has_begun, reunite};
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::parts::Parts;
use crate::team::peers::attempts::Outcome;
use crate::team::peers::state::PeerState;

/// An end posts its first write so long after it has connected: most often the other end has connected as well by then, and no
/// write is lost.
const FIRST: Duration = Duration::from_millis(10);
/// When a first write has had no answer for so long, this end looks whether the other has begun an attempt of a reunion.
const FOLLOW: Duration = Duration::from_millis(200);

/// How the first proof is.
enum First {
    Proven,
    Waits,
    /// The other end may have begun an attempt.
    MayFollow,
}

/// Proves the QPs to generation `generation` of `peer`, with which they have been connected: `true` when a write on each was
/// answered.
pub(in crate::team) fn prove(own: &Parts, peer: u32, generation: u32) -> Result<bool, TeamError> {
    match first_proof(own, peer, generation)? {
        Some(First::Waits) => return Ok(false),
        Some(First::Proven) => return Ok(true),
        Some(First::MayFollow) => {
            let other = Holder::new(peer, generation);
            if !has_begun(own, other)? {
                return Ok(false);
            }
            let mut state = own.peers.get(peer)?.state();
            // Unless kernels post already.
            state.failed |= own.tables.is_closed(peer);
        }
        None => {}
    }
    reunite(own, peer, generation)
}

/// Returns the first proof of the present life; none if it is over, or if the peer is open.
fn first_proof(own: &Parts, peer: u32, generation: u32) -> Result<Option<First>, TeamError> {
    let links = own.peers.get(peer)?;
    let Some(_only) = links.try_work() else {
        return Err(TeamError::Recovering { peer });
    };
    let mut state = links.state();
    let present = state.is_connected_with(generation) && own.tables.is_closed(peer);
    let Some(since) = state.introduced.filter(|_| present) else {
        return Ok(None);
    };
    // Without the thread that rings, no write would ever complete.
    own.check_threads()?;
    if since.elapsed() < FIRST {
        return Ok(Some(First::Waits));
    }
    let may_follow = since.elapsed() >= FIRST + FOLLOW;
    let proof = prove_first(own, &mut state, peer, generation, may_follow);
    if proof.is_err() {
        (state.failed, state.doubted) = (true, true);
    }
    proof.map(Some)
}

fn prove_first(
    own: &Parts,
    state: &mut PeerState,
    peer: u32,
    generation: u32,
    may_follow: bool,
) -> Result<First, TeamError> {
    let gpu = own.gpu.as_ref();
    state.qps.post_probes(gpu)?;
    // Read before the look. The deadline runs from the first answer on: until then the other end may not have connected, and no
    // rail is worse than the others.
    let since = *state.probed.get_or_insert_with(Instant::now);
    let late = since.elapsed() >= own.config.deadline;
    let heard = state.qps.heard(gpu)?;
    if heard.answered.is_empty() {
        state.probed = None;
    }
    let shares = own.config.rails_that_share(own.rails.len()) > 1;
    let carriers = state.qps.carriers();
    state.reunion.introduce(generation);
    match state.reunion.judge(heard, late, carriers, shares) {
        Outcome::Together => {
            state.qps.count_probes(gpu)?;
            state.introduced = None;
            Ok(First::Proven)
        }
        Outcome::Unreached(given_up) => Err(TeamError::Unreached {
            peer,
            attempt: 0,
            qp: given_up.qp,
            syndrome: given_up.syndrome,
        }),
        Outcome::GoRound => {
            state.failed = true;
            Ok(First::Waits)
        }
        Outcome::Wait if may_follow => Ok(First::MayFollow),
        Outcome::Wait => Ok(First::Waits),
    }
}
