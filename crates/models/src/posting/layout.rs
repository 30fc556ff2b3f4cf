//! The places of a configuration's words: flags, WQEBBs, and after them the words that its mode adds.

use super::configuration::{Configuration, Cq};
use super::property::Mutant;
use super::state::{MODE_WORDS, Word};

impl Configuration {
    /// Returns the word of the flag of ring index `index`.
    pub(crate) fn flag(&self, index: i32) -> usize {
        Word::FLAGS + usize::try_from(index.rem_euclid(self.depth)).unwrap()
    }

    /// Returns the word of the WQEBB of ring index `index`.
    pub(crate) fn block(&self, index: i32) -> usize {
        self.flag(index) + usize::try_from(self.depth).unwrap()
    }

    /// Returns word number `at` of those that a mode adds.
    fn mode_word(&self, at: usize) -> usize {
        assert!(at < MODE_WORDS, "{}", self.name);
        self.block(0) + usize::try_from(self.depth).unwrap() + at
    }

    /// Block mode: returns the word of the slots, by bit, that the writer of a flag knew when it wrote the flag.
    pub(crate) fn flag_knows(&self, index: i32) -> usize {
        assert!(self.block);
        self.mode_word(usize::try_from(index.rem_euclid(self.depth)).unwrap())
    }

    /// Returns the word of the mailbox: the index after the last WQEBB for which the host is to ring. It cannot be used with `block` at
    /// depths above 4.
    pub(crate) fn mailbox_word(&self) -> usize {
        assert!(self.mailbox && self.cq == Cq::Step);
        self.mode_word(if self.block { 4 } else { 0 })
    }

    /// Returns the word of the number of WQEBBs that failed or were flushed.
    pub(crate) fn flushed_word(&self) -> usize {
        assert!(!self.block && !self.mailbox);
        self.mode_word(0)
    }

    /// Returns the word of the number of entries taken from a wide CQ.
    pub(crate) fn consumed_word(&self) -> usize {
        self.mode_word(1)
    }

    /// Returns the word of the number of entries written to a wide CQ.
    pub(crate) fn produced_word(&self) -> usize {
        self.mode_word(2)
    }

    /// Returns the number of entries of a wide CQ, which is the number of WQEBBs of the ring.
    pub(crate) fn cq_depth(&self) -> i32 {
        if self.mutant == Mutant::CqTooShort {
            self.depth / 2
        } else {
            self.depth
        }
    }

    /// Returns the word of entry number `number` of a wide CQ.
    pub(crate) fn entry_word(&self, number: i32) -> usize {
        self.mode_word(3 + usize::try_from(number.rem_euclid(self.cq_depth())).unwrap())
    }

    /// Returns the number of words that this configuration uses.
    pub(crate) fn word_count(&self) -> usize {
        let mode_words = match self.cq {
            Cq::Wide => self.entry_word(-1) + 1,
            Cq::Collapsed => self.flushed_word() + 1,
            Cq::Step if self.mailbox => self.mailbox_word() + 1,
            Cq::Step if self.block => self.flag_knows(-1) + 1,
            Cq::Step => 0,
        };
        mode_words.max(self.block(-1) + 1)
    }
}
