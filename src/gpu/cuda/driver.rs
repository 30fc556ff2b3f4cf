//! The CUDA driver, opened at run time: errors by name, the context.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUresult, CUstreamCaptureMode,
};

use super::functions;
use super::module::Modules;
use super::waiting::{PutOff, State};
use crate::gpu::{GpuError, GpuSlot};
use crate::topology::PciAddress;

/// The devices of this process that are open, by ordinal.
static OPEN: Mutex<BTreeMap<u32, Weak<Device>>> = Mutex::new(BTreeMap::new());

/// An error for whatever is not success.
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

/// The driver's name for an error.
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

/// The primary context of one device.
#[derive(Debug)]
pub(super) struct Device {
    device: CUdevice,
    slot: GpuSlot,
    context: CUcontext,
    name: String,
    /// Compute capability as in `sm_90`.
    arch: u32,
    cooperative: bool,
    multiprocessors: u32,
    driver_version: u32,
    modules: Modules,
    put_off: PutOff,
}

// SAFETY: driver contexts may be current on any number of threads.
unsafe impl Send for Device {}
// SAFETY: as for Send.
unsafe impl Sync for Device {}

impl Device {
    /// The device, which all of this process that have it open share.
    pub(super) fn open(ordinal: u32) -> Result<Arc<Self>, GpuError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = Self::retain(ordinal)?;
        open.insert(ordinal, Arc::downgrade(&device));
        Ok(device)
    }

    /// The device of a context that the caller has, which is its primary one.
    ///
    /// # Safety
    ///
    /// `context` is null or a context of the driver.
    pub(super) unsafe fn of_context(context: CUcontext) -> Result<Arc<Self>, GpuError> {
        let count = start(0)?;
        if context.is_null() {
            return Err(GpuError::BadArgument {
                what: "context",
                value: "null".to_owned(),
                limit: "a CUcontext".to_owned(),
            });
        }
        let mut number = 0;
        // SAFETY: the caller's context; `number` is written during the call.
        unsafe {
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            check("cuCtxGetDevice", sys::cuCtxGetDevice(&raw mut number))?;
        }
        for ordinal in 0..count {
            if handle(ordinal)? == number {
                let device = Self::open(ordinal)?;
                device.bind()?;
                return device.check_context("context", context).map(|()| device);
            }
        }
        let ordinal = number.cast_unsigned();
        Err(GpuError::NoDevice { ordinal, count })
    }

    fn retain(ordinal: u32) -> Result<Arc<Self>, GpuError> {
        let count = start(ordinal)?;
        if ordinal >= count {
            return Err(GpuError::NoDevice { ordinal, count });
        }
        let device = handle(ordinal)?;
        let mut context = ptr::null_mut();
        // SAFETY: `context` is written during the call; released in `drop`.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", retained)?;
        let mut this = Self {
            device,
            slot: GpuSlot {
                ordinal,
                pci: PciAddress::default(),
            },
            context,
            name: String::new(),
            arch: 0,
            cooperative: false,
            multiprocessors: 0,
            driver_version: 0,
            modules: Modules::default(),
            put_off: PutOff::default(),
        };
        this.describe()?;
        Ok(Arc::new(this))
    }

    /// Makes the context current on this thread. Every use of the driver begins with it.
    pub(super) fn bind(&self) -> Result<(), GpuError> {
        // SAFETY: the context is retained while `self` lives.
        check("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.context)
        })
    }

    /// Refuses `what` of the caller if it belongs to another context than this device's primary one, which is current.
    pub(super) fn check_context(
        &self,
        what: &'static str,
        context: CUcontext,
    ) -> Result<(), GpuError> {
        if context == self.context {
            return Ok(());
        }
        let mut device = 0;
        // SAFETY: a context that the driver has just named; `device` is written during the call.
        let found = unsafe {
            match sys::cuCtxSetCurrent(context) {
                CUresult::CUDA_SUCCESS => sys::cuCtxGetDevice(&raw mut device),
                refused => refused,
            }
        };
        self.bind()?;
        let value = match found {
            CUresult::CUDA_SUCCESS => format!("of another context, on CUDA device {device}"),
            refused => format!("of a context that ends ({})", error_name(refused)),
        };
        let limit = format!(
            "one of the primary context of CUDA device {} ({}), which cuDevicePrimaryCtxRetain gives and programs by the CUDA runtime \
             use",
            self.slot.ordinal, self.name
        );
        Err(GpuError::BadArgument { what, value, limit })
    }

    /// Runs `body` in relaxed capture mode: what it does is allowed while another thread captures a graph.
    pub(super) fn relaxed<T>(
        &self,
        body: impl FnOnce() -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        self.bind()?;
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is exchanged with this thread's mode during the call.
        let changed = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        check("cuThreadExchangeStreamCaptureMode", changed)?;
        let result = body();
        // SAFETY: as above; puts the old mode back.
        let restored = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        check("cuThreadExchangeStreamCaptureMode", restored).and(result)
    }

    /// What is loaded.
    pub(super) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// What is put off.
    pub(super) fn put_off(&self) -> MutexGuard<'_, State> {
        self.put_off.lock()
    }

    /// Where it is.
    pub(super) fn slot(&self) -> GpuSlot {
        self.slot
    }

    /// The driver's number of it.
    pub(super) fn number(&self) -> i32 {
        self.device
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn arch(&self) -> u32 {
        self.arch
    }

    pub(super) fn cooperative(&self) -> bool {
        self.cooperative
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    pub(super) fn driver_version(&self) -> u32 {
        self.driver_version
    }

    /// Bytes of its memory that are free, and of all.
    pub(super) fn memory(&self) -> Result<(usize, usize), GpuError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written during the call; the context is current.
        check("cuMemGetInfo", unsafe {
            sys::cuMemGetInfo_v2(&raw mut free, &raw mut total)
        })?;
        Ok((free, total))
    }

    fn describe(&mut self) -> Result<(), GpuError> {
        self.slot.pci = pci_address(self.device)?;
        self.name = name_of(self.device)?;
        self.arch = arch_of(self.device)?;
        self.cooperative =
            self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0;
        self.multiprocessors =
            self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        self.driver_version = version()?;
        Ok(())
    }

    pub(super) fn attribute(&self, which: CUdevice_attribute) -> Result<u32, GpuError> {
        attribute(self.device, which)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; everything made in the context holds `self`.
        let released = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        log(check("cuDevicePrimaryCtxRelease", released));
    }
}

