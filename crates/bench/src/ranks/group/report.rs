//! The results of `wv bench group`, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// The results for several numbers of ranks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GroupReport {
    /// What the ranks were, and which store they had.
    pub(crate) ran_on: &'static str,
    /// How a rank dies, in words.
    pub(crate) deaths_are: &'static str,
    /// The number of cores that this process may use.
    pub(crate) cores: usize,
    /// Time to live of a lease, ms.
    pub(crate) lease_ms: f64,
    /// The rows, one for each number of ranks.
    pub(crate) rows: Vec<GroupRow>,
    /// The results with a newcomer that dies again and again. Only the memory store has them.
    pub(crate) crash_loop: Option<CrashLoop>,
}

/// The results for one number of ranks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GroupRow {
    /// Number of ranks.
    pub(crate) ranks: u32,
    /// Time from the start of the first rank until all serve, ms.
    pub(crate) bring_up_ms: f64,
    /// Time of one thread for a look at all keys, every one of which has changed since the last look, and for what follows from the look,
    /// ms.
    pub(crate) look_ms: Spread,
    /// What ranks ask while nothing happens.
    pub(crate) peace: Peace,
    /// What a death and a join together take.
    pub(crate) change: Change,
    /// Time from the kill until all others serve without the dead rank, ms.
    pub(crate) death_ms: Spread,
    /// Time from the start of the rank's next generation until all serve with it, ms.
    pub(crate) join_ms: Spread,
    /// The number of ranks that were expelled though nothing was done to them.
    pub(crate) expelled: usize,
    /// Memory that the process has taken for each rank once all serve: simulated QPs, stacks and what the rank keeps, KiB.
    pub(crate) kib_per_rank: u64,
    /// As `kib_per_rank`, after the allocator has given free memory back.
    pub(crate) kib_in_use: u64,
}

/// What ranks ask while nothing happens.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Peace {
    /// Seconds for which the group was watched.
    pub(crate) seconds: f64,
    /// Calls of the store by each rank in a second, renewals left out.
    pub(crate) calls_per_second: f64,
    /// Renewals of leases by each rank in a second.
    pub(crate) renewals_per_second: f64,
    /// Time that the servers of the store ran, in percent of one core.
    pub(crate) server_core_percent: Option<f64>,
}

/// What a death and a join together take.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    /// Calls of the store for the change, divided by the number of ranks: calls of all ranks, the acting one and the newcomer included.
    /// Renewals and the calls of peace do not count.
    pub(crate) calls_per_rank: f64,
    /// Bytes of keys and values that the store answered with, divided by the number of ranks.
    pub(crate) bytes_per_rank: f64,
    /// All calls by their kind, divided by the number of ranks. Calls that are made in peace are included.
    pub(crate) by_kind: BTreeMap<&'static str, f64>,
}

/// How several times spread, ms.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    /// The number of times.
    pub(crate) count: usize,
    /// Half of them took at most this.
    pub(crate) p50: f64,
    /// 99 of 100 took at most this.
    pub(crate) p99: f64,
    /// The longest of them.
    pub(crate) max: f64,
}

impl Spread {
    pub(super) fn of(times: &[Duration]) -> Self {
        let mut times = times.to_vec();
        times.sort_unstable();
        let at = |part: usize| {
            let rank = (times.len() * part).div_ceil(100);
            ms(times
                .get(rank.saturating_sub(1))
                .copied()
                .unwrap_or_default())
        };
        Self {
            count: times.len(),
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

/// How a newcomer that dies again and again disturbs ranks that make calls.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CrashLoop {
    /// The number of ranks beside the newcomer.
    pub(crate) ranks: u32,
    /// How often the newcomer has died.
    pub(crate) deaths: u32,
    /// Calls in a second, in percent of those in peace.
    pub(crate) calls_percent: f64,
    /// How often the calls of a rank were held for a change, at the rank that was held most often.
    pub(crate) standstills: u64,
    /// The most times that calls may be held, by how long the deaths took.
    pub(crate) most_standstills: u64,
    /// Longest time between two calls of a rank, ms.
    pub(crate) longest_gap_ms: f64,
    /// Longest time between two calls of a rank in peace, ms.
    pub(crate) longest_gap_in_peace_ms: f64,
    /// The number of ranks that were expelled though nothing was done to them.
    pub(crate) expelled: usize,
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for GroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ran_on, cores, .. } = self;
        writeln!(
            f,
            "a group of ranks and its store ({ran_on}, {cores} cores)"
        )?;
        writeln!(
            f,
            "deaths: {}; times in ms, p50 / p99 / max",
            self.deaths_are
        )?;
        writeln!(
            f,
            "ranks  calls/s  renewals/s  server core  calls  bytes  bring-up  {:20}  {:24}  {:24}  expelled  KiB/rank  trimmed",
            "look", "death", "join"
        )?;
        for row in &self.rows {
            let core = row.peace.server_core_percent;
            writeln!(
                f,
                "{:5}  {:7.2}  {:10.2}  {:>11}  {:5.1}  {:5.0}  {:8.0}  {:20}  {:24}  {:24}  {:8}  {:8}  {:7}",
                row.ranks,
                row.peace.calls_per_second,
                row.peace.renewals_per_second,
                core.map_or_else(|| "-".to_owned(), |core| format!("{core:.0}%")),
                row.change.calls_per_rank,
                row.change.bytes_per_rank,
                row.bring_up_ms,
                row.look_ms.to_string(),
                row.death_ms.to_string(),
                row.join_ms.to_string(),
                row.expelled,
                row.kib_per_rank,
                row.kib_in_use
            )?;
        }
        writeln!(
            f,
            "calls/s and renewals/s: of each rank in peace; calls and bytes: of a death and a join together, by the number of ranks"
        )?;
        if let Some(newcomer) = &self.crash_loop {
            writeln!(
                f,
                "a newcomer that died {} times beside {} ranks: {:.1}% of their calls in peace, held {} times (at most {}), longest gap {:.0} ms (in peace {:.0} ms), {} expelled",
                newcomer.deaths,
                newcomer.ranks,
                newcomer.calls_percent,
                newcomer.standstills,
                newcomer.most_standstills,
                newcomer.longest_gap_ms,
                newcomer.longest_gap_in_peace_ms,
                newcomer.expelled
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p99, max, .. } = self;
        let text = format!("{p50:.1} / {p99:.1} / {max:.1}");
        f.pad(&text)
    }
}
