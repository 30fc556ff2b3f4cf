//! The steps of the holder of the token, until the token is parked again.

use super::configuration::{Fence, Nic};
use super::property::{Mutant, Property, Violation};
use super::state::{At, Word, bit, parked};
use super::step::Step;
use super::{modes, post};
use crate::explore::broken;

/// A mutant does not count the rounds of a holder. The model reports it after this many rounds beyond the budget.
const UNCOUNTED: i32 = 6;

/// Sweeps published batches. Then holds back, leaves, or rings.
pub(crate) fn scan(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    let (head, flag, swept_must, told) = post::sweep(step)?;
    let must = if step.is(Mutant::OwnHintOnly) {
        step.has(bit::MUST)
    } else {
        swept_must
    };
    let leaves = step.has(bit::QUIET);
    let owner_will_come = step.word(Word::RESV) > head || step.is(Mutant::HandOverToNobody);
    let hands_over = leaves && !step.configuration.leave_quietly && owner_will_come;
    let at = match (must, leaves) {
        (false, _) => At::HoldFence,
        (true, true) if hands_over => At::LeaveCas,
        (true, true) => At::LeaveFence,
        (true, false) => At::RingFence,
    };
    let acquires = modes::acquires(step, at);
    let has_record = step.configuration.record;
    let rings = matches!(at, At::LeaveFence | At::RingFence);
    // The WQEs of other threads are fenced at block scope only, so a fence is needed before the record.
    let fences = rings && step.configuration.block && has_record;
    let at = if fences { At::RecordFence } else { at };
    step.goto(at, |thread| {
        thread.head = head;
        thread.flag = flag;
        if acquires {
            thread.known |= told;
        }
        thread.seen = 0;
        if must {
            thread.bits |= bit::MUST;
        }
        if rings && !fences {
            modes::announce(&mut thread.buffer, head, has_record);
        }
    });
    Ok(())
}

/// If the doorbell is held back, makes the thread's own WQEs visible before the token moves on.
pub(crate) fn hold_fence(step: &mut Step<'_>) -> Result<(), Violation> {
    let c = step.configuration;
    if modes::fence(step, Fence::Hold) || c.record || step.is(Mutant::HoldBackWithoutFence) {
        step.in_life()?;
        step.goto(At::Park, |_| ());
    }
    Ok(())
}

/// Runs fence.release, then stores the doorbell.
pub(crate) fn ring_fence(step: &mut Step<'_>) -> Result<(), Violation> {
    if modes::fence(step, Fence::Doorbell) || step.is(Mutant::NoFenceBeforeDoorbell) {
        step.in_life()?;
        let doorbell = modes::doorbell_store(step.configuration, step.thread.head);
        step.goto(At::Park, |thread| {
            thread.buffer.push(doorbell);
            thread.bits &= !bit::MUST;
        });
    }
    Ok(())
}

/// Swaps the flag that it saw for the parked token, by compare-and-swap. If that fails, one more batch has been published.
pub(crate) fn park(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    let c = step.configuration;
    let (head, round) = (step.thread.head, step.thread.round);
    if step.is(Mutant::ServesOnAfterParking) && unchanged(step) && round == 0 {
        let parked = [(c.flag(head), parked(head, false)), (Word::TOKEN, head)];
        step.goto_with(At::Scan, &parked, |thread| thread.round = 1);
    } else if unchanged(step) || step.is(Mutant::ParkByStore) {
        parks(step, false, None);
    } else if step.has(bit::QUIET) {
        quiet_round(step)?;
    } else if step.is(Mutant::RoundsNotCounted) {
        if round + 1 > c.budget + UNCOUNTED {
            return broken(Property::Bounded, format!("{} rounds at {head}", round + 1));
        }
        step.goto(At::Scan, |thread| thread.round = round + 1);
    } else {
        let over = round + 1 >= c.budget;
        step.goto(At::Scan, |thread| {
            thread.round = if over { 0 } else { round + 1 };
            if over {
                thread.bits |= bit::QUIET;
            }
        });
    }
    Ok(())
}

/// Parks the token at an index that is reserved. The owner of the index comes, inherits the token and rings.
pub(crate) fn leave_cas(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    if unchanged(step) {
        let owed = !step.is(Mutant::DebtForgotten);
        parks(step, owed, None);
        Ok(())
    } else {
        quiet_round(step)
    }
}

pub(crate) fn leave_fence(step: &mut Step<'_>) -> Result<(), Violation> {
    if modes::fence(step, Fence::Doorbell) {
        step.in_life()?;
        step.goto(At::LeavePark, |_| ());
    }
    Ok(())
}

/// Parks the token, and rings after that, because no thread is on the way.
pub(crate) fn leave_park(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    if unchanged(step) {
        let doorbell = modes::doorbell_store(step.configuration, step.thread.head);
        let rings = !step.is(Mutant::LeaveWithoutDoorbell);
        parks(step, false, rings.then_some(doorbell));
        Ok(())
    } else {
        quiet_round(step)
    }
}

fn unchanged(step: &Step<'_>) -> bool {
    step.word(step.configuration.flag(step.thread.head)) == step.thread.flag
}

fn parks(step: &mut Step<'_>, owed: bool, store: Option<(u8, i32)>) {
    let head = step.thread.head;
    let c = step.configuration;
    let flag = (c.flag(head), parked(head, owed));
    let token = (Word::TOKEN, head);
    if c.block {
        // The fence after the scan is also a release.
        let hands_over = step.thread.at == At::LeaveCas;
        let branch = if hands_over {
            At::LeaveCas
        } else {
            At::HoldFence
        };
        let released = modes::released(step, modes::acquires(step, branch));
        step.posted(&[flag, token, (c.flag_knows(head), released)], store);
    } else {
        step.posted(&[flag, token], store);
    }
}

/// Counts a round without a doorbell after the budget was used up. At most `depth` more WQEBBs can appear in such rounds.
fn quiet_round(step: &mut Step<'_>) -> Result<(), Violation> {
    let c = step.configuration;
    let round = step.thread.round + 1;
    if c.nic == Nic::Strict && round > c.depth {
        return broken(
            Property::Bounded,
            format!("{round} quiet rounds, depth {}", c.depth),
        );
    }
    step.goto(At::Scan, |thread| thread.round = round.min(c.depth + 1));
    Ok(())
}
