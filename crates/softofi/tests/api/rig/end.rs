//! An endpoint with its queue and its vector.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libfabric_abi::bindings::*;
use libfabric_abi::errors::{FI_EAGAIN, FI_EAVAIL};
use libfabric_abi::{calls, later};

use super::{Fabric, Memory, until};

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) key: u64,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) data: u64,
    /// Of libfabric, and of the provider; zeros without an error.
    pub(crate) error: c_int,
    pub(crate) provider_error: c_int,
}

/// Contexts of operations. They stay for the life of the process: a late completion may still name one.
fn context() -> *mut c_void {
    let context = Box::leak(Box::new(fi_context2::default()));
    let pointer: *mut c_void = std::ptr::from_mut(context).cast();
    pointer.expose_provenance();
    pointer
}

pub(crate) struct End<'a> {
    fabric: &'a Fabric,
    pub(crate) cq: *mut fid_cq,
    pub(crate) av: *mut fid_av,
    pub(crate) ep: *mut fid_ep,
    is_open: Cell<bool>,
}

impl<'a> End<'a> {
    pub(crate) fn new(fabric: &'a Fabric) -> Self {
        Self::with_queue(fabric, 1024, FI_WAIT_NONE)
    }

    pub(crate) fn with_queue(fabric: &'a Fabric, size: usize, wait_obj: u32) -> Self {
        let end = Self::bound(fabric, size, wait_obj);
        // SAFETY: bound to all that it needs.
        let enabled = unsafe { calls::fi_enable(&raw mut (*end.ep).fid) };
        assert_eq!(enabled, 0, "fi_enable");
        end
    }

    /// All but enabled.
    pub(crate) fn bound(fabric: &'a Fabric, size: usize, wait_obj: u32) -> Self {
        let (mut cq, mut av, mut ep) = (null_mut(), null_mut(), null_mut());
        let mut cq_attr = later::fi_cq_attr {
            size,
            format: FI_CQ_FORMAT_DATA,
            wait_obj,
            ..later::fi_cq_attr::default()
        };
        let mut av_attr = fi_av_attr {
            type_: FI_AV_TABLE,
            count: 64,
            ..fi_av_attr::default()
        };
        // SAFETY: an open domain, attributes and places that live here.
        unsafe {
            let opened = later::fi_cq_open(fabric.domain, &mut cq_attr, &raw mut cq, null_mut());
            assert_eq!(opened, 0, "fi_cq_open");
            let opened =
                calls::fi_av_open(fabric.domain, &raw mut av_attr, &raw mut av, null_mut());
            assert_eq!(opened, 0, "fi_av_open");
            let opened = calls::fi_endpoint(fabric.domain, fabric.info, &raw mut ep, null_mut());
            assert_eq!(opened, 0, "fi_endpoint");
            let bound = calls::fi_ep_bind(ep, &raw mut (*cq).fid, FI_TRANSMIT | FI_RECV);
            assert_eq!(bound, 0, "fi_ep_bind of a queue");
            let bound = calls::fi_ep_bind(ep, &raw mut (*av).fid, 0);
            assert_eq!(bound, 0, "fi_ep_bind of a vector");
        }
        Self {
            fabric,
            cq,
            av,
            ep,
            is_open: Cell::new(true),
        }
    }

