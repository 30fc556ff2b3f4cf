//! Two ranks on two software HCAs, each with a window at the other, and programs of operations for their kernels.

// UNSAFETY: registers memory and launches kernels.
#![expect(unsafe_code, reason = "registered memory; kernel launches")]

use std::mem::offset_of;
use std::time::Duration;

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};
use softhca::{Hca, HcaConfig};
use test_support::limits::HANG;
use warpverbs::abi::test_ops::{OpItem, OpResult, OpStep, OpsParams};
use warpverbs::abi::{PEER_DIRECT, PeerEntry, QpContext, Status, Window};
use warpverbs::gpu::{DeviceMemory, Event, Launch};
use warpverbs::verbs::{Access, Mr, Qp, QpConfig, Rts};

use test_support::node::{Node, connect, hca_with};

/// Deadline of each call, ns.
const DEADLINE_NS: u64 = 60_000_000_000;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Thread,
    Warp,
    /// Of this many threads.
    Block(u32),
}

/// One of each, and a block that is not of whole warps.
pub(crate) const SCOPES: [Scope; 4] = [
    Scope::Thread,
    Scope::Warp,
    Scope::Block(64),
    Scope::Block(40),
];

impl Scope {
    /// Its threads.
    pub(crate) fn width(self) -> u32 {
        match self {
            Self::Thread => 1,
            Self::Warp => 32,
            Self::Block(threads) => threads,
        }
    }

    fn launch(self, units: u32) -> Launch<'static> {
        match self {
            Self::Thread => Launch::new("wv_test_ops_thread", 1, units),
            Self::Warp => Launch::new("wv_test_ops_warp", 1, 32 * units),
            Self::Block(threads) => Launch::new("wv_test_ops_block", units, threads),
        }
    }
}

/// One call and what each of its threads brings.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) step: OpStep,
    pub(crate) items: Vec<OpItem>,
}

/// One rank.
pub(crate) struct End {
    mr: Mr,
    window: DeviceMemory,
    peer: DeviceMemory,
    pub(crate) node: Node,
    pub(crate) hca: Hca,
}

/// Two ranks.
pub(crate) struct Rig {
    pub(crate) qps: [Qp<Rts>; 2],
    pub(crate) ends: [End; 2],
    /// Bytes of a window, without the 64 behind it in which atomics leave what nobody wants.
    pub(crate) bytes: u64,
}

/// A kernel that runs, and the memory it uses.
pub(crate) struct Running {
    event: Event,
    results: DeviceMemory,
    _steps: DeviceMemory,
    _items: DeviceMemory,
}

impl Rig {
    pub(crate) fn new(bytes: u64, config: &QpConfig, schedule_seed: Option<u64>) -> Self {
        let end = |_| {
            let hca = hca_with(HcaConfig {
                schedule_seed,
                ..HcaConfig::default()
            });
            let node = Node::open(&hca, 4 << 20).unwrap();
            let window = node.gpu.alloc(bytes as usize + 64, 4096).unwrap();
            // SAFETY: the window outlives the MR (field order), and is reached by kernels, the HCA and copies only.
            let mr = unsafe { Mr::register(&node.pd, window.addr(), bytes + 64, Access::ALL) };
            End {
                mr: mr.unwrap(),
                peer: node.gpu.alloc(size_of::<PeerEntry>(), 16).unwrap(),
                window,
                node,
                hca,
            }
        };
        let ends = [0, 1].map(end);
        let qps = connect([&ends[0].node, &ends[1].node], config).unwrap();
        let rig = Self { qps, ends, bytes };
        for side in [0, 1] {
            rig.set_direct(side, false);
            let end = &rig.ends[side];
            let sink = end.window.addr() + bytes;
            rig.patch(side, offset_of!(QpContext, atomic_sink), &sink);
            let lkey = end.mr.lkey().to_be();
            rig.patch(side, offset_of!(QpContext, atomic_sink_lkey_be), &lkey);
        }
        rig
    }

    /// Whether `side` reaches the other's window by loads and stores.
    pub(crate) fn set_direct(&self, side: usize, direct: bool) {
        let other = &self.ends[1 - side];
        let entry = PeerEntry {
            base: other.window.addr(),
            rkey_be: other.mr.rkey().to_be(),
            rail_generation: if direct { PEER_DIRECT } else { 0 },
        };
        let end = &self.ends[side];
        end.node
            .gpu
            .write(end.peer.addr(), bytes_of(&entry))
            .unwrap();
    }

    /// Makes `side` its own peer, reached directly.
    pub(crate) fn set_peer_here(&self, side: usize) {
        let end = &self.ends[side];
        let entry = PeerEntry {
            base: end.window.addr(),
            rkey_be: 0,
            rail_generation: PEER_DIRECT,
        };
        end.node
            .gpu
            .write(end.peer.addr(), bytes_of(&entry))
            .unwrap();
    }

    /// Changes the context of a side's QP.
    pub(crate) fn patch(&self, side: usize, offset: usize, value: &impl Pod) {
        let addr = self.qps[side].layout().context_addr + offset as u64;
        self.ends[side]
            .node
            .gpu
            .write(addr, bytes_of(value))
            .unwrap();
    }

    /// The context of a side's QP as it is now.
    pub(crate) fn context(&self, side: usize) -> QpContext {
        self.ends[side].read(self.qps[side].layout().context_addr, 1)[0]
    }

