//! How a poller takes an entry of the CQ, one access at a time.
//!
//! With a collapsed CQ the poller loads cons first, then the only entry with its 16-bit counter. With a wide CQ it loads `consumed`, cons,
//! and the entry `consumed & mask`. The entry counts if its owner bit is that of the lap and `consumed` has not changed. The poller then
//! raises cons by a maximum, and `consumed` by a compare-and-swap. Without the second look at `consumed` an old entry may meet a new cons.
//! If few WQEs are signalled, entries stay for many times the ring's length. An error entry is latched and never passed. In a wide CQ all
//! threads see the cause. In a collapsed CQ a flush may have overwritten the cause, and then the status says so.

use super::configuration::Cq;
use super::cq::{self, Kind, kind_of};
use super::property::{Mutant, Property, Violation};
use super::state::{At, Thread, Word, bit, stored};
use super::step::Step;
use crate::explore::broken;

/// The values of the error word.
const LATCHED_CAUSE: i32 = 1;
const LATCHED_FLUSH: i32 = 4;

/// Looks at the CQ in one step, or begins to look at it in several.
pub(crate) fn poll(step: &mut Step<'_>) -> Result<(), Violation> {
    let at = step.thread.at;
    let admitting = if at == At::AdmitWait {
        bit::ADMITTING
    } else {
        0
    };
    match step.configuration.cq {
        Cq::Step => {
            if let Some(change) = cq::poll(step.configuration, step.words)? {
                step.goto_with(at, &[change], |_| ());
            }
        }
        Cq::Collapsed => poll_cons_with(step, |bits| bits | admitting),
        Cq::Wide => {
            let consumed = step.word(step.configuration.consumed_word());
            let at = if step.is(Mutant::EntryBeforeCons) {
                At::PollEntry
            } else {
                At::PollCons
            };
            step.goto(at, |thread| {
                thread.head = consumed;
                thread.bits |= admitting;
            });
        }
    }
    Ok(())
}

/// Loads cons.
pub(crate) fn poll_cons(step: &mut Step<'_>) {
    poll_cons_with(step, |bits| bits);
}

fn poll_cons_with(step: &mut Step<'_>, bits: impl FnOnce(i32) -> i32) {
    let cons = step.word(Word::CONS);
    let late = step.is(Mutant::EntryBeforeCons) && step.configuration.cq == Cq::Collapsed;
    let entry = step.word(Word::CQE);
    step.goto(
        if late {
            At::PollConsLate
        } else {
            At::PollEntry
        },
        |thread| {
            thread.flag = cons;
            if late {
                thread.round = entry;
            }
            thread.bits = bits(thread.bits);
        },
    );
}

/// Only in a mutant: loads cons after the entry.
pub(crate) fn poll_cons_late(step: &mut Step<'_>) {
    let cons = step.word(Word::CONS);
    step.goto(At::PollTake, |thread| thread.flag = cons);
}

/// Loads the entry.
pub(crate) fn poll_entry(step: &mut Step<'_>) {
    let c = step.configuration;
    let consumed = step.thread.head;
    let (entry, is_error, is_there) = if c.cq == Cq::Wide {
        let entry = step.word(c.entry_word(consumed));
        let of_this_lap = entry & 1 == (consumed / c.cq_depth()) & 1 || step.is(Mutant::LapIgnored);
        (
            entry,
            kind_of(entry >> 1) != Kind::Done,
            entry != 0 && of_this_lap,
        )
    } else {
        let entry = step.word(Word::CQE);
        let ahead = cq::ahead(c, entry, step.thread.flag);
        (
            entry,
            entry < 0,
            entry < 0 || (1..=c.depth).contains(&ahead),
        )
    };
    if !is_there {
        poll_ends(step, &[]);
        return;
    }
    let looks_again = c.cq == Cq::Wide && !step.is(Mutant::ConsumedReadOnce);
    let at = if looks_again {
        At::PollRecheck
    } else {
        behind_the_entry(step, is_error)
    };
    step.goto(at, |thread| thread.round = entry);
}

