//! The errors of a launch. Every error of a kernel names the block, warp, lane and operation concerned.

use std::time::Duration;

use crate::coordinates::{Dim3, ThreadId};

/// Why a launch did not end well. After an error, the CUDA threads that had not ended are abandoned where they were: no destructor of an
/// object on their stacks runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A field of the configuration that is out of range. Nothing ran.
    #[error("{field} is {value}; it must be {min} to {max}")]
    BadConfig {
        /// The name of the field.
        field: &'static str,
        /// The value that the launch asked for.
        value: u128,
        /// The smallest allowed value.
        min: u64,
        /// The largest allowed value.
        max: u64,
    },
    /// A launch from inside a kernel. Nothing ran.
    #[error("a kernel cannot launch a kernel")]
    Nested,
    /// A refusal of memory or of an OS thread by the system.
    #[error("no {what}: {source}")]
    Resources {
        /// The requested resource.
        what: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Threads that wait for each other, or for a thread that has exited. Nothing can release them.
    #[error("deadlock: {report}")]
    Deadlock {
        /// One line per group of waiting threads: where they are, in which operation, which threads came and which are missing.
        report: String,
    },
    /// Lanes that meet and disagree on the mask or on the operation.
    #[error("{thread}: {operation} with mask {mask:#010x}: {conflict}")]
    MaskMismatch {
        /// The thread whose call showed the conflict.
        thread: ThreadId,
        /// The operation that it called.
        operation: &'static str,
        /// The mask of the call. 0 for a barrier of the block.
        mask: u32,
        /// What the call disagrees with.
        conflict: String,
    },
    /// A panic, a failed assertion, `simt_fail`, `__trap` or a C++ exception in a kernel.
    #[error("{thread}: {message}")]
    Panic {
        /// The thread in which it happened.
        thread: ThreadId,
        /// The text of the failure.
        message: String,
    },
    /// A panic of a worker, a thread of the library, outside of the kernel.
    #[error(
        "worker {worker} of the launch has panicked: {message}. This is a defect of the library"
    )]
    WorkerPanicked {
        /// The number of the worker.
        worker: u32,
        /// The message of its panic.
        message: String,
    },
    /// A launch that did not end in time.
    #[error("not done after {deadline:?}: {report}")]
    Deadline {
        /// The configured time.
        deadline: Duration,
        /// What the threads were doing, as for a deadlock.
        report: String,
    },
    /// A write of a thread below its stack.
    #[error("{thread}: overflowed its stack of {stack_bytes} bytes")]
    StackOverflow {
        /// The thread whose stack overflowed.
        thread: ThreadId,
        /// The bytes of a stack.
        stack_bytes: usize,
    },
    /// A store of a thread to a device register that the host has not mapped for kernels. Nothing was stored.
    #[error(
        "{thread}: stored to a device register at {addr:#x}, which the host has not mapped for kernels: kernels need the address \
         that the mapping returns, not that of the process"
    )]
    Register {
        /// The thread that stored.
        thread: ThreadId,
        /// The address of the register.
        addr: u64,
    },
    /// Defects that the [checker](crate::check) has found. The launch ran to its end.
    #[error("{} findings: {}", findings.len(), findings.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("; "))]
    #[cfg(feature = "tsan")]
    Findings {
        /// All findings that concern this launch.
        findings: Vec<crate::check::Finding>,
    },
    /// A write of a block past its dynamic shared memory.
    #[error("block ({},{},{}) wrote past its {shared_bytes} bytes of shared memory", block.x, block.y, block.z)]
    SharedOverflow {
        /// The block that wrote, by its place in the grid.
        block: Dim3,
        /// The bytes of its dynamic shared memory.
        shared_bytes: usize,
    },
}
