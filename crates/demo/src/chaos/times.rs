//! Collected durations, of which a table shows median, 99th percentile and maximum.

use std::fmt;

use serde::Serialize;

/// Durations in microseconds, ascending once they are sorted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Times(Vec<u64>);

impl Times {
    pub(super) fn add(&mut self, us: u64) {
        self.0.push(us);
    }

    pub(super) fn sort(&mut self) {
        self.0.sort_unstable();
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> &[u64] {
        &self.0
    }

    /// Returns the smallest duration that is at least as long as `percent` percent of all.
    pub(super) fn percentile(&self, percent: usize) -> Option<u64> {
        let place = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(place - 1).copied()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |us: Option<u64>| {
            us.map_or_else(
                || "-".to_owned(),
                |us| format!("{}.{}", us / 1000, us % 1000 / 100),
            )
        };
        let [half, most, all] = [50, 99, 100].map(|percent| ms(self.percentile(percent)));
        write!(f, "{:>8} {half:>10} {most:>10} {all:>10}", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50), None);
        for us in (1..=200).rev() {
            times.add(us);
        }
        times.sort();
        assert_eq!(
            [1, 50, 99, 100].map(|p| times.percentile(p)),
            [2, 100, 198, 200].map(Some)
        );
        assert_eq!(
            Times::default().to_string(),
            "       0          -          -          -"
        );
    }
}
