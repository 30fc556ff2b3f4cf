//! The thread that watches the record, so that the thread which follows the rules goes on at once. A store that delivers the new
//! record passes it on by the watch. With a store that only signals a change, the thread of the rules looks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rendezvous::{KeyChange, KeyWatch, Store};

use super::shared::Shared;

/// Longest wait for one change.
const WAIT: Duration = Duration::from_secs(10);
/// Pause after the store could not be asked.
const AGAIN: Duration = Duration::from_millis(50);

/// Waits until the group is gone. Meanwhile this thread holds no reference to the group, so dropping the group need not wait for
/// this thread.
pub(super) fn run(shared: &Weak<Shared>, store: &Arc<dyn Store>, key: &str) {
    let mut watch = KeyWatch::new(key);
    let (mut known, mut before) = (0, 0);
    while let Some(seen) = shared.upgrade().and_then(|shared| seen(&shared)) {
        // The store has lost what it held, and its revisions begin anew.
        if seen < before {
            (watch, known) = (KeyWatch::new(key), 0);
        }
        before = seen;
        let since = seen.max(known);
        let changed = store.next_change(&mut watch, since, WAIT);
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match changed {
            Ok(KeyChange::Nothing) => {}
            Ok(KeyChange::Set(entry)) => {
                known = entry.revision;
                shared.lock().told = Some(entry);
                shared.notify();
            }
            Ok(KeyChange::Unknown) => ring(&shared, since),
            Err(error) => {
                tracing::debug!("no watch of {key}: {error}");
                let inner = shared.lock();
                drop(shared.wait(inner, AGAIN));
            }
        }
    }
}

/// The store's revision of the last look; none when the group has stopped.
fn seen(shared: &Shared) -> Option<u64> {
    (!shared.is_stopped()).then(|| shared.lock().seen)
}

/// Rings, and waits until the thread that follows the rules has looked after `since`.
fn ring(shared: &Shared, since: u64) {
    let mut inner = shared.lock();
    inner.rang = true;
    shared.notify();
    while inner.seen <= since && !shared.is_stopped() {
        inner = shared.wait_for_look(inner, AGAIN);
    }
}
