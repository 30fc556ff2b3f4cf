//! A connection, in the part that workers and its control thread share: whether it is open, and its lanes, fences and load.
//!
//! The link breaks when none of its QPs is left. All its QPs go to the error state, and workers drop their lanes once these are dry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::error::EngineError;
use crate::engine::route::counter::Counters;
use crate::engine::route::crossing::Crossing;
use crate::engine::route::fences::{Fence, Fences};
use crate::engine::route::flow::Flows;
use crate::engine::route::lanes::Lanes;
use crate::engine::route::load::Load;
use crate::engine::route::local::{LocalWay, PeerPath};
use crate::error::ThreadPanicked;
use crate::provider::Wake;

#[cfg(test)]
use crate::engine::route::fences::Planted;

/// One connection.
#[derive(Debug)]
pub(in crate::engine) struct Link {
    number: u64,
    incarnation: u64,
    is_broken: AtomicBool,
    /// True if the program of this side has ended the link.
    is_wished: AtomicBool,
    lanes: Lanes,
    fences: Fences,
    /// What the workers of the lanes report of them.
    flows: Flows,
    load: Load,
    /// The way to a peer of this machine. Its lanes have the numbers after those of the QPs.
    local: Option<LocalWay>,
    /// True if the peer may copy to and from this engine.
    is_seated: bool,
    /// The counters of the engine. None: nothing comes from the other end.
    counters: Option<Arc<Counters>>,
    /// What wakes the control thread. None in some tests.
    wake: Option<Wake>,
}

impl Link {
    /// Returns a link to the life `incarnation` of a peer, with a lane for each of `owners`: the worker that has it. There are at most
    /// [`MOST_QPS`](crate::engine::limits::MOST_QPS) lanes. No other link of the engine has the number.
    pub(in crate::engine) fn new(
        number: u64,
        incarnation: u64,
        owners: &[u32],
        wake: Option<Wake>,
    ) -> Self {
        Self {
            number,
            incarnation,
            is_broken: AtomicBool::new(false),
            is_wished: AtomicBool::new(false),
            lanes: Lanes::new(owners.len()),
            fences: Fences::new(owners),
            flows: Flows::new(owners.len()),
            load: Load::new(owners),
            local: None,
            is_seated: false,
            counters: None,
            wake,
        }
    }

    /// Returns the link with this way within the machine. Its lanes from number `qps` on copy.
    pub(in crate::engine) fn with_local(mut self, local: Option<LocalWay>, qps: usize) -> Self {
        self.local = local;
        self.lanes.set_qps(qps);
        self
    }

    /// Returns the link with these crossings of its first lanes. Its workers take small transfers in these turns.
    pub(in crate::engine) fn with_crossings(
        mut self,
        crossings: &[Crossing],
        turns: Vec<u32>,
    ) -> Self {
        self.lanes.set_crossings(crossings);
        self.load.set_turns(turns);
        self
    }

    /// Returns the link. Its slices enter by rails near the memory of the peer if `is_near`.
    pub(in crate::engine) fn with_near(mut self, is_near: bool) -> Self {
        self.lanes.set_near(is_near);
        self
    }

    /// Returns the link. Its peer may copy to and from this engine if `is_seated`.
    pub(in crate::engine) fn with_seat(mut self, is_seated: bool) -> Self {
        self.is_seated = is_seated;
        self
    }

    /// Returns the link with the counters at which its peer counts.
    pub(in crate::engine) fn with_counters(mut self, counters: &Arc<Counters>) -> Self {
        self.counters = Some(Arc::clone(counters));
        self
    }

    /// Returns the number that no other link of the engine has.
    pub(in crate::engine) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the life of the engine at the other end.
    pub(in crate::engine) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the lanes of the link: which take slices, and by which rails they go.
    pub(in crate::engine) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Returns the lives of the lanes, and the fences after them.
    pub(in crate::engine) fn fences(&self) -> &Fences {
        &self.fences
    }

    /// Returns what the workers of the lanes report of them.
    pub(in crate::engine) fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Returns the load of the link: which workers get its transfers, and how many run.
    pub(in crate::engine) fn load(&self) -> &Load {
        &self.load
    }

    /// Returns the way to a peer of this machine, if copies move slices.
    pub(in crate::engine) fn local(&self) -> Option<&LocalWay> {
        self.local.as_ref()
    }

    /// Returns whether the peer may copy to and from this engine.
    pub(in crate::engine) fn is_seated(&self) -> bool {
        self.is_seated
    }

    pub(in crate::engine) fn wake(&self) -> Option<&Wake> {
        self.wake.as_ref()
    }

    /// Returns by which path slices go now.
    pub(in crate::engine) fn path(&self) -> PeerPath {
        let copies = self.lanes.has_copies();
        self.local
            .as_ref()
            .filter(|_| copies)
            .map_or(PeerPath::Nic, LocalWay::path)
    }

