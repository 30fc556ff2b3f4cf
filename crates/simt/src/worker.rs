//! The scheduler of one OS thread: it decides which CUDA thread runs next.
//!
//! Warps with a lane to run are in a queue. With seed 0, the first warp gets a turn. Its ready lanes run one after the other, and again as
//! long as meetings release them. So the lanes of a warp stay in the cache. Lanes that give way wait for the next turn. With another seed,
//! warp and lane are picked at random. The seed also decides how fine-grained the schedule is: how many loads are switches, and how many
//! steps a warp gets in a row. Some defects need long runs of one thread, and others need many switches.
//!
//! With seed 0 a block is seated only when the seated blocks cannot go on, or after a number of turns. Blocks that do not wait for each
//! other then run one after the other on the same stacks. With another seed many blocks are seated from the start.
//!
//! A thread that polls is marked until a thread does something (`progress`), which begins a new quiet spell. When all runnable threads of
//! the worker are marked, each has polled in vain since the last progress. Then the worker sleeps.

// UNSAFETY: the queue holds pointers to warps.
#![expect(unsafe_code, reason = "warps stand in a queue of their worker")]

mod points;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Shape, WARP_LANES};
use crate::error::LaunchError;
use crate::schedule::Schedule;
use crate::seats::Seats;
use crate::shared::Launch;
use crate::sleeper::Sleeper;
use crate::stats::LaunchStats;
use crate::thread::{CurrentSlot, Thread};
use crate::warp::Warp;

/// The number of passes over the ready lanes of a warp in one turn.
const PASSES: u32 = 64;
/// With seed 0, a block is seated at the latest after so many turns of the seated warps.
const TURNS_PER_BLOCK: u64 = 256;
/// The number of turns after which the worker looks at the clock and at failures of other workers.
const TURNS_PER_LOOK: u64 = 64;
/// With another seed, blocks are seated from the start up to so many threads: enough to mix, and not the memory of all threads.
const MIXED_THREADS: u64 = if cfg!(feature = "tsan") { 1024 } else { 8192 };
/// With another seed, a lane that has polled in vain is picked again before any progress at one of so many picks.
const QUIET_LANE_ONCE_IN: u32 = 16;
/// How long a worker whose threads all wait for the grid sleeps before it looks at clock and failures.
const GRID_WAIT: Duration = Duration::from_millis(5);

/// One OS thread's part of a launch.
pub(crate) struct Worker {
    launch: Arc<Launch>,
    index: u32,
    /// True if the launch has other workers.
    shared: bool,
    slot: CurrentSlot,
    schedule: Schedule,
    seats: Seats,
    queue: RefCell<VecDeque<*const Warp>>,
    /// The number of the next block to seat.
    next_block: Cell<u64>,
    /// The number of seated blocks, and of their threads that have not ended.
    seated: Cell<u64>,
    live: Cell<u64>,
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
    turns: Cell<u64>,
    switches: Cell<u64>,
    meetings: Cell<u64>,
    sleeps: Cell<u64>,
    threads: Cell<u64>,
    fences: Cell<u64>,
    loads: Cell<u64>,
    load_rounds: Cell<u64>,
    /// True if the launch has failed, here or elsewhere.
    stop: Cell<bool>,
    /// What makes the error, if the launch has failed here.
    failure: Cell<Option<Why>>,
}

/// A function that makes an error on the stack of the scheduler.
type Why = Box<dyn FnOnce(&Worker) -> LaunchError>;

/// A guard after which the OS thread has no current CUDA thread, even after a panic.
struct ClearOnDrop(CurrentSlot);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl Worker {
    /// Returns worker number `index` of a launch, on the calling OS thread.
    pub(crate) fn new(launch: &Arc<Launch>, index: u32) -> Self {
        let shape = *launch.shape();
        Self {
            launch: Arc::clone(launch),
            index,
            shared: shape.workers > 1,
            slot: CurrentSlot::of_this_os_thread(),
            schedule: Schedule::new(shape.seed, index),
            seats: Seats::new(shape),
            queue: RefCell::default(),
            next_block: Cell::new(u64::from(index)),
            seated: Cell::new(0),
            live: Cell::new(0),
            runnable: Cell::new(0),
            polling: Cell::new(0),
            at_grid: Cell::new(0),
            spell: Cell::new(1),
            quiet: Cell::new(false),
            vain_rounds: Cell::new(0),
            work: Cell::new(0),
            turns: Cell::new(0),
            switches: Cell::new(0),
            meetings: Cell::new(0),
            sleeps: Cell::new(0),
            threads: Cell::new(0),
            fences: Cell::new(0),
            loads: Cell::new(0),
            load_rounds: Cell::new(0),
            stop: Cell::new(false),
            failure: Cell::new(None),
        }
    }

