//! The steps around the threads: stores that become visible, the NIC, errors, the host's recovery.

use super::configuration::{Configuration, Nic, Recovery};
use super::cq::{self, Kind};
use super::moves::Move;
use super::property::{Mutant, Property, Violation};
use super::state::{At, State, Thread, Word, Words, block, parked};
use crate::explore::broken;

/// The value of [`State::recovery`] after the last stage.
pub(crate) const RECOVERED: u8 = 4;

/// The words that a step of the NIC changes, with their values.
type Changes = [(usize, i32); 4];

/// Makes a store of `life` visible.
pub(crate) fn commit(
    c: &Configuration,
    state: &mut State,
    word: usize,
    value: i32,
    life: i32,
) -> Result<(), Violation> {
    let words = &mut state.words;
    if life != words[Word::LIFE] && !c.free {
        return broken(
            Property::Life,
            format!("a store of life {life} lands in {}", words[Word::LIFE]),
        );
    }
    let mut value = value;
    if word == Word::RECORD && value < words[Word::RECORD] {
        return broken(
            Property::Record,
            format!(
                "the record goes back from {} to {value}",
                words[Word::RECORD]
            ),
        );
    }
    if word == Word::DOORBELL {
        if c.record && words[Word::RECORD] < value {
            return broken(
                Property::Record,
                format!("doorbell {value} ahead of record {}", words[Word::RECORD]),
            );
        }
        // An older doorbell that lands late is ignored, so the value is a maximum.
        value = value.max(words[Word::DOORBELL]);
        words[Word::ARMED] = i32::from(c.nic == Nic::Samples);
    }
    let old = words[word];
    if word >= c.block(0) && old != 0 && block::index(old) >= words[Word::BASE] + words[Word::RUN] {
        return broken(
            Property::LiveWqe,
            format!("live WQE {} is overwritten", block::index(old)),
        );
    }
    if word == Word::CONS {
        value = value.max(words[word]);
    }
    if c.mailbox && word == c.mailbox_word() && c.mutant != Mutant::MailboxStored {
        // The store is a maximum: if it lands late, it changes nothing.
        value = value.max(words[word]);
    }
    words[word] = value;
    if c.block && word >= c.block(0) && word < c.flag_knows(0) {
        seen_by_the_nic(c, state, word - c.block(0));
    }
    Ok(())
}

/// Block mode: notes that no fence has to wait for the WQE of `slot` any more.
fn seen_by_the_nic(c: &Configuration, state: &mut State, slot: usize) {
    for index in 0..c.depth {
        state.words[c.flag_knows(index)] &= !(1 << slot);
    }
    for thread in state.all_threads() {
        thread.known &= !(1 << slot);
        thread.seen &= !(1 << slot);
    }
}

/// Emits the steps of NIC and host from `state`.
pub(crate) fn around(
    c: &Configuration,
    state: &State,
    emit: &mut impl FnMut(Move, State),
) -> Result<(), Violation> {
    let words = &state.words;
    let alive = words[Word::DEAD] == 0;
    let with = |changes: &[(usize, i32)]| {
        let mut next = *state;
        for (word, value) in changes {
            next.words[*word] = *value;
        }
        next
    };
    if alive && words[Word::ARMED] != 0 {
        let read = [(Word::ARMED, 0), (Word::LIMIT, words[Word::RECORD])];
        emit(Move::Nic("reads the record"), with(&read));
    }
    if alive && let Some(changes) = run_one(c, words)? {
        emit(Move::Nic("runs a WQE"), with(&changes));
    }
    if c.wqe_error
        && let Some(changes) = fail_one(c, words)?
    {
        emit(Move::Nic("fails or flushes a WQE"), with(&changes));
    }
    if alive && words[Word::LIFE] == 0 {
        if c.nic_error {
            let dies = [(Word::DEAD, 1), (Word::CQE, -1)];
            emit(Move::Nic("writes an error CQE"), with(&dies));
        }
        if c.host_error {
            let dies = [(Word::DEAD, 1), (Word::ERR, 2)];
            emit(Move::Host("latches an error"), with(&dies));
        }
    }
    match c.recover {
        Recovery::Never => {}
        Recovery::AfterError => {
            if state.recovery == 0 && words[Word::ERR] != 0 {
                let mut next = with(&[(Word::CLOSED, 1)]);
                next.recovery = 1;
                emit(Move::Host("lets no guard in"), next);
            } else if state.recovery == 1
                && (words[Word::READERS] == 0 || c.mutant == Mutant::NoGrace)
            {
                emit(Move::Host("resets the QP"), reset(c, state));
            }
        }
        Recovery::Staged => recover_in_stages(c, state, emit),
    }
    Ok(())
}