/// Loads `consumed` again. If it has not changed, the entry was the first one not taken, from before cons was loaded until now.
pub(crate) fn poll_recheck(step: &mut Step<'_>) {
    if step.word(step.configuration.consumed_word()) == step.thread.head {
        let is_error = kind_of(step.thread.round >> 1) != Kind::Done;
        let at = behind_the_entry(step, is_error);
        step.goto(at, |_| ());
    } else {
        poll_ends(step, &[]);
    }
}

fn behind_the_entry(step: &Step<'_>, is_error: bool) -> At {
    let wide = step.configuration.cq == Cq::Wide;
    if is_error && !step.is(Mutant::ErrorPassed) {
        At::PollSyndrome
    } else if wide && step.is(Mutant::EntryBeforeCons) {
        At::PollConsLate
    } else {
        At::PollTake
    }
}

/// Raises cons to what the entry says.
pub(crate) fn poll_take(step: &mut Step<'_>) -> Result<(), Violation> {
    let c = step.configuration;
    let entry = step.thread.round;
    let counter = match c.cq {
        Cq::Wide => ((entry >> 3) - 1).rem_euclid(c.modulus),
        _ if entry < 0 => (-entry - 10) >> 1,
        _ => entry,
    };
    let (seen, ahead) = (step.thread.flag, cq::ahead(c, counter, step.thread.flag));
    let completed = step.word(Word::BASE) + step.word(Word::RUN);
    let is_news = (1..=c.depth).contains(&ahead);
    if is_news && seen + ahead > completed {
        return broken(
            Property::Completed,
            format!("cons {} beyond completed {completed}", seen + ahead),
        );
    }
    // This is a reduction without a result, so it lands some time later, as a store does.
    let store = (stored::CONS, seen + ahead);
    let is_on_its_way = step.thread.buffer.stores().contains(&store);
    let mut next = *step.thread;
    if is_news && !is_on_its_way && store.1 > step.word(Word::CONS) {
        next.buffer.push(store);
    }
    if c.cq == Cq::Wide && (ahead <= c.depth || step.is(Mutant::TakenUnseen)) {
        next.at = At::PollCas;
    } else {
        next = poll_ended(next);
    }
    step.finish(&[], next);
    Ok(())
}

/// Counts the entry as taken, if no other poller has done so.
pub(crate) fn poll_cas(step: &mut Step<'_>) {
    let (word, mine) = (step.configuration.consumed_word(), step.thread.head);
    if step.word(word) == mine || step.is(Mutant::ConsumedStored) {
        poll_ends(step, &[(word, mine + 1)]);
    } else {
        poll_ends(step, &[]);
    }
}

/// Loads the syndrome of an error, which a flush may have overwritten meanwhile, and latches the error.
pub(crate) fn poll_syndrome(step: &mut Step<'_>) -> Result<(), Violation> {
    let c = step.configuration;
    let is_wide = c.cq == Cq::Wide;
    let is_flush = if is_wide {
        kind_of(step.word(c.entry_word(step.thread.head)) >> 1) == Kind::Flushed
    } else {
        step.word(Word::CQE) & 1 != 0
    };
    let latched = if is_flush && !step.is(Mutant::FlushTakenForCause) {
        LATCHED_FLUSH
    } else {
        LATCHED_CAUSE
    };
    let is_first = step.word(Word::ERR) == 0;
    if is_first && (is_wide && is_flush || is_flush != (latched == LATCHED_FLUSH)) {
        return broken(Property::Cause, format!("a flush seen, {latched} latched"));
    }
    if is_first {
        poll_ends(step, &[(Word::ERR, latched)]);
    } else {
        poll_ends(step, &[]);
    }
    Ok(())
}

fn poll_ends(step: &mut Step<'_>, words: &[(usize, i32)]) {
    let ended = poll_ended(*step.thread);
    step.finish(words, ended);
}

/// Returns the thread after its look at the CQ, at the wait in which it looked.
fn poll_ended(mut thread: Thread) -> Thread {
    let admits = thread.bits & bit::ADMITTING != 0;
    thread.at = if admits { At::AdmitWait } else { At::Wait };
    (thread.head, thread.flag, thread.round) = (0, 0, 0);
    thread.bits &= !bit::ADMITTING;
    thread
}
