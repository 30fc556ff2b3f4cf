//! What the two ends of a connection agree on, as workers and its control thread share it. It says whether the link is open,
//! which workers have lanes, and whether the pairs of QPs are fenced.
//!
//! When one QP fails and others are left, its pair is reset at both ends and used again: a new life of the lane. When none is
//! left the link breaks. All its QPs go to the error state, and workers drop their lanes as these run dry. Both ends reset the
//! pairs and tell each other. Only after such a reset can no packet land any more. So a transfer of which a slice has failed is
//! concluded after the fences of those lanes or of the link. If the other end does not answer, it is concluded with a report
//! that says so.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::deadline::Looks;
use crate::engine::error::EngineError;
use crate::engine::ids::TransferId;
use crate::engine::limits::MOST_QPS;
use crate::engine::route::counter::Counters;
use crate::engine::route::crossing::Crossing;
use crate::engine::route::flow::{Flow, Stalled};
use crate::engine::route::lanes::Lanes;
use crate::engine::route::local::{LocalWay, PeerPath};
use crate::engine::route::rails::number_of;
use crate::engine::route::share;
use crate::error::ThreadPanicked;
use crate::provider::local::Reach;
use crate::provider::{Cause, Wake};

/// A life of each lane, counted from 1 on; 0: none.
pub(in crate::engine) type Lives = [u32; MOST_QPS];

/// One connection.
#[derive(Debug)]
pub(in crate::engine) struct Link {
    /// No other link of the engine has it.
    pub(in crate::engine) number: u64,
    /// The life of the engine at the other end.
    pub(in crate::engine) incarnation: u64,
    is_broken: AtomicBool,
    /// This side has wanted its end.
    is_wished: AtomicBool,
    /// Workers that have a lane, in their order.
    workers: Vec<u32>,
    /// The workers in the order in which they take small transfers. A worker stands in it as often as the speed of its rail says.
    turns: Vec<u32>,
    turn: AtomicU32,
    lanes: Lanes,
    /// A bit for each lane that has failed and whose rail has not learnt of it.
    failed: AtomicU32,
    /// To a peer of this machine. Its lanes have the numbers after those of the QPs.
    local: Option<LocalWay>,
    is_seated: bool,
    /// Of the engine; none where nothing comes from the other end.
    counters: Option<Arc<Counters>>,
    resets: AtomicU64,
    /// By lane.
    flows: Box<[Flow]>,
    /// Transfers that are not concluded.
    running: AtomicU32,
    /// Those of them that no copy moves.
    for_nic: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the control thread; none in an engine without an HCA.
    wake: Option<Wake>,
}

#[derive(Debug, Default)]
struct State {
    lanes: Vec<LaneState>,
    /// Transfers that wait for the fence of a lane, or of all.
    waiting: Vec<TransferId>,
    fence: Option<Fence>,
    /// The first worker with a lane that has panicked.
    panicked: Option<ThreadPanicked>,
    /// The control thread has.
    control: Option<ThreadPanicked>,
    #[cfg(test)]
    planted: Option<Planted>,
}

/// Where a test lets the control thread panic, once.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Planted {
    /// While it watches the connection.
    Watch,
    /// While it takes the connection down.
    End,
}

#[derive(Debug)]
struct LaneState {
    worker: u32,
    life: u32,
    /// Both ends have reset the pair after this life.
    fenced: u32,
    /// The worker has not dropped it.
    is_held: bool,
}

/// What a link leaves to its control thread when it has ended.
#[derive(Debug)]
pub(in crate::engine) struct Left {
    /// Transfers that have waited for the fence.
    pub(in crate::engine) waiting: Vec<TransferId>,
    /// The thread that has panicked. No thread finishes the slices that a worker held, or serves the QPs for the control thread.
    pub(in crate::engine) panicked: Option<ThreadPanicked>,
}

