//! Descriptors that a program reads events from: asynchronous events, completion channels, DevX events.
//!
//! Each is the reading end of a pipe; [`EventQueue`] holds the other end. A pipe keeps records whole, since they
//! are shorter than `PIPE_BUF`. When it is full, events are dropped, as the kernel does beyond its limit.
//!
//! Which events exist so far: those of DevX objects, for descriptors that subscribed to them. Asynchronous
//! events and completion channels of verbs are about queues made by verbs, which do not exist yet.

use std::fs::File as Pipe;
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::Context;
use super::frame::{Call, Method, Spec};
use crate::device::{Context as DeviceContext, DevxObject, Event};
use crate::errno::Errno;
use crate::shim::{self, File};

const ASYNC_EVENT: u16 = 0x10;
const ASYNC_EVENT_FD: u16 = 0;
const DEVX: u16 = 0x1000;
const DEVX_EVENT: u16 = 0x1005;
const DEVX_EVENT_FD: u16 = 0x1000;
const DEVX_EVENT_FLAGS: u16 = 0x1001;
const SUBSCRIBE_FD: u16 = 0x1000;
const SUBSCRIBE_OBJECT: u16 = 0x1001;
const SUBSCRIBE_TYPES: u16 = 0x1002;
const SUBSCRIBE_COOKIE: u16 = 0x1004;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: ASYNC_EVENT,
        method: 0,
        attributes: &[Spec::object(ASYNC_EVENT_FD)],
        run: open_asynchronous,
    },
    Method {
        object: DEVX_EVENT,
        method: 0x1000,
        attributes: &[
            Spec::object(DEVX_EVENT_FD),
            Spec::number(DEVX_EVENT_FLAGS, 4),
        ],
        run: open_devx,
    },
    // Without the attribute for an eventfd to be signalled instead (0x1003): whoever insists on it is refused.
    Method {
        object: DEVX,
        method: 0x1003,
        attributes: &[
            Spec::object(SUBSCRIBE_FD),
            Spec::object(SUBSCRIBE_OBJECT).optional(),
            Spec::bytes(SUBSCRIBE_TYPES, 2),
            Spec::number(SUBSCRIBE_COOKIE, 8).optional(),
        ],
        run: subscribe,
    },
];

/// The writing end of a descriptor that events are read from.
pub(super) struct EventQueue {
    device: DeviceContext,
    /// The reading end's number in this process, while it is open.
    fd: RawFd,
    /// Gone when reader or context are: the reader then finds the end of the file.
    writer: Mutex<Option<Pipe>>,
    /// Records hold only the cookie, not the event itself.
    omit_data: bool,
}

/// Opens a descriptor for events and has `publish` tell the caller its number.
pub(super) fn open(
    context: &Context,
    omit_data: bool,
    publish: impl FnOnce(u32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let device = context.device()?.clone();
    let (reader, writer) = std::io::pipe().map_err(|_| Errno::EMFILE)?;
    let writer: OwnedFd = writer.into();
    shim::set_nonblocking(&writer)?;
    let reader: OwnedFd = reader.into();
    let queue = Arc::new(EventQueue {
        device: device.clone(),
        fd: reader.as_raw_fd(),
        writer: Mutex::new(Some(writer.into())),
        omit_data,
    });
    device.count_event_fd(true);
    // From here on, closing the descriptor ends the queue.
    if let Err(error) = shim::insert(reader.as_raw_fd(), queue.clone()) {
        queue.closed();
        return Err(error);
    }
    let number = u32::try_from(reader.as_raw_fd()).map_err(|_| Errno::EMFILE)?;
    publish(number)?; // on failure `reader` closes here
    context.subscriptions().queues.push(queue);
    let _given_to_the_caller = reader.into_raw_fd();
    Ok(())
}

impl File for EventQueue {
    fn closed(&self) {
        self.end();
        self.device.count_event_fd(false);
    }
}

impl EventQueue {
    fn end(&self) {
        self.writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    fn is_open(&self) -> bool {
        self.writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    fn push(&self, record: &[u8]) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = &*writer {
            // Full: the event is lost, and the reader has thousands to read.
            let _ = (&mut &*writer).write(record);
        }
    }
}

/// Who wants to hear of which events.
#[derive(Default)]
pub(super) struct Subscriptions {
    /// All open event descriptors of the context.
    queues: Vec<Arc<EventQueue>>,
    wanted: Vec<Subscription>,
}

struct Subscription {
    queue: Arc<EventQueue>,
    object: DevxObject,
    kind: EventKind,
    cookie: u64,
}

/// Event types of the programmer's manual that the device model raises.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum EventKind {
    CqError = 0x04,
    InvalidRequest = 0x10,
    AccessError = 0x11,
}

impl EventKind {
    fn from_number(number: u16) -> Option<Self> {
        match number {
            0x04 => Some(Self::CqError),
            0x10 => Some(Self::InvalidRequest),
            0x11 => Some(Self::AccessError),
            _ => None,
        }
    }

    fn is_about(self, object: DevxObject) -> bool {
        matches!(
            (self, object),
            (Self::CqError, DevxObject::Cq(_))
                | (Self::InvalidRequest | Self::AccessError, DevxObject::Qp(_))
        )
    }
}

impl Subscriptions {
    /// The object is gone: its number may come back with another one.
    pub(super) fn forget(&mut self, object: DevxObject) {
        self.wanted
            .retain(|subscription| subscription.object != object);
    }

    /// The context is gone: readers find the end of the file.
    pub(super) fn end(&mut self) {
        self.wanted.clear();
        for queue in self.queues.drain(..) {
            queue.end();
        }
    }

    /// Tells those who subscribed to it.
    pub(super) fn deliver(&self, event: Event) {
        let (kind, object) = match event {
            Event::QpRequestError(qpn) => (EventKind::InvalidRequest, DevxObject::Qp(qpn)),
            Event::QpAccessError(qpn) => (EventKind::AccessError, DevxObject::Qp(qpn)),
            Event::CqError(cqn) => (EventKind::CqError, DevxObject::Cq(cqn)),
            _ => return, // nobody can subscribe to the others yet
        };
        for subscription in &self.wanted {
            if subscription.object == object && subscription.kind == kind {
                let mut record = subscription.cookie.to_ne_bytes().to_vec();
                if !subscription.queue.omit_data {
                    record.extend(entry(kind, object));
                }
                subscription.queue.push(&record);
            }
        }
    }
}

/// The event as an entry of an event queue (`struct mlx5_eqe` in Linux).
fn entry(kind: EventKind, object: DevxObject) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[1] = kind as u8;
    match object {
        DevxObject::Qp(qpn) => entry[56..60].copy_from_slice(&qpn.to_be_bytes()),
        DevxObject::Cq(cqn) => {
            const OVERRUN: u8 = 1;
            entry[32..36].copy_from_slice(&cqn.to_be_bytes());
            entry[43] = OVERRUN;
        }
        _ => {} // no events are about others
    }
    entry
}

