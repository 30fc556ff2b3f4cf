//! What an initiator has of one peer: a connection, parts that wait for their time, and signs of life.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::address::Address;
use super::frame::{Head, kind};
use super::link::Link;

/// Parts that are on the way to a peer at once.
const WINDOW: usize = 64;

/// A peer that lets nobody in is asked again after this time.
const AGAIN: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Peer {
    address: Address,
    pub(crate) link: Option<Link>,
    waiting: BinaryHeap<Reverse<Ready>>,
    /// Parts without an answer that says that they are done.
    flying: usize,
    /// Operations that are not over.
    pub(crate) under_way: usize,
    /// When it has said something, or was idle.
    heard: Instant,
    pub(crate) has_answered: bool,
    /// Since when nobody is there.
    pub(crate) gone: Option<Instant>,
    again: Option<Instant>,
    pub(crate) posts: u64,
}

/// A part whose time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ready {
    pub(crate) due: Instant,
    pub(crate) operation: u64,
    pub(crate) part: u32,
}

/// Who connects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) address: Address,
    pub(crate) ordinal: u32,
}

impl Peer {
    pub(crate) fn new(address: Address, now: Instant) -> Self {
        Self {
            address,
            link: None,
            waiting: BinaryHeap::new(),
            flying: 0,
            under_way: 0,
            heard: now,
            has_answered: false,
            gone: None,
            again: None,
            posts: 0,
        }
    }

    /// An operation begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.under_way == 0 {
            self.heard = now;
        }
        self.under_way += 1;
    }

    pub(crate) fn wait(&mut self, part: Ready) {
        self.waiting.push(Reverse(part));
    }

    /// Takes the next part, if its time has come and the peer takes more.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Ready> {
        let has_room = self.link.as_ref().is_some_and(Link::has_room);
        let first = self.waiting.peek().map(|Reverse(ready)| ready.due);
        if !has_room || self.flying >= WINDOW || first.is_none_or(|due| due > now) {
            return None;
        }
        self.waiting.pop().map(|Reverse(ready)| ready)
    }

    /// Takes the next part whatever its time: the endpoint is about to close.
    pub(crate) fn next_of_all(&mut self) -> Option<Ready> {
        let has_room = self.link.as_ref().is_some_and(Link::has_room);
        if !has_room {
            return None;
        }
        self.waiting.pop().map(|Reverse(ready)| ready)
    }

    pub(crate) fn has_sent(&mut self) {
        self.flying += 1;
    }

    /// A frame has come that ends a part.
    pub(crate) fn has_ended_one(&mut self) {
        self.flying = self.flying.saturating_sub(1);
    }

    pub(crate) fn hear(&mut self, now: Instant) {
        self.heard = now;
        self.has_answered = true;
    }

    /// Connects, when there is something to send and nobody is known to be gone.
    pub(crate) fn connect(&mut self, own: Own, ready: &OwnedFd, now: Instant) {
        let waits = self.again.is_some_and(|again| again > now);
        if self.link.is_some() || self.gone.is_some() || self.waiting.is_empty() || waits {
            return;
        }
        self.again = None;
        match self.try_to_connect(ready) {
            Ok(mut link) => {
                let mut hello = Head::new(kind::HELLO);
                hello.data = u64::from(own.ordinal);
                let address = own.address.bytes();
                let filled: Result<(), std::convert::Infallible> =
                    link.put(hello, address.len(), |room| {
                        room.copy_from_slice(address);
                        Ok(())
                    });
                let Ok(()) = filled;
                self.link = Some(link);
            }
            Err(Errno::AGAIN) => self.again = Some(now + AGAIN),
            Err(_) => self.gone = Some(now),
        }
    }

    fn try_to_connect(&self, ready: &OwnedFd) -> rustix::io::Result<Link> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &self.address.socket()?)?;
        Link::new(socket, ready)
    }

    /// Nobody is there any more.
    pub(crate) fn lose(&mut self, now: Instant) {
        self.link = None;
        self.flying = 0;
        if self.under_way > 0 {
            self.gone = Some(now);
        }
    }

    /// What was under way has ended; who posts again begins anew.
    pub(crate) fn reset(&mut self) {
        self.link = None;
        self.flying = 0;
        self.gone = None;
        self.again = None;
        self.waiting.clear();
    }

    /// Whether it was silent for too long.
    pub(crate) fn is_overdue(&self, timeout: Duration, now: Instant) -> bool {
        self.under_way > 0 && self.gone.is_none() && now >= self.heard + timeout
    }

    /// When there is something to do, if nothing comes from the peer.
    pub(crate) fn next_work(&self, dead_after: Duration, timeout: Duration) -> Option<Instant> {
        let dead = self.gone.map(|gone| gone + dead_after);
        let overdue = (self.under_way > 0).then_some(self.heard + timeout);
        let can_send = self.flying < WINDOW && self.link.as_ref().is_none_or(Link::has_room);
        let first = self.waiting.peek().map(|Reverse(ready)| ready.due);
        let first = first.filter(|_| can_send && self.gone.is_none());
        let first = self.again.or(first);
        [dead, overdue.filter(|_| dead.is_none()), first]
            .into_iter()
            .flatten()
            .min()
    }
}
