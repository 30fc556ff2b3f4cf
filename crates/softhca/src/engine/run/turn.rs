//! One turn of the engine over all HCAs: doorbells, QPs, wire.

use crate::device::objects::watch::Look;
use crate::device::state::{Fabric, HcaState};
use crate::device::{Event, Execution};
use crate::engine::completion::{self, arming};
use crate::engine::intake::{doorbell, scrutiny};
use crate::engine::send::{self, End, TurnOutcome};
use std::sync::Arc;

/// The number of WQEs that a QP may run before the next QP has its turn.
const BUDGET: usize = 64;
/// The approximate length of a turn over all QPs. It is bounded so that other threads get the lock. A virtual clock does not move during a
/// turn.
const TURN_NS: u64 = 200_000;

/// An event and the handler that receives it.
pub(crate) type Delivery = (Arc<dyn Fn(Event) + Send + Sync>, Event);

/// The outcome of a turn.
#[derive(Default)]
pub(crate) struct Report {
    /// Something was done, or is left to do at once.
    pub(crate) busy: bool,
    /// The turn has written something that software may wait for.
    pub(crate) news: bool,
    /// The time at which the engine has something to do even if nothing happens before.
    pub(crate) deadline_ns: Option<u64>,
    /// A program has a device open: doorbells may come.
    pub(crate) open: bool,
    pub(crate) events: Vec<Delivery>,
}

impl Report {
    fn wake_at(&mut self, at_ns: u64) {
        self.deadline_ns = Some(self.deadline_ns.map_or(at_ns, |other| other.min(at_ns)));
    }
}

/// Does a bounded piece of work for every HCA, at the time of the fabric's clock. What a brief look misses is found within a bounded number
/// of turns.
pub(crate) fn turn(fabric: &mut Fabric, look: Look) -> Report {
    let now_ns = fabric.clock.now_ns();
    let mut report = Report::default();
    for number in 0..fabric.hcas.len() {
        let Some(slot) = fabric.slot(number) else {
            continue;
        };
        slot.on_clock(now_ns);
        let hca = &mut slot.state;
        hca.now_ns = now_ns;
        if let Some(at_ns) = hca.faults.deadline_ns() {
            report.wake_at(at_ns);
        }
        report.open |= hca.contexts.len() > 0;
        if hca.execution == Execution::External {
            external_turn(fabric, number, look, &mut report);
            continue;
        }
        let (placed, next_ns) = hca.pending_writes.place_due(now_ns);
        report.busy |= placed;
        hca.news |= placed;
        if let Some(at_ns) = next_ns {
            report.wake_at(at_ns);
        }
        if hca.paused_until_ns > now_ns {
            report.wake_at(hca.paused_until_ns);
            continue;
        }
        completion::write_late(hca);
        hca.watch.choose(&hca.uars, look);
        report.busy |= doorbell::take(hca);
        if !hca.strict {
            report.busy |= doorbell::look_at_records(hca);
        } else if let Some(at_ns) = scrutiny::look_for_forgotten_doorbells(hca, now_ns) {
            report.wake_at(at_ns);
        }
        report.busy |= arming::take(hca);
        wake_stalled(hca, now_ns, &mut report);
        if doze(hca, now_ns) {
            report.busy = true;
        } else {
            run_ready(fabric, number, now_ns, &mut report);
        }
        poll_wire(fabric, number, &mut report);
        if let Some(hca) = fabric.hca(number) {
            if let Some(due_ns) = arming::look_at_moderated(hca) {
                report.wake_at(due_ns);
            }
            // The packets that the wire received may have given QPs something to do.
            report.busy |= !hca.ready.is_empty();
            report.news |= std::mem::take(&mut hca.news);
            deliver(hca, &mut report);
        }
    }
    report
}

/// Runs the turn of an HCA whose WQEs an executor runs: carries over the doorbells that hosts have rung, and reports the QPs that the
/// executor has failed.
fn external_turn(fabric: &mut Fabric, number: usize, look: Look, report: &mut Report) {
    let now_ns = fabric.clock.now_ns();
    if let Some(hca) = fabric.hca(number) {
        if hca.paused_until_ns > now_ns {
            report.wake_at(hca.paused_until_ns);
        } else if std::mem::take(&mut hca.paused_until_ns) != 0 {
            // The pause is over. If the executor fails here, the next command reports it.
            let _ = fabric.write_through(number);
        }
    }
    report.busy |= fabric.carry_doorbells(number, look);
    report.news |= fabric.look_for_failures();
    if let Some(hca) = fabric.hca(number) {
        hca.ready.clear();
        deliver(hca, report);
    }
}

