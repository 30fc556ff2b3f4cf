//! The object behind an uverbs descriptor and its duplicates, the counterpart of the kernel's `ib_uverbs_file`.

use super::event_queue::{self, Purpose};
use super::handles::{Handles, Object};
use super::listeners::Listeners;
use super::subscriptions::Subscriptions;
use crate::device::{Context as DeviceContext, DeviceError, Event};
use crate::errno::Errno;
use crate::sysfs::Identity;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The object behind an uverbs descriptor and its duplicates.
pub(crate) struct Context {
    identity: Identity,
    device: DeviceContext,
    handles: Mutex<Handles>,
    subscriptions: Mutex<Subscriptions>,
    listeners: Mutex<Listeners>,
    /// True if `GET_CONTEXT` was called. A program must call it once, before anything else.
    established: AtomicBool,
    /// True if the caller asked for DevX in `GET_CONTEXT`.
    devx: AtomicBool,
}

impl Context {
    /// Returns the context of a device that was just opened, and has no objects.
    pub(super) fn new(identity: Identity, device: DeviceContext) -> Self {
        Self {
            identity,
            device,
            handles: Mutex::default(),
            subscriptions: Mutex::default(),
            listeners: Mutex::default(),
            established: AtomicBool::new(false),
            devx: AtomicBool::new(false),
        }
    }

    /// Returns name and addresses of the device.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Establishes the context, with DevX if the caller wants it.
    ///
    /// # Errors
    ///
    /// The context is established already, or the device refuses DevX.
    pub(super) fn establish(&self, devx: bool) -> Result<(), Errno> {
        if devx {
            self.device.allow_devx()?;
        }
        if self.established.swap(true, Ordering::AcqRel) {
            return Err(Errno::EINVAL);
        }
        self.devx.store(devx, Ordering::Release);
        Ok(())
    }

    /// Ends all objects of the context.
    pub(super) fn end(&self) {
        self.device.close();
        self.listeners().clear();
        self.subscriptions().end();
        // Handles come last: queues must be gone before their memory is unpinned.
        self.handles().clear();
    }

    pub(super) fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers an event of the device to its subscribers.
    pub(super) fn deliver(&self, event: Event) {
        let subscriptions = self.subscriptions();
        subscriptions.deliver(event);
        self.listeners().deliver(event, subscriptions.queues());
    }

    /// Opens a descriptor for events. `tell` reports its number to the caller.
    pub(super) fn open_events(
        &self,
        purpose: Purpose,
        tell: impl FnOnce(u32) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let queue = event_queue::open(self.device()?, purpose, tell)?;
        self.subscriptions().add(queue);
        Ok(())
    }

    /// Gives `object` a handle, which `tell` reports to the caller. Takes the handle back if that fails.
    pub(super) fn publish(
        &self,
        object: Object,
        tell: impl FnOnce(u32) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let handle = self.handles().insert(object)?;
        let told = tell(handle);
        if told.is_err() {
            self.handles().remove(handle);
        }
        told
    }

    /// Returns the context of the device model, once the caller has established it.
    pub(super) fn device(&self) -> Result<&DeviceContext, Errno> {
        // Acquire: pairs with the release in GET_CONTEXT.
        if self.established.load(Ordering::Acquire) {
            Ok(&self.device)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// Returns what `device` does, for a method of DevX: only if the caller has asked for DevX.
    pub(super) fn devx(&self) -> Result<&DeviceContext, Errno> {
        if self.devx.load(Ordering::Acquire) {
            self.device()
        } else {
            Err(Errno::EINVAL)
        }
    }
}

impl From<DeviceError> for Errno {
    fn from(error: DeviceError) -> Self {
        Self(error.errno())
    }
}
