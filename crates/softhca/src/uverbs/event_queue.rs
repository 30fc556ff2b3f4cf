//! A descriptor that events are read from.
//!
//! It is the reading end of a pipe; [`EventQueue`] holds the other end. A pipe keeps records whole, since they are shorter than
//! `PIPE_BUF`. When it is full, events are dropped, as the kernel does beyond its limit.
//!
//! When an object is destroyed, its caller is told how many of its events have been read, and libibverbs waits until the
//! program has acknowledged just as many. So the events that were not read yet are taken out of the pipe again.

// UNSAFETY: splice and FIONREAD on descriptors of ours.
#![expect(unsafe_code, reason = "splice and ioctl on a pipe")]

use std::fs::File as Pipe;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Context;
use crate::device::Context as DeviceContext;
use crate::errno::Errno;
use crate::shim::{self, File};

/// What is read from a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Asynchronous events of verbs: 16 bytes, number and type.
    Asynchronous,
    /// Completion channel: 8 bytes, the completion queue's user handle.
    Completions,
    /// DevX events: a cookie, and behind it the entry of the event queue unless it is left out.
    Devx { omit_data: bool },
}

/// The writing end, and a private copy of the reading one.
pub(super) struct EventQueue {
    device: DeviceContext,
    /// The reading end's number in this process, while it is open.
    pub(super) fd: RawFd,
    pub(super) purpose: Purpose,
    /// Gone when reader or context are: the reader then finds the end of the file.
    ends: Mutex<Option<Ends>>,
}

struct Ends {
    reader: OwnedFd,
    writer: Pipe,
}

/// Opens a descriptor for events and has `publish` tell the caller its number.
pub(super) fn open(
    context: &Context,
    purpose: Purpose,
    publish: impl FnOnce(u32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let device = context.device()?.clone();
    let (reader, writer) = pipe()?;
    // Before the descriptor is known: what is copied later counts as open.
    let copy = reader.try_clone().map_err(|_| Errno::EMFILE)?;
    let queue = Arc::new(EventQueue {
        device: device.clone(),
        fd: reader.as_raw_fd(),
        purpose,
        ends: Mutex::new(Some(Ends {
            reader: copy,
            writer,
        })),
    });
    device.count_event_fd(true);
    // From here on, closing the descriptor ends the queue.
    if let Err(error) = shim::insert(reader.as_raw_fd(), queue.clone()) {
        queue.closed();
        return Err(error);
    }
    let number = u32::try_from(reader.as_raw_fd()).map_err(|_| Errno::EMFILE)?;
    publish(number)?; // on failure `reader` closes here
    context.subscriptions().add(queue);
    let _given_to_the_caller = reader.into_raw_fd();
    Ok(())
}

/// A pipe whose writing end does not block.
fn pipe() -> Result<(OwnedFd, Pipe), Errno> {
    let (reader, writer) = std::io::pipe().map_err(|_| Errno::EMFILE)?;
    let writer: OwnedFd = writer.into();
    shim::set_nonblocking(&writer)?;
    Ok((reader.into(), writer.into()))
}

impl File for EventQueue {
    fn closed(&self) {
        self.end();
        self.device.count_event_fd(false);
    }
}

impl EventQueue {
    fn ends(&self) -> MutexGuard<'_, Option<Ends>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader finds the end of the file.
    pub(super) fn end(&self) {
        self.ends().take();
    }

    pub(super) fn is_open(&self) -> bool {
        self.ends().is_some()
    }

    /// Adds a record; whether there was room for it, and a reader.
    pub(super) fn push(&self, record: &[u8]) -> bool {
        match &*self.ends() {
            Some(Ends { writer, .. }) => (&mut &*writer)
                .write(record)
                .is_ok_and(|written| written == record.len()),
            None => false,
        }
    }

    /// Takes out the records of `bytes` bytes that begin with `start`; how many there were.
    pub(super) fn withdraw(&self, bytes: usize, start: &[u8]) -> usize {
        let ends = self.ends();
        let Some(ends) = &*ends else {
            return 0;
        };
        let unread = ends.drain();
        let (gone, kept): (Vec<_>, Vec<_>) = unread
            .chunks(bytes)
            .partition(|record| record.starts_with(start));
        if !kept.is_empty() {
            // There is room: it was there before.
            let _ = (&mut &ends.writer).write_all(&kept.concat());
        }
        gone.len()
    }
}

impl Ends {
    /// Everything that has not been read, taken out. It does not wait: the bytes go through a pipe of our own, since a
    /// reader may be at the same time.
    fn drain(&self) -> Vec<u8> {
        let mut unread = Vec::new();
        while let Some(bytes) = waiting_bytes(&self.reader) {
            let Ok((between, entry)) = pipe() else {
                break; // no descriptor left: what is unread stays and is delivered
            };
            // SAFETY: two open pipes; null stands for "no offset".
            let moved = unsafe {
                libc::splice(
                    self.reader.as_raw_fd(),
                    ptr::null_mut(),
                    entry.as_raw_fd(),
                    ptr::null_mut(),
                    bytes,
                    libc::SPLICE_F_NONBLOCK,
                )
            };
            if moved <= 0 {
                break; // a reader was faster
            }
            drop(entry);
            if Pipe::from(between).read_to_end(&mut unread).is_err() {
                break;
            }
        }
        unread
    }
}

/// Bytes that wait to be read; `None` if there are none.
fn waiting_bytes(reader: &OwnedFd) -> Option<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request stores one int.
    let result = unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| result == 0 && *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        let (reader, writer) = pipe().unwrap();
        Ends { reader, writer }
    }

    #[test]
    fn an_empty_pipe_is_drained_at_once() {
        assert_eq!(ends().drain(), []);
    }

    #[test]
    fn everything_unread_is_drained() {
        let ends = ends();
        for number in 0..5000u64 {
            (&mut &ends.writer)
                .write_all(&number.to_ne_bytes())
                .unwrap();
        }
        let mut first = [0; 8];
        Pipe::from(ends.reader.try_clone().unwrap())
            .read_exact(&mut first)
            .unwrap();
        let drained = ends.drain();
        let expected: Vec<u8> = (1..5000u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(drained, expected);
        assert_eq!(waiting_bytes(&ends.reader), None);
    }
}
