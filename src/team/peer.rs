//! What a [`Team`] does with one peer: connects it, fails it, brings it back, and reports on its QPs.

use std::sync::MutexGuard;
use std::time::Duration;

use super::change::steps::fence;
use super::change::{contact, former, prove, recover, replace, retell, reunite};
use super::error::TeamError;
use super::peers::state::PeerState;
use super::qps::counters::{self, QpCounters, QpReport};
use super::report::budget::{self, Posts};
use super::team::Team;
use crate::fabric::longest;

type StateOf<'a> = MutexGuard<'a, PeerState>;

impl Team {
    /// Reads the hello of generation `generation` of `peer`, checks it, and resolves the addresses in it. This may take as long as
    /// ARP takes. [`Team::connect_peer`] does this if it has not been done. Call this function earlier, at a moment when waiting
    /// does no harm.
    ///
    /// # Errors
    /// [`TeamError::Absent`] if no hello is found within `patience`. [`TeamError::Mismatch`] for settings that do not fit.
    /// [`TeamError::Record`] for records that are invalid, or of another run or version. Errors of the HCA.
    pub fn resolve_peer(
        &self,
        peer: u32,
        generation: u32,
        patience: Duration,
    ) -> Result<(), TeamError> {
        replace::resolve(self.parts(), peer, generation, patience)
    }

    /// Connects the QPs to generation `generation` of `peer`: the first generation in that place, or one that replaces a former
    /// generation, whose QPs and keys end here. That generation makes the same call for this rank. QPs to other peers go on
    /// working. The peer stays closed until [`Team::open_peer`].
    ///
    /// Waits at most for `patience`, for kernels and for the other end; if `patience` is zero, it only looks. After an error it may
    /// be called again and goes on from where it was, or it may be called for a later generation. Once it has succeeded, calling it
    /// again does nothing.
    ///
    /// What was in flight to the former generation has an unknown outcome, and its tickets are `stale_life`. Kernels that post to
    /// the peer must hold guards of it while they post, or must have ended.
    ///
    /// # Errors
    /// As [`Team::resolve_peer`]. [`TeamError::Guarded`] if kernels do not drop their guards. [`TeamError::Absent`] if the other
    /// end does not come. [`TeamError::StillRuns`] while the former generation could store into windows of this rank.
    /// [`TeamError::Generation`] for a generation that is over. [`TeamError::Recovering`]. Errors of the HCA, the device and the
    /// store.
    pub fn connect_peer(
        &self,
        peer: u32,
        generation: u32,
        patience: Duration,
    ) -> Result<(), TeamError> {
        replace::connect(self.parts(), peer, generation, patience)
    }

    /// Lets kernels take guards of `peer` and post to it. Call it after [`Team::connect_peer`].
    ///
    /// # Errors
    /// [`TeamError::NotConnected`]; a rank that the team does not have.
    pub fn open_peer(&self, peer: u32) -> Result<(), TeamError> {
        replace::open(self.parts(), peer)
    }

