//! A team whose ranks are threads of the test, each with software HCAs and a simt device of its own.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use softhca::device::{Adversary, DataOrder};
use softhca::{Counters, Hca, HcaConfig};
use test_basics::limits::until;
use warpverbs::team::{Store, Team, TeamConfig, TeamError};

use crate::ranks::{self, DEADLINE, Meeting};

/// How the ranks of a test are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The setting on which the ranks agree.
    pub team: TeamConfig,
    /// The number of HCAs of each rank.
    pub rails: usize,
    /// The configuration of every HCA.
    pub hca: HcaConfig,
    /// A change that each rank makes to its own setting.
    pub change: fn(&mut TeamConfig),
}

impl Setup {
    /// Returns a setup with one HCA of default configuration for each rank, and with deadlines that only a hang reaches.
    pub fn new(ranks: u32) -> Self {
        let team = TeamConfig::new(0, ranks)
            .with_join_timeout(DEADLINE)
            .with_deadline(DEADLINE);
        Self {
            team,
            rails: 1,
            hca: HcaConfig::default(),
            change: |_| {},
        }
    }

    /// Returns a setup with adverse HCAs. They place data in order, as mlx5 does by default, and rows by relaxed ordering as oddly as that
    /// allows.
    ///
    /// All ranks are threads of this process. If a test turns `direct` on, they store into each other's memory and use no HCA at all.
    pub fn adverse(ranks: u32) -> Self {
        let hca = HcaConfig {
            order: DataOrder::InOrder,
            adversary: Some(adversary(1)),
            ..HcaConfig::default()
        };
        Self {
            hca,
            ..Self::new(ranks)
        }
    }

    /// Returns the setting with which a rank joins.
    pub fn of_rank(&self, rank: u32) -> TeamConfig {
        let mut config = self.team.with_rank(rank);
        (self.change)(&mut config);
        config
    }
}

/// Returns an adversary. Under the checker of memory order it repeats no bytes, because the checker would take bytes that come again after
/// their signal for a slot that is used too early. All else is as late and as odd.
pub fn adversary(seed: u64) -> Adversary {
    Adversary {
        repeats: !simt::check::ENABLED,
        ..Adversary::new(seed)
    }
}

/// The HCAs of a test, as `[rank][rail]`.
#[derive(Debug)]
pub struct Hcas(Vec<Vec<Arc<Hca>>>);

impl Hcas {
    /// Makes the HCAs of every rank.
    pub fn new(setup: &Setup) -> Self {
        let of_rank = |_| ranks::hcas(setup.rails, &setup.hca);
        Self((0..setup.team.ranks).map(of_rank).collect())
    }

    /// Returns the HCAs of one rank.
    pub fn of(&self, rank: u32) -> &[Arc<Hca>] {
        &self.0[rank as usize]
    }

    /// Returns the HCAs of all ranks.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Hca>> {
        self.0.iter().flatten()
    }

    /// Checks that the HCAs have no finding, and that no object on them is left.
    #[track_caller]
    pub fn check(&self) {
        ranks::check(self.all());
    }

    /// Waits until the HCAs are at rest: all that was posted has landed, unless its peer is silent.
    ///
    /// They are at rest when ten looks at their counters have found no change, and their engine has gone to sleep before each look. An
    /// engine that gets no core from the machine does not go to sleep, so this waits for it.
    pub fn settle(&self) {
        let counters = || self.all().map(|hca| hca.counters());
        let mut quiet = 0;
        let mut before: Vec<Counters> = counters().collect();
        until("the HCAs come to rest", || {
            let sleeps = engine_sleeps();
            thread::sleep(Duration::from_millis(5));
            until("the engine goes to sleep", || engine_sleeps() > sleeps);
            let now: Vec<Counters> = counters().collect();
            quiet = if now == before { quiet + 1 } else { 0 };
            before.clone_from(&now);
            quiet == 10
        });
    }
}

/// Returns how often the engine of the HCAs of this process has given its core away.
fn engine_sleeps() -> u64 {
    let mut tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |name: &str, task: &fs::DirEntry| {
        fs::read_to_string(task.path().join(name)).unwrap_or_default()
    };
    let engine = tasks.find(|task| read("comm", task).trim() == "softhca");
    let status = read("status", &engine.expect("an engine runs"));
    let switches = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    switches.unwrap().trim().parse().unwrap()
}

/// Runs `body` as every rank of a team, each on a thread of its own. Returns the results by rank.
pub fn run<T: Send>(setup: &Setup, body: impl Fn(&Arc<Team>) -> T + Sync) -> Vec<T> {
    let hcas = Hcas::new(setup);
    let end = Meeting::new(setup.team.ranks);
    let results = on_threads(setup, &hcas, |rank, own, store| {
        let _attendance = end.attend();
        let team = join(setup.of_rank(rank), own, store).unwrap();
        let result = body(&team);
        // No rank may take its windows away while others may still write to them.
        end.wait();
        result
    });
    hcas.check();
    results
}

/// Runs `body` on a thread for each rank, with the rank's HCAs and a store that all ranks share. Returns the results by rank.
pub fn on_threads<T: Send>(
    setup: &Setup,
    hcas: &Hcas,
    body: impl Fn(u32, &[Arc<Hca>], Arc<dyn Store>) -> T + Sync,
) -> Vec<T> {
    ranks::on_threads(setup.team.ranks, |rank, store| {
        body(rank, hcas.of(rank), store)
    })
}

/// Joins the team as `config.rank`, with a rail on each of `hcas`.
pub fn join(
    config: TeamConfig,
    hcas: &[Arc<Hca>],
    store: Arc<dyn Store>,
) -> Result<Arc<Team>, TeamError> {
    ranks::join(config, hcas.iter().map(Arc::as_ref), store)
}
