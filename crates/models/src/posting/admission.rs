//! Admission: a thread claims ring space, which can be undone, and then reserves it. The module also has the rules that were tried instead.

use super::configuration::Admission;
use super::property::{Mutant, Property, Violation};
use super::state::{At, Word, bit};
use super::step::Step;
use super::{completion, modes};
use crate::explore::broken;

fn room(step: &Step<'_>, taken: usize, margin: i32) -> bool {
    let c = step.configuration;
    step.word(taken) + step.thread.blocks + margin <= step.word(Word::CONS) + c.depth
}

pub(crate) fn admit(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    if step.word(Word::ERR) != 0 {
        if step.has(bit::NOP) {
            step.goto(At::Wait, |thread| thread.bits = bit::NOP_POSTED);
        } else {
            step.ends(&[]);
        }
        return Ok(());
    }
    let c = step.configuration;
    let (resv, blocks) = (step.word(Word::RESV), step.thread.blocks);
    match c.admission {
        Admission::Claim => {
            let at = if room(step, Word::CLAIM, 0) {
                At::Reserve
            } else {
                At::Undo
            };
            step.goto_with(at, &[step.add(Word::CLAIM, blocks)], |_| ());
        }
        Admission::Add => step.goto(At::Reserve, |_| ()),
        Admission::Cas if room(step, Word::RESV, 0) => {
            step.goto(At::ReserveByCas, |thread| thread.index = resv);
        }
        Admission::Margin | Admission::SoftFull if room(step, Word::RESV, c.margin) => {
            step.goto(At::Reserve, |_| ());
        }
        // No other thread reserves.
        Admission::Alone if room(step, Word::RESV, 0) => {
            step.goto_with(At::Write, &[step.add(Word::RESV, blocks)], |thread| {
                thread.index = resv;
            });
        }
        Admission::Margin if room(step, Word::RESV, 0) => {
            step.goto(At::ReserveByCas, |thread| thread.index = resv);
        }
        _ => step.goto(At::AdmitWait, |_| ()),
    }
    Ok(())
}

pub(crate) fn reserve_by_cas(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    let (index, blocks) = (step.thread.index, step.thread.blocks);
    if step.word(Word::RESV) == index {
        step.goto_with(At::Write, &[(Word::RESV, index + blocks)], |_| ());
    } else {
        step.goto(At::Admit, |thread| thread.index = 0);
    }
    Ok(())
}

pub(crate) fn undo(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    let undone = if step.is(Mutant::ClaimNotUndone) {
        step.add(Word::CLAIM, 0)
    } else {
        step.add(Word::CLAIM, -step.thread.blocks)
    };
    if step.has(bit::NOP) {
        // The wait will try again.
        let mut thread = step.thread.cleared(At::Wait);
        thread.bits = bit::HELD;
        thread.ticket = step.thread.ticket;
        thread.life = step.thread.life;
        step.finish(&[undone], thread);
    } else if step.op.flags.attempt {
        step.ends(&[undone]);
    } else {
        step.goto_with(At::AdmitWait, &[undone], |_| ());
    }
    Ok(())
}

/// The thread waits for room. It holds no claim and no reservation meanwhile, so its put may leave at any time.
pub(crate) fn admit_wait(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    if step.word(Word::ERR) != 0 {
        step.goto(At::Admit, |_| ());
        return Ok(());
    }
    let c = step.configuration;
    let room = match c.admission {
        Admission::Claim => room(step, Word::CLAIM, 0),
        Admission::SoftFull => room(step, Word::RESV, c.margin),
        _ => room(step, Word::RESV, 0),
    };
    completion::poll(step)?;
    if room {
        step.goto(At::Admit, |_| ());
    }
    if step.op.flags.deadline && !step.has(bit::NOP) {
        step.ends(&[]);
    }
    Ok(())
}

pub(crate) fn reserve(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    if step.is(Mutant::MeetsWithClaim) && modes::a_lane_looks_for_space(step) {
        return Ok(());
    }
    let c = step.configuration;
    let (resv, blocks) = (step.word(Word::RESV), step.thread.blocks);
    let waits_later = c.admission == Admission::Add;
    if !waits_later && !room(step, Word::RESV, 0) {
        return broken(
            Property::Fits,
            format!(
                "reservation {resv}+{blocks} does not fit, cons {}",
                step.word(Word::CONS)
            ),
        );
    }
    let at = if waits_later { At::SlotWait } else { At::Write };
    step.goto_with(at, &[(Word::RESV, resv + blocks)], |thread| {
        thread.index = resv;
    });
    Ok(())
}

/// Waits until the reserved slots are free. Only rules by which reservations may have to wait need this.
pub(crate) fn slot_wait(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    let c = step.configuration;
    let (index, blocks) = (step.thread.index, step.thread.blocks);
    let fits = index + blocks <= step.word(Word::CONS) + c.depth;
    if fits || step.is(Mutant::SlotNotAwaited) {
        step.goto(At::Write, |_| ());
    } else if step.word(Word::ERR) != 0 {
        step.ends(&[]);
    } else {
        completion::poll(step)?;
        if step.op.flags.deadline && step.is(Mutant::DeadlineWithoutLatch) {
            step.ends(&[]);
        } else if step.op.flags.deadline {
            // The reservation can never be filled, so the QP is lost.
            step.ends(&[(Word::ERR, 3), (Word::DEAD, 1)]);
        }
    }
    Ok(())
}
