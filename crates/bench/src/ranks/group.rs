//! What a group of ranks asks of its store, and how long its changes take.
//!
//! Ranks are threads of this process. Each runs the threads and rules of a real group over a simulated fabric, whose QPs are
//! entries of a table. With a real etcd a process of its own stands for each rank, and a death is the SIGKILL of that process.
//! Ranks make calls only where a newcomer dies again and again. Such a call sends one word to each member and waits for one word of
//! each. Counts are those of the store's interface. Times are those of all ranks together on the cores of this machine.

mod report;

use std::collections::BTreeMap;
use std::io;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use report::{Change, CrashLoop, GroupReport, GroupRow, Peace, Spread};

use super::resident;
use crate::error::BenchError;
use warpverbs::membership::GroupConfig;
use warpverbs::membership::sim::{Asked, Counted, Process, World, WorldConfig, looks};
use warpverbs::team::{MemoryStore, Store};

/// The bound of every wait. It is long, because many ranks may share two cores.
const LONG: Duration = Duration::from_secs(300);
/// The number of looks that are timed.
const LOOKS: u32 = 30;
/// The longest time between two looks of a thread that watches, where ranks make no calls. If all
/// others see that a rank has ended, they are woken before that time.
const WATCH: Duration = Duration::from_millis(200);
/// As `WATCH`, where the others see the end of a rank only by its process.
const WATCH_PROCESSES: Duration = Duration::from_millis(20);
/// The number of ranks that make calls while a newcomer dies again and again.
const CALLERS: u32 = 4;
/// Ticks of /proc in a second, as Linux reports them to programs.
const TICKS: f64 = 100.0;

/// The setting of one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupCase {
    /// The number of ranks, at least 3.
    pub(crate) ranks: u32,
    /// The number of deaths that are timed, each with a return of the rank; at least 1.
    pub(crate) deaths: u32,
    /// Time to live of a lease.
    pub(crate) lease: Duration,
    /// How long the group is left in peace while calls of the store are counted.
    pub(crate) peace: Duration,
}

/// Starts a process that stands for a rank.
pub(crate) type Helper<'a> = &'a dyn Fn() -> io::Result<Child>;

/// The store in which the ranks meet, and the processes around it.
pub(crate) struct Meeting<'a> {
    /// The store in which the ranks meet.
    pub(crate) store: Arc<dyn Store>,
    /// The processes of the store's servers.
    pub(crate) servers: Vec<u32>,
    /// What starts the processes that stand for ranks. None: ranks are threads, and all others see by themselves that one has ended.
    pub(crate) helper: Option<Helper<'a>>,
}

impl Meeting<'_> {
    /// Returns a meeting in a store in the memory of this process, without a server.
    #[must_use]
    pub(crate) fn in_memory() -> Self {
        Self {
            store: Arc::new(MemoryStore::new()),
            servers: Vec::new(),
            helper: None,
        }
    }
}

/// The processes that stand for ranks, by slot. They are killed when this is dropped.
#[derive(Clone, Default)]
struct Helpers(Arc<Mutex<BTreeMap<u32, Child>>>);

impl Helpers {
    fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next process of `slot`.
    fn start(&self, slot: u32, helper: Helper<'_>) -> Result<(), BenchError> {
        let child = helper().map_err(|error| BenchError::Wrong {
            case: format!("the process that stands for rank {slot}"),
            detail: error.to_string(),
        })?;
        self.map().insert(slot, child);
        Ok(())
    }

    /// Returns the process of `slot`, or this one where ranks are threads.
    fn process(&self, slot: u32) -> Process {
        match self.map().get(&slot) {
            Some(child) => Process::of(child.id()),
            None => Process::this(),
        }
    }

    fn kill(&self, slot: u32) -> Option<Child> {
        let mut child = self.map().remove(&slot)?;
        // A process that has ended by itself is as dead as a killed one.
        let _ = child.kill();
        Some(child)
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) > 1 {
            return;
        }
        for child in self.map().values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs one case.
///
/// # Errors
/// What the store or a group refuses; ranks that do not agree on one view; ranks that are expelled though nothing was done to them.
pub(crate) fn measure(case: &GroupCase, meeting: &Meeting<'_>) -> Result<GroupRow, BenchError> {
    let mut run = Run::start(case, meeting)?;
    let peace = run.peace(case.peace)?;
    // By now the ranks have dropped what they read at their begin, so the memory of that is not counted.
    let of_a_rank = |kib: u64| kib.saturating_sub(run.kib_before) / u64::from(case.ranks);
    let kib_per_rank = of_a_rank(resident::kib());
    let kib_in_use = of_a_rank(resident::kib_in_use());
    let change = run.change(&peace)?;
    let (mut deaths, mut joins) = (Vec::new(), Vec::new());
    for number in 0..case.deaths {
        let slot = number % case.ranks;
        deaths.push(run.kill(slot)?);
        joins.push(run.join(slot)?);
    }
    let expelled = run.expelled + run.world.expelled();
    let looks = looks(case.ranks, LOOKS, &config(case.lease))?;
    Ok(GroupRow {
        ranks: case.ranks,
        bring_up_ms: report::ms(run.bring_up),
        look_ms: Spread::of(&looks),
        peace,
        change,
        death_ms: Spread::of(&deaths),
        join_ms: Spread::of(&joins),
        expelled,
        kib_per_rank,
        kib_in_use,
    })
}

fn config(lease: Duration) -> GroupConfig {
    GroupConfig::default().with_lease_ttl(lease)
}

/// A group in which the ranks run.
struct Run<'a> {
    case: GroupCase,
    world: World,
    asked: Arc<Asked>,
    servers: &'a [u32],
    helper: Option<Helper<'a>>,
    helpers: Helpers,
    bring_up: Duration,
    kib_before: u64,
    expelled: usize,
}

