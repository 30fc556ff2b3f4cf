//! What can go wrong on a device.

use std::time::Duration;

use crate::error::remedy::{Reason, Remedy, lack};
use crate::error::{Error, Part, ThreadPanicked, ThreadRefused};

/// A refusal or failure of a [`Gpu`](super::Gpu).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// This process has no CUDA driver.
    #[error("{}{}", self.refusal(), lack::OF_DRIVER)]
    NoDriver {
        /// What was looked for.
        detail: String,
    },
    /// A driver is installed, but it does not start.
    #[error(
        "the CUDA driver does not start: {refusal}; {advice}. Kernels run on the CPU with WARPVERBS_GPU=simt"
    )]
    NoStart {
        /// The driver's refusal.
        refusal: String,
        /// What the refusal means, and what to do.
        advice: &'static str,
    },
    /// A driver is installed, but it does not have this device.
    #[error(
        "{}; CUDA_VISIBLE_DEVICES and containers (--gpus) may hide some",
        self.refusal()
    )]
    NoDevice {
        /// The ordinal that the caller asked for.
        ordinal: u32,
        /// Number of devices that the driver has.
        count: u32,
    },
    /// A driver call failed.
    #[error("{call}: {name} ({code}){}", Remedy { call, memory: None, reason: Reason::Cuda(*code) })]
    Driver {
        /// The function of the driver.
        call: &'static str,
        /// The driver's name for the error.
        name: String,
        /// The error as a `CUresult`.
        code: u32,
    },
    /// An argument is out of its range.
    #[error("{what} is {value}; it must be {limit}")]
    BadArgument {
        /// The argument.
        what: &'static str,
        /// The value that the caller gave, in words.
        value: String,
        /// The values that are allowed.
        limit: String,
    },
    /// This process cannot reach memory of another process.
    #[error("memory of another process cannot be opened: {why}")]
    NotOpened {
        /// The cause, in words.
        why: String,
    },
    /// An allocation found no memory.
    #[error("no {kind} memory for {bytes} bytes: {detail}{}", lack::of_memory(.kind))]
    OutOfMemory {
        /// `device` or `host`.
        kind: &'static str,
        /// Number of bytes that the caller asked for.
        bytes: usize,
        /// The system's reason.
        detail: String,
    },
    /// A copy is outside the live allocations.
    #[error("{bytes} bytes at {addr:#x} are not inside a live device allocation{nearest}")]
    BadRange {
        /// Address at which the copy starts.
        addr: u64,
        /// Length of the copy.
        bytes: usize,
        /// The allocation below the copy, in words; empty if none lies below.
        nearest: String,
    },
    /// Kernels do not compile, or their files do not join into one text.
    #[error("{file} does not compile: {log}{}", lack::of_compiler(.log))]
    Compile {
        /// The source file.
        file: String,
        /// The compiler's log.
        log: String,
    },
    /// A set of kernels has no PTX, and nothing compiled its sources for this device.
    #[error(
        "the kernels of {package} have no PTX in this program: {why}. NVRTC does not compile their sources on this machine: {nvrtc}{}",
        lack::OF_PTX
    )]
    NoPtx {
        /// The package of the set.
        package: String,
        /// The reason why the set has no PTX, as its build script says.
        why: String,
        /// The reason why NVRTC did not compile the sources.
        nvrtc: String,
    },
    /// The kernels' PTX is newer than the driver, and nothing compiled the sources for the driver.
    #[error(transparent)]
    OldDriver(Box<OldDriver>),
    /// The driver does not map a page of doorbell registers.
    #[error(
        "the driver does not map the doorbell page for kernels as {kind}: {refusal}. {advice} With doorbell = mailbox in the team's \
         configuration (WARPVERBS_DOORBELL=mailbox), or auto, a host thread rings"
    )]
    Doorbell {
        /// What the page is: I/O memory, as that of a NIC, or memory, as that of a software HCA.
        kind: &'static str,
        /// The driver's refusal.
        refusal: String,
        /// What the driver needs to map such a page.
        advice: &'static str,
    },
    /// No kernel has this name.
    #[error("no kernel {kernel:?} among {known:?}")]
    UnknownKernel {
        /// The name that the caller asked for.
        kernel: String,
        /// The names of all kernels.
        known: Vec<String>,
    },
    /// Two kernels of different sets have one name.
    #[error(
        "kernel {kernel} of {package} has the name of a kernel of {other}, which the device has already; give one of them another name"
    )]
    KernelClash {
        /// The name of both kernels.
        kernel: String,
        /// The package whose set was to be added.
        package: String,
        /// The package of the kernel that the device has already.
        other: String,
    },
    /// A set of kernels has nothing for this device.
    #[error(
        "the kernels of {package} are of no use to {device}: the set has neither PTX nor sources{}",
        lack::OF_KERNELS
    )]
    NotForDevice {
        /// The package of the set.
        package: String,
        /// The device that was to run them.
        device: String,
    },
    /// A launch is outside the device's limits.
    #[error("kernel {kernel}: {detail}")]
    BadLaunch {
        /// The kernel.
        kernel: String,
        /// The value and the limit.
        detail: String,
    },
    /// A kernel failed: deadlock, mask mismatch, panic, trap, deadline.
    #[error("kernel {kernel} failed: {report}")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// Block, warp, lane and operation, where known.
        report: String,
    },
    /// A kernel did not run because an earlier kernel on this device failed.
    #[error("kernel {kernel} did not run: {failed} failed before it on the same device")]
    Poisoned {
        /// The kernel that did not run.
        kernel: String,
        /// The earlier kernel, which failed.
        failed: String,
    },
    /// A thread of the host could not be started.
    #[error(transparent)]
    Thread(#[from] ThreadRefused),
    /// The thread that runs a stream has panicked.
    #[error(transparent)]
    Panicked(#[from] ThreadPanicked),
    /// A capture does not allow an operation.
    #[error("capture of a stream: {detail}")]
    Capture {
        /// The operation, in words.
        detail: String,
    },
    /// The host waits for a launch that was recorded, and not run.
    #[error("kernel {kernel} is recorded in a graph: it has no end that a host could wait for")]
    Captured {
        /// The kernel.
        kernel: String,
    },
    /// A kernel still runs.
    #[error("kernel {kernel} still runs after {waited:?}")]
    Timeout {
        /// The kernel.
        kernel: String,
        /// How long the wait was.
        waited: Duration,
    },
}

impl GpuError {
    /// Returns the error without advice if a driver or a device is missing. Returns the whole text of any other error.
    #[must_use]
    pub fn refusal(&self) -> String {
        match self {
            Self::NoDriver { detail } => format!("no CUDA driver: {detail}"),
            Self::NoDevice { ordinal, count } => {
                format!("no CUDA device {ordinal}: the driver knows {count}, numbered from 0")
            }
            other => other.to_string(),
        }
    }
}

/// A driver that cannot read the PTX of the kernels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the driver is too old for the kernels: it runs CUDA {driver}, their PTX {ptx} needs CUDA {needed} ({refusal}). Either \
     install a driver of release {release} or later, or let NVRTC compile them here: a libnvrtc.so of CUDA {driver} or older, \
     found by the loader or named by WARPVERBS_NVRTC=/path/to/libnvrtc.so. NVRTC now: {nvrtc}"
)]
#[non_exhaustive]
pub struct OldDriver {
    /// CUDA version that the driver runs, for example `12.4`.
    pub driver: String,
    /// Version of the PTX, for example `9.0`.
    pub ptx: String,
    /// CUDA version that reads this PTX, for example `13.0`.
    pub needed: String,
    /// First driver release that reads this PTX, for example `580`.
    pub release: u32,
    /// The driver's refusal.
    pub refusal: String,
    /// The reason why NVRTC did not help.
    pub nvrtc: String,
}

