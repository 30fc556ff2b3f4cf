//! Two ranks on two software HCAs, each with a window that the other reaches, joined by one pair of QPs. A kernel of one rank can post to
//! the other.

// UNSAFETY: kernels are launched on memory that the HCA reads and writes.
#![expect(unsafe_code, reason = "kernel launches, registered memory")]

use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, bytes_of, cast_slice};
use softhca::device::Execution;
use softhca::{Hca, HcaConfig};
use test_basics::limits::HANG;
use warpverbs::abi::{DevicePtr, PeerEntry, QpContext, Status, Window};
use warpverbs::gpu::{DeviceMemory, Event, Launch};
use warpverbs::verbs::{
    Access, Doorbell, ImageAttr, Mr, Qp, QpConfig, Queues, Reset, Rts, SendAttr,
};

use crate::device::read;
use crate::external;
use crate::hca::hca_with;
use crate::node::{Node, PSNS, connect_with_retry};

/// The most threads of a launch.
pub(crate) const MAX_THREADS: usize = 2048;

/// How two ranks are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The number of bytes of each window.
    pub window: u64,
    /// The configuration of both QPs.
    pub qp: QpConfig,
    /// The index at which the QPs begin, a multiple of 65,536.
    pub base: u64,
    /// How often a QP tries again to reach a peer that does not answer.
    pub retry: u8,
    /// The offset in its window where a rank lets atomics leave results that nobody reads.
    pub sink: Option<u64>,
    /// The seeds of the HCAs' engines. None: the engine is as fast as it can be.
    pub schedule_seeds: [Option<u64>; 2],
    /// What runs the WQEs: the engine of softhca, or `gpuhca` on the CPU.
    pub execution: Execution,
}

impl Setup {
    /// Returns a setup with windows of `window` bytes, and QPs that begin at 0.
    pub fn new(window: u64, qp: &QpConfig) -> Self {
        Self {
            window,
            qp: *qp,
            base: 0,
            retry: SendAttr::new(PSNS[0]).retry,
            sink: None,
            schedule_seeds: [None; 2],
            execution: Execution::Engine,
        }
    }
}

/// One rank: an HCA, a node on it, a registered window, and other memory that kernels read and write.
#[derive(Debug)]
pub struct End {
    mr: Mr,
    window: DeviceMemory,
    peer: DeviceMemory,
    results: DeviceMemory,
    /// The node, which has the open device.
    pub node: Node,
    /// The software HCA, for tests that plant faults in it.
    pub hca: Hca,
}

/// Two ranks, side 0 and side 1.
#[derive(Debug)]
pub struct Pair {
    qps: Option<[Qp<Rts>; 2]>,
    /// The two ranks.
    pub ends: [End; 2],
    pub(crate) setup: Setup,
}

impl End {
    fn new(setup: &Setup, schedule_seed: Option<u64>) -> Self {
        if setup.execution == Execution::External {
            external::ensure();
        }
        let hca = hca_with(HcaConfig {
            schedule_seed,
            execution: setup.execution,
            ..HcaConfig::default()
        });
        let mut node = Node::open(&hca, 8 << 20).unwrap();
        if setup.qp.queues == Queues::Host || setup.qp.doorbell == Doorbell::Mailbox {
            node = node.with_host(1 << 20).unwrap();
        }
        let window = node.gpu.alloc(setup.window.try_into().unwrap(), 4096);
        let window = window.unwrap();
        // SAFETY: the window outlives the MR (field order), and is reached by kernels, the HCA and copies only.
        let mr = unsafe { Mr::register(&node.pd, window.addr(), setup.window, Access::ALL) };
        Self {
            mr: mr.unwrap(),
            window,
            peer: node.gpu.alloc(size_of::<PeerEntry>(), 16).unwrap(),
            results: node.gpu.alloc(8 * MAX_THREADS, 128).unwrap(),
            node,
            hca,
        }
    }

    /// Returns the HCA, after dropping everything that was made on it.
    pub fn into_hca(self) -> Hca {
        self.hca
    }