/// What is known of the other end once this one is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Fence {
    /// The other end is reset too: nothing lands in its memory.
    Whole,
    /// It did not answer.
    RemoteUnknown,
}

impl LaneState {
    fn first(worker: u32) -> Self {
        Self {
            worker,
            life: 1,
            fenced: 0,
            is_held: true,
        }
    }
}

impl Link {
    /// A link of so many lanes, at most [`MOST_QPS`], of which each belongs to the worker that is named.
    pub(in crate::engine) fn new(
        (number, incarnation): (u64, u64),
        lanes: &[u32],
        wake: Option<Wake>,
    ) -> Self {
        let mut workers = lanes.to_vec();
        workers.sort_unstable();
        workers.dedup();
        Self {
            number,
            incarnation,
            is_broken: AtomicBool::new(false),
            is_wished: AtomicBool::new(false),
            turns: workers.clone(),
            workers,
            turn: AtomicU32::new(0),
            lanes: Lanes::new(lanes.len()),
            failed: AtomicU32::new(0),
            local: None,
            is_seated: false,
            counters: None,
            resets: AtomicU64::new(0),
            flows: lanes.iter().map(|_| Flow::default()).collect(),
            running: AtomicU32::new(0),
            for_nic: AtomicU32::new(0),
            state: Mutex::new(State {
                lanes: lanes.iter().copied().map(LaneState::first).collect(),
                ..State::default()
            }),
            changed: Condvar::new(),
            wake,
        }
    }

    /// Its lanes: which take slices, and by which rails they go.
    pub(in crate::engine) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The same, where the lanes from number `qps` on copy within the machine.
    pub(in crate::engine) fn with_local(mut self, local: Option<LocalWay>, qps: usize) -> Self {
        self.local = local;
        self.lanes.set_qps(qps);
        self
    }

    /// The same, whose first lanes cross like this; the turns of workers with small transfers.
    pub(in crate::engine) fn with_crossings(
        mut self,
        crossings: &[Crossing],
        turns: Vec<u32>,
    ) -> Self {
        self.lanes.set_crossings(crossings);
        self.turns = turns;
        self
    }

    /// The same, whose slices enter by rails near the memory of the peer.
    pub(in crate::engine) fn with_near(mut self, is_near: bool) -> Self {
        self.lanes.set_near(is_near);
        self
    }

    /// By which copies get at the peer's memory.
    pub(in crate::engine) fn reach(&self) -> Option<&Reach> {
        self.local.as_ref().map(|way| &*way.reach)
    }

    /// Returns whether copies move all transfers of the link, and the NIC does not take their place.
    pub(in crate::engine) fn only_copies(&self) -> bool {
        self.local.as_ref().is_some_and(|way| way.is_only)
    }

    /// What the worker of the lane says of it.
    pub(in crate::engine) fn flow(&self, lane: usize) -> Option<&Flow> {
        self.flows.get(lane)
    }

    /// Most slices that the lane of a QP may have in flight beside the others that take any slice as it does.
    pub(in crate::engine) fn window(
        &self,
        lane: usize,
        (chain, each): (u32, u64),
        now: Instant,
    ) -> u32 {
        // By place each lane may take every slice; near the memory of the peer only some lanes do.
        if self.lanes.is_near() || lane >= self.lanes.qps() {
            return u32::MAX;
        }
        let others = self
            .lanes
            .open()
            .filter(|it| *it < self.lanes.qps() && *it != lane);
        let others = others.filter_map(|it| self.flows.get(it));
        share::window(chain, each, others.map(|flow| flow.backlog(now)))
    }

