//! Ranks of a test: threads of this process, each with a software HCA and a simt device of its own.

pub mod small;

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use softhca::device::{Adversary, DataOrder};
use softhca::{Counters, Hca, HcaConfig};
use warpverbs::moe::reference::{self, Batch, Source};
use warpverbs::moe::{Combined, Moe, MoeConfig, Workspace, bf16};
use warpverbs::team::{Store, Team, TeamConfig, TeamError};

use crate::ranks::{self, DEADLINE, Meeting};
use test_basics::limits::until;

/// How the ranks of a test are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What they agree on.
    pub team: TeamConfig,
    /// Schedule of the HCAs' engine; none: as fast as it can.
    pub hca_seed: Option<u64>,
    /// What the HCAs promise about the order of data.
    pub order: DataOrder,
    /// QPs may insist on data in order.
    pub order_force: bool,
    /// Makes use of all that the order leaves open: on by default.
    pub adversary: Option<Adversary>,
}

impl Setup {
    /// HCAs that place data in order, as mlx5 does by default, and rows by relaxed ordering as oddly as that allows.
    ///
    /// All ranks are threads of this process: with `direct`, which a test may turn on, they store into each other's memory and
    /// use no HCA at all.
    pub fn new(ranks: u32) -> Self {
        let team = TeamConfig {
            timeout: DEADLINE,
            deadline: DEADLINE,
            ..TeamConfig::new(0, ranks)
        };
        Self {
            team,
            hca_seed: None,
            order: DataOrder::InOrder,
            order_force: false,
            adversary: Some(adversary(1)),
        }
    }
}

/// An adversary. To the checker of memory order the same bytes once more, behind their signal, are a slot that is used again too
/// early: under it none are repeated, and all else is as late and as odd.
pub fn adversary(seed: u64) -> Adversary {
    Adversary {
        repeats: !simt::check::ENABLED,
        ..Adversary::new(seed)
    }
}

/// The HCAs of a test. Checked at the end: no finding, no live object.
#[derive(Debug)]
pub struct Hcas(pub Vec<Arc<Hca>>);

impl Hcas {
    /// One for each rank.
    pub fn new(setup: &Setup) -> Self {
        let config = HcaConfig {
            schedule_seed: setup.hca_seed,
            order: setup.order,
            order_force: setup.order_force,
            adversary: setup.adversary,
            ..HcaConfig::default()
        };
        Self(ranks::hcas(setup.team.ranks as usize, &config))
    }

    /// No finding, and no object is left.
    pub fn check(&self) {
        ranks::check(&self.0);
    }

