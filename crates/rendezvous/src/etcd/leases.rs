//! The leases of an etcd, by their numbers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{CallError, Client, NOT_FOUND};
use super::messages::{Granted, Nothing, Streamed};
use crate::{LeaseId, StoreError};

/// Asks the etcd about leases. Which keys are under a lease is the matter of [`Keys`](super::keys::Keys).
#[derive(Debug)]
pub(super) struct Leases {
    client: Arc<Client>,
}

impl Leases {
    /// Returns the leases of the etcd of `client`.
    pub(super) fn new(client: &Arc<Client>) -> Self {
        Self {
            client: Arc::clone(client),
        }
    }

    /// Takes a new lease, which no key is under yet. If the answer is lost, the lease runs out by itself, since no rank uses it.
    pub(super) fn grant(&self, ttl: Duration, until: Instant) -> Result<LeaseId, StoreError> {
        let seconds = ttl.as_millis().div_ceil(1000);
        let request = json!({"TTL": seconds.to_string()});
        let granted: Result<Granted, CallError> = self.client.ask("lease/grant", &request, until);
        let granted = granted.map_err(|error| self.client.error(error, 0))?;
        Ok(LeaseId(granted.id))
    }

    /// Keeps a lease for another time to live. Returns `false` if it is gone.
    pub(super) fn keep(&self, id: LeaseId, until: Instant) -> Result<bool, StoreError> {
        let request = json!({"ID": id.0.to_string()});
        let kept: Result<Streamed<Granted>, CallError> =
            self.client.ask("lease/keepalive", &request, until);
        let kept = kept.map_err(|error| self.client.error(error, 0))?;
        if let Some(refusal) = kept.error.filter(|refusal| refusal.code != NOT_FOUND) {
            self.client.forget_token();
            return Err(StoreError::Refused {
                store: self.client.name(),
                message: refusal.message,
            });
        }
        Ok(kept.result.is_some_and(|granted| granted.ttl != 0))
    }

    /// Ends a lease, with the keys that are still under it.
    pub(super) fn revoke(&self, id: LeaseId, until: Instant) -> Result<(), StoreError> {
        let request = json!({"ID": id.0.to_string()});
        let revoked: Result<Nothing, CallError> = self.client.ask("lease/revoke", &request, until);
        match revoked {
            Ok(_)
            | Err(CallError::Refused {
                code: NOT_FOUND, ..
            }) => Ok(()),
            Err(error) => Err(self.client.error(error, 0)),
        }
    }
}
