//! The store of a rank process, which stands still or is late when an instruction says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpverbs::team::{
    AroundStore, KeyChange, KeyWatch, Store, StoreAnswer, StoreCall, StoreError,
};

/// The longest call without a bound of its own, as in the stores themselves.
const MOST: Duration = Duration::from_secs(5);
/// The time between two looks whether the store goes on.
const LOOK: Duration = Duration::from_millis(2);

/// A fault of the store, which begins now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreFault {
    /// For how many milliseconds the fault lasts.
    pub(crate) ms: u64,
    /// How late calls are; None: no call ends.
    pub(crate) late: Option<Late>,
}

/// How late calls are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Late {
    pub(crate) most_ms: u64,
    pub(crate) seed: u64,
}

/// The faults that all handles of a process share. Times are milliseconds since [`Faults::start`].
#[derive(Debug)]
pub(crate) struct Faults {
    start: Instant,
    /// The time until which no call ends.
    still_ms: AtomicU64,
    /// The time until which calls are late, the most by which they are, and the seed of how late each is.
    late_ms: AtomicU64,
    most_ms: AtomicU64,
    random: AtomicU64,
}

impl Faults {
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            still_ms: AtomicU64::new(0),
            late_ms: AtomicU64::new(0),
            most_ms: AtomicU64::new(0),
            random: AtomicU64::new(0),
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins `fault`, in place of an earlier fault of its kind.
    pub(crate) fn set(&self, fault: StoreFault) {
        let until = self.now_ms().saturating_add(fault.ms);
        match fault.late {
            None => self.still_ms.store(until, Ordering::Relaxed),
            Some(late) => {
                self.most_ms.store(late.most_ms, Ordering::Relaxed);
                self.random.store(late.seed, Ordering::Relaxed);
                self.late_ms.store(until, Ordering::Relaxed);
            }
        }
    }

    fn stands_still(&self) -> bool {
        self.now_ms() < self.still_ms.load(Ordering::Relaxed)
    }

    /// Returns how late the next call is. The flag says whether the store gets the call at once, so that only the answer is late.
    fn lateness(&self) -> (Duration, bool) {
        if self.now_ms() >= self.late_ms.load(Ordering::Relaxed) {
            return (Duration::ZERO, false);
        }
        let next = self.random.fetch_add(1, Ordering::Relaxed);
        let mut random = fastrand::Rng::with_seed(next.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let most = self.most_ms.load(Ordering::Relaxed);
        (Duration::from_millis(random.u64(0..=most)), random.bool())
    }
}

/// A store whose calls fail within their bounds while a fault makes it stand still.
#[derive(Debug)]
pub(crate) struct DisturbedStore {
    store: Arc<dyn Store>,
    bound: Duration,
    faults: Arc<Faults>,
}

impl DisturbedStore {
    pub(crate) fn new(store: Arc<dyn Store>, faults: Arc<Faults>) -> Self {
        Self {
            store,
            bound: MOST,
            faults,
        }
    }
}

impl AroundStore for DisturbedStore {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            store: self.store.bounded(bound),
            bound: bound.min(MOST),
            faults: Arc::clone(&self.faults),
        })
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        let start = Instant::now();
        while self.faults.stands_still() {
            let left = self.bound.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(unreachable(start));
            }
            std::thread::sleep(left.min(LOOK));
        }
        let (late, heard) = self.faults.lateness();
        let left = self.bound.saturating_sub(start.elapsed());
        if late <= left {
            std::thread::sleep(late);
            return call.make(self.store.as_ref());
        }
        // The store got the call, so the change is made even if the answer comes too late.
        if heard {
            drop(call.make(self.store.as_ref()));
        }
        std::thread::sleep(left);
        Err(if heard && !call.reads() {
            unanswered(start)
        } else {
            unreachable(start)
        })
    }

    fn next_around(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        // A watch that begins while the store stands still waits until its timeout, and reports no change.
        let start = Instant::now();
        while self.faults.stands_still() {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(KeyChange::Nothing);
            }
            std::thread::sleep(left.min(LOOK));
        }
        let left = timeout.saturating_sub(start.elapsed());
        self.store.next_change(watch, since, left)
    }
}

const NAME: &str = "of chaos";
const CAUSE: &str = "wv chaos holds it up";

fn unreachable(start: Instant) -> StoreError {
    StoreError::Unreachable {
        store: NAME.to_owned(),
        waited: start.elapsed(),
        cause: CAUSE.to_owned(),
    }
}

fn unanswered(start: Instant) -> StoreError {
    StoreError::NoAnswer {
        store: NAME.to_owned(),
        waited: start.elapsed(),
        // No key has this revision. So no caller takes a change whose answer was lost for one that was not made.
        seen: u64::MAX,
        cause: CAUSE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs::team::MemoryStore;

    const BOUND: Duration = Duration::from_millis(20);
    const LONG_MS: u64 = 100_000;

    fn disturbed() -> (Arc<dyn Store>, Arc<dyn Store>, Arc<Faults>) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let faults = Faults::none();
        let disturbed = DisturbedStore::new(Arc::clone(&store), Arc::clone(&faults));
        (store, disturbed.bounded(BOUND), faults)
    }

    #[test]
    fn a_store_that_stands_still_ends_calls_by_their_bound_and_does_nothing() {
        let (store, disturbed, faults) = disturbed();
        disturbed.put("a", b"1").unwrap();
        let (ms, late) = (LONG_MS, None);
        faults.set(StoreFault { ms, late });
        for result in [
            disturbed.put("a", b"2"),
            disturbed.try_get("a").map(drop),
            disturbed.changed_since(&["a"], None, 0).map(drop),
            disturbed
                .take_lease("b", b"1", Duration::from_secs(9))
                .map(drop),
        ] {
            let error = result.unwrap_err();
            assert!(error.is_unanswered(), "{error}");
        }
        assert!(!disturbed.wait_for_key("a", 0, BOUND).unwrap());
        assert_eq!(store.try_get("a").unwrap().unwrap(), b"1");
        faults.set(StoreFault { ms: 0, late });
        disturbed.put("a", b"2").unwrap();
        assert_eq!(store.try_get("a").unwrap().unwrap(), b"2");
    }

    #[test]
    fn a_late_store_ends_some_calls_and_makes_some_changes_without_an_answer() {
        let (store, disturbed, faults) = disturbed();
        let late = |most_ms| StoreFault {
            ms: LONG_MS,
            late: Some(Late { most_ms, seed: 3 }),
        };
        faults.set(late(0));
        disturbed.put("a", b"0").unwrap();
        faults.set(late(100));
        let (mut answered, mut done_unanswered, mut lost) = (0, 0, 0);
        for number in 0..60 {
            let value = format!("{number}");
            let result = disturbed.put("a", value.as_bytes());
            let done = store.try_get("a").unwrap().unwrap() == value.as_bytes();
            match result {
                Ok(()) => {
                    assert!(done);
                    answered += 1;
                }
                Err(error) => {
                    assert!(error.is_unanswered(), "{error}");
                    let unknown = matches!(error, StoreError::NoAnswer { .. });
                    assert_eq!(done, unknown, "{error}");
                    done_unanswered += u32::from(done);
                    lost += u32::from(!done);
                }
            }
        }
        let all = [answered, done_unanswered, lost];
        assert!(all.iter().all(|count| *count > 0), "{all:?}");
    }
}
