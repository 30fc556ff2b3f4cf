//! Which link layer ranks of several machines take, if their devices leave a choice.
//!
//! Each founder writes `link-layer/RANK`: the link layer of the port that it has opened. A founder has a choice if its machine has
//! active ports of two layers and its configuration names none. Such a founder writes both layers before it opens a port. It waits
//! for the records of all other founders, and takes the layer that all have. No other founder waits. A rank that joins later takes
//! the layer that it finds in the records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exchange::{Exchange, LINK_LAYERS};
use crate::team::error::TeamError;
use crate::team::ranks::RankSet;
use crate::topology::{LayerOffer, LinkLayer, common_layer};
use crate::verbs::Context;

const TOPIC: &str = "link-layer";

/// The record of a founder.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// One or two offers, each of another layer.
    offers: Vec<LayerOffer>,
}

/// Returns the link layer that this rank takes, out of the link layers that it offers. Returns None if it has no choice; then it
/// has published nothing.
pub(in crate::team) fn settle_link_layer(
    exchange: &Exchange,
    offers: &[LayerOffer],
    ranks: u32,
) -> Result<Option<LinkLayer>, TeamError> {
    if offers.len() < 2 {
        return Ok(None);
    }
    let own = Record {
        offers: offers.to_vec(),
    };
    let check = |rank, record: &Record| check_layers(exchange, rank, record);
    let told = if exchange.joins() {
        // A founder may be gone; its record stays.
        let mut told = exchange.told_by(&RankSet::first(ranks), TOPIC, key, check)?;
        told.retain(|(rank, _)| *rank != exchange.rank());
        told.push((exchange.rank(), own));
        told.sort_by_key(|(rank, _)| *rank);
        told
    } else {
        exchange.all_checked(TOPIC, key, &own, check)?
    };
    let offers: Vec<&[LayerOffer]> = told
        .iter()
        .map(|(_, record)| record.offers.as_slice())
        .collect();
    let layer = common_layer(&offers).map_err(|apart| {
        let (one, other) = apart.unwrap_or_default();
        let [one, other] = [&told[one], &told[other]];
        TeamError::Mismatch {
            what: "link layer".to_owned(),
            first_rank: one.0,
            first: words(&one.1),
            second_rank: other.0,
            second: words(&other.1),
        }
    })?;
    Ok(Some(layer))
}

/// Publishes the link layer of the ports of this founder, which are open. The first port stands for all: a port of each rail has
/// the link layer of the ports of that rail at the other ranks.
pub(in crate::team) fn tell_link_layer(
    exchange: &Exchange,
    contexts: &[Arc<Context>],
) -> Result<(), TeamError> {
    let Some(port) = contexts.first().map(|context| context.port()) else {
        return Ok(());
    };
    if exchange.joins() {
        return Ok(());
    }
    let offer = LayerOffer {
        layer: port.link_layer,
        rate_mbps: port.speed_mbps,
    };
    exchange.put(
        &key(exchange.rank()),
        &Record {
            offers: vec![offer],
        },
    )
}

fn check_layers(exchange: &Exchange, rank: u32, record: &Record) -> Result<(), TeamError> {
    match record.offers[..] {
        [_] => Ok(()),
        [one, other] if one.layer != other.layer => Ok(()),
        _ => {
            let reason = "it must name one or two link layers, each once";
            Err(exchange.record(rank, TOPIC, &reason))
        }
    }
}

fn key(rank: u32) -> String {
    format!("{LINK_LAYERS}{rank}")
}

fn words(record: &Record) -> String {
    let layers = record.offers.iter().map(|offer| offer.layer.to_string());
    layers.collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rendezvous::{Asked, Counted};

    use super::*;
    use crate::team::{MemoryStore, Store, TeamConfig};

    fn offers(layers: &[LinkLayer]) -> Vec<LayerOffer> {
        let offer = |layer: &LinkLayer| LayerOffer {
            layer: *layer,
            rate_mbps: 400_000,
        };
        layers.iter().map(offer).collect()
    }

    fn counted() -> (Arc<dyn Store>, Arc<Asked>) {
        let store = Counted::new(Arc::new(MemoryStore::new()));
        let asked = store.asked();
        (Arc::new(store), asked)
    }

    #[test]
    fn only_a_rank_with_a_choice_asks_the_store_and_writes_once() {
        let ranks = 16;
        let (store, asked) = counted();
        let exchange = |rank| Exchange::new(Arc::clone(&store), &TeamConfig::new(rank, ranks));
        for layers in [&[][..], &[LinkLayer::Ethernet], &[LinkLayer::InfiniBand]] {
            let settled = settle_link_layer(&exchange(0), &offers(layers), ranks).unwrap();
            assert_eq!(settled, None);
        }
        assert_eq!(asked.calls(), 0);
        let both = offers(&[LinkLayer::Ethernet, LinkLayer::InfiniBand]);
        let settled: Vec<_> = thread::scope(|scope| {
            let settle = |rank| {
                let both = &both;
                scope.spawn(move || settle_link_layer(&exchange(rank), both, ranks).unwrap())
            };
            let threads: Vec<_> = (0..ranks).map(settle).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert_eq!(settled, [Some(LinkLayer::InfiniBand); 16]);
        assert_eq!(asked.by_kind()["put"], u64::from(ranks));
    }

    #[test]
    fn a_rank_that_joins_reads_once_and_writes_nothing() {
        let both = offers(&[LinkLayer::Ethernet, LinkLayer::InfiniBand]);
        for layer in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
            let (store, asked) = counted();
            let record = Record {
                offers: offers(&[layer]),
            };
            store
                .put(&key(0), &serde_json::to_vec(&record).unwrap())
                .unwrap();
            // The record of another founder is damaged, and that founder is gone.
            store.put(&key(1), b"{").unwrap();
            let before = asked.calls();
            let config = TeamConfig::new(2, 4).joining(2, RankSet::first(1));
            let exchange = Exchange::new(Arc::clone(&store), &config);
            assert_eq!(settle_link_layer(&exchange, &both, 4).unwrap(), Some(layer));
            // One call for the names, one for their values.
            assert_eq!(asked.calls() - before, 2, "{:?}", asked.by_kind());
            tell_link_layer(&exchange, &[]).unwrap();
            assert_eq!(store.list(TOPIC).unwrap(), ["0", "1"]);
        }
    }
}
