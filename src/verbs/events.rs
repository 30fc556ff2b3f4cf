//! Events that the HCA reports unasked: its port goes down or comes up, the HCA fails, or a QP has failed.
//!
//! Events come through a channel of DevX, which knows QPs that verbs does not know. A device or a kernel without such channels reports
//! nothing; then completions and deadlines show the same later.

// UNSAFETY: calls into libmlx5 with the channel and objects of its device, and borrows the channel's descriptor.
#![expect(unsafe_code, reason = "calls into libmlx5")]

use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::bindings::{mlx5dv_devx_event_channel, mlx5dv_devx_obj};
use crate::verbs::context::Context;
use crate::verbs::device::open::OpenDevice;
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::object::DevxObject;

/// Event types of the programmer's manual, "Events".
mod kind {
    pub(super) const COMPLETION: u16 = 0x00;
    pub(super) const QP_FATAL: u16 = 0x05;
    pub(super) const INTERNAL_ERROR: u16 = 0x08;
    pub(super) const PORT_CHANGE: u16 = 0x09;
    pub(super) const INVALID_REQUEST: u16 = 0x10;
    pub(super) const ACCESS_ERROR: u16 = 0x11;
}

/// Subtypes of a port's event: 1 is down, 4 is active, others are on the way.
const PORT_DOWN: u8 = 1;
const PORT_ACTIVE: u8 = 4;
/// The cookie of events of the device itself, and of no QP.
const DEVICE: u64 = u64::MAX;
/// The functions that this module calls. Libraries before rdma-core 25 lack them.
const FUNCTIONS: [&str; 4] = [
    "mlx5dv_devx_create_event_channel",
    "mlx5dv_devx_destroy_event_channel",
    "mlx5dv_devx_subscribe_devx_event",
    "mlx5dv_devx_get_event",
];
/// The words of a record: the cookie, then an entry of the event queue of 64 bytes. Bytes 1 and 3 of the entry hold type and subtype.
const WORDS: usize = 9;
/// The byte of a record whose upper half is the number of the port: byte 40 of the entry.
const PORT_BYTE: usize = 8 + 40;

/// An event that an HCA reports unasked, about its port, itself or a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HcaEvent {
    /// The port carries no packets any more.
    PortDown,
    /// The port carries packets again.
    PortUp,
    /// The device has failed for good.
    Fatal,
    /// A QP has failed. The type of event says how: fatal error, invalid request, or access error of the peer.
    Qp {
        /// The cookie of the subscription.
        cookie: u64,
        /// The type of event.
        kind: u16,
    },
}

/// A channel for events of one device.
pub struct Events {
    raw: NonNull<mlx5dv_devx_event_channel>,
    /// Held from the look for an event until the event has been read.
    reading: Mutex<()>,
    /// The port whose events are returned; the device reports all its ports.
    port: u8,
    /// Closed after the channel.
    device: Arc<OpenDevice>,
}

// SAFETY: the channel is a descriptor; subscribing may come from any thread, and reading is under a lock.
unsafe impl Send for Events {}
// SAFETY: as for Send.
unsafe impl Sync for Events {}

impl Events {
    /// Opens a channel for events of the port, and of a failure of the device if the device reports that.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`]; [`VerbsError::Missing`] if libmlx5 has no such channels.
    pub fn open(context: &Arc<Context>) -> Result<Self, VerbsError> {
        let events = Self::silent(context)?;
        events.subscribe(ptr::null_mut(), kind::PORT_CHANGE, DEVICE)?;
        if let Err(error) = events.subscribe(ptr::null_mut(), kind::INTERNAL_ERROR, DEVICE) {
            tracing::debug!("the device does not tell of its own failure: {error}");
        }
        Ok(events)
    }

    /// Opens a channel for subscribed events only.
    pub(super) fn silent(context: &Arc<Context>) -> Result<Self, VerbsError> {
        for function in FUNCTIONS {
            context.rdma().has(function)?;
        }
        // SAFETY: the context is open.
        let raw = unsafe {
            context
                .rdma()
                .mlx5dv_devx_create_event_channel(context.raw(), 0)
        };
        let call = "mlx5dv_devx_create_event_channel";
        let raw = NonNull::new(raw).ok_or_else(|| context.failed(call, last_errno()))?;
        Ok(Self {
            raw,
            reading: Mutex::default(),
            port: context.port().number,
            device: Arc::clone(context.device()),
        })
    }

    /// Subscribes to completions of the CQ `object`, with this cookie. Each arming brings one event.
    pub(super) fn subscribe_cq<M>(
        &self,
        object: &DevxObject<M>,
        cookie: u64,
    ) -> Result<(), VerbsError> {
        self.subscribe(object.raw(), kind::COMPLETION, cookie)
    }

    pub(super) fn device(&self) -> &Arc<OpenDevice> {
        &self.device
    }

