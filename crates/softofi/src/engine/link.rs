//! A connection between an initiator and a target. Nothing here waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::frame::{HEAD_BYTES, Head, Split, split};

/// Read in one turn at most, so that one peer does not keep a thread from the others.
const MOST_INPUT: usize = 1 << 20;

/// Least room for one call that reads.
const CHUNK: usize = 64 << 10;

/// More is not put into the output while so much waits there.
const MOST_OUTPUT: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    input: Vec<u8>,
    /// Of `input`, taken.
    taken: usize,
    output: Vec<u8>,
    /// Of `output`, sent.
    sent: usize,
    ended: bool,
    watches_output: bool,
}

impl Link {
    /// Of a socket that does not block and that `ready` watches for input.
    pub(crate) fn new(socket: OwnedFd, ready: &OwnedFd) -> rustix::io::Result<Self> {
        epoll::add(ready, &socket, data(&socket), epoll::EventFlags::IN)?;
        Ok(Self {
            socket,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            sent: 0,
            ended: false,
            watches_output: false,
        })
    }

    /// Whether the other end is gone, and all that came from it was taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended && matches!(split(&self.input[self.taken..]), Split::More)
    }

    /// Whether another frame may be put into the output.
    pub(crate) fn has_room(&self) -> bool {
        !self.ended && self.output.len() - self.sent < MOST_OUTPUT
    }

    /// Reads what has arrived. Returns whether there was anything.
    pub(crate) fn fill(&mut self) -> bool {
        if self.taken > 0 {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        let before = self.input.len();
        while !self.ended && self.input.len() - before < MOST_INPUT {
            self.input.reserve(CHUNK);
            let room = rustix::buffer::spare_capacity(&mut self.input);
            match recv(&self.socket, room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.ended = true,
                Ok(_) => {}
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.ended = true,
            }
        }
        self.input.len() > before
    }

    /// The next frame that is whole.
    pub(crate) fn next(&mut self) -> Option<(Head, &[u8])> {
        match split(&self.input[self.taken..]) {
            Split::Frame(head, bytes) => {
                let start = self.taken + HEAD_BYTES;
                self.taken += bytes;
                Some((head, &self.input[start..self.taken]))
            }
            Split::More => None,
            Split::Nonsense => {
                self.ended = true;
                self.input.clear();
                self.taken = 0;
                None
            }
        }
    }

    /// Puts a frame into the output; `fill` writes its bytes. With an error of it nothing is put.
    pub(crate) fn put<E>(
        &mut self,
        head: Head,
        payload: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        let start = self.output.len();
        let head = Head {
            payload: u32::try_from(payload).unwrap_or(u32::MAX),
            ..head
        };
        self.output.extend_from_slice(bytemuck::bytes_of(&head));
        let first = self.output.len();
        self.output.resize(first + payload, 0);
        let filled = fill(&mut self.output[first..]);
        if filled.is_err() {
            self.output.truncate(start);
        }
        filled
    }

    /// Puts a frame without bytes.
    pub(crate) fn say(&mut self, head: Head) {
        let filled: Result<(), std::convert::Infallible> = self.put(head, 0, |_| Ok(()));
        let Ok(()) = filled;
    }

    /// Sends what can be sent, and has `ready` tell of room when there is none.
    pub(crate) fn flush(&mut self, ready: &OwnedFd) {
        while !self.ended && self.sent < self.output.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.output[self.sent..], flags) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // What the peer has said before it went is read first.
                Err(_) => self.sent = self.output.len(),
            }
        }
        let waits = !self.ended && self.sent < self.output.len();
        if waits != self.watches_output {
            let output = if waits {
                epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::empty()
            };
            let flags = epoll::EventFlags::IN | output;
            // It was added by `new`.
            let _ = epoll::modify(ready, &self.socket, data(&self.socket), flags);
            self.watches_output = waits;
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Nobody reads it: a turn looks at all connections.
fn data(_: &OwnedFd) -> epoll::EventData {
    epoll::EventData::new_u64(0)
}
