//! Which threads of a worker can run: the warps that wait for a turn, and how many threads can run and how many of these poll.
//!
//! Running CUDA threads change it at schedule points (`warp`), the worker between turns. `W` is the type of warps, which know their turns.
//!
//! A thread that polls is marked until a thread does something (`progress`), which begins a new quiet spell. When all runnable threads of
//! the worker are marked, each has polled in vain since the last progress.

// UNSAFETY: the queue holds pointers to warps.
#![expect(unsafe_code, reason = "warps stand in a queue of their worker")]

mod schedule;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::LaunchError;
use crate::shared::Launch;
use crate::shared::grid::Outcome;
use crate::stats::LaunchStats;
use schedule::Schedule;

/// The turns of one worker.
pub(crate) struct Turns<W> {
    launch: Arc<Launch>,
    /// True if the launch has other workers.
    shared: bool,
    schedule: Schedule,
    queue: RefCell<VecDeque<*const W>>,
    /// The number of threads that can run, and how many of them are marked as polling.
    runnable: Cell<u32>,
    polling: Cell<u32>,
    /// The number of threads in a barrier of the grid.
    at_grid: Cell<u64>,
    /// The number of the present quiet spell. It goes up when a thread does something.
    spell: Cell<u64>,
    /// True if a thread has polled since `progress` last began a spell.
    quiet: Cell<bool>,
    /// The number of rounds in a row in which all threads polled in vain.
    vain_rounds: Cell<u32>,
    /// The number of things done by threads of this worker.
    work: Cell<u64>,
    meetings: Cell<u64>,
    fences: Cell<u64>,
    loads: Cell<u64>,
    load_rounds: Cell<u64>,
    /// True if the launch has failed, here or elsewhere.
    stop: Cell<bool>,
    /// What makes the error, if the launch has failed here.
    failure: Cell<Option<Failure>>,
}

/// Why a launch has failed on a worker. The error is made when the scheduler has taken this, since the stack of a CUDA thread may be short.
pub(crate) enum Failure {
    /// The error that this function makes.
    Made(Box<dyn FnOnce() -> LaunchError>),
    /// Threads wait at the barrier of the grid, to which `exited` threads never come.
    BrokenGrid {
        /// The number of threads of the grid that have exited.
        exited: u64,
    },
}

impl<W> Turns<W> {
    /// Returns the turns of worker number `index` of a launch.
    pub(crate) fn new(launch: &Arc<Launch>, index: u32) -> Self {
        let shape = launch.shape();
        Self {
            launch: Arc::clone(launch),
            shared: shape.workers > 1,
            schedule: Schedule::new(shape.seed, index),
            queue: RefCell::default(),
            runnable: Cell::new(0),
            polling: Cell::new(0),
            at_grid: Cell::new(0),
            spell: Cell::new(1),
            quiet: Cell::new(false),
            vain_rounds: Cell::new(0),
            work: Cell::new(0),
            meetings: Cell::new(0),
            fences: Cell::new(0),
            loads: Cell::new(0),
            load_rounds: Cell::new(0),
            stop: Cell::new(false),
            failure: Cell::new(None),
        }
    }

    #[inline]
    pub(crate) fn launch(&self) -> &Launch {
        &self.launch
    }

    #[inline]
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns whether the launch has other workers.
    #[inline]
    pub(crate) fn has_other_workers(&self) -> bool {
        self.shared
    }

    /// Returns whether lanes wait for each other after divergent parts.
    #[inline]
    pub(crate) fn reconverges(&self) -> bool {
        self.launch.shape().reconverge
    }

    /// Returns whether the launch's kernels may store to a register at `addr`.
    pub(crate) fn has_register(&self, addr: u64) -> bool {
        let registers = self.launch.shape().registers;
        registers.is_none_or(|known| known(addr))
    }

    /// Puts a warp of a seat of this worker into the queue.
    #[inline]
    pub(crate) fn enqueue(&self, warp: &W) {
        self.queue.borrow_mut().push_back(warp);
    }

    /// Takes the warp whose turn it is from the queue.
    pub(crate) fn pick(&self) -> Option<&W> {
        let mut queue = self.queue.borrow_mut();
        let warp = if self.schedule.is_random() {
            let count = u32::try_from(queue.len()).unwrap_or(u32::MAX);
            if count == 0 {
                None
            } else {
                queue.swap_remove_back(self.schedule.below(count) as usize)
            }
        } else {
            queue.pop_front()
        }?;
        // SAFETY: `enqueue` stored a warp of a seat of this worker; seats live as long as the worker.
        Some(unsafe { &*warp })
    }

