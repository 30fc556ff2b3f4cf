//! A QP in plain memory, without verbs: context, flags, ring, a register, and a window that is also the peer's window.

// UNSAFETY: the model NIC reads and writes the memory that kernels use, by address, and kernels are launched.
#![expect(unsafe_code, reason = "a device model in plain memory")]
#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

use std::mem::offset_of;
use std::sync::Arc;

use crate::abi::kernels::PutWordsParams;
use bytemuck::{Pod, Zeroable, bytes_of, cast_slice};
use test_basics::limits::HANG;
use warpverbs::abi::{
    DevicePtr, EMPTY_BYTE, MODE_EXCLUSIVE, MODE_MAILBOX, MODE_NO_RECORD, MODE_WIDE_CQ, PeerEntry,
    QpContext, Status, Window, control_bytes, parked,
};
use warpverbs::gpu::{DeviceMemory, Gpu, GpuSelector, Launch};

use crate::device::read;
use crate::kernels::open;
use crate::nic::{Behaviour, Nic, Queue};
use crate::pair::MAX_THREADS;
use crate::words::{DEADLINE_NS, word, wrong_words};

/// The number of the QP.
pub const QPN: u32 = 0x00_1234;
/// The local key of the window.
pub const LKEY: u32 = 0x1111_2222;
/// The key of the window for the peer.
pub const RKEY: u32 = 0x3333_4444;

/// A QP of `depth` WQEBBs, and a window of `words` source words followed by as many target words.
pub struct Ring {
    /// The device on which kernels run, and which has the memory.
    pub gpu: Arc<dyn Gpu>,
    /// The number of WQEBBs.
    pub depth: u32,
    /// The number of source words.
    pub words: usize,
    base: u64,
    mode: u32,
    control: DeviceMemory,
    /// The memory of the doorbell register, and after it the mailbox.
    register: DeviceMemory,
    /// The CQEs of a wide CQ.
    cqes: DeviceMemory,
    window: DeviceMemory,
    peer: DeviceMemory,
    results: DeviceMemory,
}

impl Ring {
    /// Returns a ring whose life begins at index `base`, a multiple of 65,536. Its memory is what the host makes of a QP that leaves Reset.
    pub fn new(depth: u32, words: usize, base: u64, mode: u32) -> Self {
        assert_eq!(base % 65_536, 0, "the NIC counts from 0");
        let gpu = open(GpuSelector::Simt).unwrap();
        let alloc = |bytes: usize| gpu.alloc(bytes, 128).unwrap();
        let ring = Self {
            depth,
            words,
            base,
            mode,
            control: alloc(control_bytes(depth) as usize),
            register: alloc(256),
            cqes: alloc(64 * depth as usize),
            window: alloc(16 * words),
            peer: alloc(size_of::<PeerEntry>()),
            results: alloc(8 * MAX_THREADS),
            gpu,
        };
        let mut image = vec![EMPTY_BYTE; control_bytes(depth) as usize];
        let flag = size_of::<QpContext>() + 8 * (base as usize & (depth as usize - 1));
        image[flag..flag + 8].copy_from_slice(&parked(base).to_ne_bytes());
        image[..size_of::<QpContext>()].copy_from_slice(bytes_of(&ring.context()));
        ring.gpu.write(ring.control.addr(), &image).unwrap();
        let empty = vec![EMPTY_BYTE; 64 * depth as usize];
        ring.gpu.write(ring.cqes.addr(), &empty).unwrap();
        ring.gpu
            .write(ring.register.addr() + 128, &base.to_ne_bytes())
            .unwrap();
        let peer = PeerEntry {
            base: ring.window.addr(),
            rkey_be: RKEY.to_be(),
            rail_life: 0,
        };
        ring.gpu.write(ring.peer.addr(), bytes_of(&peer)).unwrap();
        let source: Vec<u64> = (0..words as u64).map(word).collect();
        ring.gpu
            .write(ring.window.addr(), cast_slice(&source))
            .unwrap();
        ring
    }

    /// Returns a shared ring.
    pub fn shared(depth: u32, words: usize, base: u64) -> Self {
        Self::new(depth, words, base, 0)
    }

    /// Returns an exclusive ring.
    pub fn exclusive(depth: u32, words: usize, base: u64) -> Self {
        Self::new(depth, words, base, MODE_EXCLUSIVE)
    }

    fn has(&self, bit: u32) -> bool {
        self.mode & bit != 0
    }

    fn mailbox(&self) -> u64 {
        self.register.addr() + 128
    }

