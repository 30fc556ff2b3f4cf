//! Devices that stand before another device, and change some of its functions.

/// Adds to an `impl Gpu` functions that call the device in the field `gpu`. Functions that every such device forwards are always added.
/// Others are added if their names follow the field.
///
/// A wrapper's `unsafe` functions have the contracts of the device's functions.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_gpu {
    ($gpu:ident) => {
        fn arena(&self) -> &dyn $crate::gpu::Arena {
            self.$gpu.arena()
        }

        fn open_memory(&self, handle: &$crate::gpu::MemoryHandle) -> Result<$crate::gpu::OpenedMemory, $crate::gpu::GpuError> {
            self.$gpu.open_memory(handle)
        }

        fn facts(&self) -> Result<$crate::gpu::DeviceFacts, $crate::gpu::GpuError> {
            self.$gpu.facts()
        }

        fn default_stream(&self) -> $crate::gpu::Stream {
            self.$gpu.default_stream()
        }

        fn stream(&self) -> Result<$crate::gpu::Stream, $crate::gpu::GpuError> {
            self.$gpu.stream()
        }

        unsafe fn wrap_stream(&self, raw: *mut std::ffi::c_void) -> Result<$crate::gpu::Stream, $crate::gpu::GpuError> {
            // SAFETY: the caller's promise.
            unsafe { self.$gpu.wrap_stream(raw) }
        }

        fn add_kernels(&self, set: &'static $crate::gpu::KernelSet) -> Result<(), $crate::gpu::GpuError> {
            self.$gpu.add_kernels(set)
        }
    };
    ($gpu:ident, $($name:ident),+) => {
        $crate::forward_gpu! { $gpu }
        $($crate::forward_gpu! { @ $name $gpu })+
    };
    (@ label $gpu:ident) => {
        fn label(&self) -> String {
            self.$gpu.label()
        }
    };
    (@ device_id $gpu:ident) => {
        fn device_id(&self) -> String {
            self.$gpu.device_id()
        }
    };
    (@ slot $gpu:ident) => {
        fn slot(&self) -> Option<$crate::gpu::GpuSlot> {
            self.$gpu.slot()
        }
    };
    (@ alloc_host $gpu:ident) => {
        fn alloc_host(&self, bytes: usize, align: usize) -> Result<$crate::gpu::DeviceMemory, $crate::gpu::GpuError> {
            self.$gpu.alloc_host(bytes, align)
        }
    };
    (@ alloc_host_shared $gpu:ident) => {
        fn alloc_host_shared(&self, bytes: usize, align: usize) -> Result<$crate::gpu::DeviceMemory, $crate::gpu::GpuError> {
            self.$gpu.alloc_host_shared(bytes, align)
        }
    };
    (@ buffer_id $gpu:ident) => {
        fn buffer_id(&self, addr: u64) -> Result<Option<u64>, $crate::gpu::GpuError> {
            self.$gpu.buffer_id(addr)
        }
    };
    (@ map_mmio $gpu:ident) => {
        fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<$crate::gpu::MappedMmio, $crate::gpu::GpuError> {
            self.$gpu.map_mmio(host, bytes)
        }

        fn map_mmio_as(
            &self,
            host: *mut u8,
            bytes: usize,
            kind: $crate::gpu::RegisterKind,
        ) -> Result<$crate::gpu::MappedMmio, $crate::gpu::GpuError> {
            self.$gpu.map_mmio_as(host, bytes, kind)
        }
    };
    (@ resident_blocks $gpu:ident) => {
        fn resident_blocks(
            &self,
            kernel: &str,
            threads: u32,
            shared_bytes: usize,
        ) -> Result<Option<u32>, $crate::gpu::GpuError> {
            self.$gpu.resident_blocks(kernel, threads, shared_bytes)
        }
    };
    (@ persistent $gpu:ident) => {
        fn persistent(&self) -> Result<$crate::gpu::Persistent, $crate::gpu::GpuError> {
            self.$gpu.persistent()
        }
    };
    (@ launch $gpu:ident) => {
        unsafe fn launch(
            &self,
            spec: &$crate::gpu::Launch<'_>,
            params: &[u8],
        ) -> Result<$crate::gpu::Event, $crate::gpu::GpuError> {
            // SAFETY: the caller's promise.
            unsafe { self.$gpu.launch(spec, params) }
        }
    };
}
