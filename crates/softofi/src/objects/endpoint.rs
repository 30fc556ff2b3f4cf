//! An endpoint: what is bound to it, and then its work.

use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libfabric_abi::bindings::{
    FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA, FI_SELECTIVE_COMPLETION,
    FI_TRANSMIT, FI_WRITE,
};

use super::{Domain, Queue, Vector};
use crate::engine::{Address, Work};
use crate::info::RIGHTS;
use crate::rules::Rule;

/// What an endpoint was made of, and its place in its life.
pub(crate) struct Endpoint {
    pub(crate) domain: Arc<Domain>,
    /// From 1, in its domain.
    pub(crate) ordinal: u32,
    /// With the rights that `FI_RMA` implies.
    pub(crate) caps: u64,
    /// Of operations without flags of their own.
    pub(crate) op_flags: u64,
    state: Mutex<State>,
}

enum State {
    New(Parts),
    Enabled(Box<Work>),
    Closed,
}

/// What is bound before an endpoint is enabled.
#[derive(Clone, Default)]
struct Parts {
    sends: Option<Arc<Queue>>,
    receives: Option<Arc<Queue>>,
    selective: bool,
    vector: Option<Arc<Vector>>,
}

/// All that an enabled endpoint has.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) sends: Arc<Queue>,
    pub(crate) receives: Option<Arc<Queue>>,
    /// Completions only where an operation asks for one.
    pub(crate) selective: bool,
    pub(crate) vector: Arc<Vector>,
}

impl Bound {
    /// The queues turn the endpoint, where it does not move by itself.
    fn bind(&self, endpoint: &Arc<Endpoint>, ready: &OwnedFd) -> Result<(), c_int> {
        self.sends.bind(endpoint, ready)?;
        match &self.receives {
            Some(receives) if !Arc::ptr_eq(receives, &self.sends) => receives.bind(endpoint, ready),
            _ => Ok(()),
        }
    }

    fn unbind(&self, endpoint: u32) {
        self.sends.unbind(endpoint);
        if let Some(receives) = &self.receives {
            receives.unbind(endpoint);
        }
    }
}

impl Endpoint {
    pub(crate) fn new(domain: Arc<Domain>, caps: u64, op_flags: u64) -> Self {
        let implied = if caps & FI_RMA != 0 && caps & RIGHTS == 0 {
            RIGHTS
        } else {
            0
        };
        domain.users.add();
        Self {
            ordinal: domain.next_ordinal(),
            domain,
            caps: caps | implied,
            op_flags,
            state: Mutex::new(State::New(Parts::default())),
        }
    }

    /// Whether its capabilities have a right of `FI_RMA`.
    pub(crate) fn may(&self, right: u64) -> bool {
        debug_assert!([FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE].contains(&right));
        self.caps & FI_RMA != 0 && self.caps & right != 0
    }

    pub(crate) fn bind_queue(&self, queue: Arc<Queue>, flags: u64) -> Result<(), c_int> {
        if flags & !(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) != 0
            || flags & (FI_TRANSMIT | FI_RECV) == 0
        {
            return Err(Rule::Flags.broken(format_args!("(fi_ep_bind: {flags:#x})")));
        }
        if !Arc::ptr_eq(&queue.domain, &self.domain) {
            return Err(Rule::OtherDomain.broken("(a completion queue and an endpoint)"));
        }
        self.with_parts(|parts| {
            if flags & FI_TRANSMIT != 0 {
                queue.endpoints.add();
                parts.selective = flags & FI_SELECTIVE_COMPLETION != 0;
                release(parts.sends.replace(queue.clone()).as_deref());
            }
            if flags & FI_RECV != 0 {
                queue.endpoints.add();
                release(parts.receives.replace(queue).as_deref());
            }
        })
    }

    pub(crate) fn bind_vector(&self, vector: Arc<Vector>) -> Result<(), c_int> {
        if !Arc::ptr_eq(&vector.domain, &self.domain) {
            return Err(Rule::OtherDomain.broken("(an address vector and an endpoint)"));
        }
        self.with_parts(|parts| {
            vector.endpoints.add();
            if let Some(before) = parts.vector.replace(vector) {
                before.endpoints.remove();
            }
        })
    }

    /// Refuses what is allowed before an endpoint is enabled only.
    pub(crate) fn is_new(&self) -> Result<(), c_int> {
        self.with_parts(|_| ())
    }

    fn with_parts(&self, change: impl FnOnce(&mut Parts)) -> Result<(), c_int> {
        match &mut *self.state() {
            State::New(parts) => {
                change(parts);
                Ok(())
            }
            State::Enabled(_) => Err(Rule::Enabled.broken("")),
            State::Closed => Err(Rule::ClosedHandle.broken("(endpoint)")),
        }
    }

    pub(crate) fn enable(self: &Arc<Self>) -> Result<(), c_int> {
        let mut state = self.state();
        let State::New(parts) = &*state else {
            return Err(Rule::Enabled.broken(""));
        };
        let parts = parts.clone();
        let bound = Bound {
            sends: parts.sends.ok_or_else(|| Rule::NoQueue.broken(""))?,
            receives: parts.receives,
            selective: parts.selective,
            vector: parts.vector.ok_or_else(|| Rule::NoVector.broken(""))?,
        };
        let work = Work::new(self, bound.clone())?;
        self.domain.enable(self, work.ready().as_fd())?;
        if let Err(error) = bound.bind(self, work.ready()) {
            self.domain.disable(self);
            bound.unbind(self.ordinal);
            return Err(error);
        }
        *state = State::Enabled(Box::new(work));
        Ok(())
    }

    pub(crate) fn address(&self) -> Result<Address, c_int> {
        self.with_work(|work| Ok(work.address()))
    }

    /// Does something with the work of an endpoint that is enabled.
    pub(crate) fn with_work<T>(
        &self,
        call: impl FnOnce(&mut Work) -> Result<T, c_int>,
    ) -> Result<T, c_int> {
        match &mut *self.state() {
            State::Enabled(work) => call(work),
            State::New(_) => Err(Rule::NotEnabled.broken("")),
            State::Closed => Err(Rule::ClosedHandle.broken("(endpoint)")),
        }
    }

    /// Whether operations to a peer of this vector are under way.
    pub(crate) fn uses(&self, vector: &Vector, peer: &Address) -> bool {
        match &*self.state() {
            State::Enabled(work) => {
                std::ptr::eq(&raw const *work.bound().vector, vector) && work.uses(peer)
            }
            State::New(_) | State::Closed => false,
        }
    }

    /// Moves what can be moved.
    pub(crate) fn step(&self) {
        if let State::Enabled(work) = &mut *self.state() {
            work.step();
        }
    }

    /// Ends it: when this has returned, nothing lands by it any more.
    pub(crate) fn close(&self) -> Result<(), c_int> {
        let before = std::mem::replace(&mut *self.state(), State::Closed);
        let parts = match before {
            State::New(parts) => parts,
            State::Enabled(work) => {
                let bound = work.close();
                self.domain.disable(self);
                bound.unbind(self.ordinal);
                Parts {
                    sends: Some(bound.sends),
                    receives: bound.receives,
                    selective: bound.selective,
                    vector: Some(bound.vector),
                }
            }
            State::Closed => return Err(Rule::ClosedHandle.broken("(endpoint)")),
        };
        release(parts.sends.as_deref());
        release(parts.receives.as_deref());
        if let Some(vector) = parts.vector {
            vector.endpoints.remove();
        }
        self.domain.users.remove();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn release(queue: Option<&Queue>) {
    if let Some(queue) = queue {
        queue.endpoints.remove();
    }
}
