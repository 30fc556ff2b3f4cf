//! One rank with a window of words, and kernels that put from it.

// UNSAFETY: launches test kernels on memory of the team.
#![expect(unsafe_code, reason = "launches of test kernels")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytemuck::{Pod, bytes_of, cast_slice};
use softhca::Hca;
use test_support::abi::kernels::{GuardPutParams, GuardSeen, WaitParams};
use test_support::abi::team::NoPollParams;
use warpverbs::abi::{DevicePtr, QpContext, Status, TeamContext, Window};
use warpverbs::gpu::{DeviceMemory, Event, Gpu, HostMapped, Launch};
use warpverbs::team::{Store, Team, TeamConfig, TeamError};

use test_support::device::read;
use test_support::fleet::{Hcas, Setup, join};
use test_support::ranks::{self, DEADLINE, Meeting};

/// How long a test waits for a kernel, and what a kernel waits that is not to end by its deadline.
pub(crate) const PATIENCE: Duration = DEADLINE.saturating_mul(3);
/// Words of a window: the first half is put, the second half is where peers put theirs.
pub(crate) const WORDS: u32 = 1 << 15;

/// Two QPs to each peer, with short rings.
pub(crate) fn setup(ranks: u32) -> Setup {
    let mut setup = Setup::new(ranks);
    setup.team.qps_per_peer = 2;
    setup.team.log_depth = 8;
    setup
}

/// The meeting of a rank that has no other to wait for.
pub(crate) static ALONE: Meeting = Meeting::new(1);

/// One rank in a test.
pub(crate) struct Rank<'a> {
    pub(crate) team: Arc<Team>,
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) window: Window,
    pub(crate) hcas: &'a [Arc<Hca>],
    barrier: &'a Meeting,
}

