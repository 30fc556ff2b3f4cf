//! A store that can be taken away, from one rank or from all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpverbs::team::{
    AroundStore, KeyChange, KeyWatch, Store, StoreAnswer, StoreCall, StoreCallKind, StoreError,
};

/// Whether a store answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(Arc<AtomicBool>);

impl Cut {
    pub(crate) fn set(&self, cut: bool) {
        self.0.store(cut, Ordering::Relaxed);
    }
}

/// Values that come into a store in the place of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spoils(Arc<Mutex<Vec<Spoil>>>);

/// Replaces the value of one put under `key` by `value`: the put that follows `skip` others. Or of each put, until it is ended.
#[derive(Debug)]
struct Spoil {
    key: String,
    skip: u32,
    value: Vec<u8>,
    stays: bool,
}

impl Spoils {
    pub(crate) fn add(&self, key: String, skip: u32, value: &[u8]) {
        self.push(key, skip, value, false);
    }

    /// Spoils all that is put under `key`, so that its writer cannot mend it before another rank has read it.
    pub(crate) fn hold(&self, key: &str, value: &[u8]) {
        self.push(key.to_owned(), 0, value, true);
    }

    /// Lets the next value of `key` come into the store.
    pub(crate) fn end(&self, key: &str) {
        self.lock().retain(|spoil| spoil.key != key);
    }

    fn push(&self, key: String, skip: u32, value: &[u8], stays: bool) {
        let value = value.to_vec();
        self.lock().push(Spoil {
            key,
            skip,
            value,
            stays,
        });
    }

    /// Returns whether all of them have come into the store.
    pub(crate) fn are_done(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns what comes into the store in the place of a value of `key`.
    fn next(&self, key: &str) -> Option<Vec<u8>> {
        let mut all = self.lock();
        let place = all.iter().position(|spoil| spoil.key == key)?;
        match all[place].skip {
            _ if all[place].stays => Some(all[place].value.clone()),
            0 => Some(all.swap_remove(place).value),
            _ => {
                all[place].skip -= 1;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Spoil>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way of one rank to a store; ends in an error while one of its cuts is set.
#[derive(Debug)]
pub(crate) struct CutStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cuts: [Cut; 2],
    /// Calls so far.
    pub(crate) calls: Arc<AtomicU64>,
    pub(crate) spoils: Spoils,
}

impl CutStore {
    fn open(&self, key: &str) -> Result<&dyn Store, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let cut = self.cuts.iter().any(|cut| cut.0.load(Ordering::Relaxed));
        if cut {
            Err(StoreError::Io {
                path: key.into(),
                source: std::io::Error::other("the store is away"),
            })
        } else {
            Ok(self.store.as_ref())
        }
    }
}

impl AroundStore for CutStore {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            store: self.store.bounded(bound),
            cuts: self.cuts.clone(),
            calls: Arc::clone(&self.calls),
            spoils: self.spoils.clone(),
        })
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        let store = self.open(call.key())?;
        if call.kind == StoreCallKind::Put
            && let Some(spoilt) = self.spoils.next(&call.key)
        {
            return StoreCall::setting(call.kind, &call.key, &spoilt).make(store);
        }
        call.make(store)
    }

    fn next_around(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        self.open(watch.key())?.next_change(watch, since, timeout)
    }
}
