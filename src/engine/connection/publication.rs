//! Names of engines in a store. An engine publishes its address under its name, for as long as it lives.

use std::sync::Arc;
use std::time::Duration;

use rendezvous::{Lease, Store, StoreError};

use crate::config::EngineAddress;
use crate::engine::error::HostError;

/// The key in a store below which the names of engines are.
pub(in crate::engine) const ENGINES: &str = "engine";
/// How long a name outlives its process, if the store does not see the end of the process.
const TIME_TO_LIVE: Duration = Duration::from_secs(10);

/// An address under a name in a store. The record goes when this is dropped, and soon after a process that ends without a drop.
#[derive(Debug)]
pub struct Publication {
    held: Held,
}

#[derive(Debug)]
enum Held {
    Lease(#[expect(dead_code, reason = "held for its drop")] Lease),
    /// The record of a store without leases. It stays if the process ends without a drop.
    Record {
        store: Arc<dyn Store>,
        key: String,
    },
}

impl Publication {
    /// Publishes `address` under `name`, among names of this `kind`.
    ///
    /// # Errors
    /// [`HostError::NameTaken`]; [`HostError::NoAddress`]: no other machine or process can connect to the address;
    /// [`HostError::Store`]: the store takes no such name, or fails.
    pub fn new(
        store: &Arc<dyn Store>,
        kind: &str,
        name: &str,
        address: &EngineAddress,
    ) -> Result<Self, HostError> {
        let is_reached = match address {
            EngineAddress::Tcp(address) => !address.ip().is_unspecified() && address.port() != 0,
            // To a process in another directory a relative path names another socket.
            EngineAddress::Unix(path) => path.as_path().is_absolute(),
        };
        if !is_reached {
            let address = address.clone();
            return Err(HostError::NoAddress { address });
        }
        let failed = |error| HostError::Store {
            name: name.to_owned(),
            error,
        };
        let key = format!("{kind}/{name}");
        let value = address.to_string();
        let held = match store.without_leases() {
            None => Lease::take(store, &key, value.as_bytes(), TIME_TO_LIVE)
                .map_err(failed)?
                .map(Held::Lease),
            Some(_) => {
                let is_set = store.compare_and_set(&key, None, value.as_bytes());
                is_set.map_err(failed)?.then(|| Held::Record {
                    store: Arc::clone(store),
                    key,
                })
            }
        };
        let name = name.to_owned();
        let held = held.ok_or(HostError::NameTaken { name })?;
        Ok(Self { held })
    }

    /// Returns the address under `name`, as `host:port` or `unix:PATH`.
    ///
    /// # Errors
    /// [`HostError::UnknownName`]; [`HostError::Store`]: the store fails, or has no address under the name.
    pub fn find(store: &dyn Store, kind: &str, name: &str) -> Result<String, HostError> {
        let (key, name) = (format!("{kind}/{name}"), name.to_owned());
        match store.try_get(&key) {
            Ok(Some(value)) => match str::from_utf8(&value).ok().and_then(|it| it.parse().ok()) {
                Some(address) => Ok(EngineAddress::to_string(&address)),
                None => Err(HostError::Store {
                    name,
                    error: StoreError::NotARecord {
                        key,
                        bytes: value.len(),
                    },
                }),
            },
            Ok(None) => Err(HostError::UnknownName { name }),
            Err(error) => Err(HostError::Store { name, error }),
        }
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if let Held::Record { store, key } = &self.held
            && let Err(error) = store.remove(key)
        {
            tracing::warn!("the record '{key}' stays in the store: {error}");
        }
    }
}
