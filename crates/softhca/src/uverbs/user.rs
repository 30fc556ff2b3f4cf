//! Copies from and to the memory of the program that makes the calls, with the checks that a kernel makes. That memory is never
//! dereferenced.
//!
//! Addresses come in 64-bit fields from code that may be wrong. The copies of [`file_memory`] are `copy_from_user` and
//! `copy_to_user`: a bad address gives `EFAULT`, not a crash.

// UNSAFETY: copies from and to addresses that are given as numbers.
#![expect(
    unsafe_code,
    reason = "copies from and to addresses that are given as numbers"
)]

use crate::errno::Errno;

/// Copies `out.len()` bytes from `address`.
pub(super) fn read(address: u64, out: &mut [u8]) -> Result<(), Errno> {
    copy(
        address,
        out.as_mut_ptr().expose_provenance() as u64,
        out.len(),
    )
}

/// Copies `bytes` to `address`.
pub(super) fn write(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    copy(
        bytes.as_ptr().expose_provenance() as u64,
        address,
        bytes.len(),
    )
}

/// Copies `bytes` bytes. Either `from` or `to` is a buffer of this module that is valid for its direction: both callers borrow it.
fn copy(from: u64, to: u64, bytes: usize) -> Result<(), Errno> {
    let [Ok(from), Ok(to)] = [from, to].map(usize::try_from) else {
        return Err(Errno::EFAULT);
    };
    // SAFETY: this process's buffer is valid by contract, and the kernel checks the program's memory. Where a sandbox denies that call, a
    // caller with a bad address crashes here, as it would in any library. A caller with a good address has given a range that this copy may
    // use.
    unsafe { file_memory::copy(from, to, bytes) }.map_err(|_| Errno::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address<T: ?Sized>(of: &T) -> u64 {
        (&raw const *of).cast::<u8>().expose_provenance() as u64
    }

    #[test]
    fn copies_go_both_ways() {
        let source = *b"sixteen bytes...";
        let mut seen = [0; 16];
        read(address(&source), &mut seen).unwrap();
        assert_eq!(seen, source);
        let target = std::cell::Cell::new([0u8; 16]);
        write(target.as_ptr().expose_provenance() as u64, &source).unwrap();
        assert_eq!(target.get(), source);
    }

    #[test]
    fn a_bad_address_is_an_error() {
        let mut out = [0; 8];
        for bad in [0, 8, 0xffff_8000_0000_0000, u64::MAX - 3] {
            assert_eq!(read(bad, &mut out), Err(Errno::EFAULT), "{bad:#x}");
            assert_eq!(write(bad, &out), Err(Errno::EFAULT), "{bad:#x}");
            assert_eq!(read(bad, &mut []), Ok(()), "no bytes, no fault");
        }
        // Constants are in memory that is not writable.
        static CONSTANT: [u8; 8] = [7; 8];
        assert_eq!(write(address(&CONSTANT), &out), Err(Errno::EFAULT));
    }
}