    /// The rails by which slices are in flight, the copies of this machine last.
    pub(in crate::engine) fn stalled(&self) -> Vec<Stalled> {
        let mut all: Vec<Stalled> = Vec::new();
        for (lane, flow) in self.flows.iter().enumerate() {
            let (in_flight, since) = flow.look();
            if in_flight == 0 {
                continue;
            }
            let rail = number_of(self.lanes.crossing(lane).own);
            match all.iter_mut().find(|it| it.rail == rail) {
                Some(known) => {
                    known.in_flight += in_flight;
                    known.since_completion = known.since_completion.min(since);
                }
                None => all.push(Stalled {
                    rail,
                    device: None,
                    in_flight,
                    since_completion: since,
                }),
            }
        }
        all.sort_by_key(|it| it.rail.unwrap_or(u32::MAX));
        all
    }

    /// Returns whether the HCA has failed the QP of the lane since this was asked last.
    pub(in crate::engine) fn take_failed(&self, lane: usize) -> bool {
        self.failed.fetch_and(!(1 << lane), Ordering::AcqRel) & 1 << lane != 0
    }

    /// The same; whether its peer may copy to and from this engine.
    pub(in crate::engine) fn with_seat(mut self, is_seated: bool) -> Self {
        self.is_seated = is_seated;
        self
    }

    /// The same, whose peer counts at these counters.
    pub(in crate::engine) fn with_counters(mut self, counters: &Arc<Counters>) -> Self {
        self.counters = Some(Arc::clone(counters));
        self
    }

    /// A WRITE of the peer with this immediate has landed. One of no counter ends the link.
    pub(in crate::engine) fn count(&self, immediate: u32) {
        let is_counted = self.counters.as_ref().is_some_and(|it| it.add(immediate));
        if !is_counted {
            let peer = self.incarnation;
            tracing::warn!(
                "engine {peer:#x} counts at {immediate}, which is no counter: the connection ends"
            );
            self.break_off();
        }
    }

    /// Returns whether its peer may copy to and from this engine.
    pub(in crate::engine) fn is_seated(&self) -> bool {
        self.is_seated
    }

    /// By which path slices go now.
    pub(in crate::engine) fn path(&self) -> PeerPath {
        let copies = self.lanes.has_copies();
        match self.local.as_ref().filter(|_| copies) {
            None => PeerPath::Nic,
            Some(way) if way.reach.is_of_process() => PeerPath::Process,
            Some(_) => PeerPath::Machine,
        }
    }

    /// Lets memory go that a peer of this machine has taken away. Whether it is to be called again.
    pub(in crate::engine) fn sweep(&self) -> bool {
        self.local.as_ref().is_some_and(|way| way.reach.sweep())
    }

    /// Why a peer of this machine is reached no more, where that is known.
    pub(in crate::engine) fn cause_of_end(&self) -> Option<Cause> {
        self.local.as_ref()?.reach.cause_of_end()
    }

