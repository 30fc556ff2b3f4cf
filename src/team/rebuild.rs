//! The other way to bring a rank back: all ranks throw all QPs away and make new ones. For comparison only.

use std::time::{Duration, Instant};

use super::hello::Offer;
use super::life::Keeps;
use super::links::Known;
use super::{Team, TeamError};
use crate::deadline::deadline_in;

impl Team {
    /// Destroys the QPs to all of `peers`, by rank and generation, makes and connects new ones with new keys, and opens the
    /// peers. All of them call it for each other with the same `round`, which is used once. This is how other libraries bring a
    /// rank back, kept to be measured beside [`Team::connect_peer`]. While it runs no rank reaches another, and contexts and
    /// rings that kernels and graphs have captured are gone. No kernel of the team may run. Returns how long the peers were
    /// closed.
    ///
    /// # Errors
    /// As [`Team::connect_peer`]; the team is of no use then.
    pub(crate) fn rebuild(&self, peers: &[(u32, u32)], round: u32) -> Result<Duration, TeamError> {
        let deadline = deadline_in(self.config.join_timeout);
        let known: Vec<Known> = peers
            .iter()
            .map(|&(peer, generation)| self.known(peer, generation, deadline))
            .collect::<Result<_, _>>()?;
        let own = self.config.rank;
        let start = Instant::now();
        for (&(peer, _), known) in peers.iter().zip(&known) {
            let offer = self.remake(peer, known, deadline)?;
            self.exchange
                .put(&format!("rebuild/{round}/{own}/{peer}"), &offer)?;
        }
        let wanted = self.links.wanted(&self.exchange, &self.config);
        for (&(peer, _), known) in peers.iter().zip(&known) {
            let key = format!("rebuild/{round}/{peer}/{own}");
            let read = || self.exchange.read_versioned(peer, &key);
            let theirs: Offer = self.exchange.until(peer, &key, deadline, read)?;
            wanted.check_offer(peer, &key, &theirs, &self.window_shapes())?;
            let mut state = self.peer(peer)?.state();
            self.begin_life(&mut state, peer, known, &theirs)?;
        }
        for &(peer, _) in peers {
            self.open_peer(peer)?;
        }
        Ok(start.elapsed())
    }

    /// Makes new QPs and keys for one peer, and returns the offer to publish.
    fn remake(&self, peer: u32, known: &Known, deadline: Instant) -> Result<Offer, TeamError> {
        self.next_life(peer, Keeps::Nothing(known), deadline)?;
        let mut state = self.peer(peer)?.state();
        Ok(self.offer_to(&mut state, peer, known))
    }
}
