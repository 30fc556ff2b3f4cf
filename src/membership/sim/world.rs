//! Ranks without HCA and GPU. Their QPs are entries of a table, and a thread makes their calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use membership_rules::members::Members;
use membership_rules::record::RankGeneration;
use membership_rules::slots::Slots;
use rendezvous::{MAX_BOUND, Process, Store};

use super::cut_store::CutStore;
use super::layer::FakeLayer;
use crate::membership::event::Cause;
use crate::membership::layer::Layer;
use crate::membership::next_generation;
use crate::membership::transport::{Alarm, Meeting, Transport};
use crate::membership::{Group, GroupConfig, GroupError, GroupEventKind, GroupState};
use crate::team::{Sweep, TeamError};

/// Longest wait of a call for one member.
pub(in crate::membership) const DEADLINE: Duration = Duration::from_millis(400);
/// Pause between two looks of a thread that waits.
pub(in crate::membership) const LOOK: Duration = Duration::from_micros(300);

/// The QPs of one generation to another.
#[derive(Clone, Copy, Debug)]
pub(in crate::membership) struct FakeQps {
    /// The generation of the peer.
    pub(in crate::membership) generation: u32,
    pub(in crate::membership) up: bool,
    pub(in crate::membership) open: bool,
    /// How often either end has made the QPs anew.
    pub(in crate::membership) life: u64,
}

/// The QPs of all ranks. The QPs of founders are up from the beginning, and have an entry only when that has changed.
#[derive(Debug, Default)]
struct QpTable {
    founders: Slots,
    made: BTreeMap<(RankGeneration, u32), FakeQps>,
}

impl QpTable {
    fn get(&self, from: RankGeneration, to: u32) -> Option<FakeQps> {
        let made = self.made.get(&(from, to)).copied();
        made.or_else(|| self.founded(from, to))
    }

    fn get_mut(&mut self, from: RankGeneration, to: u32) -> Option<&mut FakeQps> {
        if let Some(qps) = self.get(from, to) {
            self.made.entry((from, to)).or_insert(qps);
        }
        self.made.get_mut(&(from, to))
    }

    /// Returns the generation in the slot `to` with which the QPs of `from` are, or were, connected, or 0 if there is none.
    fn newest(&self, from: RankGeneration, to: u32) -> u32 {
        let made = self.get(from, to).map_or(0, |qps| qps.generation);
        let there = self.get((to, made), from.0);
        if there.is_some_and(|there| there.generation == from.1) {
            made
        } else {
            0
        }
    }

    fn founded(&self, from: RankGeneration, to: u32) -> Option<FakeQps> {
        let founds = |slot| self.founders.contains(slot);
        let up = from.1 == 1 && from.0 != to && founds(from.0) && founds(to);
        up.then_some(FakeQps {
            generation: 1,
            up: true,
            open: true,
            life: 0,
        })
    }
}

/// What lies between the ranks: QPs, paths, words and alarms.
#[derive(Debug, Default)]
pub(in crate::membership) struct Wire {
    qps: Mutex<QpTable>,
    /// The number of events that ranks see without their HCA.
    rung: Mutex<u64>,
    bell: Condvar,
    /// Generations whose HCA is gone.
    pub(in crate::membership) cut: Mutex<BTreeSet<RankGeneration>>,
    /// Generations whose process has ended, as every rank of the machine sees.
    pub(in crate::membership) dead: Mutex<BTreeSet<RankGeneration>>,
    /// Generations whose end is not seen by any process.
    pub(in crate::membership) unseen: Mutex<BTreeSet<RankGeneration>>,
    /// Slots whose words arrive and are not counted as heard.
    pub(in crate::membership) uncounted: Mutex<BTreeSet<u32>>,
    /// Pairs of slots, the lower first, between which nothing arrives.
    pub(in crate::membership) paths_down: Mutex<BTreeSet<(u32, u32)>>,
    /// The words that were sent. Each entry has sender, call and receiving slot.
    pub(in crate::membership) sent: Mutex<BTreeSet<(RankGeneration, u32, u32)>>,
    /// Call numbers after which all ranks go on with another number, as if they had made all calls between the two.
    pub(in crate::membership) leaps: Mutex<BTreeMap<u32, u32>>,
    /// Alarms that HCAs have not reported yet.
    pub(in crate::membership) alarms: Mutex<BTreeMap<RankGeneration, Vec<Alarm>>>,
    /// How many more connections from one slot to another fail.
    pub(in crate::membership) refuse: Mutex<BTreeMap<(u32, u32), u32>>,
    /// Names that the next list of a rank leaves out (`cut_store.rs`).
    pub(in crate::membership) unlisted: Arc<Mutex<BTreeSet<(RankGeneration, String)>>>,
    /// The name of a thread that the system does not start for any rank.
    #[cfg(test)]
    pub(in crate::membership) no_thread: Mutex<Option<String>>,
    /// How long an HCA takes to end the QPs to one peer.
    pub(in crate::membership) fence_time: Mutex<Duration>,
}

