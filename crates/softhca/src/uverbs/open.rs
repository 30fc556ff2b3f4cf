//! Opens uverbs descriptors, and hands their ioctls to the methods.

use super::context::Context;
use super::{
    ah, clock, cq, device, devx, events, frame, objects, qp, regions, srq, uar, write, xrcd,
};
use crate::device::Context as DeviceContext;
use crate::errno::Errno;
use crate::shim::{self, File};
use crate::sysfs::Identity;
use libc::c_int;
use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

/// The request number of every verbs ioctl: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
pub(crate) const RDMA_VERBS_IOCTL: u64 = 0xc018_1b01;

/// Opens `/dev/infiniband/uverbsINDEX`. Returns the new descriptor. Only `O_CLOEXEC` of `flags` has an effect.
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
    let context = Arc::new(Context::new(identity, device.clone()));
    let listener = Arc::downgrade(&context);
    device.set_event_handler(move |event| {
        if let Some(context) = listener.upgrade() {
            context.deliver(event);
        }
    });
    shim::insert(fd.as_raw_fd(), context)?;
    Ok(fd.into_raw_fd())
}

/// Returns a descriptor of the UAR space for the caller. The device keeps its own descriptor.
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

/// Returns `st_rdev` of `/dev/infiniband/uverbsINDEX`, if the device exists.
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
        Some(self.identity().character_device())
    }

    fn closed(&self) {
        self.end();
    }
}
