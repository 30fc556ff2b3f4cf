//! Bringing two living generations together again whose QPs have failed: a switch was away, a QP went to Err.
//!
//! Both ends call [`Team::reunite_peer`] again and again, in any order. No call waits for the other end. Each end goes through
//! attempts, which have numbers, and tells how far it is under a key that only it writes, `reunite/RANK.GENERATION/PEER.GENERATION`:
//!
//! 1. It ends the life of its QPs and resets them for the next, with new packet numbers. It publishes the attempt and its QPs.
//! 2. When the other end has published the same attempt, the QPs go to Rtr, and this end publishes that they are ready.
//! 3. When the other end is ready, they go to Rts, and the host posts the probe on each: a write of no bytes.
//! 4. When all probes have completed, the life is the present one. The peer stays closed.
//!
//! **Rails.** An attempt names rails that it leaves out: none at first. An end may have an answer through one rail and none through
//! another, after the HCA has given up or the team deadline has passed. Then it ends the attempt, and the next one leaves that rail
//! out as well. An end that follows to a higher attempt takes over what that one leaves out. If both ends begin the same attempt,
//! it leaves out both sets. Both ends read both sets before they connect, so they connect the same QPs. An attempt leaves out no
//! rail when no rail has answered, or when none would be left: then all must answer. What kernels post to QPs of a rail that is
//! left out goes by other QPs (`rails.rs`) until the pair is connected anew. A new connection begins with all rails.
//!
//! An attempt names one reset, so an end that has to begin again, whatever the reason, begins the next one. An end that finds a
//! higher number in the other end's record goes on with that number. So both ends come to the same number without a message about
//! which of them leads. QPs of two different attempts are never connected, because packet numbers that belong together stand in one
//! record.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::attempts::{At, Heard, LAST_ATTEMPT, Outcome};
use super::hello::{QpOffer, VERSION};
use super::life::Keeps;
use super::links::{Making, PeerState, Said};
use super::rails::RailSet;
use super::{Team, TeamError};
use crate::abi::Status;
use crate::fabric::PSN_BITS;
use crate::gpu::Gpu;
use crate::verbs::Probe;

/// What one end tells the other of its newest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Attempt {
    version: u32,
    /// From 1.
    attempt: u64,
    /// The QPs take what the other end sends.
    ready: bool,
    /// Rails that this end leaves out.
    without: RailSet,
    qps: Vec<QpOffer>,
}

impl PeerState {
    /// Takes what the other end sends in the attempt in which both are, by the rails that neither leaves out.
    fn meet(&mut self, met: &Attempt, without: RailSet) -> Result<(), TeamError> {
        self.without = without;
        self.receive_again(&met.qps)
    }

    /// The attempt with `generation` that this end is to be in, if the other end is in attempt `theirs` (0: none), which leaves out
    /// rails. `None`: no other one than that in which both came together.
    fn attempt(
        &mut self,
        generation: u32,
        theirs: (u64, RailSet),
    ) -> Result<Option<u64>, TeamError> {
        let before = self.reunion.attempt();
        let at = match self.making {
            Some(Making::Reunion(making)) if making == before && !self.failed => At::UnderWay,
            _ if self.is_connected_with(generation) => At::Together,
            _ => At::Nowhere,
        };
        self.reunion.next(generation, theirs, at)
    }

    /// What the probes say, and the first QP that the HCA has given up, with the syndrome.
    pub(super) fn heard(
        &mut self,
        gpu: &dyn Gpu,
    ) -> Result<(Heard, Option<(u32, u32)>), TeamError> {
        let (mut heard, mut first) = (Heard::default(), None);
        let mut all = RailSet::EMPTY;
        for (qp, link) in self.carrying() {
            let rail = link.rail();
            all.insert(rail);
            match link.probe(gpu)? {
                Probe::Done => heard.answered.insert(rail),
                Probe::Pending => heard.pending.insert(rail),
                Probe::Failed(syndrome) => {
                    heard.failed.insert(rail);
                    let qp = u32::try_from(qp).expect("at most 64 QPs");
                    first = first.or(Some((qp, syndrome)));
                }
            }
        }
        heard.pending = heard.pending.without(heard.failed);
        heard.answered = all.without(heard.failed).without(heard.pending);
        Ok((heard, first))
    }
}

