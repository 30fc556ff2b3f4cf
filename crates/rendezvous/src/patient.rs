//! A store that repeats calls for a while. It serves callers that can only go on or give up, such as a rank that comes up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{AroundStore, Store, StoreAnswer, StoreCall, StoreCallKind, StoreError, repeat};

/// A store that begins each call again while the inner store does not answer, until `patience` has passed since the first try.
///
/// A change whose answer is lost is made again only if its key is as it was when the request was sent. Then the change was not made, and of
/// two requests that hold only at the same revision at most one is done. In any other case the caller gets [`StoreError::NoAnswer`]. A
/// `put` counts as made if the key now has the value that was put.
///
/// A call takes up to `patience` and one bound of the store, and at least two bounds before it fails. A rank that follows other ranks by
/// the store's answers uses [`Store::bounded`], whose handle does not repeat.
#[derive(Debug)]
pub struct Patient {
    store: Arc<dyn Store>,
    patience: Duration,
}

impl Patient {
    /// Returns `store` with calls that are repeated for `patience`.
    pub fn new(store: Arc<dyn Store>, patience: Duration) -> Self {
        Self { store, patience }
    }

    /// Makes a change. `made` is a value of `key` that proves that the change was made and none came after it; None if no value proves
    /// that.
    fn change(
        &self,
        key: &str,
        made: Option<&[u8]>,
        mut call: impl FnMut() -> Result<StoreAnswer, StoreError>,
    ) -> Result<StoreAnswer, StoreError> {
        let until = Instant::now() + self.patience;
        let mut unknown: Option<StoreError> = None;
        loop {
            let error = match (repeat(until, &mut call), unknown.take()) {
                // An earlier request may have been done, and be the reason why this one changed nothing.
                (Ok(StoreAnswer::Is(false)) | Err(_), Some(error)) => return Err(error),
                (Ok(answer), _) => return Ok(answer),
                (Err(error), None) => error,
            };
            let StoreError::NoAnswer { seen, .. } = error else {
                return Err(error);
            };
            let looked = repeat(until, || self.store.changed_since(&[key], None, 0));
            let Ok(found) = looked else {
                return Err(error);
            };
            let entry = found.entries.first();
            if made.is_some() && entry.map(|entry| entry.value.as_slice()) == made {
                return Ok(StoreAnswer::Done);
            }
            if entry.map_or(0, |entry| entry.revision) != seen || Instant::now() >= until {
                return Err(error);
            }
            unknown = Some(error);
        }
    }
}

impl AroundStore for Patient {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        self.store.bounded(bound)
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        let make = || call.make(self.store.as_ref());
        match call.kind {
            StoreCallKind::Put => self.change(&call.key, call.value.as_deref(), make),
            // No value proves the change: another rank may have set the same one.
            StoreCallKind::CompareAndSet
            | StoreCallKind::PutLeased { .. }
            | StoreCallKind::Remove => self.change(&call.key, None, make),
            _ => repeat(Instant::now() + self.patience, make),
        }
    }
}
