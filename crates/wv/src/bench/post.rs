//! What a put costs the thread that posts it, and how many a GPU posts in a second.

// UNSAFETY: launches the measuring kernels on memory of this module.
#![expect(unsafe_code, reason = "launch of the measuring kernels")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::{Pod, bytes_of, cast_slice_mut};

use super::ring::Rings;
use super::{BenchError, Report, Row};
use crate::KERNELS;
use crate::abi::{BenchSink, BenchTime, PostBenchParams};
use warpverbs::abi::{MAX_DEPTH, MAX_PUT_BYTES, MIN_DEPTH, MODE_EXCLUSIVE, MODE_NO_RECORD, Status};
use warpverbs::gpu::{Gpu, Launch};

/// Lanes of a block: one warp.
const LANES: u32 = 32;
/// How much longer than its own deadline a kernel may take to end.
const GRACE: Duration = Duration::from_secs(10);
/// Most posters of a case; with the sink they must all be resident.
pub const MAX_BLOCKS: u32 = 1024;

/// Who shares a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All posters post to one QP.
    Shared,
    /// Each poster has a QP of its own.
    Exclusive,
}

/// Who posts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One thread, one put for each call.
    Thread,
    /// A warp, 32 puts for each call and one doorbell.
    Warp,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Who shares a QP.
    pub sharing: Sharing,
    /// Who posts together.
    pub scope: Scope,
    /// Posters: one block each.
    pub blocks: u32,
    /// Whether there is a doorbell record (and a second fence).
    pub record: bool,
}

/// What all cases have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostOptions {
    /// Calls of each poster, at least 1.
    pub calls: u32,
    /// Ring length in WQEBBs, a power of two.
    pub depth: u32,
    /// Bytes that each WQE names.
    pub bytes: u32,
    /// Every so many calls asks for a completion; 0: only the last.
    pub signal_every: u32,
    /// Whether the doorbell register is a word of host memory, so that the store crosses PCIe as it does to a NIC, and the
    /// sink sees it as late; else it is a word of device memory.
    pub host_doorbell: bool,
    /// Whether the sink looks at every WQE that was rung for: a test of the protocol, and slower.
    pub check: bool,
    /// Bound of one case.
    pub deadline: Duration,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.blocks;
        write!(f, "{} with {blocks} blocks", self.kernel())
    }
}

impl Case {
    /// The kernel that measures it.
    #[must_use]
    pub fn kernel(&self) -> String {
        let sharing = match self.sharing {
            Sharing::Shared => "shared",
            Sharing::Exclusive => "exclusive",
        };
        let scope = match self.scope {
            Scope::Thread => "thread",
            Scope::Warp => "warp",
        };
        let record = if self.record { "" } else { "no_record_" };
        format!("wv_bench_post_{sharing}_{record}{scope}")
    }

    fn mode(&self) -> u32 {
        let exclusive = match self.sharing {
            Sharing::Shared => 0,
            Sharing::Exclusive => MODE_EXCLUSIVE,
        };
        exclusive | if self.record { 0 } else { MODE_NO_RECORD }
    }

    /// WQEs of one call.
    fn batch(&self) -> u32 {
        match self.scope {
            Scope::Thread => 1,
            Scope::Warp => LANES,
        }
    }

    fn qps(&self) -> u32 {
        match self.sharing {
            Sharing::Shared => 1,
            Sharing::Exclusive => self.blocks,
        }
    }

    fn wrong(&self, detail: String) -> BenchError {
        BenchError::Wrong {
            case: self.to_string(),
            detail,
        }
    }
}

/// Every combination of sharing, scope and record, for each number of blocks.
#[must_use]
pub fn all_cases(blocks: &[u32]) -> Vec<Case> {
    let mut cases = Vec::new();
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        for scope in [Scope::Thread, Scope::Warp] {
            for record in [true, false] {
                let case = |&blocks| Case {
                    sharing,
                    scope,
                    blocks,
                    record,
                };
                cases.extend(blocks.iter().map(case));
            }
        }
    }
    cases
}

/// Measures `cases` on `gpu`, one after the other.
///
/// # Errors
///
/// An option out of its range; the device's; a case in which a call failed, or the rings do not hold what was posted.
pub fn measure(
    gpu: &Arc<dyn Gpu>,
    options: &PostOptions,
    cases: &[Case],
) -> Result<Report, BenchError> {
    options.check(cases)?;
    gpu.add_kernels(&KERNELS)?;
    let rows = cases.iter().map(|case| run(gpu, options, *case));
    Ok(Report::new(
        gpu.label(),
        options,
        rows.collect::<Result<_, _>>()?,
    ))
}

