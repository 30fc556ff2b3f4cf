//! A slot: the body, the account and the failures of its transfer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use super::failures::Failures;
use super::prepared::Prepared;
use crate::engine::error::EngineError;
use crate::engine::ids::TransferId;
use crate::engine::kind::Kind;
use crate::engine::ledger::account::{AtomicAccount, Change};
use crate::engine::ledger::cut::Cut;
use crate::engine::ledger::plan::Plan;
use crate::engine::ledger::report::FirstCause;
use crate::engine::lives::attached::Attached;
use crate::engine::memory::table::Tables;
use crate::engine::route::flow::{Stalled, WaitsFor};
use crate::engine::route::link::Link;
use crate::provider::Cause;

/// One slot.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) account: AtomicAccount,
    /// The number of slices of the transfer.
    pub(super) total: AtomicU32,
    pub(super) body: RwLock<Body>,
    pub(super) failures: Failures,
}

/// The body of a transfer. Its submitter writes it before any worker knows the transfer.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) id: Option<TransferId>,
    /// The plan of a transfer that was not prepared.
    pub(super) own: Plan,
    pub(super) operations: u32,
    /// True if a WRITE writes to memory from which another WRITE reads.
    pub(super) overlaps: bool,
    pub(super) prepared: Option<Arc<Prepared>>,
    /// True if some memory of the peer is a GPU's.
    pub(super) reaches_gpu: bool,
    /// True if some memory of this side is a GPU's.
    pub(super) has_gpu: bool,
    /// The number of the GPU that copies the transfer within this machine. 0: none does.
    pub(super) copier: u8,
    pub(super) deadline: Option<Instant>,
    /// The counter of the peer at which each operation counts.
    pub(super) counter: Option<u32>,
    /// A bit for each rail of the peer that is near all of the transfer's memory there. 0: any rail will do.
    pub(super) near: u8,
    /// The notice that is sent when the transfer is concluded.
    pub(super) notice: Option<Attached>,
    /// The way of the transfer. None: it is concluded.
    pub(super) way: Option<Way>,
}

/// The link of a transfer, and the memory that it was planned with.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) link: Arc<Link>,
    pub(super) tables: Tables,
}

/// The QP and the rail by which a slice was posted, where they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct By {
    pub(in crate::engine) qp: Option<u32>,
    pub(in crate::engine) rail: Option<u32>,
}

impl Body {
    /// Returns the plan: the prepared one, or the slot's own.
    pub(super) fn plan(&self) -> &Plan {
        self.prepared.as_ref().map_or(&self.own, |it| &it.plan)
    }

    /// Returns the way of transfer `id`, if the slot has that transfer and it is not concluded.
    pub(super) fn way_of(&self, id: TransferId) -> Option<&Way> {
        self.way.as_ref().filter(|_| self.id == Some(id))
    }

    /// Returns whether neither a thread of this process nor a GPU can copy the transfer.
    pub(super) fn is_for_nic(&self) -> bool {
        (self.has_gpu || self.reaches_gpu) && self.copier == 0
    }

    /// Returns whether the transfer reads into memory of a GPU.
    pub(super) fn fills_gpu(&self) -> bool {
        self.has_gpu && self.plan().remotes().any(|it| it.kind == Kind::Read)
    }

    /// Returns the failure of slice `slice`. If slices were never posted, `slice` is the first of them.
    pub(super) fn first_cause(&self, slice: u32, by: By, cause: Option<Cause>) -> FirstCause {
        let found = self.plan().range(slice..slice.saturating_add(1)).next();
        let (operation, remote) = found.map_or((0, 0), |it| (it.operations.start, it.remote));
        FirstCause {
            qp: by.qp,
            rail: by.rail,
            cause,
            operation,
            remote,
        }
    }
}

impl Place {
    /// Returns an empty slot. Its transfers are cut by `cut`, and their WQEs gather up to `gather` ranges.
    pub(super) fn new(cut: Cut, gather: u32) -> Result<Self, EngineError> {
        let body = Body {
            id: None,
            own: Plan::new(cut, gather)?,
            operations: 0,
            overlaps: false,
            prepared: None,
            reaches_gpu: false,
            has_gpu: false,
            copier: 0,
            deadline: None,
            counter: None,
            near: 0,
            notice: None,
            way: None,
        };
        Ok(Self {
            account: AtomicAccount::default(),
            total: AtomicU32::new(0),
            body: RwLock::new(body),
            failures: Failures::default(),
        })
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Body> {
        self.body.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Body> {
        self.body.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the account of a transfer of `total` slices.
    pub(super) fn reset(&self, total: u32) {
        self.failures.clear();
        self.total.store(total, Ordering::Relaxed);
        self.account.reset();
    }

    /// Returns how many slices the transfer has.
    pub(super) fn total(&self) -> u32 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns whether this change has settled the account.
    pub(super) fn is_settled_by(&self, change: Change) -> bool {
        change.settles(self.total())
    }

    /// Returns whether copies cannot move transfer `id`.
    pub(super) fn is_for_nic(&self, id: TransferId) -> bool {
        let body = self.read();
        body.id == Some(id) && body.is_for_nic()
    }

    /// Returns the link of transfer `id`, if it is not concluded.
    pub(super) fn link_of(&self, id: TransferId) -> Option<Arc<Link>> {
        let body = self.read();
        Some(Arc::clone(&body.way_of(id)?.link))
    }

    /// Returns the rails by which slices of the connection of transfer `id` are in flight. The list is empty if it is concluded.
    pub(super) fn stalled(&self, id: TransferId) -> Vec<Stalled> {
        let link = self.link_of(id);
        link.map(|link| link.flows().stalled(link.lanes()))
            .unwrap_or_default()
    }

    /// Returns what transfer `id` waits for. None: it is concluded.
    pub(super) fn waits_for(&self, id: TransferId) -> Option<WaitsFor> {
        let body = self.read();
        let link = &body.way_of(id)?.link;
        let (account, total) = (self.account.load(), self.total());
        let posted = account.handed().saturating_sub(account.finished());
        let posted = posted.saturating_sub(self.failures.retries());
        let has_no_qp = || body.is_for_nic() && link.lanes().open_qps() == 0;
        Some(if posted > 0 {
            WaitsFor::Completion
        } else if !link.is_open() {
            WaitsFor::End
        } else if account.is_settled(total) {
            WaitsFor::Reset
        } else if has_no_qp() || link.open_workers().is_empty() {
            WaitsFor::Qp
        } else {
            WaitsFor::Room
        })
    }
}
