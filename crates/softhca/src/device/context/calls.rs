//! The calls by which objects of an opened device come and go.
//!
//! Some have a command of their own in the kernel; the rest are commands as bytes. A program with DevX sends those itself
//! (`devx_*`), and reads status and syndrome of a refusal. For other programs the kernel sends them (`kernel_*`), and `errno` alone
//! reports a refusal.

use super::handle::Context;
use super::{regions, uars, umems, windows, xrcds};
use crate::device::command::{self, Class};
use crate::device::error::DeviceError;
use crate::device::memory::Region;
use crate::device::memory::keys::Access;
use crate::device::memory::mapping::{self, Backed};
use crate::device::names::{DevxObject, MrChange, MrKeys, UarPage};
use crate::device::objects::xrcd::XrcFile;
use crate::engine;
use std::os::fd::RawFd;

impl Context {
    /// Registers `bytes` bytes at `address`, which remote and local segments name as `iova`.
    ///
    /// # Safety
    ///
    /// The memory stays mapped (writable if `access` says so) until the region is ended. The device may write it at any
    /// time.
    ///
    /// # Errors
    ///
    /// No such PD; not mapped, or not with the rights that `access` needs; a failure asked for (`CREATE_MKEY`).
    #[expect(unsafe_code, reason = "takes the promise that a registration is")]
    pub unsafe fn reg_mr(
        &self,
        pdn: u32,
        address: u64,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<MrKeys, DeviceError> {
        // SAFETY: the caller's promise.
        let memory = unsafe { self.register(address, bytes, access.writes()) }?;
        self.with(|hca, context| regions::insert(hca, context, pdn, memory, iova, access))
    }

    /// Registers `bytes` bytes at `offset` of a DMA-BUF or memfd.
    ///
    /// # Errors
    ///
    /// No such PD; no such buffer, or a shorter one; a failure asked for (`CREATE_MKEY`).
    pub fn reg_dmabuf_mr(
        &self,
        pdn: u32,
        fd: RawFd,
        offset: u64,
        bytes: u64,
        iova: u64,
        access: Access,
    ) -> Result<MrKeys, DeviceError> {
        self.need_mappings()?;
        let memory = mapping::map(fd, offset, bytes, access.writes())?;
        self.with(|hca, context| regions::insert(hca, context, pdn, memory, iova, access))
    }

    /// Changes a region; its keys stay the same. With `memory` (address, bytes, iova) it stands for that from now on.
    /// A change that is refused leaves it as it was.
    ///
    /// # Safety
    ///
    /// As [`Context::reg_mr`], for the new memory under the new rights or the old memory under the new rights.
    ///
    /// # Errors
    ///
    /// No such region or PD; not mapped; a failure asked for (`CREATE_MKEY`).
    #[expect(unsafe_code, reason = "takes the promise that a registration is")]
    pub unsafe fn rereg_mr(
        &self,
        lkey: u32,
        change: MrChange,
        memory: Option<(u64, u64, u64)>,
    ) -> Result<(), DeviceError> {
        let bytes = memory.map(|(_, bytes, _)| bytes);
        let (old, access) =
            self.with(|hca, context| regions::before_change(hca, context, lkey, &change, bytes))?;
        let memory = match memory {
            Some((address, bytes, iova)) => {
                regions::check_iova(iova, bytes)?;
                // SAFETY: the caller's promise.
                Some((
                    unsafe { self.register(address, bytes, access.writes()) }?,
                    iova,
                ))
            }
            None => {
                let (address, bytes) = old;
                if !self.is_external() && mapping::pages(address, bytes, access.writes()).is_none()
                {
                    return Err(DeviceError::Fault { address, bytes });
                }
                None
            }
        };
        self.change_mr(lkey, change, memory)
    }

    /// Changes a region; its keys stay the same. With `memory` it stands for that from now on, named by that iova.
    ///
    /// # Errors
    ///
    /// No such region or PD; a failure asked for (`CREATE_MKEY`).
    pub(crate) fn change_mr(
        &self,
        lkey: u32,
        change: MrChange,
        memory: Option<(Backed, u64)>,
    ) -> Result<(), DeviceError> {
        self.with(|hca, context| regions::change(hca, context, lkey, change, memory))
    }

    /// Ends a region by its lkey.
    ///
    /// # Errors
    ///
    /// No such region.
    pub fn dereg_mr(&self, lkey: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| regions::end(hca, context, lkey))
    }

