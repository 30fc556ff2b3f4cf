//! The changes that modes make. Fences have scopes, lanes of a warp share a post or post by themselves, a mailbox has its host thread, and
//! a QP may have one user.
//!
//! A fence whose scope does not reach the NIC drains nothing for the NIC. In block mode publishers fence at block scope only, so the model
//! tracks in `known` which WQEs a thread must make visible. These are the WQEs that the thread wrote. It also learns those that the writer
//! of a flag knew, by an acquire fence after reading that flag. A release fence that reaches the NIC is cumulative: it waits for all these
//! WQEs, in any thread's store buffer.

use super::configuration::{Configuration, Fence, Scope};
use super::moves::Move;
use super::property::{Mutant, Violation};
use super::state::{At, Buffer, LANE, State, Thread, Word, bit, block, stored};
use super::step::Step;

/// Returns the least scope of a fence that orders for the NIC.
fn reaches_the_nic(c: &Configuration) -> Scope {
    if c.host_queues {
        Scope::Sys
    } else {
        Scope::Gpu
    }
}

/// Returns the scope of a fence, and the least scope that is enough for its purpose.
fn scope(c: &Configuration, fence: Fence) -> (Scope, Scope) {
    let nic = reaches_the_nic(c);
    let (right, needed) = match fence {
        Fence::Publish | Fence::Hold if c.block => (Scope::Cta, nic),
        // The host's thread reads the mailbox, so the fence needs system scope.
        Fence::Doorbell if c.mailbox => (Scope::Sys, Scope::Sys),
        _ => (nic, nic),
    };
    let scope = match (c.mutant, fence) {
        (Mutant::PublishFenceOfGpu, Fence::Publish)
        | (Mutant::DoorbellFenceOfGpu, Fence::Doorbell) => Scope::Gpu,
        _ => right,
    };
    (scope, needed)
}

/// Returns the store that rings, to the register or to the mailbox.
pub(crate) fn doorbell_store(c: &Configuration, head: i32) -> (u8, i32) {
    let word = if c.mailbox {
        u8::try_from(c.mailbox_word()).unwrap()
    } else {
        stored::DOORBELL
    };
    (word, head)
}

/// The steps of lanes: they write their WQEs in any order, whatever their leader does.
pub(crate) fn lane_steps(
    c: &Configuration,
    state: &State,
    number: usize,
    emit: &mut impl FnMut(Move, State),
) {
    let thread = &state.threads()[number];
    for lane in (0..8).filter(|lane| thread.lanes >> lane & 1 != 0) {
        let mut next = *state;
        let thread = next.thread(number);
        thread.lanes &= !(1 << lane);
        let index = thread.index + lane;
        let is_last = lane == thread.blocks - 1;
        let op = c.programs[usize::from(thread.program)][usize::from(thread.done)];
        let wanted = op.flags.wait || c.crosses(thread.index, thread.blocks);
        let signalled = is_last && wanted;
        let word = u8::try_from(c.block(index)).unwrap();
        thread
            .buffer
            .push((word | LANE, block::new(index, block::SINGLE, signalled)));
        emit(Move::Lane(number, lane), next);
    }
}

/// Returns whether a release fence is over: it waits until everything that it covers is visible to its scope.
pub(crate) fn fence(step: &Step<'_>, fence: Fence) -> bool {
    let (scope, needed) = scope(step.configuration, fence);
    scope < needed || fenced(step)
}

/// Returns whether everything is visible that a fence of this thread covers: its own stores and the WQEs that it knows of. Stores of
/// its lanes count as its own from the barrier on.
pub(crate) fn fenced(step: &Step<'_>) -> bool {
    let thread = step.thread;
    let own = |store: &(u8, i32)| store.0 & LANE == 0;
    !thread.buffer.stores().iter().any(own) && thread.known == 0
}

/// `__syncwarp` or `__syncthreads`: waits until all lanes have written. From here on the leader's fences cover their stores.
pub(crate) fn barrier(step: &mut Step<'_>) {
    if step.thread.lanes == 0 || step.is(Mutant::NoBarrier) {
        let joins = !step.is(Mutant::NoBarrier) && !step.is(Mutant::BarrierAfterFence);
        step.goto(behind_the_barrier(step), |thread| {
            if joins {
                thread.buffer.join_lanes();
            }
        });
    }
}

fn behind_the_barrier(step: &Step<'_>) -> At {
    let alone = step.configuration.is_alone();
    if alone {
        At::ExclusivePublish
    } else {
        At::Peek
    }
}

