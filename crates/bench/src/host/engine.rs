//! What the host engine adds to a NIC. Each figure stands beside its yardstick of the same run: the engine beside a bare loop that posts
//! the same WRITEs by the same provider, two workers beside one worker, and busy QPs with idle QPs beside busy QPs alone. Where verbs drives
//! the HCAs, its engine also stands beside that of mlx5. The bench also measures how long a transfer takes that wakes a sleeping worker, and
//! the CPU time of workers and engines without work.
//!
//! All runs in this process: on software HCAs or on a domain of libfabric, and over sinks. Over a software HCA only ratios mean something.
//! Both sides of a ratio take turns, so that other load of the machine falls on both. Engine and loop each write once more at the end, and
//! all bytes are compared.

mod both;
mod idle;
mod options;
mod report;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use warpverbs::config::{CpuList, EngineConfig, EngineCpus};
use warpverbs::engine::{EngineDevice, ProviderChoice};
use warpverbs::internal::engine::{Outcome, Prepared, Status};
use warpverbs::verbs::{Context, DeviceSelector, PlainContext, VerbsError};

use self::both::{Both, PATTERNS, PHASES, Rates, wqes};
use self::idle::Crowd;
pub(crate) use self::options::EngineOptions;
use self::options::wrong;
pub(crate) use self::report::EngineReport;
use self::report::{Latency, Row};
use super::p2p::{self, Ends, OverSink, P2pOptions, Pattern, SINK};
use crate::error::BenchError;

/// The number of software HCAs: one for each of the two ends, and one for the idle peers.
pub(crate) const HCAS: u32 = 3;
/// The time without a transfer after which a worker sleeps and connections are at rest.
const REST: Duration = Duration::from_millis(4);
/// The number of transfers of a round over a sink: enough that two workers run at the same time.
const AT_A_TIME: u32 = 32;

/// The devices of a run.
pub(crate) struct Devices {
    ran_on: String,
    /// The end that writes, and the other one.
    ends: [EngineDevice; 2],
    /// The device of idle peers. None: there are none.
    others: Option<EngineDevice>,
    /// The HCAs of the ends once more, by mlx5, if another provider drives them.
    by_mlx5: Option<[EngineDevice; 2]>,
}

impl Devices {
    /// Opens software HCAs with these names, by the provider of this configuration.
    ///
    /// # Errors
    /// There are not as many as the bench needs, or one cannot be opened.
    pub(crate) fn soft(names: &[String], config: &EngineConfig) -> Result<Self, BenchError> {
        let [here, there, others] = names else {
            return Err(wrong(format!("{names:?}; they must be {HCAS}")));
        };
        let by_mlx5 = |name: &String| -> Result<EngineDevice, VerbsError> {
            Ok(Context::open(&DeviceSelector::Name(name.clone()))?.into())
        };
        let by_verbs = |name: &String| -> Result<EngineDevice, VerbsError> {
            Ok(PlainContext::open(name, None, &config.gid)?.into())
        };
        if config.provider == ProviderChoice::Verbs {
            return Ok(Self {
                ran_on: "softhca by verbs, and sink (no speed of a NIC)".to_owned(),
                ends: [by_verbs(here)?, by_verbs(there)?],
                others: Some(by_verbs(others)?),
                by_mlx5: Some([by_mlx5(here)?, by_mlx5(there)?]),
            });
        }
        Ok(Self {
            ran_on: "softhca and sink (no speed of a NIC)".to_owned(),
            ends: [by_mlx5(here)?, by_mlx5(there)?],
            others: Some(by_mlx5(others)?),
            by_mlx5: None,
        })
    }

    /// Takes this domain of libfabric for both ends. It has no idle peers: each of their QPs would be an endpoint with descriptors of its own,
    /// and neither a process nor a NIC has so many.
    pub(crate) fn domain(device: &EngineDevice) -> Self {
        Self {
            ran_on: format!("{device}, and sink"),
            ends: [device.clone(), device.clone()],
            others: None,
            by_mlx5: None,
        }
    }
}

/// Runs all measurements on these devices.
///
/// # Errors
/// An option outside its limits, a transfer that does not end well, or bytes that arrived wrong.
pub(crate) fn measure(
    devices: &Devices,
    options: &EngineOptions,
) -> Result<EngineReport, BenchError> {
    let mut rows = beside_one_worker(options)?;
    let latencies = latencies(options)?;
    let pair = both::connected(&devices.ends, options)?;
    let idle_worker = idle::idle_worker(&pair, options)?;
    let mut ends = Both::new(&devices.ends, pair, options)?;
    let others = devices.others.as_ref();
    let crowd = others.map(|device| Crowd::new(ends.hub(), device, options));
    let mut crowd = crowd.transpose()?;
    let idle = crowd.as_mut().map(|crowd| crowd.idle(ends.hub()));
    let idle = idle.transpose()?;
    if let Some(by_mlx5) = &devices.by_mlx5 {
        ends.add_mlx5(by_mlx5)?;
    }
    let mut alone: [Rates; PATTERNS.len()] = Default::default();
    let mut crowded: [Rates; PATTERNS.len()] = Default::default();
    for _ in 0..PHASES {
        ends.rounds(&mut alone)?;
        if let Some(crowd) = &mut crowd {
            crowd.come(ends.hub())?;
            ends.rounds(&mut crowded)?;
            crowd.go();
        }
    }
    let crowded = crowd.is_some().then_some(&crowded);
    rows.extend(both::rows(options, &alone, crowded));
    Ok(EngineReport {
        ran_on: devices.ran_on.clone(),
        device: devices.ends[0].to_string(),
        options: *options,
        rows,
        latencies,
        idle_worker,
        idle,
        compared: ends.compare()?,
    })
}

