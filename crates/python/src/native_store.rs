//! A store of the library's, whose waits end with a signal where Python waits for them.

use std::sync::Arc;
use std::time::Duration;

use warpverbs::config::Config;
use warpverbs::team::{
    AroundStore, Store, StoreAnswer, StoreCall, StoreCallKind, StoreError, Team,
};

use crate::interrupt::{self, SIGNALS};

/// Longest call of the store after a signal: it tells other ranks that this one gives up.
const LAST: Duration = Duration::from_millis(500);

/// Calls of a thread that has come from Python end with a signal. Those of the library's own threads are those of `store`.
#[derive(Debug)]
struct Interruptible {
    store: Arc<dyn Store>,
}

/// The store that `config` names.
pub(crate) fn open(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
    let config = config.clone();
    let store = interrupt::ask(move || Team::open_store(&config))?;
    Ok(Arc::new(Interruptible { store }))
}

impl Interruptible {
    fn ask(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        if !interrupt::is_lent() {
            return call.make(self.store.as_ref());
        }
        if interrupt::is_over() {
            // An error that is not repeated.
            let answer = call.make(self.store.bounded(LAST).as_ref());
            return answer.map_err(|error| StoreError::Interrupted {
                cause: error.to_string(),
            });
        }
        let (store, call) = (Arc::clone(&self.store), call.clone().into_owned());
        interrupt::ask(move || call.make(store.as_ref()))
    }
}

impl AroundStore for Interruptible {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        let store = self.store.bounded(bound);
        Arc::new(Self { store })
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        match call.kind {
            // Leases are kept by threads of the library.
            StoreCallKind::TakeLease { .. }
            | StoreCallKind::PutLeased { .. }
            | StoreCallKind::RenewLease { .. }
            | StoreCallKind::EndLease { .. } => call.make(self.store.as_ref()),
            _ => self.ask(call),
        }
    }

    /// If a signal has come, the next call fails.
    fn wait_around(&self, timeout: Duration) {
        if interrupt::is_lent() {
            self.store.wait_for_change(timeout.min(SIGNALS));
            interrupt::look();
        } else {
            self.store.wait_for_change(timeout);
        }
    }
}
