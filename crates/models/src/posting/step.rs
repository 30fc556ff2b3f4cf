//! A thread that is about to take a step, and how steps are written down.

use super::configuration::{Configuration, Op};
use super::property::{Mutant, Property, Violation};
use super::state::{At, State, Thread, Word, Words, bit};
use crate::explore::broken;

/// A thread of a state that is about to take a step.
pub(crate) struct Step<'a> {
    pub(crate) configuration: &'a Configuration,
    pub(crate) words: &'a Words,
    pub(crate) thread: &'a Thread,
    pub(crate) op: Op,
    /// All threads, this one included.
    pub(crate) threads: &'a [Thread],
    /// The results of the steps found so far: words and thread after each. No place has more than three.
    next: [Option<(Words, Thread)>; 3],
}

impl<'a> Step<'a> {
    /// Returns thread `number` of a state before its step, which is one of `op`.
    pub(crate) fn new(
        configuration: &'a Configuration,
        state: &'a State,
        number: usize,
        op: Op,
    ) -> Self {
        Self {
            configuration,
            words: &state.words,
            thread: &state.threads()[number],
            op,
            threads: state.threads(),
            next: [None; 3],
        }
    }

    /// Returns words and thread after each step that was found.
    pub(crate) fn found(&self) -> impl Iterator<Item = (Words, Thread)> {
        self.next.into_iter().flatten()
    }

    pub(crate) fn word(&self, word: usize) -> i32 {
        self.words[word]
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.configuration.mutant == mutant
    }

    pub(crate) fn has(&self, bit: i32) -> bool {
        self.thread.bits & bit != 0
    }

    pub(crate) fn add(&self, word: usize, by: i32) -> (usize, i32) {
        (word, self.words[word] + by)
    }

    /// Changes `words` at once, as a read-modify-write or as a load that found something, and goes on at `at`.
    pub(crate) fn goto_with(
        &mut self,
        at: At,
        words: &[(usize, i32)],
        change: impl FnOnce(&mut Thread),
    ) {
        let mut thread = *self.thread;
        thread.at = at;
        change(&mut thread);
        self.finish(words, thread);
    }

    pub(crate) fn goto(&mut self, at: At, change: impl FnOnce(&mut Thread)) {
        self.goto_with(at, &[], change);
    }

    pub(crate) fn finish(&mut self, words: &[(usize, i32)], thread: Thread) {
        let mut all = *self.words;
        for (word, value) in words {
            all[*word] = *value;
        }
        let free = self.next.iter_mut().find(|next| next.is_none());
        *free.unwrap() = Some((all, thread));
    }

    /// Ends the operation, whose own result does not matter here.
    pub(crate) fn ends(&mut self, words: &[(usize, i32)]) {
        let thread = *self.thread;
        self.ends_as(&thread, words);
    }

    fn ends_as(&mut self, before: &Thread, words: &[(usize, i32)]) {
        if before.lanes != 0 {
            // The lanes of a warp end together.
            return;
        }
        let mut thread = before.cleared(At::Idle);
        if self.configuration.persistent {
            thread.at = At::Refresh;
            thread.life = before.life;
        } else if self.configuration.guard {
            thread.at = At::GuardDrop;
            thread.life = before.life;
        } else {
            thread.done += 1;
        }
        self.finish(words, thread);
    }

    /// Lets the put return its ticket. `store` is one more store, which is not yet visible.
    pub(crate) fn posted(&mut self, words: &[(usize, i32)], store: Option<(u8, i32)>) {
        let mut before = *self.thread;
        if let Some(store) = store {
            before.buffer.push(store);
        }
        let is_nop = self.has(bit::NOP);
        if !is_nop && !self.op.flags.wait {
            self.ends_as(&before, words);
        } else {
            let mut thread = before.cleared(At::Wait);
            thread.life = before.life;
            if is_nop {
                thread.bits = bit::NOP_POSTED;
                thread.ticket = before.ticket;
            } else {
                thread.bits = before.bits & bit::HELD;
                thread.ticket = before.index + before.blocks;
            }
            self.finish(words, thread);
        }
    }

    /// Ghost: checks that nothing of an old life acts after the reset.
    pub(crate) fn in_life(&self) -> Result<(), Violation> {
        let now = self.word(Word::LIFE);
        if self.thread.life != now && !self.configuration.free {
            return broken(
                Property::Life,
                format!(
                    "a thread of life {} acts in {now} at {:?}",
                    self.thread.life, self.thread.at
                ),
            );
        }
        Ok(())
    }
}