impl From<GpuError> for Error {
    fn from(error: GpuError) -> Self {
        Self::new(Part::Gpu, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no() -> String {
        "no".to_owned()
    }

    /// Returns the number of a variant among the errors of opening a device, and words of its advice. None for errors of later calls.
    fn of_the_start(error: &GpuError) -> Option<(usize, &'static str)> {
        Some(match error {
            GpuError::NoDriver { .. } => (0, "WARPVERBS_GPU=simt"),
            GpuError::NoStart { .. } => (1, "WARPVERBS_GPU=simt"),
            GpuError::NoDevice { .. } => (2, "CUDA_VISIBLE_DEVICES"),
            GpuError::Driver { .. } => (3, "WARPVERBS_LOG_DEPTH"),
            GpuError::BadArgument { .. } => (4, "it must be"),
            GpuError::OutOfMemory { .. } => (5, "smaller windows"),
            GpuError::Compile { .. } => (6, "WARPVERBS_NVRTC"),
            GpuError::OldDriver(_) => (7, "install a driver of release 580"),
            GpuError::Doorbell { .. } => (8, "WARPVERBS_DOORBELL=mailbox"),
            GpuError::KernelClash { .. } => (9, "another name"),
            GpuError::NotForDevice { .. } => (10, "warpverbs_build::kernels"),
            GpuError::Thread(_) => (11, "ulimit -u"),
            GpuError::Panicked(_) => (12, "made anew"),
            GpuError::NoPtx { .. } => (13, "WARPVERBS_NVRTC"),
            GpuError::NotOpened { .. }
            | GpuError::BadRange { .. }
            | GpuError::UnknownKernel { .. }
            | GpuError::BadLaunch { .. }
            | GpuError::Kernel { .. }
            | GpuError::Poisoned { .. }
            | GpuError::Capture { .. }
            | GpuError::Captured { .. }
            | GpuError::Timeout { .. } => return None,
        })
    }

    #[test]
    fn every_error_of_the_start_says_what_to_do() {
        let memory = |kind| GpuError::OutOfMemory {
            kind,
            bytes: 9,
            detail: no(),
        };
        let old = OldDriver {
            driver: no(),
            ptx: no(),
            needed: no(),
            release: 580,
            refusal: no(),
            nvrtc: no(),
        };
        let compile = |log: &str| GpuError::Compile {
            file: no(),
            log: log.to_owned(),
        };
        let errors = [
            GpuError::NoDriver { detail: no() },
            GpuError::NoStart {
                refusal: no(),
                advice: "",
            },
            GpuError::NoDevice {
                ordinal: 7,
                count: 4,
            },
            GpuError::Driver {
                call: "cuMemAlloc",
                name: no(),
                code: 2,
            },
            GpuError::BadArgument {
                what: "align",
                value: no(),
                limit: no(),
            },
            memory("device"),
            memory("pinned host"),
            compile("line 3: no"),
            compile("name it by WARPVERBS_NVRTC=/x"),
            GpuError::OldDriver(Box::new(old)),
            GpuError::Doorbell {
                kind: "memory",
                refusal: no(),
                advice: "",
            },
            GpuError::KernelClash {
                kernel: no(),
                package: no(),
                other: no(),
            },
            GpuError::NotForDevice {
                package: no(),
                device: no(),
            },
            GpuError::Thread(ThreadRefused {
                thread: no(),
                reason: no(),
            }),
            GpuError::Panicked(ThreadPanicked::new("a", &"b")),
            GpuError::NoPtx {
                package: no(),
                why: no(),
                nvrtc: no(),
            },
        ];
        let mut shown = [false; 14];
        for error in errors {
            let (place, words) = of_the_start(&error).unwrap();
            shown[place] = true;
            let text = error.to_string();
            assert!(text.contains(words), "{words}: {text}");
            assert!(text.matches("WARPVERBS_NVRTC").count() < 2, "{text}");
            let refusal = error.refusal();
            assert!(text.starts_with(&refusal), "{refusal}: {text}");
            // The refusal of a missing driver or device leaves out the advice.
            let is_mended = !matches!(place, 0 | 2);
            assert_eq!(refusal.contains(words), is_mended, "{refusal}");
        }
        assert_eq!(shown, [true; 14]);
    }
}
