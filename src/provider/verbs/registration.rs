//! Memory that is registered with a NIC, and the keys of grants, which are registrations of parts of it.

// UNSAFETY: gives memory that an engine has to the NIC.
#![expect(unsafe_code, reason = "registered memory")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::provider::gpu_memory::dmabuf_of;
use crate::provider::{AnyMemory, ProviderError};
use crate::verbs::{Access, Dmabuf, Export, KeyRange, PlainMr, PlainPd, PlainRange, VerbsError};

/// The memory behind each lkey of a rail.
#[derive(Debug, Default)]
pub(super) struct Registered(Mutex<HashMap<u32, AnyMemory>>);

impl Registered {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, AnyMemory>> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that is registered with the NIC.
#[derive(Debug)]
pub(crate) struct VerbsRegistration {
    mr: PlainMr,
    /// The memory, which is dropped after `mr`.
    _memory: AnyMemory,
    /// The list that has this memory. None after the keys were taken away.
    registered: Option<Arc<Registered>>,
}

/// A key for one peer, over part of a registration.
#[derive(Debug)]
pub(crate) struct VerbsKey {
    mr: PlainMr,
    /// The memory, which is dropped after `mr`.
    _memory: AnyMemory,
}

impl VerbsRegistration {
    /// Registers all of `memory` for this side and for peers.
    pub(super) fn new(
        pd: &Arc<PlainPd>,
        registered: &Arc<Registered>,
        memory: &AnyMemory,
    ) -> Result<Self, ProviderError> {
        let range = PlainRange {
            address: memory.address(),
            bytes: memory.bytes(),
            named: memory.address(),
        };
        let mr = register(pd, memory, &range, rights(pd))?;
        if memory.gpu().is_some() {
            let device = pd.context().name();
            tracing::debug!("{memory:?} is registered on {device}: {}", mr.export());
        }
        registered.lock().insert(mr.lkey(), memory.clone());
        Ok(Self {
            mr,
            _memory: memory.clone(),
            registered: Some(Arc::clone(registered)),
        })
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    /// Returns how the memory was exported to the NIC, and which ways were refused.
    pub(crate) fn export(&self) -> &Export {
        self.mr.export()
    }

    /// Takes the keys away. After a failure it can be called again.
    pub(crate) fn deregister(&mut self) -> Result<(), VerbsError> {
        let Some(list) = &self.registered else {
            return Ok(());
        };
        // The list is held, so no other memory with this lkey is listed before this row is gone.
        let mut listed = list.lock();
        self.mr.deregister()?;
        listed.remove(&self.mr.lkey());
        drop(listed);
        self.registered = None;
        Ok(())
    }
}

impl Drop for VerbsRegistration {
    fn drop(&mut self) {
        if let Err(error) = self.deregister() {
            tracing::error!("leaked: {error}");
        }
    }
}

impl VerbsKey {
    /// Registers part of a registration once more, with these rights of peers. The addresses by which peers name it are its own.
    pub(super) fn new(
        pd: &Arc<PlainPd>,
        registered: &Registered,
        range: &KeyRange,
        access: Access,
    ) -> Result<Self, ProviderError> {
        let memory = registered.lock().get(&range.lkey).cloned();
        let memory = memory.ok_or_else(|| {
            let value = format!("{:#x}", range.lkey);
            VerbsError::argument("lkey of a range", value, "that of a registration")
        })?;
        // A right of peers to write needs the local one.
        let access = if access.contains(Access::REMOTE_WRITE) {
            access | Access::LOCAL_WRITE
        } else {
            access
        };
        let range = PlainRange {
            address: range.address,
            bytes: range.bytes,
            named: range.named,
        };
        let mr = register(pd, &memory, &range, access)?;
        Ok(Self {
            mr,
            _memory: memory,
        })
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    /// Ends the key, so that no request begins by it any more. After a failure it can be called again.
    pub(crate) fn destroy(&mut self) -> Result<(), VerbsError> {
        self.mr.deregister()
    }
}

/// Returns all rights that the device has.
fn rights(pd: &PlainPd) -> Access {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    if pd.context().limits().atomics {
        rights | Access::REMOTE_ATOMIC
    } else {
        rights
    }
}

/// Registers a range of `memory`, by the best way that it offers.
fn register(
    pd: &Arc<PlainPd>,
    memory: &AnyMemory,
    range: &PlainRange,
    access: Access,
) -> Result<PlainMr, ProviderError> {
    let first = range.address - memory.address();
    let offered = memory.gpu().map(|memory| memory.dmabufs()).transpose()?;
    let dmabufs: Vec<Dmabuf<'_>> = offered
        .iter()
        .flatten()
        .map(|offered| Dmabuf {
            offset: offered.offset + first,
            ..dmabuf_of(offered)
        })
        .collect();
    // SAFETY: the caller keeps the memory as long as the region, and no Rust reference to it exists but to atomics. What is offered is this
    // memory.
    Ok(unsafe { PlainMr::register(pd, range, access, &dmabufs) }?)
}
