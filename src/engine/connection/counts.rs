//! What has counted in one life of a lane over libfabric, as both of its ends know it.
//!
//! libfabric gives the completion of a WRITE at its own end and the one at the other end no order, and the close of an endpoint drops
//! completions. So an end may not see WRITEs that the other end knows to be done. Each end closes its endpoint, and then tells how many
//! of its WRITEs are done, by counter. The other end counts the difference to what it has seen in this life. It does so when its own
//! endpoint is closed too, so that it sees no more of them, and before it says that it is reset. So when a transfer with a WRITE that
//! has failed is concluded, all that ever counts by that lane is counted.
//!
//! A WRITE that was seen, and that the other end has to call failed, stands for one that is done and was not seen. The bytes of both have
//! landed.

use crate::config::MOST_LOG_ENTRIES;
use crate::engine::limits::MOST_COUNTERS;
use crate::engine::route::link::Link;
use crate::engine::transfers::Transfers;
use crate::gpu::GpuError;
use crate::provider::{Counted, CounterCount};

/// The most WRITEs of one life that an end has not seen: more than a queue of completions holds, which has two entries for each that an
/// engine counts with.
const MOST_MISSING: u64 = 4 << MOST_LOG_ENTRIES;

/// Why what the other end has told is not counted.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum CountsError {
    #[error(
        "it tells what has counted at {found}; the next counter must be {least} to {last}",
        last = MOST_COUNTERS - 1
    )]
    Counter { found: u32, least: u32 },
    #[error(
        "it tells of {found} WRITEs that have counted and did not come; there must be at most {MOST_MISSING}"
    )]
    Missing { found: u64 },
    #[error("what it tells is not counted, since its bytes may not have come to the GPU: {0}")]
    Gpu(#[from] GpuError),
}

/// What has counted in one life of a lane.
#[derive(Debug, Default)]
pub(in crate::engine) struct LifeCounts {
    /// What the other end has told. None: nothing yet.
    told: Option<Vec<CounterCount>>,
    /// What was seen here. None: this end is not closed, or the difference is counted.
    seen: Option<Counted>,
}

impl LifeCounts {
    /// Takes what was seen here until this end of the lane was closed.
    pub(super) fn close(&mut self, seen: Counted) {
        self.seen = Some(seen);
    }

    /// Takes what the other end tells.
    pub(super) fn hear(&mut self, told: Vec<CounterCount>) -> Result<(), CountsError> {
        let mut least = 0;
        for CounterCount { counter, .. } in &told {
            if !(least..MOST_COUNTERS).contains(counter) {
                let found = *counter;
                return Err(CountsError::Counter { found, least });
            }
            least = counter + 1;
        }
        self.told = Some(told);
        Ok(())
    }

    /// Returns whether the other end has told.
    pub(super) fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Counts what the other end has told and was not seen here. Returns false if nothing is counted, since one of the ends has not closed, or
    /// since it was counted before.
    pub(super) fn settle(
        &mut self,
        link: &Link,
        transfers: &Transfers,
    ) -> Result<bool, CountsError> {
        let Some(missing) = self.missing()? else {
            return Ok(false);
        };
        if !missing.is_empty() {
            // Kernels see the bytes before the count.
            transfers.flushes().flush()?;
        }
        for CounterCount { counter, writes } in missing {
            tracing::debug!("{writes} WRITEs at counter {counter} did not come, and are done");
            link.count(counter, writes);
        }
        Ok(true)
    }

