//! What single operations of a device cost: atomics, loads, fences, stores to a register, barriers of a grid, launches.

// UNSAFETY: launches the measuring kernels on memory of this module.
#![expect(unsafe_code, reason = "launch of the measuring kernels")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::{Zeroable, bytes_of, bytes_of_mut};
use serde::Serialize;

use super::clock::Clock;
use crate::device::abi::{PrimitiveParams, PrimitiveTime};
use crate::device::kernels::KERNELS;
use crate::error::BenchError;
use warpverbs::gpu::{DeviceMemory, Gpu, HostMapped, Launch};

/// The names of operations without stores before them.
const SINGLE: [&str; 8] = [
    "atomic_gpu",
    "atomic_sys",
    "atomic_host",
    "load_gpu",
    "load_sys",
    "load_host",
    "mmio_store",
    "clock_step",
];
/// The names of the fences, and of the stores alone.
const FENCES: [&str; 5] = [
    "stores",
    "fence_release_gpu",
    "fence_release_sys",
    "fence_acq_rel_gpu",
    "fence_acq_rel_sys",
];
/// The numbers of stores of 16 bytes before a fence: none, as many as a WQE takes, as many as four WQEs take.
const STORES: [u32; 3] = [0, 3, 12];
/// The number of threads of a block in grids with barriers.
const THREADS: u32 = 128;
/// The number of bytes of device memory: a line that is read, and room for the stores after it.
const WORDS: usize = 4096;
/// The bound of one kernel.
const DEADLINE: Duration = Duration::from_secs(10);

/// How much of each operation is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrimitiveOptions {
    /// The number of operations of a chain, at least 1.
    pub(crate) count: u32,
    /// The number of barriers of a grid in one launch, at least 1.
    pub(crate) barriers: u32,
    /// The number of launches of each kind, at least 1.
    pub(crate) launches: u32,
    /// The numbers of blocks of the grids that are launched, and that have barriers.
    pub(crate) blocks: Vec<u32>,
}

impl PrimitiveOptions {
    /// Returns numbers for `gpu`: enough for three digits on a GPU, and for all paths of the code on simt.
    #[must_use]
    pub(crate) fn on(gpu: &dyn Gpu) -> Self {
        let simt = gpu.label() == "simt";
        Self {
            count: if simt { 16 } else { 20_000 },
            barriers: if simt { 2 } else { 2000 },
            launches: if simt { 2 } else { 500 },
            blocks: if simt { vec![2] } else { vec![32, 64, 132] },
        }
    }
}

/// The results for one device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Primitives {
    /// The label of the device.
    pub(crate) ran_on: String,
    /// True if times are those of hardware. If not, the report has no times.
    pub(crate) speed: bool,
    /// The smallest step of the device's clock, ns.
    pub(crate) clock_step_ns: Option<u64>,
    /// The operations of one thread.
    pub(crate) operations: Vec<Operation>,
    /// The time of one barrier of all blocks, for each number of blocks.
    pub(crate) grid_barriers: Vec<OfGrid>,
    /// The time from the end of a launch to the end of the next one, which is in the queue by then.
    pub(crate) launches: Vec<OfGrid>,
}

/// The result for one kind of operation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Operation {
    /// The name of its kernel, without `wv_bench_`.
    pub(crate) name: &'static str,
    /// The number of stores before each operation.
    pub(crate) stores: u32,
    /// The time of one operation, ns.
    pub(crate) ns: Option<f64>,
}

/// The result for one kind of grid.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OfGrid {
    /// `barrier`, or how the grid was launched: `plain`, `cooperative`, `graph`.
    pub(crate) how: &'static str,
    /// The number of blocks of the grid.
    pub(crate) blocks: u32,
    /// The time of one barrier or launch, ns.
    pub(crate) ns: Option<f64>,
}

