//! The engine thread: one per process, for all HCAs.
//!
//! The thread runs turns without a wait as long as they find work. [`Pace`] says how it waits for more. A program that calls `softhca_kick`
//! after its doorbells ends every nap at once. A doorbell of a program that does not kick waits for at most one nap.

use super::pace::{Pace, Wait};
use super::turn::{Report, turn};
use super::wake;
use crate::clock::now_ns;
use crate::device::objects::watch::Look;
use crate::device::world::World;
use crate::wire::port::Port;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The time that the engine stays away from the lock while other threads want the lock.
const COURTESY_NS: u64 = 1_000_000;

/// True if the thread runs.
static STARTED: Mutex<bool> = Mutex::new(false);

/// Starts the engine if it does not run yet.
///
/// # Errors
///
/// No thread or eventfd is left.
pub(crate) fn start() -> io::Result<()> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*started {
        wake::prepare()?;
        wake::without_signals(|| thread::Builder::new().name("softhca".to_owned()).spawn(run))?;
        *started = true;
    }
    Ok(())
}

fn run() {
    wake::exact_timers();
    let mut now = now_ns();
    let mut pace = Pace::new(now);
    loop {
        let kicked = wake::is_kicked();
        let wait = pace.next(now);
        // The last look before a nap comes after the announcement of the nap. So no doorbell is missed between the two.
        let look = if matches!(wait, Wait::Nap(_)) {
            wake::fall_asleep();
            Look::Everywhere
        } else {
            Look::Brief
        };
        let report = one_turn_or_abort(look);
        let before = now;
        if report.busy {
            wake::stay_awake();
            now = now_ns();
            pace.worked(before, now);
            continue;
        }
        match wait {
            Wait::Spin => std::hint::spin_loop(),
            Wait::Yield => thread::yield_now(),
            Wait::Nap(nap) => {
                wake::sleep(&descriptors(), sleep_time(&report, nap));
            }
        }
        now = now_ns();
        match wait {
            Wait::Spin => pace.idled(before, now),
            // The turn before the yield is short compared with a long yield.
            Wait::Yield => pace.yielded(before, now),
            Wait::Nap(_) => {
                pace.idled(before, now);
                pace.napped(now, kicked);
            }
        }
    }
}

/// Returns how long to sleep: until the next deadline, and at most `nap` while doorbells may come. `None`: until a kick.
fn sleep_time(report: &Report, nap: Duration) -> Option<Duration> {
    let nap = report.open.then_some(nap);
    let Some(deadline_ns) = report.deadline_ns else {
        return nap;
    };
    let left = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
    Some(nap.map_or(left, |nap| nap.min(left)))
}

/// Runs one turn. A panic in it is a bug of the device. Without its engine the process would wait for completions for ever, so it aborts
/// after the panic's own message.
fn one_turn_or_abort(look: Look) -> Report {
    match catch_unwind(AssertUnwindSafe(|| one_turn(look))) {
        Ok(report) => report,
        Err(_) => {
            eprintln!(
                "softhca: the engine has failed, which is a bug of softhca; the process ends"
            );
            std::process::abort();
        }
    }
}

/// Takes the lock for one turn, then delivers its events.
fn one_turn(look: Look) -> Report {
    let world = World::of_process();
    let mut fabric = world.lock_for_engine();
    let mut report = turn(&mut fabric, look);
    drop(fabric);
    if report.news {
        wake::announce();
    }
    for (handler, event) in report.events.drain(..) {
        handler(event);
    }
    if world.is_wanted() {
        let until = now_ns() + COURTESY_NS;
        while world.is_wanted() && now_ns() < until {
            thread::yield_now();
        }
    }
    report
}

/// Returns the sockets, and what to wait for on each. A socket that is closed meanwhile only ends the sleep early. The sockets of a paused
/// HCA are left out: the HCA does not look at them, so waiting packets must not end the sleep.
fn descriptors() -> Vec<(RawFd, i16)> {
    let fabric = World::of_process().lock_for_engine();
    let now_ns = fabric.clock.now_ns();
    fabric
        .all()
        .filter(|slot| slot.state.paused_until_ns <= now_ns)
        .flat_map(|slot| slot.wires.iter().flat_map(Port::poll_events))
        .map(|(descriptor, events)| (descriptor.as_raw_fd(), events))
        .collect()
}