    /// Returns the window, as kernels get it.
    pub fn window(&self) -> Window {
        Window {
            id: 0,
            lkey_be: self.mr.lkey().to_be(),
            base: self.window.addr(),
            bytes: self.window.bytes() as u64,
        }
    }

    /// Returns the peer-table entry by which a peer reaches this window.
    pub fn entry(&self) -> PeerEntry {
        PeerEntry {
            base: self.window.addr(),
            rkey_be: self.mr.rkey().to_be(),
            rail_life: 0,
        }
    }

    /// Tells this rank where the window of the other side is. `key_flip` makes the window's key wrong.
    pub fn set_peer(&self, other: &Self, key_flip: u32) {
        let entry = other.entry();
        self.set_entry(&PeerEntry {
            rkey_be: entry.rkey_be ^ key_flip.to_be(),
            ..entry
        });
    }

    /// Sets the peer-table entry of the other side.
    pub fn set_entry(&self, entry: &PeerEntry) {
        self.write_at(self.peer.addr(), bytes_of(entry));
    }

    /// Returns the address of the other side's peer-table entry.
    pub fn peer(&self) -> DevicePtr<PeerEntry> {
        self.peer.addr().into()
    }

    /// Returns where kernels store how they ended. How much they did is stored behind it, see [`End::done`].
    pub fn status(&self) -> DevicePtr<Status> {
        self.results.addr().into()
    }

    /// Returns where kernels store how much they did.
    pub fn done(&self) -> DevicePtr<u32> {
        (self.results.addr() + 4 * MAX_THREADS as u64).into()
    }

    /// Returns how each of `threads` threads ended, and how much each did.
    pub fn results(&self, threads: usize) -> Vec<(Status, u32)> {
        let status = self.read(self.status().addr(), threads);
        let done = self.read(self.done().addr(), threads);
        status.into_iter().zip(done).collect()
    }

    /// Starts a kernel with these parameters.
    pub fn start(&self, launch: &Launch<'_>, params: &impl Pod) -> Event {
        // SAFETY: the parameters are those of the kernel. They name memory of the pair or of the test, which outlives every test's
        // waits. Kernels, HCA and host share it by the posting protocol or touch it one after the other.
        unsafe { self.node.gpu.launch(launch, bytes_of(params)) }.unwrap()
    }

    /// Waits until `event` has happened.
    pub fn wait(&self, event: &Event) {
        self.node.gpu.wait(event, HANG).unwrap();
    }

    /// Waits for `event` and returns what its threads stored.
    pub fn finish(&self, event: &Event, threads: u32) -> Vec<(Status, u32)> {
        self.wait(event);
        self.results(threads as usize)
    }

    /// Writes at `offset` of the window.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.write_at(self.window.addr() + offset, bytes);
    }

    /// Writes `words` at `offset` of the window.
    pub fn write_words(&self, offset: u64, words: &[u64]) {
        self.write(offset, cast_slice(words));
    }

    /// Returns `count` values at `offset` of the window.
    pub fn window_at<T: Pod>(&self, offset: u64, count: usize) -> Vec<T> {
        self.read(self.window.addr() + offset, count)
    }

    /// Returns `count` values at any address of the device's memory.
    pub fn read<T: Pod>(&self, addr: u64, count: usize) -> Vec<T> {
        read(self.node.gpu.as_ref(), addr, count)
    }

    /// Writes at any address of the device's memory.
    pub fn write_at(&self, addr: u64, bytes: &[u8]) {
        self.node.gpu.write(addr, bytes).unwrap();
    }

    /// Writes what a QP in Reset must find in its memory.
    fn write_image(&self, qp: &Qp<Reset>, sink: Option<u64>, base: u64) {
        let attr = ImageAttr::new(self.node.doorbell(qp.layout()))
            .with_atomic_sink(sink.map_or(0, |offset| self.window.addr() + offset))
            .with_atomic_sink_lkey(sink.map_or(0, |_| self.mr.lkey()))
            .with_base(base);
        let gpu = &self.node.gpu;
        let write = |addr, bytes: &[u8]| gpu.write(addr, bytes);
        qp.write_image(&attr, write).unwrap();
    }
}