    /// Waits until the HCAs are at rest: what was posted has landed, unless its peer is silent.
    ///
    /// They are at rest when ten looks at their counters have been the same, and their engine has gone to sleep before each
    /// look. An engine that the machine gives no core does not go to sleep, and is waited for.
    pub fn settle(&self) {
        let counters = || self.0.iter().map(|hca| hca.counters());
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

/// How often the engine of the HCAs of this process has given its core away.
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

/// Runs `body` as every rank of a team, each on a thread of its own; the results by rank.
pub fn run<T: Send>(setup: &Setup, body: impl Fn(&Arc<Team>) -> T + Sync) -> Vec<T> {
    let hcas = Hcas::new(setup);
    let end = Meeting::new(setup.team.ranks);
    let results = on_threads(setup, &hcas, |rank, hca, store| {
        let _attendance = end.attend();
        let team = join(TeamConfig { rank, ..setup.team }, hca, store).unwrap();
        let result = body(&team);
        // Nobody takes its windows away while others may still write to them.
        end.wait();
        result
    });
    hcas.check();
    results
}

/// Runs `body` on a thread for each rank, with a store that all share.
pub fn on_threads<T: Send>(
    setup: &Setup,
    hcas: &Hcas,
    body: impl Fn(u32, &Hca, Arc<dyn Store>) -> T + Sync,
) -> Vec<T> {
    ranks::on_threads(setup.team.ranks, |rank, store| {
        body(rank, &hcas.0[rank as usize], store)
    })
}

/// Joins as `config.rank` on `hca`.
pub fn join(config: TeamConfig, hca: &Hca, store: Arc<dyn Store>) -> Result<Arc<Team>, TeamError> {
    ranks::join(config, [hca], store)
}

/// What the experts of the tests make of a token: depends on expert and token.
pub fn expert(id: u32, x: &[u16], y: &mut [u16]) {
    let scale = 0.5 + id as f32 / 64.0;
    for (y, &x) in y.iter_mut().zip(x) {
        *y = bf16::from_f32(bf16::to_f32(x) * scale + 0.25);
    }
}

/// How tokens choose in a generated batch.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Of 100 choices so many are -1.
    pub percent_none: u32,
    /// Of 100 batches so many have no token.
    pub percent_empty: u32,
}

/// Some missing choices, some ranks without a token.
pub const MIXED: Traffic = Traffic {
    percent_none: 20,
    percent_empty: 15,
};

/// The same batch for all who ask with the same numbers. Tokens differ in every element.
pub fn batch(config: &MoeConfig, traffic: Traffic, seed: u64, call: u32, rank: u32) -> Batch {
    let mut random = fastrand::Rng::with_seed(seed ^ u64::from(call) << 40 ^ u64::from(rank) << 20);
    let tokens = match random.u32(..100) < traffic.percent_empty {
        true => 0,
        false => random.u32(1..=config.max_tokens),
    };
    let mut batch = Batch::default();
    for _ in 0..tokens {
        let x = (0..config.hidden).map(|_| bf16::from_f32(random.f32() * 8.0 - 4.0));
        batch.x.extend(x);
        let mut ids: Vec<i32> = (0..i32::try_from(config.experts).unwrap()).collect();
        random.shuffle(&mut ids);
        for &id in &ids[..config.top_k as usize] {
            let none = random.u32(..100) < traffic.percent_none;
            batch.experts.push(if none { -1 } else { id });
            batch.weights.push(random.f32());
        }
    }
    batch
}

/// The batches of all ranks in one call.
pub fn batches(moe: &Moe, traffic: Traffic, seed: u64, call: u32) -> Vec<Batch> {
    let one = |rank| batch(moe.config(), traffic, seed, call, rank);
    (0..moe.team().ranks()).map(one).collect()
}

/// M1: the rows of each expert are those of the reference, in its order, with every element.
pub fn check_dispatch(
    moe: &Moe,
    batches: &[Batch],
    work: &Workspace,
    got: &[Vec<Source>],
    what: &str,
) {
    let config = moe.config();
    let want = reference::dispatch(config, work.placement(), batches, moe.team().rank());
    assert_eq!(got, want, "{what}: sources");
    for (local, sources) in want.iter().enumerate() {
        for (row, source) in sources.iter().enumerate() {
            let x = work.received(local, row).unwrap();
            let sent = batches[source.rank as usize].token(config, source.token as usize);
            assert_eq!(x, sent, "{what}: expert {local} row {row} from {source:?}");
        }
    }
}

/// M2: combine equals the reference bit for bit, and every token is valid.
pub fn check_combine(moe: &Moe, batch: &Batch, got: &Combined, what: &str) {
    let rank = moe.team().rank();
    let want = reference::combine(moe.config(), &moe.placement(), rank, batch, expert);
    assert_eq!(got.out, want, "{what}");
    assert!(
        got.token_valid.iter().all(|valid| *valid),
        "{what}: {:?}",
        got.token_valid
    );
}

/// BF16 of a NaN.
const POISON: u16 = 0x7fed;

/// One call of one rank in a test: its workspace, its inputs and what they are, phase by phase. Every phase is checked.
pub struct Call {
    moe: Arc<Moe>,
    work: Workspace,
    batches: Vec<Batch>,
    what: String,
}

impl Call {
    /// With a workspace of its own.
    pub fn new(moe: &Arc<Moe>) -> Self {
        Self {
            moe: Arc::clone(moe),
            work: Workspace::new(moe).unwrap(),
            batches: Vec::new(),
            what: String::new(),
        }
    }

    /// Draws the batches of all ranks and sends this rank's.
    pub fn send(&mut self, traffic: Traffic, seed: u64, call: u32) {
        let rank = self.moe.team().rank();
        self.what = format!("seed {seed}, call {call}, rank {rank}");
        self.batches = batches(&self.moe, traffic, seed, call);
        self.moe.set_schedule_seed(seed ^ u64::from(call));
        self.work.send(&self.batches[rank as usize]).unwrap();
        self.complete();
    }

    /// Receives: the right rows, and nothing written besides.
    pub fn receive(&mut self) {
        self.poison();
        let sources = self.work.receive().unwrap();
        self.complete();
        check_dispatch(&self.moe, &self.batches, &self.work, &sources, &self.what);
        let room = (self.moe.team().ranks() * self.moe.config().max_tokens) as usize;
        for (local, rows) in sources.iter().enumerate() {
            for row in rows.len()..room {
                let x = self.work.received(local, row).unwrap();
                assert!(
                    x.iter().all(|x| *x == POISON),
                    "{}: expert {local} row {row} was touched",
                    self.what
                );
            }
        }
    }

    /// Fills the output of dispatch with a number that no token has, so that what is touched shows.
    fn poison(&self) {
        let config = self.moe.config();
        let rows =
            self.moe.local_experts().len() * (self.moe.team().ranks() * config.max_tokens) as usize;
        let poison = vec![POISON; rows * config.hidden as usize];
        if !poison.is_empty() {
            let [recv_x, ..] = self.work.expert_buffers();
            self.moe
                .team()
                .gpu()
                .write(recv_x, bytemuck::cast_slice(&poison))
                .unwrap();
        }
    }

    /// Runs the experts and sends back.
    pub fn send_back(&mut self) {
        self.work.experts(expert).unwrap();
        self.work.send_back().unwrap();
        self.complete();
    }

    /// Receives what the experts made, and compares.
    pub fn receive_back(&mut self) {
        let combined = self.work.receive_back().unwrap();
        self.complete();
        let own = &self.batches[self.moe.team().rank() as usize];
        check_combine(&self.moe, own, &combined, &self.what);
    }

    fn complete(&self) {
        let report = self.work.call().report().unwrap();
        assert!(report.is_complete(), "{}: {report}", self.what);
    }
}
