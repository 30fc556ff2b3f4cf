//! The completion queue of a worker, with the endpoints that complete in it.

// UNSAFETY: opens and reads a queue of the library, which gives a descriptor.
#![expect(unsafe_code, reason = "objects of the library")]

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libfabric_abi::bindings::{
    FI_CQ_FORMAT_DATA, FI_EAGAIN, FI_EAVAIL, FI_REMOTE_CQ_DATA, FI_WAIT_FD, FI_WAIT_NONE,
    fi_cq_data_entry, fi_wait_obj, fid_cq,
};
use libfabric_abi::calls::{fi_cq_read, fi_get_wait_fd, fi_trywait};
use libfabric_abi::later::{fi_cq_attr, fi_cq_err_entry, fi_cq_open, fi_cq_readerr};

use super::contexts::Pool;
use super::domain::Domain;
use super::error::OfiError;
use super::object::Owned;
use super::registry::{Ear, Greeting, Registry};
#[cfg(test)]
use super::trial::Planted;
use crate::provider::{Cause, Completed, Completion, ProviderError, Wake, Watched};

/// The most completions of one call of the library.
const BATCH: usize = 16;
/// The most completions that are kept at once: as many as a queue has.
const MOST_KEPT: usize = 1 << 22;
/// Time between two looks where nothing wakes a worker: the queue has no descriptor, or posts were refused.
pub(super) const LOOK: Duration = Duration::from_micros(50);

/// The queue of one worker.
#[derive(Debug)]
pub(super) struct Cq {
    /// It is closed before the domain, and after the endpoints, which have an `Arc` of this.
    cq: Owned<fid_cq>,
    fd: Option<RawFd>,
    domain: Arc<Domain>,
    /// Held while a thread reads the queue, or changes which endpoints complete in it. All calls are safe in any thread by the manual, but
    /// `ofi_rxm` reads parts of an endpoint that are not made yet, or are closed already.
    turn: Mutex<()>,
    registry: Mutex<Registry>,
    /// Completions that were taken before an endpoint was closed, and which the worker has not got.
    kept: Mutex<Vec<Completion>>,
    /// True if the registry has an endpoint that is closed.
    has_closed: AtomicBool,
    /// True if the registry has writes that wait for a lane.
    has_early: AtomicBool,
    /// The number of operations that may still be posted, so that the queue does not overflow. Some providers do not guard it.
    credits: AtomicU32,
    /// The number of endpoints that are open.
    open: AtomicU32,
    /// The number of lanes with refused posts, and of endpoints whose first write is under way.
    hurried: AtomicU32,
    /// How many posts were refused, to be tried again.
    refusals: AtomicU64,
    /// True if no one may sleep on the descriptor any more.
    is_deaf: AtomicBool,
    /// Why the queue gives no completions any more. 0: it does.
    broken: AtomicI32,
    /// Wakes the worker when an endpoint is opened.
    wake: Wake,
}

impl Cq {
    /// Opens a queue for `entries` operations under way, with a descriptor if the provider has one.
    pub(super) fn open(domain: &Arc<Domain>, entries: u32) -> Result<Self, ProviderError> {
        let with_fd = open(domain, entries, FI_WAIT_FD).ok();
        let with_fd = with_fd.and_then(|cq| Some((fd_of(&cq)?, cq)));
        let (fd, cq) = match with_fd {
            Some((fd, cq)) => (Some(fd), cq),
            None => (None, open(domain, entries, FI_WAIT_NONE)?),
        };
        Ok(Self {
            cq,
            fd,
            domain: Arc::clone(domain),
            turn: Mutex::default(),
            registry: Mutex::default(),
            kept: Mutex::default(),
            has_closed: AtomicBool::new(false),
            has_early: AtomicBool::new(false),
            credits: AtomicU32::new(entries),
            open: AtomicU32::new(0),
            hurried: AtomicU32::new(0),
            refusals: AtomicU64::new(0),
            is_deaf: AtomicBool::new(false),
            broken: AtomicI32::new(0),
            wake: Wake::new()?,
        })
    }

    /// Returns whether a worker sleeps on a descriptor of the queue.
    pub(super) fn has_descriptor(&self) -> bool {
        self.fd.is_some() && !self.is_deaf.load(Ordering::SeqCst)
    }

    /// Returns the queue for a call.
    pub(super) fn object(&self) -> &Owned<fid_cq> {
        &self.cq
    }

    /// Adds an endpoint with these contexts, and returns the tag of its lane.
    pub(super) fn add(&self, pool: &Arc<Pool>, lane: u32, ear: &Arc<Ear>) -> Result<u16, OfiError> {
        let tag = self.registry().add(pool, lane, ear);
        let tag = tag.ok_or_else(|| OfiError::Endpoints {
            domain: self.domain.name().to_owned(),
            count: usize::from(u16::MAX) + 2,
            most: usize::from(u16::MAX) + 1,
        })?;
        self.open.fetch_add(1, Ordering::SeqCst);
        self.wake.wake();
        Ok(tag)
    }

