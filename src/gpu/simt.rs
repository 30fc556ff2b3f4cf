//! Kernels on the CPU: device memory is ordinary memory, a stream is a thread.
//!
//! The host compiler has made the kernels of a [`KernelSet`]: those of this crate, and those of other crates by
//! [`Gpu::add_kernels`]. A table of bare `simt` works as well, through [`SimtGpu::with_kernels`].
//!
//! ```
//! use warpverbs::gpu::Gpu;
//! use warpverbs::gpu::simt::{SimtGpu, SimtOptions};
//!
//! let gpu = SimtGpu::with_options(&SimtOptions::default().with_workers(2))?;
//! let memory = gpu.alloc(64, 64)?; // ordinary memory, zeroed
//! assert_eq!(memory.bytes(), 64);
//! # Ok::<(), warpverbs::gpu::GpuError>(())
//! ```

// UNSAFETY: launches kernels, whose arguments are addresses.
#![expect(
    unsafe_code,
    reason = "launching a kernel is unsafe, see `Gpu::launch`"
)]

mod capture;
mod health;
mod hooks;
mod mapped;
mod memory;
mod stream;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::kernel_set::{KernelSet, KernelTable, LIBRARY};
use super::memory::MappedMmio;
use super::{
    Arena, CopyPiece, DeviceFacts, Event, Gpu, GpuError, Launch, MemoryHandle, OpenedMemory,
    RdmaSupport, RegisterKind, Stream, WriteOrdering,
};
use crate::config::setters;
use health::Health;
use memory::{Exports, SimtArena};
use stream::SimtStream;

pub use ::simt::Kernel;
pub(crate) use hooks::connect;

/// The number of devices made so far.
static DEVICES: AtomicU32 = AtomicU32::new(0);

/// The largest number of threads of a block, as on a GPU.
const MAX_BLOCK: u64 = 1024;

/// The largest number of bytes of dynamic shared memory of a block: what sm_90 offers.
const MAX_SHARED_BYTES: usize = 227 << 10;

/// The largest number of bytes of a kernel's parameters, as before CUDA 12.1.
const MAX_PARAMS: usize = 4096;

/// A "GPU" whose kernels run on threads of this process, one per stream.
#[derive(Debug)]
pub struct SimtGpu {
    arena: Arc<SimtArena>,
    health: Arc<Health>,
    stream: Arc<SimtStream>,
    kernels: RwLock<KernelTable<Kernel>>,
    workers: usize,
    resident_blocks: Option<u32>,
    write_ordering: WriteOrdering,
    maps_registers: bool,
    copies: bool,
    /// What the launches of each kernel have done, by its name.
    counts: Arc<Mutex<BTreeMap<&'static str, KernelCounts>>>,
    /// The number of this device, which no other device of the process has.
    number: u32,
}

/// Sums over the launches of one kernel that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelCounts {
    /// Launches that ended well.
    pub launches: u64,
    /// Number of barriers of the grid.
    pub grid_syncs: u64,
    /// Number of fences wider than a block, of all threads.
    pub fences: u64,
    /// Number of 16-byte loads of rows, of all threads.
    pub loads: u64,
    /// Number of rounds in which threads issued these loads. A thread waits for memory once in a round.
    pub load_rounds: u64,
}

impl KernelCounts {
    fn add(&mut self, stats: &::simt::LaunchStats) {
        self.launches += 1;
        self.grid_syncs += stats.grid_syncs;
        self.fences += stats.fences;
        self.loads += stats.loads;
        self.load_rounds += stats.load_rounds;
    }
}

