//! Memory windows of a context, as the kernel makes and ends them. [UMR WQEs](crate::device::memory::umr) bind them.

use super::refuse::own;
use super::regions;
use crate::device::error::DeviceError;
use crate::device::memory::keys::Kind;
use crate::device::memory::umr;
use crate::device::state::HcaState;
use mlx5_prm::cmd::Opcode;

/// Makes a memory window that is not bound. Returns its rkey.
pub(super) fn alloc(
    hca: &mut HcaState,
    context: u32,
    pdn: u32,
    type_2: bool,
) -> Result<u32, DeviceError> {
    own(hca.pds.get(pdn) == Some(&context), "PD", pdn)?;
    hca.strike(Opcode::CREATE_MKEY)?;
    let variant = hca.next_variant();
    regions::insert_key(hca, umr::new_window(context, pdn, variant, type_2))
}

/// Ends a memory window by any of its rkeys.
pub(super) fn end(hca: &mut HcaState, context: u32, rkey: u32) -> Result<(), DeviceError> {
    let found = hca
        .keys
        .get(rkey >> 8)
        .is_some_and(|key| key.context == context && key.kind == Kind::Window);
    own(found, "memory window", rkey)?;
    hca.strike(Opcode::DESTROY_MKEY)?;
    hca.end_key(rkey >> 8);
    Ok(())
}
