//! The state of the checker. Every access of kernels and devices is checked here, one at a time.

mod device;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::access::{Access, Fence, Scope};
use super::agent::{Agent, DEVICE, Identity, Observed, Place};
use super::clock::Clock;
use super::finding::Finding;
use super::l1::L1;
use super::omission::{Omission, Omissions};
use super::report::{Between, Findings, Side};
use super::shadow::{Cell, Granule, Shadow, Word, granules};
use crate::coordinates::{Dim3, ThreadId};

/// The threads of each slot, and from which epoch on each of them had it.
type History = [Vec<(u32, Arc<Identity>)>];

/// The checker's knowledge of all that kernels and devices have done.
#[derive(Debug, Default)]
pub(super) struct State {
    agents: Vec<Option<Agent>>,
    /// The threads of each slot, and from which epoch on each of them had it.
    history: Vec<Vec<(u32, Arc<Identity>)>>,
    last_epoch: Vec<u32>,
    free: Vec<u32>,
    running: HashMap<u64, Running>,
    /// The accesses of ended launches and of all devices. The next launch starts with the knowledge of them.
    host: Clock,
    /// What doorbells have published to the devices, for device memory and for host memory.
    told: [Clock; 2],
    device_epoch: u32,
    told_shared: Option<Arc<Clock>>,
    shadow: Shadow,
    l1: HashMap<(u64, Dim3), L1>,
    /// The ranges of host-mapped memory as kernels address it: start and end.
    host_mapped: BTreeMap<u64, u64>,
    /// As `host_mapped`, as the host and its devices address it, where that differs: start, and end with the start for kernels.
    host_views: BTreeMap<u64, (u64, u64)>,
    versions: u64,
    launches: u64,
    findings: Findings,
    omissions: Omissions,
}

/// The number of slots from which on slots of ended threads are used again within one launch.
const SLOTS: usize = 4096;

/// A launch that has not ended.
#[derive(Debug, Default)]
struct Running {
    /// What its threads know when they begin.
    start: Clock,
    /// The accesses of its ended threads, and the slots of these.
    ended: Clock,
    left: Vec<u32>,
    /// The arrivals at the barrier of its grid: the generation, and what the arrived threads knew.
    grid: [(u32, Clock, Observed); 2],
}

impl State {
    pub(super) fn begin_launch(&mut self) -> u64 {
        self.launches += 1;
        let mut start = self.host.clone();
        start.raise(DEVICE, self.device_epoch);
        let running = Running {
            start,
            ..Running::default()
        };
        self.running.insert(self.launches, running);
        self.launches
    }

    /// Notes that the launch has ended: each later access comes after it, those of devices included.
    pub(super) fn end_launch(&mut self, launch: u64) {
        self.l1.retain(|(of, _), _| *of != launch);
        if let Some(running) = self.running.remove(&launch) {
            self.host.join(&running.ended);
            self.told.iter_mut().for_each(|told| {
                told.join(&running.ended);
            });
            self.told_shared = None;
            self.free.extend(running.left);
        }
    }

    /// Begins a thread. Returns its slot.
    pub(super) fn begin_thread(
        &mut self,
        kernel: &'static str,
        thread: ThreadId,
        place: Place,
    ) -> u32 {
        if self.agents.is_empty() {
            self.add_slot(); // slot 0 is the devices'
        }
        let running = self.running.entry(place.launch).or_default();
        // A slot that is used twice in a launch hides races between its two threads, so slots are reused late.
        let again = if self.agents.len() >= SLOTS {
            running.left.pop()
        } else {
            None
        };
        let start = running.start.clone();
        let slot = again
            .or_else(|| self.free.pop())
            .unwrap_or_else(|| self.add_slot());
        let epoch = self.last_epoch[slot as usize] + 1;
        let identity = Arc::new(Identity {
            kernel,
            thread,
            place,
        });
        self.history[slot as usize].push((epoch, Arc::clone(&identity)));
        self.agents[slot as usize] = Some(Agent::new(slot, epoch, identity, &start));
        slot
    }

    fn add_slot(&mut self) -> u32 {
        self.agents.push(None);
        self.history.push(Vec::new());
        self.last_epoch.push(0);
        u32::try_from(self.agents.len() - 1).unwrap_or(u32::MAX)
    }

    /// Notes that a thread has ended or was abandoned.
    pub(super) fn end_thread(&mut self, slot: u32) {
        if let Some(agent) = self.agents[slot as usize].take() {
            self.last_epoch[slot as usize] = agent.epoch();
            let running = self.running.entry(agent.identity.place.launch).or_default();
            running.ended.join(&agent.clock);
            running.left.push(slot);
        }
    }

    /// Forgets the accesses to bytes that begin a new life.
    pub(super) fn forget(&mut self, addr: u64, bytes: u64) {
        if bytes / 8 > self.shadow.len() as u64 {
            self.shadow
                .retain(|granule, _| granule << 3 < addr || granule << 3 >= addr + bytes);
            return;
        }
        for (granule, _) in granules(addr, bytes) {
            self.shadow.remove(&granule);
        }
    }

