//! Memory between processes: CUDA IPC for memory of a device, a file for memory of the host.

// UNSAFETY: calls of the driver API.
#![expect(unsafe_code, reason = "CUDA driver API")]

use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUipcMem_flags, CUipcMemHandle};

use super::device::Device;
use super::driver::{check, device_address, log};
use super::waiting::Waiting;
use crate::gpu::file::{Mapping, SharedFile};
use crate::gpu::memory::Hold;
use crate::gpu::share::{CudaName, Name, refused};
use crate::gpu::{GpuError, MemoryHandle, OpenedMemory};

/// Returns a name of the memory at `addr` of the live allocation at `base`.
pub(super) fn name(device: &Device, base: CUdeviceptr, addr: u64) -> Result<Name, GpuError> {
    device.bind()?;
    let mut ipc = CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the handle is written during the call; `base` is that of a live allocation.
    check("cuIpcGetMemHandle", unsafe {
        sys::cuIpcGetMemHandle(&raw mut ipc, base)
    })?;
    Ok(Name::Cuda(CudaName {
        ipc: ipc.reserved.map(|byte| byte.to_ne_bytes()[0]).into(),
        offset: addr - base,
    }))
}

/// Opens memory that another process has named.
pub(super) fn open(device: &Arc<Device>, handle: &MemoryHandle) -> Result<OpenedMemory, GpuError> {
    match &handle.name {
        Name::Cuda(name) => {
            let opened = Opened::new(device, name)?;
            let last = name.offset.checked_add(handle.bytes());
            if last.is_none_or(|last| last > opened.bytes) {
                let (offset, bytes, all) = (name.offset, handle.bytes(), opened.bytes);
                let why =
                    format!("its handle names {bytes} bytes at {offset} of an allocation of {all}");
                return Err(refused(why));
            }
            let (addr, room) = (opened.base + name.offset, opened.bytes - name.offset);
            let bytes = handle.bytes();
            Ok(OpenedMemory::new(addr, bytes, room, Box::new(opened)))
        }
        Name::File(name) => {
            let mapping = name.map(handle.bytes()).map_err(refused)?;
            let registered = Registered::new(device, mapping)?;
            let (addr, bytes) = (registered.addr, handle.bytes());
            Ok(OpenedMemory::new(addr, bytes, bytes, Box::new(registered)))
        }
    }
}

/// An allocation of another process, mapped in this process.
#[derive(Debug)]
struct Opened {
    device: Arc<Device>,
    base: CUdeviceptr,
    /// Length of the whole allocation.
    bytes: u64,
}

impl Hold for Opened {}

impl Opened {
    fn new(device: &Arc<Device>, name: &CudaName) -> Result<Self, GpuError> {
        let mut ipc = CUipcMemHandle { reserved: [0; 64] };
        if name.ipc.len() != ipc.reserved.len() {
            let length = name.ipc.len();
            return Err(refused(format!("its handle has {length} bytes, not 64")));
        }
        for (to, from) in ipc.reserved.iter_mut().zip(&name.ipc) {
            *to = std::ffi::c_char::from_ne_bytes([*from]);
        }
        device.bind()?;
        let mut base: CUdeviceptr = 0;
        let lazily = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        // SAFETY: `base` is written during the call; the driver checks the handle; closed when the result is dropped.
        check("cuIpcOpenMemHandle", unsafe {
            sys::cuIpcOpenMemHandle_v2(&raw mut base, ipc, lazily)
        })
        .map_err(refused)?;
        let mut opened = Self {
            device: Arc::clone(device),
            base,
            bytes: 0,
        };
        let (mut begin, mut bytes) = (0, 0);
        // SAFETY: both are written during the call; `base` was mapped just now.
        check("cuMemGetAddressRange", unsafe {
            sys::cuMemGetAddressRange_v2(&raw mut begin, &raw mut bytes, base)
        })
        .map_err(refused)?;
        opened.bytes = bytes as u64;
        Ok(opened)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let closed = self.device.bind().and_then(|()| {
            // SAFETY: opened by `new`, closed once; no kernel uses it any more, as `OpenedMemory` asks.
            check("cuIpcCloseMemHandle", unsafe {
                sys::cuIpcCloseMemHandle(self.base)
            })
        });
        log(closed);
    }
}

/// A file of this process in place of device memory.
#[derive(Debug)]
pub(super) struct HostFile {
    registered: Registered,
    file: SharedFile,
}

impl HostFile {
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, GpuError> {
        let no_memory = |error: std::io::Error| GpuError::OutOfMemory {
            kind: "shared host",
            bytes,
            detail: error.to_string(),
        };
        let file = SharedFile::new(bytes).map_err(no_memory)?;
        let mapping = Mapping::new(file.fd(), bytes).map_err(no_memory)?;
        Ok(Self {
            registered: Registered::new(device, mapping)?,
            file,
        })
    }

    /// Returns the address of the first byte in this process.
    pub(super) fn host(&self) -> u64 {
        self.registered.host
    }

    /// Returns the address of the first byte for kernels.
    pub(super) fn addr(&self) -> u64 {
        self.registered.addr
    }
}

impl Hold for HostFile {
    fn name(&self) -> Result<Option<Name>, GpuError> {
        Ok(Some(Name::File(self.file.name())))
    }
}

/// A mapping of a file that is registered for kernels.
#[derive(Debug)]
struct Registered {
    device: Arc<Device>,
    /// The address of the first byte in this process, and in kernels.
    host: u64,
    addr: u64,
    /// The mapping. None once this is being dropped.
    mapping: Option<Mapping>,
}

impl Hold for Registered {}

impl Registered {
    fn new(device: &Arc<Device>, mapping: Mapping) -> Result<Self, GpuError> {
        device.bind()?;
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        let start = mapping.start().as_ptr();
        // SAFETY: the mapping lives until its registration has been taken back after `drop`.
        check("cuMemHostRegister", unsafe {
            sys::cuMemHostRegister_v2(start.cast(), mapping.bytes(), flags)
        })?;
        let mut registered = Self {
            device: Arc::clone(device),
            host: start.expose_provenance() as u64,
            addr: 0,
            mapping: Some(mapping),
        };
        registered.addr = device_address(start)?;
        Ok(registered)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(mapping) = self.mapping.take() {
            // SAFETY: registered in `new`, taken back once.
            unsafe {
                self.device
                    .context()
                    .give_back(Waiting::Unregister(mapping))
            };
        }
    }
}