    /// Starts a kernel in which each unit of `scope` makes its calls.
    pub(crate) fn start(
        &self,
        side: usize,
        scope: Scope,
        seed: u64,
        units: &[Vec<Call>],
    ) -> Running {
        let end = &self.ends[side];
        let steps_per_unit = units.iter().map(Vec::len).max().unwrap();
        let (mut steps, mut items) = (Vec::new(), Vec::new());
        for calls in units {
            assert_eq!(calls.len(), steps_per_unit, "units of as many steps");
            for call in calls {
                assert!(call.items.len() <= scope.width() as usize, "{call:?}");
                steps.push(OpStep {
                    first: items.len() as u32,
                    count: call.items.len() as u32,
                    ..call.step
                });
                items.extend_from_slice(&call.items);
            }
        }
        let gpu = &end.node.gpu;
        let upload = |bytes: &[u8]| {
            let memory = gpu.alloc(bytes.len().max(1), 128).unwrap();
            gpu.write(memory.addr(), bytes).unwrap();
            memory
        };
        let results = upload(cast_slice(&vec![OpResult::zeroed(); steps.len()]));
        let (steps, items) = (upload(cast_slice(&steps)), upload(cast_slice(&items)));
        let params = OpsParams {
            qp: self.qps[side].layout().context_addr.into(),
            peer: end.peer.addr().into(),
            window: Window {
                id: 0,
                lkey_be: end.mr.lkey().to_be(),
                base: end.window.addr(),
                bytes: self.bytes,
            },
            steps: steps.addr().into(),
            items: items.addr().into(),
            results: results.addr().into(),
            steps_per_unit: steps_per_unit as u64,
            deadline_ns: DEADLINE_NS,
        };
        let launch = Launch {
            seed,
            deadline: HANG,
            ..scope.launch(units.len() as u32)
        };
        // SAFETY: the parameters are the kernel's and name memory of the rig and of what is returned, both of which outlive the
        // wait; kernels, HCAs and host share it by the protocol, or touch it one after the other.
        let event = unsafe { gpu.launch(&launch, bytes_of(&params)) }.unwrap();
        Running {
            event,
            results,
            _steps: steps,
            _items: items,
        }
    }

    /// Runs a kernel of side 0.
    pub(crate) fn run_kernel(&self, launch: &Launch<'_>, params: &impl Pod) {
        let gpu = &self.ends[0].node.gpu;
        // SAFETY: as in `start`; the caller's memory outlives the wait.
        let event = unsafe { gpu.launch(launch, bytes_of(params)) }.unwrap();
        gpu.wait(&event, HANG).unwrap();
    }

    /// The window of side 0, as kernels get it, and the entry of side 1's.
    pub(crate) fn window(&self) -> (Window, PeerEntry) {
        let [near, far] = &self.ends;
        let window = Window {
            id: 0,
            lkey_be: near.mr.lkey().to_be(),
            base: near.window.addr(),
            bytes: self.bytes,
        };
        let entry = PeerEntry {
            base: far.window.addr(),
            rkey_be: far.mr.rkey().to_be(),
            rail_generation: 0,
        };
        (window, entry)
    }

    /// How each step of each unit ended.
    pub(crate) fn finish(&self, side: usize, running: &Running) -> Vec<OpResult> {
        let end = &self.ends[side];
        end.node.gpu.wait(&running.event, HANG).unwrap();
        let count = running.results.bytes() / size_of::<OpResult>();
        end.read(running.results.addr(), count)
    }

    /// Makes calls one after the other from one unit; each must end `ok`.
    pub(crate) fn run(
        &self,
        side: usize,
        scope: Scope,
        seed: u64,
        calls: &[Call],
    ) -> Vec<OpResult> {
        let results = self.finish(side, &self.start(side, scope, seed, &[calls.to_vec()]));
        for (place, result) in results.iter().enumerate() {
            assert_eq!(
                (result.posted, result.waited),
                (Status::OK, Status::OK),
                "{scope:?}, seed {seed}, step {place}: {:?}",
                calls[place].step
            );
        }
        results
    }

    /// How one call from one unit ended.
    pub(crate) fn try_one(&self, side: usize, scope: Scope, call: &Call) -> Status {
        let running = self.start(side, scope, 0, &[vec![call.clone()]]);
        self.finish(side, &running)[0].posted
    }

    /// Nothing that `side` posts is run before `wake`.
    pub(crate) fn sleep(&self, side: usize) {
        self.ends[side].hca.pause(Duration::from_secs(600));
    }

    /// See `sleep`.
    pub(crate) fn wake(&self, side: usize) {
        self.ends[side].hca.pause(Duration::ZERO);
    }

    /// What the HCAs saw and silicon would not tell.
    pub(crate) fn findings(&self) -> Vec<String> {
        let findings = self.ends.iter().map(|end| end.hca.findings());
        findings.flatten().collect()
    }
}

impl End {
    /// Writes at `offset` of the window.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        self.node
            .gpu
            .write(self.window.addr() + offset, bytes)
            .unwrap();
    }

    /// The word of 8 bytes at `offset` of the window.
    pub(crate) fn word(&self, offset: u64) -> u64 {
        self.window_at(offset, 1)[0]
    }

    /// `count` values at `offset` of the window.
    pub(crate) fn window_at<T: Pod>(&self, offset: u64, count: usize) -> Vec<T> {
        self.read(self.window.addr() + offset, count)
    }

    fn read<T: Pod>(&self, addr: u64, count: usize) -> Vec<T> {
        let mut out = vec![T::zeroed(); count];
        self.node.gpu.read(addr, cast_slice_mut(&mut out)).unwrap();
        out
    }
}