    /// Returns whether the link takes transfers.
    pub(in crate::engine) fn is_open(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire)
    }

    /// Refuses transfers to `peer` once the link takes none.
    pub(in crate::engine) fn check(&self, peer: &str) -> Result<(), EngineError> {
        if self.is_open() {
            return Ok(());
        }
        let gone = || EngineError::PeerGone {
            peer: peer.to_owned(),
        };
        let panicked = self.panicked();
        Err(panicked.map_or_else(gone, EngineError::WorkerPanicked))
    }

    /// Ends it, because the program wants that.
    pub(in crate::engine) fn end_by_wish(&self) {
        if self.is_open() {
            self.is_wished.store(true, Ordering::SeqCst);
        }
        self.break_off();
    }

    pub(in crate::engine) fn is_wished(&self) -> bool {
        self.is_wished.load(Ordering::SeqCst)
    }

    pub(in crate::engine) fn has_lanes_of(&self, worker: u32) -> bool {
        self.workers.contains(&worker)
    }

    /// Whose run queues get a transfer: of all workers with a lane, or of one of them in turn.
    pub(in crate::engine) fn workers(&self, is_small: bool) -> &[u32] {
        if !is_small {
            return &self.workers;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        match self.turns.len() {
            0 => &[],
            count => &self.turns[turn % count..=turn % count],
        }
    }

    /// Ends it, from any thread. `true`: it was open.
    pub(in crate::engine) fn break_off(&self) -> bool {
        let was_open = !self.is_broken.swap(true, Ordering::SeqCst);
        if let Some(wake) = &self.wake {
            wake.wake();
        }
        was_open
    }

    /// Ends it, because a worker with a lane has panicked. The fence, if it stands already: then the worker itself writes off.
    pub(in crate::engine) fn lose_worker(&self, panicked: &ThreadPanicked) -> Option<Fence> {
        let mut state = self.state();
        state.panicked.get_or_insert_with(|| panicked.clone());
        let fence = state.fence;
        drop(state);
        self.break_off();
        fence
    }

    /// Ends it, because its control thread has panicked. What is not concluded is written off when the lanes are gone.
    pub(in crate::engine) fn lose_control(&self, panicked: &ThreadPanicked) {
        let mut state = self.state();
        state.control.get_or_insert_with(|| panicked.clone());
        drop(state);
        self.break_off();
    }

    pub(in crate::engine) fn panicked(&self) -> Option<ThreadPanicked> {
        self.state().panicked.clone()
    }

    /// Lets the control thread panic.
    #[cfg(test)]
    pub(in crate::engine) fn plant(&self, planted: Planted) {
        self.state().planted = Some(planted);
        if let Some(wake) = &self.wake {
            wake.wake();
        }
    }

    #[cfg(test)]
    pub(in crate::engine) fn panic_if_planted(&self, at: Planted) {
        let planted = self.state().planted.take_if(|planted| *planted == at);
        assert_eq!(planted, None, "planted");
    }

    pub(in crate::engine) fn wake(&self) -> Option<&Wake> {
        self.wake.as_ref()
    }

    /// Returns whether its worker has the lane, or is about to get it.
    pub(in crate::engine) fn is_lane_held(&self, lane: usize) -> bool {
        self.state().lanes.get(lane).is_some_and(|it| it.is_held)
    }

    pub(in crate::engine) fn worker_of(&self, lane: usize) -> u32 {
        self.state().lanes.get(lane).map_or(0, |it| it.worker)
    }

    /// Workers with a lane that takes slices.
    pub(in crate::engine) fn open_workers(&self) -> Vec<u32> {
        self.workers_with(|_| true)
    }

    /// Workers with one of these lanes that takes slices.
    pub(in crate::engine) fn workers_of(&self, lanes: u32) -> Vec<u32> {
        self.workers_with(|lane| lanes & 1 << lane != 0)
    }

    fn workers_with(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<u32> {
        let state = self.state();
        if !self.is_open() {
            return Vec::new();
        }
        let lanes = state.lanes.iter().enumerate();
        let open = lanes.filter(|(lane, _)| self.lanes.is_open(*lane) && is_wanted(*lane));
        let mut workers: Vec<u32> = open.map(|(_, it)| it.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }

    /// The HCA has failed the QP of the lane, or the peer is not reached within the machine any more. The link breaks with the last
    /// lane, and where the NIC does not take the place of this one.
    pub(in crate::engine) fn fail_lane(&self, lane: usize) {
        self.failed.fetch_or(1 << lane, Ordering::AcqRel);
        let is_only =
            lane >= self.lanes.qps() && self.local.as_ref().is_some_and(|way| way.is_only);
        if self.close_lane(lane) == 1 << lane || is_only {
            self.break_off();
        }
    }

    /// The QP of the lane is to be reset, because this side wants it or the other end has said so.
    pub(in crate::engine) fn end_lane(&self, lane: usize) {
        self.close_lane(lane);
    }

    /// QPs that cross like this are to be reset, if slices go another way.
    pub(in crate::engine) fn end_those(&self, is_meant: impl Fn(Crossing) -> bool) {
        if !self.lanes.has_way_beside(&is_meant) {
            return;
        }
        for lane in (0..self.lanes.qps()).filter(|lane| is_meant(self.lanes.crossing(*lane))) {
            if self.lanes.is_open(lane) {
                self.end_lane(lane);
            }
        }
    }

    /// Which lanes were open before.
    fn close_lane(&self, lane: usize) -> u32 {
        let state = self.state();
        let before = self.lanes.close(lane);
        drop(state);
        if let Some(wake) = &self.wake {
            wake.wake();
        }
        before
    }

    /// The pair is connected anew, and its worker gets the lane: the number of this life.
    pub(in crate::engine) fn open_lane(&self, lane: usize) -> u32 {
        let mut state = self.state();
        self.lanes.open_again(lane);
        self.resets.fetch_add(1, Ordering::Relaxed);
        let Some(it) = state.lanes.get_mut(lane) else {
            return 0;
        };
        it.life += 1;
        it.is_held = true;
        it.life
    }

    /// How often a lane was opened again.
    pub(in crate::engine) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// A worker has dropped the lane.
    pub(in crate::engine) fn lane_is_gone(&self, lane: usize) {
        if let Some(it) = self.state().lanes.get_mut(lane) {
            it.is_held = false;
        }
        self.changed.notify_all();
        if let Some(wake) = &self.wake {
            wake.wake();
        }
    }

    /// Both ends have reset the pair after the present life of the lane. Returns the transfers that may have waited for it.
    pub(in crate::engine) fn fence_lane(&self, lane: usize) -> Vec<TransferId> {
        let mut state = self.state();
        if let Some(it) = state.lanes.get_mut(lane) {
            it.fenced = it.life;
        }
        std::mem::take(&mut state.waiting)
    }

    /// Waits until no lane is left. `false`: the time is over.
    pub(in crate::engine) fn wait_for_lanes(&self, most: Duration) -> bool {
        let mut looks = Looks::within(most);
        let mut state = self.state();
        while state.lanes.iter().any(|lane| lane.is_held) {
            let Some(left) = looks.next() else {
                return false;
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns the fence after the lives that a transfer has lost, if it stands. Else the transfer waits for it.
    pub(in crate::engine) fn behind_fence(&self, id: TransferId, lost: &Lives) -> Option<Fence> {
        let mut state = self.state();
        let mut lanes = state.lanes.iter().zip(lost);
        if lanes.all(|(lane, lost)| *lost <= lane.fenced) {
            return Some(Fence::Whole);
        }
        if state.fence.is_none() {
            state.waiting.push(id);
        }
        state.fence
    }

    /// Returns whether the link has ended, and all that has waited for its end goes on.
    pub(in crate::engine) fn is_over(&self) -> bool {
        self.state().fence.is_some()
    }

    /// The fence stands.
    pub(in crate::engine) fn fence(&self, fence: Fence) -> Left {
        let mut state = self.state();
        state.fence = Some(fence);
        Left {
            waiting: std::mem::take(&mut state.waiting),
            panicked: state.panicked.clone().or_else(|| state.control.clone()),
        }
    }

    /// It moves by the NIC alone, or by copies too.
    pub(in crate::engine) fn begin_transfer(&self, is_for_nic: bool) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.for_nic.fetch_add(is_for_nic.into(), Ordering::Relaxed);
    }

    pub(in crate::engine) fn end_transfer(&self, is_for_nic: bool) {
        self.for_nic.fetch_sub(is_for_nic.into(), Ordering::Relaxed);
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            drop(self.state());
            self.changed.notify_all();
        }
    }

    /// Returns whether transfers run that no copy moves.
    pub(in crate::engine) fn has_transfers_for_nic(&self) -> bool {
        self.for_nic.load(Ordering::Relaxed) > 0
    }

    /// Waits until no transfer runs. How many do when the time is over.
    pub(in crate::engine) fn drain(&self, most: Duration) -> u32 {
        let mut state = self.state();
        let mut running = 0;
        for left in Looks::within(most) {
            running = self.running.load(Ordering::Acquire);
            if running == 0 {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        running
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