fn open_asynchronous(call: &Call<'_>) -> Result<(), Errno> {
    open(call.context, false, |fd| {
        call.put_object(ASYNC_EVENT_FD, fd)
    })
}

fn open_devx(call: &Call<'_>) -> Result<(), Errno> {
    const OMIT_DATA: u32 = 1;
    call.context.devx()?;
    let flags = call.u32(DEVX_EVENT_FLAGS)?;
    if flags & !OMIT_DATA != 0 {
        return Err(Errno::EINVAL);
    }
    open(call.context, flags & OMIT_DATA != 0, |fd| {
        call.put_object(DEVX_EVENT_FD, fd)
    })
}

fn subscribe(call: &Call<'_>) -> Result<(), Errno> {
    call.context.devx()?;
    // Events that belong to no object (port changes) are never raised here.
    if !call.has(SUBSCRIBE_OBJECT) {
        return Err(Errno::EOPNOTSUPP);
    }
    let object = call
        .context
        .handles()
        .devx(call.object(SUBSCRIBE_OBJECT)?)?;
    let fd = call.object(SUBSCRIBE_FD)?;
    let cookie = call.u64(SUBSCRIBE_COOKIE)?;
    let types = call.bytes(SUBSCRIBE_TYPES)?;
    if types.len() % 2 != 0 {
        return Err(Errno::EINVAL);
    }
    let kinds = types
        .chunks_exact(2)
        .map(|number| {
            EventKind::from_number(u16::from_ne_bytes([number[0], number[1]]))
                .filter(|kind| kind.is_about(object))
                .ok_or(Errno::EOPNOTSUPP)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut subscriptions = call.context.subscriptions();
    subscriptions.queues.retain(|queue| queue.is_open());
    let queue = subscriptions
        .queues
        .iter()
        .find(|queue| u32::try_from(queue.fd).is_ok_and(|open| open == fd))
        .cloned()
        .ok_or(Errno::EBADF)?;
    for kind in kinds {
        subscriptions.wanted.push(Subscription {
            queue: queue.clone(),
            object,
            kind,
            cookie,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_entries_have_the_literal_layout() {
        let qp = entry(EventKind::AccessError, DevxObject::Qp(0x0012_3456));
        assert_eq!(qp[1], 0x11);
        assert_eq!(qp[56..60], [0, 0x12, 0x34, 0x56]);
        let cq = entry(EventKind::CqError, DevxObject::Cq(0x77));
        assert_eq!(cq[1], 0x04);
        assert_eq!(cq[32..36], [0, 0, 0, 0x77]);
        assert_eq!(cq[43], 1);
    }

    #[test]
    fn event_kinds_fit_their_objects() {
        for number in 0..=u16::from(u8::MAX) {
            if let Some(kind) = EventKind::from_number(number) {
                assert_eq!(kind as u16, number);
                assert_ne!(
                    kind.is_about(DevxObject::Qp(1)),
                    kind.is_about(DevxObject::Cq(1))
                );
            }
        }
    }
}
