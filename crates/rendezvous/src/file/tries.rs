//! Until when a call tries again while other writers are faster.

use std::time::{Duration, Instant};

use crate::StoreError;

/// The tries of one call. They end with the bound of the call.
#[derive(Debug)]
pub(super) struct Tries {
    start: Instant,
    bound: Duration,
}

impl Tries {
    pub(super) fn within(bound: Duration) -> Self {
        Self {
            start: Instant::now(),
            bound,
        }
    }

    /// Returns an error unless the bound leaves time for another try, of `key`.
    pub(super) fn again(&self, key: &str) -> Result<(), StoreError> {
        let waited = self.start.elapsed();
        if waited < self.bound {
            Ok(())
        } else {
            Err(StoreError::Late {
                key: key.to_owned(),
                waited,
            })
        }
    }
}
