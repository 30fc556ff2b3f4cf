//! The calls by which objects of an opened device come and go.
//!
//! Some of these objects have kernel calls of their own. Commands as bytes make and end the others. A program with DevX sends those
//! commands itself (`devx_*`), and reads status and syndrome of a refusal. For other programs the kernel sends them (`kernel_*`), and
//! `errno` alone reports a refusal.

use super::handle::Context;
use super::{regions, uars, umems, windows, xrcds};
use crate::device::command::{self, Class};
use crate::device::error::DeviceError;
use crate::device::memory::mapping::{self, Backed};
use crate::device::memory::{Access, Region};
use crate::device::names::{DevxObject, MrChange, MrKeys, UarPage};
use crate::device::objects::xrcd::XrcFile;
use crate::engine;
use std::os::fd::RawFd;

impl Context {
    /// Registers `bytes` bytes at `address`, which remote and local segments name as `iova`.
    ///
    /// # Safety
    ///
    /// The memory stays mapped (writable if `access` says so) until the region is ended. The device may write to the memory at any time.
    ///
    /// # Errors
    ///
    /// The PD does not exist; the memory is not mapped, or not with the rights that `access` needs; a fault fails the call (`CREATE_MKEY`).
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
    /// The PD or the buffer does not exist; the buffer is too short; a fault fails the call (`CREATE_MKEY`).
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

    /// Changes a region; its keys stay the same. With `memory` (address, bytes, iova) the region is of that memory from now on. A change
    /// that is refused leaves the region as it was.
    ///
    /// # Safety
    ///
    /// The promise of [`Context::reg_mr`], for the new memory or else the old memory, under the new rights.
    ///
    /// # Errors
    ///
    /// The region or the PD does not exist; the memory is not mapped; a fault fails the call (`CREATE_MKEY`).
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

