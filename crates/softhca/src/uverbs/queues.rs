//! Queues made by verbs: what is kept of them from one call to the next.

use crate::device::DevxObject;
use crate::uverbs::pinned::Pinned;
use crate::uverbs::qp_rules::{Kind, State};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A completion queue made by verbs.
pub(super) struct VerbsCq {
    pub(super) cqn: u32,
    pub(super) ring: Mutex<Ring>,
    pub(super) _record: Pinned,
}

pub(super) struct Ring {
    /// Entries that the caller got as the size, one less than the CQ has.
    pub(super) cqe: u32,
    pub(super) _memory: Pinned,
}

impl VerbsCq {
    pub(super) fn cqn(&self) -> u32 {
        self.cqn
    }
}

/// A queue pair made by verbs.
pub(super) struct VerbsQp {
    pub(super) qpn: u32,
    pub(super) kind: Kind,
    /// Every send work request is signalled.
    pub(super) signal_all: bool,
    pub(super) receive_wqes: u32,
    pub(super) receive_sge: u32,
    pub(super) known: Mutex<Known>,
    pub(super) _memory: Vec<Pinned>,
}

/// What the kernel remembers of a queue pair between calls.
pub(super) struct Known {
    pub(super) state: State,
    pub(super) port: u8,
    /// Index of the partition key last set.
    pub(super) pkey_index: u16,
    /// Access flags last set.
    pub(super) access: u32,
    /// `max_dest_rd_atomic` last set.
    pub(super) responder_depth: u8,
}

impl VerbsQp {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn object(&self) -> DevxObject {
        DevxObject::Qp(self.qpn)
    }
}

/// A shared receive queue made by verbs.
pub(super) struct VerbsSrq {
    pub(super) object: DevxObject,
    pub(super) number: u32,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) _memory: [Pinned; 2],
}

impl VerbsSrq {
    /// Returns the number by which the context of a queue pair names it.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn object(&self) -> DevxObject {
        self.object
    }
}
