//! What a put costs the thread that posts it, and how many a GPU posts in a second.

// UNSAFETY: launches the measuring kernels on memory of this module.
#![expect(unsafe_code, reason = "launch of the measuring kernels")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::{Pod, bytes_of, cast_slice_mut};

use super::case::LANES;
pub use super::case::{Case, PostOptions, Scope, Sharing, all_cases};
pub use super::report::{Report, Row};
use super::ring::Rings;
use crate::device::abi::{BENCH_STATE_BYTES, BenchSink, BenchTime, PostBenchParams};
use crate::device::kernels::KERNELS;
use crate::error::BenchError;
use warpverbs::abi::Status;
use warpverbs::gpu::{DeviceMemory, Gpu, Launch};

/// How much longer than its own deadline a kernel may take to end.
const GRACE: Duration = Duration::from_secs(10);
/// Measures `cases` on `gpu`, one after another.
///
/// # Errors
///
/// An option out of its range; an error of the device; a case in which a call failed, or the rings do not hold the posted WQEs.
pub fn measure(
    gpu: &Arc<dyn Gpu>,
    options: &PostOptions,
    cases: &[Case],
) -> Result<Report, BenchError> {
    options.check(cases.iter().map(|case| case.blocks))?;
    gpu.add_kernels(&KERNELS)?;
    let rows = cases.iter().map(|case| run(gpu, options, *case));
    Ok(Report::new(
        gpu.label(),
        options,
        rows.collect::<Result<_, _>>()?,
    ))
}

fn run(gpu: &Arc<dyn Gpu>, options: &PostOptions, case: Case) -> Result<Row, BenchError> {
    let kernel = case.kernel();
    let posting = Posting::of(&case, &kernel);
    let posted = post(gpu, options, &posting).map_err(|why| why.in_case(&case))?;
    let mut doorbells = 0;
    let mut full_ring_ns = 0;
    for qp in 0..posting.qps {
        let context = posted.rings.context(qp)?;
        let found = [context.resv, context.cons];
        if found != [posted.wqes; 2] || context.err != Status::OK {
            return Err(case.wrong(format!(
                "QP {qp}: reserved, completed {found:?} of {}; error {}",
                posted.wqes, context.err
            )));
        }
        doorbells += context.doorbells;
        full_ring_ns += context.full_ring_ns;
    }
    let puts = u64::from(posting.qps) * posted.wqes;
    Ok(Row::new(case, &posted.times, puts, doorbells, full_ring_ns))
}

/// One launch of posters and the sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting<'a> {
    pub(super) kernel: &'a str,
    /// The name of a kernel that is launched first, to make the structs of another project.
    pub(super) open: Option<&'a str>,
    pub(super) blocks: u32,
    pub(super) qps: u32,
    /// The mode of the QPs, as `QpContext::mode`.
    pub(super) mode: u32,
    /// The number of WQEs of one call.
    pub(super) batch: u32,
}

impl<'a> Posting<'a> {
    /// Returns the launch of `case` with the kernel named `kernel`.
    pub(super) fn of(case: &Case, kernel: &'a str) -> Self {
        Self {
            kernel,
            open: None,
            blocks: case.blocks,
            qps: case.sharing.qps(case.blocks),
            mode: case.mode(),
            batch: case.batch(),
        }
    }
}

/// What a launch leaves once every call of it is done.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) times: Vec<BenchTime>,
    pub(super) rings: Rings,
    /// The number of WQEs that each QP got.
    pub(super) wqes: u64,
}

/// Why a launch is no measurement.
#[derive(Debug)]
pub(super) enum Failed {
    /// An error of the device.
    Device(BenchError),
    /// A wrong result, in words for the user.
    Wrong(String),
}

impl<E: Into<BenchError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Device(error.into())
    }
}

impl Failed {
    pub(super) fn in_case(self, case: &dyn fmt::Display) -> BenchError {
        match self {
            Self::Device(error) => error,
            Self::Wrong(detail) => BenchError::Wrong {
                case: case.to_string(),
                detail,
            },
        }
    }
}

