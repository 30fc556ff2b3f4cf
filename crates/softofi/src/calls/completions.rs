//! Calls on a completion queue.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::time::{Duration, Instant};

use libfabric_abi::FI_ADDR_NOTAVAIL;
use libfabric_abi::Version;
use libfabric_abi::bindings::{
    FI_GETWAIT, FI_GETWAITOBJ, FI_WAIT_FD, FI_WAIT_NONE, fi_cq_data_entry, fi_cq_entry,
    fi_cq_err_entry as OldErrEntry, fi_cq_msg_entry, fi_cq_tagged_entry, fi_ops, fi_ops_cq, fid,
    fid_cq,
};
use libfabric_abi::errors::{FI_EAGAIN, FI_EAVAIL, FI_ENOSYS};
use libfabric_abi::later::fi_cq_err_entry;
use rustix::event::{PollFd, PollFlags, poll};

use crate::engine::contexts;
use crate::failure::Failure;
use crate::guard;
use crate::handles;
use crate::objects::{Entry, Format, Head, Queue};
use crate::rules::Rule;

use super::{c_functions, given, object};

pub(super) static OPS: fi_ops = fi_ops {
    control: Some(control),
    ..object::ops(close)
};

pub(super) static CQ: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};

/// How often who sleeps looks, where something moves only when it is called.
const LOOK: Duration = Duration::from_millis(20);

