//! Completions: what the NIC writes, and how a poller takes an entry one access at a time.
//!
//! With a collapsed CQ the poller loads cons first, then the only entry with its 16-bit counter. With a wide CQ it loads `consumed`, cons,
//! and the entry `consumed & mask`. The entry counts if its owner bit is that of the lap and `consumed` has not changed. The poller then
//! raises cons by a maximum, and `consumed` by a compare-and-swap. Without the second look at `consumed` an old entry may meet a new cons.
//! If few WQEs are signalled, entries stay for many times the ring's length. An error entry is latched and never passed. In a wide CQ all
//! threads see the cause. In a collapsed CQ a flush may have overwritten the cause, and then the status says so.

use super::Violation;
use super::configuration::{Configuration, Cq};
use super::device::Changes;
use super::property::{Mutant, Property};
use super::state::{At, Thread, Word, Words, bit};
use super::thread::Step;
use crate::explore::broken;

/// The kind of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Done,
    Cause,
    Flushed,
}

/// The values of the error word.
const LATCHED_CAUSE: i32 = 1;
const LATCHED_FLUSH: i32 = 4;

/// The index of cons, as the store buffer names it.
const CONS: u8 = 2;
const _: () = assert!(CONS as usize == Word::CONS);

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

fn kind_of(bits: i32) -> Kind {
    match bits & 3 {
        0 => Kind::Done,
        1 => Kind::Cause,
        _ => Kind::Flushed,
    }
}

impl Configuration {
    /// Returns the words that change when the NIC writes a completion for the WQE at `run`, which counts from the base.
    pub(crate) fn complete(
        &self,
        words: &Words,
        kind: Kind,
        run: i32,
    ) -> Result<[(usize, i32); 2], Violation> {
        if self.cq != Cq::Wide {
            let entry = (Word::CQE, collapsed(kind, run.rem_euclid(self.modulus)));
            return Ok([entry, entry]);
        }
        let produced = words[self.produced_word()];
        let place = self.entry_word(produced);
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
            (place, wide(kind, run, produced / self.cq_depth())),
            (self.produced_word(), produced + 1),
        ])
    }

    /// Lets the next WQE fail, or be flushed if one before it has failed.
    pub(crate) fn fail_one(&self, words: &Words) -> Result<Option<Changes>, Violation> {
        let flushed = words[self.flushed_word()];
        let run = words[Word::RUN] + flushed;
        let left = (self.known_to_the_nic(words) - run).rem_euclid(self.modulus);
        let ended_otherwise = words[Word::DEAD] != 0 && flushed == 0;
        if left == 0 || left > self.depth || ended_otherwise {
            return Ok(None);
        }
        let kind = if flushed == 0 {
            Kind::Cause
        } else {
            Kind::Flushed
        };
        let [entry, count] = self.complete(words, kind, run)?;
        Ok(Some([
            (self.flushed_word(), flushed + 1),
            (Word::DEAD, 1),
            entry,
            count,
        ]))
    }
}

