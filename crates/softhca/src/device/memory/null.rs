//! The null key, which stands for no memory. Bytes written to it are gone, and bytes read from it are zero.
//!
//! `ibv_alloc_null_mr` gives it to programs; libmlx5 knows it from the answer to opening the device. Every QP of every domain may use it,
//! as a local key.

// UNSAFETY: regions over memory that is leaked on purpose.
#![expect(unsafe_code, reason = "memory that stands for none")]

use crate::device::memory::{Access, KeyError, Region};
use std::sync::LazyLock;

/// The number of the null key. Its index is below those of all tables of keys.
pub(crate) const NULL_KEY: u32 = 0x8000;

/// Longest piece, in bytes, into which an access is cut.
const PIECE_BYTES: usize = 1 << 18;

/// Memory of zeroes, to which no thread writes.
static ZEROES: LazyLock<Region> = LazyLock::new(leaked);
/// Memory to which all writes by the null key go.
static SINK: LazyLock<Region> = LazyLock::new(leaked);

fn leaked() -> Region {
    let memory = Box::leak(vec![0u64; PIECE_BYTES / 8].into_boxed_slice());
    let address = memory.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: never freed, and accessed through regions only from now on.
    let region = unsafe { Region::new(address, PIECE_BYTES as u64) };
    // PANIC: an allocation does not wrap around the address space.
    region.expect("an allocation ends before the address space does")
}

/// Appends to `out` the memory of `bytes` bytes of the null key.
pub(crate) fn resolve(bytes: u64, need: Access, out: &mut Vec<Region>) -> Result<(), KeyError> {
    let whole = if need == Access::LOCAL_READ {
        &*ZEROES
    } else if need == Access::LOCAL_WRITE {
        &*SINK
    } else {
        return Err(KeyError::Right(need));
    };
    let mut left = bytes;
    while left > 0 {
        let take = left.min(whole.bytes());
        out.extend(whole.part(0, take));
        left -= take;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::regions;

    #[test]
    fn writes_are_gone_and_reads_are_zero_whatever_the_length() {
        for bytes in [1, 8, PIECE_BYTES, PIECE_BYTES * 2 + 3] {
            let mut targets = Vec::new();
            resolve(bytes as u64, Access::LOCAL_WRITE, &mut targets).unwrap();
            regions::write(&targets, &vec![0xa5; bytes]).unwrap();
            let mut sources = Vec::new();
            resolve(bytes as u64, Access::LOCAL_READ, &mut sources).unwrap();
            let mut data = vec![0xff; bytes];
            regions::read(&sources, &mut data).unwrap();
            assert_eq!(data, vec![0; bytes]);
        }
    }

    #[test]
    fn peers_may_not_use_it() {
        let refused = resolve(1, Access::REMOTE_WRITE, &mut Vec::new());
        assert_eq!(refused, Err(KeyError::Right(Access::REMOTE_WRITE)));
    }
}
