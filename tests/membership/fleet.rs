//! Ranks that call all the time, each checked against the reference for what its own report says of the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use softhca::{FaultSpec, Hca};
use test_support::{limits, ranks};
use warpverbs::gpu::Gpu;
use warpverbs::gpu::simt::{SimtGpu, SimtOptions};
use warpverbs::membership::{Group, GroupConfig, GroupState, newest_view, next_generation};
use warpverbs::moe::{Deadlines, Moe, MoeConfig};
use warpverbs::team::{JoinOptions, MemoryStore, RankSet, Store, TeamConfig};

use crate::caller::{Control, call_on, lock};
pub(crate) use crate::calls::{Call, Point};
use crate::store::{Cut, CutStore, Spoils};
use test_support::hca::hca_with;
use test_support::moe::small::SHAPE;
use test_support::moe::{Setup, join};

pub(crate) use test_support::limits::HANG as LONG;

/// One generation of a rank.
pub(crate) struct Rank {
    pub(crate) slot: u32,
    /// Of its first rail.
    pub(crate) hca: Arc<Hca>,
    /// Of all rails.
    pub(crate) rails: Vec<Arc<Hca>>,
    pub(crate) moe: Arc<Moe>,
    pub(crate) group: Option<Arc<Group>>,
    /// Its store.
    pub(crate) cut: Cut,
    /// Calls that it has made of its store.
    pub(crate) store_calls: Arc<AtomicU64>,
    control: Arc<Control>,
    caller: Option<JoinHandle<()>>,
}

/// How a fleet is.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Places of the team.
    pub(crate) slots: u32,
    /// Founders.
    pub(crate) ranks: u32,
    /// Of the device.
    pub(crate) deadline: Duration,
    pub(crate) group: GroupConfig,
    /// HCAs of each rank.
    pub(crate) rails: usize,
    /// HCAs send packets to each other, which can be lost.
    pub(crate) packets: bool,
    /// Every rank captures one call into a graph, and replays it.
    pub(crate) graphs: bool,
    /// Opens a rank's way to the store of all.
    pub(crate) store: Arc<dyn Fn() -> Arc<dyn Store> + Send + Sync>,
    /// Changes to values that ranks put.
    pub(crate) spoils: Spoils,
    pub(crate) shape: MoeConfig,
    /// How long calls may be held while members change.
    pub(crate) change: Duration,
    /// The HCA repeats for 8 * 4.096 us * 2^`ack_timeout`.
    pub(crate) ack_timeout: u8,
    /// From each rank to each other; none: the default.
    pub(crate) qps: Option<u32>,
    /// Dispatches that are sent before an earlier call is received.
    pub(crate) ahead: usize,
    /// What goes wrong at new HCAs, by rail; nothing at those of further rails.
    pub(crate) faults: Vec<FaultSpec>,
}

impl Plan {
    pub(crate) fn new(ranks: u32, deadline: Duration, group: GroupConfig) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        Self {
            slots: ranks,
            ranks,
            deadline,
            group,
            rails: 1,
            packets: false,
            graphs: false,
            store: Arc::new(move || Arc::clone(&store)),
            spoils: Spoils::default(),
            shape: SHAPE,
            change: LONG,
            ack_timeout: 15,
            qps: None,
            ahead: 0,
            faults: Vec::new(),
        }
    }
}

/// Ranks of one group.
pub(crate) struct Fleet {
    pub(crate) ranks: Vec<Rank>,
    /// The store of all of them.
    pub(crate) outage: Cut,
    setup: Setup,
    plan: Plan,
    /// Ranks that are over; their memory stays until the end.
    pub(crate) dead: Vec<Rank>,
    /// Words of a finding that the test is about.
    pub(crate) expected: Option<&'static str>,
}

impl Fleet {
    /// `ranks` founders that call all the time, with this deadline of the device.
    pub(crate) fn new(ranks: u32, deadline: Duration, config: GroupConfig) -> Self {
        Self::start(Plan::new(ranks, deadline, config))
    }

