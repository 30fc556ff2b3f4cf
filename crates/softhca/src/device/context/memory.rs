//! Memory of a context: regions, UMEMs, UAR pages.

use super::{Context, MrKeys, UarPage, no_context, own, refuse_busy};
use crate::device::error::DeviceError;
use crate::device::keys::{Access, Backing, MemoryKey, Umem};
use crate::device::memory::{self, Region};
use crate::device::state::{HcaState, Uar};
use crate::device::uar::UarSpace;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::doorbell::uar;

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
    /// No such PD; not mapped; a failure asked for (`CREATE_MKEY`).
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
        let region = unsafe { register(address, bytes) }?;
        if iova.checked_add(bytes).is_none() {
            return Err(DeviceError::Range {
                what: "iova",
                value: iova,
                limit: u64::MAX - bytes,
            });
        }
        self.with(|hca, context| {
            own(hca.pds.get(pdn) == Some(&context), "PD", pdn)?;
            hca.strike(Opcode::CREATE_MKEY)?;
            hca.variant = hca.variant.wrapping_add(1);
            let variant = hca.variant;
            let limit = hca.keys.limit();
            let index = hca
                .keys
                .insert(MemoryKey {
                    context,
                    pdn,
                    variant,
                    iova,
                    bytes,
                    backing: Backing::Direct(region),
                    access: access.with(Access::LOCAL_READ),
                    umem: None,
                })
                .ok_or(DeviceError::Full {
                    what: "memory key",
                    limit,
                })?;
            let key = index << 8 | u32::from(variant);
            Ok(MrKeys {
                lkey: key,
                rkey: key,
            })
        })
    }

    /// Ends a region by its lkey.
    ///
    /// # Errors
    ///
    /// No such region.
    pub fn dereg_mr(&self, lkey: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| {
            let found = hca.keys.get(lkey >> 8).is_some_and(|key| {
                key.context == context
                    && key.umem.is_none()
                    && u32::from(key.variant) == lkey & 0xff
            });
            own(found, "region", lkey)?;
            hca.strike(Opcode::DESTROY_MKEY)?;
            hca.keys.remove(lkey >> 8);
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
    /// Not mapped; empty; a failure asked for (`CREATE_UMEM`).
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
        let region = unsafe { register(address, bytes) }?;
        self.with(|hca, context| {
            hca.strike(Opcode::CREATE_UMEM)?;
            let limit = hca.umems.limit();
            hca.umems
                .insert(Umem { context, region })
                .ok_or(DeviceError::Full {
                    what: "UMEM",
                    limit,
                })
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

/// # Safety
///
/// As [`Region::new`].
#[expect(unsafe_code, reason = "hands the promise on")]
pub(super) unsafe fn register(address: u64, bytes: u64) -> Result<Region, DeviceError> {
    let fault = DeviceError::Fault { address, bytes };
    if !memory::is_mapped(address, bytes) {
        return Err(fault);
    }
    // SAFETY: the caller's promise.
    unsafe { Region::new(address, bytes) }.ok_or(fault)
}

fn umem_users(hca: &HcaState, id: u32) -> usize {
    hca.keys
        .iter()
        .filter(|(_, key)| key.umem == Some(id))
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
