//! One device that runs kernels: the trait.

use std::ffi::c_void;
use std::fmt;
use std::time::Duration;

use crate::gpu::arena::Arena;
use crate::gpu::copy::CopyPiece;
use crate::gpu::error::GpuError;
use crate::gpu::event::Event;
use crate::gpu::facts::{DeviceFacts, RegisterKind};
use crate::gpu::kernel_set::KernelSet;
use crate::gpu::launch::{Launch, Persistent};
use crate::gpu::memory::{DeviceMemory, HostMapped, MappedMmio, OpenedMemory};
use crate::gpu::rdma::{GpuSlot, RdmaSupport};
use crate::gpu::share::MemoryHandle;
use crate::gpu::stream::Stream;

/// One device that runs kernels. Object safe: the runtime holds `Arc<dyn Gpu>`.
pub trait Gpu: Send + Sync + fmt::Debug {
    /// Returns the label of results from this device: `simt`, or the GPU's name.
    fn label(&self) -> String;

    /// Returns a name of the device. Kernels of two ranks of one process with equal names may load from and store to each other's device
    /// memory.
    fn device_id(&self) -> String;

    /// Returns where the GPU is. None for a device that is no GPU.
    fn slot(&self) -> Option<GpuSlot> {
        None
    }

    /// Returns the memory of the device. A device that stands before another one returns the memory of that one.
    fn arena(&self) -> &dyn Arena;