/// Returns whether the QPs with work miss this turn. An HCA without a lottery never does that. With a lottery it happens now and then, and
/// rarely the whole HCA pauses for up to 300 us.
fn doze(hca: &mut HcaState, now_ns: u64) -> bool {
    let Some(lottery) = hca.lottery.as_mut().filter(|_| !hca.ready.is_empty()) else {
        return false;
    };
    if lottery.u32(0..256) == 0 {
        hca.paused_until_ns = now_ns + lottery.u64(0..300_000);
        return true;
    }
    lottery.u32(0..4) == 0
}

/// Puts the QPs whose wait is over in line again.
fn wake_stalled(hca: &mut HcaState, now_ns: u64, report: &mut Report) {
    let mut at = 0;
    while let Some(&(until, qpn)) = hca.stalled.get(at) {
        if until <= now_ns {
            hca.stalled.swap_remove(at);
            hca.schedule(qpn);
        } else {
            report.wake_at(until);
            at += 1;
        }
    }
}

/// Gives each QP that stands in line a turn.
fn run_ready(fabric: &mut Fabric, number: usize, now_ns: u64, report: &mut Report) {
    let Some(hca) = fabric.hca(number) else {
        return;
    };
    for _ in 0..hca.ready.len() {
        let Some(hca) = fabric.hca(number) else {
            return;
        };
        let Some((qpn, budget)) = draw(hca) else {
            return;
        };
        if let Some(qp) = hca.qps.get_mut(qpn) {
            qp.send.scheduled = false;
        } else {
            continue; // gone
        }
        report.busy = true;
        match send::turn(fabric, End { hca: number, qpn }, budget, now_ns) {
            TurnOutcome::Idle => {}
            TurnOutcome::More => {
                if let Some(hca) = fabric.hca(number) {
                    hca.schedule(qpn);
                }
            }
            TurnOutcome::Wait(until) => {
                if let Some(hca) = fabric.hca(number) {
                    hca.stalled.retain(|(_, other)| *other != qpn);
                    hca.stalled.push((until, qpn));
                    report.wake_at(until);
                }
            }
        }
        if fabric.clock.now_ns() > now_ns + TURN_NS {
            return;
        }
    }
}

/// Returns the next QP in line and how many WQEs it may run. With a lottery both are drawn by lot.
fn draw(hca: &mut HcaState) -> Option<(u32, usize)> {
    let Some(lottery) = &mut hca.lottery else {
        return Some((hca.ready.pop_front()?, BUDGET));
    };
    let waiting = hca.ready.len();
    if waiting == 0 {
        return None;
    }
    let qpn = hca.ready.swap_remove_back(lottery.usize(0..waiting))?;
    Some((qpn, lottery.usize(1..=8)))
}

fn poll_wire(fabric: &mut Fabric, number: usize, report: &mut Report) {
    // The clock is read anew: QPs may have run for a while.
    let now_ns = fabric.clock.now_ns();
    let Some(slot) = fabric.slot(number) else {
        return;
    };
    slot.state.now_ns = now_ns;
    for wire in &mut slot.wires {
        match wire.poll(now_ns, &mut slot.state) {
            Ok(activity) => report.busy |= activity.busy || activity.unfinished,
            Err(error) => {
                // A broken socket means silence: QPs give up in their own time. The checker notes it once.
                let number = slot.state.identity.index;
                slot.state
                    .checker
                    .note(crate::device::check::Finding::Socket, number, || {
                        format!("its carrier failed: {error}")
                    });
            }
        }
        report.busy |= wire.has_work();
        if let Some(at_ns) = wire.deadline_ns() {
            report.wake_at(at_ns);
        }
    }
}

fn deliver(hca: &mut HcaState, report: &mut Report) {
    for (context, event) in hca.events.drain(..) {
        if let Some(handler) = hca
            .contexts
            .get(context)
            .and_then(|open| open.handler.clone())
        {
            report.events.push((handler, event));
        }
    }
}
