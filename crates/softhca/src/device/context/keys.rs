//! Changes of regions, and how keys that the kernel makes for a program get their numbers.

use super::{Context, own};
use crate::device::error::DeviceError;
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
pub(in crate::device) fn insert(hca: &mut HcaState, key: MemoryKey) -> Result<u32, DeviceError> {
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
