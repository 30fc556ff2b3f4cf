//! What the records of a generation of a peer say: how the generation is reached, and what it offers.

use std::time::Instant;

use super::former;
use super::life::places;
use crate::team::error::TeamError;
use crate::team::hello::{Hello, Offer};
use crate::team::holder::Holder;
use crate::team::parts::Parts;
use crate::team::peers::state::Contact;

/// Returns how generation `generation` of `peer` is reached.
pub(super) fn contact(
    own: &Parts,
    peer: u32,
    generation: u32,
    deadline: Instant,
) -> Result<Contact, TeamError> {
    let of = Holder::new(peer, generation);
    let entry = own.peers.get(peer)?;
    let found = entry.state().contact.clone();
    if let Some(contact) = found.filter(|contact| contact.generation == generation) {
        return Ok(contact);
    }
    let key = of.hello_key();
    let read = || own.exchange.read_versioned(peer, &key);
    let hello: Hello = own.exchange.until(peer, &key, deadline, read)?;
    let wanted = own.wanted();
    wanted.check_hello(peer, &key, &hello, &own.windows.shapes())?;
    let contact = own.peers.contact(&own.rails, of, &hello)?;
    entry.state().contact = Some(contact.clone());
    Ok(contact)
}

/// Reads again the records of generation `generation` of `peer`, the generation that the QPs are for. What was read before may have
/// been written by another writer, and the peer may have written its own records again since. If a record is missing or invalid,
/// all stays as it was.
///
/// # Errors
/// Errors of the store.
pub(super) fn read_again(own: &Parts, peer: u32, generation: u32) -> Result<(), TeamError> {
    let entry = own.peers.get(peer)?;
    entry.state().doubted = false;
    let (contact, offer) = match told_now(own, peer, generation) {
        Ok(Some(told)) => told,
        Ok(None) => return Ok(()),
        Err(error @ TeamError::Store(_)) if !error.counts_as_missing() => {
            entry.state().doubted = true;
            return Err(error);
        }
        Err(error) => {
            tracing::debug!("what rank {peer} has told stays as it was read first: {error}");
            return Ok(());
        }
    };
    let mut state = entry.state();
    state.qps.lead_to(&contact.ways, &offer.qps);
    // The windows of founders stand in other records.
    state.places = (!offer.windows.is_empty()).then(|| places(&offer, own.rails.len()));
    Ok(())
}

/// Returns what the records of generation `generation` of `peer` say now, checked; none if a record is missing.
fn told_now(
    own: &Parts,
    peer: u32,
    generation: u32,
) -> Result<Option<(Contact, Offer)>, TeamError> {
    let of = Holder::new(peer, generation);
    let wanted = own.wanted();
    let key = of.hello_key();
    let Some(hello) = own.exchange.read_versioned::<Hello>(peer, &key)? else {
        return Ok(None);
    };
    wanted.check_hello(peer, &key, &hello, &own.windows.shapes())?;
    let of_founder = |offer: &&Offer| offer.reader() == own.holder();
    let offer = match hello.offers.iter().find(of_founder) {
        Some(offer) => {
            wanted.check_offer(peer, &key, offer, &[])?;
            offer.clone()
        }
        None => {
            let key = of.welcome_key(own.holder());
            let Some(offer) = own.exchange.read_versioned(peer, &key)? else {
                return Ok(None);
            };
            wanted.check_offer(peer, &key, &offer, &own.windows.shapes())?;
            offer
        }
    };
    let contact = own.peers.contact(&own.rails, of, &hello)?;
    Ok(Some((contact, offer)))
}

/// Returns what the store holds of the records by which this rank and generation `generation` of `peer` meet, in words: first the
/// records of this rank, then those of the peer. For the report on two ranks that do not meet.
pub(in crate::team) fn words(own: &Parts, peer: u32, generation: u32) -> [String; 2] {
    let other = Holder::new(peer, generation);
    let wanted = own.wanted();
    let shapes = own.windows.shapes();
    let of = |from: Holder, to: Holder| {
        let key = from.hello_key();
        let hello = match own.exchange.read_versioned::<Hello>(from.rank, &key) {
            Ok(None) => format!("'{key}' is missing"),
            Ok(Some(hello)) => match wanted.check_hello(from.rank, &key, &hello, &shapes) {
                Ok(()) => format!("'{key}' stands"),
                Err(error) => format!("'{key}' does not fit ({error})"),
            },
            Err(error) => format!("'{key}' cannot be read ({error})"),
        };
        let key = from.welcome_key(to);
        let welcome = match own.exchange.read_versioned::<Offer>(from.rank, &key) {
            Ok(None) => format!("'{key}' is missing"),
            Ok(Some(_)) => format!("'{key}' stands"),
            Err(error) => format!("'{key}' cannot be read ({error})"),
        };
        format!("{hello}, {welcome}")
    };
    [of(own.holder(), other), of(other, own.holder())]
}

/// Refuses generation `generation` of `peer` while the generation before it may still store into windows of this rank.
pub(in crate::team) fn check_former(
    own: &Parts,
    peer: u32,
    generation: u32,
) -> Result<(), TeamError> {
    if own.peers.get(peer)?.state().visitor.is_none() {
        return Ok(());
    }
    let contact = contact(own, peer, generation, Instant::now())?;
    former::is_over(own, peer, generation, &contact.identity)
}
