//! Commands of a context, by the calls that the kernel has for them.

use super::{Context, DevxObject};
use crate::device::command::{self, Class};
use crate::device::error::DeviceError;
use crate::engine;

impl Context {
    /// Executes a command that makes an object.
    ///
    /// # Errors
    ///
    /// Not such a command; refused, with status and syndrome in `output`.
    pub fn devx_create(&self, input: &[u8], output: &mut [u8]) -> Result<DevxObject, DeviceError> {
        let made = self.execute(Class::Create, None, input, output)?;
        // PANIC: every command of this class makes an object (`command::execute`).
        Ok(made.unwrap_or(DevxObject::Mkey(0)))
    }

    /// Executes a command that changes `object`.
    ///
    /// # Errors
    ///
    /// Not such a command, or it names another object; refused.
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
    /// Not such a command, or it names another object; refused.
    pub fn devx_query(
        &self,
        object: DevxObject,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.execute(Class::Query, Some(object), input, output)?;
        Ok(())
    }

    /// Ends `object` by the command that the kernel would send.
    ///
    /// # Errors
    ///
    /// Refused, for example because another object uses it; a failure asked for (the destroy command's opcode).
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
    /// Not such a command; refused.
    pub fn devx_general(&self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        self.execute(Class::General, None, input, output)?;
        Ok(())
    }

    pub(super) fn execute(
        &self,
        class: Class,
        object: Option<DevxObject>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Option<DevxObject>, DeviceError> {
        let mut fabric = self.inner.world.lock();
        command::execute(
            &mut fabric,
            self.inner.hca,
            self.inner.id,
            class,
            object,
            input,
            output,
        )
    }
}
