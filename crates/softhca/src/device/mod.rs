//! The device model: HCAs, their objects, and the commands that make, change and end them.
//!
//! A process has one registry of HCAs. Everything about all of them is behind one lock, taken by calls of this module
//! for microseconds and by the engine thread for a bounded piece of work at a time.
//!
//! - [`Hca`] is the owner's handle: makes a device, looks at its counters, makes its commands fail.
//! - [`Context`] is what an opened device gives, the counterpart of the kernel's user context: all objects belong to one,
//!   and closing it ends them in the right order (QPs, CQs, keys, UMEMs, UAR pages, PDs).
//!
//! Commands are byte buffers as in the programmer's manual. Nothing in them is trusted: any bytes give an answer with a
//! status, and nothing panics.
//!
//! Memory is used where it lies. A registration is a promise that the range stays mapped until it is ended (what the
//! kernel gets by pinning pages); it is checked once, when it is made.

mod error;
pub mod syndrome;

pub use error::DeviceError;

use std::os::fd::BorrowedFd;

/// An opened device. Clones are the same context; [`Context::close`] ends it, as does dropping the last clone.
///
/// `errno` values: [`DeviceError::errno`].
#[derive(Clone, Debug)]
pub struct Context {}

/// Access rights of a memory region, bits of `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// The device may write (receives, READ results, atomics' results).
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(4);
    /// Peers may do atomics.
    pub const REMOTE_ATOMIC: Self = Self(8);
}

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// Local key; also the number by which the region is ended.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// A UAR page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UarPage {
    /// Page id: what QP and CQ contexts name as `uar_page`.
    pub page_id: u32,
    /// Where the page lies in [`Context::uar_fd`], in bytes: the offset for `mmap`.
    pub offset: u64,
    /// Bytes, 4096.
    pub bytes: u64,
}

/// An object made by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DevxObject {
    /// Completion queue.
    Cq(u32),
    /// Queue pair.
    Qp(u32),
    /// Memory key, by index (the key without its low byte).
    Mkey(u32),
}

/// Something that the device tells without having been asked. Delivered on the engine's thread, no lock held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A QP went to the error state without a completion that says so: the responder refused a request.
    QpRequestError(u32),
    /// The same, because of a key.
    QpAccessError(u32),
    /// A CQ has overrun.
    CqError(u32),
}

/// Names of all devices, in order.
pub fn device_names() -> Vec<String> {
    Vec::new()
}

