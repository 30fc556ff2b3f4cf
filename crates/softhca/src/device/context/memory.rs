//! Memory of a context: regions, UMEMs, UAR pages.

use super::keys::{self, MrChange};
use super::{Context, MrKeys, UarPage, no_context, own, refuse_busy};
use crate::device::error::DeviceError;
use crate::device::memory::Region;
use crate::device::memory::keys::{Access, Backing, Kind, MemoryKey, Umem};
use crate::device::memory::mapping::{self, Backed};
use crate::device::objects::uar::UarSpace;
use crate::device::state::{HcaState, Uar};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::doorbell::uar;
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
        self.insert_mr(pdn, memory, iova, access)
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
        self.insert_mr(pdn, memory, iova, access)
    }

    fn insert_mr(
        &self,
        pdn: u32,
        memory: Backed,
        iova: u64,
        access: Access,
    ) -> Result<MrKeys, DeviceError> {
        let bytes = memory.region.bytes();
        check_iova(iova, bytes)?;
        self.with(|hca, context| {
            own(hca.pds.get(pdn) == Some(&context), "PD", pdn)?;
            hca.strike(Opcode::CREATE_MKEY)?;
            check_length(hca, bytes)?;
            let key = MemoryKey {
                context,
                pdn,
                variant: hca.next_variant(),
                kind: Kind::Region,
                free: false,
                qpn: None,
                remote_invalidate: false,
                iova,
                bytes,
                backing: Backing::Direct(memory.region),
                access: access.with(Access::LOCAL_READ),
                mapping: memory.mapping,
            };
            let key = keys::insert(hca, key)?;
            Ok(MrKeys {
                lkey: key,
                rkey: key,
            })
        })
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
        let (old, access) = self.with(|hca, context| {
            if let Some((_, bytes, _)) = memory {
                check_length(hca, bytes)?;
            }
            let key = keys::region(hca, context, lkey)?;
            let old = match &key.backing {
                Backing::Direct(region) => (region.address(), region.bytes()),
                Backing::Indirect(_) => (0, 0),
            };
            Ok((old, change.access.unwrap_or(key.access)))
        })?;
        let memory = match memory {
            Some((address, bytes, iova)) => {
                check_iova(iova, bytes)?;
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

    /// Ends a region by its lkey.
    ///
    /// # Errors
    ///
    /// No such region.
    pub fn dereg_mr(&self, lkey: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| {
            keys::region(hca, context, lkey)?;
            hca.strike(Opcode::DESTROY_MKEY)?;
            hca.end_key(lkey >> 8);
            Ok(())
        })
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
        self.insert_umem(unsafe { self.register(address, bytes, true) }?)
    }

    /// Registers `bytes` bytes at `offset` of a DMA-BUF or memfd for queues and doorbell records; the UMEM id.
    ///
    /// # Errors
    ///
    /// No such buffer, or a shorter one; a failure asked for (`CREATE_UMEM`).
    pub fn reg_dmabuf_umem(&self, fd: RawFd, offset: u64, bytes: u64) -> Result<u32, DeviceError> {
        self.need_mappings()?;
        self.insert_umem(mapping::map(fd, offset, bytes, true)?)
    }

    fn insert_umem(&self, memory: Backed) -> Result<u32, DeviceError> {
        self.with(|hca, context| {
            hca.strike(Opcode::CREATE_UMEM)?;
            let limit = hca.umems.limit();
            let umem = Umem {
                context,
                region: memory.region,
                mapping: memory.mapping,
            };
            let full = DeviceError::Full {
                what: "UMEM",
                limit,
            };
            hca.umems.insert(umem).ok_or(full)
        })
    }

    /// Ends a UMEM.
    ///
    /// # Errors
    ///
    /// Busy while queues or keys lie in it.
    pub fn dereg_umem(&self, id: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| {
            let found = hca
                .umems
                .get(id)
                .is_some_and(|umem| umem.context == context);
            own(found, "UMEM", id)?;
            refuse_busy("UMEM", id, umem_users(hca, id))?;
            hca.strike(Opcode::DESTROY_UMEM)?;
            hca.umems.remove(id);
            Ok(())
        })
    }

    /// Makes a UAR page. BlueFlame and non-cached pages are the same here.
    ///
    /// # Errors
    ///
    /// No page left; a failure asked for (`ALLOC_UAR`).
    pub fn alloc_uar(&self) -> Result<UarPage, DeviceError> {
        self.with(|hca, context| {
            hca.strike(Opcode::ALLOC_UAR)?;
            let full = DeviceError::Full {
                what: "UAR page",
                limit: UarSpace::PAGES,
            };
            let Some(open) = hca.contexts.get_mut(context) else {
                return Err(no_context(context));
            };
            let index = open.pages.insert(()).ok_or(full)?;
            let page = match self.inner.space.map(index as usize) {
                Ok(page) => page,
                Err(error) => {
                    open.pages.remove(index);
                    return Err(error);
                }
            };
            let page = Uar {
                context,
                index,
                page,
                cqs: Vec::new(),
                qps: Vec::new(),
            };
            let page_id = hca.uars.insert(page).ok_or(full)?;
            Ok(UarPage {
                page_id,
                offset: UarSpace::offset(index as usize),
                bytes: uar::PAGE_BYTES as u64,
            })
        })
    }

    /// Ends a UAR page.
    ///
    /// # Errors
    ///
    /// Busy while QPs or CQs use it.
    pub fn free_uar(&self, page_id: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| {
            let found = hca
                .uars
                .get(page_id)
                .is_some_and(|uar| uar.context == context);
            own(found, "UAR page", page_id)?;
            refuse_busy("UAR page", page_id, uar_users(hca, page_id))?;
            hca.strike(Opcode::DEALLOC_UAR)?;
            if let Some(page) = hca.uars.remove(page_id)
                && let Some(open) = hca.contexts.get_mut(context)
            {
                open.pages.remove(page.index);
            }
            Ok(())
        })
    }
}

