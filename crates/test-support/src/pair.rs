//! Two ranks on two software HCAs, joined by one pair of QPs: what a kernel needs to put from one to the other.

// UNSAFETY: kernels are launched on memory that the HCA reads and writes.
#![expect(unsafe_code, reason = "kernel launches, registered memory")]

use bytemuck::{Pod, bytes_of, cast_slice, cast_slice_mut};
use softhca::{Hca, HcaConfig};
use test_basics::limits::HANG;
use warpverbs::abi::test_kernels::PutWordsParams;
use warpverbs::abi::{DevicePtr, PeerEntry, QpContext, Status, Window};
use warpverbs::gpu::{DeviceMemory, Event, Launch};
use warpverbs::verbs::{Access, Doorbell, Mr, Qp, QpConfig, Queues, Rts};

use crate::node::{Node, connect, hca_with};

/// Most threads of a launch.
const MAX_THREADS: usize = 1024;

/// One rank: an HCA, a node on it, a registered window, what kernels read and write beside it.
pub struct End {
    mr: Mr,
    window: DeviceMemory,
    peer: DeviceMemory,
    results: DeviceMemory,
    /// Its open device.
    pub node: Node,
    /// Its software HCA, in which faults are planted.
    pub hca: Hca,
}

/// Two ranks, side 0 and side 1.
pub struct Pair {
    /// Side 0's QP and side 1's, each other's peer.
    pub qps: [Qp<Rts>; 2],
    /// The ranks.
    pub ends: [End; 2],
    /// Source words of a window, and target words behind them.
    pub words: usize,
}

impl End {
    fn new(config: HcaConfig, window_bytes: usize, qp: &QpConfig) -> Self {
        let hca = hca_with(config);
        let mut node = Node::open(&hca, 8 << 20).unwrap();
        if qp.queues == Queues::Host || qp.doorbell == Doorbell::Mailbox {
            node = node.with_host(1 << 20).unwrap();
        }
        let window = node.gpu.alloc(window_bytes, 4096).unwrap();
        let (addr, bytes) = (window.addr(), window_bytes as u64);
        // SAFETY: the window outlives the MR (field order), and is reached by kernels, the HCA and copies only.
        let mr = unsafe { Mr::register(&node.pd, addr, bytes, Access::ALL) }.unwrap();
        Self {
            mr,
            window,
            peer: node.gpu.alloc(size_of::<PeerEntry>(), 16).unwrap(),
            results: node.gpu.alloc(8 * MAX_THREADS, 128).unwrap(),
            node,
            hca,
        }
    }

    /// The HCA alone, after everything that was made on it is gone.
    pub fn into_hca(self) -> Hca {
        self.hca
    }

    /// The window, as kernels get it.
    pub fn window(&self) -> Window {
        Window {
            id: 0,
            lkey_be: self.mr.lkey().to_be(),
            base: self.window.addr(),
            bytes: self.window.bytes() as u64,
        }
    }

    /// Says where the other side's window is. `key_flip` makes its key a wrong one.
    pub fn set_peer(&self, other: &Self, key_flip: u32) {
        let entry = PeerEntry {
            base: other.window.addr(),
            rkey_be: (other.mr.rkey() ^ key_flip).to_be(),
            rail_generation: 0,
        };
        self.node
            .gpu
            .write(self.peer.addr(), bytes_of(&entry))
            .unwrap();
    }

    /// The peer's entry.
    pub fn peer(&self) -> DevicePtr<PeerEntry> {
        self.peer.addr().into()
    }

    /// Where kernels store how they ended; 4 KiB further on, how much they did.
    pub fn status(&self) -> DevicePtr<Status> {
        self.results.addr().into()
    }

    /// See [`End::status`].
    pub fn done(&self) -> DevicePtr<u32> {
        (self.results.addr() + 4 * MAX_THREADS as u64).into()
    }

    /// How each of `threads` threads ended, and how much it did.
    pub fn results(&self, threads: usize) -> Vec<(Status, u32)> {
        let status = self.read(self.status().addr(), threads);
        let done = self.read(self.done().addr(), threads);
        status.into_iter().zip(done).collect()
    }

    /// Starts `kernel` with these parameters.
    pub fn start(&self, launch: &Launch<'_>, params: &impl Pod) -> Event {
        // SAFETY: the parameters are those of the kernel; they name memory of the pair, which outlives every test's waits, and
        // which kernels, HCA and host share by the posting protocol or touch one after the other.
        unsafe { self.node.gpu.launch(launch, bytes_of(params)) }.unwrap()
    }