pub(in crate::membership) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    pub(in crate::membership) fn qps(&self, from: RankGeneration, to: u32) -> Option<FakeQps> {
        lock(&self.qps).get(from, to)
    }

    /// Wakes the threads that watch for trouble.
    fn ring(&self) {
        *lock(&self.rung) += 1;
        self.bell.notify_all();
    }

    /// Returns whether what `from` posts to `to` arrives.
    pub(in crate::membership) fn carries(&self, from: RankGeneration, to: RankGeneration) -> bool {
        let here = self.qps(from, to.0);
        let there = self.qps(to, from.0);
        let sends = here.is_some_and(|qps| qps.up && qps.open && qps.generation == to.1);
        let takes = there.is_some_and(|qps| qps.up && qps.generation == from.1);
        let same_life = here.map(|qps| qps.life) == there.map(|qps| qps.life);
        sends && takes && same_life && self.has_path(from, to)
    }

    /// Returns whether packets between `a` and `b` arrive.
    fn has_path(&self, a: RankGeneration, b: RankGeneration) -> bool {
        let pair = (a.0.min(b.0), a.0.max(b.0));
        let cut = lock(&self.cut);
        !cut.contains(&a) && !cut.contains(&b) && !lock(&self.paths_down).contains(&pair)
    }
}

/// The QPs of one generation.
#[derive(Debug)]
pub(in crate::membership) struct FakeTransport {
    wire: Arc<Wire>,
    own: RankGeneration,
    slots: u32,
    founders: Slots,
    store: Arc<dyn Store>,
    layer: Arc<FakeLayer>,
    process: Process,
    watch: Duration,
    /// True if the store may have records of QPs, which it has only if a test writes them.
    leaves_records: bool,
    /// The value of `rung` when the thread that watches last looked.
    seen: AtomicU64,
}

impl Transport for FakeTransport {
    fn slot(&self) -> u32 {
        self.own.0
    }