/// Measures all operations on `gpu`.
///
/// # Errors
///
/// An error of the device, among them a launch that it does not have; an operation that gave another value than it must.
pub(crate) fn measure(
    gpu: &Arc<dyn Gpu>,
    options: &PrimitiveOptions,
) -> Result<Primitives, BenchError> {
    gpu.add_kernels(&KERNELS)?;
    let bench = Bench::new(gpu)?;
    let speed = gpu.label() != "simt";
    let shown = |ns: f64| speed.then_some(ns);
    let mut operations = Vec::new();
    let mut clock_step_ns = None;
    for name in SINGLE {
        let time = bench.chain(name, options.count, 0)?;
        if name == "clock_step" {
            clock_step_ns = speed.then_some(time.value);
            continue;
        }
        let ns = shown(each(&time, options.count));
        operations.push(Operation {
            name,
            stores: 0,
            ns,
        });
    }
    for name in FENCES {
        for stores in STORES {
            let time = bench.chain(name, options.count, stores)?;
            let ns = shown(each(&time, options.count));
            operations.push(Operation { name, stores, ns });
        }
    }
    let (mut grid_barriers, mut launches) = (Vec::new(), Vec::new());
    for &blocks in &options.blocks {
        let ns = shown(bench.barriers(blocks, options.barriers)?);
        grid_barriers.push(OfGrid {
            how: "barrier",
            blocks,
            ns,
        });
        for how in ["plain", "cooperative", "graph"] {
            let ns = shown(bench.launches(how, blocks, options.launches)?);
            launches.push(OfGrid { how, blocks, ns });
        }
    }
    Ok(Primitives {
        ran_on: gpu.label(),
        speed,
        clock_step_ns,
        operations,
        grid_barriers,
        launches,
    })
}

/// Returns the nanoseconds of one of `count` operations.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn each(time: &PrimitiveTime, count: u32) -> f64 {
    time.end_ns.saturating_sub(time.start_ns) as f64 / f64::from(count)
}

/// The device and the memory of the measurements.
#[derive(Debug)]
struct Bench {
    gpu: Arc<dyn Gpu>,
    words: DeviceMemory,
    time: DeviceMemory,
    host: HostMapped,
}

impl Bench {
    fn new(gpu: &Arc<dyn Gpu>) -> Result<Self, BenchError> {
        Ok(Self {
            words: gpu.alloc(WORDS, 128)?,
            time: gpu.alloc(size_of::<PrimitiveTime>(), 128)?,
            // Host memory: a line for reads, and a line that stands for a register.
            host: gpu.map_host(4096)?,
            gpu: Arc::clone(gpu),
        })
    }

    fn params(&self, count: u32, stores: u32) -> PrimitiveParams {
        PrimitiveParams {
            words: self.words.addr().into(),
            host: self.host.addr().into(),
            reg: (self.host.addr() + 2048).into(),
            time: self.time.addr().into(),
            deadline_ns: u64::try_from(DEADLINE.as_nanos()).unwrap_or(u64::MAX),
            count,
            stores,
        }
    }

    /// Runs a chain and checks what its last operation gave.
    fn chain(
        &self,
        name: &'static str,
        count: u32,
        stores: u32,
    ) -> Result<PrimitiveTime, BenchError> {
        let kernel = format!("wv_bench_{name}");
        let time = self.run(&Launch::new(&kernel, 1, 1), &self.params(count, stores))?;
        let wrong = match name {
            "clock_step" => time.value == 0,
            _ => time.value != 0,
        };
        if wrong || time.end_ns < time.start_ns {
            return Err(BenchError::Wrong {
                case: kernel,
                detail: format!(
                    "the last operation gave {}, between {} and {} ns",
                    time.value, time.start_ns, time.end_ns
                ),
            });
        }
        Ok(time)
    }

    fn barriers(&self, blocks: u32, count: u32) -> Result<f64, BenchError> {
        let launch = Launch::new("wv_bench_grid_sync", blocks, THREADS).with_cooperative(true);
        let time = self.run(&launch, &self.params(count, 0))?;
        Ok(each(&time, count))
    }

