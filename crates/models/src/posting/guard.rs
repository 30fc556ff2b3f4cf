//! The guard of a peer. It is counted before `closed` is read, dropped after a fence, and refreshed by kernels that run on.

use super::configuration::Op;
use super::property::Mutant;
use super::state::{At, Thread, Word, bit};
use super::thread::{Step, first};

impl Step<'_> {
    pub(crate) fn begin(&mut self) {
        if self.configuration.warps && self.is_ahead_of_its_warp() {
            return;
        }
        let op = self.op;
        let life = self.word(Word::LIFE);
        let begins = |thread: &mut Thread| {
            let before = *thread;
            start(thread, op);
            thread.life = life;
            if before.bits & bit::REFRESHED != 0 {
                thread.life = before.life;
                thread.bits |= bit::REFRESHED;
            }
        };
        if !self.configuration.guard {
            self.goto(first(op), |thread| {
                begins(thread);
                thread.life = 0;
            });
        } else if self.word(Word::CLOSED) != 0 {
            // The thread was not let in. The caller tries again later.
        } else if self.is(Mutant::ClosedReadBeforeCount) {
            self.goto(At::GuardCountLate, begins);
        } else {
            self.goto_with(At::GuardCheck, &[self.add(Word::READERS, 1)], begins);
        }
    }

    pub(crate) fn guard_check(&mut self) {
        if self.word(Word::CLOSED) != 0 {
            let thread = self.thread.cleared(At::Idle);
            self.finish(&[self.add(Word::READERS, -1)], thread);
        } else if self.op.flags.stale {
            let ticket = self.op.blocks;
            self.goto(At::Stale, |thread| thread.ticket = ticket);
        } else {
            let life = if self.has(bit::REFRESHED) {
                self.thread.life
            } else {
                self.word(Word::LIFE)
            };
            self.goto(first(self.op), |thread| thread.life = life);
        }
    }

    pub(crate) fn guard_drop(&mut self) {
        if !self.fenced() && !self.is(Mutant::GuardDroppedWithoutFence) {
            return;
        }
        let mut thread = self.thread.cleared(At::Idle);
        thread.done += 1;
        if !self.fenced() {
            thread.life = self.thread.life;
        }
        self.finish(&[self.add(Word::READERS, -1)], thread);
    }

    // ---- kernels that run on ----

    /// Between two operations a kernel that runs on reads `closed`. If it is set, the kernel drops the guard and takes it again, and reads
    /// again what it had read under the guard.
    pub(crate) fn refresh(&mut self) {
        let c = self.configuration;
        let ops = c.programs[usize::from(self.thread.program)].len();
        let last = usize::from(self.thread.done) + 1 == ops;
        if last {
            self.goto(At::GuardDrop, |_| ());
        } else if self.word(Word::CLOSED) != 0 {
            self.goto(At::RefreshDrop, |_| ());
        } else {
            self.goto(At::Held, |thread| thread.done += 1);
        }
    }

    pub(crate) fn refresh_drop(&mut self) {
        if !self.fenced() && !self.is(Mutant::RefreshWithoutFence) {
            return;
        }
        let mut thread = self.thread.cleared(At::Idle);
        thread.done += 1;
        if !self.fenced() {
            thread.life = self.thread.life;
        }
        if self.is(Mutant::RefreshKeepsLife) {
            thread.life = self.thread.life;
            thread.bits = bit::REFRESHED;
        }
        self.finish(&[self.add(Word::READERS, -1)], thread);
    }

    /// Begins the next operation under the same guard.
    pub(crate) fn held(&mut self) {
        let op = self.op;
        self.goto(first(op), |thread| start(thread, op));
    }
}

fn start(thread: &mut Thread, op: Op) {
    thread.blocks = op.blocks;
    thread.bits = if op.flags.more {
        bit::MORE | bit::HELD
    } else {
        0
    };
}
