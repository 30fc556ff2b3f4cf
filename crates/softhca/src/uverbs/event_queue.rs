//! Descriptors from which events are read.
//!
//! A descriptor is the reading end of a pipe; [`EventQueue`] holds the other end. A pipe keeps records whole, since they are shorter than
//! `PIPE_BUF`. When the pipe is full, events are dropped, as in the kernel beyond its limit.
//!
//! When a program destroys an object, it learns how many events of the object were read. Then libibverbs waits until the program has
//! acknowledged just as many. So events that were not read yet are taken out of the pipe again.

// UNSAFETY: borrows a descriptor that the caller names by its number.
#![expect(unsafe_code, reason = "the caller's eventfd")]

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{fcntl_dupfd_cloexec, ioctl_fionread};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::File as Pipe;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::Context as DeviceContext;
use crate::errno::Errno;
use crate::shim::{self, File};

/// The purpose of a descriptor, which says what bytes are read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Asynchronous events of verbs: 16 bytes with number and type.
    Asynchronous,
    /// Completion channel: 8 bytes with the CQ's user handle.
    Completions,
    /// DevX events: a cookie, followed by the entry of the event queue unless that is left out.
    Devx { omit_data: bool },
    /// Answers to DevX queries: a number that the caller chose, followed by the command's output.
    DevxCommands,
}

impl Purpose {
    /// Returns whether records have no fixed length. Then one read gives one record, however long the buffer is.
    fn has_packets(self) -> bool {
        matches!(self, Self::Devx { .. } | Self::DevxCommands)
    }
}

/// The writing end of the pipe, and a private copy of the reading end.
pub(super) struct EventQueue {
    device: DeviceContext,
    /// The descriptor number of the reading end in this process, while it is open.
    pub(super) fd: RawFd,
    pub(super) purpose: Purpose,
    /// The ends. None when reader or context are gone: the reader then finds the end of the file.
    ends: Mutex<Option<Ends>>,
}

struct Ends {
    reader: OwnedFd,
    writer: Pipe,
}

/// Opens a descriptor for events. `publish` reports its number to the caller.
pub(super) fn open(
    device: &DeviceContext,
    purpose: Purpose,
    publish: impl FnOnce(u32) -> Result<(), Errno>,
) -> Result<Arc<EventQueue>, Errno> {
    let (reader, writer) = if purpose.has_packets() {
        packet_pipe()?
    } else {
        pipe()?
    };
    // The copy is made before the descriptor is known: a descriptor that is copied later counts as open.
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
    let _given_to_the_caller = reader.into_raw_fd();
    Ok(queue)
}

/// Opens a pipe whose writing end does not block.
fn pipe() -> Result<(OwnedFd, Pipe), Errno> {
    let (reader, writer) = std::io::pipe().map_err(|_| Errno::EMFILE)?;
    let writer: OwnedFd = writer.into();
    fcntl_setfl(&writer, OFlags::NONBLOCK)?;
    Ok((reader.into(), writer.into()))
}

/// Opens a pipe as `pipe` does, in which one read gives the bytes of one write. Each write takes a page.
fn packet_pipe() -> Result<(OwnedFd, Pipe), Errno> {
    /// Size to which any user may enlarge a pipe.
    const BYTES: usize = 1 << 20;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT)?;
    // O_DIRECT stays set, since it is in the same word of flags.
    fcntl_setfl(&writer, OFlags::NONBLOCK | OFlags::DIRECT)?;
    // If a larger pipe is refused, it holds fewer records.
    let _ = fcntl_setpipe_size(&writer, BYTES);
    Ok((reader, writer.into()))
}

/// Returns a copy of the caller's eventfd.
pub(super) fn copy_eventfd(fd: u32) -> Result<Pipe, Errno> {
    let known = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::EBADF)?;
    if known.as_os_str() != "anon_inode:[eventfd]" {
        return Err(Errno::EINVAL);
    }
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the caller named the descriptor and keeps it open during the call; for a number that is none the kernel returns an error.
    let named = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(fcntl_dupfd_cloexec(named, 0)?.into())
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

    /// Ends the queue: the reader finds the end of the file.
    pub(super) fn end(&self) {
        self.ends().take();
    }

    pub(super) fn is_open(&self) -> bool {
        self.ends().is_some()
    }

    /// Adds a record. Returns whether the pipe had room for it, and a reader.
    pub(super) fn push(&self, record: &[u8]) -> bool {
        match &*self.ends() {
            Some(Ends { writer, .. }) => (&mut &*writer)
                .write(record)
                .is_ok_and(|written| written == record.len()),
            None => false,
        }
    }

    /// Takes out the records of `bytes` bytes that begin with `start`. Returns their number.
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
            // The pipe has room, since these records were in it before.
            let _ = (&mut &ends.writer).write_all(&kept.concat());
        }
        gone.len()
    }
}

impl Ends {
    /// Takes everything out that has not been read. This does not wait: the bytes go through a private pipe, since a reader may read at the
    /// same time.
    fn drain(&self) -> Vec<u8> {
        let mut unread = Vec::new();
        while let Some(bytes) = waiting_bytes(&self.reader) {
            let Ok((between, entry)) = pipe() else {
                break; // no descriptor left: what is unread stays and is delivered
            };
            let moved = splice(
                &self.reader,
                None,
                &entry,
                None,
                bytes,
                SpliceFlags::NONBLOCK,
            );
            if !moved.is_ok_and(|bytes| bytes > 0) {
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

/// Returns how many bytes wait to be read; `None` if none wait.
fn waiting_bytes(reader: &OwnedFd) -> Option<usize> {
    let bytes = usize::try_from(ioctl_fionread(reader).ok()?).ok()?;
    (bytes > 0).then_some(bytes)
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
    fn one_read_gives_one_packet() {
        let (reader, writer) = packet_pipe().unwrap();
        for record in [&b"first"[..], b"second, longer", b"third"] {
            (&mut &writer).write_all(record).unwrap();
        }
        let mut reader = Pipe::from(reader);
        let mut buffer = [0; 64];
        for expected in [&b"first"[..], b"second, longer", b"third"] {
            let bytes = reader.read(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], expected);
        }
    }

    #[test]
    fn only_an_eventfd_is_copied_as_one() {
        assert_eq!(copy_eventfd(0x7fff_ffff).unwrap_err(), Errno::EBADF);
        let (reader, _writer) = pipe().unwrap();
        let fd = u32::try_from(reader.as_raw_fd()).unwrap();
        assert_eq!(copy_eventfd(fd).unwrap_err(), Errno::EINVAL);
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