/// How a [`SimtGpu`] runs its kernels.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SimtOptions<'a> {
    /// Kernels besides those of this crate. A kernel here replaces one of this crate with the same name. Default none.
    pub kernels: &'a [Kernel],
    /// Number of OS threads that share the blocks of a launch, 1 to 256. Default 1: schedules then depend on the seed alone.
    pub workers: usize,
    /// Largest number of blocks of a cooperative launch, like a GPU's limit. Default none: all blocks of a grid run at once.
    pub resident_blocks: Option<u32>,
    /// True if device memory has [DMA-BUFs](super::DeviceMemory::dmabufs), as a GPU's memory has. They are descriptors of memory files,
    /// which only the software HCA takes. Default false.
    pub dmabufs: bool,
    /// True if device memory has DMA-BUFs that are made for access across PCIe. Default false.
    pub dmabufs_across_pcie: bool,
    /// The order of an HCA's writes that the device reports, as a GPU does. Default the order of host memory.
    pub write_ordering: WriteOrdering,
    /// True if kernels can reach the registers of HCAs; a driver may refuse that. Default true.
    pub maps_registers: bool,
    /// Bytes of device memory. The device refuses to have more in use at a time, as a GPU does. Memory of the caller does not count.
    /// Default none: as much as the system gives.
    pub memory: Option<u64>,
    /// True if the device [copies](Gpu::copy) between addresses, as a GPU does. Default true.
    pub copies: bool,
}

setters! {
    const SimtOptions<'a> {
        with_kernels(kernels: &'a [Kernel]),
        with_workers(workers: usize),
        with_resident_blocks(resident_blocks: Option<u32>),
        with_dmabufs(dmabufs: bool),
        with_dmabufs_across_pcie(dmabufs_across_pcie: bool),
        with_write_ordering(write_ordering: WriteOrdering),
        with_maps_registers(maps_registers: bool),
        with_memory(memory: Option<u64>),
        with_copies(copies: bool),
    }
}

impl Default for SimtOptions<'_> {
    fn default() -> Self {
        Self {
            kernels: &[],
            workers: 1,
            resident_blocks: None,
            dmabufs: false,
            dmabufs_across_pcie: false,
            write_ordering: RdmaSupport::HOST.write_ordering,
            maps_registers: true,
            memory: None,
            copies: true,
        }
    }
}

impl SimtGpu {
    /// Opens a device with the kernels of this crate and default options.
    ///
    /// # Errors
    ///
    /// [`GpuError::Thread`] if its thread cannot be started.
    pub fn open() -> Result<Arc<Self>, GpuError> {
        Self::with_options(&SimtOptions::default())
    }

    /// Opens a device that also knows `extra` kernels.
    ///
    /// # Errors
    ///
    /// As [`SimtGpu::open`].
    pub fn with_kernels(extra: &[Kernel]) -> Result<Arc<Self>, GpuError> {
        Self::with_options(&SimtOptions {
            kernels: extra,
            ..SimtOptions::default()
        })
    }

    /// Opens a device with these options.
    ///
    /// # Errors
    ///
    /// As [`SimtGpu::open`], and [`GpuError::BadArgument`] for a number of workers out of range.
    pub fn with_options(options: &SimtOptions<'_>) -> Result<Arc<Self>, GpuError> {
        if !(1..=256).contains(&options.workers) {
            return Err(GpuError::BadArgument {
                what: "workers",
                value: options.workers.to_string(),
                limit: "1 to 256".to_owned(),
            });
        }
        hooks::find();
        let mut kernels = KernelTable::new();
        kernels.add(&LIBRARY, by_name(&LIBRARY))?;
        for kernel in options.kernels {
            kernels.replace(kernel.name.to_owned(), *kernel, "the device's options");
        }
        let health = Arc::default();
        Ok(Arc::new(Self {
            arena: Arc::new(SimtArena::new(
                Exports {
                    plain: options.dmabufs,
                    across_pcie: options.dmabufs_across_pcie,
                },
                options.memory,
            )),
            stream: Arc::new(SimtStream::start(&health)?),
            health,
            kernels: RwLock::new(kernels),
            workers: options.workers,
            resident_blocks: options.resident_blocks,
            write_ordering: options.write_ordering,
            maps_registers: options.maps_registers,
            copies: options.copies,
            counts: Arc::default(),
            number: DEVICES.fetch_add(1, Relaxed),
        }))
    }

    /// Returns the names of all kernels, sorted.
    pub fn kernels(&self) -> impl Iterator<Item = String> + use<> {
        let known = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        known.names().into_iter()
    }

