//! A recovery takes the QPs to one peer down and brings them up again. QPs to other peers are not touched.
//!
//! Both ends call `Team::recover`. Each end ends the life of its QPs and makes the next, which keeps QPs and keys (`life.rs`). When
//! both have done so, each connects its QPs again with new packet numbers, and opens the peer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::life::{Keeps, next_life, posting};
use super::steps::finish;
use crate::deadline::deadline_in;
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::parts::Parts;
use crate::team::peers::state::Making;
use crate::team::qps::set::QpOffer;

/// The record by which one end tells the other that its QPs are in Reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ResetQps {
    qps: Vec<QpOffer>,
}

/// Brings the QPs to `peer` up again, whatever state they are in, within `timeout`. Returns how many recoveries the two ends have
/// made since they were connected.
pub(in crate::team) fn recover(
    own: &Parts,
    peer: u32,
    timeout: Duration,
) -> Result<u32, TeamError> {
    let entry = own.peers.get(peer)?;
    let Some(_only) = entry.try_work() else {
        return Err(TeamError::Recovering { peer });
    };
    let deadline = deadline_in(timeout);
    let (number, generation) = {
        let state = entry.state();
        if state.connected == 0 || state.connected != state.told || state.is_for_another() {
            return Err(TeamError::NotConnected { peer });
        }
        (state.recoveries.wrapping_add(1), state.connected)
    };
    next_life(own, peer, Keeps::QpsAndKeys(Making::Recovery), deadline)?;
    let told = ResetQps {
        qps: entry.state().qps.offers(),
    };
    let other = Holder::new(peer, generation);
    let (low, high) = (own.holder().min(other), own.holder().max(other));
    let topic = |step: &str| format!("recover/{low}-{high}/{number}/{step}");
    let theirs = own.exchange.with(other, &topic("reset"), &told, deadline)?;
    receive_again(own, peer, &topic("reset"), &theirs)?;
    // No end sends before the other end receives.
    own.exchange.with(other, &topic("ready"), &(), deadline)?;
    let mut state = entry.state();
    if state.failed {
        return Err(TeamError::NotConnected { peer });
    }
    state.qps.send(own.peers.patience(), &theirs.qps)?;
    let life = state.next_life();
    own.tables.set_life(peer, &posting(own, &state, life))?;
    finish(&mut state, life);
    state.recoveries = number;
    own.tables.open(peer);
    Ok(number)
}

fn receive_again(own: &Parts, peer: u32, topic: &str, theirs: &ResetQps) -> Result<(), TeamError> {
    let mut state = own.peers.get(peer)?.state();
    if state.failed {
        return Err(TeamError::NotConnected { peer });
    }
    let known = state.qps.remote_qpns();
    let told: Vec<u32> = theirs.qps.iter().map(|qp| qp.qpn).collect();
    if known != told {
        let reason = format!("QPs {told:x?}; they were {known:x?}");
        return Err(own.exchange.record(peer, topic, &reason));
    }
    state.qps.receive(&theirs.qps)
}
