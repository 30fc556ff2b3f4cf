//! How many WRITEs have counted at the receiver, by counter.

use serde::{Deserialize, Serialize};

/// How many WRITEs have counted, by counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted(Vec<u64>);

/// A counter, and how many WRITEs have counted at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CounterCount {
    pub(crate) counter: u32,
    pub(crate) writes: u64,
}

/// What has counted in one life of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneCounts {
    /// WRITEs of this end that are done.
    pub(crate) done: Counted,
    /// WRITEs of the other end that were counted here.
    pub(crate) seen: Counted,
}

impl Counted {
    /// Notes that a WRITE has counted. No counter has a number of more than 16 bits.
    pub(crate) fn add(&mut self, counter: u16) {
        let place = usize::from(counter);
        if place >= self.0.len() {
            self.0.resize(place + 1, 0);
        }
        self.0[place] += 1;
    }

    /// Returns how many WRITEs have counted at a counter.
    pub(crate) fn at(&self, counter: u32) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or(0)
    }

    /// Returns the counters at which WRITEs have counted, in order.
    pub(crate) fn all(&self) -> Vec<CounterCount> {
        let all = (0..).zip(&self.0).filter(|(_, writes)| **writes > 0);
        let all = all.map(|(counter, writes)| CounterCount {
            counter,
            writes: *writes,
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_by_counter_and_in_order() {
        let mut counted = Counted::default();
        assert_eq!(counted.all(), []);
        for counter in [7, 0, 7, u16::MAX] {
            counted.add(counter);
        }
        let expected = [(0, 1), (7, 2), (0xffff, 1)];
        let expected = expected.map(|(counter, writes)| CounterCount { counter, writes });
        assert_eq!(counted.all(), expected);
        let at = [0, 1, 7, 1 << 20].map(|counter| counted.at(counter));
        assert_eq!(at, [1, 0, 2, 0]);
    }
}
