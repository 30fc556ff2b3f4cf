//! Schedule points: reports of a running CUDA thread to its worker, at which it may give way.

use crate::error::LaunchError;
use crate::grid::Outcome;
use crate::thread::Thread;
use crate::warp::Warp;
use crate::worker::Worker;

/// The number of switches without a poll after which a thread no longer counts as polling.
const STEPS_BETWEEN_POLLS: u32 = 8;

impl Worker {
    /// Begins a new quiet spell, in which no thread is marked as polling.
    pub(super) fn begin_spell(&self) {
        self.spell.set(self.spell.get() + 1);
        self.polling.set(0);
    }

    /// Notes that a thread did something that a poll may see.
    #[inline(always)]
    pub(crate) fn progress(&self) {
        if self.quiet.get() {
            self.begin_spell();
            self.vain_rounds.set(0);
            self.quiet.set(false);
        }
        if self.shared {
            self.work.set(self.work.get().wrapping_add(1));
            self.launch.wake_sleepers();
        }
    }

    /// Gives way to other threads, at a load.
    #[inline(always)]
    pub(crate) fn yield_now(&self, me: &Thread) {
        me.set_credit(self.schedule.loads());
        self.count_step(me);
        self.step_aside(me);
    }

    /// Notes a poll that found nothing, and gives way.
    #[inline(always)]
    pub(crate) fn poll(&self, me: &Thread) {
        me.since_poll.set(0);
        self.quiet.set(true);
        if me.warp().mark(me.lane(), self.spell.get()) {
            self.polling.set(self.polling.get() + 1);
        }
        if self.reconverges() {
            me.warp().polls(me);
        }
        self.step_aside(me);
    }

    #[inline(always)]
    fn step_aside(&self, me: &Thread) {
        let later = &me.warp().later;
        later.set(later.get() | 1 << me.lane());
        me.suspend();
    }

    /// Counts a switch that is not a poll. After some of them, the thread no longer counts as polling.
    #[inline(always)]
    fn count_step(&self, me: &Thread) {
        let steps = me.since_poll.get().saturating_add(1);
        me.since_poll.set(steps);
        if steps == STEPS_BETWEEN_POLLS && me.warp().unmark(me.lane(), self.spell.get()) {
            self.polling.set(self.polling.get() - 1);
        }
    }

    /// Notes that the calling thread is about to wait for others. It keeps its mark: a wait is no progress.
    #[inline(always)]
    pub(crate) fn block(&self, me: &Thread) {
        self.count_step(me);
        self.runnable.set(self.runnable.get() - 1);
        let marked = me.warp().marked(self.spell.get()) >> me.lane() & 1;
        self.polling.set(self.polling.get() - marked);
        if self.reconverges() {
            me.warp().waits(me);
        }
    }

    /// Lets lanes of `warp` that waited go on.
    #[inline]
    pub(crate) fn unblock(&self, warp: &Warp, lanes: u32) {
        if lanes == 0 {
            return;
        }
        self.runnable.set(self.runnable.get() + lanes.count_ones());
        self.polling
            .set(self.polling.get() + (lanes & warp.marked(self.spell.get())).count_ones());
        warp.ready.set(warp.ready.get() | lanes);
        self.enqueue(warp);
    }

    #[inline(always)]
    pub(crate) fn count_fence(&self) {
        self.fences.set(self.fences.get() + 1);
    }

    #[inline(always)]
    pub(crate) fn count_loads(&self, loads: u32) {
        self.loads.set(self.loads.get() + u64::from(loads));
        self.load_rounds.set(self.load_rounds.get() + 1);
    }

    #[inline(always)]
    pub(crate) fn count_meeting(&self) {
        self.meetings.set(self.meetings.get() + 1);
    }

    /// Lets the calling thread wait at the barrier of the grid until all threads of the grid have come.
    pub(crate) fn grid_sync(&self, me: &Thread) {
        if !self.launch.shape().cooperative {
            let (thread, message) = (
                me.id(),
                "simt_grid_sync in a launch that is not cooperative".to_owned(),
            );
            me.fail(move |_| LaunchError::Panic { thread, message });
        }
        self.meetings.set(self.meetings.get() + 1);
        let warp = me.warp();
        warp.at_grid.set(warp.at_grid.get() | 1 << me.lane());
        self.at_grid.set(self.at_grid.get() + 1);
        self.block(me);
        #[cfg(feature = "tsan")]
        let generation = self.launch.grid().generation();
        #[cfg(feature = "tsan")]
        if let Some(slot) = me.slot() {
            crate::check::arrive_at_grid(slot, generation);
        }
        self.judge(self.launch.grid().arrive());
        me.suspend();
        #[cfg(feature = "tsan")]
        if let Some(slot) = me.slot() {
            crate::check::leave_grid(slot, generation);
        }
    }

    /// Fails the launch if its grid can never meet again.
    pub(super) fn judge(&self, outcome: Outcome) {
        if let Outcome::Broken { exited } = outcome {
            self.fail(move |worker| {
                let others = worker.seats.report();
                let report = format!("{exited} threads of the grid have exited and never come to simt_grid_sync; {others}");
                LaunchError::Deadlock { report }
            });
        }
    }
}
