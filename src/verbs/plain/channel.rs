//! The channel by which CQs of a device report completions to a thread that sleeps.

// UNSAFETY: calls into libibverbs with the channel.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::bindings::ibv_comp_channel;
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::plain::context::PlainContext;

/// A channel of events of CQs. One thread reads it.
pub(crate) struct Channel {
    context: Arc<PlainContext>,
    raw: NonNull<ibv_comp_channel>,
}

// SAFETY: libibverbs objects may be used from any thread; this one is only named in calls.
unsafe impl Send for Channel {}
// SAFETY: as for Send.
unsafe impl Sync for Channel {}

impl Channel {
    /// Makes a channel.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn new(context: &Arc<PlainContext>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { context.rdma().ibv_create_comp_channel(context.raw()) };
        let raw = NonNull::new(raw);
        let raw = raw.ok_or_else(|| context.failed("ibv_create_comp_channel", last_errno()))?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            raw,
        }))
    }

    pub(super) fn context(&self) -> &Arc<PlainContext> {
        &self.context
    }

    pub(super) fn raw(&self) -> *mut ibv_comp_channel {
        self.raw.as_ptr()
    }

    /// Returns the descriptor of the channel, which is readable after an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive, and its descriptor is open as long as it is.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// Takes all events that wait. Each event stands for one arming, so they are few.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn take_events(&self) -> Result<(), VerbsError> {
        let rdma = self.context.rdma();
        while self.is_readable() {
            let (mut cq, mut data) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: the channel is alive, and both pointers are written during the call. The descriptor is readable and nobody else
            // reads it, so the call does not wait.
            let failed =
                unsafe { rdma.ibv_get_cq_event(self.raw(), &raw mut cq, &raw mut data) } != 0;
            if failed {
                return Err(self.context.failed("ibv_get_cq_event", last_errno()));
            }
            // SAFETY: the CQ is one of this channel. It cannot be destroyed before its events are acknowledged.
            unsafe { rdma.ibv_ack_cq_events(cq, 1) };
        }
        Ok(())
    }

    fn is_readable(&self) -> bool {
        let fd = self.fd();
        let mut polled = [PollFd::new(&fd, PollFlags::IN)];
        let ready = poll(&mut polled, Some(&Timespec::default()));
        ready == Ok(1) && polled[0].revents().contains(PollFlags::IN)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the channel is alive; CQs that report to it hold a reference to `self`, so none is left.
        let errno = unsafe { self.context.rdma().ibv_destroy_comp_channel(self.raw()) };
        if errno != 0 {
            let error = self.context.failed("ibv_destroy_comp_channel", errno);
            tracing::error!("leaked: {error}");
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.context.name())
    }
}