/// Runs `body` as every rank of a team; the results by rank.
pub(crate) fn run<T: Send>(setup: &Setup, body: impl Fn(&Rank<'_>) -> T + Sync) -> Vec<T> {
    let hcas = Hcas::new(setup);
    let results = run_on(setup, &hcas, body);
    hcas.check();
    results
}

/// As `run`, on existing HCAs.
pub(crate) fn run_on<T: Send>(
    setup: &Setup,
    hcas: &Hcas,
    body: impl Fn(&Rank<'_>) -> T + Sync,
) -> Vec<T> {
    let barrier = Meeting::new(setup.team.ranks);
    ranks::on_threads(setup.team.ranks, |number, store| {
        let _attendance = barrier.attend();
        let rank = Rank::join(setup.of_rank(number), hcas.of(number), store, &barrier).unwrap();
        let result = body(&rank);
        // No rank takes its window away while others may still write to it.
        rank.sync();
        result
    })
}

/// Joins with the HCAs of each rank that `choose` takes, in vain; the error of each rank.
pub(crate) fn join_errors(
    setup: &Setup,
    hcas: &Hcas,
    choose: impl Fn(u32, &[Arc<Hca>]) -> &[Arc<Hca>] + Sync,
) -> Vec<String> {
    ranks::on_threads(setup.team.ranks, |number, store| {
        let joined = join(
            setup.of_rank(number),
            choose(number, hcas.of(number)),
            store,
        );
        joined.map(|team| team.rank()).unwrap_err().to_string()
    })
}

impl<'a> Rank<'a> {
    fn join(
        config: TeamConfig,
        hcas: &'a [Arc<Hca>],
        store: Arc<dyn Store>,
        barrier: &'a Meeting,
    ) -> Result<Self, TeamError> {
        Self::of(join(config, hcas, store)?, hcas, barrier)
    }

    /// A rank that has joined.
    pub(crate) fn of(
        team: Arc<Team>,
        hcas: &'a [Arc<Hca>],
        barrier: &'a Meeting,
    ) -> Result<Self, TeamError> {
        let window = team.window(u64::from(WORDS) * 8)?;
        Self::with_window(team, window, hcas, barrier)
    }

    /// In a team that has been joined, with its first window of [`WORDS`] words.
    pub(crate) fn with_window(
        team: Arc<Team>,
        window: Window,
        hcas: &'a [Arc<Hca>],
        barrier: &'a Meeting,
    ) -> Result<Self, TeamError> {
        let number = team.rank();
        let rank = Self {
            gpu: Arc::clone(team.gpu()),
            team,
            window,
            hcas,
            barrier,
        };
        let words: Vec<u64> = (0..WORDS / 2).map(|k| word(number, k)).collect();
        rank.gpu.write(window.base, cast_slice(&words))?;
        rank.sync();
        Ok(rank)
    }

    /// A rank that the test drives from one thread, with one window.
    pub(crate) fn alone(
        config: TeamConfig,
        hcas: &'a [Arc<Hca>],
        store: Arc<dyn Store>,
    ) -> Result<Self, TeamError> {
        Self::join(config, hcas, store, &ALONE)
    }

    pub(crate) fn number(&self) -> u32 {
        self.team.rank()
    }

    /// Waits for all ranks of the test.
    pub(crate) fn sync(&self) {
        self.barrier.wait();
    }

    pub(crate) fn read<T: Pod>(&self, addr: u64, count: usize) -> Vec<T> {
        read(self.gpu.as_ref(), addr, count)
    }

    /// Returns what kernels know of the team.
    pub(crate) fn tables(&self) -> TeamContext {
        self.read(self.team.context_addr(), 1)[0]
    }

    /// Where the context of QP `i` to `peer` is.
    pub(crate) fn qp_addr(&self, peer: u32, i: u32) -> u64 {
        let tables = self.tables();
        let place = u64::from(peer * tables.qps_per_peer + i);
        self.read(tables.qps.addr() + 8 * place, 1)[0]
    }

    pub(crate) fn qp(&self, peer: u32, i: u32) -> QpContext {
        self.read(self.qp_addr(peer, i), 1)[0]
    }

    /// Words that `from` has put here at `dst_word`: those of its first `count` that are not what they should be.
    pub(crate) fn wrong_words(&self, from: u32, dst_word: u32, count: u32) -> Vec<u32> {
        let at = self.window.base + 8 * u64::from(dst_word);
        let words: Vec<u64> = self.read(at, count as usize);
        (0..count)
            .filter(|&k| words[k as usize] != word(from, k))
            .collect()
    }

    /// Runs `launch`; how each thread ended.
    pub(crate) fn no_poll(&self, launch: &NoPoll<'_>) -> Vec<Status> {
        let threads = launch.threads as usize;
        let status = self.gpu.alloc(threads * 4, 128).unwrap();
        let params = NoPollParams {
            team: DevicePtr::new(self.team.context_addr()),
            window: self.window,
            dst_offset: 8 * u64::from(WORDS / 2),
            status: DevicePtr::new(status.addr()),
            peer: launch.peer,
            qp: 0,
            op: launch.op,
            calls: launch.calls,
            active: launch.active,
            reserved: 0,
        };
        let spec = Launch::new(launch.kernel, 1, launch.threads)
            .with_seed(launch.seed)
            .with_deadline(PATIENCE);
        // SAFETY: as in `put`; the kernel has ended before anything goes.
        let event = unsafe { self.gpu.launch(&spec, bytes_of(&params)) }.unwrap();
        self.gpu.wait(&event, PATIENCE).unwrap();
        self.read(status.addr(), threads)
    }

    /// Returns how a kernel's wait for `ticket` of QP `i` to `peer` ends.
    pub(crate) fn wait_for(&self, peer: u32, i: u32, ticket: u64) -> Status {
        let status = self.gpu.alloc(size_of::<Status>(), 128).unwrap();
        let params = WaitParams {
            qp: DevicePtr::new(self.qp_addr(peer, i)),
            ticket,
            deadline_ns: u64::try_from(DEADLINE.as_nanos()).unwrap(),
            status: DevicePtr::new(status.addr()),
            ..WaitParams::default()
        };
        let launch = Launch::new("wv_test_wait", 1, 1).with_deadline(PATIENCE);
        // SAFETY: as in `put`; the kernel has ended before anything goes.
        let event = unsafe { self.gpu.launch(&launch, bytes_of(&params)) }.unwrap();
        self.gpu.wait(&event, PATIENCE).unwrap();
        self.read(status.addr(), 1)[0]
    }

    /// Starts to put `count` words from each of `scopes` scopes to `peer`.
    pub(crate) fn put(&self, put: &Put<'_>) -> Running<'_> {
        let tables = self.team.context_addr();
        let scopes = put.blocks * put.scopes_per_block();
        let stop = self.gpu.map_host(8).unwrap();
        let bytes = scopes as usize * size_of::<GuardSeen>();
        let seen = self.gpu.alloc(bytes, 128).unwrap();
        let params = GuardPutParams {
            team: DevicePtr::new(tables),
            window: self.window,
            dst_offset: 8 * u64::from(put.dst_word),
            deadline_ns: u64::try_from(put.deadline.as_nanos()).unwrap(),
            stop: DevicePtr::new(stop.addr()),
            seen: DevicePtr::new(seen.addr()),
            peer: put.peer,
            qp: put.qp,
            count: put.count,
            each: put.each,
            rounds: put.rounds,
            reserved: 0,
        };
        let launch = Launch::new(put.kernel, put.blocks, put.threads)
            .with_seed(put.seed)
            .with_deadline(PATIENCE);
        // SAFETY: the parameters are those of the kernel. The memory that they name outlives the kernel, for which `Running` waits.
        // Kernels, HCA and host share it by the protocol of guards and posting.
        let event = unsafe { self.gpu.launch(&launch, bytes_of(&params)) }.unwrap();
        Running {
            gpu: self.gpu.as_ref(),
            event: Some(event),
            stop,
            seen,
            scopes: scopes as usize,
        }
    }
}

/// Word `k` of what `rank` puts: all different, none zero.
pub(crate) fn word(rank: u32, k: u32) -> u64 {
    ((u64::from(rank) << 32) | (u64::from(k) + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a kernel of `crates/test-support/kernels/no_poll.cu` does in one block, on QP 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPoll<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) peer: u32,
    pub(crate) op: u32,
    /// Calls of each scope.
    pub(crate) calls: u32,
    /// Active threads of a scope.
    pub(crate) active: u32,
    pub(crate) threads: u32,
    pub(crate) seed: u64,
}

impl NoPoll<'static> {
    /// Looks until everything has completed.
    pub(crate) fn quiet(peer: u32) -> Self {
        Self {
            kernel: "wv_test_no_poll_thread",
            peer,
            op: 4,
            calls: 1,
            active: 1,
            threads: 1,
            seed: 0,
        }
    }
}

/// What a kernel of `crates/test-support/kernels/guard.cu` does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) peer: u32,
    pub(crate) qp: u32,
    /// Words of each scope.
    pub(crate) count: u32,
    /// Words under one guard; 0: one guard, refreshed.
    pub(crate) each: u32,
    /// How often the words are put, unless it is stopped before.
    pub(crate) rounds: u32,
    /// First target word.
    pub(crate) dst_word: u32,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) seed: u64,
    pub(crate) deadline: Duration,
}

impl Put<'static> {
    /// One thread puts `count` words to `peer` by QP 0.
    pub(crate) fn new(peer: u32, count: u32) -> Self {
        Self {
            kernel: "wv_test_guard_thread",
            peer,
            qp: 0,
            count,
            each: 1,
            rounds: 1,
            dst_word: WORDS / 2,
            blocks: 1,
            threads: 1,
            seed: 0,
            deadline: DEADLINE.saturating_mul(2),
        }
    }

    /// One thread holds a guard of `peer`.
    pub(crate) fn hold(peer: u32) -> Self {
        Self::new(peer, 0)
    }
}

