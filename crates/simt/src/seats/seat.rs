//! A seat: what one resident block needs (threads, warps, stacks, shared memory). After its block has ended, the next block takes it.

// UNSAFETY: warps and threads of a seat point at each other and at it; kernels run as its threads, and write the shared memory.
#![expect(
    unsafe_code,
    reason = "the end of the shared memory is read back after kernels wrote near it"
)]

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::config::{Shape, WARP_LANES};
use crate::coordinates::{Dim3, ThreadId};
use crate::error::LaunchError;
use crate::kernel::Call;
use crate::thread::stack::SlabStack;
use crate::thread::{self, Ctx, Thread};
use crate::turns::Turns;
use crate::warp::Warp;
use crate::warp::op::Op;

/// 128 bytes of shared memory, the alignment that kernels may rely on.
#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Line([u8; 128]);

/// The lines of static shared memory, which is in front of the dynamic one: `kStaticShared` of include/simt/keywords.h.
const STATIC_LINES: usize = 32;

/// The bytes that shared memory holds when a block starts, and that lie after its end.
const FRESH: Line = Line([0xa5; 128]);

/// A warp of a seat, and a thread of such a warp. No others are made.
pub(crate) type SeatedWarp = Warp<Seat>;
pub(crate) type SeatedThread = Thread<SeatedWarp>;

/// Returns the CUDA thread that this OS thread runs now.
#[inline(always)]
pub(crate) fn current<'a>() -> Option<&'a SeatedThread> {
    // SAFETY: only seats make threads, and theirs have this type.
    unsafe { thread::current() }
}

/// The room for one block.
pub(crate) struct Seat {
    shape: Shape,
    position: Cell<Dim3>,
    /// The number of threads that have not exited. 0 while the seat is free.
    live: Cell<u32>,
    /// The number of threads at the barrier, all in `barrier`. `yes` of them have a predicate that is not zero.
    arrived: Cell<u32>,
    yes: Cell<u32>,
    barrier: Cell<Op>,
    /// The result of the last barrier. No thread can complete the next barrier before all have read it.
    result: Cell<u32>,
    warps: Box<[SeatedWarp]>,
    threads: Box<[SeatedThread]>,
    stacks: Box<[SlabStack]>,
    /// The static shared memory, then the dynamic. The unused tail and a whole line after it stay `FRESH`.
    shared: Box<[UnsafeCell<Line>]>,
}

