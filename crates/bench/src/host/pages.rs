//! The setting of `wv bench fill`: which pages go where, with which bytes, and what is compared.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::memory::{EndMemory, PIECE};
use crate::error::BenchError;

/// The number of repeats that are compared besides the last one.
const CHOSEN: u32 = 2;

/// The setting of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FillOptions {
    /// The number of bytes of the peer's memory.
    pub bytes: u64,
    /// The number of bytes of a page.
    pub page: u64,
    /// The number of pages of a repeat.
    pub pages: u64,
    /// The number of repeats that are measured.
    pub repeats: u32,
    /// The number of pages of a transfer.
    pub batch: u32,
    /// The number of transfers in flight at a time.
    pub in_flight: u32,
    /// The seed that chooses places, bytes and the compared repeats.
    pub seed: u64,
}

impl FillOptions {
    /// Refuses options out of their ranges.
    ///
    /// # Errors
    /// The option that is out of its range, with what it may be.
    pub fn check(&self) -> Result<(), BenchError> {
        let places = self.bytes.checked_div(self.page).unwrap_or(0);
        for (what, value, least, most) in [
            ("--page", self.page, 1, self.bytes),
            ("--pages", self.pages, 1, places),
            ("--repeats", self.repeats.into(), 1, 1_000_000),
            ("--batch", self.batch.into(), 1, 65_536),
            ("--in-flight", self.in_flight.into(), 1, 65_536),
        ] {
            if !(least..=most).contains(&value) {
                return Err(BenchError::Option {
                    what,
                    value: value.to_string(),
                    limit: format!("{least} to {most}"),
                });
            }
        }
        Ok(())
    }

    pub(super) fn operations(&self) -> u64 {
        self.pages * u64::from(self.repeats)
    }

    /// Returns the numbers of the repeats whose bytes are compared, in ascending order.
    pub(super) fn compared(&self) -> Vec<u32> {
        let mut random = Rng::with_seed(self.seed);
        let last = self.repeats - 1;
        let chosen = random.choose_multiple(0..last, CHOSEN as usize);
        let mut all: Vec<u32> = chosen.into_iter().chain([last]).collect();
        all.sort_unstable();
        all
    }

    /// Returns the places to which the pages of a repeat go.
    pub(super) fn places(&self, repeat: u32) -> Vec<u64> {
        let mut random = self.random(repeat);
        let count = usize::try_from(self.pages).unwrap_or(usize::MAX);
        let mut places = random.choose_multiple(0..self.bytes / self.page, count);
        random.shuffle(&mut places);
        places
    }

    fn random(&self, repeat: u32) -> Rng {
        let mut seeds = Rng::with_seed(self.seed ^ u64::from(repeat) << 32);
        Rng::with_seed(seeds.u64(..))
    }

    /// Returns the bytes of the pages of a repeat, in the order in which `places` names their places.
    pub(super) fn sent(&self, repeat: u32) -> Vec<u8> {
        let mut random = self.random(repeat);
        let mut sent = vec![0; length(self.pages * self.page)];
        for page in sent.chunks_mut(length(self.page)) {
            random.fill(page);
        }
        sent
    }

    /// Compares all pages of a repeat with those that were sent. Returns how many bytes it compared.
    pub(super) fn compare(&self, memory: &EndMemory, repeat: u32) -> Result<u64, BenchError> {
        let (sent, page) = (self.sent(repeat), length(self.page));
        let mut pages: Vec<(u64, &[u8])> = self
            .places(repeat)
            .into_iter()
            .zip(sent.chunks(page))
            .collect();
        pages.sort_unstable_by_key(|(place, _)| *place);
        let window = (PIECE as u64 / self.page).max(1);
        let mut came = Vec::new();
        // One copy reads all pages that are near each other, because a GPU takes long to begin a copy.
        for near in pages.chunk_by(|(a, _), (b, _)| a / window == b / window) {
            let [first, last] = [near[0].0, near[near.len() - 1].0];
            came.resize(length((last - first + 1) * self.page), 0);
            memory.read(first * self.page, &mut came)?;
            for (place, sent) in near {
                let came = &came[length((place - first) * self.page)..][..page];
                if let Some(at) = (0..page).find(|at| sent[*at] != came[*at]) {
                    let (due, is, seed) = (sent[at], came[at], self.seed);
                    return Err(wrong(format!(
                        "repeat {repeat} (seed {seed}): byte {at} of place {place} is {is:#x}; {due:#x} was sent"
                    )));
                }
            }
        }
        Ok(sent.len() as u64)
    }
}

