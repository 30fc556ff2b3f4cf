//! The CUDA driver, opened at run time: its errors by name, and what it says of a device before the device is opened.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute, CUresult};

use super::functions;
use crate::gpu::GpuError;
use crate::topology::PciAddress;

/// Returns an error unless `result` is success.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(GpuError::Driver {
        call,
        name: error_name(result),
        code: result as u32,
    })
}

/// Returns the driver's name for an error.
pub(super) fn error_name(result: CUresult) -> String {
    let mut name = ptr::null();
    // SAFETY: `name` is written during the call; the driver answers with a static string or an error.
    let found = unsafe { sys::cuGetErrorName(result, &raw mut name) };
    if found != CUresult::CUDA_SUCCESS || name.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: the driver's strings are NUL-terminated and live for ever.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// Returns the PCI addresses of the devices that this process may see, by ordinal. Opens none of them.
pub(in crate::gpu) fn visible() -> Result<Vec<PciAddress>, GpuError> {
    let count = start(0)?;
    (0..count)
        .map(|ordinal| pci_address(handle(ordinal)?))
        .collect()
}

/// Starts the driver, and returns the number of its devices. `ordinal` is the device that an error names.
pub(super) fn start(ordinal: u32) -> Result<u32, GpuError> {
    functions::check()?;
    // SAFETY: the library has it; may be called any number of times.
    let started = unsafe { sys::cuInit(0) };
    check("cuInit", started).map_err(|refusal| not_started(ordinal, started, &refusal))?;
    let mut count = 0;
    // SAFETY: `count` is written during the call.
    check("cuDeviceGetCount", unsafe {
        sys::cuDeviceGetCount(&raw mut count)
    })?;
    Ok(u32::try_from(count).unwrap_or(0))
}

pub(super) fn handle(ordinal: u32) -> Result<CUdevice, GpuError> {
    let mut device = 0;
    let index = i32::try_from(ordinal).unwrap_or(i32::MAX);
    // SAFETY: `device` is written during the call.
    check("cuDeviceGet", unsafe {
        sys::cuDeviceGet(&raw mut device, index)
    })?;
    Ok(device)
}

pub(super) fn attribute(device: CUdevice, which: CUdevice_attribute) -> Result<u32, GpuError> {
    let mut value = 0;
    // SAFETY: `value` is written during the call.
    let asked = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) };
    check("cuDeviceGetAttribute", asked)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Returns the CUDA version that the driver runs: 13000 for 13.0.
pub(super) fn version() -> Result<u32, GpuError> {
    let mut version = 0;
    // SAFETY: `version` is written during the call.
    check("cuDriverGetVersion", unsafe {
        sys::cuDriverGetVersion(&raw mut version)
    })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

pub(super) fn name_of(device: CUdevice) -> Result<String, GpuError> {
    let mut name = [0u8; 128];
    // SAFETY: the driver writes at most 128 bytes, NUL included.
    let named = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 128, device) };
    check("cuDeviceGetName", named)?;
    let name = CStr::from_bytes_until_nul(&name);
    Ok(name
        .map_or_else(|_| "unnamed GPU".into(), CStr::to_string_lossy)
        .into_owned())
}

/// Returns the compute capability of the device, 90 for `sm_90`.
pub(super) fn arch_of(device: CUdevice) -> Result<u32, GpuError> {
    let major = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    let minor = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
    Ok(10 * attribute(device, major)? + attribute(device, minor)?)
}

/// Returns the bytes of the device's memory, used or not.
pub(super) fn memory_of(device: CUdevice) -> Result<u64, GpuError> {
    let mut bytes = 0;
    // SAFETY: `bytes` is written during the call.
    check("cuDeviceTotalMem", unsafe {
        sys::cuDeviceTotalMem_v2(&raw mut bytes, device)
    })?;
    Ok(bytes as u64)
}

/// Returns the device's PCI address. A GPU is function 0 of its PCI device.
pub(super) fn pci_address(device: CUdevice) -> Result<PciAddress, GpuError> {
    let number = |which| attribute(device, which);
    let byte = |which| Ok::<_, GpuError>(u8::try_from(number(which)?).unwrap_or(u8::MAX));
    Ok(PciAddress {
        domain: number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        bus: byte(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        device: byte(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        function: 0,
    })
}

/// Returns the error of a driver that does not start, with advice.
fn not_started(ordinal: u32, code: CUresult, refusal: &GpuError) -> GpuError {
    let advice = match code {
        CUresult::CUDA_ERROR_NO_DEVICE => return GpuError::NoDevice { ordinal, count: 0 },
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            return GpuError::NoDriver {
                detail: format!(
                    "libcuda.so is the stub of a toolkit, which programs are linked with ({refusal}); the library comes with \
                     NVIDIA's kernel driver"
                ),
            };
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "libcuda.so and the kernel module nvidia are of different releases: load the module of the release that is \
             installed, or start the machine again"
        }
        CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "libcuda.so is that of a compatibility package, which this GPU does not take: let the loader find the driver's own"
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            "on a machine with NVSwitch it waits for the service nvidia-fabricmanager, which must run in the driver's release"
        }
        _ => "nvidia-smi and the kernel's log (NVRM) say more",
    };
    GpuError::NoStart {
        refusal: refusal.to_string(),
        advice,
    }
}

/// Logs an error that a drop cannot return.
pub(super) fn log(result: Result<(), GpuError>) {
    if let Err(error) = result {
        tracing::error!("{error}");
    }
}

/// Returns the address for kernels of host memory that is mapped on the device.
pub(super) fn device_address(host: *mut u8) -> Result<u64, GpuError> {
    let mut addr = 0;
    // SAFETY: `addr` is written during the call; `host` is allocated or registered as mapped.
    let asked = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut addr, host.cast(), 0) };
    check("cuMemHostGetDevicePointer", asked)?;
    Ok(addr)
}