impl<'a> Run<'a> {
    fn start(case: &GroupCase, meeting: &'a Meeting<'a>) -> Result<Self, BenchError> {
        let helpers = Helpers::default();
        for slot in 0..case.ranks {
            if let Some(helper) = meeting.helper {
                helpers.start(slot, helper)?;
            }
        }
        let counted = Counted::new(Arc::clone(&meeting.store));
        let asked = counted.asked();
        let of = helpers.clone();
        let watch = match meeting.helper {
            Some(_) => WATCH_PROCESSES,
            None => WATCH,
        };
        let config = WorldConfig {
            calls: false,
            watch,
            seen: meeting.helper.is_none(),
            process: Box::new(move |slot| of.process(slot)),
            ..WorldConfig::new(case.ranks, config(case.lease))
        };
        let kib_before = resident::kib();
        let start = Instant::now();
        let world = World::new(Arc::new(counted), config)?;
        let mut run = Self {
            case: *case,
            world,
            asked,
            servers: &meeting.servers,
            helper: meeting.helper,
            helpers,
            bring_up: Duration::ZERO,
            kib_before,
            expelled: 0,
        };
        run.bring_up = run.settle("bring-up", start)?;
        Ok(run)
    }

    fn settle(&mut self, what: &str, since: Instant) -> Result<Duration, BenchError> {
        let settled = self.world.settle(since, LONG);
        settled.map_err(|states| BenchError::Wrong {
            case: format!("{} ranks, {what}", self.case.ranks),
            detail: format!("no view of all within {LONG:?}: {states}"),
        })
    }

    /// Counts the calls of the store while nothing happens for `time`.
    fn peace(&mut self, time: Duration) -> Result<Peace, BenchError> {
        // After this time the ranks have done what was left of their begin.
        thread::sleep(2 * self.case.lease);
        let before = [self.asked.calls(), self.asked.renewals()];
        let ticks = self.server_ticks();
        let start = Instant::now();
        thread::sleep(time);
        let took = start.elapsed();
        let made = [
            self.asked.calls() - before[0],
            self.asked.renewals() - before[1],
        ];
        let used = self.server_ticks() - ticks;
        let rate = |count: u64| count as f64 / took.as_secs_f64() / f64::from(self.case.ranks);
        Ok(Peace {
            seconds: took.as_secs_f64(),
            calls_per_second: rate(made[0]),
            renewals_per_second: rate(made[1]),
            server_core_percent: (!self.servers.is_empty())
                .then(|| used / TICKS / took.as_secs_f64() * 100.0),
        })
    }

    /// Lets one rank die and its next generation join, and counts the calls of the store for both.
    fn change(&mut self, peace: &Peace) -> Result<Change, BenchError> {
        let ranks = f64::from(self.case.ranks);
        let before = (self.asked.calls(), self.asked.read(), self.asked.by_kind());
        let start = Instant::now();
        self.kill(1)?;
        self.join(1)?;
        let changed = start.elapsed();
        // After this time the lease of the dead rank has run out, and all ranks have reported the change.
        thread::sleep((2 * self.case.lease).saturating_sub(changed));
        let in_peace = peace.calls_per_second * start.elapsed().as_secs_f64();
        let calls = (self.asked.calls() - before.0) as f64 / ranks;
        let by_kind = self.asked.by_kind().into_iter().filter_map(|(kind, now)| {
            let made = now - before.2.get(kind).copied().unwrap_or(0);
            (made > 0).then_some((kind, made as f64 / ranks))
        });
        Ok(Change {
            calls_per_rank: calls - in_peace,
            bytes_per_rank: (self.asked.read() - before.1) as f64 / ranks,
            by_kind: by_kind.collect(),
        })
    }

