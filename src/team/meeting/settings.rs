//! What all ranks settle before one of them makes a QP.

use serde::{Deserialize, Serialize};

use super::exchange::Exchange;
use crate::config::SignalOrder;
use crate::team::error::TeamError;
use crate::team::limits::MAX_QPS_PER_PEER;

/// The topic of a mismatch between ranks that support no order of signals in common.
pub(in crate::team) const ORDER: &str = "order of signals";

/// The settings that a rank wants before it makes a QP.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::team) struct Settings {
    /// Settings that all ranks must have alike: name and value.
    pub(in crate::team) agreed: Vec<(String, String)>,
    /// The most QPs to each peer that the rank makes.
    pub(in crate::team) qps_per_peer: u32,
    /// The orders of signals that the rank can take, the cheapest first.
    pub(in crate::team) orders: Vec<SignalOrder>,
}

/// The result of the settings of all ranks.
#[derive(Clone, Debug)]
pub(in crate::team) struct Settled {
    /// The smallest number of QPs to each peer that a rank asks for.
    pub(in crate::team) qps_per_peer: u32,
    /// The cheapest order of signals that all ranks can take.
    pub(in crate::team) order: SignalOrder,
    /// Cheaper orders that this rank can take, each with a rank that cannot.
    pub(in crate::team) lacking: Vec<(SignalOrder, u32)>,
}

/// Compares the settings of all ranks. The first difference is an error that names both ranks. The number of QPs to each peer is
/// the smallest that a founder asks for. The order of signals is one that all founders can take. A rank that joins later takes both
/// from the members.
pub(in crate::team) fn settle(exchange: &Exchange, own: Settings) -> Result<Settled, TeamError> {
    const TOPIC: &str = "config";
    let key = |rank: u32| format!("{TOPIC}/{rank}");
    let all = exchange.all_checked(TOPIC, key, &own, |rank, theirs: &Settings| {
        if !(1..=MAX_QPS_PER_PEER).contains(&theirs.qps_per_peer) {
            let qps = theirs.qps_per_peer;
            let reason = format!("{qps} QPs to each peer; it must be 1 to {MAX_QPS_PER_PEER}");
            return Err(exchange.record(rank, TOPIC, &reason));
        }
        exchange.same(&own.agreed, rank, &theirs.agreed)?;
        if theirs.orders.iter().any(|order| own.orders.contains(order)) {
            return Ok(());
        }
        let [own, theirs] = [&own.orders, &theirs.orders].map(|orders| words(orders));
        Err(exchange.mismatch(ORDER, own, rank, theirs))
    })?;
    let (order, lacking) = common_order(&own, &all)?;
    let counts = all
        .iter()
        .filter(|(rank, _)| !exchange.joins() || *rank != exchange.rank());
    let fewest = counts.map(|(_, settings)| settings.qps_per_peer).min();
    let qps_per_peer = fewest.unwrap_or(own.qps_per_peer);
    if qps_per_peer != own.qps_per_peer {
        let wanted = own.qps_per_peer;
        tracing::info!("{qps_per_peer} QPs to each peer, not {wanted}: other ranks have fewer");
    }
    // A founder may be gone when a rank joins later, so every member publishes the result.
    if qps_per_peer != own.qps_per_peer || own.orders != [order] {
        let came = Settings {
            qps_per_peer,
            orders: vec![order],
            ..own
        };
        exchange.put(&key(exchange.rank()), &came)?;
    }
    Ok(Settled {
        qps_per_peer,
        order,
        lacking,
    })
}

/// Returns the cheapest order of signals that all ranks can take, and the cheaper orders of this rank, each with a rank that cannot
/// take it.
fn common_order(
    own: &Settings,
    all: &[(u32, Settings)],
) -> Result<(SignalOrder, Vec<(SignalOrder, u32)>), TeamError> {
    let mut lacking = Vec::new();
    for order in &own.orders {
        match all
            .iter()
            .find(|(_, theirs)| !theirs.orders.contains(order))
        {
            None => return Ok((*order, lacking)),
            Some((rank, _)) => lacking.push((*order, *rank)),
        }
    }
    // Each rank has an order in common with this rank, but two ranks have none in common.
    let apart = |(_, one): &&(u32, Settings), (_, other): &&(u32, Settings)| {
        !one.orders.iter().any(|order| other.orders.contains(order))
    };
    let pairs = all
        .iter()
        .flat_map(|one| all.iter().map(move |other| (one, other)));
    let found = pairs.into_iter().find(|(one, other)| apart(one, other));
    let ((first_rank, first), (second_rank, second)) = found.unwrap_or((&all[0], &all[0]));
    Err(TeamError::Mismatch {
        what: ORDER.to_owned(),
        first_rank: *first_rank,
        first: words(&first.orders),
        second_rank: *second_rank,
        second: words(&second.orders),
    })
}

fn words(orders: &[SignalOrder]) -> String {
    let words: Vec<String> = orders.iter().map(SignalOrder::to_string).collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(" or ")
    }
}