impl Context {
    /// Opens a device.
    ///
    /// # Errors
    ///
    /// No such device; no memory for the UAR space; a failure asked for (`ALLOC_UCTX`).
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        let _ = name;
        Err(DeviceError::NoDevice)
    }

    /// The memfd that is the UAR space. It lives as long as the context; duplicate it to hand it out. Bytes below
    /// [`Self::FIRST_UAR_OFFSET`] are free for other uses.
    pub fn uar_fd(&self) -> BorrowedFd<'_> {
        unreachable!("no context exists yet")
    }

    /// Offset of the first UAR page in the memfd.
    pub const FIRST_UAR_OFFSET: u64 = 0x10000 * 4096;

    /// Ends the context and all its objects. Later calls on clones find no objects.
    pub fn close(&self) {}

    /// Makes a protection domain; its number.
    ///
    /// # Errors
    ///
    /// A failure asked for (`ALLOC_PD`).
    pub fn alloc_pd(&self) -> Result<u32, DeviceError> {
        Err(DeviceError::NoDevice)
    }

    /// Ends a protection domain.
    ///
    /// # Errors
    ///
    /// Busy while regions, keys or QPs use it.
    pub fn dealloc_pd(&self, pdn: u32) -> Result<(), DeviceError> {
        let _ = pdn;
        Err(DeviceError::NoDevice)
    }

    /// Registers `bytes` bytes at `address`, which remote and local segments name as `iova`.
    ///
    /// # Safety
    ///
    /// The memory stays mapped (writable if `access` says so) until the region is ended. It may be written by the device
    /// at any time.
    ///
    /// # Errors
    ///
    /// No such PD; not mapped; a failure asked for (`CREATE_MKEY`).
    #[expect(
        unsafe_code,
        reason = "declares a promise about memory; contains no unsafe operation"
    )]
    pub unsafe fn reg_mr(
        &self,
        pdn: u32,
        address: u64,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<MrKeys, DeviceError> {
        let _ = (pdn, address, bytes, iova, access);
        Err(DeviceError::NoDevice)
    }

    /// Ends a region by its lkey.
    ///
    /// # Errors
    ///
    /// No such region.
    pub fn dereg_mr(&self, lkey: u32) -> Result<(), DeviceError> {
        let _ = lkey;
        Err(DeviceError::NoDevice)
    }

    /// Registers memory for queues and doorbell records; its UMEM id.
    ///
    /// # Safety
    ///
    /// As [`Self::reg_mr`].
    ///
    /// # Errors
    ///
    /// Not mapped; empty; a failure asked for (`CREATE_UMEM`).
    #[expect(
        unsafe_code,
        reason = "declares a promise about memory; contains no unsafe operation"
    )]
    pub unsafe fn reg_umem(
        &self,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u32, DeviceError> {
        let _ = (address, bytes, access);
        Err(DeviceError::NoDevice)
    }

    /// Ends a UMEM.
    ///
    /// # Errors
    ///
    /// Busy while queues or keys lie in it.
    pub fn dereg_umem(&self, id: u32) -> Result<(), DeviceError> {
        let _ = id;
        Err(DeviceError::NoDevice)
    }

    /// Makes a UAR page. BlueFlame and non-cached pages are the same here.
    ///
    /// # Errors
    ///
    /// No page left; a failure asked for (`ALLOC_UAR`).
    pub fn alloc_uar(&self) -> Result<UarPage, DeviceError> {
        Err(DeviceError::NoDevice)
    }

    /// Ends a UAR page.
    ///
    /// # Errors
    ///
    /// Busy while QPs or CQs use it.
    pub fn free_uar(&self, page_id: u32) -> Result<(), DeviceError> {
        let _ = page_id;
        Err(DeviceError::NoDevice)
    }

    /// Number of the event queue of a completion vector.
    ///
    /// # Errors
    ///
    /// No such vector; a failure asked for (`CREATE_EQ`).
    pub fn eqn(&self, vector: u32) -> Result<u32, DeviceError> {
        let _ = vector;
        Err(DeviceError::NoDevice)
    }

    /// Executes a command that makes an object.
    ///
    /// # Errors
    ///
    /// Not such a command; refused, with status and syndrome in `output`.
    pub fn devx_create(&self, input: &[u8], output: &mut [u8]) -> Result<DevxObject, DeviceError> {
        let _ = (input, output);
        Err(DeviceError::NoDevice)
    }

    /// Executes a command that changes `object`.
    ///
    /// # Errors
    ///
    /// Not such a command, or it names another object; refused.
    pub fn devx_modify(
        &self,
        object: DevxObject,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), DeviceError> {
        let _ = (object, input, output);
        Err(DeviceError::NoDevice)
    }

    /// Executes a command that reads `object`.
    ///
    /// # Errors
    ///
    /// Not such a command, or it names another object; refused.
    pub fn devx_query(
        &self,
        object: DevxObject,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), DeviceError> {
        let _ = (object, input, output);
        Err(DeviceError::NoDevice)
    }

    /// Ends `object` by the command that the kernel would send.
    ///
    /// # Errors
    ///
    /// Refused, for example because another object uses it; a failure asked for (the destroy command's opcode).
    pub fn devx_destroy(&self, object: DevxObject) -> Result<(), DeviceError> {
        let _ = object;
        Err(DeviceError::NoDevice)
    }

    /// Executes a command that concerns no object (`QUERY_HCA_CAP` and other queries).
    ///
    /// # Errors
    ///
    /// Not such a command; refused.
    pub fn devx_general(&self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        let _ = (input, output);
        Err(DeviceError::NoDevice)
    }

    /// Where [`Event`]s of this context's objects go. The function must not block and must not call this module.
    pub fn set_event_handler(&self, handler: impl Fn(Event) + Send + Sync + 'static) {
        let _ = handler;
    }

    /// Counts an event descriptor of this context in or out (they live outside, but count as objects).
    pub fn count_event_fd(&self, opened: bool) {
        let _ = opened;
    }
}
