//! What can go wrong on a device.

use std::time::Duration;

use crate::error::{Error, Layer};

/// A refusal or failure of a [`Gpu`](super::Gpu).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// No CUDA driver in this process.
    #[error("no CUDA driver: {detail}")]
    NoDriver {
        /// What was looked for.
        detail: String,
    },
    /// There is a driver, but not this device.
    #[error("no CUDA device {ordinal}: the driver knows {count}")]
    NoDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// A driver call failed.
    #[error("{call}: {name} ({code})")]
    Driver {
        /// The function.
        call: &'static str,
        /// Its name for the error.
        name: String,
        /// `CUresult`.
        code: u32,
    },
    /// An argument out of its range.
    #[error("{what} is {value}: expected {limit}")]
    BadArgument {
        /// Which one.
        what: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        limit: String,
    },
    /// No memory for an allocation.
    #[error("no {kind} memory for {bytes} bytes: {detail}")]
    OutOfMemory {
        /// `device` or `host`.
        kind: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The system's reason.
        detail: String,
    },
    /// A copy outside the live allocations.
    #[error("{bytes} bytes at {addr:#x} are not inside a live device allocation{nearest}")]
    BadRange {
        /// Start of the copy.
        addr: u64,
        /// Its length.
        bytes: usize,
        /// The allocation below it, in words; empty if there is none.
        nearest: String,
    },
    /// No kernel of this name.
    #[error("no kernel {kernel:?} among {known:?}")]
    UnknownKernel {
        /// The name asked for.
        kernel: String,
        /// All names.
        known: Vec<String>,
    },
    /// A launch outside the device's limits.
    #[error("kernel {kernel}: {detail}")]
    BadLaunch {
        /// Which kernel.
        kernel: String,
        /// Value and limit.
        detail: String,
    },
    /// A kernel failed: deadlock, mask mismatch, panic, trap, deadline.
    #[error("kernel {kernel} failed: {report}")]
    Kernel {
        /// Which kernel.
        kernel: String,
        /// Block, warp, lane and operation, where known.
        report: String,
    },
    /// A kernel did not run because an earlier one on this stream failed.
    #[error("kernel {kernel} did not run: {failed} failed before it on the same stream")]
    Poisoned {
        /// The one that did not run.
        kernel: String,
        /// The one that failed.
        failed: String,
    },
    /// A kernel still runs.
    #[error("kernel {kernel} still runs after {waited:?}")]
    Timeout {
        /// Which kernel.
        kernel: String,
        /// How long the wait was.
        waited: Duration,
    },
}

impl From<GpuError> for Error {
    fn from(error: GpuError) -> Self {
        Self::new(Layer::Gpu, error)
    }
}
