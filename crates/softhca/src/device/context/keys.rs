//! Keys that the kernel makes for a program besides regions: memory windows; and changes of regions.

use super::{Context, own};
use crate::device::error::DeviceError;
use crate::device::for_judges::umr;
use crate::device::memory::keys::{Access, Backing, Kind, MemoryKey};
use crate::device::memory::mapping::Backed;
use crate::device::state::HcaState;
use mlx5_prm::cmd::Opcode;

/// What changes of a region.
#[derive(Clone, Copy, Debug, Default)]
pub struct MrChange {
    /// Domain.
    pub pdn: Option<u32>,
    /// Rights.
    pub access: Option<Access>,
}

impl Context {
    /// Makes a memory window, not bound yet; its rkey. Windows of type 2 belong to the QP that binds them, and peers may
    /// invalidate them.
    ///
    /// # Errors
    ///
    /// No such PD; none left; a failure asked for (`CREATE_MKEY`).
    pub fn alloc_mw(&self, pdn: u32, type_2: bool) -> Result<u32, DeviceError> {
        self.with(|hca, context| {
            own(hca.pds.get(pdn) == Some(&context), "PD", pdn)?;
            hca.strike(Opcode::CREATE_MKEY)?;
            let variant = hca.next_variant();
            insert(hca, umr::new_window(context, pdn, variant, type_2))
        })
    }

    /// Ends a memory window by any of its rkeys.
    ///
    /// # Errors
    ///
    /// No such window; a failure asked for (`DESTROY_MKEY`).
    pub fn dealloc_mw(&self, rkey: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| {
            let found = hca
                .keys
                .get(rkey >> 8)
                .is_some_and(|key| key.context == context && key.kind == Kind::Window);
            own(found, "memory window", rkey)?;
            hca.strike(Opcode::DESTROY_MKEY)?;
            hca.end_key(rkey >> 8);
            Ok(())
        })
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
        self.with(|hca, context| {
            if let Some(pdn) = change.pdn {
                own(hca.pds.get(pdn) == Some(&context), "PD", pdn)?;
            }
            hca.strike(Opcode::CREATE_MKEY)?;
            let key = region(hca, context, lkey)?;
            if let Some(pdn) = change.pdn {
                key.pdn = pdn;
            }
            if let Some(access) = change.access {
                key.access = access.with(Access::LOCAL_READ);
            }
            if let Some((memory, iova)) = memory {
                key.iova = iova;
                key.bytes = memory.region.bytes();
                key.backing = Backing::Direct(memory.region);
                key.mapping = memory.mapping;
            }
            Ok(())
        })
    }
}

/// Puts a key in; its number.
pub(super) fn insert(hca: &mut HcaState, key: MemoryKey) -> Result<u32, DeviceError> {
    let limit = hca.keys.limit();
    let variant = u32::from(key.variant);
    let index = hca.keys.insert(key).ok_or(DeviceError::Full {
        what: "memory key",
        limit,
    })?;
    Ok(index << 8 | variant)
}

/// The region of this lkey.
pub(super) fn region(
    hca: &mut HcaState,
    context: u32,
    lkey: u32,
) -> Result<&mut MemoryKey, DeviceError> {
    hca.keys
        .get_mut(lkey >> 8)
        .filter(|key| {
            key.context == context
                && key.kind == Kind::Region
                && u32::from(key.variant) == lkey & 0xff
        })
        .ok_or(DeviceError::NoObject {
            what: "region",
            number: lkey,
        })
}