    /// Returns whether lanes wait for each other after divergent parts.
    pub(crate) fn reconverges(&self) -> bool {
        self.launch.shape().reconverge
    }

    /// Returns the number and the shape of the launch.
    #[cfg(feature = "tsan")]
    pub(crate) fn launch(&self) -> (u64, &Shape) {
        (self.launch.number(), self.launch.shape())
    }

    /// Returns whether the launch's kernels may store to a register at `addr`.
    pub(crate) fn has_register(&self, addr: u64) -> bool {
        self.launch
            .shape()
            .registers
            .is_none_or(|known| known(addr))
    }

    /// Runs this worker's blocks to their end, or until the launch fails.
    pub(crate) fn run(self) -> LaunchStats {
        let _clear = ClearOnDrop(self.slot);
        if let Err(error) = self.schedule() {
            self.launch.fail(error);
        }
        if let Some(why) = self.failure.take() {
            self.launch.fail(why(&self));
        }
        if let Some(damage) = self.seats.abandon() {
            self.launch.explain(damage);
        }
        LaunchStats {
            threads: self.threads.get(),
            switches: self.switches.get(),
            meetings: self.meetings.get(),
            sleeps: self.sleeps.get(),
            seats: self.seats.count() as u64,
            fences: self.fences.get(),
            loads: self.loads.get(),
            load_rounds: self.load_rounds.get(),
            grid_syncs: 0,
            elapsed: Duration::ZERO,
        }
    }

    fn schedule(&self) -> Result<(), LaunchError> {
        let mut sleeper = Sleeper::new();
        let mut grid = self.launch.grid().generation();
        while !self.stop.get() {
            while self.wants_more_blocks() && self.seat_next()? {}
            match self.pick() {
                Some(warp) if self.schedule.is_random() => self.random_turn(warp),
                Some(warp) => self.turn(warp),
                None if self.seat_next()? => {}
                None if self.live.get() == 0 => break,
                None => self.stuck(grid)?,
            }
            let turns = self.turns.get() + 1;
            self.turns.set(turns);
            let all_poll = self.polling.get() == self.runnable.get() && self.runnable.get() > 0;
            if all_poll && !self.seat_next()? {
                self.rest(&mut sleeper);
                self.look_around()?;
            }
            if turns.is_multiple_of(TURNS_PER_LOOK) {
                self.look_around()?;
            }
            if turns.is_multiple_of(TURNS_PER_BLOCK) {
                self.seat_next()?;
            }
            if self.at_grid.get() > 0 && self.launch.grid().generation() != grid {
                grid = self.launch.grid().generation();
                self.at_grid.set(0);
                self.seats.for_each_taken(|seat| {
                    seat.warps()
                        .iter()
                        .for_each(|warp| self.unblock(warp, warp.at_grid.replace(0)));
                });
            }
        }
        Ok(())
    }

    /// Returns whether one more block is to be seated at once: random orders mix the threads of many blocks.
    fn wants_more_blocks(&self) -> bool {
        let threads = self.seated.get() * u64::from(self.launch.shape().threads);
        self.schedule.is_random() && threads < MIXED_THREADS
    }

    /// Seats the next block of this worker. Returns false if no block is left.
    fn seat_next(&self) -> Result<bool, LaunchError> {
        let Shape {
            blocks,
            workers,
            threads,
            ..
        } = *self.launch.shape();
        let next = self.next_block.get();
        if next >= u64::from(blocks) {
            return Ok(false);
        }
        let left = (u64::from(blocks) - next).div_ceil(u64::from(workers));
        let seat = self.seats.take(self, left)?;
        let block = u32::try_from(next).unwrap_or(u32::MAX);
        seat.start(block, self.launch.call(), || self.schedule.loads());
        self.next_block.set(next + u64::from(workers));
        self.seated.set(self.seated.get() + 1);
        self.live.set(self.live.get() + u64::from(threads));
        self.threads.set(self.threads.get() + u64::from(threads));
        self.runnable.set(self.runnable.get() + threads);
        seat.warps().iter().for_each(|warp| self.enqueue(warp));
        self.progress();
        Ok(true)
    }

