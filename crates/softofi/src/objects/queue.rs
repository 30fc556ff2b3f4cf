//! A completion queue.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libfabric_abi::bindings::{
    FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED,
    FI_CQ_FORMAT_UNSPEC, fi_cq_format,
};
use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};

use super::{Domain, Endpoint, Users};
use crate::config::Profile;
use crate::counts::Count;
use crate::engine::contexts;
use crate::failure::Failure;
use crate::rules::Rule;

/// What `fi_cq_read` fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Context,
    Msg,
    Data,
    Tagged,
}

impl Format {
    pub(crate) fn of(format: fi_cq_format, profile: Profile) -> Result<Self, c_int> {
        match format {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_DATA => Ok(Self::Data),
            FI_CQ_FORMAT_CONTEXT => Ok(Self::Context),
            FI_CQ_FORMAT_MSG => Ok(Self::Msg),
            FI_CQ_FORMAT_TAGGED if profile == Profile::Efa => Ok(Self::Tagged),
            _ => Err(Rule::Format.broken(format_args!("({format})"))),
        }
    }
}

/// A completion.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Of the endpoint whose close drops it.
    pub(crate) endpoint: u32,
    /// Address that the program gave, or 0.
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) bytes: usize,
    pub(crate) data: u64,
    pub(crate) failure: Option<Failure>,
    /// Whether the context is free again when this is read.
    pub(crate) releases: bool,
}

pub(crate) struct Queue {
    pub(crate) domain: Arc<Domain>,
    pub(crate) format: Format,
    pub(crate) endpoints: Users,
    size: usize,
    wait: Option<Wait>,
    state: Mutex<State>,
    /// Operations under way that may end here.
    under_way: AtomicUsize,
    /// Whether that was more than there is room for, and reported.
    is_overbooked: AtomicBool,
    bound: Mutex<Vec<Arc<Endpoint>>>,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    /// It had more than room: nothing more comes out of it.
    overrun: bool,
    /// Somebody wants sleepers to wake.
    signalled: bool,
}

/// A descriptor that is readable when there may be something to read. Below it is one for completions, and those of the endpoints
/// that move only when they are called.
struct Wait {
    outer: OwnedFd,
    filled: OwnedFd,
}

impl Queue {
    pub(crate) fn new(
        domain: Arc<Domain>,
        format: Format,
        size: usize,
        waits: bool,
    ) -> Result<Self, c_int> {
        let wait = waits.then(Wait::new).transpose();
        Ok(Self {
            domain,
            format,
            endpoints: Users::default(),
            size,
            wait: wait.map_err(|error| error.raw_os_error())?,
            state: Mutex::default(),
            under_way: AtomicUsize::new(0),
            is_overbooked: AtomicBool::new(false),
            bound: Mutex::default(),
        })
    }

    pub(crate) fn wait_fd(&self) -> Option<c_int> {
        self.wait.as_ref().map(|wait| wait.outer.as_raw_fd())
    }