    /// Returns the counts of each kernel that was launched, by name.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, KernelCounts> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }

    fn find(&self, name: &str) -> Result<Kernel, GpuError> {
        let known = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        known
            .get(name)
            .copied()
            .ok_or_else(|| GpuError::UnknownKernel {
                kernel: name.to_owned(),
                known: known.names(),
            })
    }

    fn check(&self, spec: &Launch<'_>, params: &[u8]) -> Result<(), String> {
        let (blocks, threads) = (spec.grid.count(), spec.block.count());
        let most = self.resident_blocks.filter(|_| spec.cooperative);
        if most.is_some_and(|most| blocks > u64::from(most)) {
            let most = most.unwrap_or_default();
            return Err(format!(
                "{blocks} blocks of a cooperative launch; the device's options allow {most}"
            ));
        }
        if blocks == 0 || threads == 0 {
            return Err(format!(
                "grid {:?} of blocks {:?} is empty",
                spec.grid, spec.block
            ));
        }
        if threads > MAX_BLOCK {
            return Err(format!("{threads} threads in a block, at most {MAX_BLOCK}"));
        }
        if spec.shared_bytes > MAX_SHARED_BYTES {
            let bytes = spec.shared_bytes;
            return Err(format!(
                "{bytes} bytes of shared memory, at most {MAX_SHARED_BYTES}"
            ));
        }
        if params.len() > MAX_PARAMS {
            return Err(format!(
                "{} bytes of parameters, at most {MAX_PARAMS}",
                params.len()
            ));
        }
        Ok(())
    }
}

impl Gpu for SimtGpu {
    fn label(&self) -> String {
        "simt".to_owned()
    }

    /// Returns one name for all devices of a process, since they share all of its memory.
    fn device_id(&self) -> String {
        "simt".to_owned()
    }

    fn arena(&self) -> &dyn Arena {
        &self.arena
    }

    fn buffer_id(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        Ok(self.arena.number(addr))
    }

    fn open_memory(&self, handle: &MemoryHandle) -> Result<OpenedMemory, GpuError> {
        memory::open(handle)
    }

    fn rdma(&self) -> Result<RdmaSupport, GpuError> {
        Ok(RdmaSupport {
            dmabuf: self.arena.exports(),
            write_ordering: self.write_ordering,
            ..RdmaSupport::HOST
        })
    }