    fn context(&self) -> QpContext {
        let at = self.control.addr();
        let flags = at + size_of::<QpContext>() as u64;
        let cqe = if self.has(MODE_WIDE_CQ) {
            self.cqes.addr()
        } else {
            at + QpContext::CQE_OFFSET as u64
        };
        let doorbell = if self.has(MODE_MAILBOX) {
            self.mailbox()
        } else {
            self.register.addr()
        };
        QpContext {
            sq: (flags + 8 * u64::from(self.depth)).into(),
            flags: flags.into(),
            dbrec: (at + QpContext::SQ_DBREC_OFFSET as u64).into(),
            doorbell: doorbell.into(),
            cqe: cqe.into(),
            qpn_be: (QPN << 8).to_be(),
            mask: self.depth - 1,
            depth: self.depth,
            mode: self.mode,
            qpn: QPN,
            claim: self.base,
            resv: self.base,
            cons: self.base,
            doorbell_index: self.base,
            base: self.base,
            cqe_line: [EMPTY_BYTE; 128],
            ..QpContext::zeroed()
        }
    }

    /// Starts a NIC on this ring.
    pub fn nic(&self, behaviour: Behaviour) -> Nic {
        let context = self.context();
        let queue = Queue {
            sq: context.sq.addr(),
            depth: self.depth,
            dbrec: context.dbrec.addr(),
            cqe: context.cqe.addr(),
            doorbell: self.register.addr(),
            qpn: QPN,
            first: self.base,
            has_record: !self.has(MODE_NO_RECORD),
            wide_cq: self.has(MODE_WIDE_CQ),
            consumed: self.control.addr() + offset_of!(QpContext, cq_consumed) as u64,
            mailbox: self.has(MODE_MAILBOX).then_some(self.mailbox()),
        };
        // SAFETY: simt's device memory is memory of this process, and every test stops its NIC before it drops the ring.
        unsafe { Nic::start(queue, behaviour) }
    }

    /// Returns the address of the context.
    pub fn qp(&self) -> DevicePtr<QpContext> {
        self.control.addr().into()
    }

    /// Returns the context as it is now.
    pub fn read_context(&self) -> QpContext {
        read(self.gpu.as_ref(), self.control.addr(), 1)[0]
    }

    /// Returns the 64 bytes of WQE `index`.
    pub fn wqe(&self, index: u64) -> [u8; 64] {
        let at = self.context().sq.addr() + (index & u64::from(self.depth - 1)) * 64;
        read::<[u8; 64]>(self.gpu.as_ref(), at, 1)[0]
    }

    /// Changes the context.
    pub fn patch(&self, offset: usize, bytes: &[u8]) {
        self.gpu
            .write(self.control.addr() + offset as u64, bytes)
            .unwrap();
    }

    /// Returns the address of the peer-table entry.
    pub fn peer(&self) -> DevicePtr<PeerEntry> {
        self.peer.addr().into()
    }

    /// Returns this rank's own memory, as kernels take it.
    pub fn window(&self) -> Window {
        Window {
            id: 0,
            lkey_be: LKEY.to_be(),
            base: self.window.addr(),
            bytes: 16 * self.words as u64,
        }
    }

    /// Returns parameters for `count` words of each thread, with a deadline of 60 s.
    pub fn params(&self, count: u32, wait_every: u32) -> PutWordsParams {
        PutWordsParams {
            qp: self.qp(),
            peer: self.peer(),
            window: self.window(),
            src_offset: 0,
            dst_offset: 8 * self.words as u64,
            deadline_ns: DEADLINE_NS,
            status: self.results.addr().into(),
            done: (self.results.addr() + 4 * MAX_THREADS as u64).into(),
            count,
            wait_every,
        }
    }

    /// Runs the kernel of `launch`. Returns how each thread ended and how many words it put.
    pub fn run(&self, launch: &Launch<'_>, params: &impl Pod) -> Vec<(Status, u32)> {
        // SAFETY: the parameters are those of the kernel. They name memory of this ring, which outlives the wait below. The NIC and
        // the kernel share it by the posting protocol.
        let event = unsafe { self.gpu.launch(launch, bytes_of(params)) }.unwrap();
        self.gpu.wait(&event, HANG).unwrap();
        self.results((launch.grid.count() * launch.block.count()) as usize)
    }

    /// Returns what the first `threads` threads stored.
    pub fn results(&self, threads: usize) -> Vec<(Status, u32)> {
        let status = read(self.gpu.as_ref(), self.results.addr(), threads);
        let done = read(
            self.gpu.as_ref(),
            self.results.addr() + 4 * MAX_THREADS as u64,
            threads,
        );
        status.into_iter().zip(done).collect()
    }

    /// Returns where results are stored.
    pub fn status(&self) -> DevicePtr<Status> {
        self.results.addr().into()
    }

    /// Returns the target words.
    pub fn target(&self) -> Vec<u64> {
        read(
            self.gpu.as_ref(),
            self.window.addr() + 8 * self.words as u64,
            self.words,
        )
    }

    /// Returns the positions of target words that differ from their source words.
    pub fn wrong_words(&self) -> Vec<usize> {
        wrong_words(self.target())
    }
}