    /// Kills a rank. Returns the time from the kill until all others serve without it.
    fn kill(&mut self, slot: u32) -> Result<Duration, BenchError> {
        self.expelled += self.world.expelled();
        let start = Instant::now();
        let child = self.helpers.kill(slot);
        let dead = self.world.kill(slot);
        let took = self.settle(&format!("death of rank {slot}"), start);
        drop(dead);
        if let Some(mut child) = child {
            // The process is dead: this only takes its exit status.
            let _ = child.wait();
        }
        took
    }

    /// Starts the next generation of a rank. Returns the time from the start until all serve with it.
    fn join(&mut self, slot: u32) -> Result<Duration, BenchError> {
        if let Some(helper) = self.helper {
            self.helpers.start(slot, helper)?;
        }
        let start = Instant::now();
        self.world.join(slot)?;
        self.settle(&format!("join of rank {slot}"), start)
    }

    fn server_ticks(&self) -> f64 {
        let ticks = self.servers.iter().map(|server| ticks(*server));
        ticks.sum()
    }
}

/// Measures ranks that make calls beside a newcomer that dies again and again, `deaths` times. Before that the ranks make calls in peace
/// for `peace`. `lease` is the time to live of a lease.
///
/// # Errors
/// What a group refuses, or ranks that make no calls.
pub(crate) fn crash_loop(
    deaths: u32,
    lease: Duration,
    peace: Duration,
) -> Result<CrashLoop, BenchError> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let config = WorldConfig {
        founders: CALLERS,
        ..WorldConfig::new(CALLERS + 1, config(lease))
    };
    let case = || format!("{CALLERS} ranks beside a newcomer that dies again and again");
    let mut world = World::new(store, config)?;
    let whole = world.settle(Instant::now(), LONG);
    whole.map_err(|detail| BenchError::Wrong {
        case: case(),
        detail,
    })?;
    thread::sleep(lease / 2);
    drop(world.take_calls());
    let start = Instant::now();
    thread::sleep(peace);
    let before = Calls::of(&world, start)?;
    let (start, held) = (Instant::now(), world.standstills());
    for death in 0..deaths {
        world.join(CALLERS)?;
        // The newcomer dies at each step of its way in: at once, while it connects, promised or not, and when it is a member.
        thread::sleep(Duration::from_millis(u64::from(death % 16) * 4));
        drop(world.kill(CALLERS));
    }
    thread::sleep(peace.saturating_sub(start.elapsed()));
    let during = Calls::of(&world, start)?;
    let standstills = world.standstills().saturating_sub(held);
    Ok(CrashLoop {
        ranks: CALLERS,
        deaths,
        calls_percent: during.per_second / before.per_second * 100.0,
        standstills,
        most_standstills: most_standstills(start.elapsed(), lease),
        longest_gap_ms: report::ms(during.longest_gap),
        longest_gap_in_peace_ms: report::ms(before.longest_gap),
        expelled: world.expelled(),
    })
}

/// Returns how often newcomers of one slot may hold the calls of a rank within `time`, however many of them die. The slot waits for 0, 1,
/// 2, 4 .. leases before a newcomer is taken in once more. Each newcomer costs a change when it comes, another when it is gone, and one or
/// two smaller proposals when it dies between.
fn most_standstills(time: Duration, lease: Duration) -> u64 {
    let leases = time.as_nanos() / lease.as_nanos().max(1);
    let taken_in = 2 + u64::from((leases + 1).ilog2());
    4 * taken_in
}

/// How often ranks made calls, and the longest time between two calls of one rank.
struct Calls {
    per_second: f64,
    longest_gap: Duration,
}

impl Calls {
    /// Returns the calls of all living ranks since `start`.
    fn of(world: &World, start: Instant) -> Result<Self, BenchError> {
        let end = Instant::now();
        let (mut made, mut longest_gap) = (0, Duration::ZERO);
        for (slot, calls) in world.take_calls() {
            let calls: Vec<Instant> = calls.into_iter().filter(|at| *at >= start).collect();
            if calls.is_empty() {
                return Err(BenchError::Wrong {
                    case: format!("rank {slot}"),
                    detail: format!("it has made no whole call in {:?}", end - start),
                });
            }
            made += calls.len();
            let ends = calls.iter().copied().chain([end]);
            let begins = [start].into_iter().chain(calls.iter().copied());
            let gaps = begins
                .zip(ends)
                .map(|(from, to)| to.saturating_duration_since(from));
            longest_gap = longest_gap.max(gaps.max().unwrap_or_default());
        }
        Ok(Self {
            per_second: made as f64 / (end - start).as_secs_f64(),
            longest_gap,
        })
    }
}

/// Returns the ticks for which process `process` has run on all cores; 0 if it has ended.
fn ticks(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Field 2 of the line is the name of the program in parentheses, which may hold anything. Fields 14 and 15 are the times.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|time| time.parse::<f64>().ok()).sum()
}
