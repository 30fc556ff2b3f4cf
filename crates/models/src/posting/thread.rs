//! The steps of a thread: its stores become visible, its lanes write, and it goes on from the place where it is.

use super::configuration::Configuration;
use super::moves::Move;
use super::property::Violation;
use super::state::{At, LANE, State, Word};
use super::step::Step;
use super::{admission, completion, device, guard, modes, post, serve};

/// Emits the steps of thread `number`, and those in which its stores become visible.
pub(crate) fn steps(
    c: &Configuration,
    state: &State,
    number: usize,
    emit: &mut impl FnMut(Move, State),
) -> Result<(), Violation> {
    let thread = &state.threads()[number];
    let stores = thread.buffer.stores();
    for (at, (word, value)) in stores.iter().enumerate() {
        // Stores to one word become visible in order, and stores to different words in any order.
        if stores[..at].iter().any(|(earlier, _)| earlier == word) {
            continue;
        }
        let mut next = *state;
        device::commit(
            c,
            &mut next,
            usize::from(*word & !LANE),
            *value,
            thread.life,
        )?;
        next.thread(number).buffer.remove(at);
        emit(Move::Store(number, *word), next);
    }
    modes::lane_steps(c, state, number, emit);
    let program = c.programs.get(usize::from(thread.program));
    let op = program.and_then(|ops| ops.get(usize::from(thread.done)));
    if op.is_none() && thread.at == At::Idle {
        return Ok(());
    }
    let mut step = Step::new(c, state, number, op.copied().unwrap_or_default());
    take(&mut step)?;
    for (words, thread) in step.found() {
        let mut next = *state;
        next.words = words;
        *next.thread(number) = thread;
        emit(Move::Thread(number, step.thread.at), next);
    }
    Ok(())
}

/// Takes the step of the place where the thread is.
fn take(step: &mut Step<'_>) -> Result<(), Violation> {
    match step.thread.at {
        At::Idle => guard::begin(step),
        At::GuardCountLate => step.goto_with(At::Admit, &[step.add(Word::READERS, 1)], |_| ()),
        At::GuardCheck => guard::guard_check(step),
        At::GuardDrop => guard::guard_drop(step),
        At::Flush => post::flush(step)?,
        At::Stale => post::stale(step)?,
        At::Admit => admission::admit(step)?,
        At::ReserveByCas => admission::reserve_by_cas(step)?,
        At::Undo => admission::undo(step)?,
        At::AdmitWait => admission::admit_wait(step)?,
        At::Reserve => admission::reserve(step)?,
        At::SlotWait => admission::slot_wait(step)?,
        At::Write => post::write(step)?,
        At::Peek => post::peek(step)?,
        At::Publish => post::publish(step)?,
        At::Wait => post::wait(step)?,
        At::Scan => serve::scan(step)?,
        At::HoldFence => serve::hold_fence(step)?,
        At::RingFence => serve::ring_fence(step)?,
        At::Park => serve::park(step)?,
        At::LeaveCas => serve::leave_cas(step)?,
        At::LeaveFence => serve::leave_fence(step)?,
        At::LeavePark => serve::leave_park(step)?,
        At::RecordFence => modes::record_fence(step)?,
        At::Barrier => modes::barrier(step),
        At::ExclusivePublish => modes::exclusive_publish(step)?,
        At::ExclusiveRing => modes::exclusive_ring(step)?,
        At::Agent => modes::agent(step),
        At::PollCons => completion::poll_cons(step),
        At::PollEntry => completion::poll_entry(step),
        At::PollRecheck => completion::poll_recheck(step),
        At::PollConsLate => completion::poll_cons_late(step),
        At::PollTake => completion::poll_take(step)?,
        At::PollCas => completion::poll_cas(step),
        At::PollSyndrome => completion::poll_syndrome(step)?,
        At::Refresh => guard::refresh(step),
        At::RefreshDrop => guard::refresh_drop(step),
        At::Held => guard::held(step),
    }
    Ok(())
}
