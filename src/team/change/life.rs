//! The life cycle of the QPs to one peer: how one life ends and the next begins, whatever the reason.
//!
//! A reunion (`reunite.rs`), a recovery (`recover.rs`) and a replacement (`replace.rs`) are one sequence of steps. They differ in
//! what the next life keeps ([`Keeps`]) and in how the two ends meet.
//!
//! 1. This rank closes the peer, so that kernels get no more guards of it. It moves the QPs to Err and raises their error words,
//!    which ends every wait ([`next_life`]).
//! 2. It waits until no kernel holds a guard: the grace period. If another generation is to come, this rank closes what it has
//!    opened of the former generation's memory, and the former generation must be over.
//! 3. It resets the QPs and fills in their memory for a life that begins at the next multiple of 65,536 indices. A new generation
//!    gets new keys, and the old ones end.
//! 4. Each end tells the other what it offers now, and waits for the other's.
//! 5. The QPs go to Rtr and to Rts with new packet numbers; the peer table gets the number of the life ([`begin_life`]).
//! 6. This rank opens the peer. A ticket of an earlier life is stale then.
//!
//! Each end remembers its state. A call that fails leaves the peer closed, and the next call goes on from that state. The records
//! that it has published for the other end stay valid meanwhile.

use std::time::{Duration, Instant};

use super::{former, steps};
use crate::deadline::Looks;
use crate::team::error::TeamError;
use crate::team::hello::Offer;
use crate::team::parts::Parts;
use crate::team::peers::state::{Contact, Making, PeerState};
use crate::team::tables::{Posting, Tables};
use crate::team::windows::shown::WindowOffer;

/// Time between two looks at the guards that kernels hold.
const LOOK: Duration = Duration::from_millis(1);
/// Commands of a replacement besides the five for each QP.
const MORE_COMMANDS: usize = 8;

/// The parts that the next life of the QPs to a peer keeps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keeps<'a> {
    /// QPs and keys stay: the peer is the same generation. The value is the reason.
    QpsAndKeys(Making),
    /// The QPs stay, for this generation; its keys are new.
    Qps(&'a Contact),
}

impl<'a> Keeps<'a> {
    /// Returns the generation that the next life is for; none if it is that of the present life.
    fn successor(self) -> Option<&'a Contact> {
        match self {
            Self::QpsAndKeys(_) => None,
            Self::Qps(contact) => Some(contact),
        }
    }

    fn making(self) -> Making {
        match self {
            Self::QpsAndKeys(why) => why,
            Self::Qps(contact) => Making::Peer(contact.generation),
        }
    }
}

/// Ends the present life of the QPs to `peer` and makes the next: steps 1 to 3. Waits until `deadline` for kernels to drop their
/// guards.
pub(super) fn next_life(
    own: &Parts,
    peer: u32,
    keeps: Keeps<'_>,
    deadline: Instant,
) -> Result<(), TeamError> {
    let entry = own.peers.get(peer)?;
    let gpu = own.gpu.as_ref();
    let mut state = entry.state();
    own.tables.close(peer);
    steps::begin(&mut state, keeps.making());
    state.failed = false;
    steps::end_life(&mut state, gpu)?;
    drop(state);

    wait_for_guards(&own.tables, peer, deadline)?;
    if let Some(contact) = keeps.successor() {
        former::close_windows(own, peer)?;
        former::is_over(own, peer, contact.generation, &contact.identity)?;
    }

    let mut state = entry.state();
    let life = state.next_life();
    match keeps {
        // The keys stay, so only new packet numbers keep old packets out: the HCA is asked about all QPs.
        Keeps::QpsAndKeys(_) => steps::reset(&mut state, gpu, usize::MAX)?,
        Keeps::Qps(_) => {
            let keys = own.windows.keys_of(peer);
            steps::reset(&mut state, gpu, MORE_COMMANDS.saturating_sub(2 * keys))?;
        }
    }
    if let Some(contact) = keeps.successor() {
        own.windows.renew(&own.rails, peer, life)?;
        state.told = contact.generation;
    }
    Ok(())
}

/// Returns this rank's offer to the generation that the life is for. If that generation reaches windows by load and store, it may
/// do so from now on.
pub(super) fn offer_to(own: &Parts, state: &mut PeerState, peer: u32, contact: &Contact) -> Offer {
    steps::admit(state, contact.generation, contact.reach, &contact.identity);
    state.offer(peer, own.windows.offers(peer))
}

/// Fills in the peer table and connects the QPs with what the other generation offers: step 5. The peer is closed and no kernel
/// holds a guard of it, so no kernel posts to it.
pub(super) fn begin_life(
    own: &Parts,
    state: &mut PeerState,
    peer: u32,
    contact: &Contact,
    theirs: &Offer,
) -> Result<(), TeamError> {
    let life = match state.making {
        Some(_) => state.next_life(),
        None => state.life,
    };
    let places = places(theirs, own.rails.len());
    let told = &theirs.windows;
    let direct = own.windows.open(
        own.gpu.as_ref(),
        peer,
        contact.reach,
        &contact.identity,
        told,
    );
    own.tables
        .set_peer(peer, &posting(own, state, life), &direct, &places)?;
    steps::receive(state, contact, &theirs.qps)?;
    state.qps.send(own.peers.patience(), &theirs.qps)?;
    steps::finish(state, life);
    (state.connected, state.recoveries) = (contact.generation, 0);
    (state.doubted, state.places) = (false, None);
    state.reach = contact.reach;
    Ok(())
}

/// Makes the life that was made for the same generation the present one: step 5 with windows and keys as they are. The QPs are in
/// Rts.
pub(super) fn begin_again(own: &Parts, state: &mut PeerState, peer: u32) -> Result<(), TeamError> {
    let life = state.next_life();
    own.tables.set_life(peer, &posting(own, state, life))?;
    steps::finish(state, life);
    Ok(())
}

fn wait_for_guards(tables: &Tables, peer: u32, deadline: Instant) -> Result<(), TeamError> {
    let start = Instant::now();
    let mut readers = 0;
    for left in Looks::until(deadline) {
        readers = tables.readers(peer)?;
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

/// Returns how kernels post to a peer in this `life`.
fn posting(own: &Parts, state: &PeerState, life: u32) -> Posting {
    Posting {
        life,
        carriers: state.qps.carriers(),
        contexts: state.qps.contexts(own.config.qps_per_peer),
    }
}

/// Returns address and key of each window and rail, as the peer table holds them. There are `rails` entries for each window.
pub(super) fn places(theirs: &Offer, rails: usize) -> Vec<(u64, u32)> {
    let rail = |window: &WindowOffer, rail: usize| match window.rkeys.get(rail) {
        Some(rkey) => (window.base, rkey.to_be()),
        None => (0, 0),
    };
    let windows = theirs.windows.iter();
    windows
        .flat_map(|window| (0..rails).map(move |number| rail(window, number)))
        .collect()
}
