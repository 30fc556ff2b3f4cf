//! Where the words of a configuration lie: flags, WQEBBs, and after them what its mode adds.

use super::configuration::{Configuration, Cq};
use super::property::Mutant;
use super::state::{MODE_WORDS, Word};

impl Configuration {
    /// Word of the flag of ring index `index`.
    pub(crate) fn flag(&self, index: i32) -> usize {
        Word::FLAGS + usize::try_from(index.rem_euclid(self.depth)).unwrap()
    }

    /// Word of the WQEBB of ring index `index`.
    pub(crate) fn block(&self, index: i32) -> usize {
        self.flag(index) + usize::try_from(self.depth).unwrap()
    }

    /// Word number `at` of those that a mode adds.
    fn mode_word(&self, at: usize) -> usize {
        assert!(at < MODE_WORDS, "{}", self.name);
        self.block(0) + usize::try_from(self.depth).unwrap() + at
    }

    /// Block mode: the slots, by bit, of which the writer of a flag knew when it wrote it.
    pub(crate) fn flag_knows(&self, index: i32) -> usize {
        assert!(self.block);
        self.mode_word(usize::try_from(index.rem_euclid(self.depth)).unwrap())
    }

    /// Returns the mailbox: the index after the last WQEBB that the host is to ring for. Not with `block` at depths above 4.
    pub(crate) fn mailbox_word(&self) -> usize {
        assert!(self.mailbox && self.cq == Cq::Step);
        self.mode_word(if self.block { 4 } else { 0 })
    }

    /// WQEBBs that did not complete but failed or were flushed.
    pub(crate) fn flushed_word(&self) -> usize {
        assert!(!self.block && !self.mailbox);
        self.mode_word(0)
    }

    /// Entries taken from a wide CQ.
    pub(crate) fn consumed_word(&self) -> usize {
        self.mode_word(1)
    }

    /// Entries written to a wide CQ.
    pub(crate) fn produced_word(&self) -> usize {
        self.mode_word(2)
    }

    /// Entries of a wide CQ: as many as the ring has WQEBBs.
    pub(crate) fn cq_depth(&self) -> i32 {
        if self.mutant == Mutant::CqTooShort {
            self.depth / 2
        } else {
            self.depth
        }
    }

    /// Entry number `number` of a wide CQ.
    pub(crate) fn entry_word(&self, number: i32) -> usize {
        self.mode_word(3 + usize::try_from(number.rem_euclid(self.cq_depth())).unwrap())
    }

    /// Words that this configuration uses.
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
