//! The executor that is attached: where its tables are, and the calls by which they are written and read.

// UNSAFETY: one word of host memory that the executor raises.
#![expect(unsafe_code, reason = "reads a word by its address")]

use crate::device::DeviceError;
use crate::device::external::{HcaControl, HcaCq, HcaCqProgress, HcaKey, HcaQp, HcaQpProgress};
use bytemuck::Pod;
use gpuhca_abi::{Executor, PAGE_STRIDE, VERSION};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

/// An executor, from its attachment to its detachment.
#[derive(Debug)]
pub(super) struct Attached {
    executor: Executor,
    /// The `errno` of an executor that has ended (`ESHUTDOWN`) or does not answer any more. No call waits for it again.
    broken: Option<i32>,
    generation: u64,
    /// The word by which the executor reports QPs that it has failed, as it was at the last look.
    attention: u32,
}

impl Attached {
    /// Checks an executor that is to be attached.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it has another version or other sizes, or something of it is missing.
    pub(super) fn new(executor: Executor) -> Result<Self, DeviceError> {
        let bytes = [
            size_of::<HcaQp>(),
            size_of::<HcaCq>(),
            size_of::<HcaKey>(),
            size_of::<HcaQpProgress>(),
            size_of::<HcaCqProgress>(),
        ];
        let given = executor.bytes.map(|bytes| bytes as usize);
        let complete =
            executor.write.is_some() && executor.read.is_some() && executor.settle.is_some();
        if executor.version != VERSION
            || given != bytes
            || !complete
            || executor.attention.is_null()
        {
            return Err(failed("softhca_attach", libc::EINVAL));
        }
        Ok(Self {
            executor,
            broken: None,
            generation: 0,
            attention: 0,
        })
    }

    /// Returns the `errno` of an executor that has ended or does not answer any more.
    pub(super) fn broken(&self) -> Option<i32> {
        self.broken
    }

    /// Writes `bytes` to `address` of the executor's memory.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let write = self.executor.write.ok_or(failed("write", libc::EINVAL))?;
        match write(
            self.executor.context,
            address,
            bytes.as_ptr(),
            bytes.len() as u64,
        ) {
            0 => Ok(()),
            errno => Err(failed("the executor's write", errno)),
        }
    }

    /// Reads a value at `address` of the executor's memory.
    pub(super) fn read<T: Pod>(&self, address: u64) -> Result<T, DeviceError> {
        let mut value = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut value);
        let read = self.executor.read.ok_or(failed("read", libc::EINVAL))?;
        match read(
            self.executor.context,
            address,
            bytes.as_mut_ptr(),
            bytes.len() as u64,
        ) {
            0 => Ok(value),
            errno => Err(failed("the executor's read", errno)),
        }
    }

    /// Waits until no block of the executor uses an entry that has ended.
    pub(super) fn settle(&mut self) -> Result<(), DeviceError> {
        if let Some(errno) = self.broken {
            if errno == libc::ESHUTDOWN {
                return Ok(());
            }
            return Err(failed("the executor's settle", errno));
        }
        self.generation = self.generation.wrapping_add(1);
        self.write(
            self.executor.control + offset_of!(HcaControl, generation) as u64,
            &self.generation.to_ne_bytes(),
        )?;
        // Kernels that run on the CPU may be asleep.
        crate::engine::announce();
        let settle = self.executor.settle.ok_or(failed("settle", libc::EINVAL))?;
        match settle(self.executor.context, self.generation) {
            0 => Ok(()),
            libc::ESHUTDOWN => {
                self.broken = Some(libc::ESHUTDOWN);
                Ok(())
            }
            errno => {
                self.broken = Some(errno);
                Err(failed("the executor's settle", errno))
            }
        }
    }

    /// Tells the executor how many entries of the table of QPs are in use.
    pub(super) fn announce_qps(&self, qps: u64) -> Result<(), DeviceError> {
        let address = self.executor.control + offset_of!(HcaControl, qps) as u64;
        self.write(address, &qps.to_ne_bytes())
    }

    /// Returns whether the executor has failed a QP since the last call of this function.
    pub(super) fn has_failed_qps(&mut self) -> bool {
        // SAFETY: the word stays valid while the executor is attached, and this value lives no longer; all threads use the word atomically.
        let word = unsafe { AtomicU32::from_ptr(self.executor.attention.cast_mut()) };
        // Acquire: pairs with the executor's release after it has written which QPs it has failed.
        let raised = word.load(Ordering::Acquire);
        raised != std::mem::replace(&mut self.attention, raised)
    }

    /// Returns the address of entry `place` of the table of QPs.
    pub(super) fn qp(&self, place: u32) -> u64 {
        self.executor.qps + u64::from(place) * size_of::<HcaQp>() as u64
    }

    /// Returns the address of entry `place` of the table of CQs.
    pub(super) fn cq(&self, place: u32) -> u64 {
        self.executor.cqs + u64::from(place) * size_of::<HcaCq>() as u64
    }

    /// Returns the address of entry `index` of the table of keys.
    pub(super) fn key(&self, index: usize) -> u64 {
        self.executor.keys + (index * size_of::<HcaKey>()) as u64
    }

    /// Returns the address of twin `place` of a UAR page.
    pub(super) fn twin(&self, place: u32) -> u64 {
        self.executor.pages + u64::from(place) * u64::from(PAGE_STRIDE)
    }

    /// Returns what the executor keeps of the QP of entry `place`.
    pub(super) fn qp_progress(&self, place: u32) -> Result<HcaQpProgress, DeviceError> {
        self.progress(self.executor.qp_progress, place)
    }

    /// Returns what the executor keeps of the CQ of entry `place`.
    pub(super) fn cq_progress(&self, place: u32) -> Result<HcaCqProgress, DeviceError> {
        self.progress(self.executor.cq_progress, place)
    }

    fn progress<T: Pod>(&self, table: u64, place: u32) -> Result<T, DeviceError> {
        self.read(table + u64::from(place) * size_of::<T>() as u64)
    }
}

/// Returns the error of call `call`, which failed with `errno`.
pub(super) fn failed(call: &'static str, errno: i32) -> DeviceError {
    DeviceError::Os { call, errno }
}
