//! Words by which kernels tell the host that a QP has failed. The host needs to read these words only, and no QP, while none has
//! failed.

use std::sync::atomic::Ordering;

use crate::gpu::{Gpu, HostMapped};
use crate::team::error::TeamError;

/// The number of peers whose QPs share a word.
const PEERS: u32 = 64;

/// One word for each [`PEERS`] peers, in host memory.
#[derive(Debug)]
pub(in crate::team) struct Failures {
    words: HostMapped,
    ranks: u32,
}

impl Failures {
    pub(in crate::team) fn new(gpu: &dyn Gpu, ranks: u32) -> Result<Self, TeamError> {
        let words = ranks.div_ceil(PEERS) as usize * size_of::<u32>();
        Ok(Self {
            words: gpu.map_host(words)?,
            ranks,
        })
    }

    /// Returns the address of the word of `peer`, for `QpContext::failed`.
    pub(in crate::team) fn addr(&self, peer: u32) -> u64 {
        self.words.addr() + u64::from(peer / PEERS) * size_of::<u32>() as u64
    }

    /// Returns the peers whose words kernels have set since the last call. At least one QP to the [`PEERS`] peers of such a word
    /// has failed.
    pub(in crate::team) fn take(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for first in (0..self.ranks).step_by(PEERS as usize) {
            let word = self
                .words
                .u32_at((first / PEERS) as usize * size_of::<u32>());
            // A GPU stores to the word and exchanges nothing, so a store that is not taken here lands after the exchange.
            // Acquire. Pairs with the release fence of `cq::latch`: the failure is read after this.
            if word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Acquire) != 0 {
                found.extend(first..self.ranks.min(first + PEERS));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{self, GpuSelector};

    #[test]
    fn a_word_stands_for_64_peers_and_is_taken_once() {
        let gpu = gpu::open(GpuSelector::Simt).unwrap();
        for ranks in [1, 64, 65, 130] {
            let failures = Failures::new(gpu.as_ref(), ranks).unwrap();
            assert!(failures.take().is_empty());
            let last = ranks - 1;
            let at = usize::try_from(failures.addr(last) - failures.addr(0));
            let word = failures.words.u32_at(at.unwrap());
            word.store(1, Ordering::Relaxed);
            let first = last / PEERS * PEERS;
            let found: Vec<u32> = (first..ranks).collect();
            assert_eq!(failures.take(), found, "{ranks} ranks");
            assert!(failures.take().is_empty(), "{ranks} ranks");
        }
    }
}