// ---- lanes that post by themselves ----

/// Returns the lanes of this thread's warp, this thread included.
fn warp<'a>(step: &'a Step<'_>) -> impl Iterator<Item = &'a Thread> {
    let program = step.thread.program;
    let lanes = step.threads.iter();
    lanes.filter(move |other| other.program == program)
}

/// Returns whether a lane of the warp has not ended the operation that this thread has ended.
pub(crate) fn is_ahead_of_its_warp(step: &Step<'_>) -> bool {
    warp(step).any(|lane| lane.done < step.thread.done)
}

/// Returns whether a lane of the warp has no claim yet in the operation of this thread.
pub(crate) fn a_lane_looks_for_space(step: &Step<'_>) -> bool {
    let looks = |at| matches!(at, At::Idle | At::Admit | At::Undo | At::AdmitWait);
    warp(step).any(|lane| lane.done == step.thread.done && looks(lane.at))
}

// ---- block mode ----

/// Returns the WQEs that the writer of a flag has released at block scope when it writes the flag.
pub(crate) fn released(step: &Step<'_>, by_a_fence: bool) -> i32 {
    i32::from(if by_a_fence { step.thread.known } else { 0 })
}

/// Returns the slots that the writer of the flag at `index` knew.
pub(crate) fn told_by(step: &Step<'_>, index: i32) -> u8 {
    let c = step.configuration;
    if c.block {
        u8::try_from(step.word(c.flag_knows(index))).unwrap()
    } else {
        0
    }
}

/// Returns whether the holder runs `fence.acq_rel.cta` after its scan, by which it knows what it has seen.
pub(crate) fn acquires(step: &Step<'_>, at: At) -> bool {
    match step.configuration.mutant {
        Mutant::HolderWithoutAcquire => false,
        Mutant::HandOverWithoutAcquire => at != At::LeaveCas,
        Mutant::HoldWithoutAcquire => at != At::HoldFence,
        _ => true,
    }
}

/// Announces the head, after the scan and the fence that makes swept WQEs visible to the NIC.
pub(crate) fn record_fence(step: &mut Step<'_>) -> Result<(), Violation> {
    if fence(step, Fence::Record) || step.is(Mutant::OneFenceWithRecord) {
        step.in_life()?;
        let at = if step.has(bit::QUIET) {
            At::LeaveFence
        } else {
            At::RingFence
        };
        let head = step.thread.head;
        let has_record = step.configuration.record;
        step.goto(at, |thread| announce(&mut thread.buffer, head, has_record));
    }
    Ok(())
}

// ---- exclusive mode ----

/// Orders the WQEs before the record, which the NIC may read because of an older doorbell. If the doorbell is held back, nothing is
/// announced.
pub(crate) fn exclusive_publish(step: &mut Step<'_>) -> Result<(), Violation> {
    let c = step.configuration;
    let skips = !c.record || step.is(Mutant::OneFenceWithRecord);
    if skips || fence(step, Fence::Publish) {
        step.in_life()?;
        if step.has(bit::MORE) {
            step.posted(&[], None);
            return Ok(());
        }
        let head = step.thread.index + step.thread.blocks;
        step.goto(At::ExclusiveRing, |thread| {
            announce(&mut thread.buffer, head, c.record);
        });
    }
    Ok(())
}

pub(crate) fn exclusive_ring(step: &mut Step<'_>) -> Result<(), Violation> {
    if fence(step, Fence::Doorbell) || step.is(Mutant::NoFenceBeforeDoorbell) {
        step.in_life()?;
        let head = step.thread.index + step.thread.blocks;
        let doorbell = doorbell_store(step.configuration, head);
        step.posted(&[(Word::TOKEN, head)], Some(doorbell));
    }
    Ok(())
}

// ---- mailbox ----

/// A step of the host's thread: it loads the mailbox and stores the register. Its stores are buffered as those of any thread.
pub(crate) fn agent(step: &mut Step<'_>) {
    let c = step.configuration;
    let index = step.word(c.mailbox_word());
    if index != step.thread.index {
        let life = step.word(Word::LIFE);
        step.goto(At::Agent, |thread| {
            thread.index = index;
            thread.life = life;
            thread.buffer.push((stored::DOORBELL, index));
        });
    }
}

/// Pushes the stores of doorbell index and record.
pub(crate) fn announce(buffer: &mut Buffer, head: i32, has_record: bool) {
    buffer.push((stored::DOORBELL_INDEX, head));
    if has_record {
        buffer.push((stored::RECORD, head));
    }
}
