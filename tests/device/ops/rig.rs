//! Programs of operations for the kernels of two ranks.

use std::ops::Deref;
use std::time::Duration;

use bytemuck::{Pod, Zeroable, cast_slice};
use test_support::abi::ops::{OpItem, OpResult, OpStep, OpsParams};
use test_support::device::upload;
use test_support::limits::HANG;
use test_support::pair::{Pair, Setup};
use warpverbs::abi::{PEER_DIRECT, PeerEntry, Status, Window};
use warpverbs::gpu::{DeviceMemory, Event, Launch};
use warpverbs::verbs::QpConfig;

/// Deadline of each call, ns.
const DEADLINE_NS: u64 = 60_000_000_000;

/// The caller.
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

/// Two ranks whose kernels run programs.
pub(crate) struct Rig {
    pair: Pair,
    /// Bytes of a window, without the 64 after it in which atomics leave what nothing reads.
    pub(crate) bytes: u64,
}

/// A kernel that runs, and the memory it uses.
pub(crate) struct Running {
    event: Event,
    results: DeviceMemory,
    _steps: DeviceMemory,
    _items: DeviceMemory,
}

impl Deref for Rig {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pair
    }
}

impl Rig {
    pub(crate) fn new(bytes: u64, config: &QpConfig) -> Self {
        let setup = Setup {
            sink: Some(bytes),
            ..Setup::new(bytes + 64, config)
        };
        Self {
            pair: Pair::new(setup),
            bytes,
        }
    }

    /// Returns whether `side` reaches the other's window by loads and stores.
    pub(crate) fn set_direct(&self, side: usize, direct: bool) {
        self.ends[side].set_entry(&PeerEntry {
            rail_life: if direct { PEER_DIRECT } else { 0 },
            ..self.ends[1 - side].entry()
        });
    }

    /// Makes `side` its own peer, reached directly.
    pub(crate) fn set_peer_here(&self, side: usize) {
        let end = &self.ends[side];
        end.set_entry(&PeerEntry {
            rkey_be: 0,
            rail_life: PEER_DIRECT,
            ..end.entry()
        });
    }

    /// The window of a side, as kernels get it.
    pub(crate) fn window_of(&self, side: usize) -> Window {
        Window {
            bytes: self.bytes,
            ..self.ends[side].window()
        }
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
        let upload = |bytes: &[u8]| upload(end.node.gpu.as_ref(), bytes);
        let results = upload(cast_slice(&vec![OpResult::zeroed(); steps.len()]));
        let (steps, items) = (upload(cast_slice(&steps)), upload(cast_slice(&items)));
        let params = OpsParams {
            qp: self.qp_of(side),
            peer: end.peer(),
            window: self.window_of(side),
            steps: steps.addr().into(),
            items: items.addr().into(),
            results: results.addr().into(),
            steps_per_unit: steps_per_unit as u64,
            deadline_ns: DEADLINE_NS,
        };
        let launch = scope
            .launch(units.len() as u32)
            .with_seed(seed)
            .with_deadline(HANG);
        Running {
            event: end.start(&launch, &params),
            results,
            _steps: steps,
            _items: items,
        }
    }

    /// Runs a kernel of side 0.
    pub(crate) fn run_kernel(&self, launch: &Launch<'_>, params: &impl Pod) {
        let end = &self.ends[0];
        end.wait(&end.start(launch, params));
    }

    /// Returns how each step of each unit ended.
    pub(crate) fn finish(&self, side: usize, running: &Running) -> Vec<OpResult> {
        let end = &self.ends[side];
        end.wait(&running.event);
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

    /// Returns how one call from one unit ended.
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
}