    /// Counts so many WRITEs of the peer that have landed with this immediate. An immediate of no counter ends the link.
    pub(in crate::engine) fn count(&self, immediate: u32, writes: u64) {
        let counters = self.counters.as_ref();
        let is_counted = counters.is_some_and(|it| it.add(immediate, writes));
        if !is_counted {
            let peer = self.incarnation;
            tracing::warn!(
                "engine {peer:#x} counts at {immediate}, which is no counter: the connection ends"
            );
            self.break_off();
        }
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
        let panicked = self.fences.panicked();
        Err(panicked.map_or_else(gone, EngineError::WorkerPanicked))
    }

    /// Ends the link, from any thread. Returns whether it was open.
    pub(in crate::engine) fn break_off(&self) -> bool {
        let was_open = !self.is_broken.swap(true, Ordering::SeqCst);
        self.wake_control();
        was_open
    }

    /// Ends the link, because the program wants that.
    pub(in crate::engine) fn end_by_wish(&self) {
        if self.is_open() {
            self.is_wished.store(true, Ordering::SeqCst);
        }
        self.break_off();
    }

    /// Returns whether the program of this side has ended the link.
    pub(in crate::engine) fn is_wished(&self) -> bool {
        self.is_wished.load(Ordering::SeqCst)
    }

    /// Ends the link, because a worker with a lane has panicked. Returns the fence of the link if it stands already: then the worker itself
    /// writes off the slices that it held.
    pub(in crate::engine) fn lose_worker(&self, panicked: &ThreadPanicked) -> Option<Fence> {
        let fence = self.fences.lose_worker(panicked);
        self.break_off();
        fence
    }

    /// Ends the link, because its control thread has panicked. Transfers that are not concluded are written off when the lanes are gone.
    pub(in crate::engine) fn lose_control(&self, panicked: &ThreadPanicked) {
        self.fences.lose_control(panicked);
        self.break_off();
    }

    /// Returns the workers with a lane that takes slices.
    pub(in crate::engine) fn open_workers(&self) -> Vec<u32> {
        self.open_workers_of(u32::MAX)
    }

    /// Returns the workers with a lane that takes slices, among the lanes whose bits are set.
    pub(in crate::engine) fn open_workers_of(&self, lanes: u32) -> Vec<u32> {
        let is_wanted = |lane| self.is_open() && self.lanes.is_open(lane) && lanes & 1 << lane != 0;
        self.fences.workers_of(is_wanted)
    }

    /// Notes that the HCA has failed the QP of the lane, or that the peer is no longer reached within the machine. The link breaks with its
    /// last lane. It also breaks with a lane that copies, if the NIC must not take the place of copies.
    pub(in crate::engine) fn fail_lane(&self, lane: usize) {
        self.lanes.note_failure(lane);
        let is_only =
            lane >= self.lanes.qps() && self.local.as_ref().is_some_and(|way| way.is_only);
        if self.close_lane(lane) == 1 << lane || is_only {
            self.break_off();
        }
    }

    /// Notes that the QP of the lane has failed, and that the provider does not know whether the peer has gone or has only refused. The link
    /// goes on without any lane: the stream of the connection, or the time that a reset may take, says that a peer has gone.
    pub(in crate::engine) fn doubt_lane(&self, lane: usize) {
        self.lanes.note_failure(lane);
        self.close_lane(lane);
    }

    /// Lets the lane take no more slices: its QP is to be reset, because this side wants that or the other end has said so.
    pub(in crate::engine) fn end_lane(&self, lane: usize) {
        self.close_lane(lane);
    }

    /// Ends the lanes of QPs whose crossing `is_meant` accepts, if slices can go another way.
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

    /// Closes a lane. Returns a bit for each lane that was open before.
    fn close_lane(&self, lane: usize) -> u32 {
        let before = self.fences.alone(|| self.lanes.close(lane));
        self.wake_control();
        before
    }

    /// Opens a lane whose pair is connected again, and which its worker is about to get. Returns the number of this life.
    pub(in crate::engine) fn open_lane(&self, lane: usize) -> u32 {
        self.fences.begin_life(lane, || self.lanes.open_again(lane))
    }

    /// Notes that the worker of the lane has dropped it.
    pub(in crate::engine) fn lane_is_gone(&self, lane: usize) {
        self.fences.end_life(lane);
        self.wake_control();
    }

    /// Lets the control thread panic at this place.
    #[cfg(test)]
    pub(in crate::engine) fn plant(&self, planted: Planted) {
        self.fences.plant(planted);
        self.wake_control();
    }

    fn wake_control(&self) {
        if let Some(wake) = &self.wake {
            wake.wake();
        }
    }
}
