//! A domain: a device of one profile, with its registrations and its endpoints.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libfabric_abi::Version;
use libfabric_abi::errors::FI_ENOMEM;

use super::keys::Keys;
use super::{Endpoint, Fabric, Users};
use crate::config::{Config, Profile};
use crate::engine::Nic;

pub(crate) struct Domain {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) config: Arc<Config>,
    pub(crate) profile: Profile,
    /// Whether operations name descriptors: `FI_MR_LOCAL`.
    pub(crate) needs_descriptors: bool,
    pub(crate) keys: Keys,
    /// Vectors, queues, registrations and endpoints.
    pub(crate) users: Users,
    ordinals: AtomicU32,
    enabled: Mutex<HashMap<u32, Arc<Endpoint>>>,
    nic: Mutex<Option<Nic>>,
}

impl Domain {
    pub(crate) fn new(
        fabric: Arc<Fabric>,
        config: Arc<Config>,
        profile: Profile,
        needs_descriptors: bool,
    ) -> Self {
        Self {
            fabric,
            config,
            profile,
            needs_descriptors,
            keys: Keys::default(),
            users: Users::default(),
            ordinals: AtomicU32::new(0),
            enabled: Mutex::default(),
            nic: Mutex::default(),
        }
    }

    pub(crate) fn api(&self) -> Version {
        self.fabric.api
    }

    /// The number of the next endpoint, from 1: its part of the seed.
    pub(crate) fn next_ordinal(&self) -> u32 {
        self.ordinals.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes an endpoint that is enabled from now on. Where bytes move by themselves the device's thread has it too.
    pub(crate) fn enable(
        &self,
        endpoint: &Arc<Endpoint>,
        ready: BorrowedFd<'_>,
    ) -> Result<(), c_int> {
        let mut enabled = self.enabled();
        if enabled.len() >= self.config.endpoints {
            return Err(FI_ENOMEM);
        }
        if !self.profile.is_manual() {
            let mut nic = self.nic.lock().unwrap_or_else(PoisonError::into_inner);
            if nic.is_none() {
                *nic = Some(Nic::start()?);
            }
            if let Some(nic) = &*nic {
                nic.add(endpoint.clone(), ready)?;
            }
        }
        enabled.insert(endpoint.ordinal, endpoint.clone());
        Ok(())
    }

    /// Those that are enabled.
    pub(crate) fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.enabled().values().cloned().collect()
    }

    /// The endpoint is closed: the device's thread has let go of it when this returns.
    pub(crate) fn disable(&self, endpoint: &Endpoint) {
        self.enabled().remove(&endpoint.ordinal);
        let nic = self.nic.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nic) = &*nic {
            nic.remove(endpoint.ordinal);
        }
    }

    /// Ends the device's thread.
    pub(crate) fn end(&self) {
        let nic = self
            .nic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(nic) = nic {
            nic.end();
        }
    }

    fn enabled(&self) -> MutexGuard<'_, HashMap<u32, Arc<Endpoint>>> {
        self.enabled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