fn length(page: u64) -> usize {
    usize::try_from(page).unwrap_or(usize::MAX)
}

pub(super) fn wrong(detail: String) -> BenchError {
    BenchError::Wrong {
        case: "fill".to_owned(),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::memory::of_tests::{host, simt};
    use std::collections::BTreeSet;

    fn options() -> FillOptions {
        FillOptions {
            bytes: 1 << 20,
            page: 4096,
            pages: 100,
            repeats: 30,
            batch: 4,
            in_flight: 8,
            seed: 7,
        }
    }

    #[test]
    fn pages_go_to_places_of_their_own_and_the_last_repeat_is_compared() {
        let options = options();
        for repeat in [0, 29] {
            let places = options.places(repeat);
            assert_eq!(places, options.places(repeat));
            let apart: BTreeSet<u64> = places.iter().copied().collect();
            assert_eq!(apart.len(), 100);
            assert!(apart.last() < Some(&256));
        }
        assert_ne!(options.places(0), options.places(1));
        let compared = options.compared();
        assert_eq!((compared.len(), compared[2]), (3, 29));
        let one = FillOptions {
            repeats: 1,
            ..options
        };
        assert_eq!(one.compared(), [0]);
    }

    #[test]
    fn a_page_that_came_otherwise_is_found_with_its_place() {
        // The cases: one page in a copy, many pages in a copy, and a length that is no multiple of a word.
        for (page, pages) in [(4096, 100), (PIECE as u64 + 4096, 2), (999, 700)] {
            let options = FillOptions {
                bytes: 3 * (PIECE as u64 + 4096),
                page,
                pages,
                ..options()
            };
            options.check().unwrap();
            for memory in [host(options.bytes), simt(options.bytes)] {
                let (sent, places) = (options.sent(4), options.places(4));
                for (place, bytes) in places.iter().zip(sent.chunks(length(page))) {
                    memory.write(place * page, bytes).unwrap();
                }
                assert_eq!(options.compare(&memory, 4).unwrap(), page * pages);
                for nth in [0, places.len() - 1] {
                    let (place, last) = (places[nth], length(page) - 1);
                    let was = sent[nth * length(page) + last];
                    let at = place * page + page - 1;
                    memory.write(at, &[!was]).unwrap();
                    let said = options.compare(&memory, 4).unwrap_err().to_string();
                    let found = format!("repeat 4 (seed 7): byte {last} of place {place} is");
                    assert!(said.contains(&found), "{said}");
                    memory.write(at, &[was]).unwrap();
                }
            }
        }
    }

    #[test]
    fn an_option_that_is_no_run_is_refused_with_its_limits() {
        let good = options();
        good.check().unwrap();
        let all = FillOptions { pages: 256, ..good };
        all.check().unwrap();
        for (options, text) in [
            (
                FillOptions { page: 0, ..good },
                "--page is 0; it must be 1 to 1048576",
            ),
            (
                FillOptions {
                    page: (1 << 20) + 1,
                    ..good
                },
                "--page is 1048577; it must be 1 to 1048576",
            ),
            (
                FillOptions { pages: 0, ..good },
                "--pages is 0; it must be 1 to 256",
            ),
            (
                FillOptions { pages: 257, ..good },
                "--pages is 257; it must be 1 to 256",
            ),
            (
                FillOptions { repeats: 0, ..good },
                "--repeats is 0; it must be 1 to 1000000",
            ),
            (
                FillOptions {
                    batch: 65_537,
                    ..good
                },
                "--batch is 65537; it must be 1 to 65536",
            ),
            (
                FillOptions {
                    in_flight: 0,
                    ..good
                },
                "--in-flight is 0; it must be 1 to 65536",
            ),
        ] {
            assert_eq!(options.check().unwrap_err().to_string(), text);
        }
    }
}
