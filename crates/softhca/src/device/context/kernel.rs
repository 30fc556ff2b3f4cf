//! Services of the kernel's verbs layer for a program: commands of its own, and queue memory that it pins for them.
//!
//! The commands are those that a program with DevX sends itself. A program with DevX also reads status and syndrome of a refusal;
//! here `errno` alone reports it.

use super::{Context, DevxObject, own};
use crate::device::command::Class;
use crate::device::error::DeviceError;
use crate::device::memory::keys::Umem;

impl Context {
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
        self.with(|hca, context| {
            let limit = hca.umems.limit();
            let full = DeviceError::Full {
                what: "UMEM",
                limit,
            };
            let umem = Umem {
                context,
                region: memory.region,
                mapping: memory.mapping,
            };
            hca.umems.insert(umem).ok_or(full)
        })
    }

    /// Gives back what [`Self::pin`] gave. No queue may lie in it any more.
    pub(crate) fn unpin(&self, id: u32) {
        // A context that was closed has lost it already.
        let _ = self.with(|hca, context| {
            let found = hca
                .umems
                .get(id)
                .is_some_and(|umem| umem.context == context);
            own(found, "UMEM", id)?;
            hca.umems.remove(id);
            Ok(())
        });
    }
}
