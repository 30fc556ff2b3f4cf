//! Registered memory: the one place where a program's word about its memory is taken.

// UNSAFETY: registering memory is a promise about it, which the program that calls the verbs makes.
#![expect(
    unsafe_code,
    reason = "passes on the promise that verbs registration is"
)]

use super::structs::RegMr;
use crate::device::{Access, Context as DeviceContext, MrKeys};
use crate::errno::Errno;

/// Access flags that may be ignored where they mean nothing (`IB_UVERBS_ACCESS_OPTIONAL_RANGE`).
const OPTIONAL: u32 = 0x3ff0_0000;
/// Hint that the memory is in huge pages.
const HUGETLB: u32 = 1 << 7;

/// The access rights in `flags`, by the kernel's rules: peers may write only what the device may write.
pub(super) fn checked_access(flags: u32) -> Result<Access, Errno> {
    let Access(local) = Access::LOCAL_WRITE;
    let remote = Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;
    let known = local | remote | Access::REMOTE_READ.0;
    let rights = flags & !(OPTIONAL | HUGETLB);
    if rights & !known != 0 {
        return Err(Errno::EOPNOTSUPP); // memory windows, on-demand paging, zero-based
    }
    if rights & remote != 0 && rights & local == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Access(rights))
}

pub(super) fn register_mr(
    device: &DeviceContext,
    pdn: u32,
    request: &RegMr,
    access: Access,
) -> Result<MrKeys, Errno> {
    // SAFETY: who registers memory by verbs promises that it stays mapped until it is deregistered. The device
    // checks that it is mapped now, and with which rights.
    let keys = unsafe { device.reg_mr(pdn, request.start, request.length, request.hca_va, access) };
    Ok(keys?)
}

pub(super) fn register_umem(
    device: &DeviceContext,
    address: u64,
    bytes: u64,
    access: Access,
) -> Result<u32, Errno> {
    // SAFETY: as above.
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
            (0x10, Err(Errno::EOPNOTSUPP)),
            (0x20, Err(Errno::EOPNOTSUPP)),
            (0x40, Err(Errno::EOPNOTSUPP)),
            (0x81, Ok(Access(1))),
            (1 | 1 << 20, Ok(Access(1))),
            (1 | 1 << 30, Err(Errno::EOPNOTSUPP)),
        ];
        for (flags, expected) in table {
            assert_eq!(checked_access(flags), expected, "{flags:#x}");
        }
    }
}
