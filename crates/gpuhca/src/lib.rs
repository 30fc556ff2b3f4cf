//! `gpuhca`: the HCA as a kernel, so that one GPU runs whole steps of several ranks at the speed of its memory, without a NIC.
//!
//! A persistent kernel executes the WQEs of all ranks of one process on one GPU. The ranks use libmlx5 and DevX over softhca, which keeps
//! QP states and keys and leaves execution to the kernel (`softhca::device::external`). softhca writes tables of QPs, CQs and keys into the
//! GPU's memory, and this kernel reads them. The ranks' own kernels are those that drive a ConnectX, unchanged: they write WQEs, ring, and
//! poll CQEs.
//!
//! ```text
//! rank 0's kernel ─ WQE, record, doorbell ─┐                     ┌─ tables of QPs, CQs, keys ── softhca ── libmlx5
//! rank 1's kernel ─ ...                    ├─> gpuhca_serve <────┘   (commands of every rank)
//!                                          └─< bytes, words, CQEs
//! ```
//!
//! # What it shows and what not
//!
//! The kernels run from the PTX that ships, on the memory of a GPU. So the results show the order of posting and signalling, admission to a
//! full ring, and that calls converge under faults. They also show staleness of old lives and keys, CUDA graphs, and what MoE kernels cost
//! in time and memory bandwidth. They show nothing of PCIe, firmware, packets or a network. Results are labelled `gpuhca+NAME`, and are
//! never called those of a NIC. On the CPU the label is `gpuhca+simt`, and then they say nothing about speed.
//!
//! # Why it is as it is
//!
//! - **Ranks are threads of one process and context.** Kernels of several processes take turns on a GPU, so a persistent kernel in one
//!   would stop the others. [`Gpuhca::start`] claims the GPU's name among all processes; a second one is refused.
//! - **A block owns QPs.** QP `i` of the table is block `i % blocks`'s, so a QP has one executor, needs no lock, and its WQEs run in order.
//!   The number of blocks is an argument ([`Options::blocks`]): cooperative kernels of the ranks need the other SMs.
//! - **One look per thread, one WQE per block.** Each thread of a block polls the doorbells of one QP. Then all threads together
//!   copy what each WQE moves, with several loads in flight.
//! - **A fence after each WQE.** ConnectX places the bytes of a WQE before those of the next one of the same QP. The runtime's
//!   signals depend on it. One system fence per WQE keeps that without knowing which WQE is a signal.
//! - **Doorbells are words of the GPU's memory.** Each UAR page has a twin in that memory. The `map_mmio` of [`Gpuhca::for_rank`]
//!   gives kernels the twin in place of the page. What a host rings in the page, softhca's engine carries over.
//! - **Nothing that ends is used afterwards.** When softhca ends entries, it waits until each block has finished the pass in which
//!   it may have read them. `seen` holds the generation of each block's last pass.
//! - **It ends.** By [`Gpuhca::stop`] or drop, or by its deadline. WQEs that have not run by then never do; a thread that waits
//!   for them ends by its own deadline.

pub mod abi;
mod attach;
mod claim;
mod device;
mod error;
mod executor;

pub use attach::Softhca;
pub use error::GpuhcaError;

use std::sync::Arc;
use std::time::Duration;

use abi::{
    CQS, GpuhcaParams, HCAS, HcaControl, HcaCq, HcaCqProgress, HcaHostWords, HcaKey, HcaQp,
    HcaQpProgress, KEYS, PAGE_STRIDE, PAGES, QPS,
};
use claim::Claim;
use executor::Shared;
use warpverbs::abi::DevicePtr;
use warpverbs::gpu::{DeviceMemory, Event, Gpu, Launch, Persistent, Stream};

warpverbs::kernels! {
    /// The kernel that executes WQEs.
    pub static KERNELS
}

