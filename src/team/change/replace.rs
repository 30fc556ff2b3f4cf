//! A replacement of one peer: a new generation of it, or the first one in its place. QPs and keys of other peers stay untouched.
//!
//! Both ends call `Team::connect_peer`, in any order. A rank whose QPs to that place were for an earlier generation ends their life
//! and makes the next (`life.rs`). A rank that has offered nothing to that place yet skips this step. Then each end publishes what
//! it offers the other, waits for the other's offer, checks it, and begins the life.
//!
//! A rank that stays keeps rings, flags, CQEs, contexts and QP numbers. It allocates nothing. It issues five commands for each QP,
//! for the transitions from Err to Rts, and eight more. Two of these are for each window and rail of which the peer has keys; the
//! rest ask for packet numbers in use. A QP that is asked about gets new numbers at least 2^22 away from the old ones. The other
//! QPs get random numbers: then an old packet falls into the new window in one of 2^24 cases, and its key is refused as that of any
//! old packet.

use std::time::{Duration, Instant};

use super::contact::contact;
use super::life::{Keeps, begin_life, next_life, offer_to};
use crate::deadline::deadline_in;
use crate::team::error::TeamError;
use crate::team::hello::{Hello, Offer};
use crate::team::holder::Holder;
use crate::team::parts::Parts;
use crate::team::peers::state::{Contact, Making, PeerState, Said};

/// Returns key and value of the record `hello/RANK.GENERATION` of a rank that joins later, and keeps the value; none for a founder.
pub(in crate::team) fn hello_record(own: &Parts) -> Result<Option<(String, Vec<u8>)>, TeamError> {
    if !own.config.joins() {
        return Ok(None);
    }
    let key = own.holder().hello_key();
    let hello = Hello {
        windows: Some(own.windows.shapes()),
        identity: own.peers.hello().identity.renewed(),
        ..own.peers.hello().clone()
    };
    let text = own.exchange.text(&key, &hello)?;
    own.peers.keep_told(text.clone());
    Ok(Some((key, text)))
}

/// Reads the hello of generation `generation` of `peer`, checks it, and resolves the addresses in it.
pub(in crate::team) fn resolve(
    own: &Parts,
    peer: u32,
    generation: u32,
    patience: Duration,
) -> Result<(), TeamError> {
    let entry = own.peers.get(peer)?;
    check_generation(&entry.state(), peer, generation)?;
    let deadline = deadline_in(patience);
    contact(own, peer, generation, deadline).map(drop)
}

/// Connects the QPs to generation `generation` of `peer`: the first generation in that place, or one that replaces a former
/// generation, whose QPs and keys end here.
pub(in crate::team) fn connect(
    own: &Parts,
    peer: u32,
    generation: u32,
    patience: Duration,
) -> Result<(), TeamError> {
    let entry = own.peers.get(peer)?;
    let Some(_only) = entry.try_work() else {
        return Err(TeamError::Recovering { peer });
    };
    let deadline = deadline_in(patience);
    check_generation(&entry.state(), peer, generation)?;
    if entry.state().is_connected_with(generation) {
        return Ok(());
    }
    let contact = contact(own, peer, generation, deadline)?;
    prepare(own, peer, &contact, deadline)?;
    let other = Holder::new(peer, generation);
    let mut state = entry.state();
    let offer = offer_to(own, &mut state, peer, &contact);
    drop(state);
    tell_welcome(own, other, &offer)?;
    let theirs = welcome_of(own, other, deadline)?;
    // Another writer may have changed the record meanwhile. The other end may have read the wrong value, and reads the key again
    // when its QPs have failed.
    let said = entry.state().said.clone();
    if let Some(said) = said {
        own.exchange.put_again(&said.key, &said.text)?;
    }

    let mut state = entry.state();
    // The host may have given the peer up meanwhile.
    check_generation(&state, peer, generation)?;
    let begun = begin_life(own, &mut state, peer, &contact, &theirs);
    match begun {
        Ok(()) => (state.introduced, state.probed) = (Some(Instant::now()), None),
        // The hello may have been another writer's, even if it is valid: the next try reads it again.
        Err(_) => state.contact = None,
    }
    begun
}

/// Writes this rank's offer to generation `other`, unless that is what this rank has written last. If another writer changes it,
/// `Team::tell_again` writes it anew.
fn tell_welcome(own: &Parts, other: Holder, offer: &Offer) -> Result<(), TeamError> {
    let key = own.holder().welcome_key(other);
    let text = own.exchange.text(&key, offer)?;
    let entry = own.peers.get(other.rank)?;
    let stands = |said: &Said| said.key == key && said.text == text;
    if entry.state().said.as_ref().is_some_and(stands) {
        return Ok(());
    }
    own.exchange.put_text(&key, &text)?;
    entry.state().said = Some(Said {
        generation: other.generation,
        key,
        text,
    });
    Ok(())
}

/// Lets kernels take guards of `peer` and post to it. Call it after [`connect`].
pub(in crate::team) fn open(own: &Parts, peer: u32) -> Result<(), TeamError> {
    // The lock is held, so that no thread fails the peer in between.
    let mut state = own.peers.get(peer)?.state();
    if !state.is_connected() {
        return Err(TeamError::NotConnected { peer });
    }
    own.tables.open(peer);
    // The other end has read the welcome, or it would not have answered.
    state.said = None;
    Ok(())
}

/// Refuses a generation that is over.
fn check_generation(state: &PeerState, peer: u32, generation: u32) -> Result<(), TeamError> {
    let (newest, recovers) = match state.making {
        Some(Making::Peer(making)) => (making.max(state.told), false),
        Some(Making::Recovery | Making::Reunion(_)) => (state.told, true),
        None => (state.told, false),
    };
    let over = state.failed || recovers;
    // A later generation that was never connected ends no earlier one: if two processes take one place, either of them may be the
    // one that goes.
    let least = if over || newest == state.connected {
        newest.saturating_add(u32::from(over))
    } else {
        state.connected.saturating_add(1)
    };
    let least = least.max(1);
    if generation < least {
        return Err(TeamError::Generation {
            peer,
            generation,
            least,
        });
    }
    Ok(())
}

/// Brings QPs and keys to a state in which this rank has offered them to no generation but that of `known`.
fn prepare(own: &Parts, peer: u32, contact: &Contact, deadline: Instant) -> Result<(), TeamError> {
    let generation = contact.generation;
    let entry = own.peers.get(peer)?;
    let mut state = entry.state();
    if state.told == 0 {
        state.told = generation;
    }
    if state.told == generation && state.making.is_none() {
        return Ok(());
    }
    drop(state);
    next_life(own, peer, Keeps::Qps(contact), deadline)
}

/// Waits for the offer of `peer` to this generation, checks it and returns it.
fn welcome_of(own: &Parts, peer: Holder, deadline: Instant) -> Result<Offer, TeamError> {
    let key = peer.welcome_key(own.holder());
    let read = || own.exchange.read_versioned(peer.rank, &key);
    let offer = own.exchange.until(peer.rank, &key, deadline, read)?;
    let wanted = own.wanted();
    wanted.check_offer(peer.rank, &key, &offer, &own.windows.shapes())?;
    Ok(offer)
}