    pub(crate) fn address(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; 512];
        let mut room = bytes.len();
        // SAFETY: an endpoint that is enabled, and a place with room.
        let named = unsafe { calls::fi_getname(self.ep, bytes.as_mut_ptr().cast(), &raw mut room) };
        assert_eq!(named, 0, "fi_getname");
        bytes.truncate(room);
        bytes
    }

    pub(crate) fn insert(&self, address: &[u8]) -> u64 {
        let mut number = u64::MAX;
        // SAFETY: an address of this provider, and a place for one number.
        let inserted = unsafe {
            let bytes: *const c_void = address.as_ptr().cast();
            calls::fi_av_insert(self.av, bytes, 1, &raw mut number, 0, null_mut())
        };
        assert_eq!(inserted, 1, "fi_av_insert");
        number
    }

    /// Both ends know each other. It returns the other one's number here.
    pub(crate) fn meet(&self, other: &End<'_>) -> u64 {
        other.insert(&self.address());
        self.insert(&other.address())
    }

    /// A write, with its context, or the error of the post.
    pub(crate) fn try_write(&self, work: &Work<'_>) -> Result<usize, isize> {
        let context = context();
        self.try_write_with(work, context)
    }

    pub(crate) fn try_write_with(
        &self,
        work: &Work<'_>,
        context: *mut c_void,
    ) -> Result<usize, isize> {
        let near = libc::iovec {
            iov_base: work.memory.at(work.offset),
            iov_len: work.bytes,
        };
        let far = fi_rma_iov {
            addr: work.remote.address,
            len: work.bytes,
            key: work.remote.key,
        };
        let mut descriptor = work.memory.descriptor();
        let message = fi_msg_rma {
            msg_iov: &raw const near,
            desc: &raw mut descriptor,
            iov_count: 1,
            addr: work.peer,
            rma_iov: &raw const far,
            rma_iov_count: 1,
            context,
            data: work.data.unwrap_or(0),
        };
        let data = work.data.map_or(0, |_| FI_REMOTE_CQ_DATA);
        let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE | data;
        // SAFETY: the memory is registered and outlives the operation; the context stays.
        let posted = unsafe { calls::fi_writemsg(self.ep, &raw const message, flags) };
        if posted == 0 {
            Ok(context.addr())
        } else {
            Err(posted)
        }
    }

    pub(crate) fn try_read(&self, work: &Work<'_>) -> Result<usize, isize> {
        let context = context();
        let (remote, buf) = (work.remote, work.memory.at(work.offset));
        let descriptor = work.memory.descriptor();
        // SAFETY: as for a write.
        let posted = unsafe {
            calls::fi_read(
                self.ep,
                buf,
                work.bytes,
                descriptor,
                work.peer,
                remote.address,
                remote.key,
                context,
            )
        };
        if posted == 0 {
            Ok(context.addr())
        } else {
            Err(posted)
        }
    }

    /// Posts until it is taken. The peer's thread is this one, so its queue is looked at as well.
    #[track_caller]
    pub(crate) fn write(&self, work: &Work<'_>, others: &mut Seen<'_, '_>) -> usize {
        until("a write is taken", || {
            others.look();
            taken(self.try_write(work))
        })
    }

    #[track_caller]
    pub(crate) fn read(&self, work: &Work<'_>, others: &mut Seen<'_, '_>) -> usize {
        until("a read is taken", || {
            others.look();
            taken(self.try_read(work))
        })
    }

    /// All completions that are there.
    pub(crate) fn completions(&self) -> Vec<Done> {
        let mut done = Vec::new();
        let mut entries = [fi_cq_data_entry::default(); 8];
        loop {
            // SAFETY: a place for so many entries of the queue's format.
            let read =
                unsafe { calls::fi_cq_read(self.cq, entries.as_mut_ptr().cast(), entries.len()) };
            match usize::try_from(read) {
                Ok(read) => done.extend(entries[..read].iter().map(|entry| Done {
                    context: entry.op_context.addr(),
                    flags: entry.flags,
                    data: entry.data,
                    error: 0,
                    provider_error: 0,
                })),
                Err(_) if read == -(FI_EAVAIL as isize) => match self.error() {
                    Some(error) => done.push(error),
                    None => return done,
                },
                Err(_) => {
                    assert_eq!(read, -(FI_EAGAIN as isize), "fi_cq_read");
                    return done;
                }
            }
            if done
                .iter()
                .any(|it| it.error == libfabric_abi::errors::FI_EOVERRUN)
            {
                return done;
            }
        }
    }

    fn error(&self) -> Option<Done> {
        let mut entry = later::fi_cq_err_entry::default();
        // SAFETY: a place for an error of any API version.
        let read = unsafe { later::fi_cq_readerr(self.cq, &mut entry, 0) };
        (read == 1).then_some(Done {
            context: entry.op_context.addr(),
            flags: entry.flags,
            data: 0,
            error: entry.err,
            provider_error: entry.prov_errno,
        })
    }

    /// Closes the endpoint alone.
    pub(crate) fn close(&self) {
        if self.is_open.replace(false) {
            // SAFETY: opened here, and closed once.
            let closed = unsafe { calls::fi_close(&raw mut (*self.ep).fid) };
            assert_eq!(closed, 0, "an endpoint closes");
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    pub(crate) fn fabric(&self) -> &'a Fabric {
        self.fabric
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.close();
        // SAFETY: opened here, and closed once.
        let closed = unsafe {
            let queue = calls::fi_close(&raw mut (*self.cq).fid);
            [queue, calls::fi_close(&raw mut (*self.av).fid)]
        };
        assert_eq!(closed, [0, 0], "queue and vector close");
    }
}

fn taken(posted: Result<usize, isize>) -> Option<usize> {
    match posted {
        Ok(context) => Some(context),
        Err(error) => {
            assert_eq!(error, -(FI_EAGAIN as isize), "a post");
            None
        }
    }
}

/// An operation to post.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) memory: &'a Memory<'a>,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) peer: u64,
    pub(crate) remote: Remote,
    pub(crate) data: Option<u64>,
}

/// Completions of some ends, as they come.
pub(crate) struct Seen<'a, 'b> {
    ends: Vec<&'a End<'b>>,
    pub(crate) done: Vec<Vec<Done>>,
}

impl<'a, 'b> Seen<'a, 'b> {
    pub(crate) fn new(ends: &[&'a End<'b>]) -> Self {
        Self {
            ends: ends.to_vec(),
            done: ends.iter().map(|_| Vec::new()).collect(),
        }
    }

    pub(crate) fn look(&mut self) {
        for (end, done) in self.ends.iter().zip(&mut self.done) {
            done.extend(end.completions());
        }
    }

    /// Waits for the completion of an operation of the end of this number, and takes it.
    #[track_caller]
    pub(crate) fn wait(&mut self, end: usize, context: usize) -> Done {
        until("an operation completes", || {
            self.look();
            let at = self.done[end].iter().position(|it| it.context == context)?;
            Some(self.done[end].remove(at))
        })
    }
}
