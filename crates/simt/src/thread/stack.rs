//! Stacks of CUDA threads, cut out of one mapping, each with canary words at its low end.
//!
//! With a mapping per stack, half as many threads as the kernel's limit of 65,530 mappings would reach that limit, and a stack would cost 7
//! µs instead of 0.1. So no guard page lies between stacks. The canary shows that a thread wrote past its stack when the thread ends (or
//! when the launch fails). Only the lowest stack has a page below it that faults.
//!
//! Slabs are kept for the next launch, since most of the cost of a stack is the first touch of its pages.

// UNSAFETY: maps memory and hands out stack pointers into it.
#![expect(unsafe_code, reason = "mmap, and the Stack trait of corosensei")]

use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use corosensei::stack::{Stack, StackPointer};

use crate::error::LaunchError;

const PAGE: usize = 4096;
/// The number of canary words at the low end of a stack.
const CANARY_WORDS: usize = 32;
const CANARY_BYTES: usize = CANARY_WORDS * 8;
/// The bytes that are added to the size of a stack, a multiple of the page. With them and the canary, the tops of successive stacks lie 384
/// bytes apart modulo a page. So the hot lines of a warp spread over the cache sets.
const COLOUR_BYTES: usize = 128;
/// The most stacks that idle slabs hold together. Slabs beyond that are unmapped.
const POOLED_STACKS: usize = 16_384;

static POOL: Mutex<Vec<Slab>> = Mutex::new(Vec::new());

/// A mapping that holds a number of stacks of one size.
pub(crate) struct Slab {
    base: NonNull<u8>,
    mapped: usize,
    /// The bytes of address space per stack.
    stride: usize,
    stacks: usize,
}

// SAFETY: a slab is plain memory without an owner thread.
unsafe impl Send for Slab {}

impl Slab {
    /// Returns a slab of stacks of `stack_bytes` each: an idle slab with room for at least `fewest` stacks, preferably `wanted`, else a new
    /// mapping for `wanted`.
    pub(crate) fn take(
        fewest: usize,
        wanted: usize,
        stack_bytes: usize,
    ) -> Result<Self, LaunchError> {
        let stride = stack_bytes.next_multiple_of(PAGE) + CANARY_BYTES + COLOUR_BYTES;
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |(_, slab): &(usize, &Self)| slab.stride == stride && slab.stacks >= fewest;
        // The smallest slab with at least `wanted` stacks, or else the largest.
        let size =
            |(_, slab): &(usize, &Self)| (slab.stacks < wanted, slab.stacks.abs_diff(wanted));
        if let Some((i, _)) = pool.iter().enumerate().filter(fits).min_by_key(size) {
            return Ok(pool.swap_remove(i));
        }
        drop(pool);
        Self::map(wanted, stride)
    }

    /// Keeps the slab for a later launch, or unmaps it.
    pub(crate) fn put_back(self) {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = pool.iter().map(|slab| slab.stacks).sum();
        if held + self.stacks <= POOLED_STACKS {
            pool.push(self);
        }
    }

    fn map(stacks: usize, stride: usize) -> Result<Self, LaunchError> {
        let mapped = PAGE + stacks * stride; // one page below the lowest stack
        let refused = || LaunchError::Resources {
            what: format!("{mapped} bytes of stacks for {stacks} threads"),
            source: io::Error::last_os_error(),
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(refused());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(refused)?;
        let slab = Self {
            base,
            mapped,
            stride,
            stacks,
        };
        // SAFETY: the first page of the mapping made above, which nothing uses.
        if unsafe { libc::mprotect(base.as_ptr().cast(), PAGE, libc::PROT_NONE) } != 0 {
            return Err(refused());
        }
        // SAFETY: as above. Threads use the ends of their stacks only; a huge page would make all of them resident.
        unsafe { libc::madvise(base.as_ptr().cast(), mapped, libc::MADV_NOHUGEPAGE) };
        for i in 0..stacks {
            slab.stack(i).write_canary();
        }
        Ok(slab)
    }

    /// Returns the number of stacks.
    pub(crate) fn len(&self) -> usize {
        self.stacks
    }

    /// Returns stack number `index` < `len()`.
    pub(crate) fn stack(&self, index: usize) -> SlabStack {
        assert!(index < self.stacks, "stack {index} of {}", self.stacks);
        // The canary of a stack shares a page with the top of the stack below it, which is touched anyway.
        let low = self.base.as_ptr() as usize + PAGE + index * self.stride;
        SlabStack {
            low,
            high: low + self.stride,
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; stacks are used only while their slab is held.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// One stack of a slab: `[low, high)`. Its lowest words are the canary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlabStack {
    low: usize,
    high: usize,
}

impl SlabStack {
    /// Returns the canary word at `address`. It differs from word to word, so that a copy at another address does not pass.
    fn word(address: usize) -> u64 {
        0x5af0_57ac_c0de_d00d ^ (address as u64).rotate_left(20)
    }

    fn canary(self) -> impl Iterator<Item = *mut u64> {
        (0..CANARY_WORDS).map(move |i| (self.low + i * 8) as *mut u64)
    }

    pub(crate) fn write_canary(self) {
        for word in self.canary() {
            // SAFETY: the canary lies inside the slab's mapping, 8-byte aligned, and is no thread's to use.
            unsafe { word.write_volatile(Self::word(word as usize)) };
        }
    }

    /// Returns whether the canary is whole.
    pub(crate) fn is_intact(self) -> bool {
        // SAFETY: as in `write_canary`; volatile, since an overflow wrote after the compiler's back.
        self.canary()
            .all(|word| unsafe { word.read_volatile() } == Self::word(word as usize))
    }
}

// SAFETY: `[low, high)` is mapped for as long as the slab is held, 16-byte aligned and at least 8 KiB. The canary replaces the
// guard page that the trait asks for. An overflow may damage the stack below before it is reported (module text).
unsafe impl Stack for SlabStack {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.high).unwrap_or(StackPointer::MIN)
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.low + CANARY_BYTES).unwrap_or(StackPointer::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_do_not_overlap_and_are_as_large_as_asked() {
        let slab = Slab::map(100, (32 << 10) + 384).unwrap();
        for i in 0..100 {
            let stack = slab.stack(i);
            assert!(
                stack.base().get() - stack.limit().get() >= 32 << 10,
                "stack {i}"
            );
            assert_eq!(stack.base().get() % 16, 0);
            assert_eq!(stack.limit().get() % 16, 0);
            assert!(i == 0 || slab.stack(i - 1).high == stack.low);
        }
    }

    #[test]
    fn a_write_to_any_canary_word_is_seen() {
        let slab = Slab::map(2, (32 << 10) + 384).unwrap();
        let stack = slab.stack(1);
        for word in stack.canary() {
            assert!(stack.is_intact());
            // SAFETY: a canary word of a stack that no coroutine uses.
            unsafe { word.write(0) };
            assert!(!stack.is_intact());
            stack.write_canary();
        }
    }

    #[test]
    fn a_slab_serves_again_after_it_was_put_back() {
        let slab = Slab::take(3, 3, 100 << 10).unwrap();
        let base = slab.base;
        slab.put_back();
        let again = Slab::take(2, 50, 100 << 10).unwrap();
        assert_eq!(again.base, base);
        assert_eq!(again.len(), 3);
    }
}
