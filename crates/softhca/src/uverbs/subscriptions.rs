//! The event descriptors of a context, and the DevX events that each of them gets.

use crate::device::{DevxObject, Event};
use crate::errno::Errno;
use crate::uverbs::event_queue::{EventQueue, Purpose};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

/// The event descriptors of a context, and the DevX events to which each of them subscribes.
#[derive(Default)]
pub(super) struct Subscriptions {
    /// All open event descriptors of the context.
    queues: Vec<Arc<EventQueue>>,
    wanted: Vec<Subscription>,
}

struct Subscription {
    queue: Arc<EventQueue>,
    /// The object of the event; `None`: the event is one of the device.
    object: Option<DevxObject>,
    kind: u16,
    cookie: u64,
    /// An eventfd that is signalled in place of the descriptor.
    eventfd: Option<Arc<File>>,
}

/// Event types of the programmer's manual that the device model raises.
mod kind {
    pub(super) const COMPLETION: u16 = 0x00;
    pub(super) const ESTABLISHED: u16 = 0x02;
    pub(super) const SQ_DRAINED: u16 = 0x03;
    pub(super) const CQ_ERROR: u16 = 0x04;
    pub(super) const QP_FATAL: u16 = 0x05;
    pub(super) const INTERNAL_ERROR: u16 = 0x08;
    pub(super) const PORT_CHANGE: u16 = 0x09;
    pub(super) const INVALID_REQUEST: u16 = 0x10;
    pub(super) const ACCESS_ERROR: u16 = 0x11;
    pub(super) const LAST_WQE: u16 = 0x13;
}

/// Returns whether `object` (or the device) raises events of type `kind`.
pub(super) fn can_raise(object: Option<DevxObject>, kind: u16) -> bool {
    let kinds: &[u16] = match object {
        Some(DevxObject::Cq(_)) => &[kind::COMPLETION, kind::CQ_ERROR],
        Some(DevxObject::Qp(_)) => &[
            kind::ESTABLISHED,
            kind::SQ_DRAINED,
            kind::QP_FATAL,
            kind::INVALID_REQUEST,
            kind::ACCESS_ERROR,
            kind::LAST_WQE,
        ],
        Some(_) => &[],
        None => &[kind::PORT_CHANGE, kind::INTERNAL_ERROR],
    };
    kinds.contains(&kind)
}

/// An event as a subscriber gets it.
struct Seen {
    object: Option<DevxObject>,
    kind: u16,
    /// Entry of the event queue (`struct mlx5_eqe` in Linux).
    entry: [u8; 64],
}

