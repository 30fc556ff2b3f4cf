//! Memory regions and memory windows: registered, changed, queried and ended.
//!
//! Regions over a DMA-BUF are mapped into this process; a memfd is accepted in place of a DMA-BUF. The device has no paging on demand:
//! calls that ask for it are refused as by a kernel without it.

use super::frame::{Call, Method, Spec};
use super::handles::{Mr, Object};
use super::memory::{self, checked_access};
use super::structs::{AllocMw, AllocMwResp, RegMr, RegMrResp, ReregMr, ReregMrResp};
use crate::device::{Context as DeviceContext, MrChange, MrKeys};
use crate::errno::Errno;

const MR: u16 = 7;
const MW: u16 = 8;

/// The attributes of commands of the older interface.
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;

const DMABUF_HANDLE: u16 = 0;
const DMABUF_PD: u16 = 1;
const DMABUF_OFFSET: u16 = 2;
const DMABUF_LENGTH: u16 = 3;
const DMABUF_IOVA: u16 = 4;
const DMABUF_FD: u16 = 5;
const DMABUF_ACCESS: u16 = 6;
const DMABUF_LKEY: u16 = 7;
const DMABUF_RKEY: u16 = 8;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: MR,
        method: 1,
        attributes: &[Spec::object(0)],
        run: dereg,
    },
    Method {
        object: MR,
        method: 2,
        attributes: &[
            Spec::object(0),
            Spec::number(1, 4),
            Spec::number(2, 4),
            Spec::bytes(3, 0),
        ],
        run: advise,
    },
    Method {
        object: MR,
        method: 3,
        attributes: &[
            Spec::object(0),
            Spec::output(1, 4),
            Spec::output(2, 4),
            Spec::output(3, 8),
            Spec::output(4, 8).optional(),
        ],
        run: query,
    },
    Method {
        object: MR,
        method: 4,
        attributes: &[
            Spec::object(DMABUF_HANDLE),
            Spec::object(DMABUF_PD),
            Spec::number(DMABUF_OFFSET, 8),
            Spec::number(DMABUF_LENGTH, 8),
            Spec::number(DMABUF_IOVA, 8),
            Spec::number(DMABUF_FD, 4),
            Spec::number(DMABUF_ACCESS, 4),
            Spec::output(DMABUF_LKEY, 4),
            Spec::output(DMABUF_RKEY, 4),
        ],
        run: register_dmabuf,
    },
    Method {
        object: MW,
        method: 0,
        attributes: &[Spec::object(0)],
        run: dealloc_window,
    },
];

/// Mask of the offset in a page. Both addresses of a byte must have the same offset.
const PAGE_MASK: u64 = 0xfff;

/// Handles `REG_MR`.
pub(super) fn register(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    let request: RegMr = call.read(CORE_IN)?;
    let access = checked_access(request.access_flags)?;
    check_range(request.start, request.length, request.hca_va)?;
    let pdn = call.context.handles().pd(request.pd_handle)?;
    let keys = memory::register_mr(device, pdn, &request, access)?;
    publish(
        call,
        device,
        keys,
        request.length,
        request.hca_va,
        |mr_handle| {
            let reply = RegMrResp {
                mr_handle,
                lkey: keys.lkey,
                rkey: keys.rkey,
            };
            call.put_pod(CORE_OUT, &reply)
        },
    )
}

/// Makes the checks of a range that the kernel makes before it looks at the pages.
fn check_range(start: u64, length: u64, iova: u64) -> Result<(), Errno> {
    if (start ^ iova) & PAGE_MASK != 0 {
        return Err(Errno::EINVAL);
    }
    let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
    end.checked_next_multiple_of(PAGE_MASK + 1)
        .filter(|end| *end > start & !PAGE_MASK) // there must be at least one page
        .ok_or(Errno::EINVAL)?;
    Ok(())
}

