//! What has happened in a group, as structs of C.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr;
use std::time::Duration;

use warpverbs::membership::{Cause, GroupEventKind, GroupState, Members};

use crate::cause;
use crate::group::{state, wv_group};
use crate::handle::Handle;
use crate::sized::{place, sized};
use crate::status::{Failure, guard, wv_status};
use crate::team::millis;

/// wv_group_event.kind: an event that this header does not know; `text` names it.
pub const WV_EVENT_OTHER: u32 = 0;
/// wv_group_event.kind: this rank suspects `rank`, by `cause`.
pub const WV_EVENT_SUSPECTED: u32 = 1;
/// wv_group_event.kind: this rank suspects `rank` no longer.
pub const WV_EVENT_TRUSTED: u32 = 2;
/// wv_group_event.kind: kernels do not wait for `members`, from now on.
pub const WV_EVENT_MASKED: u32 = 3;
/// wv_group_event.kind: this rank proposes `members` with their `generations`, as `proposal`.
pub const WV_EVENT_PROPOSED: u32 = 4;
/// wv_group_event.kind: this rank has promised `proposal`. `call` is the last that it starts in the old view, 0 if it joins.
pub const WV_EVENT_PROMISED: u32 = 5;
/// wv_group_event.kind: the QPs to `members` are in error.
pub const WV_EVENT_FENCED: u32 = 6;
/// wv_group_event.kind: kernels have view `epoch` of `members` with their `generations`, from `call` on.
pub const WV_EVENT_VIEWED: u32 = 7;
/// wv_group_event.kind: all calls may start again, in view `epoch`. They were held for `duration_ns`.
pub const WV_EVENT_RESUMED: u32 = 8;
/// wv_group_event.kind: nothing is left of an earlier process of `rank`.
pub const WV_EVENT_CLEARED: u32 = 9;
/// wv_group_event.kind: the QPs to `generation` of `rank`, which wants to come in, are connected. That took `duration_ns`.
pub const WV_EVENT_CONNECTED: u32 = 10;
/// wv_group_event.kind: the QPs to `generation` of `rank` could not be connected, for the reason in `text`. It is tried again.
pub const WV_EVENT_NOT_CONNECTED: u32 = 11;
/// wv_group_event.kind: a step failed at this rank, for what `text` says. It is tried again.
pub const WV_EVENT_FAILED: u32 = 12;
/// wv_group_event.kind: the store does not answer, for what `text` says. No view changes.
pub const WV_EVENT_STORE_LOST: u32 = 13;
/// wv_group_event.kind: the store answers again, after `duration_ns`.
pub const WV_EVENT_STORE_BACK: u32 = 14;
/// wv_group_event.kind: a thread of the group has panicked, as `text` says. This process of the rank is over.
pub const WV_EVENT_PANICKED: u32 = 15;
/// wv_group_event.kind: this process of the rank is over: `state` says how.
pub const WV_EVENT_ENDED: u32 = 16;

/// wv_group_event.kind: the port of rail `detail` carries nothing any more. That alone parts this rank from no member.
pub const WV_EVENT_RAIL_DOWN: u32 = 17;
/// wv_group_event.kind: the port of rail `detail` is up again.
pub const WV_EVENT_RAIL_UP: u32 = 18;
/// wv_group_event.kind: the HCA of rail `detail` has failed for good.
pub const WV_EVENT_RAIL_LOST: u32 = 19;
/// wv_group_event.kind: of the first calls of the store 99 of 100 took up to `duration_ns`, more than a sixth of a lease.
pub const WV_EVENT_SLOW_STORE: u32 = 20;
/// wv_group_event.kind: this rank comes in when generation `generation` of its slot `rank`, a member still, is gone.
pub const WV_EVENT_WAITS: u32 = 21;
/// wv_group_event.kind: what is posted to `rank` on some rails goes by other rails. `detail` has a bit for each of rails 0 to 31;
/// `text` names all.
pub const WV_EVENT_GOES_ROUND: u32 = 22;
/// wv_group_event.kind: `detail` newcomers of `rank`, one after the other, came to nothing. Members take the next one in
/// `duration_ns` after the last of them, or later.
pub const WV_EVENT_HELD_BACK: u32 = 23;
/// wv_group_event.kind: the store is without the group's record, for `duration_ns` as far as is known. `text` says what the ranks
/// wait for, and what to do.
pub const WV_EVENT_RECORD_LOST: u32 = 24;
/// wv_group_event.kind: the group's record, of view `epoch`, stands in the store again, which was without it for `duration_ns`.
pub const WV_EVENT_RECORD_BACK: u32 = 25;