/// The setting of the kernel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The number of blocks, 1 to 1024. The ranks' cooperative kernels need the SMs that these blocks leave free.
    pub blocks: u32,
    /// The number of threads of a block: 32 to 1024, a multiple of 32.
    pub threads: u32,
    /// The time after which the kernel ends by itself.
    pub deadline: Duration,
    /// The name that no other process of this user may have claimed. `None`: the GPU's name, or on the CPU a name that is only this
    /// device's.
    pub name: Option<String>,
    /// The name of the kernel to run: that of [`KERNELS`] or, for a test, one that is wrong on purpose.
    pub kernel: String,
}

impl Options {
    /// Returns the default setting for `gpu`: on the CPU one block of a warp, on a GPU 16 blocks of 512 threads. The deadline is an hour.
    #[must_use]
    pub fn on(gpu: &dyn Gpu) -> Self {
        let on_cpu = gpu.label() == "simt";
        let (blocks, threads) = if on_cpu { (1, 32) } else { (16, 512) };
        Self {
            blocks,
            threads,
            deadline: Duration::from_secs(3600),
            name: None,
            kernel: "gpuhca_serve".to_owned(),
        }
    }

    /// Sets the number of blocks.
    #[must_use]
    pub fn with_blocks(mut self, blocks: u32) -> Self {
        self.blocks = blocks;
        self
    }

    /// Sets the time after which the kernel ends by itself.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the name that this process claims among all processes of its user on the machine.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the name of the kernel to run.
    #[must_use]
    pub fn with_kernel(mut self, kernel: &str) -> Self {
        kernel.clone_into(&mut self.kernel);
        self
    }

    fn check(&self) -> Result<(), GpuhcaError> {
        let refuse = |what, value: String, limit| Err(GpuhcaError::Option { what, value, limit });
        if !(1..=1024).contains(&self.blocks) {
            return refuse("blocks", self.blocks.to_string(), "1 to 1024");
        }
        if !(32..=1024).contains(&self.threads) || !self.threads.is_multiple_of(32) {
            return refuse(
                "threads",
                self.threads.to_string(),
                "a multiple of 32 from 32 to 1024",
            );
        }
        Ok(())
    }
}

/// The running kernel, attached to the softhca of this process. Dropping this stops the kernel.
#[derive(Debug)]
pub struct Gpuhca {
    softhca: Softhca,
    event: Event,
    label: String,
    /// The kernel's stream, in which no other kernel is launched.
    _stream: Stream,
    /// What the kernel and softhca use. These fields come last, because they must stay until both no longer use them.
    shared: Arc<Shared>,
    _memory: Vec<DeviceMemory>,
    /// The guard that tells the GPU of a persistent kernel. It is dropped after the kernel's end. None: the kernel did not end, and the
    /// guard is kept for ever.
    persistent: Option<Persistent>,
    /// The number of multiprocessors of the GPU; None on the CPU.
    multiprocessors: Option<u32>,
    _claim: Claim,
}

