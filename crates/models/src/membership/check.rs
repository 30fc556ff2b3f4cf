//! Checks the properties.

use membership_rules::look::{Leaving, Limit};
use membership_rules::record::{Proposal, Record};
use membership_rules::slots::Slots;

use super::model::{Model, Violation};
use super::state::{LEASE, Life, State, bit, pair};

/// Returns whether nothing is disturbed now.
pub(super) fn is_calm(state: &State) -> bool {
    let world = &state.world;
    world.up && world.paused | world.down | world.cut | world.far | world.behind == 0
}

/// Returns whether all living ranks serve in one view, with no pair parted and no QP broken.
pub(super) fn is_good(model: &Model, state: &State) -> bool {
    let record = &state.record;
    let lives = |slot: &u32| state.ranks[*slot as usize].life == Life::Alive;
    let mut living = model.all().filter(lives).peekable();
    if living.peek().is_none() {
        return true;
    }
    let members = record.members.keys();
    let agreed = record.open.is_none() && record.parted.is_empty();
    let members_all: Slots = members.collect();
    let living: Slots = living.collect();
    agreed
        && living == members_all
        && living.iter().all(|slot| {
            let own = &state.ranks[slot as usize].own;
            own.is_current(record)
                && own.limit == Limit::Open
                && own.broken.and(&members_all).is_empty()
                && own.leaving == Leaving::No
        })
}

/// Returns whether a rank that is disturbed for good is still a member while others are well.
pub(super) fn lingers(model: &Model, state: &State) -> bool {
    let world = &state.world;
    // A rank that is behind is parted, and delays no other rank.
    if !world.up || world.far | world.behind != 0 {
        return false;
    }
    let lives = |slot: &u32| state.ranks[*slot as usize].life == Life::Alive;
    let members = state.record.members.keys();
    let well: Vec<u32> = members.filter(lives).collect();
    let mut ill = 0;
    let mut few = 2;
    let paths = world.down != 0 || world.cut != 0;
    if world.paused != 0 && world.alone > 0 && !paths {
        (ill, few) = (world.paused, 1);
    } else if model.config.traffic && world.paused == 0 && (world.down != 0) != (world.cut != 0) {
        if world.down != (1 << model.slots) - 1 {
            ill = world.down;
        }
        if world.cut != 0 {
            let alone = |slot: &u32| {
                let mut others = well.iter().filter(|of| *of != slot);
                others.all(|of| world.cut & pair(*slot, *of) != 0)
            };
            ill = well
                .iter()
                .filter(|slot| alone(slot))
                .fold(0, |all, slot| all | bit(*slot));
            if ill.count_ones() != 1 {
                ill = 0;
            }
        }
    }
    let members = state.record.members.keys();
    let members = members.fold(0, |all, slot| all | bit(slot));
    let others = well.iter().filter(|slot| ill & bit(**slot) == 0);
    ill & members != 0 && others.count() >= few
}

/// Checks N: a newcomer comes in whole with the members with which both ends have proven their QPs, and with more than half of all
/// members.
pub(super) fn proven(model: &Model, state: &State, proposal: &Proposal) -> Result<(), Violation> {
    for comes in proposal.takes.keys() {
        let mut whole = 0;
        for kept in proposal.keep.iter() {
            if proposal.parts.contains(comes, kept) {
                continue;
            }
            whole += 1;
            let says = |a: u32, b: u32| {
                let rank = &state.ranks[a as usize];
                rank.life != Life::Alive || state.rows[a as usize].connected.contains(b)
            };
            // A row that has just lapsed was there when the proposal was decided.
            let lapsed = |a: u32| state.lease[a as usize] > LEASE;
            if !(says(comes, kept) || lapsed(comes)) || !(says(kept, comes) || lapsed(kept)) {
                let text = format!("{comes} comes in, and {kept} has not proven the pair with it");
                model.fail("N", text)?;
            }
        }
        if !proposal.keep.is_empty() && 2 * whole <= proposal.keep.len() {
            let text = format!(
                "{comes} comes in and reaches {whole} of {}",
                proposal.keep.len()
            );
            model.fail("N", text)?;
        }
    }
    Ok(())
}

/// Checks E2, E6 and A2 for the view `new`, which `open` becomes.
pub(super) fn committed(
    model: &Model,
    state: &State,
    open: &Proposal,
    new: &Record,
) -> Result<(), Violation> {
    let old = &state.record;
    let dropped = old.members.keys();
    let dropped =
        dropped.filter(|slot| !new.members.contains_key(*slot) && !open.leaves.contains_key(slot));
    let dropped: Vec<u32> = dropped.collect();
    for kept in open.keep.iter() {
        let rank = &state.ranks[kept as usize];
        if rank.life != Life::Alive {
            continue;
        }
        let safe = rank.own.fenced.with(&rank.own.broken);
        if let Some(of) = dropped.iter().find(|of| !safe.contains(**of)) {
            model.fail(
                "E2",
                format!("{kept} has not fenced {of}, which is dropped"),
            )?;
        }
        for of in new.members.keys().filter(|of| *of != kept) {
            let parted = new.parted.contains(kept, of);
            if rank.own.fenced.contains(of) && !parted {
                model.fail("E6", format!("{kept} has fenced {of}, which is kept whole"))?;
            }
            if parted && !old.parted.contains(kept, of) && !safe.contains(of) {
                model.fail("E2", format!("{kept} has not fenced {of}, which is parted"))?;
            }
        }
    }
    for of in dropped {
        let lives = state.ranks[of as usize].life == Life::Alive;
        if lives && state.world.disturbed & bit(of) == 0 {
            model.fail("A2", format!("{of}, undisturbed, is expelled"))?;
        }
    }
    Ok(())
}

/// Checks T.
pub(super) fn lost(model: &Model, state: &State) -> Result<(), Violation> {
    let all = || (0u32..).zip(&state.ranks);
    for (gone, leaver) in all().filter(|(_, rank)| rank.life == Life::Left) {
        for (slot, rank) in all() {
            let counts = matches!(rank.life, Life::Alive | Life::Left);
            let calls = (1..).zip(rank.ran.iter().zip(&leaver.ran));
            for (call, (theirs, its)) in calls.filter(|(_, (theirs, _))| counts && **theirs != 0) {
                let with = state.history[*theirs as usize - 1] & bit(gone) != 0;
                if (with || *its != 0) && theirs != its {
                    let text =
                        format!("{slot} ran call {call} in {theirs}, {gone}, which left, in {its}");
                    model.fail("T", text)?;
                }
            }
        }
    }
    Ok(())
}

/// Checks E3.
pub(super) fn same_view(model: &Model, state: &State) -> Result<(), Violation> {
    let record = &state.record;
    for call in 1..=model.config.calls {
        let mut seen = 0;
        for slot in record.members.keys() {
            let rank = &state.ranks[slot as usize];
            let ran = rank.ran[call as usize - 1];
            if rank.life != Life::Alive || ran == 0 {
                continue;
            }
            let stale = call >= record.first && ran != record.epoch;
            if stale || seen != 0 && seen != ran {
                let epoch = record.epoch;
                let text = format!("call {call} ran in views {ran} and {seen}, now {epoch}");
                model.fail("E3", text)?;
            }
            seen = ran;
        }
    }
    Ok(())
}