    /// Waits for `event` and returns what its threads stored.
    pub fn finish(&self, event: &Event, threads: u32) -> Vec<(Status, u32)> {
        self.node.gpu.wait(event, HANG).unwrap();
        self.results(threads as usize)
    }

    /// Writes `words` at `offset` of the window.
    pub fn write(&self, offset: u64, words: &[u64]) {
        self.node
            .gpu
            .write(self.window.addr() + offset, cast_slice(words))
            .unwrap();
    }

    /// `count` values at `offset` of the window.
    pub fn window_at<T: Pod>(&self, offset: u64, count: usize) -> Vec<T> {
        self.read(self.window.addr() + offset, count)
    }

    fn read<T: Pod>(&self, addr: u64, count: usize) -> Vec<T> {
        let mut out = vec![T::zeroed(); count];
        self.node.gpu.read(addr, cast_slice_mut(&mut out)).unwrap();
        out
    }
}

impl Pair {
    /// Two connected ranks with windows of `words` source words and as many target words.
    pub fn new(words: usize, config: &QpConfig, schedule_seed: Option<u64>) -> Self {
        let hca = || HcaConfig {
            schedule_seed,
            ..HcaConfig::default()
        };
        let ends = [0, 1].map(|_| End::new(hca(), 16 * words, config));
        ends[0].set_peer(&ends[1], 0);
        ends[1].set_peer(&ends[0], 0);
        let qps = connect([&ends[0].node, &ends[1].node], config).unwrap();
        let source: Vec<u64> = (0..words as u64).map(Self::word).collect();
        ends[0].write(0, &source);
        Self { qps, ends, words }
    }

    /// A pair whose rings have `1 << log_depth` WQEBBs.
    pub fn shared(words: usize, log_depth: u8) -> Self {
        Self::new(
            words,
            &QpConfig {
                log_depth,
                ..QpConfig::default()
            },
            None,
        )
    }

    /// Source word `k` of side 0: all different, none zero.
    pub fn word(k: u64) -> u64 {
        (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Where the context of side 0's QP is.
    pub fn qp(&self) -> DevicePtr<QpContext> {
        self.qps[0].layout().context_addr.into()
    }

    /// The context of side 0's QP as it is now.
    pub fn context(&self) -> QpContext {
        self.ends[0].read(self.qp().addr(), 1)[0]
    }

    /// Changes the context of side 0's QP.
    pub fn patch(&self, offset: usize, bytes: &[u8]) {
        self.ends[0]
            .node
            .gpu
            .write(self.qp().addr() + offset as u64, bytes)
            .unwrap();
    }

    /// Parameters with which side 0 puts `count` words from each thread. Deadline 60 s.
    pub fn params(&self, count: u32, wait_every: u32) -> PutWordsParams {
        let end = &self.ends[0];
        PutWordsParams {
            qp: self.qp(),
            peer: end.peer(),
            window: end.window(),
            src_offset: 0,
            dst_offset: 8 * self.words as u64,
            deadline_ns: 60_000_000_000,
            status: end.status(),
            done: end.done(),
            count,
            wait_every,
        }
    }

    /// Runs one block of `kernel` on side 0.
    pub fn run(
        &self,
        kernel: &str,
        threads: u32,
        seed: u64,
        params: &impl Pod,
    ) -> Vec<(Status, u32)> {
        let event = self.ends[0].start(&launch(kernel, threads, seed), params);
        self.ends[0].finish(&event, threads)
    }

    /// Positions of target words on side 1 that are not the source's.
    pub fn wrong_words(&self) -> Vec<usize> {
        let target: Vec<u64> = self.ends[1].window_at(8 * self.words as u64, self.words);
        let wrong = |&(k, word): &(usize, u64)| word != Self::word(k as u64);
        target
            .into_iter()
            .enumerate()
            .filter(wrong)
            .map(|(k, _)| k)
            .collect()
    }

    /// What the HCAs saw and silicon would not tell.
    pub fn findings(&self) -> Vec<String> {
        self.ends
            .iter()
            .flat_map(|end| end.hca.findings())
            .collect()
    }
}

/// One block of `kernel`.
pub fn launch(kernel: &str, threads: u32, seed: u64) -> Launch<'_> {
    Launch {
        seed,
        deadline: HANG,
        ..Launch::new(kernel, 1, threads)
    }
}

/// `few` seeds, or with WV_TEST_FULL set `many`.
pub fn seeds(few: u64, many: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("WV_TEST_FULL").is_some() {
        many
    } else {
        few
    }
}