    fn generation(&self) -> u32 {
        self.own.1
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    fn founders(&self) -> Vec<u32> {
        self.founders.iter().collect()
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn process(&self) -> Process {
        self.process.clone()
    }

    #[cfg(test)]
    fn may_start(&self, thread: &str) -> Result<(), crate::error::ThreadRefused> {
        if lock(&self.wire.no_thread).as_deref() == Some(thread) {
            let cause = std::io::ErrorKind::WouldBlock.into();
            Err(crate::error::ThreadRefused::new(thread, &cause))
        } else {
            Ok(())
        }
    }

    fn rest(&self) {
        let mut rung = lock(&self.wire.rung);
        if *rung == self.seen.load(Ordering::Relaxed) {
            let waited = self.wire.bell.wait_timeout(rung, self.watch);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.seen.store(*rung, Ordering::Relaxed);
    }

    fn hello(&self) -> Result<Option<(String, Vec<u8>)>, TeamError> {
        Ok(None)
    }

    fn fail_peer(&self, peer: u32) -> Result<(), TeamError> {
        std::thread::sleep(*lock(&self.wire.fence_time));
        if let Some(qps) = lock(&self.wire.qps).get_mut(self.own, peer) {
            (qps.up, qps.open) = (false, false);
            qps.life += 1;
        }
        Ok(())
    }

    fn newest(&self, peer: u32) -> u32 {
        lock(&self.wire.qps).newest(self.own, peer)
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn connect_peer(&self, peer: u32, generation: u32) -> Result<Meeting, TeamError> {
        if let Some(left) = lock(&self.wire.refuse).get_mut(&(self.own.0, peer))
            && *left > 0
        {
            *left -= 1;
            let limit = "a QP, which could not be made";
            return Err(TeamError::limit("peer", peer, limit));
        }
        let mut table = lock(&self.wire.qps);
        let (qps, newest) = (table.get(self.own, peer), table.newest(self.own, peer));
        match qps {
            Some(qps) if qps.generation == generation && qps.up => {}
            // This end has given up the QPs that it had not proven, and makes them anew.
            Some(qps) if qps.generation == generation && newest == generation => {
                drop(table);
                return Ok(if self.reunite_peer(peer, generation)? {
                    Meeting::Proven
                } else {
                    Meeting::Unproven
                });
            }
            Some(qps) if newest > generation || qps.generation == generation => {
                return Err(TeamError::limit("generation", generation, "newer"));
            }
            _ => {
                assert!(!self.layer.needs(peer), "QPs to {peer} are reset in use");
                let qps = FakeQps {
                    generation,
                    up: true,
                    open: false,
                    life: 0,
                };
                table.made.insert((self.own, peer), qps);
            }
        }
        let there = table.get((peer, generation), self.own.0);
        drop(table);
        let has_come = there.is_some_and(|there| there.generation == self.own.1);
        Ok(match has_come {
            false => Meeting::Absent,
            true if self.wire.has_path(self.own, (peer, generation)) => Meeting::Proven,
            true => Meeting::Unproven,
        })
    }

    fn words(&self, peer: u32, generation: u32) -> [String; 2] {
        let ends = [
            (self.own, (peer, generation)),
            ((peer, generation), self.own),
        ];
        let table = lock(&self.wire.qps);
        ends.map(|(from, to)| match table.get(from, to.0) {
            Some(qps) if qps.generation == to.1 => "it has made QPs".to_owned(),
            _ => "it has made no QPs".to_owned(),
        })
    }

    fn open_peer(&self, peer: u32) -> Result<(), TeamError> {
        if let Some(qps) = lock(&self.wire.qps).get_mut(self.own, peer) {
            assert!(qps.up, "a peer in error is opened");
            qps.open = true;
        }
        Ok(())
    }

    fn leftovers(&self) -> Sweep {
        if self.leaves_records {
            Sweep::of_team()
        } else {
            Sweep::default()
        }
    }

    fn alarms(&self) -> Vec<Alarm> {
        let mut alarms = lock(&self.wire.alarms);
        alarms.remove(&self.own).unwrap_or_default()
    }

    fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        let mut table = lock(&self.wire.qps);
        let there = table.get((peer, generation), self.own.0);
        let there = there.filter(|there| there.generation == self.own.1);
        let Some(here) = table.get_mut(self.own, peer) else {
            return Err(TeamError::NotConnected { peer });
        };
        if here.generation != generation {
            return Err(TeamError::limit("generation", generation, "another"));
        }
        let newest = there.map_or(0, |there| there.life);
        if !here.up || here.life < newest {
            assert!(!self.layer.needs(peer), "QPs to {peer} are reset in use");
            (here.up, here.life) = (true, here.life.max(newest));
        }
        let life = here.life;
        drop(table);
        let both = there.is_some_and(|there| there.up && there.life == life);
        Ok(both && self.wire.has_path(self.own, (peer, generation)))
    }

    fn rails(&self) -> usize {
        1
    }

    fn completed(&self, _: u32) -> Result<u64, TeamError> {
        Ok(0)
    }

    fn ended(&self) -> BTreeSet<RankGeneration> {
        lock(&self.wire.dead).clone()
    }

    fn has_failed(&self, _: u32) -> Result<bool, TeamError> {
        Ok(false)
    }

    fn failing(&self) -> Vec<u32> {
        // A rank learns of failed QPs only if it posts.
        let own = (self.own, 0, 0)..=(self.own, u32::MAX, u32::MAX);
        let posted = lock(&self.wire.sent).range(own).next().is_some();
        let slots = if posted { 0..self.slots } else { 0..0 };
        slots.filter(|slot| self.finds_failed(*slot)).collect()
    }

    fn failure(&self, peer: u32) -> Result<Option<Cause>, TeamError> {
        let failed = self.finds_failed(peer);
        Ok(failed.then_some(Cause::QpError(0x8115)))
    }
}

impl FakeTransport {
    /// Returns whether nothing that this rank posts arrives at `peer`. QPs that the host has ended itself do not count as failed.
    fn finds_failed(&self, peer: u32) -> bool {
        let qps = self.wire.qps(self.own, peer);
        let used = qps.filter(|qps| qps.open && qps.up);
        used.is_some_and(|qps| !self.wire.carries(self.own, (peer, qps.generation)))
    }
}

/// Returns a founder in slot 0 of `ranks`. The caller makes the turns of the thread that follows the rules.
pub(in crate::membership) fn founder(
    store: &Arc<dyn Store>,
    ranks: u32,
) -> (Arc<dyn Transport>, Arc<dyn Layer>) {
    let (wire, own) = (Arc::<Wire>::default(), (0, 1));
    let founders: Slots = (0..ranks).collect();
    lock(&wire.qps).founders = founders.clone();
    let layer = Arc::new(FakeLayer::new(
        Arc::clone(&wire),
        own,
        Some(founders.clone()),
    ));
    let transport = FakeTransport {
        wire,
        own,
        slots: ranks,
        founders,
        store: Arc::clone(store),
        layer: Arc::clone(&layer),
        process: Process::this(),
        watch: Duration::ZERO,
        leaves_records: true,
        seen: AtomicU64::new(0),
    };
    (Arc::new(transport), layer)
}

/// One generation of a rank.
#[derive(Debug)]
pub struct Rank {
    pub(in crate::membership) own: RankGeneration,
    pub(in crate::membership) layer: Arc<FakeLayer>,
    pub(in crate::membership) group: Option<Group>,
    pub(in crate::membership) cut: Arc<AtomicBool>,
    /// The promises of this rank are not written.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests set it"))]
    pub(in crate::membership) no_promise: Arc<AtomicBool>,
    caller: Option<JoinHandle<()>>,
}

/// How a world and its ranks are made.
pub struct WorldConfig {
    /// Number of slots of the team.
    pub slots: u32,
    /// Number of ranks that found the team, from slot 0 on.
    pub founders: u32,
    /// Bounds of the group.
    pub group: GroupConfig,
    /// True if each rank makes calls all the time. This takes one more thread for each rank. Without calls no rank meets another.
    pub calls: bool,
    /// Longest time between two looks of the threads that watch. They look at once when the end of a rank is seen by all.
    pub watch: Duration,
    /// True if all ranks see the end of another by themselves. If not, its process or its lease has to show it.
    pub seen: bool,
    /// The process that stands for a new generation of this slot.
    pub process: Box<dyn FnMut(u32) -> Process>,
}

impl WorldConfig {
    /// Returns a configuration in which all slots found the team, make calls and are threads of this process.
    #[must_use]
    pub fn new(slots: u32, group: GroupConfig) -> Self {
        Self {
            slots,
            founders: slots,
            group,
            calls: true,
            watch: Duration::from_millis(1),
            seen: true,
            process: Box::new(|_| Process::this()),
        }
    }
}

impl Debug for WorldConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            slots, founders, ..
        } = self;
        write!(f, "WorldConfig({founders} of {slots})")
    }
}

