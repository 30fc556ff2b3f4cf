//! The guard of a peer. It is counted before `closed` is read, dropped after a fence, and refreshed by kernels that run on.

use super::configuration::Op;
use super::modes;
use super::property::Mutant;
use super::state::{At, Thread, Word, bit};
use super::step::Step;

pub(crate) fn begin(step: &mut Step<'_>) {
    if step.configuration.warps && modes::is_ahead_of_its_warp(step) {
        return;
    }
    let op = step.op;
    let life = step.word(Word::LIFE);
    let begins = |thread: &mut Thread| {
        let before = *thread;
        start(thread, op);
        thread.life = life;
        if before.bits & bit::REFRESHED != 0 {
            thread.life = before.life;
            thread.bits |= bit::REFRESHED;
        }
    };
    if !step.configuration.guard {
        step.goto(first(op), |thread| {
            begins(thread);
            thread.life = 0;
        });
    } else if step.word(Word::CLOSED) != 0 {
        // The thread was not let in. The caller tries again later.
    } else if step.is(Mutant::ClosedReadBeforeCount) {
        step.goto(At::GuardCountLate, begins);
    } else {
        step.goto_with(At::GuardCheck, &[step.add(Word::READERS, 1)], begins);
    }
}

pub(crate) fn guard_check(step: &mut Step<'_>) {
    if step.word(Word::CLOSED) != 0 {
        let thread = step.thread.cleared(At::Idle);
        step.finish(&[step.add(Word::READERS, -1)], thread);
    } else if step.op.flags.stale {
        let ticket = step.op.blocks;
        step.goto(At::Stale, |thread| thread.ticket = ticket);
    } else {
        let life = if step.has(bit::REFRESHED) {
            step.thread.life
        } else {
            step.word(Word::LIFE)
        };
        step.goto(first(step.op), |thread| thread.life = life);
    }
}

pub(crate) fn guard_drop(step: &mut Step<'_>) {
    if !modes::fenced(step) && !step.is(Mutant::GuardDroppedWithoutFence) {
        return;
    }
    let mut thread = step.thread.cleared(At::Idle);
    thread.done += 1;
    if !modes::fenced(step) {
        thread.life = step.thread.life;
    }
    step.finish(&[step.add(Word::READERS, -1)], thread);
}

/// Between two operations a kernel that runs on reads `closed`. If it is set, the kernel drops the guard and takes it again, and reads
/// again what it had read under the guard.
pub(crate) fn refresh(step: &mut Step<'_>) {
    let c = step.configuration;
    let ops = c.programs[usize::from(step.thread.program)].len();
    let last = usize::from(step.thread.done) + 1 == ops;
    if last {
        step.goto(At::GuardDrop, |_| ());
    } else if step.word(Word::CLOSED) != 0 {
        step.goto(At::RefreshDrop, |_| ());
    } else {
        step.goto(At::Held, |thread| thread.done += 1);
    }
}

pub(crate) fn refresh_drop(step: &mut Step<'_>) {
    if !modes::fenced(step) && !step.is(Mutant::RefreshWithoutFence) {
        return;
    }
    let mut thread = step.thread.cleared(At::Idle);
    thread.done += 1;
    if !modes::fenced(step) {
        thread.life = step.thread.life;
    }
    if step.is(Mutant::RefreshKeepsLife) {
        thread.life = step.thread.life;
        thread.bits = bit::REFRESHED;
    }
    step.finish(&[step.add(Word::READERS, -1)], thread);
}

/// Begins the next operation under the same guard.
pub(crate) fn held(step: &mut Step<'_>) {
    let op = step.op;
    step.goto(first(op), |thread| start(thread, op));
}

/// Returns the place at which an operation begins once the guard is taken.
fn first(op: Op) -> At {
    if op.flags.flush { At::Flush } else { At::Admit }
}

fn start(thread: &mut Thread, op: Op) {
    thread.blocks = op.blocks;
    thread.bits = if op.flags.more {
        bit::MORE | bit::HELD
    } else {
        0
    };
}
