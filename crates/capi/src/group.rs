//! Groups: ranks die, leave and come back while the calls of a layer go on.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Instant;

use warpverbs::membership::{Group, GroupConfig, GroupCounters, GroupState, GroupView, Layer};
use warpverbs::moe::MAX_EXPERT_SLOTS;

use crate::handle::{Handle, handle};
use crate::moe::wv_moe;
use crate::placement::table;
use crate::sized::{Place, place, read, sized};
use crate::status::{Failure, guard, put, room, text, wv_status};
use crate::team::millis;

/// State of a rank in its group: a state that this header does not know.
pub const WV_GROUP_OTHER: u32 = 0;
/// State of a rank in its group: not a member yet. Its calls are held.
pub const WV_GROUP_JOINING: u32 = 1;
/// State of a rank in its group: a member whose calls start.
pub const WV_GROUP_SERVING: u32 = 2;
/// State of a rank in its group: a member. Its calls are held while the members agree on the next view.
pub const WV_GROUP_CHANGING: u32 = 3;
/// State of a rank in its group: dropped by the others. Its calls end at once. It comes back by wv_team_join.
pub const WV_GROUP_EXPELLED: u32 = 4;
/// State of a rank in its group: it has left by wv_group_leave.
pub const WV_GROUP_LEFT: u32 = 5;
/// State of a rank in its group: a thread of the group has panicked. The others go on without this rank; it comes back by
/// wv_team_join.
pub const WV_GROUP_BROKEN: u32 = 6;

/// How patient a group is. Needs WV_INIT first. All ranks say the same. 0: the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_group_config {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// How long a rank that does not renew its lease counts as living, ms: 50 to 3,600,000. Default 2,000.
    pub lease_ttl_ms: u32,
    /// How long a living rank may be without contact to every rank of the larger side before the group expels it, ms. At least two
    /// leases, and twice the team's deadline. Default 5 times that deadline, and two leases at least.
    pub stall_bound_ms: u32,
    /// How long a QP to a rank is in error before the pair parts, ms. Neither rank is expelled for that. Default the team's
    /// deadline.
    pub error_bound_ms: u32,
    /// How long a living rank may leave a proposal unanswered, ms: at least two leases. Default 5 times the team's deadline, and two
    /// leases at least.
    pub promise_bound_ms: u32,
    /// Longest wait of the founders for each other, ms. Also the longest time in which joining ranks hear of no member. Default the
    /// team's join_timeout_ms.
    pub found_bound_ms: u32,
    /// Zero.
    pub reserved: u32,
}

sized!(wv_group_config {
    lease_ttl_ms,
    stall_bound_ms,
    error_bound_ms,
    promise_bound_ms,
    found_bound_ms,
    reserved,
});

/// The members of a group, as this rank knows it. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_group_view {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// How this rank stands: WV_GROUP_...
    pub state: u32,
    /// Number of the newest view that kernels of this rank have. 0: none yet.
    pub epoch: u32,
    /// First call that runs in it.
    pub first: u32,
    /// Ranks of it.
    pub member_count: u32,
    /// Pairs of them that exchange no tokens in it, because a QP between them has failed. Their QPs are being connected anew.
    pub parted_count: u32,
    /// Zero.
    pub reserved: u32,
}

sized!(wv_group_view {
    state,
    epoch,
    first,
    member_count,
    parted_count,
    reserved,
});

/// How often each of these has happened to this rank since wv_group_start, and how many pairs are parted now. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct wv_group_counters {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Views that kernels of this rank were given.
    pub views: u64,
    /// Proposals that it has put into the store.
    pub proposals: u64,
    /// Proposals that it has promised.
    pub promises: u64,
    /// Times that it has begun to suspect a rank.
    pub suspicions: u64,
    /// Times that the QPs to a rank were connected: to newcomers, and to ranks from which it was parted.
    pub connections: u64,
    /// Times that the store was lost.
    pub store_losses: u64,
    /// Pairs of members that the newest view parts.
    pub parted: u64,
    /// Pairs that a view has parted and the view before had not.
    pub partings: u64,
    /// Parted pairs that a later view has united.
    pub unions: u64,
}

sized!(wv_group_counters {
    views,
    proposals,
    promises,
    suspicions,
    connections,
    store_losses,
    parted,
    partings,
    unions,
});

impl From<GroupCounters> for wv_group_counters {
    fn from(of: GroupCounters) -> Self {
        Self {
            size: 0,
            views: of.views,
            proposals: of.proposals,
            promises: of.promises,
            suspicions: of.suspicions,
            connections: of.connections,
            store_losses: of.store_losses,
            parted: of.parted,
            partings: of.partings,
            unions: of.unions,
        }
    }
}