    /// Changes a region; its keys stay the same. With `memory` the region is of that memory from now on, which segments name by that iova.
    ///
    /// # Errors
    ///
    /// The region or the PD does not exist; a fault fails the call (`CREATE_MKEY`).
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
    /// The region does not exist.
    pub fn dereg_mr(&self, lkey: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| regions::end(hca, context, lkey))
    }

    /// Makes a memory window that is not bound yet. Returns its rkey. A window of type 2 belongs to the QP that binds it, and peers may
    /// invalidate it.
    ///
    /// # Errors
    ///
    /// The PD does not exist; no key is left; a fault fails the call (`CREATE_MKEY`).
    pub fn alloc_mw(&self, pdn: u32, type_2: bool) -> Result<u32, DeviceError> {
        self.with(|hca, context| windows::alloc(hca, context, pdn, type_2))
    }

    /// Ends a memory window by any of its rkeys.
    ///
    /// # Errors
    ///
    /// The window does not exist; a fault fails the call (`DESTROY_MKEY`).
    pub fn dealloc_mw(&self, rkey: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| windows::end(hca, context, rkey))
    }

    /// Registers memory for queues and doorbell records. Returns its UMEM id.
    ///
    /// # Safety
    ///
    /// The memory stays mapped and writable until the UMEM is ended.
    ///
    /// # Errors
    ///
    /// The memory is not mapped or not writable, whatever `_access` says; it is empty; a fault fails the call (`CREATE_UMEM`).
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

    /// Registers `bytes` bytes at `offset` of a DMA-BUF or memfd for queues and doorbell records. Returns the UMEM id.
    ///
    /// # Errors
    ///
    /// The buffer does not exist or is too short; a fault fails the call (`CREATE_UMEM`).
    pub fn reg_dmabuf_umem(&self, fd: RawFd, offset: u64, bytes: u64) -> Result<u32, DeviceError> {
        self.need_mappings()?;
        let memory = mapping::map(fd, offset, bytes, true)?;
        self.with(|hca, context| umems::make(hca, context, memory))
    }

    /// Ends a UMEM.
    ///
    /// # Errors
    ///
    /// Queues or keys lie in the UMEM (busy).
    pub fn dereg_umem(&self, id: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| umems::end(hca, context, id))
    }

    /// Pins memory for a queue. Returns the id of the UMEM that the memory is from now on.
    ///
    /// # Safety
    ///
    /// The memory stays mapped and writable until it is unpinned.
    ///
    /// # Errors
    ///
    /// The memory is not mapped or is empty; there are too many UMEMs.
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

    /// Unpins memory that [`Self::pin`] pinned. No queue may lie in it any more.
    pub(crate) fn unpin(&self, id: u32) {
        // If the context was closed, the UMEM is gone already.
        let _ = self.with(|hca, context| umems::take_away(hca, context, id));
    }

    /// Makes a UAR page. BlueFlame and non-cached pages are the same in this device.
    ///
    /// # Errors
    ///
    /// No page is left; a fault fails the call (`ALLOC_UAR`).
    pub fn alloc_uar(&self) -> Result<UarPage, DeviceError> {
        self.with(uars::alloc)
    }

    /// Ends a UAR page.
    ///
    /// # Errors
    ///
    /// QPs or CQs use the page (busy).
    pub fn free_uar(&self, page_id: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| uars::free(hca, context, page_id))
    }

    /// Opens an XRC domain: a new one, or the domain that `file` stands for on this device. Returns its number.
    ///
    /// Without `create` the file must have a domain, with `exclusive` it must have none.
    ///
    /// # Errors
    ///
    /// The two conditions fail with `EAGAIN` and `EINVAL`, as in the kernel; no domain is left; a fault fails the call (`ALLOC_XRCD`).
    pub fn open_xrcd(
        &self,
        file: Option<XrcFile>,
        create: bool,
        exclusive: bool,
    ) -> Result<u32, DeviceError> {
        self.with(|hca, context| xrcds::open(hca, context, file, create, exclusive))
    }

    /// Closes an XRC domain. The domain ends when all contexts that opened it have closed it.
    ///
    /// # Errors
    ///
    /// SRQs or QPs of this context use the domain, and this would close its last opening by the context (busy).
    pub fn close_xrcd(&self, number: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| xrcds::close(hca, context, number))
    }

    /// Executes a command that makes an object.
    ///
    /// # Errors
    ///
    /// The command makes no object, or was refused, with status and syndrome in `output`.
    pub fn devx_create(&self, input: &[u8], output: &mut [u8]) -> Result<DevxObject, DeviceError> {
        let made = self.execute(Class::Create, None, input, output)?;
        // PANIC: every command of this class makes an object (`crate::device::command::execute::execute`).
        Ok(made.unwrap_or(DevxObject::Mkey(0)))
    }

    /// Executes a command that changes `object`.
    ///
    /// # Errors
    ///
    /// The command changes no object, names another object, or was refused.
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
    /// The command reads no object, names another object, or was refused.
    pub fn devx_query(
        &self,
        object: DevxObject,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.execute(Class::Query, Some(object), input, output)?;
        Ok(())
    }

    /// Ends `object` by the command that the kernel would send for it.
    ///
    /// # Errors
    ///
    /// The command was refused, for example because another object uses `object`; a fault fails it (the destroy command's opcode).
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
    /// The command is of another kind, or was refused.
    pub fn devx_general(&self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        self.execute(Class::General, None, input, output)?;
        Ok(())
    }

    /// Executes a command that makes an object, as the kernel does for a program without DevX.
    ///
    /// # Errors
    ///
    /// The command was refused.
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

    /// Executes a command that changes `object`, as the kernel does for a program without DevX. Returns its output.
    ///
    /// # Errors
    ///
    /// The command was refused.
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

    /// Executes a command that reads `object`, as the kernel does for a program without DevX.
    ///
    /// # Errors
    ///
    /// The command was refused.
    pub(crate) fn kernel_query(
        &self,
        object: DevxObject,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.devx_query(object, input, output)
            .map_err(DeviceError::of_kernel)
    }

    /// Ends `object`, as the kernel does for a program without DevX.
    ///
    /// # Errors
    ///
    /// The command was refused, for example because another object uses `object`.
    pub(crate) fn kernel_destroy(&self, object: DevxObject) -> Result<(), DeviceError> {
        self.devx_destroy(object).map_err(DeviceError::of_kernel)
    }

    /// Returns the memory of an address range. Checks that it is mapped, unless an executor has the only access to it.
    ///
    /// # Safety
    ///
    /// The promise of [`Region::new`].
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

    /// Refuses buffers that a descriptor names if the HCA is external: an executor has no use for this process's mapping of them.
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
