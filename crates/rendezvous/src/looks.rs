//! The looks of a wait with a deadline: all waits of the host read the clock and look in one order.

use std::time::{Duration, Instant};

/// The looks of one wait, as an iterator over the time that is left at each look. The clock is read before each look. The last look begins
/// after the deadline, with no time left. So a wait that reports a timeout has looked once more at what it waits for, however long its
/// thread stood still between a look and the clock. A deadline that has passed already, and a timeout of 0, give one look.
///
/// ```
/// use rendezvous::Looks;
/// use std::time::Duration;
///
/// fn wait(timeout: Duration, mut look: impl FnMut() -> Option<u32>) -> Option<u32> {
///     for left in Looks::within(timeout) {
///         let found = look();
///         if found.is_some() {
///             return found;
///         }
///         std::thread::sleep(left.min(Duration::from_millis(1)));
///     }
///     None
/// }
/// assert_eq!(wait(Duration::ZERO, || Some(7)), Some(7));
/// assert_eq!(wait(Duration::ZERO, || None), None);
/// ```
#[derive(Clone, Debug)]
pub struct Looks<C = fn() -> Instant> {
    clock: C,
    /// The end of the wait. None: the clock cannot represent it.
    deadline: Option<Instant>,
    is_over: bool,
}

impl Looks {
    /// Returns the looks of a wait that begins now. A timeout beyond the clock's range never passes.
    #[must_use]
    pub fn within(timeout: Duration) -> Self {
        Self::by(Instant::now, Instant::now().checked_add(timeout))
    }

    /// Returns the looks of a wait until `deadline`.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self::by(Instant::now, Some(deadline))
    }
}

impl<C: FnMut() -> Instant> Looks<C> {
    /// Returns the looks of a wait by another clock. A wait without a deadline ends only when it finds something.
    pub fn by(clock: C, deadline: Option<Instant>) -> Self {
        Self {
            clock,
            deadline,
            is_over: false,
        }
    }
}

impl<C: FnMut() -> Instant> Iterator for Looks<C> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.is_over {
            return None;
        }
        let Some(deadline) = self.deadline else {
            return Some(Duration::MAX);
        };
        let left = deadline.saturating_duration_since((self.clock)());
        self.is_over = left.is_zero();
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counted, FileStore, MemoryStore, Store};
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_clock_is_read_before_each_look_and_the_last_look_is_after_it() {
        let (begin, now) = (Instant::now(), Cell::new(Duration::ZERO));
        let clock = || begin + now.get();
        let mut looks = Looks::by(clock, Some(begin + 10 * MS));
        assert_eq!(looks.next(), Some(10 * MS));
        now.set(9 * MS);
        assert_eq!(looks.next(), Some(MS));
        // After that look the thread stood still for ten times as long as the timeout.
        now.set(100 * MS);
        assert_eq!(looks.next(), Some(Duration::ZERO));
        assert_eq!(looks.next(), None);
        // A clock that goes back brings no further look.
        now.set(Duration::ZERO);
        assert_eq!(looks.next(), None);
    }

    #[test]
    fn a_deadline_at_hand_and_one_that_has_passed_give_one_look() {
        let begin = Instant::now();
        for late in [Duration::ZERO, MS, Duration::from_secs(1000)] {
            let looks = Looks::by(|| begin + late, Some(begin));
            assert_eq!(looks.collect::<Vec<_>>(), [Duration::ZERO], "{late:?}");
        }
        assert_eq!(Looks::until(begin).count(), 1);
        assert_eq!(Looks::within(Duration::ZERO).count(), 1);
    }

    #[test]
    fn a_timeout_beyond_the_clock_never_passes() {
        for looks in [Looks::within(Duration::MAX), Looks::by(Instant::now, None)] {
            let left: Vec<Duration> = looks.take(3).collect();
            assert!(
                left.iter().all(|left| *left > Duration::from_secs(1 << 40)),
                "{left:?}"
            );
        }
    }

    /// Returns `store`, whose first read of kind `kind` lasts longer than `MS`. At the end of that read, `then` runs.
    fn late(
        store: &Arc<dyn Store>,
        kind: &'static str,
        then: impl Fn() + Send + Sync + 'static,
    ) -> Counted {
        let first = AtomicBool::new(true);
        Counted::new(Arc::clone(store)).behind_reads(move |of| {
            if of == kind && first.swap(false, Ordering::Relaxed) {
                std::thread::sleep(2 * MS);
                then();
            }
        })
    }

    #[test]
    fn a_key_that_is_set_while_the_last_look_lasts_is_found_by_one_more() {
        let place = tempfile::tempdir().unwrap();
        let stores: [Arc<dyn Store>; 2] = [
            Arc::new(MemoryStore::new()),
            Arc::new(FileStore::open(place.path(), "run").unwrap()),
        ];
        for store in stores {
            let slow = late(&store, "get", {
                let store = Arc::clone(&store);
                move || store.put("key", b"there").unwrap()
            });
            assert_eq!(slow.get("key", Instant::now() + MS).unwrap(), b"there");
            // A deadline that has passed gives one look.
            let passed = Instant::now();
            assert_eq!(slow.get("key", passed).unwrap(), b"there");
            let calls = slow.asked().calls();
            assert!(slow.get("other", passed).is_err());
            assert_eq!(slow.asked().calls(), calls + 1);
        }
    }
}
