//! The life cycle of the QPs to one peer: how one life ends and the next begins, whatever the reason.
//!
//! A recovery ([`Team::recover`]), a reunion ([`Team::reunite_peer`]), a replacement ([`Team::connect_peer`]) and a rebuild
//! ([`Team::rebuild`]) are one sequence of steps.
//! They differ in what the next life keeps ([`Keeps`]) and in how the two ends meet.
//!
//! 1. This rank closes the peer, so that kernels get no more guards of it. It moves the QPs to Err and raises their error words,
//!    which ends every wait ([`Team::next_life`]).
//! 2. It waits until no kernel holds a guard: the grace period. If another generation is to come, it closes what it has opened of
//!    the former one's memory, and that one must be over.
//! 3. It resets the QPs and fills in their memory for a life that begins at the next multiple of 65,536 indices, or makes new QPs. A
//!    new generation gets new keys, and the old ones end.
//! 4. Each end tells the other what it offers now, and waits for the other's.
//! 5. The QPs go to Rtr and to Rts with new packet numbers; the peer table gets the number of the life ([`Team::begin_life`]).
//! 6. This rank opens the peer. A ticket of an earlier life is stale then.
//!
//! Each end remembers its state. A call that fails leaves the peer closed, and the next call goes on from that state. The records
//! that it has published for the other end stay valid meanwhile.

use std::time::{Duration, Instant};

use super::hello::Offer;
use super::links::{self, Known, Making, PeerState};
use super::{Team, TeamError};
use crate::deadline::Looks;

/// Time between two looks at the guards that kernels hold.
const LOOK: Duration = Duration::from_millis(1);
/// Commands of a replacement besides five for each QP.
const MORE_COMMANDS: usize = 8;

/// What the next life of the QPs to a peer keeps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keeps<'a> {
    /// QPs and keys: the peer is the same generation, and this is why.
    QpsAndKeys(Making),
    /// The QPs, for this generation; its keys are new.
    Qps(&'a Known),
    /// Nothing: QPs and keys for this generation are new.
    Nothing(&'a Known),
}

impl<'a> Keeps<'a> {
    /// The generation that the next life is for; none: that of the present one.
    fn successor(self) -> Option<&'a Known> {
        match self {
            Self::QpsAndKeys(_) => None,
            Self::Qps(known) | Self::Nothing(known) => Some(known),
        }
    }

    fn making(self) -> Making {
        match self {
            Self::QpsAndKeys(why) => why,
            Self::Qps(known) | Self::Nothing(known) => Making::Peer(known.generation),
        }
    }
}

impl Team {
    /// Ends the present life of the QPs to `peer` and makes the next: steps 1 to 3. Waits for kernels until `deadline`.
    pub(super) fn next_life(
        &self,
        peer: u32,
        keeps: Keeps<'_>,
        deadline: Instant,
    ) -> Result<(), TeamError> {
        let links = self.peer(peer)?;
        let gpu = self.gpu.as_ref();
        let mut state = links.state();
        self.tables.close(peer);
        state.begin(keeps.making());
        state.failed = false;
        state.end_life(gpu)?;
        drop(state);

        self.wait_for_guards(peer, deadline)?;
        if let Some(known) = keeps.successor() {
            self.close_windows(peer)?;
            self.former_is_over(peer, known.generation, &known.identity)?;
        }

        let mut state = links.state();
        let life = state.next_life();
        match keeps {
            // The keys stay, so all depends on the packet numbers.
            Keeps::QpsAndKeys(_) => state.reset(gpu, usize::MAX)?,
            Keeps::Qps(_) => {
                let keys: usize = self.windows().iter().map(|one| one.keys_of(peer)).sum();
                state.reset(gpu, MORE_COMMANDS.saturating_sub(2 * keys))?;
            }
            Keeps::Nothing(_) => {
                // The old ones first: their memory is what the new ones get.
                state.links.clear();
                state.links = links::make(
                    gpu,
                    &self.rails,
                    &self.config,
                    self.links.failures(),
                    peer,
                    life,
                )?;
            }
        }
        if let Some(known) = keeps.successor() {
            for window in self.windows().iter_mut() {
                window.renew(&self.rails, peer, life)?;
            }
            state.told = known.generation;
        }
        Ok(())
    }

    /// What this rank offers the generation that the life is for, which may store into windows from now on if it reaches them so.
    pub(super) fn offer_to(&self, state: &mut PeerState, peer: u32, known: &Known) -> Offer {
        state.admit(known.generation, known.reach, &known.identity);
        state.offer(peer, self.offers_of_windows(peer))
    }

    /// Fills in the peer table and connects the QPs with what the other generation offers: step 5. Kernels do not post to the
    /// peer: it is closed, and none holds a guard of it.
    pub(super) fn begin_life(
        &self,
        state: &mut PeerState,
        peer: u32,
        known: &Known,
        theirs: &Offer,
    ) -> Result<(), TeamError> {
        let life = match state.making {
            Some(_) => state.next_life(),
            None => state.life,
        };
        let places = self.places(theirs);
        let direct = self.open_windows(peer, known, theirs);
        let contexts = state.contexts(&self.config);
        let way = (state.carriers(), contexts.as_slice());
        self.tables.set_peer(peer, life, way, &direct, &places)?;
        state.receive(known, &theirs.qps)?;
        state.send(self.links.patience(), &theirs.qps)?;
        state.finish(life);
        (state.connected, state.recoveries) = (known.generation, 0);
        (state.doubted, state.places) = (false, None);
        state.reach = known.reach;
        Ok(())
    }

    fn wait_for_guards(&self, peer: u32, deadline: Instant) -> Result<(), TeamError> {
        let start = Instant::now();
        let mut readers = 0;
        for left in Looks::until(deadline) {
            readers = self.tables.readers(peer)?;
            if readers == 0 {
                return Ok(());
            }
            std::thread::sleep(LOOK.min(left));
        }
        Err(TeamError::Guarded {
            peer,
            readers,
            waited: start.elapsed(),
        })
    }
}
