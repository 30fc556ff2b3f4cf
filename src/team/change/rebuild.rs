//! Another way to bring a rank back: all ranks throw all QPs away and make new ones. It is here for comparison only.

use std::time::{Duration, Instant};

use super::known::known;
use super::life::{Keeps, begin_life, next_life, offer_to};
use super::replace::open;
use crate::deadline::deadline_in;
use crate::team::error::TeamError;
use crate::team::hello::Offer;
use crate::team::parts::Parts;
use crate::team::peers::state::Known;

/// Destroys the QPs to all of `peers`, given by rank and generation, makes and connects new ones with new keys, and opens the
/// peers. Returns how long that took.
pub(in crate::team) fn rebuild(
    own: &Parts,
    peers: &[(u32, u32)],
    round: u32,
) -> Result<Duration, TeamError> {
    let deadline = deadline_in(own.config.join_timeout);
    let all_known: Vec<Known> = peers
        .iter()
        .map(|&(peer, generation)| known(own, peer, generation, deadline))
        .collect::<Result<_, _>>()?;
    let rank = own.config.rank;
    let start = Instant::now();
    for (&(peer, _), known) in peers.iter().zip(&all_known) {
        let offer = remake(own, peer, known, deadline)?;
        own.exchange
            .put(&format!("rebuild/{round}/{rank}/{peer}"), &offer)?;
    }
    let wanted = own.wanted();
    for (&(peer, _), known) in peers.iter().zip(&all_known) {
        let key = format!("rebuild/{round}/{peer}/{rank}");
        let read = || own.exchange.read_versioned(peer, &key);
        let theirs: Offer = own.exchange.until(peer, &key, deadline, read)?;
        wanted.check_offer(peer, &key, &theirs, &own.windows.shapes())?;
        let mut state = own.peers.get(peer)?.state();
        begin_life(own, &mut state, peer, known, &theirs)?;
    }
    for &(peer, _) in peers {
        open(own, peer)?;
    }
    Ok(start.elapsed())
}

/// Makes new QPs and keys for one peer, and returns the offer to publish.
fn remake(own: &Parts, peer: u32, known: &Known, deadline: Instant) -> Result<Offer, TeamError> {
    next_life(own, peer, Keeps::Nothing(known), deadline)?;
    let mut state = own.peers.get(peer)?.state();
    Ok(offer_to(own, &mut state, peer, known))
}
