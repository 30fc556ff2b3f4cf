//! The thread that watches the record, so that the thread which follows the rules hears of a change at once. If the store delivers the new
//! record, this thread passes it on. If the store only signals a change, this thread wakes the other one, which looks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rendezvous::{KeyChange, KeyWatch, Store};

use super::shared::Shared;

/// Longest wait for one change of the record.
const WAIT: Duration = Duration::from_secs(10);
/// Pause after a call of the store has failed.
const AGAIN: Duration = Duration::from_millis(50);

/// Watches the record until the group is dropped. While this thread waits, it holds no reference to the group, so dropping the group need
/// not wait for this thread.
pub(super) fn run(shared: &Weak<Shared>, store: &Arc<dyn Store>, key: &str) {
    let mut watch = KeyWatch::new(key);
    let (mut known, mut before) = (0, 0);
    while let Some(seen) = shared.upgrade().and_then(|shared| seen(&shared)) {
        // A smaller revision shows that the store has lost what it held. Its revisions begin anew.
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

/// Returns the store's revision of the last look. Returns None when the group has stopped.
fn seen(shared: &Shared) -> Option<u64> {
    (!shared.is_stopped()).then(|| shared.lock().seen)
}

/// Wakes the thread that follows the rules, and waits until that thread has looked at a revision after `since`.
fn ring(shared: &Shared, since: u64) {
    let mut inner = shared.lock();
    inner.rang = true;
    shared.notify();
    while inner.seen <= since && !shared.is_stopped() {
        inner = shared.wait_for_look(inner, AGAIN);
    }
}
