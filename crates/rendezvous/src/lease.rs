//! A lease that renews itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{LeaseId, Store, StoreError};
use crate::thread::OwnThread;

/// A key that exists while this value lives: a thread renews it three times in each time to live. Dropping the value removes the key.
///
/// [`Lease::is_held`] is false for good once the store says that the lease is lost, or that another holder has the key. It is false as well
/// when the store has not answered for a whole time to live. It is true again if the store then answers that the lease was never lost.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<Shared>,
    renewer: Option<OwnThread>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    key: String,
    id: LeaseId,
    ttl: Duration,
    lost: AtomicBool,
    /// When the last renewal that the store granted was asked for.
    renewed: Mutex<Instant>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl Lease {
    /// Takes `key` with `value` for as long as the result lives. Returns `None` if another holder has the key.
    ///
    /// # Errors
    /// A key, value or time to live beyond the limits; an error of the store.
    pub fn take(
        store: &Arc<dyn Store>,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Self>, StoreError> {
        let asked = Instant::now();
        let Some(id) = store.take_lease(key, value, ttl)? else {
            return Ok(None);
        };
        let shared = Arc::new(Shared {
            store: Arc::clone(store),
            key: key.to_owned(),
            id,
            ttl,
            lost: AtomicBool::new(false),
            renewed: Mutex::new(asked),
            ended: Mutex::new(false),
            end: Condvar::new(),
        });
        let renewing = Arc::clone(&shared);
        let losing = Arc::clone(&shared);
        let lose = move |_: &_| losing.lost.store(true, Ordering::Relaxed);
        let renewer = OwnThread::spawn(&format!("lease {key}"), move || renewing.renew(), lose)?;
        Ok(Some(Self {
            shared,
            renewer: Some(renewer),
        }))
    }

    /// Returns whether this holder still has the key, as far as the last renewal says.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let shared = &self.shared;
        let renewed = *shared
            .renewed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        !shared.lost.load(Ordering::Relaxed) && renewed.elapsed() < shared.ttl
    }

    /// Returns whether the store has said that the lease is gone, or that its key is not under it any more. Only then must the holder take
    /// it again. A lease that is neither held nor gone is stale: the store has not answered for a time to live, and the thread still renews
    /// the lease.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Returns an error if the thread that renews the lease has panicked. Then the lease counts as lost.
    ///
    /// # Errors
    /// [`StoreError::Panicked`].
    pub fn check(&self) -> Result<(), StoreError> {
        let checked = self.renewer.as_ref().map_or(Ok(()), OwnThread::check);
        Ok(checked?)
    }

    /// Returns the key that the lease keeps in the store.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.shared.key
    }
}

impl Shared {
    fn renew(&self) {
        while !self.pause(self.ttl / 3) {
            let asked = Instant::now();
            match self.store.renew_lease(&self.key, self.id) {
                Ok(true) => {
                    *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = asked;
                }
                Ok(false) => {
                    tracing::error!("the lease '{}' is lost", self.key);
                    self.lost.store(true, Ordering::Relaxed);
                    return;
                }
                Err(error) => tracing::warn!("the lease '{}' is not renewed: {error}", self.key),
            }
        }
    }

    /// Sleeps for `time`, or until the lease has ended. Returns whether it has ended.
    fn pause(&self, time: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.end.wait_timeout_while(ended, time, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self
            .shared
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.end.notify_all();
        if let Some(renewer) = self.renewer.take() {
            renewer.join();
        }
        if let Err(error) = self
            .shared
            .store
            .end_lease(&self.shared.key, self.shared.id)
        {
            tracing::warn!(
                "the lease '{}' is left to run out: {error}",
                self.shared.key
            );
        }
    }
}