impl Put<'_> {
    fn scopes_per_block(&self) -> u32 {
        match self.kernel {
            "wv_test_guard_thread" => self.threads,
            "wv_test_guard_warp" => self.threads / 32,
            _ => 1,
        }
    }
}

/// A kernel of `crates/test-support/kernels/guard.cu` that runs. Dropping it stops it and waits for it.
pub(crate) struct Running<'a> {
    gpu: &'a dyn Gpu,
    event: Option<Event>,
    stop: HostMapped,
    seen: DeviceMemory,
    scopes: usize,
}

impl Running<'_> {
    /// Orders its end.
    pub(crate) fn stop(&self) {
        self.stop.u32_at(0).store(1, Ordering::Relaxed);
    }

    /// Waits for its end; what each scope has seen.
    pub(crate) fn finish(mut self) -> Vec<GuardSeen> {
        self.wait();
        read(self.gpu, self.seen.addr(), self.scopes)
    }

    fn wait(&mut self) {
        if let Some(event) = self.event.take() {
            self.gpu.wait(&event, PATIENCE).unwrap();
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stop();
        if let Some(event) = self.event.take() {
            // After a failure elsewhere in the test.
            let _ = self.gpu.wait(&event, PATIENCE);
        }
    }
}

/// Waits until `condition`.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A seed that is different each time, for failures that print it.
pub(crate) fn seed() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    match std::env::var("WV_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => fastrand::u64(..1 << 32) + NEXT.fetch_add(1, Ordering::Relaxed),
    }
}
