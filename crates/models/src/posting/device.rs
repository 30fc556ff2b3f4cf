//! The steps around the threads: stores that become visible, the NIC, errors, the host's recovery, polling.

use super::Violation;
use super::completion::Kind;
use super::configuration::{Configuration, Nic, Recovery};
use super::model::Move;
use super::property::{Mutant, Property};
use super::state::{At, State, Thread, Word, Words, block, parked};
use crate::explore::broken;

/// The value of [`State::recovery`] after the last stage.
pub(crate) const RECOVERED: u8 = 4;

/// The words that a step of the NIC changes, with their values.
pub(crate) type Changes = [(usize, i32); 4];

impl Configuration {
    /// Makes a store of `life` visible.
    pub(crate) fn commit(
        &self,
        state: &mut State,
        word: usize,
        value: i32,
        life: i32,
    ) -> Result<(), Violation> {
        let words = &mut state.words;
        if life != words[Word::LIFE] && !self.free {
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
            if self.record && words[Word::RECORD] < value {
                return broken(
                    Property::Record,
                    format!("doorbell {value} ahead of record {}", words[Word::RECORD]),
                );
            }
            // An older doorbell that lands late is ignored, so the value is a maximum.
            value = value.max(words[Word::DOORBELL]);
            words[Word::ARMED] = i32::from(self.nic == Nic::Samples);
        }
        let old = words[word];
        if word >= self.block(0)
            && old != 0
            && block::index(old) >= words[Word::BASE] + words[Word::RUN]
        {
            return broken(
                Property::LiveWqe,
                format!("live WQE {} is overwritten", block::index(old)),
            );
        }
        if word == Word::CONS {
            value = value.max(words[word]);
        }
        if self.mailbox && word == self.mailbox_word() && self.mutant != Mutant::MailboxStored {
            // The store is a maximum: if it lands late, it changes nothing.
            value = value.max(words[word]);
        }
        words[word] = value;
        if self.block && word >= self.block(0) && word < self.flag_knows(0) {
            self.seen_by_the_nic(state, word - self.block(0));
        }
        Ok(())
    }

    /// Block mode: notes that no fence has to wait for the WQE of `slot` any more.
    fn seen_by_the_nic(&self, state: &mut State, slot: usize) {
        for index in 0..self.depth {
            state.words[self.flag_knows(index)] &= !(1 << slot);
        }
        for thread in state.all_threads() {
            thread.known &= !(1 << slot);
            thread.seen &= !(1 << slot);
        }
    }

