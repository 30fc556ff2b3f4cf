//! Measures how fast a store answers, and which leases it can carry.

use std::time::{Duration, Instant};

use super::{LEASE_TTL, LeaseId, Store, StoreError, Timed};

/// The most calls of one measurement.
const MAX_CALLS: u32 = 100_000;
/// The most measurements of one store at the same time.
const AT_ONCE: u32 = 16;
/// The time to live of the lease that is renewed. If its holder is killed, the lease is gone after this time.
const TTL: Duration = Duration::from_secs(60);
/// The bytes of a value: as many as the record of a rank has.
const VALUE: usize = 256;
/// The factor between the time that 99 of 100 calls take at most, and the shortest time to live of a lease. A holder renews three times in
/// each time to live, so a renewal that is lost leaves time for the next.
const CALLS_PER_TTL: u32 = 6;

/// The times of the calls of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Measured {
    /// The number of calls that were made, one after the other.
    pub calls: u32,
    /// The number of calls that one caller makes in a second.
    pub per_second: f64,
    /// The time that half of the calls took at most.
    pub p50: Duration,
    /// The time that 99 of 100 calls took at most.
    pub p99: Duration,
    /// The time of the slowest call.
    pub slowest: Duration,
    /// The shortest time to live of a lease that the store carries: 6 times `p99`, and not below [`LEASE_TTL`].
    pub shortest_lease_ttl: Duration,
}

impl Measured {
    /// Returns whether the store is fast enough for leases of this time to live.
    #[must_use]
    pub fn carries(&self, lease_ttl: Duration) -> bool {
        lease_ttl >= self.shortest_lease_ttl
    }

    /// Returns the figures of the times of at least one call.
    #[must_use]
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let of_100 = |part: usize| {
            let rank = (times.len() * part).div_ceil(100);
            times.get(rank.saturating_sub(1)).copied()
        };
        let [p50, p99, slowest] = [50, 99, 100].map(|part| of_100(part).unwrap_or_default());
        let sum: Duration = times.iter().sum();
        Self {
            calls: u32::try_from(times.len()).unwrap_or(u32::MAX),
            // By a coarse clock calls may take no time.
            per_second: times.len() as f64 / sum.as_secs_f64().max(1e-9),
            p50,
            p99,
            slowest,
            shortest_lease_ttl: p99.saturating_mul(CALLS_PER_TTL).max(*LEASE_TTL.start()),
        }
    }
}

/// Measures `store` by `calls` calls, 1 to 100,000, of five kinds in turn. The kinds are put, compare-and-set, a look at changes, a
/// count, and the renewal of a lease. Each call ends within `bound`, as by [`Store::bounded`], and none begins when `bound` has
/// passed since the first began.
///
/// The keys are below `measure/`, in one of 16 places that a lease keeps for this caller. They are removed again, also after an
/// error if the store then answers. A process that is killed leaves one small key.
///
/// # Errors
/// The first error of a call. [`StoreError::Late`] if others measure in all places.
pub fn measure(store: &dyn Store, calls: u32, bound: Duration) -> Result<Measured, StoreError> {
    let store = store.bounded(bound);
    let place = Place::take(&*store)?;
    let times = place.calls(calls.clamp(1, MAX_CALLS), bound);
    let removed = place.remove();
    let times = times?;
    removed?;
    Ok(Measured::of(times))
}

/// The keys of this caller below `measure/`.
struct Place<'a> {
    store: &'a dyn Store,
    keys: String,
    lease: String,
    id: LeaseId,
}

impl<'a> Place<'a> {
    fn take(store: &'a dyn Store) -> Result<Self, StoreError> {
        let start = Instant::now();
        for place in 0..AT_ONCE {
            let keys = format!("measure/{place}");
            let lease = format!("{keys}/lease");
            if let Some(id) = store.take_lease(&lease, b"", TTL)? {
                return Ok(Self {
                    store,
                    keys,
                    lease,
                    id,
                });
            }
        }
        Err(StoreError::Late {
            key: "measure".to_owned(),
            waited: start.elapsed(),
        })
    }

    fn calls(&self, calls: u32, bound: Duration) -> Result<Vec<Duration>, StoreError> {
        let (store, record) = (self.store, format!("{}/record", self.keys));
        let (start, mut times) = (Instant::now(), Vec::new());
        let (mut value, mut since) = (vec![0; VALUE], 0);
        for call in 0..calls {
            let timed = match call % 5 {
                0 => Timed::of(|| store.put(&record, &value)),
                1 => {
                    let before = value.clone();
                    value.rotate_right(1);
                    value[0] = value[0].wrapping_add(1);
                    Timed::of(|| {
                        store
                            .compare_and_set(&record, Some(&before), &value)
                            .map(drop)
                    })
                }
                2 => Timed::of(|| {
                    let found = store.changed_since(&[&record], Some(&self.keys), since)?;
                    since = found.revision;
                    Ok(())
                }),
                3 => Timed::of(|| store.count(&self.keys).map(drop)),
                _ => Timed::of(|| store.renew_lease(&self.lease, self.id).map(drop)),
            };
            timed.result?;
            times.push(timed.took);
            if start.elapsed() >= bound {
                break;
            }
        }
        Ok(times)
    }

    /// Removes the keys. The lease is ended last, since it keeps the place.
    fn remove(&self) -> Result<(), StoreError> {
        let removed = self.store.remove(&format!("{}/record", self.keys));
        self.store.end_lease(&self.lease, self.id)?;
        removed.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: impl IntoIterator<Item = u64>) -> Measured {
        Measured::of(millis.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn figures_are_those_of_the_call_at_their_rank() {
        let ms = Duration::from_millis;
        let hundred = of((1..=100).rev());
        assert_eq!(
            (hundred.p50, hundred.p99, hundred.slowest),
            (ms(50), ms(99), ms(100))
        );
        assert_eq!(hundred.shortest_lease_ttl, ms(594));
        assert!((hundred.per_second - 100.0 / 5.05).abs() < 1e-6);
        assert!(hundred.carries(ms(594)) && !hundred.carries(ms(593)));
        let one = of([7]);
        assert_eq!((one.p50, one.p99, one.slowest), (ms(7), ms(7), ms(7)));
        assert_eq!(one.shortest_lease_ttl, *LEASE_TTL.start());
        // One slow call of 99 is at the 99th percentile; of 100 it is not.
        let slow_of = |calls: usize| of(std::iter::repeat_n(1, calls - 1).chain([1000]));
        assert_eq!((slow_of(99).p99, slow_of(100).p99), (ms(1000), ms(1)));
        let none = of([0]);
        assert!(none.per_second.is_finite());
        let longest = Measured::of(vec![Duration::MAX]);
        assert_eq!(longest.shortest_lease_ttl, Duration::MAX);
    }
}