impl Gpuhca {
    /// Starts the kernel on `gpu` and attaches it to `softhca`. While it runs, the driver loads no kernel ([`Gpu::persistent`]), so `gpu`
    /// must have all kernels that the ranks launch.
    ///
    /// # Errors
    ///
    /// [`GpuhcaError::Option`]; [`GpuhcaError::Claimed`] while another process has a kernel of this name; what the GPU refuses.
    /// [`GpuhcaError::Attach`] if softhca has an executor already or is of another version.
    pub fn start(
        gpu: Arc<dyn Gpu>,
        softhca: Softhca,
        options: &Options,
    ) -> Result<Self, GpuhcaError> {
        options.check()?;
        let label = format!("gpuhca+{}", gpu.label());
        let claim = Claim::take(options.name.as_deref(), gpu.as_ref())?;
        gpu.add_kernels(&KERNELS)?;
        let mut memory = Vec::new();
        let mut table = |bytes: usize| -> Result<u64, GpuhcaError> {
            let table = gpu.alloc(bytes, 4096)?;
            let addr = table.addr();
            memory.push(table);
            Ok(addr)
        };
        let keys = (HCAS * KEYS) as usize;
        let addresses = executor::Addresses {
            control: table(size_of::<HcaControl>())?,
            qps: table(QPS as usize * size_of::<HcaQp>())?,
            cqs: table(CQS as usize * size_of::<HcaCq>())?,
            keys: table(keys * size_of::<HcaKey>())?,
            qp_progress: table(QPS as usize * size_of::<HcaQpProgress>())?,
            cq_progress: table(CQS as usize * size_of::<HcaCqProgress>())?,
            pages: table((PAGES * PAGE_STRIDE) as usize)?,
        };
        let host = gpu.map_host(size_of::<HcaHostWords>())?;
        let seen = gpu.map_host(options.blocks as usize * size_of::<u64>())?;
        let params = GpuhcaParams {
            control: DevicePtr::new(addresses.control),
            qps: DevicePtr::new(addresses.qps),
            cqs: DevicePtr::new(addresses.cqs),
            keys: DevicePtr::new(addresses.keys),
            qp_progress: DevicePtr::new(addresses.qp_progress),
            cq_progress: DevicePtr::new(addresses.cq_progress),
            host: DevicePtr::new(host.addr()),
            seen: DevicePtr::new(seen.addr()),
            deadline_ns: u64::try_from(options.deadline.as_nanos()).unwrap_or(u64::MAX),
        };
        let multiprocessors = gpu.facts()?.attribute("multiprocessors");
        let multiprocessors = multiprocessors.and_then(|count| u32::try_from(count).ok());
        let stream = gpu.stream()?;
        let persistent = gpu.persistent()?;
        let launch = Launch::new(&options.kernel, options.blocks, options.threads)
            .with_stream(Some(&stream))
            .with_shared_bytes(SHARED_BYTES + options.threads as usize * size_of::<u32>())
            .with_deadline(options.deadline.saturating_add(ENDING));
        let event = executor::launch(gpu.as_ref(), &launch, &params)?;
        let shared = Arc::new(Shared::new(gpu, host, seen, options.blocks, event.clone()));
        let started = Self {
            softhca,
            event,
            label,
            _stream: stream,
            shared,
            _memory: memory,
            persistent: Some(persistent),
            multiprocessors,
            _claim: claim,
        };
        // If softhca refuses the executor, dropping `started` stops the kernel.
        let executor = executor::executor(&addresses, &started.shared);
        softhca.attach(&executor, &started.shared)?;
        Ok(started)
    }

    /// Returns the label of results: `gpuhca+` and the GPU's label.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the device of one rank: `gpu`, except that `map_mmio` returns the twins of UAR pages at which this kernel looks.
    ///
    /// Each rank needs a device of its own on the same GPU, because kernels of one default stream would wait for each other.
    #[must_use]
    pub fn for_rank(&self, gpu: Arc<dyn Gpu>) -> Arc<dyn Gpu> {
        let taken = self
            .multiprocessors
            .map(|count| (self.shared.blocks(), count));
        Arc::new(device::RankGpu::new(gpu, taken))
    }

    /// Returns whether the kernel still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.event.is_done()
    }

    /// Ends the kernel. WQEs that have not run by then never run.
    ///
    /// # Errors
    ///
    /// [`GpuhcaError::Gpu`] if the kernel failed, or has not ended within 30 s.
    pub fn stop(self) -> Result<(), GpuhcaError> {
        self.end()
    }

    fn end(&self) -> Result<(), GpuhcaError> {
        self.shared.ask_to_stop();
        let ended = self.event.wait(ENDING);
        self.softhca.detach(&self.shared);
        Ok(ended?)
    }
}

impl Drop for Gpuhca {
    fn drop(&mut self) {
        if let Err(GpuhcaError::Gpu(warpverbs::gpu::GpuError::Timeout { .. })) = self.end() {
            // The kernel still uses its tables, so they are not freed.
            for memory in self._memory.drain(..) {
                std::mem::forget(memory);
            }
            std::mem::forget(Arc::clone(&self.shared));
            std::mem::forget(self.persistent.take());
        }
    }
}

/// The bytes of a block's dynamic shared memory besides 4 bytes for each thread. They are for `Found` of `kernels/gpuhca/run.cuh`, which
/// asserts the number.
const SHARED_BYTES: usize = 8192;

/// How long a kernel may take to end after it was told to.
const ENDING: Duration = Duration::from_secs(30);
