//! A newcomer is proven before any kernel posts to it: each end writes nothing to the other on each QP, and both writes are answered.
//!
//! The first proof is of the life that [`Team::connect_peer`] has begun, and needs no record: both ends have read what the other
//! offers, so both connect. An end that comes later finds the other's first write repeated by its HCA. Where the HCA gives up, or
//! only some rails answer, the two go on as in a reunion (`reunite.rs`), which agrees on another life and leaves rails out that carry
//! nothing. An end whose own writes were answered follows the other end into such an attempt until the peer is opened.

use std::time::{Duration, Instant};

use super::attempts::Outcome;
use super::links::PeerState;
use super::{Team, TeamError};

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

impl Team {
    /// Whether the QPs have been connected with generation `generation` of `peer`, whether or not they work.
    pub(crate) fn is_introduced(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        let state = self.peer(peer)?.state();
        let same = state.connected == generation && state.told == generation;
        Ok(same && !state.is_for_another())
    }

    /// Proves the QPs to generation `generation` of `peer`, with which they have been connected: `true` when a write on each was
    /// answered. `false`: call it again. Waits for nothing. The peer stays closed until [`Team::open_peer`]. While it is closed,
    /// `true` also means that the other end has begun no later attempt.
    ///
    /// # Errors
    /// [`TeamError::Unreached`] if an HCA has given up: the next call begins another attempt, so the caller waits before it. Else as
    /// [`Team::reunite_peer`].
    pub(crate) fn prove_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        match self.first_proof(peer, generation)? {
            Some(First::Waits) => return Ok(false),
            Some(First::Proven) => return Ok(true),
            Some(First::MayFollow) => {
                if !self.has_begun((peer, generation))? {
                    return Ok(false);
                }
                let mut state = self.peer(peer)?.state();
                // Unless kernels post already.
                state.failed |= self.tables.is_closed(peer);
            }
            None => {}
        }
        self.reunite_peer(peer, generation)
    }

    /// The first proof of the present life; none if it is over, or if the peer is open.
    fn first_proof(&self, peer: u32, generation: u32) -> Result<Option<First>, TeamError> {
        let links = self.peer(peer)?;
        let Some(_only) = links.try_work() else {
            return Err(TeamError::Recovering { peer });
        };
        let mut state = links.state();
        let present = state.is_connected_with(generation) && self.tables.is_closed(peer);
        let Some(since) = state.introduced.filter(|_| present) else {
            return Ok(None);
        };
        // Without the thread that rings, no write would ever complete.
        self.check_threads()?;
        if since.elapsed() < FIRST {
            return Ok(Some(First::Waits));
        }
        let may_follow = since.elapsed() >= FIRST + FOLLOW;
        let proof = self.prove_first(&mut state, peer, generation, may_follow);
        if proof.is_err() {
            (state.failed, state.doubted) = (true, true);
        }
        proof.map(Some)
    }

    fn prove_first(
        &self,
        state: &mut PeerState,
        peer: u32,
        generation: u32,
        may_follow: bool,
    ) -> Result<First, TeamError> {
        let gpu = self.gpu.as_ref();
        for (_, link) in state.carrying() {
            link.post_probe(gpu)?;
        }
        // Read before the look. The deadline runs from the first answer on: until then the other end may not have connected, and no
        // rail is worse than the others.
        let since = *state.probed.get_or_insert_with(Instant::now);
        let late = since.elapsed() >= self.config.deadline;
        let (heard, first) = state.heard(gpu)?;
        if heard.answered.is_empty() {
            state.probed = None;
        }
        let shares = self.config.rails_that_share(self.rails.len()) > 1;
        let way = (state.carriers(), shares);
        state.reunion.introduce(generation);
        match (state.reunion.judge(heard, late, way), first) {
            (Outcome::Together, _) => {
                for (_, link) in state.carrying() {
                    link.count_probe(gpu)?;
                }
                state.introduced = None;
                Ok(First::Proven)
            }
            (Outcome::Unreached, Some((qp, syndrome))) => Err(TeamError::Unreached {
                peer,
                attempt: 0,
                qp,
                syndrome,
            }),
            (Outcome::GoRound | Outcome::Unreached, _) => {
                state.failed = true;
                Ok(First::Waits)
            }
            (Outcome::Wait, _) if may_follow => Ok(First::MayFollow),
            (Outcome::Wait, _) => Ok(First::Waits),
        }
    }
}