/// All ranks of a group.
#[derive(Debug)]
pub struct World {
    pub(in crate::membership) wire: Arc<Wire>,
    pub(in crate::membership) store: Arc<dyn Store>,
    /// The store answers no call.
    pub(in crate::membership) away: Arc<AtomicBool>,
    /// The store answers no call, and fails none before its bound.
    pub(in crate::membership) held: Arc<AtomicBool>,
    /// Time that each call takes, in microseconds.
    pub(in crate::membership) delay: Arc<AtomicU64>,
    /// Generations whose promises are never written.
    pub(in crate::membership) silent: BTreeSet<RankGeneration>,
    pub(in crate::membership) ranks: BTreeMap<u32, Rank>,
    config: WorldConfig,
}

impl World {
    /// Starts the founders that `config` names, which meet in `store`. Each founder makes one call of the store more than a rank of a team:
    /// it draws its generation.
    ///
    /// # Errors
    /// [`GroupError::Bound`] if a bound would drop healthy ranks; errors of the store.
    pub fn new(store: Arc<dyn Store>, config: WorldConfig) -> Result<Self, GroupError> {
        let founders: Slots = (0..config.founders).collect();
        let mut world = Self {
            wire: Arc::default(),
            store,
            away: Arc::default(),
            held: Arc::default(),
            delay: Arc::default(),
            silent: BTreeSet::new(),
            ranks: BTreeMap::new(),
            config,
        };
        lock(&world.wire.qps).founders = founders.clone();
        for slot in founders.iter() {
            let generation = next_generation(world.store.as_ref(), slot)?;
            assert_eq!(generation, 1, "the store is new");
            world.start((slot, 1), founders.clone())?;
        }
        Ok(world)
    }

