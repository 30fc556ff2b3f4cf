//! What a [`Team`] does with one peer: it comes, fails, comes back, and its QPs are looked at.

use std::sync::MutexGuard;
use std::time::Duration;

use super::change::steps::fence;
use super::change::{former, known, prove, rebuild, recover, replace, retell, reunite};
use super::error::TeamError;
use super::peers::state::PeerState;
use super::qps::counters::{self, QpCounters, QpReport};
use super::report::budget::{self, Posts};
use super::team::Team;
use crate::fabric::longest;

type StateOf<'a> = MutexGuard<'a, PeerState>;

impl Team {
    /// Reads the hello of generation `generation` of `peer`, checks it and finds the addresses after it. This may take as long
    /// as ARP takes. The same is part of [`Team::connect_peer`] if it has not been done: call this function earlier, at a moment
    /// when waiting does no harm.
    ///
    /// # Errors
    /// [`TeamError::Absent`] if no hello is found within `patience`. For settings that do not fit: [`TeamError::Mismatch`]. For
    /// records that do not fit, also of another run or version: [`TeamError::Record`]. Also errors of the HCA.
    pub fn resolve_peer(
        &self,
        peer: u32,
        generation: u32,
        patience: Duration,
    ) -> Result<(), TeamError> {
        replace::resolve(self.parts(), peer, generation, patience)
    }

    /// Connects the QPs to generation `generation` of `peer`: the first in its place, or another one than before, whose QPs
    /// and keys end here. That generation calls it for this one, too. Other peers' QPs go on working. The peer stays closed
    /// until [`Team::open_peer`].
    ///
    /// Waits at most for `patience`, for kernels and for the other end; with none it only looks. After an error it may be
    /// called again, and goes on from where it was, or called for a later generation. Once it has succeeded, calling it again
    /// does nothing.
    ///
    /// What was in flight to the former generation has an unknown outcome, and its tickets are `stale_life`. Kernels
    /// that post to the peer hold guards of it while they do, or have ended.
    ///
    /// # Errors
    /// As [`Team::resolve_peer`]. Also [`TeamError::Guarded`] if kernels do not drop their guards, and [`TeamError::Absent`] if
    /// the other end does not come. Also [`TeamError::StillRuns`] while the former generation could store into windows of this
    /// rank. Also [`TeamError::Generation`] for a generation that is over, [`TeamError::Recovering`], and what HCA, device and
    /// store refuse.
    pub fn connect_peer(
        &self,
        peer: u32,
        generation: u32,
        patience: Duration,
    ) -> Result<(), TeamError> {
        replace::connect(self.parts(), peer, generation, patience)
    }

    /// Lets kernels take guards of `peer` and post to it, from [`Team::connect_peer`] on.
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

    /// The generation of `peer` that the QPs are for, or were; 0 if no generation has ever come.
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

    /// Returns whether the QPs have been connected with generation `generation` of `peer`, whether or not they work.
    pub(crate) fn is_introduced(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        let state = self.state(peer)?;
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
        prove::prove(self.parts(), peer, generation)
    }