fn seen(event: Event) -> Option<Seen> {
    /// Offset of the object's number for completions and QP events: after the data. For CQ errors it is at the start of the data, `FIRST`.
    const LAST: usize = 56;
    const FIRST: usize = 32;
    let (object, kind, sub_kind, at) = match event {
        Event::CqCompletion(cqn) => (Some(DevxObject::Cq(cqn)), kind::COMPLETION, 0, LAST),
        Event::CqError(cqn) => (Some(DevxObject::Cq(cqn)), kind::CQ_ERROR, 0, FIRST),
        Event::QpEstablished(qpn) => (Some(DevxObject::Qp(qpn)), kind::ESTABLISHED, 0, LAST),
        Event::QpSqDrained(qpn) => (Some(DevxObject::Qp(qpn)), kind::SQ_DRAINED, 0, LAST),
        Event::QpFatal(qpn) => (Some(DevxObject::Qp(qpn)), kind::QP_FATAL, 0, LAST),
        Event::QpRequestError(qpn) => (Some(DevxObject::Qp(qpn)), kind::INVALID_REQUEST, 0, LAST),
        Event::QpAccessError(qpn) => (Some(DevxObject::Qp(qpn)), kind::ACCESS_ERROR, 0, LAST),
        Event::QpLastWqe(qpn) => (Some(DevxObject::Qp(qpn)), kind::LAST_WQE, 0, LAST),
        Event::PortDown(_) => (None, kind::PORT_CHANGE, 1, FIRST),
        Event::PortActive(_) => (None, kind::PORT_CHANGE, 4, FIRST),
        Event::DeviceFatal => (None, kind::INTERNAL_ERROR, 0, FIRST),
        _ => return None, // DevX cannot make the object of this event here
    };
    let mut entry = [0; 64];
    entry[1] = kind.to_be_bytes()[1];
    entry[3] = sub_kind;
    if let Some(DevxObject::Qp(number) | DevxObject::Cq(number)) = object {
        entry[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
    match event {
        Event::CqError(_) => {
            const OVERRUN: u8 = 1;
            entry[43] = OVERRUN;
        }
        // The number of the port is in the upper half of its byte.
        Event::PortActive(port) | Event::PortDown(port) => entry[FIRST + 8] = port << 4,
        _ => {}
    }
    Some(Seen {
        object,
        kind,
        entry,
    })
}

impl Subscriptions {
    pub(super) fn add(&mut self, queue: Arc<EventQueue>) {
        self.queues.retain(|queue| queue.is_open());
        self.queues.push(queue);
    }

    /// Returns the open queue whose descriptor is `fd`, if its purpose is one that the caller needs.
    pub(super) fn find(
        &self,
        fd: u32,
        wanted: impl Fn(Purpose) -> bool,
    ) -> Result<Arc<EventQueue>, Errno> {
        self.queues
            .iter()
            .find(|queue| u32::try_from(queue.fd).is_ok_and(|open| open == fd) && queue.is_open())
            .filter(|queue| wanted(queue.purpose))
            .cloned()
            .ok_or(Errno::EBADF)
    }

    /// Returns the queue for asynchronous events of objects that name none: the one that was opened first.
    pub(super) fn asynchronous(&self) -> Option<Arc<EventQueue>> {
        self.queues
            .iter()
            .find(|queue| queue.purpose == Purpose::Asynchronous && queue.is_open())
            .cloned()
    }

    /// Makes events of types `kinds` of `object`, or of the device, go to `queue`.
    pub(super) fn subscribe(
        &mut self,
        queue: &Arc<EventQueue>,
        object: Option<DevxObject>,
        kinds: &[u16],
        cookie: u64,
        eventfd: Option<&Arc<File>>,
    ) {
        self.wanted.extend(kinds.iter().map(|kind| Subscription {
            queue: Arc::clone(queue),
            object,
            kind: *kind,
            cookie,
            eventfd: eventfd.cloned(),
        }));
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = &Arc<EventQueue>> {
        self.queues.iter()
    }

    /// Forgets the subscriptions to an object that is gone: another object may get its number.
    pub(super) fn forget(&mut self, object: DevxObject) {
        self.wanted
            .retain(|subscription| subscription.object != Some(object));
    }

    /// Ends all queues of a context that is gone: readers find the end of the file.
    pub(super) fn end(&mut self) {
        self.wanted.clear();
        for queue in self.queues.drain(..) {
            queue.end();
        }
    }

    /// Delivers an event to its subscribers.
    pub(super) fn deliver(&self, event: Event) {
        if self.wanted.is_empty() {
            return;
        }
        let Some(seen) = seen(event) else {
            return;
        };
        for subscription in &self.wanted {
            if subscription.object == seen.object && subscription.kind == seen.kind {
                if let Some(eventfd) = &subscription.eventfd {
                    // A full counter has been signalled already.
                    let _ = (&mut &**eventfd).write(&1u64.to_ne_bytes());
                    continue;
                }
                let mut record = subscription.cookie.to_ne_bytes().to_vec();
                if subscription.queue.purpose == (Purpose::Devx { omit_data: false }) {
                    record.extend(seen.entry);
                }
                // If the queue is full, the event is lost, and the reader still has thousands to read.
                let _ = subscription.queue.push(&record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_subscribed_to_where_they_can_be_raised() {
        let (cq, qp) = (DevxObject::Cq(1), DevxObject::Qp(2));
        assert!(can_raise(Some(cq), 0x00));
        assert!(can_raise(Some(cq), 0x04));
        assert!(!can_raise(Some(qp), 0x04));
        assert!(can_raise(Some(qp), 0x13));
        assert!(!can_raise(Some(qp), 0x09));
        assert!(can_raise(None, 0x09));
        assert!(!can_raise(None, 0x04));
    }

    #[test]
    fn event_entries_have_the_literal_layout() {
        let qp = seen(Event::QpAccessError(0x0012_3456)).unwrap().entry;
        assert_eq!(qp[1], 0x11);
        assert_eq!(qp[56..60], [0, 0x12, 0x34, 0x56]);
        let cq = seen(Event::CqError(0x77)).unwrap().entry;
        assert_eq!(cq[1], 0x04);
        assert_eq!(cq[32..36], [0, 0, 0, 0x77]);
        assert_eq!(cq[43], 1);
        let port = seen(Event::PortDown(1)).unwrap().entry;
        assert_eq!((port[1], port[3], port[40]), (0x09, 1, 0x10));
    }
}