    /// Takes the warp whose turn it is from the queue.
    fn pick(&self) -> Option<&Warp> {
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

    /// Puts a warp that has something to run into the queue, unless it is in the queue or has its turn.
    fn enqueue(&self, warp: &Warp) {
        if !warp.queued.replace(true) {
            self.queue.borrow_mut().push_back(warp);
        }
    }

    /// Runs a turn with seed 0: the ready lanes in order, and again those that a meeting has released meanwhile.
    fn turn(&self, warp: &Warp) {
        for _ in 0..PASSES {
            let mut pass = warp.ready.replace(0);
            if pass == 0 {
                break;
            }
            while pass != 0 {
                let lane = pass.trailing_zeros();
                pass &= pass - 1;
                if pass != 0 {
                    warp.thread(pass.trailing_zeros()).prefetch();
                }
                self.step(warp, lane);
                if self.stop.get() {
                    return;
                }
            }
        }
        self.end_turn(warp);
    }

    /// Runs a turn with another seed: a random number of steps of random lanes. It mostly leaves out lanes that have polled in this quiet
    /// spell, since otherwise it would take long until all have. Sometimes it takes one, since the other lanes may wait for it.
    fn random_turn(&self, warp: &Warp) {
        for _ in 0..self.schedule.steps() {
            let ready = warp.ready.get() | warp.later.replace(0);
            let fresh = ready & !warp.marked(self.spell.get());
            let among = match fresh {
                0 if self.schedule.below(QUIET_LANE_ONCE_IN) == 0 => ready,
                fresh => fresh,
            };
            if among == 0 || self.stop.get() {
                warp.ready.set(ready);
                break;
            }
            let start = self.schedule.below(WARP_LANES);
            let lane = (among.rotate_right(start).trailing_zeros() + start) % WARP_LANES;
            warp.ready.set(ready & !(1 << lane));
            self.step(warp, lane);
        }
        self.end_turn(warp);
    }

    fn end_turn(&self, warp: &Warp) {
        warp.ready.set(warp.ready.get() | warp.later.replace(0));
        warp.queued.set(false);
        if warp.ready.get() != 0 {
            self.enqueue(warp);
        }
    }

    /// Runs one lane until it switches back.
    #[inline(always)]
    fn step(&self, warp: &Warp, lane: u32) {
        self.switches.set(self.switches.get() + 1);
        let thread = warp.thread(lane);
        if thread.resume(self.slot) {
            self.exited(thread);
        }
    }

    fn exited(&self, thread: &Thread) {
        self.progress();
        self.runnable.set(self.runnable.get() - 1);
        self.live.set(self.live.get() - 1);
        let seat = thread.warp().seat();
        if let Err(error) = seat.exit(thread) {
            return self.fail(|_| error);
        }
        if !seat.is_taken() {
            self.seated.set(self.seated.get() - 1);
            self.seats.put_back(seat);
        }
        if self.launch.shape().cooperative {
            self.judge(self.launch.grid().exit());
        }
    }

    /// Handles the case that no lane can run and no block is left to seat: a deadlock, or a wait for other workers.
    fn stuck(&self, grid: u32) -> Result<(), LaunchError> {
        let elsewhere = self.at_grid.get() == self.live.get() && self.shared;
        if !elsewhere {
            return Err(LaunchError::Deadlock {
                report: self.seats.report(),
            });
        }
        self.launch.grid().wait(grid, GRID_WAIT);
        self.look_around()
    }

    /// Looks at the clock and at the other workers.
    fn look_around(&self) -> Result<(), LaunchError> {
        if self.launch.has_failed() {
            self.stop.set(true);
        }
        if self.shared {
            self.launch.publish_progress(self.index, self.work.get());
        }
        match self.launch.overdue() {
            Some(deadline) => Err(LaunchError::Deadline {
                deadline,
                report: self.seats.report(),
            }),
            None => Ok(()),
        }
    }

    /// Ends a round in which all runnable threads have polled since any thread of this worker did something.
    fn rest(&self, sleeper: &mut Sleeper) {
        self.begin_spell();
        let round = self.vain_rounds.get() + 1;
        let start_again = sleeper.rest(&self.launch, self.index, round);
        self.vain_rounds.set(if start_again { 0 } else { round });
        self.sleeps.set(sleeper.sleeps());
    }

    /// Ends the launch with an error. If the calling thread is a kernel's, it must not go on.
    #[cold]
    pub(crate) fn fail(&self, why: impl FnOnce(&Self) -> LaunchError + 'static) {
        self.failure.set(Some(Box::new(why)));
        self.stop.set(true);
    }
}
