//! A recovery is a reunion with one attempt (`attempt.rs`), for which each end waits. QPs to other peers are not touched.
//!
//! Both ends call `Team::recover`. Each ends the life of its QPs, makes the next, which keeps QPs and keys (`life.rs`), goes through
//! the attempt, and opens the peer. From a reunion it differs so:
//!
//! - Each recovery has keys of its own, by its number. An end may call again before the other end has read that it was ready. The
//!   other end finds that record all the same, so each call that succeeds at one end belongs to one at the other.
//! - An error ends no attempt, because the other end may have opened the peer already. The next call goes on from the QPs as they
//!   are.
//! - All rails carry the QPs, and no probe is posted.

use std::cell::Cell;
use std::time::Duration;

use super::attempt::{Attempt, attempt_of, go_through};
use super::life::{Keeps, begin_again, next_life};
use crate::deadline::deadline_in;
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::parts::Parts;
use crate::team::peers::state::{Making, PeerState};
use crate::team::rails::RailSet;

/// The number of the attempt of a recovery.
const ONLY: u64 = 1;

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
    let other = Holder::new(peer, generation);
    let topic = own.holder().recovery_topic(other, number);
    let [own_key, key] = [own.config.rank, peer].map(|rank| format!("{topic}/{rank}"));
    let told = Cell::new(None);
    own.exchange.until(peer, &topic, deadline, || {
        // With one rail to leave out of, none can be left out.
        let met = attempt_of(own, other, &key, 1)?;
        let tell = |ready| {
            if told.replace(Some(ready)) == Some(ready) {
                return Ok(());
            }
            let attempt = Attempt::new(&entry.state(), ONLY, ready, RailSet::EMPTY);
            own.exchange.put(&own_key, &attempt)
        };
        let end = |state: &mut PeerState, met: &Attempt| {
            state.qps.send(own.peers.patience(), &met.qps)?;
            begin_again(own, state, peer)?;
            state.recoveries = number;
            own.tables.open(peer);
            Ok(true)
        };
        if go_through(own, peer, met.as_ref(), tell, end)? {
            return Ok(Some(number));
        }
        if entry.state().failed {
            return Err(TeamError::NotConnected { peer });
        }
        own.exchange.failure_of(other).map(|()| None)
    })
}