impl Seat {
    /// Returns a free seat with the given stacks, one per thread.
    pub(crate) fn new(shape: Shape, stacks: Box<[SlabStack]>) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a block has at most 1024 threads"
        )]
        let ctx = |index: u32| Ctx {
            thread: shape.block.position(index),
            block: Dim3 { x: 0, y: 0, z: 0 },
            block_dim: shape.block,
            grid_dim: shape.grid,
            lane: (index % WARP_LANES) as u16,
            warp: (index / WARP_LANES) as u16,
            credit: 0,
            shared: ptr::null_mut(),
        };
        let lanes = |warp: u32| match shape.threads - warp * WARP_LANES {
            lanes @ 1..WARP_LANES => (1 << lanes) - 1,
            _ => u32::MAX,
        };
        Self {
            shape,
            position: Cell::new(Dim3 { x: 0, y: 0, z: 0 }),
            live: Cell::new(0),
            arrived: Cell::new(0),
            yes: Cell::new(0),
            barrier: Cell::new(Op::SYNC),
            result: Cell::new(0),
            warps: (0..shape.threads.div_ceil(WARP_LANES))
                .map(|warp| Warp::new(warp, lanes(warp)))
                .collect(),
            threads: (0..shape.threads)
                .map(|index| Thread::new(ctx(index)))
                .collect(),
            stacks,
            shared: vec![FRESH; STATIC_LINES + shape.shared_bytes.div_ceil(128) + 1]
                .into_iter()
                .map(UnsafeCell::new)
                .collect(),
        }
    }

    /// Makes threads, warps, seat and the turns of the worker known to each other. It is called once, when the seat has its final address.
    pub(crate) fn set_owner(&self, turns: &Turns<SeatedWarp>) {
        for (warp, threads) in self
            .warps
            .iter()
            .zip(self.threads.chunks(WARP_LANES as usize))
        {
            warp.set_owner(turns, self, threads);
            threads.iter().for_each(|thread| thread.set_warp(warp));
        }
    }

    /// Seats block number `index`: all its threads are ready to run from the start of the kernel. `loads` returns how many schedule points
    /// a thread passes before its first switch.
    pub(crate) fn start(&self, index: u32, call: Call, loads: impl Fn() -> u32) {
        let position = self.shape.grid.position(index);
        self.position.set(position);
        self.live.set(self.shape.threads);
        self.arrived.set(0);
        self.yes.set(0);
        for line in &self.shared {
            // SAFETY: the seat is free, so no kernel thread that could use the memory exists.
            unsafe { *line.get() = FRESH };
        }
        let dynamic = self.shared.as_ptr().wrapping_add(STATIC_LINES);
        let shared = UnsafeCell::raw_get(dynamic).cast::<u8>();
        #[cfg(feature = "tsan")]
        crate::check::forget(self.shared_range().start, size_of_val(&*self.shared) as u64);
        for (thread, &stack) in self.threads.iter().zip(&self.stacks) {
            thread.enter(position, shared);
            thread.set_credit(loads());
            thread.start(stack, move |me: &SeatedThread| run(me, call));
            #[cfg(feature = "tsan")]
            {
                let launch = thread.warp().turns().launch().number();
                thread.begin_checked(self.shape.name, launch, self.shape.device);
            }
        }
        for warp in &self.warps {
            warp.reset();
        }
    }

    /// Returns whether a block has this seat.
    pub(crate) fn is_taken(&self) -> bool {
        self.live.get() > 0
    }

    /// Returns the addresses of all shared memory.
    #[cfg(feature = "tsan")]
    pub(crate) fn shared_range(&self) -> std::ops::Range<u64> {
        let start = self.shared.as_ptr().addr() as u64;
        start..start + size_of_val(&*self.shared) as u64
    }

    /// Returns the number of threads that have not exited.
    pub(crate) fn live(&self) -> u32 {
        self.live.get()
    }

    /// Returns the number of threads at the barrier of the block.
    pub(crate) fn arrived(&self) -> u32 {
        self.arrived.get()
    }

    /// Returns the name of the barrier in which these threads are.
    pub(crate) fn barrier_name(&self) -> &'static str {
        self.barrier.get().name()
    }

    pub(crate) fn warps(&self) -> &[SeatedWarp] {
        &self.warps
    }

    pub(crate) fn thread_id(&self, warp: u32, lane: u32) -> ThreadId {
        ThreadId {
            block: self.position.get(),
            warp,
            lane,
        }
    }

    /// Lets the calling thread wait at the barrier of the block until all living threads have come. Returns the result of the barrier.
    #[inline(always)]
    pub(crate) fn meet(&self, me: &SeatedThread, op: Op, predicate: u32) -> u32 {
        let warp = me.warp();
        if !op.is_block() || (self.arrived.get() > 0 && self.barrier.get() != op) {
            self.refuse(me, op);
        }
        self.barrier.set(op);
        self.arrived.set(self.arrived.get() + 1);
        self.yes.set(self.yes.get() + u32::from(predicate != 0));
        warp.turns().count_meeting();
        if self.arrived.get() == self.live.get() {
            self.open_barrier();
        } else {
            warp.wait_at_barrier(me);
        }
        self.result.get()
    }

    #[cold]
    fn refuse(&self, me: &SeatedThread, op: Op) -> ! {
        let (thread, arrived, barrier) = (me.id(), self.arrived.get(), self.barrier.get());
        me.warp().fail(me, move || {
            if !op.is_block() {
                return LaunchError::Panic {
                    thread,
                    message: format!("simt_block_op {} does not exist", op.0),
                };
            }
            let conflict = format!("{arrived} threads of the block wait in {}", barrier.name());
            LaunchError::MaskMismatch {
                thread,
                operation: op.name(),
                mask: 0,
                conflict,
            }
        })
    }

    fn open_barrier(&self) {
        let (arrived, yes) = (self.arrived.replace(0), self.yes.replace(0));
        self.result.set(match self.barrier.get() {
            Op::SYNC_COUNT => yes,
            Op::SYNC_AND => u32::from(yes == arrived),
            Op::SYNC_OR => u32::from(yes != 0),
            _ => 0,
        });
        #[cfg(feature = "tsan")]
        {
            let slots = self.threads.iter().filter_map(SeatedThread::slot);
            let slots: Vec<u32> = slots.collect();
            crate::check::meet_block(&slots);
        }
        self.warps.iter().for_each(SeatedWarp::leave_barrier);
    }

    /// Notes that the kernel of this thread has returned. An exited thread counts as arrived at every barrier of the block, as on the
    /// hardware. In a meeting of its warp it is missing.
    pub(crate) fn exit(&self, thread: &SeatedThread) -> Result<(), LaunchError> {
        let id = thread.id();
        if !self.stacks[(id.warp * WARP_LANES + id.lane) as usize].is_intact() {
            return Err(self.overflow(id));
        }
        #[cfg(feature = "tsan")]
        thread.end_checked();
        thread.warp().exit(id.lane)?;
        self.live.set(self.live.get() - 1);
        if self.live.get() == 0 {
            return self.check_shared();
        }
        if self.arrived.get() == self.live.get() {
            self.open_barrier();
        }
        Ok(())
    }

    fn overflow(&self, thread: ThreadId) -> LaunchError {
        LaunchError::StackOverflow {
            thread,
            stack_bytes: self.shape.stack_bytes,
        }
    }

    fn check_shared(&self) -> Result<(), LaunchError> {
        let bytes = self.shared.iter().flat_map(|line| {
            // SAFETY: the block's last thread has exited, so no thread writes; `Line` is plain bytes.
            unsafe { *line.get() }.0
        });
        if bytes
            .skip(STATIC_LINES * size_of::<Line>() + self.shape.shared_bytes)
            .any(|byte| byte != FRESH.0[0])
        {
            let (block, shared_bytes) = (self.position.get(), self.shape.shared_bytes);
            return Err(LaunchError::SharedOverflow {
                block,
                shared_bytes,
            });
        }
        Ok(())
    }

    /// Drops the threads that are left, after a failure. Returns damage that explains the failure better than the first error (an
    /// overflowed stack).
    pub(crate) fn abandon(&self) -> Option<LaunchError> {
        let mut damage = None;
        for (thread, stack) in self.threads.iter().zip(&self.stacks) {
            thread.abandon();
            #[cfg(feature = "tsan")]
            thread.end_checked();
            if !stack.is_intact() {
                stack.write_canary(); // the stack goes back to the pool
                damage.get_or_insert_with(|| self.overflow(thread.id()));
            }
        }
        damage
    }
}

/// Runs the kernel as thread `me`. A panic of it ends the launch.
fn run(me: &SeatedThread, call: Call) {
    // SAFETY: the caller of `launch` answers for entry and arguments.
    let kernel = || unsafe { call.run() };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(kernel)) {
        let (thread, message) = (me.id(), panic_text(&*panic));
        drop(panic); // before the thread is abandoned
        me.warp()
            .fail(me, move || LaunchError::Panic { thread, message });
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without a text".to_owned(),
    }
}
