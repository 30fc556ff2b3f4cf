//! Memory of the program that makes the calls: copied with the checks a kernel makes, never dereferenced.
//!
//! Addresses come in 64-bit fields from code that may be wrong. `process_vm_readv` and `process_vm_writev` on
//! ourselves are `copy_from_user` and `copy_to_user`: a bad address gives `EFAULT`, not a crash. rustix has neither.

// UNSAFETY: the two system calls, and plain copies where a sandbox forbids them.
#![expect(
    unsafe_code,
    reason = "copies from and to addresses that are given as numbers"
)]

use std::sync::atomic::{AtomicU8, Ordering};

use libc::{c_void, iovec};

use crate::errno::Errno;
use crate::shim::process_id;

/// Copies `out.len()` bytes from `address`.
pub(super) fn read(address: u64, out: &mut [u8]) -> Result<(), Errno> {
    let local = iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    copy(Direction::FromUser, address, local)
}

/// Copies `bytes` to `address`.
pub(super) fn write(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let local = iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    copy(Direction::ToUser, address, local)
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    FromUser,
    ToUser,
}

/// `local` is a buffer of ours that is valid for the direction: both callers borrow it.
fn copy(direction: Direction, address: u64, local: iovec) -> Result<(), Errno> {
    if local.iov_len == 0 {
        return Ok(());
    }
    let Ok(address) = usize::try_from(address) else {
        return Err(Errno::EFAULT);
    };
    let user = iovec {
        iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(address),
        iov_len: local.iov_len,
    };
    if !forbidden() {
        let me = process_id();
        // SAFETY: `local` is valid by contract; the kernel checks `user`.
        let copied = unsafe {
            match direction {
                Direction::FromUser => libc::process_vm_readv(me, &local, 1, &user, 1, 0),
                Direction::ToUser => libc::process_vm_writev(me, &local, 1, &user, 1, 0),
            }
        };
        return match usize::try_from(copied) {
            Ok(copied) if copied == local.iov_len => Ok(()),
            _ => Err(Errno::EFAULT),
        };
    }
    // SAFETY: the sandbox denies the checked copy. So a caller with a bad address crashes here, as it would in any library. A
    // caller with a good address has given a range that this copy may use.
    unsafe {
        match direction {
            Direction::FromUser => {
                std::ptr::copy(
                    user.iov_base.cast::<u8>(),
                    local.iov_base.cast(),
                    local.iov_len,
                );
            }
            Direction::ToUser => {
                std::ptr::copy(
                    local.iov_base.cast::<u8>(),
                    user.iov_base.cast(),
                    local.iov_len,
                );
            }
        }
    }
    Ok(())
}

/// Whether a sandbox (seccomp) forbids the checked copies.
fn forbidden() -> bool {
    const UNKNOWN: u8 = 0;
    const ALLOWED: u8 = 1;
    const FORBIDDEN: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    let mut state = STATE.load(Ordering::Relaxed);
    if state == UNKNOWN {
        let (source, mut target) = (1u8, 0u8);
        let from = iovec {
            iov_base: (&raw const source).cast_mut().cast(),
            iov_len: 1,
        };
        let to = iovec {
            iov_base: (&raw mut target).cast(),
            iov_len: 1,
        };
        // SAFETY: two bytes of ours.
        let copied = unsafe { libc::process_vm_readv(process_id(), &to, 1, &from, 1, 0) };
        state = if copied == 1 { ALLOWED } else { FORBIDDEN };
        STATE.store(state, Ordering::Relaxed);
    }
    state == FORBIDDEN
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
        // Constants are not writable.
        static CONSTANT: [u8; 8] = [7; 8];
        assert_eq!(write(address(&CONSTANT), &out), Err(Errno::EFAULT));
    }
}