    /// Returns whether there are findings that no caller has taken.
    pub(super) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Takes the findings about one launch, or all.
    pub(super) fn take_findings(&mut self, launch: Option<u64>) -> Vec<Finding> {
        self.findings.take(launch)
    }

    pub(super) fn omissions(&mut self) -> &mut Omissions {
        &mut self.omissions
    }

    /// Returns whether the kernel of the thread in `slot`, which has this operation, is to be treated as if it lacked it.
    pub(super) fn lacks(&mut self, slot: u32, what: Omission) -> bool {
        let Some(agent) = &self.agents[slot as usize] else {
            return false;
        };
        self.omissions.apply(agent.identity.kernel, what)
    }

    /// Checks a plain access of a thread.
    pub(super) fn plain(&mut self, access: &Access) {
        self.check_view(access);
        for (granule, mask) in granules(access.addr, access.bytes) {
            self.access(access, granule, mask);
        }
    }

    /// Passes a weak load or a store of a thread through the L1 of its block.
    pub(super) fn through_l1(&mut self, access: &Access) {
        let Access {
            slot,
            addr,
            bytes,
            writes,
            pc,
            ..
        } = *access;
        let Some(agent) = &self.agents[slot as usize] else {
            return;
        };
        let place = agent.identity.place;
        let l1 = self.l1.entry((place.launch, place.block)).or_default();
        if writes {
            l1.store(addr, bytes);
        } else if let Some(loaded_at) = l1.load(addr, bytes, pc) {
            let side = Side::of(&agent.identity, addr, bytes, false, pc);
            self.findings
                .add(Finding::stale(&side, loaded_at), place.launch, [pc, 0]);
        }
    }

    /// Checks an atomic access of a thread.
    pub(super) fn atomic(&mut self, access: &Access) {
        let Access {
            slot, addr, bytes, ..
        } = *access;
        self.check_view(access);
        let device_scope = self.device_scope(addr);
        for (granule, mask) in granules(addr, bytes) {
            self.access(access, granule, mask);
            let Some(entry) = self.shadow.get_mut(&granule) else {
                continue;
            };
            let Some(agent) = &mut self.agents[slot as usize] else {
                continue;
            };
            if access.reads {
                for half in Granule::halves(mask) {
                    if let Some(word) = &entry.words[half] {
                        agent.learn(word.version, &word.published, device_scope);
                    }
                }
            }
            if access.writes {
                self.versions += 1;
                let word = Arc::new(Word {
                    version: self.versions,
                    published: agent.publish(),
                });
                for half in Granule::halves(mask) {
                    entry.words[half] = Some(Arc::clone(&word));
                }
            }
        }
        if access.writes {
            let Some(agent) = &self.agents[slot as usize] else {
                return;
            };
            let place = agent.identity.place;
            if let Some(l1) = self.l1.get_mut(&(place.launch, place.block)) {
                l1.store(addr, bytes);
            }
            if device_scope == Scope::System {
                // The host may act on the word, as on a mailbox.
                self.tell(slot, &[Scope::System, Scope::System]);
            }
        }
    }

    /// Reports a thread that uses the host's address of host-mapped memory, which kernels reach at another address.
    fn check_view(&mut self, access: &Access) {
        let Some(mapped_at) = self.of_host_view(access.addr) else {
            return;
        };
        if let Some(agent) = &self.agents[access.slot as usize] {
            let Access {
                addr,
                bytes,
                writes,
                pc,
                ..
            } = *access;
            let side = Side::of(&agent.identity, addr, bytes, writes, pc);
            let finding = Finding::host_address(&side, mapped_at);
            self.findings
                .add(finding, agent.identity.place.launch, [pc, 0]);
        }
    }

    /// Notes a fence that the kernel has, by itself or with an atomic.
    pub(super) fn fence(&mut self, slot: u32, fence: Fence) {
        let acquire = fence.acquire && !self.lacks(slot, Omission::Acquire);
        let release = fence.release && !self.lacks(slot, Omission::Release);
        self.order(slot, acquire, release, fence.scope);
    }

    fn order(&mut self, slot: u32, acquire: bool, release: bool, scope: Scope) {
        let Some(agent) = &mut self.agents[slot as usize] else {
            return;
        };
        agent.fence(acquire, release, scope);
        let place = agent.identity.place;
        if acquire && scope >= Scope::Gpu {
            self.l1.remove(&(place.launch, place.block));
        }
    }