    /// An endpoint that is enabled. `ready` is the descriptor that says that it has work.
    pub(crate) fn bind(&self, endpoint: &Arc<Endpoint>, ready: &OwnedFd) -> Result<(), c_int> {
        if let Some(wait) = &self.wait
            && self.domain.profile.is_manual()
        {
            let flags = epoll::EventFlags::IN;
            let data = epoll::EventData::new_u64(u64::from(endpoint.ordinal));
            match epoll::add(&wait.outer, ready, data, flags) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.raw_os_error()),
            }
        }
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.push(endpoint.clone());
        Ok(())
    }

    /// The endpoint is closed: its completions are dropped without a word.
    pub(crate) fn unbind(&self, endpoint: u32) {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.retain(|it| it.ordinal != endpoint);
        drop(bound);
        let mut state = self.state();
        let before = state.entries.len();
        let mut contexts_of = Vec::new();
        state.entries.retain(|entry| {
            let stays = entry.endpoint != endpoint;
            if !stays && entry.releases {
                contexts_of.push(entry.context);
            }
            stays
        });
        Count::DroppedCompletions.add_many(before - state.entries.len());
        drop(state);
        for context in contexts_of {
            contexts::release(context);
        }
    }

    /// Where bytes move only when a thread calls, this is the call.
    pub(crate) fn progress(&self) {
        if !self.domain.profile.is_manual() {
            return;
        }
        // A step may wait for a lock of an endpoint that is being bound here.
        let bound = {
            let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
            bound.clone()
        };
        for endpoint in bound {
            endpoint.step();
        }
    }

    /// An operation begins that may end here. More than there is room for is reported: EFA would lose completions.
    pub(crate) fn begin(&self) {
        let under_way = self.under_way.fetch_add(1, Ordering::AcqRel) + 1;
        let unread = self.state().entries.len();
        let is_over = under_way + unread > self.size;
        if is_over && !self.is_overbooked.swap(is_over, Ordering::AcqRel) {
            let size = self.size;
            Rule::CqOverbooked.broken(format_args!("({under_way} and {unread} unread, of {size})"));
        }
    }

    pub(crate) fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// A completion comes.
    pub(crate) fn push(&self, entry: Entry) {
        let mut state = self.state();
        if state.entries.len() >= self.size {
            if !state.overrun {
                Rule::CqOverrun.broken(format_args!("({} entries)", self.size));
            }
            state.overrun = true;
        } else {
            state.entries.push_back(entry);
        }
        drop(state);
        self.wake();
    }

    /// Takes completions up to the first error, or says what is at the head.
    pub(crate) fn take(&self, most: usize) -> Head {
        let mut state = self.state();
        if state.overrun {
            return Head::Error;
        }
        let ready = state.entries.iter().take(most);
        let good = ready.take_while(|entry| entry.failure.is_none()).count();
        if good == 0 {
            return match state.entries.front() {
                Some(_) => Head::Error,
                None => Head::Nothing,
            };
        }
        Head::Entries(state.entries.drain(..good).collect())
    }

    /// Takes the error at the head.
    pub(crate) fn take_error(&self) -> Option<Entry> {
        let mut state = self.state();
        if state.overrun {
            return Some(Entry {
                endpoint: 0,
                context: 0,
                flags: 0,
                bytes: 0,
                data: 0,
                failure: Some(Failure::Overrun),
                releases: false,
            });
        }
        let first = state.entries.front()?;
        first.failure?;
        state.entries.pop_front()
    }

    /// Whether a thread may sleep on the descriptor. Without one it is an error of the program.
    pub(crate) fn may_sleep(&self) -> Result<bool, c_int> {
        let Some(wait) = &self.wait else {
            return Err(Rule::TrywaitWithoutObject.broken(""));
        };
        self.progress();
        let mut state = self.state();
        if !state.entries.is_empty() || state.overrun || state.signalled {
            state.signalled = false;
            return Ok(false);
        }
        // Under the lock: what comes after it makes the descriptor readable again.
        let mut word = [0; 8];
        let _ = rustix::io::read(&wait.filled, &mut word);
        Ok(true)
    }

    /// Wakes sleepers without a completion.
    pub(crate) fn signal(&self) {
        self.state().signalled = true;
        self.wake();
    }

    /// Whether somebody has asked sleepers to wake, once.
    pub(crate) fn take_signal(&self) -> bool {
        std::mem::take(&mut self.state().signalled)
    }

    fn wake(&self) {
        if let Some(wait) = &self.wait {
            // It cannot be full: each write adds one.
            let _ = rustix::io::write(&wait.filled, &1u64.to_ne_bytes());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is at the head of a queue.
pub(crate) enum Head {
    Entries(Vec<Entry>),
    Error,
    Nothing,
}

impl Wait {
    fn new() -> Result<Self, rustix::io::Errno> {
        let outer = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let filled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&outer, filled.as_fd(), data, epoll::EventFlags::IN)?;
        Ok(Self { outer, filled })
    }
}
