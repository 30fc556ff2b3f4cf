//! Two ranks joined by a pair of QPs of one row of the table, and what kernels on side 0 need to post to side 1.

// UNSAFETY: kernels are launched on memory that the HCA reads and writes.
#![expect(unsafe_code, reason = "kernel launches, registered memory")]

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};
use softhca::{Hca, HcaConfig};
use test_basics::limits::HANG;
use warpverbs::abi::test_conformance::{ConformanceEnd, ConformanceParams};
use warpverbs::abi::test_kernels::PutItem;
use warpverbs::abi::{DevicePtr, PeerEntry, QpContext, Window};
use warpverbs::gpu::{DeviceMemory, Event, Launch};
use warpverbs::verbs::{Access, ImageAttr, Mr, PathAttr, Qp, Reset, Rts, SendAttr};

use crate::node::{Node, PSNS, hca_with};
use crate::table::{Cell, Shape};

/// Bytes of a window's source; as many for targets behind it, and the signals behind those.
pub const HALF: u64 = 1 << 17;
/// Where the signals are.
pub const SIGNALS: u64 = 2 * HALF;
const WINDOW: u64 = SIGNALS + 4096;
/// Most items of a list.
const MAX_ITEMS: usize = 4096;
/// Indices that a new life of a QP begins at a multiple of.
const LAP: u64 = 1 << 16;

/// One rank.
pub struct End {
    mr: Mr,
    window: DeviceMemory,
    peer: DeviceMemory,
    items: DeviceMemory,
    results: DeviceMemory,
    node: Node,
    /// Its software HCA, in which faults are planted.
    pub hca: Hca,
}

impl End {
    fn new(schedule_seed: Option<u64>) -> Self {
        let hca = hca_with(HcaConfig {
            schedule_seed,
            ..HcaConfig::default()
        });
        let node = Node::open(&hca, 1 << 20).unwrap();
        let node = node.with_host(1 << 20).unwrap();
        let window = node.gpu.alloc(WINDOW.try_into().unwrap(), 4096).unwrap();
        // SAFETY: the window outlives the MR (field order), and is reached by kernels, the HCA and copies only.
        let mr = unsafe { Mr::register(&node.pd, window.addr(), WINDOW, Access::ALL) }.unwrap();
        let alloc = |bytes| node.gpu.alloc(bytes, 128).unwrap();
        Self {
            mr,
            window,
            peer: alloc(size_of::<PeerEntry>()),
            items: alloc(MAX_ITEMS * size_of::<PutItem>()),
            results: alloc(64 * size_of::<ConformanceEnd>()),
            node,
            hca,
        }
    }

    fn window(&self) -> Window {
        Window {
            id: 0,
            lkey_be: self.mr.lkey().to_be(),
            base: self.window.addr(),
            bytes: WINDOW,
        }
    }

    /// Writes the memory of a QP in Reset. Results that nobody wants go to the end of the window.
    fn write_image(&self, qp: &Qp<Reset>, base: u64) {
        let attr = ImageAttr {
            doorbell: qp.layout().doorbell_addr,
            atomic_sink: self.window.addr() + WINDOW - 8,
            atomic_sink_lkey: self.mr.lkey(),
            generation: 0,
            base,
        };
        let gpu = &self.node.gpu;
        let write = |addr, bytes: &[u8]| gpu.write(addr, bytes);
        qp.write_image(&attr, write).unwrap();
    }

    fn read<T: Pod>(&self, addr: u64, count: usize) -> Vec<T> {
        let mut out = vec![T::zeroed(); count];
        self.node.gpu.read(addr, cast_slice_mut(&mut out)).unwrap();
        out
    }

    fn write(&self, addr: u64, bytes: &[u8]) {
        self.node.gpu.write(addr, bytes).unwrap();
    }

    /// Bytes of the window.
    pub fn bytes(&self, offset: u64, count: u64) -> Vec<u8> {
        self.read(self.window.addr() + offset, count.try_into().unwrap())
    }

