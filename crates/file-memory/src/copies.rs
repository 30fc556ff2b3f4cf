//! Copies that the kernel makes, within this process.

// UNSAFETY: the two system calls, and plain copies where a sandbox forbids them.
#![expect(unsafe_code, reason = "copies between addresses")]

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use libc::{c_void, iovec};
use rustix::process::getpid;

/// Bytes of a word, which is copied by itself.
const WORD: usize = 8;

/// The end of a copy at memory that is gone. Bytes before it may have been copied, and so may bytes of other pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A page that was to be read.
    Source,
    /// A page that was to be written, and may not be or is not there.
    Target,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match self {
            Self::Source => "read",
            Self::Target => "written",
        };
        write!(
            f,
            "memory that was to be {which} is gone: its file was truncated, or it was unmapped"
        )
    }
}

/// Copies `bytes` bytes from address `from` to address `to`, which may overlap. The last word of the target is written after all
/// others. No word is written at once: others may see some bytes of it before the rest.
///
/// Where a sandbox forbids both system calls the bytes are copied as ever, so that the process ends where a page is gone.
///
/// # Errors
///
/// [`Gone`]: a page of either range is gone.
///
/// # Safety
///
/// What is mapped of both ranges may be read, and that of the target may be written: no Rust reference to it exists.
pub unsafe fn copy(from: usize, to: usize, bytes: usize) -> Result<(), Gone> {
    if bytes == 0 {
        return Ok(());
    }
    // What would end beyond the last address is not mapped.
    if from.checked_add(bytes).is_none() {
        return Err(Gone::Source);
    }
    if to.checked_add(bytes).is_none() {
        return Err(Gone::Target);
    }
    if is_forbidden() {
        let source = ptr::with_exposed_provenance::<u8>(from);
        // SAFETY: the caller's promise. Nothing says that a page is gone.
        unsafe { ptr::copy(source, ptr::with_exposed_provenance_mut(to), bytes) };
        return Ok(());
    }
    if from.abs_diff(to) < bytes {
        // The kernel goes from page to page, and would read what it has written.
        let mut between = vec![0u8; bytes];
        let middle = between.as_mut_ptr().expose_provenance();
        // SAFETY: `between` is private.
        unsafe { by_kernel(from, middle, bytes) }?;
        // SAFETY: the caller's promise.
        return unsafe { in_order(middle, to, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { in_order(from, to, bytes) }
}

/// Copies ranges that do not overlap: the last word of the target by itself, after the rest.
///
/// # Safety
///
/// As [`copy`].
unsafe fn in_order(from: usize, to: usize, bytes: usize) -> Result<(), Gone> {
    // From the last word's boundary on.
    let last = bytes - ((to + bytes - 1) % WORD + 1).min(bytes);
    // SAFETY: the caller's promise, for parts of the ranges.
    unsafe { by_kernel(from, to, last) }?;
    // The kernel's stores, too: it works on this CPU.
    fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { by_kernel(from + last, to + last, bytes - last) }?;
    fence(Ordering::SeqCst);
    Ok(())
}

/// One call of the kernel.
///
/// # Safety
///
/// As [`copy`].
unsafe fn by_kernel(from: usize, to: usize, bytes: usize) -> Result<(), Gone> {
    let mut done = 0;
    while done < bytes {
        // SAFETY: the kernel checks both ranges; that it may write the target is the caller's promise.
        let copied = unsafe { write(from + done, to + done, bytes - done) };
        match usize::try_from(copied) {
            Ok(copied) if copied > 0 => done += copied,
            _ => {
                let mut byte = 0u8;
                let here = (&raw mut byte).expose_provenance();
                // SAFETY: one byte of ours is written.
                return match unsafe { write(from + done, here, 1) } {
                    1 => Err(Gone::Target),
                    _ => Err(Gone::Source),
                };
            }
        }
    }
    Ok(())
}

/// # Safety
///
/// What is mapped of the target may be written.
unsafe fn write(from: usize, to: usize, bytes: usize) -> isize {
    let span = |first| iovec {
        iov_base: ptr::with_exposed_provenance_mut::<c_void>(first),
        iov_len: bytes,
    };
    let (local, remote) = (span(from), span(to));
    let this = getpid().as_raw_nonzero().get();
    // SAFETY: the kernel checks both ranges and faults for us; the target is the caller's promise.
    unsafe { libc::process_vm_writev(this, &raw const local, 1, &raw const remote, 1, 0) }
}

/// Whether a sandbox (seccomp) forbids the calls.
fn is_forbidden() -> bool {
    const UNKNOWN: u8 = 0;
    const ALLOWED: u8 = 1;
    const FORBIDDEN: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    let mut state = STATE.load(Ordering::Relaxed);
    if state == UNKNOWN {
        let (mut source, mut target) = (1u8, 0u8);
        let [from, to] = [&raw mut source, &raw mut target].map(|it| it.expose_provenance());
        // SAFETY: two bytes of ours.
        let copied = unsafe { write(from, to, 1) };
        state = if copied == 1 { ALLOWED } else { FORBIDDEN };
        STATE.store(state, Ordering::Relaxed);
    }
    state == FORBIDDEN
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use test_basics::mapped::MappedFile;

    use super::*;
    use crate::Mappings;

    const PAGE: usize = 4096;

    /// A file without a name, and where it is mapped.
    struct Mapped {
        mapping: MappedFile,
        first: usize,
    }

    impl Mapped {
        fn new(bytes: usize, how: i32) -> Self {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = File::from(memfd_create("mapped", flags).unwrap());
            file.set_len(bytes as u64).unwrap();
            let mapping = MappedFile::new(file, how);
            let first = mapping.first().expose_provenance();
            Self { mapping, first }
        }

        /// Bytes that are there.
        fn bytes(&self, at: usize, bytes: usize) -> Vec<u8> {
            let mut out = vec![0; bytes];
            let source = ptr::with_exposed_provenance(self.first + at);
            // SAFETY: the caller names what is mapped and in the file.
            unsafe { ptr::copy_nonoverlapping::<u8>(source, out.as_mut_ptr(), bytes) };
            out
        }
    }

    fn at(bytes: &mut [u8]) -> usize {
        bytes.as_mut_ptr().expose_provenance()
    }

    #[test]
    fn bytes_arrive_at_any_length_and_alignment_also_where_ranges_overlap() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = vec![0u8; 4 * PAGE];
        random.fill(&mut bytes);
        let first = at(&mut bytes);
        let mut expected = bytes.clone();
        for round in 0..2000 {
            let count = match round % 3 {
                0 => random.usize(0..40),
                _ => random.usize(0..3 * PAGE),
            };
            let [from, to] = [(); 2].map(|()| random.usize(0..=4 * PAGE - count));
            // SAFETY: both ranges lie in `bytes`, which nothing else uses meanwhile.
            unsafe { copy(first + from, first + to, count) }.unwrap();
            expected.copy_within(from..from + count, to);
            assert!(
                bytes == expected,
                "seed {seed} round {round}: {count} from {from} to {to}"
            );
        }
    }

    #[test]
    fn a_page_that_a_truncated_file_lacks_is_an_error_of_its_side() {
        for how in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
            let mapped = Mapped::new(4 * PAGE, how);
            assert!(Mappings::now().may_shrink(mapped.first as u64, 1));
            let mut own = vec![7u8; 4 * PAGE];
            let own = at(&mut own);
            // SAFETY: here and below both ranges are of this test, which has no references to them.
            unsafe { copy(own, mapped.first, 4 * PAGE) }.unwrap();
            // Within a page: the rest of it is there, and zero.
            mapped.mapping.file.set_len(PAGE as u64 + 100).unwrap();
            let gone = mapped.first + 2 * PAGE;
            for bytes in [1, 8, 9, 100, 2 * PAGE] {
                // SAFETY: as above.
                unsafe {
                    assert_eq!(copy(own, gone, bytes), Err(Gone::Target), "{bytes}");
                    assert_eq!(copy(gone, own, bytes), Err(Gone::Source), "{bytes}");
                    assert_eq!(copy(gone - 8, own, bytes + 8), Err(Gone::Source));
                    assert_eq!(copy(gone, gone + 64, bytes.min(64)), Err(Gone::Source));
                    copy(own, gone - bytes, bytes).unwrap();
                }
            }
            assert_eq!(mapped.bytes(0, 2 * PAGE), [7; 2 * PAGE]);
            mapped.mapping.file.set_len(0).unwrap();
            // SAFETY: as above.
            unsafe {
                let last = usize::MAX - 3;
                assert_eq!(copy(last, own, 8), Err(Gone::Source));
                assert_eq!(copy(own, last, 8), Err(Gone::Target));
                assert_eq!(copy(own, mapped.first, 1), Err(Gone::Target));
                assert_eq!(copy(mapped.first, own, 0), Ok(()));
            }
        }
    }

    #[test]
    fn a_sealed_file_cannot_shrink_and_memory_without_file_neither() {
        let mapped = Mapped::new(PAGE, libc::MAP_SHARED);
        fcntl_add_seals(&mapped.mapping.file, SealFlags::SHRINK).unwrap();
        assert!(!Mappings::now().may_shrink(mapped.first as u64, PAGE as u64));
        let mut own = vec![0u8; 10 * PAGE];
        assert!(!Mappings::now().may_shrink(at(&mut own) as u64, 10 * PAGE as u64));
        // SAFETY: a new mapping without file, which ends at once.
        let shared = unsafe {
            let (rights, how) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let first = libc::mmap(ptr::null_mut(), PAGE, rights, how, -1, 0);
            assert_ne!(first, libc::MAP_FAILED);
            let found = Mappings::now().may_shrink(first.addr() as u64, PAGE as u64);
            libc::munmap(first, PAGE);
            found
        };
        assert!(!shared);
    }
}
