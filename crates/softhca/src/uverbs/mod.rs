//! The kernel's side of `/dev/infiniband/uverbsN`: what happens to an ioctl on such a descriptor.
//!
//! [`open`] gives a descriptor. Behind it is a [`Context`], the counterpart of the kernel's `ib_uverbs_file`. It has one context of
//! the device model, and the handles by which user space names its objects. `frame` checks what all ioctls have in common; the
//! other modules hold the methods, by kind of object:
//!
//! | module | methods |
//! |---|---|
//! | `device` | context, device, port, GIDs |
//! | `write` | commands of the older `write()` interface, which travel inside an ioctl |
//! | `objects` | ending and querying PDs |
//! | `regions` | memory regions and windows |
//! | `devx` | DevX commands, objects, user memory, event queues |
//! | `ah` | address handles: the MAC behind a GID |
//! | `uar` | doorbell pages |
//! | `cq` | completion queues: made, resized, moderated |
//! | `qp`, `qp_modify`, `qp_query` | queue pairs; `qp_rules` says which attributes a transition takes |
//! | `srq` | shared receive queues, basic and of XRC domains |
//! | `xrcd` | XRC domains |
//! | `events` | descriptors that events are read from, DevX subscriptions; `listeners` has the events of verbs |
//!
//! Queues made by verbs are those that DevX makes: their memory is pinned (`pinned`), and the same commands are sent.
//!
//! A missing feature is refused as a kernel without it refuses. A method that does not exist gives `EPROTONOSUPPORT`, a command of
//! the older interface `EOPNOTSUPP`.

mod ah;
mod clock;
mod cq;
mod device;
mod devx;
mod event_queue;
mod events;
mod frame;
mod handles;
mod listeners;
mod memory;
mod objects;
mod pinned;
mod qp;
mod qp_modify;
mod qp_query;
mod qp_rules;
mod regions;
mod srq;
mod structs;
mod uar;
mod user;
mod write;
mod xrcd;

use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::c_int;

use crate::device::{Context as DeviceContext, DeviceError, Event};
use crate::errno::Errno;
use crate::shim::{self, File};
use crate::sysfs::Identity;
use event_queue::{EventQueue, Purpose};
use events::Subscriptions;
use frame::Call;
use handles::{Handles, Object};
use listeners::Listeners;

/// `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`: the request of every verbs ioctl.
pub(crate) const RDMA_VERBS_IOCTL: u64 = 0xc018_1b01;

/// The object behind an uverbs descriptor and its duplicates.
pub(crate) struct Context {
    identity: Identity,
    device: DeviceContext,
    handles: Mutex<Handles>,
    subscriptions: Mutex<Subscriptions>,
    listeners: Mutex<Listeners>,
    /// `GET_CONTEXT` was called, as it must be once, before anything else.
    established: AtomicBool,
    /// The caller asked for DevX when it did.
    devx: AtomicBool,
}

/// Opens `/dev/infiniband/uverbsINDEX`: the new descriptor. Of `flags` only `O_CLOEXEC` means something.
///
/// # Errors
///
/// `ENOENT` if the device does not exist, `ENODEV` in a forked child of the process that has it.
pub(crate) fn open(index: u32, flags: c_int) -> Result<c_int, Errno> {
    if shim::is_forked_child() {
        return Err(Errno::ENODEV);
    }
    let identity = identity(index).ok_or(Errno::ENOENT)?;
    let device = DeviceContext::open(&identity.name)?;
    clock::publish(&device)?;
    let fd = duplicate(&device, flags)?;
    let context = Arc::new(Context {
        identity,
        device: device.clone(),
        handles: Mutex::default(),
        subscriptions: Mutex::default(),
        listeners: Mutex::default(),
        established: AtomicBool::new(false),
        devx: AtomicBool::new(false),
    });
    let listener = Arc::downgrade(&context);
    device.set_event_handler(move |event| {
        if let Some(context) = listener.upgrade() {
            context.deliver(event);
        }
    });
    shim::insert(fd.as_raw_fd(), context)?;
    Ok(fd.into_raw_fd())
}

/// A descriptor of the UAR space for the caller. The device keeps its own.
fn duplicate(device: &DeviceContext, flags: c_int) -> Result<OwnedFd, Errno> {
    let fd = device
        .uar_fd()
        .try_clone_to_owned()
        .map_err(|_| Errno::EMFILE)?;
    if flags & libc::O_CLOEXEC == 0 {
        fcntl_setfd(&fd, FdFlags::empty())?;
    }
    Ok(fd)
}

/// `st_rdev` of `/dev/infiniband/uverbsINDEX`, if the device exists.
pub(crate) fn character_device(index: u32) -> Option<u64> {
    identity(index).map(|identity| identity.character_device())
}

fn identity(index: u32) -> Option<Identity> {
    crate::device::identity(&format!("mlx5_{index}"))
}

impl File for Context {
    fn ioctl(&self, request: u64, argument: u64) -> Result<c_int, Errno> {
        if request != RDMA_VERBS_IOCTL {
            return Err(Errno::ENOTTY);
        }
        let methods: &[&[frame::Method]] = &[
            device::METHODS,
            write::METHODS,
            objects::METHODS,
            regions::METHODS,
            ah::METHODS,
            cq::METHODS,
            qp::METHODS,
            srq::METHODS,
            xrcd::METHODS,
            devx::METHODS,
            uar::METHODS,
            events::METHODS,
        ];
        frame::dispatch(self, argument, methods)?;
        Ok(0)
    }

    fn character_device(&self) -> Option<u64> {
        Some(self.identity.character_device())
    }

    fn closed(&self) {
        self.device.close();
        self.listeners().clear();
        self.subscriptions().end();
        // Last: queues must be gone before their memory is unpinned.
        self.handles().clear();
    }
}

impl Context {
    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers an event of the device to its subscribers.
    fn deliver(&self, event: Event) {
        let subscriptions = self.subscriptions();
        subscriptions.deliver(event);
        self.listeners().deliver(event, subscriptions.queues());
    }

    /// Where the asynchronous events of a new object go: the descriptor in attribute `id`, or the context's own.
    fn asynchronous_queue(
        &self,
        call: &Call<'_>,
        id: u16,
    ) -> Result<Option<Arc<EventQueue>>, Errno> {
        let subscriptions = self.subscriptions();
        if !call.has(id) {
            return Ok(subscriptions.asynchronous());
        }
        let fd = call.object(id)?;
        subscriptions
            .find(fd, |purpose| purpose == Purpose::Asynchronous)
            .map(Some)
    }

    /// Gives `object` a handle and has `tell` tell the caller; takes the handle back if that fails.
    fn publish(
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

    /// The context of the device model, once the caller has established it.
    fn device(&self) -> Result<&DeviceContext, Errno> {
        // Acquire: pairs with the release in GET_CONTEXT.
        if self.established.load(Ordering::Acquire) {
            Ok(&self.device)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// The same, where the method is one of DevX.
    fn devx(&self) -> Result<&DeviceContext, Errno> {
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
