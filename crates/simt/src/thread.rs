//! One CUDA thread: its context for kernels, its coroutine, and the pointer to the thread that runs now.

// UNSAFETY: shares `Ctx` with compiled kernels and runs them on coroutine stacks.
#![expect(
    unsafe_code,
    reason = "the C++ side reads Ctx through a thread-local pointer; coroutines run foreign code"
)]

pub(crate) mod stack;

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::coordinates::{Dim3, ThreadId};
use stack::SlabStack;

/// The context that kernels see: `struct simt_ctx` in `include/simt/runtime.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ctx {
    pub(crate) thread: Dim3,
    pub(crate) block: Dim3,
    pub(crate) block_dim: Dim3,
    pub(crate) grid_dim: Dim3,
    pub(crate) lane: u16,
    pub(crate) warp: u16,
    /// The number of schedule points left before one that switches. Compiled kernels count it down.
    pub(crate) credit: i32,
    /// The dynamic shared memory of the block.
    pub(crate) shared: *mut u8,
}

const _: () = assert!(size_of::<Ctx>() == 64 && std::mem::offset_of!(Ctx, credit) == 52);

/// One CUDA thread. All fields are cells: kernels reach them through raw pointers while the scheduler holds a reference. `W` is the type of
/// warps, which know their threads.
#[repr(C, align(64))]
pub(crate) struct Thread<W> {
    /// The context. It is the first field, so that a pointer to the context is a pointer to the thread.
    ctx: Cell<Ctx>,
    /// The warp of the thread. It lives as long as the thread, in the same seat.
    warp: Cell<*const W>,
    /// The yielder of the coroutine, once the coroutine has started.
    yielder: Cell<*const Yielder<(), ()>>,
    /// The number of schedule points passed since the last poll, saturating.
    since_poll: Cell<u32>,
    /// About how far below `yielder` the stack ended when the thread switched away.
    depth: Cell<u32>,
    coroutine: UnsafeCell<Option<Coroutine<(), (), (), SlabStack>>>,
    /// The thread's number for the checker. 0 while it has none.
    #[cfg(feature = "tsan")]
    slot: Cell<u32>,
}

#[cfg(not(any(feature = "tsan", feature = "asan")))]
const _: () = assert!(size_of::<Thread<()>>() == 128, "two cache lines");

unsafe extern "C" {
    /// Returns the address of this OS thread's `simt_cur_tls` (runtime/current.c).
    safe fn simt_cur_slot() -> *mut *const Ctx;
}

/// Returns the CUDA thread that this OS thread runs now.
///
/// # Safety
/// Each CUDA thread that runs in this process is a `Thread<W>`.
#[inline(always)]
pub(crate) unsafe fn current<'a, W: 'a>() -> Option<&'a Thread<W>> {
    // SAFETY: null, or set by `Thread::resume` to the context of a thread, of this type by this function's contract. The context is
    // the thread's first field and stays in its seat until the launch ends. Only code running on that thread's coroutine can get here.
    unsafe { current_ctx().cast::<Thread<W>>().as_ref() }
}

/// Returns whether this OS thread runs a CUDA thread now.
pub(crate) fn is_inside() -> bool {
    !current_ctx().is_null()
}

/// Returns the value of `simt_cur_tls`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn current_ctx() -> *const Ctx {
    let ctx;
    // SAFETY: reads a thread-local that runtime/current.c defines, in the way that a compiler does for the initial-exec model
    // (x86-64 psABI, "Thread-Local Storage"). A call of `simt_cur_slot` per schedule point is a fifth of its cost.
    unsafe {
        std::arch::asm!(
            "mov {ctx}, qword ptr [rip + simt_cur_tls@GOTTPOFF]",
            "mov {ctx}, qword ptr fs:[{ctx}]",
            ctx = out(reg) ctx,
            options(nostack, preserves_flags, readonly),
        );
    }
    ctx
}

/// Returns the value of `simt_cur_tls`.
#[cfg(not(target_arch = "x86_64"))]
fn current_ctx() -> *const Ctx {
    // SAFETY: a thread-local that only this OS thread uses.
    unsafe { *simt_cur_slot() }
}

/// The place where this OS thread stores the thread that it runs. It is fetched once per worker.
#[derive(Clone, Copy)]
pub(crate) struct CurrentSlot(*mut *const Ctx);

impl CurrentSlot {
    pub(crate) fn of_this_os_thread() -> Self {
        Self(simt_cur_slot())
    }

    /// Notes that this OS thread runs no CUDA thread.
    pub(crate) fn clear(self) {
        // SAFETY: the slot of this OS thread: a worker never leaves the OS thread that made it.
        unsafe { *self.0 = ptr::null() };
    }
}

impl<W> Thread<W> {
    pub(crate) fn new(ctx: Ctx) -> Self {
        Self {
            ctx: Cell::new(ctx),
            warp: Cell::new(ptr::null()),
            yielder: Cell::new(ptr::null()),
            since_poll: Cell::new(0),
            depth: Cell::new(0),
            coroutine: UnsafeCell::new(None),
            #[cfg(feature = "tsan")]
            slot: Cell::new(0),
        }
    }

    /// Ties the thread to its warp. It is called once, when the seat is built. Both stay where they are until the seat is dropped.
    pub(crate) fn set_warp(&self, warp: &W) {
        self.warp.set(warp);
    }

    #[inline(always)]
    pub(crate) fn warp(&self) -> &W {
        // SAFETY: set by `set_warp` to a warp of the same seat, which outlives `self`.
        unsafe { &*self.warp.get() }
    }

