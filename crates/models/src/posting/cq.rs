//! The CQ: what its entries say, what the NIC writes into it, and how a poller that looks once takes from it.

use super::configuration::{Configuration, Cq};
use super::property::{Mutant, Property, Violation};
use super::state::{Word, Words};
use crate::explore::broken;

/// The kind of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Done,
    Cause,
    Flushed,
}

/// Returns an entry of a wide CQ; 0 means no entry. The entry has the whole index, which pollers read only modulo the NIC's range.
fn wide(kind: Kind, index: i32, lap: i32) -> i32 {
    (index + 1) << 3 | (kind as i32) << 1 | (lap & 1)
}

/// Returns the entry of a collapsed CQ: the counter, or for an error a number below -9.
fn collapsed(kind: Kind, counter: i32) -> i32 {
    match kind {
        Kind::Done => counter,
        Kind::Cause => -10 - 2 * counter,
        Kind::Flushed => -11 - 2 * counter,
    }
}

/// Returns the kind that these bits of an entry of a wide CQ stand for.
pub(crate) fn kind_of(bits: i32) -> Kind {
    match bits & 3 {
        0 => Kind::Done,
        1 => Kind::Cause,
        _ => Kind::Flushed,
    }
}

/// Returns the words that change when the NIC writes a completion for the WQE at `run`, which counts from the base.
pub(crate) fn complete(
    c: &Configuration,
    words: &Words,
    kind: Kind,
    run: i32,
) -> Result<[(usize, i32); 2], Violation> {
    if c.cq != Cq::Wide {
        let entry = (Word::CQE, collapsed(kind, run.rem_euclid(c.modulus)));
        return Ok([entry, entry]);
    }
    let produced = words[c.produced_word()];
    let place = c.entry_word(produced);
    let old = words[place];
    if old != 0 && old >> 3 > words[Word::CONS] {
        return broken(
            Property::Overrun,
            format!(
                "the completion of {} is overwritten by that of {run}",
                (old >> 3) - 1
            ),
        );
    }
    Ok([
        (place, wide(kind, run, produced / c.cq_depth())),
        (c.produced_word(), produced + 1),
    ])
}

/// `poll()`: returns the word that it changes and the new value. cons is read before the CQE.
pub(crate) fn poll(c: &Configuration, words: &Words) -> Result<Option<(usize, i32)>, Violation> {
    let counter = words[Word::CQE];
    if counter < 0 {
        // An error entry is latched, and cons never advances over it.
        return Ok((words[Word::ERR] == 0).then_some((Word::ERR, 1)));
    }
    let cons = words[Word::CONS];
    let ahead = ahead(c, counter, cons);
    if ahead == 0 || ahead > c.depth {
        return Ok(None);
    }
    let completed = words[Word::BASE] + words[Word::RUN];
    if cons + ahead > completed {
        return broken(
            Property::Completed,
            format!("cons {} beyond completed {completed}", cons + ahead),
        );
    }
    Ok(Some((Word::CONS, cons + ahead)))
}

/// Returns how far a counter of the CQ is ahead of `cons`. Only values of 1..=depth are news.
pub(crate) fn ahead(c: &Configuration, counter: i32, cons: i32) -> i32 {
    let ahead = counter + 1 - cons;
    if c.mutant == Mutant::CounterNotModular {
        ahead.max(0)
    } else {
        ahead.rem_euclid(c.modulus)
    }
}
