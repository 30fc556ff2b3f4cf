//! Which link layers a machine has ports of, and which one ranks of several machines take.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::rdma::{LinkLayer, RdmaDevice, RdmaPort};
use super::reason::{Reason, admit};

/// A link layer that a rank may use, since its machine has ports of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayerOffer {
    /// The link layer.
    pub(crate) layer: LinkLayer,
    /// The rate of the layer's fastest port, in megabits per second; 0 if it is not known.
    pub(crate) rate_mbps: u32,
}

/// Returns the link layers of the active ports of `machine` that are `usable`, the best layer first. The best layer is that of the
/// fastest port. Of two equally fast layers the one with more ports is better, then InfiniBand.
pub(crate) fn layers_of(
    machine: &Machine,
    usable: impl Fn(&RdmaDevice, &RdmaPort) -> Result<(), Reason>,
) -> Vec<LayerOffer> {
    let ports = machine.rdma().iter().flat_map(|device| {
        let is_usable = |port: &&RdmaPort| usable(device, port).is_ok();
        device.ports.iter().filter(is_usable)
    });
    let active: Vec<_> = ports.filter(|port| admit(port, None).is_ok()).collect();
    let mut found = Vec::new();
    for layer in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
        let of_layer = active.iter().filter(|port| port.link_layer == Some(layer));
        let fastest = of_layer
            .clone()
            .map(|port| port.rate_mbps.unwrap_or(0))
            .max();
        if let Some(rate_mbps) = fastest {
            found.push((LayerOffer { layer, rate_mbps }, of_layer.count()));
        }
    }
    found.sort_by_key(|(offer, ports)| Reverse((offer.rate_mbps, *ports)));
    found.into_iter().map(|(offer, _)| offer).collect()
}

/// Returns the link layer that ranks with these offers take. Of the layers that all ranks offer, it is the layer whose slowest rank
/// is the fastest. Of two equally fast layers it is InfiniBand.
///
/// # Errors
/// The places of the first two ranks that have no layer in common; none if there are no two such ranks.
pub(crate) fn common_layer(offers: &[&[LayerOffer]]) -> Result<LinkLayer, Option<(usize, usize)>> {
    let slowest = |layer: LinkLayer| {
        let of_rank = |offers: &&[LayerOffer]| {
            let offer = offers.iter().find(|offer| offer.layer == layer);
            offer.map(|offer| offer.rate_mbps)
        };
        let rates: Option<Vec<u32>> = offers.iter().map(of_rank).collect();
        rates?.into_iter().min()
    };
    let layers = [LinkLayer::Ethernet, LinkLayer::InfiniBand];
    let common = layers
        .into_iter()
        .filter_map(|layer| Some((slowest(layer)?, layer)));
    common
        .max()
        .map(|(_, layer)| layer)
        .ok_or_else(|| apart(offers))
}

