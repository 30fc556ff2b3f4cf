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
//! When all runnable threads of the worker have polled in vain since a thread last did something, the worker sleeps.

mod sleeper;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Shape, WARP_LANES};
use crate::error::LaunchError;
use crate::seats::Seats;
use crate::seats::seat::{SeatedThread, SeatedWarp};
use crate::shared::Launch;
use crate::stats::LaunchStats;
use crate::thread::CurrentSlot;
use crate::turns::{Failure, Turns};
use sleeper::Sleeper;

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
    index: u32,
    slot: CurrentSlot,
    seats: Seats,
    turns: Turns<SeatedWarp>,
    /// The number of the next block to seat.
    next_block: Cell<u64>,
    /// The number of seated blocks, and of their threads that have not ended.
    seated: Cell<u64>,
    live: Cell<u64>,
    switches: Cell<u64>,
    sleeps: Cell<u64>,
    threads: Cell<u64>,
}

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
        Self {
            index,
            slot: CurrentSlot::of_this_os_thread(),
            seats: Seats::new(*launch.shape()),
            turns: Turns::new(launch, index),
            next_block: Cell::new(u64::from(index)),
            seated: Cell::new(0),
            live: Cell::new(0),
            switches: Cell::new(0),
            sleeps: Cell::new(0),
            threads: Cell::new(0),
        }
    }

    /// Runs this worker's blocks to their end, or until the launch fails.
    pub(crate) fn run(self) -> LaunchStats {
        let _clear = ClearOnDrop(self.slot);
        if let Err(error) = self.schedule() {
            self.launch().fail(error);
        }
        if let Some(failure) = self.turns.take_failure() {
            self.launch().fail(self.explained(failure));
        }
        if let Some(damage) = self.seats.abandon() {
            self.launch().explain(damage);
        }
        LaunchStats {
            threads: self.threads.get(),
            switches: self.switches.get(),
            sleeps: self.sleeps.get(),
            seats: self.seats.count() as u64,
            ..self.turns.stats()
        }
    }

    fn launch(&self) -> &Launch {
        self.turns.launch()
    }

    /// Returns the error of a failure.
    fn explained(&self, failure: Failure) -> LaunchError {
        match failure {
            Failure::Made(why) => why(),
            Failure::BrokenGrid { exited } => {
                let others = self.seats.report();
                let report = format!(
                    "{exited} threads of the grid have exited and never come to simt_grid_sync; {others}"
                );
                LaunchError::Deadlock { report }
            }
        }
    }

    fn schedule(&self) -> Result<(), LaunchError> {
        let mut sleeper = Sleeper::new();
        let mut grid = self.launch().grid().generation();
        let mut turns = 0u64;
        while !self.turns.has_stopped() {
            while self.wants_more_blocks() && self.seat_next()? {}
            match self.turns.pick() {
                Some(warp) if self.turns.schedule().is_random() => self.random_turn(warp),
                Some(warp) => self.turn(warp),
                None if self.seat_next()? => {}
                None if self.live.get() == 0 => break,
                None => self.stuck(grid)?,
            }
            turns += 1;
            if self.turns.all_poll() && !self.seat_next()? {
                self.rest(&mut sleeper);
                self.look_around()?;
            }
            if turns.is_multiple_of(TURNS_PER_LOOK) {
                self.look_around()?;
            }
            if turns.is_multiple_of(TURNS_PER_BLOCK) {
                self.seat_next()?;
            }
            if self.turns.at_grid() > 0 && self.launch().grid().generation() != grid {
                grid = self.launch().grid().generation();
                self.turns.leave_grid();
                self.seats
                    .for_each_taken(|seat| seat.warps().iter().for_each(SeatedWarp::leave_grid));
            }
        }
        Ok(())
    }

    /// Returns whether one more block is to be seated at once: random orders mix the threads of many blocks.
    fn wants_more_blocks(&self) -> bool {
        let threads = self.seated.get() * u64::from(self.launch().shape().threads);
        self.turns.schedule().is_random() && threads < MIXED_THREADS
    }

    /// Seats the next block of this worker. Returns false if no block is left.
    fn seat_next(&self) -> Result<bool, LaunchError> {
        let Shape {
            blocks,
            workers,
            threads,
            ..
        } = *self.launch().shape();
        let next = self.next_block.get();
        if next >= u64::from(blocks) {
            return Ok(false);
        }
        let left = (u64::from(blocks) - next).div_ceil(u64::from(workers));
        let seat = self.seats.take(&self.turns, left)?;
        let block = u32::try_from(next).unwrap_or(u32::MAX);
        let schedule = self.turns.schedule();
        seat.start(block, self.launch().call(), || schedule.loads());
        self.next_block.set(next + u64::from(workers));
        self.seated.set(self.seated.get() + 1);
        self.live.set(self.live.get() + u64::from(threads));
        self.threads.set(self.threads.get() + u64::from(threads));
        self.turns.add_runnable(threads, 0);
        seat.warps().iter().for_each(SeatedWarp::enqueue);
        self.turns.progress();
        Ok(true)
    }

    /// Runs a turn with seed 0: the ready lanes in order, and again those that a meeting has released meanwhile.
    fn turn(&self, warp: &SeatedWarp) {
        for _ in 0..PASSES {
            let mut pass = warp.take_ready();
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
                if self.turns.has_stopped() {
                    return;
                }
            }
        }
        warp.end_turn();
    }

    /// Runs a turn with another seed: a random number of steps of random lanes. It mostly leaves out lanes that have polled in this quiet
    /// spell, since otherwise it would take long until all have. Sometimes it takes one, since the other lanes may wait for it.
    fn random_turn(&self, warp: &SeatedWarp) {
        let schedule = self.turns.schedule();
        for _ in 0..schedule.steps() {
            let ready = warp.gather();
            let fresh = ready & !warp.marked(self.turns.spell());
            let among = match fresh {
                0 if schedule.below(QUIET_LANE_ONCE_IN) == 0 => ready,
                fresh => fresh,
            };
            if among == 0 || self.turns.has_stopped() {
                break;
            }
            let start = schedule.below(WARP_LANES);
            let lane = (among.rotate_right(start).trailing_zeros() + start) % WARP_LANES;
            warp.take(lane);
            self.step(warp, lane);
        }
        warp.end_turn();
    }

    /// Runs one lane until it switches back.
    #[inline(always)]
    fn step(&self, warp: &SeatedWarp, lane: u32) {
        self.switches.set(self.switches.get() + 1);
        let thread = warp.thread(lane);
        if thread.resume(self.slot) {
            self.exited(thread);
        }
    }

    fn exited(&self, thread: &SeatedThread) {
        self.turns.progress();
        self.turns.remove_runnable(0);
        self.live.set(self.live.get() - 1);
        let seat = thread.warp().seat();
        if let Err(error) = seat.exit(thread) {
            return self.turns.fail(|| error);
        }
        if !seat.is_taken() {
            self.seated.set(self.seated.get() - 1);
            self.seats.put_back(seat);
        }
        if self.launch().shape().cooperative {
            self.turns.judge(self.launch().grid().exit());
        }
    }

    /// Handles the case that no lane can run and no block is left to seat: a deadlock, or a wait for other workers.
    fn stuck(&self, grid: u32) -> Result<(), LaunchError> {
        let elsewhere = self.turns.at_grid() == self.live.get() && self.turns.has_other_workers();
        if !elsewhere {
            return Err(LaunchError::Deadlock {
                report: self.seats.report(),
            });
        }
        self.launch().grid().wait(grid, GRID_WAIT);
        self.look_around()
    }

    /// Looks at the clock and at the other workers.
    fn look_around(&self) -> Result<(), LaunchError> {
        let launch = self.launch();
        if launch.has_failed() {
            self.turns.stop();
        }
        if self.turns.has_other_workers() {
            launch.publish_progress(self.index, self.turns.work());
        }
        match launch.overdue() {
            Some(deadline) => Err(LaunchError::Deadline {
                deadline,
                report: self.seats.report(),
            }),
            None => Ok(()),
        }
    }

    /// Ends a round in which all runnable threads have polled since any thread of this worker did something.
    fn rest(&self, sleeper: &mut Sleeper) {
        let round = self.turns.end_vain_round();
        if sleeper.rest(self.launch(), self.index, round) {
            self.turns.forget_vain_rounds();
        }
        self.sleeps.set(sleeper.sleeps());
    }
}