    /// As `new`; the team has further places, which no rank takes yet.
    pub(crate) fn of(slots: u32, ranks: u32, deadline: Duration, config: GroupConfig) -> Self {
        Self::start(Plan {
            slots,
            ..Plan::new(ranks, deadline, config)
        })
    }

    pub(crate) fn start(plan: Plan) -> Self {
        let mut setup = Setup::adverse(plan.slots);
        setup.team.deadline = plan.deadline;
        setup.team.path.ack_timeout = Some(plan.ack_timeout);
        setup.team.qps_per_peer = plan.qps.unwrap_or(setup.team.qps_per_peer);
        setup.team.members = Some(RankSet::first(plan.ranks));
        let outage = Cut::default();
        let make = |slot: u32| {
            let (setup, plan, outage) = (setup.clone(), plan.clone(), outage.clone());
            std::thread::spawn(move || {
                let team = setup.team.with_rank(slot);
                Rank::start(team, &setup, outage, &plan)
            })
        };
        let threads: Vec<_> = (0..plan.ranks).map(make).collect();
        let ranks = threads
            .into_iter()
            .map(|made| made.join().unwrap())
            .collect();
        let fleet = Self {
            ranks,
            outage,
            setup,
            plan,
            dead: Vec::new(),
            expected: None,
        };
        // Founders make calls before they have met in the store.
        fleet.until("the group is founded", |rank| rank.group().view().is_some());
        fleet
    }