impl PostOptions {
    fn check(&self, cases: &[Case]) -> Result<(), BenchError> {
        let in_range = |what: &'static str, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(BenchError::Option {
                what,
                value: value.to_string(),
                limit: format!("{least} to {most}"),
            })
        };
        in_range("calls", self.calls, 1, 1 << 24)?;
        in_range("depth", self.depth, MIN_DEPTH, MAX_DEPTH)?;
        in_range("bytes", self.bytes, 1, MAX_PUT_BYTES)?;
        if !self.depth.is_power_of_two() {
            return Err(BenchError::Option {
                what: "depth",
                value: self.depth.to_string(),
                limit: "a power of two".to_owned(),
            });
        }
        for case in cases {
            in_range("blocks", case.blocks, 1, MAX_BLOCKS)?;
        }
        Ok(())
    }
}

fn run(gpu: &Arc<dyn Gpu>, options: &PostOptions, case: Case) -> Result<Row, BenchError> {
    let rings = Rings::new(
        gpu,
        case.qps(),
        options.depth,
        case.mode(),
        options.host_doorbell,
    )?;
    let posters = case.blocks as usize;
    let sinks = gpu.alloc(size_of::<BenchSink>() * rings.count() as usize, 128)?;
    let times = gpu.alloc(size_of::<BenchTime>() * posters, 128)?;
    let gate = gpu.alloc(8, 128)?;
    let per_qp = case.blocks / case.qps();
    let wqes = u64::from(options.calls) * u64::from(case.batch()) * u64::from(per_qp);
    let params = PostBenchParams {
        qp: rings.addr().into(),
        qp_stride: rings.stride(),
        sinks: sinks.addr().into(),
        times: times.addr().into(),
        gate: gate.addr().into(),
        deadline_ns: u64::try_from(options.deadline.as_nanos()).unwrap_or(u64::MAX),
        qps: case.qps(),
        calls: options.calls,
        signal_every: options.signal_every,
        bytes: options.bytes,
        wqes,
        check: options.check.into(),
        reserved: 0,
    };
    let kernel = case.kernel();
    // The sink and all posters wait for each other.
    let launch = Launch::new(&kernel, case.blocks + 1, LANES)
        .with_cooperative(true)
        .with_deadline(options.deadline + GRACE);
    // SAFETY: the parameters are those of the kernel; the rings, sinks, times and gate they name live to the end of this
    // function, past the wait, or past the device's own deadline of the kernel if the wait fails.
    let event = unsafe { gpu.launch(&launch, bytes_of(&params)) }?;
    if let Err(error) = gpu.wait(&event, options.deadline + 2 * GRACE) {
        // Its memory must not be freed under a kernel that may still run.
        std::mem::forget((rings, sinks, times, gate));
        return Err(error.into());
    }
    let times: Vec<BenchTime> = read(gpu, times.addr(), posters)?;
    let sinks: Vec<BenchSink> = read(gpu, sinks.addr(), rings.count() as usize)?;
    for (nth, time) in times.iter().enumerate() {
        if time.status != Status::OK || time.calls != options.calls {
            let (status, calls) = (time.status, time.calls);
            return Err(case.wrong(format!("poster {nth} ended {status} after {calls} calls")));
        }
    }
    let mut doorbells = 0;
    let mut full_ring_ns = 0;
    for qp in 0..rings.count() {
        let context = rings.context(qp)?;
        let sink = &sinks[qp as usize];
        let found = [context.resv, context.cons, sink.served];
        if found != [wqes; 3] || context.err != Status::OK || sink.wrong != 0 {
            let (err, wrong) = (context.err, sink.wrong);
            return Err(case.wrong(format!(
                "QP {qp}: reserved, completed, served {found:?} of {wqes}; error {err}, {wrong} WQEs not the one due"
            )));
        }
        check_ring(&rings, qp, wqes, options.depth).map_err(|detail| match detail {
            Ok(text) => case.wrong(format!("QP {qp}: {text}")),
            Err(error) => error,
        })?;
        doorbells += context.doorbells;
        full_ring_ns += context.full_ring_ns;
    }
    Ok(Row::new(
        case,
        &times,
        u64::from(case.qps()) * wqes,
        doorbells,
        full_ring_ns,
    ))
}

/// Each slot holds the last index that fell on it.
fn check_ring(
    rings: &Rings,
    qp: u32,
    wqes: u64,
    depth: u32,
) -> Result<(), Result<String, BenchError>> {
    let controls = rings.controls(qp).map_err(Err)?;
    let depth = u64::from(depth);
    for (slot, control) in (0..wqes.min(depth)).zip(controls) {
        let index = wqes - 1 - (wqes - 1 - slot) % depth;
        if u64::from(control >> 8 & 0xffff) != index & 0xffff {
            return Err(Ok(format!(
                "slot {slot} holds {control:#x}, not index {index}"
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
