//! What the driver says before a device is opened.

use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};

use super::driver::{self, attribute, handle, pci_address};
use super::{ptx, rdma};
use crate::gpu::kernel_set::LIBRARY;
use crate::gpu::{ComputeMode, GpuError, GpuSlot, KernelNeeds, Survey, SurveyedGpu};

/// Returns the driver's version and all devices that this process may see.
pub(in crate::gpu) fn survey() -> Result<Survey, GpuError> {
    let count = driver::start(0)?;
    let version = driver::version()?;
    let gpus = (0..count).map(|ordinal| gpu(ordinal, handle(ordinal)?));
    Ok(Survey {
        cuda: (version / 1000, version % 1000 / 10),
        gpus: gpus.collect::<Result<_, _>>()?,
    })
}

fn gpu(ordinal: u32, device: CUdevice) -> Result<SurveyedGpu, GpuError> {
    let arch = driver::arch_of(device)?;
    let mode = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)?;
    Ok(SurveyedGpu {
        slot: GpuSlot {
            ordinal,
            pci: pci_address(device)?,
        },
        name: driver::name_of(device)?,
        arch,
        memory_bytes: driver::memory_of(device)?,
        compute_mode: compute_mode(mode),
        rdma: rdma::support(device)?,
        kernels: needs(arch),
    })
}

/// Returns the mode of a code of `CUcomputemode`; code 1 no longer exists.
fn compute_mode(code: u32) -> ComputeMode {
    match code {
        0 => ComputeMode::Default,
        2 => ComputeMode::Prohibited,
        3 => ComputeMode::ExclusiveProcess,
        other => ComputeMode::Other(other),
    }
}

/// Returns what the kernels of this crate need on a device of `arch`.
fn needs(arch: u32) -> KernelNeeds {
    let (_, sources) = ptx::sources(&LIBRARY, arch);
    let versions = sources.iter().map(|source| ptx::version(source.text));
    let ptx = versions.max().unwrap_or((0, 0));
    let needs = ptx::Needs::of(ptx.0, ptx.1);
    KernelNeeds {
        ptx,
        cuda: needs.cuda,
        release: needs.release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_too_old_for_all_ptx_has_none() {
        assert_eq!(needs(10).ptx, (0, 0));
        assert!(needs(90).ptx > (7, 0), "{:?}", needs(90));
    }

    #[test]
    fn a_compute_mode_is_its_code() {
        assert_eq!(compute_mode(0), ComputeMode::Default);
        assert_eq!(compute_mode(3), ComputeMode::ExclusiveProcess);
        assert_eq!(compute_mode(1), ComputeMode::Other(1));
    }
}