impl Step<'_> {
    /// Looks at the CQ in one step, or begins to look at it in several.
    pub(crate) fn poll(&mut self) -> Result<(), Violation> {
        let at = self.thread.at;
        let admitting = if at == At::AdmitWait {
            bit::ADMITTING
        } else {
            0
        };
        match self.configuration.cq {
            Cq::Step => {
                if let Some(change) = self.configuration.poll(self.words)? {
                    self.goto_with(at, &[change], |_| ());
                }
            }
            Cq::Collapsed => self.poll_cons_with(|bits| bits | admitting),
            Cq::Wide => {
                let consumed = self.word(self.configuration.consumed_word());
                let at = if self.is(Mutant::EntryBeforeCons) {
                    At::PollEntry
                } else {
                    At::PollCons
                };
                self.goto(at, |thread| {
                    thread.head = consumed;
                    thread.bits |= admitting;
                });
            }
        }
        Ok(())
    }

    /// Loads cons.
    pub(crate) fn poll_cons(&mut self) {
        self.poll_cons_with(|bits| bits);
    }

    fn poll_cons_with(&mut self, bits: impl FnOnce(i32) -> i32) {
        let cons = self.word(Word::CONS);
        let late = self.is(Mutant::EntryBeforeCons) && self.configuration.cq == Cq::Collapsed;
        let entry = self.word(Word::CQE);
        self.goto(
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
    pub(crate) fn poll_cons_late(&mut self) {
        let cons = self.word(Word::CONS);
        self.goto(At::PollTake, |thread| thread.flag = cons);
    }

    /// Loads the entry.
    pub(crate) fn poll_entry(&mut self) {
        let c = self.configuration;
        let consumed = self.thread.head;
        let (entry, is_error, is_there) = if c.cq == Cq::Wide {
            let entry = self.word(c.entry_word(consumed));
            let of_this_lap =
                entry & 1 == (consumed / c.cq_depth()) & 1 || self.is(Mutant::LapIgnored);
            (
                entry,
                kind_of(entry >> 1) != Kind::Done,
                entry != 0 && of_this_lap,
            )
        } else {
            let entry = self.word(Word::CQE);
            let ahead = c.ahead(entry, self.thread.flag);
            (
                entry,
                entry < 0,
                entry < 0 || (1..=c.depth).contains(&ahead),
            )
        };
        if !is_there {
            self.poll_ends(&[]);
            return;
        }
        let looks_again = c.cq == Cq::Wide && !self.is(Mutant::ConsumedReadOnce);
        let at = if looks_again {
            At::PollRecheck
        } else {
            self.behind_the_entry(is_error)
        };
        self.goto(at, |thread| thread.round = entry);
    }

    /// Loads `consumed` again. If it has not changed, the entry was the first one not taken, from before cons was loaded until now.
    pub(crate) fn poll_recheck(&mut self) {
        if self.word(self.configuration.consumed_word()) == self.thread.head {
            let is_error = kind_of(self.thread.round >> 1) != Kind::Done;
            let at = self.behind_the_entry(is_error);
            self.goto(at, |_| ());
        } else {
            self.poll_ends(&[]);
        }
    }

    fn behind_the_entry(&self, is_error: bool) -> At {
        let wide = self.configuration.cq == Cq::Wide;
        if is_error && !self.is(Mutant::ErrorPassed) {
            At::PollSyndrome
        } else if wide && self.is(Mutant::EntryBeforeCons) {
            At::PollConsLate
        } else {
            At::PollTake
        }
    }

    /// Raises cons to what the entry says.
    pub(crate) fn poll_take(&mut self) -> Result<(), Violation> {
        let c = self.configuration;
        let entry = self.thread.round;
        let counter = match c.cq {
            Cq::Wide => ((entry >> 3) - 1).rem_euclid(c.modulus),
            _ if entry < 0 => (-entry - 10) >> 1,
            _ => entry,
        };
        let (seen, ahead) = (self.thread.flag, c.ahead(counter, self.thread.flag));
        let completed = self.word(Word::BASE) + self.word(Word::RUN);
        let is_news = (1..=c.depth).contains(&ahead);
        if is_news && seen + ahead > completed {
            return broken(
                Property::Completed,
                format!("cons {} beyond completed {completed}", seen + ahead),
            );
        }
        // This is a reduction without a result, so it lands some time later, as a store does.
        let store = (CONS, seen + ahead);
        let is_on_its_way = self.thread.buffer.stores().contains(&store);
        let mut next = *self.thread;
        if is_news && !is_on_its_way && store.1 > self.word(Word::CONS) {
            next.buffer.push(store);
        }
        if c.cq == Cq::Wide && (ahead <= c.depth || self.is(Mutant::TakenUnseen)) {
            next.at = At::PollCas;
        } else {
            next = poll_ended(next);
        }
        self.finish(&[], next);
        Ok(())
    }

    /// Counts the entry as taken, if no other poller has done so.
    pub(crate) fn poll_cas(&mut self) {
        let (word, mine) = (self.configuration.consumed_word(), self.thread.head);
        if self.word(word) == mine || self.is(Mutant::ConsumedStored) {
            self.poll_ends(&[(word, mine + 1)]);
        } else {
            self.poll_ends(&[]);
        }
    }

    /// Loads the syndrome of an error, which a flush may have overwritten meanwhile, and latches the error.
    pub(crate) fn poll_syndrome(&mut self) -> Result<(), Violation> {
        let c = self.configuration;
        let is_wide = c.cq == Cq::Wide;
        let is_flush = if is_wide {
            kind_of(self.word(c.entry_word(self.thread.head)) >> 1) == Kind::Flushed
        } else {
            self.word(Word::CQE) & 1 != 0
        };
        let latched = if is_flush && !self.is(Mutant::FlushTakenForCause) {
            LATCHED_FLUSH
        } else {
            LATCHED_CAUSE
        };
        let is_first = self.word(Word::ERR) == 0;
        if is_first && (is_wide && is_flush || is_flush != (latched == LATCHED_FLUSH)) {
            return broken(Property::Cause, format!("a flush seen, {latched} latched"));
        }
        if is_first {
            self.poll_ends(&[(Word::ERR, latched)]);
        } else {
            self.poll_ends(&[]);
        }
        Ok(())
    }

    fn poll_ends(&mut self, words: &[(usize, i32)]) {
        let ended = poll_ended(*self.thread);
        self.finish(words, ended);
    }
}

/// Returns the thread after its look at the CQ, at the wait in which it looked.
fn poll_ended(mut thread: Thread) -> Thread {
    let admits = thread.bits & bit::ADMITTING != 0;
    thread.at = if admits { At::AdmitWait } else { At::Wait };
    (thread.head, thread.flag, thread.round) = (0, 0, 0);
    thread.bits &= !bit::ADMITTING;
    thread
}
