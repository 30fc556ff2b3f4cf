//! Events of objects made by verbs: completion channels and asynchronous events.
//!
//! Each object has a user handle (the address of libibverbs' struct). Its events carry that handle.

use std::collections::HashMap;
use std::sync::Arc;

use super::event_queue::{EventQueue, Purpose};
use crate::device::{DevxObject, Event};

/// Objects made by verbs, and where their events go.
#[derive(Default)]
pub(super) struct Listeners {
    by_object: HashMap<DevxObject, Listener>,
}

/// The queues that the events of an object go to.
#[derive(Default)]
pub(super) struct Listener {
    pub(super) user_handle: u64,
    pub(super) completions: Option<Arc<EventQueue>>,
    pub(super) asynchronous: Option<Arc<EventQueue>>,
    sent: EventsRead,
}

impl Listener {
    pub(super) fn new(user_handle: u64) -> Self {
        Self {
            user_handle,
            ..Self::default()
        }
    }
}

/// The number of events of an object that its owner has read, or that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventsRead {
    pub(super) completions: u32,
    pub(super) asynchronous: u32,
}

/// Length of an asynchronous event.
const ASYNCHRONOUS_BYTES: usize = 16;
/// Length of a completion event.
const COMPLETION_BYTES: usize = 8;

impl Listeners {
    pub(super) fn add(&mut self, object: DevxObject, listener: Listener) {
        self.by_object.insert(object, listener);
    }

    /// Removes an object that is gone: takes back its unread events. Returns how many were read.
    pub(super) fn remove(&mut self, object: DevxObject) -> EventsRead {
        let Some(listener) = self.by_object.remove(&object) else {
            return EventsRead::default();
        };
        let start = listener.user_handle.to_ne_bytes();
        let unread = |queue: &Option<Arc<EventQueue>>, sent: u32, bytes: usize| match queue {
            Some(queue) if sent > 0 => u32::try_from(queue.withdraw(bytes, &start)).unwrap_or(sent),
            _ => 0,
        };
        let sent = listener.sent;
        EventsRead {
            completions: sent.completions.saturating_sub(unread(
                &listener.completions,
                sent.completions,
                COMPLETION_BYTES,
            )),
            asynchronous: sent.asynchronous.saturating_sub(unread(
                &listener.asynchronous,
                sent.asynchronous,
                ASYNCHRONOUS_BYTES,
            )),
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_object.clear();
    }

    /// Delivers the event to the owner of the object. Events of the device and its ports go to all of `queues` that are for asynchronous
    /// events.
    pub(super) fn deliver<'a>(
        &mut self,
        event: Event,
        queues: impl Iterator<Item = &'a Arc<EventQueue>>,
    ) {
        if let Event::SrqError(number) | Event::SrqLimit(number) = event {
            // SRQs of both kinds have numbers of one range, so one of the two objects exists.
            for object in [DevxObject::Rmp(number), DevxObject::XrcSrq(number)] {
                self.tell(
                    object,
                    if event == Event::SrqError(number) {
                        14
                    } else {
                        15
                    },
                );
            }
            return;
        }
        match source(event) {
            Source::Completion(object) => {
                if let Some(listener) = self.by_object.get_mut(&object)
                    && let Some(queue) = &listener.completions
                    && queue.push(&listener.user_handle.to_ne_bytes())
                {
                    listener.sent.completions += 1;
                }
            }
            Source::Object(object, kind) => self.tell(object, kind),
            Source::Device(element, kind) => {
                for queue in queues.filter(|queue| queue.purpose == Purpose::Asynchronous) {
                    // A program that does not read loses events, as in the kernel.
                    let _ = queue.push(&asynchronous(element, kind));
                }
            }
            Source::Unknown => {}
        }
    }

    /// Delivers an asynchronous event to the owner of an object.
    fn tell(&mut self, object: DevxObject, kind: u32) {
        if let Some(listener) = self.by_object.get_mut(&object)
            && let Some(queue) = &listener.asynchronous
            && queue.push(&asynchronous(listener.user_handle, kind))
        {
            listener.sent.asynchronous += 1;
        }
    }
}

/// The object of an event, with the event's number in `enum ibv_event_type`.
enum Source {
    Completion(DevxObject),
    Object(DevxObject, u32),
    /// An event of a port, with the port's number, or of the device, with 0.
    Device(u64, u32),
    /// An event for which verbs has no name.
    Unknown,
}

fn source(event: Event) -> Source {
    match event {
        Event::CqCompletion(cqn) => Source::Completion(DevxObject::Cq(cqn)),
        Event::CqError(cqn) => Source::Object(DevxObject::Cq(cqn), 0),
        Event::QpFatal(qpn) => Source::Object(DevxObject::Qp(qpn), 1),
        Event::QpRequestError(qpn) => Source::Object(DevxObject::Qp(qpn), 2),
        Event::QpAccessError(qpn) => Source::Object(DevxObject::Qp(qpn), 3),
        Event::QpEstablished(qpn) => Source::Object(DevxObject::Qp(qpn), 4),
        Event::QpSqDrained(qpn) => Source::Object(DevxObject::Qp(qpn), 5),
        Event::DeviceFatal => Source::Device(0, 8),
        Event::PortActive(port) => Source::Device(port.into(), 9),
        Event::PortDown(port) => Source::Device(port.into(), 10),
        Event::QpLastWqe(qpn) => Source::Object(DevxObject::Qp(qpn), 16),
        _ => Source::Unknown,
    }
}

/// Returns a `struct ib_uverbs_async_event_desc`.
fn asynchronous(element: u64, kind: u32) -> [u8; ASYNCHRONOUS_BYTES] {
    let mut record = [0; ASYNCHRONOUS_BYTES];
    record[..8].copy_from_slice(&element.to_ne_bytes());
    record[8..12].copy_from_slice(&kind.to_ne_bytes());
    record
}