    /// Returns whether the QPs to `peer` are connected, with generation [`Team::peer_generation`], and have not been failed.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn is_connected(&self, peer: u32) -> Result<bool, TeamError> {
        Ok(self.state(peer)?.is_connected())
    }

    /// Returns the generation of `peer` that the QPs are for, or were; 0 if no generation has ever come.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn peer_generation(&self, peer: u32) -> Result<u32, TeamError> {
        Ok(self.state(peer)?.told)
    }

    /// Returns the newest generation of `peer` with which the QPs were ever connected; 0 if they never were.
    pub(crate) fn connected_generation(&self, peer: u32) -> Result<u32, TeamError> {
        Ok(self.state(peer)?.connected)
    }

    /// Returns whether the QPs have been connected with generation `generation` of `peer`, even if they have failed since.
    pub(crate) fn is_introduced(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        let state = self.state(peer)?;
        let same = state.connected == generation && state.told == generation;
        Ok(same && !state.is_for_another())
    }

    /// Proves the QPs to generation `generation` of `peer`, with which they have been connected. Returns `true` when a write on
    /// each QP was answered. If it returns `false`, call it again. It never waits. The peer stays closed until [`Team::open_peer`].
    /// While it is closed, `true` also means that the other end has begun no later attempt.
    ///
    /// # Errors
    /// [`TeamError::Unreached`] if an HCA has given up. The next call begins another attempt, so the caller waits before it. Other
    /// errors as [`Team::reunite_peer`].
    pub(crate) fn prove_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        prove::prove(self.parts(), peer, generation)
    }

    /// Brings this rank and generation `generation` of `peer` together again after [`Team::fail_peer`]. The generation is the one
    /// that the QPs are for; QPs, keys and windows stay the same. Each call does the steps that are possible now, and never waits
    /// for kernels or for the other end, which makes the same calls. Returns `true` once the QPs are connected and the other end
    /// has answered a write on each. If it returns `false`, call it again. The peer stays closed until [`Team::open_peer`], which
    /// refuses before.
    ///
    /// For a peer that is connected and open the call does nothing and returns `true`. While the peer is closed, `true` also means
    /// that the other end has published no later attempt. If the other end has published one, it has reset its QPs: the call joins
    /// that attempt, and returns `false` until both ends are together again. So the caller opens the peer when both ends have
    /// returned `true`. If an end begins a new attempt after that, kernels find out: their writes get no answer.
    ///
    /// Old tickets are `stale_life`. The counters go on, and count the probes too. A call of [`Team::fail_peer`] ends an attempt at
    /// any time. A call of [`Team::recover`], or of [`Team::connect_peer`] for a later generation, ends the attempt and uses the
    /// QPs.
    ///
    /// # Errors
    /// [`TeamError::Unreached`] if a probe has failed. This error ends the attempt, and so does an error of HCA or device after the
    /// reset. The next call begins another attempt, so the caller waits before it. [`TeamError::NotConnected`] if the QPs were
    /// never connected with that generation. [`TeamError::Generation`] for a generation that is over. [`TeamError::Record`] for an
    /// invalid record of the other end. [`TeamError::Recovering`]. [`TeamError::Limit`] after the last attempt. A thread that rings
    /// doorbells does not run. Errors of the store end no attempt; a call waits for the store as long as other calls of the team
    /// do.
    #[doc(hidden)]
    pub fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        reunite::reunite(self.parts(), peer, generation)
    }

    /// Brings the QPs to `peer` up again, whatever state they are in. Collective between this rank and `peer`: each call that
    /// succeeds at one end belongs to one at the other end. QPs to other peers go on working. The peer must be the generation with
    /// which the QPs were connected; for another generation call [`Team::connect_peer`].
    ///
    /// What was in flight has an unknown outcome; nothing is sent again. Old tickets are `stale_life`. The counters go on. Returns
    /// how many recoveries the two ends have made since they were connected.
    ///
    /// Kernels that post to the peer must hold a guard of it (`guard_enter`) while they post, or must have ended.
    ///
    /// # Errors
    /// [`TeamError::Guarded`] if kernels do not drop their guards within the team's timeout. [`TeamError::Absent`] if the peer does
    /// not come within that time. [`TeamError::NotConnected`]. [`TeamError::Recovering`]. Errors of the HCA and the device. After
    /// an error the peer stays closed; call it again.
    pub fn recover(&self, peer: u32) -> Result<u32, TeamError> {
        self.recover_within(peer, self.config().join_timeout)
    }

    /// As [`Team::recover`], but gives up after `timeout` instead of the team's timeout.
    ///
    /// # Errors
    /// As [`Team::recover`].
    pub fn recover_within(&self, peer: u32, timeout: Duration) -> Result<u32, TeamError> {
        recover::recover(self.parts(), peer, timeout)
    }

    /// Ends everything with `peer`: kernels get no guard of it any more, its QPs are in Err, and every wait for them ends
    /// `aborted`. Never waits, and needs nothing of the peer. If the peer is still the same generation, [`Team::recover`] also does
    /// this and brings the QPs back. Otherwise that generation is over, and [`Team::connect_peer`] connects a later one.
    ///
    /// A call of [`Team::recover`] or [`Team::connect_peer`] that runs in another thread ends with an error.
    ///
    /// # Errors
    /// A rank that the team does not have. Errors of the HCA and the device: call it again.
    pub fn fail_peer(&self, peer: u32) -> Result<(), TeamError> {
        let mut state = self.state(peer)?;
        self.parts().tables.close(peer);
        fence(&mut state, self.gpu().as_ref())
    }

    /// Ends every wait of running and later calls on the QPs to `peer` with `aborted`. The QPs stay healthy: what is posted goes
    /// on. Waits work again after [`Team::clear_abort`].
    ///
    /// # Errors
    /// A rank that the team does not have; the device's.
    pub fn abort_peer(&self, peer: u32) -> Result<(), TeamError> {
        self.state(peer)?.qps.write_abort(self.gpu().as_ref(), true)
    }

    /// Lets calls on the QPs to `peer` work again after [`Team::abort_peer`].
    ///
    /// # Errors
    /// As [`Team::abort_peer`].
    pub fn clear_abort(&self, peer: u32) -> Result<(), TeamError> {
        self.state(peer)?
            .qps
            .write_abort(self.gpu().as_ref(), false)
    }

    /// Returns whether kernels get no guard of `peer`: before it is opened for the first time, and from [`Team::fail_peer`] or the
    /// begin of a recovery until it is opened again.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn is_closed(&self, peer: u32) -> Result<bool, TeamError> {
        self.parts().peers.get(peer)?;
        Ok(self.parts().tables.is_closed(peer))
    }

    /// Returns how many guards of `peer` kernels hold now.
    ///
    /// # Errors
    /// A rank that the team does not have; the device's.
    pub fn guards(&self, peer: u32) -> Result<u64, TeamError> {
        self.parts().peers.get(peer)?;
        self.parts().tables.readers(peer)
    }

    /// Returns whether kernels that open a path reach all windows of `peer` by load and store.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn is_direct(&self, peer: u32) -> Result<bool, TeamError> {
        self.parts().peers.get(peer)?;
        let windows = self.parts().tables.direct(peer);
        Ok(!windows.is_empty() && !windows.contains(&false))
    }

    /// Closes what this rank has opened of the memory of `peer`, which has been failed and is not waited for. The memory of a dead
    /// process stays allocated until all other ranks have closed it. Returns `false` while kernels hold guards of the peer, or if
    /// it has not been failed; call it again. [`Team::connect_peer`] does this too, for the next generation.
    ///
    /// # Errors
    /// A rank that the team does not have; the device's.
    #[doc(hidden)]
    pub fn release_peer(&self, peer: u32) -> Result<bool, TeamError> {
        former::release(self.parts(), peer)
    }

    /// Refuses generation `generation` of `peer` while the generation before it may still store into windows of this rank.
    /// [`Team::connect_peer`] makes this check too. A layer makes it before it clears what it knows of the former generation.
    ///
    /// # Errors
    /// [`TeamError::StillRuns`]. [`TeamError::Absent`] if the new generation has published no hello. Other errors as
    /// [`Team::resolve_peer`].
    #[doc(hidden)]
    pub fn check_former(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        contact::check_former(self.parts(), peer, generation)
    }

    /// Writes again, where the store holds another value, the records of this generation for all ranks and its records for
    /// generation `generation` of `peer`. Does nothing while another thread connects the two ranks.
    ///
    /// # Errors
    /// A rank that the team does not have; the store's.
    #[doc(hidden)]
    pub fn tell_again(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        retell::tell_again(self.parts(), peer, generation)
    }

    /// Returns what the store holds of the records by which this rank and generation `generation` of `peer` meet, in words: first
    /// the records of this rank, then those of the peer. For the report on two ranks that do not meet.
    pub(crate) fn words(&self, peer: u32, generation: u32) -> [String; 2] {
        contact::words(self.parts(), peer, generation)
    }

    /// Returns what QP `i` to `peer` has done. Kernels may run.
    ///
    /// # Errors
    /// A peer or QP that the team does not have; the device's.
    pub fn counters(&self, peer: u32, i: u32) -> Result<QpCounters, TeamError> {
        counters::counters(self.gpu().as_ref(), self.state(peer)?.qps.get(i)?)
    }

    /// Returns the state of QP `i` to `peer`, at the HCA and for kernels. Kernels may run. It costs a command of the HCA, some
    /// hundred microseconds on silicon.
    ///
    /// # Errors
    /// A peer or QP that the team does not have; the HCA's, the device's.
    pub fn qp_status(&self, peer: u32, i: u32) -> Result<QpReport, TeamError> {
        let state = self.state(peer)?;
        counters::report(self.gpu().as_ref(), state.qps.get(i)?, state.life)
    }

    /// Returns for each QP to `peer` its error word: the first failure and its syndrome.
    pub(crate) fn error_words(&self, peer: u32) -> Result<Vec<u64>, TeamError> {
        let state = self.state(peer)?;
        let peer_qps = state.qps.peer_qps().iter();
        peer_qps
            .map(|peer_qp| counters::error_word(self.gpu().as_ref(), peer_qp))
            .collect()
    }

    /// Proves that a launch that makes no other posts than `posts` finds ring space at once. Then no call of the launch waits for
    /// space, none ends `would_block`, and none overwrites a WQE in flight, even if no thread ever polls. This holds as long as no
    /// other launch or thread posts on these QPs.
    ///
    /// Space counts as kernels find it: a WQE that has completed takes its place until a thread has looked at its completion. A
    /// `wait` or `quiet` at the end of the launch before does that.
    ///
    /// # Errors
    /// [`TeamError::RingSpace`] with QP, need and space. [`TeamError::Batch`] if one call takes more than a quarter of the ring,
    /// which the device library refuses as `invalid`. A peer or QP that does not exist. `threads` of 0. Errors of the device.
    pub fn check_no_poll(&self, posts: &[Posts]) -> Result<(), TeamError> {
        budget::check_no_poll(self.parts(), posts)
    }

    /// Returns for each QP to `peer` the rail that carries what is posted to that QP. It is the QP's own rail, unless that rail
    /// carried nothing when the ranks were connected last.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn carriers(&self, peer: u32) -> Result<Vec<u32>, TeamError> {
        let state = self.state(peer)?;
        let carriers = state.qps.carriers();
        let peer_qps = state.qps.peer_qps().iter();
        Ok(peer_qps
            .map(|peer_qp| carriers.of(peer_qp.rail()))
            .collect())
    }

    /// Returns the rails that carry nothing to `peer`; none if the team does not have that rank.
    pub(crate) fn left_out(&self, peer: u32) -> Vec<u32> {
        let without = |state: StateOf<'_>| state.qps.carriers().without().iter().collect();
        self.state(peer).map_or_else(|_| Vec::new(), without)
    }

    /// Returns how long the most patient HCA of this rank may try before it gives a peer up.
    pub(crate) fn patience(&self) -> Duration {
        let rails = self.parts().rails.iter().zip(self.parts().peers.patience());
        let each = rails.map(|(rail, send)| longest(send, rail.context().info().is_soft()));
        each.max().unwrap_or_default()
    }

    fn state(&self, peer: u32) -> Result<StateOf<'_>, TeamError> {
        Ok(self.parts().peers.get(peer)?.state())
    }
}
