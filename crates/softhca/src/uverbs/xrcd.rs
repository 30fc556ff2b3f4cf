//! XRC domains that are made by verbs. Programs that open a domain by the same file share it.
//!
//! Source: `ib_uverbs_open_xrcd` in Linux. A device of this model belongs to a process, so only contexts of one process share a domain.

use std::fs::metadata;
use std::os::unix::fs::MetadataExt;

use super::frame::{Call, Method, Spec};
use super::handles::Object;
use super::structs::OpenXrcd;
use crate::device::{Context as DeviceContext, XrcFile};
use crate::errno::Errno;

const XRCD: u16 = 0xa;
const HANDLE: u16 = 0;
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;

pub(super) const METHODS: &[Method] = &[Method {
    object: XRCD,
    method: 0,
    attributes: &[Spec::object(HANDLE)],
    run: destroy,
}];

/// Handles `OPEN_XRCD`.
pub(super) fn open(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    const NO_FILE: i32 = -1;
    let request: OpenXrcd = call.read(CORE_IN)?;
    let file = match request.fd {
        NO_FILE => None,
        fd => Some(file(fd)?),
    };
    let create = request.oflags & libc::O_CREAT != 0;
    let exclusive = request.oflags & libc::O_EXCL != 0;
    let number = device.open_xrcd(file, create, exclusive)?;
    let outcome = call.context.publish(Object::Xrcd { number }, |handle| {
        call.put_pod(CORE_OUT, &handle)
    });
    if outcome.is_err() {
        let _ = device.close_xrcd(number);
    }
    outcome
}

/// Returns the file that a descriptor stands for.
fn file(fd: i32) -> Result<XrcFile, Errno> {
    let found = metadata(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::EBADF)?;
    Ok(XrcFile {
        device: found.dev(),
        inode: found.ino(),
    })
}

fn destroy(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(HANDLE)?;
    let number = call.context.handles().xrcd(handle)?;
    call.context.device()?.close_xrcd(number)?;
    call.context.handles().remove(handle);
    Ok(())
}