    /// A way to the store of all, which nothing cuts.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        (self.plan.store)()
    }

    /// A new generation of `slot`, with a new HCA, asks to be taken in.
    pub(crate) fn join(&mut self, slot: u32) {
        let team = self.next(slot);
        let rank = Rank::start(team, &self.setup, self.outage.clone(), &self.plan);
        self.ranks.push(rank);
    }

    /// As `join`, with these faults of its HCAs, by rail.
    pub(crate) fn join_with(&mut self, slot: u32, faults: Vec<FaultSpec>) {
        self.plan.faults = faults;
        self.join(slot);
        self.plan.faults = Vec::new();
    }

    /// Returns what the next generation of `slot` joins with.
    fn next(&self, slot: u32) -> TeamConfig {
        let store = self.store();
        let generation = next_generation(store.as_ref(), slot).unwrap();
        let view = newest_view(&store, self.setup.team.ranks).unwrap().unwrap();
        let others = view.members.into_keys().filter(|other| *other != slot);
        let members: RankSet = others.collect();
        let team = self.setup.team.with_rank(slot);
        team.joining(generation, members)
    }

    /// Makes team and layer of the next generation of `slot`, which joins no group, on a GPU with so much memory. The bytes that
    /// the GPU lacks for what it refuses; nothing is left on the HCA.
    pub(crate) fn starts_with(&self, slot: u32, memory: u64) -> Option<u64> {
        let hca = hca_with(softhca::HcaConfig::default());
        let contexts = ranks::contexts([&hca]).unwrap();
        let options = SimtOptions::default().with_memory(Some(memory));
        let gpu: Arc<dyn Gpu> = SimtGpu::with_options(&options).unwrap();
        let team = JoinOptions::new(self.next(slot))
            .with_contexts(&contexts)
            .with_gpu(&gpu)
            .with_store(self.store())
            .join();
        let text = match team {
            Err(error) => error.to_string(),
            Ok(team) => match Moe::new(&team, "layer", SHAPE) {
                Err(error) => error.to_string(),
                Ok(_) => return None,
            },
        };
        drop(contexts);
        assert_eq!(hca.live_objects().total(), 0, "{text}");
        let numbers = || {
            let (_, rest) = text.split_once("no device memory for ")?;
            let (bytes, rest) = rest.split_once(" bytes: ")?;
            let (free, _) = rest.split_once(' ')?;
            bytes.parse::<u64>().ok()?.checked_sub(free.parse().ok()?)
        };
        Some(numbers().unwrap_or_else(|| panic!("{text}")))
    }

    pub(crate) fn rank(&self, slot: u32) -> &Rank {
        let rank = self.ranks.iter().find(|rank| rank.slot == slot);
        rank.unwrap_or_else(|| panic!("rank {slot} is gone"))
    }

    /// Waits until `there`, for every living rank.
    pub(crate) fn until(&self, what: &str, there: impl Fn(&Rank) -> bool) {
        let start = Instant::now();
        for rank in &self.ranks {
            while !there(rank) {
                rank.check();
                assert!(
                    start.elapsed() < LONG,
                    "rank {}: {what}: {}",
                    rank.slot,
                    rank.story()
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits until every living rank has made `more` calls in a view of at least `epoch`, nothing missing.
    pub(crate) fn until_whole(&self, epoch: u32, more: usize) {
        self.until(&format!("{more} whole calls in view {epoch}"), |rank| {
            let calls = rank.calls();
            let whole = calls
                .iter()
                .filter(|call| call.epoch >= epoch && call.report.is_complete());
            whole.count() >= more
        });
    }

    /// Waits until every living rank serves in a view of at least `epoch` that has these members.
    pub(crate) fn until_members(&self, epoch: u32, members: &[u32]) {
        self.until(&format!("view {epoch} of {members:?}"), |rank| {
            let view = rank.group().view().map_or(0, |view| view.epoch);
            let serves = rank.group().state() == GroupState::Serving;
            serves && view >= epoch && rank.members() == members
        });
    }

    /// Takes `slot` out of the fleet. Nothing of it ends.
    pub(crate) fn remove(&mut self, slot: u32) -> Rank {
        let place = self
            .ranks
            .iter()
            .position(|rank| rank.slot == slot)
            .unwrap();
        self.ranks.remove(place)
    }

    /// Ends all calls, and checks them: every call of one number ran in one view, at all ranks. Then ends the fleet.
    pub(crate) fn end(mut self) {
        let newest = self
            .ranks
            .iter()
            .map(|rank| rank.moe.started())
            .max()
            .unwrap_or(0);
        for rank in &self.ranks {
            rank.control.last.store(newest + 3, Ordering::Relaxed);
        }
        for rank in &mut self.ranks {
            rank.pause(false);
            rank.join_caller();
        }
        for rank in &mut self.dead {
            rank.pause(false);
            rank.stop(Point::Send);
            // No rank sends what the kernels of a dead rank still wait for. Without this they wait until their deadlines.
            rank.moe.team().abort().unwrap();
            rank.join_caller();
        }
        let mut epochs = std::collections::BTreeMap::new();
        for rank in &self.ranks {
            for call in rank.calls().iter().filter(|call| !call.seen.is_empty()) {
                let epoch = *epochs.entry(call.number).or_insert(call.epoch);
                assert!(
                    epoch == call.epoch,
                    "call {} ran in views {epoch} and {}",
                    call.number,
                    call.epoch
                );
            }
        }
        let all: Vec<Rank> = self.ranks.drain(..).chain(self.dead.drain(..)).collect();
        let hcas: Vec<Arc<Hca>> = all.iter().flat_map(|rank| rank.rails.clone()).collect();
        drop(all);
        for hca in hcas {
            let expected =
                |finding: &String| self.expected.is_some_and(|words| finding.contains(words));
            let findings: Vec<String> = hca
                .findings()
                .into_iter()
                .filter(|found| !expected(found))
                .collect();
            assert_eq!(findings, Vec::<String>::new(), "{}", hca.name());
            assert_eq!(hca.live_objects().total(), 0, "{}", hca.name());
        }
    }
}

impl Rank {
    fn start(team: TeamConfig, setup: &Setup, outage: Cut, plan: &Plan) -> Self {
        let hca = |rail: usize| {
            let hca = hca_with(softhca::HcaConfig {
                adversary: setup.hca.adversary,
                loopback: !plan.packets,
                ..softhca::HcaConfig::default()
            });
            if let Some(faults) = plan.faults.get(rail) {
                hca.set_faults(faults);
            }
            Arc::new(hca)
        };
        let rails: Vec<Arc<Hca>> = (0..plan.rails).map(hca).collect();
        let cut = Cut::default();
        let cuts = [cut.clone(), outage];
        let store_calls = Arc::default();
        let way: Arc<dyn Store> = Arc::new(CutStore {
            store: (plan.store)(),
            cuts,
            calls: Arc::clone(&store_calls),
            spoils: plan.spoils.clone(),
        });
        let slot = team.rank;
        let team = join(team, &rails, way).unwrap();
        let moe = Moe::new(&team, "layer", plan.shape).unwrap();
        let deadlines = Deadlines::new(setup.team.deadline).with_change(plan.change);
        moe.set_deadlines(&deadlines).unwrap();
        let group = Group::start(&team, moe.clone(), &plan.group).unwrap();
        let mut rank = Self {
            slot,
            hca: Arc::clone(&rails[0]),
            rails,
            moe,
            group: Some(Arc::new(group)),
            cut,
            store_calls,
            control: Arc::default(),
            caller: None,
        };
        rank.call(plan);
        rank
    }

    pub(crate) fn group(&self) -> &Group {
        self.group.as_deref().expect("it has its group")
    }

    /// Begins to make calls.
    fn call(&mut self, plan: &Plan) {
        let (graphs, ahead) = (plan.graphs, plan.ahead);
        let (control, moe) = (Arc::clone(&self.control), Arc::clone(&self.moe));
        let group = Arc::downgrade(self.group.as_ref().expect("it has just begun"));
        let joins = moe.team().config().joins();
        self.caller = Some(std::thread::spawn(move || {
            // A joining rank makes no call before it serves.
            let waits = || {
                group
                    .upgrade()
                    .is_some_and(|group| group.state() == GroupState::Joining)
            };
            while joins && waits() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let body = std::panic::AssertUnwindSafe(|| call_on(&control, &moe, graphs, ahead));
            if let Err(panic) = std::panic::catch_unwind(body) {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                *lock(&control.broken) = Some(text);
            }
        }));
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        lock(&self.control.calls).clone()
    }

    /// Its last `count` calls.
    pub(crate) fn newest(&self, count: usize) -> Vec<Call> {
        let calls = lock(&self.control.calls);
        calls[calls.len().saturating_sub(count)..].to_vec()
    }

    /// Panics if a call was not what it should be.
    pub(crate) fn check(&self) {
        if let Some(broken) = lock(&self.control.broken).as_ref() {
            panic!("rank {}: {broken}", self.slot);
        }
    }

    /// It will stop for good at `point` of a call.
    pub(crate) fn stop(&self, point: Point) {
        self.control.stop.store(point as u32, Ordering::Relaxed);
    }

    /// It stops for good at `point` of a call, and waits until it has.
    pub(crate) fn stop_at(&mut self, point: Point) {
        self.stop(point);
        self.join_caller();
    }

    /// Its process is gone: no calls from `point` of one on, nothing on the wire, no lease.
    pub(crate) fn die_at(&mut self, point: Point) {
        self.stop_at(point);
        self.hca.set_port(false);
        self.group = None;
    }

    /// Makes no call until it is let go on.
    pub(crate) fn pause(&self, pause: bool) {
        self.control.pause.store(pause, Ordering::Relaxed);
    }

    /// Makes no call from now on, and has ended the last one.
    pub(crate) fn rest(&self) {
        self.pause(true);
        limits::until(format_args!("rank {} rests", self.slot), || {
            self.check();
            self.control.rests.load(Ordering::Acquire)
        });
    }

    /// Members of its view.
    pub(crate) fn members(&self) -> Vec<u32> {
        let view = self.group().view();
        view.map_or_else(Vec::new, |view| view.members.into_keys().collect())
    }

    pub(crate) fn join_caller(&mut self) {
        if let Some(caller) = self.caller.take() {
            caller.join().unwrap();
        }
        self.check();
    }

    /// Returns what has happened to it, for the message of a test that fails.
    pub(crate) fn story(&self) -> String {
        let calls = self.calls();
        let last = calls.last().map(|call| call.report.to_string());
        let group = self.group.as_deref();
        format!(
            "{:?}, {:?}, {} calls, last {last:?}, events {:#?}",
            group.map(Group::state),
            group.map(Group::view),
            calls.len(),
            group.map(Group::events)
        )
    }
}
