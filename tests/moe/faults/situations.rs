//! The kernels in the situations of the model: every order of phases, ranks at any speed, refused calls, seeded schedules.
//!
//! The orders are those of `crates/models/tests/moe`. The demands of the model are checked on what the kernels left behind. An
//! accepted call was sent, and its rows are whole (C1, E1). A call that ended as not sent was not sent (K1). `token_valid` and
//! the sums are what was really processed (M3). Words at rest say what was sent and name what was not. With all ranks active all
//! of it is complete (DL, P4). Planted kernels must be caught.

// UNSAFETY: launches a kernel of the tests on buffers of the test.
#![expect(unsafe_code, reason = "launch of test kernels")]

mod checked;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use models::moe::signals::pattern::{DISPATCH, Pattern, Phase};
use softhca::Hca;
use test_support::limits::HANG;
use warpverbs::abi::DevicePtr;
use warpverbs::gpu::{DeviceMemory, Launch};
use warpverbs::internal::moe_abi::DispatchSendParams;
use warpverbs::moe::{Batch, CallReport, Combined, Moe, MoeConfig, Source, Workspace};

use test_support::moe::{Hcas, Setup, Traffic, batch, expert, join, on_threads};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(32)
    .with_experts(6)
    .with_top_k(2)
    .with_max_tokens(8);

/// Every token has all its choices.
const TRAFFIC: Traffic = Traffic {
    percent_none: 0,
    percent_empty: 20,
};

const CALLS: u8 = 6;
/// No active rank is late.
const GENEROUS: Duration = Duration::from_secs(60);
/// Late ranks are late often.
const SHORT: Duration = Duration::from_millis(30);

/// What happens in a run.
#[derive(Clone, Copy, Debug)]
struct Situation {
    pattern: Pattern,
    ranks: u32,
    seed: u64,
    deadline: Duration,
    /// Of 100 phases, before so many rank 0 rests for up to three deadlines.
    percent_rests: u32,
    /// It is its HCA that rests then, while the rank goes on.
    pauses: bool,
    /// After so many phases the last rank does nothing any more.
    stops: Option<usize>,
    /// Of 100 dispatches so many are refused.
    percent_refused: u32,
    /// Sends dispatches.
    kernel: Option<&'static str>,
}

impl Situation {
    fn healthy(pattern: Pattern, seed: u64) -> Self {
        Self {
            pattern,
            ranks: 2 + u32::from(seed % 3 == 2),
            seed,
            deadline: GENEROUS,
            percent_rests: 0,
            pauses: false,
            stops: None,
            percent_refused: 0,
            kernel: None,
        }
    }

    fn with_a_slow_rank(pattern: Pattern, seed: u64) -> Self {
        Self {
            deadline: SHORT,
            percent_rests: 30,
            percent_refused: 10,
            ..Self::healthy(pattern, seed)
        }
    }
}

/// Rows of one expert: where each is from, and what it is.
type Received = Vec<(Source, Vec<u16>)>;

/// One call at one rank.
struct Record {
    batch: Batch,
    report: CallReport,
    /// By local expert: where a row is from, and what it is.
    rows: Option<Vec<Received>>,
    back: Option<Combined>,
}

/// What a run left behind.
struct Outcomes {
    moes: Vec<Arc<Moe>>,
    hcas: Hcas,
    /// By rank and call.
    records: Vec<Vec<Record>>,
}

fn run(situation: Situation) -> Outcomes {
    let mut setup = Setup::adverse(situation.ranks);
    setup.team.deadline = situation.deadline;
    setup.hca.schedule_seed = Some(situation.seed);
    let hcas = Hcas::new(&setup);
    let moes = on_threads(&setup, &hcas, |rank, own, store| {
        let team = join(setup.team.with_rank(rank), own, store).unwrap();
        Moe::new(&team, "layer", SHAPE).unwrap()
    });
    let records = thread::scope(|scope| {
        let threads: Vec<_> = moes
            .iter()
            .zip(hcas.all())
            .map(|(moe, hca)| scope.spawn(move || Driver::new(moe, hca, situation).run()))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    });
    Outcomes {
        moes,
        hcas,
        records,
    }
}

/// One rank that goes through the phases.
struct Driver<'a> {
    moe: &'a Arc<Moe>,
    hca: &'a Hca,
    situation: Situation,
    random: fastrand::Rng,
    /// By set: two calls may be open.
    works: [Workspace; 2],
    records: Vec<Record>,
}