/// wv_group_event.cause: a cause that this header does not know; `text` names it.
pub const WV_CAUSE_OTHER: u32 = 0;
/// wv_group_event.cause: kernels have waited for it up to the deadline of a call.
pub const WV_CAUSE_TIMEOUT: u32 = 1;
/// wv_group_event.cause: a QP to it is in error; `detail` is vendor syndrome << 8 | syndrome.
pub const WV_CAUSE_QP_ERROR: u32 = 2;
/// wv_group_event.cause: the HCA says that a QP to it has failed; `detail` is the type of event.
pub const WV_CAUSE_QP_EVENT: u32 = 3;
/// wv_group_event.cause: nothing has arrived from it, or could be sent to it, for the stall bound.
pub const WV_CAUSE_OVERDUE: u32 = 4;
/// wv_group_event.cause: a QP to it was flushed, and the first error is lost.
pub const WV_CAUSE_QP_FLUSHED: u32 = 5;
/// wv_group_event.cause: its lease has run out, and no sign of life has come from it for one and a half leases since.
pub const WV_CAUSE_UNHEARD: u32 = 6;
/// wv_group_event.cause: its process, on this machine, has ended.
pub const WV_CAUSE_PROCESS_EXIT: u32 = 7;
/// wv_group_event.cause: it says itself that it has ended.
pub const WV_CAUSE_OVER: u32 = 8;
/// wv_group_event.cause: it wants to leave.
pub const WV_CAUSE_LEAVES: u32 = 9;
/// wv_group_event.cause: it has not promised a proposal in time.
pub const WV_CAUSE_SILENT: u32 = 10;
/// wv_group_event.cause: wv_group_suspect, for what `text` says.
pub const WV_CAUSE_TOLD: u32 = 11;

/// Something that has happened in a group. Needs WV_INIT first. What `kind` does not speak of is zero. Arrays and `text` belong to the
/// calling thread, and stay until its next wv_group_next_event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_group_event {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// When: ns since wv_group_start.
    pub at_ns: u64,
    /// What: WV_EVENT_...
    pub kind: u32,
    /// The rank that the event is about.
    pub rank: u32,
    /// The generation of that rank, from 1 on.
    pub generation: u32,
    /// Why: WV_CAUSE_...
    pub cause: u32,
    /// The detail of the cause or event: a syndrome, a type of event, or a rail.
    pub detail: u32,
    /// WV_GROUP_...
    pub state: u32,
    /// The epoch of the view that the event is about.
    pub epoch: u32,
    /// The number of the call that the event is about.
    pub call: u32,
    /// The number of the proposal that the event is about.
    pub proposal: u64,
    /// How long something took.
    pub duration_ns: u64,
    /// Ranks: `[member_count]`, ascending.
    pub members: *const u32,
    /// The generation of each, or NULL.
    pub generations: *const u32,
    /// The event in words. Never NULL.
    pub text: *const c_char,
    /// Number of members.
    pub member_count: u32,
    /// Zero.
    pub reserved: u32,
}

sized!(wv_group_event {
    at_ns,
    kind,
    rank,
    generation,
    cause,
    detail,
    state,
    epoch,
    call,
    proposal,
    duration_ns,
    members,
    generations,
    text,
    member_count,
    reserved,
});

