//! WQEs and their publication by a thread, and what is no put: flush, wait, an old ticket.

use super::configuration::Fence;
use super::property::{Mutant, Property, Violation};
use super::state::{At, Word, batch_at, bit, block, parked, written};
use super::step::Step;
use super::{completion, modes};
use crate::explore::broken;

pub(crate) fn write(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    let c = step.configuration;
    let (index, blocks) = (step.thread.index, step.thread.blocks);
    let is_nop = step.has(bit::NOP);
    let crosses = c.crosses(index, blocks);
    let wanted = step.op.flags.wait;
    let signalled = if step.is(Mutant::SignalOnRequestOnly) && !is_nop {
        wanted
    } else {
        wanted || is_nop || crosses
    };
    let two = step.op.flags.two && !is_nop;
    let two_signalled = step.is(Mutant::TwoBlocksSignalled);
    let wqe = |at| {
        let here = index + at;
        let content = match at {
            0 if two => block::new(here, block::HEAD, two_signalled),
            1 if two => block::new(here, block::TAIL, false),
            _ => block::new(here, block::SINGLE, signalled && at == blocks - 1),
        };
        (u8::try_from(c.block(here)).unwrap(), content)
    };
    let keep = !is_nop && (!crosses || step.is(Mutant::HoldBackWithoutLimit));
    // The leader is the first lane, and writes its own WQE.
    let own = if c.lanes { 1 } else { blocks };
    let at = if c.lanes {
        At::Barrier
    } else if c.is_alone() {
        At::ExclusivePublish
    } else {
        At::Peek
    };
    step.goto(at, |thread| {
        for at in 0..own {
            thread.buffer.push(wqe(at));
        }
        for at in own..blocks {
            thread.lanes |= 1 << at;
        }
        if c.block {
            for at in 0..blocks {
                thread.known |= 1 << (index + at).rem_euclid(c.depth);
            }
        }
        if !keep {
            thread.bits &= !bit::MORE;
        }
    });
    Ok(())
}

pub(crate) fn peek(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    let c = step.configuration;
    // The record may be read because of an older doorbell, so WQEs are fenced before the record is written.
    if !modes::fence(step, Fence::Publish)
        && c.record
        && !step.is(Mutant::OneFenceWithRecord)
        && !step.is(Mutant::NoPublishFence)
    {
        return Ok(());
    }
    let flag = step.word(c.flag(step.thread.index));
    if is_parked(step, flag, step.thread.index)? {
        take_token(step, flag, None)
    } else {
        step.goto(At::Publish, |_| ());
        Ok(())
    }
}

/// Runs fence.release, then one exchange.
pub(crate) fn publish(step: &mut Step<'_>) -> Result<(), Violation> {
    if !modes::fence(step, Fence::Publish) && !step.is(Mutant::NoPublishFence) {
        return Ok(());
    }
    step.in_life()?;
    let c = step.configuration;
    let (index, blocks) = (step.thread.index, step.thread.blocks);
    let word = c.flag(index);
    let flag = step.word(word);
    let exchanged = (word, written(index, blocks, step.has(bit::MORE)));
    if is_parked(step, flag, index)? {
        take_token(step, flag, Some(exchanged))
    } else if c.block {
        let released = modes::released(step, !step.is(Mutant::PublishFenceMissing));
        step.posted(&[exchanged, (c.flag_knows(index), released)], None);
        Ok(())
    } else {
        step.posted(&[exchanged], None);
        Ok(())
    }
}

fn take_token(
    step: &mut Step<'_>,
    flag: i32,
    exchanged: Option<(usize, i32)>,
) -> Result<(), Violation> {
    let index = step.thread.index;
    let token = step.word(Word::TOKEN);
    if token != index {
        return broken(
            Property::OneToken,
            format!("the token is taken at {index}, but it is at {token} (-1: held)"),
        );
    }
    let owed = flag & 2 != 0;
    let must = !step.has(bit::MORE) || owed;
    let held = (Word::TOKEN, -1);
    let told = modes::told_by(step, index);
    let late_barrier = step.is(Mutant::BarrierAfterFence);
    step.goto_with(At::Scan, &[held, exchanged.unwrap_or(held)], |thread| {
        thread.head = index + thread.blocks;
        thread.seen |= told;
        if late_barrier {
            thread.buffer.join_lanes();
        }
        if must {
            thread.bits |= bit::MUST;
        }
    });
    Ok(())
}

/// Returns what the holder of the token sees: the index after the last published batch, the flag of that index, and whether it must
/// ring. In block mode it also returns the WQEs that the flags have published.
pub(crate) fn sweep(step: &Step<'_>) -> Result<(i32, i32, bool, u8), Violation> {
    let c = step.configuration;
    let mut head = step.thread.head;
    let mut must = step.has(bit::MUST);
    let mut told = step.thread.seen;
    loop {
        let flag = step.word(c.flag(head));
        is_of_this_lap(step, flag, head)?;
        let Some((blocks, more)) = batch_at(flag, head) else {
            return Ok((head, flag, must, told));
        };
        told |= modes::told_by(step, head);
        must |= !more;
        head += blocks;
    }
}

fn is_parked(step: &Step<'_>, flag: i32, index: i32) -> Result<bool, Violation> {
    is_of_this_lap(step, flag, index)?;
    Ok(flag == parked(index, false) || flag == parked(index, true))
}

/// Ghost: if flags keep a part of an index only, checks that a flag which looks like that of `index` is the flag of `index`.
fn is_of_this_lap(step: &Step<'_>, flag: i32, index: i32) -> Result<(), Violation> {
    let (range, kept) = (step.configuration.flag_range, flag >> 8);
    let looks_the_same = range != 0 && flag != 0 && (kept - index) % range == 0;
    if looks_the_same && kept != index {
        return broken(
            Property::Lap,
            format!("the flag of {kept} looks like that of {index}"),
        );
    }
    Ok(())
}

/// Rings for everything reserved so far, or posts a NOP that rings.
pub(crate) fn flush(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    if step.word(Word::DOORBELL_INDEX) >= step.word(Word::RESV) || step.is(Mutant::FlushDoesNothing)
    {
        step.ends(&[]);
    } else {
        step.goto(At::Admit, |thread| thread.blocks = 1);
    }
    Ok(())
}

pub(crate) fn stale(step: &mut Step<'_>) -> Result<(), Violation> {
    let ticket = step.thread.ticket;
    let life = step.word(Word::LIFE);
    let is_stale = ticket <= step.word(Word::BASE) && !step.is(Mutant::NoStaleCheck) && life != 0;
    if step.word(Word::CONS) >= ticket && !is_stale && life > 0 {
        return broken(
            Property::Stale,
            format!("ticket {ticket} of life 0 reported done in {life}"),
        );
    }
    step.ends(&[]);
    Ok(())
}

pub(crate) fn wait(step: &mut Step<'_>) -> Result<(), Violation> {
    step.in_life()?;
    let ticket = step.thread.ticket;
    let stale = ticket <= step.word(Word::BASE) && step.word(Word::LIFE) != 0;
    let failed = step.word(Word::ERR) != 0 && !step.is(Mutant::ErrorNotSeenByWait);
    if stale || step.word(Word::CONS) >= ticket || failed {
        step.ends(&[]);
        return Ok(());
    }
    completion::poll(step)?;
    let unrung = ticket > step.word(Word::DOORBELL_INDEX);
    if step.has(bit::HELD) && unrung && !step.is(Mutant::WaitDoesNotRing) {
        step.goto(At::Admit, |thread| {
            thread.blocks = 1;
            thread.bits = bit::NOP;
        });
    }
    Ok(())
}