/// Takes completions of a queue.
///
/// # Safety
///
/// There is room for so many entries of the queue's format, and for as many addresses unless that is null.
unsafe fn take(
    queue: &Queue,
    place: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> Result<isize, c_int> {
    queue.progress();
    let entries = match queue.take(count) {
        Head::Entries(entries) => entries,
        Head::Error => return Err(FI_EAVAIL),
        Head::Nothing => return Err(FI_EAGAIN),
    };
    for (at, entry) in entries.iter().enumerate() {
        if entry.releases {
            contexts::release(entry.context);
        }
        // SAFETY: the caller's word.
        unsafe {
            write(queue.format, place, at, entry);
            if !sources.is_null() {
                sources.add(at).write(FI_ADDR_NOTAVAIL);
            }
        }
    }
    Ok(isize::try_from(entries.len()).unwrap_or(isize::MAX))
}

/// Writes an entry in the format of its queue.
///
/// # Safety
///
/// There is room for `at + 1` entries.
unsafe fn write(format: Format, place: *mut c_void, at: usize, entry: &Entry) {
    let op_context = with_exposed_provenance_mut(entry.context);
    let (flags, len, data) = (entry.flags, entry.bytes, entry.data);
    let buf = null_mut();
    // SAFETY: the caller's word for the room.
    unsafe {
        match format {
            Format::Context => place
                .cast::<fi_cq_entry>()
                .add(at)
                .write(fi_cq_entry { op_context }),
            Format::Msg => place
                .cast::<fi_cq_msg_entry>()
                .add(at)
                .write(fi_cq_msg_entry {
                    op_context,
                    flags,
                    len,
                }),
            Format::Data => place
                .cast::<fi_cq_data_entry>()
                .add(at)
                .write(fi_cq_data_entry {
                    op_context,
                    flags,
                    len,
                    buf,
                    data,
                }),
            Format::Tagged => {
                place
                    .cast::<fi_cq_tagged_entry>()
                    .add(at)
                    .write(fi_cq_tagged_entry {
                        op_context,
                        flags,
                        len,
                        buf,
                        data,
                        tag: 0,
                    })
            }
        }
    }
}

c_functions! {
    /// `fi_close`.
    fn close(object: *mut fid) -> c_int, guard::status {
        let queue = handles::find::<Queue>(object)?;
        queue.endpoints.none("the completion queue")?;
        handles::retire(object);
        queue.domain.users.remove();
        Ok(())
    }

    /// `fi_control`: the wait object.
    fn control(object: *mut fid, command: c_int, arg: *mut c_void) -> c_int, guard::status {
        let queue = handles::find::<Queue>(object)?;
        given(arg, "arg")?;
        let has = queue.wait_fd();
        if command == FI_GETWAITOBJ as c_int {
            let kind = if has.is_some() { FI_WAIT_FD } else { FI_WAIT_NONE };
            // SAFETY: C's place, an enum by the manual.
            unsafe { arg.cast::<u32>().write(kind) };
            return Ok(());
        }
        if command != FI_GETWAIT as c_int {
            return Err(FI_ENOSYS);
        }
        let fd = has.ok_or_else(|| Rule::NoWaitObject.broken("(FI_GETWAIT)"))?;
        // SAFETY: C's place, an int by the manual.
        unsafe { arg.cast::<c_int>().write(fd) };
        Ok(())
    }

    /// `fi_cq_read`.
    fn read(cq: *mut fid_cq, place: *mut c_void, count: usize) -> isize, guard::count {
        let queue = handles::find::<Queue>(cq)?;
        if count > 0 {
            given(place, "buf")?;
        }
        // SAFETY: C's place.
        unsafe { take(&queue, place, count, null_mut()) }
    }

    /// `fi_cq_readfrom`.
    fn readfrom(cq: *mut fid_cq, place: *mut c_void, count: usize, sources: *mut u64) -> isize, guard::count {
        let queue = handles::find::<Queue>(cq)?;
        if count > 0 {
            given(place, "buf")?;
        }
        // SAFETY: C's places.
        unsafe { take(&queue, place, count, sources) }
    }

    /// `fi_cq_readerr`.
    fn readerr(cq: *mut fid_cq, place: *mut OldErrEntry, _flags: u64) -> isize, guard::count {
        let queue = handles::find::<Queue>(cq)?;
        given(place, "buf")?;
        let entry = queue.take_error().ok_or(FI_EAGAIN)?;
        if entry.releases {
            contexts::release(entry.context);
        }
        let failure = entry.failure.unwrap_or(Failure::Overrun);
        // SAFETY: C's place; the last field is there from API version 1.20 on.
        unsafe {
            let old = &mut *place;
            old.op_context = with_exposed_provenance_mut(entry.context);
            old.flags = entry.flags;
            old.len = 0;
            old.buf = null_mut();
            old.data = 0;
            old.tag = 0;
            old.olen = 0;
            old.err = failure.error();
            old.prov_errno = failure.provider_error();
            old.err_data = null_mut();
            old.err_data_size = 0;
            if queue.domain.api() >= Version::new(1, 20) {
                (*place.cast::<fi_cq_err_entry>()).src_addr = FI_ADDR_NOTAVAIL;
            }
        }
        Ok(1)
    }

    /// `fi_cq_sread`.
    fn sread(cq: *mut fid_cq, place: *mut c_void, count: usize, _cond: *const c_void, timeout: c_int) -> isize,
        guard::count {
        // SAFETY: C's place.
        unsafe { sleep(cq, place, count, null_mut(), timeout) }
    }

    /// `fi_cq_sreadfrom`.
    fn sreadfrom(
        cq: *mut fid_cq, place: *mut c_void, count: usize, sources: *mut u64, _cond: *const c_void, timeout: c_int,
    ) -> isize, guard::count {
        // SAFETY: C's places.
        unsafe { sleep(cq, place, count, sources, timeout) }
    }

    /// `fi_cq_signal`.
    fn signal(cq: *mut fid_cq) -> c_int, guard::status {
        handles::find::<Queue>(cq)?.signal();
        Ok(())
    }

    /// `fi_cq_strerror`.
    fn strerror(_cq: *mut fid_cq, number: c_int, _data: *const c_void, place: *mut c_char, room: usize) -> *const c_char,
        words {
        let failure = Failure::of_provider_error(number);
        let text = failure.map_or(c"an error that softofi does not have", Failure::text);
        if !place.is_null() && room > 0 {
            // SAFETY: C's place, with so much room; the text is longer than what is copied, or ends with zero.
            unsafe { libc::snprintf(place, room, c"%s".as_ptr(), text.as_ptr()) };
        }
        text.as_ptr()
    }
}

fn words(call: impl FnOnce() -> *const c_char) -> *const c_char {
    guard::value(c"".as_ptr(), call)
}

/// Takes completions, and sleeps until there are some.
///
/// # Safety
///
/// As [`take`].
unsafe fn sleep(
    cq: *mut fid_cq,
    place: *mut c_void,
    count: usize,
    sources: *mut u64,
    timeout: c_int,
) -> Result<isize, c_int> {
    let queue = handles::find::<Queue>(cq)?;
    given(place, "buf")?;
    let fd = queue
        .wait_fd()
        .ok_or_else(|| Rule::NoWaitObject.broken("(fi_cq_sread)"))?;
    let end = u64::try_from(timeout).ok();
    let end = end.map(|timeout| Instant::now() + Duration::from_millis(timeout));
    loop {
        // SAFETY: the caller's word.
        match unsafe { take(&queue, place, count, sources) } {
            Err(FI_EAGAIN) => {}
            taken => return taken,
        }
        let now = Instant::now();
        if queue.take_signal() || end.is_some_and(|end| now >= end) {
            return Err(FI_EAGAIN);
        }
        if queue.may_sleep()? {
            let left = end.map_or(LOOK, |end| (end - now).min(LOOK));
            let left = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            // SAFETY: the queue is held, and with it its descriptor.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            // What it says is seen by the next look.
            let _ = poll(
                &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
                Some(&left),
            );
        }
    }
}
