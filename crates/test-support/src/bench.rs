//! Two ranks joined by a pair of QPs of one row of the table, with the objects that kernels on side 0 need to post.

use std::mem::offset_of;

use crate::abi::conformance::{ConformanceEnd, ConformanceParams};
use crate::abi::kernels::PutItem;
use bytemuck::{Pod, Zeroable, cast_slice};
use softhca::device::Execution;
use warpverbs::abi::{DevicePtr, QpContext};
use warpverbs::gpu::{DeviceMemory, Event};

use crate::device::launch;
use crate::pair::{Pair, Setup};
use crate::table::{Cell, Shape};
use crate::words::{DEADLINE_NS, word};

/// The number of bytes of a window's source. As many for targets follow it, and after those the signals.
pub const HALF: u64 = 1 << 17;
/// The offset of the signals.
pub const SIGNALS: u64 = 2 * HALF;
const WINDOW: u64 = SIGNALS + 4096;
/// The most items of a list.
const MAX_ITEMS: usize = 4096;
/// The most scopes of a launch.
const MAX_SCOPES: usize = 64;
/// The number of which the first index of a new life of a QP is a multiple.
const LAP: u64 = 1 << 16;

/// Device memory of one rank, besides its window.
#[derive(Debug)]
struct Lists {
    items: DeviceMemory,
    /// The ends of the scopes, as kernels store them.
    ends: DeviceMemory,
}

/// Two ranks and their QPs.
#[derive(Debug)]
pub struct Bench {
    /// The two ranks.
    pub pair: Pair,
    lists: [Lists; 2],
    /// The row of the table.
    pub cell: Cell,
    /// The seed of the order in which simt runs the threads of the next kernel.
    pub seed: u64,
    /// The index at which this life of the QPs began.
    pub base: u64,
    /// The number of WQEs and of doorbells that side 0's HCA had seen when this life began.
    pub before: (u64, u64),
    /// The number of WQEBBs of this life that are the second of a WQE.
    pub second_halves: u64,
    /// The number of doorbells that the host had rung when this life began.
    rung_before: u64,
}

impl Bench {
    /// Makes a pair of QPs whose indices begin at `base`, a multiple of 65,536. Each tries `retry` times again to reach a peer that does
    /// not answer.
    pub fn new(cell: Cell, seed: u64, base: u64, retry: u8) -> Self {
        Self::on(Execution::Engine, cell, seed, base, retry)
    }

    /// As `new`, on HCAs whose WQEs are run by `execution`.
    pub fn on(execution: Execution, cell: Cell, seed: u64, base: u64, retry: u8) -> Self {
        let schedule = |side| (seed % 3 == side).then_some(seed);
        let pair = Pair::new(Setup {
            base,
            retry,
            sink: Some(WINDOW - 8),
            schedule_seeds: [schedule(0), schedule(1)],
            execution,
            ..Setup::new(WINDOW, &cell.config())
        });
        let words: Vec<u64> = (0..HALF / 8).map(word).collect();
        pair.ends[0].write_words(0, &words);
        let lists = [0, 1].map(|side: usize| {
            let gpu = &pair.ends[side].node.gpu;
            let alloc = |bytes| gpu.alloc(bytes, 128).unwrap();
            Lists {
                items: alloc(MAX_ITEMS * size_of::<PutItem>()),
                ends: alloc(MAX_SCOPES * size_of::<ConformanceEnd>()),
            }
        });
        Self {
            pair,
            lists,
            cell,
            seed,
            base,
            before: (0, 0),
            second_halves: 0,
            rung_before: 0,
        }
    }

    /// Tells side 0 where side 1's window is. `key_flip` makes the window's key wrong.
    pub fn point(&self, key_flip: u32) {
        self.pair.ends[0].set_peer(&self.pair.ends[1], key_flip);
    }

