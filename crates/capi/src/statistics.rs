//! What a host engine has done, and each of its rails.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_char;

use warpverbs::engine::{RailState, RailStatus, SliceCounts, Statistics, WaitsFor};

use crate::engine::wv_engine;
use crate::handle::Handle;
use crate::sized::{place, sized};
use crate::status::{Failure, guard, put, room, wv_status};
use crate::team::fixed;
use crate::transfer::wv_transfer;

/// Counts of an engine since it was opened. One snapshot is consistent: transfers that have ended were submitted, and slices that
/// are completed or have failed were posted. `posted + not_posted` is at most `queued + retried`, and equal once all transfers are
/// concluded. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_engine_statistics {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Transfers that the engine has taken.
    pub submitted: u64,
    /// Transfers that it has refused, since all slots were taken. A wait for a slot counts each of its tries.
    pub refused: u64,
    /// Transfers that are done.
    pub done: u64,
    /// Transfers that have failed.
    pub failed: u64,
    /// Transfers that were cancelled.
    pub cancelled: u64,
    /// Transfers whose deadline has passed.
    pub timed_out: u64,
    /// Bytes of the transfers that are done.
    pub done_bytes: u64,
    /// Slices of the submitted transfers.
    pub slices_queued: u64,
    /// How often a slice was put back to be posted again, since it had failed.
    pub slices_retried: u64,
    /// Slices that were queued or put back and never posted, since their transfers had ended before.
    pub slices_not_posted: u64,
    /// Slices that were given to a QP or to a copy, those that were posted again among them.
    pub slices_posted: u64,
    /// Their bytes.
    pub posted_bytes: u64,
    /// Posted slices whose bytes have landed.
    pub slices_completed: u64,
    /// Posted slices that have failed. Each may have been posted again.
    pub slices_failed: u64,
    /// How long workers have had slices to post and no room on any of their QPs, summed over workers, ns.
    pub stalled_ns: u64,
}

sized!(wv_engine_statistics {
    submitted,
    refused,
    done,
    failed,
    cancelled,
    timed_out,
    done_bytes,
    slices_queued,
    slices_retried,
    slices_not_posted,
    slices_posted,
    posted_bytes,
    slices_completed,
    slices_failed,
    stalled_ns
});

/// State of a rail: QPs of it that have failed are connected again.
pub const WV_RAIL_WORKS: u32 = 0;
/// State of a rail: its QPs have failed often, and none is connected again while another rail carries slices.
pub const WV_RAIL_RESTS: u32 = 1;
/// State of a rail: after a rest one QP is connected again, and the others if that one does not fail.
pub const WV_RAIL_PROBES: u32 = 2;

/// A rail of an engine: a port of an RDMA device, and the counts of its QPs. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_rail_info {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Its RDMA device, with a NUL.
    pub device: [c_char; 64],
    /// The port of it, from 1 on.
    pub port: u32,
    /// WV_RAIL_...
    pub state: u32,
    /// How often it was given a rest.
    pub rests: u64,
    /// Slices that were given to its QPs, those that were posted again among them.
    pub slices_posted: u64,
    /// Their bytes.
    pub posted_bytes: u64,
    /// Posted slices whose bytes have landed.
    pub slices_completed: u64,
    /// Posted slices that have failed.
    pub slices_failed: u64,
    /// How long its workers have had slices to post and no room on any of their QPs, summed over them, ns.
    pub stalled_ns: u64,
}

sized!(wv_rail_info {
    device,
    port,
    state,
    rests,
    slices_posted,
    posted_bytes,
    slices_completed,
    slices_failed,
    stalled_ns
});

/// Instead of the number of a rail: copies within the machine.
pub const WV_NO_RAIL: u32 = u32::MAX;

/// What a transfer waits for: nothing, it is concluded.
pub const WV_WAITS_FOR_NOTHING: u32 = 0;
/// What a transfer waits for: room on a QP, for slices that are not posted.
pub const WV_WAITS_FOR_ROOM: u32 = 1;
/// What a transfer waits for: a QP. Both ends reset one of the connection first, and connect it again.
pub const WV_WAITS_FOR_QP: u32 = 2;
/// What a transfer waits for: completions of what is posted. wv_engine_stalled says more of them.
pub const WV_WAITS_FOR_COMPLETION: u32 = 3;
/// What a transfer waits for: the reset at both ends of QPs on which a slice has failed.
pub const WV_WAITS_FOR_RESET: u32 = 4;
/// What a transfer waits for: the end of its connection, with the reset of all its QPs.
pub const WV_WAITS_FOR_END: u32 = 5;

/// Whether something completes of what is in flight to a peer by one rail. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_stall {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Slices that were posted and have not completed.
    pub in_flight: u64,
    /// How long none of them has completed, ns; 0 without any.
    pub since_completion_ns: u64,
}

