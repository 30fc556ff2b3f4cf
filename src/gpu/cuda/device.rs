//! An open device, which all users in this process share.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{self, CUcontext, CUdevice_attribute, CUresult};

use super::context::Context;
use super::driver::{
    arch_of, attribute, check, error_name, handle, name_of, pci_address, start, version,
};
use super::kernels::Image;
use super::module::{Module, Modules};
use crate::gpu::{GpuError, GpuSlot};

/// The devices of this process that are open, by ordinal.
static OPEN: Mutex<BTreeMap<u32, Weak<Device>>> = Mutex::new(BTreeMap::new());

/// One device. Its primary context is retained as long as this, or anything made in the context, lives.
#[derive(Debug)]
pub(super) struct Device {
    slot: GpuSlot,
    name: String,
    /// Compute capability, 90 for `sm_90`.
    arch: u32,
    cooperative: bool,
    multiprocessors: u32,
    driver_version: u32,
    /// The loaded kernels.
    modules: Modules,
    context: Arc<Context>,
}

impl Device {
    /// Opens the device, or returns it if it is open. All users in this process share it.
    pub(super) fn open(ordinal: u32) -> Result<Arc<Self>, GpuError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = Self::retain(ordinal)?;
        open.insert(ordinal, Arc::downgrade(&device));
        Ok(device)
    }

    /// Opens the device whose primary context is the caller's `context`.
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
        let context = Context::retain(device)?;
        let number = |which| attribute(device, which);
        Ok(Arc::new(Self {
            slot: GpuSlot {
                ordinal,
                pci: pci_address(device)?,
            },
            name: name_of(device)?,
            arch: arch_of(device)?,
            cooperative: number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
            multiprocessors: number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            driver_version: version()?,
            modules: Modules::default(),
            context,
        }))
    }

    /// Loads an image, unless it is loaded already.
    pub(super) fn load(&self, image: &Image) -> Result<Module, GpuError> {
        self.modules.load(&self.context, image)
    }

    /// Returns the primary context.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// See [`Context::bind`].
    pub(super) fn bind(&self) -> Result<(), GpuError> {
        self.context.bind()
    }

    /// See [`Context::relaxed`].
    pub(super) fn relaxed<T>(
        &self,
        body: impl FnOnce() -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        self.context.relaxed(body)
    }

    /// Returns the driver's number of the device.
    pub(super) fn number(&self) -> i32 {
        self.context.device()
    }

    /// Refuses `what` of the caller unless its context is this device's primary context, which is current.
    pub(super) fn check_context(
        &self,
        what: &'static str,
        context: CUcontext,
    ) -> Result<(), GpuError> {
        if context == self.context.raw() {
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

    /// Returns the ordinal and PCI address of the device.
    pub(super) fn slot(&self) -> GpuSlot {
        self.slot
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

    /// Returns the bytes of the device's memory: those that are free, and all.
    pub(super) fn memory(&self) -> Result<(usize, usize), GpuError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written during the call; the context is current.
        check("cuMemGetInfo", unsafe {
            sys::cuMemGetInfo_v2(&raw mut free, &raw mut total)
        })?;
        Ok((free, total))
    }

    pub(super) fn attribute(&self, which: CUdevice_attribute) -> Result<u32, GpuError> {
        attribute(self.number(), which)
    }
}