    /// Checks the part of an access that lies in one granule. `mask` has a bit for each of its bytes.
    fn access(&mut self, access: &Access, granule: u64, mask: u8) {
        let Access {
            slot,
            writes,
            strong,
            pc,
            ..
        } = *access;
        let addr = granule << 3;
        let device_scope = self.device_scope(addr);
        let entry = self.shadow.entry(granule).or_default();
        let Some(agent) = &self.agents[slot as usize] else {
            return;
        };
        let me = agent.identity.place;
        for old in &entry.cells {
            if old.slot == slot || old.mask & mask == 0 || !(old.writes || writes) {
                continue;
            }
            let side = || {
                let bytes = u64::from((old.mask & mask).count_ones());
                let first = u64::from((old.mask & mask).trailing_zeros());
                Side::of(&agent.identity, addr + first, bytes, writes, pc)
            };
            if access.constant && may_change(&self.history, old, me.launch) {
                let other = other_side(&self.history, addr, old);
                let finding = Finding::constant(&side(), &other);
                self.findings.add(finding, me.launch, [pc, old.pc]);
                continue;
            }
            let apart = match other_place(&self.history, old) {
                Some(place) => me.scope_with(&place),
                None => device_scope,
            };
            let reach = strong.zip(old.strong).map(|(a, b)| a.min(b));
            if reach.is_some_and(|reach| reach >= apart) {
                continue;
            }
            let ordered = if access.reads {
                agent.relies_on(old.slot, old.epoch)
            } else {
                agent.comes_after(old.slot, old.epoch)
            };
            if !ordered {
                let other = other_side(&self.history, addr, old);
                let between = Between {
                    old,
                    writer: self.agents[old.slot as usize].as_ref(),
                    reader: agent,
                    apart,
                    reach,
                };
                let finding = Finding::unordered(&side(), &other, &between);
                self.findings.add(finding, me.launch, [pc, old.pc]);
            }
        }
        let cell = Cell {
            slot,
            epoch: agent.epoch(),
            mask,
            writes,
            strong,
            pc,
        };
        entry.add(cell, |old| agent.relies_on(old.slot, old.epoch));
    }

    /// Notes that the threads in `slots` have met. `orders`: the meeting orders memory among them.
    pub(super) fn meet(&mut self, slots: &[u32], orders: bool) {
        let (mut clock, mut heard) = (Clock::default(), Observed::default());
        for slot in slots {
            if let Some(agent) = &self.agents[*slot as usize] {
                join_arrival(agent, orders, &mut clock, &mut heard);
            }
        }
        for slot in slots {
            if let Some(agent) = &mut self.agents[*slot as usize] {
                leave_meeting(agent, orders, &clock, &heard);
            }
        }
    }

    /// Notes that a thread comes to barrier number `generation` of its launch's grid.
    pub(super) fn arrive_at_grid(&mut self, slot: u32, generation: u32) {
        let Some(agent) = &self.agents[slot as usize] else {
            return;
        };
        let running = self.running.entry(agent.identity.place.launch).or_default();
        let (of, clock, heard) = &mut running.grid[generation as usize % 2];
        if *of != generation {
            *of = generation;
            clock.clear();
            *heard = Observed::default();
        }
        join_arrival(agent, true, clock, heard);
    }

    /// Notes that a thread has left that barrier. A fence of scope gpu is part of it.
    pub(super) fn leave_grid(&mut self, slot: u32, generation: u32) {
        if self.lacks(slot, Omission::GridBarrier(generation)) {
            return;
        }
        let Some(agent) = &mut self.agents[slot as usize] else {
            return;
        };
        if let Some(running) = self.running.get(&agent.identity.place.launch) {
            let (_, clock, heard) = &running.grid[generation as usize % 2];
            leave_meeting(agent, true, clock, heard);
        }
        self.order(slot, true, true, Scope::Gpu);
    }
}

fn join_arrival(agent: &Agent, orders: bool, clock: &mut Clock, heard: &mut Observed) {
    if orders {
        clock.join(&agent.clock);
    }
    let hearsay = if orders {
        agent.observed.clone()
    } else {
        agent.hearsay()
    };
    for (all, one) in heard.seen.iter_mut().zip(&hearsay.seen) {
        all.join(one);
    }
    for (all, one) in heard.performed.iter_mut().zip(&hearsay.performed) {
        all.join(one);
    }
}

fn leave_meeting(agent: &mut Agent, orders: bool, clock: &Clock, heard: &Observed) {
    agent.hear(heard);
    if orders {
        agent.clock.join(clock);
        agent.advance();
    }
}

fn identity<'a>(history: &'a History, cell: &Cell) -> Option<&'a Identity> {
    let lives = history.get(cell.slot as usize)?;
    let before = lives.partition_point(|(start, _)| *start <= cell.epoch);
    lives.get(before.checked_sub(1)?).map(|(_, who)| &**who)
}

/// Returns whether that write shows that a launch must not load the bytes as constant.
fn may_change(history: &History, old: &Cell, launch: u64) -> bool {
    let place = other_place(history, old);
    old.writes && place.is_none_or(|place| place.launch == launch)
}

/// Returns where the thread of the other access runs. `None` for a device.
fn other_place(history: &History, cell: &Cell) -> Option<Place> {
    identity(history, cell).map(|who| who.place)
}

fn other_side(history: &History, granule: u64, cell: &Cell) -> Side {
    let addr = granule + u64::from(cell.mask.trailing_zeros());
    let bytes = u64::from(cell.mask.count_ones());
    match identity(history, cell) {
        Some(who) => Side::of(who, addr, bytes, cell.writes, cell.pc),
        None => Side::device(addr, bytes, cell.writes),
    }
}
