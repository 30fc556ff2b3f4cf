//! Registers memory. This is the one place where the model relies on a program's promise about its memory.

// UNSAFETY: registering memory is a promise about it, which the program that calls the verbs makes.
#![expect(
    unsafe_code,
    reason = "passes on the promise that verbs registration is"
)]

use super::structs::RegMr;
use crate::device::{Access, Context as DeviceContext, MrChange, MrKeys};
use crate::errno::Errno;

/// Returns the access rights in `flags`, by the kernel's rules (`ib_check_mr_access`): peers may write only what the device may write. Of
/// the flags that are no rights, relaxed ordering is kept and the others have no effect here.
pub(super) fn checked_access(flags: u32) -> Result<Access, Errno> {
    /// Flags that may be ignored by a device which does not know them (`IB_UVERBS_ACCESS_OPTIONAL_RANGE`).
    const OPTIONAL: u32 = 0x3ff0_0000;
    const ON_DEMAND: u32 = 1 << 6;
    const FLUSH: u32 = 1 << 8 | 1 << 9;
    /// Flags for zero-based addresses (the caller gives the iova) and for the hint that pages are huge.
    const HOW: u32 = 1 << 5 | 1 << 7;
    let Access(local) = Access::LOCAL_WRITE;
    let remote = Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;
    let rights = local | remote | Access::REMOTE_READ.0 | Access::MW_BIND.0;
    if flags & remote != 0 && flags & local == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & !(rights | HOW | ON_DEMAND | FLUSH | OPTIONAL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & (ON_DEMAND | FLUSH) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(Access(flags & (rights | Access::RELAXED_ORDERING.0)))
}

pub(super) fn register_mr(
    device: &DeviceContext,
    pdn: u32,
    request: &RegMr,
    access: Access,
) -> Result<MrKeys, Errno> {
    // SAFETY: a program that registers memory by verbs promises that it stays mapped until it is deregistered. The device checks
    // that it is mapped now, and with which rights.
    let keys = unsafe { device.reg_mr(pdn, request.start, request.length, request.hca_va, access) };
    Ok(keys?)
}

pub(super) fn reregister_mr(
    device: &DeviceContext,
    lkey: u32,
    change: MrChange,
    memory: Option<(u64, u64, u64)>,
) -> Result<(), Errno> {
    // SAFETY: as in `register_mr`.
    Ok(unsafe { device.rereg_mr(lkey, change, memory) }?)
}

pub(super) fn register_umem(
    device: &DeviceContext,
    address: u64,
    bytes: u64,
    access: Access,
) -> Result<u32, Errno> {
    // SAFETY: as in `register_mr`.
    Ok(unsafe { device.reg_umem(address, bytes, access) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_flags_follow_the_kernels_rules() {
        let table = [
            (0, Ok(Access(0))),
            (1, Ok(Access(1))),
            (0xf, Ok(Access(0xf))),
            (4, Ok(Access(4))),
            (2, Err(Errno::EINVAL)),
            (8, Err(Errno::EINVAL)),
            (0x10, Ok(Access(0x10))),
            (0x20, Ok(Access(0))),
            (0x40, Err(Errno::EOPNOTSUPP)),
            (0x81, Ok(Access(1))),
            (0x101, Err(Errno::EOPNOTSUPP)),
            (0x401, Err(Errno::EINVAL)),
            (1 | 1 << 20, Ok(Access(1 | 1 << 20))),
            (2 | 1 << 20, Err(Errno::EINVAL)),
            (1 | 1 << 30, Err(Errno::EINVAL)),
        ];
        for (flags, expected) in table {
            assert_eq!(checked_access(flags), expected, "{flags:#x}");
        }
    }
}