/// What an event of a thread points to.
#[derive(Debug, Default)]
struct Kept {
    members: Vec<u32>,
    generations: Vec<u32>,
    text: CString,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A rail as C has it.
fn number_of(rail: usize) -> u32 {
    u32::try_from(rail).unwrap_or(u32::MAX)
}

/// WV_CAUSE_... and what it says besides.
fn number(cause: &Cause) -> (u32, u32) {
    match cause {
        Cause::Timeout => (WV_CAUSE_TIMEOUT, 0),
        Cause::QpError(syndrome) => (WV_CAUSE_QP_ERROR, *syndrome),
        Cause::QpEvent(kind) => (WV_CAUSE_QP_EVENT, (*kind).into()),
        Cause::Overdue => (WV_CAUSE_OVERDUE, 0),
        Cause::QpFlushed => (WV_CAUSE_QP_FLUSHED, 0),
        Cause::Unheard => (WV_CAUSE_UNHEARD, 0),
        Cause::ProcessExit => (WV_CAUSE_PROCESS_EXIT, 0),
        Cause::Over => (WV_CAUSE_OVER, 0),
        Cause::Leaves => (WV_CAUSE_LEAVES, 0),
        Cause::Silent => (WV_CAUSE_SILENT, 0),
        Cause::Told(_) => (WV_CAUSE_TOLD, 0),
        _ => (WV_CAUSE_OTHER, 0),
    }
}

/// What has happened `after` the start of the group, without what the struct points to; and that.
fn told(what: &GroupEventKind, after: Duration) -> (wv_group_event, Kept) {
    let mut told = wv_group_event {
        size: 0,
        at_ns: nanos(after),
        kind: WV_EVENT_OTHER,
        rank: 0,
        generation: 0,
        cause: 0,
        detail: 0,
        state: 0,
        epoch: 0,
        call: 0,
        proposal: 0,
        duration_ns: 0,
        members: ptr::null(),
        generations: ptr::null(),
        text: ptr::null(),
        member_count: 0,
        reserved: 0,
    };
    let mut kept = Kept::default();
    let with_generations = |kept: &mut Kept, members: &Members| {
        kept.members = members.keys().collect();
        kept.generations = members.values().collect();
    };
    let text = match what {
        GroupEventKind::Failed { error } | GroupEventKind::StoreLost { error } => error.clone(),
        what => what.to_string(),
    };
    told.kind = match what {
        GroupEventKind::Suspected { rank, cause } => {
            told.rank = *rank;
            (told.cause, told.detail) = number(cause);
            WV_EVENT_SUSPECTED
        }
        GroupEventKind::Trusted { rank } => {
            told.rank = *rank;
            WV_EVENT_TRUSTED
        }
        GroupEventKind::Masked { ranks } => {
            kept.members.clone_from(ranks);
            WV_EVENT_MASKED
        }
        GroupEventKind::Proposed { proposal, members } => {
            told.proposal = *proposal;
            with_generations(&mut kept, members);
            WV_EVENT_PROPOSED
        }
        GroupEventKind::Promised { proposal, last } => {
            told.proposal = *proposal;
            told.call = last.unwrap_or(0);
            WV_EVENT_PROMISED
        }
        GroupEventKind::Fenced { ranks } => {
            kept.members.clone_from(ranks);
            WV_EVENT_FENCED
        }
        GroupEventKind::Viewed(view) => {
            (told.epoch, told.call) = (view.epoch, view.first);
            with_generations(&mut kept, &view.members);
            WV_EVENT_VIEWED
        }
        GroupEventKind::Resumed { epoch, held } => {
            (told.epoch, told.duration_ns) = (*epoch, nanos(*held));
            WV_EVENT_RESUMED
        }
        GroupEventKind::Cleared { rank } => {
            told.rank = *rank;
            WV_EVENT_CLEARED
        }
        GroupEventKind::Connected {
            rank,
            generation,
            took,
        } => {
            (told.rank, told.generation, told.duration_ns) = (*rank, *generation, nanos(*took));
            WV_EVENT_CONNECTED
        }
        GroupEventKind::GoesRound { rank, rails } => {
            told.rank = *rank;
            let bit = |rail: &u32| 1u32.checked_shl(*rail).unwrap_or(0);
            told.detail = rails.iter().fold(0, |bits, rail| bits | bit(rail));
            WV_EVENT_GOES_ROUND
        }
        GroupEventKind::NotConnected {
            rank, generation, ..
        } => {
            (told.rank, told.generation) = (*rank, *generation);
            WV_EVENT_NOT_CONNECTED
        }
        GroupEventKind::Failed { .. } => WV_EVENT_FAILED,
        GroupEventKind::StoreLost { .. } => WV_EVENT_STORE_LOST,
        GroupEventKind::SlowStore { p99, .. } => {
            told.duration_ns = nanos(*p99);
            WV_EVENT_SLOW_STORE
        }
        GroupEventKind::Waits { rank, generation } => {
            (told.rank, told.generation) = (*rank, *generation);
            WV_EVENT_WAITS
        }
        GroupEventKind::HeldBack {
            rank,
            failures,
            wait,
        } => {
            (told.rank, told.detail, told.duration_ns) = (*rank, *failures, nanos(*wait));
            WV_EVENT_HELD_BACK
        }
        GroupEventKind::RecordLost { lost, .. } => {
            told.duration_ns = nanos(*lost);
            WV_EVENT_RECORD_LOST
        }
        GroupEventKind::RecordBack { epoch, lost } => {
            (told.epoch, told.duration_ns) = (*epoch, nanos(*lost));
            WV_EVENT_RECORD_BACK
        }
        GroupEventKind::StoreBack { away } => {
            told.duration_ns = nanos(*away);
            WV_EVENT_STORE_BACK
        }
        GroupEventKind::RailDown { rail } => {
            told.detail = number_of(*rail);
            WV_EVENT_RAIL_DOWN
        }
        GroupEventKind::RailUp { rail } => {
            told.detail = number_of(*rail);
            WV_EVENT_RAIL_UP
        }
        GroupEventKind::RailLost { rail } => {
            told.detail = number_of(*rail);
            WV_EVENT_RAIL_LOST
        }
        GroupEventKind::Panicked(_) => WV_EVENT_PANICKED,
        GroupEventKind::Ended(how) => {
            told.state = state(*how);
            WV_EVENT_ENDED
        }
        _ => WV_EVENT_OTHER,
    };
    kept.text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    (told, kept)
}

/// Takes the oldest event, or waits for one up to `timeout_ms` and then returns WV_TIMEOUT. Once the group of this rank is over and
/// no event is left, it returns WV_EXPELLED, WV_LEFT or WV_PANIC at once. The newest 4,096 events are kept.
///
/// # Safety
/// `event` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_group_next_event(
    group: *const wv_group,
    event: *mut wv_group_event,
    timeout_ms: u32,
) -> wv_status {
    guard(|| {
        let group = wv_group::behind("group", group)?;
        // SAFETY: the caller's promise.
        let place = unsafe { place("event", event) }?;
        let Some(found) = group.group.next_event(millis(timeout_ms)) else {
            return Err(none(group.group.state(), timeout_ms));
        };
        let after = found.at.saturating_duration_since(group.start);
        let (mut told, kept) = told(&found.what, after);
        KEPT.with_borrow_mut(|place| {
            *place = kept;
            if !place.members.is_empty() {
                told.members = place.members.as_ptr();
            }
            if !place.generations.is_empty() {
                told.generations = place.generations.as_ptr();
            }
            told.member_count = u32::try_from(place.members.len()).unwrap_or(u32::MAX);
            told.text = place.text.as_ptr();
        });
        place.fill(told);
        Ok(())
    })
}

