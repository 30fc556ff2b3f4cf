//! UMEMs of a context: memory of queues and doorbell records.

use super::refuse::{own, refuse_busy};
use crate::device::error::DeviceError;
use crate::device::memory::keys::{Kind, Umem};
use crate::device::memory::mapping::Backed;
use crate::device::state::HcaState;
use mlx5_prm::cmd::Opcode;

/// Makes a UMEM that a program asked for. Returns its id.
pub(super) fn make(hca: &mut HcaState, context: u32, memory: Backed) -> Result<u32, DeviceError> {
    hca.strike(Opcode::CREATE_UMEM)?;
    insert(hca, context, memory)
}

/// Makes a UMEM. Returns its id.
pub(super) fn insert(hca: &mut HcaState, context: u32, memory: Backed) -> Result<u32, DeviceError> {
    let limit = hca.umems.limit();
    let umem = Umem {
        context,
        region: memory.region,
        mapping: memory.mapping,
    };
    let what = "UMEM";
    hca.umems
        .insert(umem)
        .ok_or(DeviceError::Full { what, limit })
}

/// Ends a UMEM. Refuses that while queues or keys lie in it.
pub(super) fn end(hca: &mut HcaState, context: u32, id: u32) -> Result<(), DeviceError> {
    check_owner(hca, context, id)?;
    refuse_busy("UMEM", id, users(hca, id))?;
    hca.strike(Opcode::DESTROY_UMEM)?;
    hca.umems.remove(id);
    Ok(())
}

/// Ends a UMEM whose queue is gone.
pub(super) fn take_away(hca: &mut HcaState, context: u32, id: u32) -> Result<(), DeviceError> {
    check_owner(hca, context, id)?;
    hca.umems.remove(id);
    Ok(())
}

fn check_owner(hca: &HcaState, context: u32, id: u32) -> Result<(), DeviceError> {
    let umem = hca.umems.get(id);
    own(umem.is_some_and(|umem| umem.context == context), "UMEM", id)
}

fn users(hca: &HcaState, id: u32) -> usize {
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