    /// Makes a memory window, not bound yet; its rkey. Windows of type 2 belong to the QP that binds them, and peers may
    /// invalidate them.
    ///
    /// # Errors
    ///
    /// No such PD; none left; a failure asked for (`CREATE_MKEY`).
    pub fn alloc_mw(&self, pdn: u32, type_2: bool) -> Result<u32, DeviceError> {
        self.with(|hca, context| windows::alloc(hca, context, pdn, type_2))
    }

    /// Ends a memory window by any of its rkeys.
    ///
    /// # Errors
    ///
    /// No such window; a failure asked for (`DESTROY_MKEY`).
    pub fn dealloc_mw(&self, rkey: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| windows::end(hca, context, rkey))
    }

    /// Registers memory for queues and doorbell records; its UMEM id.
    ///
    /// # Safety
    ///
    /// The memory stays mapped and writable until the UMEM is ended.
    ///
    /// # Errors
    ///
    /// Not mapped or not writable, whatever `_access` says; empty; a failure asked for (`CREATE_UMEM`).
    #[expect(unsafe_code, reason = "takes the promise that a registration is")]
    pub unsafe fn reg_umem(
        &self,
        address: u64,
        bytes: u64,
        _access: Access,
    ) -> Result<u32, DeviceError> {
        if bytes == 0 {
            return Err(DeviceError::Range {
                what: "length of a UMEM",
                value: 0,
                limit: u64::MAX,
            });
        }
        // SAFETY: the caller's promise.
        let memory = unsafe { self.register(address, bytes, true) }?;
        self.with(|hca, context| umems::make(hca, context, memory))
    }

    /// Registers `bytes` bytes at `offset` of a DMA-BUF or memfd for queues and doorbell records; the UMEM id.
    ///
    /// # Errors
    ///
    /// No such buffer, or a shorter one; a failure asked for (`CREATE_UMEM`).
    pub fn reg_dmabuf_umem(&self, fd: RawFd, offset: u64, bytes: u64) -> Result<u32, DeviceError> {
        self.need_mappings()?;
        let memory = mapping::map(fd, offset, bytes, true)?;
        self.with(|hca, context| umems::make(hca, context, memory))
    }

    /// Ends a UMEM.
    ///
    /// # Errors
    ///
    /// Busy while queues or keys lie in it.
    pub fn dereg_umem(&self, id: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| umems::end(hca, context, id))
    }

    /// Pins memory for a queue; the id of the UMEM that it is from now on.
    ///
    /// # Safety
    ///
    /// The memory stays mapped and writable until it is unpinned.
    ///
    /// # Errors
    ///
    /// Not mapped; empty; too many.
    #[expect(unsafe_code, reason = "takes the promise that a registration is")]
    pub(crate) unsafe fn pin(&self, address: u64, bytes: u64) -> Result<u32, DeviceError> {
        if bytes == 0 {
            return Err(DeviceError::Range {
                what: "length of a queue",
                value: 0,
                limit: u64::MAX,
            });
        }
        // SAFETY: the caller's promise.
        let memory = unsafe { self.register(address, bytes, true) }?;
        self.with(|hca, context| umems::insert(hca, context, memory))
    }

    /// Gives back what [`Self::pin`] gave. No queue may lie in it any more.
    pub(crate) fn unpin(&self, id: u32) {
        // A context that was closed has lost it already.
        let _ = self.with(|hca, context| umems::take_away(hca, context, id));
    }

    /// Makes a UAR page. BlueFlame and non-cached pages are the same here.
    ///
    /// # Errors
    ///
    /// No page left; a failure asked for (`ALLOC_UAR`).
    pub fn alloc_uar(&self) -> Result<UarPage, DeviceError> {
        self.with(uars::alloc)
    }

    /// Ends a UAR page.
    ///
    /// # Errors
    ///
    /// Busy while QPs or CQs use it.
    pub fn free_uar(&self, page_id: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| uars::free(hca, context, page_id))
    }

    /// Opens an XRC domain: a new one, or the one that `file` stands for on this device. Its number.
    ///
    /// Without `create` the file must have one, with `exclusive` it must have none.
    ///
    /// # Errors
    ///
    /// `EAGAIN` and `EINVAL` of the kernel for those two; none left; a failure asked for (`ALLOC_XRCD`).
    pub fn open_xrcd(
        &self,
        file: Option<XrcFile>,
        create: bool,
        exclusive: bool,
    ) -> Result<u32, DeviceError> {
        self.with(|hca, context| xrcds::open(hca, context, file, create, exclusive))
    }

    /// Closes an XRC domain; it ends when all contexts that opened it have closed it.
    ///
    /// # Errors
    ///
    /// Busy while SRQs or QPs of this context use its last opening.
    pub fn close_xrcd(&self, number: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| xrcds::close(hca, context, number))
    }

    /// Executes a command that makes an object.
    ///
    /// # Errors
    ///
    /// Not such a command; refused, with status and syndrome in `output`.
    pub fn devx_create(&self, input: &[u8], output: &mut [u8]) -> Result<DevxObject, DeviceError> {
        let made = self.execute(Class::Create, None, input, output)?;
        // PANIC: every command of this class makes an object (`crate::device::command::execute::execute`).
        Ok(made.unwrap_or(DevxObject::Mkey(0)))
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
        self.execute(Class::Modify, Some(object), input, output)?;
        engine::kick();
        Ok(())
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
        self.execute(Class::Query, Some(object), input, output)?;
        Ok(())
    }

    /// Ends `object` by the command that the kernel would send.
    ///
    /// # Errors
    ///
    /// Refused, for example because another object uses it; a failure asked for (the destroy command's opcode).
    pub fn devx_destroy(&self, object: DevxObject) -> Result<(), DeviceError> {
        let mut output = [0xff; 16];
        let input = command::destroy_input(object);
        self.execute(Class::Destroy, Some(object), &input, &mut output)?;
        Ok(())
    }

    /// Executes a command that concerns no object (`QUERY_HCA_CAP` and other queries).
    ///
    /// # Errors
    ///
    /// Not such a command; refused.
    pub fn devx_general(&self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        self.execute(Class::General, None, input, output)?;
        Ok(())
    }

    /// Executes a command that makes an object.
    ///
    /// # Errors
    ///
    /// Refused.
    pub(crate) fn kernel_create(
        &self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<DevxObject, DeviceError> {
        let made = self.execute(Class::Create, None, input, output);
        // PANIC: every command of this class makes an object (`command::execute`).
        Ok(made
            .map_err(DeviceError::of_kernel)?
            .unwrap_or(DevxObject::Mkey(0)))
    }

    /// Executes a command that changes `object`, and gives its output.
    ///
    /// # Errors
    ///
    /// Refused.
    pub(crate) fn kernel_modify(
        &self,
        object: DevxObject,
        input: &[u8],
    ) -> Result<[u8; 16], DeviceError> {
        let mut output = [0; 16];
        let done = self.devx_modify(object, input, &mut output);
        done.map_err(DeviceError::of_kernel)?;
        Ok(output)
    }

    /// Executes a command that reads `object`.
    ///
    /// # Errors
    ///
    /// Refused.
    pub(crate) fn kernel_query(
        &self,
        object: DevxObject,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.devx_query(object, input, output)
            .map_err(DeviceError::of_kernel)
    }

    /// Ends `object`.
    ///
    /// # Errors
    ///
    /// Refused, for example because another object uses it.
    pub(crate) fn kernel_destroy(&self, object: DevxObject) -> Result<(), DeviceError> {
        self.devx_destroy(object).map_err(DeviceError::of_kernel)
    }

    /// Memory by its address. Whether it is mapped is checked, unless an executor has the only access to it.
    ///
    /// # Safety
    ///
    /// As [`Region::new`].
    #[expect(unsafe_code, reason = "hands the promise on")]
    unsafe fn register(
        &self,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Result<Backed, DeviceError> {
        let fault = DeviceError::Fault { address, bytes };
        let may_shrink = if self.is_external() {
            false
        } else {
            mapping::pages(address, bytes, write)
                .ok_or(fault)?
                .may_shrink
        };
        // SAFETY: the caller's promise; memory of an external HCA is never accessed through the region.
        let region = unsafe { Region::new(address, bytes) }.ok_or(fault)?;
        Ok(Backed {
            region: region.with_may_shrink(may_shrink),
            mapping: None,
        })
    }

    /// Refuses buffers named by a descriptor where an executor has no use for this process's mapping of them.
    fn need_mappings(&self) -> Result<(), DeviceError> {
        if self.is_external() {
            return Err(DeviceError::Os {
                call: "mapping a DMA-BUF for an executor",
                errno: libc::EOPNOTSUPP,
            });
        }
        Ok(())
    }
}
