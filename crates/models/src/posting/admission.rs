//! Admission: a thread claims ring space, which can be undone, and then reserves it. The module also has the rules that were tried instead.

use super::Violation;
use super::configuration::Admission;
use super::property::{Mutant, Property};
use super::state::{At, Word, bit};
use super::thread::Step;
use crate::explore::broken;

impl Step<'_> {
    fn room(&self, taken: usize, margin: i32) -> bool {
        let c = self.configuration;
        self.word(taken) + self.thread.blocks + margin <= self.word(Word::CONS) + c.depth
    }

    pub(crate) fn admit(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        if self.word(Word::ERR) != 0 {
            if self.has(bit::NOP) {
                self.goto(At::Wait, |thread| thread.bits = bit::NOP_POSTED);
            } else {
                self.ends(&[]);
            }
            return Ok(());
        }
        let c = self.configuration;
        let (resv, blocks) = (self.word(Word::RESV), self.thread.blocks);
        match c.admission {
            Admission::Claim => {
                let at = if self.room(Word::CLAIM, 0) {
                    At::Reserve
                } else {
                    At::Undo
                };
                self.goto_with(at, &[self.add(Word::CLAIM, blocks)], |_| ());
            }
            Admission::Add => self.goto(At::Reserve, |_| ()),
            Admission::Cas if self.room(Word::RESV, 0) => {
                self.goto(At::ReserveByCas, |thread| thread.index = resv);
            }
            Admission::Margin | Admission::SoftFull if self.room(Word::RESV, c.margin) => {
                self.goto(At::Reserve, |_| ());
            }
            // No other thread reserves.
            Admission::Alone if self.room(Word::RESV, 0) => {
                self.goto_with(At::Write, &[self.add(Word::RESV, blocks)], |thread| {
                    thread.index = resv;
                });
            }
            Admission::Margin if self.room(Word::RESV, 0) => {
                self.goto(At::ReserveByCas, |thread| thread.index = resv);
            }
            _ => self.goto(At::AdmitWait, |_| ()),
        }
        Ok(())
    }

    pub(crate) fn reserve_by_cas(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        let (index, blocks) = (self.thread.index, self.thread.blocks);
        if self.word(Word::RESV) == index {
            self.goto_with(At::Write, &[(Word::RESV, index + blocks)], |_| ());
        } else {
            self.goto(At::Admit, |thread| thread.index = 0);
        }
        Ok(())
    }

    pub(crate) fn undo(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        let undone = if self.is(Mutant::ClaimNotUndone) {
            self.add(Word::CLAIM, 0)
        } else {
            self.add(Word::CLAIM, -self.thread.blocks)
        };
        if self.has(bit::NOP) {
            // The wait will try again.
            let mut thread = self.thread.cleared(At::Wait);
            thread.bits = bit::HELD;
            thread.ticket = self.thread.ticket;
            thread.life = self.thread.life;
            self.finish(&[undone], thread);
        } else if self.op.flags.attempt {
            self.ends(&[undone]);
        } else {
            self.goto_with(At::AdmitWait, &[undone], |_| ());
        }
        Ok(())
    }

    /// The thread waits for room. It holds no claim and no reservation meanwhile, so its put may leave at any time.
    pub(crate) fn admit_wait(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        if self.word(Word::ERR) != 0 {
            self.goto(At::Admit, |_| ());
            return Ok(());
        }
        let c = self.configuration;
        let room = match c.admission {
            Admission::Claim => self.room(Word::CLAIM, 0),
            Admission::SoftFull => self.room(Word::RESV, c.margin),
            _ => self.room(Word::RESV, 0),
        };
        self.poll()?;
        if room {
            self.goto(At::Admit, |_| ());
        }
        if self.op.flags.deadline && !self.has(bit::NOP) {
            self.ends(&[]);
        }
        Ok(())
    }

    pub(crate) fn reserve(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        if self.is(Mutant::MeetsWithClaim) && self.a_lane_looks_for_space() {
            return Ok(());
        }
        let c = self.configuration;
        let (resv, blocks) = (self.word(Word::RESV), self.thread.blocks);
        let waits_later = c.admission == Admission::Add;
        if !waits_later && !self.room(Word::RESV, 0) {
            return broken(
                Property::Fits,
                format!(
                    "reservation {resv}+{blocks} does not fit, cons {}",
                    self.word(Word::CONS)
                ),
            );
        }
        let at = if waits_later { At::SlotWait } else { At::Write };
        self.goto_with(at, &[(Word::RESV, resv + blocks)], |thread| {
            thread.index = resv;
        });
        Ok(())
    }

    /// Waits until the reserved slots are free. Only rules by which reservations may have to wait need this.
    pub(crate) fn slot_wait(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        let c = self.configuration;
        let (index, blocks) = (self.thread.index, self.thread.blocks);
        let fits = index + blocks <= self.word(Word::CONS) + c.depth;
        if fits || self.is(Mutant::SlotNotAwaited) {
            self.goto(At::Write, |_| ());
        } else if self.word(Word::ERR) != 0 {
            self.ends(&[]);
        } else {
            self.poll()?;
            if self.op.flags.deadline && self.is(Mutant::DeadlineWithoutLatch) {
                self.ends(&[]);
            } else if self.op.flags.deadline {
                // The reservation can never be filled, so the QP is lost.
                self.ends(&[(Word::ERR, 3), (Word::DEAD, 1)]);
            }
        }
        Ok(())
    }
}