sized!(wv_stall {
    in_flight,
    since_completion_ns
});

fn stalled_ns(slices: &SliceCounts) -> u64 {
    u64::try_from(slices.stalled.as_nanos()).unwrap_or(u64::MAX)
}

impl wv_engine_statistics {
    fn of(all: &Statistics) -> Self {
        Self {
            size: 0,
            submitted: all.submitted,
            refused: all.refused,
            done: all.done,
            failed: all.failed,
            cancelled: all.cancelled,
            timed_out: all.timed_out,
            done_bytes: all.done_bytes,
            slices_queued: all.queued,
            slices_retried: all.retried,
            slices_not_posted: all.not_posted,
            slices_posted: all.slices.posted,
            posted_bytes: all.slices.posted_bytes,
            slices_completed: all.slices.completed,
            slices_failed: all.slices.failed,
            stalled_ns: stalled_ns(&all.slices),
        }
    }
}

impl wv_rail_info {
    fn of(rail: &RailStatus) -> Self {
        let state = match rail.state {
            RailState::Rests => WV_RAIL_RESTS,
            RailState::Probes => WV_RAIL_PROBES,
            _ => WV_RAIL_WORKS,
        };
        Self {
            size: 0,
            device: fixed(&rail.device),
            port: rail.port.into(),
            state,
            rests: rail.rests,
            slices_posted: rail.slices.posted,
            posted_bytes: rail.slices.posted_bytes,
            slices_completed: rail.slices.completed,
            slices_failed: rail.slices.failed,
            stalled_ns: stalled_ns(&rail.slices),
        }
    }
}

/// Gets the counts of an engine since it was opened. Never waits.
///
/// # Safety
/// `statistics` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_get_statistics(
    engine: *const wv_engine,
    statistics: *mut wv_engine_statistics,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let place = unsafe { place("statistics", statistics) }?;
        place.fill(wv_engine_statistics::of(&engine.statistics()));
        Ok(())
    })
}

/// Gets the properties and counts of rail `rail` of an engine, below `rails` of wv_engine_info. Never waits.
///
/// # Safety
/// `info` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_get_rail(
    engine: *const wv_engine,
    rail: u32,
    info: *mut wv_rail_info,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let place = unsafe { place("info", info) }?;
        let rails = engine.rails();
        let last = rails.len().saturating_sub(1);
        let found = rails.get(rail as usize);
        let found =
            found.ok_or_else(|| Failure::argument("rail", rail, &format!("0 to {last}")))?;
        place.fill(wv_rail_info::of(found));
        Ok(())
    })
}

/// Tells a transfer that is slow from one that is dead, after a wait for it was in vain. The answer is what its connection has in
/// flight by rail `rail`, and for how long nothing has completed on that rail. `rail` is below the `rails` of wv_engine_info, or
/// WV_NO_RAIL. Nothing is in flight for a transfer that is concluded. Never waits.
///
/// # Safety
/// `stall` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_stalled(
    engine: *const wv_engine,
    transfer: wv_transfer,
    rail: u32,
    stall: *mut wv_stall,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let place = unsafe { place("stall", stall) }?;
        let last = engine.devices().len().saturating_sub(1);
        if rail != WV_NO_RAIL && rail as usize > last {
            let limit = format!("0 to {last}, or WV_NO_RAIL");
            return Err(Failure::argument("rail", rail, &limit));
        }
        let all = engine.stalled(transfer.id())?;
        let wanted = (rail != WV_NO_RAIL).then_some(rail);
        let found = all.into_iter().find(|it| it.rail == wanted);
        let since = found
            .as_ref()
            .map_or(0, |it| it.since_completion.as_nanos());
        place.fill(wv_stall {
            size: 0,
            in_flight: found.map_or(0, |it| it.in_flight.into()),
            since_completion_ns: u64::try_from(since).unwrap_or(u64::MAX),
        });
        Ok(())
    })
}

/// What a transfer waits for at this moment, also where nothing is in flight. Never waits.
///
/// # Safety
/// `what` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_waits_for(
    engine: *const wv_engine,
    transfer: wv_transfer,
    what: *mut u32,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        room("what", what)?;
        let found = match engine.waits_for(transfer.id())? {
            None => WV_WAITS_FOR_NOTHING,
            Some(WaitsFor::Qp) => WV_WAITS_FOR_QP,
            Some(WaitsFor::Completion) => WV_WAITS_FOR_COMPLETION,
            Some(WaitsFor::Reset) => WV_WAITS_FOR_RESET,
            Some(WaitsFor::End) => WV_WAITS_FOR_END,
            Some(_) => WV_WAITS_FOR_ROOM,
        };
        // SAFETY: checked above.
        unsafe { put("what", what, found) }
    })
}