    /// Returns parameters without an operation for side `side`, with a deadline of 60 s.
    pub fn params(&self, side: usize, items: &[PutItem]) -> ConformanceParams {
        let (end, lists) = (&self.pair.ends[side], &self.lists[side]);
        end.write_at(lists.items.addr(), cast_slice(items));
        ConformanceParams {
            qp: self.pair.qp_of(side),
            peer: end.peer(),
            window: end.window(),
            items: DevicePtr::new(lists.items.addr()),
            count: items.len() as u64,
            signal_offset: SIGNALS,
            deadline_ns: DEADLINE_NS,
            ends: DevicePtr::new(lists.ends.addr()),
            mode: self.cell.config().mode(),
            // The kernel runs until the list has ended, or once without a list.
            rounds: if items.is_empty() { 1 } else { u32::MAX },
            ..ConformanceParams::zeroed()
        }
    }

    /// Starts a kernel of `side`; [`Bench::finish`] waits for it.
    pub fn start(&self, side: usize, kernel: &str, shape: Shape, params: &impl Pod) -> Event {
        let launch = launch(kernel, shape.blocks, shape.threads, self.seed);
        self.pair.ends[side].start(&launch, params)
    }

    /// Waits for a kernel of `side`. Returns how its scopes ended.
    pub fn finish(&self, side: usize, event: &Event, scopes: u32) -> Vec<ConformanceEnd> {
        let end = &self.pair.ends[side];
        end.wait(event);
        end.read(self.lists[side].ends.addr(), scopes as usize)
    }

    /// Runs the kernel of the row on side 0.
    pub fn run(&self, shape: Shape, params: &ConformanceParams) -> Vec<ConformanceEnd> {
        let event = self.start(0, &self.cell.kernel(), shape, params);
        self.finish(0, &event, shape.scopes())
    }

    /// Returns bytes of a side's window.
    pub fn bytes(&self, side: usize, offset: u64, count: u64) -> Vec<u8> {
        self.pair.ends[side].window_at(offset, count.try_into().unwrap())
    }

    /// Returns the context of side 0's QP.
    pub fn context(&self) -> QpContext {
        self.pair.context()
    }

    /// Returns how many doorbells the host has rung for side 0 in this life, if the QP has a mailbox.
    pub fn mailbox_doorbells(&self) -> Option<u64> {
        let rung = self.pair.qps()[0].mailbox_doorbells()?;
        Some(rung - self.rung_before)
    }

    /// Fills side 1's window with zeros.
    pub fn clear(&self) {
        self.pair.ends[1].write(0, &vec![0; usize::try_from(WINDOW).unwrap()]);
    }

    /// Overwrites the targets of `side`.
    pub fn fill_targets(&self, side: usize, words: &[u64]) {
        assert_eq!(words.len() as u64, HALF / 8);
        self.pair.ends[side].write_words(HALF, words);
    }

    /// Overwrites the results of earlier kernels of side 0.
    pub fn forget(&self) {
        let ends = self.lists[0].ends.addr();
        self.pair.ends[0].write_at(ends, &[0xff; size_of::<ConformanceEnd>()]);
    }

    /// Sets or clears the abort word of side 0's QP.
    pub fn abort(&self, set: bool) {
        let word = offset_of!(QpContext, abort);
        self.pair.patch(word, &u32::from(set));
    }

    /// Sets which atomics side 0's device can do. Returns what was set before.
    pub fn set_atomics(&self, bits: u32) -> u32 {
        let before = self.context().atomics;
        self.pair.patch(offset_of!(QpContext, atomics), &bits);
        before
    }

    /// Brings both ends through Err and Reset to a new life, at the next multiple of 65,536.
    pub fn recover(&mut self) {
        self.base = self.context().resv.next_multiple_of(LAP);
        for qp in self.pair.qps() {
            qp.to_error().unwrap();
        }
        self.pair.reset(self.base);
        self.rung_before = self.pair.qps()[0].mailbox_doorbells().unwrap_or(0);
        let counters = self.pair.ends[0].hca.counters();
        self.before = (counters.wqes, counters.doorbells);
        self.second_halves = 0;
    }

    /// Returns what the HCAs found and silicon would not report.
    pub fn findings(&self) -> Vec<String> {
        self.pair.findings()
    }
}