/// Measures two workers over a sink beside one worker. It also measures two engines of one worker each, which share nothing: that shows
/// what the machine has for two. Each of the two workers has a CPU of its own, because the system may otherwise leave both on one CPU for a
/// whole run.
fn beside_one_worker(options: &EngineOptions) -> Result<Vec<Row>, BenchError> {
    let bytes = SINK.iter().map(Pattern::extent).max().unwrap_or(0);
    let own = own_cpus();
    let one_of = |nth: usize| own.get(nth).and_then(|cpu| CpuList::of([*cpu]));
    let both = CpuList::of(own.iter().copied().take(2)).filter(|_| own.len() > 1);
    let engine = |workers: u32, cpus: Option<CpuList>| {
        let options = P2pOptions {
            workers,
            qps: options.qps.max(2),
            ..options.p2p()
        };
        let config = p2p::config("sink", &options)?;
        let cpus = cpus.map_or(EngineCpus::Any, EngineCpus::Listed);
        OverSink::new(config.with_cpus(cpus), bytes).map_err(BenchError::from)
    };
    let engines = [
        engine(1, one_of(0))?,
        engine(2, both)?,
        engine(1, one_of(1))?,
    ];
    let mut rows = Vec::new();
    for pattern in &SINK {
        let mut prepared = Vec::new();
        for engine in &engines {
            prepared.push(Ends::prepare(engine, &pattern.operations(0, 0))?);
        }
        let by = |nth: usize| together(&engines[nth], pattern, &prepared[nth]);
        let wqes = f64::from(AT_A_TIME) * wqes(pattern, options.slice);
        let mut rates = [const { Vec::new() }; 3];
        for round in 0..=options.rounds {
            let one = wqes / by(0)?.as_secs_f64();
            let two = wqes / by(1)?.as_secs_f64();
            let begin = Instant::now();
            thread::scope(|scope| {
                let other = scope.spawn(|| by(2));
                by(0)?;
                other.join().unwrap_or_else(|panic| resume_unwind(panic))
            })?;
            let apart = 2.0 * wqes / begin.elapsed().as_secs_f64();
            // The first round warms up.
            if round > 0 {
                for (rates, rate) in rates.iter_mut().zip([one, two, apart]) {
                    rates.push(rate);
                }
            }
        }
        let [one, two, apart] = &rates;
        for (who, rates) in [("two workers", two), ("two engines apart", apart)] {
            let what = format!("{} over a sink, {who}", pattern.name);
            rows.push(Row::new(what, "one worker", "M WQEs/s", rates, one));
        }
    }
    Ok(rows)
}

/// Returns the CPUs that this process may use, or none if the system does not say.
fn own_cpus() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list: Option<CpuList> = list.and_then(|list| list.trim().parse().ok());
    list.map_or_else(Vec::new, |list| list.numbers().to_vec())
}

/// Posts `AT_A_TIME` transfers and waits for all of them. Returns how long that took.
fn together(
    engine: &OverSink,
    pattern: &Pattern,
    prepared: &Arc<Prepared>,
) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    let ids = (0..AT_A_TIME).map(|_| Ends::post(engine, prepared));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let mut statuses = Vec::new();
    for id in &ids {
        statuses.push(Ends::wait(engine, *id)?);
    }
    let time = begin.elapsed();
    for (id, status) in ids.into_iter().zip(statuses) {
        if status != Status::Concluded(Outcome::Done) {
            return Err(wrong(format!("{}: {status:?}", pattern.name)));
        }
        Ends::release(engine, id)?;
    }
    Ok(time)
}

/// Measures transfers of one WQE over a sink, where all of the time is the engine's.
fn latencies(options: &EngineOptions) -> Result<Vec<Latency>, BenchError> {
    let engine = OverSink::new(p2p::config("wakes", &options.p2p())?, 1 << 12)?;
    let pattern = Pattern {
        operations: 1,
        ..PATTERNS[0]
    };
    let prepared = Ends::prepare(&engine, &pattern.operations(0, 0))?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..options.wakes {
        thread::sleep(REST);
        for times in &mut times {
            let time = p2p::round(&engine, &pattern, &prepared)?;
            times.push(time.as_secs_f64() * 1e6);
        }
    }
    let names = ["by a worker that slept", "behind it, at once"];
    let latency = |(what, mut times): (_, Vec<f64>)| {
        times.sort_by(f64::total_cmp);
        // The index of the smallest time that is at least as long as `percent` percent of all.
        let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1);
        let microseconds = [50, 99, 100].map(|percent| at(percent).copied().unwrap_or(f64::NAN));
        Latency { what, microseconds }
    };
    Ok(names.into_iter().zip(times).map(latency).collect())
}
