//! Which ranks hold which experts: tables with replicated, moved and missing experts, and views that change them between calls.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_char;

use warpverbs::moe::{MAX_EXPERT_SLOTS, Moe, Placement, View};

use crate::handle::Handle;
use crate::moe::{create, wv_moe, wv_moe_config};
use crate::sized::{read, sized};
use crate::status::{Failure, array, guard, wv_status};
use crate::team::{millis, wv_team};

/// The experts in the slots of each rank. Needs WV_INIT first. An expert may be at several ranks: a token takes the one at its own rank,
/// and else they take turns. Choices of an expert that is at no rank are lost.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_placement {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Slots of each rank: `[ranks]`.
    pub counts: *const u32,
    /// Their experts, rank after rank; in a rank by local number.
    pub experts: *const u32,
}

sized!(wv_placement { counts, experts });

/// The ranks that take part from one call on, and the experts that each holds. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_view {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// First call that runs in it.
    pub first: u32,
    /// Counts the changes of the members; the same at all ranks.
    pub epoch: u32,
    /// The ranks that take part: `[member_count]`.
    pub members: *const u32,
    /// How many they are.
    pub member_count: u32,
    /// Zero.
    pub reserved: u32,
    /// The experts of each rank. No rank holds more than the layer has room for.
    pub placement: *const wv_placement,
}

sized!(wv_view {
    first,
    epoch,
    members,
    member_count,
    reserved,
    placement
});

impl wv_placement {
    /// The table of a layer of so many experts.
    ///
    /// # Safety
    /// The arrays are as said above, for `ranks` ranks.
    unsafe fn read(&self, experts: u32, ranks: u32) -> Result<Placement, Failure> {
        // SAFETY: the caller's promise.
        let counts = unsafe { array("placement.counts", self.counts, ranks as usize) }?;
        let slots: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let all = usize::try_from(slots)
            .ok()
            .filter(|_| slots <= MAX_EXPERT_SLOTS.into());
        let Some(all) = all else {
            let limit = format!("at most {MAX_EXPERT_SLOTS} together");
            return Err(Failure::argument("placement.counts", slots, &limit));
        };
        // SAFETY: the caller's promise.
        let slots = unsafe { array("placement.experts", self.experts, all) }?;
        table(experts, counts, slots)
    }
}

/// The table of a layer of so many experts, of the slots of all ranks, rank after rank.
pub(crate) fn table(experts: u32, counts: &[u32], slots: &[u32]) -> Result<Placement, Failure> {
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    if all != slots.len() as u64 {
        let limit = format!("{} together, the number of slots", slots.len());
        return Err(Failure::argument("placement.counts", all, &limit));
    }
    let mut left = slots;
    let mut held = Vec::with_capacity(counts.len());
    for &count in counts {
        let (of_rank, others) = left.split_at(count as usize);
        held.push(of_rank.to_vec());
        left = others;
    }
    Ok(Placement::from_slots(experts, held)?)
}

/// As wv_moe_create, with the experts at the ranks that `placement` says. All ranks pass the same.
///
/// # Safety
/// As wv_moe_create; `placement` is a struct with the arrays that it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_moe_create_placed(
    team: *const wv_team,
    name: *const c_char,
    config: *const wv_moe_config,
    placement: *const wv_placement,
    moe: *mut *mut wv_moe,
) -> wv_status {
    // SAFETY: the caller's promise.
    unsafe {
        create(team, name, config, moe, |team, name, config| {
            config.check(team.ranks())?;
            let placement = read("placement", placement)?.read(config.experts, team.ranks())?;
            Ok(Moe::with_placement(team, name, config, placement)?)
        })
    }
}

/// Makes `view` the view of all calls from `view.first` on; earlier calls end in their own view. All ranks set the same view, and
/// none launches call `view.first` before all have. A layer keeps eight views: this waits up to `timeout_ms` until no call needs
/// the oldest one.
///
/// # Safety
/// `view` is a struct with the arrays that it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_moe_set_view(
    moe: *const wv_moe,
    view: *const wv_view,
    timeout_ms: u32,
) -> wv_status {
    guard(|| {
        let moe = &wv_moe::behind("moe", moe)?.moe;
        // SAFETY: the caller's promise.
        let view = unsafe { read("view", view) }?;
        // SAFETY: the caller's promise.
        let placement = unsafe { read("view.placement", view.placement) }?;
        let (experts, ranks) = (moe.config().experts, moe.team().ranks());
        let count = view.member_count;
        if count > ranks {
            let limit = format!("at most the ranks of the team, {ranks}");
            return Err(Failure::argument("view.member_count", count, &limit));
        }
        // SAFETY: the caller's promise.
        let members = unsafe { array("view.members", view.members, count as usize) }?.to_vec();
        let view = View {
            first: view.first,
            epoch: view.epoch,
            members,
            // SAFETY: the caller's promise.
            placement: unsafe { placement.read(experts, ranks) }?,
        };
        Ok(moe.set_view(&view, millis(timeout_ms))?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[u32], experts: &[u32]) -> Result<Placement, Failure> {
        let table = wv_placement {
            size: size_of::<wv_placement>(),
            counts: counts.as_ptr(),
            experts: experts.as_ptr(),
        };
        // SAFETY: the arrays of the tests hold as many as they say.
        unsafe { table.read(4, u32::try_from(counts.len()).unwrap()) }
    }

    #[test]
    fn slots_lie_rank_after_rank() {
        let table = of(&[2, 0, 3], &[3, 1, 0, 1, 2]).unwrap();
        assert_eq!(table.of_rank(0), [3, 1]);
        assert!(table.of_rank(1).is_empty());
        assert_eq!(table.of_rank(2), [0, 1, 2]);
    }

    #[test]
    fn a_table_that_cannot_be_is_refused_before_its_end_is_looked_for() {
        let words = |counts: &[u32], experts: &[u32]| of(counts, experts).unwrap_err().words;
        assert_eq!(words(&[2, 1], &[1, 1, 0]), "rank 0 holds expert 1 twice");
        assert_eq!(
            words(&[u32::MAX, u32::MAX], &[]),
            "placement.counts is 8589934590; it must be at most 65536 together"
        );
        assert_eq!(
            words(&[65_536, 1], &[]),
            "placement.counts is 65537; it must be at most 65536 together"
        );
    }
}