    #[inline(always)]
    pub(crate) fn lane(&self) -> u32 {
        // SAFETY: reads a field of a cell that is not borrowed; a copy of the whole context would cost a cache line.
        u32::from(unsafe { (*self.ctx.as_ptr()).lane })
    }

    /// Takes the thread into the block at `block`, with this shared memory.
    pub(crate) fn enter(&self, block: Dim3, shared: *mut u8) {
        self.ctx.set(Ctx {
            block,
            shared,
            ..self.ctx.get()
        });
    }

    /// Lets the thread pass `loads` schedule points before one that switches.
    #[inline(always)]
    pub(crate) fn set_credit(&self, loads: u32) {
        // SAFETY: writes a field of a cell that is not borrowed.
        unsafe { (*self.ctx.as_ptr()).credit = loads.cast_signed() };
    }

    pub(crate) fn id(&self) -> ThreadId {
        let Ctx {
            block, warp, lane, ..
        } = self.ctx.get();
        ThreadId {
            block,
            warp: warp.into(),
            lane: lane.into(),
        }
    }

    /// Returns the thread's number for the checker, while the thread runs.
    #[cfg(feature = "tsan")]
    pub(crate) fn slot(&self) -> Option<u32> {
        Some(self.slot.get()).filter(|slot| *slot != 0)
    }

    /// Reports to the checker that the thread of this context begins, in launch number `launch` of `kernel` on GPU number `device`.
    #[cfg(feature = "tsan")]
    pub(crate) fn begin_checked(&self, kernel: &'static str, launch: u64, device: u32) {
        let slot = crate::check::begin_thread(kernel, self.id(), launch, device);
        self.slot.set(slot);
    }

    /// Reports to the checker that the thread has ended or was abandoned. A second call does nothing.
    #[cfg(feature = "tsan")]
    pub(crate) fn end_checked(&self) {
        let slot = self.slot.replace(0);
        if slot != 0 {
            crate::check::end_thread(slot);
        }
    }

    /// Returns the upper end of the part of its stack that kernels use.
    #[cfg(feature = "tsan")]
    pub(crate) fn stack_root(&self) -> u64 {
        self.yielder.get().addr() as u64
    }

    /// Prepares the thread to run `kernel` from its start, on `stack`.
    pub(crate) fn start(&self, stack: SlabStack, kernel: impl FnOnce(&Self) + 'static)
    where
        W: 'static,
    {
        self.since_poll.set(0);
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            // SAFETY: this is the coroutine of a thread of this type, and `resume` has stored the thread that it runs.
            let Some(me) = (unsafe { current::<W>() }) else {
                return;
            };
            me.yielder.set(yielder);
            kernel(me);
        });
        // SAFETY: the thread is not running (it has ended or never began), so no code looks at the cell.
        unsafe { *self.coroutine.get() = Some(coroutine) };
    }

    /// Notes a poll.
    #[inline(always)]
    pub(crate) fn polled(&self) {
        self.since_poll.set(0);
    }

    /// Counts a schedule point that is no poll. Returns how many the thread has passed since its last poll.
    #[inline(always)]
    pub(crate) fn count_step(&self) -> u32 {
        let steps = self.since_poll.get().saturating_add(1);
        self.since_poll.set(steps);
        steps
    }

    /// Runs the thread until its next switch. Returns true if its kernel has returned.
    #[inline(always)]
    pub(crate) fn resume(&self, slot: CurrentSlot) -> bool {
        // SAFETY: the slot of this OS thread, see `CurrentSlot::clear`.
        unsafe { *slot.0 = ptr::from_ref(self).cast::<Ctx>() };
        // SAFETY: only the scheduler touches the cell, and not from within a coroutine.
        match unsafe { &mut *self.coroutine.get() } {
            Some(coroutine) => matches!(coroutine.resume(()), CoroutineResult::Return(())),
            None => true,
        }
    }

    /// Fetches the end of the stack, which `resume` touches first, while another thread runs. It halves the cost of a switch among some
    /// thousand threads.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let end = self
                .yielder
                .get()
                .cast::<i8>()
                .wrapping_sub(self.depth.get() as usize);
            // SAFETY: a prefetch is a hint; it faults at no address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(end);
                _mm_prefetch::<_MM_HINT_T0>(end.wrapping_add(64));
            }
        }
    }

    /// Switches back to the scheduler. The caller runs on this thread's own coroutine.
    #[inline(always)]
    pub(crate) fn suspend(&self) {
        let here = 0u8;
        // The value is truncated for a stack of 4 GiB or more, which `Shape` does not allow. It is only a hint.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a distance within one stack"
        )]
        self.depth
            .set((self.yielder.get() as usize).wrapping_sub(&raw const here as usize) as u32);
        // SAFETY: set when the coroutine started; it lives at the root of the stack that this call runs on.
        unsafe { (*self.yielder.get()).suspend(()) };
    }

    /// Switches away for good, since the launch has failed: unwinding could meet a `noexcept` frame and abort the process.
    #[cold]
    pub(crate) fn leave(&self) -> ! {
        loop {
            self.suspend();
        }
    }

    /// Discards the coroutine. Nothing on its stack is dropped.
    pub(crate) fn abandon(&self) {
        // SAFETY: called by the scheduler between switches, so the coroutine does not run.
        let coroutine = unsafe { &mut *self.coroutine.get() };
        if let Some(mut coroutine) = coroutine.take() {
            // SAFETY: frames of kernels hold nothing whose destructor safety depends on (documented on `LaunchError`); our own
            // frames below them hold plain values.
            unsafe { coroutine.force_reset() };
        }
    }
}