    /// Starts a kernel; [`End::finish`] waits for it.
    pub fn start(&self, kernel: &str, shape: Shape, seed: u64, params: &impl Pod) -> Event {
        let launch = Launch {
            seed,
            deadline: HANG,
            ..Launch::new(kernel, shape.blocks, shape.threads)
        };
        // SAFETY: the parameters are those of the kernel; they name memory of the bench, which outlives every wait for a
        // kernel, and which kernels, HCA and host share by the posting protocol or touch one after the other.
        unsafe { self.node.gpu.launch(&launch, bytes_of(params)) }.unwrap()
    }

    /// Waits for a kernel; how its scopes ended.
    pub fn finish(&self, event: &Event, scopes: u32) -> Vec<ConformanceEnd> {
        self.node.gpu.wait(event, HANG).unwrap();
        self.read(self.results.addr(), scopes as usize)
    }
}

/// Both ranks and their QPs.
pub struct Bench {
    qps: Option<[Qp<Rts>; 2]>,
    /// The ranks.
    pub ends: [End; 2],
    /// The row.
    pub cell: Cell,
    /// The order in which simt runs the threads of the next kernel.
    pub seed: u64,
    /// Index at which this life of the QPs began.
    pub base: u64,
    /// WQEs and doorbells that side 0's HCA had seen then.
    pub before: (u64, u64),
    /// WQEBBs of this life that are the second of a WQE.
    pub second_halves: u64,
    /// Doorbells that the host had rung then.
    rung_before: u64,
    retry: u8,
}

impl Bench {
    /// A pair of QPs whose indices begin at `base`, a multiple of 65,536, and which try `retry` times again to reach a peer
    /// that does not answer.
    pub fn new(cell: Cell, seed: u64, base: u64, retry: u8) -> Self {
        let schedule = |side| (seed % 3 == side).then_some(seed);
        let ends = [End::new(schedule(0)), End::new(schedule(1))];
        let mut bench = Self {
            qps: None,
            ends,
            cell,
            seed,
            base,
            before: (0, 0),
            second_halves: 0,
            rung_before: 0,
            retry,
        };
        bench.point(0);
        // Side 1 puts nothing, but its kernels look for a peer.
        let entry = PeerEntry {
            base: bench.ends[0].window.addr(),
            rkey_be: bench.ends[0].mr.rkey().to_be(),
            rail_generation: 0,
        };
        bench.ends[1].write(bench.ends[1].peer.addr(), bytes_of(&entry));
        let words: Vec<u64> = (0..HALF / 8).map(source_word).collect();
        let source = bench.ends[0].window.addr();
        bench.ends[0].write(source, cast_slice(&words));
        let config = cell.config();
        let nodes = [0, 1].map(|side| &bench.ends[side].node);
        let qps = nodes.map(|node| node.qp(&config).unwrap());
        for (end, qp) in bench.ends.iter().zip(&qps) {
            end.write_image(qp, base);
        }
        bench.qps = Some(connect(nodes, qps, retry));
        bench
    }

    /// Says where side 1's window is. `key_flip` makes its key a wrong one.
    pub fn point(&self, key_flip: u32) {
        let entry = PeerEntry {
            base: self.ends[1].window.addr(),
            rkey_be: (self.ends[1].mr.rkey() ^ key_flip).to_be(),
            rail_generation: 0,
        };
        self.ends[0].write(self.ends[0].peer.addr(), bytes_of(&entry));
    }

    /// Parameters without an operation for side `side`; deadline 60 s.
    pub fn params(&self, side: usize, items: &[PutItem]) -> ConformanceParams {
        let end = &self.ends[side];
        end.write(end.items.addr(), cast_slice(items));
        let layout = self.qps.as_ref().unwrap()[side].layout();
        ConformanceParams {
            qp: DevicePtr::new(layout.context_addr),
            peer: DevicePtr::new(end.peer.addr()),
            window: end.window(),
            items: DevicePtr::new(end.items.addr()),
            count: items.len() as u64,
            signal_offset: SIGNALS,
            deadline_ns: 60_000_000_000,
            ends: DevicePtr::new(end.results.addr()),
            mode: self.cell.config().mode(),
            // Until the list has ended; once without one.
            rounds: if items.is_empty() { 1 } else { u32::MAX },
            ..ConformanceParams::zeroed()
        }
    }

