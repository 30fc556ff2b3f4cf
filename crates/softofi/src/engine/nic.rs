//! The thread of a device whose bytes move by themselves.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use libfabric_abi::errors::FI_EIO;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};

use crate::guard;
use crate::objects::Endpoint;
use crate::rules::say;

/// The device's own word: it is to end.
const END: u64 = 0;

/// Events of one turn.
const EVENTS: usize = 32;

pub(crate) struct Nic {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    events: OwnedFd,
    end: OwnedFd,
    endpoints: Mutex<HashMap<u32, Arc<Endpoint>>>,
}

impl Nic {
    pub(crate) fn start() -> Result<Self, c_int> {
        let open = || -> rustix::io::Result<Shared> {
            let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let data = epoll::EventData::new_u64(END);
            epoll::add(&events, &end, data, epoll::EventFlags::IN)?;
            Ok(Shared {
                events,
                end,
                endpoints: Mutex::default(),
            })
        };
        let shared = Arc::new(open().map_err(rustix::io::Errno::raw_os_error)?);
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("softofi".to_owned());
        let thread = thread.spawn(move || of_thread.run());
        let thread = thread.map_err(|error| error.raw_os_error().unwrap_or(FI_EIO))?;
        Ok(Self { shared, thread })
    }

    /// Turns an endpoint from now on. `ready` says when it has work, and is open until it is removed.
    pub(crate) fn add(&self, endpoint: Arc<Endpoint>, ready: BorrowedFd<'_>) -> Result<(), c_int> {
        let ordinal = endpoint.ordinal;
        self.shared.endpoints().insert(ordinal, endpoint);
        let data = epoll::EventData::new_u64(u64::from(ordinal));
        let added = epoll::add(&self.shared.events, ready, data, epoll::EventFlags::IN);
        added.map_err(rustix::io::Errno::raw_os_error)
    }

    pub(crate) fn remove(&self, ordinal: u32) {
        self.shared.endpoints().remove(&ordinal);
    }

    pub(crate) fn end(self) {
        let _ = rustix::io::write(&self.shared.end, &1u64.to_ne_bytes());
        // A panic of it was reported when it came.
        let _ = self.thread.join();
    }
}

impl Shared {
    fn run(&self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.events, room, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return say(&format!("softofi: the device's thread ends: {error}")),
            }
            for event in &events {
                let number = event.data.u64();
                if number == END {
                    return;
                }
                let ordinal = u32::try_from(number).unwrap_or(u32::MAX);
                let endpoint = self.endpoints().get(&ordinal).cloned();
                if let Some(endpoint) = endpoint {
                    guard::value((), || endpoint.step());
                }
            }
        }
    }

    fn endpoints(&self) -> MutexGuard<'_, HashMap<u32, Arc<Endpoint>>> {
        self.endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
