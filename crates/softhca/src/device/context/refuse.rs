//! Checks that refuse a call on an opened device before it begins.

use crate::device::error::DeviceError;

pub(super) fn own(found: bool, what: &'static str, number: u32) -> Result<(), DeviceError> {
    if found {
        Ok(())
    } else {
        Err(DeviceError::NoObject { what, number })
    }
}

pub(super) fn no_context(id: u32) -> DeviceError {
    DeviceError::NoObject {
        what: "open context",
        number: id,
    }
}

pub(super) fn refuse_busy(
    what: &'static str,
    number: u32,
    users: usize,
) -> Result<(), DeviceError> {
    if users == 0 {
        Ok(())
    } else {
        Err(DeviceError::Busy {
            what,
            number,
            users,
        })
    }
}
