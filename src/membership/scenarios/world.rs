//! Ranks without HCA and GPU: QPs are entries of a table, calls are made by a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rendezvous::{MAX_BOUND, Store, StoreError};

use super::cut_store::CutStore;
use super::layer::FakeLayer;
use crate::membership::event::Cause;
use crate::membership::layer::Layer;
use crate::membership::next_generation;
use crate::membership::rules::record::RankGeneration;
use crate::membership::transport::{Alarm, Transport};
use crate::membership::{Group, GroupConfig};
use crate::team::TeamError;

/// Longest wait of a call for one member.
pub(super) const DEADLINE: Duration = Duration::from_millis(400);
/// Pause between two looks of a thread that waits.
pub(super) const LOOK: Duration = Duration::from_micros(300);

/// One direction of QPs between two generations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) generation: u32,
    pub(super) up: bool,
    open: bool,
    /// How often either end has made it anew.
    life: u64,
}

/// What is between all ranks.
#[derive(Debug, Default)]
pub(super) struct Wire {
    links: Mutex<BTreeMap<(RankGeneration, u32), Link>>,
    /// Generations whose HCA is gone.
    pub(super) cut: Mutex<BTreeSet<RankGeneration>>,
    /// Generations whose process has ended, as all see.
    pub(super) dead: Mutex<BTreeSet<RankGeneration>>,
    /// Generations whose end no process sees.
    pub(super) unseen: Mutex<BTreeSet<RankGeneration>>,
    /// Pairs of slots, the lower first, between which nothing arrives.
    pub(super) links_down: Mutex<BTreeSet<(u32, u32)>>,
    /// What was sent: by whom, in which call, to which slot.
    pub(super) sent: Mutex<BTreeSet<(RankGeneration, u32, u32)>>,
    /// What HCAs tell by themselves.
    pub(super) alarms: Mutex<BTreeMap<RankGeneration, Vec<Alarm>>>,
    /// Connections that fail: whose, to which slot, how often still.
    pub(super) refuse: Mutex<BTreeMap<(u32, u32), u32>>,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    pub(super) fn link(&self, from: RankGeneration, to: u32) -> Option<Link> {
        lock(&self.links).get(&(from, to)).copied()
    }

    /// Whether what `from` posts to `to` arrives.
    pub(super) fn carries(&self, from: RankGeneration, to: RankGeneration) -> bool {
        let here = self.link(from, to.0);
        let there = self.link(to, from.0);
        let sends = here.is_some_and(|link| link.up && link.open && link.generation == to.1);
        let takes = there.is_some_and(|link| link.up && link.generation == from.1);
        let same_life = here.map(|link| link.life) == there.map(|link| link.life);
        sends && takes && same_life && self.has_path(from, to)
    }

    /// Whether packets between the two arrive.
    fn has_path(&self, a: RankGeneration, b: RankGeneration) -> bool {
        let pair = (a.0.min(b.0), a.0.max(b.0));
        let cut = lock(&self.cut);
        !cut.contains(&a) && !cut.contains(&b) && !lock(&self.links_down).contains(&pair)
    }
}

/// The QPs of one generation.
#[derive(Debug)]
pub(super) struct FakeTransport {
    wire: Arc<Wire>,
    own: RankGeneration,
    slots: u32,
    founders: Vec<u32>,
    store: Arc<dyn Store>,
    layer: Arc<FakeLayer>,
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
        self.founders.clone()
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

    fn hello(&self) -> Result<(), TeamError> {
        Ok(())
    }

    fn fail_peer(&self, peer: u32) -> Result<(), TeamError> {
        if let Some(link) = lock(&self.wire.links).get_mut(&(self.own, peer)) {
            (link.up, link.open) = (false, false);
            link.life += 1;
        }
        Ok(())
    }

    fn connect_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        if let Some(left) = lock(&self.wire.refuse).get_mut(&(self.own.0, peer))
            && *left > 0
        {
            *left -= 1;
            let limit = "a QP, which could not be made";
            return Err(TeamError::limit("peer", peer, limit));
        }
        let mut links = lock(&self.wire.links);
        let link = links.get(&(self.own, peer)).copied();
        match link {
            Some(link) if link.generation == generation && link.up => {}
            Some(link) if link.generation >= generation => {
                return Err(TeamError::limit("generation", generation, "newer"));
            }
            _ => {
                assert!(!self.layer.needs(peer), "QPs to {peer} are reset in use");
                let link = Link {
                    generation,
                    up: true,
                    open: false,
                    life: 0,
                };
                links.insert((self.own, peer), link);
            }
        }
        let there = links.get(&((peer, generation), self.own.0));
        Ok(there.is_some_and(|there| there.generation == self.own.1))
    }

    fn open_peer(&self, peer: u32) -> Result<(), TeamError> {
        if let Some(link) = lock(&self.wire.links).get_mut(&(self.own, peer)) {
            assert!(link.up, "a peer in error is opened");
            link.open = true;
        }
        Ok(())
    }

    fn forget(&self, _: &dyn Fn(u32, u32) -> bool) -> Result<(), StoreError> {
        Ok(())
    }

    fn alarms(&self) -> Vec<Alarm> {
        let mut alarms = lock(&self.wire.alarms);
        alarms.remove(&self.own).unwrap_or_default()
    }

    fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        let mut links = lock(&self.wire.links);
        let there = links.get(&((peer, generation), self.own.0)).copied();
        let there = there.filter(|there| there.generation == self.own.1);
        let Some(here) = links.get_mut(&(self.own, peer)) else {
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
        drop(links);
        let both = there.is_some_and(|there| there.up && there.life == life);
        Ok(both && self.wire.has_path(self.own, (peer, generation)))
    }

    fn rails(&self) -> usize {
        1
    }

    fn completed(&self, _: u32) -> Result<u64, TeamError> {
        Ok(0)
    }

    fn has_ended(&self, peer: u32, generation: u32) -> bool {
        lock(&self.wire.dead).contains(&(peer, generation))
    }

    fn has_failed(&self, _: u32) -> Result<bool, TeamError> {
        Ok(false)
    }

    fn failure(&self, peer: u32) -> Result<Option<Cause>, TeamError> {
        let Some(link) = self.wire.link(self.own, peer) else {
            return Ok(None);
        };
        let broken = link.open && !self.wire.carries(self.own, (peer, link.generation));
        // Only who posts finds out, and the host's own doing is no failure.
        let posted = lock(&self.wire.sent)
            .iter()
            .any(|(from, ..)| *from == self.own);
        Ok((broken && link.up && posted).then_some(Cause::QpError(0x8115)))
    }
}