    /// Starts a new generation of `slot`, which asks to be taken in.
    ///
    /// # Errors
    /// [`GroupError::Thread`] if the system gives no thread; errors of the store.
    pub fn join(&mut self, slot: u32) -> Result<(), GroupError> {
        let generation = next_generation(self.store.as_ref(), slot)?;
        self.start((slot, generation), Slots::default())
    }

    /// Starts the generation `own`: a founder, or one that asks to be taken in.
    pub(in crate::membership) fn start(
        &mut self,
        own: RankGeneration,
        founders: Slots,
    ) -> Result<(), GroupError> {
        let cut = Arc::new(AtomicBool::new(false));
        let no_promise = Arc::new(AtomicBool::new(self.silent.contains(&own)));
        let first = (!founders.is_empty()).then(|| founders.clone());
        let layer = Arc::new(FakeLayer::new(Arc::clone(&self.wire), own, first));
        let transport = Arc::new(FakeTransport {
            wire: Arc::clone(&self.wire),
            own,
            slots: self.config.slots,
            founders,
            store: Arc::new(CutStore {
                store: Arc::clone(&self.store),
                away: Arc::clone(&self.away),
                cut: Arc::clone(&cut),
                held: Arc::clone(&self.held),
                delay: Arc::clone(&self.delay),
                no_promise: Arc::clone(&no_promise),
                bound: MAX_BOUND,
                panics: AtomicBool::new(false),
                planted: Arc::clone(&layer.panics),
                own,
                unlisted: Arc::clone(&self.wire.unlisted),
            }),
            layer: Arc::clone(&layer),
            process: (self.config.process)(own.0),
            watch: self.config.watch,
            leaves_records: false,
            seen: AtomicU64::new(0),
        });
        let group = Group::with_transport(
            transport,
            Arc::clone(&layer) as Arc<dyn Layer>,
            &self.config.group,
        )?;
        let calling = Arc::clone(&layer);
        let call = move || {
            while !calling.ends() {
                let begun = !lock(&calling.views).is_empty();
                let rests = calling.finished() >= calling.last.load(Ordering::Relaxed);
                if begun && !rests {
                    calling.call()
                } else {
                    std::thread::sleep(LOOK)
                }
            }
        };
        let rank = Rank {
            own,
            layer,
            group: Some(group),
            cut,
            no_promise,
            caller: self.config.calls.then(|| std::thread::spawn(call)),
        };
        self.ranks.insert(own.0, rank);
        Ok(())
    }

    /// Ends the process of `slot`, from one moment to the next.
    pub fn kill(&mut self, slot: u32) -> Rank {
        self.kill_all([slot]).pop().expect("one was killed")
    }

    /// Ends the processes of `slots`, all at one moment, so that none of them sees another die.
    pub fn kill_all(&mut self, slots: impl IntoIterator<Item = u32>) -> Vec<Rank> {
        let remove = |slot| self.ranks.remove(&slot).expect("it lives");
        let mut killed: Vec<Rank> = slots.into_iter().map(remove).collect();
        lock(&self.wire.cut).extend(killed.iter().map(|rank| rank.own));
        for rank in &killed {
            rank.cut.store(true, Ordering::Relaxed);
            rank.stop();
        }
        if self.config.seen {
            let unseen = lock(&self.wire.unseen);
            let seen = killed.iter().map(|rank| rank.own);
            lock(&self.wire.dead).extend(seen.filter(|own| !unseen.contains(own)));
        }
        self.wire.ring();
        killed.iter_mut().for_each(|rank| rank.group = None);
        killed
    }

    /// Breaks the QPs between `a` and `b`: they carry nothing until both ends have made them anew, even if the ranks have a path.
    #[cfg(test)]
    pub(in crate::membership) fn fail_qps(&self, a: u32, b: u32) {
        let own = self.ranks[&a].own;
        if let Some(qps) = lock(&self.wire.qps).get_mut(own, b) {
            qps.life += 1;
        }
    }