impl Team {
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
    /// [`TeamError::Unreached`] if a probe has failed. This, and what HCA and device refuse behind the reset, end the attempt.
    /// The next call begins another attempt, so the caller waits before it. Also [`TeamError::NotConnected`] if the QPs were
    /// never connected with that generation, and [`TeamError::Generation`] for one that is over. Also [`TeamError::Record`] for
    /// an invalid record of the other end, [`TeamError::Recovering`], and [`TeamError::Limit`] behind the last attempt. Also an
    /// error if a thread that rings doorbells does not run. Errors of the store end no attempt; a call waits for the store as
    /// long as the team does elsewhere.
    pub(crate) fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        let links = self.peer(peer)?;
        let Some(_only) = links.try_work() else {
            return Err(TeamError::Recovering { peer });
        };
        let doubted = {
            let state = links.state();
            check_same(&state, peer, generation)?;
            if state.is_connected_with(generation) && !self.tables.is_closed(peer) {
                return Ok(true);
            }
            state.doubted
        };
        // Without the thread that rings, no probe would ever complete.
        self.check_threads()?;
        if doubted {
            self.read_again(peer, generation)?;
        }
        let known = links.state().remote_qpns();
        let own = (self.rank(), self.config.generation);
        let theirs = self.attempt_of((peer, generation), own, &known)?;
        let newest = theirs.as_ref().map_or((0, RailSet::EMPTY), |theirs| {
            (theirs.attempt, theirs.without)
        });
        let Some(attempt) = links.state().attempt(generation, newest)? else {
            return Ok(true);
        };
        if !self.reset_for(peer, attempt)? {
            return Ok(false);
        }
        let places = links.state().places.take();
        if let Some(places) = places {
            self.tables.set_places(peer, &places)?;
        }
        let met = theirs.filter(|theirs| theirs.attempt == attempt);
        if let Some(met) = &met {
            let without = self.agreed((peer, generation), met)?;
            if !self.step(peer, |state| state.meet(met, without).map(|()| true))? {
                return Ok(false);
            }
        }
        let key = reunite_key(own, (peer, generation));
        self.tell_attempt(peer, &key, met.is_some())?;
        match met {
            Some(met) if met.ready => self.step(peer, |state| self.prove(state, peer, &met)),
            _ => Ok(false),
        }
    }

    /// Whether the other end has published an attempt.
    pub(super) fn has_begun(&self, peer: (u32, u32)) -> Result<bool, TeamError> {
        let known = self.peer(peer.0)?.state().remote_qpns();
        let own = (self.rank(), self.config.generation);
        Ok(self.attempt_of(peer, own, &known)?.is_some())
    }

    /// The attempt that the other end has published, checked; none if it has published none.
    fn attempt_of(
        &self,
        peer: (u32, u32),
        own: (u32, u32),
        known: &[u32],
    ) -> Result<Option<Attempt>, TeamError> {
        let key = reunite_key(peer, own);
        let told: Option<Attempt> = self.exchange.read_versioned(peer.0, &key)?;
        let rails = self.config.rails_that_share(self.rails.len());
        match told
            .as_ref()
            .map_or(Ok(()), |told| told.check(known, rails))
        {
            Ok(()) => Ok(told),
            Err(reason) => {
                // Either this record is another writer's, or those by which the two were connected.
                self.peer(peer.0)?.state().doubted = true;
                Err(self.exchange.record(peer.0, &key, &reason))
            }
        }
    }

    /// The rails that both ends leave out in this attempt.
    fn agreed(&self, peer: (u32, u32), met: &Attempt) -> Result<RailSet, TeamError> {
        let agreed = self.peer(peer.0)?.state().reunion.agree(met.without);
        agreed.map_err(|known| {
            let own = (self.rank(), self.config.generation);
            let reason = format!(
                "attempt {} leaves out rails {}; it left out {known} before, and one attempt keeps its rails",
                met.attempt, met.without
            );
            let key = reunite_key(peer, own);
            self.exchange.record(peer.0, &key, &reason)
        })
    }

    /// Resets the QPs for `attempt`, unless that has been done. `false`: kernels hold guards.
    fn reset_for(&self, peer: u32, attempt: u64) -> Result<bool, TeamError> {
        let making = Making::Reunion(attempt);
        {
            let state = self.peer(peer)?.state();
            if state.making == Some(making) && state.is_reset() {
                return Ok(true);
            }
        }
        match self.next_life(peer, Keeps::QpsAndKeys(making), Instant::now()) {
            Ok(()) => Ok(true),
            Err(TeamError::Guarded { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tells the other end how far this one is, unless it has.
    fn tell_attempt(&self, peer: u32, key: &str, ready: bool) -> Result<(), TeamError> {
        let links = self.peer(peer)?;
        let own = {
            let state = links.state();
            if !state.reunion.is_to_tell(ready) {
                return Ok(());
            }
            Attempt {
                version: VERSION,
                attempt: state.reunion.attempt(),
                ready,
                without: state.reunion.without(),
                qps: state.qps(),
            }
        };
        let text = self.exchange.put_kept(key, &own)?;
        let mut state = links.state();
        state.said = Some(Said {
            generation: state.told,
            key: key.to_owned(),
            text,
        });
        state.reunion.has_told(ready);
        Ok(())
    }

    /// Makes a step of an attempt whose QPs have been reset. `false` if the peer was failed meanwhile; an error ends the attempt.
    fn step(
        &self,
        peer: u32,
        step: impl FnOnce(&mut PeerState) -> Result<bool, TeamError>,
    ) -> Result<bool, TeamError> {
        let mut state = self.peer(peer)?.state();
        if state.failed {
            return Ok(false);
        }
        let done = step(&mut state);
        state.failed |= done.is_err();
        state.doubted |= done.is_err();
        done
    }

    /// Connects the QPs, posts their probes, and looks at them. `true`: the life is the present one. `false` also if another attempt is
    /// to go round some rails.
    fn prove(&self, state: &mut PeerState, peer: u32, met: &Attempt) -> Result<bool, TeamError> {
        let gpu = self.gpu.as_ref();
        state.send(self.links.patience(), &met.qps)?;
        for (_, link) in state.carrying() {
            link.post_probe(gpu)?;
        }
        let since = *state.probed.get_or_insert_with(Instant::now);
        let late = since.elapsed() >= self.config.deadline;
        let (heard, first) = state.heard(gpu)?;
        let shares = self.config.rails_that_share(self.rails.len()) > 1;
        let way = (state.carriers(), shares);
        match (state.reunion.judge(heard, late, way), first) {
            (Outcome::Together, _) => self.come_together(state, peer).map(|()| true),
            (Outcome::Unreached, Some((qp, syndrome))) => Err(TeamError::Unreached {
                peer,
                attempt: met.attempt,
                qp,
                syndrome,
            }),
            (outcome, _) => {
                state.failed |= outcome != Outcome::Wait;
                Ok(false)
            }
        }
    }

    /// Every QP was answered: the life is the present one. Releases kernels that still post to QPs of a rail that is left out.
    fn come_together(&self, state: &mut PeerState, peer: u32) -> Result<(), TeamError> {
        let gpu = self.gpu.as_ref();
        for (_, link) in state.carrying() {
            link.count_probe(gpu)?;
        }
        let (life, carriers) = (state.next_life(), state.carriers());
        let out = state
            .links
            .iter()
            .filter(|link| !carriers.carries(link.rail()));
        for link in out {
            link.release(gpu, Status::ABORTED)?;
        }
        let contexts = state.contexts(&self.config);
        self.tables.set_life(peer, life, carriers, &contexts)?;
        state.finish(life);
        Ok(())
    }
}

impl Attempt {
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

/// Where one generation tells another how far it is.
fn reunite_key(from: (u32, u32), to: (u32, u32)) -> String {
    format!("reunite/{}.{}/{}.{}", from.0, from.1, to.0, to.1)
}

/// Refuses a generation that the QPs are not for.
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