    fn copies_within(&self) -> Option<&'static str> {
        self.copies.then_some("simt")
    }

    unsafe fn copy(&self, pieces: &[CopyPiece]) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        unsafe { memory::copy_pieces(pieces) };
        Ok(())
    }

    fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError> {
        if self.maps_registers {
            return mapped::map(host, bytes);
        }
        Err(GpuError::Doorbell {
            kind: "memory",
            refusal: "this device was opened without".to_owned(),
            advice: "It takes SimtOptions::maps_registers.",
        })
    }

    fn map_mmio_as(
        &self,
        host: *mut u8,
        bytes: usize,
        kind: RegisterKind,
    ) -> Result<MappedMmio, GpuError> {
        match kind {
            RegisterKind::Memory => self.map_mmio(host, bytes),
            RegisterKind::Io => Err(GpuError::BadArgument {
                what: "kind of a register page",
                value: "I/O memory".to_owned(),
                limit: "memory, since kernels run on the CPU".to_owned(),
            }),
        }
    }

    /// Returns no attributes and no kernels, since the CPU reports none.
    fn facts(&self) -> Result<DeviceFacts, GpuError> {
        Ok(DeviceFacts::default())
    }

    fn resident_blocks(
        &self,
        kernel: &str,
        _threads: u32,
        _shared_bytes: usize,
    ) -> Result<Option<u32>, GpuError> {
        self.find(kernel)?;
        Ok(self.resident_blocks)
    }

    fn default_stream(&self) -> Stream {
        let stream: Arc<SimtStream> = Arc::clone(&self.stream);
        Stream::new(stream)
    }

    fn stream(&self) -> Result<Stream, GpuError> {
        Ok(Stream::new(Arc::new(SimtStream::start(&self.health)?)))
    }

    unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<Stream, GpuError> {
        if raw.is_null() {
            return Ok(self.default_stream());
        }
        Err(GpuError::BadArgument {
            what: "stream",
            value: format!("{raw:p}"),
            limit: "null, since kernels run on the CPU".to_owned(),
        })
    }

    fn add_kernels(&self, set: &'static KernelSet) -> Result<(), GpuError> {
        let mut known = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        if known.has(set) {
            return Ok(());
        }
        known.add(set, by_name(set))
    }

    unsafe fn launch(&self, spec: &Launch<'_>, params: &[u8]) -> Result<Event, GpuError> {
        let Kernel { name, entry } = self.find(spec.kernel)?;
        let stream = match spec.stream {
            None => &*self.stream,
            Some(stream) => stream
                .downcast::<SimtStream>()
                .filter(|stream| stream.is_of(&self.health))
                .ok_or_else(|| GpuError::BadArgument {
                    what: "stream",
                    value: "of another device".to_owned(),
                    limit: "a stream of this device".to_owned(),
                })?,
        };
        self.check(spec, params)
            .map_err(|detail| GpuError::BadLaunch {
                kernel: spec.kernel.to_owned(),
                detail,
            })?;
        let config = ::simt::LaunchConfig {
            grid: dim3(spec.grid),
            block: dim3(spec.block),
            shared_bytes: spec.shared_bytes,
            cooperative: spec.cooperative,
            workers: self.workers,
            seed: spec.seed,
            reconverge: spec.reconverge,
            deadline: spec.deadline,
            name,
            device: self.number,
            registers: Some(mapped::reaches),
            ..::simt::LaunchConfig::default()
        };
        let params = Params::new(params);
        let counts = Arc::clone(&self.counts);
        let work = move |replay: u64| {
            let mut params = params.clone();
            let config = replayed(&config, replay);
            let mut args = [params.as_mut_ptr()];
            // SAFETY: `entry` is a kernel of this name that takes one struct, whose bytes `params` are; the caller of `launch`
            // keeps what they point to. `params` and `args` live through the call, which returns when the kernel has ended.
            let result = unsafe { ::simt::launch(entry, &mut args, &config) };
            match result {
                Ok(stats) => {
                    tracing::trace!(?stats, "kernel ended");
                    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    counts.entry(name).or_default().add(&stats);
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
            }
        };
        stream.submit(spec.kernel, Arc::new(work))
    }
}

fn by_name(set: &KernelSet) -> impl Iterator<Item = (String, Kernel)> + use<> {
    let kernels = set.cpu().iter();
    kernels.map(|kernel| (kernel.name.to_owned(), *kernel))
}

/// Returns the configuration of replay number `replay`: with another schedule for each replay, unless seed 0 asks for the plain order.
fn replayed(config: &::simt::LaunchConfig, replay: u64) -> ::simt::LaunchConfig {
    let seed = match config.seed {
        0 => 0,
        seed => seed.wrapping_add(replay).max(1),
    };
    ::simt::LaunchConfig {
        seed,
        ..config.clone()
    }
}

/// A kernel's parameters, aligned for any type of CUDA C++.
#[derive(Clone)]
struct Params(Vec<u128>);

impl Params {
    fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0u128; bytes.len().div_ceil(size_of::<u128>()).max(1)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self(words)
    }

    fn as_mut_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

