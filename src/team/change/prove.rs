//! The proof of a newcomer before any kernel posts to it: each end posts a write of no bytes on each QP, and all these writes are
//! answered.
//!
//! The first proof is of the life that `Team::connect_peer` has begun, and needs no record: both ends have read what the other
//! offers, so both connect. If one end connects later, the HCA of the other end repeats its first write until then. If the HCA
//! gives up, or only some rails answer, both ends go on as in a reunion (`reunite.rs`), which agrees on another life and leaves out
//! rails that carry nothing. Until the peer is opened, an end whose own writes were answered follows the other end into such an
//! attempt.

use std::time::{Duration, Instant};

use super::reunite::{has_begun, reunite};
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::parts::Parts;
use crate::team::peers::attempts::Outcome;
use crate::team::peers::state::PeerState;

/// Time between the connection of an end and its first write: most often the other end has connected as well by then, and no
/// write is lost.
const FIRST: Duration = Duration::from_millis(10);
/// Time without an answer to the first write after which this end looks whether the other end has begun an attempt of a reunion.
const FOLLOW: Duration = Duration::from_millis(200);

/// The state of the first proof.
enum First {
    Proven,
    Waits,
    /// The other end may have begun an attempt.
    MayFollow,
}

/// Proves the QPs to generation `generation` of `peer`, with which they have been connected. Returns `true` when a write on each QP
/// was answered.
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
            // The life has failed, unless the peer is open and kernels post already.
            state.failed |= own.tables.is_closed(peer);
        }
        None => {}
    }
    reunite(own, peer, generation)
}

/// Goes on with the first proof of the present life, and returns its state; none if it is over, or if the peer is open.
fn first_proof(own: &Parts, peer: u32, generation: u32) -> Result<Option<First>, TeamError> {
    let entry = own.peers.get(peer)?;
    let Some(_only) = entry.try_work() else {
        return Err(TeamError::Recovering { peer });
    };
    let mut state = entry.state();
    let present = state.is_connected_with(generation) && own.tables.is_closed(peer);
    let Some(since) = state.introduced.filter(|_| present) else {
        return Ok(None);
    };
    // Without the thread that rings doorbells, no write would ever complete.
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
    // The time is read before the look. The deadline runs from the first answer on: until then the other end may not have
    // connected, and no rail is worse than another.
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