    /// Returns the mean time of `count` launches that follow each other in a stream, ns.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn launches(&self, how: &'static str, blocks: u32, count: u32) -> Result<f64, BenchError> {
        let params = self.params(0, 0);
        let stream = self.gpu.stream()?;
        let launch = Launch::new("wv_bench_nothing", blocks, THREADS)
            .with_cooperative(how == "cooperative")
            .with_stream(Some(&stream));
        let graph = if how == "graph" {
            stream.begin_capture()?;
            // SAFETY: recorded with memory of `self`, which outlives each wait below.
            let recorded = unsafe { self.gpu.launch(&launch, bytes_of(&params)) };
            let graph = stream.end_capture();
            recorded?;
            Some(graph?)
        } else {
            None
        };
        let mut clock = Clock::new(self.gpu.as_ref(), &stream, 2)?;
        clock.stamp()?;
        for _ in 0..count {
            // SAFETY: the parameters are those of the kernel, and their memory is that of `self`.
            unsafe {
                match &graph {
                    Some(graph) => graph.launch(&stream),
                    None => self.gpu.launch(&launch, bytes_of(&params)),
                }
            }?;
        }
        clock.stamp()?;
        let ends = clock.read(DEADLINE)?;
        let time = self.read()?;
        if time.value != u64::from(blocks) {
            return Err(BenchError::Wrong {
                case: format!("{how} launch of {blocks} blocks"),
                detail: format!("the kernel saw {} blocks", time.value),
            });
        }
        Ok(ends[1].saturating_sub(ends[0]) as f64 / f64::from(count))
    }

    fn run(
        &self,
        launch: &Launch<'_>,
        params: &PrimitiveParams,
    ) -> Result<PrimitiveTime, BenchError> {
        // SAFETY: the parameters are those of the kernel and name memory of `self`. A kernel that does not end keeps the device,
        // and the process ends with an error.
        let event = unsafe { self.gpu.launch(launch, bytes_of(params)) }?;
        self.gpu.wait(&event, 2 * DEADLINE)?;
        self.read()
    }

    fn read(&self) -> Result<PrimitiveTime, BenchError> {
        let mut time = PrimitiveTime::zeroed();
        self.gpu.read(self.time.addr(), bytes_of_mut(&mut time))?;
        Ok(time)
    }
}

impl fmt::Display for Primitives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "primitives on {}", self.ran_on)?;
        if !self.speed {
            writeln!(
                f,
                "kernels ran on the CPU: all of them ran, and no time is shown"
            )?;
        }
        let time = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.1}"));
        let step = self
            .clock_step_ns
            .map_or_else(|| "-".to_owned(), |ns| ns.to_string());
        writeln!(f, "the clock steps by {step} ns")?;
        writeln!(f, "{:<24} {:>7} {:>10}", "operation", "stores", "ns")?;
        for Operation { name, stores, ns } in &self.operations {
            writeln!(f, "{name:<24} {stores:>7} {:>10}", time(*ns))?;
        }
        writeln!(f, "{:<24} {:>7} {:>10}", "grid", "blocks", "ns")?;
        for OfGrid { how, blocks, ns } in self.grid_barriers.iter().chain(&self.launches) {
            writeln!(f, "{how:<24} {blocks:>7} {:>10}", time(*ns))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs::gpu::simt::SimtGpu;

    #[test]
    fn every_primitive_runs_and_simt_shows_no_time() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let found = measure(&gpu, &PrimitiveOptions::on(gpu.as_ref())).unwrap();
        assert_eq!(found.operations.len(), 7 + 15);
        assert_eq!((found.grid_barriers.len(), found.launches.len()), (1, 3));
        assert!(!found.speed && found.clock_step_ns.is_none());
        let times = found.operations.iter().map(|operation| operation.ns);
        let grids = found.grid_barriers.iter().chain(&found.launches);
        assert!(
            times
                .chain(grids.map(|grid| grid.ns))
                .all(|ns| ns.is_none())
        );
        let text = found.to_string();
        assert!(
            text.contains("ran on the CPU") && text.contains("fence_acq_rel_sys"),
            "{text}"
        );
    }

    #[test]
    fn an_operation_that_gives_something_else_is_no_measurement() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        gpu.add_kernels(&KERNELS).unwrap();
        let bench = Bench::new(&gpu).unwrap();
        // A word that is not zero leads the chain astray. So the chain has one operation, which reads that word alone.
        gpu.write(bench.words.addr(), &7u64.to_ne_bytes()).unwrap();
        let error = bench.chain("load_gpu", 1, 0).unwrap_err().to_string();
        assert!(
            error.starts_with("wv_bench_load_gpu: the last operation gave 7"),
            "{error}"
        );
    }
}
