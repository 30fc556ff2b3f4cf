//! The results, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// The rows of several numbers of ranks.
#[derive(Clone, Debug, Serialize)]
pub struct GroupReport {
    /// What ranks were, and their store.
    pub ran_on: &'static str,
    /// How one of them dies, in words.
    pub deaths_are: &'static str,
    /// Cores that this process may use.
    pub cores: usize,
    /// Time to live of a lease, ms.
    pub lease_ms: f64,
    /// One for each number of ranks.
    pub rows: Vec<GroupRow>,
    /// With the memory store.
    pub crash_loop: Option<CrashLoop>,
}

/// One number of ranks.
#[derive(Clone, Debug, Serialize)]
pub struct GroupRow {
    /// Number of ranks.
    pub ranks: u32,
    /// From the start of the first until all serve, ms.
    pub bring_up_ms: f64,
    /// A look at all keys, every row being another than before, on one thread, and what follows from it, ms.
    pub look_ms: Spread,
    /// While nothing happens.
    pub peace: Peace,
    /// A death and a join together.
    pub change: Change,
    /// From the kill until all others serve without the dead rank, ms.
    pub death_ms: Spread,
    /// From the start of its next generation until all serve with it, ms.
    pub join_ms: Spread,
    /// Ranks that were expelled though nothing was done to them.
    pub expelled: usize,
    /// Memory that the process has taken for each rank once all serve: its simulated QPs, its stacks and what it keeps, KiB.
    pub kib_per_rank: u64,
    /// As `kib_per_rank`, when the allocator has given back what is free.
    pub kib_in_use: u64,
}

/// What ranks ask while nothing happens.
#[derive(Clone, Debug, Serialize)]
pub struct Peace {
    /// For so long.
    pub seconds: f64,
    /// Calls of the store besides renewals, of each rank.
    pub calls_per_second: f64,
    /// Renewals of each rank.
    pub renewals_per_second: f64,
    /// Part of one core that the servers of the store take.
    pub server_core_percent: Option<f64>,
}

/// What a death and a join together take.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Calls of the store by the number of ranks: those of all ranks, of the acting one and of the newcomer. Renewals and the
    /// calls of peace do not count.
    pub calls_per_rank: f64,
    /// Bytes of keys and values that the store answered with, by the number of ranks.
    pub bytes_per_rank: f64,
    /// All calls by the number of ranks, those that are made in peace among them.
    pub by_kind: BTreeMap<&'static str, f64>,
}

/// How times spread, ms.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// So many.
    pub count: usize,
    /// Half of them took at most this.
    pub p50: f64,
    /// 99 of 100 took at most this.
    pub p99: f64,
    /// The longest.
    pub max: f64,
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

/// What ranks that make calls have of a newcomer that dies again and again.
#[derive(Clone, Debug, Serialize)]
pub struct CrashLoop {
    /// Ranks beside the newcomer.
    pub ranks: u32,
    /// How often it has died.
    pub deaths: u32,
    /// Calls in a second, of those in peace.
    pub calls_percent: f64,
    /// Times that the calls of a rank were held for a change, of the rank that was held most often.
    pub standstills: u64,
    /// Most that may be, by the time that the deaths took.
    pub most_standstills: u64,
    /// Longest time between two calls of a rank, ms.
    pub longest_gap_ms: f64,
    /// As `longest_gap_ms`, in peace.
    pub longest_gap_in_peace_ms: f64,
    /// Ranks that were expelled though nothing was done to them.
    pub expelled: usize,
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
