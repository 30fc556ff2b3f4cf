//! Taking the QPs to one peer down and bringing them up again; the others are not touched.
//!
//! A recovery closes the peer, so that kernels get no more guards of it; moves its QPs to Err and raises their error words,
//! which ends every wait; waits until no kernel holds a guard (the grace period); resets the QPs and fills in their memory for
//! a life that begins at the next multiple of 65,536 indices; meets the other end, which does the same; connects again with
//! new packet numbers; and opens the peer. A ticket of an earlier life is stale then.
//!
//! Each end goes through fixed steps, and remembers how far it is: a call that fails leaves the peer closed, and the next call
//! goes on from there. What it has told the other end stays true meanwhile.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::links::{PeerLinks, PeerState};
use super::{Team, TeamError};
use crate::abi::{RAIL_SHIFT, Status};

/// Time between two looks at the guards that kernels hold.
const LOOK: Duration = Duration::from_millis(1);

/// What one end tells the other when its QPs are in Reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reborn {
    /// By QP: QP number and first packet number of the new life.
    qps: Vec<(u32, u32)>,
}

impl Team {
    /// Brings the QPs to `peer` up again, whatever state they are in. Collective between this rank and `peer`: both call it as
    /// often as it succeeds. Other peers' QPs go on working.
    ///
    /// What was in flight has an unknown outcome; nothing is sent again. Old tickets are `stale_generation`. The counters go
    /// on. Returns the new generation, which entries of the peer table and QP contexts hold too.
    ///
    /// Kernels that post to the peer must hold a guard of it (`guard_enter`) while they do, or have ended.
    ///
    /// # Errors
    /// [`TeamError::Guarded`] if kernels do not drop their guards, [`TeamError::Absent`] if the peer does not come, both within
    /// the team's timeout; [`TeamError::Recovering`]; what HCA and device refuse. The peer stays closed; call it again.
    pub fn recover(&self, peer: u32) -> Result<u32, TeamError> {
        let links = self.peer(peer)?;
        let Some(_only) = links.try_recovery() else {
            return Err(TeamError::Recovering { peer });
        };
        let deadline = Instant::now() + self.config.timeout;
        self.tables.close(peer);
        self.end_life(&links.state())?;
        self.wait_for_guards(peer, deadline)?;

        let generation = links.state().generation.wrapping_add(1);
        let own = self.reset(&mut links.state(), generation)?;
        let topic = |step: &str| {
            let (low, high) = (self.rank().min(peer), self.rank().max(peer));
            format!("recover/{low}-{high}/{generation}/{step}")
        };
        let theirs = self.exchange.with(peer, &topic("reset"), &own, deadline)?;
        self.receive(peer, links, &topic("reset"), &theirs)?;
        // Nobody sends before the other end receives.
        self.exchange.with(peer, &topic("ready"), &(), deadline)?;
        self.send(&mut links.state())?;
        self.tables.set_generation(peer, generation)?;
        let mut state = links.state();
        for link in &mut state.links {
            link.commit();
        }
        state.generation = generation;
        self.tables.open(peer);
        Ok(generation)
    }

    /// Ends everything with `peer`: no kernel gets a guard of it any more, its QPs are in Err, every wait for them ends
    /// `aborted`. [`Team::recover`] brings them back. Needs nothing of the peer.
    ///
    /// # Errors
    /// A rank that the team does not have; what HCA and device refuse.
    pub fn fail_peer(&self, peer: u32) -> Result<(), TeamError> {
        let links = self.peer(peer)?;
        // While a recovery runs it has done so itself, or has gone past it.
        let Some(_only) = links.try_recovery() else {
            return Err(TeamError::Recovering { peer });
        };
        self.tables.close(peer);
        let state = links.state();
        self.end_life(&state)
    }

    /// Ends every wait of running and later calls on the QPs to `peer` with `aborted`. The QPs stay healthy: what is posted
    /// goes on. [`Team::clear_abort`] ends it.
    ///
    /// # Errors
    /// A rank that the team does not have; the device's.
    pub fn abort_peer(&self, peer: u32) -> Result<(), TeamError> {
        self.write_abort(peer, true)
    }

    /// Lets calls on the QPs to `peer` work again after [`Team::abort_peer`].
    ///
    /// # Errors
    /// As [`Team::abort_peer`].
    pub fn clear_abort(&self, peer: u32) -> Result<(), TeamError> {
        self.write_abort(peer, false)
    }

    /// Whether kernels get no guard of `peer`: after [`Team::fail_peer`], or until a recovery has succeeded.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn is_closed(&self, peer: u32) -> Result<bool, TeamError> {
        self.peer(peer)?;
        Ok(self.tables.is_closed(peer))
    }

    /// Guards of `peer` that kernels hold now.
    ///
    /// # Errors
    /// A rank that the team does not have; the device's.
    pub fn guards(&self, peer: u32) -> Result<u64, TeamError> {
        self.peer(peer)?;
        self.tables.readers(peer)
    }

    fn write_abort(&self, peer: u32, abort: bool) -> Result<(), TeamError> {
        for link in &self.peer(peer)?.state().links {
            link.write_abort(self.gpu.as_ref(), abort)?;
        }
        Ok(())
    }

    /// The QPs that have not been reset go to Err, and their waiters are released.
    fn end_life(&self, state: &PeerState) -> Result<(), TeamError> {
        let alive = || state.links.iter().filter(|link| !link.is_reset());
        for link in alive() {
            link.to_error()?;
        }
        for link in alive() {
            link.release(self.gpu.as_ref(), Status::ABORTED)?;
        }
        Ok(())
    }

    fn wait_for_guards(&self, peer: u32, deadline: Instant) -> Result<(), TeamError> {
        let start = Instant::now();
        loop {
            let readers = self.tables.readers(peer)?;
            if readers == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(TeamError::Guarded {
                    peer,
                    readers,
                    waited: start.elapsed(),
                });
            }
            std::thread::sleep(LOOK);
        }
    }

    fn reset(&self, state: &mut PeerState, generation: u32) -> Result<Reborn, TeamError> {
        // The peer table has room for so many bits; a context holds as many.
        let generation = generation & ((1 << RAIL_SHIFT) - 1);
        for link in &mut state.links {
            link.reset(self.gpu.as_ref(), generation)?;
        }
        let told = state.links.iter().map(|link| (link.qpn(), link.psn()));
        Ok(Reborn {
            qps: told.collect(),
        })
    }

    fn receive(
        &self,
        peer: u32,
        links: &PeerLinks,
        topic: &str,
        theirs: &Reborn,
    ) -> Result<(), TeamError> {
        let mut state = links.state();
        let known: Vec<u32> = state.links.iter().map(|link| link.remote_qpn()).collect();
        let told: Vec<u32> = theirs.qps.iter().map(|(qpn, _)| *qpn).collect();
        if known != told {
            let reason = format!("QPs {told:x?}; they were {known:x?}");
            return Err(self.exchange.record(peer, topic, &reason));
        }
        for (link, &(_, psn)) in state.links.iter_mut().zip(&theirs.qps) {
            link.init()?;
            link.ready_to_receive(psn)?;
        }
        Ok(())
    }

    fn send(&self, state: &mut PeerState) -> Result<(), TeamError> {
        let rails = self.rails.len();
        for (number, link) in state.links.iter_mut().enumerate() {
            link.ready_to_send(self.links.patience(number % rails))?;
        }
        Ok(())
    }
}