impl Pair {
    /// Returns two connected ranks.
    pub fn new(setup: Setup) -> Self {
        let ends = setup.schedule_seeds.map(|seed| End::new(&setup, seed));
        ends[0].set_peer(&ends[1], 0);
        ends[1].set_peer(&ends[0], 0);
        let qps = [0, 1].map(|side: usize| {
            let node = &ends[side].node;
            Qp::create(&node.pd, node.places(), &setup.qp).unwrap()
        });
        let mut pair = Self {
            qps: None,
            ends,
            setup,
        };
        pair.bring_up(qps, pair.setup.base);
        pair
    }

    /// Returns side 0's QP and side 1's, which are each other's peer.
    pub fn qps(&self) -> &[Qp<Rts>; 2] {
        self.qps.as_ref().expect("they are up between calls")
    }

    /// Replaces the QPs by other QPs of the two nodes. Returns the old ones.
    pub fn replace_qps(&mut self, qps: [Qp<Rts>; 2]) -> [Qp<Rts>; 2] {
        let old = self.qps.replace(qps);
        old.expect("they are up between calls")
    }

    /// Returns the ranks, after dropping their QPs.
    pub fn into_ends(self) -> [End; 2] {
        self.ends
    }

    /// Brings both QPs through Reset to a new life, whose indices begin at `base`, a multiple of 65,536.
    pub fn reset(&mut self, base: u64) {
        let qps = self.qps.take().expect("they are up between calls");
        self.bring_up(qps.map(|qp| qp.reset().unwrap()), base);
    }

    fn bring_up(&mut self, qps: [Qp<Reset>; 2], base: u64) {
        for (end, qp) in self.ends.iter().zip(&qps) {
            end.write_image(qp, self.setup.sink, base);
        }
        let nodes = [0, 1].map(|side: usize| &self.ends[side].node);
        self.qps = Some(connect_with_retry(nodes, qps, self.setup.retry).unwrap());
    }

    /// Returns the address of the context of a side's QP.
    pub fn qp_of(&self, side: usize) -> DevicePtr<QpContext> {
        self.qps()[side].layout().context_addr.into()
    }

    /// Returns the context of a side's QP as it is now.
    pub fn context_of(&self, side: usize) -> QpContext {
        self.ends[side].read(self.qp_of(side).addr(), 1)[0]
    }

    /// Changes the context of a side's QP.
    pub fn patch_of(&self, side: usize, offset: usize, value: &impl Pod) {
        let addr = self.qp_of(side).addr() + offset as u64;
        self.ends[side].write_at(addr, bytes_of(value));
    }

    /// Returns the address of the context of side 0's QP.
    pub fn qp(&self) -> DevicePtr<QpContext> {
        self.qp_of(0)
    }

    /// Returns the context of side 0's QP as it is now.
    pub fn context(&self) -> QpContext {
        self.context_of(0)
    }

    /// Changes the context of side 0's QP.
    pub fn patch(&self, offset: usize, value: &impl Pod) {
        self.patch_of(0, offset, value);
    }

    /// Stores to the doorbell register of side 0, as a driver of the host does.
    ///
    /// # Panics
    ///
    /// If no address of this process is that of the register.
    pub fn ring(&self, value: u64) {
        let register = usize::try_from(self.context().doorbell.addr()).unwrap();
        let register: *mut u64 = std::ptr::with_exposed_provenance_mut(register);
        // SAFETY: kernels on simt reach the register at an address of this process. The QP lives, and so does its UAR page. A register
        // has 8 aligned bytes, which other threads reach by atomic operations only.
        let register = unsafe { AtomicU64::from_ptr(register) };
        // Release: the WQE before its doorbell. Pairs with the acquire fence of the HCA after it has taken the doorbell.
        register.store(value, Ordering::Release);
    }

    /// Returns what the HCAs found and silicon would not report.
    pub fn findings(&self) -> Vec<String> {
        self.ends
            .iter()
            .flat_map(|end| end.hca.findings())
            .collect()
    }
}
