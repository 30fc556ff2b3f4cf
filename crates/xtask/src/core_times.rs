//! How busy the cores of this machine were during a part: a part that took long on idle cores waited, and one whose cores a hypervisor
//! gave to others was starved.

use std::fs;

/// The places of idle, iowait and steal in the line `cpu` (manual page proc_stat(5)). Guest times stand in user time too.
const IDLE: [usize; 2] = [3, 4];
const STEAL: usize = 7;
const FIELDS: usize = 8;

/// The times of all cores since the machine started, in ticks.
pub(crate) struct CoreTimes([u64; FIELDS]);

impl CoreTimes {
    /// Returns the times of now, or none where the system does not tell them.
    pub(crate) fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn read(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(FIELDS)
            .map(|ticks| ticks.parse().ok())
            .collect::<Option<_>>()?;
        ticks.try_into().ok().map(Self)
    }

    /// Returns what the cores did from `earlier` until now, for the line of a part.
    pub(crate) fn since(&self, earlier: &Self) -> Option<String> {
        let spent = |i: usize| self.0[i].saturating_sub(earlier.0[i]);
        let all: u64 = (0..FIELDS).map(spent).sum();
        let idle: u64 = IDLE.into_iter().map(spent).sum();
        let percent = |ticks: u64| Some((ticks * 100).checked_div(all)?.to_string());
        let busy = percent(all - idle - spent(STEAL))?;
        let stolen = percent(spent(STEAL))?;
        Some(format!("cores {busy}% busy, {stolen}% stolen"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_idle_and_stolen_ticks_are_told_apart() {
        let at = |line: &str| CoreTimes::read(line).unwrap();
        let start = at("cpu  100 10 20 300 5 1 2 40 0 0\ncpu0 1 2 3");
        let end = at("cpu  130 10 30 330 15 1 2 60 7 7\n");
        let told = end.since(&start);
        assert_eq!(told.as_deref(), Some("cores 40% busy, 20% stolen"));
        assert_eq!(start.since(&start), None, "no tick has passed");
    }

    #[test]
    fn text_that_is_no_line_of_times_has_none() {
        for text in ["", "cpu", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x", "intr 1"] {
            assert!(CoreTimes::read(text).is_none(), "{text}");
        }
        assert!(CoreTimes::now().is_some(), "this system tells them");
    }
}