impl Context {
    /// Memory by its address. Whether it is mapped is checked, unless an executor has the only access to it.
    ///
    /// # Safety
    ///
    /// As [`Region::new`].
    #[expect(unsafe_code, reason = "hands the promise on")]
    pub(super) unsafe fn register(
        &self,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Result<Backed, DeviceError> {
        let fault = DeviceError::Fault { address, bytes };
        let may_shrink = match self.is_external() {
            true => false,
            false => {
                mapping::pages(address, bytes, write)
                    .ok_or(fault)?
                    .may_shrink
            }
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
        match self.is_external() {
            true => Err(DeviceError::Os {
                call: "mapping a DMA-BUF for an executor",
                errno: libc::EOPNOTSUPP,
            }),
            false => Ok(()),
        }
    }
}

fn check_iova(iova: u64, bytes: u64) -> Result<(), DeviceError> {
    if iova.checked_add(bytes).is_none() {
        return Err(DeviceError::Range {
            what: "iova",
            value: iova,
            limit: u64::MAX - bytes,
        });
    }
    Ok(())
}

fn check_length(hca: &HcaState, bytes: u64) -> Result<(), DeviceError> {
    match hca.is_over_long(bytes) {
        true => Err(DeviceError::Range {
            what: "bytes of a memory region",
            value: bytes,
            limit: 1 << hca.log_max_mr,
        }),
        false => Ok(()),
    }
}

fn umem_users(hca: &HcaState, id: u32) -> usize {
    hca.keys
        .iter()
        .filter(|(_, key)| key.kind == Kind::Umem(id))
        .count()
        + hca
            .cqs
            .iter()
            .filter(|(_, cq)| cq.umems.contains(&id))
            .count()
        + hca
            .qps
            .iter()
            .filter(|(_, qp)| qp.umems.contains(&id))
            .count()
        + hca
            .srqs
            .iter()
            .filter(|(_, srq)| srq.umems.contains(&id))
            .count()
}

fn uar_users(hca: &HcaState, page_id: u32) -> usize {
    hca.cqs.iter().filter(|(_, cq)| cq.uar == page_id).count()
        + hca.qps.iter().filter(|(_, qp)| qp.uar == page_id).count()
}