/// The failure of a call that found no event.
fn none(state: GroupState, timeout_ms: u32) -> Failure {
    match cause::of_state(state) {
        Some(status) => Failure::new(status, format!("the group is over: {state:?}")),
        None => {
            let words = format!("no event within {timeout_ms} ms");
            Failure::new(wv_status::WV_TIMEOUT, words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_what_its_kind_speaks_of() {
        let event = |what: GroupEventKind| told(&what, Duration::from_micros(5));
        let cause = Cause::QpError(0x8115);
        let (found, kept) = event(GroupEventKind::Suspected { rank: 3, cause });
        assert_eq!(
            (found.kind, found.rank, found.at_ns),
            (WV_EVENT_SUSPECTED, 3, 5_000)
        );
        assert_eq!((found.cause, found.detail), (WV_CAUSE_QP_ERROR, 0x8115));
        assert_eq!(
            kept.text.to_str().unwrap(),
            "rank 3 is suspected: a QP to it is in error, syndrome 0x8115"
        );
        let (found, kept) = event(GroupEventKind::Proposed {
            proposal: 9,
            members: Members::from([(1, 4), (2, 1)]),
        });
        assert_eq!((found.kind, found.proposal), (WV_EVENT_PROPOSED, 9));
        assert_eq!((kept.members, kept.generations), (vec![1, 2], vec![4, 1]));
        let (found, _) = event(GroupEventKind::Ended(GroupState::Left));
        assert_eq!(
            (found.kind, found.state),
            (WV_EVENT_ENDED, crate::group::WV_GROUP_LEFT)
        );
    }

    #[test]
    fn without_an_event_the_status_says_whether_one_may_come() {
        assert_eq!(none(GroupState::Serving, 7).status, wv_status::WV_TIMEOUT);
        assert_eq!(none(GroupState::Serving, 7).words, "no event within 7 ms");
        assert_eq!(none(GroupState::Expelled, 7).status, wv_status::WV_EXPELLED);
    }
}
