//! The thread of a rank that calls all the time, and its orders.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use test_support::moe::batches;
use test_support::moe::small::TRAFFIC;
use warpverbs::moe::Moe;

use crate::calls::{Call, Calls, Point};
use crate::graph::Replays;

/// Between two calls of a rank: the ranks of many tests share the cores, and most of the time their tests wait.
const PACE: Duration = Duration::from_millis(5);

/// Orders for a rank.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// The point at which it stops in its next call; 0: it goes on.
    pub(crate) stop: AtomicU32,
    /// It makes no call while this is set.
    pub(crate) pause: AtomicBool,
    /// It makes none for that reason.
    pub(crate) rests: AtomicBool,
    /// The last call that it makes; 0: none.
    pub(crate) last: AtomicU32,
    pub(crate) calls: Mutex<Vec<Call>>,
    /// Why it ended badly.
    pub(crate) broken: Mutex<Option<String>>,
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls until the test orders its end.
pub(crate) fn call_on(control: &Control, moe: &Arc<Moe>, graphs: bool, ahead: usize) {
    let replays = graphs.then(|| Replays::capture(moe));
    let mut calls = Calls::ahead(moe, ahead);
    let stops = |point: Point| control.stop.load(Ordering::Relaxed) == point as u32;
    let push = |call: Call| lock(&control.calls).push(call);
    loop {
        while control.pause.load(Ordering::Relaxed) {
            control.rests.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(1));
        }
        control.rests.store(false, Ordering::Release);
        let number = moe.started().wrapping_add(1);
        let last = control.last.load(Ordering::Relaxed);
        if last != 0 && number > last {
            while let Some(call) = calls.receive(stops) {
                push(call);
            }
            return;
        }
        let batches = batches(moe, TRAFFIC, 7, number);
        let called = match &replays {
            None => {
                if calls.send(batches, stops).is_none() {
                    return;
                }
                if calls.has_room() {
                    continue;
                }
                calls.receive(stops)
            }
            Some(_) if stops(Point::Send) => None,
            Some(replays) => Some(replays.replay(&batches[moe.team().rank() as usize])),
        };
        let Some(call) = called else {
            return;
        };
        assert_eq!(
            call.number.wrapping_add(u32::try_from(ahead).unwrap()),
            number
        );
        push(call);
        std::thread::sleep(PACE);
    }
}