    /// Brings this rank and generation `generation` of `peer` together again after [`Team::fail_peer`]. The generation is the one
    /// that the QPs are for; QPs, keys and windows stay the same. Each call does the steps that are possible now, and never waits
    /// for kernels or the other end, which calls it, too. `true`: the QPs are connected, and the other end has answered a write on
    /// each. `false`: call it again. The peer stays closed until [`Team::open_peer`], which refuses before.
    ///
    /// A peer that is connected and open is left alone: `true`. While it is closed, `true` also means that the other end has
    /// published no later attempt. If it has, its QPs were reset: the call follows, and returns `false` until both are together
    /// again. So the caller opens the peer when both ends have found `true`. If an end begins a new attempt after that, kernels
    /// find out: their writes get no answer.
    ///
    /// Old tickets are `stale_life`. The counters go on, and count the probes. A call of [`Team::fail_peer`] ends an attempt at
    /// any time. A call of [`Team::recover`] or [`Team::connect_peer`] for a later generation takes the QPs over.
    ///
    /// # Errors
    /// [`TeamError::Unreached`] if a probe has failed. This, and what HCA and device refuse after the reset, end the attempt.
    /// The next call begins another attempt, so the caller waits before it. Also [`TeamError::NotConnected`] if the QPs were
    /// never connected with that generation, and [`TeamError::Generation`] for one that is over. Also [`TeamError::Record`] for
    /// an invalid record of the other end, [`TeamError::Recovering`], and [`TeamError::Limit`] after the last attempt. Also an
    /// error if a thread that rings doorbells does not run. Errors of the store end no attempt; a call waits for the store as
    /// long as the team does elsewhere.
    #[doc(hidden)]
    pub fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        reunite::reunite(self.parts(), peer, generation)
    }

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
        self.recover_within(peer, self.config().join_timeout)
    }

    /// [`Team::recover`], which gives up after `timeout` instead of the team's.
    ///
    /// # Errors
    /// As there.
    pub fn recover_within(&self, peer: u32, timeout: Duration) -> Result<u32, TeamError> {
        recover::recover(self.parts(), peer, timeout)
    }

    /// Destroys the QPs to all of `peers`, by rank and generation, makes and connects new ones with new keys, and opens the
    /// peers. All of them call it for each other with the same `round`, which is used once. This is how other libraries bring a
    /// rank back, kept to be measured beside [`Team::connect_peer`]. While it runs no rank reaches another, and contexts and
    /// rings that kernels and graphs have captured are gone. No kernel of the team may run. Returns how long the peers were
    /// closed.
    ///
    /// # Errors
    /// As [`Team::connect_peer`]; the team is of no use then.
    #[doc(hidden)]
    pub fn rebuild(&self, peers: &[(u32, u32)], round: u32) -> Result<Duration, TeamError> {
        rebuild::rebuild(self.parts(), peers, round)
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
        let mut state = self.state(peer)?;
        self.parts().tables.close(peer);
        fence(&mut state, self.gpu().as_ref())
    }

    /// Ends every wait of running and later calls on the QPs to `peer` with `aborted`. The QPs stay healthy: what is posted
    /// goes on. [`Team::clear_abort`] ends it.
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

    /// Returns whether kernels get no guard of `peer`: after [`Team::fail_peer`], or until a recovery has succeeded.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn is_closed(&self, peer: u32) -> Result<bool, TeamError> {
        self.parts().peers.get(peer)?;
        Ok(self.parts().tables.is_closed(peer))
    }

    /// Guards of `peer` that kernels hold now.
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

    /// Closes what this rank has opened of the memory of `peer`, which has been failed and is not waited for. The memory of a
    /// dead process stays allocated until all other ranks have closed it. `false` while kernels hold guards of it, or if it has
    /// not been failed; call it again. [`Team::connect_peer`] does it, too, for the next generation.
    ///
    /// # Errors
    /// A rank that the team does not have; the device's.
    #[doc(hidden)]
    pub fn release_peer(&self, peer: u32) -> Result<bool, TeamError> {
        former::release(self.parts(), peer)
    }

    /// Refuses generation `generation` of `peer` while the generation before it may still store into windows of this rank. The
    /// same check is part of [`Team::connect_peer`]. A layer calls this one before it clears what it knows of the former
    /// generation.
    ///
    /// # Errors
    /// [`TeamError::StillRuns`]; [`TeamError::Absent`] if the new generation has published no hello; as [`Team::resolve_peer`].
    #[doc(hidden)]
    pub fn check_former(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        known::check_former(self.parts(), peer, generation)
    }

    /// Writes again the records of this generation for all ranks, and those for generation `generation` of `peer`, where the store
    /// holds another value. Does nothing while another thread connects the pair.
    ///
    /// # Errors
    /// A rank that the team does not have; the store's.
    #[doc(hidden)]
    pub fn tell_again(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        retell::tell_again(self.parts(), peer, generation)
    }

    /// What stands in the store of the records by which this rank and generation `generation` of `peer` meet, in words: of this end,
    /// and of the other. For the report on a pair that does not meet.
    pub(crate) fn words(&self, peer: u32, generation: u32) -> [String; 2] {
        known::words(self.parts(), peer, generation)
    }

    /// Returns what QP `i` to `peer` has done. Kernels may run.
    ///
    /// # Errors
    /// A peer or QP that the team does not have; the device's.
    pub fn counters(&self, peer: u32, i: u32) -> Result<QpCounters, TeamError> {
        counters::counters(self.gpu().as_ref(), self.state(peer)?.qps.get(i)?)
    }

    /// Returns how QP `i` to `peer` is, at the HCA and for kernels. Kernels may run; a command of some hundred microseconds on silicon.
    ///
    /// # Errors
    /// A peer or QP that the team does not have; the HCA's, the device's.
    pub fn qp_status(&self, peer: u32, i: u32) -> Result<QpReport, TeamError> {
        let state = self.state(peer)?;
        counters::report(self.gpu().as_ref(), state.qps.get(i)?, state.life)
    }

    /// Of each QP to `peer` the word of its first failure and syndrome.
    pub(crate) fn error_words(&self, peer: u32) -> Result<Vec<u64>, TeamError> {
        let state = self.state(peer)?;
        let links = state.qps.links().iter();
        links
            .map(|link| counters::error_word(self.gpu().as_ref(), link))
            .collect()
    }

    /// Proves that a launch that makes no other posts than `posts` finds ring space at once. No call waits for space, and none ends
    /// `would_block`. No call overwrites a WQE in flight, even if no thread ever polls. This holds from now on as long as no other
    /// launch or thread posts on these QPs.
    ///
    /// Space counts as kernels find it: what has completed but was never looked at still takes its place. A `wait` or `quiet` at
    /// the end of the launch before looks.
    ///
    /// # Errors
    /// [`TeamError::RingSpace`] with QP, need and space. [`TeamError::Batch`] if one call takes more than a quarter of the ring,
    /// which the device library refuses as `invalid`. Also a peer or QP that does not exist, `threads` of 0, and the device's
    /// errors.
    pub fn check_no_poll(&self, posts: &[Posts]) -> Result<(), TeamError> {
        budget::check_no_poll(self.parts(), posts)
    }

    /// By number of a QP to `peer`: the rail by which goes what is posted to it. That of the QP, unless that rail carried nothing
    /// when the two were connected last.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn carriers(&self, peer: u32) -> Result<Vec<u32>, TeamError> {
        let state = self.state(peer)?;
        let carriers = state.qps.carriers();
        let links = state.qps.links().iter();
        Ok(links.map(|link| carriers.of(link.rail())).collect())
    }

    /// Rails by which nothing goes to `peer`; none of a rank that the team does not have.
    pub(crate) fn left_out(&self, peer: u32) -> Vec<u32> {
        let without = |state: StateOf<'_>| state.qps.carriers().without().iter().collect();
        self.state(peer).map_or_else(|_| Vec::new(), without)
    }

    /// Returns how long the most patient of its HCAs may try before it gives a peer up.
    pub(crate) fn patience(&self) -> Duration {
        let rails = self.parts().rails.iter().zip(self.parts().peers.patience());
        let each = rails.map(|(rail, send)| longest(send, rail.context().info().is_soft()));
        each.max().unwrap_or_default()
    }

    fn state(&self, peer: u32) -> Result<StateOf<'_>, TeamError> {
        Ok(self.parts().peers.get(peer)?.state())
    }
}
