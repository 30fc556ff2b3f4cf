//! Taking the QPs to one peer down and bringing them up again; the others are not touched.
//!
//! Both ends call [`Team::recover`]. Each end ends the life of its QPs and makes the next, which keeps QPs and keys (`life.rs`).
//! It meets the other end, which does the same. It connects again with new packet numbers, and opens the peer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hello::QpOffer;
use super::life::Keeps;
use super::links::Making;
use super::{Team, TeamError};
use crate::deadline::deadline_in;

/// What one end tells the other when its QPs are in Reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ResetQps {
    qps: Vec<QpOffer>,
}

impl Team {
    /// Brings the QPs to `peer` up again, whatever state they are in. Collective between this rank and `peer`: both call it as
    /// often as it succeeds. Other peers' QPs go on working. The peer must be the generation with which the QPs were connected; for
    /// another generation call [`Team::connect_peer`].
    ///
    /// What was in flight has an unknown outcome; nothing is sent again. Old tickets are `stale_life`. The counters go
    /// on. Returns how often these two have done it.
    ///
    /// Kernels that post to the peer must hold a guard of it (`guard_enter`) while they do, or have ended.
    ///
    /// # Errors
    /// [`TeamError::Guarded`] if kernels do not drop their guards, [`TeamError::Absent`] if the peer does not come, both within
    /// the team's timeout. Also [`TeamError::NotConnected`], [`TeamError::Recovering`], and errors of the HCA and the device. The
    /// peer stays closed; call it again.
    pub fn recover(&self, peer: u32) -> Result<u32, TeamError> {
        self.recover_within(peer, self.config.join_timeout)
    }

    /// [`Team::recover`], which gives up after `timeout` instead of the team's.
    ///
    /// # Errors
    /// As there.
    pub fn recover_within(&self, peer: u32, timeout: Duration) -> Result<u32, TeamError> {
        let links = self.peer(peer)?;
        let Some(_only) = links.try_work() else {
            return Err(TeamError::Recovering { peer });
        };
        let deadline = deadline_in(timeout);
        let (number, generation) = {
            let state = links.state();
            if state.connected == 0 || state.connected != state.told || state.is_for_another() {
                return Err(TeamError::NotConnected { peer });
            }
            (state.recoveries.wrapping_add(1), state.connected)
        };
        self.next_life(peer, Keeps::QpsAndKeys(Making::Recovery), deadline)?;
        let own = ResetQps {
            qps: links.state().qps(),
        };
        let mut ends = [(self.rank(), self.config.generation), (peer, generation)];
        ends.sort_unstable();
        let [low, high] = ends.map(|(rank, generation)| format!("{rank}.{generation}"));
        let topic = |step: &str| format!("recover/{low}-{high}/{number}/{step}");
        let other = (peer, generation);
        let theirs = self.exchange.with(other, &topic("reset"), &own, deadline)?;
        self.receive_again(peer, &topic("reset"), &theirs)?;
        // No end sends before the other end receives.
        self.exchange.with(other, &topic("ready"), &(), deadline)?;
        let mut state = links.state();
        if state.failed {
            return Err(TeamError::NotConnected { peer });
        }
        state.send(self.links.patience(), &theirs.qps)?;
        let life = state.next_life();
        let contexts = state.contexts(&self.config);
        self.tables
            .set_life(peer, life, state.carriers(), &contexts)?;
        state.finish(life);
        state.recoveries = number;
        self.tables.open(peer);
        Ok(number)
    }

    /// Ends everything with `peer`: no kernel gets a guard of it any more, its QPs are in Err, every wait for them ends
    /// `aborted`. Never waits, and needs nothing of the peer. If the peer is still the same generation, [`Team::recover`] also
    /// does this and brings the QPs back. Otherwise that generation is over, and [`Team::connect_peer`] takes a later one.
    ///
    /// A call of either that is under way in another thread ends with an error.
    ///
    /// # Errors
    /// A rank that the team does not have; what HCA and device refuse: call it again.
    pub fn fail_peer(&self, peer: u32) -> Result<(), TeamError> {
        let mut state = self.peer(peer)?.state();
        self.tables.close(peer);
        state.fence(self.gpu.as_ref())
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

    fn receive_again(&self, peer: u32, topic: &str, theirs: &ResetQps) -> Result<(), TeamError> {
        let mut state = self.peer(peer)?.state();
        if state.failed {
            return Err(TeamError::NotConnected { peer });
        }
        let known = state.remote_qpns();
        let told: Vec<u32> = theirs.qps.iter().map(|qp| qp.qpn).collect();
        if known != told {
            let reason = format!("QPs {told:x?}; they were {known:x?}");
            return Err(self.exchange.record(peer, topic, &reason));
        }
        state.receive_again(&theirs.qps)
    }
}