    /// Runs the kernel of the row on side 0.
    pub fn run(&self, shape: Shape, params: &ConformanceParams) -> Vec<ConformanceEnd> {
        let end = &self.ends[0];
        let event = end.start(&self.cell.kernel(), shape, self.seed, params);
        end.finish(&event, shape.scopes())
    }

    /// The context of side 0's QP.
    pub fn context(&self) -> QpContext {
        let layout = self.qps.as_ref().unwrap()[0].layout();
        self.ends[0].read(layout.context_addr, 1)[0]
    }

    /// Doorbells that the host has rung for side 0 in this life.
    pub fn mailbox_doorbells(&self) -> Option<u64> {
        let rung = self.qps.as_ref().unwrap()[0].mailbox_doorbells()?;
        Some(rung - self.rung_before)
    }

    /// Makes side 1's window zero.
    pub fn clear(&self) {
        let end = &self.ends[1];
        let zeros = vec![0; usize::try_from(WINDOW).unwrap()];
        end.write(end.window.addr(), &zeros);
    }

    /// Overwrites the targets of `side`.
    pub fn fill_targets(&self, side: usize, words: &[u64]) {
        assert_eq!(words.len() as u64, HALF / 8);
        let end = &self.ends[side];
        end.write(end.window.addr() + HALF, cast_slice(words));
    }

    /// Overwrites the results of earlier kernels of side 0.
    pub fn forget(&self) {
        let end = &self.ends[0];
        end.write(end.results.addr(), &[0xff; size_of::<ConformanceEnd>()]);
    }

    /// Sets or clears the abort word of side 0's QP.
    pub fn abort(&self, set: bool) {
        let layout = self.qps.as_ref().unwrap()[0].layout();
        let word = layout.context_addr + offset_of!(QpContext, abort) as u64;
        self.ends[0].write(word, &u32::from(set).to_ne_bytes());
    }

    /// Says which atomics side 0's device can do; what it said before.
    pub fn set_atomics(&self, bits: u32) -> u32 {
        let before = self.context().atomics;
        let layout = self.qps.as_ref().unwrap()[0].layout();
        let word = layout.context_addr + offset_of!(QpContext, atomics) as u64;
        self.ends[0].write(word, &bits.to_ne_bytes());
        before
    }

    /// Both ends through Err and Reset to a new life, at the next multiple of 65,536.
    pub fn recover(&mut self) {
        self.base = self.context().resv.next_multiple_of(LAP);
        let qps = self.qps.take().unwrap();
        for qp in &qps {
            qp.to_error().unwrap();
        }
        let qps = qps.map(|qp| qp.reset().unwrap());
        self.rung_before = qps[0].mailbox_doorbells().unwrap_or(0);
        let nodes = [0, 1].map(|side| &self.ends[side].node);
        for (end, qp) in self.ends.iter().zip(&qps) {
            end.write_image(qp, self.base);
        }
        self.qps = Some(connect(nodes, qps, self.retry));
        let counters = self.ends[0].hca.counters();
        self.before = (counters.wqes, counters.doorbells);
        self.second_halves = 0;
    }

    /// What the HCAs saw and silicon would not tell.
    pub fn findings(&self) -> Vec<String> {
        let ends = self.ends.iter();
        ends.flat_map(|end| end.hca.findings()).collect()
    }
}

/// Brings up two QPs that are each other's peer.
fn connect(nodes: [&Node; 2], qps: [Qp<Reset>; 2], retry: u8) -> [Qp<Rts>; 2] {
    let qpns = [qps[0].qpn(), qps[1].qpn()];
    let mut sides = [0, 1].into_iter();
    let receiving = qps.map(|qp| {
        let other = 1 - sides.next().unwrap();
        let path = PathAttr::new(qpns[other], nodes[other].gid(), PSNS[other]);
        qp.init().unwrap().ready_to_receive(&path).unwrap()
    });
    let mut psns = PSNS.into_iter();
    receiving.map(|qp| {
        let attr = SendAttr {
            retry,
            ..SendAttr::new(psns.next().unwrap())
        };
        qp.ready_to_send(&attr).unwrap()
    })
}

/// Word `k` of side 0's source: all different, none zero.
pub fn source_word(k: u64) -> u64 {
    (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
