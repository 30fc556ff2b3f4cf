//! An endpoint at work: both of its sides, and the descriptor that says that there is something to do.

use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use libfabric_abi::bindings::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use libfabric_abi::errors::FI_EIO;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::address::Address;
use super::operation::Order;
use super::peer::Own;
use super::receiver::{Host, Receiver};
use super::sender::Sender;
use super::timer::Timer;
use crate::objects::{Bound, Endpoint};

pub(crate) struct Work {
    address: Address,
    bound: Bound,
    /// Readable when a step would do something.
    ready: OwnedFd,
    /// A post wakes who waits for `ready`.
    posted: OwnedFd,
    timer: Timer,
    sender: Sender,
    receiver: Receiver,
}

impl Work {
    pub(crate) fn new(endpoint: &Endpoint, bound: Bound) -> Result<Self, c_int> {
        let domain = &endpoint.domain;
        let address = Address::new(endpoint.ordinal);
        let open = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
            let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let posted = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            watch(&ready, &posted)?;
            Ok((ready, posted))
        };
        let (ready, posted) = open().map_err(rustix::io::Errno::raw_os_error)?;
        let timer = Timer::new().map_err(|error| error.raw_os_error().unwrap_or(FI_EIO))?;
        watch(&ready, &timer).map_err(rustix::io::Errno::raw_os_error)?;
        let host = Host {
            domain: domain.clone(),
            vector: bound.vector.clone(),
            queue: bound.receives.clone(),
            ordinal: endpoint.ordinal,
            may_be_read: endpoint.may(FI_REMOTE_READ),
            may_be_written: endpoint.may(FI_REMOTE_WRITE),
        };
        let own = Own {
            address,
            ordinal: endpoint.ordinal,
        };
        Ok(Self {
            address,
            receiver: Receiver::new(host, &address, &ready)?,
            sender: Sender::new(own, domain.config.clone(), bound.sends.clone()),
            bound,
            ready,
            posted,
            timer,
        })
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn ready(&self) -> &OwnedFd {
        &self.ready
    }

    pub(crate) fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Takes an operation, or refuses it for now.
    pub(crate) fn post(&mut self, order: Order) -> Result<(), c_int> {
        self.sender.post(order, Instant::now())?;
        // It cannot be full: each write adds one.
        let _ = rustix::io::write(&self.posted, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Whether operations to this peer are under way.
    pub(crate) fn uses(&self, peer: &Address) -> bool {
        self.sender.uses(peer)
    }

    /// Does all that can be done now, if there is anything.
    pub(crate) fn step(&mut self) {
        let mut event = Vec::with_capacity(1);
        let now = Timespec::default();
        let room = rustix::buffer::spare_capacity(&mut event);
        if epoll::wait(&self.ready, room, Some(&now)) == Ok(0) {
            return;
        }
        let mut word = [0; 8];
        let _ = rustix::io::read(&self.posted, &mut word);
        let now = Instant::now();
        self.receiver.step(&self.ready, now);
        self.sender.step(&self.ready, now);
        let next = [self.receiver.next_work(), self.sender.next_work()];
        self.timer.set(next.into_iter().flatten().min(), now);
    }

    /// Ends it: nothing lands by it from now on. What was bound to it is free.
    pub(crate) fn close(self) -> Bound {
        self.receiver.close();
        self.sender.close(&self.ready);
        self.bound
    }
}

fn watch(ready: &OwnedFd, descriptor: impl AsFd) -> rustix::io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    epoll::add(ready, descriptor, data, epoll::EventFlags::IN)
}