/// One rank in its group, with the threads that keep it a member.
#[derive(Debug)]
pub struct wv_group {
    pub(crate) group: Group,
    pub(crate) start: Instant,
}

handle!(wv_group);

/// WV_GROUP_...
pub(crate) fn state(of: GroupState) -> u32 {
    match of {
        GroupState::Joining => WV_GROUP_JOINING,
        GroupState::Serving => WV_GROUP_SERVING,
        GroupState::Changing => WV_GROUP_CHANGING,
        GroupState::Expelled => WV_GROUP_EXPELLED,
        GroupState::Left => WV_GROUP_LEFT,
        GroupState::Broken => WV_GROUP_BROKEN,
        _ => WV_GROUP_OTHER,
    }
}

/// The state that C names so.
fn state_of(number: u32) -> Result<GroupState, Failure> {
    let all = [
        GroupState::Joining,
        GroupState::Serving,
        GroupState::Changing,
        GroupState::Expelled,
        GroupState::Left,
        GroupState::Broken,
    ];
    let found = all.into_iter().find(|known| state(*known) == number);
    found.ok_or_else(|| Failure::argument("state", number, "one of WV_GROUP_..., 1 to 6"))
}

impl wv_group_config {
    fn read(&self) -> Result<GroupConfig, Failure> {
        if self.reserved != 0 {
            return Err(Failure::argument("reserved", self.reserved, "0"));
        }
        let some = |ms: u32| (ms != 0).then(|| millis(ms));
        let mut config = GroupConfig::default();
        config.lease_ttl = some(self.lease_ttl_ms).unwrap_or(config.lease_ttl);
        config.stall_bound = some(self.stall_bound_ms);
        config.error_bound = some(self.error_bound_ms);
        config.promise_bound = some(self.promise_bound_ms);
        config.found_bound = some(self.found_bound_ms);
        Ok(config)
    }
}

/// Puts a layer, and the team below it, under the rules of a group: its calls run in views that all members agree on. The founders
/// of a team all start with the same first view. A rank of wv_team_join asks to be taken in. `config` NULL: defaults.
///
/// Returns at once; wv_group_wait waits until the rank serves. A rank that joins makes no call before. Each process of a rank has
/// one group, for one layer.
///
/// # Safety
/// `config` is null or a struct; `group` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_group_start(
    moe: *const wv_moe,
    config: *const wv_group_config,
    group: *mut *mut wv_group,
) -> wv_status {
    guard(|| {
        let moe = &wv_moe::behind("moe", moe)?.moe;
        room("group", group)?;
        let config = if config.is_null() {
            GroupConfig::default()
        } else {
            // SAFETY: the caller's promise.
            unsafe { read("config", config) }?.read()?
        };
        let start = Instant::now();
        let layer = Arc::clone(moe) as Arc<dyn Layer>;
        let made = wv_group {
            group: Group::start(moe.team(), layer, &config)?,
            start,
        };
        // SAFETY: checked above.
        unsafe { put("group", group, made.hand_out()) }
    })
}

/// Stops the threads of a group and gives the lease of this rank back. The others go on without it, as without a rank that has
/// died. Calls that run are not ended. A wv_group_leave before it loses no token. NULL is allowed. Layer and team stay.
#[unsafe(no_mangle)]
pub extern "C" fn wv_group_destroy(group: *mut wv_group) -> wv_status {
    guard(|| wv_group::take_back("group", group))
}

/// Fills in the newest view of `group`, of which `view` tells the length, and its members.
///
/// # Safety
/// As [`wv_group_get_view`].
unsafe fn show(
    place: Place<wv_group_view>,
    (now, view): (GroupState, Option<GroupView>),
    (members, generations, capacity): (*mut u32, *mut u32, u32),
) -> Result<(), Failure> {
    let all = view.as_ref().map(|view| view.members.iter());
    for (at, (rank, generation)) in all
        .into_iter()
        .flatten()
        .take(capacity as usize)
        .enumerate()
    {
        for (name, array, value) in [
            ("members", members, rank),
            ("generations", generations, generation),
        ] {
            if !array.is_null() {
                room(name, array)?;
                // SAFETY: the caller's promise: below `capacity`.
                unsafe { array.add(at).write(value) };
            }
        }
    }
    let count = view.as_ref().map_or(0, |view| view.members.len());
    let parted = view.as_ref().map_or(0, |view| view.parted.len());
    place.fill(wv_group_view {
        size: 0,
        state: state(now),
        epoch: view.as_ref().map_or(0, |view| view.epoch),
        first: view.as_ref().map_or(0, |view| view.first),
        member_count: u32::try_from(count).unwrap_or(u32::MAX),
        parted_count: u32::try_from(parted).unwrap_or(u32::MAX),
        reserved: 0,
    });
    Ok(())
}

