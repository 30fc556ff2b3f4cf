//! Doorbell pages. The uverbs descriptor is a memfd, and the page lies in it. So the offset that the reply gives works with the kernel's
//! own `mmap`.

use super::frame::{Call, Method, Spec};
use super::handles::Object;
use crate::errno::Errno;

const UAR: u16 = 0x1008;
const HANDLE: u16 = 0x1000;
const TYPE: u16 = 0x1001;
const MMAP_OFFSET: u16 = 0x1002;
const MMAP_LENGTH: u16 = 0x1003;
const PAGE_ID: u16 = 0x1004;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: UAR,
        method: 0x1000,
        attributes: &[
            Spec::object(HANDLE),
            Spec::number(TYPE, 8),
            Spec::output(MMAP_OFFSET, 8),
            Spec::output(MMAP_LENGTH, 4),
            Spec::output(PAGE_ID, 4),
        ],
        run: alloc,
    },
    Method {
        object: UAR,
        method: 0x1001,
        attributes: &[Spec::object(HANDLE)],
        run: destroy,
    },
];

fn alloc(call: &Call<'_>) -> Result<(), Errno> {
    /// Write-combining and non-cached pages, which are the same in this device.
    const BLUEFLAME_AND_NONCACHED: std::ops::RangeInclusive<u64> = 0..=1;
    if !BLUEFLAME_AND_NONCACHED.contains(&call.u64(TYPE)?) {
        return Err(Errno::EINVAL);
    }
    let device = call.context.device()?;
    let page = device.alloc_uar()?;
    let length = u32::try_from(page.bytes).map_err(|_| Errno::EIO)?;
    let object = Object::Uar {
        page_id: page.page_id,
    };
    let outcome = call.context.publish(object, |handle| {
        call.put_object(HANDLE, handle)?;
        call.put_pod(MMAP_OFFSET, &page.offset)?;
        call.put_pod(MMAP_LENGTH, &length)?;
        call.put_pod(PAGE_ID, &page.page_id)
    });
    if outcome.is_err() {
        let _ = device.free_uar(page.page_id);
    }
    outcome
}

fn destroy(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(HANDLE)?;
    let page_id = call.context.handles().uar(handle)?;
    call.context.device()?.free_uar(page_id)?;
    call.context.handles().remove(handle);
    Ok(())
}