/// One generation that calls all the time.
pub(super) struct Rank {
    pub(super) own: RankGeneration,
    pub(super) layer: Arc<FakeLayer>,
    pub(super) group: Option<Group>,
    pub(super) cut: Arc<AtomicBool>,
    caller: Option<JoinHandle<()>>,
}

/// All ranks of a group.
pub(super) struct World {
    pub(super) wire: Arc<Wire>,
    pub(super) store: Arc<dyn Store>,
    /// The store answers nobody.
    pub(super) away: Arc<AtomicBool>,
    /// The store answers nobody, and fails no call before its bound.
    pub(super) held: Arc<AtomicBool>,
    /// Time that each call takes, us.
    pub(super) delay: Arc<AtomicU64>,
    pub(super) slots: u32,
    pub(super) ranks: BTreeMap<u32, Rank>,
    pub(super) config: GroupConfig,
}

impl World {
    /// `founders` of `slots` ranks.
    pub(super) fn new(
        store: Arc<dyn Store>,
        slots: u32,
        founders: u32,
        config: GroupConfig,
    ) -> Self {
        let mut world = Self {
            wire: Arc::default(),
            store,
            away: Arc::default(),
            held: Arc::default(),
            delay: Arc::default(),
            slots,
            ranks: BTreeMap::new(),
            config,
        };
        let up = Link {
            generation: 1,
            up: true,
            open: true,
            life: 0,
        };
        for from in 0..founders {
            for to in (0..founders).filter(|to| *to != from) {
                lock(&world.wire.links).insert(((from, 1), to), up);
            }
        }
        for slot in 0..founders {
            assert_eq!(next_generation(world.store.as_ref(), slot).unwrap(), 1);
            world.start((slot, 1), (0..founders).collect());
        }
        world
    }

    /// A new generation of `slot` asks to be taken in.
    pub(super) fn join(&mut self, slot: u32) -> RankGeneration {
        let generation = next_generation(self.store.as_ref(), slot).unwrap();
        self.start((slot, generation), Vec::new());
        (slot, generation)
    }

    fn start(&mut self, own: RankGeneration, founders: Vec<u32>) {
        let cut = Arc::new(AtomicBool::new(false));
        let first = (!founders.is_empty()).then(|| founders.clone());
        let layer = Arc::new(FakeLayer::new(Arc::clone(&self.wire), own, first));
        let transport = Arc::new(FakeTransport {
            wire: Arc::clone(&self.wire),
            own,
            slots: self.slots,
            founders,
            store: Arc::new(CutStore {
                store: Arc::clone(&self.store),
                away: Arc::clone(&self.away),
                cut: Arc::clone(&cut),
                held: Arc::clone(&self.held),
                delay: Arc::clone(&self.delay),
                bound: MAX_BOUND,
                panics: AtomicBool::new(false),
            }),
            layer: Arc::clone(&layer),
        });
        let group = Group::with_transport(
            transport,
            Arc::clone(&layer) as Arc<dyn Layer>,
            &self.config,
        );
        let calling = Arc::clone(&layer);
        let caller = std::thread::spawn(move || {
            while !calling.ends() {
                let begun = !lock(&calling.views).is_empty();
                match begun && !calling.frozen.load(Ordering::Relaxed) {
                    true => calling.call(),
                    false => std::thread::sleep(LOOK),
                }
            }
        });
        let rank = Rank {
            own,
            layer,
            group: Some(group.unwrap()),
            cut,
            caller: Some(caller),
        };
        self.ranks.insert(own.0, rank);
    }

    /// The process of `slot` is gone, from one moment to the next.
    pub(super) fn kill(&mut self, slot: u32) -> Rank {
        let mut rank = self.ranks.remove(&slot).expect("it lives");
        lock(&self.wire.cut).insert(rank.own);
        if !lock(&self.wire.unseen).contains(&rank.own) {
            lock(&self.wire.dead).insert(rank.own);
        }
        rank.cut.store(true, Ordering::Relaxed);
        rank.layer.stop.store(true, Ordering::Relaxed);
        rank.group = None;
        rank
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.layer.stop.store(true, Ordering::Relaxed);
        if let Some(caller) = self.caller.take() {
            let ended = caller.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "a call has failed"
            );
        }
    }
}
