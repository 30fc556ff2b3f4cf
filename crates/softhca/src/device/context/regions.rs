//! Memory regions of a context, and how keys that the kernel makes for a program get their numbers.

use super::refuse::own;
use crate::device::error::DeviceError;
use crate::device::memory::Access;
use crate::device::memory::keys::{Backing, Kind, MemoryKey};
use crate::device::memory::mapping::Backed;
use crate::device::names::{MrChange, MrKeys};
use crate::device::state::HcaState;
use mlx5_prm::cmd::Opcode;

/// Makes a region of `memory`, which remote and local segments name as `iova`.
pub(super) fn insert(
    hca: &mut HcaState,
    context: u32,
    pdn: u32,
    memory: Backed,
    iova: u64,
    access: Access,
) -> Result<MrKeys, DeviceError> {
    let bytes = memory.region.bytes();
    check_iova(iova, bytes)?;
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
    let key = insert_key(hca, key)?;
    Ok(MrKeys {
        lkey: key,
        rkey: key,
    })
}

/// Returns the memory of a region (address and bytes), and the rights that it will have after `change`. Refuses new memory whose length
/// `bytes` is too long for a region.
pub(super) fn before_change(
    hca: &mut HcaState,
    context: u32,
    lkey: u32,
    change: &MrChange,
    bytes: Option<u64>,
) -> Result<((u64, u64), Access), DeviceError> {
    if let Some(bytes) = bytes {
        check_length(hca, bytes)?;
    }
    let key = region(hca, context, lkey)?;
    let old = match &key.backing {
        Backing::Direct(region) => (region.address(), region.bytes()),
        Backing::Indirect(_) => (0, 0),
    };
    Ok((old, change.access.unwrap_or(key.access)))
}

/// Changes a region. With `memory` the region is of that memory from now on, which segments name by that iova.
pub(super) fn change(
    hca: &mut HcaState,
    context: u32,
    lkey: u32,
    change: MrChange,
    memory: Option<(Backed, u64)>,
) -> Result<(), DeviceError> {
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
}

/// Ends a region by its lkey.
pub(super) fn end(hca: &mut HcaState, context: u32, lkey: u32) -> Result<(), DeviceError> {
    region(hca, context, lkey)?;
    hca.strike(Opcode::DESTROY_MKEY)?;
    hca.end_key(lkey >> 8);
    Ok(())
}

/// Puts a key into the table. Returns the number of the key.
pub(super) fn insert_key(hca: &mut HcaState, key: MemoryKey) -> Result<u32, DeviceError> {
    let limit = hca.keys.limit();
    let variant = u32::from(key.variant);
    let index = hca.keys.insert(key).ok_or(DeviceError::Full {
        what: "memory key",
        limit,
    })?;
    Ok(index << 8 | variant)
}

/// Returns the region with this lkey.
fn region(hca: &mut HcaState, context: u32, lkey: u32) -> Result<&mut MemoryKey, DeviceError> {
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

pub(super) fn check_iova(iova: u64, bytes: u64) -> Result<(), DeviceError> {
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
    if hca.is_over_long(bytes) {
        return Err(DeviceError::Range {
            what: "bytes of a memory region",
            value: bytes,
            limit: 1 << hca.log_max_mr,
        });
    }
    Ok(())
}