/// Gets the state of this rank and the members, ascending. Up to `capacity` members go to `members` and their generations to
/// `generations`, either of which may be NULL. Never waits.
///
/// # Safety
/// `view` is a struct; the arrays are null or have room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_group_get_view(
    group: *const wv_group,
    view: *mut wv_group_view,
    members: *mut u32,
    generations: *mut u32,
    capacity: u32,
) -> wv_status {
    guard(|| {
        let group = &wv_group::behind("group", group)?.group;
        // SAFETY: the caller's promise.
        let place = unsafe { place("view", view) }?;
        let found = (group.state(), group.view());
        // SAFETY: the caller's promise.
        unsafe { show(place, found, (members, generations, capacity)) }
    })
}

/// Gets the counters of this rank since wv_group_start. Never waits.
///
/// # Safety
/// `counters` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_group_get_counters(
    group: *const wv_group,
    counters: *mut wv_group_counters,
) -> wv_status {
    guard(|| {
        let group = &wv_group::behind("group", group)?.group;
        // SAFETY: the caller's promise.
        let place = unsafe { place("counters", counters) }?;
        place.fill(group.counters().into());
        Ok(())
    })
}

/// Waits until this rank is in `state` (WV_GROUP_...), at most for `timeout_ms`. WV_TIMEOUT after that. WV_EXPELLED, WV_LEFT or
/// WV_PANIC, at once, if it can no longer come to `state`.
#[unsafe(no_mangle)]
pub extern "C" fn wv_group_wait(group: *const wv_group, state: u32, timeout_ms: u32) -> wv_status {
    guard(|| {
        let group = &wv_group::behind("group", group)?.group;
        Ok(group.wait(state_of(state)?, millis(timeout_ms))?)
    })
}

/// Waits until this rank serves in a view of at least `epoch`, at most for `timeout_ms`, and fails as wv_group_wait does.
#[unsafe(no_mangle)]
pub extern "C" fn wv_group_wait_view(
    group: *const wv_group,
    epoch: u32,
    timeout_ms: u32,
) -> wv_status {
    guard(|| {
        let group = &wv_group::behind("group", group)?.group;
        group.wait_view(epoch, millis(timeout_ms))?;
        Ok(())
    })
}

/// Reports that this rank cannot reach `rank`, and why. Kernels do not wait for it from now on. After the error bound the pair
/// parts: the QPs between the two are ended and connected anew, and neither rank is expelled.
///
/// # Safety
/// `why` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_group_suspect(
    group: *const wv_group,
    rank: u32,
    why: *const c_char,
) -> wv_status {
    guard(|| {
        let group = &wv_group::behind("group", group)?.group;
        // SAFETY: the caller's promise.
        let why = unsafe { text("why", why) }?;
        let why = why.ok_or_else(|| Failure::argument("why", "null", "a text"))?;
        Ok(group.suspect(rank, &why)?)
    })
}

/// Asks the others to go on without this rank. Waits until they do and no rank needs it any more, at most for `timeout_ms`. Another
/// thread must go on making calls meanwhile. Calls of which this rank is still part lose no token, and calls after the last one
/// end at once.
#[unsafe(no_mangle)]
pub extern "C" fn wv_group_leave(group: *const wv_group, timeout_ms: u32) -> wv_status {
    guard(|| {
        Ok(wv_group::behind("group", group)?
            .group
            .leave(millis(timeout_ms))?)
    })
}

/// Decides which ranks hold which experts for the members of a view, `members[member_count]` in ascending order. Writes the number
/// of slots of each rank to `counts[ranks]`. Writes their experts, rank after rank, to `experts`, which has room for `room`.
/// Returns the number of experts written. It must be a pure function, the same at all ranks, and return by `return` only.
pub type wv_placement_rule = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        members: *const u32,
        member_count: u32,
        counts: *mut u32,
        experts: *mut u32,
        room: u32,
    ) -> u32,
>;

/// What a rule of C is called with, in threads of the group.
struct Rule {
    call: unsafe extern "C" fn(*mut c_void, *const u32, u32, *mut u32, *mut u32, u32) -> u32,
    context: *mut c_void,
}

// SAFETY: `wv_moe_place_by` has the caller's promise that any thread may call the rule.
unsafe impl Send for Rule {}
// SAFETY: as for Send.
unsafe impl Sync for Rule {}

