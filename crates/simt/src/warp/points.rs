//! Schedule points: reports of a running CUDA thread, at which it may give way to others.

use super::Warp;
use crate::error::LaunchError;
use crate::thread::Thread;

/// The number of switches without a poll after which a thread no longer counts as polling.
const STEPS_BETWEEN_POLLS: u32 = 8;

/// `me` is the calling thread, a lane of this warp.
impl<S> Warp<S> {
    /// Gives way to other threads, at a load.
    #[inline(always)]
    pub(crate) fn yield_now(&self, me: &Thread<Self>) {
        me.set_credit(self.turns().schedule().loads());
        self.count_step(me);
        self.step_aside(me);
    }

    /// Notes a poll that found nothing, and gives way.
    #[inline(always)]
    pub(crate) fn poll(&self, me: &Thread<Self>) {
        me.polled();
        let turns = self.turns();
        turns.polled(self.mark(me.lane(), turns.spell()));
        if turns.reconverges() {
            self.polls(me);
        }
        self.step_aside(me);
    }

    #[inline(always)]
    fn step_aside(&self, me: &Thread<Self>) {
        self.later.set(self.later.get() | 1 << me.lane());
        me.suspend();
    }

    /// Counts a switch that is not a poll. After some of them, the thread no longer counts as polling.
    #[inline(always)]
    fn count_step(&self, me: &Thread<Self>) {
        let turns = self.turns();
        if me.count_step() == STEPS_BETWEEN_POLLS && self.unmark(me.lane(), turns.spell()) {
            turns.unmarked();
        }
    }

    /// Notes that the calling thread is about to wait for others. It keeps its mark: a wait is no progress.
    #[inline(always)]
    pub(super) fn block(&self, me: &Thread<Self>) {
        self.count_step(me);
        let turns = self.turns();
        let marked = self.marked(turns.spell()) >> me.lane() & 1;
        turns.remove_runnable(marked);
        if turns.reconverges() {
            self.waits(me);
        }
    }

    /// Lets lanes that waited go on.
    #[inline]
    pub(super) fn unblock(&self, lanes: u32) {
        if lanes == 0 {
            return;
        }
        let turns = self.turns();
        let marked = lanes & self.marked(turns.spell());
        turns.add_runnable(lanes.count_ones(), marked.count_ones());
        self.ready.set(self.ready.get() | lanes);
        self.enqueue();
    }

    /// Lets the calling thread wait at the barrier of its block.
    #[inline(always)]
    pub(crate) fn wait_at_barrier(&self, me: &Thread<Self>) {
        self.at_barrier.set(self.at_barrier.get() | 1 << me.lane());
        self.block(me);
        me.suspend();
    }

    /// Lets the lanes at the barrier of the block go on.
    pub(crate) fn leave_barrier(&self) {
        self.unblock(self.at_barrier.replace(0));
    }

    /// Lets the calling thread wait at the barrier of the grid until all threads of the grid have come.
    pub(crate) fn grid_sync(&self, me: &Thread<Self>) {
        let turns = self.turns();
        if !turns.launch().shape().cooperative {
            let (thread, message) = (
                me.id(),
                "simt_grid_sync in a launch that is not cooperative".to_owned(),
            );
            self.fail(me, move || LaunchError::Panic { thread, message });
        }
        turns.count_meeting();
        self.at_grid.set(self.at_grid.get() | 1 << me.lane());
        turns.wait_at_grid();
        self.block(me);
        let grid = turns.launch().grid();
        #[cfg(feature = "tsan")]
        let generation = grid.generation();
        #[cfg(feature = "tsan")]
        if let Some(slot) = me.slot() {
            crate::check::arrive_at_grid(slot, generation);
        }
        turns.judge(grid.arrive());
        me.suspend();
        #[cfg(feature = "tsan")]
        if let Some(slot) = me.slot() {
            crate::check::leave_grid(slot, generation);
        }
    }

    /// Lets the lanes at the barrier of the grid go on.
    pub(crate) fn leave_grid(&self) {
        self.unblock(self.at_grid.replace(0));
    }

    /// Lets the calling lane enter the divergent part at `site`, with the lanes that come to it together.
    pub(crate) fn diverge(&self, me: &Thread<Self>, site: usize) {
        if !self.turns().reconverges() {
            return;
        }
        let (alive, blocked) = (self.alive.get(), self.blocked());
        let enter = self
            .parts
            .borrow_mut()
            .comes(me.lane(), site, alive, blocked);
        self.go_on(me, enter);
    }

    /// Lets the calling lane leave the divergent part that it entered last, with all lanes that entered with it.
    pub(crate) fn reconverge(&self, me: &Thread<Self>) {
        if !self.turns().reconverges() {
            return;
        }
        let left = self.parts.borrow_mut().leaves(me.lane());
        let Some(left) = left else {
            let thread = me.id();
            let message = "simt_reconverge without simt_diverge".to_owned();
            self.fail(me, move || LaunchError::Panic { thread, message });
        };
        self.go_on(me, left);
    }

    /// Lets `lanes` go on. The calling lane waits unless it is among them.
    fn go_on(&self, me: &Thread<Self>, lanes: u32) {
        let bit = 1 << me.lane();
        self.unblock(lanes & !bit);
        if lanes & bit == 0 {
            self.block(me);
            me.suspend();
        }
    }

    /// Notes that the calling lane has polled in vain: lanes in front of a part do not wait for it.
    fn polls(&self, me: &Thread<Self>) {
        let (alive, blocked) = (self.alive.get(), self.blocked());
        let enter = self.parts.borrow_mut().polls(me.lane(), alive, blocked);
        self.unblock(enter);
    }

    /// Notes that the calling lane waits for others: lanes in front of a part do not wait for it.
    fn waits(&self, me: &Thread<Self>) {
        let (alive, blocked) = (self.alive.get(), self.blocked());
        let enter = self.parts.borrow_mut().waits(me.lane(), alive, blocked);
        self.unblock(enter);
    }

    /// Ends the launch with the error that `why` makes. `why` runs later and on the stack of the scheduler, since this stack may be short.
    /// The calling thread never goes on.
    #[cold]
    pub(crate) fn fail(&self, me: &Thread<Self>, why: impl FnOnce() -> LaunchError + 'static) -> ! {
        self.turns().fail(why);
        me.leave()
    }
}