    /// Notes that `threads` more threads can run, of which `polling` are marked.
    #[inline]
    pub(crate) fn add_runnable(&self, threads: u32, polling: u32) {
        self.runnable.set(self.runnable.get() + threads);
        self.polling.set(self.polling.get() + polling);
    }

    /// Notes that a thread can no longer run. `polling` is 1 if it is marked, else 0.
    #[inline(always)]
    pub(crate) fn remove_runnable(&self, polling: u32) {
        self.runnable.set(self.runnable.get() - 1);
        self.polling.set(self.polling.get() - polling);
    }

    /// Returns the number of the present quiet spell.
    #[inline(always)]
    pub(crate) fn spell(&self) -> u64 {
        self.spell.get()
    }

    /// Notes that a thread has polled in vain. `newly`: it was not marked in this spell.
    #[inline(always)]
    pub(crate) fn polled(&self, newly: bool) {
        self.quiet.set(true);
        if newly {
            self.polling.set(self.polling.get() + 1);
        }
    }

    /// Notes that a thread which can run has lost its mark.
    #[inline(always)]
    pub(crate) fn unmarked(&self) {
        self.polling.set(self.polling.get() - 1);
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

    /// Begins a new quiet spell, in which no thread is marked as polling.
    fn begin_spell(&self) {
        self.spell.set(self.spell.get() + 1);
        self.polling.set(0);
    }

    /// Returns whether all threads that can run are marked, and there is one.
    pub(crate) fn all_poll(&self) -> bool {
        self.polling.get() == self.runnable.get() && self.runnable.get() > 0
    }

    /// Ends a round in which all runnable threads have polled since any thread of this worker did something. Returns how many such rounds
    /// there were in a row.
    pub(crate) fn end_vain_round(&self) -> u32 {
        self.begin_spell();
        let rounds = self.vain_rounds.get() + 1;
        self.vain_rounds.set(rounds);
        rounds
    }

    /// Counts vain rounds from the start again, since something happened outside this worker.
    pub(crate) fn forget_vain_rounds(&self) {
        self.vain_rounds.set(0);
    }

    /// Returns the number of things done by threads of this worker.
    pub(crate) fn work(&self) -> u64 {
        self.work.get()
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

    /// Returns what running threads have counted.
    pub(crate) fn stats(&self) -> LaunchStats {
        LaunchStats {
            meetings: self.meetings.get(),
            fences: self.fences.get(),
            loads: self.loads.get(),
            load_rounds: self.load_rounds.get(),
            ..LaunchStats::default()
        }
    }

    /// Notes that a thread waits at the barrier of the grid.
    pub(crate) fn wait_at_grid(&self) {
        self.at_grid.set(self.at_grid.get() + 1);
    }

    /// Returns the number of threads that wait at the barrier of the grid.
    pub(crate) fn at_grid(&self) -> u64 {
        self.at_grid.get()
    }

    /// Notes that the threads at the barrier of the grid go on.
    pub(crate) fn leave_grid(&self) {
        self.at_grid.set(0);
    }

    /// Fails the launch if its grid can never meet again.
    pub(crate) fn judge(&self, outcome: Outcome) {
        if let Outcome::Broken { exited } = outcome {
            self.end(Failure::BrokenGrid { exited });
        }
    }

    /// Ends the launch with the error that `why` makes. If the calling thread is a kernel's, it must not go on.
    #[cold]
    pub(crate) fn fail(&self, why: impl FnOnce() -> LaunchError + 'static) {
        self.end(Failure::Made(Box::new(why)));
    }

    fn end(&self, failure: Failure) {
        self.failure.set(Some(failure));
        self.stop();
    }

    /// Notes that the launch has failed, here or elsewhere.
    pub(crate) fn stop(&self) {
        self.stop.set(true);
    }

    /// Returns whether the launch has failed, here or elsewhere.
    #[inline(always)]
    pub(crate) fn has_stopped(&self) -> bool {
        self.stop.get()
    }

    /// Takes what has failed here.
    pub(crate) fn take_failure(&self) -> Option<Failure> {
        self.failure.take()
    }
}
