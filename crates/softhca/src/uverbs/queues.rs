//! The records that the kernel keeps of queues made by verbs from one call to the next.

use crate::device::DevxObject;
use crate::uverbs::pinned::Pinned;
use crate::uverbs::qp_rules::{Kind, State};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A CQ made by verbs.
pub(super) struct VerbsCq {
    pub(super) cqn: u32,
    pub(super) ring: Mutex<Ring>,
    pub(super) _record: Pinned,
}

pub(super) struct Ring {
    /// The size that the caller was told, one less than the number of entries of the CQ.
    pub(super) cqe: u32,
    pub(super) _memory: Pinned,
}

impl VerbsCq {
    pub(super) fn cqn(&self) -> u32 {
        self.cqn
    }
}

/// A QP made by verbs.
pub(super) struct VerbsQp {
    pub(super) qpn: u32,
    pub(super) kind: Kind,
    /// True if every send work request is signalled.
    pub(super) signal_all: bool,
    pub(super) receive_wqes: u32,
    pub(super) receive_sge: u32,
    pub(super) known: Mutex<Known>,
    pub(super) _memory: Vec<Pinned>,
}

/// The facts about a QP that the kernel keeps between calls.
pub(super) struct Known {
    pub(super) state: State,
    pub(super) port: u8,
    /// Index of the partition key that was last set.
    pub(super) pkey_index: u16,
    /// Access flags that were last set.
    pub(super) access: u32,
    /// Value of `max_dest_rd_atomic` that was last set.
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

/// An SRQ made by verbs.
pub(super) struct VerbsSrq {
    pub(super) object: DevxObject,
    pub(super) number: u32,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) _memory: [Pinned; 2],
}

impl VerbsSrq {
    /// Returns the number by which the context of a QP names the SRQ.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn object(&self) -> DevxObject {
        self.object
    }
}