    /// `poll()`: returns the word that it changes and the new value. cons is read before the CQE.
    pub(crate) fn poll(&self, words: &Words) -> Result<Option<(usize, i32)>, Violation> {
        let counter = words[Word::CQE];
        if counter < 0 {
            // An error entry is latched, and cons never advances over it.
            return Ok((words[Word::ERR] == 0).then_some((Word::ERR, 1)));
        }
        let cons = words[Word::CONS];
        let ahead = self.ahead(counter, cons);
        if ahead == 0 || ahead > self.depth {
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
    pub(crate) fn ahead(&self, counter: i32, cons: i32) -> i32 {
        let ahead = counter + 1 - cons;
        if self.mutant == Mutant::CounterNotModular {
            ahead.max(0)
        } else {
            ahead.rem_euclid(self.modulus)
        }
    }

    /// Emits the steps of NIC and host from `state`.
    pub(crate) fn around(
        &self,
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
        if alive && let Some(changes) = self.run_one(words)? {
            emit(Move::Nic("runs a WQE"), with(&changes));
        }
        if self.wqe_error
            && let Some(changes) = self.fail_one(words)?
        {
            emit(Move::Nic("fails or flushes a WQE"), with(&changes));
        }
        if alive && words[Word::LIFE] == 0 {
            if self.nic_error {
                let dies = [(Word::DEAD, 1), (Word::CQE, -1)];
                emit(Move::Nic("writes an error CQE"), with(&dies));
            }
            if self.host_error {
                let dies = [(Word::DEAD, 1), (Word::ERR, 2)];
                emit(Move::Host("latches an error"), with(&dies));
            }
        }
        match self.recover {
            Recovery::Never => {}
            Recovery::AfterError => {
                if state.recovery == 0 && words[Word::ERR] != 0 {
                    let mut next = with(&[(Word::CLOSED, 1)]);
                    next.recovery = 1;
                    emit(Move::Host("lets no guard in"), next);
                } else if state.recovery == 1
                    && (words[Word::READERS] == 0 || self.mutant == Mutant::NoGrace)
                {
                    emit(Move::Host("resets the QP"), self.reset(state));
                }
            }
            Recovery::Staged => self.recover_in_stages(state, emit),
        }
        Ok(())
    }

    /// The stages of a recovery: closed = 1 and a fence; the QP to Err and the error word; readers seen to be 0; reset.
    fn recover_in_stages(&self, state: &State, emit: &mut impl FnMut(Move, State)) {
        let words = &state.words;
        let mut next = *state;
        next.recovery += 1;
        match state.recovery {
            0 if self.mutant == Mutant::ClosedNotFenced => {}
            0 => next.words[Word::CLOSED] = 1,
            1 => {
                next.words[Word::DEAD] = 1;
                if words[Word::ERR] == 0 {
                    next.words[Word::ERR] = 2;
                }
            }
            2 if words[Word::READERS] == 0 || self.mutant == Mutant::NoGrace => {}
            3 if agent_is_idle(state) || self.mutant == Mutant::AgentNotStopped => {
                next = self.reset(state);
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
        if self.mutant == Mutant::ClosedNotFenced
            && (1..RECOVERED).contains(&state.recovery)
            && words[Word::CLOSED] == 0
        {
            // Only in a mutant: the host's store lands at last.
            let mut next = *state;
            next.words[Word::CLOSED] = 1;
            emit(Move::Host("has let no guard in"), next);
        }
    }

    /// Returns the index up to which the NIC has been told to run, modulo the range of its counters.
    pub(crate) fn known_to_the_nic(&self, words: &Words) -> i32 {
        match self.nic {
            Nic::Follows => words[Word::RECORD],
            Nic::Samples => words[Word::LIMIT],
            Nic::Strict => words[Word::DOORBELL],
        }
    }

    /// Lets the NIC run the next WQE, if it knows of one.
    fn run_one(&self, words: &Words) -> Result<Option<Changes>, Violation> {
        let known = self.known_to_the_nic(words);
        let run = words[Word::RUN];
        let left = (known - run).rem_euclid(self.modulus);
        if left == 0 || left > self.depth {
            return Ok(None);
        }
        let due = words[Word::BASE] + run;
        let fetched = words[self.block(run)];
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
        if length == 2 && words[self.block(run + 1)] != block::new(due + 1, block::TAIL, false) {
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
        let [entry, count] = self.complete(words, Kind::Done, run)?;
        Ok(Some([ran, ran, entry, count]))
    }

    /// Resets the QP, and sets everything up for the next life.
    fn reset(&self, state: &State) -> State {
        let old = &state.words;
        let resv = old[Word::RESV];
        let base = if self.mutant == Mutant::IndicesKept {
            resv
        } else {
            (resv + self.modulus - 1) / self.modulus * self.modulus
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
            words[word] = base / self.modulus * self.modulus;
        }
        if self.mailbox {
            words[self.mailbox_word()] = base;
        }
        words[Word::CQE] = self.modulus - 1;
        words[Word::LIFE] = old[Word::LIFE] + 1;
        words[Word::READERS] = old[Word::READERS];
        if self.mutant == Mutant::RingNotCleared {
            words[Word::FLAGS..].copy_from_slice(&old[Word::FLAGS..]);
        }
        words[self.flag(base)] = if self.mutant == Mutant::TokenNotPlaced {
            0
        } else {
            parked(base, false)
        };
        next.recovery = 2;
        for thread in next.all_threads() {
            if thread.at == At::Agent && self.mutant != Mutant::AgentNotStopped {
                thread.index = base;
                thread.life += 1;
            }
        }
        next
    }
}

/// Returns whether the host's thread has no doorbell in flight.
fn agent_is_idle(state: &State) -> bool {
    let busy = |thread: &Thread| thread.at == At::Agent && !thread.buffer.is_empty();
    !state.threads().iter().any(busy)
}