/// Gives a new region a handle. Ends the region if the reply to the caller cannot be written.
fn publish(
    call: &Call<'_>,
    device: &DeviceContext,
    keys: MrKeys,
    length: u64,
    iova: u64,
    tell: impl FnOnce(u32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mr = Mr {
        lkey: keys.lkey,
        rkey: keys.rkey,
        length,
        iova,
    };
    let outcome = call.context.publish(Object::Mr(mr), tell);
    if outcome.is_err() {
        let _ = device.dereg_mr(keys.lkey);
    }
    outcome
}

/// Handles `REREG_MR`: a region gets other memory, another domain, other rights, in any combination. Its keys stay.
pub(super) fn reregister(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    const TRANSLATION: u32 = 1;
    const DOMAIN: u32 = 2;
    const ACCESS: u32 = 4;
    let request: ReregMr = call.read(CORE_IN)?;
    let flags = request.flags;
    if flags == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & !(TRANSLATION | DOMAIN | ACCESS) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let moves = flags & TRANSLATION != 0;
    if moves {
        check_range(request.start, request.length, request.hca_va)?;
    }
    let mut mr = call.context.handles().mr(request.mr_handle)?;
    let mut change = MrChange::default();
    if flags & ACCESS != 0 {
        change.access = Some(checked_access(request.access_flags)?);
    }
    if flags & DOMAIN != 0 {
        change.pdn = Some(call.context.handles().pd(request.pd_handle)?);
    }
    let memory = moves.then_some((request.start, request.length, request.hca_va));
    memory::reregister_mr(device, mr.lkey, change, memory)?;
    if moves {
        mr.length = request.length;
        mr.iova = request.hca_va;
        call.context.handles().set_mr(request.mr_handle, mr);
    }
    let reply = ReregMrResp {
        lkey: mr.lkey,
        rkey: mr.rkey,
    };
    call.put_pod(CORE_OUT, &reply)
}

fn register_dmabuf(call: &Call<'_>) -> Result<(), Errno> {
    let device = call.context.device()?;
    let (offset, length) = (call.u64(DMABUF_OFFSET)?, call.u64(DMABUF_LENGTH)?);
    let iova = call.u64(DMABUF_IOVA)?;
    if (offset ^ iova) & PAGE_MASK != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = call.u32(DMABUF_ACCESS)?;
    /// Flag for relaxed ordering of PCIe writes.
    const RELAXED_ORDERING: u32 = 1 << 20;
    const ALLOWED: u32 = 0xf | RELAXED_ORDERING;
    if flags & !ALLOWED != 0 {
        return Err(Errno::EINVAL);
    }
    let access = checked_access(flags)?;
    let pdn = call.context.handles().pd(call.object(DMABUF_PD)?)?;
    let fd = call.u32(DMABUF_FD)?.cast_signed();
    let keys = device.reg_dmabuf_mr(pdn, fd, offset, length, iova, access)?;
    publish(call, device, keys, length, iova, |handle| {
        call.put_object(DMABUF_HANDLE, handle)?;
        call.put_pod(DMABUF_LKEY, &keys.lkey)?;
        call.put_pod(DMABUF_RKEY, &keys.rkey)
    })
}

/// Refuses advice, which is about paging on demand only.
fn advise(call: &Call<'_>) -> Result<(), Errno> {
    call.context.device()?;
    call.context.handles().pd(call.object(0)?)?;
    Err(Errno::EOPNOTSUPP)
}

fn dereg(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(0)?;
    let mr = call.context.handles().mr(handle)?;
    call.context.device()?.dereg_mr(mr.lkey)?;
    call.context.handles().remove(handle);
    Ok(())
}

fn query(call: &Call<'_>) -> Result<(), Errno> {
    let mr = call.context.handles().mr(call.object(0)?)?;
    call.put_pod(1, &mr.lkey)?;
    call.put_pod(2, &mr.rkey)?;
    call.put_pod(3, &mr.length)?;
    call.put_pod(4, &mr.iova)
}

/// Handles `ALLOC_MW`.
pub(super) fn alloc_window(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    const TYPE_1: u8 = 1;
    const TYPE_2: u8 = 2;
    let request: AllocMw = call.read(CORE_IN)?;
    if !matches!(request.mw_type, TYPE_1 | TYPE_2) {
        return Err(Errno::EINVAL);
    }
    let pdn = call.context.handles().pd(request.pd_handle)?;
    let rkey = device.alloc_mw(pdn, request.mw_type == TYPE_2)?;
    let outcome = call.context.publish(Object::Window { rkey }, |mw_handle| {
        call.put_pod(CORE_OUT, &AllocMwResp { mw_handle, rkey })
    });
    if outcome.is_err() {
        let _ = device.dealloc_mw(rkey);
    }
    outcome
}

fn dealloc_window(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(0)?;
    let rkey = call.context.handles().window(handle)?;
    call.context.device()?.dealloc_mw(rkey)?;
    call.context.handles().remove(handle);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_as_the_kernel_checks_them() {
        assert_eq!(check_range(0x1000, 0x10, 0x1000), Ok(()));
        assert_eq!(check_range(0x1004, 0, 0x7004), Ok(()));
        for (start, length, iova) in [
            (0x1000, 0, 0x1000),
            (0x1000, 0x10, 0x1001),
            (u64::MAX - 1, 2, u64::MAX - 1),
            (u64::MAX - 0x1fff, 0x1fff, u64::MAX - 0x1fff),
        ] {
            let outcome = check_range(start, length, iova);
            assert_eq!(outcome, Err(Errno::EINVAL), "{start:#x} {length:#x}");
        }
    }
}