    /// Takes what is in the queue, and keeps it for the worker. A close may drop completions of an endpoint: also those of writes of the
    /// peer, which has been told that they are done. No endpoint that is closed leaves the registry by this, since the worker must get what
    /// is kept of it first.
    pub(super) fn keep(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let most = kept.len() + MOST_KEPT;
        self.look(&mut kept, most);
    }

    /// Notes that the endpoint with these contexts is closed.
    pub(super) fn close(&self, pool: &Pool) {
        self.registry().close(pool.first());
        self.open.fetch_sub(1, Ordering::SeqCst);
        if self.domain.facts().forgets_closed() {
            self.is_deaf.store(true, Ordering::SeqCst);
        }
        self.has_closed.store(true, Ordering::Release);
    }

    /// Takes room for one operation.
    pub(super) fn take_credit(&self) -> bool {
        let take = |credits: u32| credits.checked_sub(1);
        let taken = (self.credits).fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok()
    }

    /// Gives room back.
    pub(super) fn give_credits(&self, count: u32) {
        self.credits.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes that someone waits for a post to be taken, so that the worker looks soon and often.
    pub(super) fn hurry(&self) {
        self.hurried.fetch_add(1, Ordering::SeqCst);
        self.wake.wake();
    }

    /// Notes that it waits no more.
    pub(super) fn end_hurry(&self) {
        self.hurried.fetch_sub(1, Ordering::SeqCst);
    }

    /// Notes that the provider has refused a post for now.
    pub(super) fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many posts were refused, to be tried again.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Returns why the queue gives no completions any more.
    pub(super) fn broken(&self) -> Option<Cause> {
        match self.broken.load(Ordering::Acquire) {
            0 => None,
            errno => Some(Cause::of_libfabric(errno, 0)),
        }
    }

    /// Takes completions, until `found` has `most`. This drives what the provider does by itself only when it is called.
    pub(super) fn reap(&self, found: &mut Vec<Completion>, most: usize) {
        found.append(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        // What is closed from here on may have completions in the queue after the look below.
        let closings = self.closings();
        if self.look(found, most)
            && let Some(closings) = closings
        {
            self.drain(closings);
        }
    }

    /// Makes or closes an endpoint while no thread reads the queue.
    pub(super) fn still<T>(&self, change: impl FnOnce() -> T) -> T {
        let _turn = self.turn();
        change()
    }

    /// Returns the number of the last closing, if the registry has an endpoint that is closed.
    fn closings(&self) -> Option<u64> {
        let has_closed = self.has_closed.load(Ordering::Acquire);
        has_closed.then(|| self.registry().closings())
    }

    /// Drops the endpoints that were closed up to this closing, since the queue was found empty after it.
    fn drain(&self, closings: u64) {
        let mut registry = self.registry();
        let lost = registry.drain(closings);
        self.has_closed
            .store(registry.has_closed(), Ordering::Release);
        drop(registry);
        self.give_credits(lost);
    }

    /// Moves completions to `found`, until it has `most`. Returns whether the queue was found empty.
    fn look(&self, found: &mut Vec<Completion>, most: usize) -> bool {
        let _turn = self.turn();
        if self.has_early.load(Ordering::Acquire) {
            let is_left = self.registry().take_early(found);
            self.has_early.store(is_left, Ordering::Release);
        }
        let mut entries = [fi_cq_data_entry::default(); BATCH];
        // The provider moves bytes even if no completion is wanted now.
        loop {
            let room = most.saturating_sub(found.len()).clamp(1, BATCH);
            // SAFETY: the queue is open, and the entries are of its format and as many as `room` at least.
            let read = unsafe { fi_cq_read(self.cq.as_ptr(), entries.as_mut_ptr().cast(), room) };
            match usize::try_from(read) {
                Ok(count) if count > 0 => {
                    let mut registry = self.registry();
                    for entry in &entries[..count.min(room)] {
                        self.take(&mut registry, entry, found);
                    }
                }
                _ if read == -(FI_EAVAIL as isize) => {
                    if !self.take_error(found) {
                        return false;
                    }
                }
                _ if read == 0 || read == -(FI_EAGAIN as isize) => return true,
                _ => {
                    self.break_by(read);
                    return false;
                }
            }
            if found.len() >= most {
                return false;
            }
        }
    }

    /// Takes a completion without an error.
    fn take(&self, registry: &mut Registry, entry: &fi_cq_data_entry, found: &mut Vec<Completion>) {
        if entry.flags & FI_REMOTE_CQ_DATA != 0 {
            match registry.receive(entry.data) {
                Some(completion) => found.push(completion),
                None => self.has_early.store(true, Ordering::Release),
            }
            return;
        }
        self.complete(registry, entry.op_context.addr(), None, found);
    }

    /// Takes the error at the head of the queue. Returns false if there was none.
    fn take_error(&self, found: &mut Vec<Completion>) -> bool {
        let mut entry = fi_cq_err_entry::default();
        // SAFETY: the queue is open. The entry gives no room for data of the provider.
        let read = unsafe { fi_cq_readerr(self.cq.as_ptr(), &mut entry, 0) };
        if read <= 0 {
            return false;
        }
        let cause = Cause::of_libfabric(entry.err, entry.prov_errno);
        let registry = self.registry();
        self.complete(&registry, entry.op_context.addr(), Some(cause), found);
        true
    }

    /// Takes the completion of the operation with this context.
    fn complete(
        &self,
        registry: &Registry,
        context: usize,
        cause: Option<Cause>,
        found: &mut Vec<Completion>,
    ) {
        let Some(of) = registry.find(context) else {
            // A write of a peer that was refused here has no context. Its own end learns of it.
            let what = cause.map_or("done".to_owned(), |cause| cause.to_string());
            tracing::debug!("a completion of context {context:#x}, which no lane has: {what}");
            return;
        };
        self.give_credits(of.ear.end().into());
        if of.is_greeting {
            let greeting = match cause {
                None => Greeting::Done,
                Some(_) => Greeting::Failed,
            };
            return of.ear.set_greeting(greeting);
        }
        found.push(Completion {
            lane: of.lane,
            what: Completed::Send,
            index: of.context,
            cause,
        });
    }

    /// Notes that the queue gives no completions any more.
    fn break_by(&self, read: isize) {
        let errno = i32::try_from(read.unsigned_abs()).unwrap_or(i32::MAX);
        if self.broken.swap(errno, Ordering::AcqRel) == 0 {
            let error = self.domain.error("fi_cq_read", i64::from(errno));
            tracing::error!("a completion queue is lost with all its lanes: {error}");
        }
    }

    /// Sleeps until there may be something to take, `wake` is woken, or the time is over.
    pub(super) fn sleep(&self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        self.wake.begin();
        let slept = self.sleep_begun(wake, most);
        self.wake.end();
        slept
    }

    fn sleep_begun(&self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        let fd = self.fd.filter(|_| !self.is_deaf.load(Ordering::SeqCst));
        let is_blind = fd.is_none() && self.open.load(Ordering::SeqCst) > 0;
        let most = if is_blind || self.hurried.load(Ordering::SeqCst) > 0 {
            Some(most.map_or(LOOK, |most| most.min(LOOK)))
        } else {
            most
        };
        #[cfg(test)]
        let is_deaf = is_blind && self.domain.trial().planted == Some(Planted::DeafSleep);
        #[cfg(test)]
        let most = most.filter(|_| !is_deaf);
        let Some(fd) = fd else {
            return wake.sleep(Some(self.wake.watched()), most);
        };
        if !self.may_sleep() {
            return Ok(());
        }
        // SAFETY: the queue is open, and its descriptor with it.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        wake.sleep_beside([Watched::read(fd), self.wake.watched()], most)
    }

    /// Returns whether the descriptor will be readable when there is something to take.
    fn may_sleep(&self) -> bool {
        let _turn = self.turn();
        let mut queues = [self.cq.as_fid()];
        let fabric = self.domain.fabric().as_ptr();
        // SAFETY: fabric and queue are open, and the queue has given a descriptor.
        let tried = unsafe { fi_trywait(fabric, queues.as_mut_ptr(), 1) };
        tried == 0
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a queue with this kind of wait object.
pub(super) fn open(
    domain: &Domain,
    entries: u32,
    wait: fi_wait_obj,
) -> Result<Owned<fid_cq>, OfiError> {
    let mut attr = fi_cq_attr {
        // Writes of peers that count take entries too, and no credits.
        size: 2 * entries as usize,
        format: FI_CQ_FORMAT_DATA,
        wait_obj: wait,
        ..fi_cq_attr::default()
    };
    let mut cq = null_mut();
    // SAFETY: the domain is open, and the attributes live during the call.
    let opened = unsafe { fi_cq_open(domain.as_ptr(), &mut attr, &raw mut cq, null_mut()) };
    if opened != 0 {
        return Err(domain.error("fi_cq_open", i64::from(opened)));
    }
    // SAFETY: the library has just opened it.
    Ok(unsafe { Owned::new(cq) })
}

/// Returns the descriptor of a queue that was opened with one, if it has one.
fn fd_of(cq: &Owned<fid_cq>) -> Option<RawFd> {
    let mut fd: c_int = -1;
    // SAFETY: the queue is open, and its wait object is a descriptor.
    let got = unsafe { fi_get_wait_fd(cq.as_fid(), &raw mut fd) };
    (got == 0 && fd >= 0).then_some(fd)
}