/// The stages of a recovery: closed = 1 and a fence; the QP to Err and the error word; readers seen to be 0; reset.
fn recover_in_stages(c: &Configuration, state: &State, emit: &mut impl FnMut(Move, State)) {
    let words = &state.words;
    let mut next = *state;
    next.recovery += 1;
    match state.recovery {
        0 if c.mutant == Mutant::ClosedNotFenced => {}
        0 => next.words[Word::CLOSED] = 1,
        1 => {
            next.words[Word::DEAD] = 1;
            if words[Word::ERR] == 0 {
                next.words[Word::ERR] = 2;
            }
        }
        2 if words[Word::READERS] == 0 || c.mutant == Mutant::NoGrace => {}
        3 if agent_is_idle(state) || c.mutant == Mutant::AgentNotStopped => {
            next = reset(c, state);
            next.recovery = RECOVERED;
        }
        _ => return,
    }
    let stages = [
        "lets no guard in",
        "moves the QP to Err",
        "sees no guard",
        "resets the QP",
    ];
    emit(Move::Host(stages[usize::from(state.recovery)]), next);
    if c.mutant == Mutant::ClosedNotFenced
        && (1..RECOVERED).contains(&state.recovery)
        && words[Word::CLOSED] == 0
    {
        // Only in a mutant: the host's store lands at last.
        let mut next = *state;
        next.words[Word::CLOSED] = 1;
        emit(Move::Host("has let no guard in"), next);
    }
}

/// Lets the next WQE fail, or be flushed if one before it has failed.
fn fail_one(c: &Configuration, words: &Words) -> Result<Option<Changes>, Violation> {
    let flushed = words[c.flushed_word()];
    let run = words[Word::RUN] + flushed;
    let left = (known_to_the_nic(c, words) - run).rem_euclid(c.modulus);
    let ended_otherwise = words[Word::DEAD] != 0 && flushed == 0;
    if left == 0 || left > c.depth || ended_otherwise {
        return Ok(None);
    }
    let kind = if flushed == 0 {
        Kind::Cause
    } else {
        Kind::Flushed
    };
    let [entry, count] = cq::complete(c, words, kind, run)?;
    Ok(Some([
        (c.flushed_word(), flushed + 1),
        (Word::DEAD, 1),
        entry,
        count,
    ]))
}

/// Returns the index up to which the NIC has been told to run, modulo the range of its counters.
fn known_to_the_nic(c: &Configuration, words: &Words) -> i32 {
    match c.nic {
        Nic::Follows => words[Word::RECORD],
        Nic::Samples => words[Word::LIMIT],
        Nic::Strict => words[Word::DOORBELL],
    }
}

/// Lets the NIC run the next WQE, if it knows of one.
fn run_one(c: &Configuration, words: &Words) -> Result<Option<Changes>, Violation> {
    let known = known_to_the_nic(c, words);
    let run = words[Word::RUN];
    let left = (known - run).rem_euclid(c.modulus);
    if left == 0 || left > c.depth {
        return Ok(None);
    }
    let due = words[Word::BASE] + run;
    let fetched = words[c.block(run)];
    if block::index(fetched) != due || block::kind(fetched) == block::TAIL {
        return broken(
            Property::Due,
            format!(
                "the NIC fetched {} where {due} was due",
                block::index(fetched)
            ),
        );
    }
    let length = 1 + block::kind(fetched);
    if length == 2 && words[c.block(run + 1)] != block::new(due + 1, block::TAIL, false) {
        return broken(
            Property::Due,
            format!("the second half of {due} is missing"),
        );
    }
    let ran = (Word::RUN, run + length);
    if !block::is_signalled(fetched) {
        return Ok(Some([ran; 4]));
    }
    // The entry names the first WQEBB of its WQE.
    let [entry, count] = cq::complete(c, words, Kind::Done, run)?;
    Ok(Some([ran, ran, entry, count]))
}

/// Resets the QP, and sets everything up for the next life.
fn reset(c: &Configuration, state: &State) -> State {
    let old = &state.words;
    let resv = old[Word::RESV];
    let base = if c.mutant == Mutant::IndicesKept {
        resv
    } else {
        (resv + c.modulus - 1) / c.modulus * c.modulus
    };
    let mut next = *state;
    let words = &mut next.words;
    *words = [0; _];
    for word in [
        Word::CLAIM,
        Word::RESV,
        Word::CONS,
        Word::DOORBELL_INDEX,
        Word::BASE,
        Word::TOKEN,
    ] {
        words[word] = base;
    }
    for word in [Word::RECORD, Word::DOORBELL, Word::LIMIT] {
        words[word] = base / c.modulus * c.modulus;
    }
    if c.mailbox {
        words[c.mailbox_word()] = base;
    }
    words[Word::CQE] = c.modulus - 1;
    words[Word::LIFE] = old[Word::LIFE] + 1;
    words[Word::READERS] = old[Word::READERS];
    if c.mutant == Mutant::RingNotCleared {
        words[Word::FLAGS..].copy_from_slice(&old[Word::FLAGS..]);
    }
    words[c.flag(base)] = if c.mutant == Mutant::TokenNotPlaced {
        0
    } else {
        parked(base, false)
    };
    next.recovery = 2;
    for thread in next.all_threads() {
        if thread.at == At::Agent && c.mutant != Mutant::AgentNotStopped {
            thread.index = base;
            thread.life += 1;
        }
    }
    next
}

/// Returns whether the host's thread has no doorbell in flight.
fn agent_is_idle(state: &State) -> bool {
    let busy = |thread: &Thread| thread.at == At::Agent && !thread.buffer.is_empty();
    !state.threads().iter().any(busy)
}
