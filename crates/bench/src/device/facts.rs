//! What a device and its machine report about themselves. A reader of measurements needs it beside them.

use std::fmt;
use std::fs;

use serde::Serialize;

use crate::device::kernels::KERNELS;
use crate::error::BenchError;
use warpverbs::gpu::Gpu;
use warpverbs_cli::doctor;

/// The facts of a device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    /// The label of the device.
    pub(crate) ran_on: String,
    /// The release of the machine's Linux kernel.
    pub(crate) kernel: String,
    /// The driver's module, as it calls itself; None without a driver.
    pub(crate) driver: Option<String>,
    /// The number of CPUs of this process.
    pub(crate) cpus: usize,
    /// How an HCA reaches the device's memory: registration by address, DMA-BUF, order of writes.
    pub(crate) rdma: String,
    /// The attributes of the device.
    pub(crate) attributes: Vec<Attribute>,
    /// What the driver's compiler has made of the kernels of the library and of those that measure.
    pub(crate) kernels: Vec<Kernel>,
}

/// One attribute of the device, as the driver reports it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Attribute {
    /// The name of the attribute, with its unit.
    pub(crate) name: &'static str,
    /// The value, in the unit of the name.
    pub(crate) value: u64,
}

/// What the driver's compiler has made of one kernel.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kernel {
    /// The name under which the kernel is exported.
    pub(crate) name: String,
    /// The number of registers of a thread.
    pub(crate) registers: u32,
    /// The number of bytes of local memory of a thread: spilled registers, and arrays.
    pub(crate) local_bytes: u32,
    /// The number of bytes of static shared memory of a block.
    pub(crate) shared_bytes: u32,
    /// The most threads that a block may have.
    pub(crate) max_threads: u32,
}

/// Asks the device and the machine.
///
/// # Errors
///
/// An error of the device.
pub(crate) fn of(gpu: &dyn Gpu) -> Result<Facts, BenchError> {
    gpu.add_kernels(&KERNELS)?;
    gpu.add_kernels(&doctor::KERNELS)?;
    let said = gpu.facts()?;
    let first_line = |file: &str| {
        let text = fs::read_to_string(file).ok()?;
        Some(text.lines().next()?.trim().to_owned())
    };
    let kernels = said.kernels.into_iter().map(|kernel| Kernel {
        name: kernel.name,
        registers: kernel.registers,
        local_bytes: kernel.local_bytes,
        shared_bytes: kernel.shared_bytes,
        max_threads: kernel.max_threads,
    });
    let attributes = said.attributes.into_iter();
    Ok(Facts {
        ran_on: gpu.label(),
        kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        driver: first_line("/proc/driver/nvidia/version"),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        rdma: format!("{:?}", gpu.rdma()?),
        attributes: attributes
            .map(|(name, value)| Attribute { name, value })
            .collect(),
        kernels: kernels.collect(),
    })
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on {} CPUs, Linux {}",
            self.ran_on, self.cpus, self.kernel
        )?;
        writeln!(f, "driver: {}", self.driver.as_deref().unwrap_or("none"))?;
        writeln!(f, "{}", self.rdma)?;
        for Attribute { name, value } in &self.attributes {
            writeln!(f, "{name:<36} {value:>16}")?;
        }
        if !self.kernels.is_empty() {
            writeln!(
                f,
                "{:<48} {:>9} {:>7} {:>7} {:>8}",
                "kernel", "registers", "local B", "shared", "threads"
            )?;
        }
        for kernel in &self.kernels {
            writeln!(
                f,
                "{:<48} {:>9} {:>7} {:>7} {:>8}",
                kernel.name,
                kernel.registers,
                kernel.local_bytes,
                kernel.shared_bytes,
                kernel.max_threads
            )?;
        }
        Ok(())
    }
}
