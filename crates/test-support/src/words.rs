//! Words that kernels put from the first half of a window into the second half of the peer's.

use crate::abi::kernels::PutWordsParams;
use bytemuck::Pod;
use softhca::device::Execution;
use warpverbs::abi::Status;
use warpverbs::verbs::QpConfig;

use crate::device::launch;
use crate::pair::{Pair, Setup};

/// The deadline of the calls of a kernel, ns.
pub(crate) const DEADLINE_NS: u64 = 60_000_000_000;

/// Returns source word `k`. All words differ, and none is zero.
pub fn word(k: u64) -> u64 {
    (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the positions of target words that differ from their source words.
pub(crate) fn wrong_words(target: Vec<u64>) -> Vec<usize> {
    let wrong = |&(k, target): &(usize, u64)| target != word(k as u64);
    let wrong = target.into_iter().enumerate().filter(wrong);
    wrong.map(|(k, _)| k).collect()
}

impl Pair {
    /// Returns two connected ranks with windows of `words` source words and as many target words.
    pub fn of_words(words: usize, config: &QpConfig, schedule_seed: Option<u64>) -> Self {
        let pair = Self::new(Setup {
            schedule_seeds: [schedule_seed; 2],
            ..Setup::new(16 * words as u64, config)
        });
        let source: Vec<u64> = (0..words as u64).map(word).collect();
        pair.ends[0].write_words(0, &source);
        pair
    }

    /// As `of_words`, on external HCAs, whose executor is `gpuhca` on the CPU.
    pub fn external(words: usize, config: &QpConfig) -> Self {
        let pair = Self::new(Setup {
            execution: Execution::External,
            ..Setup::new(16 * words as u64, config)
        });
        let source: Vec<u64> = (0..words as u64).map(word).collect();
        pair.ends[0].write_words(0, &source);
        pair
    }

    /// As `of_words`, with rings of `1 << log_depth` WQEBBs and default settings otherwise.
    pub fn shared(words: usize, log_depth: u8) -> Self {
        let config = QpConfig::default().with_log_depth(log_depth);
        Self::of_words(words, &config, None)
    }

    /// Returns the number of source words of a window, which is also that of its target words.
    pub fn words(&self) -> usize {
        usize::try_from(self.setup.window / 16).unwrap()
    }

    /// Returns parameters with which side 0 puts `count` words from each thread, with a deadline of 60 s.
    pub fn params(&self, count: u32, wait_every: u32) -> PutWordsParams {
        let end = &self.ends[0];
        PutWordsParams {
            qp: self.qp(),
            peer: end.peer(),
            window: end.window(),
            src_offset: 0,
            dst_offset: 8 * self.words() as u64,
            deadline_ns: DEADLINE_NS,
            status: end.status(),
            done: end.done(),
            count,
            wait_every,
        }
    }

    /// Runs one block of `kernel` on side 0.
    pub fn run(
        &self,
        kernel: &str,
        threads: u32,
        seed: u64,
        params: &impl Pod,
    ) -> Vec<(Status, u32)> {
        let event = self.ends[0].start(&launch(kernel, 1, threads, seed), params);
        self.ends[0].finish(&event, threads)
    }

    /// Returns the positions of target words on side 1 that differ from their source words.
    pub fn wrong_words(&self) -> Vec<usize> {
        wrong_words(self.ends[1].window_at(8 * self.words() as u64, self.words()))
    }
}
