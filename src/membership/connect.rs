//! The thread that connects QPs to ranks that want to come in, so that nobody waits for that who has a view to agree on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::event::GroupEventKind;
use super::presence::RankGeneration;
use super::record::newer;
use super::shared::{Inner, Shared};

/// Time between two looks at calls that have to end first, and between two tries.
const LOOK: Duration = Duration::from_millis(2);
/// Time before a connection that failed is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// Connects until the group stops.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut not_before = Instant::now();
    // Whoever cannot be connected to does not keep the others waiting.
    let mut last: RankGeneration = (0, 0);
    while !shared.is_stopped() {
        let inner = shared.lock();
        let next = match Instant::now() >= not_before {
            true => next(shared, &inner, last),
            false => None,
        };
        let Some((rank, generation)) = next else {
            let over = over(shared, &inner);
            drop(shared.wait(inner, LOOK));
            release(shared, &over);
            continue;
        };
        drop(inner);
        last = (rank, generation);
        match connect(shared, last) {
            Ok(true) => {}
            Ok(false) => not_before = Instant::now() + LOOK,
            Err(error) => {
                shared.tell(GroupEventKind::NotConnected {
                    rank,
                    generation,
                    error,
                });
                not_before = Instant::now() + AGAIN;
            }
        }
    }
}

/// Slots whose holder was dropped, and of which no call needs anything.
fn over(shared: &Shared, inner: &Inner) -> Vec<u32> {
    let finished = shared.layer.finished();
    let ended = |(_, first): &(&u32, &u32)| !newer(first.wrapping_sub(1), finished);
    inner
        .traces
        .iter()
        .filter(ended)
        .map(|(slot, _)| *slot)
        .collect()
}

/// Closes the memory of those who are gone.
fn release(shared: &Shared, over: &[u32]) {
    for &slot in over {
        if let Err(error) = shared.transport.release_peer(slot) {
            tracing::debug!("the memory of rank {slot} stays open: {error}");
        }
    }
}

/// Somebody whom nothing keeps from being connected to: the first behind `last`.
fn next(shared: &Shared, inner: &Inner, last: RankGeneration) -> Option<RankGeneration> {
    let ended = |first: &u32| !newer(first.wrapping_sub(1), shared.layer.finished());
    let free = |(slot, _): &&RankGeneration| {
        // Grace: calls of the view before may still read what the one before has sent.
        let cleared = inner.traces.get(slot).is_none_or(ended);
        let leaves = inner.farewells.keys().any(|(leaver, _)| leaver == slot);
        cleared && !leaves && !inner.table.members().contains_key(slot)
    };
    let missing = || inner.wanted.difference(&inner.connected).filter(free);
    let behind = missing().find(|who| **who > last);
    behind.or_else(|| missing().next()).copied()
}

/// Whether the QPs are connected now; if not, the other end has not come yet.
fn connect(shared: &Shared, who: RankGeneration) -> Result<bool, String> {
    let (rank, generation) = who;
    let since = *shared.lock().begun.entry(who).or_insert_with(Instant::now);
    if shared.lock().traces.contains_key(&rank) {
        let silent = shared.transport.is_silent(rank, generation);
        if !silent.map_err(|error| error.to_string())? {
            return Ok(false);
        }
        let cleared = shared.layer.clear_peer(rank);
        cleared.map_err(|error| format!("clearing its words: {error}"))?;
        let mut inner = shared.lock();
        inner.traces.remove(&rank);
        inner.tell(GroupEventKind::Cleared { rank });
    }
    // Whoever came no further than this has lost its QPs now.
    shared.lock().connected.retain(|(slot, _)| *slot != rank);
    let connected = shared.transport.connect_peer(rank, generation);
    if !connected.map_err(|error| error.to_string())? {
        return Ok(false);
    }
    let mut inner = shared.lock();
    inner.begun.remove(&who);
    inner.connected.insert(who);
    inner.news = true;
    inner.tell(GroupEventKind::Connected {
        rank,
        generation,
        took: since.elapsed(),
    });
    shared.notify();
    Ok(true)
}
