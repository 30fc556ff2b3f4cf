//! Founders connect with each other: they meet at once, and offer each other QPs in their hellos.

use super::steps::{admit, finish, receive};
use crate::fabric::Rail;
use crate::team::config::TeamConfig;
use crate::team::error::TeamError;
use crate::team::hello::Hello;
use crate::team::holder::Holder;
use crate::team::meeting::exchange::Exchange;
use crate::team::peers::list::Peers;

/// Connects the QPs of a founder with those of the other founders. Returns when every founder can send. The result is what founders
/// of lower rank on this machine have told of their costs.
pub(in crate::team) fn found(
    peers: &mut Peers,
    exchange: &Exchange,
    rails: &[Rail],
    config: &TeamConfig,
) -> Result<Vec<String>, TeamError> {
    let generation = config.generation;
    let others = config.members().without(config.rank);
    peers.offer_to_founders(others, generation);
    let peers = &*peers;
    let wanted = peers.wanted(exchange, config);
    let key = |rank| Holder::new(rank, generation).hello_key();
    let hellos = exchange.all_checked("hello", key, peers.hello(), |rank, hello| {
        wanted.check_hello(rank, "hello", hello, &[])
    })?;
    let process = |(peer, hello): &(u32, Hello)| (*peer, hello.identity.process().clone());
    exchange.watch(hellos.iter().map(process).collect());
    let own = peers.hello().identity.process();
    let before = hellos
        .iter()
        .filter(|(peer, hello)| *peer < config.rank && own.is_beside(hello.identity.process()));
    let told = before.flat_map(|(_, hello)| hello.costs.clone()).collect();
    for (peer, hello) in hellos {
        if peer == config.rank {
            continue;
        }
        let mut offers = hello.offers.iter();
        let Some(offer) = offers.find(|offer| offer.rank == config.rank) else {
            let reason = format!("it offers nothing to rank {}", config.rank);
            return Err(exchange.record(peer, "hello", &reason));
        };
        wanted.check_offer(peer, "hello", offer, &[])?;
        let of = Holder::new(peer, generation);
        let contact = peers.contact(rails, of, &hello)?;
        let mut state = peers.get(peer)?.state();
        receive(&mut state, &contact, &offer.qps)?;
        state.qps.send(peers.patience(), &offer.qps)?;
        finish(&mut state, 0);
        state.connected = generation;
        state.reach = contact.reach;
        admit(&mut state, generation, contact.reach, &contact.identity);
    }
    exchange.barrier("connected")?;
    Ok(told)
}
