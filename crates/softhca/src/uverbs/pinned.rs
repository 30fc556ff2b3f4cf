//! Pinned memory of queues: a program gives addresses in its own memory, and the kernel pins the pages behind them.

// UNSAFETY: pinning memory is a promise about it, which the program that calls the verbs makes.
#![expect(
    unsafe_code,
    reason = "passes on the promise that creating a queue in memory is"
)]

use super::user;
use crate::device::Context as DeviceContext;
use crate::errno::Errno;

/// Pinned memory of a queue or of its doorbell record. Dropping it unpins the memory: the queue must be gone by then.
pub(super) struct Pinned {
    device: DeviceContext,
    id: u32,
}

impl Pinned {
    /// Pins `bytes` bytes at `address`.
    pub(super) fn new(device: &DeviceContext, address: u64, bytes: u64) -> Result<Self, Errno> {
        need_writable(address, bytes)?;
        // SAFETY: a program that makes a queue by verbs promises that its memory stays mapped until the queue is destroyed. The
        // device checks that it is mapped now.
        let id = unsafe { device.pin(address, bytes) }?;
        Ok(Self {
            device: device.clone(),
            id,
        })
    }

    /// Pins the doorbell record at `address`.
    pub(super) fn record(device: &DeviceContext, address: u64) -> Result<Self, Errno> {
        const BYTES: u64 = 8;
        Self::new(device, address, BYTES)
    }

    /// Returns the id of the UMEM by which commands name the memory.
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

/// Checks that the device may write the memory, at its start and at its end, by storing the bytes that are there again. No other code
/// writes the memory yet, since the queue is only being made.
fn need_writable(address: u64, bytes: u64) -> Result<(), Errno> {
    let last = bytes
        .checked_sub(1)
        .and_then(|offset| address.checked_add(offset))
        .ok_or(Errno::EINVAL)?;
    for byte in [address, last] {
        let mut value = [0];
        user::read(byte, &mut value)?;
        user::write(byte, &value)?;
    }
    Ok(())
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.device.unpin(self.id);
    }
}