    /// Returns the slots of all ranks that live.
    #[must_use]
    pub fn slots(&self) -> Vec<u32> {
        self.ranks.keys().copied().collect()
    }

    /// Waits until all living ranks serve in one view of exactly them, and returns how long after `since` the last of them did.
    /// Takes the events of all ranks.
    ///
    /// # Errors
    /// The state of each rank, if no view of all living ranks came within `bound`.
    pub fn settle(&self, since: Instant, bound: Duration) -> Result<Duration, String> {
        let epoch = loop {
            match self.whole_view() {
                Some(epoch) => break epoch,
                None if since.elapsed() < bound => std::thread::sleep(Duration::from_millis(2)),
                None => return Err(self.states()),
            }
        };
        let mut last = since;
        for rank in self.ranks.values() {
            for event in rank.group().events() {
                let serves = match event.what {
                    GroupEventKind::Viewed(view) => view.epoch == epoch,
                    GroupEventKind::Resumed { epoch: of, .. } => of == epoch,
                    _ => false,
                };
                if serves {
                    last = last.max(event.at);
                }
            }
        }
        Ok(last - since)
    }

    /// Returns how many of the living ranks are in each state, in words.
    fn states(&self) -> String {
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        for rank in self.ranks.values() {
            let inner = rank.group().shared.lock();
            let view = inner.view.as_ref();
            let (epoch, members) = view.map_or((0, 0), |view| (view.epoch, view.members.len()));
            let state = format!("{:?} in view {epoch} of {members}", inner.state);
            *states.entry(state).or_default() += 1;
        }
        let states = states
            .iter()
            .map(|(state, ranks)| format!("{ranks} ranks {state}"));
        states.collect::<Vec<String>>().join(", ")
    }

    /// Returns the number of living ranks that others have expelled, or whose group has failed.
    #[must_use]
    pub fn expelled(&self) -> usize {
        let over = |rank: &&Rank| rank.group().state().is_over();
        self.ranks.values().filter(over).count()
    }

    /// Returns how often the calls of a living rank were held for a change. Of all ranks it takes the one that was held most often.
    #[must_use]
    pub fn standstills(&self) -> u64 {
        let promises = |rank: &Rank| rank.group().counters().promises;
        self.ranks.values().map(promises).max().unwrap_or(0)
    }

    /// Returns when the whole calls of each living rank ended, since the last call of this function.
    #[must_use]
    pub fn take_calls(&self) -> BTreeMap<u32, Vec<Instant>> {
        let whole = |rank: &Rank| {
            let done = std::mem::take(&mut *lock(&rank.layer.done));
            done.into_iter()
                .filter(|it| it.whole)
                .map(|it| it.at)
                .collect()
        };
        self.ranks
            .iter()
            .map(|(slot, rank)| (*slot, whole(rank)))
            .collect()
    }

    /// Returns the view in which all living ranks serve, if its members are exactly these ranks and none of them is parted.
    #[must_use]
    pub fn whole_view(&self) -> Option<u32> {
        let serves = |rank: &Rank| {
            let inner = rank.group().shared.lock();
            let epoch = inner.view.as_ref().map(|view| view.epoch);
            epoch.filter(|_| inner.state == GroupState::Serving)
        };
        let mut epochs = self.ranks.values().map(serves);
        let first = epochs.next()??;
        if !epochs.all(|epoch| epoch == Some(first)) {
            return None;
        }
        let living: Members = self.ranks.values().map(|rank| rank.own).collect();
        let same = |rank: &Rank| {
            let inner = rank.group().shared.lock();
            let view = inner.view.as_ref();
            view.is_some_and(|view| view.members == living && view.parted.is_empty())
        };
        self.ranks.values().all(same).then_some(first)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // All ranks are asked to stop before the first one is waited for.
        self.ranks.values().for_each(Rank::stop);
        self.wire.ring();
    }
}

impl Rank {
    /// Returns the group of a rank that lives.
    pub fn group(&self) -> &Group {
        self.group.as_ref().expect("it lives")
    }

    fn stop(&self) {
        self.layer.stop.store(true, Ordering::Relaxed);
        if let Some(group) = &self.group {
            group.shared.stop();
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.stop();
        if let Some(caller) = self.caller.take() {
            let ended = caller.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "a call has failed"
            );
        }
    }
}