/// Returns the first two ranks that have no layer in common.
fn apart(offers: &[&[LayerOffer]]) -> Option<(usize, usize)> {
    let has = |of: usize, layer| offers[of].iter().any(|offer| offer.layer == layer);
    let shares = |one: usize, other: usize| offers[one].iter().any(|offer| has(other, offer.layer));
    let pairs = (0..offers.len()).flat_map(|other| (0..other).map(move |one| (one, other)));
    pairs.into_iter().find(|(one, other)| !shares(*one, *other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: [LinkLayer; 2] = [LinkLayer::Ethernet, LinkLayer::InfiniBand];

    /// Returns all that a rank may offer: either layer or both, at either of two rates.
    fn all_offers() -> Vec<Vec<LayerOffer>> {
        let rates = [None, Some(100_000), Some(400_000)];
        let pairs = rates
            .iter()
            .flat_map(|one| rates.map(|other| [*one, other]));
        let offers = pairs.map(|rates| {
            let offer = |(layer, rate): (LinkLayer, Option<u32>)| {
                rate.map(|rate_mbps| LayerOffer { layer, rate_mbps })
            };
            LAYERS.into_iter().zip(rates).filter_map(offer).collect()
        });
        offers
            .filter(|offers: &Vec<_>| !offers.is_empty())
            .collect()
    }

    /// Returns the layer that one rank finds. Of the ranks marked in `settled` it sees only `layer`, on which they have settled; of
    /// the other ranks it sees all offers.
    fn seen(
        offers: &[&[LayerOffer]],
        settled: u32,
        layer: LinkLayer,
    ) -> Result<LinkLayer, Option<(usize, usize)>> {
        let only = |rank: usize| -> Vec<LayerOffer> {
            let is_settled = settled >> rank & 1 != 0;
            let offers = offers[rank].iter().copied();
            offers
                .filter(|offer| !is_settled || offer.layer == layer)
                .collect()
        };
        let views: Vec<_> = (0..offers.len()).map(only).collect();
        common_layer(&views.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// Runs through two, three and four ranks, with any offers, and any of them settled when a rank looks. All ranks must take the
    /// same layer, which all have. If no layer is common to all, the error must name two ranks that have none in common.
    #[test]
    fn all_ranks_take_one_layer_that_all_have_in_every_order() {
        let all = all_offers();
        let (mut taken, mut refused) = (0, 0);
        for ranks in 2..=4_u32 {
            for number in 0..all.len().pow(ranks) {
                let digit = |rank: u32| number / all.len().pow(rank) % all.len();
                let offers: Vec<_> = (0..ranks).map(|rank| all[digit(rank)].as_slice()).collect();
                let has =
                    |rank: usize, layer| offers[rank].iter().any(|offer| offer.layer == layer);
                match common_layer(&offers) {
                    Ok(layer) => {
                        taken += 1;
                        assert!((0..offers.len()).all(|rank| has(rank, layer)), "{offers:?}");
                        for settled in 0..1 << ranks {
                            assert_eq!(
                                seen(&offers, settled, layer),
                                Ok(layer),
                                "{offers:?}, {settled:#b}"
                            );
                        }
                    }
                    Err(pair) => {
                        refused += 1;
                        let (one, other) = pair.unwrap();
                        assert!(one < other, "{offers:?}");
                        let shared = LAYERS
                            .into_iter()
                            .find(|layer| has(one, *layer) && has(other, *layer));
                        assert_eq!(shared, None, "{offers:?}: {one} and {other}");
                        let common = LAYERS
                            .into_iter()
                            .find(|layer| (0..offers.len()).all(|rank| has(rank, *layer)));
                        assert_eq!(common, None, "{offers:?}");
                    }
                }
            }
        }
        println!("{taken} settled, {refused} refused");
        assert_eq!(taken + refused, 8_i32.pow(2) + 8_i32.pow(3) + 8_i32.pow(4));
        assert_eq!(common_layer(&[]), Err(None));
    }

    #[test]
    fn of_two_layers_that_all_have_the_one_that_is_faster_at_its_slowest_rank() {
        let both = |ethernet, infiniband| {
            LAYERS
                .into_iter()
                .zip([ethernet, infiniband])
                .map(|(layer, rate_mbps)| LayerOffer { layer, rate_mbps })
                .collect::<Vec<_>>()
        };
        for (one, other, layer) in [
            ([200, 400], [200, 100], LinkLayer::Ethernet),
            ([200, 400], [100, 400], LinkLayer::InfiniBand),
            ([100, 100], [100, 100], LinkLayer::InfiniBand),
            ([0, 0], [0, 0], LinkLayer::InfiniBand),
            ([1, 0], [1, 400], LinkLayer::Ethernet),
        ] {
            let offers = [one, other].map(|[ethernet, infiniband]| both(ethernet, infiniband));
            for order in [[0, 1], [1, 0]] {
                let offers = order.map(|place: usize| offers[place].as_slice());
                assert_eq!(common_layer(&offers), Ok(layer), "{offers:?}");
            }
        }
    }
}
