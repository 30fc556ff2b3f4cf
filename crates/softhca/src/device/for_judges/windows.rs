//! Memory windows of a context, as the kernel makes and ends them. They are bound by [UMR WQEs](super::umr).

use super::umr;
use crate::device::context::{Context, keys, own};
use crate::device::error::DeviceError;
use crate::device::memory::keys::Kind;
use mlx5_prm::cmd::Opcode;

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
            keys::insert(hca, umr::new_window(context, pdn, variant, type_2))
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
}