/// Launches the posters and the sink. Then it checks what every poster, the sink and each ring hold.
pub(super) fn post(
    gpu: &Arc<dyn Gpu>,
    options: &PostOptions,
    posting: &Posting<'_>,
) -> Result<Posted, Failed> {
    let Posting { blocks, qps, .. } = *posting;
    let rings = Rings::new(gpu, qps, options.depth, posting.mode, options.host_doorbell)?;
    let sinks = gpu.alloc(size_of::<BenchSink>() * qps as usize, 128)?;
    let times = gpu.alloc(size_of::<BenchTime>() * blocks as usize, 128)?;
    let gate = gpu.alloc(8, 128)?;
    let state = match posting.open {
        Some(_) => Some(gpu.alloc((BENCH_STATE_BYTES * qps) as usize, 128)?),
        None => None,
    };
    let wqes = u64::from(options.calls) * u64::from(posting.batch) * u64::from(blocks / qps);
    let params = PostBenchParams {
        qp: rings.addr().into(),
        qp_stride: rings.stride(),
        sinks: sinks.addr().into(),
        times: times.addr().into(),
        gate: gate.addr().into(),
        deadline_ns: u64::try_from(options.deadline.as_nanos()).unwrap_or(u64::MAX),
        qps,
        calls: options.calls,
        signal_every: options.signal_every,
        bytes: options.bytes,
        wqes,
        state: state.as_ref().map_or(0, DeviceMemory::addr).into(),
        check: options.check.into(),
        reserved: 0,
    };
    // The sink and all posters wait for each other.
    let posters = Launch::new(posting.kernel, blocks + 1, LANES).with_cooperative(true);
    let open = posting.open.map(|kernel| Launch::new(kernel, 1, LANES));
    for launch in open.into_iter().chain([posters]) {
        let launch = launch.with_deadline(options.deadline + GRACE);
        // SAFETY: the parameters are those of the kernel. The rings, sinks, times, gate and state that they name live to the end of
        // this function. That is after the wait or, if the wait fails, after the device's own deadline of the kernel.
        let event = unsafe { gpu.launch(&launch, bytes_of(&params)) }?;
        if let Err(error) = gpu.wait(&event, options.deadline + 2 * GRACE) {
            // A kernel that may still run uses this memory, so it must not be freed.
            std::mem::forget((rings, sinks, times, gate, state));
            return Err(error.into());
        }
    }
    let times: Vec<BenchTime> = read(gpu, times.addr(), blocks as usize)?;
    let sinks: Vec<BenchSink> = read(gpu, sinks.addr(), qps as usize)?;
    for (nth, time) in times.iter().enumerate() {
        if time.status != Status::OK || time.calls != options.calls {
            let (status, calls) = (time.status, time.calls);
            return Err(Failed::Wrong(format!(
                "poster {nth} ended {status} after {calls} calls"
            )));
        }
    }
    for (qp, sink) in (0..).zip(&sinks) {
        let (served, wrong) = (sink.served, sink.wrong);
        if served != wqes || wrong != 0 {
            return Err(Failed::Wrong(format!(
                "QP {qp}: served {served} of {wqes}, {wrong} WQEs not the one due"
            )));
        }
        check_ring(&rings, qp, wqes, options.depth)?;
    }
    Ok(Posted { times, rings, wqes })
}

/// Checks that each slot of a ring holds the last index that belongs to it.
fn check_ring(rings: &Rings, qp: u32, wqes: u64, depth: u32) -> Result<(), Failed> {
    let depth = u64::from(depth);
    for (slot, control) in (0..wqes.min(depth)).zip(rings.controls(qp)?) {
        let index = wqes - 1 - (wqes - 1 - slot) % depth;
        if u64::from(control >> 8 & 0xffff) != index & 0xffff {
            return Err(Failed::Wrong(format!(
                "QP {qp}: slot {slot} holds {control:#x}, not index {index}"
            )));
        }
    }
    Ok(())
}

fn read<T: Pod>(gpu: &Arc<dyn Gpu>, addr: u64, count: usize) -> Result<Vec<T>, BenchError> {
    let mut out = vec![T::zeroed(); count];
    gpu.read(addr, cast_slice_mut(&mut out))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs::gpu::simt::SimtGpu;

    fn small() -> PostOptions {
        PostOptions {
            calls: 40,
            depth: 256,
            bytes: 8,
            signal_every: 8,
            host_doorbell: false,
            check: true,
            deadline: Duration::from_secs(60),
        }
    }

    #[test]
    fn every_case_posts_what_it_says_and_the_sink_finds_each_wqe_whole() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let cases = all_cases(&[1, 3]);
        let report = measure(&gpu, &small(), &cases).unwrap();
        assert_eq!(report.rows.len(), 16);
        for row in &report.rows {
            let batch = if row.scope == "warp" { 32 } else { 1 };
            assert_eq!(row.puts, 40 * batch * u64::from(row.blocks), "{row:?}");
        }
    }

    #[test]
    fn doorbells_in_host_memory_are_served_too() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let options = PostOptions {
            host_doorbell: true,
            ..small()
        };
        measure(&gpu, &options, &all_cases(&[2])).unwrap();
    }

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let refused = |options: PostOptions, blocks: u32| {
            measure(&gpu, &options, &all_cases(&[blocks]))
                .unwrap_err()
                .to_string()
        };
        assert!(
            refused(
                PostOptions {
                    depth: 128,
                    ..small()
                },
                1
            )
            .contains("depth is 128")
        );
        assert!(
            refused(
                PostOptions {
                    depth: 300,
                    ..small()
                },
                1
            )
            .contains("a power of two")
        );
        assert!(
            refused(
                PostOptions {
                    calls: 0,
                    ..small()
                },
                1
            )
            .contains("calls is 0")
        );
        assert!(refused(small(), 0).contains("blocks is 0"));
        assert!(refused(small(), 1025).contains("blocks is 1025; it must be 1 to 1024"));
    }

    #[test]
    fn a_run_in_which_calls_fail_is_no_measurement() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let options = PostOptions {
            deadline: Duration::from_nanos(1),
            ..small()
        };
        let error = measure(&gpu, &options, &all_cases(&[1])[..1])
            .unwrap_err()
            .to_string();
        assert!(error.contains("poster 0 ended timeout"), "{error}");
    }
}