impl<'a> Driver<'a> {
    fn new(moe: &'a Arc<Moe>, hca: &'a Hca, situation: Situation) -> Self {
        let rank = u64::from(moe.team().rank());
        let work = || Workspace::new(moe).unwrap();
        Self {
            moe,
            hca,
            situation,
            random: fastrand::Rng::with_seed(situation.seed * 64 + rank),
            works: [work(), work()],
            records: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<Record> {
        let (team, phases) = (self.moe.team(), self.situation.pattern.phases(CALLS));
        let last = team.rank() + 1 == team.ranks();
        let stops = self.situation.stops.filter(|_| last);
        for phase in phases.into_iter().take(stops.unwrap_or(usize::MAX)) {
            self.rest();
            self.moe.set_schedule_seed(self.random.u64(..));
            self.phase(phase);
        }
        // What a rank that stopped would have sent, and a call that it never began.
        for call in self.records.len() + 1..=usize::from(CALLS) {
            let call = u32::try_from(call).unwrap();
            let rank = self.moe.team().rank();
            self.records.push(Record {
                batch: batch(&SHAPE, TRAFFIC, self.situation.seed, call, rank),
                report: self.moe.call().unwrap().report().unwrap(),
                rows: None,
                back: None,
            });
        }
        self.records
    }

    fn rest(&mut self) {
        let rests = self.random.u32(..100) < self.situation.percent_rests;
        if !rests || self.moe.team().rank() != 0 {
            return;
        }
        let time = self.situation.deadline * 3 * self.random.u32(..100) / 100;
        if self.situation.pauses {
            self.hca.pause(time)
        } else {
            thread::sleep(time)
        }
    }

    fn phase(&mut self, phase: Phase) {
        let place = usize::from(phase.call) - 1;
        let set = usize::from(phase.call % 2);
        match (phase.kind, phase.sends) {
            (DISPATCH, true) => self.send(phase.call),
            (DISPATCH, false) => {
                let sources = self.works[set].receive().unwrap();
                let row = |local, row| self.works[set].received(local, row).unwrap();
                let with_rows = |(local, sources): (usize, Vec<Source>)| {
                    let rows = sources.into_iter().enumerate();
                    rows.map(|(at, source)| (source, row(local, at))).collect()
                };
                let rows = sources.into_iter().enumerate().map(with_rows).collect();
                self.records[place].rows = Some(rows);
                self.works[set].experts(expert).unwrap();
            }
            (_, true) => self.works[set].send_back().unwrap(),
            (_, false) => self.records[place].back = Some(self.works[set].receive_back().unwrap()),
        }
        self.records[place].report = self.works[set].call().report().unwrap();
    }

    fn send(&mut self, call: u8) {
        let rank = self.moe.team().rank();
        let batch = batch(&SHAPE, TRAFFIC, self.situation.seed, u32::from(call), rank);
        let mut sent = batch.clone();
        let refused = self.random.u32(..100) < self.situation.percent_refused;
        if refused && let Some(first) = sent.experts.first_mut() {
            *first = i32::try_from(SHAPE.experts).unwrap();
        }
        let work = &mut self.works[usize::from(call % 2)];
        match self.situation.kernel {
            None => work.send_unchecked(&sent).unwrap(),
            Some(kernel) => launch(self.moe, work, &sent, kernel, self.situation.seed),
        }
        let report = work.call().report().unwrap();
        self.records.push(Record {
            batch,
            report,
            rows: None,
            back: None,
        });
    }
}

/// A send phase of dispatch through a kernel of the tests.
fn launch(moe: &Arc<Moe>, work: &Workspace, batch: &Batch, kernel: &str, seed: u64) {
    let gpu = Arc::clone(moe.team().gpu());
    let arrays: [&[u8]; 3] = [
        bytemuck::cast_slice(&batch.x),
        bytemuck::cast_slice(&batch.experts),
        bytemuck::cast_slice(&batch.weights),
    ];
    let buffer = |bytes: &[u8]| {
        let memory = gpu.alloc(bytes.len().max(16), 128).unwrap();
        gpu.write(memory.addr(), bytes).unwrap();
        memory
    };
    let buffers: Vec<DeviceMemory> = arrays.into_iter().map(buffer).collect();
    let params = DispatchSendParams {
        moe: DevicePtr::new(moe.context_addr()),
        handle: DevicePtr::new(work.call().addr()),
        x: DevicePtr::new(buffers[0].addr()),
        experts: DevicePtr::new(buffers[1].addr()),
        weights: DevicePtr::new(buffers[2].addr()),
        tokens: u32::try_from(batch.tokens(&SHAPE)).unwrap(),
        ..DispatchSendParams::default()
    };
    let grid = moe.grid();
    let launch = Launch::new(kernel, grid.blocks, grid.threads)
        .with_cooperative(true)
        .with_seed(seed);
    // SAFETY: the buffers have the sizes that the parameters say, and stay until the kernel has ended, in the next line.
    let event = unsafe { gpu.launch(&launch, bytemuck::bytes_of(&params)) }.unwrap();
    gpu.wait(&event, HANG).unwrap();
}

/// Runs the situation; everything that the model demands must hold.
fn verify(situation: Situation) -> bool {
    let outcomes = run(situation);
    let faults = outcomes.faults();
    assert!(faults.is_empty(), "{situation:?}:\n{}", faults.join("\n"));
    let complete = outcomes.complete();
    outcomes.end();
    complete
}

/// More of them with `WV_TEST_FULL=1`.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let full = std::env::var_os("WV_TEST_FULL").is_some();
    0..if full { few * 20 } else { few }
}

#[test]
fn every_order_is_complete_where_everybody_is_there() {
    for pattern in Pattern::ALL {
        for seed in seeds(3) {
            let situation = Situation::healthy(pattern, seed);
            let name = pattern.name();
            assert!(verify(situation), "{name} is not complete: {situation:?}");
        }
    }
}

#[test]
fn every_order_keeps_the_models_promises_with_a_slow_rank_and_refusals() {
    let mut incomplete = 0;
    let mut runs = 0;
    for pattern in Pattern::ALL {
        for seed in seeds(4) {
            runs += 1;
            incomplete += u32::from(!verify(Situation::with_a_slow_rank(pattern, seed)));
        }
    }
    println!("{incomplete} of {runs} runs lost something, none of them wrongly");
    assert!(incomplete > 0, "no rank was ever late: nothing was tested");
}

#[test]
fn every_order_keeps_the_models_promises_across_a_pause_of_an_hca() {
    let mut incomplete = 0;
    for pattern in Pattern::ALL {
        for seed in seeds(3) {
            let situation = Situation {
                pauses: true,
                ..Situation::with_a_slow_rank(pattern, seed)
            };
            incomplete += u32::from(!verify(situation));
        }
    }
    assert!(incomplete > 0, "no HCA ever paused for too long");
}

#[test]
fn every_order_goes_on_without_a_rank_that_stops_at_any_point() {
    for pattern in Pattern::ALL {
        let phases = pattern.phases(CALLS).len();
        for seed in seeds(3) {
            let mut random = fastrand::Rng::with_seed(seed << 8 | phases as u64);
            let situation = Situation {
                ranks: 3,
                stops: Some(random.usize(..phases)),
                percent_rests: 0,
                ..Situation::with_a_slow_rank(pattern, seed)
            };
            assert!(!verify(situation), "it has stopped: {situation:?}");
        }
    }
}

#[test]
fn credits_that_are_not_sent_leave_ranks_waiting_for_each_other() {
    let situation = Situation {
        deadline: Duration::from_secs(2),
        ranks: 2,
        kernel: Some("wv_test_moe_dispatch_send_silent"),
        ..Situation::healthy(Pattern::Split, 1)
    };
    let outcomes = run(situation);
    let complete = outcomes.complete();
    outcomes.end();
    assert!(!complete, "a dispatch without control words went unnoticed");
    let situation = Situation {
        deadline: GENEROUS,
        kernel: Some("wv_moe_dispatch_send"),
        ..situation
    };
    assert!(
        verify(situation),
        "the kernel proper, launched in the same way"
    );
}

/// Returns whether a slow rank shows that `kernel` breaks a property, at some seed. At which seed depends on which rank is late when.
fn is_caught(kernel: &'static str, property: &str) -> bool {
    let mut found = seeds(60).filter(|&seed| {
        let situation = Situation {
            kernel: Some(kernel),
            percent_refused: 0,
            percent_rests: 60,
            ranks: 2,
            ..Situation::with_a_slow_rank(Pattern::DispatchOnly, seed)
        };
        let outcomes = run(situation);
        let faults = outcomes.faults();
        outcomes.end();
        let kinds: Vec<&str> = faults
            .iter()
            .map(|fault| &fault[..fault.len().min(60)])
            .collect();
        println!("{kernel}, seed {seed}: {kinds:?}");
        faults.iter().any(|fault| fault.starts_with(property))
    });
    found.next().is_some()
}

#[test]
fn a_dispatch_without_credits_breaks_k1() {
    // The word of the next call of the set arrives before the receiver has looked at the one before.
    assert!(is_caught("wv_test_moe_dispatch_send_no_credit", "K1"));
}

#[test]
fn a_skip_in_the_data_word_breaks_k1() {
    assert!(is_caught("wv_test_moe_dispatch_send_skip_overwrites", "K1"));
}