impl Rule {
    fn ask(&self, members: &[u32], ranks: u32, room: u32) -> (Vec<u32>, Vec<u32>) {
        let (mut counts, mut experts) = (vec![0; ranks as usize], vec![0; room as usize]);
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        // SAFETY: the promise of `wv_moe_place_by`; both arrays have the lengths that the rule is passed.
        let used = unsafe {
            (self.call)(
                self.context,
                members.as_ptr(),
                count,
                counts.as_mut_ptr(),
                experts.as_mut_ptr(),
                room,
            )
        };
        assert!(
            used <= room,
            "a placement rule says {used} slots; it must be at most {room}"
        );
        experts.truncate(used as usize);
        (counts, experts)
    }
}

/// Lets `rule` place the experts in the views of a group, from wv_group_start on. Without a rule the experts stay at their ranks,
/// and no rank serves those of a rank that is gone until it is back. If the answer of the rule does not fit, the group of this rank
/// ends with WV_GROUP_BROKEN, and the event says why.
///
/// # Safety
/// `rule` is such a function, may be called in any thread with `context`, and stays until the layer is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_moe_place_by(
    moe: *const wv_moe,
    rule: wv_placement_rule,
    context: *mut c_void,
) -> wv_status {
    guard(|| {
        let moe = &wv_moe::behind("moe", moe)?.moe;
        let call = rule.ok_or_else(|| Failure::argument("rule", "null", "a function"))?;
        let rule = Rule { call, context };
        let (experts, ranks) = (moe.config().experts, moe.team().ranks());
        let room = experts.saturating_mul(ranks).min(MAX_EXPERT_SLOTS);
        moe.place_by(move |members| {
            let (counts, slots) = rule.ask(members, ranks, room);
            match table(experts, &counts, &slots) {
                Ok(placement) => placement,
                // The thread of the group ends with it, and the rank is broken: it cannot serve in this view.
                Err(failure) => panic!("a placement rule: {}", failure.words),
            }
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn zeros_mean_the_defaults_of_the_library() {
        let mut config = wv_group_config {
            size: size_of::<wv_group_config>(),
            lease_ttl_ms: 0,
            stall_bound_ms: 0,
            error_bound_ms: 0,
            promise_bound_ms: 0,
            found_bound_ms: 0,
            reserved: 0,
        };
        assert_eq!(config.read().unwrap(), GroupConfig::default());
        config.lease_ttl_ms = 70;
        config.promise_bound_ms = 80;
        let found = config.read().unwrap();
        assert_eq!(found.lease_ttl, Duration::from_millis(70));
        assert_eq!(found.promise_bound, Some(Duration::from_millis(80)));
        config.reserved = 1;
        assert_eq!(
            config.read().unwrap_err().words,
            "reserved is 1; it must be 0"
        );
    }

    #[test]
    fn every_state_has_a_number_of_its_own() {
        for number in 1..=6 {
            assert_eq!(state(state_of(number).unwrap()), number);
        }
        for number in [0, 7] {
            assert_eq!(
                state_of(number).unwrap_err().status,
                wv_status::WV_BAD_ARGUMENT
            );
        }
    }

    #[test]
    fn every_counter_of_the_library_has_its_place() {
        let mut of = GroupCounters::default();
        let all: [&mut u64; 9] = [
            &mut of.views,
            &mut of.proposals,
            &mut of.promises,
            &mut of.suspicions,
            &mut of.connections,
            &mut of.store_losses,
            &mut of.parted,
            &mut of.partings,
            &mut of.unions,
        ];
        for (value, counter) in (1..).zip(all) {
            *counter = value;
        }
        let wanted = wv_group_counters {
            size: 0,
            views: 1,
            proposals: 2,
            promises: 3,
            suspicions: 4,
            connections: 5,
            store_losses: 6,
            parted: 7,
            partings: 8,
            unions: 9,
        };
        assert_eq!(wv_group_counters::from(of), wanted);
        // A new counter must be passed on as well.
        assert_eq!(size_of::<GroupCounters>(), 9 * size_of::<u64>());
    }

    unsafe extern "C" fn first_two(
        _: *mut c_void,
        members: *const u32,
        count: u32,
        counts: *mut u32,
        experts: *mut u32,
        room: u32,
    ) -> u32 {
        assert!(count == 2 && room == 6);
        // SAFETY: as the rule is called in the test: two members below three ranks, room for six.
        unsafe {
            *counts.add(*members as usize) = 1;
            *counts.add(*members.add(1) as usize) = 2;
            *experts = 4;
            *experts.add(1) = 5;
            *experts.add(2) = 6;
        }
        3
    }

    #[test]
    fn a_rule_answers_by_slots_of_each_rank() {
        let rule = Rule {
            call: first_two,
            context: std::ptr::null_mut(),
        };
        assert_eq!(rule.ask(&[0, 2], 3, 6), (vec![1, 0, 2], vec![4, 5, 6]));
    }
}