/// The devices that this process may see, by ordinal. Opens none of them.
pub(in crate::gpu) fn visible() -> Result<Vec<PciAddress>, GpuError> {
    let count = start(0)?;
    (0..count)
        .map(|ordinal| pci_address(handle(ordinal)?))
        .collect()
}

/// Starts the driver, for the device `ordinal`, and counts its devices.
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

/// CUDA version that the driver runs: 13000 for 13.0.
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

/// Compute capability as in `sm_90`.
pub(super) fn arch_of(device: CUdevice) -> Result<u32, GpuError> {
    let major = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    let minor = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
    Ok(10 * attribute(device, major)? + attribute(device, minor)?)
}

/// Bytes of its memory, whatever uses it.
pub(super) fn memory_of(device: CUdevice) -> Result<u64, GpuError> {
    let mut bytes = 0;
    // SAFETY: `bytes` is written during the call.
    check("cuDeviceTotalMem", unsafe {
        sys::cuDeviceTotalMem_v2(&raw mut bytes, device)
    })?;
    Ok(bytes as u64)
}

/// A GPU is function 0 of its PCI device.
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

/// What it means that the driver does not start.
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

/// What a drop cannot report.
pub(super) fn log(result: Result<(), GpuError>) {
    if let Err(error) = result {
        tracing::error!("{error}");
    }
}