fn dim3(dim: super::Dim3) -> ::simt::Dim3 {
    ::simt::Dim3::from((dim.x, dim.y, dim.z))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(10);

    /// A kernel written in Rust: adds 1 to the word that its parameter points to.
    unsafe extern "C-unwind" fn add_one(args: *mut *mut c_void) {
        // SAFETY: launched with one parameter, the address of a word of device memory.
        unsafe {
            let word = *(*args).cast::<*mut u32>();
            *word += 1;
        }
    }

    /// A kernel that fails.
    unsafe extern "C-unwind" fn fail(_: *mut *mut c_void) {
        panic!("as planned");
    }

    fn gpu() -> Arc<SimtGpu> {
        let kernel = |name, entry| Kernel { name, entry };
        SimtGpu::with_kernels(&[kernel("add_one", add_one), kernel("fail", fail)]).unwrap()
    }

    fn launch(gpu: &SimtGpu, spec: &Launch<'_>, word: u64) -> Result<Event, GpuError> {
        // SAFETY: `add_one` takes an address; the tests keep the word until they have waited. `fail` takes nothing.
        unsafe { gpu.launch(spec, &word.to_ne_bytes()) }
    }

    #[test]
    fn launches_run_in_order_on_memory_that_the_host_reads_back() {
        let gpu = gpu();
        let word = gpu.alloc(4, 4).unwrap();
        let events: Vec<_> = (0..10)
            .map(|_| launch(&gpu, &Launch::new("add_one", 1, 32), word.addr()).unwrap())
            .collect();
        gpu.wait(&events[9], LONG).unwrap();
        let mut out = [0; 4];
        gpu.read(word.addr(), &mut out).unwrap();
        assert_eq!(u32::from_ne_bytes(out), 320);
    }

    #[test]
    fn a_kernel_that_fails_is_an_error_of_its_event_and_the_device_goes_on() {
        let gpu = gpu();
        let word = gpu.alloc(4, 4).unwrap();
        let event = launch(&gpu, &Launch::new("fail", 2, 32), 0).unwrap();
        let error = gpu.wait(&event, LONG).unwrap_err().to_string();
        assert!(
            error.contains("kernel fail failed") && error.contains("as planned"),
            "{error}"
        );
        let event = launch(&gpu, &Launch::new("add_one", 1, 1), word.addr()).unwrap();
        gpu.wait(&event, LONG).unwrap();
    }

    static SET: KernelSet = KernelSet::new(
        "another crate",
        &[
            Kernel {
                name: "add_one_too",
                entry: add_one,
            },
            Kernel {
                name: "fail_too",
                entry: fail,
            },
        ],
        &[],
        &[],
    );

    #[test]
    fn a_set_of_another_crate_is_added_once_to_a_device_that_runs() {
        let gpu = gpu();
        let word = gpu.alloc(4, 4).unwrap();
        let spec = Launch::new("add_one_too", 1, 1);
        let unknown = launch(&gpu, &spec, word.addr()).unwrap_err();
        assert!(
            matches!(unknown, GpuError::UnknownKernel { .. }),
            "{unknown}"
        );
        gpu.add_kernels(&SET).unwrap();
        gpu.add_kernels(&SET).unwrap();
        let event = launch(&gpu, &spec, word.addr()).unwrap();
        gpu.wait(&event, LONG).unwrap();
        assert!(gpu.kernels().any(|name| name == "fail_too"));
    }

    #[test]
    fn a_set_with_a_name_that_the_device_has_is_refused() {
        static CLASH: KernelSet = KernelSet::new(
            "one more",
            &[Kernel {
                name: "fail_too",
                entry: fail,
            }],
            &[],
            &[],
        );
        let gpu = gpu();
        gpu.add_kernels(&SET).unwrap();
        let error = gpu.add_kernels(&CLASH).unwrap_err().to_string();
        assert_eq!(
            error,
            "kernel fail_too of one more has the name of a kernel of another crate, which the device has already; give one of them another name"
        );
    }

    #[test]
    fn launches_beyond_the_limits_name_value_and_limit() {
        let gpu = gpu();
        let refused = |spec: Launch<'_>| launch(&gpu, &spec, 0).unwrap_err().to_string();
        let unknown = refused(Launch::new("add_two", 1, 1));
        assert!(
            unknown.contains("\"add_two\"") && unknown.contains("\"add_one\""),
            "{unknown}"
        );
        assert!(refused(Launch::new("add_one", 0, 32)).contains("is empty"));
        assert!(
            refused(Launch::new("add_one", 1, 1025))
                .contains("1025 threads in a block, at most 1024")
        );
        let wide = Launch {
            shared_bytes: 1 << 20,
            ..Launch::new("add_one", 1, 1)
        };
        assert!(refused(wide).contains("1048576 bytes of shared memory, at most 232448"));
    }
}
