//! The choice of a device.

use std::str::FromStr;
use std::sync::Arc;

use super::simt::{SimtGpu, SimtOptions};
use super::{Gpu, GpuError};
use crate::gpu::survey::Survey;

pub use crate::config::GpuSelector;
use crate::topology::PciAddress;

impl FromStr for GpuSelector {
    type Err = GpuError;

    /// Reads `auto`, `simt`, `simt-dmabuf` or a device ordinal.
    fn from_str(text: &str) -> Result<Self, GpuError> {
        Self::of_word(text).ok_or_else(|| GpuError::BadArgument {
            what: "GPU",
            value: text.to_owned(),
            limit: "auto, simt, simt-dmabuf or the number of a CUDA device".to_owned(),
        })
    }
}

/// Opens a device.
///
/// # Errors
///
/// [`GpuError::NoDriver`] or [`GpuError::NoDevice`] if the selector names a CUDA device that does not exist; `Auto` takes simt instead. A
/// driver that is installed but does not start is an error also for `Auto`: [`GpuError::NoStart`].
pub fn open(selector: GpuSelector) -> Result<Arc<dyn Gpu>, GpuError> {
    open_for(selector, false)
}

/// Opens a device for use with an HCA; `soft`: the HCA is software. A software HCA reads memory from the CPU, so a GPU then takes all its
/// "device memory" from the host.
///
/// # Errors
///
/// As [`open`].
pub fn open_for(selector: GpuSelector, soft: bool) -> Result<Arc<dyn Gpu>, GpuError> {
    match selector {
        GpuSelector::Simt => Ok(SimtGpu::open()?),
        GpuSelector::SimtDmabuf => {
            let options = SimtOptions {
                dmabufs: true,
                dmabufs_across_pcie: true,
                ..SimtOptions::default()
            };
            Ok(SimtGpu::with_options(&options)?)
        }
        GpuSelector::Cuda(ordinal) => open_cuda(ordinal, soft, false),
        GpuSelector::Auto => match open_cuda(0, soft, false) {
            Ok(gpu) => Ok(gpu),
            Err(GpuError::NoDriver { detail }) => {
                tracing::debug!("no CUDA driver ({detail}): kernels run on the CPU");
                Ok(SimtGpu::open()?)
            }
            Err(GpuError::NoDevice { .. }) => Ok(SimtGpu::open()?),
            Err(other) => Err(other),
        },
    }
}

/// Opens a device as [`open_for`] does. On a GPU it leaves out the kernels of this crate, which the driver would compile for seconds. The
/// device runs kernels that a program adds. It does not run MoE.
///
/// # Errors
///
/// As [`open`].
pub fn open_bare(selector: GpuSelector, soft: bool) -> Result<Arc<dyn Gpu>, GpuError> {
    match selector {
        GpuSelector::Cuda(ordinal) => open_cuda(ordinal, soft, true),
        other => open_for(other, soft),
    }
}

/// Returns the PCI addresses of the CUDA devices that this process may see, by ordinal. Empty without a driver or a device. Opens none.
///
/// # Errors
///
/// [`GpuError::NoStart`]; the driver's errors.
pub fn visible() -> Result<Vec<PciAddress>, GpuError> {
    match visible_to_cuda() {
        Err(GpuError::NoDriver { .. } | GpuError::NoDevice { .. }) => Ok(Vec::new()),
        seen => seen,
    }
}

#[cfg(feature = "cuda")]
fn visible_to_cuda() -> Result<Vec<PciAddress>, GpuError> {
    super::cuda::visible()
}

#[cfg(not(feature = "cuda"))]
fn visible_to_cuda() -> Result<Vec<PciAddress>, GpuError> {
    Ok(Vec::new())
}

#[cfg(feature = "cuda")]
fn open_cuda(ordinal: u32, soft: bool, bare: bool) -> Result<Arc<dyn Gpu>, GpuError> {
    use super::cuda::{CudaGpu, CudaOptions, MemoryLocation};
    let options = CudaOptions {
        location: if soft {
            MemoryLocation::Host
        } else {
            MemoryLocation::Device
        },
        bare,
        ..CudaOptions::default()
    };
    Ok(CudaGpu::with_options(ordinal, &options)?)
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_ordinal: u32, _soft: bool, _bare: bool) -> Result<Arc<dyn Gpu>, GpuError> {
    Err(GpuError::NoDriver {
        detail: "built without the feature `cuda`".to_owned(),
    })
}

/// Returns what the driver says of itself and its devices.
///
/// # Errors
///
/// [`GpuError::NoDriver`], [`GpuError::NoDevice`], [`GpuError::NoStart`]; the driver's errors.
pub fn survey() -> Result<Survey, GpuError> {
    #[cfg(feature = "cuda")]
    return super::cuda::survey();
    #[cfg(not(feature = "cuda"))]
    Err(GpuError::NoDriver {
        detail: "built without the feature `cuda`".to_owned(),
    })
}

/// Returns the file and version of NVIDIA's run-time compiler, which makes kernels for a driver that cannot read their PTX.
///
/// # Errors
///
/// The libraries that were tried, in words.
pub fn nvrtc() -> Result<String, String> {
    #[cfg(feature = "cuda")]
    return super::cuda::found_nvrtc();
    #[cfg(not(feature = "cuda"))]
    Err("built without the feature `cuda`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_read_back_as_they_print() {
        let all = [
            GpuSelector::Auto,
            GpuSelector::Simt,
            GpuSelector::SimtDmabuf,
            GpuSelector::Cuda(3),
        ];
        for selector in all {
            assert_eq!(
                selector.to_string().parse::<GpuSelector>().unwrap(),
                selector
            );
        }
        let refusal = "gpu0".parse::<GpuSelector>().unwrap_err().to_string();
        assert!(
            refusal.contains("gpu0") && refusal.contains("auto, simt"),
            "{refusal}"
        );
    }

    #[test]
    fn auto_opens_something_where_no_driver_is_broken() {
        match open(GpuSelector::Auto) {
            Ok(gpu) => assert!(!gpu.label().is_empty()),
            Err(error) => assert!(matches!(error, GpuError::NoStart { .. }), "{error}"),
        }
    }
}