    /// Returns the descriptor of the channel, which is readable when an event waits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel and its descriptor are open while `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// Subscribes to failures of the QP `object`, with this cookie.
    pub(super) fn subscribe_qp<M>(
        &self,
        object: &DevxObject<M>,
        cookie: u64,
    ) -> Result<(), VerbsError> {
        for kind in [kind::QP_FATAL, kind::INVALID_REQUEST, kind::ACCESS_ERROR] {
            self.subscribe(object.raw(), kind, cookie)?;
        }
        Ok(())
    }

    fn subscribe(
        &self,
        object: *mut mlx5dv_devx_obj,
        mut kind: u16,
        cookie: u64,
    ) -> Result<(), VerbsError> {
        // SAFETY: the channel is open, the object is null or alive and of the same context; one number of two bytes is read.
        let errno = unsafe {
            self.device.rdma().mlx5dv_devx_subscribe_devx_event(
                self.raw.as_ptr(),
                object,
                2,
                &raw mut kind,
                cookie,
            )
        };
        match errno {
            0 => Ok(()),
            errno => Err(self
                .device
                .failed("mlx5dv_devx_subscribe_devx_event", errno.abs())),
        }
    }

    /// Returns the next event. None if no event waits now.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub fn next(&self) -> Result<Option<HcaEvent>, VerbsError> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        while self.is_readable() {
            let mut record = [0u64; WORDS];
            // SAFETY: the channel is open, and `record` has as many bytes as stated.
            let read = unsafe {
                self.device.rdma().mlx5dv_devx_get_event(
                    self.raw.as_ptr(),
                    record.as_mut_ptr().cast(),
                    size_of_val(&record),
                )
            };
            if read < 8 {
                return Err(self.device.failed("mlx5dv_devx_get_event", last_errno()));
            }
            if let Some(event) = parse(&record, self.port) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn is_readable(&self) -> bool {
        let fd = self.fd();
        let mut polled = [PollFd::new(&fd, PollFlags::IN)];
        let ready = poll(&mut polled, Some(&Timespec::default()));
        ready == Ok(1) && polled[0].revents().contains(PollFlags::IN)
    }
}

/// Returns the event of a record for the user of `port`. None for an event of another port or of no interest.
fn parse(record: &[u64; WORDS], port: u8) -> Option<HcaEvent> {
    let bytes: &[u8] = bytemuck::bytes_of(record);
    let (kind, subtype) = (u16::from(bytes[9]), bytes[11]);
    match (record[0], kind) {
        (DEVICE, kind::PORT_CHANGE) if bytes[PORT_BYTE] >> 4 != port => None,
        (DEVICE, kind::PORT_CHANGE) if subtype == PORT_DOWN => Some(HcaEvent::PortDown),
        (DEVICE, kind::PORT_CHANGE) if subtype == PORT_ACTIVE => Some(HcaEvent::PortUp),
        (DEVICE, kind::INTERNAL_ERROR) => Some(HcaEvent::Fatal),
        (DEVICE, _) => None,
        // The thread that reaps the CQ looks at the CQ itself.
        (_, kind::COMPLETION) => None,
        (cookie, kind) => Some(HcaEvent::Qp { cookie, kind }),
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: the channel is open, and no code names it again.
        unsafe {
            self.device
                .rdma()
                .mlx5dv_devx_destroy_event_channel(self.raw.as_ptr());
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events of {}", self.device.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u8 = 2;

    fn record(cookie: u64, kind: u8, subtype: u8) -> [u64; WORDS] {
        let mut record = [0; WORDS];
        record[0] = cookie;
        let bytes: &mut [u8] = bytemuck::bytes_of_mut(&mut record);
        (bytes[9], bytes[11], bytes[48]) = (kind, subtype, PORT << 4);
        record
    }

    #[test]
    fn the_events_of_other_ports_are_left_out() {
        for (subtype, event) in [(1, HcaEvent::PortDown), (4, HcaEvent::PortUp)] {
            let record = record(DEVICE, 0x09, subtype);
            let of = [1, 2, 3].map(|port| parse(&record, port));
            assert_eq!(of, [None, Some(event), None]);
        }
        assert_eq!(parse(&record(DEVICE, 0x08, 0), 1), Some(HcaEvent::Fatal));
    }

    #[test]
    fn records_are_read_at_their_bytes_and_what_says_nothing_is_left_out() {
        for (record, event) in [
            (record(DEVICE, 0x09, 1), Some(HcaEvent::PortDown)),
            (record(DEVICE, 0x09, 4), Some(HcaEvent::PortUp)),
            (record(DEVICE, 0x09, 5), None),
            (record(DEVICE, 0x08, 0), Some(HcaEvent::Fatal)),
            (record(DEVICE, 0x77, 0), None),
            (record(5, 0x00, 0), None),
            (
                record(3, 0x11, 0),
                Some(HcaEvent::Qp {
                    cookie: 3,
                    kind: 0x11,
                }),
            ),
        ] {
            assert_eq!(parse(&record, PORT), event);
        }
    }
}