    /// Allocates `bytes` (at least 1) of device memory at a multiple of `align` (a power of two), filled with zeros.
    ///
    /// The address is valid in kernels and, registered, for the HCA. It is not reused while the result lives.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`], [`GpuError::OutOfMemory`], or the driver's errors.
    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.arena().alloc(bytes, align)
    }

    /// Allocates as [`Gpu::alloc`] does, memory that has the same address in this process. It is for a software HCA, which reads and writes
    /// memory from the CPU, and for queues in host memory. Kernels reach it more slowly.
    ///
    /// # Errors
    ///
    /// As [`Gpu::alloc`].
    fn alloc_host(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.alloc(bytes, align)
    }

    /// Allocates as [`Gpu::alloc`] does, memory that other processes of this machine can open, if the device has such memory.
    /// [`DeviceMemory::handle`] then names the memory.
    ///
    /// # Errors
    ///
    /// As [`Gpu::alloc`].
    fn alloc_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.arena().alloc_shared(bytes, align)
    }

    /// Allocates as [`Gpu::alloc_host`] does, memory that other processes of this machine can open, if the device has such memory.
    ///
    /// # Errors
    ///
    /// As [`Gpu::alloc`].
    fn alloc_host_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.alloc_shared(bytes, align)
    }

    /// Makes memory that the caller has allocated usable for kernels and windows. On a CUDA device the driver must know the memory as this
    /// device's; on the CPU it is any memory of this process. Copies reach it as they reach memory of [`Gpu::alloc`], and its contents
    /// stay. An HCA gets a DMA-BUF of the memory if it begins at a page and the pages of its end belong to the same allocation. Otherwise
    /// the HCA gets the address.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for 0 bytes, for memory of another device, and for a range that overlaps memory of this device. Also for a
    /// range that is not inside one allocation of the driver. The driver's errors.
    ///
    /// # Safety
    ///
    /// The memory stays allocated until the result and everything made over it have been dropped. A window holds the result as long as its
    /// team lives. Until then no code has a Rust reference to any of the memory: kernels, HCAs and peers read and write it at any time.
    // UNSAFETY: how long memory stays allocated, no type can check.
    #[expect(unsafe_code, reason = "takes memory on trust")]
    unsafe fn wrap_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.arena().wrap_memory(addr, bytes) }
    }

    /// Makes memory of the caller usable as [`Gpu::wrap_memory`] does, but for HCAs alone: no copy of this device reaches the result. The
    /// same memory may be lent several times. An HCA gets a DMA-BUF of it wherever it begins, if all its pages belong to one allocation.
    ///
    /// # Errors
    ///
    /// As [`Gpu::wrap_memory`], except that memory of this device is not refused.
    ///
    /// # Safety
    ///
    /// As [`Gpu::wrap_memory`].
    // UNSAFETY: as for `wrap_memory`.
    #[expect(unsafe_code, reason = "takes memory on trust")]
    unsafe fn lend_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.arena().lend_memory(addr, bytes) }
    }

    /// Returns the number of the allocation that has `addr`. No other allocation of the process ever has that number, not even a later one
    /// at the same address. None if the device does not know the memory.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    fn buffer_id(&self, _addr: u64) -> Result<Option<u64>, GpuError> {
        Ok(None)
    }

    /// Returns when kernels of this device see all writes of HCAs to its memory whose completions the caller has seen. A caller needs this
    /// if [`RdmaSupport::write_ordering`] is [`WriteOrdering::None`](super::WriteOrdering::None).
    ///
    /// # Errors
    ///
    /// The driver's errors, if [`RdmaSupport::flush_by_host`] is false too.
    fn flush_writes(&self) -> Result<(), GpuError> {
        Ok(())
    }

    /// Opens memory of another process. The memory stays open after the end of the process that owns it. The process that opened it then
    /// closes it, before anything of a new process takes its place.
    ///
    /// # Errors
    ///
    /// [`GpuError::NotOpened`] if the owner has ended, or the memory belongs to another user or to a device that this device cannot reach.
    fn open_memory(&self, handle: &MemoryHandle) -> Result<OpenedMemory, GpuError>;

    /// Returns how an HCA reaches this device's memory, and in which order the HCA's writes appear there.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    fn rdma(&self) -> Result<RdmaSupport, GpuError> {
        Ok(RdmaSupport::HOST)
    }

    /// Returns the bytes of device memory and pinned host memory that [`Gpu::alloc`], [`Gpu::alloc_host`] and [`Gpu::map_host`] have given
    /// out so far. The number never falls: if two calls return the same, nothing was allocated between them.
    fn allocated(&self) -> u64 {
        self.arena().allocated()
    }

    /// Refuses a range that a copy of `bytes` bytes at `addr` would refuse. Copies nothing.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadRange`] unless the range lies inside one live allocation of this device.
    fn check_range(&self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        self.arena().check_range(addr, bytes)
    }

    /// Copies `bytes` into device memory at `addr`, and returns when the copy is done.
    ///
    /// # Errors
    ///
    /// As [`Gpu::check_range`].
    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.arena().write(addr, bytes)
    }

    /// Copies device memory at `addr` into `out`.
    ///
    /// # Errors
    ///
    /// As [`Gpu::check_range`].
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        self.arena().read(addr, out)
    }

    /// Returns the name of the memory that [`Gpu::copy`] reaches: the host's memory, memory of each device with the same name, and memory
    /// that such a device has opened. None: the device makes no such copies.
    fn copies_within(&self) -> Option<&'static str> {
        None
    }

    /// Copies all pieces. Returns when every byte has arrived, or after an error when no copy runs any more.
    ///
    /// # Errors
    ///
    /// The driver's errors; some pieces may have arrived. [`GpuError::BadArgument`] if [`Gpu::copies_within`] is none.
    ///
    /// # Safety
    ///
    /// Both ends of each piece are memory of the host, or of a device with the same [`Gpu::copies_within`], and stay so during the call. No
    /// Rust reference to them is used during the call.
    // UNSAFETY: a declaration only; whether an address is memory, no type can check.
    #[expect(unsafe_code, reason = "copies by address")]
    unsafe fn copy(&self, pieces: &[CopyPiece]) -> Result<(), GpuError> {
        Err(GpuError::BadArgument {
            what: "a copy by a device that makes none",
            value: format!("{} pieces", pieces.len()),
            limit: "none".to_owned(),
        })
    }

    /// Maps a page of device registers (a UAR), which this process has at `host`, for kernels.
    ///
    /// Several mappings of the same page share one registration, which ends with the last of these mappings. The host mapping must outlive
    /// the result.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for a null or unaligned register; the driver's refusal.
    fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError>;

    /// Maps registers as [`Gpu::map_mmio`] does, but as the kind that the caller names; `map_mmio` itself finds out what the page is. For
    /// measurements of what a device does with either kind.
    ///
    /// # Errors
    ///
    /// As [`Gpu::map_mmio`]; [`GpuError::BadArgument`] for a kind that the device does not have.
    #[doc(hidden)]
    fn map_mmio_as(
        &self,
        host: *mut u8,
        bytes: usize,
        kind: RegisterKind,
    ) -> Result<MappedMmio, GpuError>;

    /// Returns what the device says of itself, and what its driver says of the loaded kernels.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    fn facts(&self) -> Result<DeviceFacts, GpuError>;

    /// Allocates `bytes` of pinned host memory, filled with zeros, that kernels reach too, for example for abort words and counters.
    ///
    /// # Errors
    ///
    /// As [`Gpu::alloc`].
    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        self.arena().map_host(bytes)
    }

    /// Returns how many blocks of kernel `kernel` run at the same time. Each has `threads` threads and `shared_bytes` bytes of dynamic
    /// shared memory. A cooperative launch may have as many. `None`: any number.
    ///
    /// # Errors
    ///
    /// [`GpuError::UnknownKernel`]; the driver's errors.
    fn resident_blocks(
        &self,
        kernel: &str,
        threads: u32,
        shared_bytes: usize,
    ) -> Result<Option<u32>, GpuError>;

    /// Returns the stream for launches that name no stream.
    fn default_stream(&self) -> Stream;

    /// Makes a stream, which waits for no other stream.
    ///
    /// # Errors
    ///
    /// [`GpuError::Thread`]; the driver's errors.
    fn stream(&self) -> Result<Stream, GpuError>;

    /// Wraps a stream that the caller made: a `CUstream` of this device's primary context, or null for CUDA's default stream. On a device
    /// without CUDA streams null stands for [`Gpu::default_stream`].
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for a stream that is not null on a device without CUDA streams, and for a stream of another context: of
    /// another device, or of a context that the caller made beside the primary one. The driver's errors.
    ///
    /// # Safety
    ///
    /// `raw` is a stream, and stays one until the result and all its clones are gone and all launches in it have ended.
    // UNSAFETY: a declaration only; whether an address is a stream, no type can check.
    #[expect(unsafe_code, reason = "takes a handle on trust")]
    unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<Stream, GpuError>;

    /// Adds the kernels of a crate, which [`kernels!`](crate::kernels) has declared, to those that can be launched. The device has the
    /// kernels of this crate from the start. A set that the device has already is not added again.
    ///
    /// # Errors
    ///
    /// [`GpuError::KernelClash`] if a kernel of another set has the name of a kernel of this set. [`GpuError::NotForDevice`] if the set has
    /// nothing that the device can run. The errors of opening the device, if loading fails. After an error no kernel of the set is added.
    fn add_kernels(&self, set: &'static KernelSet) -> Result<(), GpuError>;

    /// Announces a kernel that does not end by itself, before its launch. The announcement lasts as long as the result lives.
    ///
    /// Some calls of the CUDA driver wait for all kernels of the process: calls that free memory, or load or unload kernels. They would
    /// wait for this kernel. So until the result is dropped, memory of this GPU that the process gives back is not free. A kernel that has
    /// not been loaded is refused with [`GpuError::BadArgument`]. Load all kernels before the call ([`Gpu::add_kernels`]); devices of this
    /// GPU that are opened afterwards have the same kernels. On the CPU no call waits, and none is put off.
    ///
    /// # Errors
    ///
    /// The driver's error if it has no room for the stacks of the loaded kernels.
    fn persistent(&self) -> Result<Persistent, GpuError> {
        Ok(Persistent::default())
    }

    /// Starts kernel `spec.kernel` after all earlier launches of its stream. `params` are the bytes of its one parameter struct, from
    /// `abi`. While the stream is being captured, the launch is recorded instead.
    ///
    /// # Errors
    ///
    /// [`GpuError::UnknownKernel`]; [`GpuError::BadLaunch`]; [`GpuError::BadArgument`] for a stream of another device; or
    /// [`GpuError::Poisoned`] while no [`Gpu::wait`] has seen the failure of an earlier kernel.
    ///
    /// # Safety
    ///
    /// `params` are the bytes of the struct that the kernel declares. The addresses in it stay valid, as the kernel uses them, until the
    /// event is done. An event is done, too, if its wait returned an error other than [`GpuError::Timeout`]. The addresses are device
    /// memory, host-mapped memory, register pages and registered windows of every QP to which the kernel posts. Nothing else may access
    /// that memory at the same time, except through atomics or as the kernel's contract says.
    // UNSAFETY: a declaration only; what a kernel does with the addresses it is given, no type can check.
    #[expect(unsafe_code, reason = "launching a kernel is unsafe, see its contract")]
    unsafe fn launch(&self, spec: &Launch<'_>, params: &[u8]) -> Result<Event, GpuError>;

    /// Waits until `event`'s kernel has ended, at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`GpuError::Timeout`] if the kernel still runs: it goes on, and the caller may wait again. [`GpuError::Kernel`] with the report if
    /// the kernel failed. [`GpuError::Poisoned`] if it never ran because an earlier kernel failed. A failed event fails in the same way
    /// each time.
    fn wait(&self, event: &Event, timeout: Duration) -> Result<(), GpuError> {
        event.wait(timeout)
    }
}