    /// Returns what the other end has told and was not seen here, once. None: one of the ends has not closed, or it was returned before.
    fn missing(&mut self) -> Result<Option<Vec<CounterCount>>, CountsError> {
        let Some(told) = &self.told else {
            return Ok(None);
        };
        let Some(seen) = self.seen.take() else {
            return Ok(None);
        };
        let beyond = told.iter().map(|it| CounterCount {
            writes: it.writes.saturating_sub(seen.at(it.counter)),
            ..*it
        });
        let missing: Vec<CounterCount> = beyond.filter(|it| it.writes > 0).collect();
        let writes = missing.iter().map(|it| it.writes);
        let found = writes.fold(0u64, u64::saturating_add);
        if found > MOST_MISSING {
            return Err(CountsError::Missing { found });
        }
        Ok(Some(missing))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::EngineConfig;
    use crate::engine::config::sizes;
    use crate::engine::route::counter::{Counter, Counters};
    use crate::engine::transfers::Sizes;

    fn told(all: &[(u32, u64)]) -> Vec<CounterCount> {
        let all = all.iter().copied();
        let all = all.map(|(counter, writes)| CounterCount { counter, writes });
        all.collect()
    }

    fn seen(all: &[u16]) -> Counted {
        let mut counted = Counted::default();
        all.iter().for_each(|counter| counted.add(*counter));
        counted
    }

    /// A link, and the counters at which its peer counts.
    struct Rig {
        link: Link,
        counters: Arc<Counters>,
        transfers: Transfers,
    }

    impl Rig {
        fn new() -> Self {
            let counters = Arc::new(Counters::new(None).unwrap());
            let sizes = Sizes {
                slots: 1,
                ..sizes(&EngineConfig::new("a")).unwrap()
            };
            Self {
                link: Link::new(1, 1, &[0], None).with_counters(&counters),
                transfers: Transfers::new(0, &sizes).unwrap(),
                counters,
            }
        }

        fn at(&self, counter: u32) -> u64 {
            Counter::new(&self.counters, counter).read()
        }

        fn settle(&self, counts: &mut LifeCounts) -> Result<bool, CountsError> {
            counts.settle(&self.link, &self.transfers)
        }
    }

    #[test]
    fn what_was_not_seen_is_counted_once_and_no_more_than_was_told() {
        let rig = Rig::new();
        for is_told_first in [true, false] {
            let before = [1, 2, 3, 4].map(|counter| rig.at(counter));
            let mut counts = LifeCounts::default();
            assert!(!rig.settle(&mut counts).unwrap());
            // At 3 one has failed there and was seen here; at 4 none is done.
            let (theirs, own) = (told(&[(1, 2), (2, 5), (3, 1)]), seen(&[2, 3, 3, 4]));
            if is_told_first {
                counts.hear(theirs).unwrap();
                assert!(!rig.settle(&mut counts).unwrap() && counts.is_told());
                counts.close(own);
            } else {
                counts.close(own);
                assert!(!rig.settle(&mut counts).unwrap() && !counts.is_told());
                counts.hear(theirs).unwrap();
            }
            assert!(rig.settle(&mut counts).unwrap());
            assert!(!rig.settle(&mut counts).unwrap(), "once");
            let after = [1, 2, 3, 4].map(|counter| rig.at(counter));
            let added: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
            assert_eq!(added, [2, 4, 0, 0]);
        }
        assert!(rig.link.is_open());
    }

    #[test]
    fn counts_that_no_end_can_tell_are_refused_with_the_limit() {
        let rig = Rig::new();
        let refused = |all: &[(u32, u64)]| {
            let mut counts = LifeCounts::default();
            counts.hear(told(all)).unwrap_err().to_string()
        };
        let text = "it tells what has counted at 4096; the next counter must be 0 to 4095";
        assert_eq!(refused(&[(MOST_COUNTERS, 1)]), text);
        let text = "it tells what has counted at 7; the next counter must be 8 to 4095";
        assert_eq!(refused(&[(7, 1), (7, 1)]), text);
        assert!(refused(&[(0, 1), (u32::MAX, 1)]).contains("4294967295"));
        let most = MOST_MISSING;
        for (all, found) in [
            (&[(5, most + 2)][..], most + 1),
            (&[(5, most), (6, 2)], most + 1),
            (&[(5, u64::MAX), (6, u64::MAX)], u64::MAX),
        ] {
            let mut counts = LifeCounts::default();
            counts.hear(told(all)).unwrap();
            counts.close(seen(&[5]));
            let refused = rig.settle(&mut counts).unwrap_err().to_string();
            let text = format!(
                "it tells of {found} WRITEs that have counted and did not come; there must be at most 16777216"
            );
            assert_eq!(refused, text);
            assert!(!rig.settle(&mut counts).unwrap());
        }
        assert_eq!([5, 6].map(|counter| rig.at(counter)), [0, 0]);
        let mut counts = LifeCounts::default();
        counts.hear(told(&[(5, most + 1)])).unwrap();
        counts.close(seen(&[5]));
        assert!(rig.settle(&mut counts).unwrap());
        assert_eq!(rig.at(5), most);
    }
}
