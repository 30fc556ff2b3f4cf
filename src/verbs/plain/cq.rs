//! A CQ of many QPs, whose completions one thread takes.
//!
//! An overrun never happens by construction: each QP takes a share of as many entries as it can post requests, since in error each request
//! completes, signalled or not.
//!
//! A thread that wants to sleep arms the CQ, looks once more, and then waits for the channel. That look finds a completion that came before
//! the arming, and a later one raises an event.

// UNSAFETY: calls into libibverbs with the CQ.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::bindings::{IBV_WC_SUCCESS, IBV_WC_WITH_IMM, ibv_cq, ibv_wc};
use crate::sys::{self, inline};
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::plain::channel::Channel;
use crate::verbs::plain::context::PlainContext;

/// The most completions that one call takes.
const AT_ONCE: usize = 32;

/// A CQ of many QPs.
pub(crate) struct PlainCq {
    channel: Arc<Channel>,
    raw: NonNull<ibv_cq>,
    entries: u32,
    /// Number of entries in the shares of QPs.
    shared: AtomicU32,
}

// SAFETY: providers of libibverbs lock their CQs, so any thread may use them.
unsafe impl Send for PlainCq {}
// SAFETY: as for Send.
unsafe impl Sync for PlainCq {}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainCompletion {
    /// The QP of the completion.
    pub(crate) qpn: u32,
    /// The name that the poster gave the request.
    pub(crate) id: u64,
    /// The immediate of the peer's WRITE, in a completion of a receive request.
    pub(crate) immediate: Option<u32>,
    /// Why the request has failed, if it has.
    pub(crate) failed: Option<PlainFailure>,
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainFailure {
    /// `enum ibv_wc_status`.
    pub(crate) status: u32,
    /// `vendor_err` of the completion.
    pub(crate) vendor: u32,
}

impl PlainCq {
    /// Creates a CQ of at least `entries` entries, which reports by `channel`.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for more entries than the device has; [`VerbsError::Call`].
    pub(crate) fn new(channel: &Arc<Channel>, entries: u32) -> Result<Arc<Self>, VerbsError> {
        let context = channel.context();
        let most = context.limits().entries;
        let count = i32::try_from(entries).ok().filter(|_| entries <= most);
        let count = count.ok_or_else(|| {
            let limit = format!("at most {most}, the most of {}", context.name());
            VerbsError::argument("entries of a CQ", entries, limit)
        })?;
        let data = std::ptr::null_mut();
        // SAFETY: the context is open, and the channel is one of it. Every context has a vector 0.
        let raw = unsafe {
            let rdma = context.rdma();
            rdma.ibv_create_cq(context.raw(), count, data, channel.raw(), 0)
        };
        let raw = NonNull::new(raw).ok_or_else(|| context.failed("ibv_create_cq", last_errno()))?;
        Ok(Arc::new(Self {
            channel: Arc::clone(channel),
            raw,
            entries,
            shared: AtomicU32::new(0),
        }))
    }

    pub(super) fn context(&self) -> &Arc<PlainContext> {
        self.channel.context()
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// Returns whether at least `entries` entries are in no QP's share.
    pub(crate) fn has_room(&self, entries: u32) -> bool {
        entries <= self.entries - self.shared.load(Ordering::Relaxed)
    }

    /// Takes a share of `entries` entries.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] if fewer entries are in no share.
    pub(super) fn share(self: &Arc<Self>, entries: u32) -> Result<Share, VerbsError> {
        let most = self.entries;
        let take = |shared: u32| shared.checked_add(entries).filter(|sum| *sum <= most);
        let order = Ordering::Relaxed;
        match self.shared.fetch_update(order, order, take) {
            Ok(_) => Ok(Share {
                cq: Arc::clone(self),
                entries,
            }),
            Err(shared) => {
                let left = most - shared;
                let limit = format!("at most the {left} of {most} that no other QP has");
                let what = "entries of a CQ for one more QP";
                Err(VerbsError::argument(what, entries, limit))
            }
        }
    }

    /// Gives up to `most` completions to `each`.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`]: the provider does not say what has completed.
    pub(crate) fn poll(
        &self,
        most: usize,
        mut each: impl FnMut(PlainCompletion),
    ) -> Result<(), VerbsError> {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut entries: [ibv_wc; AT_ONCE] = unsafe { std::mem::zeroed() };
        let mut left = most;
        while left > 0 {
            let asked = left.min(AT_ONCE);
            // SAFETY: the CQ is alive.
            let found = unsafe { inline::ibv_poll_cq(self.raw(), &mut entries[..asked]) };
            let Ok(found) = usize::try_from(found) else {
                return Err(self.context().failed("ibv_poll_cq", found.saturating_neg()));
            };
            entries
                .iter()
                .take(found)
                .map(completion)
                .for_each(&mut each);
            if found < asked {
                break;
            }
            left -= asked;
        }
        Ok(())
    }

    /// Arms the CQ: a completion from here on raises an event.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn arm(&self) -> Result<(), VerbsError> {
        // SAFETY: the CQ is alive.
        let errno = unsafe { inline::ibv_req_notify_cq(self.raw()) };
        if let Some(kick) = sys::softhca_kick() {
            kick();
        }
        match errno {
            0 => Ok(()),
            errno => Err(self.context().failed("ibv_req_notify_cq", errno.abs())),
        }
    }
}

fn completion(entry: &ibv_wc) -> PlainCompletion {
    let failed = (entry.status != IBV_WC_SUCCESS).then_some(PlainFailure {
        status: entry.status,
        vendor: entry.vendor_err,
    });
    let has_immediate = failed.is_none() && entry.wc_flags & IBV_WC_WITH_IMM != 0;
    PlainCompletion {
        qpn: entry.qp_num,
        id: entry.wr_id,
        // SAFETY: the flag says that the union holds an immediate. Both of its fields are 32 bits, all values of which are valid.
        immediate: has_immediate.then(|| u32::from_be(unsafe { entry.__bindgen_anon_1.imm_data })),
        failed,
    }
}

impl Drop for PlainCq {
    fn drop(&mut self) {
        // SAFETY: the CQ is alive; QPs of it hold a reference to `self`, so none is left. All events that were taken are acknowledged.
        let errno = unsafe { self.context().rdma().ibv_destroy_cq(self.raw()) };
        if errno != 0 {
            tracing::error!("leaked: {}", self.context().failed("ibv_destroy_cq", errno));
        }
    }
}

impl fmt::Debug for PlainCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainCq({}, {})", self.context().name(), self.entries)
    }
}

/// The share of one QP in a CQ. Its drop gives the entries back.
#[derive(Debug)]
pub(super) struct Share {
    cq: Arc<PlainCq>,
    entries: u32,
}

impl Share {
    pub(super) fn cq(&self) -> &Arc<PlainCq> {
        &self.cq
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.cq.shared.fetch_sub(self.entries, Ordering::Relaxed);
    }
}
